"""Curves with closed forms.

Gaussian (mu-GDP), Laplace, Rényi divergences that grow linearly in the order, and the limit of a
hockey-stick recursion over sampled steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.curves.base import (
    PrivacyCurve,
    checked_delta,
    checked_epsilon,
    checked_order,
    checked_rate,
    checked_size,
)
from dplateau.curves.pairs import DominatingPair, LaplacePair, PoissonPair
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics import normal


@dataclass(frozen=True)
class GaussianCurve(PrivacyCurve):
    """mu-GDP: no easier to attack than N(0, 1) against N(mu, 1).

    >>> round(GaussianCurve(1.0).epsilon(1e-5), 6)
    4.377178
    """

    mu: float

    def __post_init__(self) -> None:
        """Refuse what is no distance."""
        if math.isnan(self.mu) or self.mu < 0:
            raise InvalidInput(f"mu must be at least 0; got {self.mu!r}")

    def delta(self, epsilon: float) -> float:
        """Return the Gaussians' hockey-stick divergence (Dong-Roth-Su, Corollary 2.13)."""
        return float(normal.gaussian_delta(checked_epsilon(epsilon), self.mu))

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
        """Return all hockey sticks at once."""
        return np.asarray(normal.gaussian_delta(np.asarray(epsilons, dtype=np.float64), self.mu))

    def epsilon(self, delta: float) -> float:
        """Invert delta(epsilon), rounding up; infinite at delta = 0."""
        target = checked_delta(delta)
        if target == 0:
            return math.inf if self.mu > 0 else 0.0
        return float(normal.gaussian_epsilon(target, self.mu))

    def tradeoff(self, fpr: float) -> float:
        """Return Phi(Phi^{-1}(1 - fpr) - mu), rounded down."""
        return float(normal.gaussian_tradeoff(checked_rate(fpr), self.mu))

    def rdp(self, alpha: float) -> float:
        """Return alpha mu^2 / 2."""
        return checked_order(alpha) * self.mu**2 / 2 * (1 + 1e-15)

    def group(self, size: int) -> GaussianCurve:
        """Return (size * mu)-GDP (Dong-Roth-Su, Theorem 2.14)."""
        return GaussianCurve(checked_size(size) * self.mu)

    def loss_parts(self) -> tuple[tuple[DominatingPair, int], ...]:
        """Return the pair itself."""
        return ((PoissonPair(sampling_rate=1.0, step=self.mu), 1),)


@dataclass(frozen=True)
class LaplaceCurve(PrivacyCurve):
    """No easier to attack than two Laplace laws of scale v whose centers are ``ratio`` * v apart.

    >>> LaplaceCurve(2.0).delta(2.0)
    0.0
    """

    ratio: float

    def __post_init__(self) -> None:
        """Refuse what is no distance."""
        if math.isnan(self.ratio) or self.ratio < 0:
            raise InvalidInput(f"ratio must be at least 0; got {self.ratio!r}")

    def delta(self, epsilon: float) -> float:
        """Return [1 - exp((epsilon - ratio) / 2)]_+."""
        return float(normal.laplace_delta(checked_epsilon(epsilon), self.ratio))

    def epsilon(self, delta: float) -> float:
        """Invert delta(epsilon), rounding up; never above ``ratio``, the pure epsilon."""
        return float(normal.laplace_epsilon(checked_delta(delta), self.ratio))

    def tradeoff(self, fpr: float) -> float:
        """Return the trade-off of two Laplace laws, rounded down (Dong-Roth-Su, section 2.2)."""
        rate, shrink = checked_rate(fpr), math.exp(-self.ratio)
        if rate <= shrink / 2:
            missed = 1 - rate / shrink if shrink > 0 else 1.0
        elif rate <= 0.5:
            missed = shrink / (4 * rate)
        else:
            missed = shrink * (1 - rate)
        return max(0.0, missed - 1e-15) * (1 - 1e-14)

    def rdp(self, alpha: float) -> float:
        """Return the Rényi divergence of two Laplace laws (Mironov 2017, Proposition 6)."""
        order = checked_order(alpha)
        k, total = order - 1, 2 * order - 1
        if k * self.ratio > 500:
            rest = k / order * math.exp(-total * self.ratio)
            log_moment = k * self.ratio + math.log(order / total) + math.log1p(rest)
        else:
            # The linear terms of both exponentials cancel exactly, so leave them out of the sum.
            excess = order * _beyond_linear(k * self.ratio) + k * _beyond_linear(
                -order * self.ratio
            )
            log_moment = math.log1p(excess / total)
        return log_moment / k * (1 + 1e-13)

    def group(self, size: int) -> LaplaceCurve:
        """Return the curve at ``size`` times the distance (the family is log-concave)."""
        return LaplaceCurve(checked_size(size) * self.ratio)

    def loss_parts(self) -> tuple[tuple[DominatingPair, int], ...]:
        """Return the pair itself."""
        return ((LaplacePair(ratio=self.ratio), 1),)


def _beyond_linear(x: float) -> float:
    """Return e^x - 1 - x without cancellation."""
    if abs(x) > 0.5:
        return math.expm1(x) - x
    term, total = x * x / 2, 0.0
    for j in range(3, 20):
        total += term
        term *= x / j
    return total


@dataclass(frozen=True)
class ConcentratedCurve(PrivacyCurve):
    """D_alpha <= alpha * rate at every order, and epsilon = rate + 2 sqrt(rate log(1/delta)).

    The classic conversion at its best order (Mironov 2017, Proposition 3; Bun and Steinke 2016,
    Proposition 1.3). Only for comparison: a Gaussian curve with mu^2 = 2 rate is never worse.

    >>> round(ConcentratedCurve(0.5).epsilon(1e-5), 4)
    5.2985
    """

    rate: float

    def __post_init__(self) -> None:
        """Refuse what is no divergence."""
        if not 0 <= self.rate < math.inf:
            raise InvalidInput(f"a rate must be finite and at least 0; got {self.rate!r}")

    def delta(self, epsilon: float) -> float:
        """Return e^{-(epsilon - rate)^2 / (4 rate)}, 1 up to epsilon = rate."""
        above = checked_epsilon(epsilon) - self.rate
        if self.rate == 0:
            return 0.0
        if above <= 0:
            return 1.0
        exponent = above * above / (4 * self.rate)
        return min(1.0, math.exp(-exponent * (1 - 1e-14)) * (1 + 1e-14) + 5e-324)

    def epsilon(self, delta: float) -> float:
        """Return rate + 2 sqrt(rate log(1/delta)), rounded up."""
        target = checked_delta(delta)
        if self.rate == 0:
            return 0.0
        if target == 0:
            return math.inf
        return (self.rate + 2 * math.sqrt(-self.rate * math.log(target))) * (1 + 1e-13)

    def rdp(self, alpha: float) -> float:
        """Return alpha * rate."""
        return checked_order(alpha) * self.rate * (1 + 1e-15)


_UP = 1 + 1e-12


@dataclass(frozen=True)
class ClosedRecursionCurve(PrivacyCurve):
    """eps(delta) = m^2/2 + m sqrt(2 ln(1 + q (1 - delta)/delta)).

    The fixed point of e <- (1-q) theta e + q theta stays below delta if theta is at most
    delta / (q + (1-q) delta), and theta(m) <= exp(-(eps/m - m/2)^2 / 2).

    >>> round(ClosedRecursionCurve(1.0, 1.0).epsilon(1e-5), 4)
    5.2985
    """

    mu: float
    sampling_rate: float

    def __post_init__(self) -> None:
        """Refuse what is no distance or no rate."""
        if not self.mu > 0 or not 0 < self.sampling_rate <= 1:
            raise InvalidInput(f"needs mu > 0 and a rate in (0, 1]; got {self!r}")

    def epsilon(self, delta: float) -> float:
        """Return the closed form."""
        level = checked_delta(delta)
        if level == 0:
            return math.inf
        odds = self.sampling_rate * (1 - level) / level
        return self.mu * (self.mu / 2 + math.sqrt(2 * math.log1p(odds))) * _UP

    def delta(self, epsilon: float) -> float:
        """Return q / (q - 1 + e^{x^2/2}) with x = eps/m - m/2, or 1 below m^2/2."""
        x = checked_epsilon(epsilon) / self.mu - self.mu / 2
        if x <= 0:
            return 1.0
        tail = math.exp(-min(x * x / 2, 700.0))  # divided out, so that nothing overflows
        q = self.sampling_rate
        return min(1.0, q * tail / (1 - (1 - q) * tail) * _UP**8)
