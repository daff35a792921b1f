"""One scalar noisy process: when the record takes part in it, and what its steps are."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from dplateau.algorithms.base import NoiseKind
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import BoolArray, FloatArray

# ---- when the record takes part -----------------------------------------------------------------


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


def inclusion_from_dict(document: dict[str, Any]) -> Inclusion:
    """Read what :func:`inclusion_to_dict` wrote.

    >>> inclusion_from_dict({"kind": "bernoulli", "rate": 0.25})
    Bernoulli(rate=0.25)
    """
    fields = dict(document)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise InvalidInput(f"unknown inclusion {kind!r}; known are {', '.join(_KINDS)}")
    try:
        return _KINDS[kind](**fields)
    except TypeError as error:
        raise InvalidInput(f"inclusion {kind}: {error}") from None


def active_steps(pattern: Pattern, steps: int) -> BoolArray:
    """Return, for each of ``steps`` steps, whether the record takes part."""
    active = np.zeros(steps, dtype=np.bool_)
    active[pattern.active()] = True
    return active


def takes_part(pattern: Pattern, time: int) -> bool:
    """Return whether the record takes part in the step at ``time``."""
    return time in range(time + 1)[pattern.active()]


def _place_weights(period: int, last_weight: float) -> list[float]:
    total = period - 1 + last_weight
    return [1.0 / total] * (period - 1) + [last_weight / total]


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise InvalidInput(f"rate must be a probability; got {rate}")


# ---- the walk and its steps ---------------------------------------------------------------------

PerStep = float | tuple[float, ...]
PerStepName = Literal[
    "contraction", "noise_std", "drift", "jump", "pull", "pull_change", "record_pull"
]


@dataclass(frozen=True, slots=True)
class Step:
    """One step x -> clamp(contraction * x + shift - pull * clip(x - center) + noise).

    The clip is to [-width, width]. ``weights`` are the probabilities of the pairs of ``shifts`` and
    ``pulls`` (no pulls: none of them is pulled).
    """

    contraction: float
    noise_std: float
    shifts: tuple[float, ...]
    weights: tuple[float, ...]
    pulls: tuple[float, ...] = ()
    center: float = 0.0
    width: float = math.inf

    def images(self, states: FloatArray) -> list[tuple[float, FloatArray]]:
        """Return where the states go before the noise, with the probability of each branch."""
        pulls = self.pulls or (0.0,) * len(self.shifts)
        images = []
        for shift, weight, pull in zip(self.shifts, self.weights, pulls, strict=True):
            moved = self.contraction * states + shift
            if pull:
                moved = moved - pull * np.clip(states - self.center, -self.width, self.width)
            images.append((weight, moved))
        return images


# A stretch of steps: (step, count) pairs in order, the whole run through ``repeats`` times.
Stretch = tuple[tuple[tuple[Step, int], ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """X_{t+1} = clamp(contraction_t X_t + drift_t + I_t jump_t - k_t clip(X_t) + noise_t).

    X_0 = start. clip(x) is x - center cut to [-width, width], and k_t, the curvature of the losses,
    is pull_t where I_t = 0 and pull_t + pull_change_t where I_t = 1, in the steps of ``pull_when``;
    ``record_pull`` is added wherever I_t = 1. Per-step values are one number, or a tuple with one
    number per step.
    """

    steps: int
    contraction: PerStep
    noise_std: PerStep
    drift: PerStep
    jump: PerStep
    inclusion: Always | Bernoulli | Periodic | Once | Reshuffled
    start: float
    lower: float = -math.inf
    upper: float = math.inf
    noise_kind: NoiseKind = "gaussian"
    pull: PerStep = 0.0
    pull_change: PerStep = 0.0
    record_pull: PerStep = 0.0
    pull_when: Pattern = ALWAYS
    center: float = 0.0
    width: float = math.inf

    @property
    def bounded(self) -> bool:
        """Whether the walk is clamped on both sides."""
        return math.isfinite(self.lower) and math.isfinite(self.upper)

    @property
    def homogeneous(self) -> bool:
        """Whether nothing but the indicators changes from step to step."""
        values = (self.contraction, self.noise_std, self.drift, self.jump)
        pulls = (self.pull, self.pull_change, self.record_pull)
        return not any(isinstance(value, tuple) for value in values + pulls)

    @property
    def pulled(self) -> bool:
        """Whether curved losses bend the map."""
        return bool(np.any(self.pull) or np.any(self.pull_change) or np.any(self.record_pull))

    @property
    def kinks(self) -> tuple[float, ...]:
        """Where the map's slope changes, inside of the walls."""
        ends = (self.center - self.width, self.center + self.width) if self.pulled else ()
        return tuple(end for end in ends if self.lower < end < self.upper)

    def pull_slopes(self) -> FloatArray:
        """Return the pulls of every step: without the record, with it, and its own alone."""
        pulls, changes = self.per_step("pull"), self.per_step("pull_change")
        own = self.per_step("record_pull")
        return np.stack([pulls, pulls + changes + own, own])

    def steepest(self) -> float:
        """Return the largest slope of any step's map, in absolute value."""
        slopes = self.per_step("contraction")
        pulled = np.abs(slopes - self.pull_slopes()) if self.pulled else np.zeros(1)
        return float(max(np.max(np.abs(slopes)), np.max(pulled)))

    def constants(self) -> tuple[float, float, float, float]:
        """Return contraction, noise_std, drift and jump of a homogeneous walk."""
        constants = (self.contraction, self.noise_std, self.drift, self.jump)
        numbers = tuple(value for value in constants if not isinstance(value, tuple))
        if len(numbers) != 4:
            raise NotApplicable("the parameters of this walk change from step to step")
        return numbers

    def per_step(self, name: PerStepName) -> FloatArray:
        """Return one value of the named parameter per step."""
        return np.broadcast_to(
            np.asarray(getattr(self, name), dtype=np.float64), (self.steps,)
        ).copy()

    def first(self, count: int) -> Walk:
        """Return the walk that stops after ``count`` steps."""
        shorter = replace(
            self,
            steps=count,
            contraction=_first(self.contraction, count),
            noise_std=_first(self.noise_std, count),
            drift=_first(self.drift, count),
            jump=_first(self.jump, count),
            pull=_first(self.pull, count),
            pull_change=_first(self.pull_change, count),
            record_pull=_first(self.record_pull, count),
        )
        if isinstance(self.inclusion, Once) and self.inclusion.step >= count:
            # The record has not had its turn yet.
            return replace(shorter, inclusion=ALWAYS, jump=0.0, pull_change=0.0, record_pull=0.0)
        return shorter

    def unconstrained(self) -> Walk:
        """Return the same walk without its walls."""
        return replace(self, lower=-math.inf, upper=math.inf)

    def step_at(self, time: int) -> Step:
        """Return the step taken at ``time`` (from 0 to steps - 1)."""
        match self.inclusion:
            case Bernoulli(rate) if 0 < rate < 1:
                return self._step(time, ((False, 1.0 - rate), (True, rate)))
            case Bernoulli(rate):
                return self._step(time, ((rate == 1, 1.0),))
            case Reshuffled():
                raise NotApplicable("the steps of a reshuffled epoch are not independent")
            case pattern:
                return self.step_if(time, takes_part(pattern, time))

    def step_if(self, time: int, taken: bool) -> Step:
        """Return the step at ``time`` if the record takes part in it, or not."""
        return self._step(time, ((taken, 1.0),))

    def _step(self, time: int, branches: tuple[tuple[bool, float], ...]) -> Step:
        drift, jump = _at(self.drift, time), _at(self.jump, time)
        bare = Step(
            _at(self.contraction, time),
            _at(self.noise_std, time),
            tuple(drift + (jump if taken else 0.0) for taken, _ in branches),
            tuple(weight for _, weight in branches),
        )
        pulls = tuple(self._pull_at(time, taken) for taken, _ in branches) if self.pulled else ()
        if not any(pulls):
            return bare
        return replace(bare, pulls=pulls, center=self.center, width=self.width)

    def _pull_at(self, time: int, taken: bool) -> float:
        own = _at(self.record_pull, time) if taken else 0.0
        if not takes_part(self.pull_when, time):
            return own
        return own + _at(self.pull, time) + (_at(self.pull_change, time) if taken else 0.0)

    def stretches(self, count: int) -> list[Stretch]:
        """Group the first ``count`` steps into stretches of repeated equal steps."""
        if count <= 0:
            return []
        period = self._period()
        if period is None or (period > 1 and count <= 2 * period):
            return [(_run_lengths([self.step_at(t) for t in range(count)]), 1)]
        if period == 1:
            return [(((self.step_at(0), count),), 1)]
        cycle = _run_lengths([self.step_at(t) for t in range(period)])
        rest = _run_lengths([self.step_at(t) for t in range(count % period)])
        return [(cycle, count // period)] + ([(rest, 1)] if rest else [])

    def _period(self) -> int | None:
        """Return after how many steps everything repeats; None if it does not."""
        if not self.homogeneous:
            return None
        whole = 1
        for pattern in (self.inclusion, self.pull_when if self.pulled else ALWAYS):
            match pattern:
                case Periodic(period, _):
                    whole = math.lcm(whole, period)
                case Always() | Bernoulli():
                    pass
                case _:
                    return None
        return whole


def as_per_step(values: Any) -> PerStep:
    """Return an array with one value per step, or one number for all of them, as plain data."""
    return tuple(values.tolist()) if np.ndim(values) else float(values)


def _first(value: PerStep, count: int) -> PerStep:
    return value[:count] if isinstance(value, tuple) else value


def _at(value: PerStep, time: int) -> float:
    return value[time] if isinstance(value, tuple) else value


def _run_lengths(steps: list[Step]) -> tuple[tuple[Step, int], ...]:
    lengths: list[tuple[Step, int]] = []
    for step in steps:
        if lengths and lengths[-1][0] == step:
            lengths[-1] = (step, lengths[-1][1] + 1)
        else:
            lengths.append((step, 1))
    return tuple(lengths)
