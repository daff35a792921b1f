"""Full-batch noisy descent with contractive steps, no domain needed."""

from __future__ import annotations

from dplateau.algorithms import FullBatch, Run
from dplateau.bounds import literature
from dplateau.bounds.iteration import (
    Pattern,
    ShiftBound,
    every_step,
    why_no_deterministic_contraction,
)


class GdContraction(ShiftBound):
    """mu^2 = (Delta / (n sigma))^2 (1 - c^T)(1 + c) / ((1 + c^T)(1 - c)) for c = 1 - eta l2.

    Exact: linear data losses attain it. Without ridge, c = 1 and it is plain composition.
    """

    name = "gd_contraction"
    note = "docs/theory/gd_contraction.md"
    title = "Hidden-state GD, contractive steps"
    citation = literature.shifted_interpolation("Theorem 4.1, by the shift program")
    bounded = False

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive full-batch descent, if so."""
        return why_no_deterministic_contraction(run, FullBatch)

    def pattern(self, run: Run) -> Pattern:
        """Return: every step."""
        return every_step(run)
