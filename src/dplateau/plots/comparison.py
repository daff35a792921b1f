"""Every bound on one run as bars, and why the others say nothing."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplateau.certificates import Comparison, ComparisonRow
from dplateau.ground.shown import rounded_up
from dplateau.plots.canvas import Display
from dplateau.plots.lines import HOLDS_HIDDEN, HOLDS_RELEASED, QUIET, draw_frame, place_key
from dplateau.plots.words import in_short, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HIDDEN, _RELEASED, _HISTORICAL = "#0072B2", "#E69F00", "#BBBBBB"
_REASON_WIDTH = 150
_BAR_HEIGHT, _TEXT_LINE_HEIGHT = 0.34, 0.165
_FRAME_HEIGHT = 1.7


@dataclass(frozen=True, eq=False)
class ComparisonDisplay(Display):
    """Bars of epsilon on a logarithmic axis, the tightest on top; refusals as text below."""

    rows: tuple[ComparisonRow, ...]
    refused: tuple[ComparisonRow, ...]
    delta: float
    title: str

    @classmethod
    def from_comparison(cls, comparison: Comparison) -> ComparisonDisplay:
        """Take what ``compare`` returned."""
        return cls(
            tuple(row for row in comparison.rows if row.epsilon is not None),
            tuple(row for row in comparison.rows if row.epsilon is None),
            comparison.delta,
            in_short(comparison.run, length=True),
        )

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches: as high as its rows need."""
        text = _TEXT_LINE_HEIGHT * (len(self._refusal_lines()) + 1)
        return 9.5, _FRAME_HEIGHT + _BAR_HEIGHT * max(1, len(self.rows)) + text

    def draw(self, ax: Axes) -> None:
        """Draw bars, their values and the refusals."""
        values = [row.epsilon for row in self.rows if row.epsilon is not None]
        least = min([value for value in values if value > 0], default=1.0)
        most = max([*values, least])
        start, end = least / (most / least * 10) ** 0.12, most * (most / least * 10) ** 0.12
        ax.set_xscale("log")
        ax.set_xlim(start, end)
        for place, (row, value) in enumerate(zip(self.rows, values, strict=True)):
            self._draw_bar(ax, place, row, value, start)
        ax.set_yticks(range(len(self.rows)), [_name(row) for row in self.rows])
        ax.set_ylim(len(self.rows) - 0.4, -0.6)
        draw_frame(ax, wrapped(self.title, 74), f"epsilon at delta = {self.delta:g}", "")
        ax.grid(False, axis="y")
        ax.tick_params(axis="y", length=0)
        self._draw_key(ax)
        self._write_refusals(ax)

    def _draw_bar(
        self, ax: Axes, place: int, row: ComparisonRow, value: float, start: float
    ) -> None:
        first = place == 0
        ax.barh(place, max(value - start, 0.0), left=start, height=0.66, color=_colour(row))
        ax.annotate(
            rounded_up(value, 4, padded=True),
            xy=(max(value, start), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold" if first else "normal",
        )

    def _draw_key(self, ax: Axes) -> None:
        from matplotlib.patches import Patch

        used = {_colour(row) for row in self.rows}
        names = {
            _HIDDEN: HOLDS_HIDDEN,
            _RELEASED: HOLDS_RELEASED,
            _HISTORICAL: "historical, not a claim",
        }
        place_key(ax, [Patch(color=c, label=text) for c, text in names.items() if c in used])

    def _write_refusals(self, ax: Axes) -> None:
        lines = self._refusal_lines()
        if not lines:
            return
        ax.annotate(
            "\n".join(lines),
            xy=(0.0, 0.0),
            xycoords=("figure fraction", "axes fraction"),
            xytext=(10, -62),
            textcoords="offset points",
            va="top",
            ha="left",
            fontsize=8,
            color=QUIET,
            annotation_clip=False,
        )

    def _refusal_lines(self) -> list[str]:
        if not self.refused:
            return []
        found = ["Say nothing about this run:"]
        alike: dict[str, list[str]] = {}
        for row in self.refused:
            alike.setdefault(str(row.reason), []).append(_name(row))
        for reason, names in alike.items():
            text = f"\N{BULLET} {' / '.join(names)}: {reason}"
            found += textwrap.wrap(text, _REASON_WIDTH, subsequent_indent="   ")
        return found


def _name(row: ComparisonRow) -> str:
    return row.title if row.sound else f"{row.title} (historical)"


def _colour(row: ComparisonRow) -> str:
    if not row.sound:
        return _HISTORICAL
    return _HIDDEN if row.hidden_state else _RELEASED
