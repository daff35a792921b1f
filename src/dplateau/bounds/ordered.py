"""Ordered batches whose steps are not all alike: every position in an epoch gets its own program.

With a schedule, or a shorter last batch of strongly convex losses, the record of the last step
need not be the most exposed one. Contractions have linear moduli, and then the programs of all
positions are solved together (:mod:`dplateau.shifts.positions`); what a claim rests on is where
each of them starts.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.algorithms import Cyclic, Run
from dplateau.algorithms.schedule import values_over
from dplateau.bounds.base import Witness
from dplateau.bounds.iteration import (
    ShiftBound,
    batch_records,
    moduli_of,
    record_reach,
    steps_are_alike,
)
from dplateau.bounds.step_maps import linear_class
from dplateau.curves import GaussianCurve
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.shifts import Linear
from dplateau.shifts.positions import EpochSteps, position_costs, reshuffled

# Longer runs would need gigabytes.
MOST_STEPS = 10**7
_SQRT_UP = 1 + 4e-16


def epoch_steps(run: Run) -> EpochSteps:
    """Return the steps of an ordered run with a contraction."""
    assert run.learning_rate is not None
    assert run.loss is not None
    etas = values_over(run.learning_rate, run.steps)
    modulus = moduli_of(run, linear_class(run.loss))

    def contraction(eta: float, records: int, used: bool) -> float:
        found = modulus(eta, records, used)
        assert isinstance(found, Linear)
        return found.c

    pairs = list(zip(etas.tolist(), batch_records(run).tolist(), strict=True))
    own = np.array([contraction(eta, records, True) for eta, records in pairs])
    others = np.array([contraction(eta, records, False) for eta, records in pairs])
    reach = np.array([record_reach(run, eta) for eta in etas.tolist()]) * _SQRT_UP
    length = run.batches_per_epoch if isinstance(run.batches, Cyclic) else run.steps
    return EpochSteps(length, others, own, reach, values_over(run.iterate_std, run.steps))


def positions_sum_of_squares(
    run: Run, starts: list[int] | None = None
) -> tuple[FloatArray, list[int] | None]:
    """Return mu^2 of each position in an epoch (of the last one, if reshuffled), and the starts.

    Without a domain every program starts with the run, and there are no starts to keep.
    """
    steps = epoch_steps(run)
    if isinstance(run.batches, Cyclic) and run.batches.order == "reshuffle":
        steps, uses = reshuffled(steps)
    else:
        uses = steps.kept_order()
    given = None if starts is None else np.asarray(starts, dtype=np.int64)
    costs, taken = position_costs(steps, uses, run.diameter, given)
    return costs, None if math.isinf(run.diameter) else taken.tolist()


def why_too_long(run: Run) -> str | None:
    """Return why a run whose steps differ is too long to go through them all, or None."""
    if not steps_are_alike(run) and run.steps > MOST_STEPS:
        return f"goes through steps that differ one by one, up to {MOST_STEPS}; yours: {run.steps}"
    return None


class OrderedBound(ShiftBound):
    """A contraction bound that takes the worst over positions wherever steps are not alike."""

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the plan of the last step's record, or where each position's program starts."""
        if steps_are_alike(run):
            return super().plan(run, delta)
        costs, starts = positions_sum_of_squares(run)
        return {
            "losses": self.losses(run)[0],
            "bounded": self.bounded,
            "position": int(np.argmax(costs)),
            "starts": starts,
            "sum_of_squares": float(costs.max()),
        }

    def sum_of_squares(self, run: Run, witness: Witness) -> float:
        """Return mu^2: of the re-evaluated plan, or the largest of any position."""
        if steps_are_alike(run):
            return super().sum_of_squares(run, witness)
        if witness["losses"] not in self.losses(run):
            raise InvalidInput(f"the run does not justify losses that are {witness['losses']!r}")
        return float(positions_sum_of_squares(run, witness["starts"])[0].max())

    def record_curve(self, run: Run, position: int) -> GaussianCurve:
        """Return the curve of a record in the batch ``position`` (from 0) of each epoch."""
        if steps_are_alike(run) or position >= run.steps:
            return super().record_curve(run, position)
        return GaussianCurve(math.sqrt(positions_sum_of_squares(run)[0][position]) * _SQRT_UP)
