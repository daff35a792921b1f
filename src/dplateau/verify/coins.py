"""The law of W = sum_j c^j I_j, j < n, with independent coins I_j of chance q, by doubling.

W of m + n coins is W of m coins plus c^m times an independent W of n coins. So a few convolutions
on a grid reach any n: no coin is looked at on its own, and no transform is used. Where c^m times a
grid point falls between two others, its mass is put on both so that the mean stays (an estimate),
on the upper one (an upper bound on every tail) or on the lower one (a lower bound).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dplateau.verify._dp_accounting import FloatArray

Rounding = Literal["between", "up", "down"]


@dataclass(frozen=True)
class CoinSum:
    """``masses[i]`` at i * cell; ``beyond`` is what lies above the grid."""

    cell: float
    masses: FloatArray
    beyond: float

    def points(self) -> FloatArray:
        """Return where the masses are."""
        return np.arange(self.masses.size, dtype=np.float64) * self.cell

    def tail(self, point: float) -> float:
        """Return P(W > point)."""
        first = math.floor(point / self.cell * (1 + 1e-12)) + 1
        return float(self.masses[first:].sum()) + self.beyond


def coin_sum(
    contraction: float, rate: float, count: int, cells: int, rounding: Rounding = "between"
) -> CoinSum:
    """Return the law of the weighted sum on a grid of that many cells."""
    # Coins so old that together they weigh nothing to speak of need not be tossed: "down" may
    # leave them out, the others count them as thrown.
    older = 0.0
    if 0 < contraction < 1:
        kept = math.ceil((35.0 - math.log1p(-contraction)) / -math.log(contraction))
        if kept < count:
            older = contraction**kept / (1 - contraction)
            count = kept
    law = _Doubling(contraction, rate, cells, rounding).law(count)
    extra = math.ceil(older / law.cell) if rounding == "up" else 0
    return CoinSum(law.cell, np.r_[np.zeros(extra), law.masses], law.beyond)


def _far_point(contraction: float, rate: float, count: int) -> float:
    """Return a point that W exceeds with a chance below 1e-30 (Bernstein), or its maximum."""
    first = _geometric(contraction, count)
    second = _geometric(contraction**2, count)
    largest = max(1.0, contraction ** (count - 1))
    reach = 70.0 * largest / 3
    far = rate * first + reach + math.sqrt(reach**2 + 140.0 * rate * (1 - rate) * second)
    # Room for what rounding up adds.
    return min(far, first) * 1.02


def _geometric(ratio: float, count: int) -> float:
    if ratio == 1:
        return float(count)
    if ratio == 0:
        return 1.0
    return math.expm1(count * math.log(ratio)) / (ratio - 1)


@dataclass(frozen=True)
class _Doubling:
    contraction: float
    rate: float
    cells: int
    rounding: Rounding

    def law(self, count: int) -> CoinSum:
        """Double along the binary digits of the count, each time on a grid of its own."""
        chances = np.array([1 - self.rate, self.rate])
        one = self._placed(chances, np.array([0.0, 1.0]), self._cell(1))
        total, coins = one, 1
        for digit in bin(count)[3:]:
            total = self._sum(total, total, coins, 2 * coins)
            coins *= 2
            if digit == "1":
                # One younger coin in front of all the others.
                total = self._sum(one, total, 1, coins + 1)
                coins += 1
        return total

    def _cell(self, coins: int) -> float:
        return _far_point(self.contraction, self.rate, coins) / self.cells

    def _sum(self, young: CoinSum, old: CoinSum, age: int, coins: int) -> CoinSum:
        """Return the law of young + c^age old."""
        cell = self._cell(coins)
        parts = [
            self._placed(law.masses, law.points() * factor, cell)
            for law, factor in ((young, 1.0), (old, self.contraction**age))
        ]
        both = np.convolve(_trimmed(parts[0].masses), _trimmed(parts[1].masses))
        lost = young.beyond + old.beyond + parts[0].beyond + parts[1].beyond
        return self._cut(both, cell, lost)

    def _placed(self, masses: FloatArray, points: FloatArray, cell: float) -> CoinSum:
        """Put masses at real points onto the grid."""
        places = points / cell
        below = np.floor(places * (1 + 1e-15)).astype(np.int64)
        part = np.clip(places - below, 0.0, 1.0)
        if self.rounding == "up":
            part = np.ceil(part - 1e-12)
        elif self.rounding == "down":
            part = np.zeros_like(part)
        inside = np.minimum(below, self.cells + 1)
        lower = np.bincount(inside, masses * (1 - part), self.cells + 3)
        upper = np.bincount(inside + 1, masses * part, self.cells + 3)
        found: FloatArray = np.asarray(lower + upper, dtype=np.float64)
        return self._cut(found, cell, 0.0)

    def _cut(self, masses: FloatArray, cell: float, lost: float) -> CoinSum:
        kept, rest = masses[: self.cells + 1], masses[self.cells + 1 :]
        return CoinSum(cell, kept, lost + float(rest.sum()))


def _trimmed(masses: FloatArray) -> FloatArray:
    """Drop empty cells at the end."""
    filled = np.flatnonzero(masses)
    return masses[: filled[-1] + 1] if filled.size else masses[:1]
