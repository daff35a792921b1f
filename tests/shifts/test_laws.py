from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dplateau.ground.types import FloatArray
from dplateau.shifts import Chain, Linear, Segment, SquareRoot, evaluate, solve

LOOSE = 1 + 1e-9
Instance = tuple[FloatArray, FloatArray, FloatArray, float]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    steps = draw(st.integers(1, 12))

    def column(low: float, high: float) -> FloatArray:
        return np.array(draw(st.lists(st.floats(low, high), min_size=steps, max_size=steps)))

    diameter = draw(st.sampled_from([0.3, 1.0, math.inf]))
    return column(0.2, 1.5), column(1e-3, 1.0), column(0.2, 2.0), diameter


def value(c: FloatArray, s: FloatArray, nu: FloatArray, diameter: float) -> float:
    return solve(Chain.from_arrays(c, s, nu, diameter=diameter)).sum_of_squares


@settings(max_examples=60, deadline=None)
@given(instances(), st.floats(1.0, 3.0), st.integers(0, 11))
def test_more_sensitivity_never_costs_less(case: Instance, factor: float, where: int) -> None:
    c, s, nu, diameter = case
    more = s.copy()
    more[where % s.size] *= factor
    assert value(c, s, nu, diameter) <= value(c, more, nu, diameter) * LOOSE


@settings(max_examples=60, deadline=None)
@given(instances(), st.floats(1.0, 3.0), st.integers(0, 11))
def test_more_noise_never_costs_more(case: Instance, factor: float, where: int) -> None:
    c, s, nu, diameter = case
    more = nu.copy()
    more[where % nu.size] *= factor
    assert value(c, s, more, diameter) <= value(c, s, nu, diameter) * LOOSE


@settings(max_examples=60, deadline=None)
@given(instances(), st.floats(1.0, 5.0))
def test_a_larger_domain_never_costs_less(case: Instance, factor: float) -> None:
    c, s, nu, diameter = case
    assert value(c, s, nu, diameter) <= value(c, s, nu, diameter * factor) * LOOSE


@settings(max_examples=60, deadline=None)
@given(instances(), st.floats(1.0, 1.5), st.integers(0, 11))
def test_expanding_more_never_costs_less(case: Instance, factor: float, where: int) -> None:
    c, s, nu, diameter = case
    more = c.copy()
    more[where % c.size] *= factor
    assert value(c, s, nu, diameter) <= value(more, s, nu, diameter) * LOOSE


@settings(max_examples=60, deadline=None)
@given(instances(), st.floats(0.01, 100.0))
def test_only_the_ratio_to_the_noise_matters(case: Instance, scale: float) -> None:
    c, s, nu, diameter = case
    once, again = value(c, s, nu, diameter), value(c, scale * s, scale * nu, scale * diameter)
    assert once / LOOSE <= again <= once * LOOSE


@settings(max_examples=60, deadline=None)
@given(instances())
def test_never_worse_than_composition_or_than_absorbing_at_the_end(case: Instance) -> None:
    c, s, nu, diameter = case
    best = value(c, s, nu, diameter)
    assert best <= float(np.sum((s / nu) ** 2)) * LOOSE
    drift = 0.0
    for c_t, s_t in zip(c[:-1], s[:-1], strict=True):
        drift = min(diameter, c_t * drift + s_t)
    assert best <= ((c[-1] * drift + s[-1]) / nu[-1]) ** 2 * LOOSE


@settings(max_examples=60, deadline=None)
@given(instances(), st.integers(1, 4))
def test_every_spelling_of_a_chain_has_one_value(case: Instance, repeats: int) -> None:
    c, s, nu, diameter = case
    tiled = value(np.tile(c, repeats), np.tile(s, repeats), np.tile(nu, repeats), diameter)
    rows = zip(c.tolist(), s.tolist(), nu.tolist(), strict=True)
    segments = [Segment(1, Linear(a), b, v) for a, b, v in rows]
    chain = Chain.of(segments, repeats=repeats, diameter=diameter)
    solution = solve(chain)
    assert tiled / LOOSE <= solution.sum_of_squares <= tiled * LOOSE
    assert evaluate(solution.plan, chain).final_distance == 0
    roots = [Segment(1, SquareRoot(a * a, 0.0), b, v) for (a, b, v) in zip(c, s, nu, strict=True)]
    curved = solve(Chain.of(roots, repeats=repeats, diameter=diameter)).sum_of_squares
    assert tiled / LOOSE <= curved <= tiled * LOOSE


@settings(max_examples=60, deadline=None)
@given(instances())
def test_reported_value_is_that_of_the_returned_plan(case: Instance) -> None:
    c, s, nu, diameter = case
    chain = Chain.from_arrays(c, s, nu, diameter=diameter)
    solution = solve(chain)
    assert evaluate(solution.plan, chain) == (0.0, solution.sum_of_squares)
