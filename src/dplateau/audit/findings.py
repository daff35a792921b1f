"""What was found against one claim: its re-derivation, an exact adversary, a trainer's runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dplateau.audit.adversary import search_adversary
from dplateau.errors import NotApplicable
from dplateau.ground.sealed import AUDIT, Stamp, seal
from dplateau.ground.shown import rounded_down, rounded_up

if TYPE_CHECKING:
    from dplateau.audit.adversary import Effort
    from dplateau.audit.monte_carlo import AuditReport
    from dplateau.audit.problems import LowerBound
    from dplateau.certificates import Certificate
    from dplateau.verify import Verification


@dataclass(frozen=True)
class Findings:
    """What was found against one claim."""

    certificate: Certificate
    verification: Verification
    adversary: LowerBound | None
    no_lower_bound: str | None
    report: AuditReport | None = None

    @property
    def needed(self) -> float | None:
        """The epsilon that an exact adversary proves to be needed."""
        return None if self.adversary is None else self.adversary.epsilon

    @property
    def sound(self) -> bool:
        """Whether the claim was re-derived and no exact adversary beats it."""
        beaten = self.needed is not None and self.needed > self.certificate.claimed_epsilon
        return self.verification.ok and not beaten

    @property
    def contradicted(self) -> bool:
        """Whether anything speaks against the claim."""
        return not self.sound or (self.report is not None and self.report.violated)

    @property
    def ratio(self) -> float | None:
        """The claim over what is proved to be needed."""
        return self.certificate.claimed_epsilon / self.needed if self.needed else None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data, sealed."""
        content = {
            "verdict": "violated" if self.contradicted else "not violated",
            "certificate": self.certificate.to_dict(),
            "verification": self.verification.to_dict(),
            "lower_bound": self.needed,
            "no_lower_bound": self.no_lower_bound,
            "adversary": None if self.adversary is None else self.adversary.to_dict(),
            "ratio": self.ratio,
            "trainer": None if self.report is None else self.report.to_dict(),
        }
        return seal(AUDIT, content, Stamp.now())

    def __str__(self) -> str:
        """Show claim, lower bound, ratio and verdict in plain lines."""
        lines = [f"claim: {self.certificate}", self._verified(), self._needed()]
        if self.report is not None:
            lines.append(f"trainer: {self.report}")
        lines.append(f"verdict: {self._verdict()}")
        return "\n".join(lines)

    def _verified(self) -> str:
        if self.verification.ok:
            return f"re-derived by independent code: epsilon {self._rederived()}"
        failed = next(check for check in self.verification.checks if not check.ok)
        return f"NOT re-derived by independent code: {failed.name}: {failed.detail}"

    def _rederived(self) -> str:
        value = self.verification.rederived_epsilon
        return "?" if value is None else rounded_up(value)

    def _needed(self) -> str:
        if self.needed is None:
            return f"exact adversary: none known ({self.no_lower_bound})"
        ratio = "" if self.ratio is None else f"; the claim is {self.ratio:.4g} times that"
        return f"exact adversary: epsilon is at least {rounded_down(self.needed)}{ratio}"

    def _verdict(self) -> str:
        if not self.verification.ok:
            return "violated: the claim does not follow from its own proof"
        if not self.sound:
            return "violated: an exact adversary needs a larger epsilon than is claimed"
        if self.report is None:
            return "not violated: nothing contradicts the claim"
        if self.report.violated:
            return "violated: the trainer leaks more than is claimed"
        return "not violated: nothing contradicts the claim, and the trainer's runs agree with it"


def findings_against(
    certificate: Certificate, verification: Verification, *, effort: Effort = "normal"
) -> Findings:
    """Search for an exact adversary of a claim whose re-derivation is known."""
    try:
        found = search_adversary(certificate.run, certificate.claimed_delta, effort=effort)
    except NotApplicable as reason:
        return Findings(certificate, verification, None, str(reason))
    return Findings(certificate, verification, found, None)
