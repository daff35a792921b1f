"""From a description to a claim: the smallest epsilon among the bounds that apply.

``certify`` gives the best claim with its proof, ``compare`` every bound side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.algorithms import Run, require_run
from dplateau.bounds.base import Assumption, Bound, Witness, base_assumptions
from dplateau.bounds.registry import BOUNDS, HISTORICAL
from dplateau.certificates.certificate import Certificate, Claim
from dplateau.errors import NotApplicable
from dplateau.ground import checks
from dplateau.ground.progress import counting
from dplateau.ground.shown import Shown, rounded_up

if TYPE_CHECKING:
    import pandas as pd

# ---- every bound side by side --------------------------------------------------------------------


HISTORICAL_MARK = "(historical, not a claim)"


@dataclass(frozen=True)
class ComparisonRow:
    """One bound: its epsilon, or the reason why it says nothing (then epsilon is None)."""

    bound: str
    title: str
    epsilon: float | None
    reason: str | None
    citation: str
    hidden_state: bool
    sound: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON-ready data."""
        return {
            "bound": self.bound,
            "title": self.title,
            "epsilon": self.epsilon,
            "reason": self.reason,
            "citation": self.citation,
            "hidden_state": self.hidden_state,
            "sound": self.sound,
        }


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """What every bound says about one run at one delta, the tightest first."""

    run: Run
    delta: float
    rows: tuple[ComparisonRow, ...]

    @property
    def best(self) -> ComparisonRow:
        """The row that ``certify`` would choose."""
        return next(row for row in self.rows if row.sound and row.epsilon is not None)

    def epsilon(self, bound: str) -> float | None:
        """Return one bound's epsilon, or None if it does not apply."""
        return next(row.epsilon for row in self.rows if row.bound == bound)

    @property
    def refusals(self) -> dict[str, tuple[str, ...]]:
        """Return why bounds say nothing: each reason with the names of the bounds that give it."""
        groups: dict[str, tuple[str, ...]] = {}
        for row in self.rows:
            if row.reason is not None:
                groups[row.reason] = (*groups.get(row.reason, ()), row.bound)
        return groups

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with one row per bound (needs the extra ``frames``)."""
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in self.rows]).set_index("bound")

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-ready data."""
        return {
            "run": self.run.to_dict(),
            "claimed_delta": self.delta,
            "claimed_epsilon": self.best.epsilon,
            "bound": self.best.bound,
            "bounds": [row.to_dict() for row in self.rows],
        }

    @property
    def headline(self) -> str:
        """The best claim in one line."""
        best, answers = self.best, sum(row.reason is None for row in self.rows)
        shown = "-" if best.epsilon is None else rounded_up(best.epsilon)
        return (
            f"epsilon {shown} at delta = {rounded_up(self.delta)} by {best.title} "
            f"({answers} of {len(self.rows)} bounds apply)"
        )

    def __repr__(self) -> str:
        return f"<Comparison: {self.headline}>"

    def __str__(self) -> str:
        """Show a plain-text table of the answers, then the refusals, each reason once."""
        answers = [row for row in self.rows if row.reason is None]
        width = max(len(row.title) for row in self.rows)
        lines = [f"{'bound':<{width}}  {'epsilon':>10}  at delta = {rounded_up(self.delta)}"]
        lines += [f"{row.title:<{width}}  {_shown(row):>10}  {_note(row)}" for row in answers]
        sound = {row.bound: row.sound for row in self.rows}
        lines += ["", "The others say nothing:"] if self.refusals else []
        for reason, names in self.refusals.items():
            marked = (name if sound[name] else f"{name} {HISTORICAL_MARK}" for name in names)
            lines.append(f"  {', '.join(marked)}: {reason}")
        return "\n".join(lines)


def _shown(row: ComparisonRow) -> str:
    return "-" if row.epsilon is None else rounded_up(row.epsilon)


def _note(row: ComparisonRow) -> str:
    note = row.citation if row.reason is None else row.reason
    return note if row.sound else f"{HISTORICAL_MARK} {note}"


# ---- asking the bounds ---------------------------------------------------------------------------

_BEYOND_NUMBERS = (
    "meets numbers beyond double precision, or more of them than memory holds; use more noise or "
    "fewer steps"
)


@dataclass(frozen=True)
class Finding:
    """What one bound says about one run: an epsilon with its witness, or a reason."""

    bound: Bound
    epsilon: float | None
    witness: Witness
    reason: str | None

    def order(self) -> float:
        """Return what to sort by: the tightest answer first, refusals last."""
        return math.inf if self.epsilon is None else self.epsilon

    def row(self) -> ComparisonRow:
        """Return the finding as a row of a table."""
        return ComparisonRow(
            bound=self.bound.name,
            title=self.bound.title,
            epsilon=self.epsilon,
            reason=self.reason,
            citation=self.bound.citation.short(),
            hidden_state=self.bound.hidden_state,
            sound=self.bound.sound,
        )


def certify(
    run: Run,
    delta: float,
    *,
    bounds: Iterable[Bound] | None = None,
    group_size: int | None = None,
) -> Certificate:
    """Return the smallest epsilon at ``delta`` among the sound bounds that apply, with its proof.

    Parameters
    ----------
    run
        The description of what was done, or will be.
    delta
        The failure probability of the claim, in [0, 1); 0 asks for pure epsilon.
    bounds
        The bounds to ask; by default all that may win.
    group_size
        Certify ``run.replace(group_size=...)``, for neighbors that differ in so many records.

    Returns
    -------
    Certificate
        The claim with run, theorem, free choices of the proof and assumptions.

    Raises
    ------
    InvalidInput
        If delta is no probability.
    NotApplicable
        If no bound says anything about the run; the text has each bound's reason.

    Examples
    --------
    >>> from dplateau import NoisyGD
    >>> run = NoisyGD(n=100, steps=1, noise_multiplier=1.0, release="all")
    >>> round(certify(run, delta=1e-5).claimed_epsilon, 5)
    4.37718
    >>> round(certify(run, delta=1e-5, group_size=2).claimed_epsilon, 5)
    9.99726
    """
    run = in_groups(run, group_size)
    chosen = candidates(run) if bounds is None else tuple(bounds)
    level = checks.level("delta", delta)
    return certificate_of(run, level, survey(run, level, [b for b in chosen if b.sound]))


def in_groups(run: Run, group_size: int | None) -> Run:
    """Return the run with another unit of privacy, if one is stated."""
    run = require_run(run)
    return run if group_size is None else run.replace(group_size=group_size)


def candidates(run: Run, *, beside: bool = False) -> tuple[Bound, ...]:
    """Return the bounds that may win: those that no other applicable bound dominates.

    ``beside``: also those that may win among the bounds which cover the release of every iterate.
    """
    if run.group_size > 1:
        return BOUNDS  # group privacy is exact for some curves only, and may change the order
    applicable = [bound for bound in BOUNDS if bound.refusal(run) is None]
    names = {bound.name for bound in applicable}
    released = {bound.name for bound in applicable if not bound.hidden_state}
    return tuple(
        bound
        for bound in BOUNDS
        if names.isdisjoint(bound.dominated_by)
        or (beside and not bound.hidden_state and released.isdisjoint(bound.dominated_by))
    )


def compare(
    run: Run, delta: float, *, historical: bool = False, group_size: int | None = None
) -> Comparison:
    """Return every bound with its epsilon or the reason why it does not apply, tightest first.

    Parameters
    ----------
    run
        The description of what was done, or will be.
    delta
        The failure probability of the claim, in [0, 1); 0 asks for pure epsilon.
    historical
        Add published statements whose proof has a gap; they are marked and never chosen.
    group_size
        Certify ``run.replace(group_size=...)``, for neighbors that differ in so many records.

    Returns
    -------
    Comparison
        One row for each bound; ``refusals`` groups those that say nothing by their reason.

    Raises
    ------
    InvalidInput
        If delta is no probability.
    """
    run = in_groups(run, group_size)
    shown = (*BOUNDS, *HISTORICAL) if historical else BOUNDS
    level = checks.level("delta", delta)
    return comparison_of(run, level, survey(run, level, shown))


def survey(run: Run, delta: float, bounds: Sequence[Bound]) -> tuple[Finding, ...]:
    """Ask every bound, the tightest answer first and the refusals last."""
    level = checks.level("delta", delta)
    findings = []
    with counting("bounds", len(bounds)) as advance:
        for bound in bounds:
            findings.append(ask(bound, run, level))
            advance(1)
    return tuple(sorted(findings, key=Finding.order))


def certificate_of(run: Run, delta: float, findings: Sequence[Finding]) -> Certificate:
    """Return the certificate of the tightest sound finding."""
    for finding in findings:
        if finding.bound.sound and finding.epsilon is not None:
            return Certificate(
                claim=Claim(finding.epsilon, delta),
                run=run,
                bound=finding.bound.name,
                witness=finding.witness,
                assumptions=assumptions_of(run, finding.bound),
            )
    reasons = _reasons(findings)
    if delta == 0:
        raise NotApplicable(
            "no bound gives a finite epsilon at delta = 0: take delta > 0, or noise_kind='laplace' "
            f"({reasons})"
        )
    raise NotApplicable(f"no bound applies: {reasons}")


def _reasons(findings: Sequence[Finding]) -> str:
    """Return why nothing applies: the reasons of those that ask least of a run, each once."""
    general = [f for f in findings if not f.bound.hidden_state] or findings
    titles: dict[str, list[str]] = {}
    for finding in general:
        titles.setdefault(str(finding.reason), []).append(finding.bound.title)
    said = "; ".join(f"{reason} ({', '.join(names)})" for reason, names in titles.items())
    more = len(findings) - len(general)
    return f"{said}; {more} more say nothing either" if more else said


def assumptions_of(run: Run, bound: Bound) -> tuple[Assumption, ...]:
    """Return all that a claim about ``run`` by this bound rests on.

    A bound that covers the release of every iterate does not rest on hiding them.
    """
    shown = run if bound.hidden_state else run.replace(release="all")
    return (*base_assumptions(shown), *bound.assumptions_for(run))


def comparison_of(run: Run, delta: float, findings: Sequence[Finding]) -> Comparison:
    """Return the findings as a table."""
    return Comparison(run=run, delta=delta, rows=tuple(finding.row() for finding in findings))


def ask(bound: Bound, run: Run, delta: float, near: Witness | None = None) -> Finding:
    """Ask one bound; with the witness of a run much like this one it answers sooner."""
    reason = bound.refusal(run)
    if reason is None and delta == 0 and run.noise_kind == "gaussian":
        reason = "gives no finite epsilon at delta = 0, which Gaussian noise never has"
    if reason is not None:
        return Finding(bound, None, {}, reason)
    try:
        # Numbers that leave the range of doubles are noticed, not carried on as infinities.
        with np.errstate(over="raise"):
            witness = bound.plan_for(run, delta, near)
            epsilon = bound.curve_for(run, witness).epsilon(delta)
    except NotApplicable as error:
        return Finding(bound, None, {}, str(error))
    except (ArithmeticError, MemoryError):
        return Finding(bound, None, {}, _BEYOND_NUMBERS)
    if math.isinf(epsilon):
        return Finding(bound, None, witness, f"gives no finite epsilon at delta = {delta:g}")
    return Finding(bound, bound.claim(epsilon), witness, None)
