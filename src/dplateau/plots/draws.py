"""Pictures of what was drawn: the way of the chains, and where they have been."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.plots.canvas import Display
from dplateau.plots.palette import LOWER, QUIET, looks
from dplateau.plots.strokes import draw_frame
from dplateau.sampling import Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        """Draw up to eight chains in their own colours."""
        shown = self.draws[:_MOST_CHAINS]
        styles = looks([True] * len(shown), list(range(len(shown))))
        for chain, (values, look) in enumerate(zip(shown, styles, strict=True)):
            ax.plot(values, color=look.colour, lw=0.7, alpha=0.8, label=f"chain {chain}")
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
            self.draws, bins.tolist(), density=True, color=look.colour, alpha=0.45, label="Langevin"
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
