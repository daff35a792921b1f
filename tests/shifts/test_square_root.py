"""Square-root moduli: the optimal plans, and the closed forms that they attain."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import minimize

from dplateau.ground.types import FloatArray
from dplateau.reproduce.published_forms import (
    corollary_3_7,
    corollary_3_8,
    corollary_3_9,
    corollary_3_9_logarithm,
    theorem_3_4,
)
from dplateau.shifts import (
    Chain,
    Linear,
    Modulus,
    Segment,
    ShiftPlan,
    SquareRoot,
    evaluate,
    solve,
)
from dplateau.shifts.square_root import square_root_plan

GOLDEN_C = [0.991089, 0.880936, 0.812292, 0.804958, 1.043981, 1.073827]
GOLDEN_H = [0.181991, 0.218849, 0.163087, 0.280522, 0.244756, 0.000822]
GOLDEN_VARIANCE = [1.786106, 0.550378, 1.594483, 0.763483, 1.794768, 1.312192]


def chain_of(
    c: FloatArray | list[float],
    h: FloatArray | list[float],
    variance: FloatArray | list[float],
    diameter: float,
    start: float | None = None,
) -> Chain:
    segments = [
        Segment(1, SquareRoot(float(a), float(b)), 0.0, math.sqrt(v))
        for a, b, v in zip(c, h, variance, strict=True)
    ]
    return Chain.of(
        segments, diameter=diameter, initial_distance=diameter if start is None else start
    )


def replayed(plan: ShiftPlan, chain: Chain) -> float:
    columns, rows = chain.columns, chain.rows_from(plan.start_step).tolist()
    u, total = plan.start_distance, 0.0
    for row, a in zip(rows, plan.shifts().tolist(), strict=True):
        grown = math.sqrt(columns.first[row] * u**2 + columns.second[row]) if u > 0 else 0.0
        u = min(chain.diameter, max(0.0, grown - a))
        total += (a / columns.noise_stds[row]) ** 2
    assert u == 0
    return total


def general_optimum(c: FloatArray, h: FloatArray, variance: FloatArray, diameter: float) -> float:
    """All steps used, by a quasi-Newton method in the logarithms of the distances."""

    def cost(logs: FloatArray) -> float:
        u = np.r_[diameter, np.exp(logs), 0.0]
        return float(np.sum((np.sqrt(c * u[:-1] ** 2 + h) - u[1:]) ** 2 / variance))

    begin = np.log(np.linspace(diameter, 0.1, c.size + 1)[1:-1])
    best = minimize(cost, begin, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    return float(best.fun)


def test_golden_value() -> None:
    value = theorem_3_4(1.5, GOLDEN_C, GOLDEN_H, GOLDEN_VARIANCE)
    assert value == pytest.approx(0.4317996, abs=5e-8)
    solution = solve(chain_of(GOLDEN_C, GOLDEN_H, GOLDEN_VARIANCE, 1.5))
    assert solution.solver == "square_root"
    assert value * (1 - 1e-15) <= solution.sum_of_squares <= value * (1 + 1e-12)


def test_recursion_is_the_printed_double_sum() -> None:
    c, h, variance = map(np.array, (GOLDEN_C, GOLDEN_H, GOLDEN_VARIANCE))
    after = np.array([np.prod(c[t + 1 :]) for t in range(6)])
    weights = np.array([np.sum(variance[t:] * after[t:]) for t in range(6)])
    printed = np.prod(c) * 1.5**2 / weights[0] + np.sum(h * after / weights)
    assert theorem_3_4(1.5, c, h, variance) == pytest.approx(printed, rel=1e-13)


@pytest.mark.parametrize("seed", range(15))
def test_closed_form_is_the_general_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(2, 8))
    c, h, variance = (
        rng.uniform(0.7, 1.3, steps),
        rng.uniform(0, 0.3, steps),
        rng.uniform(0.3, 2, steps),
    )
    value = theorem_3_4(1.2, c, h, variance)
    assert value == pytest.approx(general_optimum(c, h, variance, 1.2), rel=1e-6)


@pytest.mark.parametrize("seed", range(25))
def test_solver_is_the_best_over_all_windows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(1, 12))
    c, variance = rng.uniform(0.7, 1.3, steps), rng.uniform(0.2, 3, steps)
    h = rng.uniform(0, 0.5, steps) * (rng.random(steps) < 0.7)
    start = float(rng.choice([0.1, 1.0]))
    chain = chain_of(c, h, variance, 1.0, start)
    distances = [start]
    for a, b in zip(c, h, strict=True):
        distances.append(min(1.0, math.sqrt(a * distances[-1] ** 2 + b)))
    brute = min(
        theorem_3_4(distances[i], c[i:j], h[i:j], variance[i:j])
        for i in range(steps)
        for j in range(i + 1, steps + 1)
    )
    solution = solve(chain)
    assert solution.sum_of_squares == pytest.approx(brute, rel=1e-11)
    assert replayed(solution.plan, chain) == pytest.approx(brute, rel=1e-11)


@pytest.mark.parametrize("steps", [1, 5, 40])
def test_corollaries_for_equal_steps(steps: int) -> None:
    harmonic = sum(1 / k for k in range(1, steps + 1))
    value = theorem_3_4(2.0, np.ones(steps), 0.01, 0.25)
    assert value == pytest.approx((4 / steps + 0.01 * harmonic) / 0.25, rel=1e-13)
    c = 0.93
    value = theorem_3_4(2.0, np.full(steps, c), 0.0, 0.25)
    assert value == pytest.approx(4 * c**steps * (1 - c) / (0.25 * (1 - c**steps)), rel=1e-12)
    value = theorem_3_4(2.0, np.full(steps, c), 0.02, 0.25)
    tail = sum(c**t / sum(c**j for j in range(t + 1)) for t in range(steps))
    main = 4 * c**steps * (1 - c) / (1 - c**steps)
    assert value == pytest.approx((main + 0.02 * tail) / 0.25, rel=1e-12)


def test_more_steps_can_cost_more_and_are_not_used() -> None:
    chain = Chain.homogeneous(
        1000, SquareRoot(1.0, 0.01), 0.0, 1.0, diameter=1.0, initial_distance=1.0
    )
    solution = solve(chain)
    best = min((1 / r + 0.01 * sum(1 / k for k in range(1, r + 1))) for r in range(1, 400))
    assert solution.sum_of_squares == pytest.approx(best, rel=1e-11)
    assert solution.plan.start_step == 900


def test_small_distances_are_absorbed_early() -> None:
    """The forward distance grows to D, so the plan works at the start and rests afterwards."""
    chain = Chain.homogeneous(
        5000, SquareRoot(1.0, 0.01), 0.0, 1.0, diameter=1.0, initial_distance=0.2
    )
    plan = solve(chain).plan
    shifts = plan.shifts()
    assert plan.start_step == 0
    assert np.count_nonzero(shifts) <= 5
    best = min((0.04 / r + 0.01 * sum(1 / k for k in range(1, r + 1))) for r in range(1, 400))
    assert solve(chain).sum_of_squares == pytest.approx(best, rel=1e-11)


def test_without_h_it_is_the_linear_program() -> None:
    curved = Chain.homogeneous(
        50, SquareRoot(0.81, 0.0), 0.0, 1.0, diameter=1.0, initial_distance=1.0
    )
    straight = Chain.homogeneous(50, Linear(0.9), 0.0, 1.0, diameter=1.0, initial_distance=1.0)
    expected = solve(straight).sum_of_squares
    assert solve(curved).sum_of_squares == pytest.approx(expected, rel=1e-11)
    assert evaluate(square_root_plan(curved), curved).sum_of_squares == pytest.approx(
        expected, rel=1e-11
    )
    drifting = Chain.homogeneous(50, SquareRoot(0.81, 0.0), 0.1, 1.0)
    expected = solve(Chain.homogeneous(50, Linear(0.9), 0.1, 1.0)).sum_of_squares
    assert solve(drifting).sum_of_squares == pytest.approx(expected, rel=1e-11)


def test_mixed_linear_and_square_root_steps() -> None:
    segments = [Segment(3, Linear(0.9), 0.0, 1.0), Segment(2, SquareRoot(1.0, 0.04), 0.0, 0.5)]
    chain = Chain.of(segments, repeats=2, diameter=1.0, initial_distance=1.0)
    c = np.array([0.81, 0.81, 0.81, 1, 1] * 2)
    h = np.array([0, 0, 0, 0.04, 0.04] * 2)
    variance = np.array([1, 1, 1, 0.25, 0.25] * 2)
    distances = [1.0]
    for a, b in zip(c, h, strict=True):
        distances.append(min(1.0, math.sqrt(a * distances[-1] ** 2 + b)))
    brute = min(
        theorem_3_4(distances[i], c[i:j], h[i:j], variance[i:j])
        for i in range(10)
        for j in range(i + 1, 11)
    )
    assert solve(chain).sum_of_squares == pytest.approx(brute, rel=1e-11)


def solved(modulus: Modulus, diameter: float, noise: float, steps: int) -> float:
    chain = Chain.homogeneous(
        steps, modulus, 0.0, noise, diameter=diameter, initial_distance=diameter
    )
    return solve(chain).sum_of_squares


@pytest.mark.parametrize("steps", [1, 2, 7, 60])
@pytest.mark.parametrize("jump", [1e-6, 1e-3, 0.2])
def test_convex_losses(steps: int, jump: float) -> None:
    value = corollary_3_7(1.3, jump, 0.7, steps)
    harmonic = mp.harmonic(steps)
    assert value == pytest.approx(float((1.3**2 / steps + jump * harmonic) / 0.49), rel=1e-12)
    assert value == pytest.approx(theorem_3_4(1.3, [1.0] * steps, jump, 0.49), rel=1e-12)
    assert harmonic <= 1 + math.log(steps)
    # The solver may use fewer of the last steps, and does when the jump is large.
    fewer = min(corollary_3_7(1.3, jump, 0.7, count) for count in range(1, steps + 1))
    assert solved(SquareRoot(1.0, jump), 1.3, 0.7, steps) == pytest.approx(fewer, rel=1e-9)


@pytest.mark.parametrize("steps", [1, 5, 400])
@pytest.mark.parametrize("factor", [0.3, 0.99, 1.0, 1.02, 3.0])
def test_no_jump(steps: int, factor: float) -> None:
    value = corollary_3_8(0.8, factor, 0.5, steps)
    with mp.workdps(40):
        c = mp.mpf(factor)
        exact = mp.mpf("0.64") / mp.fsum(c ** (-j) for j in range(1, steps + 1)) / mp.mpf("0.25")
    assert value == pytest.approx(float(exact), rel=1e-12)
    assert solved(Linear(math.sqrt(factor)), 0.8, 0.5, steps) == pytest.approx(value, rel=1e-9)
    assert solved(SquareRoot(factor, 0.0), 0.8, 0.5, steps) == pytest.approx(value, rel=1e-9)


def test_expanding_steps_have_a_plateau_and_contracting_ones_forget() -> None:
    assert corollary_3_8(2.0, 1.5, 0.5, 10**6) == pytest.approx(4 * 0.5 / 0.25, rel=1e-12)
    assert corollary_3_8(2.0, 0.5, 0.5, 10**6) == 0.0


@pytest.mark.parametrize("steps", [1, 3, 40])
@pytest.mark.parametrize("factor", [0.6, 0.97, 1.0, 1.1])
@pytest.mark.parametrize("jump", [1e-4, 0.05])
def test_dissipative_losses(steps: int, factor: float, jump: float) -> None:
    value = corollary_3_9(1.1, factor, jump, 0.6, steps)
    assert value == pytest.approx(theorem_3_4(1.1, [factor] * steps, jump, 0.36), rel=1e-12)
    assert value <= corollary_3_9_logarithm(1.1, factor, jump, 0.6, steps) * (1 + 1e-12)
    fewer = min(corollary_3_9(1.1, factor, jump, 0.6, count) for count in range(1, steps + 1))
    found = solved(SquareRoot(factor, jump), 1.1, 0.6, steps)
    # For c < 1 the forward distance falls below D, so starting later costs even less.
    assert found <= fewer * (1 + 1e-9)
    if factor >= 1:
        assert found == pytest.approx(fewer, rel=1e-9)


def test_they_agree_where_they_meet() -> None:
    assert corollary_3_9(1.0, 1.0, 0.2, 1.0, 9) == pytest.approx(
        corollary_3_7(1.0, 0.2, 1.0, 9), rel=1e-12
    )
    assert corollary_3_9(1.0, 0.9, 0.0, 1.0, 9) == corollary_3_8(1.0, 0.9, 1.0, 9)
