"""epsilon or delta over the position of a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.audit.lower_curves import LowerPoints, lower_at
from dplateau.certificates.curve_table import CurveTable
from dplateau.certificates.per_record import LossPerRecord
from dplateau.errors import InvalidInput
from dplateau.ground.shown import rounded_up
from dplateau.plots.canvas import Display
from dplateau.plots.lines import (
    EndLabel,
    draw_frame,
    draw_key,
    draw_line,
    draw_lower,
    last_finite,
    looks,
    positive,
    with_best_bold,
    write_end_labels,
)
from dplateau.plots.words import in_short, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What all records risk alike: the name, its colour and its dashes.
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
        hidden = [line.hidden_state for line in losses.bounds]
        values = [line.values for line in losses.bounds]
        styles = looks(hidden, [last_finite(line) for line in values])
        labels = [
            draw_line(ax, losses.positions, line.values, line.title, look)
            for line, look in zip(losses.bounds, styles, strict=True)
        ]
        labels = with_best_bold(labels, values)
        for value, look in ((losses.shuffled, _SHUFFLED), (losses.stopped, _STOPPED)):
            if value is not None:
                labels.append(_draw_level(ax, value, *look))
        self._set_limits(ax)
        shaded = self.lower if self.lower is not None and np.any(self.lower.epsilon > 0) else None
        if shaded is not None:
            labels += draw_lower(ax, shaded)
        draw_frame(ax, wrapped(self.title), self._x_label(), self._y_label())
        draw_key(ax, hidden, shaded)
        write_end_labels(ax, labels)

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
        return f"{self.losses.quantity} at {other} = {self.losses.at:g}"


def _draw_level(ax: Axes, value: float, name: str, colour: str, dashes: Any) -> EndLabel:
    """Draw what holds for every record across all positions."""
    ax.axhline(value, label=name, color=colour, linestyle=dashes, linewidth=1.8)
    return EndLabel(value, f"{name}  {rounded_up(value, 3, padded=True)}", colour)
