"""Curves made of curves: every claim is above what it is made of, and inverts."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau.curves import (
    AdvancedCompositionCurve,
    BasicCompositionCurve,
    GaussianCurve,
    GroupCurve,
    LaplaceCurve,
    MixtureCurve,
    NaiveCompositionCurve,
    PrivacyCurve,
    RenyiCurve,
    SubsampledCurve,
)
from dplateau.curves.pairs import PoissonPair
from dplateau.errors import InvalidInput, NotApplicable

G, L = GaussianCurve(0.8), LaplaceCurve(1.5)
CURVES: list[PrivacyCurve] = [
    MixtureCurve((0.3, 0.7), (G, L)),
    MixtureCurve((0.9, 0.1), (GaussianCurve(0.2), GaussianCurve(3.0)), extra_delta=1e-9),
    GroupCurve(L, 3),
    GroupCurve(G, 2),
    SubsampledCurve(G, 0.01),
    SubsampledCurve(L, 0.9),
    NaiveCompositionCurve(G, 5),
    AdvancedCompositionCurve(GaussianCurve(0.05), 100),
    BasicCompositionCurve((G, L, GaussianCurve(0.1))),
    MixtureCurve((1.0,), (RenyiCurve((2.0, 8.0), (0.1, 0.6)),)),
]


@pytest.mark.parametrize("curve", CURVES, ids=repr)
@pytest.mark.parametrize("delta", [1e-8, 3e-5, 0.01, 0.25])
def test_epsilon_meets_its_delta(curve: PrivacyCurve, delta: float) -> None:
    epsilon = curve.epsilon(delta)
    assert 0 <= epsilon < math.inf
    # Curves that search for their delta stop a little above it.
    assert curve.delta(epsilon) <= delta * (1 + 1e-5)


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_curves_fall_and_stay_probabilities(curve: PrivacyCurve) -> None:
    found = [curve.delta(eps) for eps in (0.0, 1e-6, 0.1, 1.0, 5.0, 20.0, 400.0)]
    assert all(0 <= value <= 1 for value in found)
    assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(found))
    asked = [curve.epsilon(delta) for delta in (1e-8, 1e-5, 1e-2, 0.5, 1.0)]
    assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(asked))
    assert asked[-1] >= 0


# These two find delta by a search over epsilon(delta), many times for one trade-off.
SEARCHING = (AdvancedCompositionCurve, BasicCompositionCurve)


@pytest.mark.parametrize("curve", [c for c in CURVES if not isinstance(c, SEARCHING)], ids=repr)
def test_tradeoffs_meet_the_lines_that_delta_proves(curve: PrivacyCurve) -> None:
    rates = {fpr: curve.tradeoff(fpr) for fpr in (0.0, 0.01, 0.6, 1.0)}
    for fpr, missed in rates.items():
        assert 0 <= missed <= 1 - fpr + 1e-9
        for epsilon in (0.0, 1.5):
            assert missed >= 1 - math.exp(epsilon) * fpr - curve.delta(epsilon) - 5e-3
    found = list(rates.values())
    assert all(b <= a for a, b in itertools.pairwise(found))
    assert found[-1] == 0


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_renyi_divergences_do_not_follow(curve: PrivacyCurve) -> None:
    name = type(curve).__name__
    with pytest.raises(
        NotApplicable, match=rf"{name} is known through delta\(epsilon\) only.*use "
    ):
        curve.rdp(2.0)
    assert curve.loss_parts() is None


# --- mixtures and minima -----------------------------------------------------------------------


@given(st.floats(0.0, 5.0), st.floats(0.0, 1.0))
def test_mixtures_average_deltas(epsilon: float, share: float) -> None:
    mixture = MixtureCurve((share, 1 - share), (G, L), extra_delta=1e-3)
    average = share * G.delta(epsilon) + (1 - share) * L.delta(epsilon) + 1e-3
    assert min(1.0, average) <= mixture.delta(epsilon) * (1 + 1e-12)
    assert mixture.delta(epsilon) == pytest.approx(min(1.0, average), rel=1e-9)


def test_a_mixture_lies_between_its_parts() -> None:
    mixture = MixtureCurve((0.5, 0.5), (GaussianCurve(0.5), GaussianCurve(2.0)))
    low, high = GaussianCurve(0.5).epsilon(1e-5), GaussianCurve(2.0).epsilon(1e-5)
    assert low < mixture.epsilon(1e-5) < high


def test_failures_beyond_delta_leave_no_epsilon() -> None:
    mixture = MixtureCurve((1.0,), (G,), extra_delta=1e-4)
    assert mixture.epsilon(1e-4) == math.inf
    assert mixture.epsilon(1e-5) == math.inf
    assert mixture.epsilon(1.1e-4) < math.inf


def test_a_part_without_finite_epsilon_may_still_average() -> None:
    class Flat(PrivacyCurve):
        def delta(self, epsilon: float) -> float:
            return 1e-4

        def epsilon(self, delta: float) -> float:
            return 0.0 if delta >= 1e-4 else math.inf

    mixture = MixtureCurve((0.999, 0.001), (G, Flat()))
    found = mixture.epsilon(1e-5)
    assert G.epsilon(1e-5) < found < G.epsilon(0.9e-5)


@pytest.mark.parametrize(
    ("weights", "extra", "message"),
    [
        ((0.5,), 0.0, "one weight for each of its curves"),
        ((0.5, 0.4), 0.0, "sum to one or more"),
        ((1.5, -0.5), 0.0, "at least 0"),
        ((math.nan, 1.0), 0.0, "at least 0"),
        ((0.5, 0.5), -1.0, "at least 0"),
        ((0.5, 0.5), math.nan, "at least 0"),
    ],
)
def test_refused_mixtures(weights: tuple[float, ...], extra: float, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MixtureCurve(weights, (G, L), extra_delta=extra)


# --- groups ------------------------------------------------------------------------------------


@given(st.floats(0.05, 1.0), st.integers(2, 6), st.floats(1e-8, 1e-2))
def test_group_privacy_is_above_the_exact_group(mu: float, size: int, delta: float) -> None:
    assert GroupCurve(GaussianCurve(mu), size).epsilon(delta) >= (
        GaussianCurve(size * mu).epsilon(delta) * (1 - 1e-9)
    )


@given(st.floats(0.0, 6.0), st.integers(1, 6))
def test_group_delta_is_the_geometric_sum(epsilon: float, size: int) -> None:
    one = G.delta(epsilon / size)
    total = sum(math.exp(i * epsilon / size) for i in range(size)) * one
    assert GroupCurve(G, size).delta(epsilon) == pytest.approx(min(1.0, total), rel=1e-9)


def test_groups_of_curves_with_a_floor_have_an_epsilon_when_one_exists() -> None:
    """With a constant failure probability the group's delta rises again far out."""
    curve = MixtureCurve((1.0,), (GaussianCurve(0.1),), extra_delta=1e-7)
    found = GroupCurve(curve, 2).epsilon(1e-5)
    assert found < math.inf
    assert GroupCurve(curve, 2).delta(found) <= 1e-5
    assert GroupCurve(curve, 2).epsilon(1e-7) == math.inf


def test_groups_of_one_and_refused_groups() -> None:
    mixture = CURVES[0]
    assert mixture.group(1) is mixture
    assert isinstance(mixture.group(4), GroupCurve)
    for size in (0, 2.5, True, math.nan):
        with pytest.raises(InvalidInput, match="whole number of records"):
            mixture.group(size)


# --- subsampling -------------------------------------------------------------------------------


@given(st.floats(1e-6, 1.0), st.floats(0.05, 30.0), st.floats(1e-9, 0.5))
def test_subsampling_by_the_formula(rate: float, mu: float, delta: float) -> None:
    curve = SubsampledCurve(GaussianCurve(mu), rate)
    if delta >= rate:
        assert curve.epsilon(delta) == 0
        return
    inner = GaussianCurve(mu).epsilon(delta / rate)
    expected = math.log1p(rate * math.expm1(inner)) if inner < 700 else inner + math.log(rate)
    assert curve.epsilon(delta) == pytest.approx(expected, rel=1e-9, abs=1e-13)
    assert curve.epsilon(delta) >= expected * (1 - 1e-13)


@given(st.floats(1e-4, 0.9), st.floats(0.05, 4.0), st.floats(0.0, 5.0))
def test_subsampling_is_above_the_exact_poisson_pair(rate: float, mu: float, eps: float) -> None:
    """The remove order of the exact pair equals the theorem; the add order is below it."""
    exact = float(PoissonPair(rate, mu).delta(eps, "remove"))
    found = SubsampledCurve(GaussianCurve(mu), rate).delta(eps)
    assert found == pytest.approx(exact, rel=1e-7, abs=1e-14)
    assert found >= exact * (1 - 1e-11)
    assert found >= float(PoissonPair(rate, mu).delta(eps, "add")) * (1 - 1e-11)


def test_sampling_everyone_changes_nothing() -> None:
    curve = SubsampledCurve(G, 1.0)
    assert curve.epsilon(1e-5) == pytest.approx(G.epsilon(1e-5), rel=1e-12)
    assert curve.delta(1.0) == pytest.approx(G.delta(1.0), rel=1e-11)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_refused_rates(rate: float) -> None:
    with pytest.raises(InvalidInput, match=r"sampling rate lies in \(0, 1\]; got"):
        SubsampledCurve(G, rate)


# --- simple compositions -----------------------------------------------------------------------


@given(st.floats(0.01, 2.0), st.integers(1, 1000), st.floats(1e-9, 0.1))
def test_every_composition_is_above_the_exact_one(mu: float, count: int, delta: float) -> None:
    step = GaussianCurve(mu)
    exact = GaussianCurve(mu * math.sqrt(count)).epsilon(delta)
    assert NaiveCompositionCurve(step, count).epsilon(delta) >= exact * (1 - 1e-9)
    assert AdvancedCompositionCurve(step, count).epsilon(delta) >= exact * (1 - 1e-9)


def test_naive_composition_by_hand() -> None:
    curve = NaiveCompositionCurve(G, 10)
    assert curve.epsilon(1e-5) == pytest.approx(10 * G.epsilon(1e-6), rel=1e-12)
    assert curve.delta(20.0) == pytest.approx(10 * G.delta(2.0), rel=1e-11)


def test_advanced_composition_by_hand() -> None:
    step, count, delta = GaussianCurve(0.01), 1000, 1e-5
    each = step.epsilon(delta / 2 / count)
    by_hand = each * math.sqrt(2 * count * math.log(2 / delta))
    by_hand += count * each * math.expm1(each) / (math.exp(each) + 1)
    found = AdvancedCompositionCurve(step, count).epsilon(delta)
    assert 0.9 * by_hand < found <= by_hand * (1 + 1e-12)
    assert found < NaiveCompositionCurve(step, count).epsilon(delta)


@given(st.lists(st.floats(0.05, 2.0), min_size=1, max_size=4), st.floats(1e-9, 0.1))
def test_basic_composition_of_different_releases(mus: list[float], delta: float) -> None:
    curve = BasicCompositionCurve(tuple(GaussianCurve(mu) for mu in mus))
    exact = GaussianCurve(math.hypot(*mus)).epsilon(delta)
    equal = sum(GaussianCurve(mu).epsilon(delta / len(mus)) for mu in mus)
    assert exact * (1 - 1e-9) <= curve.epsilon(delta) <= equal * (1 + 1e-9) + 1e-12


def test_basic_composition_with_an_infinite_part() -> None:
    broken = MixtureCurve((1.0,), (G,), extra_delta=1e-3)
    assert BasicCompositionCurve((G, broken)).epsilon(1e-5) == math.inf
    assert BasicCompositionCurve((G, broken)).epsilon(0.1) < math.inf
    assert BasicCompositionCurve((G, broken)).delta(1e6) >= 1e-3


class Counted(PrivacyCurve):
    """A curve that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def delta(self, epsilon: float) -> float:
        self.asked += 1
        return G.delta(epsilon)

    def epsilon(self, delta: float) -> Any:
        return G.epsilon(delta)


def test_the_generic_tradeoff_stops_when_nothing_can_improve() -> None:
    curve = Counted()
    assert curve.tradeoff(0.3) == pytest.approx(G.tradeoff(0.3), abs=2e-3)
    assert curve.asked < 60


def test_an_underflown_delta_of_one_record_is_not_zero_for_a_group() -> None:
    """A delta below the smallest double is not zero, and e^epsilon makes it large again."""
    one = SubsampledCurve(GaussianCurve(30.0), 0.1)
    assert one.delta(5000.0 / 3) == 0.0
    assert GroupCurve(one, 3).delta(5000.0) > 0
