"""Compiled walks along a chain: distances without shifts, and distances under a plan.

Both walks round every operation up, so that what they return is an upper bound on the exact
value and not an approximation to it. A row index counts rows over all periods.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.ground.compiled import compiled
from dplateau.ground.types import BoolArray, FloatArray, IntArray
from dplateau.shifts.chain import Columns

# One growth c u + s makes at most three roundings of 2^-53 each, this factor's own included.
UP_LINEAR = 1 + 2.0**-51
# A square root or hypot of two or three products makes at most eight.
UP_CURVED = 1 + 2.0**-49
# A difference makes one, and the factor's own product another.
UP_DIFFERENCE = 1 + 2.0**-51
# The closed form of many equal linear steps with c <= 1: six roundings, none of them amplified
# because x e^x / (e^x - 1) <= 1 for x <= 0; for c > 1 that factor may reach log(1.8e308) = 710.
UP_CLOSED = 1 + 2e-15
UP_CLOSED_GROWING = 1 + 1e-12
# Shifts inside a block are recomputed by a power at every RESTART-th step and multiplied up in
# between: RESTART + 3 roundings at most.
RESTART = 256
SLACK = 4e-14
TINIEST = 5e-324


@compiled
def grown(kind: int, first: float, second: float, u: float, s: float) -> float:
    """Return phi(u) + s, rounded up (and exactly s at u = 0)."""
    if u == 0.0:
        return s
    if kind == 0:
        value = (first * u + s) * UP_LINEAR
    elif kind == 1 and second == 0.0:
        value = (math.sqrt(first) * u + s) * UP_CURVED
    elif kind == 1:
        value = (math.sqrt(first * u * u + second) + s) * UP_CURVED
    else:
        # Dividing by u keeps the square in range for every u.
        side = min(first, second * u) / u
        value = (u * math.sqrt(1.0 + side * side) + s) * UP_CURVED
    # An underflow must not turn a positive distance into zero, where phi may jump.
    return TINIEST if value == 0.0 and first > 0.0 else value


@compiled
def grown_often(c: float, s: float, u: float, count: int) -> float:
    """Return c^n u + s (1 + c + ... + c^(n-1)), rounded up."""
    if c == 1.0:
        return (u + count * s) * UP_CLOSED
    exponent = count * math.log(c)
    power = c ** float(count)
    total = s * (math.expm1(exponent) / (c - 1.0)) if s > 0.0 else 0.0
    start = max(power * u, TINIEST) if u > 0.0 else 0.0
    return (start + total) * (UP_CLOSED if c < 1.0 else UP_CLOSED_GROWING)


@compiled
def walk_free(
    columns: Columns, steps: int, start: float, diameter: float, out: FloatArray
) -> float:
    """Return the distance after ``steps`` steps without shifts; record it in ``out`` if not empty.

    A stretch of equal linear steps is taken in one go when nothing is recorded: the cap commutes
    with it, because for u <= D the capped iterate of an increasing affine map is min(D, f^n(u)).
    """
    u = start
    rows = columns.counts.size
    record = out.size > 0
    if record:
        out[0] = u
    done = 0
    row = 0
    while done < steps:
        kind = columns.kinds[row]
        first = columns.first[row]
        second = columns.second[row]
        s = columns.sensitivities[row]
        count = min(columns.counts[row], steps - done)
        if kind == 0 and first > 0.0 and count > 8 and not record:
            u = min(diameter, grown_often(first, s, u, count))
        else:
            for i in range(count):
                u = min(diameter, grown(kind, first, second, u, s))
                if record:
                    out[done + i + 1] = u
        done += count
        row = row + 1 if row + 1 < rows else 0
    return u


@compiled
def walk_plan(
    columns: Columns,
    row: int,
    place: int,
    start: float,
    diameter: float,
    counts: IntArray,
    firsts: FloatArray,
    ratios: FloatArray,
    marks: BoolArray,
    raises: FloatArray,
) -> tuple[float, float]:
    """Return the distance left at the end of the plan and the sum of squares with it absorbed.

    What is left is meant before the projection: the noise acts there, so the domain does not cap
    what the last shift must absorb.

    Where ``marks`` (if not empty) names a block, the walk goes on from distance zero after it and
    writes into ``raises`` by how much the last shift of the block falls short of that.
    """
    rows = columns.counts.size
    row = row % rows
    left = columns.counts[row] - place
    u = start
    total = 0.0
    lost = 0.0
    beyond = start  # the distance before the projection
    last_shift = 0.0
    last_std = 1.0
    for block in range(counts.size):
        ratio = ratios[block]
        exact = ratio == 1.0 or counts[block] == 1
        done = 0
        while done < counts[block]:
            if left == 0:
                row = row + 1 if row + 1 < rows else 0
                left = columns.counts[row]
            count = min(counts[block] - done, left, RESTART)
            kind = columns.kinds[row]
            first = columns.first[row]
            second = columns.second[row]
            s = columns.sensitivities[row]
            nu = columns.noise_stds[row]
            shift = firsts[block] * ratio ** float(done)
            sure = 1.0 if exact else 1.0 - SLACK
            for _ in range(count):
                beyond = grown(kind, first, second, u, s) - shift * sure
                beyond = beyond * UP_DIFFERENCE if beyond > 0.0 else 0.0
                u = min(diameter, beyond)
                # Compensated summation: the error stays at two roundings of the sum.
                term = (shift / nu) * (shift / nu) - lost
                raised = total + term
                lost = (raised - total) - term
                total = raised
                last_shift = shift
                shift *= ratio
            last_std = nu
            left -= count
            done += count
        if marks.size > 0 and marks[block]:
            raises[block] = beyond
            beyond = 0.0
            u = 0.0
    if beyond > 0.0:
        total += beyond / last_std * ((2.0 * last_shift + beyond) / last_std)
    return beyond, total


@compiled
def capped_steps(columns: Columns, repeats: int, start: float, diameter: float) -> IntArray:
    """Return the steps t at which the distance without shifts equals the diameter, and step 0."""
    rows = columns.counts.size
    steps = repeats * columns.counts.sum()
    out = np.empty(steps + 1, dtype=np.int64)
    out[0] = 0
    count = 1
    u = start
    t = 0
    for index in range(repeats * rows):
        row = index % rows
        for _ in range(columns.counts[row]):
            u = min(
                diameter,
                grown(
                    columns.kinds[row],
                    columns.first[row],
                    columns.second[row],
                    u,
                    columns.sensitivities[row],
                ),
            )
            t += 1
            if u == diameter and t < steps:
                out[count] = t
                count += 1
    return out[:count].copy()


@compiled
def best_target(
    target: float, variance: float, nodes: FloatArray, costs: FloatArray, low: int, high: int
) -> tuple[float, float, int]:
    """Return (cost, u', interval) minimizing (target - u')^2 / nu^2 + V(u') over u' <= target.

    V is linear between nodes 1, 2, ...; node 0 is the point zero. Intervals low .. high are tried.
    """
    best = math.inf
    where = 0.0
    interval = low
    for j in range(low, high + 1):
        if nodes[j] > target:
            break
        if j == 0:
            u = 0.0
            value = costs[0]
        else:
            top = min(nodes[j + 1], target)
            slope = (costs[j + 1] - costs[j]) / (nodes[j + 1] - nodes[j])
            u = min(max(target - 0.5 * slope * variance, nodes[j]), top)
            value = costs[j] + slope * (u - nodes[j])
        value += (target - u) * (target - u) / variance
        if value < best:
            best = value
            where = u
            interval = j
    return best, where, interval


@compiled
def cost_table(
    which: IntArray,
    targets: FloatArray,
    variances: FloatArray,
    nodes: FloatArray,
    diameter: float,
) -> FloatArray:
    """Return the costs to go at the nodes; row k holds those k + 1 steps before the end.

    Step i has the variance ``variances[which[i]]`` and takes nodes to ``targets[which[i]]``.
    """
    steps = which.size
    size = nodes.size
    table = np.empty((steps, size))
    choice = np.empty(size, dtype=np.int64)
    table[0] = targets[which[-1]] ** 2 / variances[which[-1]]
    for k in range(1, steps):
        kind = which[steps - 1 - k]
        costs = table[k - 1]
        stride = 1
        while 2 * stride <= size:
            stride *= 2
        # The best u' is monotone in u: each node is bracketed by the coarser nodes around it.
        while stride > 0:
            for i in range(stride - 1, size, 2 * stride):
                target = targets[kind, i]
                low = choice[i - stride] if i >= stride else 0
                high = choice[i + stride] if i + stride < size else size - 2
                cost, _, choice[i] = best_target(target, variances[kind], nodes, costs, low, high)
                if target >= diameter and nodes[-1] == diameter and costs[-1] < cost:
                    cost = costs[-1]
                    choice[i] = size - 2
                table[k, i] = cost
            stride //= 2
    return table


@compiled
def walk_table(
    kinds: IntArray,
    first: FloatArray,
    second: FloatArray,
    sensitivities: FloatArray,
    noise_stds: FloatArray,
    start: float,
    diameter: float,
    nodes: FloatArray,
    table: FloatArray,
) -> FloatArray:
    """Return the shifts of the path that follows a table of costs to go, one step per entry.

    The distances are those of ``walk_plan`` to the last bit, so that a path which means to reach
    zero does. Row k of the table holds the costs k + 1 steps before the end.
    """
    steps = kinds.size
    shifts = np.empty(steps)
    u = start
    for i in range(steps):
        target = grown(kinds[i], first[i], second[i], u, sensitivities[i])
        goal = 0.0
        if i + 1 < steps:
            costs = table[steps - 2 - i]
            cost, goal, _ = best_target(target, noise_stds[i] ** 2, nodes, costs, 0, nodes.size - 2)
            if target >= diameter and nodes[-1] == diameter and costs[-1] < cost:
                goal = target  # the domain holds the distance at D for free
        shifts[i] = target - goal
        u = target - shifts[i]
        u = min(diameter, u * UP_DIFFERENCE) if u > 0.0 else 0.0
    return shifts
