"""Tails of weighted sums of independent coin flips, bounded from above.

W = sum_j weights[j] * I_j with I_j ~ Bernoulli(q): how far a record that joins batches at random
has moved a run. Weights are rounded up to a grid, so every probability errs on the large side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray

# Added to every tail: far above the rounding of the transforms, far below any level of interest.
_ROUND_OFF = 1e-14
# Weights this small (in total, relative to the largest) are replaced by their sum.
_DROPPED_SHARE = 1e-4
# The logarithm's series converges quickly enough below this rate.
_SERIES_LIMIT = 0.48


@dataclass(frozen=True, eq=False)
class UpperTail:
    """``tails[i]`` is at least P(W > points[i]); points increase and tails fall."""

    points: FloatArray
    tails: FloatArray

    def at(self, point: float) -> float:
        """Return an upper bound on P(W > point)."""
        place = int(np.searchsorted(self.points, point, side="right")) - 1
        return 1.0 if place < 0 else float(self.tails[place])

    def thinned(self, keep_every: int) -> UpperTail:
        """Return a smaller table; between its points the tail of the point below is used."""
        kept = np.r_[np.arange(0, self.points.size - 1, keep_every), self.points.size - 1]
        return UpperTail(self.points[kept], self.tails[kept])

    def edge(self, level: float) -> float:
        """Return the smallest grid point that W exceeds with probability at most ``level``."""
        place = int(np.searchsorted(-self.tails, -level, side="left"))
        return float(self.points[min(place, self.points.size - 1)])


def upper_tail(weights: FloatArray, rate: float) -> UpperTail:
    """Return upper bounds on the tail of sum_j weights[j] * Bernoulli(rate).

    >>> tail = upper_tail(np.array([1.0, 0.5]), 0.1)
    >>> 0.1 <= tail.at(0.9) <= 0.11
    True
    """
    terms = np.sort(np.asarray(weights, dtype=float))[::-1]
    if not 0 < rate <= 1 or terms.ndim != 1 or np.any(terms < 0):
        raise InvalidInput(f"need weights of at least 0 and a rate in (0, 1]; got rate={rate!r}")
    terms = terms[terms > 0]
    total = float(terms.sum()) * (1 + 1e-12)
    if terms.size == 0 or rate == 1.0:
        return UpperTail(np.array([0.0, total]), np.array([float(total > 0), 0.0]))
    kept, dropped = _without_dust(terms)
    top = min(float(kept.sum()), _far_point(kept, rate))
    cells = _cells(kept.size, rate)
    grid = top / cells
    counts = np.ceil(kept / grid * (1 - 1e-15)).astype(np.int64)
    size = 2 * cells
    masses = _law(counts, rate, size)
    beyond = math.exp(min(0.0, _log_chernoff(counts.astype(float), rate, float(size))))
    # P(W > i g) <= P(rounded W >= (i + 1) g), plus what lies beyond the window.
    above = np.r_[np.cumsum(masses[::-1])[::-1][1:], 0.0]
    tails = np.minimum(1.0, above * (1 + 1e-12) + beyond + _ROUND_OFF)
    points = np.arange(size) * (grid * (1 + 4e-15)) + dropped
    inside = points < total
    # Nothing exceeds the sum of all weights.
    return UpperTail(np.r_[points[inside], total], np.r_[tails[inside], 0.0])


def _cells(terms: int, rate: float) -> int:
    """Return a grid size: rounding up costs half a cell for each weight drawn."""
    if min(rate, 1 - rate) >= _SERIES_LIMIT:
        return 1 << 13  # the direct product below is slower
    return 1 << min(18, max(15, math.ceil(math.log2(1 + 500 * rate * terms))))


def _without_dust(terms: FloatArray) -> tuple[FloatArray, float]:
    """Split off the smallest weights, whose sum is charged as if all of them were drawn."""
    rest = np.cumsum(terms[::-1])[::-1]
    keep = rest > _DROPPED_SHARE * terms[0]
    keep[0] = True
    return terms[keep], float(terms[~keep].sum()) * (1 + 1e-12)


def _far_point(terms: FloatArray, rate: float) -> float:
    """Return a point that the sum exceeds with probability below 1e-17."""
    # Bernstein: tail <= exp(-t^2 / (2 (v + w t / 3))) with v the variance, w the largest weight.
    variance = rate * (1 - rate) * float((terms**2).sum())
    largest, log_inverse = float(terms[0]), 40.0
    reach = log_inverse * largest / 3
    return rate * float(terms.sum()) + reach + math.sqrt(reach**2 + 2 * log_inverse * variance)


def _log_chernoff(counts: FloatArray, rate: float, level: float) -> float:
    """Return the logarithm of a Chernoff bound on P(sum >= level)."""
    values, repeats = np.unique(counts, return_counts=True)
    slopes = np.geomspace(0.03, 60.0, 24)[:, None] / float(values.max())
    moments = np.log1p(rate * np.expm1(np.minimum(slopes * values, 700.0))) @ repeats
    return float(np.min(moments - slopes[:, 0] * level))


def _law(counts: IntArray, rate: float, size: int) -> FloatArray:
    """Return the masses of sum_j counts[j] I_j modulo ``size``, by its characteristic function."""
    from scipy import fft

    if rate > 0.5:  # count the flips that fail instead
        failed = _law(counts, 1 - rate, size)
        return failed[(int(counts.sum()) - np.arange(size)) % size]
    values, repeats = np.unique(counts, return_counts=True)
    if rate < _SERIES_LIMIT:
        log_transform = fft.rfft(_log_series(values, repeats, rate, size))
        log_transform += int(repeats.sum()) * math.log1p(-rate)
    else:
        frequencies = np.arange(size // 2 + 1, dtype=np.int64)
        log_transform = np.zeros(frequencies.size, dtype=np.complex128)
        for value, repeat in zip(values, repeats, strict=True):
            # Reduce value * frequency modulo the size exactly, before it meets 2 pi.
            turn = (int(value) * frequencies) % size
            log_transform += repeat * np.log(1 - rate + rate * np.exp(-2j * math.pi / size * turn))
    masses: FloatArray = np.maximum(fft.irfft(np.exp(log_transform), size), 0.0)
    return masses


def _log_series(values: IntArray, repeats: IntArray, rate: float, size: int) -> FloatArray:
    """Return the coefficients of sum_v n_v log(1 + odds x^v), folded modulo ``size``."""
    odds = rate / (1 - rate)
    series = np.zeros(size)
    power, sign = 1, 1.0
    while odds**power * float(repeats.sum()) > 1e-19 * power:
        terms = repeats * (sign * odds**power / power)
        np.add.at(series, (values * power) % size, terms)
        power, sign = power + 1, -sign
    return series
