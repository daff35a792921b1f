"""Shuffled epochs: the average over where the shuffle puts the record."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from dplateau.algorithms import Cyclic, Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.cyclic_contraction import ends_inside_a_reshuffled_epoch
from dplateau.bounds.iteration import (
    Pattern,
    batch_records,
    chain_of,
    geometry_assumptions,
    record_reach,
    step_map,
    steps_are_alike,
    why_no_deterministic_contraction,
)
from dplateau.bounds.ordered import positions_sum_of_squares, why_too_long
from dplateau.bounds.step_maps import linear_class
from dplateau.curves import GaussianCurve, MixtureCurve
from dplateau.errors import InvalidInput
from dplateau.shifts import Chain, Segment, ShiftPlan, evaluate, solve

# Positions are grouped, each group charged as its most exposed member; finer near the end.
_GROUPS = 64
_SQRT_UP = 1 + 4e-16


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
            curves.append(GaussianCurve(math.sqrt(total) * _SQRT_UP))
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
    note = "docs/theory/shuffle_once_average.md"
    title = "Hidden-state SGD, shuffled once"
    citation = literature.this_library("docs/theory/shuffle_once_average.md")
    order = "shuffle_once"

    def chain(self, run: Run, slot: Slot) -> Chain:
        """Return the cyclic program of that position."""
        assert run.loss is not None
        pattern = Pattern(run.batches_per_epoch, slot.trailing, slot.uses)
        return chain_of(run, pattern, linear_class(run.loss))


class ReshuffleAverage(ShuffledAverage):
    """A fresh order each epoch: average over the last epoch, worst case over the others."""

    name = "reshuffle_average"
    note = "docs/theory/reshuffle_average.md"
    title = "Hidden-state SGD, reshuffled"
    citation = literature.this_library("docs/theory/reshuffle_average.md")
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
    curves = [GaussianCurve(math.sqrt(cost) * _SQRT_UP) for cost in worst.tolist()]
    idle = max(0.0, 1 - math.fsum(weights))
    return MixtureCurve((*weights, idle), (*curves, GaussianCurve(0.0)))
