"""One figure or table of a paper: what it shows, what the paper quotes, and what we find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dplateau.bounds.literature import Citation
from dplateau.plots.panels import Panel, PanelsDisplay


@dataclass(frozen=True)
class Quoted:
    """One number of a paper beside ours; ``theirs`` is None where a figure quotes none."""

    what: str
    theirs: float | None
    ours: float


@dataclass(frozen=True, eq=False)
class Exhibit:
    """A figure or table, computed anew.

    ``theirs`` and ``ours`` name the two columns of numbers, and ``remark`` says where ours is
    tighter, or what is wrong or missing in the paper.
    """

    name: str
    title: str
    citation: Citation
    parameters: str
    panels: tuple[Panel, ...]
    theirs: str
    ours: str
    rows: tuple[Quoted, ...]
    remark: str

    @property
    def display(self) -> PanelsDisplay | None:
        """The picture, or None for a table."""
        return PanelsDisplay(self.panels) if self.panels else None

    def table(self) -> list[tuple[str, str, str]]:
        """Return the numbers as text, the headings first."""
        rows = [("", self.theirs, self.ours)]
        return rows + [(row.what, _shown(row.theirs), _shown(row.ours)) for row in self.rows]


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.7g}"


def page_of(exhibits: Sequence[Exhibit], folder: str) -> str:
    """Return a page in Markdown about the exhibits, whose pictures lie in ``folder``."""
    parts = [
        "# The papers, reproduced",
        "Every figure and table of the papers that the library grew from, computed by its own "
        "code: `dplateau reproduce` writes this page and its pictures, `dplateau reproduce "
        "NAME` one of them. Dashed lines are the papers' statements, solid ones what is proved "
        "here.",
    ]
    for exhibit in exhibits:
        parts.append(f"## {exhibit.title}")
        parts.append(f"`{exhibit.name}`: {exhibit.citation.short()}. {exhibit.parameters}")
        if exhibit.panels:
            parts.append(f"![{exhibit.title}]({folder}/reproduce-{exhibit.name}.png)")
        head, *rows = exhibit.table()
        lines = [f"| {' | '.join(head)} |", "|---|---|---|"]
        parts.append("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]))
        parts.append(exhibit.remark)
    return "\n\n".join(parts) + "\n"
