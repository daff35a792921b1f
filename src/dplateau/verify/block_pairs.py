"""Pairs (M + N(0,1), -M' + N(0,1)) of one block of noise, as curves of their privacy losses.

The likelihood ratio p / q rises with y. So at the point y with log p/q = e the hockey stick of
order e^e is P(Y > y) - e^e Q(Y > y), without any search. The curve is convex in e^epsilon: chords
between such points lie above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy import special

from dplateau.verify._dp_accounting import FloatArray
from dplateau.verify.losses import LEFT_OUT
from dplateau.verify.smoothed import Atoms, SmoothedLaw, Tails

_SPACING = 0.005
_FEWEST, _MOST = 2000, 8000
# Losses beyond this leave the range of numbers.
_LARGEST_LOSS = 600.0


@dataclass(frozen=True)
class _Table:
    """Losses log p/q that rise with y, both tails of both laws, and both hockey sticks there."""

    losses: FloatArray
    first_above: FloatArray
    second_below: FloatArray
    sticks: FloatArray
    reverse_sticks: FloatArray


@dataclass(frozen=True, eq=False)
class BlockPair:
    """M + N(0, 1) against -M' + N(0, 1); None stands for M' = 0.

    ``rarest`` is the chance down to which losses are told apart.
    """

    right: SmoothedLaw
    left: SmoothedLaw | None
    rarest: float

    @property
    def symmetric(self) -> bool:
        """Whether reflecting the line exchanges the two."""
        return self.left is self.right

    @cached_property
    def _table(self) -> _Table:
        noise = -float(special.ndtri(self.rarest))
        top = self.right.reach(self.rarest)[1]
        bottom = -noise if self.left is None else -self.left.reach(self.rarest)[1]
        count = min(_MOST, max(_FEWEST, math.ceil((top - bottom) / _SPACING)))
        y = np.linspace(bottom, top, count)
        p = self.right.tails(y)
        q = _plain(y) if self.left is None else _reflected(self.left.tails(-y))
        losses = np.maximum.accumulate(p.log_density - q.log_density)
        if not -_LARGEST_LOSS < losses[0] <= losses[-1] < _LARGEST_LOSS:
            raise ArithmeticError(f"one block has losses of {losses[-1]:.3g}")
        # Flat stretches are rounding; distinct losses make chords well defined.
        keep = np.r_[True, np.diff(losses) > 0]
        grown = np.exp(np.minimum(losses, 700.0))
        sticks = p.upper - grown * q.upper + p.upper_error + grown * q.upper_error
        shrunk = np.exp(np.minimum(-losses, 700.0))
        reverse = q.lower - shrunk * p.lower + q.lower_error + shrunk * p.lower_error
        return _Table(
            losses[keep],
            np.minimum(p.upper + p.upper_error, 1.0)[keep],
            np.minimum(q.lower + q.lower_error, 1.0)[keep],
            np.clip(sticks, np.maximum(-np.expm1(losses), 0.0), 1.0)[keep],
            np.clip(reverse, np.maximum(-np.expm1(-losses), 0.0), 1.0)[keep],
        )

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return chords of the hockey stick, which lie above it."""
        table = self._table
        if order == 0:
            return _chords(epsilons, table.losses, table.sticks)
        return _chords(epsilons, -table.losses[::-1], table.reverse_sticks[::-1])

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return losses that the first law goes below or above with little chance."""
        table = self._table
        if order == 0:
            low = np.flatnonzero(1 - table.first_above <= LEFT_OUT)
            high = np.flatnonzero(table.first_above <= right)
            losses = table.losses
        else:
            low = np.flatnonzero((1 - table.second_below <= LEFT_OUT)[::-1])
            high = np.flatnonzero((table.second_below <= right)[::-1])
            losses = -table.losses[::-1]
        first = losses[low[-1]] if low.size else losses[0]
        last = losses[high[0]] if high.size else losses[-1]
        return float(first), float(max(last, first))

    @property
    def typical_loss(self) -> float:
        """Return the standard deviation of the loss under the first law."""
        table = self._table
        masses = np.maximum(-np.diff(np.r_[1.0, table.first_above]), 0.0)
        masses /= masses.sum()
        mean = float(masses @ table.losses)
        return math.sqrt(float(masses @ (table.losses - mean) ** 2))


@dataclass(frozen=True)
class TwoSidedPair:
    """(1-q) N(0, 1) + q N(r, 1) against (1-q) N(0, 1) + q N(-r, 1): one step's replaced record."""

    rate: float
    step: float

    @property
    def symmetric(self) -> bool:
        """Reflecting the line exchanges the two."""
        return True

    @property
    def typical_loss(self) -> float:
        """Return the standard deviation of the loss."""
        return _two_sided(self).typical_loss

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return chords of the hockey stick, which lie above it."""
        return _two_sided(self).deltas(epsilons, order)

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return losses that the first law goes below or above with little chance."""
        return _two_sided(self).reach(right, order)


@lru_cache(maxsize=256)
def _two_sided(pair: TwoSidedPair) -> BlockPair:
    law = Atoms(np.array([0.0, pair.step]), np.array([1 - pair.rate, pair.rate]))
    return BlockPair(law, law, 1e-30)


def _plain(y: FloatArray) -> Tails:
    """Return N(0, 1) itself."""
    upper, lower = special.ndtr(-y), special.ndtr(y)
    log_density = -(y**2) / 2 - math.log(math.sqrt(2 * math.pi))
    return Tails(upper, lower, log_density, 1e-15 * upper, 1e-15 * lower)


def _reflected(tails: Tails) -> Tails:
    return Tails(tails.lower, tails.upper, tails.log_density, tails.lower_error, tails.upper_error)


def _chords(epsilons: FloatArray, losses: FloatArray, sticks: FloatArray) -> FloatArray:
    """Interpolate linearly in e^epsilon; towards minus infinity the curve goes to one."""
    after = np.clip(np.searchsorted(losses, epsilons), 1, losses.size - 1)
    before = after - 1
    share = np.expm1(epsilons - losses[before]) / np.expm1(losses[after] - losses[before])
    inside = sticks[before] + np.clip(share, 0.0, 1.0) * (sticks[after] - sticks[before])
    below = 1 - np.exp(np.minimum(epsilons - losses[0], 0.0)) * (1 - sticks[0])
    found: FloatArray = np.where(epsilons < losses[0], below, inside)
    return found
