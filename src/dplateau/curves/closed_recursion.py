"""The limit of a hockey-stick recursion over sampled steps, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon
from dplateau.errors import InvalidInput

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
