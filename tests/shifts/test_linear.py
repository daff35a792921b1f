from __future__ import annotations

import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from dplateau.ground.types import FloatArray
from dplateau.reproduce.published_forms import plateau
from dplateau.shifts import Chain, Linear, ShiftPlan, evaluate, solve
from dplateau.shifts import closed_forms as forms
from dplateau.shifts.closed_forms import homogeneous_plan
from dplateau.shifts.linear import linear_plan, start_costs
from shifts.chains import cyclic, linear


def replayed(plan: ShiftPlan, c: FloatArray, s: FloatArray, nu: FloatArray, d: float) -> float:
    """A second opinion in a few lines: the recursion, and the sum if it ends at zero."""
    u = plan.start_distance
    total = 0.0
    for t, a in enumerate(plan.shifts().tolist(), start=plan.start_step):
        u = max(0.0, c[t] * u + s[t] - a)
        u = min(d, u) if t < c.size - 1 else u
        total += (a / nu[t]) ** 2
    assert u <= 1e-13 * (1 + plan.start_distance + float(s.sum()))
    return total


def minorant(c: FloatArray, s: FloatArray, nu: FloatArray, u: float) -> float:
    """The hull of the points as written on paper, in forty digits."""
    with mp.workdps(40):
        product, height, width = mp.mpf(1), mp.mpf(float(u)), mp.mpf(0)
        hull = [(mp.mpf(0), mp.mpf(0))]
        for c_t, s_t, nu_t in zip(c.tolist(), s.tolist(), nu.tolist(), strict=True):
            product *= mp.mpf(c_t)
            height += mp.mpf(s_t) / product
            width += (mp.mpf(nu_t) / product) ** 2
            while len(hull) > 1:
                (w0, h0), (w1, h1) = hull[-2:]
                if (h1 - h0) * (width - w1) < (height - h1) * (w1 - w0):
                    break
                hull.pop()
            hull.append((width, height))
        return float(sum((h1 - h0) ** 2 / (w1 - w0) for (w0, h0), (w1, h1) in pairwise(hull)))


def convex_optimum(c: FloatArray, s: FloatArray, nu: FloatArray, u: float) -> float:
    """The least squares problem in the distances, u >= 0, by an active-set method."""
    steps = c.size
    matrix, offset = np.zeros((steps, max(steps - 1, 1))), s / nu
    offset[0] += c[0] * u / nu[0]
    for t in range(steps):
        if t > 0:
            matrix[t, t - 1] = c[t] / nu[t]
        if t < steps - 1:
            matrix[t, t] = -1 / nu[t]
    result = lsq_linear(matrix, -offset, bounds=(0, np.inf), method="bvls", tol=1e-14)
    return 2 * float(result.cost)


def forward(c: FloatArray, s: FloatArray, diameter: float, start: float) -> list[float]:
    distances = [start]
    for c_t, s_t in zip(c.tolist(), s.tolist(), strict=True):
        distances.append(min(diameter, c_t * distances[-1] + s_t))
    return distances


def instance(seed: int, uniform: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(2, 30))
    c, nu = rng.uniform(0.6, 1.3, steps), rng.uniform(0.3, 2, steps)
    s = rng.uniform(0, 1, steps) * (rng.random(steps) < 0.6)
    s[rng.integers(steps)] = 0.5
    if uniform:
        c[:], s[:], nu[:] = c[0], 0.3, nu[0]
    return c, s, nu


@pytest.mark.parametrize(
    "contraction", [0.0, 1e-310, 1e-200, 1e-20, 0.1, 0.5, 0.95, 0.9999, 1 - 1e-9, 1.0]
)
@pytest.mark.parametrize("steps", [1, 2, 30, 1000])
def test_both_solvers_meet_the_full_batch_form(contraction: float, steps: int) -> None:
    chain = Chain.homogeneous(steps, Linear(contraction), 0.7, 0.4)
    exact = (0.7 / 0.4) ** 2 * forms.full_batch_factor(contraction, steps)
    for plan in (homogeneous_plan(chain), linear_plan(chain)):
        value = evaluate(plan, chain).sum_of_squares
        assert exact * (1 - 1e-15) <= value <= exact * (1 + 1e-12)


@pytest.mark.parametrize(
    ("contraction", "steps", "mu"),
    [(0.95, 100, 0.620813), (0.95, 10**6, 0.624500), (0.99, 10**6, 1.410674)],
)
def test_full_batch_golden_mu(contraction: float, steps: int, mu: float) -> None:
    chain = Chain.homogeneous(steps, Linear(contraction), 0.1, 1.0)
    assert math.sqrt(solve(chain).sum_of_squares) == pytest.approx(mu, abs=5e-7)


@pytest.mark.parametrize("batches", [1, 2, 3, 8])
@pytest.mark.parametrize("epochs", [1, 2, 9])
@pytest.mark.parametrize("contraction", [0.4, 0.9, 0.999, 1.0])
def test_cyclic_form_holds_at_every_position(contraction: float, batches: int, epochs: int) -> None:
    for position in range(batches):
        chain = cyclic(epochs, batches, position, Linear(contraction), 1.0, 1.0)
        exact = forms.cyclic_factor(contraction, batches, epochs, position)
        value = evaluate(linear_plan(chain), chain).sum_of_squares
        assert exact * (1 - 1e-15) <= value <= exact * (1 + 1e-12)


def test_cyclic_golden_mu() -> None:
    for contraction, epochs, mu in ((0.9999, 50, 0.992491), (0.9998, 200, 1.506124)):
        solution = solve(cyclic(epochs, 40, 39, Linear(contraction), 2 / 3, 1.0))
        assert math.sqrt(solution.sum_of_squares) == pytest.approx(mu, abs=5e-7)
        assert solution.plan.counts.size < 8
    factors = [solve(cyclic(50, 40, j, Linear(0.9999), 1.0, 1.0)).sum_of_squares for j in range(40)]
    assert max(factors) == pytest.approx(2.2163, abs=5e-5)
    assert np.mean(factors) == pytest.approx(1.3232, abs=5e-5)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("start", [0.0, 0.8])
def test_unbounded_optimum_agrees_with_two_other_methods(seed: int, start: float) -> None:
    c, s, nu = instance(seed)
    solution = solve(linear(c, s, nu, initial_distance=start))
    paper = minorant(c, s, nu, start)
    assert paper * (1 - 1e-15) <= solution.sum_of_squares <= paper * (1 + 1e-11)
    assert solution.sum_of_squares == pytest.approx(convex_optimum(c, s, nu, start), rel=1e-9)
    assert replayed(solution.plan, c, s, nu, math.inf) == pytest.approx(paper, rel=1e-10)


@pytest.mark.parametrize("uniform", [False, True], ids=["schedule", "equal"])
@pytest.mark.parametrize("seed", range(40))
def test_bounded_optimum_is_the_best_over_all_starts(seed: int, uniform: bool) -> None:
    c, s, nu = instance(seed, uniform)
    diameter = (0.3, 0.8, 1.5, 4.0)[seed % 4]
    start = (0.0, 0.25)[seed // 4 % 2]
    chain = linear(c, s, nu, diameter=diameter, initial_distance=start)
    distances = forward(c, s, diameter, start)
    brute = min(minorant(c[t:], s[t:], nu[t:], distances[t]) for t in range(c.size))
    solution = solve(chain)
    assert brute * (1 - 1e-15) <= solution.sum_of_squares <= brute * (1 + 1e-9)
    assert replayed(solution.plan, c, s, nu, diameter) == pytest.approx(brute, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_one_pass_prices_every_start(seed: int) -> None:
    c, s, nu = instance(seed)
    chain = linear(c, s, nu, diameter=1.0)
    starts = np.random.default_rng(seed).permutation(c.size)
    distances = np.linspace(0.0, 2.0, c.size)
    costs = start_costs(chain, starts, distances)
    for start, distance, cost in zip(starts, distances, costs, strict=True):
        paper = minorant(c[start:], s[start:], nu[start:], float(distance))
        assert cost == pytest.approx(paper, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("contraction", [0.98, 1.0, 1.01])
def test_a_long_bounded_schedule_finds_its_start(contraction: float) -> None:
    """More starts than are all tried: compare with the closed form of the equal chain."""
    steps, nudge = 9000, np.ones(9000)
    nudge[0] = 0.5  # not uniform any more, so that the selection of starts is exercised
    chain = linear(contraction, 0.01 * nudge, 1.0, diameter=0.3)
    equal = Chain.homogeneous(steps, Linear(contraction), 0.01, 1.0, diameter=0.3)
    assert chain.uniform_linear_step() is None
    value = solve(chain).sum_of_squares
    assert value == pytest.approx(solve(equal).sum_of_squares, rel=1e-11)


def test_bounded_plateau_does_not_grow() -> None:
    values = [
        solve(Chain.homogeneous(steps, Linear(1.0), 0.01, 1.0, diameter=1.0)).sum_of_squares
        for steps in (50, 100, 200, 1000, 10**5)
    ]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(plateau(1.0, 0.01, 1.0, 1.0), rel=1e-12)


def test_later_starts_may_only_cost_more_without_a_domain() -> None:
    c, s, nu = instance(3)
    chain = linear(c, s, nu)
    best = evaluate(linear_plan(chain, 0), chain).sum_of_squares
    for start in range(1, c.size):
        assert evaluate(linear_plan(chain, start), chain).sum_of_squares >= best * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_optimal_shifts_cannot_be_cut_by_a_tenth(seed: int) -> None:
    c, s, nu = instance(seed)
    chain = linear(c, s, nu)
    plan = solve(chain).plan
    less = ShiftPlan.from_shifts(plan.start_step, plan.start_distance, 0.9 * plan.shifts())
    distance, total = evaluate(less, chain)
    assert distance > 0
    assert total >= solve(chain).sum_of_squares * (1 - 1e-12)


@pytest.mark.parametrize("steps", [10, 1000, 100_000])
def test_long_expansion_stays_stable(steps: int) -> None:
    """Open-loop shifts would let a rounding error grow by 1.08^steps."""
    chain = Chain.homogeneous(steps, Linear(1.08), 0.0, 0.1, diameter=1.0, initial_distance=1.0)
    growth = 1.08**-2.0
    exact = (1.08**2 - 1) / 0.01 / (1 - growth**steps)
    for plan in (homogeneous_plan(chain), linear_plan(chain)):
        assert evaluate(plan, chain).sum_of_squares == pytest.approx(exact, rel=1e-10)


def test_absorption_finds_the_narrow_place() -> None:
    """Contract, then expand: nearly everything is absorbed where the maps have contracted most."""
    c = np.r_[np.full(200, 0.5), np.full(200, 1.6)]
    s = np.zeros(400)
    s[0] = 1.0
    chain = linear(c, s, 1.0)
    solution = solve(chain)
    paper = minorant(c, s, np.ones(400), 0.0)
    assert solution.sum_of_squares == pytest.approx(paper, rel=1e-10)
    assert 195 <= int(np.argmax(solution.plan.shifts())) <= 205


def test_a_forgetful_step_hides_the_past() -> None:
    chain = linear([1.0, 0.9, 0.0, 0.9, 1.0], [1.0, 1.0, 0.5, 0.0, 0.2], 1.0)
    later = linear([1.0, 0.9, 1.0], [0.5, 0.0, 0.2], 1.0)
    assert solve(chain).sum_of_squares == pytest.approx(solve(later).sum_of_squares, rel=1e-12)


@pytest.mark.parametrize("contraction", [1e-20, 0.5, 1.0, 3.0, 1e30])
@pytest.mark.parametrize("diameter", [1e-3, 1e3, math.inf])
@pytest.mark.parametrize("start", [0.0, 1e-4])
def test_extreme_equal_chains_agree_with_the_minorant(
    contraction: float, diameter: float, start: float
) -> None:
    chain = Chain.homogeneous(
        40, Linear(contraction), 0.01, 2.0, diameter=diameter, initial_distance=start
    )
    general = evaluate(linear_plan(chain), chain).sum_of_squares
    assert solve(chain).sum_of_squares == pytest.approx(general, rel=1e-10)


def test_equal_runs_cost_nothing() -> None:
    solution = solve(Chain.homogeneous(10, Linear(0.9), 0.0, 1.0))
    assert solution.sum_of_squares == 0
    assert not solution.plan.shifts().any()
