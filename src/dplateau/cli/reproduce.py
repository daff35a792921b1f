"""The command ``reproduce``: figures and tables of the papers, by our own code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dplateau.cli.options import OUTPUT_PANEL
from dplateau.ground.files import write_whole
from dplateau.ground.progress import counting

EXAMPLE = "Example: `dplateau reproduce conversions -o papers`"


def reproduce_command(
    name: Annotated[
        str | None, typer.Argument(help="One exhibit; all of them unless you name one.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder for the pictures and a page about them.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    names: Annotated[
        bool, typer.Option("--list", help="List the names.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
) -> None:
    """Reproduce the figures and tables of the papers behind the library: their numbers and ours."""
    from dplateau.reproduce import EXHIBITS, exhibit_named, page_of

    if names:
        typer.echo("\n".join(EXHIBITS))
        return
    wanted = list(EXHIBITS) if name is None else [name]
    if output is not None:
        from dplateau.plots.canvas import require_matplotlib

        require_matplotlib()
    found = []
    with counting("exhibits", len(wanted)) as advance:
        for one in wanted:
            found.append(exhibit_named(one))
            advance(1)
    for exhibit in found:
        typer.echo(f"{exhibit.title} ({exhibit.name})")
        typer.echo(f"{exhibit.citation.short()}. {exhibit.parameters}")
        rows = exhibit.table()
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        for what, theirs, ours in rows:
            typer.echo(f"  {what:<{widths[0]}}  {theirs:>{widths[1]}}  {ours:>{widths[2]}}")
        typer.echo(f"{exhibit.remark}\n")
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for exhibit in found:
            if exhibit.display is not None:
                picture = output / "images" / f"reproduce-{exhibit.name}.png"
                picture.parent.mkdir(exist_ok=True)
                write_whole(picture, exhibit.display.to_bytes())
        write_whole(output / "reproduce.md", page_of(found, "images"))
        typer.echo(f"wrote {output / 'reproduce.md'}")
