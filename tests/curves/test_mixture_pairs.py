"""Aligned mixtures against high-precision sums, other accountants' pairs and their own cells."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dplateau.curves.mixture_pairs import MixturePair
from dplateau.curves.pairs import Order, PoissonPair
from dplateau.curves.privacy_loss import compose_pairs, discretize
from dplateau.numerics.bernoulli_laws import NOTHING, AtomLaw, upper_law
from dplateau.numerics.normal import gaussian_delta

ORDERS: tuple[Order, ...] = ("remove", "add")
EPSILONS = [-2.0, -0.3, 0.0, 0.01, 0.4, 1.5, 4.0]
HALF = AtomLaw((0.0, 0.5), (0.5, 0.5))
THREE = AtomLaw((0.0, 0.3, 2.0), (0.7, 0.2, 0.1))
MOVED = AtomLaw((0.4, 1.1), (0.25, 0.75))
# More atoms than are added up one by one: chords and tangents take over.
MANY = upper_law(np.linspace(0.1, 0.3, 7), np.full(7, 0.2))
LONG = upper_law(0.97 ** np.arange(200.0) / 4, np.full(200, 0.05))
PAIRS = [
    MixturePair(HALF),
    MixturePair(HALF, HALF),
    MixturePair(THREE),
    MixturePair(THREE, HALF),
    MixturePair(MOVED),
    MixturePair(MOVED, THREE),
    MixturePair(NOTHING, MOVED),
    MixturePair(NOTHING, THREE),
    MixturePair(MANY),
    MixturePair(MANY, MANY),
    MixturePair(LONG, THREE),
    MixturePair(AtomLaw((0.7,), (1.0,)), AtomLaw((0.5,), (1.0,))),
]


def exact_stick(pair: MixturePair, epsilon: float, order: Order) -> mp.mpf:
    """The divergence from its definition: masses of the half-line where the ratio is large."""
    up = [(mp.mpf(m), mp.mpf(x)) for x, m in zip(pair.up.points, pair.up.masses, strict=True)]
    down = [
        (mp.mpf(m), -mp.mpf(x)) for x, m in zip(pair.down.points, pair.down.masses, strict=True)
    ]

    def density(law: list[tuple[mp.mpf, mp.mpf]], y: mp.mpf) -> mp.mpf:
        return mp.fsum(m * mp.exp(x * y - x * x / 2) for m, x in law)

    def loss(y: mp.mpf) -> mp.mpf:
        return mp.log(density(up, y) / density(down, y))

    sign = 1 if order == "remove" else -1
    low, high = mp.mpf(-200), mp.mpf(200)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) < sign * epsilon else (low, middle)

    def tail(law: list[tuple[mp.mpf, mp.mpf]]) -> mp.mpf:
        return mp.fsum(m * mp.ncdf(sign * (x - low)) for m, x in law)

    first, second = (tail(up), tail(down))[::sign]
    return first - mp.exp(epsilon) * second


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pair", PAIRS[:8] + PAIRS[-1:], ids=range(9))
def test_delta_is_the_hockey_stick(pair: MixturePair, order: Order) -> None:
    with mp.workdps(40):
        exact = np.array([float(exact_stick(pair, e, order)) for e in EPSILONS])
    np.testing.assert_allclose(pair.delta(np.array(EPSILONS), order), exact, atol=1e-9)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pair", PAIRS, ids=range(len(PAIRS)))
def test_delta_is_the_integral_of_the_positive_part(pair: MixturePair, order: Order) -> None:
    y = np.linspace(-14.0, 16.0, 20_001)
    p, q = (
        sum(m * stats.norm.pdf(y, sign * x) for x, m in zip(law.points, law.masses, strict=True))
        for law, sign in ((pair.up, 1), (pair.down, -1))
    )
    first, second = (p, q) if order == "remove" else (q, p)
    for epsilon in (0.0, 0.4, 1.5):
        wanted = integrate.trapezoid(np.maximum(first - math.exp(epsilon) * second, 0.0), y)
        assert float(pair.delta(np.array(epsilon), order)) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("q", "r"), [(0.01, 1.0), (0.3, 0.4), (0.9, 3.0), (1e-4, 0.02)])
def test_two_atoms_are_the_sampled_gaussian(q: float, r: float, order: Order) -> None:
    pair, known = MixturePair(AtomLaw((0.0, r), (1 - q, q))), PoissonPair(q, r)
    eps = np.array(EPSILONS)
    np.testing.assert_allclose(pair.delta(eps, order), known.delta(eps, order), atol=1e-12)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize(("q", "r", "count"), [(0.01, 1.0, 1000), (0.3, 0.4, 20), (0.9, 2.0, 3)])
def test_two_atoms_compose_as_the_sampled_gaussian(
    q: float, r: float, count: int, delta: float
) -> None:
    pair, known = MixturePair(AtomLaw((0.0, r), (1 - q, q))), PoissonPair(q, r)
    found, wanted = (
        compose_pairs([(one, count)], target_delta=delta).epsilon() for one in (pair, known)
    )
    assert found == pytest.approx(wanted, rel=2e-3)


def test_one_atom_on_each_side_is_gaussian() -> None:
    pair = PAIRS[-1]
    assert pair.symmetric
    eps = np.array(EPSILONS)
    for order in ORDERS:
        np.testing.assert_allclose(pair.delta(eps, order), gaussian_delta(eps, 1.2), atol=1e-12)
    three = compose_pairs([(pair, 3)], target_delta=1e-6).epsilon()
    exact = compose_pairs([(PoissonPair(1.0, 1.2), 3)], target_delta=1e-6).epsilon()
    assert three == pytest.approx(exact, rel=2e-3)


def random_law(rng: np.random.Generator, most: int) -> AtomLaw:
    size = int(rng.integers(1, most))
    points = np.sort(rng.uniform(0, 1, size)) * 10.0 ** rng.uniform(-3, 1)
    if rng.random() < 0.5:
        points[0] = 0.0
    masses = rng.dirichlet(np.full(size, rng.choice([0.1, 1.0, 10.0]))) + 1e-15
    masses /= masses.sum()
    distinct = np.unique(points)
    sums = np.bincount(np.searchsorted(distinct, points), masses)
    return AtomLaw(tuple(distinct.tolist()), tuple(sums.tolist()))


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), order=st.sampled_from(ORDERS), width=st.floats(0.003, 1.0))
def test_cells_are_outer_bounds(seed: int, order: Order, width: float) -> None:
    """Borders are moved by at most their stated error; between them no mass is lost or gained."""
    rng = np.random.default_rng(seed)
    pair = MixturePair(random_law(rng, 40), random_law(rng, 40) if rng.random() < 0.5 else NOTHING)
    if pair.trivial:
        return
    low, high = pair.loss_range(1e-6, order)
    step = max(width, (high - low) / 300)
    edges = step * np.arange(math.floor(low / step), math.ceil(high / step) + 2)
    cells = pair.cells(edges, order)
    assert cells.border_error < 1e-6
    first = np.exp(cells.log_first)
    # P of all cells is at least one, the second law's total is at most one.
    assert first.sum() >= 1 - 1e-13
    assert np.exp(cells.log_second).sum() <= 1 + 1e-13
    # The tail of the first law beyond an edge, from exact sticks: P(L > e) >= stick(e).
    at = edges + cells.border_error
    above = np.cumsum(first[::-1])[::-1][1:]
    below = np.cumsum(np.exp(cells.log_second)[::-1])[::-1][1:]
    sticks = pair.delta(at, order)
    assert np.all(above - np.exp(edges) * below >= sticks - 1e-12 * (1 + np.exp(edges) * below))


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), order=st.sampled_from(ORDERS))
def test_a_discretized_pair_dominates(seed: int, order: Order) -> None:
    rng = np.random.default_rng(seed)
    pair = MixturePair(random_law(rng, 30), random_law(rng, 30) if rng.random() < 0.5 else NOTHING)
    if pair.trivial:
        return
    span = float(np.ptp(pair.loss_range(1e-9, order)))
    law = discretize(pair, order, span / 400, 1e-9)
    losses = law.step * (law.lowest + np.arange(law.masses.size)) + law.shift
    eps = np.linspace(0.0, 0.8 * max(losses[-1], 0.1), 9)
    found = [
        float((law.masses * np.maximum(-np.expm1(e - losses), 0.0)).sum() + law.infinity_mass)
        for e in eps
    ]
    exact = pair.delta(eps, order)
    assert np.all(found >= exact - 1e-12)
    # Connecting the dots costs about the square of a step.
    assert np.all(found <= exact + 5e-3)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_larger_moves_are_never_more_private(seed: int) -> None:
    rng = np.random.default_rng(seed)
    up, down = random_law(rng, 12), random_law(rng, 12)
    larger = AtomLaw(tuple(x + 0.1 * (i + 1) for i, x in enumerate(up.points)), up.masses)
    eps = np.array(EPSILONS)
    for order in ORDERS:
        before = MixturePair(up, down).delta(eps, order)
        assert np.all(MixturePair(larger, down).delta(eps, order) >= before - 1e-10)
        assert np.all(MixturePair(up, larger).delta(eps, order) >= 0.0)
        swapped = MixturePair(down, up).delta(eps, "add" if order == "remove" else "remove")
        np.testing.assert_allclose(swapped, before, atol=1e-10)


def test_a_law_against_its_mirror_image_is_symmetric() -> None:
    pair = MixturePair(THREE, THREE)
    assert pair.symmetric
    eps = np.array(EPSILONS)
    np.testing.assert_allclose(pair.delta(eps, "remove"), pair.delta(eps, "add"), atol=1e-12)
    assert not MixturePair(THREE).symmetric
    assert MixturePair(NOTHING).trivial
    assert not MixturePair(NOTHING, HALF).trivial


def test_losses_stay_above_the_share_that_never_moves() -> None:
    low, _ = MixturePair(THREE).loss_range(1e-12, "remove")
    assert low >= math.log(0.7)
    assert float(MixturePair(THREE).delta(np.array(-2.0), "remove")) == pytest.approx(
        1 - math.exp(-2.0)
    )


def test_distant_atoms_and_large_epsilons_do_not_overflow() -> None:
    far = MixturePair(AtomLaw((0.0, 300.0), (0.9, 0.1)), HALF)
    eps = np.array([0.0, 100.0, 800.0, 40_000.0])
    values = far.delta(eps, "remove")
    assert np.all(np.diff(values) <= 1e-15)
    assert values[2] == pytest.approx(0.1, abs=1e-9)
    assert 0.1 <= float(compose_pairs([(far, 1)], target_delta=0.05).delta(np.array(800.0))) < 0.101


def test_chords_and_sums_of_atoms_agree() -> None:
    """The same law with 16 atoms and, one atom split into hairs, with more."""
    points = np.linspace(0.0, 1.5, 16)
    masses = np.full(16, 1 / 16)
    few = AtomLaw(tuple(points.tolist()), tuple(masses.tolist()))
    split = np.r_[points[:-1], 1.5 + 1e-12 * np.arange(4)]
    many = AtomLaw(tuple(split.tolist()), (*masses[:-1].tolist(), *[1 / 64] * 4))
    edges = np.linspace(-1.0, 2.0, 61)
    for order in ORDERS:
        exact, bounded = (MixturePair(law).cells(edges, order) for law in (few, many))
        assert np.all(bounded.log_first >= exact.log_first - 1e-9)
        assert np.all(bounded.log_second <= exact.log_second + 1e-9)
        np.testing.assert_allclose(bounded.log_first, exact.log_first, atol=2e-3)
