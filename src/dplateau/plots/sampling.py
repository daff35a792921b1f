"""Chains: how fast they forget their start, the way they took, and where they have been."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.algorithms import Run
from dplateau.errors import InvalidInput
from dplateau.ground.shown import counted, rounded_up
from dplateau.ground.types import FloatArray, IntArray
from dplateau.plots.canvas import Display, in_short, wrapped
from dplateau.plots.lines import LOWER, QUIET, EndLabel, draw_frame, looks, write_end_labels
from dplateau.sampling import Samples, block_tv_over_steps, theorem_4_2_over_steps, tv_over_steps

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
                color=look.color,
                linestyle=look.style,
                linewidth=look.width,
                zorder=look.layer,
                drawstyle=kind,
            )
            end = float(line[known][-1])
            labels.append(
                EndLabel(
                    end,
                    f"{name}  {rounded_up(end, 3, padded=True)}",
                    look.color,
                    name == _NAMES[0],
                )
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
            f"{self.target:g} after {counted(self.needed, 'step')}",
            (self.needed, self.target),
            (6, 6),
            textcoords="offset points",
            fontsize=8.5,
            color=QUIET,
        )


_MOST_CHAINS = 8
Density = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class TraceDisplay(Display):
    """One coordinate of each chain, draw by draw."""

    draws: FloatArray
    name: str

    @classmethod
    def from_samples(cls, samples: Samples, coordinate: int = 0) -> TraceDisplay:
        """Take one coordinate of the draws."""
        return cls(_coordinate(samples, coordinate), f"coordinate {coordinate}")

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches."""
        return 8.0, 3.2

    def draw(self, ax: Axes) -> None:
        """Draw up to eight chains in their own colors."""
        shown = self.draws[:_MOST_CHAINS]
        styles = looks([True] * len(shown), list(range(len(shown))))
        for chain, (values, look) in enumerate(zip(shown, styles, strict=True)):
            ax.plot(values, color=look.color, lw=0.7, alpha=0.8, label=f"chain {chain}")
        more = "" if len(shown) == len(self.draws) else f" (the first {len(shown)} chains)"
        draw_frame(ax, f"trace of {self.name}{more}", "draw", self.name)
        ax.set_xlim(0, max(1, self.draws.shape[1] - 1))


@dataclass(frozen=True, eq=False)
class MarginalDisplay(Display):
    """Histogram of one coordinate over all chains, beside a reference if there is one.

    ``reference`` holds draws of another sampler, ``density`` points of a known density as rows
    (place, height).
    """

    draws: FloatArray
    name: str
    reference: FloatArray | None = None
    reference_name: str = "reference"
    density: FloatArray | None = None

    @classmethod
    def from_samples(
        cls,
        samples: Samples,
        coordinate: int = 0,
        *,
        reference: FloatArray | None = None,
        reference_name: str = "reference",
        density: Density | None = None,
    ) -> MarginalDisplay:
        """Take one coordinate of all draws; ``density`` is evaluated over their range."""
        values = _coordinate(samples, coordinate).ravel()
        points = None
        if density is not None:
            places = np.linspace(values.min(), values.max(), 201)
            points = np.stack([places, density(places)], axis=1)
        name = f"coordinate {coordinate}"
        return cls(values, name, reference, reference_name, points)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches."""
        return 6.0, 3.8

    def draw(self, ax: Axes) -> None:
        """Draw the histograms on common bins, each with unit area."""
        every = self.draws if self.reference is None else np.append(self.draws, self.reference)
        bins = np.linspace(every.min(), every.max(), 51)
        look = looks([True], [0.0])[0]
        ax.hist(
            self.draws, bins.tolist(), density=True, color=look.color, alpha=0.45, label="Langevin"
        )
        if self.reference is not None:
            ax.hist(
                self.reference,
                bins.tolist(),
                density=True,
                histtype="step",
                color=LOWER,
                lw=1.3,
                label=self.reference_name,
            )
        if self.density is not None:
            ax.plot(*self.density.T, color=QUIET, lw=1.6, ls="--", label="target density")
        draw_frame(ax, f"marginal of {self.name}", self.name, "density")
        ax.legend(frameon=False, fontsize=8.5)


def _coordinate(samples: Samples, coordinate: int) -> FloatArray:
    size = samples.draws.shape[-1]
    if not 0 <= coordinate < size:
        raise InvalidInput(f"coordinate must lie in 0..{size - 1}; got {coordinate}")
    return samples.draws[:, :, coordinate]
