"""Closed-form privacy curves in fifty digits, written as the theorems state them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scipy import optimize, special

from dplateau.verify._dp_accounting import Precise, arithmetic

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
