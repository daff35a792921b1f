"""Curves made of curves: averages, groups, subsampling, minima and the simplest compositions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dplateau.curves.base import (
    PrivacyCurve,
    checked_delta,
    checked_epsilon,
    checked_size,
)
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.solve import smallest_where

_ROUND_UP = 1 + 1e-13
# A delta below this may have lost its digits to underflow.
_LEAST_DELTA = 1e-300
# Deltas tried where only epsilon(delta) has a formula: any list is valid.
_LEVELS = 500


@dataclass(frozen=True)
class MixtureCurve(PrivacyCurve):
    """delta(eps) = sum_k weights[k] * curves[k].delta(eps) + extra_delta.

    The hockey stick is jointly convex, so this covers a release that is, with probability
    weights[k] and independently of the data, as private as curves[k], and that fails outright
    with probability ``extra_delta``.
    """

    weights: tuple[float, ...]
    curves: tuple[PrivacyCurve, ...]
    extra_delta: float = 0.0

    def __post_init__(self) -> None:
        """Check the weights (they may sum to more than one: that only claims less)."""
        if len(self.weights) != len(self.curves) or not self.curves:
            raise InvalidInput("a mixture needs one weight for each of its curves")
        if not (min(self.weights) >= 0 and sum(self.weights) >= 1 - 1e-9 and self.extra_delta >= 0):
            raise InvalidInput("the weights of a mixture are at least 0 and sum to one or more")

    def delta(self, epsilon: float) -> float:
        """Return the average of the deltas."""
        eps = checked_epsilon(epsilon)
        parts = (w * c.delta(eps) for w, c in zip(self.weights, self.curves, strict=True) if w > 0)
        return min(1.0, math.fsum([*parts, self.extra_delta]) * _ROUND_UP)

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
        """Return the average of all parts' deltas."""
        pairs = zip(self.weights, self.curves, strict=True)
        total = sum(w * curve.deltas(epsilons, center) for w, curve in pairs if w > 0)
        return np.minimum((total + self.extra_delta) * _ROUND_UP, 1.0)

    def epsilon(self, delta: float) -> float:
        """Invert delta(epsilon), rounding up; infinite if ``extra_delta`` alone exceeds delta."""
        target = checked_delta(delta)
        room = target - self.extra_delta * _ROUND_UP
        if target == 0 and self.extra_delta == 0:
            used = zip(self.weights, self.curves, strict=True)
            return max(curve.epsilon(0.0) for weight, curve in used if weight > 0)
        if room <= 0:
            return math.inf
        # Every part at the room left is enough for the average: a bracket that always holds.
        most = max(c.epsilon(min(1.0, room / (2 * sum(self.weights)))) for c in self.curves)
        return _searched_epsilon(self, target, most if math.isfinite(most) else 1.0)


@dataclass(frozen=True)
class WorstCurve(PrivacyCurve):
    """The maximum of the curves of several cases, one of which is the true one.

    For instance: how a group is split, or which of several releases has the record in its data.
    """

    curves: tuple[PrivacyCurve, ...]

    def delta(self, epsilon: float) -> float:
        """Return the largest delta."""
        return max(curve.delta(epsilon) for curve in self.curves)

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
        """Return the largest of all curves' deltas."""
        return np.asarray(np.max([c.deltas(epsilons, center) for c in self.curves], axis=0))

    def epsilon(self, delta: float) -> float:
        """Return the largest epsilon."""
        return max(curve.epsilon(delta) for curve in self.curves)

    def tradeoff(self, fpr: float) -> float:
        """Return the smallest error rate."""
        return min(curve.tradeoff(fpr) for curve in self.curves)

    def rdp(self, alpha: float) -> float:
        """Return the largest divergence."""
        return max(curve.rdp(alpha) for curve in self.curves)


@dataclass(frozen=True)
class GroupCurve(PrivacyCurve):
    """``size`` records change together: delta_k(eps) = (e^eps - 1) / (e^{eps/k} - 1) delta(eps/k).

    Vadhan, "The complexity of differential privacy" (2017), Lemma 2.2, read as a curve.
    """

    curve: PrivacyCurve
    size: int

    def __post_init__(self) -> None:
        """Check the size."""
        object.__setattr__(self, "size", checked_size(self.size))

    def delta(self, epsilon: float) -> float:
        """Return the summed geometric series of deltas."""
        eps = checked_epsilon(epsilon)
        one = self._at_least(self.curve.delta(eps / self.size), eps / self.size)
        if one == 0:
            return 0.0
        steps = np.arange(self.size) * (eps / self.size)
        log_sum = float(np.logaddexp.reduce(steps))
        return min(1.0, math.exp(min(0.0, log_sum + math.log(one))) * _ROUND_UP)

    def _at_least(self, one: float, epsilon: float) -> float:
        """Return one record's delta; too small for a double it is not zero, unless losses end.

        e^epsilon of a group may make it large again.
        """
        if one >= _LEAST_DELTA or self.curve.epsilon(0.0) <= epsilon:
            return one
        return _LEAST_DELTA

    def holds(self, epsilon: float, delta: float) -> bool:
        """Ask the curve of one record about the share of delta that the sum leaves it."""
        each = checked_epsilon(epsilon) / self.size
        log_sum = float(np.logaddexp.reduce(np.arange(self.size) * each))
        share = math.exp(math.log(delta) - log_sum) / _ROUND_UP if delta > 0 else 0.0
        if share < _LEAST_DELTA:
            return self.curve.epsilon(0.0) <= each
        return self.curve.holds(each, share)

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
        """Return all sums at once."""
        each = np.asarray(epsilons, dtype=np.float64) / self.size
        alone = self.curve.deltas(each, center / self.size)
        one = np.array([self._at_least(d, e) for d, e in zip(alone, each, strict=True)])
        logs = np.logaddexp.reduce(np.arange(self.size)[:, None] * each, axis=0)
        with np.errstate(divide="ignore"):
            total = np.exp(np.minimum(logs + np.log(one), 0.0))
        return np.asarray(np.minimum(total * (1 + 1e-12), 1.0))

    def epsilon(self, delta: float) -> float:
        """Invert delta(epsilon), rounding up."""
        target = checked_delta(delta)
        if target == 0:
            return self.size * self.curve.epsilon(0.0) * _ROUND_UP
        return _searched_epsilon(self, target, max(1e-3, self.curve.epsilon(target)))


@dataclass(frozen=True)
class SubsampledCurve(PrivacyCurve):
    """Amplification of an (eps, delta) curve by a sample of rate q: q delta at log(1 + q(e^eps-1)).

    Balle, Barthe, Gaboardi (2018), Theorems 8 and 9.
    """

    curve: PrivacyCurve
    sampling_rate: float

    def __post_init__(self) -> None:
        """Check the rate."""
        if not 0 < self.sampling_rate <= 1:
            raise InvalidInput(f"a sampling rate lies in (0, 1]; got {self.sampling_rate!r}")

    def delta(self, epsilon: float) -> float:
        """Return q times the delta at the epsilon that is amplified to ``epsilon``."""
        q, eps = self.sampling_rate, checked_epsilon(epsilon)
        inner = math.log1p(math.expm1(eps) / q) if eps < 600 else eps - math.log(q)
        return min(1.0, q * self.curve.delta(inner * (1 - 1e-14)) * _ROUND_UP)

    def epsilon(self, delta: float) -> float:
        """Return log(1 + q (e^eps' - 1)) with eps' taken at delta / q."""
        q, target = self.sampling_rate, checked_delta(delta)
        if target >= q:
            return 0.0
        inner = self.curve.epsilon(target / q * (1 - 1e-15))
        if inner < 700:
            return math.log1p(q * math.expm1(inner)) * _ROUND_UP
        return float(np.logaddexp(0.0, inner + math.log(q))) * _ROUND_UP


@dataclass(frozen=True)
class NaiveCompositionCurve(PrivacyCurve):
    """Basic composition of ``count`` equal releases: (T eps', T delta')."""

    step: PrivacyCurve
    count: int

    def delta(self, epsilon: float) -> float:
        """Return T times the step's delta at epsilon / T."""
        each = checked_epsilon(epsilon) / self.count * (1 - 1e-15)
        return min(1.0, self.count * self.step.delta(each) * _ROUND_UP)

    def epsilon(self, delta: float) -> float:
        """Return T times the step's epsilon at delta / T."""
        each = checked_delta(delta) / self.count * (1 - 1e-15)
        return self.count * self.step.epsilon(each) * _ROUND_UP


@dataclass(frozen=True)
class AdvancedCompositionCurve(PrivacyCurve):
    """Advanced composition: eps' sqrt(2T log(1/d'')) + T eps' tanh(eps'/2) at T d' + d''.

    Dwork, Rothblum, Vadhan (2010) with the sharper mean of Dwork and Roth (2014), section 3.5;
    the share of delta given to d'' is chosen from a grid (any share is valid).
    """

    step: PrivacyCurve
    count: int

    def epsilon(self, delta: float) -> float:
        """Return the best over the shares of delta; infinite at delta = 0."""
        target = checked_delta(delta)
        if target == 0:
            return math.inf
        return min(self._epsilon_at(target, share) for share in (0.5, 0.1, 0.01, 0.9, 0.99))

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
        """Return the least delta of a fine list whose epsilon is small enough."""
        levels, reached = _staircase(self, center)
        place = np.searchsorted(reached, epsilons, side="right") - 1
        return np.where(place >= 0, levels[np.maximum(place, 0)], 1.0)

    def _epsilon_at(self, target: float, share: float) -> float:
        each = self.step.epsilon(target * (1 - share) / self.count)
        spread = each * math.sqrt(2 * self.count * math.log(1 / (share * target)))
        return (spread + self.count * each * math.tanh(each / 2)) * _ROUND_UP

    def delta(self, epsilon: float) -> float:
        """Invert epsilon(delta), rounding up."""
        return _delta_where(self, checked_epsilon(epsilon))

    def holds(self, epsilon: float, delta: float) -> bool:
        """Ask for epsilon, which has the formula."""
        return self.epsilon(delta) <= epsilon


@lru_cache(maxsize=4)
def _staircase(curve: PrivacyCurve, center: float) -> tuple[FloatArray, FloatArray]:
    """Return falling deltas and an epsilon for each, never falling."""
    levels = np.geomspace(1.0, center * 1e-6, _LEVELS)
    return levels, np.maximum.accumulate([curve.epsilon(float(level)) for level in levels])


def _searched_epsilon(curve: PrivacyCurve, delta: float, first: float) -> float:
    """Return the smallest epsilon found at which ``curve`` claims at most ``delta``.

    The search goes up from ``first`` in small steps: some curves rise again further up.
    """
    if curve.holds(0.0, delta):
        return 0.0
    most = first
    while most <= 1e9 and not curve.holds(most, delta):
        most *= 1.25
    if most > 1e9:
        return math.inf
    return smallest_where(lambda eps: curve.holds(eps, delta), 0.0, most)


@dataclass(frozen=True)
class BasicCompositionCurve(PrivacyCurve):
    """Basic composition of different releases: epsilons add and deltas add.

    The split of delta is chosen from a few proportions (any split is valid).
    """

    curves: tuple[PrivacyCurve, ...]

    def epsilon(self, delta: float) -> float:
        """Return the best sum of epsilons over the splits tried."""
        return self._sum(self.split(delta)) * (_ROUND_UP if len(self.curves) > 1 else 1)

    def split(self, delta: float) -> list[float]:
        """Return the delta given to each release."""
        target, count = checked_delta(delta), len(self.curves)
        if count == 1 or target == 0:
            return [target] * count
        equal = [target / count * (1 - 1e-12)] * count
        # A release with a steeper curve profits more from a larger share of delta.
        gain = {c: max(1e-12, c.epsilon(target / 100) - c.epsilon(target)) for c in self.curves}
        total = math.fsum(gain[curve] for curve in self.curves)
        if len(gain) == 1 or not math.isfinite(total):
            return equal
        tilted = [target * gain[curve] / total * (1 - 1e-12) for curve in self.curves]
        return min(equal, tilted, key=self._sum)

    def _sum(self, deltas: list[float]) -> float:
        """Return the sum of epsilons; equal releases are asked once."""
        asked = set(zip(self.curves, deltas, strict=True))
        epsilons = {(curve, delta): curve.epsilon(delta) for curve, delta in asked}
        return math.fsum(epsilons[one] for one in zip(self.curves, deltas, strict=True))

    def delta(self, epsilon: float) -> float:
        """Invert epsilon(delta), rounding up."""
        return _delta_where(self, checked_epsilon(epsilon))

    def holds(self, epsilon: float, delta: float) -> bool:
        """Ask for epsilon, which has the formula."""
        return self.epsilon(delta) <= epsilon


def _delta_where(curve: PrivacyCurve, epsilon: float) -> float:
    """Return the smallest delta at which ``curve`` claims at most ``epsilon``."""
    if curve.epsilon(1.0) > epsilon:
        return 1.0
    log_delta = smallest_where(
        lambda log: curve.epsilon(math.exp(log)) <= epsilon, math.log(1e-300), 0.0, rtol=1e-7
    )
    return min(1.0, math.exp(log_delta) * _ROUND_UP)
