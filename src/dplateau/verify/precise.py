"""Closed privacy curves in fifty digits, and Rényi divergences with the epsilon that they prove.

Whatever leaves this file as a double is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from mpmath import MPContext  # type: ignore[import-untyped]
from scipy import special

from dplateau.ground.types import FloatArray

# A number of fifty digits; mpmath has no types, so this is only a name.
Precise = Any
# The arithmetic of fifty digits, whose setting nobody else shares.
MP: Any = MPContext()
MP.dps = 50
# delta as a function of epsilon >= 0, falling.
Curve = Callable[[Precise], Precise]


def up(value: Precise) -> float:
    """Return a double that is not below the value."""
    double = float(value)
    return double if value == double else math.nextafter(double, math.inf)


def gaussian_delta(epsilon: Precise, mu: Precise) -> Precise:
    """Return Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu): mu-GDP as a privacy curve.

    The difference is rounded up by more than its terms can be off: it never vanishes.
    """
    if mu == 0:
        return MP.zero
    eps, m = MP.mpf(epsilon), MP.mpf(mu)
    larger, place = MP.ncdf(m / 2 - eps / m), m / 2 + eps / m
    gap = larger - MP.exp(eps) * MP.ncdf(-place)
    return max(gap, MP.zero) + larger * (1 + place**2) * MP.mpf(10) ** -47


def gaussian_overlap(epsilon: Precise, mu: Precise) -> Precise:
    """Return 1 - delta, with all its digits."""
    if mu == 0:
        return MP.mpf(1)
    eps, m = MP.mpf(epsilon), MP.mpf(mu)
    return MP.ncdf(eps / m - m / 2) + MP.exp(eps) * MP.ncdf(-m / 2 - eps / m)


def laplace_delta(epsilon: Precise, ratio: Precise) -> Precise:
    """Return [1 - e^((eps - ratio)/2)]_+ for Laplace laws ``ratio`` scales apart."""
    return max(MP.zero, -MP.expm1((MP.mpf(epsilon) - ratio) / 2))


def laplace_overlap(epsilon: Precise, ratio: Precise) -> Precise:
    """Return 1 - delta, with all its digits."""
    return MP.exp(min(MP.zero, (MP.mpf(epsilon) - ratio) / 2))


def mixture(weights: Sequence[float], mus: Sequence[float]) -> Curve:
    """Return the average of Gaussian curves (the hockey stick is jointly convex)."""

    def delta(epsilon: Precise) -> Precise:
        terms = zip(weights, mus, strict=True)
        return MP.fsum(MP.mpf(w) * gaussian_delta(epsilon, mu) for w, mu in terms if w > 0)

    return delta


def epsilon_at(curve: Curve, delta: Precise, guess: float = 1.0) -> float:
    """Return an epsilon at which a falling curve is not above ``delta``, the least up to rounding.

    ``guess`` only saves work.
    """
    target = MP.mpf(delta)
    if curve(MP.zero) <= target:
        return 0.0

    def excess(epsilon: Precise) -> Precise:
        value = curve(epsilon)
        # A curve may vanish (Laplace noise), or be asked where it does (delta = 0).
        if value > 0 and target > 0:
            return MP.log(value / target)
        return MP.mpf(1000 if value > 0 else -1000)

    root = _crossing(excess, *_bracket(excess, max(guess, 1e-9)))
    if excess(root) > 0:
        raise ArithmeticError("the search for epsilon did not come to an end")
    return up(root)


def _bracket(excess: Curve, guess: float) -> tuple[Precise, Precise]:
    """Return points on both sides of the root, close together if the guess is good."""
    here, step = MP.mpf(guess), MP.mpf(1) / 10**7
    rises = excess(here) > 0
    # Fifty digits do not resolve the arguments of tails beyond.
    while MP.mpf(10) ** -300 < here < MP.mpf(10) ** 60:
        there = here * (1 + step) if rises else here / (1 + step)
        if (excess(there) > 0) != rises:
            return (here, there) if rises else (there, here)
        here, step = there, step * 16
    raise ArithmeticError("the curve does not reach this delta at any epsilon")


def _crossing(excess: Curve, low: Precise, high: Precise) -> Precise:
    """Return where a falling function crosses zero, from the right by less than 1e-20 of it."""
    ends = {"solver": "illinois", "tol": MP.mpf(10) ** -40, "maxsteps": 400, "verify": False}
    root = MP.findroot(excess, (low, high), **ends)
    return min(high, root * (1 + MP.mpf(10) ** -20))


def gaussian_epsilon(mu: float, delta: Precise) -> float:
    """Return the epsilon of mu-GDP; there is none without any delta."""
    if mu > 0 and delta <= 0:
        return math.inf
    return epsilon_at(lambda eps: gaussian_delta(eps, mu), delta)


def laplace_epsilon(ratio: Precise, delta: Precise) -> Precise:
    """Return the epsilon of two Laplace laws: ratio + 2 log(1 - delta)."""
    return max(MP.zero, MP.mpf(ratio) + 2 * MP.log1p(-MP.mpf(delta)))


def amplified(epsilon: Callable[[Precise], Precise], rate: float, delta: Precise) -> Precise:
    """Return log(1 + q (e^eps' - 1)), eps' taken at delta / q (Balle et al., 2018)."""
    if rate == 1:
        return epsilon(delta)
    if delta >= rate:
        return MP.zero
    return MP.log1p(rate * MP.expm1(epsilon(delta / rate)))


# Terms of a tail, and those summed at once.
_MOST_TERMS, _TERMS_AT_ONCE = 10**6, 2**13


def binomial_tail(most: int, trials: int, rate: float) -> Precise:
    """Return P(Bin(trials, rate) > most), rounded up; one if that is no tail at all.

    Terms in units of the first one beyond: each is the one before times a falling factor, so that
    the last factor bounds all that are left.
    """
    first = most + 1
    if first > trials:
        return MP.zero
    if rate == 1 or first <= trials * rate:
        return MP.one
    n, k, q = MP.mpf(trials), MP.mpf(first), MP.mpf(rate)
    log = MP.loggamma(n + 1) - MP.loggamma(k + 1) - MP.loggamma(n - k + 1)
    log += k * MP.log(q) + (n - k) * MP.log1p(-q)
    total, term, left = 1.0, 1.0, 0.0
    most_terms = min(trials - first, _MOST_TERMS)
    for start in range(0, most_terms, _TERMS_AT_ONCE):
        # One factor more than terms: it bounds all later ones, and is zero after the last of all.
        later = np.arange(start, min(start + _TERMS_AT_ONCE, most_terms) + 1, dtype=float)
        factors = (float(trials - first) - later) / (float(first + 1) + later) * (rate / (1 - rate))
        following = float(factors[-1]) * (1 + 2e-15)
        if following >= 1:
            return MP.one
        terms = term * np.cumprod(factors[:-1])
        total, term = total + float(terms.sum()), float(terms[-1])
        left = term * following / (1 - following)
        if left < 1e-15 * total:
            break
    # Five roundings a term in its product, one a term in the sum.
    rounding = (1 + 1e-15 * most_terms) * (1 + 1e-12)
    return MP.exp(log) * (total + left) * rounding


# --- Rényi divergences ---------------------------------------------------------------------------

# (distance, sampling rate, count)
Use = tuple[float, float, int]
# The orders at which the Rényi form of amplification by iteration is stated.
_STATED_ORDERS = tuple((1 + np.geomspace(1e-3, 1e5, 300)).tolist())
# More than summing a divergence in doubles can lose.
_UP = 1 + 5e-11
# Exponents that are not taken; no sampling rate makes a ratio's logarithm this much smaller.
_LARGEST_LEAN, _LARGEST_LOG = 700.0, 500.0
# Points of one sum, of all sums for one epsilon, and of what is summed at once.
_MOST_POINTS, _MOST_POINTS_OF_ALL, _AT_ONCE = 10**6, 6 * 10**7, 10**5


def sampled_epsilon(uses: Sequence[Use], orders: Sequence[float], delta: float) -> float:
    """Return the best epsilon over orders of uses (distance, sampling rate, count)."""
    distances, rates, counts = np.array(sorted(uses)).T
    left = float(_MOST_POINTS_OF_ALL)

    def total(order: float) -> float:
        nonlocal left
        left -= float(_points(order, distances[rates < 1]).sum())
        if not left >= 0:
            raise ArithmeticError(f"{len(uses)} different uses at such orders are too many")
        return math.fsum(counts * sampled_divergences(order, rates, distances)) * _UP

    return _best_epsilon(orders, total, delta)


def gaussian_run_epsilon(sum_of_squares: float, delta: float) -> float:
    """Return the best epsilon over the stated orders if D_alpha = alpha / 2 * sum of squares."""
    half = sum_of_squares / 2 * _UP
    return _best_epsilon(_STATED_ORDERS, lambda order: order * half, delta)


def _best_epsilon(
    orders: Sequence[float], divergence: Callable[[float], float], delta: float
) -> float:
    """Return the smallest epsilon of some orders: every one of them is a proof."""
    ranked = sorted(orders)

    @cache
    def epsilon(place: int) -> float:
        if not 0 <= place < len(ranked):
            return math.inf
        known = divergence(ranked[place])
        return best_epsilon(ranked[place], known, delta) if known < math.inf else math.inf

    here, stride = len(ranked) // 2, max(1, len(ranked) // 4)
    while stride:
        nearby = min((here, here - stride, here + stride), key=epsilon)
        here, stride = nearby, stride // 2 if nearby == here else stride
    return epsilon(here)


def _points(order: float, distances: FloatArray) -> FloatArray:
    """Return over how many points the divergences are summed."""
    steps = np.minimum(0.1, 0.3 / distances)
    terms: FloatArray = np.ceil((30.0 + order * distances) / steps)
    return terms


def sampled_divergences(order: float, rates: FloatArray, distances: FloatArray) -> FloatArray:
    """Return D_alpha((1-q) N(0) + q N(d) || N(0)) for rates and rising distances, rounded up.

    With 1 + y the likelihood ratio, E y = 0 and (alpha - 1) D = log E (1 + y)^alpha. So what is
    summed is (1 + y)^alpha - 1 - alpha y, which is never negative. The integrand is analytic in a
    strip of width pi / d around the line and falls like a Gaussian: the trapezoid rule errs by the
    exponential of minus the strip over its step.
    """
    with np.errstate(over="ignore"):
        divergences = order * distances**2 / 2 * _UP
    sampled = np.flatnonzero(rates < 1)
    most = float(_points(order, distances[sampled]).max(initial=0.0))
    if not most < _MOST_POINTS:
        worst = float(distances[sampled].max())
        raise ArithmeticError(f"the order {order:g} at distance {worst:g} is out of reach")
    for some in np.array_split(sampled, math.ceil(most * sampled.size / _AT_ONCE) or 1):
        if some.size:
            divergences[some] = _summed(order, rates[some, None], distances[some, None])
    return divergences


def _summed(order: float, rate: FloatArray, distance: FloatArray) -> FloatArray:
    """Return the divergences of a few uses on grids of equally many points."""
    step = np.minimum(0.1, 0.3 / distance)
    x = -15.0 + step * np.arange(float(_points(order, distance).max()))
    lean = distance * x - distance**2 / 2
    # Ratios beyond all numbers are known by their logarithms; the one of 1 + y is that of y there.
    y = rate * np.expm1(np.minimum(lean, _LARGEST_LEAN))
    log = np.where(lean > _LARGEST_LEAN, np.log(rate) + lean, np.log1p(y))
    logs = _log_beyond_linear(y, log, order) - x**2 / 2
    log_sums = special.logsumexp(logs, axis=1) + np.log(step[:, 0] / math.sqrt(2 * math.pi))
    divergences: FloatArray = np.logaddexp(0.0, log_sums) / (order - 1) * _UP
    return divergences


def _log_beyond_linear(y: Any, log: Any, order: float) -> Any:
    """Return log((1 + y)^a - 1 - a y), the logarithm of 1 + y given."""
    small = np.abs(y) * max(order, 1.0) < 1e-2
    near = np.where(small, y, 0.0)
    term, total = np.full(near.shape, order), np.zeros(near.shape)
    for k in range(2, 10):  # binomial coefficients times y^(k-2)
        term = term * (order - k + 1) / k
        total += term
        term = term * near
    with np.errstate(divide="ignore"):
        series = np.log(total) + 2 * np.log(np.abs(y))
    far = np.where(small, 1.0, y)
    grown = order * np.where(small, math.log(2.0), log)
    rest = -(1 + order * far) * np.exp(-np.maximum(grown, -700.0))
    rest = np.where(log > _LARGEST_LOG, -order * np.exp((1 - order) * log), rest)
    exact = grown + np.log1p(np.where(grown > -700.0, rest, 0.0))
    low = np.log(np.maximum(np.expm1(np.minimum(grown, 700.0)) - order * far, 1e-300))
    return np.where(small, series, np.where(grown > 1, exact, low))


def best_epsilon(order: float, divergence: float, delta: float) -> float:
    """Return the smallest epsilon that (alpha, zeta)-RDP implies at ``delta``.

    An event has the probabilities p and r under the two laws, and the divergence of that one bit
    is at most zeta: p^alpha r^(1-alpha) + (1-p)^alpha (1-r)^(1-alpha) <= e^((alpha-1) zeta). Such
    pairs form a convex set. The tangent at any point of its border, p - s r <= p* - s r*, is
    (log s, p* - s r*)-DP, whatever led to the point; here it is the one with the delta asked for.
    """
    zeta, target = MP.mpf(divergence), MP.mpf(delta)
    if zeta == 0:
        return 0.0
    if target * order >= 1:
        return up(max(MP.zero, zeta + MP.log1p(-target)))

    def excess(log_p: Precise) -> Precise:
        return MP.log(target / _tangent(order, zeta, log_p)[1])

    # At p = delta the tangent's delta is smaller, at p = 1 it is 1 / alpha.
    log_p = _crossing(excess, MP.log(target), MP.log1p(-(MP.mpf(10) ** -30)))
    for _ in range(60):
        slope, reached = _tangent(order, zeta, log_p)
        if reached <= target:
            return up(max(MP.zero, MP.log(slope)))
        log_p += log_p * MP.mpf(10) ** -18
    raise ArithmeticError(f"no tangent of order {order:g} has the delta {delta:g}")


def _tangent(order: float, zeta: Precise, log_p: Precise) -> tuple[Precise, Precise]:
    """Return slope and delta of the tangent at p: Newton's method on the logarithm of r."""
    a, p = MP.mpf(order), MP.exp(log_p)
    bound, log_rest = (a - 1) * zeta, MP.log1p(-p)
    # From the left of the root (r too small), where the convex divergence is too large.
    log_r = log_p - (bound - log_p) / (a - 1)
    for _ in range(400):
        first = MP.exp(a * log_p + (1 - a) * log_r)
        second = MP.exp(a * log_rest + (1 - a) * MP.log1p(-MP.exp(log_r)))
        r = MP.exp(log_r)
        slope = (1 - a) * (first - second * r / (1 - r)) / (first + second)
        move = (MP.log(first + second) - bound) / slope
        log_r -= move
        if abs(move) <= abs(log_r) * MP.mpf(10) ** -35:
            break
    else:
        raise ArithmeticError(f"no pair of probabilities has the divergence {float(zeta):g}")
    r = MP.exp(log_r)
    above, below = p / r, (1 - p) / (1 - r)
    slope = (a - 1) / a * (above**a - below**a) / (above ** (a - 1) - below ** (a - 1))
    return slope, p - slope * r
