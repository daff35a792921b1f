"""epsilon over the number of steps: every bound, and the band that holds the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplateau.audit.lower_curves import LowerPoints, lower_at
from dplateau.audit.tightness_ratios import TightnessOverSteps
from dplateau.bounds.registry import bound_named
from dplateau.certificates import BoundOverSteps, EpsilonOverSteps
from dplateau.certificates.curve_table import Column, CurveTable
from dplateau.ground.types import FloatArray, IntArray
from dplateau.plots.canvas import Display
from dplateau.plots.lines import (
    LOWER,
    QUIET,
    EndLabel,
    draw_frame,
    draw_key,
    draw_line,
    draw_lower,
    last_finite,
    looks,
    place_key,
    positive,
    stairs,
    with_best_bold,
    write_end_labels,
)
from dplateau.plots.words import in_short, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Loose bounds may leave the picture at this many times the tightest released one.
_HEADROOM = 8.0
# Share of the height that stays free below everything, for the forbidden area's name.
_FLOOR = 0.12


@dataclass(frozen=True, eq=False)
class EpsilonOverStepsDisplay(Display):
    """Bounds on epsilon over T on logarithmic axes, with a lower bound where one is known.

    Hidden-state bounds are solid, bounds that hold for released iterates dashed, the lower bound is
    dotted with the impossible region shaded. Names stand at the lines' ends.

    >>> from dplateau import NoisyGD, epsilon_over_steps
    >>> run = NoisyGD(n=100, steps=1, noise_multiplier=10.0, release="all")
    >>> display = EpsilonOverStepsDisplay.from_curve(epsilon_over_steps(run, 1e-5, [1, 10, 100]))
    >>> len(display.plot().lines)
    5
    """

    steps: IntArray
    bounds: tuple[BoundOverSteps, ...]
    delta: float
    title: str
    lower: LowerPoints | None = None

    @classmethod
    def from_curve(
        cls, curve: EpsilonOverSteps, lower: LowerPoints | None = None
    ) -> EpsilonOverStepsDisplay:
        """Take what ``epsilon_over_steps`` (and ``lower_over_steps``) returned."""
        return cls(curve.steps, curve.bounds, curve.delta, in_short(curve.run), lower)

    def table(self) -> CurveTable:
        """Return the numbers behind the picture."""
        values = [line.epsilon for line in self.bounds]
        return CurveTable(
            axis="steps",
            places=self.steps,
            quantity="epsilon",
            columns=tuple(
                Column(line.bound, line.title, line.hidden_state, line.epsilon)
                for line in self.bounds
            ),
            best=np.min(values, axis=0),
            lower=lower_at(self.lower, self.steps),
        )

    def draw(self, ax: Axes) -> None:
        """Draw every bound, the lower bound and the names."""
        ax.set_xscale("log")
        ax.set_yscale("log")
        hidden = [line.hidden_state for line in self.bounds]
        values = [line.epsilon for line in self.bounds]
        styles = looks(hidden, [last_finite(line) for line in values])
        labels = [
            draw_line(ax, self.steps, line.epsilon, line.title, look)
            for line, look in zip(self.bounds, styles, strict=True)
        ]
        labels = with_best_bold(labels, values)
        self._set_limits(ax)
        shaded = self.lower if self.lower is not None and np.any(self.lower.epsilon > 0) else None
        if shaded is not None:
            labels += draw_lower(ax, shaded)
        y_label = f"epsilon at delta = {self.delta:g}"
        draw_frame(ax, wrapped(self.title), "steps T", y_label)
        draw_key(ax, hidden, shaded)
        write_end_labels(ax, labels)

    def _set_limits(self, ax: Axes) -> None:
        first, last = int(self.steps.min()), int(self.steps.max())
        ax.set_xlim(first, last if last > first else first * 10)
        values = [line.epsilon for line in self.bounds]
        shown = positive([*values, self.lower.epsilon] if self.lower is not None else values)
        if shown.size == 0:
            return
        low, high = float(shown.min()), min(float(shown.max()), _HEADROOM * self._reference())
        high = 1.3 * max(high, 2 * low)
        ax.set_ylim(low / (high / low) ** (_FLOOR / (1 - _FLOOR)), high)

    def _reference(self) -> float:
        """Return the largest epsilon of the tightest bound for released iterates (or of all)."""
        ends: list[FloatArray] = [b.epsilon for b in self.bounds if not b.hidden_state]
        lowest = np.min(ends or [b.epsilon for b in self.bounds], axis=0)
        finite = positive([lowest])
        return float(finite.max()) if finite.size else float("inf")


_BAND = "#CFE3F1"
# Share of the height that stays free below everything, for the forbidden area's name.
_BAND_FLOOR = 0.15


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
            ax.set_ylim(low / (high / low) ** (_BAND_FLOOR / (1 - _BAND_FLOOR)), high)
