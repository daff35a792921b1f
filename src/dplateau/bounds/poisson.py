"""Poisson-sampled SGD with a hidden state: the main theorem, and what its forms share.

If the step map of the common records' batch contracts by c, then for any R and shifts a that absorb
the distance u at step T - R, the last iterates are dominated, in both orders, by the product over
the last R steps of (1-q) N(a_t, nu^2) + q N(a_t + r, nu^2) against N(0, nu^2). The proof is in
docs/theory/poisson.md. The forms differ in the start: the largest distance possible, one exceeded
with small probability, or an average over the law of the distance.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dplateau.algorithms import NoisySGD, Run
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.batch_cap import BatchCap, batch_cap, cap_of, capped_step_map
from dplateau.bounds.iteration import CONTRACTION, geometry_assumptions, has_schedule
from dplateau.bounds.shift_levels import SampledSteps, absorbs, shared_levels
from dplateau.bounds.step_maps import why_no_contraction, why_no_geometry
from dplateau.curves import AveragedLossCurve
from dplateau.errors import InvalidInput
from dplateau.numerics.bernoulli_sums import UpperTail, upper_tail
from dplateau.numerics.normal import gaussian_delta
from dplateau.numerics.pairs import PoissonPair
from dplateau.numerics.privacy_loss import epsilon_over_counts
from dplateau.numerics.types import FloatArray, IntArray

# Starts further back than this are not told apart: the weights c^j beyond are charged in full.
_MOST_TERMS = 1 << 20
_MOST_LAST_STEPS = 1 << 20
# A curve over lengths is planned anew where epsilon has grown by this factor.
_CURVE_STEP = 1.01


@dataclass(frozen=True)
class Setting:
    """What the theorem needs to know of a run; lengths in units of the noise in parameter space."""

    contraction: float
    sampling_rate: float
    step: float
    diameter: float
    steps: int
    extra_delta: float

    def last(self, count: int) -> SampledSteps:
        """Return the last ``count`` steps."""
        return SampledSteps(self.contraction, self.sampling_rate, self.step, count)

    def largest_start(self, last_steps: int) -> float:
        """Return the forward distance at step T - R: min(D, r (1 - c^tau) / (1 - c))."""
        weights = self.last(1).sum_of_weights(np.array(float(self.steps - last_steps)))
        return min(self.diameter, self.step * float(weights) * (1 + 1e-12))

    @property
    def memory(self) -> int:
        """Return the age beyond which all older steps together weigh next to nothing."""
        if self.contraction >= 1:
            return self.steps
        return math.ceil((14.0 - math.log1p(-self.contraction)) / self.last(1).log_rate)

    def start_tail(self, last_steps: int) -> UpperTail | None:
        """Return the law of sum_j c^j I_j over the steps before the last ``last_steps``.

        Steps of an age at which all the older ones together weigh next to nothing are charged in
        full, so that long runs share one law. None if there are too many steps to tell apart.
        """
        before = self.steps - last_steps
        kept = min(before, self.memory)
        if kept > _MOST_TERMS:
            return None
        return _start_tail(self.contraction, self.sampling_rate, kept, kept < before)


@lru_cache(maxsize=512)
def _start_tail(contraction: float, rate: float, kept: int, older: bool) -> UpperTail:
    tail = upper_tail(contraction ** np.arange(kept, dtype=float), rate).thinned(8)
    rest = contraction**kept / (1 - contraction) * (1 + 1e-9) if older else 0.0
    return UpperTail(tail.points + rest, tail.tails)


@dataclass(frozen=True)
class Detail:
    """How finely starts and shifts are told apart, and epsilon resolved."""

    levels: int
    buckets_skipped: int
    resolution: float


FINE = Detail(levels=32, buckets_skipped=1, resolution=1e-3)
COARSE = Detail(levels=10, buckets_skipped=3, resolution=2e-2)


@dataclass(frozen=True)
class Start:
    """Distances at step T - R: ``weights[k]`` is the chance of at most ``edges[k]``, not less.

    ``beyond`` is the chance of a distance that no edge covers; it is charged in full.
    """

    edges: tuple[float, ...]
    weights: tuple[float, ...]
    beyond: float


class PoissonBound(Bound):
    """The main theorem for a contraction; subclasses choose how the start is bounded."""

    hidden_state = True

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive Poisson-sampled descent, if so."""
        reason = why_not_poisson(run)
        if reason is not None:
            return reason
        assert isinstance(run, NoisySGD)
        if run.neighbors != "add_remove":
            return "is about neighbors='add_remove'; for 'replace' see the split and group forms"
        return why_no_capped_contraction(run)

    @abstractmethod
    def start(self, setting: Setting, last_steps: int, delta: float, detail: Detail) -> Start:
        """Return the possible distances at step T - R."""

    def plan(self, run: Run, delta: float) -> Witness:
        """Search the number R of last steps by cheap versions of the bound, then plan in full."""
        assert isinstance(run, NoisySGD)
        cap = batch_cap(run, delta)
        setting = setting_of(run, cap)

        def surrogate(last_steps: int) -> float:
            start = self.start(setting, last_steps, delta, COARSE)
            return surrogate_epsilon(setting, last_steps, start, delta)

        def coarse(last_steps: int) -> float:
            witness = self._witness(setting, cap, last_steps, delta, COARSE)
            curve = self.curve(run, witness)
            return replace(curve, resolution=COARSE.resolution).epsilon(delta)

        def fine(last_steps: int) -> tuple[float, Witness]:
            witness = self._witness(setting, cap, last_steps, delta, FINE)
            return self.curve(run, witness).epsilon(delta), witness

        return shortened(setting, best_last_steps(setting, surrogate, coarse), fine)

    def replan(self, run: Run, delta: float, near: Witness) -> Witness:
        """Keep the number of last steps, whose search takes most of the time."""
        assert isinstance(run, NoisySGD)
        cap = batch_cap(run, delta)
        setting = setting_of(run, cap)
        if setting.contraction > 1:
            return self.plan(run, delta)
        return self._witness(setting, cap, min(near["last_steps"], run.steps), delta, FINE)

    def _witness(
        self, setting: Setting, cap: BatchCap, last_steps: int, delta: float, detail: Detail
    ) -> Witness:
        start = self.start(setting, last_steps, delta, detail)
        steps = setting.last(last_steps)
        largest = max(steps.largest_shift(edge) for edge in start.edges)
        levels = shared_levels(largest, detail.levels)
        return {
            "losses": CONTRACTION,
            "contraction": setting.contraction,
            "batch_cap": cap.records,
            "last_steps": last_steps,
            "levels": levels.tolist(),
            "edges": list(start.edges),
            "weights": list(start.weights),
            "beyond": start.beyond,
            "extra_delta": setting.extra_delta,
            "counts": [steps.plan(edge, levels).tolist() for edge in start.edges],
        }

    def curve(self, run: Run, witness: Witness) -> AveragedLossCurve:
        """Check that every plan absorbs its start, and compose."""
        assert isinstance(run, NoisySGD)
        setting = setting_of(run, cap_of(run, int(witness["batch_cap"])))
        last_steps = int(witness["last_steps"])
        steps, levels = setting.last(last_steps), np.array(witness["levels"], dtype=float)
        start = self.checked_start(setting, last_steps, tuple(witness["edges"]))
        if setting.contraction > 1 and start.edges[-1] > 0:
            raise InvalidInput("a start is absorbed only by steps that do not expand")
        for edge, counts in zip(start.edges, witness["counts"], strict=True):
            if not absorbs(steps, edge, np.array(counts), levels):
                raise InvalidInput(f"the plan for a start at {edge:g} does not absorb it")
        return AveragedLossCurve(
            pairs=tuple(
                PoissonPair(setting.sampling_rate, setting.step, shift)
                for shift in (0.0, *levels.tolist())
            ),
            counts=tuple(tuple(counts) for counts in witness["counts"]),
            weights=start.weights,
            extra_delta=start.beyond + setting.extra_delta,
        )

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Return epsilon at each length, within about two percent of planning each on its own.

        For a given R and given cuts only the weights of the start depend on the length, so a few
        families of compositions serve all lengths. Short runs, for which no start is worth
        absorbing, are composed.
        """
        assert isinstance(run, NoisySGD)
        lengths = np.unique(steps)
        longest = run.replace(steps=int(lengths[-1]))
        cap = batch_cap(longest, delta)
        setting = setting_of(longest, cap)
        top = min(int(self.plan(longest, delta)["last_steps"]), _MOST_LAST_STEPS)
        found = np.full(lengths.size, np.inf)
        short = lengths <= 4 * top  # beyond, a start is worth absorbing
        found[short] = epsilon_over_counts(
            PoissonPair(setting.sampling_rate, setting.step), lengths[short], delta, rtol=1e-2
        )
        for last_steps in np.unique(np.geomspace(max(1.0, top / 20), top, 16).round()).tolist():
            witness = self._witness(setting, cap, int(last_steps), delta, FINE)
            curve = self.curve(longest, witness)
            enough = lengths >= last_steps
            planned = epsilon_by_start(
                setting, int(last_steps), curve, witness["edges"], lengths[enough], delta
            )
            found[enough] = np.minimum(found[enough], planned)
        # A claim for a longer run covers a shorter one: its pairs are among the longer run's, and
        # absorbing more than needed is allowed.
        found = np.minimum.accumulate(found[::-1])[::-1]
        return found[np.searchsorted(lengths, steps)]

    def checked_start(self, setting: Setting, last_steps: int, edges: tuple[float, ...]) -> Start:
        """Return the start with these edges and weights derived afresh from the law."""
        return averaged_start(setting, last_steps, edges)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the geometry, and the cap on batches."""
        capped = Assumption(
            "learning_rate * (smoothness * |B| / batch_size + l2) <= 2 for every batch up to "
            "a cap; larger batches are charged to delta",
            "checked",
        )
        return (*geometry_assumptions(run, (CONTRACTION,), bounded=True), capped)


def why_not_poisson(run: Run) -> str | None:
    """Return why the run is no Poisson-sampled descent with known constants, or None."""
    if not isinstance(run, NoisySGD) or run.sampling != "poisson":
        found = f"sampling={run.sampling!r}" if isinstance(run, NoisySGD) else run.kind
        return f"is about NoisySGD with sampling='poisson'; yours is {found}"
    if has_schedule(run):
        return "needs the same learning rate and noise at every step; yours has a schedule"
    return why_no_geometry(run)


def why_no_capped_contraction(run: NoisySGD) -> str | None:
    """Return why batches of likely size make the step expand, or None."""
    reason = why_no_contraction(run)
    if reason is not None:
        return reason
    # The cap at a delta far below any that is asked for: what must contract for a clean refusal.
    cap = batch_cap(run, 1e-9)
    return why_no_contraction(run, max(1.0, cap.records / run.batch_size))


def setting_of(run: NoisySGD, cap: BatchCap) -> Setting:
    """Return the run in units of the noise."""
    eta, nu, step = run.learning_rate, run.iterate_std, run.record_step
    assert isinstance(eta, float)
    assert isinstance(nu, float)
    assert isinstance(step, float)
    contraction = capped_step_map(run, cap).contraction(eta)
    assert contraction is not None
    return Setting(
        contraction=contraction.c,
        sampling_rate=run.sampling_rate,
        step=step / nu,
        diameter=run.diameter / nu,
        steps=run.steps,
        extra_delta=cap.extra_delta,
    )


def averaged_start(setting: Setting, last_steps: int, edges: tuple[float, ...]) -> Start:
    """Return the start with these edges (rising), weighted by upper bounds on the tails.

    Weights are differences of tails, 1 = tail of nothing: with deltas that rise from edge to edge
    the average only grows if a tail is over-estimated.
    """
    largest = setting.largest_start(last_steps)
    law = None if edges[0] >= largest else setting.start_tail(last_steps)
    tails = [1.0]
    for edge in edges:
        if edge >= largest:
            tails.append(0.0)
        elif law is None:
            raise InvalidInput("these starts cannot be told apart: there are too many steps")
        else:
            tails.append(min(tails[-1], law.at(edge / setting.step * (1 - 1e-15))))
    weights = tuple(above - below for above, below in pairwise(tails))
    return Start(edges=edges, weights=weights, beyond=tails[-1])


def surrogate_epsilon(setting: Setting, last_steps: int, start: Start, delta: float) -> float:
    """Return about the epsilon of these choices, every row taken for a Gaussian."""
    steps = setting.last(last_steps)
    mus = np.sqrt([steps.surrogate_cost(edge) for edge in start.edges])
    weights, fixed = np.array(start.weights), start.beyond + setting.extra_delta
    low, high = 0.0, 1.0

    def over(epsilon: float) -> bool:
        return float(weights @ gaussian_delta(np.full(mus.size, epsilon), mus)) + fixed > delta

    while over(high):
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    for _ in range(18):
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) else (low, middle)
    return high


def best_last_steps(
    setting: Setting,
    surrogate: Callable[[int], float],
    evaluated: Callable[[int], float],
) -> int:
    """Return a good number R of last steps: every R is valid, so the search may be heuristic.

    The surrogate ranks R over its whole range; evaluations then walk downhill from its best.
    """
    if setting.contraction > 1:
        return setting.steps  # the cap for a tiny delta lets steps expand: compose all of them
    most = min(setting.steps, _MOST_LAST_STEPS)
    if setting.contraction < 1:
        most = min(most, math.ceil(60.0 / setting.last(1).log_rate) + 1)
    candidates = {int(count) for count in np.geomspace(1, most, 28).round()}
    if setting.steps <= _MOST_LAST_STEPS:
        candidates.add(setting.steps)
    best = min(sorted(candidates), key=surrogate)
    found = {best: evaluated(best)}
    for factor in (1.3, 1.12):
        moved = True
        while moved:
            moved = False
            for near in (round(best / factor), round(best * factor)):
                near = min(max(near, 1), most)
                if near not in found:
                    found[near] = evaluated(near)
                if found[near] < found[best]:
                    best, moved = near, True
                    break
    return best


def shortened(
    setting: Setting, last_steps: int, fine: Callable[[int], tuple[float, Witness]]
) -> Witness:
    """Return the witness in full detail, with fewer last steps while that helps.

    Coarse buckets over-state the start, which favours too many last steps.
    """
    best = fine(last_steps)
    while setting.contraction <= 1:
        fewer = math.floor(last_steps / 1.08)
        tried = fine(fewer) if 1 <= fewer < last_steps else best
        if tried[0] >= best[0]:
            return best[1]
        last_steps, best = fewer, tried
    return best[1]


def fill_from_plans(
    lengths: IntArray, found: FloatArray, planned: Callable[[int], tuple[float, int]]
) -> None:
    """Lower ``found`` (composition at each length) by plans at as few lengths as needed."""
    plans = {lengths.size - 1: planned(lengths.size - 1)}
    stack = [(-1, lengths.size - 1)]
    while stack:
        low, high = stack.pop()
        epsilon, last_steps = plans[high]
        covered = np.arange(low + 1, high + 1)
        covered = covered[lengths[covered] >= last_steps]
        found[covered] = np.minimum(found[covered], epsilon)
        reached = plans[low][0] if low >= 0 else 0.0
        # Below a length at which planning gains nothing, composition stands.
        if high - low <= 1 or epsilon <= _CURVE_STEP * reached:
            continue
        middle = (low + high) // 2
        plans[middle] = planned(middle)
        stack.append((middle, high))
        if plans[middle][0] < found[middle] * 0.999:
            stack.append((low, middle))


def epsilon_by_start(
    setting: Setting,
    last_steps: int,
    curve: AveragedLossCurve,
    edges: Sequence[float],
    lengths: IntArray,
    delta: float,
) -> FloatArray:
    """Return epsilon at every length of at least R steps, from one family of compositions.

    The start of a longer run is larger, so the number of steps before the last R is rounded up to
    a coarse grid; epsilon is rounded up to a grid as well.
    """
    before = _rounded_up(lengths - last_steps)
    # Beyond the memory all lengths have the start of the longest.
    before[before > setting.memory] = before.max()
    knots, place = np.unique(before, return_inverse=True)
    starts = [
        averaged_start(replace(setting, steps=last_steps + int(knot)), last_steps, tuple(edges))
        for knot in knots
    ]
    weights = np.array([start.weights for start in starts])
    fixed = np.array([start.beyond for start in starts]) + setting.extra_delta
    epsilons = curve.epsilon(delta) * np.r_[np.geomspace(1e-3, 1.0, 1400), 1.0 + 1e-6]
    deltas = curve.average_deltas(epsilons, weights, delta) + fixed[:, None]
    private = deltas <= delta
    found: FloatArray = np.where(private.any(axis=1), epsilons[np.argmax(private, axis=1)], np.inf)[
        place
    ]
    return found


def _rounded_up(counts: IntArray) -> IntArray:
    """Round counts up by at most three percent, so that many share one start law."""
    most = int(counts.max())
    powers = np.ceil(1.03 ** np.arange(math.ceil(math.log(most + 2) / math.log(1.03)) + 1))
    grid = np.unique(np.r_[0, powers.astype(np.int64)])
    rounded: IntArray = np.minimum(grid[np.searchsorted(grid, counts)], most)
    return rounded
