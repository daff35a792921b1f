"""Shift plans for sampled steps under one contraction, quantised so that buckets share pairs.

Counted from the end of the run, step j carries the weight c^j: a start at distance u is absorbed
over the last R steps if sum_j c^j a_j >= c^R u. The surrogate that picks the shifts is

    minimise sum_j (a_j^2 + 2 q r a_j),   solved by a_j = max(0, lambda c^j / 2 - q r),

the second-order cost of the pair (1-q) N(a) + q N(a + r) against N(0) (r, a in units of the noise).
Any shifts that absorb the start prove the bound, so rounding them up to levels is safe, and lambda
is lowered until the rounded plan just absorbs the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.ground.types import FloatArray, IntArray

_BISECTIONS = 40


@dataclass(frozen=True)
class SampledSteps:
    """``count`` equal steps: contraction c <= 1, sampling rate q, record step r over the noise."""

    contraction: float
    sampling_rate: float
    step: float
    count: int

    @property
    def log_rate(self) -> float:
        """Return -log c (zero without contraction)."""
        return -math.log(self.contraction) if self.contraction > 0 else math.inf

    def decayed(self, start: float) -> float:
        """Return c^R start: what is left of the start at the end if nothing absorbs it."""
        return start * self.contraction**self.count

    def sum_of_weights(self, counts: FloatArray, power: int = 1) -> FloatArray:
        """Return sum_{j < n} c^(power j) for every n."""
        rate = self.log_rate * power
        if rate == 0:
            return counts
        if math.isinf(rate):
            return np.minimum(counts, 1.0)
        found: FloatArray = np.expm1(-rate * counts) / math.expm1(-rate)
        return found

    def surrogate_shifts(self, start: float) -> tuple[float, int]:
        """Return (lambda, number of steps with a positive shift) of the surrogate's optimum."""
        need = self.decayed(start)
        drift = self.sampling_rate * self.step
        low, high = 1, self.count
        # The m-th step from the end joins while lambda(m) c^(m-1) / 2 > q r: monotone in m.
        while low < high:
            middle = (low + high + 1) // 2
            weight = self.contraction ** (middle - 1)
            joins = self._multiplier(need, drift, middle) * weight / 2 > drift
            low, high = (middle, high) if joins else (low, middle - 1)
        return self._multiplier(need, drift, low), low

    def _multiplier(self, need: float, drift: float, steps: int) -> float:
        n = np.array(float(steps))
        first, second = float(self.sum_of_weights(n)), float(self.sum_of_weights(n, 2))
        return 2 * (need + drift * first) / second

    def surrogate_cost(self, start: float) -> float:
        """Return the surrogate's least sum of a^2 + 2 q r a, plus the sampling of all R steps."""
        sampling = self.count * self.sampling_rate**2 * math.expm1(min(self.step**2, 700.0))
        if start == 0:
            return sampling
        multiplier, steps = self.surrogate_shifts(start)
        squares = float(self.sum_of_weights(np.array(float(steps)), 2))
        drift = self.sampling_rate * self.step
        return max(0.0, multiplier**2 * squares / 4 - steps * drift**2) + sampling

    def largest_shift(self, start: float) -> float:
        """Return the surrogate's shift in the last step, enough to absorb the start alone if tiny.

        A start far below q r is lost in the difference of lambda / 2 and q r.
        """
        if start == 0:
            return 0.0
        multiplier, steps = self.surrogate_shifts(start)
        even = self.decayed(start) / float(self.sum_of_weights(np.array(float(steps))))
        return max(multiplier / 2 - self.sampling_rate * self.step, even * (1 + 1e-9))

    def counts_above(self, multiplier: float, floors: FloatArray) -> FloatArray:
        """Return how many steps have a surrogate shift above each floor."""
        drift = self.sampling_rate * self.step
        ratio = np.log(np.maximum(multiplier, 1e-300) / (2 * (floors + drift)))
        if self.log_rate == 0:
            return np.where(ratio > 0, float(self.count), 0.0)
        if math.isinf(self.log_rate):
            return np.where(ratio > 0, 1.0, 0.0)
        counts: FloatArray = np.clip(np.ceil(ratio / self.log_rate), 0.0, float(self.count))
        return counts

    def absorbed(self, counts: FloatArray, levels: FloatArray) -> float:
        """Return sum_j c^j a_j if counts[i] steps from the end have at least levels[i].

        ``counts`` falls while ``levels`` rises; the sum is taken layer by layer.
        """
        layers = np.diff(np.r_[0.0, levels])
        return float(np.sum(layers * self.sum_of_weights(counts)))

    def plan(self, start: float, levels: FloatArray) -> IntArray:
        """Return how many steps take each shift of ``(0, *levels)`` to absorb ``start``.

        ``levels`` must rise and reach :meth:`largest_shift`.
        """
        zero = np.zeros(levels.size + 1, dtype=np.int64)
        zero[0] = self.count
        if start == 0:
            return zero
        need = self.decayed(start) * (1 + 1e-12)
        floors = np.r_[0.0, levels[:-1]]
        low, high = 0.0, self.surrogate_shifts(start)[0] * (1 + 1e-6)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            enough = self.absorbed(self.counts_above(middle, floors), levels) >= need
            low, high = (low, middle) if enough else (middle, high)
        above = self.counts_above(high, floors).astype(np.int64)
        counts: IntArray = np.r_[self.count - above[0], above - np.r_[above[1:], 0]]
        return counts


def shared_levels(largest: float, count: int) -> FloatArray:
    """Return evenly rising shifts up to ``largest``."""
    return largest * (1 + 1e-12) * np.linspace(0.0, 1.0, count + 1)[1:]


def absorbs(steps: SampledSteps, start: float, counts: IntArray, levels: FloatArray) -> bool:
    """Return whether a plan (counts of the shifts ``(0, *levels)``) absorbs the start.

    The larger shifts come last, where they count most: one step from the end weighs c^0.
    """
    above = np.cumsum(counts[::-1])[::-1][1:].astype(float)
    total = int(counts.sum())
    return total == steps.count and steps.absorbed(above, levels) >= steps.decayed(start)
