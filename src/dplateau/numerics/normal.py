"""Gaussian and Laplace hockey sticks in log space, rounded to the safe side.

The hockey-stick divergence of two unit Gaussians at distance mu, which is the exact privacy profile
of mu-GDP (Dong, Roth, Su, arXiv 1905.02383 v3, corollary 2.13), is

    theta_eps(mu) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

Written like this it cancels, overflows and underflows.  With a = eps/mu - mu/2, b = eps/mu + mu/2,
phi the normal density and R(x) = Phi(-x)/phi(x) the Mills ratio, both terms share a factor:

    theta = phi(a) [R(a) - R(b)],     decreasing in a and increasing in b,

so rounding a down and b up moves theta only upwards, and what is left to bound is the error of one
special function.  Where R(a) - R(b) itself cancels, a series with a proved remainder takes over.

Every delta here is therefore an upper bound of the exact value, too large by less than 1e-10 of
itself wherever it exceeds 1e-300; deeper down the same holds for its logarithm.

>>> round(gaussian_epsilon(1e-5, 1.0), 6)
4.377178
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar, cast

import numpy as np
from scipy.special import erfcx, ndtr, ndtri, ndtri_exp

from dplateau.errors import InvalidInput
from dplateau.ground.types import BoolArray, FloatArray
from dplateau.numerics.solve import UNIT_ROUNDOFF, exp_up, round_up, unwrap

__all__ = [
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_tradeoff",
    "laplace_delta",
    "laplace_epsilon",
    "log_gaussian_delta",
]

Number = TypeVar("Number", float, FloatArray)

_SQRT2: Final = math.sqrt(2.0)
_HALF_LOG_TWO_PI: Final = 0.5 * math.log(2.0 * math.pi)
_LOWEST: Final = float(np.finfo(np.float64).min)
_TINIEST: Final = 5e-324
# Relative error allowed to scipy's erfcx; 4 ulp is the largest seen against 40-digit arithmetic.
_ERFCX_ERROR: Final = 4e-15
# Below this mu / max(1, eps/mu) the series loses less than the difference R(a) - R(b).
_SERIES_BELOW: Final = 3e-4
_NEWTON_STEPS: Final = 100  # never reached: convergence is quadratic
_FRACTION_FROM: Final = 8.0
_FRACTION_DEPTH: Final = 17


# --- Gaussian ----------------------------------------------------------------------------------


def log_gaussian_delta(epsilon: Number | float, mu: Number | float) -> Number:
    """Return an upper bound of log theta_epsilon(mu), to any depth.

    ``epsilon`` may be any real number (a negative one is the hockey stick of order below one) or
    infinite; ``mu`` is the distance in standard deviations, from 0 (log delta is ``-inf`` for
    epsilon >= 0) to infinity (log delta is 0).  Arrays broadcast; two scalars give a ``float``.

    >>> round(log_gaussian_delta(800.0, 1.0), 6)
    -319614.413166
    """
    eps, distance = _broadcast(epsilon, mu)
    _check_profile(eps, distance)
    value = _log_profile(np.abs(eps).ravel(), distance.ravel()).reshape(eps.shape)
    if np.any(eps < 0.0):
        value = np.where(eps < 0.0, _reflect(eps, value), value)
    return cast("Number", unwrap(value))


def gaussian_delta(epsilon: Number | float, mu: Number | float) -> Number:
    """Return an upper bound of theta_epsilon(mu), the delta of mu-GDP at ``epsilon``.

    Conventions as in :func:`log_gaussian_delta`.  A value too small for a double is reported as the
    smallest positive one, never as zero.

    >>> round(gaussian_delta(1.0, 1.0), 7)
    0.1269367
    >>> gaussian_delta(0.0, float("inf"))
    1.0
    """
    log_delta = np.asarray(log_gaussian_delta(epsilon, mu), dtype=np.float64)
    return cast("Number", unwrap(np.minimum(exp_up(log_delta), 1.0)))


def gaussian_epsilon(delta: float | None, mu: float, *, log_delta: float | None = None) -> float:
    """Return the smallest epsilon >= 0 for which mu-GDP is known to give (epsilon, delta)-DP.

    Give either ``delta`` or, for levels below the double range, ``None`` and ``log_delta``.  The
    answer satisfies ``gaussian_delta(epsilon, mu) <= delta`` (or its logarithm) as evaluated.

    log theta is concave in epsilon (the tail of a log-concave density, weighted by e^epsilon and
    integrated), so a Newton step from anywhere lands at or above the root: the iteration comes down
    on the safe side, quadratically.

    >>> round(gaussian_epsilon(None, 1.0, log_delta=-1000.0), 4)
    45.0301
    """
    target, mu = _log_target(delta, log_delta), float(mu)
    _check_profile(np.asarray(0.0), np.asarray(mu))
    if mu == 0.0 or target == 0.0:
        return 0.0
    if target == -math.inf or math.isinf(mu):
        return math.inf
    # theta <= Phi(-a): dropping the second term makes this start an upper bound.
    epsilon = max(0.0, mu * (0.5 * mu - float(ndtri_exp(target))))
    for _ in range(_NEWTON_STEPS):
        value, falls, _ = _log_profile_and_slopes(epsilon, mu)
        step = (target - value) / falls if falls > 0.0 else 0.0
        if epsilon == 0.0 or not step > 1e-15 * epsilon:
            break
        epsilon = max(epsilon - step, 0.0)
    if epsilon < 1e-9 * mu and _holds(0.0, mu, delta, target):
        return 0.0
    first = UNIT_ROUNDOFF * (16.0 * epsilon + 1e-3 * mu) + _TINIEST
    return _until_it_holds(epsilon, first, lambda eps: _holds(eps, mu, delta, target))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP is known to give (epsilon, delta)-DP.

    The inverse of :func:`gaussian_delta` in its second argument: the answer satisfies
    ``gaussian_delta(epsilon, mu) <= delta`` as evaluated, and so lies at or below the exact value.

    log theta is concave in log mu: its derivative there is the reciprocal of the average of -R'
    over [a, b], and growing mu moves that interval to the left and widens it, while -R' is convex
    and decreasing.  Newton steps therefore land at or below the root, which is the safe side here.

    >>> round(gaussian_mu(4.377178, 1e-5), 6)
    1.0
    """
    epsilon, delta = float(epsilon), float(delta)
    _check_level(delta)
    if not epsilon >= 0.0:
        raise InvalidInput(f"epsilon must be zero or positive; got epsilon={epsilon!r}")
    if delta >= 1.0 or (math.isinf(epsilon) and delta > 0.0):
        return math.inf
    if delta == 0.0:
        return 0.0
    mu, target = _mu_surely_below(epsilon, delta * (1.0 - 4e-15)), _log_target(delta, None)
    for _ in range(_NEWTON_STEPS):
        value, _, grows = _log_profile_and_slopes(epsilon, mu)
        step = (target - value) / grows if grows > 0.0 else 0.0
        if not step > 1e-15:
            break
        mu *= math.exp(min(step, 10.0))
    first = -16.0 * UNIT_ROUNDOFF * mu - _TINIEST
    return _until_it_holds(mu, first, lambda size: _holds(epsilon, size, delta, target))


def gaussian_tradeoff(fpr: Number | float, mu: Number | float) -> Number:
    """Return a lower bound of the false negative rate Phi(Phi^{-1}(1 - fpr) - mu) under mu-GDP.

    No test of one neighbor against the other with false positive rate ``fpr`` misses less often.

    >>> round(gaussian_tradeoff(0.05, 1.0), 6)
    0.740489
    """
    level, distance = _broadcast(fpr, mu)
    if not (np.all((level >= 0.0) & (level <= 1.0)) and np.all(distance >= 0.0)):
        raise InvalidInput(f"need 0 <= fpr <= 1 and mu >= 0; got fpr={fpr!r}, mu={mu!r}")
    with np.errstate(invalid="ignore", under="ignore"):
        quantile = -ndtri(level)
        # ndtri and the subtraction are good to a few ulp of their operands.
        margin = 4e-15 * (1.0 + np.abs(quantile) + distance)
        rate = ndtr(quantile - distance - margin) * (1.0 - 1e-12)
    rate = np.where((level == 1.0) | np.isinf(distance), 0.0, rate)
    return cast("Number", unwrap(np.where((level == 0.0) & np.isfinite(distance), 1.0, rate)))


# --- Laplace -----------------------------------------------------------------------------------


def laplace_delta(epsilon: Number | float, ratio: Number | float) -> Number:
    """Return an upper bound of [1 - exp(epsilon/2 - ratio/2)]_+, the Laplace hockey stick.

    ``ratio`` = s / v: two one-dimensional Laplace laws of scale v whose centers are s apart;
    ``epsilon`` >= 0.

    >>> round(laplace_delta(1.0, 2.0), 6)
    0.393469
    """
    eps, gap = _broadcast(epsilon, ratio)
    if not (np.all(eps >= 0.0) and np.all(gap >= 0.0)):
        raise InvalidInput(f"need epsilon >= 0 and ratio >= 0; got {epsilon!r} and {ratio!r}")
    beyond = gap > eps
    with np.errstate(invalid="ignore", under="ignore"):
        distance = np.where(beyond, round_up(np.where(beyond, gap - eps, 0.0)), 0.0)
        delta = np.minimum(1.0, round_up(-np.expm1(-0.5 * distance), 4.0))
    return cast("Number", unwrap(np.where(beyond, delta, 0.0)))


def laplace_epsilon(delta: float, ratio: float) -> float:
    """Return the smallest epsilon >= 0 known to bring the Laplace hockey stick down to ``delta``.

    >>> round(laplace_epsilon(1e-5, 2.0), 6)
    1.99998
    """
    _check_level(delta)
    if delta >= 1.0 or laplace_delta(0.0, ratio) <= delta:
        return 0.0
    # From here on laplace_delta is zero, whatever the rounding.
    if delta == 0.0 or math.isinf(ratio):
        return ratio
    guess = max(0.0, ratio + 2.0 * math.log1p(-delta))
    step = 2.0 * UNIT_ROUNDOFF * ratio
    while laplace_delta(guess, ratio) > delta:
        guess, step = min(ratio, guess + step), 2.0 * step
    return guess


# --- the profile, branch by branch -------------------------------------------------------------


def _log_profile(eps: FloatArray, mu: FloatArray) -> FloatArray:
    """Upper bound of log theta for flat arrays, eps >= 0."""
    square, tail, _, _ = _factors(eps, mu)
    # fmax: once a^2 overflows (log theta below the double range) its margin leaves no number.
    value = np.minimum(0.0, np.fmax(_joined(square, tail), _LOWEST))
    value = np.where((mu == 0.0) | np.isinf(eps), -np.inf, value)
    return np.where(np.isinf(mu), 0.0, value)


def _log_profile_and_slopes(epsilon: float, mu: float) -> tuple[float, float, float]:
    """Return log theta, minus its derivative in epsilon, and its derivative in log mu.

    The derivatives of theta are e^eps Phi(-b) = phi(a) R(b) and mu phi(a).  The factor e^{-a^2/2}
    is common to them and to theta, so the quotients need only what is left of each.
    """
    square, tail, lower, upper = _factors(np.array([epsilon]), np.array([mu]))
    with np.errstate(all="ignore"):
        log_rest = square - 0.5 * lower * lower - tail
        rest = float(np.exp(np.minimum(log_rest + math.log(mu), 700.0))[0])
    falls = 0.5 * float(erfcx(upper[0] / _SQRT2)) * rest / mu
    return float(_joined(square, tail)[0]), falls, rest / math.sqrt(2.0 * math.pi)


def _joined(square: FloatArray, tail: FloatArray) -> FloatArray:
    """Return tail - square rounded up; the last term is for a theta within 1e-300 of one."""
    with np.errstate(invalid="ignore", over="ignore"):
        return tail - square + 4.0 * UNIT_ROUNDOFF * (2.0 * square + np.abs(tail)) + 1e-300


def _factors(eps: FloatArray, mu: FloatArray) -> tuple[FloatArray, ...]:
    """Return (s, log of the rest, a, b) with theta <= exp(rest - s), for eps >= 0.

    The square s is a^2/2, which the rest does not contain, except near theta = 1, where the rest is
    everything and s is zero.
    """
    with np.errstate(all="ignore"):
        ratio = np.maximum(np.nextafter(eps / mu, -np.inf), 0.0)
        lower = np.nextafter(ratio - 0.5 * mu, -np.inf)
        upper = np.nextafter(ratio + 0.5 * mu, np.inf)
        square = 0.5 * lower * lower
        tail = _log_difference(lower, upper)
        thin = mu < _SERIES_BELOW * np.maximum(1.0, ratio)
        _fill(tail, thin, lambda m: _log_series(lower[m], ratio[m], mu[m]))
        deep = lower < -1.0
        _fill(tail, deep, lambda m: _log_near_one(lower[m], upper[m]))
        square[deep] = 0.0
    return square, tail, lower, upper


def _fill(target: FloatArray, where: BoolArray, values: Callable[[BoolArray], FloatArray]) -> None:
    if where.any():
        target[where] = values(where)


def _log_difference(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Upper bound of log of [R(a) - R(b)] / sqrt(2 pi), the errors of both terms added."""
    first, second = erfcx(lower / _SQRT2), erfcx(upper / _SQRT2)
    return np.asarray(np.log(0.5 * (first - second + _ERFCX_ERROR * (first + second))))


def _log_near_one(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Upper bound of log theta for a < -1, from 1 - theta = phi(a) [R(-a) + R(b)]."""
    missing = np.exp(-0.5 * lower * lower) * (erfcx(-lower / _SQRT2) + erfcx(upper / _SQRT2))
    # a^2 is rounded before the exponential, hence the term in a^2; 1 - theta rounds down.
    error = 2.0 * _ERFCX_ERROR + 4.0 * UNIT_ROUNDOFF * lower * lower
    return np.asarray(np.log1p(-0.5 * missing * np.maximum(0.0, 1.0 - error)))


def _log_series(lower: FloatArray, middle: FloatArray, mu: FloatArray) -> FloatArray:
    """Upper bound of log of [R(a) - R(b)] / sqrt(2 pi) for small mu.

    R is completely monotone: R(x) = M_0(x), -R' = M_1, M_n(x) = int t^n e^{-xt - t^2/2} dt.  Taylor
    about the middle of [a, b] leaves mu M_1(eps/mu) + (mu^3/24) M_3(xi), and M_3 decreases, so
    M_3(a) bounds the remainder.  The quotients r_n = M_n / M_{n-1} satisfy r_n = n / (x + r_{n+1}),
    whence M_3/M_1 = 6 / (3 + x^2 + x r_4), and increase in n, whence r_4 >= 8/(x + sqrt(x^2 + 20)).
    """
    positive = np.maximum(lower, 0.0)
    fourth = 8.0 / (positive + np.sqrt(positive * positive + 20.0))
    # For a slightly negative a (a >= -mu/2) r_4 <= 2.1 bounds the term x r_4 from below.
    quotient = 6.0 / (3.0 + positive * (positive + fourth) + 2.1 * np.minimum(lower, 0.0))
    curvature = mu * mu / 24.0 * quotient * _mills_slope(lower)
    return np.asarray(
        np.log(mu) + np.log(_mills_slope(middle) + curvature) - _HALF_LOG_TWO_PI + 1e-15
    )


def _mills_slope(x: FloatArray) -> FloatArray:
    """Upper bound of M_1(x) = -R'(x) = 1 - x R(x), for x above -0.01."""
    near = np.minimum(x, _FRACTION_FROM)
    product = near * math.sqrt(0.5 * math.pi) * erfcx(near / _SQRT2)
    value = 1.0 - product + 2.0 * _ERFCX_ERROR * np.abs(product) + 4.0 * UNIT_ROUNDOFF
    far = x >= _FRACTION_FROM
    if far.any():
        value = np.where(far, _mills_slope_fraction(np.maximum(x, _FRACTION_FROM)), value)
    return np.asarray(value)


def _mills_slope_fraction(x: FloatArray) -> FloatArray:
    """Upper bound of M_1(x) for x >= 8 by the continued fraction of Laplace, free of cancellation.

    It starts from an upper bound of r_17 (r_n <= r_{n+1} gives r_n (x + r_n) <= n); every level
    turns an upper bound into a lower one, so r_1 and with it M_1 = r_1 / (x + r_1) end above.
    """
    n = _FRACTION_DEPTH
    quotient = 2.0 * n / (x + np.sqrt(x * x + 4.0 * n))
    for level in range(n - 1, 0, -1):
        quotient = level / (x + quotient)
    return np.asarray(quotient / (x + quotient) * (1.0 + 8.0 * UNIT_ROUNDOFF))


def _reflect(eps: FloatArray, log_delta: FloatArray) -> FloatArray:
    """Carry log theta at |eps| to eps < 0 by E_g(P||Q) = 1 - g + g E_{1/g}(Q||P), g = e^eps."""
    with np.errstate(all="ignore"):
        value = -np.expm1(-np.abs(eps)) + np.exp(log_delta - np.abs(eps))
        return np.asarray(np.minimum(0.0, np.log(value * (1.0 + 8.0 * UNIT_ROUNDOFF))))


# --- inversion and checks ----------------------------------------------------------------------


def _log_target(delta: float | None, log_delta: float | None) -> float:
    """Return log delta from whichever of the two was given, after checking it."""
    if (delta is None) == (log_delta is None):
        raise InvalidInput(
            f"give exactly one of delta and log_delta; got delta={delta!r}, log_delta={log_delta!r}"
        )
    if delta is not None:
        _check_level(delta)
        # Lowered by the margin of exp_up, so that the search aims where the reported delta fits.
        margin = 0.0 if delta == 1.0 else 1.5e-15
        return math.log(delta) - margin if delta > 0.0 else -math.inf
    if log_delta is None or not log_delta <= 0.0:
        raise InvalidInput(f"log_delta must be zero or negative; got log_delta={log_delta!r}")
    return log_delta


def _holds(epsilon: float, mu: float, delta: float | None, target: float) -> bool:
    """Whether the profile, exactly as it would be reported, is at or below the level asked for."""
    value = _log_profile(np.array([epsilon]), np.array([mu]))
    return bool(value[0] <= target if delta is None else min(exp_up(float(value[0])), 1.0) <= delta)


def _until_it_holds(start: float, step: float, holds: Callable[[float], bool]) -> float:
    """Move from ``start`` by steps that double (signed, not below zero) until ``holds`` is true."""
    point = start
    while not holds(point):
        point, step = max(0.0, point + step), 2.0 * step
    return point


def _mu_surely_below(epsilon: float, delta: float) -> float:
    """Return a mu that gives (epsilon, delta)-DP up to rounding, to start a search from.

    Two ways: theta <= mu / sqrt(2 pi) for every epsilon, and theta <= Phi(-a).
    """
    quantile = -float(ndtri(delta))
    root = math.sqrt(quantile * quantile + 2.0 * epsilon)
    tail = 2.0 * epsilon / (quantile + root) if quantile > 0.0 else root - quantile
    return max(tail, 2.5 * delta)


def _broadcast(first: float | FloatArray, second: float | FloatArray) -> tuple[FloatArray, ...]:
    return np.broadcast_arrays(
        np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    )


def _check_profile(eps: FloatArray, mu: FloatArray) -> None:
    if not np.all(mu >= 0.0):
        raise InvalidInput(
            f"mu is a distance in standard deviations, zero or positive; got mu={unwrap(mu)!r}"
        )
    if np.any(np.isnan(eps)):
        raise InvalidInput(f"epsilon must be a number; got epsilon={unwrap(eps)!r}")


def _check_level(delta: float) -> None:
    if not 0.0 <= delta <= 1.0:
        raise InvalidInput(f"delta is a probability, from 0 to 1; got delta={delta!r}")
