"""The command ``convert``: between a Rényi divergence and (epsilon, delta), four ways beside."""

from __future__ import annotations

import json as json_text
from typing import Annotated

import typer

from dplateau.cli.options import OUTPUT_PANEL
from dplateau.errors import InvalidInput

EXAMPLE = "Example: `dplateau convert --alpha 10 --zeta 1 --delta 1e-5`"
_SOURCES = {
    "classic": "Mironov 2017, Proposition 3",
    "balle": "Balle et al. 2020, Theorem 21",
    "linearized": "Asoodeh et al. 2021, by tangents at 1",
    "optimal": "Asoodeh et al. 2021, exact for one order",
}


def convert_command(
    alpha: Annotated[float, typer.Option(help="The order of the divergence, above 1.")],
    zeta: Annotated[
        float | None, typer.Option(help="A bound on the Rényi divergence of that order.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Epsilon, if it is given.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta, if it is given.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
) -> None:
    """Convert one Rényi divergence: state two of --zeta, --epsilon and --delta, get the third."""
    from dplateau.curves import conversions

    stated = {"zeta": zeta, "epsilon": epsilon, "delta": delta}
    given = {name: value for name, value in stated.items() if value is not None}
    if len(given) != 2:
        raise InvalidInput(
            "convert needs two of --zeta, --epsilon and --delta and gives the third; got "
            f"{' and '.join(f'--{name}' for name in given) or 'none of them'}"
        )
    (asked,) = set(stated) - set(given)
    found: dict[str, float] = {}
    for way in conversions.CONVERSIONS:
        if zeta is None:
            assert epsilon is not None
            assert delta is not None
            found[way] = conversions.largest_zeta(alpha, epsilon, delta, way)
        elif delta is None:
            assert epsilon is not None
            found[way] = getattr(conversions, f"{way}_delta")(alpha, zeta, epsilon)
        else:
            found[way] = getattr(conversions, f"{way}_epsilon")(alpha, zeta, delta)
    if json:
        finite = {way: value if abs(value) < float("inf") else None for way, value in found.items()}
        answer = {"alpha": alpha, **given, "asked": asked, asked: finite}
        typer.echo(json_text.dumps(answer, indent=2, allow_nan=False))
        return
    _show(alpha, given, asked, found)


def _show(alpha: float, given: dict[str, float], asked: str, found: dict[str, float]) -> None:
    from rich.table import Table

    from dplateau.cli.show import console
    from dplateau.ground.shown import rounded_down, rounded_up

    # What is claimed is rounded up, what there is room for is rounded down.
    shown = rounded_down if asked == "zeta" else rounded_up
    known = ", ".join(f"{name} = {value:g}" for name, value in given.items())
    what = f"largest {asked}" if asked == "zeta" else asked
    table = Table(title=f"{what} for alpha = {alpha:g}, {known}", title_justify="left")
    table.add_column("conversion")
    table.add_column(what, justify="right")
    table.add_column("source")
    for way, value in found.items():
        style = "bold" if way == "optimal" else None
        table.add_row(way, shown(value, 7, padded=True), _SOURCES[way], style=style)
    console.print(table)
