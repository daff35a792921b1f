"""Amplification by iteration for batches known in advance: from a run to its shift program.

All the bounds of this kind differ only in when the record is used; what they share stands here.
The proof is that of shifted interpolation (docs/theory/shift-program.md): every feasible plan of
shifts proves mu-GDP with mu^2 its sum of squares.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    Schedule,
    Scheme,
    refuse_batches,
)
from dplateau.algorithms.schedule import values_over
from dplateau.bounds.base import Assumption, Bound, Witness, why_not_about
from dplateau.bounds.step_maps import StepMap, why_no_contraction
from dplateau.curves import GaussianCurve
from dplateau.numerics.types import BoolArray
from dplateau.shifts import Chain, Modulus, Segment, ShiftPlan, evaluate, solve

CONTRACTION = "convex and smooth"
_SQRT_UP = 1 + 4e-16


@dataclass(frozen=True)
class Pattern:
    """When the record is used: every ``period`` steps, the last time ``trailing`` steps before T.

    ``uses`` counts how often. Steps before the first use change nothing, so a pattern may reach
    back before step 0.
    """

    period: int
    trailing: int
    uses: int

    def at_steps(self, steps: int) -> BoolArray:
        """Return a flag for each step."""
        flags = np.zeros(steps, dtype=np.bool_)
        last = steps - 1 - self.trailing
        flags[last :: -self.period][: self.uses] = True
        return flags


def every_step(run: Run) -> Pattern:
    """Return the pattern of a record that is used at every step."""
    return Pattern(period=1, trailing=0, uses=run.steps)


def at_position(run: Run, position: int) -> Pattern:
    """Return the pattern of a record in the batch ``position`` (from 0) of each epoch."""
    length = run.batches_per_epoch
    uses = -(-(run.steps - position) // length)
    trailing = run.steps - 1 - position - (uses - 1) * length
    return Pattern(period=length, trailing=trailing, uses=uses)


def latest_position(run: Run) -> int:
    """Return the position of the batch that the last step uses.

    With equal steps no record is exposed more than its: steps after a record's last use are
    post-processing, and an earlier last use never comes with more uses.
    """
    return (run.steps - 1) % run.batches_per_epoch


def step_map(run: Run) -> StepMap:
    """Return the step map of the records that both neighbours share, batches being known."""
    assert run.loss is not None
    smallest = _smallest_batch(run)
    return StepMap(
        loss=run.loss,
        l2=run.l2,
        least_fraction=max(0.0, (smallest - 1) / run.batch_size),
        most_fraction=1.0,
    )


def _smallest_batch(run: Run) -> float:
    match run.batches:
        case FullBatch():
            return run.n
        case Cyclic(size=size) | OnePass(size=size):
            return run.n % size or size
        case FixedSize(size=size):
            return size
        case Poisson():
            return 0
        case _ as unknown:
            refuse_batches(unknown)


def chain_of(
    run: Run,
    pattern: Pattern,
    losses: str,
    *,
    bounded: bool = True,
    maps: StepMap | None = None,
) -> Chain:
    """Return the shift program of one record's pattern under one class of losses.

    ``bounded=False`` forgets the domain, which is always allowed. ``maps`` are the step maps of the
    common records where :func:`step_map` does not know their number.
    """
    maps = step_map(run) if maps is None else maps
    diameter = run.diameter if bounded else math.inf

    def modulus(eta: float) -> Modulus:
        return maps.moduli(eta)[losses]

    if isinstance(run.learning_rate, Schedule) or isinstance(run.iterate_std, Schedule):
        return Chain.of(list(_scheduled(run, pattern, modulus)), diameter=diameter)
    assert isinstance(run.learning_rate, float)
    assert isinstance(run.iterate_std, float)
    eta, nu = run.learning_rate, run.iterate_std
    reach = _sensitivity(run, eta)
    before = pattern.period - 1 - pattern.trailing
    period = [(before, 0.0), (1, reach), (pattern.trailing, 0.0)]
    segments = [Segment(count, modulus(eta), s, nu) for count, s in period if count > 0]
    if before < 0:  # one use only, followed by more steps than a period
        segments = [
            Segment(1, modulus(eta), reach, nu),
            Segment(pattern.trailing, modulus(eta), 0.0, nu),
        ]
    return Chain.of(segments, repeats=pattern.uses, diameter=diameter)


def _sensitivity(run: Run, eta: float) -> float:
    assert run.lipschitz is not None
    return run.neighbor_factor * eta * run.lipschitz / run.batch_size


def _scheduled(
    run: Run, pattern: Pattern, modulus: Callable[[float], Modulus]
) -> Iterator[Segment]:
    """Yield runs of equal steps of a run with schedules."""
    assert run.learning_rate is not None
    etas = values_over(run.learning_rate, run.steps)
    stds = values_over(run.iterate_std, run.steps)
    used = pattern.at_steps(run.steps)
    new = (etas[1:] != etas[:-1]) | (stds[1:] != stds[:-1]) | (used[1:] != used[:-1])
    starts = np.flatnonzero(np.r_[True, new])
    counts = np.diff(np.r_[starts, run.steps])
    for start, count in zip(starts, counts, strict=True):
        eta = float(etas[start])
        reach = _sensitivity(run, eta) if used[start] else 0.0
        yield Segment(int(count), modulus(eta), reach, float(stds[start]))


def has_schedule(run: Run) -> bool:
    """Return whether anything changes from step to step."""
    return run.has_schedule


class ShiftBound(Bound):
    """A bound whose witness is one shift plan for the most exposed record."""

    hidden_state = True
    bounded = True

    @abstractmethod
    def pattern(self, run: Run) -> Pattern:
        """Return when the most exposed record is used."""

    def losses(self, run: Run) -> tuple[str, ...]:
        """Return the classes of losses whose moduli may be used."""
        return (CONTRACTION,)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest plan over the classes of losses that apply."""
        found = []
        for losses in self.losses(run):
            chain = chain_of(run, self.pattern(run), losses, bounded=self.bounded)
            found.append((solve(chain), losses))
        best, losses = min(found, key=lambda item: item[0].sum_of_squares)
        return {
            "losses": losses,
            **vars(self.pattern(run)),
            "bounded": self.bounded,
            "plan": best.plan.to_dict(),
            "sum_of_squares": best.sum_of_squares,
        }

    def curve(self, run: Run, witness: Witness) -> GaussianCurve:
        """Return the Gaussian curve of the re-evaluated plan."""
        return GaussianCurve(math.sqrt(self.sum_of_squares(run, witness)) * _SQRT_UP)

    def sum_of_squares(self, run: Run, witness: Witness) -> float:
        """Return mu^2, re-evaluated from the witness's plan."""
        chain = chain_of(run, self.pattern(run), witness["losses"], bounded=self.bounded)
        return evaluate(ShiftPlan.from_dict(witness["plan"]), chain).sum_of_squares

    def record_curve(self, run: Run, position: int) -> GaussianCurve:
        """Return the curve of a record in the batch ``position`` (from 0) of each epoch."""
        if position >= run.steps:
            return GaussianCurve(0.0)  # the run ends before its turn
        chains = [
            chain_of(run, at_position(run, position), losses, bounded=self.bounded)
            for losses in self.losses(run)
        ]
        least = min(solve(chain).sum_of_squares for chain in chains)
        return GaussianCurve(math.sqrt(least) * _SQRT_UP)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the geometry that was declared and checked."""
        return geometry_assumptions(run, self.losses(run), bounded=self.bounded)


def geometry_assumptions(
    run: Run, losses: tuple[str, ...], *, bounded: bool
) -> tuple[Assumption, ...]:
    """Return what a last-iterate bound adds to the usual assumptions."""
    found = [
        Assumption(f"every record's loss is {' or '.join(losses)}, as declared", "declared"),
        Assumption("the ridge term covers every coordinate, the intercept included", "declared"),
    ]
    if CONTRACTION in losses:
        found.append(Assumption("learning_rate * (smoothness + 2 * l2) <= 2", "checked"))
    if bounded and run.domain is not None:
        found.append(Assumption("every iterate is projected onto the convex domain", "declared"))
    return tuple(found)


def why_no_deterministic_contraction(run: Run, scheme: Scheme) -> str | None:
    """Return why a contraction bound for such batches does not apply, or None."""
    return why_not_about(run, scheme) or why_no_contraction(run)
