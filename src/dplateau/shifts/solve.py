"""One entry to all solvers: the best plan found, sealed and re-evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dplateau.shifts.chain import Chain
from dplateau.shifts.evaluation import evaluate, sealed
from dplateau.shifts.grid import composition_plan, grid_plan
from dplateau.shifts.homogeneous import homogeneous_plan
from dplateau.shifts.linear import linear_plan
from dplateau.shifts.moduli import DESCENT_ASCENT, LINEAR, SQUARE_ROOT
from dplateau.shifts.plan import ShiftBlock, ShiftPlan
from dplateau.shifts.square_root import square_root_columns, square_root_plan

Solvers = dict[str, Callable[[Chain], ShiftPlan]]


@dataclass(frozen=True, slots=True)
class ShiftSolution:
    """A feasible plan and the sum of squares it proves: mu^2, or twice the Renyi slope.

    Attributes:
        plan: ends at distance zero on the chain it was made for.
        sum_of_squares: its sum of a^2 / nu^2, re-evaluated and rounded up.
        solver: name of the solver that found it.
    """

    plan: ShiftPlan
    sum_of_squares: float
    solver: str


def solve(chain: Chain) -> ShiftSolution:
    """Return the best plan that the applicable solvers find.

    Exact (up to rounding, and for very long chains up to the choice of the start) when all moduli
    are linear, or when they are square roots and there is no sensitivity; near-optimal otherwise.
    Whatever the solver, the value is that of the plan returned: the rounding-up of ``evaluate`` is
    the only margin, about 2e-13 for short runs and, where c is near 1, about 1e-15 per step.

    >>> from dplateau.shifts import Chain, Linear, solve
    >>> solution = solve(Chain.homogeneous(10**6, Linear(0.99), sensitivity=0.1, noise_std=1.0))
    >>> round(solution.sum_of_squares**0.5, 6)
    1.410674
    """
    solutions = [_finished(chain, name, make(chain)) for name, make in _solvers(chain).items()]
    return min(solutions, key=lambda solution: solution.sum_of_squares)


def _solvers(chain: Chain) -> Solvers:
    columns = chain.columns
    saddles = bool(np.any(columns.kinds == DESCENT_ASCENT))
    jumps = bool(np.any((columns.kinds == SQUARE_ROOT) & (columns.second > 0)))
    still = not np.any(columns.sensitivities)
    if chain.is_inert:
        return {"inert": _nothing}
    if chain.uniform_linear_step() is not None:
        return {"homogeneous": homogeneous_plan}
    if chain.is_linear:
        return {"linear": linear_plan}
    if not jumps and not saddles:
        return {"linear": _linear_plan}
    if still and not saddles:
        return {"square_root": square_root_plan}
    # A plan for larger moduli stays feasible for the smaller ones of the chain.
    chosen: Solvers = {"grid": grid_plan, "composition": composition_plan}
    if still:
        chosen["square_root"] = square_root_plan
    if not jumps:
        chosen["linear"] = _linear_plan
    return chosen


def _finished(chain: Chain, solver: str, plan: ShiftPlan) -> ShiftSolution:
    plan = sealed(plan, chain)
    return ShiftSolution(plan, evaluate(plan, chain).sum_of_squares, solver)


def _nothing(chain: Chain) -> ShiftPlan:
    return ShiftPlan.of(0, 0.0, [ShiftBlock(chain.steps, 0.0)])


def _linear_plan(chain: Chain) -> ShiftPlan:
    """Solve with the Lipschitz constants of moduli that have one (square roots with h = 0 do)."""
    columns = chain.columns
    squared, _ = square_root_columns(chain)
    saddle = columns.kinds == DESCENT_ASCENT
    squared[saddle] = 1 + columns.second[saddle] ** 2
    rates = np.where(columns.kinds == LINEAR, columns.first, np.sqrt(squared))
    majorant = chain.with_linear_moduli(rates)
    return homogeneous_plan(majorant) if majorant.uniform_linear_step() else linear_plan(majorant)
