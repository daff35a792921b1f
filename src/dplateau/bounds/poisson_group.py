"""Replaced records under Poisson sampling, as one removed and one added."""

from __future__ import annotations

import math

from dplateau.algorithms import Run
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, Assumption, Bound, Witness
from dplateau.bounds.poisson import why_not_poisson
from dplateau.bounds.poisson_forms import PoissonAveraged
from dplateau.curves import GroupCurve

_BASE = PoissonAveraged()


class PoissonReplaceGroup(Bound):
    """Group privacy of the averaged add/remove bound: (2 eps, (1 + e^eps) delta)."""

    name = "poisson_replace_group"
    note = "docs/theory/poisson.md"
    title = "Hidden-state Poisson SGD, replace, as a group"
    citation = literature.this_library("docs/theory/poisson.md, Theorem 3, for two records")
    hidden_state = True
    claim_margin = COMPOSED_MARGIN

    def missing(self, run: Run) -> str | None:
        """Return why the add/remove bound does not apply, if so."""
        reason = why_not_poisson(run)
        if reason is not None:
            return reason
        if run.neighbors != "replace":
            return "is about neighbors='replace'; yours is 'add_remove'"
        return _BASE.missing(_one_record(run))

    def plan(self, run: Run, delta: float) -> Witness:
        """Plan the add/remove bound for the smaller delta that a group of two needs."""
        one = _one_record(run)
        witness = _BASE.plan(one, delta / 3)
        epsilon = _BASE.curve(one, witness).epsilon(delta / 3)
        return _BASE.plan(one, delta / (1 + math.exp(min(epsilon, 30.0))))

    def curve(self, run: Run, witness: Witness) -> GroupCurve:
        """Return the curve of two records."""
        return GroupCurve(_BASE.curve(_one_record(run), witness), 2)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return those of the add/remove bound."""
        return _BASE.assumptions(_one_record(run))


def _one_record(run: Run) -> Run:
    return run.replace(neighbors="add_remove")
