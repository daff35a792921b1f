"""Optimal plans for linear moduli that vary from step to step: the greatest convex minorant.

Measure every distance by what would be left of it at the end of the run. In these units, with b
for the shift and w for the noise variance of a step, the program is to minimize sum b^2 / w while
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

Since the blocks of the last steps do not depend on where the plan starts, one pass answers for many
starts at once. Inside a segment a_(t-1) = a_t c_t nu_(t-1)^2 / nu_t^2, and at its peak a is g nu^2
/ sqrt(dW): a stretch of equal contractions and noises is written out as one geometric block of
shifts, however long.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.ground.compiled import compiled
from dplateau.ground.types import BoolArray, FloatArray, IntArray
from dplateau.shifts.chain import Chain, Columns
from dplateau.shifts.kernels import capped_steps
from dplateau.shifts.plan import ShiftPlan, forward_distance, sealed

# Shifts below e^-600 are dropped: the next ones absorb what they would have.
LOG_TINY = -600.0
# Where the maps have expanded by e^16 since the peak, what is left to absorb is e^-32 of what was
# absorbed there, while a rounding error of then would have grown to 1e-9: the segment ends.
LOG_GROWTH = 16.0


@compiled
def geometric_blocks(
    columns: Columns,
    repeats: int,
    start: int,
    g: FloatArray,
    core: FloatArray,
    left: IntArray,
    peak: IntArray,
    peak_row: IntArray,
    peak_place: IntArray,
) -> tuple[IntArray, FloatArray, FloatArray, BoolArray]:
    """Return counts, first shifts, ratios, and marks of the blocks after which u is to be zero.

    The segments come last one first, each with its first step and its peak (as a step, and as a
    row with the place in it); the blocks are gathered from the last step back.
    """
    rows = columns.counts.size
    t = repeats * columns.counts.sum()
    counts = np.empty(t - start, dtype=np.int64)
    firsts = np.empty(t - start)
    ratios = np.empty(t - start)
    marks = np.zeros(t - start, dtype=np.bool_)
    made = 0
    segment = -1
    bound = t  # first step of the current segment
    final = t  # its last step that absorbs
    log_shift = -math.inf
    right_c = 1.0
    right_nu = 1.0
    count = 0  # steps of the block being gathered
    log_last = -math.inf  # its last shift
    log_c = 0.0  # minus the log of its ratio, once two steps are known
    marked = False
    for index in range(repeats * rows - 1, -1, -1):
        row = index % rows
        nu = columns.noise_stds[row]
        for _ in range(min(columns.counts[row], t - start)):
            step_log_c = math.log(right_c) if right_c > 0.0 else -math.inf
            fresh = t == bound
            if fresh:
                segment += 1
                bound = left[segment]
                final, log_growth = _last_absorbing(
                    columns, peak[segment], peak_row[segment], peak_place[segment], t
                )
                log_shift = -math.inf
            t -= 1
            begins = t == final
            if begins:
                log_g = math.log(g[segment]) if g[segment] > 0.0 else -math.inf
                log_shift = log_g - core[segment] - log_growth + 2.0 * math.log(nu)
            elif t < final:
                log_shift += step_log_c + 2.0 * math.log(nu / right_nu)
            if fresh or begins or nu != right_nu or (count > 1 and step_log_c != log_c):
                made = _write(made, count, log_last, log_c, marked, counts, firsts, ratios, marks)
                count = 0
                log_last = log_shift
                log_c = 0.0
                marked = begins
            elif count == 1:
                log_c = step_log_c
            count += 1
            right_c = columns.first[row]
            right_nu = nu
        if t == start:
            break
    made = _write(made, count, log_last, log_c, marked, counts, firsts, ratios, marks)
    return (
        counts[:made][::-1].copy(),
        firsts[:made][::-1].copy(),
        ratios[:made][::-1].copy(),
        marks[:made][::-1].copy(),
    )


@compiled
def _last_absorbing(
    columns: Columns, step: int, row: int, place: int, stop: int
) -> tuple[int, float]:
    """Return the last step before ``stop`` that is not far beyond the peak, and the growth to it.

    The growth is the log of the product of contractions after the peak.
    """
    rows = columns.counts.size
    row = row % rows
    final = step
    growth = 0.0
    log_growth = 0.0
    for t in range(step + 1, stop):
        place += 1
        if place == columns.counts[row]:
            place = 0
            row = row + 1 if row + 1 < rows else 0
        growth += math.log(columns.first[row])
        if growth <= LOG_GROWTH:
            final = t
            log_growth = growth
    return final, log_growth


@compiled
def _write(
    made: int,
    count: int,
    log_last: float,
    log_c: float,
    marked: bool,
    counts: IntArray,
    firsts: FloatArray,
    ratios: FloatArray,
    marks: BoolArray,
) -> int:
    """Append a block whose shifts fall by log_c per step to the left, without underflow."""
    kept = count
    if log_last < LOG_TINY:
        kept = 0
    elif log_c < 0.0 and log_last + (count - 1) * log_c < LOG_TINY:
        kept = 1 + int((LOG_TINY - log_last) / log_c)
    if kept > 0:
        counts[made] = kept
        ratios[made] = math.exp(-log_c) if kept > 1 else 1.0
        firsts[made] = _first_shift(kept, log_last, log_c, ratios[made])
        marks[made] = marked
        made += 1
    if count > kept:
        if made > 0 and firsts[made - 1] == 0.0:
            counts[made - 1] += count - kept
        else:
            counts[made] = count - kept
            firsts[made] = 0.0
            ratios[made] = 1.0
            made += 1
    return made


@compiled
def _first_shift(count: int, log_last: float, log_c: float, ratio: float) -> float:
    """Return the first of geometric shifts, so chosen that the stored ratio absorbs as much.

    The ratio is exp(-log_c) only up to rounding, which 10^7 steps would raise to 1e-9.
    """
    if count == 1:
        return math.exp(log_last)
    climb = math.log(ratio)
    if log_c >= 0.0 or climb == 0.0:
        return math.exp(log_last + (count - 1) * log_c)
    wanted = math.expm1(2.0 * log_c * count) / math.expm1(2.0 * log_c)
    stored = math.expm1((log_c - climb) * count) / math.expm1(log_c - climb)
    return wanted / stored * math.exp(log_last - (count - 1) * climb)


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
    """Tell whether the slope rises from one block to its right neighbor."""
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
    """Return the block that replaces two neighbors, the first one to the left."""
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
    """Join the leftmost block to its right neighbors until convex; return its new index."""
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
