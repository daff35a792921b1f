"""epsilon as a function of the number of steps, for every bound in one call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import Run, require_run
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray, IntArray


@dataclass(frozen=True)
class BoundOverSteps:
    """One bound's epsilon at each number of steps (infinite where it says nothing)."""

    bound: str
    title: str
    hidden_state: bool
    epsilon: FloatArray


@dataclass(frozen=True)
class EpsilonOverSteps:
    """Every bound that applies, over the same numbers of steps."""

    run: Run
    delta: float
    steps: IntArray
    bounds: tuple[BoundOverSteps, ...]

    @property
    def best(self) -> FloatArray:
        """The smallest epsilon at each number of steps."""
        lowest: FloatArray = np.min([line.epsilon for line in self.bounds], axis=0)
        return lowest

    def epsilon(self, bound: str) -> FloatArray:
        """Return one bound's epsilons."""
        for line in self.bounds:
            if line.bound == bound:
                return line.epsilon
        raise InvalidInput(
            f"{bound!r} does not apply here; there are {[b.bound for b in self.bounds]}"
        )


def epsilon_over_steps(
    run: Run,
    delta: float,
    steps: Sequence[int] | IntArray,
    *,
    bounds: Iterable[Bound] | None = None,
) -> EpsilonOverSteps:
    """Return epsilon at ``delta`` for ``run`` cut or extended to each of ``steps``.

    >>> from dplateau import NoisyGD
    >>> run = NoisyGD(n=100, steps=1, noise_multiplier=1.0, release="all")
    >>> epsilon_over_steps(run, 1e-5, [1, 4]).best.round(3)
    array([4.377, 9.997])
    """
    level = checks.probability("delta", delta)
    counts = np.asarray(steps)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or counts.size == 0 or counts.min() < 1:
        raise InvalidInput("steps must be a list of whole numbers, each at least 1")
    counts = counts.astype(np.int64)
    if require_run(run).duration.name not in run.parameters():
        raise InvalidInput(f"{run.kind} has no number of steps to vary; its length is its data's")
    if run.has_schedule:
        raise InvalidInput(
            "a run with schedules has one length; epsilon over steps needs constants"
        )
    _, longest = (run.replace(steps=int(count)) for count in (counts.min(), counts.max()))
    chosen = [b for b in (BOUNDS if bounds is None else bounds) if b.sound]
    lines = [
        BoundOverSteps(
            bound.name,
            bound.title,
            bound.hidden_state,
            bound.claims(bound.epsilon_over_steps_for(run, level, counts)),
        )
        for bound in chosen
        if bound.refusal(longest) is None
    ]
    if not lines:
        raise InvalidInput("no bound applies to this run; compare(run, delta) says why")
    return EpsilonOverSteps(run, level, counts, tuple(lines))
