"""The command ``explore``: open the page on which a run's privacy can be played with."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

EXAMPLE = "Example: `dplateau explore --state 'epochs=500&noise_multiplier=2'`"


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
