"""One pass over the data: each record's own bound, and that of the most exposed one."""

from __future__ import annotations

from dplateau.algorithms import OnePass, Run
from dplateau.bounds import literature
from dplateau.bounds.iteration import (
    Pattern,
    at_position,
    latest_position,
    why_no_deterministic_contraction,
)
from dplateau.bounds.ordered import OrderedBound, why_too_long


class OnePassContraction(OrderedBound):
    """mu_i = (Delta / sigma) / sqrt(sum_{j=0}^{n-i} c^{-2j}) for record i.

    The claim for the whole data set is that of the last record, which no later step hides (with a
    schedule, of the worst); the others are far better off (:meth:`record_curve`).
    """

    name = "one_pass_contraction"
    note = "docs/theory/one_pass_contraction.md"
    title = "Hidden-state one pass, last record"
    citation = literature.shifted_interpolation("Theorem 4.4 with one epoch, by the shift program")

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive single pass, if so."""
        return why_no_deterministic_contraction(run, OnePass) or why_too_long(run)

    def pattern(self, run: Run) -> Pattern:
        """Return the single use of a record in the last batch."""
        return at_position(run, latest_position(run))
