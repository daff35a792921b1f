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

import numpy as np

from dplateau.algorithms import Cyclic, OnePass, Run
from dplateau.algorithms.stated import equal_steps, loss_of
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.conditions import (
    GEOMETRY,
    AboutBatches,
    Asks,
    Contractive,
    HiddenIterates,
    Needs,
    OrderIs,
    WholeEpochs,
)
from dplateau.bounds.iteration import (
    Pattern,
    ShiftBound,
    at_position,
    batch_records,
    chain_of,
    gaussian_of,
    is_reshuffled,
    latest_position,
    per_step_values,
    step_map,
    steps_are_alike,
)
from dplateau.bounds.step_maps import geometry_assumptions, linear_class
from dplateau.curves import GaussianCurve, MixtureCurve
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.shifts import Chain, Segment, ShiftPlan, evaluate, solve
from dplateau.shifts.positions import EpochSteps, position_costs, reshuffled

# Longer runs would need gigabytes.
MOST_STEPS = 10**7
# Positions are grouped, each group charged as its most exposed member; finer near the end.
_GROUPS = 64
_UP = 1 + 4e-16
SHUFFLED = Assumption("the shuffle is uniform, secret and independent of the data", "declared")


def _why_too_long(run: Run) -> str | None:
    if not steps_are_alike(run) and run.steps > MOST_STEPS:
        return f"goes through steps that differ one by one, up to {MOST_STEPS}; yours: {run.steps}"
    return None


CONTRACTIVE_STEPS: Needs = (*GEOMETRY, Contractive(nonconvex=True), Asks(_why_too_long))


# ---- every position -----------------------------------------------------------------------------


def epoch_steps(run: Run) -> EpochSteps:
    """Return the steps of an ordered run with a contraction.

    Where the order changes from epoch to epoch, every step counts as if it used the record.
    """
    etas, stds, reaches = per_step_values(run)
    rates, rate_of = np.unique(etas, return_inverse=True)
    sizes, size_of = np.unique(batch_records(run), return_inverse=True)

    def contractions(used: bool) -> FloatArray:
        maps = [step_map(run, int(size), used=used) for size in sizes]
        table = np.array([[known.contraction(float(eta)).c for eta in rates] for known in maps])
        constants: FloatArray = table[size_of, rate_of]
        return constants

    others, own = contractions(is_reshuffled(run)), contractions(True)
    return EpochSteps(_epoch_length(run), others, own, reaches * _UP, stds)


def _epoch_length(run: Run) -> int:
    match run.batches:
        case Cyclic():
            return run.batches_per_epoch
        case _:
            return run.steps


def positions_sum_of_squares(
    run: Run, starts: list[int] | None = None
) -> tuple[FloatArray, list[int] | None]:
    """Return mu^2 of each position in an epoch (of the last one, if reshuffled), and the starts.

    Without a domain every program starts with the run, and there are no starts to keep.
    """
    steps = epoch_steps(run)
    steps, uses = reshuffled(steps) if is_reshuffled(run) else (steps, steps.kept_order())
    given = None if starts is None else np.asarray(starts, dtype=np.int64)
    costs, taken = position_costs(steps, uses, run.diameter, given)
    return costs, None if math.isinf(run.diameter) else taken.tolist()


class OrderedBound(ShiftBound):
    """The most exposed record: of the last batch, or the worst of all positions if steps differ."""

    note = "docs/theory/ordered.md"

    def pattern(self, run: Run) -> Pattern:
        return at_position(run, latest_position(run))

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

    def _evaluated(self, run: Run, witness: Witness) -> float:
        if steps_are_alike(run):
            return super()._evaluated(run, witness)
        return float(positions_sum_of_squares(run, witness["starts"])[0].max())

    def record_curve(self, run: Run, position: int) -> GaussianCurve:
        """Return the curve of a record in the batch ``position`` (from 0) of each epoch."""
        if steps_are_alike(run) or position >= run.steps:
            return super().record_curve(run, position)
        return gaussian_of(positions_sum_of_squares(run)[0][position])


class CyclicContraction(OrderedBound):
    """The record is used once an epoch; steps between two uses hide it further.

    An order that uses a record earlier in an epoch only gives it more noise, so the worst kept
    order covers every order, in whole epochs.
    """

    name = "cyclic_contraction"
    title = "Hidden-state cyclic SGD, worst record"
    citation = literature.shifted_interpolation("Theorem 4.4, by the shift program")
    needs = (AboutBatches((Cyclic,)), WholeEpochs(), *CONTRACTIVE_STEPS)


class OnePassContraction(OrderedBound):
    """mu_i = (Delta / sigma) / sqrt(sum_{j=0}^{n-i} c^{-2j}) for record i.

    The claim for the whole data set is that of the last record, which no later step hides (with a
    schedule, of the worst); the others are far better off (:meth:`record_curve`).
    """

    name = "one_pass_contraction"
    title = "Hidden-state one pass, last record"
    citation = literature.shifted_interpolation("Theorem 4.4 with one epoch, by the shift program")
    needs = (AboutBatches((OnePass,)), *CONTRACTIVE_STEPS)


# ---- the average over where the shuffle puts the record -----------------------------------------


@dataclass(frozen=True)
class Slot:
    """A group of positions: the share of records in it, and how its worst member is used."""

    weight: float
    trailing: int
    uses: int


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
    return tuple(
        Slot(float(records[low:high].sum()) / run.n, trailing=low, uses=int(uses[low]))
        for low, high in pairwise(edges.tolist())
    )


class ShuffledAverage(Bound):
    """delta(eps) <= sum over positions of (share of records there) * theta_eps(mu_position).

    Given the shuffle the run is cyclic; the hockey stick is jointly convex and both neighbors
    are shuffled alike, so averaging over shuffles is sound.
    """

    note = "docs/theory/ordered.md"
    release = HiddenIterates()

    @abstractmethod
    def chain(self, run: Run, slot: Slot) -> Chain:
        """Return the shift program of a group's worst member."""

    def plan(self, run: Run, delta: float) -> Witness:
        """Return one plan for each group of positions, or where each position starts."""
        named = {"losses": linear_class(loss_of(run)), "bounded": True}
        if steps_are_alike(run):
            groups = [
                {**vars(slot), "plan": solve(self.chain(run, slot)).plan.to_dict()}
                for slot in slots(run)
            ]
            return {**named, "groups": groups}
        length = min(run.batches_per_epoch, run.steps)
        edges = length - np.unique(np.geomspace(1, length, _GROUPS).astype(np.int64))[::-1]
        return {**named, "edges": edges.tolist(), "starts": positions_sum_of_squares(run)[1]}

    def curve(self, run: Run, witness: Witness) -> MixtureCurve:
        """Return the average over groups, of re-evaluated plans or of their worst positions."""
        if not steps_are_alike(run):
            return _position_average(run, witness)
        curves = []
        for slot, group in zip(slots(run), witness["groups"], strict=True):
            plan = ShiftPlan.from_dict(group["plan"])
            curves.append(gaussian_of(evaluate(plan, self.chain(run, slot)).sum_of_squares))
        return MixtureCurve(tuple(slot.weight for slot in slots(run)), tuple(curves))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return (*geometry_assumptions(run, (linear_class(loss_of(run)),)), SHUFFLED)


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


class ShuffleOnceAverage(ShuffledAverage):
    """One random order for all epochs: the record keeps its position."""

    name = "shuffle_once_average"
    title = "Hidden-state SGD, shuffled once"
    citation = literature.this_library("docs/theory/ordered.md, shuffle_once_average")
    needs = (OrderIs(("shuffle_once",)), *CONTRACTIVE_STEPS)

    def chain(self, run: Run, slot: Slot) -> Chain:
        pattern = Pattern(run.batches_per_epoch, slot.trailing, slot.uses)
        return chain_of(run, pattern, linear_class(loss_of(run)))


class ReshuffleAverage(ShuffledAverage):
    """A fresh order each epoch: average over the last epoch, worst case over the others."""

    name = "reshuffle_average"
    title = "Hidden-state SGD, reshuffled"
    citation = literature.this_library("docs/theory/ordered.md, reshuffle_average")
    needs = (OrderIs(("reshuffle",)), *CONTRACTIVE_STEPS, WholeEpochs())

    def chain(self, run: Run, slot: Slot) -> Chain:
        """Return: used at the end of every epoch but the last, there at the group's position."""
        steps = equal_steps(run)
        # One constant for all steps: an epoch must not leave more for using the record early.
        modulus = step_map(run).contraction(steps.eta)
        parts = _uses_from_the_end(run.batches_per_epoch, slot.uses, slot.trailing)
        segments = [Segment(k, modulus, steps.reach * used, steps.nu) for k, used in parts]
        return Chain.of(segments, diameter=run.diameter)


def _uses_from_the_end(length: int, epochs: int, trailing: int) -> list[tuple[int, int]]:
    """Return (number of steps, whether they use the record) over all epochs."""
    early = [(length - 1, 0), (1, 1)] * (epochs - 1)
    last = [(length - 1 - trailing, 0), (1, 1), (trailing, 0)]
    return [(count, used) for count, used in early + last if count]
