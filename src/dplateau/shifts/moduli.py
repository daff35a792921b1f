"""Moduli of continuity: how far two states may lie apart after a common noise-free step.

A modulus phi is nondecreasing with phi(0) = 0: equal states stay equal under the same step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray

LINEAR = 0
SQUARE_ROOT = 1
DESCENT_ASCENT = 2


def _require_number(owner: str, name: str, value: float, *, positive: bool = False) -> None:
    low = value > 0 if positive else value >= 0
    if not (low and math.isfinite(value)):
        bound = "> 0" if positive else ">= 0"
        raise InvalidInput(
            f"{owner} needs a finite {name} {bound}; got {name}={value!r}. "
            f"Pass a finite number {bound}."
        )


@dataclass(frozen=True, slots=True)
class Linear:
    """phi(u) = c u: a map with Lipschitz constant c."""

    c: float

    def __post_init__(self) -> None:
        _require_number("Linear", "c", self.c)

    @overload
    def __call__(self, u: float) -> float: ...
    @overload
    def __call__(self, u: FloatArray) -> FloatArray: ...
    def __call__(self, u: float | FloatArray) -> float | FloatArray:
        """Return phi at one distance or at an array of them."""
        return self.c * u

    def code(self) -> tuple[int, float, float]:
        """Return the kind and the two numbers by which compiled loops know this modulus."""
        return LINEAR, self.c, 0.0


@dataclass(frozen=True, slots=True)
class SquareRoot:
    """phi(u) = sqrt(c u^2 + h) for u > 0 and phi(0) = 0 (Bravo et al., theorem 3.4).

    Here c multiplies the *square* of the distance: ``SquareRoot(c, 0)`` is ``Linear(sqrt(c))``.
    """

    c: float
    h: float

    def __post_init__(self) -> None:
        _require_number("SquareRoot", "c", self.c, positive=True)
        _require_number("SquareRoot", "h", self.h)

    @overload
    def __call__(self, u: float) -> float: ...
    @overload
    def __call__(self, u: FloatArray) -> FloatArray: ...
    def __call__(self, u: float | FloatArray) -> float | FloatArray:
        """Return phi at one distance or at an array of them."""
        if isinstance(u, np.ndarray):
            return np.where(u > 0, np.sqrt(self.c * u * u + self.h), 0.0)
        return math.sqrt(self.c * u * u + self.h) if u > 0 else 0.0

    def code(self) -> tuple[int, float, float]:
        """Return the kind and the two numbers by which compiled loops know this modulus."""
        return SQUARE_ROOT, self.c, self.h


@dataclass(frozen=True, slots=True)
class DescentAscent:
    """phi(u) = sqrt(u^2 + min(2 eta L, eta beta u)^2): simultaneous gradient descent and ascent.

    Convex-concave, L-Lipschitz, beta-smooth saddle problems (Bravo et al., remark 3.6).
    """

    learning_rate: float
    lipschitz: float
    smoothness: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            _require_number("DescentAscent", name, getattr(self, name), positive=True)

    @overload
    def __call__(self, u: float) -> float: ...
    @overload
    def __call__(self, u: FloatArray) -> FloatArray: ...
    def __call__(self, u: float | FloatArray) -> float | FloatArray:
        """Return phi at one distance or at an array of them."""
        _, cap, slope = self.code()
        if isinstance(u, np.ndarray):
            return np.hypot(u, np.minimum(cap, slope * u))
        return math.hypot(u, min(cap, slope * u))

    def code(self) -> tuple[int, float, float]:
        """Return the kind and the two numbers by which compiled loops know this modulus."""
        cap = 2 * self.learning_rate * self.lipschitz
        return DESCENT_ASCENT, cap, self.learning_rate * self.smoothness


Modulus = Linear | SquareRoot | DescentAscent


def modulus_of(kind: int, first: float, second: float) -> Callable[[FloatArray], FloatArray]:
    """Return the modulus with this ``code()`` as a function of arrays."""
    if kind == LINEAR:
        return Linear(first)
    if kind == SQUARE_ROOT:
        return SquareRoot(first, second)
    return lambda u: np.hypot(u, np.minimum(first, second * u))
