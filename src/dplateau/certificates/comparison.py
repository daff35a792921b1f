"""Every bound side by side."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dplateau.algorithms import Run
from dplateau.ground.shown import rounded_up

if TYPE_CHECKING:
    import pandas as pd

_HISTORICAL = "(historical, not a claim)"


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


@dataclass(frozen=True)
class Comparison:
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

    def __str__(self) -> str:
        """Show a plain-text table of the answers, then the refusals, each reason once."""
        answers = [row for row in self.rows if row.reason is None]
        width = max(len(row.title) for row in self.rows)
        lines = [f"{'bound':<{width}}  {'epsilon':>10}  at delta = {rounded_up(self.delta)}"]
        lines += [f"{row.title:<{width}}  {_shown(row):>10}  {_note(row)}" for row in answers]
        sound = {row.bound: row.sound for row in self.rows}
        lines += ["", "The others say nothing:"] if self.refusals else []
        for reason, names in self.refusals.items():
            marked = (name if sound[name] else f"{name} {_HISTORICAL}" for name in names)
            lines.append(f"  {', '.join(marked)}: {reason}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><td>{html.escape(row.title)}</td><td>{_shown(row)}</td>"
            f"<td>{html.escape(_note(row))}</td></tr>"
            for row in self.rows
        )
        head = (
            f"<tr><th>bound</th><th>epsilon at delta = {rounded_up(self.delta)}</th><th></th></tr>"
        )
        return f"<table>{head}{cells}</table>"


def _shown(row: ComparisonRow) -> str:
    return "-" if row.epsilon is None else rounded_up(row.epsilon)


def _note(row: ComparisonRow) -> str:
    note = row.citation if row.reason is None else row.reason
    return note if row.sound else f"{_HISTORICAL} {note}"
