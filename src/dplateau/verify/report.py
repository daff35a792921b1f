"""What a verification found: a list of checks, the first failed one last."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dplateau.ground.shown import rounded_up

# A file from anywhere is answered within so many seconds of processor time, unless told otherwise.
SECONDS = 10.0
# Where the file is one's own as a rule, and a refusal costs more than waiting.
PATIENT_SECONDS = 60.0
_OVERFLOWS = "the file's numbers are too large or too small to compute with"
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, whether it held, and the numbers that decide it."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Verification:
    """The verdict on one certificate.

    ``ok`` is True if every check held, the last of which compares the claim with the epsilon that
    was derived anew. Checks stop at the first failure, so ``rederived_epsilon`` is None if the
    derivation did not get that far.
    """

    ok: bool
    checks: tuple[Check, ...]
    claimed_epsilon: float | None
    rederived_epsilon: float | None
    bound: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-ready data."""
        return {
            "ok": self.ok,
            "bound": self.bound,
            "claimed_epsilon": self.claimed_epsilon,
            "rederived_epsilon": self.rederived_epsilon,
            "checks": [vars(check) for check in self.checks],
        }

    def __str__(self) -> str:
        """Show the verdict and every check, one line each."""
        what = "" if self.bound is None else f": {self.bound}"
        numbers = (self.claimed_epsilon, self.rederived_epsilon)
        return _page(self.ok, what, "epsilon", numbers, self.checks)


@dataclass(frozen=True)
class MixingVerification:
    """The verdict on one mixing certificate; checks stop at the first failure."""

    ok: bool
    checks: tuple[Check, ...]
    claimed_tv: float | None
    rederived_tv: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-ready data."""
        return {**vars(self), "checks": [vars(check) for check in self.checks]}

    def __str__(self) -> str:
        """Show the verdict and every check, one line each."""
        numbers = (self.claimed_tv, self.rederived_tv)
        return _page(self.ok, "", "total variation", numbers, self.checks)


def _page(
    ok: bool,
    what: str,
    unit: str,
    numbers: tuple[float | None, float | None],
    checks: tuple[Check, ...],
) -> str:
    for name, value in zip(("claimed", "re-derived"), numbers, strict=True):
        if value is not None:
            what += f", {name} {unit} {rounded_up(value)}"
    lines = [f"  {'ok  ' if check.ok else 'FAIL'} {check.name}: {check.detail}" for check in checks]
    return "\n".join([("verified" if ok else "NOT verified") + what, *lines])


class Refused(Exception):
    """A check failed: nothing after it would mean anything."""


class Malformed(Exception):
    """Something that should be a number, a list or a name is not."""


class OutOfTime(Exception):
    """The verification took longer than it was given."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Let what is derived inside the block take so much processor time; then it is given up."""
    began = _DEADLINE.set(time.thread_time() + seconds)
    try:
        yield
    except OutOfTime:
        raise OutOfTime(
            f"given up after {seconds:g} seconds of processor time; it may have more with "
            "--seconds (seconds=... in Python), or verify the parts of a composition one by one"
        ) from None
    finally:
        _DEADLINE.reset(began)


def go_on() -> None:
    """Give up if there is no time left; whatever may be asked for very often calls this first."""
    if time.thread_time() > _DEADLINE.get():
        raise OutOfTime


def _overflows(problem: Exception) -> bool:
    """Return whether arithmetic itself failed, whose own words do not say of what."""
    beyond = OverflowError, ZeroDivisionError, FloatingPointError
    return isinstance(problem, beyond) or str(problem) == "math domain error"


@dataclass
class Examination:
    """The checks so far, a failed one ends the verification; and what was derived, if anything."""

    checks: list[Check] = field(default_factory=list)
    derived: float | None = None
    _seen: set[Check] = field(default_factory=set)

    def require(self, name: str, condition: bool, detail: str) -> None:
        """Write a check down, and stop if it failed."""
        go_on()
        check = Check(name, bool(condition), detail)
        if check not in self._seen:  # what is asked at every step is told once
            self.checks.append(check)
            self._seen.add(check)
        if not condition:
            raise Refused(detail)

    def require_proved(self, claimed: float, derived: float, how: str) -> None:
        """Require that a claimed epsilon is not below the derived one."""
        shown = f"claimed {rounded_up(claimed, 12)}, derived {rounded_up(derived, 12)}"
        if math.isfinite(derived):
            self.derived = derived
        self.require("epsilon is proved", derived <= claimed, f"{shown} ({how})")

    def settles(self, derivation: Callable[[], object], seconds: float) -> bool:
        """Return whether a derivation came to its end; what stopped it is the last check."""
        try:
            # What is no number is not above a claim: whatever makes one ends the derivation. That
            # numbers of forged files overflow the verdict says, not a warning beside it.
            with at_most(seconds), np.errstate(all="ignore", invalid="raise"):
                derivation()
        except Refused:
            return False  # the last line says why
        except Malformed as problem:
            self.checks.append(Check("readable", False, str(problem)))
            return False
        except OutOfTime as problem:
            self.checks.append(Check("time", False, str(problem)))
            return False
        except Exception as problem:
            # Whatever else happens on the way, the claim was not confirmed: that is the verdict.
            reason = f"{type(problem).__name__}: {problem}"
            what = _OVERFLOWS if _overflows(problem) else "could not be carried out"
            self.checks.append(Check("derivation", False, f"{what} ({reason})"))
            return False
        return True
