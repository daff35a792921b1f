"""Gaussian and Laplace curves against closed forms, quadrature and each other."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dplateau.curves import GaussianCurve, GroupCurve, LaplaceCurve, LossCurve, PrivacyCurve
from dplateau.errors import InvalidInput

sizes = st.floats(1e-3, 20.0)
deltas = st.floats(1e-12, 0.9)
epsilons = st.floats(0.0, 30.0)
CURVES = st.one_of(sizes.map(GaussianCurve), sizes.map(LaplaceCurve))


@given(CURVES, deltas)
def test_epsilon_and_delta_invert_each_other(curve: PrivacyCurve, delta: float) -> None:
    epsilon = curve.epsilon(delta)
    assert epsilon >= 0
    assert curve.delta(epsilon) <= delta * (1 + 1e-12)
    if epsilon > 1e-6:
        assert curve.delta(epsilon * (1 - 1e-6)) > delta * (1 - 1e-6)


@given(CURVES, epsilons, st.floats(0.0, 5.0))
def test_delta_falls_in_epsilon(curve: PrivacyCurve, epsilon: float, more: float) -> None:
    first, second = curve.delta(epsilon), curve.delta(epsilon + more)
    assert 0 <= second <= first * (1 + 1e-12) <= 1 + 1e-12


@given(CURVES, deltas, deltas)
def test_epsilon_falls_in_delta(curve: PrivacyCurve, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert curve.epsilon(high) <= curve.epsilon(low) * (1 + 1e-12)


@given(st.floats(0.01, 10.0), st.floats(0.0, 20.0))
def test_gaussian_delta_is_the_formula(mu: float, epsilon: float) -> None:
    with mp.workdps(40):
        cut = mp.mpf(epsilon) / mu
        exact = mp.ncdf(mu / mp.mpf(2) - cut) - mp.exp(epsilon) * mp.ncdf(-mu / mp.mpf(2) - cut)
    found = GaussianCurve(mu).delta(epsilon)
    assert exact * (1 - mp.mpf(10) ** -30) <= found <= exact * (1 + mp.mpf(10) ** -9) + 1e-300


@given(st.floats(0.01, 8.0), st.floats(1e-9, 1.0))
def test_gaussian_tradeoff_is_the_formula(mu: float, fpr: float) -> None:
    exact = stats.norm.sf(mu + stats.norm.ppf(fpr))
    assert GaussianCurve(mu).tradeoff(fpr) == pytest.approx(exact, rel=1e-9, abs=1e-300)


@given(st.floats(0.05, 4.0), st.floats(0.0, 1.0))
def test_the_generic_tradeoff_is_a_lower_bound(mu: float, fpr: float) -> None:
    curve = GaussianCurve(mu)
    exact = curve.tradeoff(fpr)
    generic = PrivacyCurve.tradeoff(curve, fpr)
    assert -1e-12 <= generic <= exact + 1e-12
    # A search over epsilon ends close to the tangent that touches the curve.
    assert generic >= exact - 1e-3


@given(CURVES, st.floats(0.0, 1.0), st.floats(0.0, 8.0))
def test_tradeoffs_and_deltas_agree(curve: PrivacyCurve, fpr: float, epsilon: float) -> None:
    """No line that delta proves lies above the trade-off curve, in either order."""
    missed, delta = curve.tradeoff(fpr), curve.delta(epsilon)
    assert 0 <= missed <= 1 - fpr + 1e-12
    assert missed >= 1 - math.exp(epsilon) * fpr - delta - 1e-9
    assert missed >= math.exp(-epsilon) * (1 - fpr - delta) - 1e-9


@given(st.floats(0.01, 30.0), st.floats(1e-9, 1.0))
def test_laplace_tradeoff_is_that_of_threshold_tests(ratio: float, fpr: float) -> None:
    threshold = -stats.laplace.ppf(fpr)
    exact = float(stats.laplace.cdf(threshold - ratio))
    assert LaplaceCurve(ratio).tradeoff(fpr) == pytest.approx(exact, rel=1e-9, abs=1e-12)
    assert LaplaceCurve(ratio).tradeoff(fpr) <= exact * (1 + 1e-12)


def test_generic_tradeoff_of_a_laplace_curve() -> None:
    for ratio in (0.3, 2.0, 6.0):
        for fpr in (0.0, 1e-4, 0.01, 0.2, 0.5, 0.9, 1.0):
            exact = LaplaceCurve(ratio).tradeoff(fpr)
            generic = PrivacyCurve.tradeoff(LaplaceCurve(ratio), fpr)
            assert exact - 2e-3 <= generic <= exact + 1e-12


@given(st.floats(1e-6, 30.0), st.floats(0.0, 40.0))
def test_laplace_delta_is_the_formula(ratio: float, epsilon: float) -> None:
    exact = max(0.0, -math.expm1((epsilon - ratio) / 2))
    found = LaplaceCurve(ratio).delta(epsilon)
    assert exact * (1 - 1e-15) <= found <= exact * (1 + 1e-9) + 1e-14
    assert LaplaceCurve(ratio).epsilon(1e-12) <= ratio * (1 + 1e-12)


@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 0.3, 2.0, 50.0, 800.0])
@pytest.mark.parametrize("order", [1.0001, 1.5, 2.0, 10.0, 300.0])
def test_laplace_renyi_divergence_by_quadrature(ratio: float, order: float) -> None:
    with mp.workdps(50):
        a, s = mp.mpf(order), mp.mpf(ratio)

        def middle(x: mp.mpf) -> mp.mpf:
            return mp.exp(-a * (s - x) - (1 - a) * x) / 2

        # Left of both centers and right of both the ratio of densities is constant.
        left, right = mp.exp(-a * s) / 2, mp.exp(-(1 - a) * s) / 2
        inside = mp.quad(middle, mp.linspace(0, s, 9))
        exact = mp.log(left + inside + right) / (a - 1)
    found = LaplaceCurve(ratio).rdp(order)
    assert exact <= found <= exact * (1 + mp.mpf(10) ** -12)


@given(st.floats(0.0, 10.0), st.floats(1.001, 500.0))
def test_gaussian_renyi_divergence(mu: float, order: float) -> None:
    assert GaussianCurve(mu).rdp(order) == pytest.approx(order * mu**2 / 2, rel=1e-14)
    assert GaussianCurve(mu).rdp(order) >= order * mu**2 / 2


@given(sizes, st.integers(1, 9), st.floats(1e-9, 0.1))
def test_groups_of_closed_curves(size: float, count: int, delta: float) -> None:
    for cls in (GaussianCurve, LaplaceCurve):
        one = cls(size)
        assert one.group(count).epsilon(delta) == pytest.approx(cls(count * size).epsilon(delta))
        # The general argument knows less.
        assert one.group(count).epsilon(delta) <= GroupCurve(one, count).epsilon(delta) + 1e-9


def test_extremes() -> None:
    assert GaussianCurve(0.0).epsilon(1e-9) == 0
    assert LaplaceCurve(0.0).delta(0.0) == 0
    assert GaussianCurve(1.0).epsilon(1.0) == 0
    assert GaussianCurve(1.0).tradeoff(0.0) == pytest.approx(1.0)
    assert GaussianCurve(1.0).tradeoff(1.0) == 0
    assert GaussianCurve(1.0).delta(800.0) > 0, "tiny, never zero and never NaN"
    assert GaussianCurve(1e-8).epsilon(1e-5) == 0


def test_loss_parts_recompose_to_the_same_curve() -> None:
    for curve in (GaussianCurve(0.7), LaplaceCurve(1.3)):
        again = LossCurve(curve.loss_parts())
        for delta in (1e-3, 1e-6):
            exact = curve.epsilon(delta)
            assert exact <= again.epsilon(delta) <= exact * 1.002


@pytest.mark.parametrize("cls", [GaussianCurve, LaplaceCurve])
@pytest.mark.parametrize("size", [-1.0, math.nan])
def test_refused_sizes(cls: type[PrivacyCurve], size: float) -> None:
    with pytest.raises(InvalidInput, match=r"(mu|ratio) must be at least 0; got"):
        cls(size)


@pytest.mark.parametrize("curve", [GaussianCurve(1.0), LaplaceCurve(1.0)], ids=repr)
def test_refused_questions(curve: PrivacyCurve) -> None:
    for epsilon in (-0.1, math.nan):
        with pytest.raises(InvalidInput, match="epsilon must be at least 0; got"):
            curve.delta(epsilon)
    for delta in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidInput, match=r"delta must lie in \[0, 1\]; got"):
            curve.epsilon(delta)
    for fpr in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidInput, match=r"fpr must lie in \[0, 1\]; got"):
            curve.tradeoff(fpr)
    for order in (1.0, 0.5, math.inf, math.nan):
        with pytest.raises(InvalidInput, match="order must be finite and above 1; got"):
            curve.rdp(order)
    for size in (0, -1, 1.5, True, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="whole number of records, at least 1; got"):
            curve.group(size)
