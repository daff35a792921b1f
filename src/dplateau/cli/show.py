"""Answers and tables for people: the answer first, in few lines, and how to see the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape as without_markup
from rich.table import Table

from dplateau.bounds.base import Assumption
from dplateau.certificates import Calibration, Certificate, Comparison, ComparisonRow
from dplateau.cli.language import in_options
from dplateau.ground.shown import counted, printable, rounded_down, rounded_up
from dplateau.report.words import doubts_about, most_important

console = Console(highlight=False)
# So many assumptions are shown with an answer.
SHOWN = 3


@dataclass(frozen=True)
class Answer:
    """A claim and what stands beside it: the best composition, and what is proved from below.

    ``composition`` is None if none applies; ``least`` is the epsilon that an exact adversary needs,
    or ``no_least`` says why none is known.
    """

    certificate: Certificate
    comparison: Comparison
    composition: ComparisonRow | None
    least: float | None
    no_least: str | None

    @property
    def ratio(self) -> float | None:
        """How many times the claim the best composition charges."""
        if self.composition is None or not self.composition.epsilon:
            return None
        claimed = self.certificate.claimed_epsilon
        return self.composition.epsilon / claimed if claimed > 0 else None

    @property
    def doubts(self) -> tuple[str, ...]:
        """What makes the claim weak, if anything."""
        return doubts_about(self.certificate)


def show_answer(answer: Answer, *, rest: str | None) -> None:
    """Print the claim, what stands beside it, the assumptions that matter most; where more is."""
    certificate = answer.certificate
    theorem = certificate.theorem
    console.print(f"[bold]{escape(f'{certificate.claim} by {theorem.title}')}[/bold]")
    most = most_important(certificate.assumptions)
    rows = [
        ("proof", theorem.citation.short()),
        ("composition", _beside(answer)),
        ("lower bound", _below(answer)),
        *zip(("rests on", "", ""), (a.text for a in most[:SHOWN]), strict=False),
    ]
    if certificate.run.group_size > 1:
        unit = f"all records of one person, at most {certificate.run.group_size}"
        rows.insert(1, ("protects", unit))
    rows += [("take note", doubt) for doubt in answer.doubts]
    if rest is not None:
        more = len(most) - SHOWN
        others = f"{counted(more, 'more assumption')}, " if more > 0 else ""
        rows.append(("more", f"{others}{rest}"))
    print_rows(None, rows)


def _beside(answer: Answer) -> str:
    row, ratio = answer.composition, answer.ratio
    if row is None or row.epsilon is None:
        return "none applies"
    if row.bound == answer.certificate.bound:
        return "is this claim: hiding the iterates gains nothing here"
    times = "" if ratio is None else f", {ratio:.3g} times as much"
    return f"{rounded_up(row.epsilon)} by {row.title}{times}"


def _below(answer: Answer) -> str:
    if answer.least is None:
        return f"none is known: {in_options(str(answer.no_least)).partition(';')[0]}"
    if answer.least <= 0:
        return "none above 0 is known"
    return f"{rounded_down(answer.least)} is needed at least (an exact adversary)"


def show_comparison(
    comparison: Comparison, certificate: Certificate, *, every: bool = False
) -> None:
    """Print every bound that applies, the chosen one marked, and with ``every`` why others do not.

    A historical bound is no claim, and is marked.
    """
    table = Table(
        title=f"epsilon at delta = {rounded_up(comparison.delta)}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
    )
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("bound", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("source", overflow="fold")
    for row in comparison.rows:
        if row.epsilon is None:
            continue
        source = row.citation if row.sound else f"(historical, not a claim) {row.citation}"
        shown = (
            rounded_up(row.epsilon, 5, padded=True),
            escape(row.title),
            "hidden" if row.hidden_state else "released",
            escape(source),
        )
        table.add_row(*shown, style="bold" if row.bound == certificate.bound else None)
    console.print(table)
    titles = {row.bound: row.title for row in comparison.rows}
    if every:
        for reason, names in comparison.refusals.items():
            listed = "; ".join(titles[name] for name in names)  # titles have commas
            print_rows(None, [("no", f"{listed}: {in_options(reason)}")])
    elif comparison.refusals:
        count = sum(map(len, comparison.refusals.values()))
        others = counted(count, "more bound does not", "more bounds do not")
        console.print(f"{others} apply; --all says why", style="dim")


def show_certificate(certificate: Certificate) -> None:
    """Print the claim and what it rests on."""
    console.print(f"[bold]{escape(str(certificate))}[/bold]", soft_wrap=True)
    show_assumptions(certificate.assumptions)


def show_assumptions(assumptions: Sequence[Assumption]) -> None:
    """Print all that a claim rests on."""
    print_rows("rests on", [(a.status, a.text) for a in assumptions])


def show_calibration(calibration: Calibration) -> None:
    """Print the value that a search gave, as an option."""
    name = calibration.varied.replace("_", "-")
    console.print(f"[bold]{escape(f'--{name} {calibration.shown_value}')}[/bold]")


def escape(text: str) -> str:
    """Return a text as the console prints it: neither markup nor control characters act."""
    return without_markup(printable(text))


def print_rows(title: str | None, rows: Sequence[tuple[str, str]]) -> None:
    """Print two columns without borders."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for left, right in rows:
        table.add_row(escape(left), escape(right))
    console.print(table)
