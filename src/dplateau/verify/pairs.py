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


class LossPair(Protocol):
    """A pair of laws on the line."""

    @property
    def symmetric(self) -> bool:
        """Whether both orders have the same curve."""

    @property
    def typical_loss(self) -> float:
        """About how far the loss usually is from its mean; a grid is a part of that."""

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return the hockey sticks at real epsilons, negative ones included."""

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return losses that leave out ``LEFT_OUT`` below and ``right`` above, or less."""


def _stick(epsilons: FloatArray, first: FloatArray, log_second: FloatArray) -> FloatArray:
    """Return first - e^(eps + log_second), rounded up.

    No hockey stick is below 1 - e^epsilon. Logarithms of this size are known to a few roundings of
    themselves.
    """
    second = np.exp(np.minimum(epsilons + log_second, 700.0))
    digits = 1e-15 + 4e-16 * (np.abs(epsilons) + np.minimum(np.abs(log_second), 1e4))
    gap = first - second + 1e-15 * first + digits * second
    found: FloatArray = np.maximum(gap, -np.expm1(np.minimum(epsilons, 0.0)))
    return found


def _reflected(epsilons: FloatArray, upper: FloatArray) -> FloatArray:
    """Extend a symmetric curve below zero: delta(-e) = 1 - e^-e + e^-e delta(e)."""
    size = np.abs(epsilons)
    found: FloatArray = np.where(epsilons >= 0, upper, -np.expm1(-size) + np.exp(-size) * upper)
    return found


def _quantile(mass: float) -> float:
    """Return the point that a standard normal law is below with that chance (negative)."""
    return float(special.ndtri(mass))


@dataclass(frozen=True)
class GaussianPair:
    """N(mu, 1) against N(0, 1)."""

    mu: float

    @property
    def symmetric(self) -> bool:
        """Reflecting the line exchanges the two."""
        return True

    @property
    def typical_loss(self) -> float:
        """Return the standard deviation."""
        return self.mu

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""
        half, scaled = self.mu / 2, epsilons / self.mu
        return _stick(epsilons, special.ndtr(half - scaled), special.log_ndtr(-half - scaled))

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return the loss mu x - mu^2/2 at quantiles of x ~ N(mu, 1)."""
        center = self.mu**2 / 2
        return center + self.mu * _quantile(LEFT_OUT), center - self.mu * _quantile(right)


@dataclass(frozen=True)
class SampledPair:
    """(1-q) N(a, 1) + q N(a + r, 1) against N(0, 1): the main theorem's step, q < 1 and r > 0."""

    rate: float
    step: float
    shift: float = 0.0

    @property
    def symmetric(self) -> bool:
        """A genuine mixture has two different orders."""
        return False

    @property
    def typical_loss(self) -> float:
        """Return the standard deviation under the first law, by a sum over a grid."""
        x = np.linspace(self.shift - 8, self.shift + self.step + 8, 2001)
        means = (self.shift, self.shift + self.step)
        near, far = (np.exp(-((x - mean) ** 2) / 2) for mean in means)
        law = (1 - self.rate) * near + self.rate * far
        law /= law.sum()
        loss = self.loss(x)
        return math.sqrt(float(law @ (loss - law @ loss) ** 2))

    def loss(self, x: FloatArray) -> FloatArray:
        """Return log P/Q at points of the line: an increasing function."""
        lean = self.step * (x - self.shift) - self.step**2 / 2
        mixed = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + lean)
        found: FloatArray = self.shift * x - self.shift**2 / 2 + mixed
        return found

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
            # e^loss = 1 - q + q e^(r x - r^2/2).
            rest = np.expm1(losses) + self.rate
            inside = rest > 0
            lean = np.log(np.where(inside, rest, 1.0) / self.rate)
            return np.where(inside, lean / self.step + self.step / 2, -np.inf)
        # Each Gaussian alone is below the mixture, and twice the larger one is above it.
        low, x = self._alone(losses - math.log(2.0)), self._alone(losses)
        for _ in range(6):  # the loss is convex, so a chord lies right of a tangent: halve first
            middle = (low + x) / 2
            above = self.loss(middle) > losses
            low, x = np.where(above, low, middle), np.where(above, middle, x)
        for _ in range(200):  # Newton's method, from the right of a convex function's root
            lean = self.step * (x - self.shift) - self.step**2 / 2
            slope = self.shift + self.step * special.expit(lean + special.logit(self.rate))
            before, x = x, x - (self.loss(x) - losses) / slope
            if np.all(np.abs(before - x) <= 1e-9 * (1 + np.abs(x))):
                break
        return x

    def _alone(self, losses: FloatArray) -> FloatArray:
        """Return where the larger of the two Gaussians, weighted, has these losses."""
        far = self.shift + self.step
        points = (
            (losses - math.log1p(-self.rate)) / self.shift + self.shift / 2,
            (losses - math.log(self.rate)) / far + far / 2,
        )
        return np.minimum(*points)


@dataclass(frozen=True)
class LaplacePair:
    """(1-q) Lap(0) + q Lap(ratio), scale one, against Lap(0)."""

    ratio: float
    rate: float

    @property
    def symmetric(self) -> bool:
        """Two plain Laplace laws are symmetric."""
        return self.rate == 1

    @property
    def typical_loss(self) -> float:
        """Return about the largest loss, or the chance of one."""
        return self.rate * min(self.ratio, 1.0)

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return the plain curve at the epsilon that sampling turns into this one."""
        floor = -np.expm1(np.minimum(epsilons, 0.0))
        if self.rate == 1:
            found = self._plain(epsilons)
        elif order == 0:
            # P - e^eps Q = q (P1 - e^eps' Q) with q e^eps' = e^eps - 1 + q.
            rest = np.expm1(epsilons) + self.rate
            inner = np.log(np.maximum(rest, 1e-300) / self.rate)
            found = np.where(rest > 0, self.rate * self._plain(inner), floor)
        else:
            # Q - e^eps P = (1 - e^eps (1-q)) (Q - e^eps'' P1).
            share = -np.expm1(epsilons + math.log1p(-self.rate))
            inner = epsilons + math.log(self.rate) - np.log(np.maximum(share, 1e-300))
            found = np.where(share > 0, share * self._plain(inner), floor)
        # Rounding of an epsilon moves the curve by no more than itself.
        return np.maximum(found + 4e-16 * (1 + self.ratio) * (found > 0), floor)

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return the ends of the loss, which is bounded."""
        if self.rate == 1:
            return -self.ratio, self.ratio
        ends = [math.log1p(self.rate * math.expm1(s)) for s in (-self.ratio, self.ratio)]
        return (ends[0], ends[1]) if order == 0 else (-ends[1], -ends[0])

    def _plain(self, epsilons: FloatArray) -> FloatArray:
        plain = -np.expm1(np.minimum(0.0, (epsilons - self.ratio) / 2))
        below = -np.expm1(np.minimum(epsilons, 0.0))
        return np.where(epsilons < -self.ratio, below, plain)


@dataclass(frozen=True)
class SwappedPair:
    """Two records m apart, in the batch of both neighbors with chance q, beside a shift a.

    From the loss a (a + m) / 2 on the curve is that of (1-q) N(a) + q N(a + m) against N(0); up to
    there it is the average of the Gaussian curves of a and of a + m. Without a shift: C_q(G(m)).
    """

    rate: float
    distance: float
    shift: float = 0.0

    @property
    def symmetric(self) -> bool:
        """Either record may be the one that is replaced."""
        return True

    @property
    def typical_loss(self) -> float:
        """Return that of the mixture."""
        if self.rate == 1:
            return self.distance + self.shift
        return SampledPair(self.rate, self.distance, self.shift).typical_loss

    def deltas(self, epsilons: FloatArray, order: int) -> FloatArray:
        """Return the two pieces for eps >= 0, reflected below zero."""
        size = np.abs(epsilons)
        upper = self._far(size)
        if self.shift > 0:
            near = (1 - self.rate) * GaussianPair(self.shift).deltas(size, 0)
            near += self.rate * GaussianPair(self.shift + self.distance).deltas(size, 0)
            border = self.shift * (self.shift + self.distance) / 2
            upper = np.where(size < border, near, upper)
        return _reflected(epsilons, upper)

    def _far(self, size: FloatArray) -> FloatArray:
        if self.rate == 1:
            return GaussianPair(self.shift + self.distance).deltas(size, 0)
        if self.shift > 0:
            return SampledPair(self.rate, self.distance, self.shift).deltas(size, 0)
        # q delta_m(log(1 + (e^eps - 1)/q)), which loses no digits.
        inner = np.where(
            size < 30.0,
            np.log1p(np.expm1(np.minimum(size, 30.0)) / self.rate),
            size - math.log(self.rate),
        )
        found: FloatArray = self.rate * GaussianPair(self.distance).deltas(inner, 0)
        return found

    def reach(self, right: float, order: int) -> tuple[float, float]:
        """Return losses at quantiles of the mixture, on both sides alike."""
        return -self._end(LEFT_OUT), self._end(right)

    def _end(self, mass: float) -> float:
        if self.shift > 0 and self.rate < 1:
            top = SampledPair(self.rate, self.distance, self.shift).reach(mass, 0)[1]
            return max(top, self.shift * (self.shift + self.distance) / 2)
        far = self.shift + self.distance
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

    @classmethod
    def of(cls, rows: list[tuple[float, float]]) -> TableLoss:
        """Return the lower hull of the rows and of what their mirror images say at zero."""
        at_zero = min(1 - (1 - delta) * 2 / (1 + math.exp(min(eps, 700.0))) for eps, delta in rows)
        hull = [(0.0, at_zero * (1 + 1e-14))]
        for eps, delta in sorted(rows):
            while len(hull) > 1 and _chord(hull[-2], (eps, delta), hull[-1][0]) <= hull[-1][1]:
                hull.pop()
            if eps > 0 and delta < hull[-1][1]:
                hull.append((eps, delta))
        return cls(tuple(hull))

    @property
    def symmetric(self) -> bool:
        """The rows hold in both orders."""
        return True

    @property
    def typical_loss(self) -> float:
        """E[loss^2] is the integral of 2 eps P(loss > eps), and delta is at most that chance."""
        x = np.linspace(0.0, self.rows[-1][0], 2001)
        total = 4.0 * float((x * self.deltas(x, 0)).mean()) * self.rows[-1][0]
        return math.sqrt(total) + 1e-9

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


def _chord(first: tuple[float, float], last: tuple[float, float], eps: float) -> float:
    share = math.expm1(eps - first[0]) / math.expm1(last[0] - first[0])
    return first[1] - share * (first[1] - last[1])


# --- one block of noise against many uses --------------------------------------------------------

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

    The likelihood ratio p / q rises with y. So at the point y with log p/q = e the hockey stick of
    order e^e is P(Y > y) - e^e Q(Y > y), without any search. The curve is convex in e^epsilon:
    chords between such points lie above it. ``rarest`` is the chance down to which losses are told
    apart.
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
        q = _plain(y) if self.left is None else self.left.tails(-y).reflected()
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
    """(1-q) N(0, 1) + q N(r, 1) against (1-q) N(0, 1) + q N(-r, 1): one step's replaced record.

    ``rarest`` is the chance down to which losses are told apart.
    """

    rate: float
    step: float
    rarest: float = 1e-30

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
    return BlockPair(law, law, pair.rarest)


def _plain(y: FloatArray) -> Tails:
    """Return N(0, 1) itself."""
    upper, lower = special.ndtr(-y), special.ndtr(y)
    log_density = -(y**2) / 2 - math.log(math.sqrt(2 * math.pi))
    return Tails(upper, lower, log_density, 1e-14 * upper, 1e-14 * lower)


def _chords(epsilons: FloatArray, losses: FloatArray, sticks: FloatArray) -> FloatArray:
    """Interpolate linearly in e^epsilon; towards minus infinity the curve goes to one."""
    after = np.clip(np.searchsorted(losses, epsilons), 1, losses.size - 1)
    before = after - 1
    share = np.expm1(epsilons - losses[before]) / np.expm1(losses[after] - losses[before])
    inside = sticks[before] + np.clip(share, 0.0, 1.0) * (sticks[after] - sticks[before])
    below = 1 - np.exp(np.minimum(epsilons - losses[0], 0.0)) * (1 - sticks[0])
    found: FloatArray = np.where(epsilons < losses[0], below, inside)
    return found
