"""epsilon over the number of steps, epsilon or delta over the position of a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.audit.against_claims import TightnessOverSteps
from dplateau.audit.lower_curves import LowerPoints, lower_at
from dplateau.bounds.registry import bound_named
from dplateau.certificates import BoundOverSteps, EpsilonOverReleases, EpsilonOverSteps
from dplateau.certificates.over_steps import Column, CurveTable
from dplateau.certificates.per_record import LossPerRecord
from dplateau.errors import InvalidInput
from dplateau.ground.shown import rounded_up
from dplateau.ground.types import FloatArray, IntArray
from dplateau.plots.canvas import Display, in_short, wrapped
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _draw_bounds(ax: Axes, table: CurveTable) -> list[EndLabel]:
    """Draw a line for each bound and return their names, that of the best in bold."""
    values = [column.values for column in table.columns]
    hidden = [column.hidden_state for column in table.columns]
    styles = looks(hidden, [last_finite(line) for line in values])
    labels = [
        draw_line(ax, table.places, column.values, column.title, look)
        for column, look in zip(table.columns, styles, strict=True)
    ]
    return with_best_bold(labels, values)


def _draw_rest(
    ax: Axes, table: CurveTable, lower: LowerPoints | None, labels: list[EndLabel]
) -> None:
    """Draw what is known from below, the key, and the names at the lines' ends."""
    shaded = lower if lower is not None and np.any(lower.epsilon > 0) else None
    known = [] if shaded is None else draw_lower(ax, shaded)
    draw_key(ax, [column.hidden_state for column in table.columns], shaded)
    write_end_labels(ax, [*labels, *known])


# ---- over steps ----------------------------------------------------------------------------------


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
        table = self.table()
        labels = _draw_bounds(ax, table)
        self._set_limits(ax)
        draw_frame(
            ax, wrapped(self.title), "steps T", f"epsilon at delta = {rounded_up(self.delta)}"
        )
        _draw_rest(ax, table, self.lower, labels)

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


# ---- over the number of releases -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EpsilonOverReleasesDisplay(Display):
    """epsilon over the number of iterates that leave, from the last alone to all of them.

    >>> from dplateau import NoisyGD, epsilon_over_releases
    >>> run = NoisyGD(n=100, steps=50, noise_multiplier=10.0, release="last")
    >>> display = EpsilonOverReleasesDisplay.from_curve(epsilon_over_releases(run, 1e-5, [1, 50]))
    >>> len(display.plot().lines)
    2
    """

    releases: IntArray
    epsilon: FloatArray
    all_released: float
    delta: float
    title: str

    @classmethod
    def from_curve(cls, curve: EpsilonOverReleases) -> EpsilonOverReleasesDisplay:
        """Take what ``epsilon_over_releases`` returned."""
        title = in_short(curve.run, length=True).split(";")[0]
        return cls(curve.releases, curve.epsilon, curve.all_released, curve.delta, title)

    def draw(self, ax: Axes) -> None:
        """Draw the claims, and what all iterates together cost."""
        ax.set_xscale("log")
        ax.set_yscale("log")
        hidden, released = looks([True, False], [float(self.epsilon[0]), self.all_released])
        flat = np.full(self.releases.size, self.all_released)
        labels = [
            draw_line(ax, self.releases, flat, "every iterate leaves", released),
            draw_line(ax, self.releases, self.epsilon, "so many leave", hidden),
        ]
        ax.lines[-1].set(marker="o", markersize=4, markevery=1)
        first = int(self.releases.argmin())
        ax.annotate(
            f"only the last: {rounded_up(float(self.epsilon[first]), 3)}",
            (float(self.releases[first]), float(self.epsilon[first])),
            xytext=(10, -2),
            textcoords="offset points",
            fontsize=8.5,
            va="top",
        )
        low, high = float(self.epsilon.min()), max(self.all_released, float(self.epsilon.max()))
        ax.set_ylim(low / 1.4, high * 1.4)
        ax.set_xlim(1, max(2, int(self.releases.max())))
        label = f"epsilon at delta = {rounded_up(self.delta)}"
        draw_frame(ax, wrapped(self.title), "iterates that leave, equally spaced", label)
        _plain_numbers(ax)
        write_end_labels(ax, labels)


def _plain_numbers(ax: Axes) -> None:
    """Write 0.5, 1, 2 and 1000 at the axes: epsilons of one picture lie within a decade or two."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter("{x:.0f}")


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
        y_label = f"epsilon at delta = {rounded_up(self.delta)}"
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
                Line2D([], [], color=look.color, lw=look.width, label=claim),
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


# ---- over records --------------------------------------------------------------------------------


# What all records risk alike: the name, its color and its dashes.
_SHUFFLED = ("any record, secret random order", "#882255", "-.")
_STOPPED = ("any record, random stop", "#117733", (0, (6, 1, 1, 1, 1, 1)))
# Deltas below this are drawn as leaving the picture.
_LEAST_DELTA = 1e-16


@dataclass(frozen=True, eq=False)
class RecordDisplay(Display):
    """What each record of an ordered run risks, and what all risk if the order is shuffled.

    epsilon has a plain axis, delta a logarithmic one. The horizontal dash-dotted lines are the
    values of every record under one secret random order and, for one pass, under a random stop.
    """

    losses: LossPerRecord
    title: str
    lower: LowerPoints | None = None

    @classmethod
    def from_losses(cls, losses: LossPerRecord, lower: LowerPoints | None = None) -> RecordDisplay:
        """Take what ``loss_per_record`` (and ``lower_over_records``) returned."""
        if lower is not None and losses.quantity != "epsilon":
            raise InvalidInput("lower bounds are epsilons; these losses are deltas")
        return cls(losses, in_short(losses.run), lower)

    def table(self) -> CurveTable:
        """Return the numbers behind the picture."""
        return CurveTable(
            axis="position",
            places=self.losses.positions,
            quantity=self.losses.quantity,
            columns=self.losses.bounds,
            best=self.losses.best,
            lower=lower_at(self.lower, self.losses.positions),
            shuffled=self.losses.shuffled,
            stopped=self.losses.stopped,
        )

    def draw(self, ax: Axes) -> None:
        """Draw every bound over the positions, and the shuffled value across them."""
        losses = self.losses
        ax.set_xscale("linear")
        ax.set_yscale("log" if losses.quantity == "delta" else "linear")
        table = self.table()
        labels = _draw_bounds(ax, table)
        for value, look in ((losses.shuffled, _SHUFFLED), (losses.stopped, _STOPPED)):
            if value is not None:
                labels.append(_draw_level(ax, value, *look))
        self._set_limits(ax)
        draw_frame(ax, wrapped(self.title), self._x_label(), self._y_label())
        _draw_rest(ax, table, self.lower, labels)

    def _set_limits(self, ax: Axes) -> None:
        first, last = int(self.losses.positions[0]), int(self.losses.positions[-1])
        ax.set_xlim(first, last if last > first else first + 1)
        best = positive([self.losses.best])
        if best.size == 0:
            return
        if self.losses.quantity == "delta":
            top = min(1.0, 5 * float(best.max()))
            ax.set_ylim(min(max(_LEAST_DELTA, float(best.min())) / 3, top / 10), top)
            return
        ax.set_ylim(0.0, 1.2 * float(best.max()))

    def _x_label(self) -> str:
        run = self.losses.run
        if run.batch_size == 1:
            return f"position of the record (1 = used first, {run.n} records)"
        return f"position of the record's batch (1 = used first, {run.batch_size:g} records each)"

    def _y_label(self) -> str:
        other = "delta" if self.losses.quantity == "epsilon" else "epsilon"
        return f"{self.losses.quantity} at {other} = {rounded_up(self.losses.at)}"


def _draw_level(ax: Axes, value: float, name: str, color: str, dashes: Any) -> EndLabel:
    """Draw what holds for every record across all positions."""
    ax.axhline(value, label=name, color=color, linestyle=dashes, linewidth=1.8)
    return EndLabel(value, f"{name}  {rounded_up(value, 3, padded=True)}", color)
