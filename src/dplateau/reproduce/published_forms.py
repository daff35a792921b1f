"""Closed forms as papers state them, which solvers are held against.

None is rounded up, and no claim rests on one. Theorem 3.4 and its corollaries are those of Bravo et
al. (who state alpha / 2 times these): all the given steps absorb, from a diameter D to zero, and c
multiplies the *square* of the distance.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from dplateau.numerics.solve import geometric_sum


def corollary_3_7(diameter: float, jump: float, noise_std: float, steps: int) -> float:
    """Return (D^2/T + h H_T)/nu^2: convex losses, c = 1; H_T is the harmonic number.

    >>> round(corollary_3_7(2.0, 0.5, 1.0, 4), 6)  # 4/4 + .5 * 25/12
    2.041667
    """
    harmonic = float(digamma(steps + 1.0)) + 0.5772156649015329
    return (diameter**2 / steps + jump * harmonic) / noise_std**2


def corollary_3_8(diameter: float, squared_factor: float, noise_std: float, steps: int) -> float:
    """Return D^2 c^T (1-c)/(nu^2 (1-c^T)), or D^2/(T nu^2) at c = 1: no jump, any c > 0.

    For c > 1 it falls to D^2 (c-1)/nu^2 as T grows.

    >>> round(corollary_3_8(1.0, 4.0, 1.0, 60), 6)
    3.0
    """
    # c^T / (1 + c + ... + c^(T-1)) = 1 / (c^-1 + ... + c^-T)
    rate = math.log(squared_factor)
    inverse = geometric_sum(rate, steps) / squared_factor if rate >= 0 else _sum_up(rate, steps)
    return diameter**2 / inverse / noise_std**2


def corollary_3_9(
    diameter: float, squared_factor: float, jump: float, noise_std: float, steps: int
) -> float:
    """Return [D^2 c^T (1-c)/(1-c^T) + h sum_{t<T} c^t / sum_{j<=t} c^j]/nu^2: dissipative losses.

    >>> round(corollary_3_9(2.0, 1.0, 0.5, 1.0, 4), 6)
    2.041667
    """
    start = corollary_3_8(diameter, squared_factor, noise_std, steps)
    total, inverse = 0.0, 0.0
    for _ in range(steps):
        # c^t / sum_{j<=t} c^j = 1 / (1 + c^-1 + ... + c^-t)
        inverse = 1.0 + inverse / squared_factor
        total += 1.0 / inverse
    return start + jump * total / noise_std**2


def corollary_3_9_logarithm(
    diameter: float, squared_factor: float, jump: float, noise_std: float, steps: int
) -> float:
    """Return the same with the sum bounded by 1 + ln((1-c^T)/(1-c)), as the paper does."""
    start = corollary_3_8(diameter, squared_factor, noise_std, steps)
    growth = geometric_sum(-math.log(squared_factor), steps)
    return start + jump * (1 + math.log(growth)) / noise_std**2


def _sum_up(rate: float, steps: int) -> float:
    """Return c^-1 + ... + c^-T for c = e^rate < 1, infinite if it overflows."""
    try:
        return math.expm1(-rate * steps) / -math.expm1(rate)
    except OverflowError:
        return math.inf


def theorem_3_4(
    diameter: float, c: npt.ArrayLike, h: npt.ArrayLike, variance: npt.ArrayLike
) -> float:
    """Return the closed form of theorem 3.4: all the given steps, from a distance D to zero.

    prod c D^2 / sum_j nu_j^2 prod_{l>j} c_l + sum_t h_t prod_{k>t} c_k / sum_{j>=t} nu_j^2
    prod_{l>j} c_l, by its backward recursion (not rounded up; c multiplies the square).
    """
    rates, jumps, variances = np.broadcast_arrays(np.atleast_1d(c), h, variance)
    inverse = 0.0  # 1/A
    offset = 0.0
    for rate, jump, square in zip(rates[::-1], jumps[::-1], variances[::-1], strict=True):
        offset += float(jump) / (inverse + float(square))
        inverse = (inverse + float(square)) / float(rate)
    return diameter**2 / inverse + offset


def plateau(contraction: float, sensitivity: float, noise_std: float, diameter: float) -> float:
    """Return D (1+c) (2s - D(1-c)) / nu^2, the cost at that real R: 4 D s / nu^2 at c = 1.

    In absolute units. A whole number of steps costs at least this much; for D (1-c) >= s the
    domain never binds, and the plateau is that of the unconstrained run.
    """
    reach = min(diameter, sensitivity / (1 - contraction)) if contraction < 1 else diameter
    gain = 2 * sensitivity - reach * (1 - contraction)
    return reach * (1 + contraction) * gain / noise_std**2
