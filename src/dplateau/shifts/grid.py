"""Plans for any moduli by backward dynamic programming on a grid of distances.

The cost to go V_t(u) = min over u' of (phi_t(u) + s_t - u')^2 / nu_t^2 + V_{t+1}(u') is tabulated
at nodes and read between them by straight lines; a path is then followed with its exact
distances, so it is feasible whatever the grid missed and is re-evaluated like any other plan.

The best u' grows with phi_t(u) + s_t, because the square has decreasing differences; the search
therefore halves the nodes and brackets each by its neighbours. Zero is a node of its own, not
joined to the others: there phi may jump.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.ground.types import FloatArray, IntArray
from dplateau.shifts.chain import Chain
from dplateau.shifts.forward import forward_distances
from dplateau.shifts.kernels import cost_table, grown, walk_table
from dplateau.shifts.moduli import modulus_of
from dplateau.shifts.plan import ShiftPlan

# Nodes other than zero: geometric, 2.5 percent apart, over seven decades below the largest.
NODES = 640
DECADES = 7
# Only so many last steps may absorb at leisure. Before them nothing is absorbed, or (if that is
# cheaper) every sensitivity at once; both are feasible, so the limit costs tightness only.
LAST_STEPS = 4096
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
