"""The privacy curve of two Gaussians one unit of noise apart by mu, rounded down.

Kept apart from the library's own curves on purpose: a referee must not share the player's ruler.
"""

from __future__ import annotations

import math

from dplateau.audit.laws import UNIT


def gaussian_delta_below(epsilon: float, mu: float) -> float:
    """Return a lower bound on Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

    >>> round(gaussian_delta_below(0.0, 1.0), 9)
    0.382924923
    """
    from scipy.special import log_ndtr

    if mu <= 0:
        return 0.0
    first, second = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    log_first, log_second = float(log_ndtr(first)), epsilon + float(log_ndtr(second))
    # A relative error e of the argument x changes the logarithm by at most e |x| (|x| + 1).
    size = mu / 2 + epsilon / mu
    slack = UNIT * (64 + 8 * size * (size + 1) + 8 * epsilon)
    gap = log_second - log_first + 2 * slack
    if gap >= 0:
        return 0.0
    return math.exp(log_first - slack) * -math.expm1(gap) * (1 - 16 * UNIT)


def gaussian_epsilon_below(mu: float, delta: float) -> float:
    """Return an epsilon at which the curve is still at least delta, as large as floats allow.

    >>> round(gaussian_epsilon_below(1.0, 1e-5), 6)
    4.377178
    """
    if gaussian_delta_below(0.0, mu) < delta:
        return 0.0
    low, high = 0.0, max(mu, 1e-300)
    while gaussian_delta_below(high, mu) >= delta:
        low, high = high, 2 * high
    while True:
        middle = (low + high) / 2
        if not low < middle < high or high - low < 1e-13 * high:
            return low
        if gaussian_delta_below(middle, mu) >= delta:
            low = middle
        else:
            high = middle
