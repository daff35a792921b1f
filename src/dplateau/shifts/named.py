"""Amplification by iteration as Altschuler and Talwar state it, with the best shifts filled in.

Their propositions leave the shifts open; here each returns the optimal ones. A bound reads
D_alpha(X_T || X'_T) <= alpha * rdp_coefficient for every alpha > 1, and the same plan proves the
stronger statement that the pair is mu-GDP with mu^2 = 2 * rdp_coefficient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy.typing as npt

from dplateau.errors import NotApplicable
from dplateau.shifts.chain import Chain
from dplateau.shifts.plan import ShiftPlan
from dplateau.shifts.solve import solve


@dataclass(frozen=True, slots=True)
class IterationBound:
    """The slope in alpha of a Renyi bound, sum a^2 / (2 nu^2), and the shifts that prove it."""

    rdp_coefficient: float
    plan: ShiftPlan


def proposition_2_17(sensitivities: npt.ArrayLike, noise_stds: npt.ArrayLike) -> IterationBound:
    """Return the original bound: contractions (c = 1) from equal starts, without a domain."""
    return _bound(Chain.from_arrays(1.0, sensitivities, noise_stds))


def proposition_3_2(
    sensitivities: npt.ArrayLike, noise_stds: npt.ArrayLike, diameter: float
) -> IterationBound:
    """Return the bound that stays finite as T grows: contractions on a domain of diameter D.

    The start tau is optimised, and so is the distance there: D, or less if the runs cannot have
    drifted that far.
    """
    _require_domain("Proposition 3.2", diameter)
    return _bound(Chain.from_arrays(1.0, sensitivities, noise_stds, diameter=diameter))


def proposition_5_6(
    contraction: float,
    sensitivities: npt.ArrayLike,
    noise_stds: npt.ArrayLike,
    diameter: float,
) -> IterationBound:
    """Return the strongly convex analogue: maps of factor c < 1 on a domain of diameter D."""
    _require_domain("Proposition 5.6", diameter)
    if not contraction < 1:
        raise NotApplicable(
            f"Proposition 5.6 needs strong contractions, c < 1; got c={contraction!r}. "
            "Use proposition_3_2 for c = 1, or dplateau.shifts.solve for c > 1."
        )
    return _bound(Chain.from_arrays(contraction, sensitivities, noise_stds, diameter=diameter))


def _require_domain(name: str, diameter: float) -> None:
    if math.isinf(diameter):
        raise NotApplicable(
            f"{name} needs a domain of finite diameter; got diameter={diameter!r}. "
            "Pass a diameter, or use proposition_2_17, which needs none."
        )


def _bound(chain: Chain) -> IterationBound:
    solution = solve(chain)
    return IterationBound(solution.sum_of_squares / 2, solution.plan)
