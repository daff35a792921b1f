"""Amplification by iteration: from a run to its shift program.

All bounds of this kind, and those of :mod:`dplateau.bounds.ordered`, differ only in when the record
is used. The proof is that of shifted interpolation (docs/theory/iteration.md): every feasible plan
of shifts proves mu-GDP with mu^2 its sum of squares.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    Scheme,
    refuse_batches,
)
from dplateau.algorithms.schedule import values_over
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness, why_not_about
from dplateau.bounds.step_maps import CONTRACTION as CONTRACTION
from dplateau.bounds.step_maps import (
    SMOOTH,
    BatchCap,
    StepMap,
    batch_cap,
    cap_of,
    capped_step_map,
    double_below,
    learning_rates,
    linear_class,
    tail_cap,
    why_no_contraction,
    why_no_geometry,
)
from dplateau.curves import GaussianCurve, MixtureCurve, PrivacyCurve
from dplateau.errors import InvalidInput
from dplateau.ground.types import BoolArray, IntArray
from dplateau.shifts import Chain, Linear, Modulus, Segment, ShiftPlan, evaluate, solve

# The modulus of a step by its learning rate, the records in its batch, and whether the record
# that differs is one of them.
ModulusOf = Callable[[float, int, bool], Modulus]


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
    much an epoch leaves must not depend on where it does (docs/theory/ordered.md).
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


def gaussian_of(sum_of_squares: float) -> GaussianCurve:
    """Return the curve that a plan of this cost proves."""
    return GaussianCurve(math.sqrt(sum_of_squares) * (1 + 4e-16))


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
        return gaussian_of(self.sum_of_squares(run, witness))

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
        return gaussian_of(least)

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


class GdContraction(ShiftBound):
    """mu^2 = (Delta / (n sigma))^2 (1 - c^T)(1 + c) / ((1 + c^T)(1 - c)) for c = 1 - eta l2.

    Exact: linear data losses attain it. Without ridge, c = 1 and it is plain composition.
    """

    name = "gd_contraction"
    note = "docs/theory/iteration.md"
    title = "Hidden-state GD, contractive steps"
    citation = literature.shifted_interpolation("Theorem 4.1, by the shift program")
    bounded = False

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive full-batch descent, if so."""
        return why_no_deterministic_contraction(run, FullBatch)

    def pattern(self, run: Run) -> Pattern:
        """Return: every step."""
        return every_step(run)


class GdBounded(ShiftBound):
    """min over R of (c^R u_{T-R} + s (1-c^R)/(1-c))^2 / (nu^2 (1-c^{2R})/(1-c^2)).

    u is the forward distance, at most the diameter D; at c = 1 the plateau is about 4 D s / nu^2,
    reached after T = D / s steps (T-bar of Altschuler and Talwar).
    """

    name = "gd_bounded"
    note = "docs/theory/iteration.md"
    title = "Hidden-state GD, bounded domain"
    citation = literature.shifted_interpolation("Theorem 4.2, by the shift program")

    def missing(self, run: Run) -> str | None:
        """Return why the run is no projected contractive full-batch descent, if so."""
        if isinstance(run.batches, FullBatch) and run.domain is None:
            return "needs a bounded domain: pass domain=Ball(radius=...) and project every iterate"
        return why_no_deterministic_contraction(run, FullBatch)

    def pattern(self, run: Run) -> Pattern:
        """Return: every step."""
        return every_step(run)


# With a schedule each position in an epoch has its own program, about 1e-4 seconds a step.
MOST_STEPS = 20_000


def _positions(run: Run) -> int:
    """Return how many positions have to be told apart: one unless a schedule meets an order."""
    if not (isinstance(run.batches, Cyclic | OnePass) and has_schedule(run)):
        return 1
    return min(run.steps, -(-run.n // int(run.batch_size)))


class ModulusBound(ShiftBound):
    """The shift program with phi(u) = sqrt(c u^2 + h), or with an expanding linear map.

    Nonsmooth convex, weakly smooth, nonconvex smooth and dissipative losses; lifted from Rényi
    divergences to Gaussian trade-offs with the same sum of squares (docs/theory/iteration.md).
    """

    name = "modulus"
    note = "docs/theory/iteration.md"
    title = "Hidden state, general losses"
    citation = literature.bravo("Theorem 3.4 and section 2, lifted to GDP")
    by_batch = False  # so that no schedule, no difference: the last step's record is the worst

    def missing(self, run: Run) -> str | None:
        """Return why no modulus is known for the run, if so."""
        if _positions(run) * run.steps > MOST_STEPS:
            return (
                f"solves {_positions(run)} positions of a schedule one by one, up to {MOST_STEPS} "
                f"steps together; yours are {_positions(run) * run.steps}"
            )
        reason = _why_no_pattern(run) or why_no_geometry(run)
        if reason is not None:
            return reason
        if not self.losses(run):
            return (
                "is for losses whose steps do not contract; here the contraction that other bounds "
                "use is never worse, or nothing but lipschitz=... was declared (say convex=True, "
                "smoothness=..., holder=... or dissipativity=...)"
            )
        return None

    def pattern(self, run: Run) -> Pattern:
        """Return the uses of the most exposed record."""
        if isinstance(run.batches, Cyclic | OnePass):
            return at_position(run, latest_position(run))
        return every_step(run)

    def losses(self, run: Run) -> tuple[str, ...]:
        """Return the classes that the declared constants justify at every learning rate."""
        maps = step_map(run)
        classes = [set(maps.moduli(eta)) for eta in learning_rates(run)]
        shared = set.intersection(*classes) if classes else set()
        assert run.loss is not None
        if why_no_contraction(run, nonconvex=True) is None:
            shared.discard(linear_class(run.loss))  # the contraction bounds are about these
        return tuple(sorted(shared))

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest plan, or with a schedule one plan for each position."""
        if _positions(run) == 1:
            return super().plan(run, delta)
        found = []
        for losses in self.losses(run):
            solved = [solve(chain) for chain in self._chains(run, losses)]
            found.append((max(one.sum_of_squares for one in solved), losses, solved))
        worst, losses, solved = min(found, key=lambda item: item[0])
        plans = [one.plan.to_dict() for one in solved]
        return {"losses": losses, "bounded": True, "plans": plans, "sum_of_squares": worst}

    def sum_of_squares(self, run: Run, witness: Witness) -> float:
        """Return mu^2, re-evaluated from the witness's plans."""
        if _positions(run) == 1:
            return super().sum_of_squares(run, witness)
        if witness["losses"] not in self.losses(run):
            raise InvalidInput(f"the run does not justify losses that are {witness['losses']!r}")
        chains = self._chains(run, witness["losses"])
        pairs = zip(witness["plans"], chains, strict=True)
        return max(evaluate(ShiftPlan.from_dict(p), chain).sum_of_squares for p, chain in pairs)

    def _chains(self, run: Run, losses: str) -> list[Chain]:
        places = range(_positions(run))
        return [self._chain(run, at_position(run, place), losses) for place in places]


def _why_no_pattern(run: Run) -> str | None:
    """Return why it is not known when the most exposed record is used, or None."""
    match run.batches:
        case Poisson() | FixedSize():
            return "is about batches known in advance; yours are random"
        case Cyclic(order="reshuffle"):
            return "covers orders that stay the same; yours is reshuffled each epoch"
        case Cyclic() | OnePass() | FullBatch():
            return None
        case _ as unknown:
            refuse_batches(unknown)


class EveryBatch(Bound):
    """mu-GDP with the mu of a record in every batch, whatever the losses and the sampling rate."""

    name = "every_batch"
    note = "docs/theory/iteration.md"
    title = "Hidden state, record in every batch"
    citation = literature.this_library("docs/theory/iteration.md, Theorem 2")
    hidden_state = True
    # They only matter to how large batches are.
    rates = "per step"

    def missing(self, run: Run) -> str | None:
        """Return why the run has no random batches or no known modulus, if so."""
        reason = why_not_about(run, Poisson, FixedSize) or why_no_geometry(run)
        if reason is not None:
            return reason
        if not any(_classes(run, _maps(run, cap)) for cap in _caps(run, 1e-9)):
            return (
                "needs a bound on how far a step drives two states apart: say convex=True, "
                "smoothness=..., holder=... or dissipativity=..."
            )
        return None

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest plan over caps on batches and classes of losses."""
        found = []
        for cap in _caps(run, delta):
            for losses in _classes(run, _maps(run, cap)):
                solved = solve(_chain(run, cap, losses))
                found.append((solved.sum_of_squares, solved.plan, cap, losses))
        squares, plan, cap, losses = min(found, key=lambda item: item[0])
        return {
            "losses": losses,
            "batch_cap": cap.records,
            "extra_delta": cap.extra_delta,
            "plan": plan.to_dict(),
            "sum_of_squares": squares,
        }

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the Gaussian curve of the re-evaluated plan, and charge larger batches."""
        cap, losses = cap_of(run, int(witness["batch_cap"])), str(witness["losses"])
        if losses not in _classes(run, _maps(run, cap)):
            raise InvalidInput(f"no modulus is known for losses={losses!r}")
        plan = ShiftPlan.from_dict(witness["plan"])
        squares = evaluate(plan, _chain(run, cap, losses)).sum_of_squares
        gaussian = gaussian_of(squares)
        if cap.extra_delta == 0:
            return gaussian
        return MixtureCurve((1.0,), (gaussian,), cap.extra_delta)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the classes of losses, and the cap on batches."""
        classes = {losses for cap in _caps(run, 1e-9) for losses in _classes(run, _maps(run, cap))}
        found = geometry_assumptions(run, tuple(sorted(classes)), bounded=True)
        if isinstance(run.batches, FixedSize):
            return found
        return (*found, Assumption("batches above a cap are charged to delta", "checked"))


def _caps(run: Run, delta: float) -> tuple[BatchCap, ...]:
    """Return the batch size if it is fixed, else a small cap and one that costs nothing more."""
    if isinstance(run.batches, FixedSize):
        return (cap_of(run, int(run.batch_size)),)
    return tuple(dict.fromkeys((batch_cap(run, delta), tail_cap(run, delta))))


def _maps(run: Run, cap: BatchCap) -> StepMap:
    """Return the maps of common batches: b or b - 1 records, or any number up to the cap."""
    return step_map(run) if isinstance(run.batches, FixedSize) else capped_step_map(run, cap)


def _classes(run: Run, maps: StepMap) -> tuple[str, ...]:
    """Return the classes of losses that the declared constants justify at every learning rate.

    Convex smooth losses whose steps expand are left to their other classes.
    """
    moduli = [maps.moduli(eta) for eta in learning_rates(run)]
    shared = set.intersection(*(set(found) for found in moduli))
    smooth = [found[CONTRACTION] for found in moduli if CONTRACTION in found]
    if any(isinstance(modulus, Linear) and modulus.c > 1 for modulus in smooth):
        shared.discard(CONTRACTION)
    return tuple(sorted(shared))


def _chain(run: Run, cap: BatchCap, losses: str) -> Chain:
    return chain_of(run, every_step(run), losses, maps=_maps(run, cap))
