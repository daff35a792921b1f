"""The command ``curve``: draw or list what every bound says over the steps, or over the records."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dplateau.cli.options import CLAIM_PANEL, OUTPUT_PANEL, takes_run
from dplateau.cli.progress import progress_bar
from dplateau.errors import InvalidInput
from dplateau.ground.files import write_whole

# The library itself loads when the command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Run
    from dplateau.certificates import BoundOverSteps
    from dplateau.ground.types import IntArray
    from dplateau.plots import EpsilonOverStepsDisplay, RecordDisplay

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
        float, typer.Option("--delta", help="Failure probability.", rich_help_panel=CLAIM_PANEL)
    ],
    first: Annotated[
        int, typer.Option("--from", help="Fewest steps, or first record.", rich_help_panel=_PANEL)
    ] = 1,
    last: Annotated[
        int | None,
        typer.Option(
            "--to",
            help="Most steps (100000 unless --steps is more), or last record.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    points: Annotated[
        int, typer.Option(help="How many lengths or records, at most.", rich_help_panel=_PANEL)
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
    from dplateau.audit.lower_curves import lower_count, lower_over_steps
    from dplateau.bounds.registry import BOUNDS
    from dplateau.certificates import EpsilonOverSteps, epsilon_over_steps
    from dplateau.plots import EpsilonOverStepsDisplay

    longest = run.replace(steps=int(steps.max()))
    bounds = [bound for bound in BOUNDS if bound.sound and bound.refusal(longest) is None]
    points = len(bounds) * steps.size + (lower_count(run, steps) if lower else 0)
    lines: list[BoundOverSteps] = []
    with progress_bar("points", points) as advance:
        # One bound at a time, so that there is progress to show; none at all is refused there.
        for group in [[bound] for bound in bounds] or [[]]:
            lines += epsilon_over_steps(run, delta, steps, bounds=group).bounds
            advance(steps.size)
        found = lower_over_steps(run, delta, steps, tick=lambda: advance(1)) if lower else None
    curve = EpsilonOverSteps(run, delta, steps, tuple(lines))
    return EpsilonOverStepsDisplay.from_curve(curve, found)


def _over_records(run: Run, delta: float, positions: IntArray, *, lower: bool) -> RecordDisplay:
    from dplateau.audit.lower_curves import lower_count, lower_over_records
    from dplateau.certificates import loss_per_record
    from dplateau.plots import RecordDisplay

    points = positions.size + (lower_count(run, positions) if lower else 0)
    with progress_bar("points", points) as advance:
        losses = loss_per_record(run, delta=delta, positions=positions)
        advance(positions.size)
        found = (
            lower_over_records(run, delta, positions, tick=lambda: advance(1)) if lower else None
        )
    return RecordDisplay.from_losses(losses, found)
