"""Names written beside the ends of lines, moved apart so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplateau.ground.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FONT_SIZE = 8.5
_LINE_HEIGHT = 1.45
_POINTS_PER_INCH = 72.0


@dataclass(frozen=True)
class EndLabel:
    """A text for the line that ends at height ``value`` (in data units) on the right."""

    value: float
    text: str
    colour: str
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
            color=label.colour,
            fontweight="bold" if label.bold else "normal",
            arrowprops={
                "arrowstyle": "-",
                "color": label.colour,
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
    found: FloatArray = (inside - low) / (high - low)
    return found


def spread(wanted: FloatArray, gap: float) -> FloatArray:
    """Move ascending places in [0, 1] apart by at least ``gap``, and each as little as possible.

    >>> spread(np.array([0.5, 0.5, 0.9]), 0.1).round(2).tolist()
    [0.45, 0.55, 0.9]
    """
    offsets = gap * np.arange(wanted.size)
    # Least squares under an order: pool neighbours that would cross.
    pools: list[tuple[float, int]] = []
    for value in wanted - offsets:
        mean, count = float(value), 1
        while pools and pools[-1][0] > mean:
            before, size = pools.pop()
            mean = (mean * count + before * size) / (count + size)
            count += size
        pools.append((mean, count))
    flat = np.repeat([mean for mean, _ in pools], [count for _, count in pools])
    room = max(gap / 2, 1.0 - gap * (wanted.size - 0.5))
    placed: FloatArray = np.clip(flat, gap / 2, room) + offsets
    return placed


def _font(ax: Axes, count: int) -> tuple[float, float]:
    """Return font size and gap (a fraction of the axes) at which ``count`` labels fit."""
    box = ax.get_window_extent()
    figure = ax.get_figure(root=True)
    assert figure is not None
    points = box.height / figure.dpi * _POINTS_PER_INCH
    size = min(_FONT_SIZE, points / ((count + 1) * _LINE_HEIGHT))
    return size, size * _LINE_HEIGHT / points
