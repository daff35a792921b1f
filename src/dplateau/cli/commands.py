"""All commands: each parses, calls the library, and shows."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dplateau.cli import account, audit, curves, ledger, papers, tour, train
from dplateau.ground import VERSION

# How help calls what an option or an argument takes; a flag takes nothing.
_TAKES = {
    "<bool>": "",
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<path>": "PATH",
    "<list[path]>": "PATH",
}
_CHOICE = re.compile(r"<\w[\w-]*(\|[\w-]+)+>")


def _in_one_style(parameters: list[Any], context: Any) -> list[Any]:
    """Return the parameters of a command, each with what it takes in capital letters."""
    for parameter in parameters:
        # Older versions of the parser write capital letters themselves.
        if not hasattr(parameter, "display_type"):
            continue
        shown = parameter.display_type(context)
        # Which words there are stands in the text beside it.
        takes = "TEXT" if _CHOICE.fullmatch(shown) else _TAKES.get(shown.lower())
        if takes is None:
            continue
        if parameter.param_type_name == "option":
            parameter.metavar = takes if parameter.metavar is None else parameter.metavar
        else:  # the metavar of an argument is its name
            parameter.display_type_rich = partial(_always, takes)
    return parameters


def _always(text: str, ctx: Any) -> str:
    return text


class Command(TyperCommand):
    """A command whose help has one style."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its parameters."""
        return _in_one_style(super().get_params(ctx), ctx)


class Group(TyperGroup):
    """A group of commands whose help has one style."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its parameters."""
        return _in_one_style(super().get_params(ctx), ctx)


app = typer.Typer(
    name="dplateau",
    cls=Group,
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
        command.rich_help_panel, command.cls = title, Command
    app.add_typer(part)
for command in ledger.app.registered_commands:
    command.cls = Command
app.add_typer(ledger.app, name="ledger", rich_help_panel="Sign off", cls=Group)
