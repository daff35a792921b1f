"""Discretized and composed privacy losses: never below the truth, and close above it."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dplateau.curves.pairs import (
    DominatingPair,
    LaplacePair,
    Order,
    PoissonPair,
    SubsampledGaussianPair,
)
from dplateau.curves.privacy_loss import (
    LossPmf,
    compose,
    compose_pairs,
    discretize,
    epsilon_over_counts,
)
from dplateau.errors import InvalidInput
from dplateau.numerics.normal import gaussian_delta, gaussian_epsilon

ORDERS: tuple[Order, ...] = ("remove", "add")
MNIST = PoissonPair(256 / 60000, 1 / 1.1)
PAIRS: list[DominatingPair] = [
    MNIST,
    PoissonPair(0.1, 1.0, 0.2),
    PoissonPair(1.0, 0.8),
    PoissonPair(1e-4, 0.05),
    PoissonPair(0.02, 8.0),
    PoissonPair(1 - 1e-7, 1.5),
    SubsampledGaussianPair(0.1, 1.3),
    SubsampledGaussianPair(0.1, 1.3, 0.5),
    LaplacePair(0.9),
    LaplacePair(1.4, 0.3),
]


# --- discretization ----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_discretized_delta_touches_the_exact_one_on_the_grid(
    pair: DominatingPair, order: Order
) -> None:
    low, high = pair.loss_range(1e-10, order)
    step = (high - low) / 300
    law = discretize(pair, order, step, 1e-13)
    composed = compose([(law, 1)], target_delta=1e-5)
    grid = step * np.arange(law.lowest + 1, law.lowest + law.masses.size)
    exact = pair.delta(grid, order)
    assert np.all(composed.delta(grid) >= exact * (1 - 1e-9))
    np.testing.assert_allclose(composed.delta(grid), exact, rtol=1e-7, atol=3e-12)
    between = np.linspace(low - step, high, 2503)
    assert np.all(composed.delta(between) >= pair.delta(between, order) * (1 - 1e-9))


def test_masses_add_up_and_unreachable_losses_stay_empty() -> None:
    law = discretize(MNIST, "remove", 1e-3, 1e-12)
    assert 1.0 <= law.masses.sum() + law.infinity_mass < 1.0 + 1e-9
    assert law.lowest == math.floor(math.log1p(-MNIST.sampling_rate) / 1e-3)
    assert law.infinity_mass < 2e-12
    trivial = discretize(PoissonPair(0.0, 1.0), "remove", 1e-3, 1e-12)
    assert (trivial.lowest, trivial.masses.tolist(), trivial.shift) == (0, [1.0], 0.0)


# --- composition against closed forms ----------------------------------------------------------


@given(
    step=st.floats(0.01, 3.0),
    count=st.integers(1, 3000),
    log_delta=st.floats(-15.0, -1.0),
)
@settings(max_examples=40)
def test_gaussian_composition_is_exact_from_above(
    step: float, count: int, log_delta: float
) -> None:
    delta = 10.0**log_delta
    exact = gaussian_epsilon(delta, step * math.sqrt(count))
    result = compose_pairs([(PoissonPair(1.0, step), count)], target_delta=delta)
    found = result.epsilon()
    assert exact * (1 - 1e-9) <= found
    assert found <= max(exact * 1.001, exact + 2e-5 * step * math.sqrt(count))
    around = np.linspace(0.0, 2.0 * found + 1.0, 101)
    bound, truth = result.delta(around), gaussian_delta(around, step * math.sqrt(count))
    assert np.all(bound >= truth * (1 - 1e-9))


@given(
    parts=st.lists(st.tuples(st.floats(0.02, 1.0), st.integers(1, 300)), min_size=2, max_size=6),
    delta=st.sampled_from([1e-2, 1e-5, 1e-9]),
)
@settings(max_examples=25)
def test_different_gaussians_add_in_squares(parts: list[tuple[float, int]], delta: float) -> None:
    exact = gaussian_epsilon(delta, math.sqrt(sum(n * r * r for r, n in parts)))
    pairs = [(PoissonPair(1.0, r / 2, r / 2), n) for r, n in parts]
    found = compose_pairs(pairs, target_delta=delta).epsilon()
    assert exact * (1 - 1e-9) <= found <= exact * 1.001 + 1e-5


@pytest.mark.parametrize("log_delta", [-30, -100, -250])
def test_gaussian_composition_at_tiny_delta(log_delta: int) -> None:
    delta = 10.0**log_delta
    found = compose_pairs([(PoissonPair(1.0, 0.1), 400)], target_delta=delta).epsilon()
    exact = gaussian_epsilon(delta, 2.0)
    assert exact <= found <= exact * 1.001


def test_sampling_one_of_one_is_the_gaussian_again() -> None:
    found = compose_pairs([(SubsampledGaussianPair(1.0, 0.2), 25)], target_delta=1e-6).epsilon()
    assert gaussian_epsilon(1e-6, 1.0) <= found <= gaussian_epsilon(1e-6, 1.0) * 1.001


def poisson_density(pair: PoissonPair, x: float, order: Order) -> float:
    if order == "add":
        return float(stats.norm.pdf(x))
    stay, move = stats.norm.pdf([x - pair.shift, x - pair.shift - pair.step])
    return float((1 - pair.sampling_rate) * stay + pair.sampling_rate * move)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "pairs",
    [
        (PoissonPair(0.05, 1.0), PoissonPair(0.05, 1.0)),
        (PoissonPair(0.3, 2.0, 0.1), PoissonPair(0.02, 1.0)),
        (PoissonPair(0.1, 0.5, 0.4), SubsampledGaussianPair(0.2, 1.0)),
        (PoissonPair(0.5, 1.5), LaplacePair(0.8, 0.5)),
    ],
    ids=str,
)
def test_two_different_pairs_match_the_convolution_integral(
    pairs: tuple[PoissonPair, DominatingPair], order: Order
) -> None:
    """delta of the composition = E over the first loss l of delta of the second at eps - l."""
    outer, inner = pairs
    sign = 1.0 if order == "remove" else -1.0

    def integrand(x: float, eps: float) -> float:
        rest = np.array([eps - sign * float(outer.loss(np.array(x)))])
        return poisson_density(outer, x, order) * float(inner.delta(rest, order)[0])

    for eps in (0.05, 0.5):
        exact = sum(
            integrate.quad(integrand, a, a + 2.0, args=(eps,), limit=200, epsabs=1e-13)[0]
            for a in range(-10, 12, 2)
        )
        wanted = max(exact, 1e-9)
        result = compose_pairs([(outer, 1), (inner, 1)], target_delta=wanted, orders=(order,))
        assert exact * (1 - 1e-7) <= float(result.delta(np.array(eps)))
        assert result.epsilon() <= eps * 1.001


TWO_ATOMS = LossPmf(0.5, -1, np.array([0.3, 0.0, 0.7]), 0.0)


def test_three_draws_of_two_atoms_are_enumerated_exactly() -> None:
    composed = compose([(TWO_ATOMS, 3)], target_delta=0.05)
    for eps in (0.0, 0.2, 0.5, 1.0):
        exact = 0.0
        for ups in range(4):
            loss = 0.5 * (2 * ups - 3)
            mass = math.comb(3, ups) * 0.7**ups * 0.3 ** (3 - ups)
            exact += mass * max(1 - math.exp(eps - loss), 0.0)
        assert composed.delta(np.array(eps)) == pytest.approx(exact, rel=1e-9)
        assert composed.delta(np.array(eps)) >= exact


@pytest.mark.parametrize("count", [50, 2000, 100_000])
def test_every_composed_mass_bounds_the_binomial_law(count: int) -> None:
    """The allowance for rounding must cover the whole window, not only the wanted delta."""
    composed = compose([(TWO_ATOMS, count)], target_delta=1e-12)
    ups = (composed.lowest + np.arange(composed.masses.size) + count) / 2
    inside = (ups == np.floor(ups)) & (ups >= 0) & (ups <= count)
    exact = stats.binom.pmf(ups[inside], count, 0.7)
    assert np.all(composed.masses[inside] >= exact * (1 - 1e-9))
    near = (ups[inside] > 0.7 * count) & (exact > 1e-15) & (exact < 1e-10)
    np.testing.assert_allclose(composed.masses[inside][near], exact[near], rtol=1e-4)


# --- composition against another accountant ----------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "noise", "count", "delta", "grid"),
    [
        (256 / 60000, 1.1, 1000, 1e-5, 1e-4),
        (0.05, 2.0, 500, 1e-6, 2e-4),
        (0.3, 0.7, 20, 1e-7, 1e-3),
        (0.01, 0.5, 3, 1e-5, 1e-3),
    ],
)
def test_another_accountant_agrees(
    rate: float, noise: float, count: int, delta: float, grid: float
) -> None:
    result = compose_pairs([(PoissonPair(rate, 1 / noise), count)], target_delta=delta)
    laws = {}
    for pessimistic in (True, False):
        laws[pessimistic] = oracle.from_gaussian_mechanism(
            standard_deviation=noise,
            sampling_prob=rate,
            value_discretization_interval=grid,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
        ).self_compose(count)
    upper = laws[True].get_epsilon_for_delta(delta)
    assert laws[False].get_epsilon_for_delta(delta) <= result.epsilon()
    assert result.epsilon() == pytest.approx(upper, rel=1e-3)
    eps = np.linspace(0.5, 1.5, 7) * upper
    assert np.all(result.delta(eps) >= laws[False].get_delta_for_epsilon(eps))


# (sampling rate, noise multiplier, count, delta, least and largest acceptable epsilon)
ROWS = [
    (0.2, 1.0, 500, 1e-5, 38.165, 38.21),
    (0.125, 0.8, 1000, 1e-6, 56.725, 56.79),
    (1.0, 1.1, 1000, 1e-5, 534.89, 535.4),
    (256 / 60000, 1.1, 14062, 1e-5, 2.3805, 2.3827),
    (256 / 60000, 1.1, 14062, 1e-15, 4.7, 4.9),
    (256 / 60000, 1.1, 1_000_000, 1e-5, 31.57, 31.63),
    (1e-4, 50.0, 10, 1e-5, 0.0, 0.0),
    (0.01, 0.3, 100, 1e-5, 26.8, 26.87),
    (0.01, 4.0, 10, 0.5, 0.0, 0.0),
    (0.01, 0.01, 1, 1e-5, 5303.2, 5308.7),
]


@pytest.mark.parametrize(("rate", "noise", "count", "delta", "low", "high"), ROWS)
def test_extreme_runs_stay_finite_and_quick(
    rate: float, noise: float, count: int, delta: float, low: float, high: float
) -> None:
    start = time.process_time()
    found = compose_pairs([(PoissonPair(rate, 1 / noise), count)], target_delta=delta).epsilon()
    assert low <= found <= high
    assert time.process_time() - start < 5.0


def test_one_step_with_very_little_noise_matches_the_closed_form() -> None:
    found = compose_pairs([(PoissonPair(0.01, 100.0), 1)], target_delta=1e-5).epsilon()
    inner = gaussian_epsilon(1e-3, 100.0)
    exact = math.log(0.01) + inner
    assert exact <= found <= exact * 1.001


# --- laws --------------------------------------------------------------------------------------

pairs_drawn = st.builds(
    PoissonPair, st.floats(1e-3, 1.0), st.floats(0.05, 2.0), st.sampled_from([0.0, 0.1, 0.5])
)


@given(
    parts=st.lists(st.tuples(pairs_drawn, st.integers(1, 30)), min_size=1, max_size=3),
    delta=st.sampled_from([1e-3, 1e-6, 1e-10]),
)
@settings(max_examples=25)
def test_order_and_grouping_do_not_matter(
    parts: list[tuple[DominatingPair, int]], delta: float
) -> None:
    together = compose_pairs(parts, target_delta=delta).epsilon()
    backwards = compose_pairs(parts[::-1], target_delta=delta).epsilon()
    split = [(pair, part) for pair, n in parts for part in (n // 2, n - n // 2)]
    assert backwards == pytest.approx(together, rel=1e-6, abs=1e-9)
    assert compose_pairs(split, target_delta=delta).epsilon() == pytest.approx(together, rel=1e-9)


def test_repeating_a_law_is_composing_copies_of_it() -> None:
    laws = [discretize(MNIST, order, 2e-3, 1e-14) for order in ORDERS]
    for law in laws:
        once = compose([(law, 6)], target_delta=1e-5)
        copies = compose([(law, 1)] * 6, target_delta=1e-5)
        assert copies.epsilon(1e-5) == pytest.approx(once.epsilon(1e-5), rel=1e-9)


@given(pair=pairs_drawn, count=st.integers(1, 200), delta=st.sampled_from([1e-2, 1e-5, 1e-12]))
@settings(max_examples=25)
def test_curves_fall_and_invert(pair: PoissonPair, count: int, delta: float) -> None:
    result = compose_pairs([(pair, count)], target_delta=delta)
    found = result.epsilon()
    curve = result.delta(np.linspace(-2.0, 2.0 * found + 1.0, 400))
    assert np.all(np.diff(curve) <= 1e-12 * curve[:-1])
    assert np.all((curve >= 0.0) & (curve <= 1.0))
    assert result.delta(np.array(found)) <= delta
    if found > 0.0:
        assert result.delta(np.array(found * (1 - 1e-6))) > delta * (1 - 1e-6)


@given(
    rate=st.floats(1e-3, 1.0),
    noise=st.floats(0.5, 5.0),
    more=st.floats(1.0, 3.0),
    count=st.integers(1, 300),
)
@settings(max_examples=25)
def test_more_noise_never_hurts(rate: float, noise: float, more: float, count: int) -> None:
    loud, quiet = (
        compose_pairs([(PoissonPair(rate, 1 / z), count)], target_delta=1e-5).epsilon()
        for z in (noise * more, noise)
    )
    assert loud <= quiet * (1 + 1e-3) + 1e-9


def test_the_curve_below_the_window_is_still_an_upper_bound() -> None:
    result = compose_pairs([(PoissonPair(1.0, 1.0), 900)], target_delta=1e-12)
    eps = np.array([-50.0, -1.0, 0.0, 10.0, 200.0])
    assert np.all(result.delta(eps) >= gaussian_delta(eps, 30.0) * (1 - 1e-9))
    assert result.composed[0].lowest * result.composed[0].step > 10.0


# --- many counts -------------------------------------------------------------------------------


def test_epsilon_over_counts_is_monotone_and_close() -> None:
    counts = np.unique(np.geomspace(1, 1e6, 150).astype(np.int64))
    values = epsilon_over_counts(MNIST, counts, 1e-5)
    assert np.all(np.diff(values) >= 0.0)
    for i in range(0, counts.size, 12):
        fine = compose_pairs([(MNIST, int(counts[i]))], target_delta=1e-5, rtol=1e-3).epsilon()
        assert fine * (1 - 1e-3) <= values[i] <= fine * 1.02


def test_epsilon_over_counts_where_epsilon_leaves_zero() -> None:
    pair, counts = PoissonPair(1e-4, 0.1), np.arange(0, 12)
    values = epsilon_over_counts(pair, counts[::-1], 1e-5)[::-1]
    assert values[0] == 0.0
    assert values[-1] > 0.0
    fine = [compose_pairs([(pair, int(n))], target_delta=1e-5).epsilon() for n in counts]
    np.testing.assert_allclose(values, fine, rtol=0.02, atol=1e-7)
    assert epsilon_over_counts(PoissonPair(0.0, 1.0), np.array([5, 0]), 1e-5).tolist() == [0, 0]


# --- edges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 6])
def test_uses_rarer_than_the_tail_have_one_loss(count: int) -> None:
    """All losses that the tail leaves are the same double, so no span says how fine a grid is."""
    pair = PoissonPair(sampling_rate=1e-12, step=50.0)
    result = compose_pairs([(pair, count)], target_delta=1e-5)
    assert 0.0 <= result.epsilon() <= 1e-6
    assert 1e-12 <= result.delta(np.array([0.0]))[0] <= 1e-5


def test_a_law_without_finite_losses_proves_nothing() -> None:
    hopeless = LossPmf(0.1, 0, np.zeros(2), 1.0)
    assert compose([(hopeless, 3)], target_delta=0.1).epsilon(0.1) == math.inf


def test_nothing_composed_loses_nothing() -> None:
    for parts in ([], [(MNIST, 0)], [(PoissonPair(0.5, 0.0), 7)]):
        result = compose_pairs(parts, target_delta=1e-5)
        assert result.epsilon() == 0.0
        np.testing.assert_allclose(result.delta(np.array([0.0, 1.0])), 0.0, atol=1e-13)


def test_symmetric_pairs_are_composed_once() -> None:
    result = compose_pairs([(PoissonPair(1.0, 0.3), 4)], target_delta=1e-5)
    assert result.orders == ("remove",)
    assert len(compose_pairs([(MNIST, 4)], target_delta=1e-5).composed) == 2


def test_tails_that_exceed_delta_say_so() -> None:
    law = LossPmf(0.1, 0, np.array([0.5, 0.4]), 0.1)
    composed = compose([(law, 2)], target_delta=0.3)
    assert composed.tail_mass == pytest.approx(0.19)
    assert composed.epsilon(0.18) == math.inf
    assert composed.epsilon(0.2) < math.inf


def test_contradictions_are_refused() -> None:
    fine, coarse = (discretize(MNIST, "remove", h, 1e-9) for h in (1e-3, 2e-3))
    with pytest.raises(InvalidInput, match="same step"):
        compose([(fine, 1), (coarse, 1)], target_delta=1e-5)
    with pytest.raises(InvalidInput, match="whole number"):
        compose_pairs([(MNIST, -1)], target_delta=1e-5)
    with pytest.raises(InvalidInput, match="whole number"):
        epsilon_over_counts(MNIST, np.array([1.5]), 1e-5)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="delta"):
            compose_pairs([(MNIST, 1)], target_delta=delta)
    with pytest.raises(InvalidInput, match="orders"):
        compose_pairs([(MNIST, 1)], target_delta=1e-5, orders=())
    with pytest.raises(InvalidInput, match="step"):
        discretize(MNIST, "remove", 0.0, 1e-9)
