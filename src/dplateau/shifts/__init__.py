"""The shift program: how cheaply noise can hide the distance between two runs.

Plain numbers in, plans out. A chain says what each step does to the distance of two runs; a plan
says how much of it each step absorbs; every plan that ends at zero proves that the final states
are mu-GDP apart with mu^2 the sum of squared shifts over noise variances. Solvers may be clever
or heuristic: what is reported is always the re-evaluated, rounded-up value of the plan returned.
"""

from __future__ import annotations

from dplateau.shifts.chain import Chain, DescentAscent, Linear, Modulus, Segment, SquareRoot
from dplateau.shifts.plan import (
    Evaluation,
    ShiftBlock,
    ShiftPlan,
    evaluate,
    forward_distance,
    forward_distances,
)
from dplateau.shifts.solve import (
    ShiftSolution,
    solve,
)

__all__ = [
    "Chain",
    "DescentAscent",
    "Evaluation",
    "Linear",
    "Modulus",
    "Segment",
    "ShiftBlock",
    "ShiftPlan",
    "ShiftSolution",
    "SquareRoot",
    "evaluate",
    "forward_distance",
    "forward_distances",
    "solve",
]
