"""Random batches with a hidden state: how far apart two runs can be when the last R steps begin.

Fixed-size batches absorb that start over the last steps, as do all batches under moduli that are no
contraction (docs/theory/poisson.md); contractions under Poisson sampling have bounds/blocks.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dplateau.algorithms import Poisson, Run
from dplateau.bounds.base import Witness, why_not_about
from dplateau.bounds.batch_cap import BatchCap, batch_cap, capped_step_map
from dplateau.bounds.iteration import has_schedule
from dplateau.bounds.shift_levels import SampledSteps
from dplateau.bounds.step_maps import why_no_contraction, why_no_geometry
from dplateau.errors import InvalidInput
from dplateau.numerics.bernoulli_sums import UpperTail, upper_tail

# Starts further back than this are not told apart: the weights c^j beyond are charged in full.
_MOST_TERMS = 1 << 20
_MOST_LAST_STEPS = 1 << 20
# A curve over lengths is planned anew where epsilon has grown by this factor.
_CURVE_STEP = 1.01

# Chances at which an averaged start is cut into buckets, down to a small share of delta.
_USUAL_LEVELS = (0.8, 0.6, 0.42, 0.28, 0.18, 0.11, 0.06, 0.03, 0.015)
_RARE_LEVELS = 8
_SHARE_BEYOND = 1e-3


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


def why_not_poisson(run: Run) -> str | None:
    """Return why the run is no Poisson-sampled descent with known constants, or None."""
    about = why_not_about(run, Poisson)
    if about is not None:
        return about
    if has_schedule(run):
        return "needs the same learning rate and noise at every step; yours has a schedule"
    return why_no_geometry(run)


def why_no_capped_contraction(run: Run) -> str | None:
    """Return why batches of likely size make the step expand, or None."""
    reason = why_no_contraction(run)
    if reason is not None:
        return reason
    # The cap at a delta far below any that is asked for: what must contract for a clean refusal.
    cap = batch_cap(run, 1e-9)
    return why_no_contraction(run, max(1.0, cap.records / run.batch_size))


def setting_of(run: Run, cap: BatchCap) -> Setting:
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


def start_levels(delta: float, detail: Detail) -> tuple[float, ...]:
    """Return the tail levels at which starts are cut into buckets; the last is always kept."""
    rare = np.geomspace(_USUAL_LEVELS[-1], delta * _SHARE_BEYOND, _RARE_LEVELS + 1)[1:]
    levels = (*_USUAL_LEVELS, *(float(level) for level in rare))
    return levels[:: -detail.buckets_skipped][::-1]


def cut_start(setting: Setting, last_steps: int, levels: tuple[float, ...]) -> Start:
    """Return the start cut where the tail falls to each level."""
    largest = setting.largest_start(last_steps)
    law = setting.start_tail(last_steps)
    if law is None or largest == 0:
        return averaged_start(setting, last_steps, (largest,))
    edges = {min(largest, law.edge(level) * setting.step * (1 + 1e-12)) for level in levels}
    return averaged_start(setting, last_steps, tuple(sorted(edges)))
