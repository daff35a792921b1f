"""Curves known through Rényi divergences at several orders, and those of the sampled Gaussian.

D_alpha((1-q) N(0,1) + q N(r,1) || N(0,1)), the larger of the two orders (Mironov, Talwar, Zhang
2019, "Rényi differential privacy of the sampled Gaussian mechanism", section 3), with r = 1 / z, at
integer and at real orders.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from dplateau.curves import conversions
from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon, checked_order
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.numerics.solve import log_expm1

# Real orders are integrated up to here; above it only whole orders are used (the binomial sum).
LARGEST_REAL_ORDER = 64.0
LARGEST_ORDER = 2.0**14
_ROUND_UP = 1 + 1e-12
_EPS = float(np.finfo(float).eps)
# Spacing at which integrands are scanned before they are integrated.
_COARSE = 0.25
# Centers this many standard deviations apart never mix.
_FAR = 100.0


def sampled_gaussian_rdp(orders: FloatArray, sampling_rate: float, step: float) -> FloatArray:
    """Return the divergence at each order, rounded up; real orders above 64 use the next integer.

    ``step`` is the distance of the two means in units of the noise: 1 / noise_multiplier.

    >>> float(sampled_gaussian_rdp(np.array([2.0]), 1.0, 0.5)[0]).__round__(9)
    0.25
    """
    alphas = np.asarray(orders, dtype=float)
    if sampling_rate == 1.0:
        return alphas * (step**2 / 2 * _ROUND_UP)
    divergences = np.empty_like(alphas)
    whole = alphas == np.floor(alphas)
    real = ~whole & (alphas <= LARGEST_REAL_ORDER)
    for i in np.flatnonzero(real):
        divergences[i] = _log_moment_real(float(alphas[i]), sampling_rate, step)
    for i in np.flatnonzero(~real):
        # (alpha - 1) D_alpha grows with alpha, so rounding the order up is safe.
        divergences[i] = _log_moment_whole(math.ceil(alphas[i]), sampling_rate, step)
    rounded: FloatArray = divergences / (alphas - 1) * _ROUND_UP
    return rounded


def _log_moment_whole(order: int, q: float, r: float) -> float:
    """Return log E_N(0,1)[(1 - q + q e^{rx - r^2/2})^order], by the binomial theorem.

    With p_k the binomial probabilities this is log(1 + sum_k p_k (e^{k (k-1) r^2 / 2} - 1)): only
    positive terms, so a small moment keeps its digits.
    """
    k = np.arange(2, order + 1, dtype=float)
    sizes = gammaln(order + 1.0), gammaln(k + 1), gammaln(order - k + 1)
    chance = (k - order) * math.log1p(-q), -k * math.log(q)
    growth = k * (k - 1) * (r * r / 2)
    log_terms = sizes[0] - sizes[1] - sizes[2] - chance[0] - chance[1] + log_expm1(growth)
    # Every summand is good to a few units in the last place of its own size.
    slack = 8 * _EPS * (sizes[0] + sizes[1] + sizes[2] + chance[0] + chance[1] + growth)
    return float(np.logaddexp(0.0, np.logaddexp.reduce(log_terms + slack) + 1e-12))


def _log_moment_real(order: float, q: float, r: float) -> float:
    """Return the same log moment at a real order, by the trapezoidal rule.

    With u the density ratio minus one, E[u] = 0, so (1 + u)^order - 1 - order u >= 0 is summed
    instead of the power. It is analytic in the strip |Im x| < pi / r and shrinks there with the
    sampling rate, so the rule converges geometrically in 1 / spacing and relative to its value.
    """
    if r >= _FAR:
        return _log_moment_far(order, q, r)
    width = min(2.0, 0.9 * math.pi / r)
    parts = math.ceil(_COARSE * (45.0 + width**2) / (2 * math.pi * width))

    def log_integrand(x: FloatArray) -> FloatArray:
        return _log_power_excess(order, r * x - r * r / 2, q) - x * x / 2

    # The integrand has unit-width bumps at 0 and at order * r; refine where either counts.
    near = np.arange(-64.0, 65.0)
    x: FloatArray = _COARSE * np.union1d(near, near + round(order * r / _COARSE))
    terms = log_integrand(x)
    if parts > 1:
        counts = terms > terms.max() - 60.0
        # Neighbors too: the integrand has a zero, where the scan sees nothing of a whole cell.
        counts[1:-1] |= counts[:-2] | counts[2:]
        offsets = np.arange(parts) * (_COARSE / parts)
        terms = log_integrand((x[counts][:, None] + offsets).ravel())
    scale = math.log(_COARSE / parts / math.sqrt(2 * math.pi))
    slack = 1e-11 + 8 * _EPS * order * r * (16.0 + r * order)
    return float(np.logaddexp(0.0, np.logaddexp.reduce(terms) + scale + slack))


def _log_moment_far(order: float, q: float, r: float) -> float:
    """Return an upper bound on the log moment for centers so far apart that they never mix.

    Below x = 16 the second density is nothing beside the first, and around order * r the first
    beside the second, so the moment is (1 - q)^order + q^order e^{order (order - 1) r^2 / 2}. What
    lies between weighs less than e^-80 of either, for orders up to 64.
    """
    sizes = -order * math.log(q), order * (order - 1) * (r * r / 2)
    log_bump = (sizes[1] - sizes[0]) + 8 * _EPS * (sizes[0] + sizes[1]) + 1e-13
    if log_bump > 100.0:
        return log_bump + 1e-13
    return math.log1p(math.expm1(order * math.log1p(-q)) + math.exp(log_bump) + 1e-30)


def _log_power_excess(order: float, gain: FloatArray, q: float) -> FloatArray:
    """Return log((1 + u)^order - 1 - order u) with u = q (e^gain - 1)."""
    k = order - 1
    log_ratio = np.where(
        gain < 1.0,
        np.log1p(q * np.expm1(np.minimum(gain, 1.0))),
        np.logaddexp(math.log1p(-q), math.log(q) + gain),
    )
    with np.errstate(divide="ignore"):
        small = order * np.abs(log_ratio) < 0.1
        logs = np.empty_like(gain)
        logs[small] = _log_series(order, np.expm1(log_ratio[small]))
        up, down = ~small & (log_ratio > 0), ~small & (log_ratio < 0)
        # Factor the power out where it is large; the two remaining terms never nearly cancel.
        a = log_ratio[up]
        logs[up] = order * a + np.log(k * np.expm1(-order * a) - order * np.expm1(-k * a))
        a = log_ratio[down]
        logs[down] = np.log(np.exp(a) * np.expm1(k * a) - k * np.expm1(a))
    return logs


def _log_series(order: float, u: FloatArray) -> FloatArray:
    """Return log of the binomial series from its second power on, for order |u| below 0.12."""
    tail = np.ones_like(u)
    for j in range(16, 1, -1):
        tail = 1 + u * ((order - j) / (j + 1)) * tail
    return math.log(order * (order - 1) / 2) + 2 * np.log(np.abs(u)) + np.log(tail)


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

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
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
