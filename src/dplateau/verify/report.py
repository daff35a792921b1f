"""What a verification found: a list of checks, the first failed one last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dplateau.ground.shown import rounded_up


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
        verdict = "verified" if self.ok else "NOT verified"
        what = "" if self.bound is None else f": {self.bound}"
        if self.claimed_epsilon is not None:
            what += f", claimed epsilon {rounded_up(self.claimed_epsilon)}"
        if self.rederived_epsilon is not None:
            what += f", re-derived {rounded_up(self.rederived_epsilon)}"
        lines = [f"  {'ok  ' if c.ok else 'FAIL'} {c.name}: {c.detail}" for c in self.checks]
        return "\n".join([verdict + what, *lines])


class Refused(Exception):
    """A check failed: nothing after it would mean anything."""


@dataclass
class Ledger:
    """The checks so far; a failed one ends the verification."""

    checks: list[Check] = field(default_factory=list)

    def require(self, name: str, condition: bool, detail: str) -> None:
        """Write a check down, and stop if it failed."""
        self.checks.append(Check(name, bool(condition), detail))
        if not condition:
            raise Refused(detail)

    def fail(self, name: str, detail: str) -> None:
        """Write a failed check down."""
        self.checks.append(Check(name, False, detail))

    def agree(self, name: str, stored: float, derived: float, rtol: float = 1e-9) -> None:
        """Require that a stored number is the one derived here."""
        close = abs(stored - derived) <= rtol * max(abs(stored), abs(derived))
        self.require(name, close, f"stored {stored:.12g}, derived {derived:.12g}")
