"""Replaced records under Poisson sampling with every iterate released: one removed, one added."""

from __future__ import annotations

from dplateau.algorithms import Poisson, Run
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, Bound, Witness, why_not_about
from dplateau.bounds.pld_composition import PldComposition
from dplateau.curves import GroupCurve

_BASE = PldComposition()


class PldReplaceGroup(Bound):
    """Group privacy of the add/remove composition: (2 eps, (1 + e^eps) delta).

    The symmetric operator that composition uses for replaced records counts every sampled step at
    twice the distance; at little noise two records of the sharper add/remove curve cost far less.
    """

    name = "pld_replace_group"
    note = "docs/theory/compositions.md"
    claim_margin = COMPOSED_MARGIN
    title = "PLD composition, replace, as a group"
    citation = literature.connect_the_dots("Algorithm 1, for two records")
    rates = "per step"

    def missing(self, run: Run) -> str | None:
        """Return why the add/remove composition does not apply, if so."""
        about = why_not_about(run, Poisson)
        if about is not None:
            return about
        if run.neighbors != "replace":
            return "is about neighbors='replace'; yours is 'add_remove'"
        return _BASE.missing(run.replace(neighbors="add_remove"))

    def curve(self, run: Run, witness: Witness) -> GroupCurve:
        """Return the curve of two records."""
        return GroupCurve(_BASE.curve(run.replace(neighbors="add_remove"), {}), 2)
