"""An interval that a walk without walls never leaves, up to a proved trifle.

For a slope a > 0, E exp(a X_t) is followed from step to step. A map that is pulled to a centre m is
nowhere above the larger of two lines,

    (c - pull) x + pull m + shift     and     c x + shift - pull * width

(if pull > c, the first is replaced by the map's largest value below the upper kink; if pull <= 0,
the second suffices). By Jensen, E exp(a p X) <= (E exp(a X))^p for 0 <= p <= 1; so the moment after
a step is at most exp(a^2 nu^2 / 2) times a sum of such powers, and Markov's inequality with a union
over the steps bounds the chance of ever exceeding a level. The lower side is the upper side of the
mirrored walk.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dplateau.audit.chain import Chain, Step
from dplateau.audit.inclusion import Reshuffled
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

# The logarithm of a factor at every slope, and the power of the moment that it multiplies.
Term = tuple[FloatArray, float]
# What may be left outside on each side, over all steps.
_OUTSIDE = 1e-17
# After so many equal steps a level that no longer grows is looked for.
_PATIENCE = 64


@lru_cache(maxsize=32)
def enclose(chain: Chain) -> tuple[float, float, float]:
    """Return (lower, upper, probability that the walk without walls ever leaves them)."""
    if chain.noise_kind != "gaussian" or np.any(chain.per_step("contraction") > 1):
        raise NotApplicable("an enclosing interval needs Gaussian noise and contraction <= 1")
    if chain.pulled and math.isinf(chain.width):
        raise NotApplicable("losses that are curved everywhere have no Lipschitz constant")
    upper, lower = _highest(chain, 1.0), -_highest(chain, -1.0)
    return lower, upper, 2.1 * _OUTSIDE


def _highest(chain: Chain, side: float) -> float:
    """Return a level that ``side`` * X_t exceeds with probability below ``_OUTSIDE``, ever."""
    noise = chain.per_step("noise_std")
    slopes = np.geomspace(2e-3, 14.0, 60) / float(np.max(noise))
    moments = slopes * (side * chain.start)
    total = np.full(slopes.shape, -math.inf)
    growth: dict[Step, list[Term]] = {}
    for time in range(chain.steps):
        steps = _possible_steps(chain, time)
        for step in steps:
            if step not in growth:
                growth[step] = _terms(step, slopes, side)
        moments = _grown(moments, [growth[step] for step in steps])
        total = np.logaddexp(total, moments)
        if time % _PATIENCE == _PATIENCE - 1 and chain.homogeneous and len(growth) == 1:
            raised = moments + 1e-3
            settled = _grown(raised, list(growth.values())) <= raised
            if np.any(settled):
                # These moments stay below ``raised`` for good; the others are given up.
                left = math.log(chain.steps - time)
                total = np.where(settled, np.logaddexp(total, raised + left), math.inf)
                break
    levels = (total - math.log(_OUTSIDE) + 1e-9) / slopes
    return float(np.min(levels)) * (1 + 1e-12) + 1e-9 * float(np.max(noise))


def _possible_steps(chain: Chain, time: int) -> list[Step]:
    if isinstance(chain.inclusion, Reshuffled):
        return [chain.step_if(time, False), chain.step_if(time, True)]
    return [chain.step_at(time)]


def _grown(moments: FloatArray, choices: list[list[Term]]) -> FloatArray:
    """Return the logarithms of the moments after a step (the worst of several possible ones)."""
    found = [
        np.logaddexp.reduce([push + power * moments for push, power in terms]) for terms in choices
    ]
    worst: FloatArray = np.max(found, axis=0)
    return worst


def _terms(step: Step, slopes: FloatArray, side: float) -> list[Term]:
    """Return the (log factor, power) pairs whose sum bounds the moment after a step."""
    heat = np.square(slopes * step.noise_std) / 2
    pulls = step.pulls or (0.0,) * len(step.shifts)
    found: list[Term] = []
    for shift, weight, pull in zip(step.shifts, step.weights, pulls, strict=True):
        base = heat + math.log(weight)
        outer = side * shift - (pull * step.width if pull else 0.0)
        found.append((base + slopes * outer, step.contraction))
        if 0 < pull <= step.contraction:
            inner = side * (shift + pull * step.centre)
            found.append((base + slopes * inner, step.contraction - pull))
        elif pull > 0:
            edges = np.array([step.centre - step.width, step.centre + step.width])
            ends = step.contraction * edges + shift - pull * (edges - step.centre)
            found.append((base + slopes * float(np.max(side * ends)), 0.0))
    return found
