"""Optimal sums of squares in closed form for phi(u) = sqrt(c u^2 + h), from a diameter D to zero.

Corollaries 3.7 to 3.9 of Bravo, Flores-Mella and Guzmán, which state alpha / 2 times these. All
the given steps absorb; with h > 0 fewer of them may be cheaper, and ``solve`` searches for the
best number. Here c multiplies the *square* of the distance. Values are not rounded up: a claim
takes the value of a re-evaluated plan.
"""

from __future__ import annotations

import math

from dplateau.errors import InvalidInput
from dplateau.numerics.solve import geometric_sum


def corollary_3_7(diameter: float, jump: float, noise_std: float, steps: int) -> float:
    """Return (D^2/T + h H_T)/nu^2: convex losses, c = 1; H_T is the harmonic number.

    >>> round(corollary_3_7(2.0, 0.5, 1.0, 4), 6)  # 4/4 + .5 * 25/12
    2.041667
    """
    _require(diameter=diameter, noise_std=noise_std, steps=steps)
    from scipy.special import digamma

    harmonic = float(digamma(steps + 1.0)) + 0.5772156649015329
    return (diameter**2 / steps + jump * harmonic) / noise_std**2


def corollary_3_8(diameter: float, squared_factor: float, noise_std: float, steps: int) -> float:
    """Return D^2 c^T (1-c)/(nu^2 (1-c^T)), or D^2/(T nu^2) at c = 1: no jump, any c > 0.

    For c > 1 it falls to D^2 (c-1)/nu^2 as T grows.

    >>> round(corollary_3_8(1.0, 4.0, 1.0, 60), 6)
    3.0
    """
    _require(diameter=diameter, squared_factor=squared_factor, noise_std=noise_std, steps=steps)
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


def _require(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise InvalidInput(f"{name} must be a finite number > 0; got {value!r}")
