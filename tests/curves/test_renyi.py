"""Curves known at several Rényi orders."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau.curves import GaussianCurve, RenyiCurve
from dplateau.curves.conversions import optimal_epsilon
from dplateau.curves.renyi import sampled_gaussian_rdp
from dplateau.errors import InvalidInput, NotApplicable

ORDERS = tuple(float(a) for a in np.geomspace(1.1, 60, 25))


def gaussian(mu: float) -> RenyiCurve:
    return RenyiCurve(ORDERS, tuple(order * mu**2 / 2 for order in ORDERS))


@given(st.floats(0.05, 4.0), st.floats(1e-10, 0.3))
def test_never_below_the_gaussian_it_describes(mu: float, delta: float) -> None:
    assert gaussian(mu).epsilon(delta) >= GaussianCurve(mu).epsilon(delta)


@given(st.floats(0.05, 4.0), st.floats(1e-10, 0.5))
def test_epsilon_and_delta_invert_each_other(mu: float, delta: float) -> None:
    curve = gaussian(mu)
    epsilon = curve.epsilon(delta)
    assert curve.delta(epsilon) <= delta * (1 + 1e-6)
    if epsilon > 1e-3:
        assert curve.delta(epsilon * (1 - 1e-3)) > delta * (1 - 1e-6)


@given(st.floats(0.05, 4.0), st.floats(0.0, 20.0), st.floats(0.0, 3.0))
def test_delta_falls_and_stays_a_probability(mu: float, epsilon: float, more: float) -> None:
    curve = gaussian(mu)
    assert 0 <= curve.delta(epsilon + more) <= curve.delta(epsilon) * (1 + 1e-9) <= 1 + 1e-9


def test_epsilon_is_the_best_order() -> None:
    curve = gaussian(1.0)
    each = [optimal_epsilon(a, v, 1e-5) for a, v in zip(curve.orders, curve.values, strict=True)]
    assert curve.epsilon(1e-5) == pytest.approx(min(each), rel=1e-12)


@given(st.floats(1.02, 59.0), st.floats(0.001, 0.5), st.floats(0.2, 2.0))
def test_interpolation_is_an_upper_bound(order: float, rate: float, step: float) -> None:
    knots = np.array([1.05, 1.5, 2.0, 4.0, 9.0, 20.0, 60.0])
    curve = RenyiCurve(
        tuple(knots.tolist()), tuple(sampled_gaussian_rdp(knots, rate, step).tolist())
    )
    exact = float(sampled_gaussian_rdp(np.array([order]), rate, step)[0])
    assert curve.rdp(order) >= exact * (1 - 1e-10)


def test_interpolation_is_exact_at_the_orders() -> None:
    curve = RenyiCurve((4.0, 2.0), (3.0, 1.0))
    assert curve.orders == (2.0, 4.0)
    assert curve.rdp(2.0) == pytest.approx(1.0)
    assert curve.rdp(4.0) == pytest.approx(3.0)
    # (alpha - 1) D is 1 and 9 at the ends, 5 half way, and divides by alpha - 1 = 2.
    assert curve.rdp(3.0) == pytest.approx(2.5)
    # Below the first order it is the chord from (1, 0).
    assert curve.rdp(1.5) == pytest.approx(1.0)


def test_orders_beyond_the_last_are_refused() -> None:
    with pytest.raises(NotApplicable, match="holds up to order 60; asked for 61"):
        gaussian(1.0).rdp(61)
    with pytest.raises(InvalidInput, match="finite and above 1"):
        gaussian(1.0).rdp(1.0)


def test_composition_adds_divergences() -> None:
    both = gaussian(0.6).plus(gaussian(0.8))
    for order in ORDERS:
        assert both.rdp(order) == pytest.approx(order * (0.36 + 0.64) / 2, rel=1e-12)
    short = RenyiCurve((2.0, 3.0), (1.0, 1.0)).plus(RenyiCurve((2.5,), (1.0,)))
    assert short.orders == (2.0, 2.5)
    assert short.rdp(2.5) >= 2.0


def test_infinite_divergences_are_worthless_not_harmful() -> None:
    curve = RenyiCurve((2.0, 10.0), (0.1, math.inf))
    assert curve.epsilon(1e-5) == RenyiCurve((2.0,), (0.1,)).epsilon(1e-5)


def test_no_divergence_is_perfect_privacy() -> None:
    curve = RenyiCurve((2.0,), (0.0,))
    assert curve.epsilon(1e-9) == 0
    assert curve.delta(0.0) == 0


@pytest.mark.parametrize(
    ("orders", "values", "message"),
    [
        ((), (), "one value for each of its orders"),
        ((2.0, 3.0), (1.0,), "one value for each of its orders"),
        ((1.0,), (1.0,), "order must be finite and above 1; got 1.0"),
        ((math.inf,), (1.0,), "order must be finite and above 1"),
        ((2.0,), (-1.0,), "divergences are at least 0"),
        ((2.0,), (math.nan,), "divergences are at least 0"),
    ],
)
def test_refusals(orders: tuple[float, ...], values: tuple[float, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        RenyiCurve(orders, values)


def test_groups_go_through_the_general_argument() -> None:
    curve = gaussian(0.5)
    assert curve.group(1) is curve
    assert curve.group(2).epsilon(1e-5) >= GaussianCurve(1.0).epsilon(1e-5)
