"""Plans for lagged blocks: which noise hides which uses. Any plan is a proof: this may be rough.

A block with uses of weights w = r C / E costs about

    (1/k) sum over pairs of uses of q q' (exp(k w w') - 1) = sum_j k^(j-1) / j! (sum of q w^j)^2:

for k = 1 the chi-square divergence of its pair, to second order in the rates. A larger k weighs
large losses more, as a small delta does; with little noise every loss is large, and a small k keeps
the exponential from drowning the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dplateau.ground.types import FloatArray, IntArray
from dplateau.shifts.blocks import Lags, Plan

_ORDERS = 12
_GRID = 72
_NEARLY = 1.6  # composition is evaluated too if its surrogate is at most this factor larger
_SHORT = 512  # and for short runs, where it is quickly evaluated and often best


@dataclass(frozen=True, eq=False)
class _Costs:
    """The surrogate, and running sums over the lags that it is made of."""

    lags: Lags
    copies: int

    @property
    def tilt(self) -> float:
        """Return k."""
        quietest = float((self.lags.noise / self.lags.reach).min())
        return min(max(8.0 * quietest**2, 0.2), 12.0)

    def powers(self) -> FloatArray:
        """Return sum_{l < x} of q_l (r_l C_l)^j for j = 1, 2, .. and every x up to the memory."""
        weights = self.lags.reach * np.exp(np.minimum(self.lags.log_growth, 50.0))
        sums = np.zeros((_ORDERS, weights.size + 1))
        for j in range(_ORDERS):
            sums[j, 1:] = np.cumsum(self.copies * self.lags.rate * weights ** (j + 1))
        return sums

    def noise(self) -> FloatArray:
        """Return sum_{j < x} (nu_j C_j)^2."""
        scale = self.lags.noise * np.exp(np.minimum(self.lags.log_growth, 50.0))
        return np.asarray(np.r_[0.0, np.cumsum(scale**2)])

    def singles(self) -> FloatArray:
        """Return the cost of the last x steps, each a block of its own."""
        ratio = self.lags.reach / self.lags.noise
        powers = self.copies * self.lags.rate * ratio ** np.arange(1, _ORDERS + 1)[:, None]
        return np.asarray(np.r_[0.0, np.cumsum(self.block(powers, np.ones(ratio.size)))])

    def block(self, powers: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the cost of blocks with these sums of q (r C)^j and E^2."""
        orders = np.arange(1, _ORDERS + 1)
        factors = self.tilt ** (orders - 1) / np.array([math.factorial(j) for j in orders])
        shape = (-1,) + (1,) * (np.ndim(powers) - 1)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            terms = factors.reshape(shape) * powers**2 / variance ** orders.reshape(shape)
        return np.asarray(np.nan_to_num(terms.sum(axis=0), nan=np.inf, posinf=np.inf))

    def capped(self, start: IntArray, variance: FloatArray) -> FloatArray:
        """Return the cost of a last block for all uses from the lag ``start`` on, at most D."""
        lags = self.lags
        within = start < lags.kept
        logs = lags.log_growth[np.minimum(start, lags.kept - 1)]
        shift = lags.diameter * np.exp(np.minimum(logs, 300.0))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            exponent = np.minimum(self.tilt * shift**2 / variance, 600.0)
        return np.where(within & (variance > 0), np.expm1(exponent) / self.tilt, np.inf)


def cheapest_plans(lags: Lags, copies: int) -> list[Plan]:
    """Return the plan of least surrogate cost, and composition if it is not clearly worse.

    The best plans have l_i = a_{i+1} - 1: uses as late as their noise allows. So a plan is a
    rising sequence of edges, block i costs what (a_i, a_{i+1}, a_{i+2}) say, and the cheapest
    sequence on a grid of lags is found by dynamic programming over (a_i, a_{i+1}).
    """
    grid = _lag_grid(lags)
    costs = _Costs(lags, copies)
    powers, noise, singles = costs.powers(), costs.noise(), costs.singles()
    used = powers[:, np.clip(grid - 1, 0, lags.kept)]
    total = powers[:, -1] + _older_powers(lags, copies)
    value = np.full((grid.size, grid.size), np.inf)
    before = np.full(value.shape, -1)
    follows = np.flatnonzero(np.diff(grid) == 1)
    value[follows, follows + 1] = singles[grid[follows]]
    best, end, capped = math.inf, (0, 0, 0), False
    for y in range(1, grid.size):
        x = np.flatnonzero(np.isfinite(value[:y, y]))
        if x.size == 0:
            continue
        variance = noise[grid[y]] - noise[grid[x]]
        closing = value[x, y] + costs.block((total - used[:, y])[:, None], variance)
        if closing.min() < best:
            last = int(x[closing.argmin()])
            best, end, capped = float(closing.min()), (int(before[last, y]), last, y), False
        later = np.arange(y + 1, grid.size)
        if math.isfinite(lags.diameter) and later.size:
            # The domain caps a last block whose noise comes after its uses, so the block before
            # hides one use more.
            wider = (powers[:, grid[later]] - used[:, [y]])[:, None, :]
            reached = value[x, y][:, None] + costs.block(wider, variance[:, None])
            reached += costs.capped(grid[later], noise[grid[later]] - noise[grid[y]])
            i, j = np.unravel_index(reached.argmin(), reached.shape)
            if reached[i, j] < best:
                best, end, capped = float(reached[i, j]), (int(x[i]), y, int(later[j])), True
        between = (used[:, later] - used[:, [y]])[:, None, :]
        reached = value[x, y][:, None] + costs.block(between, variance[:, None])
        choice = reached.argmin(axis=0)
        gains = reached[choice, np.arange(later.size)]
        better = gains < value[y, later]
        value[y, later[better]] = gains[better]
        before[y, later[better]] = x[choice[better]]
    composition = Plan(lags.steps, ((lags.steps, lags.steps),))
    alone = float(singles[-1]) / lags.kept * lags.steps if lags.alike is not None else singles[-1]
    if not best < math.inf or alone <= best:
        return [composition]
    plan = _traced(lags, grid, before, end, capped=capped)
    close = alone <= _NEARLY * best or lags.steps <= _SHORT
    return [plan, composition] if close else [plan]


def _traced(
    lags: Lags, grid: IntArray, before: IntArray, end: tuple[int, int, int], *, capped: bool
) -> Plan:
    """Follow the best choices back to the single steps, and write the edges down."""
    w, x, y = end
    sequence = [int(grid[y]), int(grid[x])]
    while w >= 0:
        sequence.append(int(grid[w]))
        w, x = int(before[w, x]), w
    sequence.reverse()
    edges = [(sequence[0], sequence[0])]
    edges += [(a, later - 1) for a, later in pairwise(sequence[1:])]
    last = sequence[-1]
    if capped:
        edges[-1] = (edges[-1][0], last)
    return Plan(sequence[0], (*edges, (last, lags.steps)))


def _lag_grid(lags: Lags) -> IntArray:
    """Return lags at which blocks may be cut: every one near the end, ever fewer before."""
    most = lags.kept
    if lags.alike is not None and lags.alike < 1:
        most = min(most, 2 + math.ceil(9.0 / max(-math.log(max(lags.alike, 1e-300)), 1e-300)))
    points = np.r_[np.arange(min(most, 14) + 1), np.geomspace(1, most, _GRID).round()]
    grid: IntArray = np.unique(points).astype(np.int64)
    return grid


def _older_powers(lags: Lags, copies: int) -> FloatArray:
    """Return what uses beyond the memory add to the sums: all of them count as taken."""
    older = copies * math.exp(min(lags.log_older, 300.0))
    return np.asarray(np.r_[older, np.zeros(_ORDERS - 1)])
