"""Full-batch noisy descent on a bounded domain: the plateau of convex losses."""

from __future__ import annotations

from dplateau.algorithms import FullBatch, Run
from dplateau.bounds import literature
from dplateau.bounds.iteration import (
    Pattern,
    ShiftBound,
    every_step,
    why_no_deterministic_contraction,
)


class GdBounded(ShiftBound):
    """min over R of (c^R u_{T-R} + s (1-c^R)/(1-c))^2 / (nu^2 (1-c^{2R})/(1-c^2)).

    u is the forward distance, at most the diameter D; at c = 1 the plateau is about 4 D s / nu^2,
    reached after T = D / s steps (T-bar of Altschuler and Talwar).
    """

    name = "gd_bounded"
    note = "docs/theory/gd_bounded.md"
    title = "Hidden-state GD, bounded domain"
    citation = literature.shifted_interpolation("Theorem 4.2, by the shift program")

    def missing(self, run: Run) -> str | None:
        """Return why the run is no projected contractive full-batch descent, if so."""
        if isinstance(run.batches, FullBatch) and run.domain is None:
            return "needs a bounded domain: pass domain=Ball(radius=...) and project every iterate"
        return why_no_deterministic_contraction(run, FullBatch)

    def pattern(self, run: Run) -> Pattern:
        """Return: every step."""
        return every_step(run)
