"""Runs that release a few iterates on the way: the hidden stretches between them, composed.

After a release both neighbors stand at one public point, a distance of zero apart, and the theorems
about last iterates hold from every common start. So the stretches between releases compose
adaptively, as whatever dominates each of them (docs/theory/checkpoints.md). An average of the last
k iterates is read off a release of those k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from dplateau.algorithms import (
    AllIterates,
    Checkpoints,
    Cyclic,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    Run,
    Schedule,
)
from dplateau.algorithms.stated import loss_of
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, Assumption, Bound, Witness
from dplateau.bounds.blocks import PoissonBlocks, PoissonBlocksReplace
from dplateau.bounds.conditions import (
    EVERYTHING_LEAVES,
    GEOMETRY,
    AboutBatches,
    Asks,
    Contractive,
    Needs,
    OrderIs,
)
from dplateau.bounds.iteration import (
    GdBounded,
    GdContraction,
    ModulusBound,
    batch_records,
    gaussian_of,
    is_reshuffled,
)
from dplateau.bounds.ordered import MOST_STEPS, SHUFFLED, epoch_steps
from dplateau.bounds.step_maps import geometry_assumptions, linear_class
from dplateau.curves import GaussianCurve, LossCurve, MixtureCurve, PrivacyCurve, WorstCurve
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray, IntArray
from dplateau.shifts.positions import EpochSteps, position_costs, reshuffled

# Stretches that differ from each other and are planned one by one.
MOST_DIFFERENT = 2000
# Blocks of all different stretches, times the ways to split a group: each has laws of its own, and
# whoever verifies a claim should not have to wait.
MOST_LAWS = 400
# Groups of positions over which shuffled runs are averaged.
_GROUPS = 64


def checkpoints_of(run: Run) -> Checkpoints:
    """Return the iterates that say everything about what leaves, or refuse."""
    match run.release:
        case Checkpoints() as checkpoints:
            return checkpoints
        case LastIterate() if run.average_last > 1:
            return Checkpoints(last=run.average_last)
        case AllIterates():
            raise NotApplicable(EVERYTHING_LEAVES)
        case release:
            raise NotApplicable(
                "is about release=Checkpoints(...), or an average of the last iterates; yours is "
                f"release={release.name!r}"
            )


@dataclass(frozen=True)
class FewIterates:
    """Iterates leave at steps fixed in advance, and plain steps lead there."""

    def unmet(self, run: Run) -> str | None:
        checkpoints_of(run)
        if run.momentum:
            return "is about plain steps; yours has momentum (composition covers it)"
        return None


@dataclass(frozen=True)
class Stretch:
    """``count`` equal stretches of ``length`` steps, the first of which begins at ``start``."""

    start: int
    length: int
    count: int


def stretches_of(run: Run, period: int = 1) -> tuple[Stretch, ...]:
    """Return the stretches between releases; equal ones are told once.

    Where steps change by schedule, every stretch stands for itself. Otherwise only its length
    counts, and where in a ``period`` of steps it begins.
    """
    kinds: dict[tuple[int, int], Stretch] = {}
    done = 0
    for length, count in checkpoints_of(run).segments(run.steps):
        # So many stretches in a row begin at different places of the period.
        different = count if run.has_schedule else min(count, period // math.gcd(length, period))
        for i in range(different):
            start = done + i * length
            key = (start if run.has_schedule else start % period, length)
            known = kinds.get(key, Stretch(start, length, 0))
            repeats = (count - i - 1) // different + 1
            kinds[key] = replace(known, count=known.count + repeats)
        done += length * count
    return tuple(kinds.values())


@dataclass(frozen=True)
class Covered:
    """One of some bounds about last iterates applies to every stretch."""

    bounds: Callable[[Run], tuple[Bound, ...]]

    def unmet(self, run: Run) -> str | None:
        reasons = [_why_not(bound, run, stretches_of(run)) for bound in self.bounds(run)]
        return None if None in reasons else reasons[0]

    def by(self, run: Run) -> tuple[Bound, ...]:
        """Return those that apply to every stretch."""
        stretches = stretches_of(run)
        return tuple(one for one in self.bounds(run) if _why_not(one, run, stretches) is None)


def _why_not(bound: Bound, run: Run, stretches: Sequence[Stretch]) -> str | None:
    reasons = (bound.refusal(stretch_run(run, one)) for one in stretches)
    return next((reason for reason in reasons if reason is not None), None)


class ComposedStretches(Bound):
    """Every stretch is a run of its own, covered by a bound about last iterates."""

    note = "docs/theory/checkpoints.md"
    citation = literature.this_library("docs/theory/checkpoints.md, Theorem 1")
    release = FewIterates()
    covered: ClassVar[Covered]

    def plan(self, run: Run, delta: float) -> Witness:
        """Plan every stretch with every bound that covers all of them, and keep the best."""
        stretches = stretches_of(run)
        share = delta / sum(one.count for one in stretches)
        witnesses, too_many = [], ""
        for bound in self.covered.by(run):
            for planner in planners(bound, many=any(one.count > 1 for one in stretches)):
                planned = [planner(stretch_run(run, one), share) for one in stretches]
                if too_many := _why_too_many_laws(bound, run, planned):
                    continue
                rows = zip(stretches, planned, strict=True)
                parts = [{**vars(one), "witness": dict(plan)} for one, plan in rows]
                witnesses.append({"bound": bound.name, "stretches": parts})
        if not witnesses:
            raise NotApplicable(too_many)
        if len(witnesses) == 1:
            return witnesses[0]
        return min(witnesses, key=lambda witness: self.curve(run, witness).epsilon(delta))

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Compose the curves of all stretches, each re-evaluated from its own witness."""
        named = {bound.name: bound for bound in self.covered.bounds(run)}
        if witness["bound"] not in named:
            raise InvalidInput(
                f"stretches are covered by {', '.join(named)}; the witness has {witness['bound']!r}"
            )
        bound, parts = named[witness["bound"]], []
        for one, stored in matched(stretches_of(run), witness["stretches"]):
            parts.append((bound.curve(stretch_run(run, one), stored["witness"]), one.count))
        return composed(parts)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return what the first bound that covers the stretches assumes."""
        first = stretch_run(run, stretches_of(run)[0])
        return self.covered.by(run)[0].assumptions(first)

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Return an epsilon for each length; stretches of the same length are planned once."""
        longest = run.replace(steps=int(steps.max()))
        share = delta / sum(one.count for one in stretches_of(longest))
        known: dict[tuple[str, int], tuple[PrivacyCurve, Witness]] = {}

        def curve(bound: Bound, alone: Run) -> tuple[PrivacyCurve, Witness]:
            key = (bound.name, alone.steps)
            if key not in known:
                plan = bound.plan(alone, share)
                known[key] = bound.curve(alone, plan), plan
            return known[key]

        epsilons = np.full(steps.shape, np.inf)
        for i, count in enumerate(steps):
            shorter = run.replace(steps=int(count))
            stretches = [(stretch_run(shorter, one), one.count) for one in stretches_of(shorter)]
            for bound in self.covered.by(shorter):
                curves, plans = zip(*(curve(bound, alone) for alone, _ in stretches), strict=True)
                if _why_too_many_laws(bound, shorter, plans):
                    continue
                parts = [(one, times) for one, (_, times) in zip(curves, stretches, strict=True)]
                epsilons[i] = min(epsilons[i], composed(parts).epsilon(delta))
        return epsilons


def planners(bound: Bound, *, many: bool) -> list[Callable[[Run, float], Witness]]:
    """Return how a stretch may be planned: by itself, and as one of many."""
    if many and isinstance(bound, PoissonBlocks):
        return [bound.plan, bound.plan_one_of_many]
    return [bound.plan]


def _why_too_many(run: Run) -> str | None:
    different = len(stretches_of(run))
    if different <= MOST_DIFFERENT:
        return None
    return (
        f"composes at most {MOST_DIFFERENT} different stretches between releases; yours has "
        f"{different} (composition covers it)"
    )


def _why_too_many_laws(bound: Bound, run: Run, plans: Sequence[Witness]) -> str:
    """Return why so many blocks are not claimed; nothing where they are few, or there are none."""
    if not isinstance(bound, PoissonBlocks):
        return ""
    laws = len(bound.splits(run.group_size)) * sum(len(plan["edges"]) - 1 for plan in plans)
    if laws <= MOST_LAWS:
        return ""
    return (
        f"needs {laws} blocks for {len(plans)} different stretches between releases, and more than "
        f"{MOST_LAWS} take too long to verify (composition covers it)"
    )


def _full_batch_bounds(run: Run) -> tuple[Bound, ...]:
    return (GdContraction(), GdBounded(), ModulusBound())


def _poisson_bounds(run: Run) -> tuple[Bound, ...]:
    return (PoissonBlocksReplace() if run.neighbors == "replace" else PoissonBlocks(),)


class FullBatchCheckpoints(ComposedStretches):
    """mu^2 is the sum over the stretches of their mu^2; exact where that of a stretch is."""

    name = "checkpoints_full_batch"
    title = "Hidden-state GD between checkpoints"
    covered = Covered(_full_batch_bounds)
    needs = (AboutBatches((FullBatch,)), Asks(_why_too_many), covered)


class PoissonCheckpoints(ComposedStretches):
    """The lagged blocks of all stretches, composed; what the caps cost adds up."""

    name = "checkpoints_poisson"
    claim_margin = COMPOSED_MARGIN
    title = "Hidden-state Poisson SGD between checkpoints"
    knows_groups = True
    rates = None
    covered = Covered(_poisson_bounds)
    needs = (AboutBatches((Poisson,)), Asks(_why_too_many), covered)


def stretch_run(run: Run, stretch: Stretch) -> Run:
    """Return the steps of a stretch as a run of their own, of which the last iterate leaves."""
    changes: dict[str, Any] = {"steps": stretch.length, "release": "last", "average_last": 1}
    stop = stretch.start + stretch.length
    for name, value in run.stated_per_step.items():
        if isinstance(value, Schedule):
            changes[name] = value.part(stretch.start, stop)
    if run.inverse_temperature is not None:
        # Its noise follows from the learning rate.
        changes.pop(run.noise.name, None)
        del changes["average_last"]
    if "sampling_rate" in changes:
        changes["batch_size"] = run.batch_size
    return run.replace(**changes)


def matched(
    stretches: Sequence[Stretch], stored: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Stretch, Mapping[str, Any]]]:
    """Yield each stretch with what a witness has about it; refuse a witness about others."""
    if len(stored) != len(stretches):
        raise InvalidInput(f"the run has {len(stretches)} kinds of stretches, not {len(stored)}")
    for one, row in zip(stretches, stored, strict=True):
        if any(row[name] != value for name, value in vars(one).items()):
            raise InvalidInput(f"the run has {one}; the witness is about another one")
        yield one, row


def composed(parts: Sequence[tuple[PrivacyCurve, int]]) -> PrivacyCurve:
    """Return the adaptive composition of stretches, each repeated.

    The caps on batches may fail in any stretch. All common batches of the run have the same law in
    both neighbors and nothing to do with what was released, so they are conditioned on first: the
    chances of failing add up, outside the composition of the rest.
    """
    curves = [curve for curve, _ in parts]
    if all(isinstance(curve, GaussianCurve) for curve in curves):
        squares = [n * curve.mu**2 for curve, n in parts if isinstance(curve, GaussianCurve)]
        return GaussianCurve(math.sqrt(math.fsum(squares)) * (1 + 1e-15))
    worst = [curve.curves for curve in curves if isinstance(curve, WorstCurve)]
    if worst:
        # A group is split in one way for the whole run: compose the cases, then take the worst.
        counts = [n for _, n in parts]
        cases = zip(*worst, strict=True)
        return WorstCurve(tuple(composed(tuple(zip(case, counts, strict=True))) for case in cases))
    pairs: dict[Any, int] = {}
    for curve, count in parts:
        for pair, times in curve.loss_parts() or ():
            pairs[pair] = pairs.get(pair, 0) + times * count
    extra = math.fsum(n * curve.extra_delta for curve, n in parts) * (1 + 1e-15)
    return LossCurve(tuple(pairs.items()), extra_delta=extra)


# --- ordered batches -----------------------------------------------------------------------------


def _why_inside_an_epoch(run: Run) -> str | None:
    length = run.batches_per_epoch
    if is_reshuffled(run) and any(
        one.start % length or one.length % length for one in stretches_of(run, length)
    ):
        return (
            "needs releases between epochs when each is reshuffled; yours releases inside one: "
            f"say every={length} or a multiple, and whole epochs"
        )
    return None


def _why_too_long(run: Run) -> str | None:
    if run.steps > MOST_STEPS:
        return f"goes through at most {MOST_STEPS} steps one by one; yours are {run.steps}"
    return None


_IN_ORDER: Needs = (
    AboutBatches((Cyclic, OnePass)),
    *GEOMETRY,
    Contractive(nonconvex=True),
    Asks(_why_inside_an_epoch),
    Asks(_why_too_long),
)


class PositionCheckpoints(Bound):
    """Ordered batches: what the stretches cost a record depends on its position in an epoch."""

    note = "docs/theory/checkpoints.md"
    citation = literature.this_library("docs/theory/checkpoints.md, Theorem 2")
    release = FewIterates()

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return geometry_assumptions(run, (linear_class(loss_of(run)),))


class OrderedCheckpoints(PositionCheckpoints):
    """Sum over the stretches for each record, then the worst record.

    In one pass a record is in one stretch only. Where each epoch is reshuffled the worst record may
    be another in every stretch: their worst cases add up, and releases fall between epochs.
    """

    name = "checkpoints_ordered"
    title = "Hidden-state ordered SGD between checkpoints, worst record"
    needs = _IN_ORDER

    def plan(self, run: Run, delta: float) -> Witness:
        """Return where the program of every position starts, in every stretch."""
        costs, starts = costs_of_positions(run)
        return {**_classes(run), "starts": starts, "sum_of_squares": float(costs.max())}

    def curve(self, run: Run, witness: Witness) -> GaussianCurve:
        """Return the worst position's Gaussian curve."""
        _require_classes(run, witness)
        costs, _ = costs_of_positions(run, witness["starts"])
        return gaussian_of(float(costs.max()))

    def record_curve(self, run: Run, position: int) -> GaussianCurve:
        """Return the curve of a record in the batch ``position`` (from 0) of each epoch."""
        costs, _ = costs_of_positions(run)
        return gaussian_of(float(costs[position]) if position < costs.size else 0.0)


class ShuffledCheckpoints(PositionCheckpoints):
    """Shuffled once: sum over the stretches for each position, and only then average.

    All stretches share one order, so an average over positions for each stretch by itself would
    count what the stretches say together about the position for nothing.
    """

    name = "checkpoints_shuffled"
    title = "Hidden-state SGD between checkpoints, shuffled once"
    needs = (OrderIs(("shuffle_once",)), *_IN_ORDER)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return a few levels of mu^2, and the share of the records that are charged each."""
        costs, starts = costs_of_positions(run)
        shares = _shares(run, costs.size)
        order = np.argsort(costs)[::-1]
        edges = np.unique(np.r_[0, np.geomspace(1, costs.size, _GROUPS).astype(np.int64)])
        if costs.size <= _GROUPS:
            edges = np.arange(costs.size + 1)
        levels, charged = [], []
        for low, high in pairwise(edges.tolist()):
            group = order[low:high]
            # Rounded up, so that whoever adds up anew finds enough.
            levels.append(float(costs[group[0]]) * (1 + 1e-12))
            charged.append(math.fsum(shares[group].tolist()) * (1 + 1e-12))
        return {**_classes(run), "starts": starts, "levels": levels, "shares": charged}

    def curve(self, run: Run, witness: Witness) -> MixtureCurve:
        """Return the average of the levels, after checking that they cover every position."""
        _require_classes(run, witness)
        costs, _ = costs_of_positions(run, witness["starts"])
        levels, shares = list(witness["levels"]), list(witness["shares"])
        require_cover(levels, shares, costs, _shares(run, costs.size))
        curves = tuple(gaussian_of(level) for level in levels)
        idle = max(0.0, 1 - math.fsum(shares))
        return MixtureCurve((*shares, idle), (*curves, GaussianCurve(0.0)))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return (*super().assumptions(run), SHUFFLED)


def costs_of_positions(
    run: Run, starts: Sequence[list[int] | None] | None = None
) -> tuple[FloatArray, list[list[int] | None]]:
    """Return mu^2 of every position over all stretches, and the starts in each stretch.

    Without a domain every program starts with its stretch, and there are no starts to keep.
    """
    steps = epoch_steps(run)
    stretches = stretches_of(run, steps.length)
    if starts is not None and len(starts) != len(stretches):
        raise InvalidInput(f"the run has {len(stretches)} kinds of stretches, not {len(starts)}")
    total = np.zeros(min(steps.length, run.steps))
    shuffled = is_reshuffled(run)
    kept: list[list[int] | None] = []
    for i, one in enumerate(stretches):
        part = _part(steps, one)
        part, uses = reshuffled(part) if shuffled else (part, part.kept_order())
        stored = None if starts is None else starts[i]
        given = None if stored is None else np.asarray(stored, dtype=np.int64)
        costs, taken = position_costs(part, uses, run.diameter, given)
        if shuffled:
            total += one.count * costs.max()
        else:
            places = (one.start + np.arange(costs.size)) % steps.length
            total[places] += one.count * costs
        kept.append(None if math.isinf(run.diameter) else taken.tolist())
    return total * (1 + 1e-15 * (len(stretches) + 2)), kept


def _part(steps: EpochSteps, stretch: Stretch) -> EpochSteps:
    """Return the steps of a stretch; its epochs begin where it does."""
    inside = slice(stretch.start, stretch.start + stretch.length)
    arrays = (steps.others, steps.own, steps.reach, steps.noise_std)
    return EpochSteps(steps.length, *(array[inside] for array in arrays))


def _shares(run: Run, positions: int) -> FloatArray:
    """Return the share of all records at each position that the run reaches."""
    return np.asarray(batch_records(run)[:positions] / run.n)


def require_cover(
    levels: Sequence[float], charged: Sequence[float], costs: FloatArray, shares: FloatArray
) -> None:
    """Refuse levels that do not dominate what the records cost.

    At least as large a share as costs x or more must be charged x or more, for every x. Charging
    some records too much only claims less.
    """
    if len(levels) != len(charged) or any(a < b for a, b in pairwise(levels)):
        raise InvalidInput("levels fall, and each has its share of the records")
    order = np.argsort(costs)[::-1]
    needed = np.cumsum(shares[order])
    at_least = np.searchsorted(-np.asarray(levels), -costs[order], side="right")
    given = np.r_[0.0, np.cumsum(charged)][at_least]
    if np.any(given < needed):
        worst = int(np.argmax(needed - given))
        raise InvalidInput(
            f"a share {needed[worst]:.6g} of the records costs at least {costs[order][worst]:.6g}, "
            f"but only {given[worst]:.6g} is charged that much"
        )


def _classes(run: Run) -> dict[str, Any]:
    return {"losses": linear_class(loss_of(run)), "bounded": True}


def _require_classes(run: Run, witness: Witness) -> None:
    if witness["losses"] != linear_class(loss_of(run)):
        raise InvalidInput(f"the run does not justify losses that are {witness['losses']!r}")
