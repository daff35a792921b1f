"""What an audit found, as data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dplateau.audit.monte_carlo_power import DetectableLeak
from dplateau.audit.monte_carlo_rates import ThresholdResult
from dplateau.errors import InvalidInput

SCHEMA = "dplateau/audit-report"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class AuditReport:
    """The verdict of one audit, with the counts that it rests on.

    Each of two neighbouring data sets was trained on ``runs`` times. The first ``fitted`` runs of
    each chose the score and the thresholds; the other ``tested`` ones were only counted. If the
    claim holds, the verdict is "violated" with probability at most 1 - ``confidence``. With the
    same confidence every (epsilon, claimed_delta) that holds for the trainer has an epsilon of at
    least ``epsilon_lower_bound``. ``gdp_estimate`` is an estimate, and no bound: the mu at which a
    Gaussian law would give the rates seen at the most balanced threshold.
    """

    claimed_epsilon: float
    claimed_delta: float
    runs: int
    fitted: int
    tested: int
    confidence: float
    seed: int
    statistic: str
    epsilon_lower_bound: float
    gdp_estimate: float
    power: DetectableLeak
    points: tuple[ThresholdResult, ...]

    @property
    def worst(self) -> ThresholdResult:
        """The threshold at which the claim fares worst."""
        return max(self.points, key=lambda point: (point.violated, point.ratio))

    @property
    def violated(self) -> bool:
        """Whether the runs refute the claim."""
        return self.worst.violated

    @property
    def verdict(self) -> Literal["violated", "not violated"]:
        """The same in words."""
        return "violated" if self.violated else "not violated"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "verdict": self.verdict,
            **asdict(self),
            "points": [asdict(point) for point in self.points],
        }

    def to_json(self) -> str:
        """Return JSON text; floats keep every digit."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> AuditReport:
        """Read what :meth:`to_json` wrote."""
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"not an audit report: the text is no JSON ({error})") from None
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise InvalidInput(f"not an audit report: the text lacks 'schema': '{SCHEMA}'")
        if found.get("schema_version") != SCHEMA_VERSION:
            raise InvalidInput(
                f"audit report of schema version {found.get('schema_version')!r}; "
                f"this release reads {SCHEMA_VERSION}"
            )
        missing = [name for name in cls.__dataclass_fields__ if name not in found]
        if missing:
            raise InvalidInput(f"not a whole audit report: it lacks {missing[0]!r}")
        fields: dict[str, Any] = {name: found[name] for name in cls.__dataclass_fields__}
        try:
            fields["power"] = DetectableLeak(**fields["power"])
            fields["points"] = tuple(ThresholdResult(**point) for point in fields["points"])
            report = cls(**fields)
            verdict = report.verdict
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"not a whole audit report: {error}") from None
        if verdict != found.get("verdict"):
            raise InvalidInput(
                f"the audit report was altered: it says {found.get('verdict')!r}, "
                f"its counts say {verdict!r}"
            )
        return report

    def __str__(self) -> str:
        """Say the verdict, what it rests on, and what it cannot say."""
        return "\n".join(
            [
                f"{self.verdict}: claimed ({self.claimed_epsilon:.6g}, {self.claimed_delta:g})-DP, "
                f"{self.runs} runs on each of two neighbours, confidence {self.confidence:g}",
                f"  {self._worst_line()}",
                f"  epsilon is at least {self.epsilon_lower_bound:.4g} at delta "
                f"{self.claimed_delta:g}; estimate (no bound): {self.gdp_estimate:.3g}-GDP",
                f"  power: {self.power}",
            ]
        )

    def _worst_line(self) -> str:
        worst = self.worst
        counts = f"{worst.hits_data} and {worst.hits_neighbor} of {self.tested} tested runs"
        proved = f"delta is at least {worst.proved_delta:.4g}, claimed {worst.claimed_delta:.4g}"
        return (
            f"worst threshold, exceeded in {counts} with and without the record: "
            f"at epsilon {worst.epsilon:.3g} {proved}"
        )
