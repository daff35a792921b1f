"""Curves known as a table of delta(epsilon), and the table of any curve.

A table is what lets a curve without pairs of its own be composed with others, travel in a file and
be checked there, row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.numerics.table_pair import WIDEST_EPSILON, TablePair

# Rows of a table, placed evenly in epsilon and evenly in log delta: the first follow the middle of
# a law, the others a long tail.
_ROWS = 96
_SCOUTS = 100
# What the last row may leave over, as a share of the delta a part can be given.
_TAIL_SHARE = 1e-4
# A second accuracy: most of a law decides about many releases, whatever delta is.
_MIDDLE = 1e-3


@dataclass(frozen=True)
class TabulatedCurve(PrivacyCurve):
    """The smallest curve that a table of (epsilon, delta), valid in both orders, proves.

    >>> curve = TabulatedCurve(TablePair.hull(np.array([1.0]), np.array([1e-5])))
    >>> curve.epsilon(1e-5) == 1.0, curve.epsilon(1e-6) == math.inf
    (True, True)
    """

    pair: TablePair

    def delta(self, epsilon: float) -> float:
        """Return the chord in e^epsilon between two rows."""
        return float(self.pair.delta(np.array(checked_epsilon(epsilon)), "remove"))

    def deltas(self, epsilons: FloatArray, centre: float) -> FloatArray:
        """Return all chords at once."""
        return self.pair.delta(np.asarray(epsilons), "remove")

    def epsilon(self, delta: float) -> float:
        """Invert the chords, rounding up; infinite below the last row's delta."""
        target, deltas = checked_delta(delta), np.array(self.pair.deltas)
        if target < deltas[-1]:
            return math.inf
        after = int(np.argmax(deltas <= target))
        high = self.pair.epsilons[after]
        if after == 0 or target == deltas[after]:
            return high
        low = self.pair.epsilons[after - 1]
        share = (deltas[after - 1] - target) / (deltas[after - 1] - deltas[after]) * (1 + 1e-14)
        return min(high, (low + math.log1p(share * math.expm1(high - low))) * (1 + 1e-14))

    def loss_parts(self) -> tuple[tuple[TablePair, int], ...]:
        """Return the pair itself."""
        return ((self.pair, 1),)


def tabulate(curve: PrivacyCurve, delta: float, *, margin: float = 0.0) -> TablePair:
    """Return a table of ``curve``, fine enough to compose it where one part's share is ``delta``.

    Epsilons and deltas are raised by the share ``margin`` of themselves. A curve that does not get
    below ``delta`` within the range of a table is refused.
    """
    epsilons = _rows(curve, delta)
    deltas = _read(curve, epsilons, delta) * (1 + margin)
    inside = epsilons * (1 + margin) <= WIDEST_EPSILON
    return TablePair.hull(epsilons[inside] * (1 + margin), np.minimum(deltas[inside], 1.0))


def _rows(curve: PrivacyCurve, delta: float) -> FloatArray:
    """Return where to read the curve: up to where what is left is lost without regret."""
    scout = np.r_[0.0, np.geomspace(1e-6, WIDEST_EPSILON, _SCOUTS)]
    # What holds at one epsilon holds at every larger one, whatever a loose curve says there.
    found = np.minimum.accumulate(curve.deltas(scout, delta))
    if not found[-1] < delta:
        raise NotApplicable(
            f"no table of this curve: its delta is {found[-1]:.3g} at epsilon "
            f"{WIDEST_EPSILON:g}, which is not below {delta:.3g}"
        )
    top = scout[int(np.argmax(found <= found[-1] * 1.001 + _TAIL_SHARE * delta))]
    even = np.linspace(0.0, top, _ROWS + 1)
    logs = np.log(np.maximum(np.minimum.accumulate(curve.deltas(even, delta)), 1e-300))
    levels = np.linspace(logs[0], logs[-1], _ROWS // 2)
    return np.unique(np.r_[even, np.interp(-levels, -logs, even)])


def _read(curve: PrivacyCurve, epsilons: FloatArray, delta: float) -> FloatArray:
    """Return the smaller of two readings: curves are sharp around the delta they centre on."""
    tail = curve.deltas(epsilons, delta)
    middle = min(_MIDDLE, float(tail[0]) / 10)
    return tail if middle < 100 * delta else np.minimum(tail, curve.deltas(epsilons, middle))
