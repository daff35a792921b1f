"""From the description of a run to admissible one-dimensional problems, and the best of them.

The library's upper bounds hold in every dimension, so they hold for the one-dimensional member of
each class: losses of slope at most L plus the ridge term, on an interval as long as the domain.
What such a run loses, no bound for the class may undercut. (For a ball in more than one dimension
the statement is about the class, not about that very ball; for a box it uses the longest side.) A
run that releases more than the last iterate also releases that, and sums over what was released.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dplateau.algorithms import (
    AllIterates,
    Box,
    Checkpoints,
    Cyclic,
    FixedSize,
    FullBatch,
    LastIterate,
    LossGeometry,
    OnePass,
    Poisson,
    RandomStop,
    Run,
    Schedule,
    refuse_batches,
    refuse_release,
    require_run,
)
from dplateau.algorithms.stated import learning_rate_of, loss_of
from dplateau.audit.laws import UNIT
from dplateau.audit.problems import LowerBound, WalkProblem, lower_epsilon
from dplateau.audit.walks import (
    ALWAYS,
    Always,
    Bernoulli,
    Inclusion,
    Once,
    Pattern,
    Periodic,
    PerStep,
    Reshuffled,
    Shuffled,
    Until,
    active_steps,
    as_per_step,
)
from dplateau.errors import NotApplicable
from dplateau.ground.progress import counting
from dplateau.ground.types import BoolArray, FloatArray

# Drifts against a wall, in units of the drift whose stationary tail across the domain is delta.
_WALL_DRIFTS = (-2.0, -1.0, -0.6, -0.3, 0.5)
# Drifts in units of the noise: they make the walk forget its past at a wall.
_NOISE_DRIFTS = (-3.0, -1.5)
# Where nobody knows which steps hold the record.
_HIDDEN = (Bernoulli, Shuffled, Reshuffled)


@counting("looking for an adversary")
def lower_bound(
    run: Run, delta: float, *, limit_drift: bool = False, position: int | None = None
) -> LowerBound:
    """Return the largest epsilon that a few natural admissible problems prove to be needed.

    Parameters
    ----------
    run
        The run to attack.
    delta
        The failure probability.
    limit_drift
        Also try a constant drift under Poisson sampling, which is the limit of many records at
        fixed rate: right against bounds that do not use n, not for this very n.
    position
        The step (one pass) or the place in the cycle of the record; by default the one used last.

    Returns
    -------
    LowerBound
        The epsilon, the problem that proves it, and whether the proof is rigorous.

    Raises
    ------
    NotApplicable
        If no exact problem is known in the run's class.

    Examples
    --------
    >>> from dplateau.algorithms import LossGeometry, NoisyGD
    >>> run = NoisyGD(n=10, steps=100, learning_rate=0.5, l2=0.1, noise_std=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True))
    >>> round(lower_bound(run, 1e-5).epsilon, 4)
    2.5406
    """
    problems = problems_of(run, delta, limit_drift=limit_drift, position=position)
    best = max((lower_epsilon(p, delta) for p in problems), key=lambda proven: proven.epsilon)
    return replace(best, epsilon=best.epsilon * (1 - rounding(best.problem)))


def problems_of(
    run: Run, delta: float, *, limit_drift: bool = False, position: int | None = None
) -> list[WalkProblem]:
    """Return the problems that :func:`lower_bound` tries, the plainest first."""
    if not require_run(run).is_plain:
        return list(_processed(run, position))
    problems: list[WalkProblem] = []
    for room in rooms(run, limit=limit_drift, position=position):
        plain = room.plain()
        problems.append(plain)
        if plain.random_stop and plain.noise_kind == "laplace":
            continue  # many walks, each of them slow
        if room.bounded:
            problems.append(replace(plain, start=plain.lower))
            problems.extend(_drifting(room, plain, delta))
        elif room.drifts and math.isfinite(room.slots) and isinstance(room.inclusion, _HIDDEN):
            # All others of opposite slope: a swap then moves the walk by two record steps, or none.
            problems.append(room.problem(Others(share=-1.0), plain))
        if not room.bounded and not room.base:
            problems.extend(_readings(plain, _released_every(run)))
    return problems


def _drifting(room: Room, plain: WalkProblem, delta: float) -> Iterator[WalkProblem]:
    """Yield problems in which the other records push the walk along the interval."""
    if not room.drifts:
        return
    noise = float(np.mean(plain.noise_std))
    wall = noise**2 * math.log(1 / delta) / (2 * (plain.upper - plain.lower))
    factors = (-0.6,) if plain.random_stop else _WALL_DRIFTS
    drifts = [factor * wall for factor in factors]
    if not plain.random_stop:
        drifts += [factor * noise for factor in _NOISE_DRIFTS]
    most = room.run.batch_size * float(np.mean(plain.record_step))
    if most <= 0:
        return
    for share in sorted({max(-1.0, min(1.0, drift / most)) for drift in drifts}):
        yield room.problem(Others(share=share), plain)


def _processed(run: Run, position: int | None) -> Iterator[WalkProblem]:
    """Yield linear losses under momentum or averages: what leaves is a sum over the noisy steps.

    The record's push and the noise of step t reach it with the same weight, the response to a push
    at that step. As a walk without contraction the sum has steps of these sizes.
    """
    if run.domain is not None or required_curvature(run) or isinstance(run.learning_rate, Schedule):
        raise NotApplicable(
            "with momentum or averages exact problems are known for linear losses at one learning "
            "rate, without a domain; leave these out, or the momentum and the averages"
        )
    contraction, step, noise = scales(run)
    if isinstance(run.release, AllIterates):
        weights = np.ones(run.steps)
    else:
        weights = _responses(run, 1.0 - float(np.min(contraction)))
    felt = np.abs(weights) > 1e-150
    steps, noises = weights * np.asarray(step), np.abs(weights) * np.asarray(noise)
    for inclusion in _inclusions(run, position):
        kept = felt.copy()
        known: Inclusion = inclusion
        match inclusion:
            case Always() | Periodic() | Once() as pattern:
                steps = np.where(_at(pattern, run.steps), steps, 0.0)
                known = ALWAYS
            case Bernoulli():
                pass
            case _:
                raise NotApplicable("which step holds the record of a shuffled run is hidden")
        yield WalkProblem(
            steps=int(kept.sum()),
            contraction=1.0,
            record_step=tuple(steps[kept].tolist()),
            noise_std=tuple(noises[kept].tolist()),
            inclusion=known,
            neighbors=run.neighbors,
            noise_kind=run.noise_kind,
        )


def _responses(run: Run, pull: float) -> FloatArray:
    """Return how much of a push at each step is in what leaves; ``pull`` is learning_rate * l2."""
    w, v, m = 1.0, 1.0, run.momentum
    path = [w]
    for _ in range(run.steps - 1):
        at = w + m * v if run.momentum_kind == "nesterov" else w
        v = m * v - pull * at
        w += v
        path.append(w)
    response = np.array(path)
    window = min(run.average_last, run.steps)
    total = np.cumsum(response)
    mean: FloatArray = np.r_[total[:window], total[window:] - total[:-window]] / run.average_last
    return mean[::-1]


def _at(pattern: Pattern, steps: int) -> BoolArray:
    flags = np.zeros(steps, dtype=np.bool_)
    flags[active_steps(pattern, steps)] = True
    return flags


def _released_every(run: Run) -> list[int]:
    """Return the numbers of steps between releases, if there are several."""
    match run.release:
        case AllIterates():
            return [1] * run.steps
        case Checkpoints():
            return [n for n, count in run.release.segments(run.steps) for _ in range(count)]
        case LastIterate() | RandomStop():
            return []
        case _ as unknown:
            refuse_release(unknown)


def _readings(plain: WalkProblem, lengths: list[int]) -> Iterator[WalkProblem]:
    """Yield the walk whose last state is a sum over what stretches between releases add.

    What a stretch adds, less what the ridge leaves of its start, is the sum over its steps of
    C (drift + I_t record_step + noise), C being what later steps of the stretch leave. Weighted by
    their mean over their variance, and summed over all stretches, they tell the two runs apart as
    well as all releases together when the record's steps are known.
    """
    if len(lengths) < 2:
        return
    factors = np.broadcast_to(plain.contraction, plain.steps)
    left = np.ones(plain.steps)
    ends = np.cumsum(lengths)
    last = np.zeros(plain.steps, dtype=np.bool_)
    last[ends - 1] = True
    for t in range(plain.steps - 2, -1, -1):
        left[t] = 1.0 if last[t] else left[t + 1] * factors[t + 1]
    step, noise = left * np.asarray(plain.record_step), left * np.asarray(plain.noise_std)
    active = np.ones(plain.steps, dtype=np.bool_)
    inclusion: Always | Bernoulli = Always()
    match plain.inclusion:
        case Always() | Periodic() | Once() as pattern:
            active = _at(pattern, plain.steps)
        case Bernoulli() as coins:
            inclusion = coins
        case _:
            return
    starts = np.r_[0, ends[:-1]]
    moved = np.add.reduceat(np.where(active, step, 0.0), starts)
    spread = np.add.reduceat(noise**2, starts)
    if isinstance(inclusion, Always):
        signal = (moved / np.sqrt(spread))[moved > 0]
        step, noise = signal**2, signal
    else:
        weight = np.repeat(moved / spread, lengths)
        step, noise = weight * step, weight * noise
        kept = step > 0
        step, noise = step[kept], noise[kept]
    if step.size == 0:
        return
    constant = bool(np.all(step == step[0]) and np.all(noise == noise[0]))
    yield WalkProblem(
        steps=step.size,
        contraction=1.0,
        record_step=float(step[0]) if constant else tuple(step.tolist()),
        noise_std=float(noise[0]) if constant else tuple(noise.tolist()),
        inclusion=inclusion,
        neighbors=plain.neighbors,
        noise_kind=plain.noise_kind,
    )


def rounding(problem: WalkProblem) -> float:
    """Bound what the last digits of the run's own parameters may change in epsilon.

    The walk is exact for the contraction 1 - learning_rate * l2 as rounded, a quantity that
    matters through its distance from 1, over as many steps as the walk remembers.
    """
    gap = 1.0 - float(np.min(problem.contraction))
    memory = min(float(problem.steps), 1 / gap) if gap > 0 else 0.0
    return 16 * UNIT * (memory + 64)


# ---- what the class leaves to an adversary ------------------------------------------------------
#
# What the class of a run leaves to an adversary in one dimension, and problems made from it.
#
# The library's bounds hold in every dimension, hence for the one-dimensional member of each class.
# There the record has a linear loss of slope L. Each other record may have the slope ``share`` * L
# plus a Huber part: curvature h within ``width`` of a center, a constant slope beyond. Its gradient
# must stay below L, h below the smoothness (and h >= 0 if losses are convex), and a Hölder constant
# must hold. Losses are fixed: the batch of a step is all that may change from step to step, so only
# orders that are known in advance leave room for different batches to differ. Under Poisson
# sampling the number of others in a batch is random; what they add has a law of its own, and is
# only used in the limit of many records at fixed rate and record step, where it is a constant.
#
# Strongly convex or dissipative classes hold no linear loss: every record then has at least the
# curvature that the class asks for on the domain, and what is left of L as its slope.


@dataclass(frozen=True)
class Others:
    """The losses of the other records: slope in units of L, curvature, and where it is felt."""

    share: float = 0.0
    curvature: float = 0.0
    width: float = math.inf
    center: float = 0.0
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
            changes["drift"] = as_per_step(others.share * steps)
            changes["removed_step"] = as_per_step(others.share * steps / self.slots)
        if others.curvature:
            pulls = _rates(self.run) * others.curvature
            changes["pull"], changes["removed_pull"] = (
                as_per_step(pulls),
                as_per_step(pulls / self.slots),
            )
            changes |= {
                "pull_center": others.center,
                "pull_width": others.width,
                "pull_when": others.when,
            }
        if self.base:
            left = 1 - self.base * (self.upper - self.lower) / 2 / loss_of(self.run).lipschitz
            changes["record_step"] = as_per_step(np.asarray(scales(self.run)[1]) * left)
            own = _rates(self.run) * self.base / self.run.batch_size
            changes["record_pull"] = as_per_step(own)
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
        # A loss that is convex in some weights and concave in others may have only the former.
        curvature = max(0.0 if loss.convex or loss.saddle else -self.smoothness, curvature)
        if not curvature:
            return Others(share=share)
        room = (most - abs(share)) * loss.lipschitz / abs(curvature)
        width = min(others.width, room)
        for exponent, constant in loss.holders:
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
        return Others(share=share, curvature=curvature, center=self.middle)

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
    curvature = loss.strong_convexity
    if loss.dissipativity is not None:
        offset, rate = loss.dissipativity
        size = run.diameter
        if rate * size**2 > offset:
            curvature = max(curvature, rate - offset / size**2 if math.isfinite(size) else rate)
    if curvature and not curvature * run.diameter / 2 <= loss.lipschitz:
        raise NotApplicable(
            f"no loss is {loss.lipschitz:g}-Lipschitz with curvature {curvature:g} on a domain of "
            f"diameter {run.diameter:g}: the class is empty (linear losses are not strongly convex "
            "and not dissipative); state the ridge term as l2=... of the run, or a smaller domain"
        )
    if curvature > loss.smoothness:
        raise NotApplicable(
            f"no loss of smoothness {loss.smoothness:g} has curvature {curvature:g}: the class is "
            "empty"
        )
    return curvature


def scales(run: Run) -> tuple[PerStep, PerStep, PerStep]:
    """Return contraction, record step and noise in parameter space."""
    if run.learning_rate is None and run.l2 == 0 and run.domain is None:
        # Without walls and ridge the unit of length is free: measure in record steps.
        return 1.0, 1.0, _per_step(run.noise_multiplier)
    step, noise = _per_step(run.record_step), _per_step(run.iterate_std)
    contraction = as_per_step(1.0 - _rates(run) * run.l2) if run.l2 > 0 else 1.0
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
    rate = learning_rate_of(run)
    return rate.values() if isinstance(rate, Schedule) else np.asarray(rate)


def _per_step(value: float | Schedule) -> PerStep:
    return tuple(value.values().tolist()) if isinstance(value, Schedule) else float(value)


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
