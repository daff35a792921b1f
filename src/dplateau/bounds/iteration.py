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
from fractions import Fraction
from functools import cache

import numpy as np

from dplateau.algorithms import Cyclic, OnePass, Run, Scheme
from dplateau.algorithms.schedule import values_over
from dplateau.bounds.base import Assumption, Bound, Witness, why_not_about
from dplateau.bounds.step_maps import CONTRACTION as CONTRACTION
from dplateau.bounds.step_maps import (
    SMOOTH,
    StepMap,
    double_below,
    linear_class,
    why_no_contraction,
)
from dplateau.curves import GaussianCurve
from dplateau.ground.types import BoolArray, IntArray
from dplateau.shifts import Chain, Modulus, Segment, ShiftPlan, evaluate, solve

# The modulus of a step by its learning rate, the records in its batch, and whether the record
# that differs is one of them.
ModulusOf = Callable[[float, int, bool], Modulus]
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

    Where steps are alike (:func:`steps_are_alike`) no record is exposed more than its: steps after
    a record's last use are post-processing, and an earlier last use never comes with more uses.
    """
    return (run.steps - 1) % run.batches_per_epoch


def steps_are_alike(run: Run) -> bool:
    """Return whether a step depends on nothing but its use of the record.

    Not so with a schedule, nor with a shorter last batch where more records mean more convexity.
    """
    if has_schedule(run):
        return False
    assert run.loss is not None
    return run.loss.strong_convexity == 0 or _shortest_batch(run) == run.batch_size


def step_map(run: Run, records: int | None = None, *, used: bool = True) -> StepMap:
    """Return the step map of the records that both neighbours share, batches being known.

    A batch of ``records`` (the run's shortest if None) lacks one of them if it uses the record that
    differs: nothing is asked of that one's own loss but the length of its gradient.
    """
    assert run.loss is not None
    common = (_shortest_batch(run) if records is None else records) - used
    least = double_below(Fraction(common) / Fraction(run.batch_size))
    return StepMap(loss=run.loss, l2=run.l2, least_fraction=least, most_fraction=1.0)


def _shortest_batch(run: Run) -> int:
    size = int(run.batch_size)
    return run.n % size or size if isinstance(run.batches, Cyclic | OnePass) else size


def batch_records(run: Run) -> IntArray:
    """Return how many records each step's batch holds."""
    found = np.full(run.steps, int(run.batch_size), dtype=np.int64)
    if isinstance(run.batches, Cyclic | OnePass):
        length = -(-run.n // int(run.batch_size))
        found[length - 1 :: length] = _shortest_batch(run)
    return found


def moduli_of(
    run: Run, losses: str, *, by_batch: bool = True, maps: StepMap | None = None
) -> ModulusOf:
    """Return the moduli of a run's steps under one class of losses, each computed once.

    Where the order changes from epoch to epoch, every step counts as if it used the record: how
    much an epoch leaves must not depend on where it does (docs/theory/cyclic_contraction.md).
    Without ``by_batch`` the shortest batch, less a record, stands for all; ``maps`` do if given.
    """
    always = isinstance(run.batches, Cyclic) and run.batches.order == "reshuffle"

    @cache
    def modulus(eta: float, records: int, used: bool) -> Modulus:
        if maps is not None:
            return maps.moduli(eta)[losses]
        known = step_map(run, records, used=used or always) if by_batch else step_map(run)
        return known.moduli(eta)[losses]

    return modulus


def chain_of(
    run: Run,
    pattern: Pattern,
    losses: str,
    *,
    bounded: bool = True,
    by_batch: bool = True,
    maps: StepMap | None = None,
) -> Chain:
    """Return the shift program of one record's pattern under one class of losses.

    ``bounded=False`` forgets the domain, ``by_batch=False`` what is known of single batches; both
    are always allowed. ``maps`` are the step maps where the sizes of batches are not known.
    """
    diameter = run.diameter if bounded else math.inf
    modulus = moduli_of(run, losses, by_batch=by_batch, maps=maps)
    if not steps_are_alike(run):
        return Chain.of(list(_step_by_step(run, pattern, modulus)), diameter=diameter)
    assert isinstance(run.learning_rate, float)
    assert isinstance(run.iterate_std, float)
    eta, nu, size = run.learning_rate, run.iterate_std, int(run.batch_size)
    others, own = modulus(eta, size, False), modulus(eta, size, True)
    use = Segment(1, own, record_reach(run, eta), nu)
    before = pattern.period - 1 - pattern.trailing
    around = [
        Segment(count, others, 0.0, nu) if count > 0 else None
        for count in (before, pattern.trailing)
    ]
    segments = [part for part in (around[0], use, around[1]) if part is not None]
    return Chain.of(segments, repeats=pattern.uses, diameter=diameter)


def record_reach(run: Run, eta: float) -> float:
    """Return how far the record moves a step that uses it."""
    assert run.lipschitz is not None
    return run.neighbor_factor * eta * run.lipschitz / run.batch_size


def _step_by_step(run: Run, pattern: Pattern, modulus: ModulusOf) -> Iterator[Segment]:
    """Yield stretches of equal steps of a run whose steps are not all alike."""
    assert run.learning_rate is not None
    etas = values_over(run.learning_rate, run.steps)
    stds = values_over(run.iterate_std, run.steps)
    used, records = pattern.at_steps(run.steps), batch_records(run)
    new = np.zeros(run.steps - 1, dtype=np.bool_)
    for values in (etas, stds, used, records):
        new |= values[1:] != values[:-1]
    starts = np.flatnonzero(np.r_[True, new])
    counts = np.diff(np.r_[starts, run.steps])
    for start, count in zip(starts, counts, strict=True):
        eta = float(etas[start])
        reach = record_reach(run, eta) if used[start] else 0.0
        phi = modulus(eta, int(records[start]), bool(used[start]))
        yield Segment(int(count), phi, reach, float(stds[start]))


def has_schedule(run: Run) -> bool:
    """Return whether anything changes from step to step."""
    return run.has_schedule


class ShiftBound(Bound):
    """A bound whose witness is one shift plan for the most exposed record."""

    hidden_state = True
    bounded = True
    by_batch = True

    @abstractmethod
    def pattern(self, run: Run) -> Pattern:
        """Return when the most exposed record is used."""

    def losses(self, run: Run) -> tuple[str, ...]:
        """Return the classes of losses whose moduli may be used."""
        assert run.loss is not None
        return (linear_class(run.loss),)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest plan over the classes of losses that apply."""
        found = []
        for losses in self.losses(run):
            found.append((solve(self._chain(run, self.pattern(run), losses)), losses))
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
        chain = self._chain(run, self.pattern(run), witness["losses"])
        return evaluate(ShiftPlan.from_dict(witness["plan"]), chain).sum_of_squares

    def record_curve(self, run: Run, position: int) -> GaussianCurve:
        """Return the curve of a record in the batch ``position`` (from 0) of each epoch."""
        if position >= run.steps:
            return GaussianCurve(0.0)  # the run ends before its turn
        pattern = at_position(run, position)
        chains = [self._chain(run, pattern, losses) for losses in self.losses(run)]
        least = min(solve(chain).sum_of_squares for chain in chains)
        return GaussianCurve(math.sqrt(least) * _SQRT_UP)

    def _chain(self, run: Run, pattern: Pattern, losses: str) -> Chain:
        return chain_of(run, pattern, losses, bounded=self.bounded, by_batch=self.by_batch)

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
        found.append(Assumption("learning_rate * (smoothness + l2) <= 2", "checked"))
    if SMOOTH in losses and run.loss is not None and run.l2 >= run.loss.smoothness:
        text = "l2 >= smoothness, which makes up for losses that are not convex"
        found.append(Assumption(text, "checked"))
    if bounded and run.domain is not None:
        found.append(Assumption("every iterate is projected onto the convex domain", "declared"))
    return tuple(found)


def why_no_deterministic_contraction(
    run: Run, scheme: Scheme, *, nonconvex: bool = True
) -> str | None:
    """Return why a contraction bound for such batches does not apply, or None."""
    return why_not_about(run, scheme) or why_no_contraction(run, nonconvex=nonconvex)
