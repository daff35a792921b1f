"""How lines look, where their names stand, and what pictures over an axis share.

Colors stay apart for color-blind readers: those of Okabe and Ito, then some of Paul Tol's where a
picture needs more. Hidden states are drawn solid, released ones dashed, lower bounds black and
dotted. Names stand beside the ends of lines, moved apart so that none covers another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dplateau.audit.lower_curves import LowerPoints
from dplateau.ground.shown import rounded_down, rounded_up
from dplateau.ground.types import FloatArray, IntArray
from dplateau.plots.canvas import figure_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

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

    color: str
    style: str
    width: float
    marker: str
    layer: float


def looks(hidden: Sequence[bool], ends: Sequence[float]) -> list[Look]:
    """Return a look for each line, no two alike.

    ``hidden`` says whether a bound needs hidden iterates and ``ends`` where its line ends: the
    lowest hidden one gets the first color and lies above the others.
    """
    chosen: dict[int, Look] = {}
    solid = sorted((i for i, kind in enumerate(hidden) if kind), key=lambda i: ends[i])
    for rank, index in enumerate(solid):
        width = _THINNEST + _STEP * min(rank, 4)
        chosen[index] = _look(_HIDDEN, rank, "-", width, 2.5 - rank / 100)
    for rank, index in enumerate(i for i, kind in enumerate(hidden) if not kind):
        # Dashes lie on top: what they cover shows through their gaps.
        chosen[index] = _look(_RELEASED, rank, "--", _RELEASED_WIDTH, 3.0 + rank / 100)
    return [chosen[index] for index in range(len(hidden))]


def _look(colors: Sequence[str], rank: int, style: str, width: float, layer: float) -> Look:
    turn, place = divmod(rank, len(colors))
    return Look(colors[place], style, width, _MARKERS[turn % len(_MARKERS)], layer)


# --- names at the ends of lines ------------------------------------------------------------------

_FONT_SIZE = 8.5
_LINE_HEIGHT = 1.45
_POINTS_PER_INCH = 72.0


@dataclass(frozen=True)
class EndLabel:
    """A text for the line that ends at height ``value`` (in data units) on the right."""

    value: float
    text: str
    color: str
    bold: bool = False


def write_end_labels(ax: Axes, labels: Sequence[EndLabel]) -> None:
    """Write the labels right of the axes, each tied to its line's end; call after the limits.

    Lines that leave the picture are tied to the border where they leave it.
    """
    ordered = sorted(labels, key=lambda label: label.value)
    ends = heights(ax, np.array([label.value for label in ordered]))
    size, gap = _font(ax, len(ordered))
    for label, end, place in zip(ordered, ends, spread(ends, gap), strict=True):
        leaves = " \N{UPWARDS ARROW}" if label.value > ax.get_ylim()[1] else ""
        ax.annotate(
            label.text + leaves,
            xy=(1.0, end),
            xycoords="axes fraction",
            xytext=(1.045, place),
            textcoords="axes fraction",
            va="center",
            ha="left",
            fontsize=size,
            color=label.color,
            fontweight="bold" if label.bold else "normal",
            arrowprops={
                "arrowstyle": "-",
                "color": label.color,
                "linewidth": 0.7,
                "shrinkA": 2,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
            annotation_clip=False,
        )


def heights(ax: Axes, values: FloatArray) -> FloatArray:
    """Return data heights as fractions of the axes, the ends standing for what lies beyond."""
    low, high = ax.get_ylim()
    inside = np.clip(values, low, high)
    if ax.get_yscale() == "log":
        inside, low, high = np.log(inside), np.log(low), np.log(high)
    fractions: FloatArray = (inside - low) / (high - low)
    return fractions


def spread(wanted: FloatArray, gap: float) -> FloatArray:
    """Move ascending places in [0, 1] apart by at least ``gap``, and each as little as possible.

    >>> spread(np.array([0.5, 0.5, 0.9]), 0.1).round(2).tolist()
    [0.45, 0.55, 0.9]
    """
    from scipy.optimize import isotonic_regression

    offsets = gap * np.arange(wanted.size)
    flat = isotonic_regression(wanted - offsets).x
    room = max(gap / 2, 1.0 - gap * (wanted.size - 0.5))
    placed: FloatArray = np.clip(flat, gap / 2, room) + offsets
    return placed


def _font(ax: Axes, count: int) -> tuple[float, float]:
    """Return font size and gap (a fraction of the axes) at which ``count`` labels fit."""
    box = ax.get_window_extent()
    points = box.height / figure_of(ax).dpi * _POINTS_PER_INCH
    size = min(_FONT_SIZE, points / ((count + 1) * _LINE_HEIGHT))
    return size, size * _LINE_HEIGHT / points


# --- lines, the forbidden area and a key ---------------------------------------------------------

HOLDS_HIDDEN = "holds while the iterates stay hidden"
HOLDS_RELEASED = "holds even if every iterate is released"
FORBIDDEN = "no claim can be here"
LOWER_NAME = "proved lower bound"
# How far below the axes a key begins, in points.
_KEY_DEPTH = 40.0


def draw_line(ax: Axes, x: IntArray, y: FloatArray, name: str, look: Look) -> EndLabel:
    """Draw one bound and return the label for its end."""
    ax.plot(
        x,
        y,
        label=name,
        color=look.color,
        linestyle=look.style,
        linewidth=look.width,
        marker=look.marker,
        markevery=max(1, x.size // 8),
        zorder=look.layer,
    )
    end = last_finite(y)
    return EndLabel(end, f"{name}  {rounded_up(end, 3, padded=True)}", look.color)


def with_best_bold(labels: Sequence[EndLabel], values: Sequence[FloatArray]) -> list[EndLabel]:
    """Return the labels, in bold that of the line that is lowest on the whole."""
    sums = [float(np.sum(line)) for line in values]
    best = sums.index(min(sums))
    return [replace(label, bold=index == best) for index, label in enumerate(labels)]


def last_finite(values: FloatArray) -> float:
    """Return the last value that is a number (infinite if none is)."""
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else float("inf")


def draw_lower(ax: Axes, lower: LowerPoints) -> list[EndLabel]:
    """Draw the lower bound and shade what lies below it; call after the limits are set.

    Between two points nothing was computed, so the shade there only reaches the lower of them.
    """
    x, y = stairs(lower)
    ax.fill_between(x, ax.get_ylim()[0], y, color=FORBIDDEN_AREA, linewidth=0, zorder=0.5)
    ax.plot(x, y, color=LOWER, linestyle=":", linewidth=1.3, zorder=4)
    dots = ax.plot(lower.at, lower.epsilon, label=LOWER_NAME, color=LOWER, linestyle="none")
    dots[0].set(marker="o", markersize=3.5 if lower.at.size <= 20 else 2.2, zorder=5)
    if _name_fits(ax, lower):
        name = ax.text(0.985, 0.025, FORBIDDEN, transform=ax.transAxes, ha="right", va="bottom")
        name.set(fontsize=8.5, fontstyle="italic", color=QUIET, zorder=1)
    end = float(lower.epsilon[-1])
    text = f"{LOWER_NAME}  {rounded_down(end, 3, padded=True)}"
    if lower.at[-1] >= ax.get_xlim()[1]:
        return [EndLabel(end, text, LOWER)]
    # The last point lies inside the picture: name it where it is.
    ax.annotate(text, (lower.at[-1], end), (7, -3), textcoords="offset points", fontsize=8.5)
    return []


def stairs(lower: LowerPoints) -> tuple[FloatArray, FloatArray]:
    """Return a line that, between two points, is level with the lower of them."""
    between = np.minimum(lower.epsilon[1:], lower.epsilon[:-1])
    x = np.repeat(lower.at.astype(np.float64), 2)[1:-1]
    return x, np.repeat(between, 2)


def _name_fits(ax: Axes, lower: LowerPoints) -> bool:
    """Return whether the shaded area is high enough all over the right third of the axes."""
    edges = ax.transAxes.transform([(0.66, 0.0), (1.0, 0.0)])
    left, right = ax.transData.inverted().transform(edges)[:, 0]
    x, y = stairs(lower)
    if x.size == 0 or x[0] > left or x[-1] < right * (1 - 1e-9):
        return False
    return bool(np.min(heights(ax, y[x > left])) > 0.08)


def draw_key(ax: Axes, hidden: Sequence[bool], lower: LowerPoints | None) -> None:
    """Explain the line styles under the axes, where no line can be."""
    from matplotlib.lines import Line2D

    handles = []
    if any(hidden):
        handles.append(Line2D([], [], color=QUIET, ls="-", lw=2.2, label=HOLDS_HIDDEN))
    if not all(hidden):
        handles.append(Line2D([], [], color=QUIET, ls="--", lw=1.4, label=HOLDS_RELEASED))
    if lower is not None:
        text = "exact example" if _name_fits(ax, lower) else "no claim can be below"
        handles.append(Line2D([], [], color=LOWER, ls=":", lw=1.6, label=f"{text} (at the dots)"))
    place_key(ax, handles)


def place_key(ax: Axes, handles: Sequence[Artist]) -> None:
    """Put a key under the axes' own label, starting at their left."""
    from matplotlib.transforms import ScaledTranslation

    below = ScaledTranslation(0, -_KEY_DEPTH / 72, figure_of(ax).dpi_scale_trans)
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=ax.transAxes + below,
        ncols=len(handles),
        frameon=False,
        fontsize=8.3,
        handlelength=2.4,
        borderaxespad=0.0,
        borderpad=0.0,
        columnspacing=1.8,
    )


def draw_frame(ax: Axes, title: str, x_label: str, y_label: str) -> None:
    """Write title and axis labels, and take away what carries no data."""
    ax.set_title(title, loc="left", fontsize=10)
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    ax.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def positive(arrays: Sequence[FloatArray]) -> FloatArray:
    """Return all values above 0 that are numbers."""
    every = np.concatenate([np.ravel(array) for array in arrays])
    kept: FloatArray = every[np.isfinite(every) & (every > 0)]
    return kept
