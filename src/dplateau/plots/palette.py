"""Colours that stay apart for colour-blind readers, and the look of each kind of line.

The colours are those of Okabe and Ito, then some of Paul Tol's where a picture needs more. Hidden
states are drawn solid, released ones dashed, lower bounds black and dotted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_HIDDEN = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#332288", "#882255")
_RELEASED = ("#8C8C8C", "#E69F00", "#56B4E9", "#444444", "#A59600", "#44AA99")
LOWER = "#000000"
FORBIDDEN_AREA = "#ECECEC"
QUIET = "#666666"
# Lines that coincide stay visible: each is drawn thinner than the one below it.
_THINNEST, _STEP = 1.8, 0.6
_RELEASED_WIDTH = 1.4
_MARKERS = ("", "s", "^", "D")


@dataclass(frozen=True)
class Look:
    """How one line is drawn."""

    colour: str
    style: str
    width: float
    marker: str
    layer: float


def looks(hidden: Sequence[bool], ends: Sequence[float]) -> list[Look]:
    """Return a look for each line, no two alike.

    ``hidden`` says whether a bound needs hidden iterates and ``ends`` where its line ends: the
    lowest hidden one gets the first colour and lies above the others.
    """
    found: dict[int, Look] = {}
    solid = sorted((i for i, kind in enumerate(hidden) if kind), key=lambda i: ends[i])
    for rank, index in enumerate(solid):
        width = _THINNEST + _STEP * min(rank, 4)
        found[index] = _look(_HIDDEN, rank, "-", width, 2.5 - rank / 100)
    for rank, index in enumerate(i for i, kind in enumerate(hidden) if not kind):
        # Dashes lie on top: what they cover shows through their gaps.
        found[index] = _look(_RELEASED, rank, "--", _RELEASED_WIDTH, 3.0 + rank / 100)
    return [found[index] for index in range(len(hidden))]


def _look(colours: Sequence[str], rank: int, style: str, width: float, layer: float) -> Look:
    turn, place = divmod(rank, len(colours))
    return Look(colours[place], style, width, _MARKERS[turn % len(_MARKERS)], layer)
