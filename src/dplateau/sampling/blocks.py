"""What one step of a run does to the distance of two copies of it, started apart, on the same data.

Both copies see the same batches, so nothing but the step map, the noise and the body matters:
there is no record that differs. This is what mixing rests on (docs/theory/mixing.md).

The second half cuts a run into blocks, because total variation multiplies over them. One
block of n steps forgets all but TV(n) <= 2 Phi(mu_n / 2) - 1 of its start, whatever the start; k
blocks forget all but the product. Long blocks have small factors and short blocks are many, so the
best length lies in between. It only *proposes* lengths, from the closed form of Bravo et al.,
Theorem 3.4, for equal steps; what is claimed is re-evaluated from plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    Schedule,
    refuse_batches,
)
from dplateau.algorithms.schedule import PerStep, values_over
from dplateau.algorithms.stated import learning_rate_of, learning_rates, loss_of
from dplateau.bounds.step_maps import StepMap, batch_cap, cap_of, tail_cap
from dplateau.errors import NotApplicable
from dplateau.ground.shown import rounded_down
from dplateau.ground.types import FloatArray, IntArray
from dplateau.numerics.normal import log_gaussian_delta
from dplateau.shifts import Chain, Linear, Modulus, Segment, SquareRoot

# Poisson batches above the cap have a probability of 1e-12 in a step, which is charged.
_RARE = 1e-8


@dataclass(frozen=True)
class StepLaw:
    """A run as mixing sees it: moduli by class of losses, for each stretch of equal steps.

    ``largest_batch`` is the cap on Poisson batches (None: batches have one size), and
    ``failure`` the probability that one step exceeds it.
    """

    diameter: float
    stretches: tuple[tuple[float, float, int], ...]
    step_map: StepMap
    largest_batch: int | None
    failure: float

    @property
    def losses(self) -> tuple[str, ...]:
        """The classes of losses that the declared constants justify at every learning rate."""
        classes = [set(self.step_map.moduli(eta)) for eta, _, _ in self.stretches]
        return tuple(sorted(set.intersection(*classes)))

    @property
    def is_constant(self) -> bool:
        """Whether every step has the same law."""
        return len(self.stretches) == 1

    def modulus(self, losses: str) -> Modulus:
        """Return the modulus of a run with equal steps under one class of losses."""
        return self.step_map.moduli(self.stretches[0][0])[losses]

    @property
    def noise_std(self) -> float:
        """Noise in parameter space of a run with equal steps."""
        return self.stretches[0][1]

    def chain(self, losses: str, steps: int) -> Chain:
        """Return the shift program of ``steps`` steps from a distance D (of all if they vary)."""
        segments = [
            Segment(steps if self.is_constant else count, self._modulus(losses, eta), 0.0, nu)
            for eta, nu, count in self.stretches
        ]
        return Chain.of(segments, diameter=self.diameter, initial_distance=self.diameter)

    def _modulus(self, losses: str, eta: float) -> Modulus:
        return self.step_map.moduli(eta)[losses]


def step_law(run: Run, largest_batch: int | None = None) -> StepLaw:
    """Return the run as mixing sees it, or refuse and say why no theorem speaks about it."""
    _check_kind(run)
    loss = loss_of(run)
    least = most = 1.0
    failure = 0.0
    if isinstance(run.batches, Poisson):
        one_step = run if run.has_schedule else run.replace(steps=1)
        # Up to a convex smooth step that still contracts, a larger cap is free; never otherwise.
        capped = batch_cap if loss.convex else tail_cap
        cap = capped(one_step, _RARE) if largest_batch is None else cap_of(one_step, largest_batch)
        least, most, failure = 0.0, cap.records / run.batch_size, cap.extra_delta
        largest_batch = cap.records
    law = StepLaw(
        diameter=run.diameter,
        stretches=tuple(_stretches(run)),
        step_map=StepMap(loss, run.l2, least_fraction=least, most_fraction=most),
        largest_batch=largest_batch,
        failure=failure,
    )
    if not law.losses:
        raise NotApplicable(_why_no_modulus(run))
    return law


def squared(modulus: Modulus) -> tuple[float, float]:
    """Return (c, h) of phi(u)^2 = c u^2 + h."""
    match modulus:
        case SquareRoot(c=c, h=h):
            return c, h
        case Linear(c=c):
            return c**2, 0.0
        case _:
            raise NotApplicable(f"mixing is about linear and square-root moduli; got {modulus!r}")


def _check_kind(run: Run) -> None:
    _check_batches(run)
    if not run.is_plain:
        raise NotApplicable("mixing is about plain steps; yours has momentum or averages iterates")
    if run.loss is not None and run.loss.saddle:
        raise NotApplicable(
            "mixing is about descent in a potential; yours descends and ascends (saddle=True)"
        )
    if run.noise_kind != "gaussian":
        raise NotApplicable(f"mixing needs Gaussian noise; yours is {run.noise_kind}")
    if run.learning_rate is None:
        raise NotApplicable("mixing needs the learning rate: pass learning_rate=...")
    if run.loss is None:
        raise NotApplicable(
            "mixing needs the potential's constants: pass loss=LossGeometry(lipschitz=..., "
            "convex=..., smoothness=...)"
        )
    if math.isinf(run.diameter):
        raise NotApplicable(
            "mixing from any start needs a bounded body; yours is unbounded: pass "
            "domain=Ball(...), Box(...) or Body(diameter=...)"
        )


def _check_batches(run: Run) -> None:
    match run.batches:
        case FullBatch() | FixedSize():
            return
        case Poisson():
            if run.has_own_rate:
                raise NotApplicable(
                    "mixing of Poisson batches needs records that join with probability "
                    "batch_size / n at every step; yours have another sampling rate"
                )
            if run.has_schedule:
                raise NotApplicable(
                    "mixing of Poisson batches needs equal steps; yours has a schedule"
                )
        case Cyclic() | OnePass():
            raise NotApplicable(
                f"mixing is about ProjectedLangevin, NoisyGD and NoisySGD; yours is {run.kind}"
            )
        case _ as unknown:
            refuse_batches(unknown)


def _stretches(run: Run) -> Iterator[tuple[float, float, int]]:
    """Yield (learning rate, noise, count) over stretches of equal steps."""
    rate: PerStep = learning_rate_of(run)
    noise = run.iterate_std
    if not isinstance(rate, Schedule) and not isinstance(noise, Schedule):
        yield rate, noise, run.steps
        return
    rates, stds = values_over(rate, run.steps), values_over(noise, run.steps)
    start = 0
    for t in range(1, run.steps + 1):
        if t == run.steps or rates[t] != rates[start] or stds[t] != stds[start]:
            yield float(rates[start]), float(stds[start]), t - start
            start = t


def _why_no_modulus(run: Run) -> str:
    loss = loss_of(run)
    nonsmooth = math.isfinite(loss.lipschitz) or loss.holder is not None
    if loss.convex and run.l2 > 0 and nonsmooth:
        worst = max(learning_rates(run))
        return (
            f"no theorem covers learning_rate * l2 = {worst * run.l2:.4g} >= 1 for potentials that "
            f"are not smooth; the learning rate must stay below {rounded_down(1 / run.l2)}"
        )
    return (
        "no theorem covers the potential as declared, at any step size: say convex=True with "
        "lipschitz=... or holder=..., or smoothness=... (with dissipativity=... if you know it)"
    )


# ---- partitions into blocks ---------------------------------------------------------------------

# Blocks of steps with jumps (h > 0) are not made longer than this: their plans list every shift.
LONGEST_LISTED = 1 << 17
# No block is longer than this: evaluating its plan takes about a second for 10^8 steps.
_LONGEST = 1 << 27
# A run that needs more steps than this has no certificate worth the name.
MOST_STEPS = 10**15
_ALL_LENGTHS = 4096
_PER_OCTAVE = 64


@dataclass(frozen=True)
class Partition:
    """``long`` blocks of ``length`` steps and ``short`` blocks of one step less."""

    length: int
    long: int
    short: int = 0

    @property
    def steps(self) -> int:
        """Number of steps in all."""
        return self.long * self.length + self.short * (self.length - 1)


class Proposals:
    """log TV of one block, as a function of its length; the best class of losses at each length."""

    def __init__(self, law: StepLaw) -> None:
        self.law = law
        self._listed = {
            losses: _listed_costs(law, losses)
            for losses in law.losses
            if squared(law.modulus(losses))[1] > 0
        }

    def log_tv(self, lengths: IntArray) -> FloatArray:
        """Return log TV for each length (0 or more steps)."""
        costs = np.min([self._costs(losses, lengths) for losses in self.law.losses], axis=0)
        logs: FloatArray = np.asarray(log_gaussian_delta(0.0, np.sqrt(costs)))
        if self.law.failure > 0:
            with np.errstate(divide="ignore"):
                logs = np.logaddexp(logs, np.log(lengths * self.law.failure))
        return np.minimum(np.where(lengths > 0, logs, 0.0), 0.0)

    def _costs(self, losses: str, lengths: IntArray) -> FloatArray:
        inside = np.maximum(lengths, 1)
        if losses in self._listed:
            listed = self._listed[losses]
            costs: FloatArray = listed[np.minimum(inside, listed.size) - 1]
            return costs
        c, _ = squared(self.law.modulus(losses))
        return self.law.diameter**2 / _inverse(c, self.law.noise_std, inside.astype(np.float64))


def shortest(proposals: Proposals, log_target: float) -> Partition | None:
    """Return a partition of few steps whose log TV is below the target, None if there is none."""
    best = _best_of(proposals, _selection(_LONGEST), log_target)
    if best is None:
        return None
    return _best_of(proposals, _around(best.length), log_target)


def even(proposals: Proposals, steps: int) -> Partition:
    """Return the partition of exactly ``steps`` steps into near-equal blocks of smallest TV."""
    best = _best_even(proposals, steps, _selection(steps))
    near = _around(best.long + best.short)
    return _best_even(proposals, steps, near[near <= steps])


def log_tv(proposals: Proposals, partition: Partition) -> float:
    """Return the proposed log TV of a partition."""
    pair = proposals.log_tv(np.array([partition.length, partition.length - 1]))
    short = partition.short * float(pair[1]) if partition.short else 0.0
    return partition.long * float(pair[0]) + short


def _best_even(proposals: Proposals, steps: int, counts: IntArray) -> Partition:
    lengths = -(-steps // counts)  # rounded up: some blocks are one step shorter
    shorter = lengths * counts - steps
    total = (counts - shorter) * proposals.log_tv(lengths)
    total += shorter * np.where(shorter > 0, proposals.log_tv(lengths - 1), 0.0)
    best = int(np.argmin(total))
    few = int(shorter[best])
    return Partition(int(lengths[best]), int(counts[best]) - few, few)


def _best_of(proposals: Proposals, lengths: IntArray, goal: float) -> Partition | None:
    each = proposals.log_tv(lengths)
    less = proposals.log_tv(lengths - 1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        counts = np.maximum(np.ceil(goal / each), 1.0)
        # So many blocks may be one step shorter before the product misses the goal.
        spare = np.floor((goal - counts * each) / (less - each))
        spare = np.clip(np.nan_to_num(spare, nan=0.0, posinf=0.0, neginf=0.0), 0, counts - 1)
        spare = np.where((lengths > 1) & (less > each), spare, 0.0)
        steps = lengths * counts - spare
    usable = (each < 0) & (steps <= MOST_STEPS)
    if not np.any(usable):
        return None
    best = int(np.argmin(np.where(usable, steps, np.inf)))
    return Partition(int(lengths[best]), int(counts[best] - spare[best]), int(spare[best]))


def _selection(last: int) -> IntArray:
    """Return all whole numbers up to a few thousand, then a geometric selection up to ``last``."""
    few = np.arange(1, min(last, _ALL_LENGTHS) + 1)
    if last <= _ALL_LENGTHS:
        return few
    size = math.ceil(math.log2(last / _ALL_LENGTHS) * _PER_OCTAVE) + 1
    many = np.geomspace(_ALL_LENGTHS, last, size).round().astype(np.int64)
    return np.unique(np.concatenate([few, many]))


def _around(chosen: int) -> IntArray:
    """Return numbers near an entry of a selection: what lies between it and the next ones."""
    reach = max(1, chosen // _PER_OCTAVE)
    near = np.linspace(max(1, chosen - reach), chosen + reach, _ALL_LENGTHS)
    return np.unique(np.append(near.astype(np.int64), chosen))


def _inverse(c: float, noise_std: float, steps: FloatArray) -> FloatArray:
    """Return 1/A of theorem 3.4 after so many equal steps: nu^2 (1/c + ... + 1/c^n)."""
    rate = -math.log(c) if c > 0 else math.inf
    if rate == 0:
        total = steps
    elif math.isinf(rate):
        total = np.full(steps.shape, math.inf)
    else:
        with np.errstate(over="ignore"):
            total = np.expm1(rate * steps) / -math.expm1(-rate)
    with np.errstate(over="ignore"):
        inverse: FloatArray = noise_std**2 * total
    return inverse


def _listed_costs(law: StepLaw, losses: str) -> FloatArray:
    """Return mu^2 for 1, 2, ... steps with jumps; a block may stop early, so it never grows."""
    c, h = squared(law.modulus(losses))
    inverse = _inverse(c, law.noise_std, np.arange(1.0, LONGEST_LISTED + 1))
    costs = law.diameter**2 / inverse + np.cumsum(h / (c * inverse))
    return np.minimum.accumulate(costs)
