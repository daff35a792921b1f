"""What one step of a run does to the distance of two copies of it, started apart, on the same data.

Both copies see the same batches, so nothing but the step map, the noise and the body matters:
there is no record that differs. This is what mixing rests on (docs/theory/mixing.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

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
from dplateau.bounds.step_maps import StepMap, batch_cap, cap_of, learning_rates, tail_cap
from dplateau.errors import NotApplicable
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
        found = [set(self.step_map.moduli(eta)) for eta, _, _ in self.stretches]
        return tuple(sorted(set.intersection(*found)))

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
    assert run.loss is not None
    least = most = 1.0
    failure = 0.0
    if isinstance(run.batches, Poisson):
        one_step = run.replace(steps=1) if _constant(run) else run
        # Up to a convex smooth step that still contracts, a larger cap is free; never otherwise.
        capped = batch_cap if run.loss.convex else tail_cap
        cap = capped(one_step, _RARE) if largest_batch is None else cap_of(one_step, largest_batch)
        least, most, failure = 0.0, cap.records / run.batch_size, cap.extra_delta
        largest_batch = cap.records
    law = StepLaw(
        diameter=run.diameter,
        stretches=tuple(_stretches(run)),
        step_map=StepMap(run.loss, run.l2, least_fraction=least, most_fraction=most),
        largest_batch=largest_batch,
        failure=failure,
    )
    if not law.losses:
        raise NotApplicable(_why_no_modulus(run))
    return law


def squared(modulus: Modulus) -> tuple[float, float]:
    """Return (c, h) of phi(u)^2 = c u^2 + h."""
    if isinstance(modulus, SquareRoot):
        return modulus.c, modulus.h
    assert isinstance(modulus, Linear)
    return modulus.c**2, 0.0


def _check_kind(run: Run) -> None:
    _check_batches(run)
    if not run.is_plain:
        raise NotApplicable("mixing is about plain steps; yours has momentum or averages iterates")
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
            if not _constant(run):
                raise NotApplicable(
                    "mixing of Poisson batches needs equal steps; yours has a schedule"
                )
        case Cyclic() | OnePass():
            raise NotApplicable(
                f"mixing is about ProjectedLangevin, NoisyGD and NoisySGD; yours is {run.kind}"
            )
        case _ as unknown:
            refuse_batches(unknown)


def _constant(run: Run) -> bool:
    return not isinstance(run.learning_rate, Schedule) and not isinstance(run.noise.value, Schedule)


def _stretches(run: Run) -> Iterator[tuple[float, float, int]]:
    """Yield (learning rate, noise, count) over stretches of equal steps."""
    assert run.learning_rate is not None
    rate: PerStep = run.learning_rate
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
    assert run.loss is not None
    nonsmooth = math.isfinite(run.loss.lipschitz) or run.loss.holder is not None
    if run.loss.convex and run.l2 > 0 and nonsmooth:
        worst = max(learning_rates(run))
        return (
            f"no theorem covers learning_rate * l2 = {worst * run.l2:.4g} >= 1 for potentials that "
            f"are not smooth; the learning rate must stay below {1 / run.l2:.6g}"
        )
    return (
        "no theorem covers the potential as declared, at any step size: say convex=True with "
        "lipschitz=... or holder=..., or smoothness=... (with dissipativity=... if you know it)"
    )
