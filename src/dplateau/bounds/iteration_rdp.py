"""The Rényi statements that amplification by iteration was first published with."""

from __future__ import annotations

import numpy as np

from dplateau.algorithms import Run
from dplateau.bounds import literature
from dplateau.bounds.base import RENYI_MARGIN, Assumption, Bound, Witness
from dplateau.bounds.cyclic_contraction import CyclicContraction
from dplateau.bounds.gd_bounded import GdBounded
from dplateau.bounds.gd_contraction import GdContraction
from dplateau.bounds.iteration import ShiftBound
from dplateau.bounds.one_pass_contraction import OnePassContraction
from dplateau.curves import RenyiCurve

_LIFTED: tuple[ShiftBound, ...] = (
    GdContraction(),
    GdBounded(),
    CyclicContraction(),
    OnePassContraction(),
)
_ORDERS = tuple((1 + np.geomspace(1e-3, 1e5, 300)).tolist())


class IterationRdp(Bound):
    """D_alpha <= (alpha / 2) sum a^2 / nu^2, converted at the best order.

    Propositions 2.17 (unconstrained), 3.2 (bounded) and 5.6 (bounded, contractive). The Gaussian
    statements prove the same sum of squares without the detour, so this one never wins.
    """

    name = "iteration_rdp"
    claim_margin = RENYI_MARGIN
    note = "docs/theory/iteration_rdp.md"
    title = "Amplification by iteration, as Rényi"
    citation = literature.altschuler_talwar("Propositions 2.17, 3.2 and 5.6")
    hidden_state = True
    dominated_by = tuple(bound.name for bound in _LIFTED)

    def missing(self, run: Run) -> str | None:
        """Return why no Gaussian statement applies either, if so."""
        reasons = [bound.missing(run) for bound in _LIFTED]
        if None in reasons:
            return None
        about = [reason for reason in reasons if reason and not reason.startswith("is about")]
        return (about or reasons)[0]

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest witness of the Gaussian statements."""
        found = [(b.plan(run, delta), b) for b in _LIFTED if b.missing(run) is None]
        witness, bound = min(found, key=lambda item: item[0]["sum_of_squares"])
        return {"lifted": bound.name, **witness}

    def curve(self, run: Run, witness: Witness) -> RenyiCurve:
        """Return alpha / 2 times the re-evaluated sum of squares."""
        bound = next(b for b in _LIFTED if b.name == witness["lifted"])
        half = bound.sum_of_squares(run, witness) / 2
        return RenyiCurve(_ORDERS, tuple(order * half for order in _ORDERS))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return those of the Gaussian statement."""
        return next(b for b in _LIFTED if b.missing(run) is None).assumptions(run)
