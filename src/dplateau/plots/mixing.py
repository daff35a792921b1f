"""How fast a chain forgets its start: bounds on the total variation over the steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.algorithms import Run
from dplateau.ground.types import FloatArray, IntArray
from dplateau.plots.canvas import Display
from dplateau.plots.end_labels import EndLabel, write_end_labels
from dplateau.plots.palette import QUIET, looks
from dplateau.plots.strokes import draw_frame
from dplateau.plots.words import in_short, rounded_up, wrapped
from dplateau.sampling import block_tv_over_steps, theorem_4_2_over_steps, tv_over_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = ("certificate", "one block", "Theorem 4.2 of Bravo et al.")


@dataclass(frozen=True, eq=False)
class MixingDisplay(Display):
    """Total variation over T: the certificate, a single block, and the published closed form.

    ``published`` is nan where Theorem 4.2 says nothing. ``target`` and ``needed`` mark the level
    that was asked for and the steps that are certified to reach it.
    """

    steps: IntArray
    certified: FloatArray
    one_block: FloatArray
    published: FloatArray
    title: str
    target: float | None = None
    needed: int | None = None

    @classmethod
    def from_run(
        cls,
        run: Run,
        steps: IntArray,
        *,
        target: float | None = None,
        needed: int | None = None,
    ) -> MixingDisplay:
        """Compute the curves of a run with equal steps."""
        return cls(
            steps=steps,
            certified=tv_over_steps(run, steps),
            one_block=block_tv_over_steps(run, steps),
            published=theorem_4_2_over_steps(run, steps),
            title=in_short(run).partition(";")[0],
            target=target,
            needed=needed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers behind the picture, JSON-ready."""
        return {
            "steps": self.steps.tolist(),
            "tv": self.certified.tolist(),
            "one_block": self.one_block.tolist(),
            "theorem_4_2": [None if math.isnan(v) else v for v in self.published.tolist()],
        }

    def draw(self, ax: Axes) -> None:
        """Draw every curve with its name at its end."""
        lines = [self.certified, self.one_block, self.published]
        styles = looks([True, True, False], [float(line[-1]) for line in lines])
        ax.set_yscale("log")
        floor = max(float(self.certified.min()) / 2, 1e-12)
        ax.set_ylim(floor, 1.6)
        ax.set_xlim(0, int(self.steps.max()))
        labels = []
        for name, line, look in zip(_NAMES, lines, styles, strict=True):
            known = np.isfinite(line)
            if not np.any(known):
                continue
            kind = "steps-post" if name == _NAMES[2] else "default"
            ax.plot(
                self.steps[known],
                line[known],
                label=name,
                color=look.colour,
                linestyle=look.style,
                linewidth=look.width,
                zorder=look.layer,
                drawstyle=kind,
            )
            end = float(line[known][-1])
            labels.append(
                EndLabel(end, f"{name}  {rounded_up(end)}", look.colour, name == _NAMES[0])
            )
        self._mark_target(ax)
        draw_frame(
            ax, wrapped(self.title), "steps T", "total variation between any two starts, at most"
        )
        write_end_labels(ax, labels)

    def _mark_target(self, ax: Axes) -> None:
        if self.target is None or self.needed is None:
            return
        ax.plot([0, self.needed], [self.target] * 2, color=QUIET, ls=":", lw=1.2)
        ax.plot([self.needed] * 2, [ax.get_ylim()[0], self.target], color=QUIET, ls=":", lw=1.2)
        ax.annotate(
            f"{self.target:g} after {self.needed} steps",
            (self.needed, self.target),
            (6, 6),
            textcoords="offset points",
            fontsize=8.5,
            color=QUIET,
        )
