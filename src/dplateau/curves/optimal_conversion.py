"""The least (epsilon, delta) that one Rényi divergence implies, computed from its dual.

Asoodeh, Liao, Calmon, Kosut, Sankar (arXiv 2008.06529) write it as a minimum over p, where an
inexact minimizer under-reports.  Here it is the dual maximum, where an inexact maximizer
over-reports.  Let
X = dP/dQ under Q, so that E X = 1, E X^alpha <= G = e^{(alpha-1) zeta} and the hockey stick is
E (X - g)_+ with g = e^epsilon.  Take any 0 <= x_2 < x_1.  The tangents of the convex x^alpha at x_2
and x_1 lie below it and cross at

    g = ((alpha-1)/alpha) (x_1^alpha - x_2^alpha) / (x_1^{alpha-1} - x_2^{alpha-1}),

so x^alpha >= A + B x + C (x - g)_+ with B = alpha x_2^{alpha-1}, A = -(alpha-1) x_2^alpha and
C = alpha (x_1^{alpha-1} - x_2^{alpha-1}).  Taking expectations, the hockey stick at g is at most
(G - A - B) / C.  Setting that to delta gives x_1 explicitly, and epsilon as an explicit function of
x_2 alone.  **Every x_2 is a proof**; x_2 = 0 is ``balle`` and x_2 = 1 improves ``linearized``.  At
the best x_2 the two-point pair on {x_1, x_2} attains the bound, so nothing is lost.

With v = -log x_2, kappa = log(x_1 / x_2) and k = alpha - 1 the formulas read

    G - A - B = (G - 1) + s(v),     s(v) = 1 - alpha e^{-k v} + k e^{-alpha v} >= 0,
    x_1^k = x_2^k + (G - A - B) / (alpha delta),     epsilon = log x_1 + gap(kappa),
    gap = log[(k / alpha) (1 - e^{-alpha kappa}) / (1 - e^{-k kappa})] <= 0.

Rounding: each quantity below is moved in the direction that enlarges epsilon or delta, by a bound
on its own error.  What remains is an excess over the exact optimum of less than 1e-11 of epsilon
(plus 1e-14), and of less than 1e-14 (100 + alpha (zeta + epsilon)) of delta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from scipy.special import gammainc

from dplateau.ground.types import FloatArray
from dplateau.numerics.solve import UNIT_ROUNDOFF, bracketed_roots, exp_up

_TINIEST: Final = 5e-324
_HUGE: Final = 1e290
# Relative error allowed to scipy's gammainc(2, z) and the sum built on it; 1e-14 is typical.
_GAMMA_ERROR: Final = 2e-13
# Beyond k v = 45 the point x_2 weighs less than a rounding error: x_2 = 0 (Balle) is as good.
_LAST_TANGENT: Final = 45.0


class Orders(NamedTuple):
    """What every formula needs of (alpha, zeta); flat arrays of one length."""

    alpha: FloatArray
    k: FloatArray
    zeta: FloatArray
    shift: FloatArray  # log(k / alpha)
    exponent: FloatArray  # log G = k zeta, rounded up
    growth: FloatArray  # G - 1, rounded up, infinite where it overflows


def prepared(alpha: FloatArray, zeta: FloatArray) -> Orders:
    """Return what the formulas need; 1 < alpha < inf and 0 < zeta < inf."""
    k = alpha - 1.0
    exponent = k * zeta * (1.0 + 4.0 * UNIT_ROUNDOFF)
    growth = np.expm1(exponent) * (1.0 + 4.0 * UNIT_ROUNDOFF) + 4.0 * _TINIEST
    # k is exact below two, where 1/alpha is close to one and log1p would magnify its rounding.
    shift = np.where(alpha < 2.0, np.log(k / alpha), np.log1p(-1.0 / alpha))
    return Orders(alpha, k, zeta, shift, exponent, growth)


# --- the optimum -------------------------------------------------------------------------------


def least_epsilon(orders: Orders, delta: FloatArray, known: FloatArray) -> FloatArray:
    """Minimize over v the epsilon that each tangent pair proves; never above what is ``known``."""
    best = np.fmin(known, _one_sided_epsilon(orders, delta))
    log_delta = np.log(delta)

    def imbalance(log_v: FloatArray) -> FloatArray:
        v = np.exp(log_v)
        log_x1 = log_upper_tangent(orders, delta, v)
        gap = _gap(orders, log_x1 + v)
        np.fmin(best, _widened(log_x1 + gap, np.abs(log_x1) - gap), out=best)
        return _stationarity(v, log_x1 + v, gap, log_delta)

    imbalance(np.full_like(delta, -np.inf))
    # 1 - x_2 >= delta at the optimum: the two laws differ by at least delta in total variation.
    _search_tangent(imbalance, orders, log_delta)
    return best


def least_delta(orders: Orders, epsilon: FloatArray, known: FloatArray) -> FloatArray:
    """Minimize over kappa the delta that each tangent pair proves; never above the ``known``."""
    best = np.fmin(known, _one_sided_delta(orders, epsilon))
    least = _log_x1_within(orders, epsilon)
    np.fmin(best, exp_up(log_delta_of(orders, least, np.zeros_like(least))), out=best)

    def imbalance(log_step: FloatArray) -> FloatArray:
        kappa = least + np.exp(log_step)
        gap = _gap(orders, kappa)
        # Lowering x_1 with kappa kept moves the crossing down too: still a proof at epsilon.
        log_x1 = epsilon - gap - 8.0 * UNIT_ROUNDOFF * (epsilon - gap + kappa)
        v = np.maximum(kappa - log_x1, 0.0)
        log_delta = log_delta_of(orders, log_x1, v)
        np.fmin(best, exp_up(log_delta), out=best)
        return _stationarity(v, kappa, gap, log_delta)

    # A step below the rounding of kappa is none: that is the case x_2 = 1 again.
    _search_tangent(imbalance, orders, np.log(np.maximum(1e-9 * best, 1e-14 * least)))
    return best


def _search_tangent(
    imbalance: Callable[[FloatArray], FloatArray], orders: Orders, lowest: FloatArray
) -> None:
    """Evaluate ``imbalance`` ever closer to its root in log v; it records the best bound seen.

    Below v = e^-60 the tangent is that at x_2 = 1 in double precision, which is tried separately.
    """
    last = np.log(_LAST_TANGENT / orders.k)
    first = np.minimum(np.maximum(lowest, -60.0), last)
    # Eight steps are usual; more than twenty mean that rounding noise hides the sign.
    bracketed_roots(imbalance, first, last, xtol=1e-6, iterations=20)


def _stationarity(
    v: FloatArray, kappa: FloatArray, gap: FloatArray, log_delta: FloatArray
) -> FloatArray:
    """Sign of the derivative of the bound in v: zero where (1 - x_2)(x_1 - g) = delta (x_1 - x_2).

    That is the equation of the two-point pair with mean one and hockey stick delta.
    """
    crossing = np.maximum(-np.expm1(gap), _TINIEST)
    value = np.log(np.expm1(-v) / np.expm1(-kappa) * crossing) - log_delta
    return np.fmin(np.fmax(value, -1e3), 1e3)


def _one_sided_epsilon(orders: Orders, delta: FloatArray) -> FloatArray:
    """Return zeta + log(1 - delta), the optimum where alpha delta >= 1.

    There the line on the left may fall: x^alpha >= -b x + c (x - g)_+ with b >= 0, touching at
    x_1 = e^zeta, proves delta = (G + b) / c.  Solved for b and g it gives g = (1 - delta) e^zeta,
    and b = G (alpha delta - 1) / (1 - delta), which is why alpha delta has to be at least one.
    """
    value = orders.zeta + np.log1p(-delta)
    applies = orders.alpha * delta * (1.0 - 4.0 * UNIT_ROUNDOFF) >= 1.0
    return np.where(applies, _widened(value, orders.zeta - np.log1p(-delta)), np.inf)


def _one_sided_delta(orders: Orders, epsilon: FloatArray) -> FloatArray:
    """Return the least delta >= 1/alpha that the same bound gives."""
    value = np.maximum(1.0 / orders.alpha, -np.expm1(epsilon - orders.zeta))
    return value * (1.0 + 8.0 * UNIT_ROUNDOFF)


# --- one pair of tangents, every piece rounded up ----------------------------------------------


def log_upper_tangent(orders: Orders, delta: FloatArray, v: FloatArray) -> FloatArray:
    """Upper bound of log x_1 for the pair of tangents that proves exactly ``delta``."""
    surplus = _surplus(orders, v)
    ratio = surplus / (orders.alpha * delta) * (1.0 + 8.0 * UNIT_ROUNDOFF)
    missing = -np.expm1(-orders.k * v)
    power = np.log1p(ratio - missing)
    power = _widened(power, missing / (1.0 + (ratio - missing)) + np.abs(power))
    large = ~(ratio < _HUGE)
    if large.any():
        power = np.where(large, _log_power_far(orders, delta, v), power)
    return _widened(power / orders.k, np.abs(power / orders.k))


def _log_power_far(orders: Orders, delta: FloatArray, v: FloatArray) -> FloatArray:
    """Upper bound of log x_1^k in logarithms, for x_1^k beyond the double range."""
    log_surplus = _log_surplus(orders, v)
    sizes = np.abs(log_surplus) + np.log(orders.alpha) - np.log(delta)
    ratio = log_surplus - np.log(orders.alpha) - np.log(delta)
    return _widened(np.logaddexp(-orders.k * v, ratio), sizes)


def _log_x1_within(orders: Orders, epsilon: FloatArray) -> FloatArray:
    """Lower bound of the y with y + gap(y) = epsilon, which is log x_1 for x_2 = 1.

    y + gap(y) is convex and increasing, with slope at least 1/2: Newton comes down from above, and
    twice what is left of the residual leads below.
    """
    y = np.minimum(2.0 * epsilon, epsilon - orders.shift)
    for _ in range(6):
        slope = 1.0 + orders.alpha / np.expm1(orders.alpha * y) - orders.k / np.expm1(orders.k * y)
        y = y - (y + _gap(orders, y) - epsilon) / np.clip(slope, 0.5, 1.0)
    gap = _gap(orders, y)
    residual = _widened(y + gap - epsilon, y - gap)
    return np.nan_to_num(np.maximum(y - 2.0 * np.maximum(residual, 0.0), 0.0))


def log_delta_of(orders: Orders, log_x1: FloatArray, v: FloatArray) -> FloatArray:
    """Upper bound of log delta = log (G - A - B) / C for the tangents at x_1 and x_2 = e^{-v}."""
    log_surplus, log_alpha = _log_surplus(orders, v), np.log(orders.alpha)
    power, spread = orders.k * log_x1, np.log(-np.expm1(-orders.k * (log_x1 + v)))
    sizes = 1.0 + np.abs(log_surplus) + log_alpha + np.abs(power) + np.abs(spread)
    return _widened(log_surplus - log_alpha - power - spread, sizes)


def _log_surplus(orders: Orders, v: FloatArray) -> FloatArray:
    """Upper bound of log (G - A - B); A + B >= 0 for x_2 <= 1, so log G always is one."""
    return np.where(orders.growth < _HUGE, np.log(_surplus(orders, v)), orders.exponent)


def _surplus(orders: Orders, v: FloatArray) -> FloatArray:
    """Upper bound of G - A - B = (G - 1) + s(v).

    s(v) = [1 - e^{-kv}(1 + kv)] + k e^{-kv} [v - (1 - e^{-v})], two terms without cancellation.
    """
    scaled = orders.k * v
    # 1 - e^{-z}(1 + z) is the distribution function of a Gamma(2) variable.
    excess = np.where(v < 0.5, -v * np.expm1(-v) - gammainc(2.0, v), v + np.expm1(-v))
    spread = gammainc(2.0, scaled) + orders.k * np.exp(-scaled) * excess
    return (orders.growth + spread * (1.0 + _GAMMA_ERROR)) * (1.0 + 4.0 * UNIT_ROUNDOFF)


def _gap(orders: Orders, kappa: FloatArray) -> FloatArray:
    """Upper bound of log g - log x_1 = log[(k/alpha)(1 - e^{-alpha kappa})/(1 - e^{-k kappa})]."""
    crossing = np.log1p(-np.expm1(-kappa) / np.expm1(orders.k * kappa))
    sizes = 2.0 * crossing - orders.shift + np.minimum(kappa, 1.0)
    value = orders.shift + crossing + 16.0 * UNIT_ROUNDOFF * sizes
    low = orders.alpha < 2.0
    if low.any():
        value[low] = _gap_low(orders.alpha[low], orders.k[low], kappa[low])
    small = orders.alpha * kappa < 0.01
    if small.any():
        value = np.where(small, _gap_series(orders, kappa), value)
    return np.minimum(value, 0.0)


def _gap_low(alpha: FloatArray, k: FloatArray, kappa: FloatArray) -> FloatArray:
    """Upper bound of the gap for alpha < 2, where log(k/alpha) is large and would cancel."""
    value = _log_mean(alpha * kappa) - _log_mean(k * kappa)
    return np.asarray(value + 16.0 * UNIT_ROUNDOFF * (1.0 - value))


def _gap_series(orders: Orders, kappa: FloatArray) -> FloatArray:
    """Upper bound of the gap for alpha kappa < 0.01: the difference of two series of _log_mean.

    The first term left out is below 4e-15 kappa.
    """
    total = orders.alpha + orders.k
    quartic = (orders.alpha * orders.alpha + orders.k * orders.k) * kappa * kappa / 120.0
    return np.asarray(kappa * (-0.5 + total * kappa / 24.0 * (1.0 - quartic) + 1e-14))


def _log_mean(z: FloatArray) -> FloatArray:
    """Logarithm of (1 - e^{-z}) / z, accurate relative to itself."""
    near = np.minimum(z, 0.01)
    series = near * (-0.5 + near / 24.0 * (1.0 - near * near / 120.0))
    return np.where(z < 0.01, series, np.log(-np.expm1(-z) / np.maximum(z, 0.01)))


def _widened(value: FloatArray, sizes: FloatArray) -> FloatArray:
    """Add the rounding error of a short sum whose terms add up to ``sizes`` in absolute value."""
    return value + 8.0 * UNIT_ROUNDOFF * sizes
