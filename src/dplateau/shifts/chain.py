"""The chain whose two runs are compared: what one step does to their distance, run-length encoded.

Step t turns a distance u into at most ``min(D, phi_t(u) + s_t - a)`` once a shift ``a`` has been
absorbed by its noise of standard deviation ``nu_t``. The modulus phi is nondecreasing with phi(0) =
0: equal states stay equal under the same step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray

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


class Columns(NamedTuple):
    """One period of a chain as arrays, a row per run of equal steps (the form loops read).

    ``kinds``, ``first`` and ``second`` are the ``code()`` of the modulus of each row.
    """

    counts: IntArray
    kinds: IntArray
    first: FloatArray
    second: FloatArray
    sensitivities: FloatArray
    noise_stds: FloatArray


@dataclass(frozen=True, slots=True)
class Segment:
    """``count`` equal steps: modulus phi, sensitivity s, noise standard deviation nu.

    The sensitivity bounds how far the two runs' maps differ at one point; nu is in parameter space.
    """

    count: int
    modulus: Modulus
    sensitivity: float
    noise_std: float

    def __post_init__(self) -> None:
        if self.count < 1 or self.count != int(self.count):
            raise InvalidInput(f"A segment needs a whole count >= 1; got count={self.count!r}.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chain:
    """A period of steps, repeated; made by ``of`` or ``homogeneous``.

    Attributes:
        columns: one period, run-length encoded.
        repeats: how often the period occurs.
        diameter: of the domain that both runs stay in; infinity if they are unconstrained.
        initial_distance: bound on the distance of the two runs before the first step.
    """

    columns: Columns
    repeats: int = 1
    diameter: float = math.inf
    initial_distance: float = 0.0

    def __post_init__(self) -> None:
        _check_columns(self.columns)
        if self.repeats < 1 or self.repeats != int(self.repeats):
            raise InvalidInput(f"A chain needs whole repeats >= 1; got {self.repeats!r}.")
        if not self.diameter > 0:
            raise InvalidInput(
                f"A chain needs a diameter > 0; got {self.diameter!r}. Use inf for no domain."
            )
        distance = self.initial_distance
        if not 0 <= distance <= self.diameter or math.isinf(distance):
            raise InvalidInput(
                "A chain needs a finite initial distance within its diameter; got "
                f"initial_distance={distance!r}, diameter={self.diameter!r}."
            )

    @classmethod
    def of(
        cls,
        segments: Sequence[Segment],
        *,
        repeats: int = 1,
        diameter: float = math.inf,
        initial_distance: float = 0.0,
    ) -> Chain:
        """Return the chain that runs through the segments in turn, ``repeats`` times."""
        codes = [segment.modulus.code() for segment in segments]
        columns = Columns(
            np.array([segment.count for segment in segments], dtype=np.int64),
            np.array([code[0] for code in codes], dtype=np.int64),
            np.array([code[1] for code in codes], dtype=np.float64),
            np.array([code[2] for code in codes], dtype=np.float64),
            np.array([segment.sensitivity for segment in segments], dtype=np.float64),
            np.array([segment.noise_std for segment in segments], dtype=np.float64),
        )
        columns = _merged(columns)
        if columns.counts.size == 1 and repeats > 1:
            columns, repeats = columns._replace(counts=columns.counts * int(repeats)), 1
        return cls(
            columns=columns,
            repeats=repeats,
            diameter=diameter,
            initial_distance=initial_distance,
        )

    @classmethod
    def homogeneous(
        cls,
        steps: int,
        modulus: Modulus,
        sensitivity: float,
        noise_std: float,
        *,
        diameter: float = math.inf,
        initial_distance: float = 0.0,
    ) -> Chain:
        """Return a chain of equal steps."""
        return cls.of(
            [Segment(steps, modulus, sensitivity, noise_std)],
            diameter=diameter,
            initial_distance=initial_distance,
        )

    @property
    def period(self) -> int:
        """Number of steps of one period."""
        return int(self.columns.counts.sum())

    @property
    def steps(self) -> int:
        """Number of steps of the whole chain."""
        return self.period * self.repeats

    @property
    def is_linear(self) -> bool:
        """Whether every step has a linear modulus."""
        return bool(np.all(self.columns.kinds == LINEAR))

    @property
    def is_inert(self) -> bool:
        """Whether the two runs never differ at all."""
        return self.initial_distance == 0 and not np.any(self.columns.sensitivities)

    def uniform_linear_step(self) -> tuple[float, float, float] | None:
        """Return (c, s, nu) if all steps are equal and linear, otherwise None."""
        columns = self.columns
        if columns.counts.size > 1 or not self.is_linear:
            return None
        return (
            float(columns.first[0]),
            float(columns.sensitivities[0]),
            float(columns.noise_stds[0]),
        )

    def locate(self, step: int) -> tuple[int, int]:
        """Return the row (counted over all periods) that holds a step, and the step's place in it.

        ``step`` may equal ``steps``: that is the row after the last one, place 0.
        """
        rows, places = self.locate_all(np.array([step]))
        return int(rows[0]), int(places[0])

    def locate_all(self, steps: IntArray) -> tuple[IntArray, IntArray]:
        """Return the same for many steps at once."""
        counts = self.columns.counts
        ends = np.cumsum(counts)
        turns, within = np.divmod(steps, self.period)
        rows = np.searchsorted(ends, within, side="right").astype(np.int64)
        return turns * ends.size + rows, within - (ends[rows] - counts[rows])

    def rows_from(self, step: int) -> IntArray:
        """Return the row (of the period) of each step from the given one on."""
        rows, _ = self.locate_all(np.arange(step, self.steps))
        return rows % self.columns.counts.size

    def with_linear_moduli(self, contractions: FloatArray) -> Chain:
        """Return the chain whose rows have the given linear moduli instead of their own."""
        size = self.columns.counts.size
        columns = self.columns._replace(
            kinds=np.full(size, LINEAR, dtype=np.int64),
            first=np.asarray(contractions, dtype=np.float64),
            second=np.zeros(size),
        )
        return Chain(
            columns=_merged(columns),
            repeats=self.repeats,
            diameter=self.diameter,
            initial_distance=self.initial_distance,
        )


def _check_columns(columns: Columns) -> None:
    if not columns.counts.size:
        raise InvalidInput("A chain needs at least one step; got none.")
    for name in ("first", "second", "sensitivities"):
        _require_all(name, getattr(columns, name), np.greater_equal)
    _require_all("noise_stds", columns.noise_stds, np.greater)


def _require_all(name: str, values: FloatArray, over: np.ufunc) -> None:
    bad = ~(over(values, 0.0) & np.isfinite(values))
    if np.any(bad):
        sign = ">" if over is np.greater else ">="
        raise InvalidInput(
            f"A chain needs finite {name} {sign} 0; got {values[bad][0]!r} "
            f"in row {int(np.flatnonzero(bad)[0])}."
        )


def _merged(columns: Columns) -> Columns:
    """Join neighboring rows of equal steps."""
    if columns.counts.size < 2:
        return columns
    differs = np.zeros(columns.counts.size, dtype=np.bool_)
    differs[0] = True
    for values in columns[1:]:
        differs[1:] |= values[1:] != values[:-1]
    if np.all(differs):
        return columns
    starts = np.flatnonzero(differs)
    return Columns(
        np.add.reduceat(columns.counts, starts),
        columns.kinds[starts],
        columns.first[starts],
        columns.second[starts],
        columns.sensitivities[starts],
        columns.noise_stds[starts],
    )
