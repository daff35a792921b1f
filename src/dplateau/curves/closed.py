"""Curves with closed forms: Gaussian (mu-GDP) and Laplace."""

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
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics import normal
from dplateau.numerics.pairs import DominatingPair, LaplacePair, PoissonPair


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

    def deltas(self, epsilons: FloatArray, centre: float) -> FloatArray:
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
    """No easier to attack than two Laplace laws of scale v whose centres are ``ratio`` * v apart.

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
