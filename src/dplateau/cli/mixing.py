"""The command ``mixing``: after how many steps a projected Langevin chain forgets its start."""

from __future__ import annotations

import inspect
import json as json_text
import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dplateau.cli.options import (
    _LOSS_FLAGS,
    CLAIM_PANEL,
    FLAGS,
    OUTPUT_PANEL,
    _domain,
    _loss,
    _option,
    _parameter,
    whole_option,
)
from dplateau.errors import InvalidInput
from dplateau.ground.files import write_whole

# The library itself loads when the command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Run
    from dplateau.sampling import MixingCertificate

EXAMPLE = (
    "Example: `dplateau mixing --diameter 1 --learning-rate 0.01 --smoothness 1 --tv 0.01 "
    "-o mixing.png`"
)
_CHAIN_FLAGS = (
    "diameter",
    "radius",
    "learning_rate",
    "l2",
    "inverse_temperature",
    *_LOSS_FLAGS,
    "n",
    "batch_size",
    "sampling",
)
_POINTS = 240


def takes_chain(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a chain, and call it with the run that they describe."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "run"]
    hints = get_type_hints(command, localns={"Run": Any}, include_extras=True)
    flags = [_parameter(name, _option(name, FLAGS[name]), None) for name in _CHAIN_FLAGS]
    shown = [*flags, *(_parameter(p.name, hints[p.name], p.default) for p in own)]

    @wraps(command)
    def called(**values: Any) -> None:
        stated = {name: values.pop(name) for name in _CHAIN_FLAGS}
        command(build_chain(stated), **values)

    called.__dict__["__signature__"] = inspect.Signature(shown)
    called.__annotations__ = {p.name: p.annotation for p in shown}
    return called


def build_chain(stated: dict[str, Any]) -> Run:
    """Return the chain that the options describe: full gradients, or batches with --batch-size."""
    from dplateau.algorithms import NoisySGD, ProjectedLangevin

    given = {name: value for name, value in stated.items() if value is not None}
    if "learning_rate" not in given:
        raise InvalidInput("mixing needs --learning-rate")
    shared = {name: given[name] for name in ("n", "l2") if name in given} | {
        "steps": 1,
        "learning_rate": given["learning_rate"],
        "loss": _loss(given),
        "domain": _domain(given),
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


@takes_chain
def mixing_command(
    run: Run,
    tv: Annotated[
        float | None,
        typer.Option(help="Total variation to reach (0.01).", rich_help_panel=CLAIM_PANEL),
    ] = None,
    steps: Annotated[
        int | None,
        whole_option(
            "--steps", help="Or: steps to take; gives their total variation.", panel=CLAIM_PANEL
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Draw here: .png, .svg or .pdf.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Write the certificate here, as JSON.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, not tables.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
) -> None:
    """Say after how many steps a projected Langevin chain has forgotten where it started.

    The claim holds from any start in the body, for the total variation to the chain's own
    stationary law. Without constants of the potential nothing can be said.
    """
    from dplateau.sampling import certify_mixing

    _check_output(output)
    wanted = 0.01 if tv is None and steps is None else tv
    found = certify_mixing(run, tv=wanted, steps=steps)
    if certificate is not None:
        write_whole(certificate, found.to_json())
    if output is not None:
        write_whole(output, _picture(run, found, wanted, output.suffix))
    if json:
        typer.echo(json_text.dumps(_report(run, found), indent=2, allow_nan=False))
        return
    _show(run, found)
    for path in (certificate, output):
        if path is not None:
            typer.echo(f"written to {path}")


def _check_output(output: Path | None) -> None:
    """Refuse what could not be drawn, before anything is computed."""
    from dplateau.plots.canvas import checked_suffix, require_matplotlib

    if output is not None:
        checked_suffix(output)
        require_matplotlib()


def _picture(run: Run, found: MixingCertificate, target: float | None, suffix: str) -> bytes:
    import numpy as np

    from dplateau.plots import MixingDisplay
    from dplateau.sampling import theorem_4_2

    # Show the published number of steps too, unless it lies far away.
    published = theorem_4_2(run, found.claimed_tv).steps if 0 < found.claimed_tv < 1 else None
    reach = min(published or 0, 6 * found.steps)
    last = max(math.ceil(1.4 * found.steps), math.ceil(1.1 * reach), 2)
    steps = np.unique(np.linspace(1, last, _POINTS).round().astype(np.int64))
    needed = None if target is None else found.steps
    return MixingDisplay.from_run(run, steps, target=target, needed=needed).to_bytes(suffix)


def _limits(run: Run, found: MixingCertificate) -> dict[str, Any]:
    """Return what the published theorem says, and how large the learning rate may be."""
    from dplateau.sampling import (
        largest_learning_rate,
        nonexpansive_learning_rate,
        theorem_4_2,
    )

    level = found.claimed_tv
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


def _report(run: Run, found: MixingCertificate) -> dict[str, Any]:
    blocks = [{"count": count, "steps": steps} for count, steps in found.blocks]
    body = {"steps": found.steps, "tv": found.claimed_tv, "blocks": blocks}
    return {**body, **_limits(run, found), "certificate": found.to_dict()}


def _show(run: Run, found: MixingCertificate) -> None:
    from rich.markup import escape

    from dplateau.cli.show import console, print_rows

    console.print(f"[bold]{escape(str(found))}[/bold]", soft_wrap=True)
    limits = _limits(run, found)
    published = limits["theorem_4_2"]
    said = f"{published['steps']} steps" if published["steps"] else published["reason"]
    largest = limits["largest_learning_rate"]
    calm = limits["nonexpansive_learning_rate"]
    rows = [
        ("Theorem 4.2", f"{said} (Bravo, Flores-Mella and Guzmán 2025)"),
        ("largest learning rate", "any" if largest is None else f"{largest:.6g} has a certificate"),
        ("no expansion up to", "not convex and smooth" if calm is None else f"{calm:.6g}"),
    ]
    print_rows("beside it", rows)
    print_rows("rests on", [(a.status, a.text) for a in found.assumptions])
