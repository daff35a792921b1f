"""The segments of a minorant written out as geometric blocks of shifts.

Inside a segment a_(t-1) = a_t c_t nu_(t-1)^2 / nu_t^2, and at its peak a is g nu^2 / sqrt(dW): a
stretch of equal contractions and noises is one block, however long.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.ground.compiled import compiled
from dplateau.ground.types import BoolArray, FloatArray, IntArray
from dplateau.shifts.chain import Columns

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
