"""One entry to all solvers: the best plan found, sealed and re-evaluated.

For moduli without a solver of their own: dynamic programming on a grid of distances. The cost to go
V_t(u) = min over u' of (phi_t(u) + s_t - u')^2 / nu_t^2 + V_{t+1}(u') is tabulated at nodes and
read between them by straight lines; a path is then followed with its exact distances, so it is
feasible whatever the grid missed. The best u' grows with phi_t(u) + s_t, because the square has
decreasing differences; the search therefore halves the nodes and brackets each by its neighbors.
Zero is a node of its own, not joined to the others: there phi may jump.

At the end, amplification by iteration as Altschuler and Talwar state it. Their propositions leave
the shifts open; here each returns the optimal ones. A bound reads D_alpha(X_T || X'_T) <= alpha *
rdp_coefficient for every alpha > 1, and the same plan proves the stronger statement that the pair
is mu-GDP with mu^2 = 2 * rdp_coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray, IntArray
from dplateau.shifts.chain import DESCENT_ASCENT, LINEAR, SQUARE_ROOT, Chain, modulus_of
from dplateau.shifts.closed_forms import homogeneous_plan
from dplateau.shifts.kernels import cost_table, grown, walk_table
from dplateau.shifts.linear import linear_plan
from dplateau.shifts.plan import ShiftBlock, ShiftPlan, evaluate, forward_distances, sealed
from dplateau.shifts.square_root import square_root_columns, square_root_plan

# Nodes other than zero: geometric, 2.5 percent apart, over seven decades below the largest.
NODES = 640
DECADES = 7
# Only so many last steps may absorb at leisure. Before them nothing is absorbed, or (if that is
# cheaper) every sensitivity at once; both are feasible, so the limit costs tightness only.
LAST_STEPS = 4096
# Solvers without a closed form keep a number for every step.
MOST_STEPS = 10**7
# Distances beyond this multiple of what one step or the start brings are not worth a node.
WIDEST = 1e6


def grid_plan(chain: Chain, *, last_steps: int = LAST_STEPS, nodes: int = NODES) -> ShiftPlan:
    """Return a near-optimal plan of any chain, of its last few thousand steps if it is longer."""
    origin = max(0, chain.steps - last_steps)
    distances = forward_distances(chain)[origin:-1]
    grid = _grid(chain, float(distances.max()), nodes)
    rows = chain.rows_from(origin)
    table = _table(chain, rows, grid)
    costs = _costs_at(distances, grid, table)
    start = int(np.argmin(costs))
    plan = composition_plan(chain)
    if origin and _prefix_cost(plan, chain, origin) + table[-1, 0] < costs[start]:
        tail = _follow(chain, rows, 0.0, grid, table)
        early = plan.shifts()[:origin]
        return ShiftPlan.from_shifts(0, chain.initial_distance, np.append(early, tail))
    shifts = _follow(chain, rows[start:], float(distances[start]), grid, table)
    return ShiftPlan.from_shifts(origin + start, float(distances[start]), shifts)


def composition_plan(chain: Chain) -> ShiftPlan:
    """Return the plan that absorbs every sensitivity at once, so that the runs never part.

    It is feasible for every modulus, since phi(0) = 0: ordinary composition of the steps.
    """
    columns = chain.columns
    counts = np.tile(columns.counts, chain.repeats)
    firsts = np.tile(columns.sensitivities, chain.repeats)
    if chain.initial_distance > 0:
        head = grown(
            int(columns.kinds[0]),
            float(columns.first[0]),
            float(columns.second[0]),
            chain.initial_distance,
            float(columns.sensitivities[0]),
        )
        counts = np.insert(counts, 0, 1)
        firsts = np.insert(firsts, 0, head)
        counts[1] -= 1
    keep = counts > 0
    return ShiftPlan(
        start_step=0,
        start_distance=chain.initial_distance,
        counts=counts[keep],
        first_shifts=firsts[keep],
        ratios=np.ones(int(keep.sum())),
    )


def _prefix_cost(plan: ShiftPlan, chain: Chain, stop: int) -> float:
    stds = chain.columns.noise_stds[chain.rows_from(0)[:stop]]
    return float(np.sum((plan.shifts()[:stop] / stds) ** 2))


def _grid(chain: Chain, reach: float, nodes: int) -> FloatArray:
    scale = max(float(chain.columns.sensitivities.max()), chain.initial_distance)
    top = min(reach, WIDEST * scale) if reach > 0 else 1.0
    return np.append(0.0, np.geomspace(top * 10.0**-DECADES, top, nodes))


def _table(chain: Chain, rows: IntArray, grid: FloatArray) -> FloatArray:
    """Return the costs to go; row k holds those k + 1 steps before the end."""
    columns = chain.columns
    used, which = np.unique(rows, return_inverse=True)
    targets = np.array(
        [
            modulus_of(int(columns.kinds[row]), columns.first[row], columns.second[row])(grid)
            + columns.sensitivities[row]
            for row in used
        ]
    )
    variances = columns.noise_stds[used] ** 2
    return cost_table(which.astype(np.int64), targets, variances, grid, chain.diameter)


def _costs_at(distances: FloatArray, grid: FloatArray, table: FloatArray) -> FloatArray:
    """Return the cost to go from the forward distance before each step, infinite off the grid."""
    costs = np.empty(distances.size)
    for i, u in enumerate(distances):
        row = table[distances.size - 1 - i]
        costs[i] = np.interp(u, grid[1:], row[1:], right=math.inf) if u > 0 else row[0]
    return costs


def _follow(
    chain: Chain, rows: IntArray, start: float, grid: FloatArray, table: FloatArray
) -> FloatArray:
    columns = chain.columns
    return walk_table(
        columns.kinds[rows],
        columns.first[rows],
        columns.second[rows],
        columns.sensitivities[rows],
        columns.noise_stds[rows],
        start,
        chain.diameter,
        grid,
        table,
    )


_CLOSED = {"inert", "homogeneous"}
Solvers = dict[str, Callable[[Chain], ShiftPlan]]


@dataclass(frozen=True, slots=True)
class ShiftSolution:
    """A feasible plan and the sum of squares it proves: mu^2, or twice the Renyi slope.

    Attributes:
        plan: ends at distance zero on the chain it was made for.
        sum_of_squares: its sum of a^2 / nu^2, re-evaluated and rounded up.
        solver: name of the solver that found it.
    """

    plan: ShiftPlan
    sum_of_squares: float
    solver: str


def solve(chain: Chain) -> ShiftSolution:
    """Return the best plan that the applicable solvers find.

    Exact (up to rounding, and for very long chains up to the choice of the start) when all moduli
    are linear, or when they are square roots and there is no sensitivity; near-optimal otherwise.
    Whatever the solver, the value is that of the plan returned: the rounding-up of ``evaluate`` is
    the only margin, about 2e-13 for short runs and, where c is near 1, about 1e-15 per step.

    >>> from dplateau.shifts import Chain, Linear, solve
    >>> solution = solve(Chain.homogeneous(10**6, Linear(0.99), sensitivity=0.1, noise_std=1.0))
    >>> round(solution.sum_of_squares**0.5, 6)
    1.410674
    """
    solvers = _solvers(chain)
    if chain.steps > MOST_STEPS and not _CLOSED & set(solvers):
        raise NotApplicable(
            f"goes through steps that differ one by one, up to {MOST_STEPS}; yours: {chain.steps}"
        )
    solutions = [_finished(chain, name, make(chain)) for name, make in solvers.items()]
    return min(solutions, key=lambda solution: solution.sum_of_squares)


def _solvers(chain: Chain) -> Solvers:
    columns = chain.columns
    saddles = bool(np.any(columns.kinds == DESCENT_ASCENT))
    jumps = bool(np.any((columns.kinds == SQUARE_ROOT) & (columns.second > 0)))
    still = not np.any(columns.sensitivities)
    if chain.is_inert:
        return {"inert": _nothing}
    if chain.uniform_linear_step() is not None:
        return {"homogeneous": homogeneous_plan}
    if chain.is_linear:
        return {"linear": linear_plan}
    if not jumps and not saddles:
        return {"linear": _linear_plan}
    if still and not saddles:
        return {"square_root": square_root_plan}
    # A plan for larger moduli stays feasible for the smaller ones of the chain.
    chosen: Solvers = {"grid": grid_plan, "composition": composition_plan}
    if still:
        chosen["square_root"] = square_root_plan
    if not jumps:
        chosen["linear"] = _linear_plan
    return chosen


def _finished(chain: Chain, solver: str, plan: ShiftPlan) -> ShiftSolution:
    plan = sealed(plan, chain)
    return ShiftSolution(plan, evaluate(plan, chain).sum_of_squares, solver)


def _nothing(chain: Chain) -> ShiftPlan:
    return ShiftPlan.of(0, 0.0, [ShiftBlock(chain.steps, 0.0)])


def _linear_plan(chain: Chain) -> ShiftPlan:
    """Solve with the Lipschitz constants of moduli that have one (square roots with h = 0 do)."""
    columns = chain.columns
    squared, _ = square_root_columns(chain)
    saddle = columns.kinds == DESCENT_ASCENT
    squared[saddle] = 1 + columns.second[saddle] ** 2
    rates = np.where(columns.kinds == LINEAR, columns.first, np.sqrt(squared))
    majorant = chain.with_linear_moduli(rates)
    return homogeneous_plan(majorant) if majorant.uniform_linear_step() else linear_plan(majorant)
