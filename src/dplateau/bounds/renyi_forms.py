"""Rényi statements that Gaussian ones dominate: sound, never the best, shown for comparison.

The shift program as it was first published, amplification by mixing and diffusion, and the random
stop (docs/theory/renyi_forms.md).
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.algorithms import OnePass, RandomStop, Run
from dplateau.algorithms.stated import equal_steps
from dplateau.bounds import literature
from dplateau.bounds.base import RENYI_MARGIN, Assumption, Bound, Witness
from dplateau.bounds.conditions import (
    GEOMETRY,
    AboutBatches,
    ConstantSteps,
    Contractive,
    HiddenIterates,
    Needs,
    OneOf,
    first_unmet,
)
from dplateau.bounds.iteration import GdBounded, GdContraction, ShiftBound
from dplateau.bounds.one_use import STOPPED, common_map
from dplateau.bounds.ordered import CyclicContraction, OnePassContraction
from dplateau.bounds.step_maps import CONTRACTION, geometry_assumptions
from dplateau.curves import ConcentratedCurve, RenyiCurve
from dplateau.errors import InvalidInput

_LIFTED: tuple[ShiftBound, ...] = (
    GdContraction(),
    GdBounded(),
    CyclicContraction(),
    OnePassContraction(),
)
_CONTRACTIVE_PASS: Needs = (
    AboutBatches((OnePass,)),
    ConstantSteps(),
    *GEOMETRY,
    Contractive(),
)
_ORDERS = tuple((1 + np.geomspace(1e-3, 1e5, 300)).tolist())


class IterationRdp(Bound):
    """D_alpha <= (alpha / 2) sum a^2 / nu^2, converted at the best order.

    Propositions 2.17 (unconstrained), 3.2 (bounded) and 5.6 (bounded, contractive). The Gaussian
    statements prove the same sum of squares without the detour, so this one never wins.
    """

    name = "iteration_rdp"
    claim_margin = RENYI_MARGIN
    note = "docs/theory/renyi_forms.md"
    title = "Amplification by iteration, as Rényi"
    citation = literature.altschuler_talwar("Propositions 2.17, 3.2 and 5.6")
    release = HiddenIterates()
    needs = (OneOf(tuple(bound.needs for bound in _LIFTED)),)
    dominated_by = tuple(bound.name for bound in _LIFTED)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest witness of the Gaussian statements."""
        planned = [(bound.plan(run, delta), bound) for bound in _applicable(run)]
        witness, bound = min(planned, key=lambda item: item[0]["sum_of_squares"])
        return {"lifted": bound.name, **witness}

    def curve(self, run: Run, witness: Witness) -> RenyiCurve:
        """Return alpha / 2 times the re-evaluated sum of squares."""
        bound = next(b for b in _LIFTED if b.name == witness["lifted"])
        half = bound.sum_of_squares(run, witness) / 2
        return RenyiCurve(_ORDERS, tuple(order * half for order in _ORDERS))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return _applicable(run)[0].assumptions(run)


def _applicable(run: Run) -> list[ShiftBound]:
    return [bound for bound in _LIFTED if first_unmet(bound.needs, run) is None]


class MixingRdp(Bound):
    """D_alpha <= alpha kappa_i, kappa_i = (s^2 / (2 nu^2)) c^(m+1) / m with m = n - i later steps.

    kappa_n = s^2 / (2 nu^2) for the last record, whose claim stands for the data set. The shift
    program has 1 / sum_{j<=m} c^(-2j) in place of c^(m+1) / m, which is never larger, and keeps the
    Gaussian curve: this bound never wins and is shown for comparison.
    """

    name = "mixing_rdp"
    note = "docs/theory/renyi_forms.md"
    title = "Amplification by mixing, as Rényi"
    citation = literature.balle_mixing("Theorem 5, as in Asoodeh et al. 2020, Proposition 1")
    dominated_by = ("one_pass_contraction",)
    release = HiddenIterates()
    needs = _CONTRACTIVE_PASS

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the last record's rate."""
        return {"losses": CONTRACTION, "rate": self._rate(run, 0)}

    def curve(self, run: Run, witness: Witness) -> ConcentratedCurve:
        """Return the last record's curve."""
        if witness["losses"] != CONTRACTION:
            raise InvalidInput(f"this theorem is not about losses that are {witness['losses']!r}")
        return ConcentratedCurve(self._rate(run, 0))

    def record_curve(self, run: Run, position: int) -> ConcentratedCurve:
        """Return the curve of a record in the batch ``position`` (from 0)."""
        return ConcentratedCurve(self._rate(run, run.steps - 1 - position))

    def _rate(self, run: Run, later: int) -> float:
        steps = equal_steps(run)
        contraction = common_map(run).contraction(steps.eta)  # of the steps after the record's own
        hidden: float = contraction.c ** (later + 1) / later if later else 1.0
        return (steps.reach / steps.nu) ** 2 / 2 * hidden * (1 + 1e-14)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return geometry_assumptions(run, (CONTRACTION,), bounded=False)


_ORDER_COUNT = 60


class RandomStopRdp(Bound):
    """D_alpha <= alpha (s/nu)^2 H_T / T for the orders with alpha (alpha - 1) (s/nu)^2 <= 2.

    H_T = 1 + 1/2 + ... + 1/T. Rényi divergences are convex only up to a factor of two, and only
    while they are at most 1 / (alpha - 1): hence the limit on alpha. The published statement has
    log T where its proof gives H_T, which is larger (at T = 1 it would claim perfect privacy).
    """

    name = "random_stop_rdp"
    claim_margin = RENYI_MARGIN
    note = "docs/theory/renyi_forms.md"
    title = "Random stop, as Rényi"
    citation = literature.feldman("Theorem 26, with H_T in place of log T")
    dominated_by = ("random_stop_mean",)
    release = HiddenIterates(RandomStop())
    needs = _CONTRACTIVE_PASS

    def plan(self, run: Run, delta: float) -> Witness:
        """Return orders up to the largest that the noise allows."""
        top = largest_order(_squared_step(run))
        parts = np.geomspace(1e-3, 1.0, _ORDER_COUNT)
        return {"losses": CONTRACTION, "orders": (1 + (top - 1) * parts).tolist()}

    def curve(self, run: Run, witness: Witness) -> RenyiCurve:
        """Return the divergences at the witness's orders."""
        square = _squared_step(run)
        orders = [float(order) for order in witness["orders"]]
        top = largest_order(square)
        if max(orders) > top * (1 + 1e-12):
            raise InvalidInput(f"the noise allows orders up to {top:g}; asked for {max(orders):g}")
        if witness["losses"] != CONTRACTION:
            raise InvalidInput(f"this theorem is not about losses that are {witness['losses']!r}")
        harmonic = math.fsum(1 / j for j in range(1, run.steps + 1))
        rate = square * harmonic / run.steps * (1 + 1e-13)
        return RenyiCurve(tuple(orders), tuple(order * rate for order in orders))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return (*geometry_assumptions(run, (CONTRACTION,), bounded=False), STOPPED)


def largest_order(squared_step: float) -> float:
    """Return the alpha with alpha (alpha - 1) (s/nu)^2 = 2."""
    return (1 + math.sqrt(1 + 8 / squared_step)) / 2


def _squared_step(run: Run) -> float:
    steps = equal_steps(run)
    return (steps.reach / steps.nu) ** 2 * (1 + 1e-15)
