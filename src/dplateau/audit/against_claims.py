"""Attacks set against claims: how tight they are, and whether any is broken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.algorithms import Run
from dplateau.audit.adversary import Effort, search_adversary
from dplateau.audit.problems import LowerBound, WalkProblem
from dplateau.certificates import Certificate, epsilon_over_steps
from dplateau.errors import NotApplicable
from dplateau.ground.progress import counting
from dplateau.ground.sealed import AUDIT, Stamp, seal
from dplateau.ground.shown import Shown, rounded_down, rounded_up
from dplateau.ground.types import FloatArray, IntArray

if TYPE_CHECKING:
    from dplateau.audit.monte_carlo import AuditReport
    from dplateau.verify import Verification

# A claim within this factor of the lower bound cannot be improved: no need to search on.
_EXACT = 1 + 1e-6


@dataclass(frozen=True, repr=False)
class Tightness(Shown):
    """A claim, what is proved to be needed, and the problem that proves it.

    ``limit`` says that other records were taken in the limit of many of them at the same sampling
    rate: that counts against the theorem, which does not use their number, not against this run.
    """

    run: Run
    delta: float
    bound: str
    upper: float
    lower: LowerBound
    limit: bool = False

    @property
    def ratio(self) -> float:
        """The claim over the lower bound (infinite if nothing is proved to be needed)."""
        return self.upper / self.lower.epsilon if self.lower.epsilon > 0 else math.inf

    @property
    def problem(self) -> WalkProblem:
        """The problem that proves the lower bound; ``lower_epsilon`` replays it."""
        return self.lower.problem

    def to_dict(self) -> dict[str, Any]:
        """Return everything, the problem included, as JSON-ready data."""
        return {
            "run": self.run.to_dict(),
            "bound": self.bound,
            "delta": self.delta,
            "upper": self.upper,
            "lower": self.lower.to_dict(),
            "ratio": self.ratio if math.isfinite(self.ratio) else None,
            "limit": self.limit,
        }

    def __str__(self) -> str:
        """Show both numbers and their ratio in one line."""
        needed = f"at least {rounded_down(self.lower.epsilon, 4)} is needed"
        return (
            f"{self.bound} claims {rounded_up(self.upper, 4)} at delta {rounded_up(self.delta)}, "
            f"{needed} (ratio {self.ratio:.3f})"
        )


def tightness(
    certificate: Certificate, *, effort: Effort = "normal", limit: bool = False
) -> Tightness:
    """Set a certificate's claim against the worst problem that a search finds.

    Parameters
    ----------
    certificate
        The claim.
    effort, limit
        Those of :func:`~dplateau.audit.adversary.search_adversary`.

    Returns
    -------
    Tightness
        Claim, lower bound and their ratio.

    Raises
    ------
    NotApplicable
        If no exact problem is known in the run's class.

    Examples
    --------
    >>> from dplateau import LossGeometry, NoisyGD, certify
    >>> run = NoisyGD(n=10, steps=100, learning_rate=0.5, l2=0.1, noise_std=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5))
    >>> print(tightness(certify(run, 1e-5), effort="quick"))
    gd_contraction claims 2.541 at delta 1e-05, at least 2.54 is needed (ratio 1.000)
    """
    run, delta, upper = certificate.run, certificate.claimed_delta, certificate.claimed_epsilon
    lower = search_adversary(run, delta, effort="quick", limit=limit)
    if effort != "quick" and upper > lower.epsilon * _EXACT:
        lower = search_adversary(run, delta, effort=effort, limit=limit)
    return Tightness(run, delta, certificate.bound, upper, lower, limit)


@dataclass(frozen=True, eq=False)
class TightnessOverSteps:
    """The best claim and the lower bound at several numbers of steps.

    ``problems`` holds the problem behind each lower bound; where none was found (``lower`` 0) it is
    None.
    """

    run: Run
    delta: float
    steps: IntArray
    upper: FloatArray
    lower: FloatArray
    bounds: tuple[str, ...]
    problems: tuple[WalkProblem | None, ...]

    @property
    def ratio(self) -> FloatArray:
        """The claim over the lower bound at each number of steps (infinite without one)."""
        known = self.lower > 0
        ratios: FloatArray = np.full(self.lower.shape, math.inf)
        ratios[known] = self.upper[known] / self.lower[known]
        return ratios


def tightness_over_steps(
    run: Run,
    delta: float,
    steps: Sequence[int] | IntArray,
    *,
    effort: Effort = "quick",
    limit: bool = False,
) -> TightnessOverSteps:
    """Return the best claim and the lower bound for ``run`` cut or extended to each of ``steps``.

    >>> from dplateau import LossGeometry, NoisyGD
    >>> run = NoisyGD(n=10, steps=1, learning_rate=0.5, l2=0.1, noise_std=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5))
    >>> tightness_over_steps(run, 1e-5, [1, 10, 100]).ratio.round(6)
    array([1., 1., 1.])
    """
    curve = epsilon_over_steps(run, delta, steps)
    lowest: list[LowerBound | None] = []
    with counting("lower bounds", curve.steps.size) as advance:
        for count in curve.steps.tolist():
            try:
                shorter = run.replace(steps=count)
                lowest.append(search_adversary(shorter, delta, effort=effort, limit=limit))
            except NotApplicable:
                lowest.append(None)
            advance(1)
    best = np.argmin([line.epsilon for line in curve.bounds], axis=0)
    return TightnessOverSteps(
        run=run,
        delta=curve.delta,
        steps=curve.steps,
        upper=curve.best,
        lower=np.array([0.0 if bound is None else bound.epsilon for bound in lowest]),
        bounds=tuple(curve.bounds[index].bound for index in best),
        problems=tuple(None if bound is None else bound.problem for bound in lowest),
    )


# ---- what an audit found -------------------------------------------------------------------------


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
        if self.certificate.claim is None:
            return f"nothing is claimed: {self.certificate.no_claim}"
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
        attack = search_adversary(certificate.run, certificate.claimed_delta, effort=effort)
    except NotApplicable as reason:
        return Findings(certificate, verification, None, str(reason))
    return Findings(certificate, verification, attack, None)
