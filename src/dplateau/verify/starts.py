"""Sums of weighted coins without noise, from above: how far apart two runs may start.

Weights are rounded up to a grid, coins of equal rounded weight are one binomial law, and the laws
are added up in pairs. What lies beyond the grid counts as larger than all on it. What rounding may
take off a sum is charged, and would swallow chances below it: those are added up under tilted laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import signal, special
from scipy.optimize import brentq

from dplateau.ground.types import FloatArray, IntArray
from dplateau.verify.coins import binomial_at, rounding_of
from dplateau.verify.report import go_on

# Cells for each weight that is drawn: rounding up costs half a cell each time.
_CELLS_PER_DRAW, _LEAST_CELLS, _MOST_CELLS = 1600.0, 1 << 16, 1 << 18
# Coins that weigh less than this together, relative to the largest, count as thrown; on a grid
# somewhat more.
_FINEST_DUST, _DUST = 1e-12, 1e-5
# Up to this many coins all outcomes are written out.
_FEW = 14
# Tails with less than this share lost to rounding need no tilt.
_LOST = 1e-4
# Up to this many masses are added up one by one, which rounds by next to nothing.
_SHORT = 64
_UNIT = 1.2e-16
# Above this an exponential may overflow; what all products below the smallest doubles add up to.
_LARGEST_LOG, _VANISHED = 700.0, 1e-305


@dataclass(frozen=True)
class StartLaw:
    """``tails[i]`` is not below P(W > points[i]); points rise."""

    points: FloatArray
    tails: FloatArray

    def tail(self, point: float) -> float:
        """Return an upper bound on P(W > point)."""
        place = int(np.searchsorted(self.points, point * (1 - 1e-12), side="right")) - 1
        return 1.0 if place < 0 else float(self.tails[place])


def start_law(
    weights: FloatArray, rate: float, older: float, top: float = math.inf, rarest: float = 1e-8
) -> StartLaw:
    """Return the tails of W = sum_j weights[j] I_j + older, the I_j being coins of chance ``rate``.

    They are sharp up to ``top``, where one coin that weighs more than that is beyond all points,
    and down to ``rarest``.
    """
    rising = np.sort(weights[weights > 0])
    beyond = -math.expm1(np.count_nonzero(rising > top) * math.log1p(-rate)) if rate < 1 else 1.0
    missing = beyond * (1 + 1e-12) if (rising > top).any() else 0.0
    rising = rising[rising <= top]
    sums = np.cumsum(rising)
    largest = float(rising[-1]) if rising.size else 0.0
    # As little dust as leaves few coins, if that is little enough.
    finest, most = np.searchsorted(sums, (_FINEST_DUST * largest, _DUST * largest)).tolist()
    dust = min(max(finest, rising.size - _FEW), most)
    certain = older + (float(sums[dust - 1]) * (1 + 1e-12) if dust else 0.0)
    kept = rising[dust:]
    if kept.size <= _FEW:
        return _few(kept, rate, certain, missing)
    # Bernstein's inequality: the sum is above ``likely`` with a chance of at most e^-depth.
    depth = max(39.0, -math.log(rarest))
    reach = depth * float(kept[-1]) / 3
    spread = 2 * depth * rate * (1 - rate) * float(kept @ kept)
    likely = rate * float(kept.sum()) + reach + math.sqrt(reach**2 + spread)
    far = min(float(kept.sum()), likely, top)
    wanted = _CELLS_PER_DRAW * (rate * kept.size + 1)
    cells = int(min(max(wanted, _LEAST_CELLS), _MOST_CELLS))
    # The largest weight, and all that equal it, lie on the grid.
    cell = float(kept[-1]) / max(1, math.floor(float(kept[-1]) * cells / far))
    places = np.ceil(kept / cell * (1 - 1e-13)).astype(np.int64)
    coins = _GridCoins(*np.unique(places, return_counts=True), rate, 2 * cells)
    tails, lost = coins.tails(0.0)
    if lost > max(rarest, _LOST * tails[int(far / cell)]):
        for tilt in coins.tilts(far / cell, rarest):
            tails = np.minimum(tails, coins.tails(tilt)[0])
    points = certain * (1 + 1e-12) + np.arange(tails.size, dtype=np.float64) * cell
    return StartLaw(points, _either(missing, tails))


def _few(weights: FloatArray, rate: float, older: float, missing: float) -> StartLaw:
    """Write out all outcomes."""
    points, masses = np.array([older]), np.ones(1)
    for weight in weights.tolist():
        points = np.r_[points, points + weight]
        masses = np.r_[masses * (1 - rate), masses * rate]
    order = np.argsort(points)
    return StartLaw(points[order] * (1 + 1e-13), _either(missing, _tails(masses[order], 0.0)))


def _either(one: float, others: FloatArray) -> FloatArray:
    """Return the chances that one of two independent things happens, rounded up."""
    chances: FloatArray = np.minimum((one + (1 - one) * others) * (1 + 1e-15), 1.0)
    return chances


def _tails(masses: FloatArray, missing: float) -> FloatArray:
    """Return the sums of all later masses, rounded up."""
    above = np.r_[np.cumsum(masses[::-1])[::-1][1:], 0.0]
    tails: FloatArray = np.minimum(above * (1 + 4 * masses.size * _UNIT) + missing, 1.0)
    return tails


@dataclass(frozen=True, eq=False)
class _GridCoins:
    """W = sum of values[g] times the heads of counts[g] coins of one chance; points below size."""

    values: IntArray
    counts: IntArray
    rate: float
    size: int

    def tails(self, tilt: float) -> tuple[FloatArray, float]:
        """Return upper bounds on P(W > k), added up under a law tilted by e^(tilt W).

        With it comes what may be missing from a sum of its masses, on the scale of one: less of
        the bounds at k, the larger ``tilt`` is, as long as W = k is not rare under the tilt.
        """
        rates, log_scale = self._tilted(tilt)
        law, lost = _total(self.values, self.counts, rates, self.size)
        if tilt == 0:
            return _tails(law, lost), lost
        logs = log_scale - tilt * np.arange(law.size, dtype=np.float64)
        logs += 1e-15 * (abs(log_scale) + tilt * law.size)
        # Nothing is worth so little that it would vanish among the smallest doubles.
        worth = np.exp(np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG))
        # Later masses are worth less: nothing that a sum lacks is worth more than its first one.
        bounds = _tails(law * worth, 0.0) + lost * worth * (1 + 1e-12) + _VANISHED
        return np.where(logs < _LARGEST_LOG, np.minimum(bounds, 1.0), 1.0), lost

    def _tilted(self, tilt: float) -> tuple[FloatArray, float]:
        """Return chances of heads under a tilt, and log c with P(w) <= c e^(-tilt w) P'(w).

        A coin's masses change by rate / chance and (1 - rate) / (1 - chance), whatever the chance
        was rounded to; what that differs from the tilt is charged to every coin.
        """
        if tilt == 0:
            return np.full(self.values.size, self.rate), 0.0
        odds = math.log(self.rate) - math.log1p(-self.rate)
        chances: FloatArray = special.expit(odds + tilt * self.values)
        heads = math.log(self.rate) - np.log(chances)
        tails = math.log1p(-self.rate) - np.log1p(-chances)
        differs = np.abs(heads - tails + tilt * self.values)
        rounding = 1e-15 * (1 + abs(odds) + np.abs(heads) + np.abs(tails) + tilt * self.values)
        return chances, float(self.counts @ (tails + differs + rounding)) * (1 + 1e-12)

    def tilts(self, top: float, rarest: float) -> list[float]:
        """Return few tilts under one of which each value up to ``top`` is common enough.

        Those of a chance below ``rarest`` are left out. Of a normal law with values 8 deviations
        apart, those halfway lose e^8 times what rounding does to the likeliest ones.
        """
        if self.rate == 1:
            return []
        # No coin's chance comes so close to 1 that its distance from 1 has few digits.
        odds = math.log(self.rate) - math.log1p(-self.rate)
        most = (20.0 - odds) / float(self.values[-1])
        if not self._mean(0.0) < top or most <= 0:
            return []
        last = most
        if self._mean(most) > top:
            last = brentq(lambda tilt: self._mean(tilt) - top, 0.0, most)
        if self._log_chance(last) < math.log(rarest):
            last = brentq(lambda tilt: self._log_chance(tilt) - math.log(rarest), 0.0, last)
        count = math.ceil(math.sqrt(-2 * self._log_chance(last)) / 8)
        return [last * part / count for part in range(1, count + 1)]

    def _log_chance(self, tilt: float) -> float:
        """Return Chernoff's bound at the mean of the tilted law (0 for none, but for rounding)."""
        return min(0.0, self._tilted(tilt)[1] - tilt * self._mean(tilt))

    def _mean(self, tilt: float) -> float:
        return float(self.counts @ (self.values * self._tilted(tilt)[0]))


def _total(
    values: IntArray, counts: IntArray, rates: FloatArray, size: int
) -> tuple[FloatArray, float]:
    """Return the law of sums of coins below ``size``, and what may be missing from a tail.

    That is what lies beyond, and what rounding takes off any sum of the masses.
    """
    beyond, rounding, transformed = [0.0], 0.0, [0.0]
    # Sums of 2^level laws each, levels falling: few are kept at a time, and none is added to more
    # others than there are levels.
    sums: list[tuple[int, FloatArray]] = []

    def add(law: FloatArray) -> FloatArray:
        go_on()
        both, lost, blurred = _added(sums.pop()[1], law, size)
        beyond.append(lost)
        transformed.append(blurred)
        return both

    columns = (column.tolist() for column in (values, counts, rates))
    for value, count, rate in zip(*columns, strict=True):
        law, lost = _binomial_law(value, count, rate, size)
        beyond.append(lost)
        rounding += 2 * rounding_of(count)
        level = 0
        while sums and sums[-1][0] == level:
            law, level = add(law), level + 1
        sums.append((level, law))
    _, whole = sums.pop()
    while sums:
        whole = add(whole)
    # What is not on the grid is beyond it; where that is rare, adding it up loses no digits.
    blurred = math.fsum(transformed)
    absent = max(0.0, 1 - float(whole.sum())) + rounding + blurred
    # Under every tilt the law has the same points, whatever was too rare to be written out.
    law = np.zeros(size)
    law[: whole.size] = whole
    return law, min(math.fsum(beyond), absent) + blurred


def _binomial_law(value: int, count: int, rate: float, size: int) -> tuple[FloatArray, float]:
    most = min(count, (size - 1) // value, math.ceil(count * rate + 12 * math.sqrt(count) + 30))
    drawn = np.arange(most + 1, dtype=np.float64)
    law = np.zeros(most * value + 1)
    law[::value] = binomial_at(drawn, float(count), rate) * (1 + rounding_of(count))
    beyond = float(special.betainc(most + 1, count - most, rate)) if most < count else 0.0
    return law, beyond * (1 + 1e-10)


def _added(first: FloatArray, second: FloatArray, size: int) -> tuple[FloatArray, float, float]:
    """Return the law of a sum below ``size``, the chance beyond, and what rounding may take off."""
    short, long = sorted((first, second), key=np.count_nonzero)
    filled, lost = np.flatnonzero(short), 0.0
    if filled.size <= _SHORT:
        both = np.zeros(first.size + second.size - 1)
        for place in filled.tolist():
            both[place : place + long.size] += short[place] * long
    else:
        both = np.maximum(signal.fftconvolve(first, second), 0.0)
        lost = _transformed(first, second, both)
    return both[:size], float(both[size:].sum()), lost


def _transformed(first: FloatArray, second: FloatArray, both: FloatArray) -> float:
    """Bound what transforms take off a sum of ``both``: log2(n) roundings each, in the norm.

    No transform of masses exceeds 1, and a sum of n errors is at most sqrt(n) times their norm.
    """
    norms = sum(math.sqrt(float(np.square(law).sum())) for law in (first, second, both))
    return _UNIT * math.log2(2 * both.size) * math.sqrt(both.size) * norms
