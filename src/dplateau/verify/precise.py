"""Closed-form privacy curves in fifty digits, written as the theorems state them.

Rényi divergences of sampled Gaussians, and the best (epsilon, delta) that one implies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpmath import MPContext  # type: ignore[import-untyped]
from scipy import optimize, special

# A number of fifty digits; mpmath has no types, so this is only a name.
Precise = Any


def arithmetic(digits: int) -> Any:
    """Return an arithmetic of that many digits, whose setting nobody else shares."""
    context = MPContext()
    context.dps = digits
    return context


MP = arithmetic(50)
# delta as a function of epsilon >= 0, falling.
Curve = Callable[[Precise], Precise]


def gaussian_delta(epsilon: Precise, mu: Precise) -> Precise:
    """Return Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu): mu-GDP as a privacy curve."""
    if mu == 0:
        return MP.zero
    eps, m = MP.mpf(epsilon), MP.mpf(mu)
    return MP.ncdf(m / 2 - eps / m) - MP.exp(eps) * MP.ncdf(-m / 2 - eps / m)


def laplace_delta(epsilon: Precise, ratio: Precise) -> Precise:
    """Return [1 - e^((eps - ratio)/2)]_+ for Laplace laws ``ratio`` scales apart."""
    return max(MP.zero, -MP.expm1((MP.mpf(epsilon) - ratio) / 2))


def mixture(weights: Sequence[float], mus: Sequence[float]) -> Curve:
    """Return the average of Gaussian curves (the hockey stick is jointly convex)."""

    def delta(epsilon: Precise) -> Precise:
        terms = zip(weights, mus, strict=True)
        return MP.fsum(MP.mpf(w) * gaussian_delta(epsilon, mu) for w, mu in terms if w > 0)

    return delta


def epsilon_at(curve: Curve, delta: Precise, guess: float = 1.0) -> Precise:
    """Return the epsilon at which a falling curve reaches ``delta``, to twenty digits.

    ``guess`` only saves work.
    """
    target = MP.mpf(delta)
    if curve(MP.zero) <= target:
        return MP.zero

    def excess(epsilon: Precise) -> Precise:
        value = curve(epsilon)
        if value > 0 and target == 0:  # pure epsilon: where the curve vanishes
            return MP.mpf(1000)
        # A curve may vanish (Laplace): any finite negative number keeps the search going.
        return MP.log(value / target) if value > 0 else MP.mpf(-1000)

    low, high = _bracket(excess, max(guess, 1e-9))
    return _crossing(excess, low, high)


Point = tuple[Precise, Precise]


def _bracket(excess: Curve, guess: float) -> tuple[Point, Point]:
    """Return points on both sides of the root, close together if the guess is good."""
    middle = MP.mpf(guess)
    here = (middle, excess(middle))
    step = MP.mpf(1) / 10**7
    while True:
        factor = 1 + step if here[1] > 0 else 1 / (1 + step)
        there = (here[0] * factor, excess(here[0] * factor))
        if (there[1] > 0) != (here[1] > 0):
            return (here, there) if here[1] > 0 else (there, here)
        here, step = there, step * 16
        if not MP.mpf(10) ** -300 < here[0] < MP.mpf(10) ** 300:
            raise ArithmeticError("the curve does not reach this delta at any epsilon")


def _crossing(excess: Curve, low: Point, high: Point) -> Precise:
    """Return the root between two points by false position, halving what stays (Illinois)."""
    (a, fa), (b, fb) = low, high
    last = 0
    for _ in range(200):
        if b - a <= abs(b) * MP.mpf(10) ** -20:
            break
        c = (a * fb - b * fa) / (fb - fa)
        fc = excess(c)
        if abs(fc) < MP.mpf(10) ** -22:
            return c
        if fc > 0:
            fb = fb / 2 if last > 0 else fb
            a, fa, last = c, fc, 1
        else:
            fa = fa / 2 if last < 0 else fa
            b, fb, last = c, fc, -1
    return b


def gaussian_epsilon(mu: float, delta: Precise) -> Precise:
    """Return the epsilon of mu-GDP."""
    return epsilon_at(lambda eps: gaussian_delta(eps, mu), delta, _rough_epsilon(mu, float(delta)))


def _rough_epsilon(mu: float, delta: float) -> float:
    """Return about the same in doubles: where the search in many digits begins."""
    if mu == 0 or not 1e-300 < delta < 1:
        return 1.0

    def excess(eps: float) -> float:
        upper = float(special.log_ndtr(mu / 2 - eps / mu))
        lower = eps + float(special.log_ndtr(-mu / 2 - eps / mu))
        return upper + math.log(-math.expm1(min(lower - upper, -1e-16))) - math.log(delta)

    # P(loss > eps) is more than delta(eps), so this is too large.
    most = mu * mu / 2 - mu * float(special.ndtri(delta)) + 1e-12
    if excess(0.0) <= 0 or excess(most) >= 0:
        return 1.0
    return float(optimize.brentq(excess, 0.0, most))


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


_MP = arithmetic(40)
# The orders at which the Rényi form of amplification by iteration is stated.
_STATED_ORDERS = tuple((1 + np.geomspace(1e-3, 1e5, 300)).tolist())

Use = tuple[float, float, int]


def sampled_epsilon(uses: Sequence[Use], orders: Sequence[float], delta: float) -> float:
    """Return the best epsilon over orders of uses (distance, sampling rate, count)."""
    rough = [
        sum(count * _quick_divergence(order, rate, d) for d, rate, count in uses)
        for order in orders
    ]
    order = _best_order(orders, rough, delta)
    parts = (count * sampled_divergence(order, rate, d) for d, rate, count in uses)
    return float(best_epsilon(order, _MP.fsum(parts), delta))


def gaussian_run_epsilon(sum_of_squares: float, delta: float) -> float:
    """Return the best epsilon over the stated orders if D_alpha = alpha / 2 * sum of squares."""
    half = sum_of_squares / 2
    order = _best_order(_STATED_ORDERS, [order * half for order in _STATED_ORDERS], delta)
    return float(best_epsilon(order, _MP.mpf(order) * half, delta))


def _best_order(orders: Sequence[float], values: Sequence[float], delta: float) -> float:
    """Return the order with the smallest epsilon, in doubles: a coarse look, then a close one."""

    def epsilon(place: int) -> float:
        return max(0.0, -_highest(orders[place], values[place], delta, 1e-3)[1])

    stride = max(1, len(orders) // 20)
    centre = min(range(0, len(orders), stride), key=epsilon)
    near = range(max(0, centre - stride), min(len(orders), centre + stride + 1))
    return orders[min(near, key=epsilon)]


def sampled_divergence(order: float, rate: float, distance: float) -> Precise:
    """Return D_alpha((1-q) N(0) + q N(d) || N(0)), by the trapezoid rule in forty digits.

    The integrand is analytic and falls like a Gaussian, so halving the step squares the error;
    the step is halved until nothing changes any more.
    """
    alpha, q, d = _MP.mpf(order), _MP.mpf(rate), _MP.mpf(distance)
    if rate == 1:
        return alpha * d * d / 2
    low, high = -14, 14 + math.ceil(order * distance)

    def integrand(x: Precise) -> Precise:
        ratio = 1 - q + q * _MP.exp(d * x - d * d / 2)
        return _MP.exp(alpha * _MP.log(ratio) - x * x / 2)

    step = _MP.mpf(1) / 2
    total = _MP.fsum(integrand(step * k) for k in range(2 * low, 2 * high + 1))
    for _ in range(12):
        step /= 2
        reach = (int(low / step), int(high / step))
        extra = _MP.fsum(integrand(step * k) for k in range(reach[0] + 1, reach[1], 2))
        before, total = total, total + extra
        # The sum doubles when the step is halved, once the rule has converged.
        if abs(total - 2 * before) <= abs(total) * _MP.mpf(10) ** -30:
            break
    integral = total * step / _MP.sqrt(2 * _MP.pi)
    return max(_MP.zero, _MP.log(integral) / (alpha - 1))


def _quick_divergence(order: float, rate: float, distance: float) -> float:
    """Return about the same in doubles: enough to tell which order is best."""
    if rate == 1:
        return order * distance**2 / 2
    x = np.linspace(-10.0, 10.0 + order * distance, 2000 + int(20 * order * distance))
    growth = distance * x - distance**2 / 2
    logs = order * np.logaddexp(math.log1p(-rate), math.log(rate) + growth) - x**2 / 2
    integral = float(special.logsumexp(logs)) + math.log((x[1] - x[0]) / math.sqrt(2 * math.pi))
    return max(0.0, integral / (order - 1))


def best_epsilon(order: float, divergence: Precise, delta: float) -> Precise:
    """Return the smallest epsilon that (alpha, zeta)-RDP implies at ``delta``.

    An event has the probabilities p and r under the two laws, and the divergence of that one bit
    is at most zeta. So epsilon is the largest log((p - delta) / r) over all pairs with
    p^alpha r^(1-alpha) + (1-p)^alpha (1-r)^(1-alpha) <= e^((alpha-1) zeta).
    """
    log_excess, _ = _highest(order, float(divergence), delta, 1e-8)
    ends = (log_excess, math.log1p(-delta))
    return max(_MP.zero, *(_precise_ratio(order, divergence, delta, x) for x in ends))


def _highest(order: float, divergence: float, delta: float, xatol: float) -> tuple[float, float]:
    """Return log(p - delta) at the best p, and minus the epsilon there, in doubles.

    The pairs allowed form a convex set and the ratio's level sets are half-planes, so there is one
    hill.
    """
    log_moment = (order - 1) * divergence

    def depth(log_excess: float) -> float:
        return -_log_ratio(order, log_moment, delta, delta + math.exp(log_excess))

    ends = (math.log(delta) - 20.0, math.log1p(-delta))
    found = optimize.minimize_scalar(depth, bounds=ends, method="bounded", options={"xatol": xatol})
    return float(found.x), float(found.fun)


def _log_ratio(order: float, log_moment: float, delta: float, p: float) -> float:
    """Return log((p - delta) / r) for the smallest r that the divergence allows, in doubles."""
    if p >= 1:
        return log_moment / (order - 1) + math.log1p(-delta)
    log_p, log_rest = math.log(p), math.log1p(-p)

    def excess(log_r: float) -> float:
        first = order * log_p + (1 - order) * log_r
        second = order * log_rest + (1 - order) * math.log1p(-math.exp(log_r))
        return float(np.logaddexp(first, second)) - log_moment

    # At r = p the divergence is zero; it grows as r falls.
    low = log_p - (log_moment - log_p) / (order - 1) - 1.0
    if log_moment == 0:
        return math.log(p - delta) - log_p
    return math.log(p - delta) - float(optimize.brentq(excess, low, log_p, maxiter=1000))


def _precise_ratio(order: float, divergence: Precise, delta: float, log_excess: float) -> Precise:
    """Return the same in forty digits: Newton's method on the logarithm of r."""
    a, d = _MP.mpf(order), _MP.mpf(delta)
    p = d + _MP.exp(log_excess)
    if p >= 1 or divergence == 0:
        return divergence + _MP.log1p(-d)
    bound = (a - 1) * divergence
    # From the left of the root (r too small), where the convex divergence is too large.
    log_r = _MP.log(p) - (bound - _MP.log(p)) / (a - 1)
    for _ in range(200):
        first = a * _MP.log(p) + (1 - a) * log_r
        second = a * _MP.log1p(-p) + (1 - a) * _MP.log1p(-_MP.exp(log_r))
        moment = _MP.exp(first) + _MP.exp(second)
        r = _MP.exp(log_r)
        slope = (1 - a) * (_MP.exp(first) - _MP.exp(second) * r / (1 - r)) / moment
        move = (_MP.log(moment) - bound) / slope
        log_r -= move
        if abs(move) <= abs(log_r) * _MP.mpf(10) ** -25:
            break
    return _MP.log(p - d) - log_r
