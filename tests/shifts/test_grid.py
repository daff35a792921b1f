from __future__ import annotations

import math

import pytest

from dplateau.shifts import (
    Chain,
    DescentAscent,
    Linear,
    Modulus,
    ShiftPlan,
    SquareRoot,
    evaluate,
    solve,
)
from dplateau.shifts.grid import composition_plan, grid_plan


def grid_value(chain: Chain) -> float:
    return evaluate(grid_plan(chain), chain).sum_of_squares


@pytest.mark.parametrize(
    "chain",
    [
        Chain.homogeneous(100, Linear(0.95), 0.1, 1.0),
        Chain.homogeneous(400, Linear(1.0), 0.01, 1.0, diameter=1.0),
        Chain.homogeneous(900, Linear(1.0), 0.0, 1.0, diameter=1.0, initial_distance=1.0),
        Chain.homogeneous(120, Linear(1.02), 0.01, 1.0, diameter=0.2),
        Chain.cyclic(10, 12, 11, Linear(0.999), 0.1, 1.0, diameter=1.0),
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
    chain = Chain.cyclic(3, 4, 1, SquareRoot(1.1, 0.3), 0.5, 2.0)
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
