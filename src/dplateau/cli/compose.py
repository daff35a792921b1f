"""The command ``compose``: what several releases of the same data cost together."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dplateau.cli.ledger import part_in
from dplateau.cli.options import CLAIM_PANEL, OUTPUT_PANEL, real_option
from dplateau.errors import InvalidInput
from dplateau.ground.files import write_whole

if TYPE_CHECKING:
    from dplateau.certificates.composition import ForeignPart, Part

EXAMPLE = "Example: `dplateau compose certificate.json certificate.json --declare count=0.1`"


def compose_command(
    files: Annotated[
        list[Path],
        typer.Argument(help="Certificates or compositions, as JSON; one may stand twice."),
    ],
    declare: Annotated[
        list[str] | None,
        typer.Option(
            help="A release of other software, NAME=EPSILON or NAME=EPSILON:DELTA: its numbers "
            "are your word (repeatable).",
            rich_help_panel=CLAIM_PANEL,
        ),
    ] = None,
    delta: Annotated[
        float | None,
        real_option(
            "--delta", help="Failure probability (default: the largest stated).", panel=CLAIM_PANEL
        ),
    ] = None,
    disjoint: Annotated[
        bool,
        typer.Option(
            "--disjoint",
            help="Every record is used by one of the releases only: the worst counts.",
            rich_help_panel=CLAIM_PANEL,
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, not text.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Write the composition here.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
) -> None:
    """Give the smallest epsilon of several releases, all of them fixed in advance.

    If results decide what comes next, use `dplateau ledger` instead.
    """
    from dplateau.certificates import compose

    papers = [part_in(file) for file in files]
    level = max(paper.claimed_delta for paper in papers) if delta is None else delta
    parts: list[Part] = [*papers, *(_declared(text, papers[0]) for text in declare or [])]
    found = compose(parts, level, records="disjoint" if disjoint else "same")
    if output is not None:
        write_whole(output, found.to_json())
    if json:
        typer.echo(json_text.dumps(found.to_dict(), indent=2, allow_nan=False))
        return
    typer.echo(str(found))
    if output is not None:
        typer.echo(f"composition written to {output}")


def _declared(text: str, beside: Part) -> ForeignPart:
    """Return what ``NAME=EPSILON:DELTA`` declares, about the neighbors of the files."""
    from dplateau.certificates import foreign
    from dplateau.certificates.compose import relations_of

    name, _, numbers = text.rpartition("=")
    epsilon, _, delta = numbers.partition(":")
    neighbors, unit = next(relations_of(beside))
    try:
        stated = {"epsilon": float(epsilon), "delta": float(delta or 0.0)}
    except ValueError:
        stated = {}
    if not name or not stated:
        raise InvalidInput(f"--declare takes NAME=EPSILON or NAME=EPSILON:DELTA; got {text!r}")
    return foreign(neighbors=neighbors, unit=unit, name=name, **stated)
