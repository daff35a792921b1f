"""Tails of weighted coin flips: upper bounds, and close ones."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dplateau.errors import InvalidInput
from dplateau.numerics.bernoulli_sums import upper_tail


def exact_tail(weights: list[float], rate: float, point: float) -> float:
    """P(W > point) by listing every outcome."""
    total = 0.0
    for flips in itertools.product((0, 1), repeat=len(weights)):
        if math.fsum(w for w, hit in zip(weights, flips, strict=True) if hit) > point:
            total += rate ** sum(flips) * (1 - rate) ** (len(flips) - sum(flips))
    return total


@settings(max_examples=25)
@given(
    weights=st.lists(st.floats(0.01, 5.0), min_size=1, max_size=8),
    rate=st.floats(0.001, 0.95),
    share=st.floats(0.0, 1.1),
)
def test_never_below_every_outcome_listed(weights: list[float], rate: float, share: float) -> None:
    tail = upper_tail(np.array(weights), rate)
    point = share * sum(weights)
    exact = exact_tail(weights, rate, point)
    found = tail.at(point)
    assert found >= exact * (1 - 1e-12)
    # Rounding weights up moves a jump by at most one cell for each weight, and dust by its sum.
    room = (len(weights) + 1) * np.diff(tail.points).max() + 1e-3 * max(weights)
    assert found <= exact_tail(weights, rate, point - room) + 1e-12


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.3, 0.49, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("count", [10, 1000, 20000])
def test_equal_weights_are_binomial(count: int, rate: float) -> None:
    tail = upper_tail(np.ones(count), rate)
    law = stats.binom(count, rate)
    cell = float(np.diff(tail.points[:-1]).max())
    for level in (0.5, 1e-2, 1e-5, 1e-9):
        k = int(law.isf(level))
        found = tail.at(k)
        assert found >= law.sf(k) * (1 - 1e-9)
        # Each of the flips that succeed was rounded up by at most one cell.
        assert found <= law.sf(k - (k + 1) * cell - 1) * (1 + 1e-6) + 3e-14


def test_rounding_up_costs_little_of_a_long_sum() -> None:
    """Ten thousand flips: the tail is right after a shift of a few thousandths of the mean."""
    for rate in (0.05, 0.45, 0.8):
        tail = upper_tail(np.ones(10_000), rate)
        law = stats.binom(10_000, rate)
        for level in (1e-2, 1e-5):
            assert tail.edge(level) <= law.isf(level) + 0.03 * rate * 10_000


def test_points_rise_and_tails_fall() -> None:
    tail = upper_tail(0.97 ** np.arange(600), 0.02)
    assert np.all(np.diff(tail.points) > 0)
    assert np.all(np.diff(tail.tails) <= 0)
    assert np.all((tail.tails >= 0) & (tail.tails <= 1))
    assert tail.at(-1.0) == 1.0
    assert tail.at(tail.points[-1]) == 0.0


def test_geometric_weights_against_simulation() -> None:
    weights = 0.9 ** np.arange(80)
    tail = upper_tail(weights, 0.1)
    draws = np.random.default_rng(7).random((50_000, weights.size)) < 0.1
    sums = draws @ weights
    for point in (0.3, 1.0, 2.0, 3.0):
        seen = float(np.mean(sums > point))
        spread = 5 * math.sqrt(seen / sums.size)
        assert seen - spread <= tail.at(point) <= seen + spread + 1e-3


@given(level=st.floats(1e-12, 0.9), rate=st.floats(0.001, 0.5))
@settings(max_examples=20)
def test_edges_invert_tails(level: float, rate: float) -> None:
    tail = upper_tail(0.8 ** np.arange(40), rate)
    edge = tail.edge(level)
    assert tail.at(edge) <= level
    below = tail.points[tail.points < edge]
    assert below.size == 0 or tail.at(float(below[-1])) > level


def test_dust_is_charged_in_full() -> None:
    dust = 1e-7 * np.ones(50)
    tail = upper_tail(np.r_[1.0, dust], 0.1)
    assert tail.at(float(dust.sum()) / 2) >= 0.1
    assert tail.at(0.999) >= 0.1
    assert tail.at(1.0 + float(dust.sum()) * 1.001) <= 1e-13


def test_certain_and_empty_sums() -> None:
    certain = upper_tail(np.array([1.0, 2.0]), 1.0)
    assert certain.at(2.999) == 1.0
    assert certain.at(3.001) == 0.0
    empty = upper_tail(np.zeros(3), 0.5)
    assert empty.at(0.0) == 0.0


@pytest.mark.parametrize(
    ("weights", "rate"), [([1.0], 0.0), ([1.0], 1.5), ([1.0], math.nan), ([-1.0], 0.5)]
)
def test_refusals(weights: list[float], rate: float) -> None:
    with pytest.raises(InvalidInput, match=r"weights of at least 0 and a rate in \(0, 1\]"):
        upper_tail(np.array(weights), rate)
