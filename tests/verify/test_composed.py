"""Dominating pairs and their compositions, against brute force and dp-accounting's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from dplateau.verify.cases import fewer_uses
from dplateau.verify.coins import NO_USES, Atoms
from dplateau.verify.composed import Rows, _largest, composed_epsilon
from dplateau.verify.pairs import (
    Between,
    BlockPair,
    GaussianPair,
    LaplacePair,
    LossPair,
    SampledPair,
    SwappedPair,
    two_sided_pair,
)
from dplateau.verify.precise import MP, Precise, gaussian_delta, gaussian_epsilon


def brute_delta(pair: SampledPair, epsilon: float, order: int) -> float:
    x = np.linspace(-12.0, 12.0 + pair.shift + pair.step, 400_001)
    plain = stats.norm.pdf(x)
    mixed = (1 - pair.rate) * stats.norm.pdf(x - pair.shift)
    mixed += pair.rate * stats.norm.pdf(x - pair.shift - pair.step)
    first, second = (mixed, plain) if order == 0 else (plain, mixed)
    gap = np.maximum(first - math.exp(epsilon) * second, 0.0)
    return float(gap.sum() * (x[1] - x[0]))


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("pair", [SampledPair(0.1, 1.0), SampledPair(0.02, 2.0, 0.3)])
def test_deltas_of_a_sampled_step(pair: SampledPair, order: int) -> None:
    epsilons = np.array([-1.0, -0.05, 0.0, 0.04, 0.3, 1.5])
    found = pair.deltas(epsilons, order)
    exact = [brute_delta(pair, float(eps), order) for eps in epsilons]
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-9)


def exact_delta(pair: SampledPair, epsilon: float, order: int) -> Precise:
    """Masses beyond the point where the loss is epsilon, of a pair without a shift."""
    q, r = MP.mpf(pair.rate), MP.mpf(pair.step)
    loss = MP.mpf(epsilon if order == 0 else -epsilon)
    x = MP.log((MP.expm1(loss) + q) / q) / r + r / 2
    if order == 0:
        mixed = (1 - q) * MP.ncdf(-x) + q * MP.ncdf(r - x)
        return mixed - MP.exp(epsilon) * MP.ncdf(-x)
    return MP.ncdf(x) - MP.exp(epsilon) * ((1 - q) * MP.ncdf(x) + q * MP.ncdf(x - r))


@pytest.mark.parametrize(
    ("rate", "step", "order", "epsilon"),
    [
        (0.4060777655280502, 579.684266465685, 0, 60795.9219598611),
        (0.020290837442256907, 19.85847858447148, 0, 767.1637430021644),
        (0.9999999999998492, 14.696567093786111, 1, 29.52303226155846),
        (0.44505168369223225, 6.685696776812768, 1, 0.5888802933417778),
        (2.3056002604751605e-18, 10.075502387107463, 1, 2.3056002604751605e-18),
    ],
)
def test_curves_of_sampled_steps_are_never_too_low(
    rate: float, step: float, order: int, epsilon: float
) -> None:
    """Where exponentials overflow, and where rounding decides whether a curve has ended."""
    pair = SampledPair(rate, step)
    found = float(pair.deltas(np.array([epsilon]), order)[0])
    assert 0 < exact_delta(pair, epsilon, order) <= found


@pytest.mark.parametrize("place", [0.1, 1.0, 3.0, 10.0, 20.0, 35.0])
@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1])
def test_tails_of_short_distances_are_never_too_low(mu: float, place: float) -> None:
    """Two tails that hardly differ: what their logarithms were rounded by counts."""
    epsilons = mu * place * (1 + np.arange(20) / 1000)
    one = Atoms(np.array([mu]), np.ones(1))
    for pair in (GaussianPair(mu), SwappedPair(1.0, mu), BlockPair(one, NO_USES, 1e-290)):
        found = pair.deltas(epsilons, 0)
        for epsilon, delta in zip(epsilons.tolist(), found.tolist(), strict=True):
            assert gaussian_delta(epsilon, mu) * (1 - MP.mpf(10) ** -40) <= delta


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("ratio", "rate"), [(0.0417, 0.156), (0.0621, 0.089), (21.6, 0.213)])
def test_curves_of_bounded_losses_end_where_they_do(ratio: float, rate: float, order: int) -> None:
    pair = LaplacePair(ratio, rate)
    end = pair.reach(0.0, order)[1]
    *inside, beyond = pair.deltas(end * (1 + np.r_[-3e-16 * np.arange(1, 30), 1e-9]), order)
    assert min(inside) > 0
    assert beyond == 0


def test_deltas_of_a_swap_follow_from_its_law_of_losses() -> None:
    """The law of the loss of C_q(G(m)), of which the curve is an integral."""
    rate, m = 0.2, 1.5

    def cdf(t: float) -> float:
        inner = math.log((rate - 1 + math.exp(abs(t))) / rate) / m
        if t < 0:
            return float(stats.norm.cdf(-inner - m / 2))
        plain, moved = stats.norm.cdf(inner + m / 2), stats.norm.cdf(inner - m / 2)
        return float(rate * moved + (1 - rate) * plain)

    grid = np.linspace(-8.0, 12.0, 40_001)
    values = np.array([cdf(float(t)) for t in grid])
    masses, middles = np.diff(values), (grid[1:] + grid[:-1]) / 2
    for epsilon in (-0.7, 0.0, 0.4, 1.3):
        above = middles > epsilon
        exact = float(masses[above] @ -np.expm1(epsilon - middles[above]))
        found = SwappedPair(rate, m).deltas(np.array([epsilon]), 0)[0]
        assert found == pytest.approx(exact, rel=2e-3)


def dp_accounting_epsilon(kind: str, distance: float, rate: float, count: int) -> float:
    make: Any = pld.from_laplace_mechanism if kind == "laplace" else pld.from_gaussian_mechanism
    options = {"sampling_prob": rate, "value_discretization_interval": 1e-3}
    one = make(1.0, sensitivity=distance, **options)
    return float(one.self_compose(count).get_epsilon_for_delta(1e-5))


@pytest.mark.parametrize(
    ("pair", "native"),
    [
        (SampledPair(0.05, 0.7), ("gaussian", 0.7, 0.05)),
        (GaussianPair(0.08), ("gaussian", 0.08, 1.0)),
        (LaplacePair(0.1, 1.0), ("laplace", 0.1, 1.0)),
        (LaplacePair(0.8, 0.1), ("laplace", 0.8, 0.1)),
    ],
)
def test_compositions_are_those_of_dp_accounting(
    pair: LossPair, native: tuple[str, float, float]
) -> None:
    other = dp_accounting_epsilon(*native, 200)
    found = composed_epsilon(Rows.product([(pair, 200)]), other * 0.999, 1e-5).epsilon
    assert found == pytest.approx(other, rel=2e-3)


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-30, 1e-120])
def test_composed_gaussians_are_gaussian_at_every_delta(delta: float) -> None:
    exact = gaussian_epsilon(1.5, delta)
    rows = Rows.product([(GaussianPair(0.15), 100)])
    found = composed_epsilon(rows, exact, delta).epsilon
    assert exact <= found <= exact * 1.001


def test_no_composition_is_below_a_gaussian_it_contains() -> None:
    """Also where the grid is so coarse, and the steps so many, that rounding would show."""
    for count, mu in ((10**6, 1e-3), (10**4, 0.03), (3, 2.0)):
        exact = gaussian_epsilon(mu * math.sqrt(count), 1e-6)
        rows = Rows.product([(GaussianPair(mu), count)])
        for factor in (0.97, 1.0, 1.01):
            assert composed_epsilon(rows, exact * factor, 1e-6).epsilon >= exact


def test_rows_are_averaged_whatever_their_exposure() -> None:
    """A rare row with losses far above epsilon counts with its whole weight."""
    pairs = (GaussianPair(0.05), GaussianPair(3.0))
    counts = np.array([[100.0, 0.0], [100.0, 20.0]])
    rows = Rows(pairs, counts, (1 - 1e-6, 1e-6), 0.0)
    found = rows.curves(1e-3, 1e-6)(2.0)(2.0)
    exact = (1 - 1e-6) * gaussian_delta(2, 0.5) + 1e-6 * gaussian_delta(2, math.sqrt(180.25))
    assert float(exact) <= found <= float(exact) * 1.02


def test_long_schedules_are_grouped_upwards() -> None:
    uses = {(0.1 + 1e-4 * i, 0.2 + 1e-4 * i): 1 for i in range(3000)}
    found = fewer_uses(uses)
    assert len(found) <= 2000
    assert sum(found.values()) == 3000
    sums = [math.fsum(n * rate * size**2 for (size, rate), n in u.items()) for u in (uses, found)]
    assert sums[0] <= sums[1] <= sums[0] * 1.02


@pytest.mark.parametrize(
    "pair",
    [
        lambda rate: SampledPair(rate, 1.0),
        lambda rate: LaplacePair(0.8, rate),
        lambda rate: SwappedPair(rate, 1.5),
        lambda rate: two_sided_pair(rate, 0.7),
    ],
)
def test_a_sampling_rate_between_two_is_below_their_mixture(
    pair: Callable[[float], LossPair],
) -> None:
    mixed = Between(pair(0.027), pair(0.028), 0.5)
    epsilons = np.linspace(-1.0, 2.0, 61)
    for order in (0, 1):
        exact, found = pair(0.0275).deltas(epsilons, order), mixed.deltas(epsilons, order)
        assert np.all(found >= exact * (1 - 1e-12))
        assert found == pytest.approx(exact, rel=0.05, abs=1e-12)


@pytest.mark.parametrize("delta", [1e-3, 1e-8, 1e-40])
def test_compositions_of_mixtures_are_above_those_of_the_rates_between(delta: float) -> None:
    """Twenty rates, each with a pair of its own, and as mixtures of three."""
    ends = [SampledPair(rate, 1.2) for rate in (0.014, 0.0145, 0.015)]
    rates = np.linspace(0.014, 0.015, 20)
    own = Rows.product([(SampledPair(float(rate), 1.2), 10) for rate in rates])
    halves = [(ends[i], ends[i + 1], rate) for rate in rates for i in [int(rate > 0.0145)]]
    mixed = Rows.product(
        [
            (Between(one, other, (other.rate - rate) / (other.rate - one.rate)), 10)
            for one, other, rate in halves
        ]
    )
    exact = composed_epsilon(own, 1.0, delta).epsilon
    found = composed_epsilon(mixed, exact, delta).epsilon
    assert exact * (1 - 1e-4) <= found <= exact * 1.002


def test_what_is_no_number_is_no_bound() -> None:
    """Whatever order of a pair has such a value: the larger of it and a number is neither."""
    assert _largest([0.1, 0.2]) == 0.2
    for deltas in ([0.1, math.nan], [math.nan, 0.1]):
        with pytest.raises(ArithmeticError, match="no number"):
            _largest(deltas)
    pair = SampledPair(0.02, 0.6808531610084005, 5e-324)
    with np.errstate(all="ignore"), pytest.raises(ArithmeticError, match="no number"):
        composed_epsilon(Rows.product([(pair, 10)]), 1e-9, 1e-5)


def test_two_records_whose_factor_overflows_prove_nothing() -> None:
    """1 + e^(eps/2) counted as e^700: two records came out 3113 apart, one of them up to 2079."""
    rows = Rows.product([(LaplacePair(300.0, 1e-40), 10)])
    assert composed_epsilon(rows, 5800.0, 1e-5, of_two=True).epsilon == math.inf
    few = Rows.product([(LaplacePair(3.0, 0.1), 10)])
    assert 0 < composed_epsilon(few, 20.0, 1e-5, of_two=True).epsilon < 60
