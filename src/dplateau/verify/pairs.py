"""Dominating pairs of one step or one block, as curves delta(epsilon) over all real epsilon.

Order 0 reads the loss log P/Q under P, order 1 the loss log Q/P under Q. Only curves are written
down here, with what rounding may take off them added; dp-accounting turns them into masses on a
grid of losses that dominate them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from scipy import special

from dplateau.ground.types import FloatArray
from dplateau.verify.coins import Atoms, SmoothedLaw, Tails

# Losses below the point that the first law goes below with this chance are rounded up to it.
LEFT_OUT = 1e-10
# Far above all that doubles too small for their digits can lose.
_VANISHED = 1e-306


class LossPair(Protocol):
    """A pair of laws on the line."""

    @property
    def symmetric(self) -> bool:
        """Whether both orders have the same curve."""

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return the hockey sticks at real epsilons, negative ones included."""

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return losses that leave out ``LEFT_OUT`` below and ``right`` above, or less."""


def _stick(epsilons: FloatArray, first: FloatArray, log_second: FloatArray) -> FloatArray:
    """Return first - e^(eps + log_second), rounded up.

    No hockey stick is below 1 - e^epsilon. Tails are known to a few roundings of their logarithms,
    and those of the smallest doubles not at all.
    """
    second = np.exp(np.minimum(epsilons + log_second, 700.0))
    digits = 1e-15 * (2 + np.abs(epsilons) + np.minimum(np.abs(log_second), 1e4))
    gap = first - second + digits * (first + second) + _VANISHED
    return np.asarray(np.maximum(gap, -np.expm1(np.minimum(epsilons, 0.0))))


def _reflected(epsilons: FloatArray, upper: FloatArray) -> FloatArray:
    """Extend a symmetric curve below zero: delta(-e) = 1 - e^-e + e^-e delta(e)."""
    size = np.abs(epsilons)
    return np.where(epsilons >= 0, upper, -np.expm1(-size) + np.exp(-size) * upper)


def _quantile(mass: float) -> float:
    """Return the point that a standard normal law is below with that chance (negative)."""
    return float(special.ndtri(mass))


@dataclass(frozen=True)
class GaussianPair:
    """N(mu, 1) against N(0, 1)."""

    mu: float
    symmetric = True

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        half, scaled = self.mu / 2, epsilons / self.mu
        return _stick(epsilons, special.ndtr(half - scaled), special.log_ndtr(-half - scaled))

    def reach(self, right: float, order: int) -> tuple[float, float]:
        center = self.mu**2 / 2
        return center + self.mu * _quantile(LEFT_OUT), center - self.mu * _quantile(right)


@dataclass(frozen=True)
class SampledPair:
    """(1-q) N(a, 1) + q N(a + r, 1) against N(0, 1): the main theorem's step, q < 1 and r > 0."""

    rate: float
    step: float
    shift: float = 0.0
    symmetric = False

    def loss(self, x: FloatArray) -> FloatArray:
        """Return log P/Q at points of the line: an increasing convex function."""
        lean = self.step * (x - self.shift) - self.step**2 / 2
        mixed = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + lean)
        return np.asarray(self.shift * x - self.shift**2 / 2 + mixed)

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return the difference of masses beyond the point where the loss is epsilon."""
        q, near, far = self.rate, self.shift, self.shift + self.step
        if order == 0:
            x = self._point(epsilons)
            first = (1 - q) * special.ndtr(near - x) + q * special.ndtr(far - x)
            return _stick(epsilons, first, special.log_ndtr(-x))
        x = self._point(-epsilons)
        logs = special.log_ndtr(x - near), special.log_ndtr(x - far)
        second = np.logaddexp(math.log1p(-q) + logs[0], math.log(q) + logs[1])
        return _stick(epsilons, special.ndtr(x), second)

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return losses at quantiles of the first law."""
        if order == 1:
            ends = self.loss(np.array([-_quantile(LEFT_OUT), _quantile(right)]))
            return float(-ends[0]), float(-ends[1])
        far = self.shift + self.step - _quantile(min(0.5, right / (2 * self.rate)))
        top = max(self.shift - _quantile(right / 2), far)
        ends = self.loss(np.array([self.shift + _quantile(LEFT_OUT), top]))
        return float(ends[0]), float(ends[1])

    def _point(self, losses: FloatArray) -> FloatArray:
        """Return where the loss has these values (minus infinity if it never gets so low)."""
        if self.shift == 0:
            # e^loss = 1 - q + q e^(r x - r^2/2). Next to the least loss, log(1 - q), rounding
            # decides on which side of it a loss is: it counts as on this side while it may be.
            least = math.log1p(-self.rate)
            gap, slip = losses - least, 4e-16 * np.abs(least)
            inside, above = gap > -slip, np.maximum(gap, slip)
            near = np.log((1 - self.rate) * np.expm1(np.minimum(above, 1.0)) / self.rate)
            far = above + least - math.log(self.rate) + np.log1p(-np.exp(-np.maximum(above, 1.0)))
            lean = np.where(above < 1.0, near, far)
            return np.where(inside, lean / self.step + self.step / 2, -np.inf)
        # The larger of the two Gaussians alone is below the mixture, so its point lies to the right
        # of the mixture's; twice the larger is above it. Newton's method on a convex function.
        far = self.shift + self.step
        x = np.minimum(
            (losses - math.log1p(-self.rate)) / self.shift + self.shift / 2,
            (losses - math.log(self.rate)) / far + far / 2,
        )
        for _ in range(200):
            lean = self.step * (x - self.shift) - self.step**2 / 2
            slope = self.shift + self.step * special.expit(lean + special.logit(self.rate))
            before, x = x, x - (self.loss(x) - losses) / slope
            if np.all(np.abs(before - x) <= 1e-9 * (1 + np.abs(x))):
                break
        return x


@dataclass(frozen=True)
class LaplacePair:
    """(1-q) Lap(0) + q Lap(ratio), scale one, against Lap(0)."""

    ratio: float
    rate: float

    @property
    def symmetric(self) -> bool:
        return self.rate == 1

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return the plain curve at the epsilon that sampling turns into this one."""
        floor = -np.expm1(np.minimum(epsilons, 0.0))
        share, inner, slip = np.ones_like(epsilons), epsilons, np.zeros_like(epsilons)
        if self.rate < 1 and order == 0:
            # P - e^eps Q = q (P1 - e^eps' Q) with q e^eps' = e^eps - 1 + q.
            rest = np.expm1(epsilons) + self.rate
            share = np.where(rest > 0, self.rate, 0.0)
            inner = np.log(np.maximum(rest, 1e-300) / self.rate)
        elif self.rate < 1:
            # Q - e^eps P = (1 - e^eps (1-q)) (Q - e^eps'' P1).
            share = -np.expm1(epsilons + math.log1p(-self.rate))
            slip = 6e-16 * (np.abs(epsilons) - math.log1p(-self.rate))
            inner = epsilons - np.log(np.maximum(share, 1e-300) / self.rate)
        below = -np.expm1(np.minimum(inner, 0.0))
        plain = -np.expm1(np.minimum(0.0, (inner - self.ratio) / 2))
        curve = np.maximum(share, 0.0) * np.where(inner < -self.ratio, below, plain)
        # Where the curve ends rounding decides; beyond that nothing is added, so that it does end.
        slip += 4e-16 * (2 + self.ratio) * np.maximum(share, 0.0)
        ended = (share < -slip) | (share * (inner - self.ratio) > 2 * slip)
        return np.maximum(np.where(ended, 0.0, curve + slip), floor)

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return the ends of the loss, which is bounded."""
        if self.rate == 1:
            return -self.ratio, self.ratio
        ends = [math.log1p(self.rate * math.expm1(s)) for s in (-self.ratio, self.ratio)]
        return (ends[0], ends[1]) if order == 0 else (-ends[1], -ends[0])


@dataclass(frozen=True)
class SwappedPair:
    """Two records m apart, in the batch of both neighbors with chance q, beside a shift a.

    From the loss a (a + m) / 2 on the curve is that of (1-q) N(a) + q N(a + m) against N(0); up to
    there it is the average of the Gaussian curves of a and of a + m. Without a shift: C_q(G(m)).
    """

    rate: float
    distance: float
    shift: float = 0.0
    symmetric = True

    @property
    def _mixture(self) -> SampledPair | None:
        mixed = self.shift > 0 and self.rate < 1
        return SampledPair(self.rate, self.distance, self.shift) if mixed else None

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return the two pieces for eps >= 0, reflected below zero."""
        size, far = np.abs(epsilons), GaussianPair(self.shift + self.distance)
        if self._mixture is None:
            # q delta(log(1 + (e^eps - 1)/q)), which loses no digits.
            grown = np.log1p(np.expm1(np.minimum(size, 30.0)) / self.rate)
            beyond = size - math.log(self.rate) + np.log1p((self.rate - 1) * np.exp(-size))
            inner = np.where(size < 30.0, grown, beyond)
            return _reflected(epsilons, self.rate * far.deltas(inner, 0))
        near = (1 - self.rate) * GaussianPair(self.shift).deltas(size, 0)
        near += self.rate * far.deltas(size, 0)
        border = self.shift * (self.shift + self.distance) / 2
        return _reflected(epsilons, np.where(size < border, near, self._mixture.deltas(size, 0)))

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return losses at quantiles of the mixture, on both sides alike."""
        return -self._end(LEFT_OUT), self._end(right)

    def _end(self, mass: float) -> float:
        far = self.shift + self.distance
        if self._mixture is not None:
            return max(self._mixture.reach(mass, 0)[1], self.shift * far / 2)
        inner = far**2 / 2 - far * _quantile(min(0.5, mass / self.rate))
        if inner > 30:
            return inner + math.log(self.rate) + 1e-9
        return math.log1p(self.rate * math.expm1(inner))


@dataclass(frozen=True)
class TableLoss:
    """The smallest symmetric curve above rows (epsilon, delta), convex in e^epsilon.

    A hockey stick is convex in e^epsilon, so it lies below every chord between two rows, and below
    the chords to the mirror images of rows.
    """

    rows: tuple[tuple[float, float], ...]
    symmetric = True

    @classmethod
    def of(cls, rows: list[tuple[float, float]]) -> TableLoss:
        """Return the lower hull of the rows and of what their mirror images say at zero."""
        # Where the mirror image's chord meets zero, as a sum of positive terms: nothing cancels.
        at_zero = min(
            math.tanh(eps / 2) + 2 * delta / (1 + math.exp(min(eps, 700.0))) for eps, delta in rows
        )
        hull = [(0.0, min(at_zero * (1 + 1e-14), 1.0))]
        for eps, delta in sorted(rows):
            while len(hull) > 1 and _chord(hull[-2], (eps, delta), hull[-1][0]) <= hull[-1][1]:
                hull.pop()
            if eps > 0 and delta < hull[-1][1]:
                hull.append((eps, delta))
        return cls(tuple(hull))

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return the chords, reflected below zero; constant after the last row."""
        eps, deltas = np.array(self.rows).T
        inside = np.minimum(np.abs(epsilons), eps[-1])
        left = np.clip(np.searchsorted(eps, inside, side="right") - 1, 0, max(eps.size - 2, 0))
        right = np.minimum(left + 1, eps.size - 1)
        gap = np.where(right > left, np.expm1(eps[right] - eps[left]), 1.0)
        share = np.clip(np.expm1(inside - eps[left]) / gap, 0.0, 1.0) * (1 - 1e-14)
        return _reflected(epsilons, deltas[left] - share * (deltas[left] - deltas[right]))

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return the last row that still tells something, on both sides."""
        eps, deltas = np.array(self.rows).T
        end = float(eps[int(np.argmax(deltas <= deltas[-1] + right))])
        return -max(end, 1e-9), max(end, 1e-9)


@dataclass(frozen=True)
class Between:
    """A pair that is ``share`` of one pair and the rest of another, law by law.

    Hockey sticks are jointly convex, so its curve lies below the same mixture of the two curves: as
    if it were told beforehand which of the two it is.
    """

    one: LossPair
    other: LossPair
    share: float

    @property
    def symmetric(self) -> bool:
        return self.one.symmetric and self.other.symmetric

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        ends = self.one.deltas(epsilons, order), self.other.deltas(epsilons, order)
        return np.asarray(self.share * ends[0] + (1 - self.share) * ends[1])

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return losses that leave out little of both."""
        lows, highs = zip(*(end.reach(right, order) for end in (self.one, self.other)), strict=True)
        return min(lows), max(highs)


def _chord(first: tuple[float, float], last: tuple[float, float], eps: float) -> float:
    share = math.expm1(eps - first[0]) / math.expm1(last[0] - first[0])
    return first[1] - share * (first[1] - last[1])


# --- one block of noise against many uses --------------------------------------------------------

_SPACING = 0.005
_FEWEST, _MOST = 2000, 8000
# Losses beyond this leave the range of numbers.
_LARGEST_LOSS = 600.0


@dataclass(frozen=True)
class _Curve:
    """Rising losses, the hockey stick at each, and the chance of a larger one."""

    losses: FloatArray
    sticks: FloatArray
    above: FloatArray


def _rising_curve(first: Tails, second: Tails, low: FloatArray, high: FloatArray) -> _Curve:
    """Return the curve of points whose losses lie between those, and rise.

    The hockey stick of the larger one is at most that of the true one, which is P(Y > y) less
    e^loss Q(Y > y). Larger losses than numbers hold are not told apart: beyond the last one the
    curve stays where it is.
    """
    # Distinct losses make chords well defined.
    keep = np.r_[np.diff(high) > 0, True] & (np.abs(high) < _LARGEST_LOSS)
    if np.count_nonzero(keep) < 2:
        raise ArithmeticError(f"one block has losses of {high[-1]:.3g}")
    grown = np.exp(np.minimum(low, _LARGEST_LOSS))
    sticks = first.upper - grown * second.upper
    sticks += first.upper_error + grown * second.upper_error
    sticks = np.clip(sticks, np.maximum(-np.expm1(high), 0.0), 1.0)
    above = np.minimum(first.upper + first.upper_error, 1.0)
    return _Curve(high[keep], sticks[keep], above[keep])


@dataclass(frozen=True, eq=False)
class BlockPair:
    """M + N(0, 1) against -M' + N(0, 1).

    The likelihood ratio p / q rises with y. So at the point y with log p/q = e the hockey stick of
    order e^e is P(Y > y) - e^e Q(Y > y), without any search. The curve is convex in e^epsilon:
    chords between such points lie above it. ``rarest`` is the chance down to which losses are told
    apart.
    """

    right: SmoothedLaw
    left: SmoothedLaw
    rarest: float

    @property
    def symmetric(self) -> bool:
        return self.left is self.right

    @cached_property
    def _curves(self) -> tuple[_Curve, _Curve]:
        """Return the curves of both orders."""
        bottom, top = -self.left.reach(self.rarest)[1], self.right.reach(self.rarest)[1]
        count = min(_MOST, max(_FEWEST, math.ceil((top - bottom) / _SPACING)))
        y = np.linspace(bottom, top, count)
        p, q = self.right.tails(y), self.left.tails(-y).reflected()
        low, high = self._losses(y, p, q)
        forth = _rising_curve(p, q, low, high)
        q, p = q.reflected().backwards(), p.reflected().backwards()
        return forth, _rising_curve(q, p, -high[::-1], -low[::-1])

    def _losses(self, y: FloatArray, p: Tails, q: Tails) -> tuple[FloatArray, FloatArray]:
        """Return rising losses that log p/q is not below, and not above.

        Rounding hides the smallest ones. But of values m of M and m' of M' the loss at y is
        y (m + m') + (m'^2 - m^2) / 2.
        """
        both, far = self.right.most + self.left.most, max(self.right.most, self.left.most)
        rise = (np.maximum(y, 0.0) * both + far**2 / 2) * (1 + 1e-12)
        fall = (np.minimum(y, 0.0) * both - far**2 / 2) * (1 + 1e-12)
        slip = p.log_density_error + q.log_density_error
        # There densities may be zero, and losses no numbers.
        with np.errstate(invalid="ignore"):
            losses = p.log_density - q.log_density
            low, high = np.fmax(losses - slip, fall), np.fmin(losses + slip, rise)
        return np.maximum.accumulate(low), np.minimum.accumulate(high[::-1])[::-1]

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return chords, linear in e^epsilon; towards minus infinity the curve goes to one."""
        losses, sticks = self._curves[order].losses, self._curves[order].sticks
        after = np.clip(np.searchsorted(losses, epsilons), 1, losses.size - 1)
        before = after - 1
        share = np.expm1(epsilons - losses[before]) / np.expm1(losses[after] - losses[before])
        inside = sticks[before] + np.clip(share, 0.0, 1.0) * (sticks[after] - sticks[before])
        below = 1 - np.exp(np.minimum(epsilons - losses[0], 0.0)) * (1 - sticks[0])
        return np.where(epsilons < losses[0], below, inside)

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return losses that the first law goes below or above with little chance."""
        losses, above = self._curves[order].losses, self._curves[order].above
        low, high = np.flatnonzero(1 - above <= LEFT_OUT), np.flatnonzero(above <= right)
        first = losses[low[-1]] if low.size else losses[0]
        last = losses[high[0]] if high.size else losses[-1]
        return float(first), float(max(last, first))


@lru_cache(maxsize=256)
def two_sided_pair(rate: float, step: float, rarest: float = 1e-30) -> BlockPair:
    """Return (1-q) N(0) + q N(r) against (1-q) N(0) + q N(-r): one step's replaced record."""
    law = Atoms(np.array([0.0, step]), np.array([1 - rate, rate]))
    return BlockPair(law, law, rarest)
