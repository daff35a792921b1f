"""The command ``curve``: draw or list what every bound says over the steps, or over the records."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dplateau.cli.options import (
    NEEDED_PANEL,
    OUTPUT_PANEL,
    real_option,
    takes_run,
    whole_option,
)
from dplateau.errors import InvalidInput
from dplateau.ground.files import write_whole

# The library itself loads when the command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Run
    from dplateau.ground.types import IntArray
    from dplateau.plots import EpsilonOverStepsDisplay, RecordDisplay

RECORDS_EXAMPLE = (
    "Example: `dplateau per-record one-pass --n 40 --learning-rate 0.5 --noise-std 2 "
    "--lipschitz 1 --smoothness 1 --release last --delta 1e-5`"
)
EXAMPLE = (
    "Example: `dplateau curve gd --n 1000 --steps 1000 --learning-rate 0.1 --noise-std 0.2 "
    "--diameter 1 --lipschitz 1 --smoothness 1 --release last --delta 1e-5 --to 1000000 "
    "-o curve.png --csv curve.csv`"
)
_PANEL = "The curve"
_FARTHEST = 100_000


@takes_run
def curve_command(
    run: Run,
    delta: Annotated[
        float, real_option("--delta", help="Failure probability.", panel=NEEDED_PANEL)
    ],
    first: Annotated[
        int, whole_option("--from", help="Fewest steps, or first record.", panel=_PANEL)
    ] = 1,
    last: Annotated[
        int | None,
        whole_option(
            "--to",
            help="Most steps (100000 unless --steps is more), or last record.",
            panel=_PANEL,
        ),
    ] = None,
    points: Annotated[
        int, whole_option("--points", help="How many lengths or records, at most.", panel=_PANEL)
    ] = 60,
    no_lower_bound: Annotated[
        bool,
        typer.Option(
            "--no-lower-bound", help="Leave out the exact lower bound.", rich_help_panel=_PANEL
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Draw here: .png, .svg or .pdf.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Write the numbers here.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the numbers.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
) -> None:
    """Draw epsilon over the number of steps: every bound that applies, and an exact lower bound.

    The number of steps given only says how far to go at least. A single pass has a fixed length:
    its curve goes over the position of the record instead.
    """
    _check_outputs(output, csv, json)
    display = _display(run, delta, first, last, points, lower=not no_lower_bound)
    for note in () if display.lower is None else display.lower.notes:
        typer.echo(f"note: {note}", err=True)
    table = display.table()
    picture = None if output is None else display.to_bytes(output.suffix)
    if csv is not None:
        write_whole(csv, table.to_csv())
    if output is not None and picture is not None:
        write_whole(output, picture)
    if json:
        body = {"run": run.to_dict(), "delta": delta, **table.to_dict()}
        typer.echo(json_text.dumps(body, indent=2, allow_nan=False))
        return
    for path in (output, csv):
        if path is not None:
            typer.echo(f"written to {path}")


@takes_run
def per_record_command(
    run: Run,
    delta: Annotated[
        float, real_option("--delta", help="Failure probability.", panel=NEEDED_PANEL)
    ],
    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Write every position here.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print every position.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
) -> None:
    """Give each record its own epsilon, where the order of the records is known (cyclic, one-pass).

    Later steps hide earlier records; a single pass hides the first ones best. `dplateau curve`
    draws it.
    """
    from dplateau.certificates import per_record

    found = per_record(run, delta)
    # Positions are counted from 1, as everywhere people read them.
    rows = [
        (int(position) + 1, float(epsilon), bound)
        for position, epsilon, bound in zip(
            found.positions, found.epsilons, found.bounds, strict=True
        )
    ]
    if csv is not None:
        lines = [f"{position},{epsilon!r},{bound}" for position, epsilon, bound in rows]
        write_whole(csv, "\n".join(["position,epsilon,bound", *lines]) + "\n")
    if json:
        names = ("position", "epsilon", "bound")
        listed = [dict(zip(names, row, strict=True)) for row in rows]
        body = {"run": run.to_dict(), "delta": delta, "records": listed}
        typer.echo(json_text.dumps(body, indent=2, allow_nan=False))
        return
    _show_records(rows, run, delta)
    if csv is not None:
        typer.echo(f"written to {csv}")


# So many positions are shown, evenly over all.
_LISTED = 10


def _show_records(rows: list[tuple[int, float, str]], run: Run, delta: float) -> None:
    from rich import box
    from rich.table import Table

    from dplateau.bounds.registry import bound_named
    from dplateau.cli.show import console
    from dplateau.ground.shown import rounded_up

    best, worst = (pick(rows, key=lambda row: row[1]) for pick in (min, max))
    console.print(
        f"[bold]epsilon {rounded_up(best[1])} to {rounded_up(worst[1])} at delta = "
        f"{rounded_up(delta)}, by the place of a record's batch among {run.batches_per_epoch}"
        "[/bold]"
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("batch", justify="right")
    table.add_column("epsilon", justify="right")
    table.add_column("bound", overflow="fold")
    last = len(rows) - 1
    chosen = sorted({round(i * last / (_LISTED - 1)) for i in range(_LISTED)})
    for position, epsilon, bound in (rows[i] for i in chosen):
        title = bound_named(bound).title
        table.add_row(f"{position:,}", rounded_up(epsilon, 5, padded=True), title)
    console.print(table)


def _check_outputs(output: Path | None, csv: Path | None, json: bool) -> None:
    """Refuse what could not be written, before anything is computed."""
    from dplateau.plots.canvas import checked_suffix, require_matplotlib

    if output is None and csv is None and not json:
        raise InvalidInput("nothing was asked for: say -o FILE, --csv FILE or --json")
    if output is not None:
        checked_suffix(output)
        require_matplotlib()
    if output is not None and output == csv:
        raise InvalidInput(f"picture and numbers cannot both go to {output}")
    for path in (output, csv):
        if path is not None and not path.parent.is_dir():
            raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}")


def _display(
    run: Run, delta: float, first: int, last: int | None, points: int, *, lower: bool
) -> EpsilonOverStepsDisplay | RecordDisplay:
    from dplateau.algorithms import OnePass
    from dplateau.certificates import record_positions, step_counts

    if isinstance(run.batches, OnePass):
        end = run.steps if last is None else last
        return _over_records(run, delta, record_positions(first, end, points), lower=lower)
    end = max(_FARTHEST, run.steps) if last is None else last
    return _over_steps(run, delta, step_counts(run, first, end, points), lower=lower)


def _over_steps(run: Run, delta: float, steps: IntArray, *, lower: bool) -> EpsilonOverStepsDisplay:
    from dplateau.audit.lower_curves import lower_over_steps
    from dplateau.certificates import epsilon_over_steps
    from dplateau.plots import EpsilonOverStepsDisplay

    curve = epsilon_over_steps(run, delta, steps)
    found = lower_over_steps(run, delta, steps) if lower else None
    return EpsilonOverStepsDisplay.from_curve(curve, found)


def _over_records(run: Run, delta: float, positions: IntArray, *, lower: bool) -> RecordDisplay:
    from dplateau.audit.lower_curves import lower_over_records
    from dplateau.certificates import loss_per_record
    from dplateau.plots import RecordDisplay

    losses = loss_per_record(run, delta=delta, positions=positions)
    found = lower_over_records(run, delta, positions) if lower else None
    return RecordDisplay.from_losses(losses, found)
