"""Over steps and records: ``curve``, ``per-record`` and ``mixing``."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.options import (
    CLAIM_PANEL,
    LOSS_FLAGS,
    Csv,
    Delta,
    Json,
    Picture,
    check_outputs,
    domain_of,
    loss_of,
    output_option,
    print_json,
    real_option,
    takes_run,
    tell_written,
    whole_option,
    with_options,
)
from dplateau.errors import InvalidInput
from dplateau.ground.files import write_whole

# The library itself loads when a command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Run
    from dplateau.ground.types import IntArray
    from dplateau.plots import EpsilonOverStepsDisplay, RecordDisplay
    from dplateau.sampling import MixingCertificate

app = typer.Typer()

_RECORDS = (
    "Example: `dplateau per-record one-pass --n 40 --learning-rate 0.5 --noise-std 2 "
    "--lipschitz 1 --smoothness 1 --release last --delta 1e-5`"
)
_CURVE = (
    "Example: `dplateau curve gd --n 1000 --steps 1000 --learning-rate 0.1 --noise-std 0.2 "
    "--diameter 1 --lipschitz 1 --smoothness 1 --release last --delta 1e-5 --to 1000000 "
    "-o curve.png --csv curve.csv`"
)
_PANEL = "The curve"
_FARTHEST = 100_000


@app.command(name="curve", epilog=_CURVE)
@takes_run
def curve_command(
    run: Run,
    delta: Delta,
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
    output: Picture = None,
    csv: Csv = None,
    json: Json = False,
) -> None:
    """Draw epsilon over the number of steps: every bound that applies, and an exact lower bound.

    The number of steps given only says how far to go at least. A single pass has a fixed length:
    its curve goes over the position of the record instead.
    """
    if output is None and csv is None and not json:
        raise InvalidInput("nothing was asked for: say -o FILE, --csv FILE or --json")
    check_outputs(output, csv)
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
        print_json({"run": run.to_dict(), "delta": delta, **table.to_dict()})
        return
    tell_written("curve", output, csv)


@app.command(name="per-record", epilog=_RECORDS)
@takes_run
def per_record_command(
    run: Run,
    delta: Delta,
    csv: Csv = None,
    json: Json = False,
) -> None:
    """Give each record its own epsilon, where the order of the records is known (cyclic, one-pass).

    Later steps hide earlier records; a single pass hides the first ones best. `dplateau curve`
    draws it.
    """
    from dplateau.certificates import per_record

    records = per_record(run, delta)
    # Positions are counted from 1, as everywhere people read them.
    rows = [
        (int(position) + 1, float(epsilon), bound)
        for position, epsilon, bound in zip(
            records.positions, records.epsilons, records.bounds, strict=True
        )
    ]
    if csv is not None:
        lines = [f"{position},{epsilon!r},{bound}" for position, epsilon, bound in rows]
        write_whole(csv, "\n".join(["position,epsilon,bound", *lines]) + "\n")
    if json:
        names = ("position", "epsilon", "bound")
        listed = [dict(zip(names, row, strict=True)) for row in rows]
        print_json({"run": run.to_dict(), "delta": delta, "records": listed})
        return
    _show_records(rows, run, delta)
    tell_written("positions", csv)


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
    from_below = lower_over_steps(run, delta, steps) if lower else None
    return EpsilonOverStepsDisplay.from_curve(curve, from_below)


def _over_records(run: Run, delta: float, positions: IntArray, *, lower: bool) -> RecordDisplay:
    from dplateau.audit.lower_curves import lower_over_records
    from dplateau.certificates import loss_per_record
    from dplateau.plots import RecordDisplay

    losses = loss_per_record(run, delta=delta, positions=positions)
    from_below = lower_over_records(run, delta, positions) if lower else None
    return RecordDisplay.from_losses(losses, from_below)


# ---- how soon a chain forgets its start ---------------------------------------------------------

_CHAIN_FLAGS = (
    "diameter",
    "radius",
    "learning_rate",
    "l2",
    "inverse_temperature",
    *LOSS_FLAGS,
    "n",
    "batch_size",
    "sampling",
)
_MIXING = (
    "Example: `dplateau mixing --diameter 1 --learning-rate 0.01 --smoothness 1 --tv 0.01 "
    "-o mixing.png`"
)
_POINTS = 240


def _takes_chain(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a chain, and call it with the run that they describe."""
    return with_options(command, build_chain, names=_CHAIN_FLAGS)


def build_chain(stated: dict[str, Any]) -> Run:
    """Return the chain that the options describe: full gradients, or batches with --batch-size."""
    from dplateau.algorithms import NoisySGD, ProjectedLangevin

    given = {name: value for name, value in stated.items() if value is not None}
    if "learning_rate" not in given:
        raise InvalidInput("mixing needs --learning-rate")
    shared = {name: given[name] for name in ("n", "l2") if name in given} | {
        "steps": 1,
        "learning_rate": given["learning_rate"],
        "loss": loss_of(given),
        "domain": domain_of(given),
        "release": "last",
    }
    heat = given.get("inverse_temperature", 1.0)
    full = ProjectedLangevin(**shared, inverse_temperature=heat)
    if "batch_size" not in given:
        if "sampling" in given:
            raise InvalidInput("--sampling is about batches: state --batch-size and --n too")
        return full
    sampling = given.get("sampling", "poisson")
    batches = {"batch_size": given["batch_size"], "sampling": sampling}
    if sampling == "fixed":
        batches["neighbors"] = "replace"
    return NoisySGD(**{"n": 1, **shared}, **batches, iterate_std=full.iterate_std)


@app.command(name="mixing", epilog=_MIXING)
@_takes_chain
def mixing_command(
    run: Run,
    tv: Annotated[
        float | None,
        real_option("--tv", help="Total variation to reach (0.01).", panel=CLAIM_PANEL),
    ] = None,
    steps: Annotated[
        int | None,
        whole_option(
            "--steps", help="Or: steps to take; gives their total variation.", panel=CLAIM_PANEL
        ),
    ] = None,
    output: Picture = None,
    certificate: Annotated[
        Path | None, output_option("--certificate", help="Write the certificate here, as JSON.")
    ] = None,
    json: Json = False,
) -> None:
    """Say after how many steps a projected Langevin chain has forgotten where it started.

    The claim holds from any start in the body, for the total variation to the chain's own
    stationary law. Without constants of the potential nothing can be said.
    """
    from dplateau.sampling import certify_mixing

    check_outputs(output, certificate)
    wanted = 0.01 if tv is None and steps is None else tv
    mixing = certify_mixing(run, tv=wanted, steps=steps)
    if certificate is not None:
        write_whole(certificate, mixing.to_json())
    if output is not None:
        write_whole(output, _mixing_picture(run, mixing, wanted, output.suffix))
    if json:
        print_json(_mixing_report(run, mixing))
        return
    _show_mixing(run, mixing)
    tell_written("certificate", certificate)
    tell_written("curve", output)


def _mixing_picture(
    run: Run, mixing: MixingCertificate, target: float | None, suffix: str
) -> bytes:
    import numpy as np

    from dplateau.plots import MixingDisplay
    from dplateau.sampling import theorem_4_2

    # Show the published number of steps too, unless it lies far away.
    published = theorem_4_2(run, mixing.claimed_tv).steps if 0 < mixing.claimed_tv < 1 else None
    reach = min(published or 0, 6 * mixing.steps)
    last = max(math.ceil(1.4 * mixing.steps), math.ceil(1.1 * reach), 2)
    steps = np.unique(np.linspace(1, last, _POINTS).round().astype(np.int64))
    needed = None if target is None else mixing.steps
    return MixingDisplay.from_run(run, steps, target=target, needed=needed).to_bytes(suffix)


def _limits(run: Run, mixing: MixingCertificate) -> dict[str, Any]:
    """Return what the published theorem says, and how large the learning rate may be."""
    from dplateau.sampling import (
        largest_learning_rate,
        nonexpansive_learning_rate,
        theorem_4_2,
    )

    level = mixing.claimed_tv
    published = theorem_4_2(run, level) if 0 < level < 1 else None
    largest = largest_learning_rate(run)
    return {
        "theorem_4_2": {
            "steps": None if published is None else published.steps,
            "largest_learning_rate": published.largest_learning_rate if published else None,
            "reason": "the claim is trivial" if published is None else published.reason,
        },
        "largest_learning_rate": largest if math.isfinite(largest) else None,
        "nonexpansive_learning_rate": nonexpansive_learning_rate(run),
    }


def _mixing_report(run: Run, mixing: MixingCertificate) -> dict[str, Any]:
    blocks = [{"count": count, "steps": steps} for count, steps in mixing.blocks]
    body = {"steps": mixing.steps, "tv": mixing.claimed_tv, "blocks": blocks}
    return {**body, **_limits(run, mixing), "certificate": mixing.to_dict()}


def _show_mixing(run: Run, mixing: MixingCertificate) -> None:
    from rich.markup import escape

    from dplateau.cli.show import console, print_rows
    from dplateau.ground.shown import rounded_down

    console.print(f"[bold]{escape(str(mixing))}[/bold]")
    limits = _limits(run, mixing)
    published = limits["theorem_4_2"]
    said = f"{published['steps']} steps" if published["steps"] else published["reason"]
    largest = limits["largest_learning_rate"]
    calm = limits["nonexpansive_learning_rate"]
    rows = [
        ("Theorem 4.2", f"{said} (Bravo, Flores-Mella and Guzmán 2025)"),
        (
            "largest learning rate",
            "any" if largest is None else f"{rounded_down(largest)} has a certificate",
        ),
        ("no expansion up to", "not convex and smooth" if calm is None else rounded_down(calm)),
    ]
    print_rows("beside it", rows)
    print_rows("rests on", [(a.status, a.text) for a in mixing.assumptions])
