"""Curves of a record that takes part in one step, after which both runs take the same steps.

The same step brings two laws together: their hockey stick of order e^eps is multiplied by at most
the one between the two furthest images of a point, theta_eps(reach) (docs/theory/one_use.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.normal import laplace_delta, log_gaussian_delta
from dplateau.numerics.solve import UNIT_ROUNDOFF, exp_up, geometric_sum, smallest_where

NoiseKind = Literal["gaussian", "laplace"]
_ROUND_UP = 1 + 1e-12
_LARGEST_EPSILON = 1e7


@dataclass(frozen=True)
class Stretch:
    """Iterates in a row, the first of them ``after`` steps after the step that used the record.

    The first is no easier to attack than the noise moved by ``distance`` (infinite: nothing of its
    own is known). Each of the ``steps`` iterates is released with probability ``share``.
    """

    after: int
    distance: float
    steps: float
    share: float


@dataclass(frozen=True)
class UsedOnceCurve(PrivacyCurve):
    """delta(eps) = sum of share * d_j(eps) over the iterates j of all stretches.

    d_j = min over the stretches k that begin by j of theta_eps(distance_k) * theta_eps(reach)^(j -
    after_k): any point may serve to pass from one argument to the other. Distances are in
    units of the noise, its scale if it is Laplace.

    >>> later = Stretch(after=20, distance=math.inf, steps=1, share=1.0)
    >>> curve = UsedOnceCurve("gaussian", 1.0, (Stretch(0, 1.0, 1, 0.0), later))
    >>> f"{curve.delta(0.1):.6g}"
    '3.06067e-10'
    """

    noise_kind: NoiseKind
    reach: float
    stretches: tuple[Stretch, ...]

    def __post_init__(self) -> None:
        """Check that stretches follow each other and release at most one iterate."""
        ages = [stretch.after for stretch in self.stretches]
        rising = ages[:1] == [0] and all(a < b for a, b in pairwise(ages))
        if not rising or not self.reach >= 0:
            raise InvalidInput("stretches begin with the use, one after the other; reach >= 0")
        if not all(s.distance >= 0 and s.steps >= 0 and s.share >= 0 for s in self.stretches):
            raise InvalidInput("distances, numbers of steps and shares are at least 0")

    def delta(self, epsilon: float) -> float:
        """Return the sum, rounded up."""
        eps = checked_epsilon(epsilon)
        log_factor = float(log_hockey_stick(self.noise_kind, eps, self.reach))
        shares = np.array([stretch.share for stretch in self.stretches])
        steps = np.array([stretch.steps for stretch in self.stretches])
        used = shares > 0
        parts = exp_up(self._log_deltas(eps, log_factor)[used])
        weights = shares[used] * geometric_sums(log_factor, steps[used])
        total = float(np.sum(parts * weights))
        return min(1.0, total * _ROUND_UP) if total > 0 else _smallest(parts)

    def _log_deltas(self, eps: float, log_factor: float) -> FloatArray:
        """Return log d at the first iterate of each stretch."""
        distances = np.array([stretch.distance for stretch in self.stretches])
        own = np.asarray(log_hockey_stick(self.noise_kind, eps, distances))
        ages = np.array([float(stretch.after) for stretch in self.stretches])
        if log_factor == -math.inf:
            return np.where(ages > 0, -math.inf, own)
        faded = ages * log_factor
        best = np.minimum.accumulate(own - faded)
        known = best > -math.inf
        margin = 4 * UNIT_ROUNDOFF * (np.abs(np.where(known, best, 0.0)) + 2 * np.abs(faded))
        return np.asarray(np.minimum(faded + best + margin, 0.0))

    def epsilon(self, delta: float) -> float:
        """Invert delta(epsilon), rounding up."""
        return searched_epsilon(self, checked_delta(delta))


@dataclass(frozen=True)
class RecursionCurve(PrivacyCurve):
    """e_T + extra_delta, e_{t+1} = (1 - e_t) A + e_t B from e_1 = q theta_{eps'}(step).

    A record joins each of ``steps`` steps with probability q = ``sampling_rate``. Two states that
    lie anywhere in the domain are at most ``reach`` apart after the step of the others, at most
    ``far`` if the record joins; one state alone moves by ``step``. e^{eps'} = g = 1 + (e^eps-1)/q,

        A = q (theta_{eps'}(step) / g + (1 - 1/g) theta_{eps'}(far)),
        B = (1 - q) theta_eps(reach) + q theta_eps(far).
    """

    noise_kind: NoiseKind
    sampling_rate: float
    reach: float
    step: float
    far: float
    steps: int
    extra_delta: float = 0.0

    def __post_init__(self) -> None:
        """Check that the record's own step is the smallest distance with it."""
        if not (0 < self.sampling_rate <= 1 and self.reach >= 0 and self.far >= self.step >= 0):
            raise InvalidInput(
                "a recursion needs a sampling rate in (0, 1], reach >= 0 and far >= step >= 0"
            )

    def delta(self, epsilon: float) -> float:
        """Return the closed form of the recursion, rounded up."""
        eps, q = checked_epsilon(epsilon), self.sampling_rate
        stays, far = self._sticks(eps, self.reach, self.far)
        inner = amplified_order(eps, q)
        first, distant = self._sticks(inner, self.step, self.far)
        share = math.exp(-inner)
        fresh = q * (share * first + (1 - share) * distant) * _ROUND_UP
        # 1 - B + A, without cancellation where B is close to one.
        gap = min(1.0, (fresh + (1 - q) * (1 - stays) + q * (1 - far)) * (1 - 1e-15))
        kept = max(0.0, (1 - q) * stays + q * far - fresh) * _ROUND_UP
        log_kept = math.log1p(-gap) if gap < 0.5 else math.log(kept) if kept > 0 else -math.inf
        later = float(geometric_sums(log_kept, np.array([self.steps - 1.0]))[0])
        rest = math.exp(log_kept * (self.steps - 1)) if self.steps > 1 else 1.0
        total = (fresh * later + rest * q * first) * _ROUND_UP
        return min(1.0, max(total, 5e-324) + self.extra_delta * _ROUND_UP)

    def _sticks(self, eps: float, *distances: float) -> list[float]:
        """Return hockey sticks of the shifted noise, rounded up."""
        logs = log_hockey_stick(self.noise_kind, eps, np.array(distances))
        sticks: list[float] = np.minimum(exp_up(logs), 1.0).tolist()
        return sticks

    def epsilon(self, delta: float) -> float:
        """Invert delta(epsilon), rounding up; infinite if ``extra_delta`` alone is too much."""
        return searched_epsilon(self, checked_delta(delta))


def amplified_order(epsilon: float, rate: float) -> float:
    """Return log(1 + (e^epsilon - 1) / rate), rounded down."""
    if epsilon < 600:
        return math.log1p(math.expm1(epsilon) / rate) * (1 - 1e-14)
    return (epsilon - math.log(rate)) * (1 - 1e-14)


def log_hockey_stick(
    noise_kind: NoiseKind, epsilon: float, distance: float | FloatArray
) -> FloatArray:
    """Return an upper bound on the log of the hockey stick of the noise and its shifted copy."""
    if noise_kind == "gaussian":
        return np.asarray(log_gaussian_delta(epsilon, np.asarray(distance, dtype=np.float64)))
    deltas = np.asarray(laplace_delta(epsilon, np.asarray(distance, dtype=np.float64)))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(deltas) * (1 - 4 * UNIT_ROUNDOFF))


def geometric_sums(log_factor: float, counts: FloatArray) -> FloatArray:
    """Return 1 + x + ... + x^(count-1) for x = e^log_factor <= 1, rounded up."""
    if log_factor == -math.inf:
        return np.minimum(counts, 1.0)
    if log_factor == 0:
        return counts
    with np.errstate(over="ignore"):
        return geometric_sum(-log_factor, counts) * _ROUND_UP


def searched_epsilon(curve: PrivacyCurve, delta: float) -> float:
    """Return the least epsilon found at which a falling curve is at most ``delta``."""
    if curve.delta(0.0) <= delta:
        return 0.0
    top = 1.0
    while curve.delta(top) > delta:
        top *= 2
        if top > _LARGEST_EPSILON:
            return math.inf
    return smallest_where(lambda eps: curve.delta(eps) <= delta, 0.0, top)


def _smallest(parts: FloatArray) -> float:
    """Return the least positive number if something positive was lost to rounding, else 0."""
    return 5e-324 if np.any(parts > 0) else 0.0
