"""What pictures over steps and over records share: lines, the forbidden area and a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dplateau.ground.types import FloatArray, IntArray
from dplateau.plots.end_labels import EndLabel, heights
from dplateau.plots.lower import LowerPoints
from dplateau.plots.palette import FORBIDDEN_AREA, LOWER, QUIET, Look
from dplateau.plots.words import rounded_down, rounded_up

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

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
        color=look.colour,
        linestyle=look.style,
        linewidth=look.width,
        marker=look.marker,
        markevery=max(1, x.size // 8),
        zorder=look.layer,
    )
    end = last_finite(y)
    return EndLabel(end, f"{name}  {rounded_up(end)}", look.colour)


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
    text = f"{LOWER_NAME}  {rounded_down(end)}"
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

    figure = ax.get_figure(root=True)
    assert figure is not None
    below = ScaledTranslation(0, -_KEY_DEPTH / 72, figure.dpi_scale_trans)
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
    found: FloatArray = every[np.isfinite(every) & (every > 0)]
    return found
