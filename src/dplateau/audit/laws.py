"""What is known of a final iterate: two-sided bounds on its tail probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray

# Largest relative error of one rounded floating-point operation.
UNIT = 2.0**-53
# Arguments of the normal law beyond this point have probability below 1e-43.
FAR = 14.0


@dataclass(frozen=True)
class TailBracket:
    """Bounds on both tails of one law at ``points``, each proved, round-off included.

    ``lower <= P(X > x) <= upper`` and ``below_lower <= P(X <= x) <= below_upper``. The two pairs
    are kept apart because a small probability obtained as 1 minus a large one loses its digits.
    """

    points: FloatArray
    lower: FloatArray
    upper: FloatArray
    below_lower: FloatArray
    below_upper: FloatArray

    def __post_init__(self) -> None:
        """Refuse arrays of different lengths, and bounds that cross."""
        sides = (self.lower, self.upper, self.below_lower, self.below_upper)
        if any(side.shape != self.points.shape for side in sides):
            raise InvalidInput("a bracket needs one bound of each kind per point")
        if np.any(self.lower > self.upper) or np.any(self.below_lower > self.below_upper):
            raise InvalidInput("a bracket's lower bound exceeds its upper bound")

    @classmethod
    def around(
        cls,
        points: FloatArray,
        above: FloatArray,
        *,
        below: FloatArray | None = None,
        relative: float | FloatArray = 0.0,
        absolute: float | FloatArray = 0.0,
    ) -> TailBracket:
        """Widen computed tails by a relative and an absolute error, within [0, 1].

        Without ``below`` its bounds follow from those of ``above``.
        """
        lower, upper = _widen(above, relative, absolute)
        if below is None:
            return cls.between(points, lower, upper)
        return cls(points, lower, upper, *_widen(below, relative, absolute))

    @classmethod
    def between(cls, points: FloatArray, lower: FloatArray, upper: FloatArray) -> TailBracket:
        """Complete bounds on P(X > x) by those they imply on P(X <= x)."""
        below_lower = np.maximum(0.0, 1.0 - upper - 2 * UNIT)
        below_upper = np.minimum(1.0, 1.0 - lower + 2 * UNIT)
        return cls(points, lower, upper, below_lower, below_upper)

    @property
    def width(self) -> float:
        """Largest gap between the two bounds on P(X > x)."""
        return float(np.max(self.upper - self.lower))

    def padded(self, slack: float) -> TailBracket:
        """Return the bracket of any law within ``slack`` of this one in total variation."""
        return TailBracket(
            self.points,
            np.maximum(0.0, self.lower - slack),
            np.minimum(1.0, self.upper + slack),
            np.maximum(0.0, self.below_lower - slack),
            np.minimum(1.0, self.below_upper + slack),
        )


class Law(Protocol):
    """A final law that can bracket its tails anywhere; ``span`` holds all but a trifle of it."""

    @property
    def span(self) -> tuple[float, float]:
        """Return an interval outside of which no threshold is of interest."""
        ...

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on the tails at the given thresholds."""
        ...


@dataclass(frozen=True)
class PaddedLaw:
    """A law known up to ``slack`` in total variation through a simpler one."""

    law: Law
    slack: float
    span: tuple[float, float]

    def tail(self, points: FloatArray) -> TailBracket:
        """Return the simpler law's bounds, widened."""
        return self.law.tail(points).padded(self.slack)


@dataclass(frozen=True)
class MixtureLaw:
    """A law drawn at random from several: ``parts`` are (probability, law)."""

    parts: tuple[tuple[float, Law], ...]

    @property
    def span(self) -> tuple[float, float]:
        """Return an interval that covers every part's."""
        spans = [law.span for _, law in self.parts]
        return min(low for low, _ in spans), max(high for _, high in spans)

    def tail(self, points: FloatArray) -> TailBracket:
        """Return the averaged bounds, rounded outwards."""
        tails = [(weight, law.tail(points)) for weight, law in self.parts]
        slack = UNIT * (4 * len(tails) + 8)

        def mean(name: str, sign: int) -> FloatArray:
            total = sum(weight * getattr(tail, name) for weight, tail in tails)
            return np.minimum(1.0, np.asarray(total * (1 + sign * slack), dtype=np.float64))

        names = (("lower", -1), ("upper", 1), ("below_lower", -1), ("below_upper", 1))
        return TailBracket(points, *(mean(name, sign) for name, sign in names))


def normal_tail(z: FloatArray, error: float | FloatArray = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return bounds on Phi(z') for every z' within ``error`` of z.

    The library function is good to a few units in the last place times 1 + z^2 (the exponential
    of a rounded square); twice that is charged here.
    """
    from scipy.special import ndtr

    low, high = z - error, z + error
    charge = UNIT * (32 + 4 * np.minimum(np.square(z), 1500.0))
    lower = np.maximum(0.0, ndtr(low) * (1 - charge) - 1e-300)
    return lower, np.minimum(1.0, ndtr(high) * (1 + charge) + 1e-300)


def _widen(
    value: FloatArray, relative: float | FloatArray, absolute: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    lower = np.clip(value * (1 - np.minimum(relative, 1.0)) - absolute - UNIT * value, 0.0, 1.0)
    upper = np.clip(value * (1 + relative) + absolute + UNIT * value, 0.0, 1.0)
    return lower, upper
