"""What the class of a run leaves to an adversary in one dimension, and problems made from it.

The library's bounds hold in every dimension, hence for the one-dimensional member of each class.
There the record has a linear loss of slope L. Each other record may have the slope ``share`` * L
plus a Huber part: curvature h within ``width`` of a centre, a constant slope beyond. Its gradient
must stay below L, h below the smoothness (and h >= 0 if losses are convex), and a Hölder constant
must hold. Losses are fixed: the batch of a step is all that may change from step to step, so only
orders that are known in advance leave room for different batches to differ. Under Poisson sampling
the number of others in a batch is random; what they add has a law of its own, and is only used in
the limit of many records at fixed rate and record step, where it is a constant.

Strongly convex or dissipative classes hold no linear loss: every record then has at least the
curvature that the class asks for on the domain, and what is left of L as its slope.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dplateau.algorithms import (
    Box,
    Cyclic,
    FixedSize,
    FullBatch,
    LossGeometry,
    OnePass,
    Poisson,
    Run,
    Schedule,
    refuse_batches,
)
from dplateau.audit.chain import PerStep
from dplateau.audit.inclusion import (
    ALWAYS,
    Always,
    Bernoulli,
    Inclusion,
    Once,
    Pattern,
    Periodic,
    Reshuffled,
    Shuffled,
    Until,
)
from dplateau.audit.problems import WalkProblem
from dplateau.errors import NotApplicable


@dataclass(frozen=True)
class Others:
    """The losses of the other records: slope in units of L, curvature, and where it is felt."""

    share: float = 0.0
    curvature: float = 0.0
    width: float = math.inf
    centre: float = 0.0
    when: Pattern = ALWAYS


@dataclass(frozen=True)
class Room:
    """One run, one pattern of the record's uses, and the freedom of everybody else.

    ``base`` is the curvature that every loss of the class has; ``lipschitz`` and ``smoothness``
    are those of the others, scaled down if a short batch has to make up for missing records.
    ``slots`` is the number of records in the record's batch, itself included; infinite when others
    do not make room for it.
    """

    run: Run
    inclusion: Inclusion
    lower: float
    upper: float
    base: float
    lipschitz: float
    smoothness: float
    slots: float
    drifts: bool

    @property
    def middle(self) -> float:
        """The middle of the domain, or 0."""
        return (self.lower + self.upper) / 2 if math.isfinite(self.lower) else 0.0

    @property
    def bounded(self) -> bool:
        """Whether the domain is bounded."""
        return math.isfinite(self.lower)

    def plain(self) -> WalkProblem:
        """Return the problem in which the other records have zero gradients, from the middle."""
        run = self.run
        contraction, step, noise = scales(run)
        problem = WalkProblem(
            steps=run.steps,
            contraction=contraction,
            record_step=step,
            noise_std=noise,
            inclusion=self.inclusion,
            start=self.middle,
            lower=self.lower,
            upper=self.upper,
            neighbors=run.neighbors,
            noise_kind=run.noise_kind,
            random_stop=run.stops_at_random,
        )
        return self.problem(Others(), problem) if self.base else problem

    def problem(
        self, others: Others, plain: WalkProblem, start: float | None = None
    ) -> WalkProblem:
        """Return ``plain`` with these other records, as far as the class allows them."""
        others = self.fitted(others)
        changes: dict[str, Any] = {"start": plain.start if start is None else start}
        if others.share:
            steps = self.run.batch_size * np.asarray(scales(self.run)[1])
            changes["drift"] = _plain(others.share * steps)
            changes["removed_step"] = _plain(others.share * steps / self.slots)
        if others.curvature:
            pulls = _rates(self.run) * others.curvature
            changes["pull"], changes["removed_pull"] = _plain(pulls), _plain(pulls / self.slots)
            changes |= {
                "pull_centre": others.centre,
                "pull_width": others.width,
                "pull_when": others.when,
            }
        if self.base:
            assert self.run.loss is not None
            left = 1 - self.base * (self.upper - self.lower) / 2 / self.run.loss.lipschitz
            changes["record_step"] = _plain(np.asarray(scales(self.run)[1]) * left)
            own = _rates(self.run) * self.base / self.run.batch_size
            changes["record_pull"] = _plain(own)
        return replace(plain, **changes)

    def fitted(self, others: Others) -> Others:
        """Return the nearest losses that the class contains."""
        loss = self.run.loss
        if loss is None or not math.isfinite(loss.lipschitz):
            return Others()
        if not self.drifts:
            return Others()
        if self.base:
            return self._curved_everywhere(others, loss)
        most = self.lipschitz / loss.lipschitz
        share = max(-most, min(most, others.share))
        curvature = min(self.smoothness, others.curvature)
        curvature = max(0.0 if loss.convex else -self.smoothness, curvature)
        if not curvature:
            return Others(share=share)
        room = (most - abs(share)) * loss.lipschitz / abs(curvature)
        width = min(others.width, room)
        if loss.holder is not None:
            exponent, constant = loss.holder
            scaled = constant * self.lipschitz / loss.lipschitz / abs(curvature)
            width = min(width, scaled ** (1 / (1 - exponent)) / 2)
        width *= 1 - 1e-12
        if curvature < 0 and not self._dissipative(curvature, width, loss):
            return Others(share=share)
        if not width > 0:
            return Others(share=share)
        return replace(others, share=share, curvature=curvature, width=width)

    def _curved_everywhere(self, others: Others, loss: LossGeometry) -> Others:
        """Return quadratic losses on the whole domain, at least as curved as the class asks."""
        half = (self.upper - self.lower) / 2
        curvature = max(self.base, min(self.smoothness, others.curvature, self.lipschitz / half))
        most = max(0.0, (self.lipschitz - curvature * half) / loss.lipschitz)
        share = max(-most, min(most, others.share))
        return Others(share=share, curvature=curvature, centre=self.middle)

    def _dissipative(self, curvature: float, width: float, loss: LossGeometry) -> bool:
        """Whether losses that push away keep the class's dissipativity on the domain."""
        if loss.dissipativity is None:
            return True
        offset, rate = loss.dissipativity
        size = self.upper - self.lower
        return rate * size**2 - curvature * min(size, 2 * width) * size <= offset


def rooms(run: Run, *, limit: bool = False, position: int | None = None) -> Iterator[Room]:
    """Yield the freedom that the run's class leaves, for every pattern worth trying.

    ``limit``: under Poisson sampling, take the others in the limit of many records. ``position``:
    the step (one pass) or the place in the cycle of the record; by default the one used last.
    """
    if not run.is_plain:
        raise NotApplicable(
            "exact problems are known for plain steps; yours has momentum or averages iterates"
        )
    lower, upper = interval(run)
    base = required_curvature(run)
    poisson = isinstance(run.batches, Poisson)
    if limit and run.has_own_rate:
        raise NotApplicable(
            "the limit of many records is known for batches of batch_size records on average; "
            "yours have another sampling rate"
        )
    loss = run.loss
    for inclusion in _inclusions(run, position):
        slots, part = _record_batch(run, inclusion)
        free = part > 0 and (not poisson or limit)
        if base and not free:
            raise NotApplicable(
                f"every loss of this class is curved (by {base:g}), so that what the others add "
                "depends on how many of them a batch holds; no exact problem is known"
            )
        yield Room(
            run=run,
            inclusion=inclusion,
            lower=lower,
            upper=upper,
            base=base,
            lipschitz=0.0 if loss is None else loss.lipschitz * part,
            smoothness=0.0 if loss is None else loss.smoothness * part,
            slots=math.inf if poisson else slots,
            drifts=free,
        )


def _record_batch(run: Run, inclusion: Inclusion) -> tuple[float, float]:
    """Return the size of the record's batch, and the smallest batch as a part of the usual.

    When a hidden order puts the others into batches of different sizes, what they add is random;
    it is then left at zero.
    """
    size = run.batch_size
    if not isinstance(run.batches, Cyclic | OnePass) or run.n % int(size) == 0:
        return size, 1.0
    short = run.n % int(size)
    if isinstance(inclusion, Shuffled | Reshuffled):
        return size, 0.0
    last = -(-run.n // int(size)) - 1
    in_short = inclusion in (Once(last), Periodic(last + 1, last))
    return float(short) if in_short else size, short / size


def pull_patterns(room: Room) -> list[Pattern]:
    """Return in which batches curved losses are worth trying: they wipe out earlier noise."""
    match room.inclusion:
        case Once(step):
            return [Until(step)]
        case Periodic(period, position) if period > 1:
            before = Periodic(period, (position - 1) % period)
            own = Periodic(period, position) if room.slots > 1 else before
            return [ALWAYS, own]
        case _:
            return [ALWAYS]


def required_curvature(run: Run) -> float:
    """Return the curvature that every loss of the class must have on the run's domain."""
    loss = run.loss
    if loss is None:
        return 0.0
    found = loss.strong_convexity
    if loss.dissipativity is not None:
        offset, rate = loss.dissipativity
        size = run.diameter
        if rate * size**2 > offset:
            found = max(found, rate - offset / size**2 if math.isfinite(size) else rate)
    if found and not found * run.diameter / 2 <= loss.lipschitz:
        raise NotApplicable(
            f"no loss is {loss.lipschitz:g}-Lipschitz with curvature {found:g} on a domain of "
            f"diameter {run.diameter:g}: the class is empty (linear losses are not strongly convex "
            "and not dissipative); state the ridge term as l2=... of the run, or a smaller domain"
        )
    if found > loss.smoothness:
        raise NotApplicable(
            f"no loss of smoothness {loss.smoothness:g} has curvature {found:g}: the class is empty"
        )
    return found


def scales(run: Run) -> tuple[PerStep, PerStep, PerStep]:
    """Return contraction, record step and noise in parameter space."""
    if run.learning_rate is None and run.l2 == 0 and run.domain is None:
        # Without walls and ridge the unit of length is free: measure in record steps.
        return 1.0, 1.0, _per_step(run.noise_multiplier)
    step, noise = _per_step(run.record_step), _per_step(run.iterate_std)
    contraction = _plain(1.0 - _rates(run) * run.l2) if run.l2 > 0 else 1.0
    if np.any(np.asarray(contraction) < 0):
        raise NotApplicable(
            f"learning_rate * l2 exceeds 1 (l2={run.l2:g}): the walk oscillates; "
            "use a smaller learning rate"
        )
    return contraction, step, noise


def interval(run: Run) -> tuple[float, float]:
    """Return the domain in one dimension: an interval as long as the diameter, or a box's side."""
    domain = run.domain
    if domain is None:
        return -math.inf, math.inf
    if isinstance(domain, Box):
        lower, upper = np.atleast_1d(domain.lower), np.atleast_1d(domain.upper)
        longest = int(np.argmax(upper - lower))
        return float(lower[longest]), float(upper[longest])
    return -domain.diameter / 2, domain.diameter / 2


def _rates(run: Run) -> Any:
    rate = run.learning_rate
    assert rate is not None
    return rate.values() if isinstance(rate, Schedule) else np.asarray(rate)


def _per_step(value: float | Schedule) -> PerStep:
    return tuple(value.values().tolist()) if isinstance(value, Schedule) else float(value)


def _plain(values: Any) -> PerStep:
    return tuple(values.tolist()) if np.ndim(values) else float(values)


def _inclusions(run: Run, position: int | None) -> Iterator[Inclusion]:
    """Yield when the record takes part: once per pattern worth trying."""
    match run.batches:
        case FullBatch():
            yield Always()
        case Poisson() | FixedSize():
            yield Bernoulli(run.sampling_rate)
        case OnePass():
            last = run.steps - 1
            middle = {0, last // 2, last} if run.stops_at_random else {last}
            for step in sorted(middle) if position is None else [position]:
                yield Once(step)
        case Cyclic():
            yield _cycle(run, run.batches, position)
        case _ as unknown:
            refuse_batches(unknown)


def _cycle(run: Run, cycle: Cyclic, position: int | None) -> Inclusion:
    period, size = run.batches_per_epoch, cycle.size
    if cycle.order == "cyclic":
        return Periodic(period, (run.steps - 1) % period if position is None else position)
    last_weight = (run.n - (period - 1) * size) / size
    if cycle.order == "reshuffle" and run.steps > period:
        return Reshuffled(period, last_weight)
    return Shuffled(period, last_weight)
