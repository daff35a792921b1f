"""Numerically composed curves: above the closed forms, close to them, valid at every delta."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplateau.curves import GaussianCurve, LossCurve, PrivacyCurve
from dplateau.curves.pairs import LaplacePair, PoissonPair, SubsampledGaussianPair
from dplateau.errors import InvalidInput, NotApplicable


def gaussians(mu: float, count: int) -> LossCurve:
    return LossCurve(((PoissonPair(1.0, mu / math.sqrt(count)), count),))


MU = 1.3
CURVE = gaussians(MU, 40)
EXACT = GaussianCurve(MU)
MIXED = LossCurve(((PoissonPair(0.05, 1.0), 200), (LaplacePair(0.5), 2)))


@pytest.mark.parametrize("delta", [0.4, 1e-2, 1e-5, 1e-10, 1e-40, 1e-200])
def test_epsilon_is_just_above_the_gaussian(delta: float) -> None:
    exact = EXACT.epsilon(delta)
    assert exact <= CURVE.epsilon(delta) <= exact * 1.002


@settings(max_examples=25)
@given(epsilon=st.floats(0.0, 25.0))
def test_delta_is_just_above_the_gaussian(epsilon: float) -> None:
    exact = EXACT.delta(epsilon)
    assert exact <= CURVE.delta(epsilon) <= exact * 1.05 + 1e-270


def test_delta_far_out_is_tiny_and_not_refused() -> None:
    assert 0 <= CURVE.delta(200.0) < 1e-100
    assert 0 <= LossCurve(((PoissonPair(0.05, 1.0), 200),)).delta(1e4) < 1e-100
    # Laplace losses are bounded: beyond the largest only rounding is left.
    assert 0 <= LossCurve(((LaplacePair(0.5), 2),)).delta(1.1) < 1e-13


@pytest.mark.parametrize("curve", [CURVE, MIXED], ids=["gaussian", "mixed"])
def test_curves_fall_and_invert(curve: LossCurve) -> None:
    found = [curve.delta(eps) for eps in (0.0, 0.1, 1.0, 3.0, 10.0, 30.0)]
    assert all(0 <= value <= 1 for value in found)
    assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(found))
    for delta in (0.1, 1e-3, 1e-6, 1e-12):
        epsilon = curve.epsilon(delta)
        assert epsilon >= 0
        # delta() re-centers its composition, so it may differ by a grid's worth.
        assert curve.delta(epsilon) <= delta * 1.02
        assert curve.delta(epsilon * 0.99) >= delta * 0.98


@pytest.mark.parametrize("fpr", [0.0, 1e-3, 0.05, 0.3, 0.7, 1.0])
def test_the_generic_tradeoff_is_a_valid_lower_bound(fpr: float) -> None:
    exact = EXACT.tradeoff(fpr)
    assert 0 <= CURVE.tradeoff(fpr) <= exact + 1e-12
    assert CURVE.tradeoff(fpr) >= exact - 5e-3


def test_composing_twice_is_composing_once() -> None:
    twice = LossCurve((*CURVE.parts, *CURVE.parts))
    once = gaussians(MU * math.sqrt(2), 80)
    assert twice.epsilon(1e-5) == pytest.approx(once.epsilon(1e-5), rel=2e-3)
    assert twice.epsilon(1e-5) >= GaussianCurve(MU * math.sqrt(2)).epsilon(1e-5)


def test_more_steps_never_cost_less() -> None:
    pair = PoissonPair(0.01, 1.0)
    found = [LossCurve(((pair, count),)).epsilon(1e-5) for count in (1, 10, 100, 1000, 10000)]
    assert found == sorted(found)
    assert found[0] > 0


def test_both_orders_count() -> None:
    """One sampled step: the larger of the two exact hockey sticks."""
    pair = PoissonPair(0.3, 1.2)
    curve = LossCurve(((pair, 1),))
    for eps in (0.1, 0.3, 1.0, 2.0):
        exact = max(float(pair.delta(eps, "remove")), float(pair.delta(eps, "add")))
        assert exact * (1 - 1e-12) <= curve.delta(eps) <= exact * 1.01 + 1e-12


def test_symmetric_subsampling_is_above_its_own_step() -> None:
    pair = SubsampledGaussianPair(0.1, 2.0)
    curve = LossCurve(((pair, 30),))
    assert curve.epsilon(1e-5) > LossCurve(((pair, 1),)).epsilon(1e-5)
    assert curve.epsilon(1e-5) < GaussianCurve(2.0 * math.sqrt(30)).epsilon(1e-5)


def test_delta_one_needs_no_epsilon() -> None:
    assert CURVE.epsilon(1.0) == 0


def test_parts_and_refusals() -> None:
    assert CURVE.loss_parts() == CURVE.parts
    with pytest.raises(NotApplicable, match=r"LossCurve is known through delta\(epsilon\) only"):
        CURVE.rdp(2.0)
    for delta in (-0.5, 1.5, math.nan):
        with pytest.raises(InvalidInput, match=r"delta must lie in \[0, 1\]"):
            CURVE.epsilon(delta)
    assert CURVE.epsilon(0.0) == math.inf
    with pytest.raises(InvalidInput, match="epsilon must be at least 0"):
        CURVE.delta(-1.0)


def test_groups() -> None:
    group: PrivacyCurve = gaussians(0.3, 10).group(3)
    assert group.epsilon(1e-5) >= GaussianCurve(0.9).epsilon(1e-5)
