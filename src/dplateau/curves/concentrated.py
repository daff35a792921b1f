"""Rényi divergences that grow linearly in the order, by the conversion of the literature."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon, checked_order
from dplateau.errors import InvalidInput


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
