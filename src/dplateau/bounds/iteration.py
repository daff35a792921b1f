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
    refuse_batches,
)
from dplateau.algorithms.schedule import values_over
from dplateau.algorithms.stated import equal_steps, learning_rate_of, learning_rates, loss_of
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.conditions import (
    GEOMETRY,
    AboutBatches,
    Asks,
    BoundedDomain,
    Contractive,
    HiddenIterates,
    holds,
)
from dplateau.bounds.step_maps import (
    CAPPED,
    CONTRACTION,
    BatchCap,
    StepMap,
    batch_cap,
    cap_of,
    capped_step_map,
    double_below,
    geometry_assumptions,
    linear_class,
    tail_cap,
)
from dplateau.curves import GaussianCurve, MixtureCurve, PrivacyCurve
from dplateau.errors import InvalidInput
from dplateau.ground.types import BoolArray, FloatArray, IntArray
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
    if run.has_schedule:
        return False
    return loss_of(run).strong_convexity == 0 or _shortest_batch(run) == run.batch_size


def step_map(run: Run, records: int | None = None, *, used: bool = True) -> StepMap:
    """Return the step map of the records that both neighbors share, batches being known.

    A batch of ``records`` (the run's shortest if None) lacks one of them if it uses the record that
    differs: nothing is asked of that one's own loss but the length of its gradient.
    """
    common = (_shortest_batch(run) if records is None else records) - used
    least = double_below(Fraction(common) / Fraction(run.batch_size))
    return StepMap(loss_of(run), run.l2, least_fraction=least, most_fraction=1.0)


def _shortest_batch(run: Run) -> int:
    """Return the records of the shortest batch (of Poisson batches a typical one)."""
    match run.batches:
        case Cyclic(size=size) | OnePass(size=size):
            return run.n % size or size
        case FullBatch() | FixedSize() | Poisson():
            return int(run.batch_size)
        case _ as unknown:
            refuse_batches(unknown)


def batch_records(run: Run) -> IntArray:
    """Return how many records each step's batch holds: all but the last of an epoch hold b."""
    records = np.full(run.steps, int(run.batch_size), dtype=np.int64)
    match run.batches:
        case Cyclic() | OnePass():
            length = run.batches_per_epoch
            records[length - 1 :: length] = _shortest_batch(run)
        case _:
            pass
    return records


def is_reshuffled(run: Run) -> bool:
    """Return whether the order changes from epoch to epoch."""
    match run.batches:
        case Cyclic(order="reshuffle"):
            return True
        case _:
            return False


def moduli_of(
    run: Run, losses: str, *, by_batch: bool = True, maps: StepMap | None = None
) -> ModulusOf:
    """Return the moduli of a run's steps under one class of losses, each computed once.

    Where the order changes from epoch to epoch, every step counts as if it used the record: how
    much an epoch leaves must not depend on where it does (docs/theory/ordered.md).
    Without ``by_batch`` the shortest batch, less a record, stands for all; ``maps`` do if given.
    """
    always = is_reshuffled(run)

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
    steps, size = equal_steps(run), int(run.batch_size)
    others, own = modulus(steps.eta, size, False), modulus(steps.eta, size, True)
    before = pattern.period - 1 - pattern.trailing
    segments = [
        Segment(count, phi, reach, steps.nu)
        for count, phi, reach in (
            (before, others, 0.0),
            (1, own, steps.reach),
            (pattern.trailing, others, 0.0),
        )
        if count > 0
    ]
    return Chain.of(segments, repeats=pattern.uses, diameter=diameter)


def _step_by_step(run: Run, pattern: Pattern, modulus: ModulusOf) -> Iterator[Segment]:
    """Yield stretches of equal steps of a run whose steps are not all alike."""
    etas, stds, reaches = per_step_values(run)
    used, records = pattern.at_steps(run.steps), batch_records(run)
    new = np.zeros(run.steps - 1, dtype=np.bool_)
    for values in (etas, stds, used, records):
        new |= values[1:] != values[:-1]
    starts = np.flatnonzero(np.r_[True, new])
    counts = np.diff(np.r_[starts, run.steps])
    for start, count in zip(starts, counts, strict=True):
        phi = modulus(float(etas[start]), int(records[start]), bool(used[start]))
        reach = float(reaches[start]) if used[start] else 0.0
        yield Segment(int(count), phi, reach, float(stds[start]))


def per_step_values(run: Run) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return learning rate, noise in parameter space and the record's reach at every step."""
    stated = (learning_rate_of(run), run.iterate_std, run.record_step)
    etas, stds, record_steps = (values_over(value, run.steps) for value in stated)
    return etas, stds, run.neighbor_factor * record_steps


def gaussian_of(sum_of_squares: float) -> GaussianCurve:
    """Return the curve that a plan of this cost proves."""
    return GaussianCurve(math.sqrt(sum_of_squares) * (1 + 4e-16))


class ShiftBound(Bound):
    """A bound whose witness is one shift plan for the most exposed record."""

    note = "docs/theory/iteration.md"
    release = HiddenIterates()
    bounded = True
    by_batch = True

    @abstractmethod
    def pattern(self, run: Run) -> Pattern:
        """Return when the most exposed record is used."""

    def losses(self, run: Run) -> tuple[str, ...]:
        """Return the classes of losses whose moduli may be used."""
        return (linear_class(loss_of(run)),)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest plan over the classes of losses that apply."""
        pattern = self.pattern(run)
        solved = [(solve(self._chain(run, pattern, losses)), losses) for losses in self.losses(run)]
        best, losses = min(solved, key=lambda item: item[0].sum_of_squares)
        return {
            "losses": losses,
            **vars(pattern),
            "bounded": self.bounded,
            "plan": best.plan.to_dict(),
            "sum_of_squares": best.sum_of_squares,
        }

    def curve(self, run: Run, witness: Witness) -> GaussianCurve:
        return gaussian_of(self.sum_of_squares(run, witness))

    def sum_of_squares(self, run: Run, witness: Witness) -> float:
        """Return mu^2, re-evaluated from the witness's plan."""
        if witness["losses"] not in self.losses(run):
            raise InvalidInput(f"the run does not justify losses that are {witness['losses']!r}")
        return self._evaluated(run, witness)

    def _evaluated(self, run: Run, witness: Witness) -> float:
        chain = self._chain(run, self.pattern(run), witness["losses"])
        return evaluate(ShiftPlan.from_dict(witness["plan"]), chain).sum_of_squares

    def record_curve(self, run: Run, position: int) -> GaussianCurve:
        """Return the curve of a record in the batch ``position`` (from 0) of each epoch."""
        if position >= run.steps:
            return GaussianCurve(0.0)  # the run ends before its turn
        pattern = at_position(run, position)
        chains = [self._chain(run, pattern, losses) for losses in self.losses(run)]
        return gaussian_of(min(solve(chain).sum_of_squares for chain in chains))

    def _chain(self, run: Run, pattern: Pattern, losses: str) -> Chain:
        return chain_of(run, pattern, losses, bounded=self.bounded, by_batch=self.by_batch)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return geometry_assumptions(run, self.losses(run), bounded=self.bounded)


class GdContraction(ShiftBound):
    """mu^2 = (Delta / (n sigma))^2 (1 - c^T)(1 + c) / ((1 + c^T)(1 - c)) for c = 1 - eta l2.

    Exact: linear data losses attain it. Without ridge, c = 1 and it is plain composition.
    """

    name = "gd_contraction"
    title = "Hidden-state GD, contractive steps"
    citation = literature.shifted_interpolation("Theorem 4.1, by the shift program")
    needs = (AboutBatches((FullBatch,)), *GEOMETRY, Contractive(nonconvex=True))
    bounded = False

    def pattern(self, run: Run) -> Pattern:
        return every_step(run)


class GdBounded(ShiftBound):
    """min over R of (c^R u_{T-R} + s (1-c^R)/(1-c))^2 / (nu^2 (1-c^{2R})/(1-c^2)).

    u is the forward distance, at most the diameter D; at c = 1 the plateau is about 4 D s / nu^2,
    reached after T = D / s steps (T-bar of Altschuler and Talwar).
    """

    name = "gd_bounded"
    title = "Hidden-state GD, bounded domain"
    citation = literature.shifted_interpolation("Theorem 4.2, by the shift program")
    needs = (
        AboutBatches((FullBatch,)),
        BoundedDomain(),
        *GEOMETRY,
        Contractive(nonconvex=True),
    )

    def pattern(self, run: Run) -> Pattern:
        return every_step(run)


# With a schedule each position in an epoch has its own program, about 1e-4 seconds a step.
MOST_STEPS = 20_000
NO_MODULUS = (
    "is for losses whose steps do not contract; here the contraction that other bounds use is "
    "never worse, or nothing but lipschitz=... was declared (say convex=True, smoothness=..., "
    "holder=... or dissipativity=...)"
)


def _positions(run: Run) -> int:
    """Return how many positions have to be told apart: one unless a schedule meets an order."""
    match run.batches:
        case Cyclic() | OnePass() if run.has_schedule:
            return min(run.steps, run.batches_per_epoch)
        case _:
            return 1


def _why_too_many(run: Run) -> str | None:
    total = _positions(run) * run.steps
    if total <= MOST_STEPS:
        return None
    return (
        f"solves {_positions(run)} positions of a schedule one by one, up to {MOST_STEPS} steps "
        f"together; yours are {total}"
    )


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


def _general_classes(run: Run) -> tuple[str, ...]:
    """Return the classes that the constants justify at every learning rate, contractions apart."""
    maps = step_map(run)
    shared = set.intersection(*(set(maps.moduli(eta)) for eta in learning_rates(run)))
    if holds(Contractive(nonconvex=True), run):
        shared.discard(linear_class(loss_of(run)))  # the contraction bounds are about these
    return tuple(sorted(shared))


class ModulusBound(ShiftBound):
    """The shift program with phi(u) = sqrt(c u^2 + h), or with an expanding linear map.

    Nonsmooth convex, weakly smooth, nonconvex smooth and dissipative losses; lifted from Rényi
    divergences to Gaussian trade-offs with the same sum of squares.
    """

    name = "modulus"
    title = "Hidden state, general losses"
    # Steps that expand distances expand what a walk rounds.
    claim_margin = 1e-5
    citation = literature.bravo("Theorem 3.4 and section 2, lifted to GDP")
    needs = (
        Asks(_why_too_many),
        Asks(_why_no_pattern),
        *GEOMETRY,
        Asks(lambda run: None if _general_classes(run) else NO_MODULUS),
    )
    by_batch = False  # so that no schedule, no difference: the last step's record is the worst

    def pattern(self, run: Run) -> Pattern:
        match run.batches:
            case Cyclic() | OnePass():
                return at_position(run, latest_position(run))
            case _:
                return every_step(run)

    def losses(self, run: Run) -> tuple[str, ...]:
        return _general_classes(run)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest plan, or with a schedule one plan for each position."""
        if _positions(run) == 1:
            return super().plan(run, delta)
        tried = []
        for losses in self.losses(run):
            solved = [solve(chain) for chain in self._chains(run, losses)]
            tried.append((max(one.sum_of_squares for one in solved), losses, solved))
        worst, losses, solved = min(tried, key=lambda item: item[0])
        plans = [one.plan.to_dict() for one in solved]
        return {"losses": losses, "bounded": True, "plans": plans, "sum_of_squares": worst}

    def _evaluated(self, run: Run, witness: Witness) -> float:
        if _positions(run) == 1:
            return super()._evaluated(run, witness)
        pairs = zip(witness["plans"], self._chains(run, witness["losses"]), strict=True)
        return max(evaluate(ShiftPlan.from_dict(p), chain).sum_of_squares for p, chain in pairs)

    def _chains(self, run: Run, losses: str) -> list[Chain]:
        places = range(_positions(run))
        return [self._chain(run, at_position(run, place), losses) for place in places]


def _why_no_class(run: Run) -> str | None:
    if any(_classes(run, capped_step_map(run, cap)) for cap in _caps(run, 1e-9)):
        return None
    return (
        "needs a bound on how far a step drives two states apart: say convex=True, "
        "smoothness=..., holder=... or dissipativity=..."
    )


class EveryBatch(Bound):
    """mu-GDP with the mu of a record in every batch, whatever the losses and the sampling rate.

    Given all batches a run is one with batches known in advance, and a plan of shifts for a record
    that is used at every step also absorbs what a record does that is used at some of them. Nothing
    is gained from sampling, so this wins at sampling rates near 1, and is exact at rate 1.
    """

    name = "every_batch"
    note = "docs/theory/iteration.md"
    title = "Hidden state, record in every batch"
    citation = literature.this_library("docs/theory/iteration.md, Theorem 2")
    release = HiddenIterates()
    rates = None  # they only matter to how large batches are
    needs = (AboutBatches((Poisson, FixedSize)), *GEOMETRY, Asks(_why_no_class))

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest plan over caps on batches and classes of losses."""
        tried = []
        for cap in _caps(run, delta):
            for losses in _classes(run, capped_step_map(run, cap)):
                solved = solve(_chain(run, cap, losses))
                tried.append((solved.sum_of_squares, solved.plan, cap, losses))
        squares, plan, cap, losses = min(tried, key=lambda item: item[0])
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
        if losses not in _classes(run, capped_step_map(run, cap)):
            raise InvalidInput(f"no modulus is known for losses={losses!r}")
        plan = ShiftPlan.from_dict(witness["plan"])
        gaussian = gaussian_of(evaluate(plan, _chain(run, cap, losses)).sum_of_squares)
        if cap.extra_delta == 0:
            return gaussian
        return MixtureCurve((1.0,), (gaussian,), cap.extra_delta)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        classes = {
            losses
            for cap in _caps(run, 1e-9)
            for losses in _classes(run, capped_step_map(run, cap))
        }
        capped = () if has_one_size(run) else (CAPPED,)
        return (*geometry_assumptions(run, sorted(classes)), *capped)


def has_one_size(run: Run) -> bool:
    """Return whether random batches all hold the same number of records."""
    match run.batches:
        case FixedSize():
            return True
        case _:
            return False


def _caps(run: Run, delta: float) -> tuple[BatchCap, ...]:
    """Return the batch size if it is fixed, else a small cap and one that costs nothing more."""
    if has_one_size(run):
        return (cap_of(run, int(run.batch_size)),)
    return tuple(dict.fromkeys((batch_cap(run, delta), tail_cap(run, delta))))


def _classes(run: Run, maps: StepMap) -> tuple[str, ...]:
    """Return the classes of losses that the declared constants justify at every learning rate.

    Convex smooth losses whose steps expand are left to their other classes, if all rates have one.
    """
    moduli = [maps.moduli(eta) for eta in learning_rates(run)]
    shared = set.intersection(*map(set, moduli))
    smooth = [known[CONTRACTION] for known in moduli if CONTRACTION in known]
    expands = any(isinstance(modulus, Linear) and modulus.c > 1 for modulus in smooth)
    if expands and len(shared) > 1:
        shared.discard(CONTRACTION)
    return tuple(sorted(shared))


def _chain(run: Run, cap: BatchCap, losses: str) -> Chain:
    return chain_of(run, every_step(run), losses, maps=capped_step_map(run, cap))
