"""Lagged blocks: a sampled run read backwards, and the pairs that a plan of blocks proves.

The step of *lag* l has l steps after it, which together contract by C_l. A plan cuts the lags
twice, by edges a_0 < a_1 < .. and l_0 < l_1 < .., and lets the noise at the lags [a_i, a_{i+1})
hide the uses of the record at the lags [l_i, l_{i+1}). If a_{i+1} - 1 <= l_i for every block, the
last iterates of two neighbors are dominated by the product over the blocks of

    law of M_i / E_i + N(0, 1)   against   N(0, 1),
    E_i^2 = sum of (nu_j C_j)^2 over the noise,   M_i = sum of r_l C_l Bernoulli(q_l) over the uses

(docs/theory/blocks.md, Theorem 2; Theorem 3 for replaced records: against -M_i / E_i + N(0, 1)).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dplateau.curves import DominatingPair, MixturePair
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray
from dplateau.numerics.bernoulli_laws import NOTHING, AtomLaw, upper_law

_UP = 1 + 1e-9  # room for the rounding of powers and of sums of weights over at most 2^21 lags
_MOST_LAGS = 1 << 20
# Uses so old that together they weigh e^-34 of the last one are not told apart.
_LOG_FORGOTTEN = 34.0


@dataclass(frozen=True, eq=False)
class Lags:
    """A run read backwards: entry l of each array belongs to the step with l steps after it.

    ``reach`` is r_l = eta_l L / b, ``noise`` nu_l, ``rate`` q_l, ``log_growth`` log C_l. A long run
    with equal steps keeps only the lags that matter; ``log_older`` is the log of the sum of r_l C_l
    over all the others, which are charged as if the record took part in every one of them.
    """

    steps: int
    reach: FloatArray
    noise: FloatArray
    rate: FloatArray
    log_growth: FloatArray
    log_older: float
    diameter: float
    # The contraction, if every step is alike: laws of uses are then shared between runs.
    alike: float | None
    # How far off log_growth may be: a block's weights are ratios of two such products.
    log_error: float = 0.0

    @property
    def kept(self) -> int:
        """Return how many lags are told apart."""
        return self.reach.size

    def log_noise(self, start: int, stop: int) -> float:
        """Return log E for the noise of the lags [start, stop)."""
        if not 0 <= start < stop <= self.kept:
            raise InvalidInput(
                f"the noise of a block must lie within the last {self.kept} steps that matter; "
                f"the witness has lags [{start}, {stop})"
            )
        logs = np.log(self.noise[start:stop]) + self.log_growth[start:stop]
        top = float(logs.max())
        if math.isinf(top):
            raise InvalidInput(f"the noise at the lags [{start}, {stop}) does not reach the end")
        return top + 0.5 * math.log(float(np.exp(2 * (logs - top)).sum()))

    def law(self, start: int, stop: int, log_scale: float, copies: int) -> AtomLaw:
        """Return a law above that of M / E for the uses at the lags [start, stop)."""
        if copies == 0 or start >= stop:
            return NOTHING
        last = min(stop, self.kept)
        log_older = self.log_older if stop > self.kept else -math.inf
        if start >= last:
            return AtomLaw((copies * self._up(log_older - log_scale),), (1.0,))
        logs = np.log(self.reach[start:last]) + self.log_growth[start:last]
        first = float(logs.max())
        if math.isinf(first):
            return NOTHING
        # In units of the largest weight the law does not depend on the noise.
        rest = copies * self._up(log_older - first)
        if self.alike is not None and self.alike <= 1:
            law = _even_law(self.alike, float(self.rate[start]), last - start, copies, rest)
        else:
            law = upper_law(np.exp(logs - first), self.rate[start:last], copies=copies, rest=rest)
        return law.scaled(self._up(first - log_scale))

    def cap(self, used: int, log_scale: float) -> float:
        """Return the most that projection leaves of M / E for the uses at the lags from here on."""
        return self._up(math.log(self.diameter) + float(self.log_growth[used]) - log_scale)

    def _up(self, exponent: float) -> float:
        return math.exp(min(exponent + 2 * self.log_error, 600.0)) * _UP


def running_growth(logs: FloatArray) -> tuple[FloatArray, float]:
    """Return log C_l from the logs of the contractions at each lag, and a bound on its error.

    Adding n numbers one after the other errs by less than n units of precision times the sum of
    their sizes; the sum is taken in extended precision where the machine has it. The logs, and the
    rounding of the result to doubles, err by a few units of a double.
    """
    terms = logs[:-1]
    growth = np.r_[0.0, np.cumsum(terms, dtype=np.longdouble)].astype(float)
    units = terms.size * float(np.finfo(np.longdouble).eps) + 6 * float(np.finfo(float).eps)
    return growth, units * float(np.abs(terms[np.isfinite(terms)]).sum())


@lru_cache(maxsize=1024)
def _even_law(contraction: float, rate: float, count: int, copies: int, rest: float) -> AtomLaw:
    weights = contraction ** np.arange(count, dtype=float)
    return upper_law(weights, np.full(count, rate), copies=copies, rest=rest)


@dataclass(frozen=True)
class BlockPlan:
    """``single_steps`` blocks of one step each, then blocks between the ``edges`` (a_i, l_i)."""

    single_steps: int
    edges: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, witness: Mapping[str, Any], steps: int) -> BlockPlan:
        """Read a plan and refuse one that proves nothing."""
        first = int(witness["single_steps"])
        edges = tuple((int(a), int(used)) for a, used in witness["edges"])
        if not edges or edges[0] != (first, first) or not 0 <= first <= steps:
            raise InvalidInput("a plan starts where its single steps end, within the run")
        for (a, used), (next_a, next_used) in pairwise(edges):
            if not (a < next_a <= steps and used < next_used):
                raise InvalidInput(
                    f"edges must rise within {steps} steps; got {next_a}, {next_used}"
                )
            if next_a - 1 > used:
                raise InvalidInput(
                    f"noise at lag {next_a - 1} comes before the use at lag {used} it should hide"
                )
        if edges[-1][1] != steps:
            raise InvalidInput(f"the blocks must hide all {steps} uses; they end at {edges[-1][1]}")
        return cls(first, edges)


def block_pairs(
    lags: Lags, plan: BlockPlan, up: int, down: int
) -> tuple[tuple[DominatingPair, int], ...]:
    """Return the pair of each block with its repeats; ``up`` and ``down`` count records."""
    pairs: Counter[DominatingPair] = Counter()
    for (ratio, rate), count in _single_uses(lags, plan.single_steps).items():
        pairs[_single_pair(ratio, rate, up, down)] += count
    blocks = list(pairwise(plan.edges))
    for i, ((a, used), (next_a, next_used)) in enumerate(blocks):
        log_noise = lags.log_noise(a, next_a)
        sides = [lags.law(used, next_used, log_noise, copies) for copies in (up, down)]
        # All older uses together cannot have moved two projected states further apart than D,
        # if that distance is only absorbed after the last of them.
        if i == len(blocks) - 1 and next_a <= used < lags.kept and math.isfinite(lags.diameter):
            sides = [side.capped(lags.cap(used, log_noise)) for side in sides]
        pairs[MixturePair(sides[0], sides[1])] += 1
    return tuple(pairs.items())


def _single_uses(lags: Lags, count: int) -> dict[tuple[float, float], int]:
    """Return how many of the last ``count`` steps have which (r / nu, q)."""
    if lags.alike is not None:
        ratio = float(lags.reach[0] / lags.noise[0])
        return {(ratio, float(lags.rate[0])): count} if count else {}
    ratios = lags.reach[:count] / lags.noise[:count]
    pairs = zip(ratios.tolist(), lags.rate[:count].tolist(), strict=True)
    return dict(Counter(pairs))


def _single_pair(ratio: float, rate: float, up: int, down: int) -> MixturePair:
    weights, rates = np.array([ratio * _UP]), np.array([rate])
    sides = [
        upper_law(weights, rates, copies=copies) if copies else NOTHING for copies in (up, down)
    ]
    return MixturePair(sides[0], sides[1])


def memory(contraction: float, steps: int, log_reach: float) -> tuple[int, float]:
    """Return how many lags to keep, and the log of the summed reach of all older ones."""
    if contraction == 0:
        return 1, -math.inf
    rate = -math.log(contraction)
    enough = math.ceil((_LOG_FORGOTTEN - math.log1p(-contraction)) / rate) if rate > 0 else steps
    kept = min(steps, enough, _MOST_LAGS)
    older = steps - kept
    if older == 0:
        return kept, -math.inf
    if rate == 0:
        return kept, log_reach + math.log(older)
    # r c^kept (1 - c^older) / (1 - c), for c on either side of 1.
    log_sum = math.log(abs(math.expm1(-rate * older))) if rate * older > -700 else -rate * older
    return kept, log_reach - rate * kept + log_sum - math.log(abs(1 - contraction)) + 1e-12


# The planner: which noise hides which uses. Any plan is a proof, so it may be rough. A block with
# uses of weights w = r C / E costs about
#
#     (1/k) sum over pairs of uses of q q' (exp(k w w') - 1) = sum_j k^(j-1) / j! (sum of q w^j)^2:
#
# for k = 1 the chi-square divergence of its pair, to second order in the rates. A larger k weighs
# large losses more, as a small delta does; with little noise every loss is large, and a small k
# keeps the exponential from drowning the mean. Of a stretch that is one of many, no single loss
# matters: they add up to a normal one, and k = 1 is right.
_ORDERS = 12
_GRID, _WHOLE = 72, 128  # lags of a grid; of runs so short that every one is in it
_NEARLY = 1.6  # composition is evaluated too if its surrogate is at most this factor larger
_SHORT = 512  # and for short runs, where it is quickly evaluated and often best


@dataclass(frozen=True, eq=False)
class _Costs:
    """The surrogate, and running sums over the lags that it is made of."""

    lags: Lags
    copies: int
    one_of_many: bool = False

    @property
    def tilt(self) -> float:
        """Return k."""
        if self.one_of_many:
            return 1.0
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


def cheapest_plans(lags: Lags, copies: int, *, one_of_many: bool = False) -> list[BlockPlan]:
    """Return the plan of least surrogate cost, and composition if it is not clearly worse.

    The best plans have l_i = a_{i+1} - 1: uses as late as their noise allows. So a plan is a
    rising sequence of edges, block i costs what (a_i, a_{i+1}, a_{i+2}) say, and the cheapest
    sequence on a grid of lags is found by dynamic programming over (a_i, a_{i+1}).
    """
    grid = _lag_grid(lags)
    costs = _Costs(lags, copies, one_of_many)
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
    composition = BlockPlan(lags.steps, ((lags.steps, lags.steps),))
    alone = float(singles[-1]) / lags.kept * lags.steps if lags.alike is not None else singles[-1]
    if not best < math.inf or alone <= best:
        return [composition]
    plan = _traced(lags, grid, before, end, capped=capped)
    close = alone <= _NEARLY * best or lags.steps <= _SHORT
    return [plan, composition] if close else [plan]


def _traced(
    lags: Lags, grid: IntArray, before: IntArray, end: tuple[int, int, int], *, capped: bool
) -> BlockPlan:
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
    return BlockPlan(sequence[0], (*edges, (last, lags.steps)))


def _lag_grid(lags: Lags) -> IntArray:
    """Return lags at which blocks may be cut: every one near the end, ever fewer before.

    Runs so short that their beginning is not forgotten have small blocks at both ends.
    """
    most = lags.kept
    if lags.alike is not None and lags.alike < 1:
        most = min(most, 2 + math.ceil(9.0 / max(-math.log(max(lags.alike, 1e-300)), 1e-300)))
    rough = np.geomspace(1, most, _GRID).round()
    points = np.r_[np.arange(min(most, 14) + 1), rough]
    if most == lags.steps:
        points = np.arange(most + 1) if most <= _WHOLE else np.r_[points, most - points]
    grid: IntArray = np.unique(points).astype(np.int64)
    return grid


def _older_powers(lags: Lags, copies: int) -> FloatArray:
    """Return what uses beyond the memory add to the sums: all of them count as taken."""
    older = copies * math.exp(min(lags.log_older, 300.0))
    return np.asarray(np.r_[older, np.zeros(_ORDERS - 1)])
