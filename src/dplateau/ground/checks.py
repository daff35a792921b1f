"""One place that reads numbers: every refusal names the field, the value and what would work."""

from __future__ import annotations

import math
import numbers

from dplateau.errors import InvalidInput
from dplateau.ground.shown import rounded_up


def put(target: object, name: str, value: object) -> None:
    """Set a field of a frozen dataclass while it is being made."""
    object.__setattr__(target, name, value)


def real(name: str, value: object) -> float:
    """Return ``value`` as a float, refusing what is not one real number (NaN included)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidInput(f"{name} must be a real number; got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise InvalidInput(f"{name} is too large for a double-precision number") from None
    if math.isnan(number):
        raise InvalidInput(f"{name} must be a real number; got NaN")
    return number


def positive(name: str, value: object, *, infinite: bool = False) -> float:
    """Return a number above zero, finite unless ``infinite`` is allowed."""
    number = real(name, value)
    if number <= 0 or (math.isinf(number) and not infinite):
        kind = "above 0" if infinite else "finite and above 0"
        raise InvalidInput(f"{name} must be {kind}; got {number:g}")
    return number


def nonnegative(name: str, value: object) -> float:
    """Return a finite number that is zero or more."""
    number = real(name, value)
    if number < 0 or math.isinf(number):
        raise InvalidInput(f"{name} must be finite and at least 0; got {number:g}")
    return number


def whole(name: str, value: object, *, least: int = 1) -> int:
    """Return an integer of at least ``least``; 3.0 counts as 3, 3.5 is refused."""
    number = real(name, value)
    if not math.isfinite(number) or number != math.floor(number):
        raise InvalidInput(f"{name} must be a whole number; got {value!r}")
    if number < least:
        raise InvalidInput(f"{name} must be at least {least}; got {value!r}")
    return int(value) if isinstance(value, numbers.Integral) else int(number)


def choice(name: str, value: object, options: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``options``."""
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise InvalidInput(f"{name} must be one of {listed}; got {value!r}")
    return value


def probability(name: str, value: object) -> float:
    """Return a number strictly between 0 and 1."""
    number = real(name, value)
    if not 0 < number < 1:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1; got {number:g}")
    return number


def level(name: str, value: object) -> float:
    """Return a delta of at least 0 (pure epsilon) and below 1."""
    number = real(name, value)
    if not 0 <= number < 1:
        raise InvalidInput(f"{name} must be at least 0 and below 1; got {number:g}")
    return number


# Beyond this an attacker's odds may grow by a factor of 5e8, which protects nobody.
LARGEST_USEFUL_EPSILON = 20.0


def weak_claim(epsilon: float | None, delta: float, n: int) -> tuple[str, ...]:
    """Return what to say about a claim that protects hardly anyone; nothing about a useful one.

    The one rule about which epsilons and deltas are sensible. None breaks it: the claim is true,
    and whoever makes it is told how little it says.

    >>> weak_claim(1.0, 1e-5, 60_000)
    ()
    >>> weak_claim(1.0, 1e-5, 464_810)[0].partition(";")[0]
    'delta = 1e-05 is above 1/n = 2.15e-06, and publishing a record at random has delta 1/n'
    """
    doubts = []
    if epsilon is not None and epsilon > LARGEST_USEFUL_EPSILON:
        doubts.append(
            f"epsilon = {rounded_up(epsilon)} is above {LARGEST_USEFUL_EPSILON:g}: what an "
            "attacker learns about a record is hardly limited; use 10 or less, better 1"
        )
    if delta > 1.0 / n:
        advice = 10.0 ** math.floor(-math.log10(n))
        doubts.append(
            f"delta = {rounded_up(delta)} is above 1/n = {1.0 / n:.3g}, and publishing a record at "
            f"random has delta 1/n; use {advice:g} or less"
        )
    return tuple(doubts)
