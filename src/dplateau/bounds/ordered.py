"""Batches in order, contractive steps: cyclic, shuffled, one pass (docs/theory/ordered.md).

Where steps are alike, no record is exposed more than one of the last batch. With a schedule, or a
shorter last batch of strongly convex losses, every position in an epoch has its own program;
contractions have linear moduli, and then the programs of all positions are solved together
(:mod:`dplateau.shifts.positions`). What a claim rests on is where each of them starts.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from dplateau.algorithms import Cyclic, OnePass, Run
from dplateau.algorithms.schedule import values_over
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.iteration import (
    Pattern,
    ShiftBound,
    at_position,
    batch_records,
    chain_of,
    gaussian_of,
    geometry_assumptions,
    latest_position,
    moduli_of,
    record_reach,
    step_map,
    steps_are_alike,
    why_no_deterministic_contraction,
)
from dplateau.bounds.step_maps import linear_class
from dplateau.curves import GaussianCurve, MixtureCurve
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.shifts import Chain, Linear, Segment, ShiftPlan, evaluate, solve
from dplateau.shifts.positions import EpochSteps, position_costs, reshuffled

# Longer runs would need gigabytes.
MOST_STEPS = 10**7
_UP = 1 + 4e-16


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
    reach = np.array([record_reach(run, eta) for eta in etas.tolist()]) * _UP
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
        return gaussian_of(positions_sum_of_squares(run)[0][position])


class CyclicContraction(OrderedBound):
    """The record is used once an epoch; steps between two uses hide it further.

    Where steps are alike the worst record is in the last batch, whatever the order of the batches:
    an order that uses a record earlier in an epoch only gives it more noise. Otherwise it is the
    worst of all positions (docs/theory/ordered.md).
    """

    name = "cyclic_contraction"
    note = "docs/theory/ordered.md"
    title = "Hidden-state cyclic SGD, worst record"
    citation = literature.shifted_interpolation("Theorem 4.4, by the shift program")

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive cyclic descent, if so."""
        if ends_inside_a_reshuffled_epoch(run):
            return "needs whole epochs when each is reshuffled; yours ends inside one"
        return why_no_deterministic_contraction(run, Cyclic) or why_too_long(run)

    def pattern(self, run: Run) -> Pattern:
        """Return the uses of a record in the batch of the very last step."""
        return at_position(run, latest_position(run))


def ends_inside_a_reshuffled_epoch(run: Run) -> bool:
    """Return whether the last, broken epoch may use a record right after the one before did.

    Then two uses lie closer together than in any kept order, and the worst kept order says nothing.
    """
    match run.batches:
        case Cyclic(order="reshuffle"):
            return run.steps % run.batches_per_epoch != 0
        case _:
            return False


# Positions are grouped, each group charged as its most exposed member; finer near the end.
_GROUPS = 64


@dataclass(frozen=True)
class Slot:
    """A group of positions: the share of records in it, and how its worst member is used."""

    weight: float
    trailing: int
    uses: int


class ShuffledAverage(Bound):
    """delta(eps) <= sum over positions of (share of records there) * theta_eps(mu_position).

    Given the shuffle the run is cyclic; the hockey stick is jointly convex and both neighbours
    are shuffled alike, so averaging over shuffles is sound.
    """

    hidden_state = True
    order: Literal["shuffle_once", "reshuffle"]

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive shuffled descent, if so."""
        if not (isinstance(run.batches, Cyclic) and run.batches.order == self.order):
            return f"is about CyclicSGD with order={self.order!r}; yours is {run.described}"
        return why_no_deterministic_contraction(run, Cyclic) or why_too_long(run)

    @abstractmethod
    def chain(self, run: Run, slot: Slot) -> Chain:
        """Return the shift program of a group's worst member."""

    def plan(self, run: Run, delta: float) -> Witness:
        """Return one plan for each group of positions, or where each position starts."""
        assert run.loss is not None
        if not steps_are_alike(run):
            return _position_witness(run)
        groups = [
            {**vars(slot), "plan": solve(self.chain(run, slot)).plan.to_dict()}
            for slot in slots(run)
        ]
        return {"losses": linear_class(run.loss), "bounded": True, "groups": groups}

    def curve(self, run: Run, witness: Witness) -> MixtureCurve:
        """Return the average over groups, of re-evaluated plans or of their worst positions."""
        if not steps_are_alike(run):
            return _position_average(run, witness)
        curves = []
        for slot, group in zip(slots(run), witness["groups"], strict=True):
            plan = ShiftPlan.from_dict(group["plan"])
            total = evaluate(plan, self.chain(run, slot)).sum_of_squares
            curves.append(gaussian_of(total))
        return MixtureCurve(tuple(slot.weight for slot in slots(run)), tuple(curves))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the geometry, and the shuffle."""
        shuffle = Assumption(
            "the shuffle is uniform, secret and independent of the data", "declared"
        )
        assert run.loss is not None
        return (*geometry_assumptions(run, (linear_class(run.loss),), bounded=True), shuffle)


class ShuffleOnceAverage(ShuffledAverage):
    """One random order for all epochs: the record keeps its position."""

    name = "shuffle_once_average"
    note = "docs/theory/ordered.md"
    title = "Hidden-state SGD, shuffled once"
    citation = literature.this_library("docs/theory/ordered.md, shuffle_once_average")
    order = "shuffle_once"

    def chain(self, run: Run, slot: Slot) -> Chain:
        """Return the cyclic program of that position."""
        assert run.loss is not None
        pattern = Pattern(run.batches_per_epoch, slot.trailing, slot.uses)
        return chain_of(run, pattern, linear_class(run.loss))


class ReshuffleAverage(ShuffledAverage):
    """A fresh order each epoch: average over the last epoch, worst case over the others."""

    name = "reshuffle_average"
    note = "docs/theory/ordered.md"
    title = "Hidden-state SGD, reshuffled"
    citation = literature.this_library("docs/theory/ordered.md, reshuffle_average")
    order = "reshuffle"

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive reshuffled descent of whole epochs, if so."""
        reason = super().missing(run)
        if reason is None and ends_inside_a_reshuffled_epoch(run):
            return "needs whole epochs; yours ends inside one"
        return reason

    def chain(self, run: Run, slot: Slot) -> Chain:
        """Return: used at the end of every epoch but the last, there at the group's position."""
        assert isinstance(run.learning_rate, float)
        assert isinstance(run.iterate_std, float)
        # One constant for all steps: an epoch must not leave more for using the record early.
        modulus = step_map(run).contraction(run.learning_rate)
        assert modulus is not None
        reach, noise_std = record_reach(run, run.learning_rate), run.iterate_std
        parts = _uses_from_the_end(run.batches_per_epoch, slot.uses, slot.trailing)
        segments = [Segment(k, modulus, reach * used, noise_std) for k, used in parts]
        return Chain.of(segments, diameter=run.diameter)


def _uses_from_the_end(length: int, epochs: int, trailing: int) -> list[tuple[int, int]]:
    """Return (number of steps, whether they use the record) over all epochs."""
    early = [(length - 1, 0), (1, 1)] * (epochs - 1)
    last = [(length - 1 - trailing, 0), (1, 1), (trailing, 0)]
    return [(count, used) for count, used in early + last if count]


def slots(run: Run) -> tuple[Slot, ...]:
    """Return the positions, grouped by how many steps follow the last use.

    The member with the fewest later steps (and hence the most uses) stands for its group: more
    steps after a record's last use, or fewer uses, only help it.
    """
    length, size = run.batches_per_epoch, int(run.batch_size)
    trailing = np.arange(length)
    positions = (run.steps - 1 - trailing) % length
    records = np.where(positions == length - 1, run.n - (length - 1) * size, size)
    # A run shorter than an epoch leaves some records out; charging them one use is safe.
    uses = np.maximum(1, -(-(run.steps - positions) // length))
    edges = np.unique(np.r_[0, np.geomspace(1, length, _GROUPS).astype(np.int64)])
    if length <= _GROUPS:
        edges = np.arange(length + 1)
    found = []
    for low, high in pairwise(edges.tolist()):
        weight = float(records[low:high].sum()) / run.n
        found.append(Slot(weight=weight, trailing=low, uses=int(uses[low])))
    return tuple(found)


def _position_witness(run: Run) -> Witness:
    """Return the first position of each group, and where each position's program starts."""
    assert run.loss is not None
    length = min(run.batches_per_epoch, run.steps)
    edges = length - np.unique(np.geomspace(1, length, _GROUPS).astype(np.int64))[::-1]
    return {
        "losses": linear_class(run.loss),
        "bounded": True,
        "edges": edges.tolist(),
        "starts": positions_sum_of_squares(run)[1],
    }


def _position_average(run: Run, witness: Witness) -> MixtureCurve:
    """Return the average over groups of positions, each charged as its worst member.

    Records whose turn does not come are charged nothing.
    """
    edges, length = list(witness["edges"]), min(run.batches_per_epoch, run.steps)
    if edges[:1] != [0] or any(a >= b for a, b in pairwise([*edges, length])):
        raise InvalidInput(f"edges must rise from 0 to below {length}; the witness has {edges!r}")
    costs, _ = positions_sum_of_squares(run, witness["starts"])
    worst = np.maximum.reduceat(costs, edges)
    records = np.add.reduceat(batch_records(run)[:length], edges)
    weights = (records / run.n).tolist()
    curves = [gaussian_of(cost) for cost in worst.tolist()]
    idle = max(0.0, 1 - math.fsum(weights))
    return MixtureCurve((*weights, idle), (*curves, GaussianCurve(0.0)))


class OnePassContraction(OrderedBound):
    """mu_i = (Delta / sigma) / sqrt(sum_{j=0}^{n-i} c^{-2j}) for record i.

    The claim for the whole data set is that of the last record, which no later step hides (with a
    schedule, of the worst); the others are far better off (:meth:`record_curve`).
    """

    name = "one_pass_contraction"
    note = "docs/theory/ordered.md"
    title = "Hidden-state one pass, last record"
    citation = literature.shifted_interpolation("Theorem 4.4 with one epoch, by the shift program")

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive single pass, if so."""
        return why_no_deterministic_contraction(run, OnePass) or why_too_long(run)

    def pattern(self, run: Run) -> Pattern:
        """Return the single use of a record in the last batch."""
        return at_position(run, latest_position(run))
