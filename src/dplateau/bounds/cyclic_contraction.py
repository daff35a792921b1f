"""Noisy SGD over consecutive batches, every epoch: the most exposed record."""

from __future__ import annotations

from dplateau.algorithms import Cyclic, Run
from dplateau.bounds import literature
from dplateau.bounds.iteration import (
    Pattern,
    at_position,
    latest_position,
    why_no_deterministic_contraction,
)
from dplateau.bounds.ordered import OrderedBound, why_too_long


class CyclicContraction(OrderedBound):
    """The record is used once an epoch; steps between two uses hide it further.

    Where steps are alike the worst record is in the last batch, whatever the order of the batches:
    an order that uses a record earlier in an epoch only gives it more noise. Otherwise it is the
    worst of all positions (docs/theory/cyclic_contraction.md).
    """

    name = "cyclic_contraction"
    note = "docs/theory/cyclic_contraction.md"
    title = "Hidden-state cyclic SGD, worst record"
    citation = literature.shifted_interpolation("Theorem 4.4, by the shift program")

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive cyclic descent, if so."""
        if ends_inside_a_reshuffled_epoch(run):
            return "needs whole epochs when each is reshuffled; yours ends inside one"
        return why_no_deterministic_contraction(run, Cyclic) or why_too_long(run)

    def pattern(self, run: Run) -> Pattern:
        """Return the uses of a record in the batch of the very last step."""
        return at_position(run, latest_position(run))


def ends_inside_a_reshuffled_epoch(run: Run) -> bool:
    """Return whether the last, broken epoch may use a record right after the one before did.

    Then two uses lie closer together than in any kept order, and the worst kept order says nothing.
    """
    match run.batches:
        case Cyclic(order="reshuffle"):
            return run.steps % run.batches_per_epoch != 0
        case _:
            return False
