"""The one interface of every privacy curve."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from dplateau.curves.pairs import DominatingPair
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray

# Epsilons tried when a trade-off curve is read off delta(epsilon): any choice is valid.
_TRADEOFF_EPSILONS = [0.0, *np.geomspace(1e-3, 600.0, 49).tolist()]
_TRADEOFF_ROUNDS, _TRADEOFF_POINTS = 4, 8


class PrivacyCurve(ABC):
    """An upper bound on the privacy loss of one release, at every delta.

    All numbers are claims: ``delta`` and ``epsilon`` round up, ``tradeoff`` rounds down. At
    delta = 0 epsilon is infinite unless the privacy loss is bounded (Laplace noise).
    """

    # What fails outright with this chance, and is charged to delta beside everything else.
    extra_delta: float = 0.0

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return a delta for which the release is (epsilon, delta)-private; epsilon >= 0."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Return an epsilon >= 0 for which the release is (epsilon, delta)-private."""

    def holds(self, epsilon: float, delta: float) -> bool:
        """Return whether the curve claims that the release is (epsilon, delta)-private.

        Curves whose delta is an inversion of epsilon(delta) answer sooner by the latter.
        """
        return self.delta(epsilon) <= delta

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
        """Return delta at many epsilons; accurate around the delta ``center``, valid everywhere."""
        return np.array([self.delta(float(epsilon)) for epsilon in epsilons])

    def tradeoff(self, fpr: float) -> float:
        """Return a lower bound on any attack's false-negative rate at false-positive rate ``fpr``.

        The default reads it off delta(epsilon): 1 - fnr <= e^eps fpr + delta in both orders.
        """
        alpha = checked_rate(fpr)
        grid = _TRADEOFF_EPSILONS
        best, place = self._best_line(alpha, grid, 0.0)
        for _ in range(_TRADEOFF_ROUNDS):
            low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
            grid = np.linspace(low, high, _TRADEOFF_POINTS).tolist()
            best, place = self._best_line(alpha, grid, best)
        return best * (1 - 1e-12)

    def _best_line(self, alpha: float, grid: list[float], best: float) -> tuple[float, int]:
        """Return the best lower bound at ``alpha``, not below ``best``, and where it is."""
        top, place = -math.inf, 0
        for i, eps in enumerate(grid):
            growth = math.exp(eps)
            if max(1.0 - growth * alpha, (1.0 - alpha) / growth) <= max(best, top):
                break  # not even delta = 0 would help from here on
            free = 1.0 - self.delta(eps)
            line = max(free - growth * alpha, (free - alpha) / growth)
            if line > top:
                top, place = line, i
        return max(best, top), place

    def rdp(self, alpha: float) -> float:
        """Return the Rényi divergence bound of order ``alpha``, or refuse."""
        raise NotApplicable(
            f"{type(self).__name__} is known through delta(epsilon) only, which bounds no Rényi "
            f"divergence of order {alpha:g}; use epsilon(delta), delta(epsilon) or tradeoff(fpr)"
        )

    def group(self, size: int) -> PrivacyCurve:
        """Return the curve for ``size`` records that change together."""
        from dplateau.curves.combined import GroupCurve

        return self if checked_size(size) == 1 else GroupCurve(self, size)

    def loss_parts(self) -> tuple[tuple[DominatingPair, int], ...] | None:
        """Return the dominating pairs (and their repeats) this curve is made of, if it is so made.

        Curves that have them compose exactly, as privacy-loss distributions; ``extra_delta`` comes
        on top of the pairs, in both orders.
        """
        return None


def checked_epsilon(epsilon: float) -> float:
    """Refuse an epsilon that is negative or not a number."""
    if math.isnan(epsilon) or epsilon < 0:
        raise InvalidInput(f"epsilon must be at least 0; got {epsilon!r}")
    return float(epsilon)


def checked_delta(delta: float) -> float:
    """Refuse a delta outside [0, 1]; delta = 0 asks for pure epsilon."""
    if math.isnan(delta) or not 0 <= delta <= 1:
        raise InvalidInput(f"delta must lie in [0, 1]; got {delta!r}")
    return float(delta)


def checked_rate(fpr: float) -> float:
    """Refuse a false-positive rate outside [0, 1]."""
    if math.isnan(fpr) or not 0 <= fpr <= 1:
        raise InvalidInput(f"fpr must lie in [0, 1]; got {fpr!r}")
    return float(fpr)


def checked_order(alpha: float) -> float:
    """Refuse a Rényi order of at most one."""
    if not alpha > 1 or math.isinf(alpha):
        raise InvalidInput(f"a Rényi order must be finite and above 1; got {alpha!r}")
    return float(alpha)


def checked_size(size: int) -> int:
    """Refuse a group without records."""
    if isinstance(size, bool) or not math.isfinite(size) or size != int(size) or size < 1:
        raise InvalidInput(f"a group holds a whole number of records, at least 1; got {size!r}")
    return int(size)
