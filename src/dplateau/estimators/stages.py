"""Models on the way: which iterates leave, what they cost, and when to stop looking.

A stage is a model after a public number of steps: its iterate, or the mean of the last few if the
plan averages. All iterates that stages are made of are checkpoints of the run, so whatever is done
with stages (drawn, validated on public data, compared, left aside) only processes what the
certificate covers. Stopping early does too: the certificate stays that of the steps planned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import Checkpoints, Run
from dplateau.certificates import calibrate, certify
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray
from dplateau.planning import Plan

# So many stages without a better score on public data end a fit.
PATIENCE = 2


@dataclass(frozen=True)
class Stages:
    """After how many steps each model is taken, and of how many last iterates it is the mean."""

    times: tuple[int, ...]
    means: tuple[int, ...]

    @classmethod
    def of(cls, run: Run, count: int) -> Stages:
        """Return equally spaced stages; each averages as large a part of its steps as the run."""
        if count > run.steps:
            raise InvalidInput(f"checkpoints={count}, but the plan takes {run.steps} steps")
        times = tuple(round(run.steps * j / count) for j in range(1, count + 1))
        share = run.average_last / run.steps if run.average_last > 1 else 0.0
        return cls(times, tuple(max(1, int(share * time)) for time in times))

    @property
    def checkpoints(self) -> list[int]:
        """Return after which steps an iterate leaves."""
        spans = zip(self.times, self.means, strict=True)
        return sorted({step for time, mean in spans for step in range(time - mean + 1, time + 1)})

    def release(self) -> Checkpoints:
        """Return the same as a release, in the shortest words."""
        at = self.checkpoints
        return Checkpoints(every=1) if len(at) == self.times[-1] else Checkpoints(at=at)

    def weights(self, path: dict[int, FloatArray]) -> list[FloatArray]:
        """Return the models of all stages that the path has reached."""
        return [
            np.mean([path[step] for step in range(time - mean + 1, time + 1)], axis=0)
            for time, mean in zip(self.times, self.means, strict=True)
            if time in path
        ]


def staged(chosen: Plan, count: object) -> tuple[Plan, Stages]:
    """Return the plan that releases so many stages for what the plan was to cost.

    Where the claim is composition's, the stages are free; a hidden state pays for them with noise.
    """
    stages = Stages.of(chosen.run, checks.whole("checkpoints", count))
    run = chosen.run.replace(average_last=1, release=stages.release())
    target = chosen.gradients
    certificate = certify(run, target.claimed_delta)
    if certificate.claimed_epsilon > target.claimed_epsilon:
        certificate = calibrate(run, target.claimed_epsilon, target.claimed_delta).certificate
    return dataclasses.replace(chosen, run=certificate.run, gradients=certificate), stages


class Watching:
    """Keeps the checkpoints as they come, and ends the run when public data say so."""

    def __init__(self, stages: Stages, score: Callable[[FloatArray], float] | None) -> None:
        self.stages, self.score = stages, score
        self.path: dict[int, FloatArray] = {}
        self.scores: list[float] = []

    def __call__(self, step: int, weights: FloatArray) -> bool:
        """Take a checkpoint, and return whether to stop."""
        self.path[step] = weights
        if self.score is None or step not in self.stages.times:
            return False
        self.scores.append(self.score(self.stages.weights(self.path)[-1]))
        return len(self.scores) - 1 - int(np.argmax(self.scores)) >= PATIENCE

    @property
    def best(self) -> int:
        """Return the stage to keep: the best on public data, or the last."""
        return int(np.argmax(self.scores)) if self.scores else -1
