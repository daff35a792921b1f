"""The end of a run on batches of one size, lag by lag, and how far apart it starts.

Steps are counted from the end: the step of lag 0 is the last one. The distance of the two runs at
step T - R is at most a sum of coin flips, one for each swap before (docs/theory/fixed_size.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dplateau.algorithms import Run, Schedule
from dplateau.algorithms.schedule import PerStep
from dplateau.bounds.iteration import CONTRACTION, chain_of, every_step, step_map
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.bernoulli_laws import AtomLaw, upper_law
from dplateau.shifts import Chain, forward_distance

# More last steps than this are not tried, and older uses are not told apart.
_MOST_LAGS = 1 << 20
# Room for the rounding of products of up to 2^21 contractions.
UP = 1 + 1e-9
# Chances at which a start is cut into buckets, down to a small share of delta.
_USUAL_LEVELS = (0.8, 0.6, 0.42, 0.28, 0.18, 0.11, 0.06, 0.03, 0.015)
_RARE_LEVELS = 8
_SHARE_BEYOND = 1e-3


@dataclass(frozen=True)
class Start:
    """Distances at step T - R: ``weights[k]`` is the chance of at most ``edges[k]``, not less.

    ``beyond`` is the chance of a distance that no edge covers; it is charged in full.
    """

    edges: tuple[float, ...]
    weights: tuple[float, ...]
    beyond: float


@dataclass(frozen=True, eq=False)
class Lags:
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
        found: FloatArray = kept * self.noise[:last_steps]
        return found

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


def lags_of(run: Run) -> Lags:
    """Return the end of a run, as far back as its distances remember."""
    assert run.learning_rate is not None
    maps = step_map(run)
    rates = {value: maps.contraction(value) for value in _values(run.learning_rate)}
    slowest = max(found.c for found in rates.values() if found is not None)
    last_steps = min(run.steps, _MOST_LAGS, _steps_to_decay(60.0, slowest))
    memory = min(_MOST_LAGS, _steps_to_decay(14.0 - math.log1p(-min(slowest, 1 - 1e-16)), slowest))
    count = min(run.steps, last_steps + memory)
    etas = _ends(run.learning_rate, count)
    keep = np.empty(count)
    for eta, found in rates.items():
        assert found is not None
        keep[etas == eta] = found.c
    return Lags(
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


def _values(value: PerStep) -> set[float]:
    return {item for item, _ in value.blocks} if isinstance(value, Schedule) else {value}


def _ends(value: PerStep, count: int) -> FloatArray:
    """Return the values of the last steps, the last one first."""
    if isinstance(value, Schedule):
        found: FloatArray = value.values()[::-1][:count].copy()
        return found
    return np.full(count, value)


def averaged_start(lags: Lags, last_steps: int, edges: tuple[float, ...]) -> Start:
    """Return the start with these edges (rising), weighted by upper bounds on the tails.

    Weights are differences of tails, 1 = tail of nothing: with deltas that rise from edge to edge
    the average only grows if a tail is over-estimated.
    """
    if not edges or any(a >= b for a, b in pairwise(edges)):
        raise InvalidInput(f"the starts of a plan must rise; got {edges!r}")
    largest = lags.largest_start(last_steps)
    law = None if edges[0] >= largest else lags.start_law(last_steps)
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


def cut_start(lags: Lags, last_steps: int, delta: float, buckets_skipped: int) -> Start:
    """Return the start cut where the tail of its law falls to each of some levels."""
    largest = lags.largest_start(last_steps)
    law = lags.start_law(last_steps) if largest > 0 else None
    if law is None:
        return averaged_start(lags, last_steps, (largest,))
    rare = np.geomspace(_USUAL_LEVELS[-1], delta * _SHARE_BEYOND, _RARE_LEVELS + 1)[1:]
    # The rarest is always kept.
    levels = (*_USUAL_LEVELS, *rare.tolist())[::-buckets_skipped]
    edges = {min(largest, law.exceeded_by(level)) for level in levels}
    return averaged_start(lags, last_steps, tuple(sorted(edges)))
