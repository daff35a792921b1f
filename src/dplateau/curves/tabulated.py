"""Curves known as a table of delta(epsilon), the table of any curve, and the pair it makes.

A table is what lets a curve without pairs of its own be composed with others, travel in a file and
be checked there, row by row.

The hockey stick of a release is convex in g = e^epsilon, so between two rows of the table it lies
below their chord (connect the dots: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, arXiv
2207.04380), and the lower convex hull of all rows bounds it everywhere. A table that holds in both
orders is also one at -epsilon: delta(-eps) = 1 - e^-eps (1 - delta(eps)). The hull of both halves
is the hockey stick of a pair of discrete laws with atoms at its corners, and composing pairs with
larger hockey sticks gives larger ones (Zhu, Dong, Wang 2022, Theorem 10; the proof does not need
that the masses sum to one, so rounding them up is safe).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon
from dplateau.curves.pairs import LossCells, Order
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray

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

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
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
    deltas = np.minimum.accumulate(curve.deltas(scout, delta))
    if not deltas[-1] < delta:
        raise NotApplicable(
            f"no table of this curve: its delta is {deltas[-1]:.3g} at epsilon "
            f"{WIDEST_EPSILON:g}, which is not below {delta:.3g}"
        )
    top = scout[int(np.argmax(deltas <= deltas[-1] * 1.001 + _TAIL_SHARE * delta))]
    even = np.linspace(0.0, top, _ROWS + 1)
    logs = np.log(np.maximum(np.minimum.accumulate(curve.deltas(even, delta)), 1e-300))
    levels = np.linspace(logs[0], logs[-1], _ROWS // 2)
    return np.unique(np.r_[even, np.interp(-levels, -logs, even)])


def _read(curve: PrivacyCurve, epsilons: FloatArray, delta: float) -> FloatArray:
    """Return the smaller of two readings: curves are sharp around the delta they center on."""
    tail = curve.deltas(epsilons, delta)
    middle = min(_MIDDLE, float(tail[0]) / 10)
    return tail if middle < 100 * delta else np.minimum(tail, curve.deltas(epsilons, middle))


# Beyond this epsilon e^epsilon leaves the range of floating-point numbers.
WIDEST_EPSILON = 700.0
_ROUND = 16.0 * float(np.finfo(np.float64).eps)
# Slopes and sums below are relative to their own size to a few roundings times epsilon.
_MASSES_UP = 1 + 1e-12


@dataclass(frozen=True)
class TablePair:
    """The corners of a hull: ``deltas[i]`` at ``epsilons[i]`` (rising from 0), in both orders.

    >>> pair = TablePair.hull(np.array([1.0]), np.array([1e-5]))
    >>> round(pair.deltas[0], 4)  # the total variation that (1, 1e-5) allows
    0.4621
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def __post_init__(self) -> None:
        eps, deltas = np.array(self.epsilons), np.array(self.deltas)
        whole = eps.ndim == 1 and eps.shape == deltas.shape and eps.size > 0
        if not whole or eps[0] != 0 or not eps[-1] <= WIDEST_EPSILON or np.any(np.diff(eps) <= 0):
            raise InvalidInput(
                f"a table's epsilons rise from 0, one for each delta, to at most {WIDEST_EPSILON:g}"
            )
        if not (np.all(deltas >= 0) and np.all(deltas <= 1) and np.all(np.diff(deltas) <= 0)):
            raise InvalidInput("a table's deltas fall and lie in [0, 1]")

    @classmethod
    def hull(cls, epsilons: FloatArray, deltas: FloatArray) -> TablePair:
        """Return the lower convex hull, in e^epsilon, of rows that hold in both orders."""
        order = np.lexsort((deltas, epsilons))
        eps, levels = np.asarray(epsilons)[order], np.asarray(deltas)[order]
        # What holds at one epsilon holds at every larger one.
        levels = np.minimum.accumulate(np.clip(levels, 0.0, 1.0))
        # The chord from a row to its mirror image passes epsilon = 0 here: randomized response.
        start = 1.0 - (1.0 - levels) * 2.0 / (1.0 + np.exp(eps)) * (1.0 - _ROUND)
        first = min(1.0, float(start.min()))
        keep = eps > 0
        corners = _lower_hull(
            [(0.0, first), *zip(eps[keep].tolist(), levels[keep].tolist(), strict=True)]
        )
        return cls(tuple(e for e, _ in corners), tuple(d for _, d in corners))

    @property
    def symmetric(self) -> bool:
        """Always: the table holds in both orders."""
        return True

    @property
    def trivial(self) -> bool:
        """Whether nothing at all is lost."""
        return self.deltas[0] == 0.0

    @property
    def largest_loss(self) -> float:
        """The last corner, if nothing is lost outright."""
        return self.epsilons[-1] if self.deltas[-1] == 0.0 else math.inf

    def lowered(self, delta: float) -> TablePair:
        """Return the pair whose hockey stick, with ``delta`` added, is nowhere below this one."""
        deltas = np.array(self.deltas)
        rest = np.where(deltas <= delta, 0.0, np.nextafter(deltas - delta, np.inf))
        return TablePair.hull(np.array(self.epsilons), rest)

    def delta(self, epsilon: FloatArray, order: Order) -> FloatArray:
        """Hockey stick: chords in e^epsilon, constant beyond the last corner, mirrored below 0."""
        eps = np.asarray(epsilon, dtype=np.float64)
        size = np.minimum(np.abs(eps), self.epsilons[-1])
        corners, deltas = np.array(self.epsilons), np.array(self.deltas)
        at = np.clip(np.searchsorted(corners, size, side="right") - 1, 0, corners.size - 1)
        after = np.minimum(at + 1, corners.size - 1)
        gap = np.maximum(corners[after] - corners[at], 1e-300)
        share = np.where(after > at, np.expm1(size - corners[at]) / np.expm1(gap), 0.0)
        value = deltas[at] - np.clip(share * (1 - _ROUND), 0, 1) * (deltas[at] - deltas[after])
        mirrored = 1.0 - np.exp(-np.abs(eps)) * (1.0 - value) * (1 - _ROUND)
        return np.asarray(np.minimum(np.where(eps >= 0.0, value, mirrored) * (1 + _ROUND), 1.0))

    def loss_range(self, tail_mass: float, order: Order) -> tuple[float, float]:
        """Corners beyond which the finite losses keep at most ``tail_mass``."""
        losses, first, _ = _positive_atoms(self)
        beyond = np.append(np.cumsum(first[::-1])[::-1][1:], 0.0)
        last = int(np.argmax(beyond <= tail_mass))
        return -float(losses[last]), float(losses[last])

    def cells(self, edges: FloatArray, order: Order) -> LossCells:
        """Masses of the atoms; the delta of the last corner is lost outright."""
        losses, first, second = _positive_atoms(self)
        lost = self.deltas[-1]
        rest = max(0.0, 1.0 - lost - float((first + second).sum()))
        places = np.concatenate([-losses[::-1], [0.0], losses])
        p = np.concatenate([second[::-1], [rest], first])
        s = np.concatenate([first[::-1], [rest], second])
        cell = np.searchsorted(edges, places, side="left")
        size = edges.size + 1
        p_cells, s_cells = np.bincount(cell, p, size), np.bincount(cell, s, size)
        p_cells[-1] += lost
        s_cells[0] += lost
        error = _ROUND * (1.0 + float(np.max(np.abs(edges))))
        with np.errstate(divide="ignore"):
            up, down = np.log(p_cells * _MASSES_UP), np.log(s_cells / _MASSES_UP)
        return LossCells(up, down - error, error)


@lru_cache(maxsize=64)
def _positive_atoms(pair: TablePair) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Losses above 0 with the masses of both laws: changes of slope at the corners."""
    eps, deltas = np.array(pair.epsilons), np.array(pair.deltas)
    if eps.size == 1:
        return np.zeros(1), np.zeros(1), np.zeros(1)
    # e^b - e^a as e^a (e^(b-a) - 1): a difference of exponentials would cancel.
    slopes = np.diff(deltas) / (np.exp(eps[:-1]) * np.expm1(np.diff(eps)))
    second = np.maximum(np.diff(np.append(slopes, 0.0)), 0.0)
    return eps[1:], second * np.exp(eps[1:]), second


def _lower_hull(rows: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Drop rows that lie on or above the chord of their neighbors in e^epsilon."""
    kept: list[tuple[float, float]] = []
    for eps, delta in rows:
        if kept and eps == kept[-1][0]:
            continue  # sorted: the first row of an epsilon has its smallest delta
        while len(kept) > 1 and _above_chord(kept[-2], kept[-1], (eps, delta)):
            kept.pop()
        if kept and delta >= kept[-1][1]:
            continue  # nothing gained: the curve is constant from the corner before
        kept.append((eps, delta))
    return kept


def _above_chord(
    left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]
) -> bool:
    share = math.expm1(middle[0] - left[0]) / math.expm1(right[0] - left[0])
    return middle[1] >= left[1] - share * (left[1] - right[1])
