"""Pairs of aligned Gaussian mixtures: a random move to one side against one to the other.

``law of U + N(0, 1)`` against ``law of -V + N(0, 1)`` with U, V >= 0 of finitely many atoms. With
V = 0 this is what one block of a sampled run shows of an added record, with V distributed as U what
it shows of a replaced one (docs/theory/blocks.md). Against N(0, 1) a mixture has the density
exp(K(y)), K(y) = log E exp(U y - U^2 / 2): an increasing convex function, so the ratio of the two
laws increases along the line, a chord of K bounds the mass of a cell from above, and a tangent
from below. That costs one evaluation of K for each border of a cell, whatever the atoms are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from scipy import special

from dplateau.curves.pairs import LossCells, Order, log_normal_cells
from dplateau.ground.compiled import compiled
from dplateau.ground.types import FloatArray
from dplateau.numerics.bernoulli_laws import NOTHING, AtomLaw

_ROUND: Final = 16.0 * float(np.finfo(np.float64).eps)
_TABLE: Final = 400
# With so few atoms the mass of a cell is added up atom by atom.
_FEW: Final = 16


@dataclass(frozen=True)
class MixturePair:
    """``law of up + N(0, 1)`` against ``law of -down + N(0, 1)``.

    >>> half = MixturePair(AtomLaw((0.0, 0.5), (0.5, 0.5)))
    >>> round(float(half.delta(np.array(0.0), "remove")), 6)
    0.098706
    """

    up: AtomLaw
    down: AtomLaw = NOTHING

    @property
    def symmetric(self) -> bool:
        """A law against its mirror image, or one Gaussian against another."""
        return self.up == self.down or len(self.up.points) == len(self.down.points) == 1

    @property
    def trivial(self) -> bool:
        """No move at all."""
        return self.up.points[-1] == 0.0 == self.down.points[-1]

    @property
    def largest_loss(self) -> float:
        """Unbounded unless both laws are the same."""
        return 0.0 if self.trivial else math.inf

    def loss(self, point: FloatArray) -> FloatArray:
        """``log P/Q`` at a point of the line."""
        return self._up.moments(point)[0] - self._down.moments(-point)[0]

    def delta(self, epsilon: FloatArray, order: Order) -> FloatArray:
        """Hockey stick from the masses right (or left) of the point where the ratio is e^eps."""
        eps = np.asarray(epsilon, dtype=np.float64)
        total, weight = -np.expm1(np.minimum(eps, 0.0)), np.exp(np.minimum(eps, 700.0))
        sign = 1.0 if order == "remove" else -1.0
        points = self._points(np.atleast_1d(sign * eps))
        p, q = self._up.tails(points, sign), self._down.tails(-points, -sign)
        gap = p - weight * q if order == "remove" else q - weight * p
        return np.maximum(gap.reshape(eps.shape), total)

    def loss_range(self, tail_mass: float, order: Order) -> tuple[float, float]:
        """Losses beyond which the first law has about ``tail_mass`` at most, on either side."""
        if order == "remove":
            low, high = self._up.quantiles(tail_mass)
        else:
            low, high = (-end for end in reversed(self._down.quantiles(tail_mass)))
        ends = self.loss(np.array([low, high]))
        return (
            (float(ends[0]), float(ends[1]))
            if order == "remove"
            else (-float(ends[1]), -float(ends[0]))
        )

    def cells(self, edges: FloatArray, order: Order) -> LossCells:
        """Masses of both laws: the first from above by chords, the second from below."""
        if order == "remove":
            p, q, error = self._masses(edges, up=True)
            return LossCells(p, q - error, error)
        p, q, error = self._masses(-edges[::-1], up=False)
        return LossCells(q[::-1], p[::-1] - error, error)

    def _masses(self, edges: FloatArray, *, up: bool) -> tuple[FloatArray, FloatArray, float]:
        points = np.maximum.accumulate(self._points(edges))
        seen = np.isfinite(points)
        here, wanted = points[seen], edges[seen]
        value, slope = self._up.moments(here)
        mirrored, fall = self._down.moments(-here)
        size = self._up.size(here, slope) + self._down.size(here, fall) + np.abs(wanted)
        error = np.abs(value - mirrored - wanted) + _ROUND * size
        borders = np.concatenate([[-np.inf], points, [np.inf]])
        mirrored = self._down.cell_masses(-borders[::-1], up=not up)[::-1]
        return self._up.cell_masses(borders, up=up), mirrored, float(np.max(error, initial=_ROUND))

    def _points(self, losses: FloatArray) -> FloatArray:
        """Where ``log P/Q`` equals each loss: read off a table, then Newton's method.

        A point that is a little off only moves a border, which the caller measures and charges.
        """
        table_points, table_losses = self._table
        points = np.interp(losses, table_losses, table_points)
        for _ in range(2):
            value, slope = self._up.moments(points)
            mirrored, fall = self._down.moments(-points)
            excess, slope = value - mirrored - losses, slope + fall
            with np.errstate(divide="ignore", invalid="ignore"):
                moved = np.where(slope > 0, excess / slope, 0.0)
            points = points - np.clip(moved, -1.0, 1.0)
        floor, ceiling = self._limits
        # Beyond the table both laws have less mass than a double can tell from none.
        low, high = max(floor, float(table_losses[0])), min(ceiling, float(table_losses[-1]))
        return np.where(losses <= low, -np.inf, np.where(losses >= high, np.inf, points))

    @cached_property
    def _limits(self) -> tuple[float, float]:
        """Infimum and supremum of the loss: finite where one law keeps a share at 0."""
        first, last = self.up, self.down
        floor = (
            math.log(first.masses[0]) if first.points[0] == 0.0 == last.points[-1] else -math.inf
        )
        ceiling = (
            -math.log(last.masses[0]) if last.points[0] == 0.0 == first.points[-1] else math.inf
        )
        return floor, ceiling

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        reach = 40.0
        core = np.linspace(-10.0 - self.down.points[-1], 10.0 + self.up.points[-1], _TABLE)
        ends = np.geomspace(1.0, reach, 20)
        points = np.r_[core[0] - ends[::-1], core, core[-1] + ends]
        losses = np.maximum.accumulate(self.loss(points))
        rising = np.r_[True, np.diff(losses) > 0]
        return points[rising], losses[rising]

    @cached_property
    def _up(self) -> _Side:
        return _Side(self.up)

    @cached_property
    def _down(self) -> _Side:
        return self._up if self.up == self.down else _Side(self.down)


class _Side:
    """One law of moves U >= 0, through K(y) = log E exp(U y - U^2 / 2)."""

    def __init__(self, law: AtomLaw) -> None:
        self.points, self.masses = law.arrays()
        self.still = self.points[-1] == 0.0
        with np.errstate(divide="ignore"):
            self.logs = np.log(self.masses) - self.points**2 / 2.0

    def moments(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """K, and K', the mean move given y."""
        if self.still:
            return np.zeros_like(y), np.zeros_like(y)
        return _log_moments(self.points, self.logs, y)

    def size(self, y: FloatArray, slope: FloatArray) -> FloatArray:
        """How large the terms are whose rounding ends up in K."""
        return 4.0 + self.points.size / 8.0 + slope * (np.abs(y) + slope)

    def tails(self, points: FloatArray, sign: float) -> FloatArray:
        """Mass of the law of U + N(0, 1) right of each point (left, for a negative sign)."""
        return special.ndtr(sign * (self.points - points[:, None])) @ self.masses

    def quantiles(self, tail_mass: float) -> tuple[float, float]:
        """Points beyond which the law of U + N(0, 1) has about the mass on either side."""
        reach = -float(special.ndtri(tail_mass / 2.0))
        above = np.cumsum(self.masses[::-1])[::-1]
        # Atoms from k on, each with its own share of the tail.
        rare = np.minimum(tail_mass / (2.0 * np.maximum(above, tail_mass)), 0.5)
        worth = above > tail_mass / 2.0
        high = float(np.max(np.where(worth, self.points - special.ndtri(rare), -np.inf)))
        return float(self.points[0]) - reach, max(high, float(self.points[0]) + reach)

    def cell_masses(self, borders: FloatArray, *, up: bool) -> FloatArray:
        """Log masses of the law of U + N(0, 1) between borders, rounded up or down."""
        low, high = borders[:-1], borders[1:]
        if self.still:
            return log_normal_cells(low, high, 0.0, up=up)
        bounded = np.isfinite(low) & np.isfinite(high)
        masses = np.full(low.size, -np.inf)
        masses[bounded] = self._between(low[bounded], high[bounded], up=up)
        for end in np.flatnonzero(~bounded & (low < high)):
            masses[end] = self._half_line(float(low[end]), float(high[end]), up=up)
        return masses

    def _between(self, low: FloatArray, high: FloatArray, *, up: bool) -> FloatArray:
        """Log masses of bounded cells.

        exp(h + s (y - y0)) phi(y) is exp(h - s y0 + s^2 / 2) phi(y - s): a line in place of K
        leaves a normal law with mean s.
        """
        if self.points.size <= _FEW:
            parts = [log_normal_cells(low, high, mean, up=up) for mean in self.points]
            with np.errstate(divide="ignore"):
                logs: FloatArray = np.logaddexp.reduce(np.log(self.masses)[:, None] + parts)
            return logs + (_ROUND if up else -_ROUND)
        anchors = low if up else (low + high) / 2.0
        heights, slopes = _log_moments(self.points, self.logs, anchors)
        if up:
            last, steepest = _log_moments(self.points, self.logs, high[-1:])
            # Neighboring cells share their border. Rounding spoils the chord of a narrow one, but a
            # convex function's chord lies between the slopes at its ends.
            ends, after = np.append(heights[1:], last), np.append(slopes[1:], steepest)
            width = np.where(high > low, high - low, 1.0)
            slopes = np.clip((ends - heights) / width, slopes, np.maximum(slopes, after))
        slack = _ROUND * (
            4.0 + self.points.size / 8.0 + np.abs(heights) + slopes * (np.abs(anchors) + slopes)
        )
        tilt = heights + slopes * (slopes / 2.0 - anchors) + (slack if up else -slack)
        masses: FloatArray = tilt + log_normal_cells(low, high, slopes, up=up)
        return masses

    def _half_line(self, low: float, high: float, *, up: bool) -> float:
        """Log mass of an unbounded cell, atom by atom."""
        if math.isinf(low) and math.isinf(high):
            return 0.0
        ends = special.log_ndtr(high - self.points if math.isinf(low) else self.points - low)
        with np.errstate(divide="ignore"):
            value = float(np.logaddexp.reduce(np.log(self.masses) + ends))
        slack = _ROUND * (4.0 + self.points.size + abs(value))
        return value + (slack if up else -slack)


@compiled
def _log_moments(
    points: FloatArray, logs: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """K and K' at every y, from the atoms and log mass - atom^2 / 2 of each."""
    values, slopes = np.empty(y.size), np.empty(y.size)
    for i in range(y.size):
        top = -np.inf
        for k in range(points.size):
            top = max(top, points[k] * y[i] + logs[k])
        total, first = 0.0, 0.0
        for k in range(points.size):
            exponent = points[k] * y[i] + logs[k] - top
            if exponent > -42.0:
                weight = math.exp(exponent)
                total += weight
                first += weight * points[k]
        values[i] = top + math.log(total)
        slopes[i] = first / total
    return values, slopes
