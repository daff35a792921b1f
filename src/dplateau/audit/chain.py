"""One scalar noisy process, and its steps grouped so that equal ones are handled together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dplateau.audit.inclusion import Always, Bernoulli, Once, Periodic, takes_part
from dplateau.errors import NotApplicable
from dplateau.numerics.types import FloatArray

PerStep = float | tuple[float, ...]
NoiseKind = Literal["gaussian", "laplace"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step x -> clamp(contraction * x + shift + noise), the shift drawn by ``weights``."""

    contraction: float
    noise_std: float
    shifts: tuple[float, ...]
    weights: tuple[float, ...]


# A stretch of steps: (step, count) pairs in order, the whole run through ``repeats`` times.
Stretch = tuple[tuple[tuple[Step, int], ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """X_{t+1} = clamp(contraction_t X_t + drift_t + I_t jump_t + noise_t), X_0 = start.

    Per-step values are one number, or a tuple with one number per step.
    """

    steps: int
    contraction: PerStep
    noise_std: PerStep
    drift: PerStep
    jump: PerStep
    inclusion: Always | Bernoulli | Periodic | Once
    start: float
    lower: float = -math.inf
    upper: float = math.inf
    noise_kind: NoiseKind = "gaussian"

    @property
    def bounded(self) -> bool:
        """Whether the walk is clamped on both sides."""
        return math.isfinite(self.lower) and math.isfinite(self.upper)

    @property
    def homogeneous(self) -> bool:
        """Whether nothing but the indicators changes from step to step."""
        values = (self.contraction, self.noise_std, self.drift, self.jump)
        return not any(isinstance(value, tuple) for value in values)

    def constants(self) -> tuple[float, float, float, float]:
        """Return contraction, noise_std, drift and jump of a homogeneous chain."""
        found = (self.contraction, self.noise_std, self.drift, self.jump)
        numbers = tuple(value for value in found if not isinstance(value, tuple))
        if len(numbers) != 4:
            raise NotApplicable("the parameters of this walk change from step to step")
        return numbers

    def per_step(self, name: Literal["contraction", "noise_std", "drift", "jump"]) -> FloatArray:
        """Return one value of the named parameter per step."""
        return np.broadcast_to(
            np.asarray(getattr(self, name), dtype=np.float64), (self.steps,)
        ).copy()

    def first(self, count: int) -> Chain:
        """Return the walk that stops after ``count`` steps."""
        shorter = replace(
            self,
            steps=count,
            contraction=_first(self.contraction, count),
            noise_std=_first(self.noise_std, count),
            drift=_first(self.drift, count),
            jump=_first(self.jump, count),
        )
        if isinstance(self.inclusion, Once) and self.inclusion.step >= count:
            # The record has not had its turn yet.
            return replace(shorter, inclusion=Always(), jump=0.0)
        return shorter

    def unconstrained(self) -> Chain:
        """Return the same walk without its walls."""
        return replace(self, lower=-math.inf, upper=math.inf)

    def step_at(self, time: int) -> Step:
        """Return the step taken at ``time`` (from 0 to steps - 1)."""
        drift, jump = _at(self.drift, time), _at(self.jump, time)
        shifts: tuple[float, ...]
        weights: tuple[float, ...]
        match self.inclusion:
            case Bernoulli(rate) if 0 < rate < 1:
                shifts, weights = (drift, drift + jump), (1.0 - rate, rate)
            case Bernoulli(rate):
                shifts, weights = (drift + (jump if rate else 0.0),), (1.0,)
            case pattern:
                taken = takes_part(pattern, time)
                shifts, weights = (drift + (jump if taken else 0.0),), (1.0,)
        return Step(_at(self.contraction, time), _at(self.noise_std, time), shifts, weights)

    def stretches(self, count: int) -> list[Stretch]:
        """Group the first ``count`` steps into stretches of repeated equal steps."""
        if count <= 0:
            return []
        if not self.homogeneous:
            return [(_run_lengths([self.step_at(t) for t in range(count)]), 1)]
        match self.inclusion:
            case Periodic(period, _) if count > 2 * period:
                cycle = _run_lengths([self.step_at(t) for t in range(period)])
                rest = _run_lengths([self.step_at(t) for t in range(count % period)])
                return [(cycle, count // period)] + ([(rest, 1)] if rest else [])
            case Periodic():
                return [(_run_lengths([self.step_at(t) for t in range(count)]), 1)]
            case Once(step) if step < count:
                quiet = self.step_at(step + 1)
                parts = ((quiet, step), (self.step_at(step), 1), (quiet, count - step - 1))
                return [(tuple(part for part in parts if part[1]), 1)]
            case _:
                return [(((self.step_at(0), count),), 1)]


def _first(value: PerStep, count: int) -> PerStep:
    return value[:count] if isinstance(value, tuple) else value


def _at(value: PerStep, time: int) -> float:
    return value[time] if isinstance(value, tuple) else value


def _run_lengths(steps: list[Step]) -> tuple[tuple[Step, int], ...]:
    found: list[tuple[Step, int]] = []
    for step in steps:
        if found and found[-1][0] == step:
            found[-1] = (step, found[-1][1] + 1)
        else:
            found.append((step, 1))
    return tuple(found)
