"""Dominating pairs against high-precision integrals, closed forms and their own definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau.curves.pairs import LaplacePair, Order, PoissonPair, SubsampledGaussianPair
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.normal import gaussian_delta

ORDERS: tuple[Order, ...] = ("remove", "add")
POISSON = [
    PoissonPair(0.01, 1.0),
    PoissonPair(0.01, 1.0, 0.3),
    PoissonPair(256 / 60000, 1 / 1.1),
    PoissonPair(0.5, 0.4, 0.05),
    PoissonPair(0.9, 3.0),
    PoissonPair(1e-4, 0.02),
    PoissonPair(1.0, 0.7, 0.2),
    PoissonPair(0.0, 0.7, 0.2),
    PoissonPair(1.0 - 1e-9, 2.0),
]
EPSILONS = [-3.0, -0.2, -0.005, -1e-4, 0.0, 1e-4, 0.02, 0.5, 2.0, 8.0]


def poisson_stick(pair: PoissonPair, epsilon: float, order: Order) -> mp.mpf:
    """The divergence from its definition: masses of the half-line where the ratio is large."""
    q, r, a = (mp.mpf(x) for x in (pair.sampling_rate, pair.step, pair.shift))

    def loss(x: mp.mpf) -> mp.mpf:
        return a * x - a * a / 2 + mp.log(1 - q + q * mp.exp(r * (x - a) - r * r / 2))

    sign = 1 if order == "remove" else -1
    low, high = mp.mpf(-4000), mp.mpf(4000)
    if loss(low) >= sign * epsilon:
        return 1 - mp.exp(epsilon) if sign > 0 else mp.mpf(0)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) < sign * epsilon else (low, middle)

    def tail(mean: mp.mpf) -> mp.mpf:
        return mp.ncdf(-sign * (low - mean))

    mixture = (1 - q) * tail(a) + q * tail(a + r)
    first, second = (mixture, tail(mp.mpf(0)))[::sign]
    return first - mp.exp(epsilon) * second


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pair", POISSON, ids=str)
def test_poisson_delta_is_the_hockey_stick(pair: PoissonPair, order: Order) -> None:
    with mp.workdps(60):
        exact = np.array([float(poisson_stick(pair, e, order)) for e in EPSILONS])
    got = pair.delta(np.array(EPSILONS), order)
    np.testing.assert_allclose(got, exact, rtol=2e-9, atol=1e-290)


def test_poisson_delta_is_accurate_in_the_far_tail() -> None:
    pair = PoissonPair(0.01, 1.0, 0.1)
    with mp.workdps(120):
        exact = [float(poisson_stick(pair, e, "remove")) for e in (15.0, 25.0, 35.0)]
    np.testing.assert_allclose(pair.delta(np.array([15.0, 25.0, 35.0]), "remove"), exact, rtol=2e-9)
    assert exact[-1] < 1e-250


@pytest.mark.parametrize(("rate", "mean"), [(1.0, 1.3), (0.0, 0.3)])
def test_a_certain_or_absent_record_leaves_a_gaussian(rate: float, mean: float) -> None:
    pair, eps = PoissonPair(rate, 1.0, 0.3), np.linspace(-2, 6, 9)
    assert pair.symmetric
    for order in ORDERS:
        np.testing.assert_allclose(pair.delta(eps, order), gaussian_delta(eps, mean), rtol=1e-9)


@given(
    q=st.floats(1e-6, 1 - 1e-6),
    r=st.floats(1e-3, 20.0),
    a=st.one_of(st.just(0.0), st.floats(1e-6, 5.0)),
    loss=st.floats(-20.0, 60.0),
)
def test_point_inverts_loss(q: float, r: float, a: float, loss: float) -> None:
    pair = PoissonPair(q, r, a)
    target = np.array([loss])
    x = pair.point(target)
    if np.isneginf(x[0]):
        assert a == 0.0
        assert loss <= math.log1p(-q) * (1 - 1e-15)
    else:
        assert abs(pair.loss(x)[0] - loss) <= pair.border_error(target, x) < 1e-11


def sampled_loss_cdf(q: float, m: float, t: mp.mpf) -> mp.mpf:
    """Loss of the symmetric subsampling operator: the closed form of its distribution."""
    if t >= 0:
        u = mp.log((q - 1 + mp.exp(t)) / q)
        return q * mp.ncdf(u / m - m / 2) + (1 - q) * mp.ncdf(u / m + m / 2)
    return mp.ncdf(-mp.log((q - 1 + mp.exp(-t)) / q) / m - m / 2)


@pytest.mark.parametrize(("q", "m"), [(0.1, 1.0), (0.01, 2.0), (0.7, 0.5), (1.0, 1.5)])
def test_symmetric_subsampling_matches_its_loss_distribution(q: float, m: float) -> None:
    pair, (qq, mm) = SubsampledGaussianPair(q, m), (mp.mpf(q), mp.mpf(m))
    eps = [-1.5, 0.0, 0.2, 3.0]
    with mp.workdps(15):
        exact = [
            float(
                mp.quad(
                    lambda t, e=e: mp.exp(e - t) * (1 - sampled_loss_cdf(qq, mm, t)),
                    sorted({mp.mpf(e), *(mp.mpf(x) for x in (0, 0.5, 2, 5, 15) if x > e)}),
                )
            )
            for e in eps
        ]
    for order in ORDERS:
        np.testing.assert_allclose(pair.delta(np.array(eps), order), exact, rtol=2e-8)


def test_symmetric_subsampling_dominates_both_orders_of_the_mixture() -> None:
    eps = np.linspace(-3, 3, 61)
    hull, half = SubsampledGaussianPair(0.2, 1.5), PoissonPair(0.2, 1.5)
    for order in ORDERS:
        assert np.all(hull.delta(eps, order) >= half.delta(eps, order) - 1e-10)


def laplace_stick(s: float, q: float, epsilon: float, order: Order) -> float:
    """Both half-lines of constant ratio in closed form, the stretch between by quadrature."""

    def excess(plain: FloatArray, moved: FloatArray) -> FloatArray:
        mixed = (1 - q) * plain + q * moved
        first, second = (mixed, plain) if order == "remove" else (plain, mixed)
        return np.maximum(first - math.exp(epsilon) * second, 0.0)

    x = np.linspace(0.0, s, 200_001)
    ends = excess(np.array([1.0, math.exp(-s)]), np.array([math.exp(-s), 1.0])) / 2
    return float(ends.sum() + np.trapezoid(excess(np.exp(-x), np.exp(x - s)) / 2, x))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("s", "q"), [(1.0, 1.0), (2.0, 0.1), (0.3, 0.6)])
def test_laplace_delta_is_the_hockey_stick(s: float, q: float, order: Order) -> None:
    eps = np.array([-2.5, -0.4, -0.05, 0.0, 0.03, 0.3, 0.9, 2.5])
    exact = [laplace_stick(s, q, e, order) for e in eps]
    np.testing.assert_allclose(LaplacePair(s, q).delta(eps, order), exact, rtol=1e-9, atol=1e-9)


def test_laplace_delta_without_sampling_is_the_closed_form() -> None:
    eps = np.linspace(-1, 1.5, 11)
    exact = np.maximum(1 - np.exp((eps - 1.0) / 2), 0.0)
    np.testing.assert_allclose(LaplacePair(1.0).delta(eps, "add"), exact, atol=1e-15)


PAIRS = [
    *POISSON,
    SubsampledGaussianPair(0.05, 1.2),
    SubsampledGaussianPair(0.05, 1.2, 0.4),
    SubsampledGaussianPair(1.0, 0.8),
    LaplacePair(1.0),
    LaplacePair(0.7, 0.2),
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_cells_reproduce_delta_from_above(
    pair: PoissonPair | SubsampledGaussianPair | LaplacePair, order: Order
) -> None:
    low, high = pair.loss_range(1e-12, order)
    edges = np.linspace(low, high, 401)
    cells = pair.cells(edges, order)
    first, second = np.exp(cells.log_first), np.exp(cells.log_second)
    assert 1.0 <= first.sum() < 1.0 + 1e-8
    assert 1.0 - 1e-8 < second.sum() <= 1.0
    assert first[-1] < 2e-12
    tail_first, tail_second = first[::-1].cumsum()[::-1], second[::-1].cumsum()[::-1]
    rebuilt = tail_first[1:] - np.exp(edges) * tail_second[1:]
    exact = pair.delta(edges, order)
    assert np.all(rebuilt >= exact - cells.border_error - 1e-13)
    np.testing.assert_allclose(rebuilt, exact, atol=1e-9)


def test_cells_bound_the_true_masses() -> None:
    pair, edges = PoissonPair(0.02, 1.5, 0.2), np.linspace(-2.0, 12.0, 57)
    cells = pair.cells(edges, "remove")
    points = [mp.mpf(-60), *(mp.mpf(float(x)) for x in pair.point(edges)), mp.mpf(60)]
    with mp.workdps(60):
        for i, (low, high) in enumerate(pairwise(points)):
            means = (mp.mpf(pair.shift), mp.mpf(pair.shift) + mp.mpf(pair.step))
            plain = mp.ncdf(-low) - mp.ncdf(-high)
            stay, move = (mp.ncdf(m - low) - mp.ncdf(m - high) for m in means)
            mixed = (1 - mp.mpf(pair.sampling_rate)) * stay + mp.mpf(pair.sampling_rate) * move
            assert cells.log_first[i] >= mp.log(mixed)
            assert cells.log_second[i] <= mp.log(plain)
            assert cells.log_first[i] - cells.log_second[i] < mp.log(mixed / plain) + 1e-9


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: PoissonPair(1.5, 1.0), "sampling_rate"),
        (lambda: PoissonPair(math.nan, 1.0), "sampling_rate"),
        (lambda: PoissonPair(0.5, -1.0), "step"),
        (lambda: PoissonPair(0.5, 1.0, math.inf), "shift"),
        (lambda: SubsampledGaussianPair(0.5, math.nan), "parameter"),
        (lambda: LaplacePair(-1.0), "ratio"),
    ],
)
def test_values_that_describe_no_pair_are_refused(make: Callable[[], object], name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        make()


@pytest.mark.parametrize(
    "pair", [PoissonPair(0.0, 1.0), PoissonPair(0.3, 0.0), LaplacePair(0.0), LaplacePair(1.0, 0.0)]
)
def test_equal_laws_are_trivial(pair: PoissonPair | LaplacePair) -> None:
    assert pair.trivial
    np.testing.assert_array_equal(pair.delta(np.array([0.0, 1.0]), "add"), 0.0)
    assert pair.delta(np.array([-1.0]), "remove")[0] == pytest.approx(1 - math.exp(-1))
