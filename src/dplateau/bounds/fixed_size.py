"""Batches of one size with a hidden state: replaced records, contractive steps, any schedule.

Each of the last R steps is dominated by a symmetric pair that sees the swap of two records and the
shift it absorbs at once, without a split of the noise. The distance of the two runs at step T - R
is at most a sum of coin flips, one for each swap before, and is averaged over its law
(docs/theory/fixed_size.md). Steps are counted from the end: the step of lag 0 is the last one.
Shifts are in units of the step's own noise, distances in parameter space.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import groupby, pairwise

import numpy as np

from dplateau.algorithms import FixedSize, Run, Schedule
from dplateau.algorithms.schedule import PerStep
from dplateau.algorithms.stated import learning_rate_of, learning_rates
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, Assumption, Bound, Witness
from dplateau.bounds.conditions import GEOMETRY, AboutBatches, Contractive, HiddenIterates
from dplateau.bounds.iteration import chain_of, every_step, step_map
from dplateau.bounds.step_maps import CONTRACTION, geometry_assumptions
from dplateau.curves import AveragedLossCurve, SubsampledGaussianPair
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray
from dplateau.numerics.bernoulli_laws import AtomLaw, upper_law
from dplateau.numerics.normal import gaussian_delta
from dplateau.shifts import Chain, forward_distance

# More last steps than this are not tried, and older uses are not told apart.
_MOST_LAGS = 1 << 20
# Room for the rounding of products of up to 2^21 contractions.
UP = 1 + 1e-9
# Chances at which a start is cut into buckets, down to a small share of delta.
_USUAL_LEVELS = (0.8, 0.6, 0.42, 0.28, 0.18, 0.11, 0.06, 0.03, 0.015)
_RARE_LEVELS = 8
_SHARE_BEYOND = 1e-3
# Edges lie this much above the atoms they cover, so that a law on another grid covers them too.
_ABOVE_ATOMS = 1 + 2e-4


@dataclass(frozen=True)
class Start:
    """Distances at step T - R: ``weights[k]`` is the chance of at most ``edges[k]``, not less.

    ``beyond`` is the chance of a distance that no edge covers; it is charged in full.
    """

    edges: tuple[float, ...]
    weights: tuple[float, ...]
    beyond: float


@dataclass(frozen=True, eq=False)
class RunEnd:
    """The end of a run, one entry for each lag, and the program of the two runs' drift.

    ``keep`` is the contraction of the step, ``noise`` its standard deviation, ``move`` how far a
    swap moves it (2 eta L / b), ``swap`` the same in units of the noise. A start is absorbed over
    at most ``most_last_steps``, and is made of the ``memory`` steps before them.
    """

    rate: float
    steps: int
    keep: FloatArray
    noise: FloatArray
    move: FloatArray
    drift: Chain
    most_last_steps: int
    memory: int

    @property
    def swap(self) -> FloatArray:
        """Return move / noise."""
        return self.move / self.noise

    def reaches(self, last_steps: int) -> FloatArray:
        """Return how far a shift of one unit of noise reaches at the end of the run."""
        kept = np.cumprod(np.r_[1.0, self.keep[: last_steps - 1]])
        hidden: FloatArray = kept * self.noise[:last_steps]
        return hidden

    def decayed(self, start: float, last_steps: int) -> float:
        """Return what is left of a start at the end if nothing absorbs it."""
        return start * float(np.prod(self.keep[:last_steps])) * UP

    def largest_start(self, last_steps: int) -> float:
        """Return the forward distance at step T - R."""
        return forward_distance(self.drift, self.steps - last_steps) * UP

    def start_law(self, last_steps: int) -> AtomLaw | None:
        """Return the law of the distance at step T - R, driven by the swaps that happen.

        Uses so old that all the older ones together weigh next to nothing are charged in full.
        None if there are too many to tell apart.
        """
        before = self.steps - last_steps
        # As many for every R, so that runs of equal steps have one law.
        kept = min(before, self.memory, self.keep.size - last_steps)
        carried = np.cumprod(np.r_[1.0, self.keep[last_steps : last_steps + kept]])
        older = float(carried[-1]) * forward_distance(self.drift, before - kept)
        weights = carried[:-1] * self.move[last_steps : last_steps + kept]
        if kept == 0 or older > 1e-3 * float(weights.max()):
            return None
        unit = float(weights[0])
        law = _law((weights / unit).tobytes(), self.rate)
        return law.scaled(unit * UP, rest=older * UP)


@lru_cache(maxsize=64)
def _law(weights: bytes, rate: float) -> AtomLaw:
    terms = np.frombuffer(weights)
    return upper_law(terms, np.full(terms.size, rate))


def run_end(run: Run) -> RunEnd:
    """Return the end of a run, as far back as its distances remember."""
    maps = step_map(run)
    constants = {eta: maps.contraction(eta).c for eta in learning_rates(run)}
    slowest = max(constants.values())
    last_steps = min(run.steps, _MOST_LAGS, _steps_to_decay(60.0, slowest))
    memory = min(_MOST_LAGS, _steps_to_decay(14.0 - math.log1p(-min(slowest, 1 - 1e-16)), slowest))
    count = min(run.steps, last_steps + memory)
    etas, keep = _ends(learning_rate_of(run), count), np.empty(count)
    for eta, constant in constants.items():
        keep[etas == eta] = constant
    return RunEnd(
        rate=run.sampling_rate,
        steps=run.steps,
        keep=keep,
        noise=_ends(run.iterate_std, count),
        move=run.neighbor_factor * _ends(run.record_step, count),
        drift=chain_of(run, every_step(run), CONTRACTION),
        most_last_steps=last_steps,
        memory=memory,
    )


def _steps_to_decay(depth: float, contraction: float) -> int:
    """Return how many steps lower a distance by the factor e^-depth."""
    if contraction >= 1:
        return _MOST_LAGS
    return math.ceil(depth / -math.log(contraction)) + 1 if contraction > 0 else 1


def _ends(value: PerStep, count: int) -> FloatArray:
    """Return the values of the last steps, the last one first."""
    if isinstance(value, Schedule):
        last: FloatArray = value.values()[::-1][:count].copy()
        return last
    return np.full(count, value)


def averaged_start(end: RunEnd, last_steps: int, edges: tuple[float, ...]) -> Start:
    """Return the start with these edges (rising), weighted by upper bounds on the tails.

    Weights are differences of tails, 1 = tail of nothing: with deltas that rise from edge to edge
    the average only grows if a tail is over-estimated.
    """
    if not edges or any(a >= b for a, b in pairwise(edges)):
        raise InvalidInput(f"the starts of a plan must rise; got {edges!r}")
    largest = end.largest_start(last_steps)
    law = None if edges[0] >= largest else end.start_law(last_steps)
    tails = [1.0]
    for edge in edges:
        if edge >= largest:
            tails.append(0.0)
        elif law is None:
            raise InvalidInput("these starts cannot be told apart: there are too many steps")
        else:
            tails.append(min(tails[-1], law.above(edge)))
    weights = tuple(above - below for above, below in pairwise(tails))
    return Start(edges=edges, weights=weights, beyond=tails[-1])


def cut_start(end: RunEnd, last_steps: int, delta: float, buckets_skipped: int) -> Start:
    """Return the start cut where the tail of its law falls to each of some levels."""
    largest = end.largest_start(last_steps)
    law = end.start_law(last_steps) if largest > 0 else None
    if law is None:
        return averaged_start(end, last_steps, (largest,))
    rare = np.geomspace(_USUAL_LEVELS[-1], delta * _SHARE_BEYOND, _RARE_LEVELS + 1)[1:]
    # The rarest is always kept.
    levels = (*_USUAL_LEVELS, *rare.tolist())[::-buckets_skipped]
    edges = {min(largest, law.exceeded_by(level) * _ABOVE_ATOMS) for level in levels}
    return averaged_start(end, last_steps, tuple(sorted(edges)))


# A long schedule's swaps are rounded up to this many sizes; the more sizes, the fewer levels.
_MOST_SIZES = 12
_BISECTIONS = 30


@dataclass(frozen=True)
class Detail:
    """How finely starts and shifts are told apart, and epsilon resolved."""

    levels: int
    buckets_skipped: int
    resolution: float


FINE = Detail(levels=32, buckets_skipped=1, resolution=1e-3)
COARSE = Detail(levels=10, buckets_skipped=3, resolution=2e-2)


class FixedSizeAveraged(Bound):
    """Batches of exactly b records, averaged over the law of the start.

    The sound form of Theorems 3.1 and 5.1 of Altschuler and Talwar: it advances one step at a
    time, and so never conditions on noise whose law depends on the batch.
    """

    name = "fixed_size_averaged"
    note = "docs/theory/fixed_size.md"
    title = "Hidden-state fixed-size SGD, averaged start"
    citation = literature.this_library("docs/theory/fixed_size.md, Theorem 2")
    release = HiddenIterates()
    needs = (AboutBatches((FixedSize,)), *GEOMETRY, Contractive())
    # Starts are averaged beside the composition, and another grid of starts differs as much.
    claim_margin = 2 * COMPOSED_MARGIN

    def plan(self, run: Run, delta: float) -> Witness:
        """Search the number R of last steps: every R is valid, so the search may be heuristic.

        A surrogate ranks R over its whole range; coarse evaluations walk downhill from its best.
        Coarse starts are over-stated, which favors too many steps: the last search tries fewer.
        """
        end = run_end(run)
        most = end.most_last_steps
        tried = {int(count) for count in np.geomspace(1, most, 24).round()}
        best = min(sorted(tried), key=lambda count: _surrogate(end, count, delta))

        @cache
        def coarse(last_steps: int) -> float:
            curve = self._curve(end, witness_of(end, last_steps, delta, COARSE))
            return replace(curve, resolution=COARSE.resolution).epsilon(delta)

        @cache
        def fine(last_steps: int) -> float:
            return self._curve(end, witness_of(end, last_steps, delta, FINE)).epsilon(delta)

        for factor in (1.4, 1.15):
            best = _downhill(coarse, best, most, (1 / factor, factor))
        best = _downhill(fine, best, most, (1 / 1.1,))
        return witness_of(end, best, delta, FINE)

    def replan(self, run: Run, delta: float, near: Witness) -> Witness:
        """Keep the number of last steps, whose search takes most of the time."""
        last_steps = min(int(near["last_steps"]), run.steps)
        return witness_of(run_end(run), last_steps, delta, FINE)

    def curve(self, run: Run, witness: Witness) -> AveragedLossCurve:
        """Check that every plan absorbs its start, and compose."""
        return self._curve(run_end(run), witness)

    def _curve(self, end: RunEnd, witness: Witness) -> AveragedLossCurve:
        last_steps, edges = int(witness["last_steps"]), tuple(map(float, witness["edges"]))
        if not 1 <= last_steps <= min(end.steps, end.keep.size):
            raise InvalidInput(f"no last steps of this run: {last_steps} of {end.steps}")
        start = averaged_start(end, last_steps, edges)
        swap = end.swap[:last_steps]
        sizes = np.array(witness["sizes"], dtype=float)
        size_of = np.searchsorted(sizes, swap * (1 - 1e-12))
        if size_of.max() >= sizes.size:
            raise InvalidInput(f"a swap of {swap.max():g} is larger than those planned for")
        levels = np.r_[0.0, witness["levels"]]
        reaches, rows = end.reaches(last_steps), []
        for edge, blocks in zip(edges, witness["plans"], strict=True):
            level_of = _level_of_lag(blocks, last_steps, levels.size)
            if float(reaches @ levels[level_of]) < end.decayed(edge, last_steps):
                raise InvalidInput(f"the plan for a start at {edge:g} does not absorb it")
            rows.append(Counter(zip(size_of.tolist(), level_of.tolist(), strict=True)))
        used = sorted(set().union(*rows))
        return AveragedLossCurve(
            pairs=tuple(
                SubsampledGaussianPair(end.rate, float(sizes[size]), float(levels[level]))
                for size, level in used
            ),
            counts=tuple(tuple(row[pair] for pair in used) for row in rows),
            weights=start.weights,
            extra_delta=start.beyond,
        )

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return geometry_assumptions(run, (CONTRACTION,))


def _downhill(
    evaluated: Callable[[int], float], best: int, most: int, factors: tuple[float, ...]
) -> int:
    """Walk to more or fewer last steps while that helps."""
    moved = True
    while moved:
        moved = False
        for factor in factors:
            near = best * factor
            near = min(max(math.floor(near) if factor < 1 else math.ceil(near), 1), most)
            if evaluated(near) < evaluated(best):
                best, moved = near, True
                break
    return best


@dataclass(frozen=True, eq=False)
class _Absorbers:
    """The last R steps in the order in which they join: minimize sum a^2 + 2 q m a.

    That is the second-order cost of a shift a beside a swap of m; subject to sum_j e_j a_j >= need
    it is least at a_j = max(0, x e_j - q m_j), so the steps of smallest m_j / e_j join first.
    """

    reaches: FloatArray
    drifts: FloatArray

    def multiplier(self, need: float) -> float:
        """Return x, from sums over the steps that join."""
        live = self.reaches > 0
        order = np.argsort(self.drifts[live] / self.reaches[live], kind="stable")
        e, m = self.reaches[live][order], self.drifts[live][order]
        values: FloatArray = (need + np.cumsum(e * m)) / np.cumsum(e * e)
        # The k-th step joins while the multiplier of the first k leaves it a positive shift.
        joins = values * e > m
        return float(values[max(int(np.count_nonzero(joins)), 1) - 1])

    def shifts(self, multiplier: float) -> FloatArray:
        """Return the shifts at a multiplier."""
        return np.maximum(0.0, multiplier * self.reaches - self.drifts)


def _absorbers(end: RunEnd, last_steps: int) -> _Absorbers:
    return _Absorbers(end.reaches(last_steps), end.rate * end.swap[:last_steps])


def _surrogate(end: RunEnd, last_steps: int, delta: float) -> float:
    """Return about the epsilon of R last steps, every composition taken for a Gaussian."""
    start = cut_start(end, last_steps, delta, COARSE.buckets_skipped)
    steps, swap = _absorbers(end, last_steps), end.swap[:last_steps]
    sampled = end.rate**2 * float(np.sum(np.expm1(np.minimum(swap**2, 50.0))))
    costs = []
    for edge in start.edges:
        need = end.decayed(edge, last_steps)
        shifts = steps.shifts(steps.multiplier(need)) if need > 0 else np.zeros(1)
        cost = float(np.sum(shifts * (shifts + 2 * steps.drifts[: shifts.size])))
        costs.append(sampled + cost)
    mus, weights = np.sqrt(costs), np.array(start.weights)

    def over(epsilon: float) -> bool:
        deltas = gaussian_delta(np.full(mus.size, epsilon), mus)
        return float(weights @ deltas) + start.beyond > delta

    low, high = 0.0, 1.0
    while over(high):
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    for _ in range(18):
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) else (low, middle)
    return high


def witness_of(end: RunEnd, last_steps: int, delta: float, detail: Detail) -> Witness:
    """Return starts, levels of shifts, and for each start how the last steps absorb it."""
    start = cut_start(end, last_steps, delta, detail.buckets_skipped)
    sizes = _few_sizes(end.swap[:last_steps])
    steps = _absorbers(end, last_steps)
    needs = [end.decayed(edge, last_steps) * UP for edge in start.edges]
    most = steps.shifts(steps.multiplier(needs[-1])).max() if needs[-1] > 0 else 0.0
    count = max(detail.levels // sizes.size, 8)
    # A start far below q m is lost in the difference that a shift is: leave room for an even one.
    even = needs[-1] / float(steps.reaches.sum())
    level = max(float(most), even) * (1 + 1e-6) / count
    plans, places = [], np.zeros(last_steps, dtype=np.int64)
    for need in needs:
        # A later start is absorbed by shifts that are nowhere smaller, so its delta is no smaller.
        places = np.maximum(places, _levels_of(steps, need, level, count))
        plans.append([[len(list(same)), at] for at, same in groupby(places[::-1].tolist())])
    return {
        "losses": CONTRACTION,
        "last_steps": last_steps,
        "edges": list(start.edges),
        "sizes": sizes.tolist(),
        "levels": (level * np.arange(1, count + 1)).tolist() if level > 0 else [],
        "plans": plans,
    }


def _few_sizes(swaps: FloatArray) -> FloatArray:
    """Return the distinct swaps, or few sizes on a geometric grid above all of them."""
    sizes = np.unique(swaps)
    if sizes.size <= _MOST_SIZES:
        return sizes
    return np.geomspace(sizes[0], sizes[-1] * (1 + 1e-12), _MOST_SIZES)


def _levels_of(steps: _Absorbers, need: float, level: float, count: int) -> IntArray:
    """Round the best shifts up to levels, and lower them until they just absorb what is needed."""

    def rounded(multiplier: float) -> IntArray:
        places = np.ceil(steps.shifts(multiplier) / level * (1 - 1e-12)).astype(np.int64)
        return np.minimum(places, count)

    if need == 0:
        return np.zeros(steps.reaches.size, dtype=np.int64)
    low, high = 0.0, steps.multiplier(need) * (1 + 1e-9)
    if float(steps.reaches @ rounded(high)) * level < need:
        return np.full(steps.reaches.size, count, dtype=np.int64)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        enough = float(steps.reaches @ rounded(middle)) * level >= need
        low, high = (low, middle) if enough else (middle, high)
    return rounded(high)


def _level_of_lag(blocks: list[list[int]], last_steps: int, levels: int) -> IntArray:
    counts, places = (np.array(column, dtype=np.int64) for column in zip(*blocks, strict=True))
    inside = np.all((places >= 0) & (places < levels) & (counts >= 1))
    if int(counts.sum()) != last_steps or not inside:
        raise InvalidInput(f"a plan must give each of {last_steps} steps one of its levels")
    return np.repeat(places, counts)[::-1]
