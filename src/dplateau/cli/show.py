"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dplateau.certificates import Calibration, Certificate, Comparison
from dplateau.ground.shown import rounded_up

console = Console(highlight=False)


def show_comparison(comparison: Comparison, certificate: Certificate) -> None:
    """Print every bound, the chosen one marked."""
    table = Table(title=f"epsilon at delta = {rounded_up(comparison.delta)}", title_justify="left")
    table.add_column("bound")
    table.add_column("epsilon", justify="right")
    table.add_column("state")
    table.add_column("source, or why not", overflow="fold")
    for row in comparison.rows:
        chosen = row.bound == certificate.bound
        epsilon = "-" if row.epsilon is None else rounded_up(row.epsilon, 5, padded=True)
        note = row.citation if row.reason is None else row.reason
        if not row.sound:
            note = f"(historical, not a claim) {note}"
        state = "hidden" if row.hidden_state else "released"
        style = "bold" if chosen else ("dim" if row.epsilon is None else None)
        table.add_row(row.title, epsilon, state, escape(note), style=style)
    console.print(table)


def show_certificate(certificate: Certificate) -> None:
    """Print the claim and what it rests on."""
    console.print(f"[bold]{escape(str(certificate))}[/bold]", soft_wrap=True)
    rows = [(a.status, a.text) for a in certificate.assumptions]
    print_rows("rests on", rows)


def show_calibration(calibration: Calibration) -> None:
    """Print the value found."""
    console.print(f"[bold]{escape(str(calibration))}[/bold]", soft_wrap=True)


def print_rows(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print two columns without borders."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for left, right in rows:
        table.add_row(escape(left), escape(right))
    console.print(table)
