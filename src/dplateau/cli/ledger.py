"""The commands ``ledger init|spend|declare|show|plan-next``: a budget on file."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.options import (
    CLAIM_PANEL,
    Certified,
    Json,
    Neighbors,
    RecordsPerPerson,
    print_json,
    print_text,
    real_option,
    takes_run_without_noise,
    tell,
    tell_written,
)
from dplateau.cli.papers import payable_in
from dplateau.errors import InvalidInput, LedgerBroken, SpendRefused
from dplateau.ground.files import write_whole
from dplateau.ground.shown import rounded_down, rounded_up

# The library itself loads when a command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Run
    from dplateau.ledger import Entry, Statement

app = typer.Typer(
    help="Keep what several releases of one data set cost, and refuse what exceeds the budget.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

LedgerFile = Annotated[Path, typer.Argument(help="The ledger.", show_default=False)]
Name = Annotated[str | None, typer.Option(help="What the release is, in your own words.")]
Several = list[Path]


def refusals_are_verdicts(command: Callable[..., None]) -> Callable[..., None]:
    """End with exit code 1 where the ledger says no: bad input alone is exit code 2."""

    @functools.wraps(command)
    def called(*args: Any, **values: Any) -> None:
        try:
            command(*args, **values)
        except (SpendRefused, LedgerBroken) as error:
            from dplateau.cli.language import in_options

            # What was refused keeps its name; the reason may speak of options.
            named, mark, reason = f"dplateau: {error}".rpartition("': ")
            tell(" ".join(f"{named}{mark}{in_options(reason)}".split()), err=True)
            raise typer.Exit(1) from None

    return called


@app.command(epilog="Example: `dplateau ledger init survey.ledger --epsilon 3 --delta 1e-5`")
@refusals_are_verdicts
def init(
    ledger: LedgerFile,
    epsilon: Annotated[
        float, real_option("--epsilon", help="What all may cost together.", panel=CLAIM_PANEL)
    ],
    delta: Annotated[float, real_option("--delta", help="Failure probability.", panel=CLAIM_PANEL)],
    neighbors: Neighbors = "add-remove",
    max_records_per_person: RecordsPerPerson = 1,
    planned: Annotated[
        Several | None,
        typer.Option(
            help="Certificate or declared part of a release fixed in advance (repeatable)."
        ),
    ] = None,
    filter: Annotated[
        str, typer.Option(help="How later choices are counted: auto, gdp, renyi or pure.")
    ] = "auto",
    order: Annotated[
        float | None, real_option("--order", help="Order of the Rényi filter.")
    ] = None,
    delta_share: Annotated[
        float, real_option("--delta-share", help="Share of delta for releases that may fail.")
    ] = 0.1,
    json: Json = False,
) -> None:
    """Make a ledger. Nothing of what is fixed here can be changed later."""
    from dplateau.ledger import Ledger

    made = Ledger.create(
        ledger,
        epsilon=epsilon,
        delta=delta,
        neighbors=neighbors.replace("-", "_"),
        max_records_per_person=max_records_per_person,
        planned=[payable_in(path) for path in planned or []],
        filter=filter,
        order=order,
        delta_share=delta_share,
    )
    _report(made.statement(), json)


@app.command(epilog="Example: `dplateau ledger spend survey.ledger certificate.json`")
@refusals_are_verdicts
def spend(
    ledger: LedgerFile,
    certificate: Annotated[
        Path,
        typer.Argument(
            help="A certificate, composition or declared part, as JSON.", show_default=False
        ),
    ],
    name: Name = None,
    json: Json = False,
) -> None:
    """Verify a certificate and pay for its release; exit code 1 if it is refused."""
    from dplateau.ledger import Ledger

    book = Ledger(ledger)
    _paid(
        book.spend(payable_in(certificate), name=name or certificate.name), book.statement(), json
    )


@app.command(
    epilog="Example: `dplateau ledger declare survey.ledger --epsilon 0.5 --name 'a histogram'`"
)
@refusals_are_verdicts
def declare(
    ledger: LedgerFile,
    name: Annotated[str, typer.Option(help="What the release is.")],
    epsilon: Annotated[float | None, real_option("--epsilon", help="Its epsilon.")] = None,
    delta: Annotated[float, real_option("--delta", help="Its delta, beside --epsilon.")] = 0.0,
    mu: Annotated[float | None, real_option("--mu", help="Or: its GDP parameter.")] = None,
    json: Json = False,
) -> None:
    """Pay for a release that other software accounts for: its numbers are your word."""
    from dplateau.certificates import foreign
    from dplateau.ledger import Ledger

    if (epsilon is None) == (mu is None):
        raise InvalidInput("declare takes one of --epsilon (with --delta) and --mu")
    book = Ledger(ledger)
    settings = book.statement().settings
    numbers = {"mu": mu} if epsilon is None else {"epsilon": epsilon, "delta": delta}
    part = foreign(neighbors=settings.neighbors, unit=settings.unit, name=name, **numbers)
    _paid(book.spend(part, name=name), book.statement(), json)


@app.command(epilog="Example: `dplateau ledger show survey.ledger`")
@refusals_are_verdicts
def show(
    ledger: LedgerFile,
    head: Annotated[
        str | None, typer.Option(help="A head written down earlier, which must be in the chain.")
    ] = None,
    json: Json = False,
) -> None:
    """Check the chain and show what was spent and what is left; exit code 1 if it is broken."""
    from dplateau.ledger import Ledger

    book = Ledger(ledger)
    statement = book.statement()
    if head is not None and not book.contains_head(head):
        raise LedgerBroken(f"{ledger}: the chain does not contain {head}: it was cut or replaced")
    _report(statement, json)


@refusals_are_verdicts
@takes_run_without_noise
def plan_next(
    run: Run,
    ledger: LedgerFile,
    output: Certified = None,
    json: Json = False,
) -> None:
    """Find the smallest noise with which a run still fits into what is left."""
    from dplateau.ledger import Ledger

    calibration = Ledger(ledger).plan_next(run)
    if output is not None:
        write_whole(output, calibration.certificate.to_json())
    if json:
        answer = {"varied": calibration.varied, "value": calibration.value}
        print_json({**answer, "certificate": calibration.certificate.to_dict()})
        return
    from dplateau.cli.show import show_calibration

    show_calibration(calibration)
    print_text(str(calibration.certificate))
    tell_written("certificate", output)


def _file_first(command: Callable[..., None]) -> Callable[..., None]:
    """Let the ledger stand before the algorithm, as in the other commands."""
    shown = list(inspect.signature(command).parameters.values())
    shown.sort(key=lambda parameter: parameter.name != "ledger")
    command.__dict__["__signature__"] = inspect.Signature(shown)
    return command


app.command(
    name="plan-next",
    epilog="Example: `dplateau ledger plan-next survey.ledger gd --n 1000 --steps 50 "
    "--release last`",
)(_file_first(plan_next))


def _paid(entry: Entry, statement: Statement, json: bool) -> None:
    if json:
        print_json({"entry": entry.to_dict(), "head": statement.head})
        return
    cost = _cost(entry, statement)
    print_text(f"spent on {entry.name}: {cost}; {_percent(entry.left)} of the budget is left")
    typer.echo(f"head {statement.head}")


def _report(statement: Statement, json: bool) -> None:
    if json:
        print_json(statement.to_dict())
        return
    from rich import box
    from rich.table import Table

    from dplateau.cli.show import console, escape, print_rows

    title = escape(statement.path)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("row", justify="right")  # the first holds what was fixed when it was made
    table.add_column("when", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("cost", overflow="fold")
    table.add_column("left", justify="right")
    for entry in statement.entries:
        what = f"{entry.name}: {entry.what}"
        cost = f"refused: {entry.reason}" if entry.status == "refused" else _cost(entry, statement)
        if entry.status == "reserved":
            cost = f"{cost} (reserved, counts as spent)"
        style = "dim" if entry.status == "refused" else None
        when = entry.written[:16].replace("T", " ")
        shown = (str(entry.number), when, escape(what), escape(cost))
        table.add_row(*shown, _percent(entry.left), style=style)
    if statement.entries:
        console.print(table)
    print_rows("in all" if statement.entries else title, _summary(statement))


def _summary(statement: Statement) -> list[tuple[str, str]]:
    settings, budget = statement.settings, statement.settings.budget
    limit = f"epsilon {rounded_down(budget.epsilon)} at delta {rounded_down(budget.delta)}"
    how = {"add_remove": "adding or removing", "replace": "replacing"}[settings.neighbors]
    who = f"{how} one {settings.unit}"
    left = (
        f"{_percent(statement.left)}: one more release may claim up to about epsilon "
        f"{rounded_down(statement.left_epsilon, 4)}"
    )
    rows = [("budget", f"{limit}, neighbors by {who}"), ("left", left)]
    if statement.terms is not None:
        chosen, terms = statement.terms.filter, statement.terms
        counted = (
            f"{chosen.left_words(terms.amount)} and delta {rounded_down(terms.slack, 3)} for later "
            "choices"
        )
        rows.append(("counted in", counted))
    if settings.planned:
        of = settings.planned.total()
        rows.append(("planned", f"{statement.planned_left} of {of} parts not spent yet"))
    return [*rows, ("head", f"{statement.head} (write it down: a cut tail leaves no trace here)")]


def _cost(entry: Entry, statement: Statement) -> str:
    from dplateau.ledger.filters import exact

    if entry.amount is None or statement.terms is None:
        # Exactly: in doubles 1 - 0.7 is a little more than 0.3.
        first = f"first, {_percent_up(1 - exact(entry.left))}"
        return "planned" if statement.settings.planned else first
    share = _percent_up(entry.amount / statement.terms.whole)
    words = f"{share}, {statement.terms.filter.cost_words(entry.amount)}"
    return f"{words}, delta {rounded_up(entry.delta, 3)}" if entry.delta else words


def _percent(share: float) -> str:
    return f"{math.floor(share * 1000) / 10:g} %"


def _percent_up(share: float | Fraction) -> str:
    return f"{math.ceil(share * 1000) / 10:g} %"
