"""To look around: ``explore`` opens a page, ``reproduce`` redoes the papers, ``demo`` shows."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from dplateau.cli.options import output_option, print_text, tell_written
from dplateau.ground.files import refuse_file_as_folder, write_whole

app = typer.Typer()


@app.command(
    name="explore",
    epilog="Example: `dplateau explore --state 'epochs=500&noise_multiplier=2'`",
)
def explore_command(
    state: Annotated[
        str | None,
        typer.Option(help="What to show: all that follows # in the address of such a page."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Serve at this address of an earlier explorer again: its open pages go on."
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and open no browser.")
    ] = False,
) -> None:
    """Open a page on this machine with sliders: see what hiding the iterates buys.

    The server answers this machine only, at an address with a random token, and asks nobody else
    for anything. It needs the extra: pip install 'dplateau[explore]'.
    """
    from dplateau.explore import Explorer

    explorer = Explorer.open(address)
    page = explorer.page(state)
    typer.echo(f"dplateau explores at {page}\nEnd it with Ctrl-C.")
    if not no_browser:
        webbrowser.open(page)
    explorer.serve()


@app.command(name="reproduce", epilog="Example: `dplateau reproduce conversions -o papers`")
def reproduce_command(
    name: Annotated[
        str | None, typer.Argument(help="One exhibit; all of them unless you name one.")
    ] = None,
    output: Annotated[
        Path | None,
        output_option("-o", "--output", help="Folder for the pictures and a page about them."),
    ] = None,
    names: Annotated[bool, output_option("--list", help="List the names.")] = False,
) -> None:
    """Reproduce the figures and tables of the papers behind the library: their numbers and ours."""
    from dplateau.ground.progress import counting
    from dplateau.reproduce import EXHIBITS, exhibit_named, page_of

    if names:
        typer.echo("\n".join(EXHIBITS))
        return
    wanted = list(EXHIBITS) if name is None else [name]
    if output is not None:
        from dplateau.plots.canvas import require_matplotlib

        require_matplotlib()
        refuse_file_as_folder(output)
    exhibits = []
    with counting("exhibits", len(wanted)) as advance:
        for one in wanted:
            exhibits.append(exhibit_named(one))
            advance(1)
    for exhibit in exhibits:
        typer.echo(f"{exhibit.title} ({exhibit.name})")
        print_text(f"{exhibit.citation.short()}. {exhibit.parameters}")
        rows = exhibit.table()
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        for what, theirs, ours in rows:
            typer.echo(f"  {what:<{widths[0]}}  {theirs:>{widths[1]}}  {ours:>{widths[2]}}")
        print_text(f"{exhibit.remark}\n")
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for exhibit in exhibits:
            if exhibit.display is not None:
                picture = output / "images" / f"reproduce-{exhibit.name}.png"
                picture.parent.mkdir(exist_ok=True)
                write_whole(picture, exhibit.display.to_bytes())
        write_whole(output / "reproduce.md", page_of(exhibits, "images"))
        tell_written("page", output / "reproduce.md")


@app.command(epilog="Example: `dplateau demo`")
def demo() -> None:
    """Show what a hidden state saves on a realistic run."""
    from dplateau.cli.demo import run_demo

    run_demo()
