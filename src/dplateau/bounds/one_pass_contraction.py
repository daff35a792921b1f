"""One pass over the data: each record's own bound, and that of the last one."""

from __future__ import annotations

from dplateau.algorithms import OnePass, Run
from dplateau.bounds import literature
from dplateau.bounds.iteration import (
    Pattern,
    ShiftBound,
    at_position,
    has_schedule,
    latest_position,
    why_no_deterministic_contraction,
)


class OnePassContraction(ShiftBound):
    """mu_i = (Delta / sigma) / sqrt(sum_{j=0}^{n-i} c^{-2j}) for record i.

    The claim for the whole data set is that of the last record, which no later step hides; the
    earlier ones are far better off (:meth:`record_curve`).
    """

    name = "one_pass_contraction"
    note = "docs/theory/one_pass_contraction.md"
    title = "Hidden-state one pass, last record"
    citation = literature.shifted_interpolation("Theorem 4.4 with one epoch, by the shift program")

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive single pass, if so."""
        if isinstance(run.batches, OnePass) and has_schedule(run):
            return "needs the same learning rate and noise at every step; yours has a schedule"
        return why_no_deterministic_contraction(run, OnePass)

    def pattern(self, run: Run) -> Pattern:
        """Return the single use of a record in the last batch."""
        return at_position(run, latest_position(run))
