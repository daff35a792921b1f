"""All commands: each parses, calls the library, and shows."""

from __future__ import annotations

from typing import Annotated

import typer

from dplateau.cli import account, audit, curves, ledger, papers, tour, train
from dplateau.ground import VERSION

app = typer.Typer(
    name="dplateau",
    help="Privacy of noisy gradient descent: what the last iterate really costs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dplateau {VERSION}")
        raise typer.Exit


@app.callback()
def dplateau(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Say which version this is.", callback=_say_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Privacy of noisy gradient descent: what the last iterate really costs."""


# In the order and under the titles of the help.
for title, part in {
    "Account": account.app,
    "Over steps and records": curves.app,
    "Train on a table": train.app,
    "Sign off": papers.app,
    "Attack": audit.app,
    "Look around": tour.app,
}.items():
    for command in part.registered_commands:
        command.rich_help_panel = title
    app.add_typer(part)
app.add_typer(ledger.app, name="ledger", rich_help_panel="Sign off")
