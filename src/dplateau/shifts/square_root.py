"""Optimal plans for moduli sqrt(c u^2 + h) without sensitivity (Bravo et al., Theorem 3.4).

The cost to go before step t is A_t u^2 + B_t for u > 0, with A_T = infinity and

    1/A_t = (1/A_{t+1} + nu_t^2) / c_t,        B_t = B_{t+1} + h_t / (1/A_{t+1} + nu_t^2),

attained by u_{t+1} = phi_t(u_t) / (1 + A_{t+1} nu_t^2). With h > 0 every further step used costs
something, and a distance of zero stays zero: so the plan may start late *and* finish early, and
the window of steps it uses is searched over.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.ground.compiled import compiled
from dplateau.ground.types import FloatArray, IntArray
from dplateau.shifts.chain import DESCENT_ASCENT, LINEAR, Chain, Columns
from dplateau.shifts.linear import linear_plan
from dplateau.shifts.plan import ShiftBlock, ShiftPlan, forward_distances, sealed

# Up to this many last steps are all tried; beyond, a geometric selection is refined once.
TRY_ALL = 1024
GRID_RATIO = 1.1


def square_root_plan(chain: Chain) -> ShiftPlan:
    """Return an optimal plan of a chain without sensitivity whose moduli are square roots.

    A linear modulus counts as sqrt(c^2 u^2) and a descent-ascent one as its majorant
    sqrt(u^2 + (2 eta L)^2). Without any h the program is linear and is solved as such. Over T
    larger than TRY_ALL the last step used comes from a selection; the start is always the best.
    """
    squared, jumps = square_root_columns(chain)
    if not np.any(jumps):
        return linear_plan(chain.with_linear_moduli(np.sqrt(squared)))
    distances = forward_distances(chain)
    start, stop = _best_window(chain, squared, jumps, distances)
    distance = float(distances[start])
    shifts = window_shifts(chain.columns, chain.repeats, squared, jumps, start, stop, distance)
    plan = sealed(ShiftPlan.from_shifts(start, distance, shifts), chain)
    return plan if stop == chain.steps else plan.extended(ShiftBlock(chain.steps - stop, 0.0))


def square_root_columns(chain: Chain) -> tuple[FloatArray, FloatArray]:
    """Return c (of the square) and h of a square-root modulus above that of each row."""
    columns = chain.columns
    squared, jumps = columns.first.copy(), columns.second.copy()
    straight = columns.kinds == LINEAR
    # The least square that a step forgets everything by: theorem 3.4 divides by c.
    squared[straight] = np.maximum(columns.first[straight] ** 2, 1e-300)
    saddle = columns.kinds == DESCENT_ASCENT
    squared[saddle] = 1.0
    jumps[saddle] = columns.first[saddle] ** 2
    return squared, jumps


def _best_window(
    chain: Chain, squared: FloatArray, jumps: FloatArray, distances: FloatArray
) -> tuple[int, int]:
    best = math.inf
    window = (0, chain.steps)
    tried: set[int] = set()

    def attempt(stop: int) -> None:
        nonlocal best, window
        if stop in tried or not 1 <= stop <= chain.steps:
            return
        tried.add(stop)
        cost, start = window_cost(
            chain.columns, chain.repeats, squared, jumps, stop, distances, best
        )
        if cost < best * (1 - 1e-12):
            best, window = cost, (start, stop)

    attempt(chain.steps)
    for stop in _stops(chain.steps):
        attempt(int(stop))
    around = window[1]
    reach = int(around * (GRID_RATIO - 1)) + 1
    for stop in np.unique(np.linspace(around - reach, around + reach, 65).astype(np.int64)):
        attempt(int(stop))
    return window


def _stops(steps: int) -> IntArray:
    if steps <= TRY_ALL:
        return np.arange(1, steps)
    size = math.ceil(math.log(steps) / math.log(GRID_RATIO))
    return np.unique(np.geomspace(1, steps, size).astype(np.int64))


@compiled
def window_cost(
    columns: Columns,
    repeats: int,
    squared: FloatArray,
    jumps: FloatArray,
    stop: int,
    distances: FloatArray,
    enough: float,
) -> tuple[float, int]:
    """Return the least cost of a plan that ends at step ``stop``, and its start.

    B only grows as the start moves back, so the search ends where B alone exceeds the best cost
    (or ``enough``, when a better one is of no interest).
    """
    rows = columns.counts.size
    t = repeats * columns.counts.sum()
    best = enough
    start = 0
    inverse = 0.0
    offset = 0.0
    for index in range(repeats * rows - 1, -1, -1):
        row = index % rows
        variance = columns.noise_stds[row] ** 2
        beyond = min(max(t - stop, 0), columns.counts[row])
        t -= beyond
        for _ in range(columns.counts[row] - beyond):
            t -= 1
            offset += jumps[row] / (inverse + variance)
            inverse = (inverse + variance) / squared[row]
            if offset > best:
                return best, start
            cost = distances[t] * (distances[t] / inverse) + offset
            if cost < best:
                best = cost
                start = t
    return best, start


@compiled
def window_shifts(
    columns: Columns,
    repeats: int,
    squared: FloatArray,
    jumps: FloatArray,
    start: int,
    stop: int,
    distance: float,
) -> FloatArray:
    """Return the optimal shifts of the steps start .. stop-1."""
    rows = columns.counts.size
    t = repeats * columns.counts.sum()
    inverse = np.zeros(stop - start + 1)
    which = np.empty(stop - start, dtype=np.int64)
    for index in range(repeats * rows - 1, -1, -1):
        row = index % rows
        variance = columns.noise_stds[row] ** 2
        beyond = min(max(t - stop, 0), columns.counts[row])
        t -= beyond
        for _ in range(min(columns.counts[row] - beyond, t - start)):
            t -= 1
            inverse[t - start] = (inverse[t - start + 1] + variance) / squared[row]
            which[t - start] = row
        if t == start:
            break
    shifts = np.empty(stop - start)
    u = distance
    for i in range(stop - start):
        row = which[i]
        grown = math.sqrt(squared[row] * u * u + jumps[row]) if u > 0.0 else 0.0
        variance = columns.noise_stds[row] ** 2
        # u' = phi / (1 + A nu^2), hence a = phi nu^2 / (nu^2 + 1/A): no difference to lose digits.
        shifts[i] = grown * (variance / (variance + inverse[i + 1]))
        u = grown * (inverse[i + 1] / (variance + inverse[i + 1]))
    return shifts
