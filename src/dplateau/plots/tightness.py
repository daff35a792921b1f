"""Where the truth is over the number of steps: between the best claim and an exact example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplateau.audit.ratios import TightnessOverSteps
from dplateau.bounds.registry import bound_named
from dplateau.ground.types import FloatArray, IntArray
from dplateau.plots.canvas import Display
from dplateau.plots.end_labels import EndLabel, write_end_labels
from dplateau.plots.lower import LowerPoints
from dplateau.plots.palette import LOWER, QUIET, looks
from dplateau.plots.strokes import draw_frame, draw_line, draw_lower, place_key, positive, stairs
from dplateau.plots.words import in_short, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAND = "#CFE3F1"
# Share of the height that stays free below everything, for the forbidden area's name.
_FLOOR = 0.15


@dataclass(frozen=True, eq=False)
class TightnessDisplay(Display):
    """The best claim over T, the proved lower bound, and the band between that holds the truth.

    >>> from dplateau import LossGeometry, NoisyGD
    >>> from dplateau.audit import tightness_over_steps
    >>> run = NoisyGD(n=10, steps=1, learning_rate=0.5, l2=0.1, noise_std=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5))
    >>> display = TightnessDisplay.from_curve(tightness_over_steps(run, 1e-5, [1, 10, 100]))
    >>> len(display.plot().lines)
    3
    """

    steps: IntArray
    upper: FloatArray
    lower: FloatArray
    claim: str
    delta: float
    title: str

    @classmethod
    def from_curve(cls, curve: TightnessOverSteps) -> TightnessDisplay:
        """Take what ``tightness_over_steps`` returned."""
        claim = bound_named(curve.bounds[-1]).title
        return cls(curve.steps, curve.upper, curve.lower, claim, curve.delta, in_short(curve.run))

    def draw(self, ax: Axes) -> None:
        """Draw the claim, the example, the band between them and the ratio at the end."""
        ax.set_xscale("log")
        ax.set_yscale("log")
        self._set_limits(ax)
        known = self.lower > 0
        example = LowerPoints(self.steps[known], self.lower[known])
        if np.any(known):
            x, low = stairs(example)
            high = np.exp(np.interp(np.log(x), np.log(self.steps), np.log(self.upper)))
            ax.fill_between(x, low, high, color=_BAND, linewidth=0, zorder=0.7)
        labels = [draw_line(ax, self.steps, self.upper, "best claim", looks([True], [0.0])[0])]
        if np.any(known):
            labels += draw_lower(ax, example)
        if known[-1]:
            labels.append(self._ratio())
        y_label = f"epsilon at delta = {self.delta:g}"
        draw_frame(ax, wrapped(self.title), "steps T", y_label)
        self._explain(ax)
        write_end_labels(ax, labels)

    def _ratio(self) -> EndLabel:
        upper, lower = float(self.upper[-1]), float(self.lower[-1])
        return EndLabel((upper * lower) ** 0.5, f"ratio {upper / lower:.2f}", QUIET, True)

    def _explain(self, ax: Axes) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        look = looks([True], [0.0])[0]
        claim = f"best claim (at the end: {self.claim})"
        place_key(
            ax,
            [
                Line2D([], [], color=look.colour, lw=look.width, label=claim),
                Patch(color=_BAND, label="the truth is in here"),
                Line2D([], [], color=LOWER, ls=":", lw=1.6, label="exact example (at the dots)"),
            ],
        )

    def _set_limits(self, ax: Axes) -> None:
        first, last = int(self.steps.min()), int(self.steps.max())
        ax.set_xlim(first, last if last > first else first * 10)
        shown = positive([self.upper, self.lower])
        if shown.size:
            low, high = float(shown.min()), 1.3 * float(shown.max())
            high = max(high, 2 * low)
            ax.set_ylim(low / (high / low) ** (_FLOOR / (1 - _FLOOR)), high)
