"""The closed bound on the sampled Gaussian's Rényi divergence, and the orders it reaches.

Mironov, Talwar and Zhang (2019), Theorem 11; Lemma 2.12 of Altschuler and Talwar. It bounds the
larger of the two orders, the mixture against the Gaussian.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.numerics.solve import largest_where

LARGEST_RATE = 1 / 5
LEAST_NOISE = 4.0
_MOST = 1e9


def order_limit(sampling_rate: float, noise: float) -> float:
    """Return alpha*(q, sigma), rounded down.

    The orders up to it satisfy alpha <= M sigma^2/2 - log sigma^2 and alpha <= (M^2 sigma^2/2 -
    log 5 sigma^2)/(M + log(q alpha) + 1/(2 sigma^2)), with M = log(1 + 1/(q (alpha - 1))).

    >>> round(order_limit(0.01, 4.0), 4)
    14.3429
    """
    if sampling_rate >= LARGEST_RATE or noise < LEAST_NOISE:
        raise NotApplicable(
            f"the closed bound needs q < 1/5 and sigma >= 4; got q={sampling_rate:g}, "
            f"sigma={noise:g}; use dplateau.curves.renyi, which needs neither"
        )

    def allowed(order: float) -> bool:
        m = math.log1p(1 / (sampling_rate * (order - 1)))
        square = noise * noise
        low = m + math.log(sampling_rate * order) + 1 / (2 * square)
        first = order <= m * square / 2 - math.log(square)
        return first and order * low <= m * m * square / 2 - math.log(5 * square)

    # Up to the first refusal on a fine grid, so that everything below is allowed too.
    grid = 1 + np.geomspace(1e-6, _MOST, 600)
    held = [allowed(float(order)) for order in grid]
    first = grid.size - 1 if all(held) else held.index(False)
    return largest_where(allowed, float(grid[first - 1]), float(grid[first]))


def sampled_divergence(orders: FloatArray, sampling_rate: float, noise: float) -> FloatArray:
    """Return 2 alpha q^2 / sigma^2, for q < 1/5, sigma >= 4 and orders up to the limit."""
    found: FloatArray = 2 * orders * (sampling_rate / noise) ** 2
    return found


def orders_up_to(limit: float) -> FloatArray:
    """Return orders from just above 1 to the limit, dense on a logarithmic scale."""
    top = min(limit, 1e5)
    orders: FloatArray = 1 + np.geomspace(min(1e-3, (top - 1) / 2), top - 1, 200)
    return np.minimum(orders, top)
