"""Optimal plans for linear moduli that vary from step to step: the greatest convex minorant.

Measure every distance by what would be left of it at the end of the run. In these units, with b
for the shift and w for the noise variance of a step, the program is to minimise sum b^2 / w while
the absorbed total stays below the arrived total S and meets it at the end: the absorbed total, as
a curve over the summed variance W, is the greatest convex minorant of the points (W, S) drawn from
the first vertex (0, 0), and the cost is sum dS^2 / dW over its segments.

The pass runs backwards and keeps the segments as blocks of steps, joined while they are not
convex. A block is stored relative to its *peak*, the step from whose end to the block's end the
product of contractions is largest: there the block absorbs most, and so no length of run can make
these numbers under- or overflow, or lose digits:

    g       its cost is g^2 (the same in every unit)
    core    log of sqrt(dW) in units of the peak
    head    log of the product of contractions from the block's beginning through the peak
    tail    the same from after the peak to the block's end

Since the blocks of the last steps do not depend on where the plan starts, one pass answers for
many starts at once.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.ground.compiled import compiled
from dplateau.ground.types import FloatArray, IntArray
from dplateau.shifts.chain import Chain, Columns
from dplateau.shifts.evaluation import sealed
from dplateau.shifts.forward import forward_distance
from dplateau.shifts.geometric import geometric_blocks
from dplateau.shifts.kernels import capped_steps
from dplateau.shifts.plan import ShiftPlan

# Segments whose slopes agree this closely are joined: it changes the cost by the square.
SAME_SLOPE = 1 - 1e-12
# Up to this many possible starts are all tried; beyond, a geometric selection is refined.
TRY_ALL = 2048
GRID_RATIO = 1.2
FAN = 48


def linear_plan(chain: Chain, start_step: int | None = None) -> ShiftPlan:
    """Return an optimal plan of a chain of linear steps, or the best one from a given start.

    Only starts where the cap D is active, and step 0, need be compared: between two of them the
    cap does nothing, and a plan from step t is then the plan from the earlier one that absorbs
    nothing before t. Without a domain, step 0 is therefore optimal.
    """
    if start_step is None:
        start_step = _best_start(chain)
    distance = forward_distance(chain, start_step)
    g, core, peak, left = hull_segments(chain.columns, chain.repeats, start_step, distance)
    rows, places = chain.locate_all(peak)
    counts, firsts, ratios, marks = geometric_blocks(
        chain.columns, chain.repeats, start_step, g, core, left, peak, rows, places
    )
    plan = ShiftPlan(
        start_step=start_step,
        start_distance=distance,
        counts=counts,
        first_shifts=firsts,
        ratios=ratios,
    )
    return sealed(plan, chain, marks)


def start_costs(chain: Chain, starts: IntArray, distances: FloatArray) -> FloatArray:
    """Return the optimal cost from each start at a distance (not rounded up, cap disregarded)."""
    order = np.argsort(-starts, kind="stable")
    costs = np.empty(starts.size)
    costs[order] = hull_costs(chain.columns, chain.repeats, starts[order], distances[order])
    return costs


def _best_start(chain: Chain) -> int:
    """Return the best of the starts where the cap is active, found by refining a selection."""
    if math.isinf(chain.diameter):
        return 0
    starts = capped_steps(chain.columns, chain.repeats, chain.initial_distance, chain.diameter)
    starts = starts[::-1].copy()
    chosen = _selection(starts.size)
    while True:
        distances = np.where(starts[chosen] > 0, chain.diameter, chain.initial_distance)
        best = int(np.argmin(start_costs(chain, starts[chosen], distances)))
        low = int(chosen[max(best - 1, 0)])
        high = int(chosen[min(best + 1, chosen.size - 1)])
        if high - low <= 2:
            return int(starts[chosen[best]])
        few = high - low < TRY_ALL
        finer = np.arange(low, high + 1) if few else np.linspace(low, high, FAN)
        chosen = np.unique(np.append(finer.astype(np.int64), chosen[best]))


def _selection(size: int) -> IntArray:
    """Return all indices below ``size`` if they are few, otherwise geometrically spaced ones."""
    if size <= TRY_ALL:
        return np.arange(size)
    points = np.geomspace(1, size, 1 + math.ceil(math.log(size) / math.log(GRID_RATIO)))
    return np.unique(np.append(points.astype(np.int64) - 1, size - 1))


@compiled
def _convex(g1: float, core1: float, tail1: float, g2: float, core2: float, head2: float) -> bool:
    """Tell whether the slope rises from one block to its right neighbour."""
    if g2 == 0.0:
        return False
    return g1 < g2 * math.exp(min(core1 + tail1 + head2 - core2, 700.0)) * SAME_SLOPE


@compiled
def _joined(
    g1: float,
    core1: float,
    head1: float,
    tail1: float,
    g2: float,
    core2: float,
    head2: float,
    tail2: float,
) -> tuple[float, float, float, float]:
    """Return the block that replaces two neighbours, the first one to the left."""
    between = tail1 + head2  # log product from peak to peak: the left one stays if it is >= 0
    if between >= 0.0:
        ratio = math.exp(core2 - between - core1)
        root = math.sqrt(1.0 + ratio * ratio)
        return (g1 + g2 * ratio) / root, core1 + math.log(root), head1, between + tail2
    ratio = math.exp(core1 + between - core2)
    root = math.sqrt(1.0 + ratio * ratio)
    return (g1 * ratio + g2) / root, core2 + math.log(root), head1 + between, tail2


@compiled
def _settle(
    top: int,
    g: FloatArray,
    core: FloatArray,
    head: FloatArray,
    tail: FloatArray,
    peak: IntArray,
) -> int:
    """Join the leftmost block to its right neighbours until convex; return its new index."""
    while top > 0:
        k = top - 1
        if _convex(g[top], core[top], tail[top], g[k], core[k], head[k]):
            break
        if tail[top] + head[k] >= 0.0:
            peak[k] = peak[top]
        g[k], core[k], head[k], tail[k] = _joined(
            g[top], core[top], head[top], tail[top], g[k], core[k], head[k], tail[k]
        )
        top = k
    return top


@compiled
def _push(
    top: int,
    step: int,
    s: float,
    c: float,
    nu: float,
    g: FloatArray,
    core: FloatArray,
    head: FloatArray,
    tail: FloatArray,
    peak: IntArray,
) -> int:
    """Put one more step to the left of the blocks; return the new index of the leftmost one."""
    top += 1
    g[top] = s / nu
    core[top] = math.log(nu)
    head[top] = math.log(c) if c > 0.0 else -math.inf
    tail[top] = 0.0
    peak[top] = step
    return _settle(top, g, core, head, tail, peak)


@compiled
def hull_costs(
    columns: Columns, repeats: int, starts: IntArray, distances: FloatArray
) -> FloatArray:
    """Return the minorant's cost from each start; the starts must descend."""
    rows = columns.counts.size
    t = repeats * columns.counts.sum()
    size = t - starts[-1]
    g = np.empty(size)
    core = np.empty(size)
    head = np.empty(size)
    tail = np.empty(size)
    peak = np.empty(size, dtype=np.int64)
    below = np.empty(size + 1)  # cost of the blocks to the right
    below[0] = 0.0
    costs = np.empty(starts.size)
    top = -1
    asked = 0
    for index in range(repeats * rows - 1, -1, -1):
        row = index % rows
        s = columns.sensitivities[row]
        c = columns.first[row]
        nu = columns.noise_stds[row]
        for _ in range(columns.counts[row]):
            if asked == starts.size:
                return costs
            t -= 1
            top = _push(top, t, s, c, nu, g, core, head, tail, peak)
            below[top + 1] = below[top] + g[top] * g[top]
            while asked < starts.size and starts[asked] == t:
                # The start is a jump at zero variance: it joins the first block, then others.
                k = top
                g1 = g[k] + distances[asked] * math.exp(head[k] - core[k])
                core1 = core[k]
                head1 = head[k]
                tail1 = tail[k]
                while k > 0 and not _convex(g1, core1, tail1, g[k - 1], core[k - 1], head[k - 1]):
                    k -= 1
                    g1, core1, head1, tail1 = _joined(
                        g1, core1, head1, tail1, g[k], core[k], head[k], tail[k]
                    )
                costs[asked] = g1 * g1 + below[k]
                asked += 1
    return costs


@compiled
def hull_segments(
    columns: Columns, repeats: int, start: int, distance: float
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Return g, core, peak and first step of the minorant's segments, the last one first."""
    rows = columns.counts.size
    t = repeats * columns.counts.sum()
    size = t - start
    g = np.empty(size)
    core = np.empty(size)
    head = np.empty(size)
    tail = np.empty(size)
    peak = np.empty(size, dtype=np.int64)
    left = np.empty(size, dtype=np.int64)
    top = -1
    for index in range(repeats * rows - 1, -1, -1):
        row = index % rows
        s = columns.sensitivities[row]
        c = columns.first[row]
        nu = columns.noise_stds[row]
        for _ in range(min(columns.counts[row], t - start)):
            t -= 1
            top = _push(top, t, s, c, nu, g, core, head, tail, peak)
            left[top] = t
        if t == start:
            break
    g[top] += distance * math.exp(head[top] - core[top])
    top = _settle(top, g, core, head, tail, peak)
    left[top] = start
    size = top + 1
    return g[:size].copy(), core[:size].copy(), peak[:size].copy(), left[:size].copy()
