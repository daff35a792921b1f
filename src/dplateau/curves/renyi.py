"""Curves known through Rényi divergences at several orders."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.curves import conversions
from dplateau.curves.base import (
    PrivacyCurve,
    checked_delta,
    checked_epsilon,
    checked_order,
)
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray


@dataclass(frozen=True)
class RenyiCurve(PrivacyCurve):
    """(orders[i], values[i])-RDP for every i; epsilon is the best over orders and conversions.

    >>> round(RenyiCurve((10.0,), (1.0,)).epsilon(1e-5), 6)
    1.917997
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        """Keep finite values only, in increasing order."""
        if len(self.orders) != len(self.values) or not self.orders:
            raise InvalidInput("a Rényi curve needs one value for each of its orders")
        pairs = sorted(
            (checked_order(order), float(value))
            for order, value in zip(self.orders, self.values, strict=True)
        )
        if any(math.isnan(value) or value < 0 for _, value in pairs):
            raise InvalidInput("Rényi divergences are at least 0")
        object.__setattr__(self, "orders", tuple(order for order, _ in pairs))
        object.__setattr__(self, "values", tuple(value for _, value in pairs))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon over orders, by the optimal conversion."""
        target = checked_delta(delta)
        if target == 0:
            return math.inf
        return conversions.rdp_epsilon(np.array(self.orders), np.array(self.values), target)[0]

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta over orders, by the optimal conversion."""
        return conversions.rdp_delta(
            np.array(self.orders), np.array(self.values), checked_epsilon(epsilon)
        )[0]

    def deltas(self, epsilons: FloatArray, centre: float) -> FloatArray:
        """Return delta at many epsilons, all orders converted at once."""
        orders, values = np.array(self.orders), np.array(self.values)
        table: FloatArray = conversions.optimal_delta(
            orders[:, None], values[:, None], np.asarray(epsilons)
        )
        return np.asarray(table.min(axis=0))

    def rdp(self, alpha: float) -> float:
        """Interpolate: (alpha - 1) D_alpha is convex in alpha and zero at one."""
        order = checked_order(alpha)
        if order > self.orders[-1]:
            raise NotApplicable(
                f"this bound holds up to order {self.orders[-1]:g}; asked for {order:g}"
            )
        knots = np.r_[1.0, self.orders]
        log_moments = np.r_[0.0, (np.array(self.orders) - 1) * np.array(self.values)]
        return float(np.interp(order, knots, log_moments)) / (order - 1) * (1 + 1e-14)

    def plus(self, other: RenyiCurve) -> RenyiCurve:
        """Compose two releases: divergences add, at the orders that both reach."""
        top = min(self.orders[-1], other.orders[-1])
        orders = sorted({*self.orders, *other.orders})
        kept = tuple(order for order in orders if order <= top)
        return RenyiCurve(kept, tuple(self.rdp(order) + other.rdp(order) for order in kept))
