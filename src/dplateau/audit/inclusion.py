"""When the record takes part: the laws of the indicators I_0, I_1, ..., I_{T-1}."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import BoolArray


@dataclass(frozen=True, slots=True)
class Always:
    """Full batch: I_t = 1 at every step."""

    def active(self) -> slice:
        """Return the steps in which the record takes part, as a slice of all steps."""
        return slice(None)


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Random batches: the I_t are independent, each 1 with probability ``rate``."""

    rate: float

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        _check_rate(self.rate)


@dataclass(frozen=True, slots=True)
class Periodic:
    """Cyclic batches: I_t = 1 exactly when t = ``position`` modulo ``period``."""

    period: int
    position: int

    def __post_init__(self) -> None:
        """Refuse a position outside the cycle."""
        if self.period < 1 or not 0 <= self.position < self.period:
            raise InvalidInput(
                f"a cycle needs 0 <= position < period; got position={self.position}, "
                f"period={self.period}"
            )

    def active(self) -> slice:
        """Return the steps in which the record takes part, as a slice of all steps."""
        return slice(self.position, None, self.period)


@dataclass(frozen=True, slots=True)
class Once:
    """One pass: I_t = 1 only at t = ``step`` (counted from 0)."""

    step: int

    def __post_init__(self) -> None:
        """Refuse a step before the first."""
        if self.step < 0:
            raise InvalidInput(f"steps are counted from 0; got step={self.step}")

    def active(self) -> slice:
        """Return the steps in which the record takes part, as a slice of all steps."""
        return slice(self.step, self.step + 1)


@dataclass(frozen=True, slots=True)
class Until:
    """I_t = 1 in every step up to ``step`` (counted from 0, included)."""

    step: int

    def __post_init__(self) -> None:
        """Refuse a step before the first."""
        if self.step < 0:
            raise InvalidInput(f"steps are counted from 0; got step={self.step}")

    def active(self) -> slice:
        """Return the steps in which the record takes part, as a slice of all steps."""
        return slice(0, self.step + 1)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Cyclic batches in one random order, drawn before the run, never shown and kept throughout.

    The position in the cycle of ``period`` batches is uniform, except that the last position has
    ``last_weight`` times the probability of any other (its batch may be shorter).
    """

    period: int
    last_weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse an empty cycle or a weight that is none."""
        if self.period < 1 or not 0 < self.last_weight <= 1:
            raise InvalidInput(
                f"a shuffled cycle needs period >= 1 and 0 < last_weight <= 1; got {self}"
            )

    def positions(self) -> list[tuple[float, Periodic]]:
        """Return every position with its probability."""
        places = _place_weights(self.period, self.last_weight)
        return [(weight, Periodic(self.period, at)) for at, weight in enumerate(places)]


@dataclass(frozen=True, slots=True)
class Reshuffled:
    """Cyclic batches in a fresh random order each epoch: one use per epoch, at a random place.

    The places of different epochs are independent; each is distributed as in :class:`Shuffled`.
    """

    period: int
    last_weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse an empty epoch or a weight that is none."""
        if self.period < 1 or not 0 < self.last_weight <= 1:
            raise InvalidInput(
                f"a reshuffled epoch needs period >= 1 and 0 < last_weight <= 1; got {self}"
            )

    def places(self) -> list[float]:
        """Return the probability of every place in an epoch."""
        return _place_weights(self.period, self.last_weight)


Pattern = Always | Periodic | Once | Until
Inclusion = Always | Bernoulli | Periodic | Once | Until | Shuffled | Reshuffled
ALWAYS = Always()
_KINDS: dict[str, type[Inclusion]] = {
    "always": Always,
    "bernoulli": Bernoulli,
    "periodic": Periodic,
    "once": Once,
    "until": Until,
    "shuffled": Shuffled,
    "reshuffled": Reshuffled,
}


def inclusion_to_dict(inclusion: Inclusion) -> dict[str, Any]:
    """Return a JSON-ready description."""
    return {"kind": type(inclusion).__name__.lower(), **asdict(inclusion)}


def inclusion_from_dict(found: dict[str, Any]) -> Inclusion:
    """Read what :func:`inclusion_to_dict` wrote.

    >>> inclusion_from_dict({"kind": "bernoulli", "rate": 0.25})
    Bernoulli(rate=0.25)
    """
    fields = dict(found)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise InvalidInput(f"unknown inclusion {kind!r}; known are {', '.join(_KINDS)}")
    try:
        return _KINDS[kind](**fields)
    except TypeError as error:
        raise InvalidInput(f"inclusion {kind}: {error}") from None


def active_steps(pattern: Pattern, steps: int) -> BoolArray:
    """Return, for each of ``steps`` steps, whether the record takes part."""
    found = np.zeros(steps, dtype=np.bool_)
    found[pattern.active()] = True
    return found


def takes_part(pattern: Pattern, time: int) -> bool:
    """Return whether the record takes part in the step at ``time``."""
    return time in range(time + 1)[pattern.active()]


def _place_weights(period: int, last_weight: float) -> list[float]:
    total = period - 1 + last_weight
    return [1.0 / total] * (period - 1) + [last_weight / total]


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise InvalidInput(f"rate must be a probability; got {rate}")
