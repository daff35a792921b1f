"""Proved lower bounds over the numbers of steps, or over the positions of a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import Run
from dplateau.algorithms.schedule import extremes
from dplateau.audit.lower_bounds import lower_bound
from dplateau.errors import NotApplicable
from dplateau.ground.progress import counting
from dplateau.ground.types import FloatArray, IntArray

# A wide domain makes an exact run slow: (noises across at most, points to compute).
_POINTS_BY_WIDTH = ((30.0, 60), (120.0, 16), (300.0, 7), (float("inf"), 4))
# So do a random end, and noise without a transform to use; the latter in every step.
_POINTS_IF_SLOW = 12
_MOST_LAPLACE_STEPS = 300


@dataclass(frozen=True, eq=False)
class LowerPoints:
    """What no claim may undercut, at some numbers of steps (or positions of a record).

    ``notes`` says where nothing was proved and why.
    """

    at: IntArray
    epsilon: FloatArray
    notes: tuple[str, ...] = ()


def lower_at(lower: LowerPoints | None, places: IntArray) -> FloatArray:
    """Return the bounds at ``places``, and nan where none was computed."""
    if lower is None:
        return np.full(places.shape, np.nan)
    known = dict(zip(lower.at.tolist(), lower.epsilon.tolist(), strict=True))
    return np.array([known.get(place, np.nan) for place in places.tolist()])


def lower_over_steps(run: Run, delta: float, steps: Sequence[int] | IntArray) -> LowerPoints:
    """Return proved lower bounds at some of the numbers of steps, ends included.

    >>> from dplateau import LossGeometry, NoisyGD
    >>> run = NoisyGD(n=10, steps=1, learning_rate=0.5, l2=0.1, noise_std=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True))
    >>> lower_over_steps(run, 1e-5, [1, 100]).epsilon.round(4)
    array([0.3407, 2.5406])
    """
    chosen = _evenly(np.unique(np.asarray(steps, dtype=np.int64)), _affordable(run))
    return _collect(chosen, lambda count: _exact(run.replace(steps=count), delta), "T")


def lower_over_records(run: Run, delta: float, positions: Sequence[int] | IntArray) -> LowerPoints:
    """Return proved lower bounds at some of the batch positions (from 1), densest at the end.

    A record's loss changes most over the last few positions.
    """
    chosen = _densest_at_the_end(np.unique(np.asarray(positions, dtype=np.int64)), _affordable(run))

    def bound(position: int) -> float:
        return _exact(run, delta, position - 1)

    return _collect(chosen, bound, "position")


def lower_count(run: Run, places: IntArray) -> int:
    """Return at how many of the places a lower bound would be computed, at most."""
    return min(_affordable(run), int(np.unique(places).size))


def _evenly(places: IntArray, most: int) -> IntArray:
    if places.size <= most:
        return places
    return places[np.linspace(0, places.size - 1, most).round().astype(np.int64)]


def _densest_at_the_end(places: IntArray, most: int) -> IntArray:
    if places.size <= most:
        return places
    back = np.geomspace(1, places.size, most).round().astype(np.int64)
    return places[np.unique(places.size - back)]


def _affordable(run: Run) -> int:
    width = _noises_across(run)
    most = next(count for widest, count in _POINTS_BY_WIDTH if width <= widest)
    slow = run.stops_at_random or run.noise_kind == "laplace"
    return min(most, _POINTS_IF_SLOW) if slow else most


def _noises_across(run: Run) -> float:
    """Return the domain's diameter in units of the noise (0 if there is none)."""
    if run.domain is None or run.learning_rate is None:
        return 0.0
    try:
        noise = run.iterate_std
    except NotApplicable:
        return 0.0
    return run.diameter / extremes(noise)[0]


def _exact(run: Run, delta: float, position: int | None = None) -> float:
    if run.noise_kind == "laplace" and run.steps > _MOST_LAPLACE_STEPS:
        raise NotApplicable(
            f"with Laplace noise it takes too long beyond {_MOST_LAPLACE_STEPS} steps"
        )
    return lower_bound(run, delta, position=position).epsilon


def _listed(places: list[int]) -> str:
    if len(places) <= 3:
        return ", ".join(map(str, places))
    return f"{places[0]}, {places[1]}, ..., {places[-1]} ({len(places)} points)"


def _collect(places: IntArray, bound: Callable[[int], float], name: str) -> LowerPoints:
    kept, epsilons = [], []
    refusals: dict[str, list[int]] = {}
    with counting("lower bounds", places.size) as advance:
        for place in places.tolist():
            try:
                epsilons.append(bound(place))
                kept.append(place)
            except NotApplicable as reason:
                refusals.setdefault(str(reason), []).append(place)
            advance(1)
    notes = [
        f"no lower bound at {name} = {_listed(where)}: {reason}"
        for reason, where in refusals.items()
    ]
    return LowerPoints(np.array(kept, dtype=np.int64), np.array(epsilons), tuple(notes))
