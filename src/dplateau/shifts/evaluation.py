"""Exact evaluation of a plan: the only source of the numbers that solvers report.

The recursion is u_{t+1} = min(D, max(0, phi_t(u_t) + s_t - a_{t+1})) from the start of the plan.
What is left at the end, before the last projection, is absorbed by the last shift and charged, so
every plan proves a bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import BoolArray, FloatArray
from dplateau.shifts.chain import Chain
from dplateau.shifts.forward import forward_distance
from dplateau.shifts.kernels import walk_plan
from dplateau.shifts.plan import ShiftPlan

# Each square carries twice the relative error of its shift (2.9e-14, see kernels.RESTART) and
# three roundings; compensated summation and the final product add four more.
ROUND_UP = 1 + 1e-13
# Squares below 2.2e-308 lose digits, but fewer than 1e30 of them fit in any run.
UNDERFLOW = 1e-290


class Evaluation(NamedTuple):
    """What a plan achieves: both numbers are upper bounds on the exact ones.

    Attributes:
        final_distance: what the plan leaves over and the last shift must absorb in addition (not
            capped by the domain, since the last projection comes after the noise).
        sum_of_squares: sum of a_{t+1}^2 / nu_t^2 with that addition charged.
    """

    final_distance: float
    sum_of_squares: float


def evaluate(plan: ShiftPlan, chain: Chain) -> Evaluation:
    """Return what the plan leaves over on this chain and what it costs, both rounded up.

    The start is the chain's own forward distance, or the plan's if that is larger: a plan cannot
    claim a smaller one.
    """
    if plan.start_step + plan.steps != chain.steps:
        raise InvalidInput(
            f"A plan must end with its chain, at step {chain.steps}; this one starts at "
            f"{plan.start_step} and covers {plan.steps} steps."
        )
    return evaluate_prefix(plan, chain)


def evaluate_prefix(plan: ShiftPlan, chain: Chain) -> Evaluation:
    """Return the same for a plan that may end before its chain does."""
    left, total = _walk(plan, chain, np.empty(0, dtype=np.bool_), np.empty(0))
    if left > 0 or np.any(plan.first_shifts > 0):
        total = total * ROUND_UP + UNDERFLOW
    return Evaluation(left, total)


def sealed(plan: ShiftPlan, chain: Chain, marks: BoolArray | None = None) -> ShiftPlan:
    """Return the plan with its last shift raised so that it ends at distance zero exactly.

    ``marks`` names further blocks after which the distance is to be zero exactly: where the maps
    expand, or jump at zero, a residue of rounding there would grow.
    """
    marks = np.zeros(plan.counts.size, dtype=np.bool_) if marks is None else marks.copy()
    marks[-1] = True
    raises = np.zeros(plan.counts.size)
    _walk(plan, chain, marks, raises)
    return plan.raised(raises)


def _walk(
    plan: ShiftPlan, chain: Chain, marks: BoolArray, raises: FloatArray
) -> tuple[float, float]:
    start = max(plan.start_distance, forward_distance(chain, plan.start_step))
    row, place = chain.locate(plan.start_step)
    return walk_plan(
        chain.columns,
        row,
        place,
        start,
        chain.diameter,
        plan.counts,
        plan.first_shifts,
        plan.ratios,
        marks,
        raises,
    )
