"""Values that may change from step to step, stored as runs of equal values; noise is one of them.

The three ways to state a noise level are converted into each other here and nowhere else. With b
the batch size that the step divides by, L the Lipschitz constant and eta the learning rate:

* ``noise_multiplier`` z: standard deviation of the noise on the *sum* of gradients, in units of L
  (the convention of Opacus, TensorFlow Privacy, JAX Privacy and dp-accounting);
* ``noise_std`` sigma: standard deviation of the noise on the *averaged* gradient, sigma = z L / b;
* ``iterate_std`` nu: standard deviation of the noise in parameter space, nu = eta sigma.

For Laplace noise the same names still mean standard deviations: the Laplace scale is std / sqrt(2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.types import FloatArray


@dataclass(frozen=True)
class Schedule:
    """One positive value per step: ``blocks`` of (value, number of steps), in order.

    >>> Schedule.of([1.0, 1.0, 0.5])
    Schedule(blocks=((1.0, 2), (0.5, 1)))
    >>> Schedule.of([1.0, 1.0, 0.5]).values()
    array([1. , 1. , 0.5])
    """

    blocks: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        """Check every block, and merge equal neighbors so that equal schedules are equal."""
        if not self.blocks:
            raise InvalidInput("a schedule needs at least one value")
        merged: list[tuple[float, int]] = []
        for value, count in self.blocks:
            value = checks.positive("a schedule's value", value)
            count = checks.whole("a schedule's block length", count)
            if merged and merged[-1][0] == value:
                merged[-1] = (value, merged[-1][1] + count)
            else:
                merged.append((value, count))
        object.__setattr__(self, "blocks", tuple(merged))

    @classmethod
    def of(cls, values: Iterable[float]) -> Schedule:
        """Run-length encode one value per step."""
        array = _numbers(values)
        if array.ndim != 1 or array.size == 0:
            raise InvalidInput("a schedule is a non-empty list of numbers, one per step")
        if not np.all(np.isfinite(array) & (array > 0)):
            bad = array[~(np.isfinite(array) & (array > 0))][0]
            raise InvalidInput(f"every value of a schedule must be finite and above 0; got {bad:g}")
        starts = np.flatnonzero(np.r_[True, array[1:] != array[:-1]])
        counts = np.diff(np.r_[starts, array.size])
        return cls(tuple((float(array[i]), int(k)) for i, k in zip(starts, counts, strict=True)))

    def __len__(self) -> int:
        """Return the number of steps."""
        return sum(count for _, count in self.blocks)

    def values(self) -> FloatArray:
        """Return one value per step."""
        values, counts = zip(*self.blocks, strict=True)
        return np.repeat(np.array(values, dtype=float), counts)

    def part(self, start: int, stop: int) -> Schedule:
        """Return the values of the steps ``start`` ... ``stop`` - 1.

        >>> Schedule.of([1.0, 1.0, 0.5, 0.2]).part(1, 3)
        Schedule(blocks=((1.0, 1), (0.5, 1)))
        """
        blocks, done = [], 0
        for value, count in self.blocks:
            inside = min(stop, done + count) - max(start, done)
            if inside > 0:
                blocks.append((value, inside))
            done += count
        return Schedule(tuple(blocks))

    def scaled(self, factor: float) -> Schedule:
        """Multiply every value by ``factor``."""
        return Schedule(tuple((value * factor, count) for value, count in self.blocks))

    def to_json(self) -> list[list[float]]:
        """Return ``[[value, count], ...]``."""
        return [[value, count] for value, count in self.blocks]


def _numbers(values: Iterable[float]) -> FloatArray:
    """Return an array of floats, refusing text, booleans and lists in the list."""
    if not isinstance(values, np.ndarray):
        return np.array([checks.real("a schedule's value", value) for value in values])
    if values.dtype.kind not in "iuf":
        raise InvalidInput(f"a schedule holds real numbers; got an array of {values.dtype}")
    return values.astype(float)


PerStep = float | Schedule


def per_step(name: str, value: object) -> PerStep:
    """Read a positive number, a schedule, or a sequence of one number per step."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, np.ndarray | list | tuple):
        try:
            return Schedule.of(value)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from None
    return checks.positive(name, value)


def in_order(name: str, blocks: Iterable[tuple[float, int]]) -> PerStep:
    """Return the one value of all (value, number of steps), or the schedule of them.

    >>> in_order("l", [(0.5, 2), (0.5, 3)]), in_order("l", [(0.5, 2), (0.1, 3)])
    (0.5, Schedule(blocks=((0.5, 2), (0.1, 3))))
    """
    blocks = tuple(blocks)
    if len({value for value, _ in blocks}) == 1:
        return blocks[0][0]
    try:
        return Schedule(blocks)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None


def times(left: PerStep, right: PerStep) -> PerStep:
    """Multiply two per-step values; the result is a schedule if either is."""
    if not isinstance(left, Schedule):
        return right.scaled(left) if isinstance(right, Schedule) else left * right
    if not isinstance(right, Schedule):
        return left.scaled(right)
    return Schedule.of(left.values() * right.values())


def over(left: PerStep, right: PerStep) -> PerStep:
    """Divide two per-step values; the result is a schedule if either is."""
    if not isinstance(right, Schedule):
        return times(left, 1.0 / right)
    return times(left, Schedule(tuple((1.0 / value, count) for value, count in right.blocks)))


def values_over(value: PerStep, steps: int) -> FloatArray:
    """Return ``steps`` values, repeating a constant."""
    return value.values() if isinstance(value, Schedule) else np.full(steps, value)


def extremes(value: PerStep) -> tuple[float, float]:
    """Return the smallest and the largest value.

    >>> extremes(Schedule.of([1.0, 0.5, 2.0])), extremes(3.0)
    ((0.5, 2.0), (3.0, 3.0))
    """
    values = [v for v, _ in value.blocks] if isinstance(value, Schedule) else [value]
    return min(values), max(values)


NOISE_CONVENTIONS = ("noise_multiplier", "noise_std", "iterate_std")


Amount = TypeVar("Amount", bound=PerStep, covariant=True)


@dataclass(frozen=True)
class Given(Generic[Amount]):
    """A quantity as the user stated it: the name of the convention, and its value."""

    name: str
    value: Amount

    def to_json(self) -> float | list[list[float]]:
        """Return a number, or ``[[value, count], ...]`` for a schedule."""
        return self.value.to_json() if isinstance(self.value, Schedule) else self.value


def as_noise_std(
    given: Given[PerStep],
    *,
    batch_size: float,
    lipschitz: float | None,
    learning_rate: PerStep | None,
) -> PerStep:
    """Return sigma, the standard deviation of the noise on the averaged gradient."""
    match given.name:
        case "noise_std":
            return given.value
        case "noise_multiplier":
            return times(given.value, _lipschitz("noise_std", given, lipschitz) / batch_size)
        case "iterate_std":
            return over(given.value, _learning_rate("noise_std", given, learning_rate))
    raise InvalidInput(f"unknown noise convention {given.name!r}; use one of {NOISE_CONVENTIONS}")


def as_noise_multiplier(
    given: Given[PerStep],
    *,
    batch_size: float,
    lipschitz: float | None,
    learning_rate: PerStep | None,
) -> PerStep:
    """Return z, the noise on the sum of gradients in units of L."""
    if given.name == "noise_multiplier":
        return given.value
    scale = batch_size / _lipschitz("noise_multiplier", given, lipschitz)
    sigma = as_noise_std(
        given, batch_size=batch_size, lipschitz=lipschitz, learning_rate=learning_rate
    )
    return times(sigma, scale)


def as_iterate_std(
    given: Given[PerStep],
    *,
    batch_size: float,
    lipschitz: float | None,
    learning_rate: PerStep | None,
) -> PerStep:
    """Return nu, the standard deviation of the noise in parameter space."""
    if given.name == "iterate_std":
        return given.value
    eta = _learning_rate("iterate_std", given, learning_rate)
    sigma = as_noise_std(
        given, batch_size=batch_size, lipschitz=lipschitz, learning_rate=learning_rate
    )
    return times(sigma, eta)


def _lipschitz(wanted: str, given: Given[PerStep], lipschitz: float | None) -> float:
    if lipschitz is None or math.isinf(lipschitz):
        raise NotApplicable(
            f"{wanted} follows from {given.name} only with the Lipschitz constant: "
            "pass loss=LossGeometry(lipschitz=..., convex=...)"
        )
    return lipschitz


def _learning_rate(wanted: str, given: Given[PerStep], learning_rate: PerStep | None) -> PerStep:
    if learning_rate is None:
        raise NotApplicable(
            f"{wanted} follows from {given.name} only with the learning rate: "
            "pass learning_rate=..."
        )
    return learning_rate
