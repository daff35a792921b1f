"""All solvers: the grid, laws of what is solved, ten million steps, and published propositions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dplateau.reproduce.published_forms as published
from dplateau.ground.types import FloatArray
from dplateau.shifts import (
    Chain,
    DescentAscent,
    Linear,
    Modulus,
    Segment,
    ShiftPlan,
    SquareRoot,
    evaluate,
    solve,
)
from dplateau.shifts import closed_forms as forms
from dplateau.shifts.solve import composition_plan, grid_plan
from shifts.chains import cyclic, linear


def grid_value(chain: Chain) -> float:
    return evaluate(grid_plan(chain), chain).sum_of_squares


@pytest.mark.parametrize(
    "chain",
    [
        Chain.homogeneous(100, Linear(0.95), 0.1, 1.0),
        Chain.homogeneous(400, Linear(1.0), 0.01, 1.0, diameter=1.0),
        Chain.homogeneous(900, Linear(1.0), 0.0, 1.0, diameter=1.0, initial_distance=1.0),
        Chain.homogeneous(120, Linear(1.02), 0.01, 1.0, diameter=0.2),
        cyclic(10, 12, 11, Linear(0.999), 0.1, 1.0, diameter=1.0),
        Chain.homogeneous(6000, Linear(0.99), 0.01, 1.0),
    ],
    ids=["contracting", "bounded", "mixing", "expanding", "cyclic", "longer than the window"],
)
def test_linear_moduli_are_met_within_a_percent_and_never_undercut(chain: Chain) -> None:
    exact = solve(chain).sum_of_squares
    assert exact * (1 - 1e-12) <= grid_value(chain) <= exact * 1.01


@pytest.mark.parametrize("modulus", [SquareRoot(1.0, 1e-3), SquareRoot(0.97, 1e-3)], ids=repr)
@pytest.mark.parametrize("start", [1.0, 0.05])
def test_square_roots_are_met_within_a_percent(modulus: SquareRoot, start: float) -> None:
    chain = Chain.homogeneous(600, modulus, 0.0, 1.0, diameter=1.0, initial_distance=start)
    exact = solve(chain).sum_of_squares
    assert exact * (1 - 1e-12) <= grid_value(chain) <= exact * 1.01


@pytest.mark.parametrize("smoothness", [0.5, 4.0, 30.0])
@pytest.mark.parametrize("sensitivity", [0.0, 0.002])
def test_descent_ascent_beats_both_majorants(smoothness: float, sensitivity: float) -> None:
    eta, lipschitz = 0.1, 1.0

    def value(modulus: Modulus) -> float:
        start = 1.0 if sensitivity == 0 else 0.0
        chain = Chain.homogeneous(
            300, modulus, sensitivity, eta, diameter=1.0, initial_distance=start
        )
        return solve(chain).sum_of_squares

    saddle = value(DescentAscent(eta, lipschitz, smoothness))
    assert saddle <= value(SquareRoot(1.0, (2 * eta * lipschitz) ** 2)) * (1 + 1e-9)
    assert saddle <= value(Linear(math.sqrt(1 + (eta * smoothness) ** 2))) * (1 + 1e-9)


def test_descent_ascent_can_be_better_than_any_majorant() -> None:
    chain = Chain.homogeneous(
        300, DescentAscent(0.1, 1.0, 4.0), 0.0, 0.1, diameter=1.0, initial_distance=1.0
    )
    solution = solve(chain)
    assert solution.solver == "grid"
    # The two majorants give 16.0 and 19.26.
    assert solution.sum_of_squares < 9.4


def test_a_finer_grid_changes_little() -> None:
    chain = Chain.homogeneous(
        300, DescentAscent(0.1, 1.0, 4.0), 0.0, 0.1, diameter=1.0, initial_distance=1.0
    )
    coarse, fine = (
        evaluate(grid_plan(chain, nodes=nodes), chain).sum_of_squares for nodes in (640, 4000)
    )
    assert fine <= coarse * (1 + 1e-4)
    assert coarse <= fine * 1.003


def test_sensitivity_with_jumps_falls_back_on_composition_or_better() -> None:
    chain = Chain.homogeneous(50, SquareRoot(1.0, 4.0), 0.01, 1.0)
    solution = solve(chain)
    assert solution.sum_of_squares == pytest.approx(50 * 0.01**2, rel=1e-11)
    bounded = Chain.homogeneous(5000, SquareRoot(1.0, 1e-6), 0.01, 1.0, diameter=0.2)
    assert solve(bounded).sum_of_squares < 0.05 * 5000 * 0.01**2


def test_long_unbounded_chain_composes_first_and_plans_last() -> None:
    chain = Chain.homogeneous(6000, SquareRoot(1.0, 1e-12), 0.01, 1.0)
    solution = solve(chain)
    assert solution.sum_of_squares <= 6000 * 0.01**2 * (1 + 1e-12)
    assert evaluate(solution.plan, chain).final_distance == 0
    tail = Chain.homogeneous(6000, DescentAscent(0.1, 1e-3, 1.0), 0.01, 1.0, initial_distance=0.3)
    assert evaluate(grid_plan(tail), tail).sum_of_squares < math.inf


def test_composition_keeps_the_runs_together() -> None:
    chain = cyclic(3, 4, 1, SquareRoot(1.1, 0.3), 0.5, 2.0)
    assert evaluate(composition_plan(chain), chain).final_distance == 0
    assert evaluate(composition_plan(chain), chain).sum_of_squares == pytest.approx(
        3 * 0.25**2, rel=1e-12
    )
    apart = Chain.homogeneous(4, SquareRoot(1.0, 0.3), 0.5, 2.0, initial_distance=0.7)
    first = math.sqrt(0.49 + 0.3) + 0.5
    expected = (first**2 + 3 * 0.25) / 4
    assert evaluate(composition_plan(apart), apart).final_distance == 0
    assert evaluate(composition_plan(apart), apart).sum_of_squares == pytest.approx(expected)


def test_every_grid_path_replays_to_zero() -> None:
    chain = Chain.homogeneous(
        80, DescentAscent(0.1, 1.0, 9.0), 0.01, 0.3, diameter=1.0, initial_distance=0.5
    )
    plan: ShiftPlan = grid_plan(chain)
    u, modulus = plan.start_distance, DescentAscent(0.1, 1.0, 9.0)
    for a in plan.shifts().tolist():
        u = min(1.0, max(0.0, modulus(u) + 0.01 - a))
    assert u == 0


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
    return solve(linear(c, s, nu, diameter=diameter)).sum_of_squares


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
    chain = linear(c, s, nu, diameter=diameter)
    solution = solve(chain)
    assert evaluate(solution.plan, chain) == (0.0, solution.sum_of_squares)


STEPS = 10**6


@pytest.mark.parametrize("contraction", [0.1, 0.5, 0.999, 1 - 1e-7, 1.0])
def test_homogeneous(contraction: float) -> None:
    solution = solve(Chain.homogeneous(STEPS, Linear(contraction), 1.0, 1.0))
    exact = forms.full_batch_factor(contraction, STEPS)
    assert exact * (1 - 1e-15) <= solution.sum_of_squares <= exact * (1 + 1e-8)
    assert solution.plan.counts.size <= 2


def test_homogeneous_expanding_is_composition() -> None:
    solution = solve(Chain.homogeneous(STEPS, Linear(1.5), 1.0, 1.0))
    assert solution.sum_of_squares == pytest.approx(STEPS, rel=1e-12)


@pytest.mark.parametrize("contraction", [0.9999, 1.0, 1.001])
def test_homogeneous_bounded(contraction: float) -> None:
    chain = Chain.homogeneous(STEPS, Linear(contraction), 1e-3, 1.0, diameter=1.0)
    short = Chain.homogeneous(20_000, Linear(contraction), 1e-3, 1.0, diameter=1.0)
    solution = solve(chain)
    assert solution.sum_of_squares == pytest.approx(solve(short).sum_of_squares, rel=1e-12)


def test_cyclic() -> None:
    chain = cyclic(STEPS // 40, 40, 39, Linear(1 - 1e-6), 1.0, 1.0)
    solution = solve(chain)
    exact = forms.cyclic_factor(1 - 1e-6, 40, STEPS // 40, 39)
    assert exact * (1 - 1e-15) <= solution.sum_of_squares <= exact * (1 + 1e-8)
    assert solution.plan.counts.size < 8


def test_schedule_whose_products_leave_the_range_of_floats() -> None:
    rng = np.random.default_rng(0)
    contractions = rng.uniform(0.1, 1.5, STEPS)
    sensitivities = rng.uniform(0.0, 1.0, STEPS)
    whole = solve(linear(contractions, sensitivities, 1.0))
    # The last thousand steps decide: everything before has been forgotten.
    tail = solve(linear(contractions[-1000:], sensitivities[-1000:], 1.0))
    assert whole.sum_of_squares == pytest.approx(tail.sum_of_squares, rel=1e-11)


def test_single_contact_forgotten_or_remembered() -> None:
    rng = np.random.default_rng(1)
    contact = np.zeros(10**6)
    contact[0] = 1.0
    forgotten = solve(linear(rng.uniform(0.1, 1.5, 10**6), contact, 1.0))
    assert 0 < forgotten.sum_of_squares < 1e-280
    expanding = rng.uniform(0.9, 1.5, 10**6)
    remembered = solve(linear(expanding, contact, 1.0))
    head = solve(linear(expanding[:400], contact[:400], 1.0))
    assert remembered.sum_of_squares == pytest.approx(head.sum_of_squares, rel=1e-10)


def test_square_root() -> None:
    chain = Chain.homogeneous(
        STEPS, SquareRoot(1.0, 1e-4), 0.0, 1.0, diameter=1.0, initial_distance=1.0
    )
    harmonic = float(np.sum(1 / np.arange(1, 10_001)))
    solution = solve(chain)
    assert solution.sum_of_squares == pytest.approx(1e-4 * (1 + harmonic), rel=1e-9)


def rdp_slope(
    c: float, sensitivities: FloatArray, noise_std: float, diameter: float = math.inf
) -> float:
    """Return sum a^2 / (2 nu^2), the slope in alpha of Propositions 2.17, 3.2 and 5.6."""
    chain = linear(c, sensitivities, noise_std, diameter=diameter)
    return solve(chain).sum_of_squares / 2


def test_original_bound_for_one_early_contact_divides_by_the_steps() -> None:
    """s at the first step only: spread evenly, alpha s^2 / (2 T nu^2)."""
    sensitivities = np.zeros(20)
    sensitivities[0] = 0.6
    solution = solve(linear(1.0, sensitivities, 0.5))
    assert solution.sum_of_squares == pytest.approx(0.36 / (20 * 0.25), rel=1e-12)
    np.testing.assert_allclose(solution.plan.shifts(), 0.03, rtol=1e-10)


def test_original_bound_for_constant_sensitivity_is_vacuous_in_the_limit() -> None:
    values = [rdp_slope(1.0, np.full(t, 0.1), 1.0) for t in (10, 100, 1000)]
    np.testing.assert_allclose(values, [0.05, 0.5, 5.0], rtol=1e-12)


def test_bounded_version_stays_finite() -> None:
    values = [rdp_slope(1.0, np.full(t, 0.1), 1.0, 2.0) for t in (5, 20, 100, 10**5)]
    assert values == sorted(values)
    assert values[0] == pytest.approx(5 * 0.01 / 2, rel=1e-12)
    assert values[-1] == pytest.approx(published.plateau(1.0, 0.1, 1.0, 2.0) / 2, rel=1e-12)


def test_bounded_version_is_no_worse_than_even_shifts_from_any_start() -> None:
    """Their own choice in the proof of theorem 3.1: equal shifts that absorb D plus the drift."""
    rng = np.random.default_rng(0)
    sensitivities = rng.uniform(0, 0.2, 30)
    value = rdp_slope(1.0, sensitivities, 0.5, 1.0)
    for tau in range(30):
        total = 1.0 + sensitivities[tau:].sum()
        assert value <= total**2 / (2 * (30 - tau) * 0.25) * (1 + 1e-12)


def test_strongly_convex_version_beats_absorbing_all_at_the_end() -> None:
    """Their choice in the proof of theorem 5.1, without sensitivity: a_T = c^(T - tau) D."""
    steps, c = 12, 0.8
    quiet = np.zeros(steps)
    quiet[0] = 1.0  # the runs part at the first step and drift no further
    value = rdp_slope(c, quiet, 0.5, 1.0)
    assert value <= c ** (2 * (steps - 1)) / (2 * 0.25)
    full = rdp_slope(c, np.full(steps, 0.1), 0.5, 100.0)
    assert full == pytest.approx(0.04 * forms.full_batch_factor(c, steps) / 2, rel=1e-12)
