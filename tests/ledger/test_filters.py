"""Filters hold against adversaries who choose the next release by what came out.

The games below are finite: every mechanism is quantized, so that its outcomes can be listed and the
worst delta of an adaptive adversary is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.stats import norm

from dplateau import NoisyGD, NoisySGD, certify, compose, foreign
from dplateau.certificates.composition import Part
from dplateau.curves import GaussianCurve, TablePair, TabulatedCurve
from dplateau.ground.types import FloatArray
from dplateau.ledger.filters import (
    Budget,
    Filter,
    GaussianFilter,
    PureFilter,
    RenyiFilter,
    release_of,
    rounded_up,
)
from dplateau.numerics.normal import gaussian_delta, gaussian_mu

# Outcomes of a quantized mechanism: an attacker sees a little less than of the mechanism itself.
CELLS = 48
STEPS = NoisySGD(n=60000, batch_size=256, steps=4000, noise_multiplier=1.1, release="all")
FILTERS = (GaussianFilter(), RenyiFilter(3.0), RenyiFilter(12.0), PureFilter())


# --- finite games ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A release and the finite pair of laws that an attacker sees of it."""

    part: Part
    first: FloatArray
    second: FloatArray

    @property
    def losses(self) -> FloatArray:
        return np.log(self.first / self.second)


def gaussian(mu: float) -> Mechanism:
    edges = np.r_[-np.inf, np.linspace(-4.5, 4.5 + mu, CELLS - 1), np.inf]
    cells = [np.diff(norm.cdf(edges - shift)) for shift in (mu, 0.0)]
    return Mechanism(foreign(mu=mu, neighbors="add_remove"), *cells)


def randomized_response(epsilon: float) -> Mechanism:
    truth = 1 / (1 + math.exp(-epsilon))
    part = foreign(epsilon=epsilon, delta=0.0, neighbors="add_remove")
    return Mechanism(part, np.array([truth, 1 - truth]), np.array([1 - truth, truth]))


def sampled_gaussian(rate: float, noise: float) -> Mechanism:
    """One Poisson-sampled step, the record present against absent."""
    edges = np.r_[-np.inf, np.linspace(-4.5, 4.5 + 1 / noise, CELLS - 1), np.inf]
    with_it, without = (np.diff(norm.cdf(edges - shift)) for shift in (1 / noise, 0.0))
    run = NoisySGD(n=1000, sampling_rate=rate, steps=1, noise_multiplier=noise, release="all")
    return Mechanism(certify(run, 1e-5), rate * with_it + (1 - rate) * without, without)


Affordable = Callable[[tuple[Mechanism, ...], Mechanism], bool]


def worst_delta(
    menu: Sequence[Mechanism], affordable: Affordable, epsilon: float, rounds: int
) -> float:
    """Return the exact delta of the adversary who picks the best affordable release each time."""

    def value(epsilons: FloatArray, path: tuple[Mechanism, ...]) -> FloatArray:
        best = np.maximum(-np.expm1(epsilons), 0.0)
        if len(path) == rounds:
            return best
        for mechanism in menu:
            if affordable(path, mechanism):
                after = epsilons[:, None] - mechanism.losses
                rest = value(after.ravel(), (*path, mechanism)).reshape(after.shape)
                best = np.maximum(best, rest @ mechanism.first)
        return best

    return float(value(np.array([epsilon]), ())[0])


def paid_by(chosen: Filter, budget: Budget, *, planned: Mechanism | None = None) -> Affordable:
    """Return what a filter can afford; with a planned first part, nothing else comes first."""
    release = cache(lambda mechanism: release_of(mechanism.part, budget))
    terms = None if planned is None else budget.terms(release(planned), chosen)
    limits = (budget.whole(chosen), budget.slack) if terms is None else (terms.amount, terms.slack)

    @cache
    def left(path: tuple[Mechanism, ...]) -> tuple[float, float] | None:
        if not path or (planned is not None and len(path) == 1):
            return limits
        before = left(path[:-1])
        if before is None:
            return None
        cost, delta = chosen.cost(release(path[-1]), *before)
        return (
            None if cost > before[0] or delta > before[1] else (before[0] - cost, before[1] - delta)
        )

    def affordable(path: tuple[Mechanism, ...], mechanism: Mechanism) -> bool:
        if planned is not None and not path:
            return mechanism is planned
        return left((*path, mechanism)) is not None

    return affordable


def composed_fits(budget: Budget) -> Affordable:
    """Return the rule that is no filter: each path, composed numerically, is within the budget."""

    def affordable(path: tuple[Mechanism, ...], mechanism: Mechanism) -> bool:
        parts = [m.part for m in (*path, mechanism)]
        return compose(parts, budget.delta).claimed_epsilon <= budget.epsilon * (1 + 5e-3)

    return affordable


def test_composing_each_path_is_no_filter_and_ours_refuses() -> None:
    # Budget (1, 1e-5): mu 0.15, then by its outcome mu 0.2222 or randomized response 0.4886.
    budget = Budget(1.0, 1e-5, 0.0)
    first, second, coin = gaussian(0.15), gaussian(0.2222), randomized_response(0.4886)

    def after_first(path: tuple[Mechanism, ...], mechanism: Mechanism) -> bool:
        return (not path and mechanism is first) or (len(path) == 1 and mechanism is not first)

    menu = (first, second, coin)
    for other in (second, coin):
        one_path = worst_delta((first, other), after_first, budget.epsilon, rounds=2)
        assert one_path < 1.01e-5
        assert composed_fits(budget)((first,), other)
    both = worst_delta(menu, after_first, budget.epsilon, rounds=2)
    assert both == pytest.approx(1.9e-5, rel=0.03)
    for chosen in (GaussianFilter(), RenyiFilter(budget.order)):
        pays = paid_by(chosen, budget, planned=first)
        assert pays((), first)
        assert not (pays((first,), second) and pays((first,), coin))
        assert worst_delta(menu, pays, budget.epsilon, rounds=2) <= budget.delta


def menus(seed: int) -> tuple[Mechanism, ...]:
    draw = np.random.default_rng(seed)
    return (
        gaussian(draw.uniform(0.1, 0.45)),
        randomized_response(draw.uniform(0.1, 0.8)),
        sampled_gaussian(draw.uniform(0.02, 0.3), draw.uniform(0.8, 2.0)),
    )


@pytest.mark.parametrize("seed", range(3))
def test_no_adaptive_game_of_three_rounds_exceeds_the_budget(seed: int) -> None:
    draw = np.random.default_rng(100 + seed)
    budget = Budget(draw.uniform(0.7, 2.0), float(10 ** draw.uniform(-5, -3)), 0.2)
    menu = menus(seed)
    for chosen in (GaussianFilter(), RenyiFilter(budget.order)):
        worst = worst_delta(menu, paid_by(chosen, budget), budget.epsilon, rounds=3)
        assert worst <= budget.delta
        for first in menu:
            if budget.terms(release_of(first.part, budget), chosen) is not None:
                pays = paid_by(chosen, budget, planned=first)
                assert worst_delta(menu, pays, budget.epsilon, rounds=3) <= budget.delta


def test_the_games_find_what_is_wrong() -> None:
    # Two of three such releases are too many: the adversary that a filter stops would win.
    budget, mechanism = Budget(1.0, 1e-5, 0.0), gaussian(0.25)
    most = worst_delta((mechanism,), lambda path, _: True, budget.epsilon, rounds=3)
    assert most > 5 * budget.delta
    pays = paid_by(GaussianFilter(), budget)
    stopped = worst_delta((mechanism,), pays, budget.epsilon, rounds=3)
    assert 0 < stopped <= budget.delta


# --- what a release costs ----------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> TabulatedCurve:
    epsilons = sorted(draw(st.sets(st.floats(0.01, 6.0), min_size=1, max_size=6)))
    falls = [draw(st.floats(0.05, 0.7)) for _ in epsilons]
    deltas = np.cumprod(falls) * draw(st.sampled_from([1.0, 1e-2, 1e-5]))
    if draw(st.booleans()):
        deltas[-1] = 0.0
    return TabulatedCurve(TablePair.hull(np.array(epsilons), deltas))


@given(law=tables(), share=st.floats(0.0, 1.0))
def test_an_amount_dominates_the_law_up_to_its_delta(law: TabulatedCurve, share: float) -> None:
    slack = share * law.pair.deltas[0]
    epsilons = np.linspace(-8.0, 8.0, 400)
    true = law.pair.delta(epsilons, "remove")
    mu_squared = GaussianFilter().amount_of(law, slack)
    covered = gaussian_delta(epsilons, math.sqrt(mu_squared)) + slack
    assert np.all(true <= covered * (1 + 1e-12) + 1e-15)
    for chosen in (RenyiFilter(2.0), RenyiFilter(9.0), PureFilter()):
        amount = chosen.amount_of(law, slack)
        covered = np.minimum(chosen.delta_at(amount, epsilons) + slack, 1.0)
        assert np.all(true <= covered * (1 + 1e-9) + 1e-15)


@given(law=tables(), order=st.floats(1.2, 20.0))
def test_a_renyi_amount_is_the_divergence_of_the_lowered_pair(
    law: TabulatedCurve, order: float
) -> None:
    slack = law.pair.deltas[-1]
    pair = law.pair.lowered(slack)
    mp.dps = 40
    g = [mp.e ** mpf(e) for e in pair.epsilons]
    d = [mpf(x) for x in pair.deltas]
    false = [(d[i] - d[i + 1]) / (g[i + 1] - g[i]) for i in range(len(d) - 1)] + [mpf(0)]
    masses = [false[i] - false[i + 1] for i in range(len(d) - 1)]
    moment = 1 - sum(m * (1 + x) for m, x in zip(masses, g[1:], strict=True))
    for mass, ratio in zip(masses, g[1:], strict=True):
        moment += mass * (ratio ** mpf(order) + ratio ** (1 - mpf(order)))
    exact = float(mp.log(moment) / (mpf(order) - 1))
    found = RenyiFilter(order).amount_of(law, slack)
    assert exact <= found <= exact * (1 + 1e-6) + 1e-12


def test_randomized_response_costs_what_is_known() -> None:
    # Its attack curve has one corner, (1 / (1 + e), e / (1 + e)): mu is its distance in quantiles.
    law = release_of(foreign(epsilon=1.0, delta=0.0, neighbors="replace"), Budget(3, 1e-5, 0.1)).law
    mu = 2 * norm.ppf(math.e / (1 + math.e))
    assert math.sqrt(GaussianFilter().amount_of(law, 0.0)) == pytest.approx(mu, rel=1e-9)
    assert PureFilter().amount_of(law, 0.0) == 1.0


def test_gaussian_releases_cost_their_square_and_no_delta() -> None:
    run = NoisyGD(n=100, steps=9, noise_multiplier=10.0, release="all")
    budget = Budget(3.0, 1e-5, 0.1)
    release = release_of(certify(run, 1e-5), budget)
    assert isinstance(release.law, GaussianCurve)
    amount, delta = GaussianFilter().cost(release, 1.0, budget.slack)
    assert amount == pytest.approx(0.09, rel=1e-8)
    assert amount >= 0.09
    assert delta == 0


def test_a_cost_uses_what_is_left_evenly() -> None:
    budget = Budget(3.0, 1e-5, 0.1)
    release, chosen = release_of(certify(STEPS, 1e-5), budget), GaussianFilter()
    amount, delta = chosen.cost(release, 0.5, budget.slack)
    shares = (amount / 0.5, delta / budget.slack)
    assert shares[1] <= shares[0] * 1.3
    # Any delta on its own is a valid way to pay, and none has a larger share that is much smaller.
    for share in np.geomspace(1e-5, 1.0, 30):
        other = chosen.amount_of(release.law, share * budget.slack)
        assert max(other / 0.5, share) >= max(shares) * (1 - 2e-2)
    less, _ = chosen.cost(release, 0.5, 0.0)
    assert math.isinf(less)


def test_laws_that_a_file_states_are_not_believed() -> None:
    # A composition's own laws are confirmed at its claim only: a tail cut off is not seen.
    run = NoisyGD(
        n=9, steps=1, noise_multiplier=4.0, noise_kind="laplace", dimension=1, release="all"
    )
    honest = compose([certify(run, 1e-5), foreign(mu=0.2, neighbors="add_remove")], 1e-5)
    entries = tuple(
        replace(entry, law=TabulatedCurve(TablePair.hull(np.array([0.1]), np.array([0.0]))))
        for entry in honest.entries
    )
    boasting = replace(honest, method="PLD composition", entries=entries)
    budget = Budget(3.0, 1e-5, 0.1)
    assert boasting.curve.delta(0.5) < honest.curve.delta(0.5)
    for chosen in (GaussianFilter(), RenyiFilter(8.0)):
        costs = [chosen.cost(release_of(p, budget), 1.0, budget.slack) for p in (honest, boasting)]
        assert costs[0] == costs[1]


def test_parts_of_a_composition_cost_no_more_together_than_apart() -> None:
    budget, chosen = Budget(3.0, 1e-5, 0.1), GaussianFilter()
    parts = [foreign(mu=0.3, neighbors="add_remove"), certify(STEPS, 1e-5)]
    apart = [chosen.cost(release_of(part, budget), 0.5, budget.slack)[0] for part in parts]
    together, _ = chosen.cost(release_of(compose(parts, 1e-5), budget), 0.5, budget.slack)
    assert max(apart) < together <= sum(apart) * 1.01
    # On disjoint records the worse part counts.
    worst, _ = chosen.cost(
        release_of(compose(parts, 1e-5, records="disjoint"), budget), 0.5, budget.slack
    )
    assert max(apart) * 0.99 <= worst < together


# --- what a budget holds -----------------------------------------------------------------------


@pytest.mark.parametrize("chosen", FILTERS, ids=lambda f: f"{f.name}-{f.order}")
def test_a_budget_holds_no_more_than_it_can(chosen: Filter) -> None:
    for epsilon, delta in ((0.5, 1e-6), (3.0, 1e-5), (8.0, 1e-3)):
        held = chosen.held(epsilon, delta)
        assert held is not None
        assert chosen.delta_at(held, np.array([epsilon]))[0] <= delta
        assert chosen.delta_at(held * (1 + 1e-6), np.array([epsilon]))[0] > delta


def test_a_gaussian_law_leaves_the_difference_of_squares() -> None:
    filter_, mu = GaussianFilter(), 0.4
    exact = gaussian_mu(3.0, 1e-5) ** 2 - mu**2
    left = filter_.held(3.0, 1e-5, GaussianCurve(mu))
    assert left == pytest.approx(exact, rel=1e-9)
    # Read off a table of the same law: a little less, never more.
    run = foreign(mu=mu, neighbors="add_remove")
    rows = np.linspace(0.0, 4.0, 400)
    table = TabulatedCurve(TablePair.hull(rows, run.curve.deltas(rows, 1e-9)))
    tabled = filter_.held(3.0, 1e-5, table)
    assert tabled is not None
    assert exact * 0.99 < tabled <= exact


@pytest.mark.parametrize("chosen", FILTERS[:3], ids=lambda f: f"{f.name}-{f.order}")
def test_a_coin_and_what_it_leaves_together_meet_the_budget(chosen: Filter) -> None:
    # Two outcomes: the joint delta is an average of two deltas, written out here by hand.
    epsilon, delta, coin = 2.0, 1e-4, 0.7
    law = TabulatedCurve(TablePair.hull(np.array([coin]), np.array([0.0])))
    left = chosen.held(epsilon, delta, law)
    assert left is not None
    truth = 1 / (1 + math.exp(-coin))
    low, high = chosen.delta_at(left, np.array([epsilon - coin, epsilon + coin]))
    assert truth * low + (1 - truth) * high == pytest.approx(delta, rel=1e-6)
    assert truth * low + (1 - truth) * high <= delta
    assert (
        chosen.held(
            epsilon, delta, TabulatedCurve(TablePair.hull(np.array([2.5]), np.array([0.0])))
        )
        is None
    )


def test_the_cheaper_filter_is_chosen_for_the_first_part() -> None:
    budget = Budget(3.0, 1e-5, 0.1)
    gauss = release_of(foreign(mu=0.3, neighbors="add_remove"), budget)
    coin = release_of(foreign(epsilon=0.3, delta=0.0, neighbors="add_remove"), budget)
    assert budget.best_filter(gauss).name == "gdp"
    assert budget.best_filter(coin).name == "renyi"
    assert Budget(3.0, 0.0, 0.1).best_filter(coin).name == "pure"
    # The order suits Gaussian releases: no other one holds much more of them.
    held = RenyiFilter(budget.order).held(budget.epsilon, budget.delta)
    assert held is not None
    for order in (4.0, 16.0):
        other = RenyiFilter(order).held(budget.epsilon, budget.delta)
        assert other is not None
        assert other / order < held / budget.order


@given(value=st.floats(1e-12, 1e12))
def test_what_people_read_is_rounded_up(value: float) -> None:
    assert value <= float(rounded_up(value)) <= value * (1 + 1.1e-3)


@pytest.mark.parametrize("chosen", [GaussianFilter(), RenyiFilter(order=8.0), PureFilter()])
def test_costs_are_rounded_up_and_what_is_left_down(chosen: Filter) -> None:
    amount = (math.pi / 3) ** 2
    exact = math.sqrt(amount) if isinstance(chosen, GaussianFilter) else amount
    cost, left = chosen.cost_words(amount).split()[1], chosen.left_words(amount).split()[1]
    assert float(left) < exact < float(cost)
    assert float(cost) - float(left) < 2e-3
