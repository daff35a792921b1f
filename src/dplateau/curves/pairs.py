"""One-dimensional dominating pairs of laws, in units of the standard deviation of the noise.

A pair ``(P, Q)`` has the privacy loss ``log P/Q``. The order ``"remove"`` reads that loss under
``P``; the order ``"add"`` reads ``log Q/P`` under ``Q``. Every pair answers two questions: its
exact hockey-stick curve, and how much mass both laws put on each cell of a grid of losses. The
second answer is rounded so that it can only make the pair look less private (first law up, second
law down), because the accountant that reads it reports proved upper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
from scipy import special

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.normal import log_gaussian_delta

__all__ = ["DominatingPair", "LaplacePair", "Order", "PoissonPair", "SubsampledGaussianPair"]

Order = Literal["remove", "add"]
# Relative allowance for a short chain of roundings and special functions.
_ROUND: Final = 16.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class LossCells:
    """Log masses on the cells ``(-inf, e_0], (e_0, e_1], ..., (e_n, inf)`` of the privacy loss.

    ``log_first`` is an upper bound for the law the loss is read under, ``log_second`` a lower bound
    for the other law. A border may sit ``border_error`` away from its edge, in loss; the part of
    that error which widens a cell is already taken off ``log_second``.
    """

    log_first: FloatArray
    log_second: FloatArray
    border_error: float


class DominatingPair(Protocol):
    """What the accountant needs to know about a pair of laws; pairs are hashable values."""

    @property
    def symmetric(self) -> bool:
        """Whether both orders have the same curve."""

    @property
    def trivial(self) -> bool:
        """Whether both laws are the same."""

    @property
    def largest_loss(self) -> float:
        """The pure epsilon: no loss is larger, in either order; infinite under Gaussian noise."""

    def delta(self, epsilon: FloatArray, order: Order) -> FloatArray:
        """Hockey-stick divergence at every real ``epsilon``."""

    def loss_range(self, tail_mass: float, order: Order) -> tuple[float, float]:
        """Losses beyond which the first law keeps about ``tail_mass`` at most, on either side."""

    def cells(self, edges: FloatArray, order: Order) -> LossCells:
        """Masses of both laws between increasing losses ``edges``."""


@dataclass(frozen=True, slots=True)
class PoissonPair:
    """``(1-q) N(a, 1) + q N(a + r, 1)`` against ``N(0, 1)``.

    One step of Poisson-sampled noisy descent: the record joins with probability
    ``sampling_rate`` and moves the state by at most ``step``; ``shift`` is the part of an earlier
    gap that this step absorbs. The likelihood ratio increases along the line, so every set of
    large loss is a half-line.

    >>> round(float(PoissonPair(sampling_rate=1.0, step=1.0).delta(np.array(0.0), "add")), 6)
    0.382925
    """

    sampling_rate: float
    step: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        _check(self.sampling_rate, step=self.step, shift=self.shift)

    @property
    def symmetric(self) -> bool:
        """Two Gaussians are symmetric; a genuine mixture is not."""
        return self.sampling_rate in (0.0, 1.0) or self.step == 0.0

    @property
    def trivial(self) -> bool:
        """No shift, and no record that could move the state."""
        return self.shift == 0.0 and (self.sampling_rate == 0.0 or self.step == 0.0)

    @property
    def largest_loss(self) -> float:
        """Unbounded unless both laws are the same."""
        return 0.0 if self.trivial else math.inf

    def loss(self, point: FloatArray) -> FloatArray:
        """``log P/Q`` at a point of the line."""
        return self.shift * (point - self.shift / 2.0) + _mix(self._gain(point), self.sampling_rate)

    def point(self, loss: FloatArray) -> FloatArray:
        """Where ``log P/Q`` equals ``loss``; minus infinity below the range of the loss."""
        if self.symmetric:
            mean = self._far if self.sampling_rate == 1.0 else self.shift
            return loss / mean + mean / 2.0
        if self.shift == 0.0:
            return _unmix(loss, self.sampling_rate) / self.step + self.step / 2.0
        return self._newton(loss)

    def delta(self, epsilon: FloatArray, order: Order) -> FloatArray:
        """Hockey stick, as a sum of Gaussian ones and hence free of cancellation.

        At the point where the ratio of the mixture is ``e^epsilon`` each component has a ratio of
        its own; splitting ``e^epsilon Q`` accordingly writes the divergence as the weighted sum
        of the Gaussian divergences at those ratios.
        """
        eps = np.asarray(epsilon, dtype=np.float64)
        total = np.maximum(-np.expm1(eps), 0.0)
        if self.trivial:
            return total
        sign = 1.0 if order == "remove" else -1.0
        x, value = self.point(sign * eps), np.zeros_like(eps)
        for weight, mean in self.components():
            if mean > 0.0:
                own = mean * (x - mean / 2.0)
                tilt = 0.0 if order == "remove" else eps + own
                value += np.exp(math.log(weight) + tilt + log_gaussian_delta(sign * own, mean))
        # Below the range of the loss every outcome counts, which is the bound 1 - e^epsilon.
        return np.maximum(value, total)

    def loss_range(self, tail_mass: float, order: Order) -> tuple[float, float]:
        """Quantiles of the loss, from those of the Gaussian components."""
        reach = -float(special.ndtri(tail_mass / 2.0))
        low, high = -reach, reach
        if order == "remove":
            rare = tail_mass / (2.0 * max(self.sampling_rate, tail_mass))
            low, high = self.shift - reach, self.shift + reach
            high = max(high, self._far - float(special.ndtri(rare)))
        ends = self.loss(np.array([low, high]))
        return _ordered(float(ends[0]), float(ends[1]), order)

    def cells(self, edges: FloatArray, order: Order) -> LossCells:
        """Masses of the mixture and of the standard normal law."""
        return _oriented(self._masses, edges, order)

    def half_lines(self, points: FloatArray, *, up: bool) -> tuple[FloatArray, FloatArray]:
        """Log masses of the mixture, rounded up or down, and of ``N(0, 1)``, rounded oppositely."""
        # Rounding may swap close points; sorting them keeps the cells disjoint.
        points = np.maximum.accumulate(points)
        low, high = points[:-1], points[1:]
        parts = [math.log(w) + log_normal_cells(low, high, m, up=up) for w, m in self.components()]
        mixture = parts[0] if len(parts) == 1 else np.logaddexp(parts[0], parts[1])
        return mixture, log_normal_cells(low, high, 0.0, up=not up)

    def border_error(self, edges: FloatArray, points: FloatArray) -> float:
        """Bound on how far the loss at ``points`` is from ``edges``: what is seen, and rounding."""
        seen = np.isfinite(points)
        x, target, q = points[seen], edges[seen], self.sampling_rate
        share = special.expit(self._gain(x) + special.logit(q))
        size = self.shift * (np.abs(x) + self.shift) + np.abs(target)
        size += share * (self.step * (np.abs(x) + self._far) - math.log(max(q, 1e-300)))
        # The other component contributes log(1-q), which is also where the loss may be cut off.
        rest = 0.0 if q == 1.0 else -math.log1p(-q)
        error = np.abs(self.loss(x) - target) + _ROUND * (size + (1.0 - share) * rest)
        return float(np.max(error, initial=_ROUND * rest))

    @property
    def _far(self) -> float:
        return self.shift + self.step

    def components(self) -> list[tuple[float, float]]:
        """Weights and means of the Gaussians that have any weight."""
        q = self.sampling_rate
        return [pair for pair in ((1.0 - q, self.shift), (q, self._far)) if pair[0] > 0.0]

    def _gain(self, point: FloatArray) -> FloatArray:
        """Log ratio of the two components of the mixture."""
        return self.step * (point - self.shift - self.step / 2.0)

    def _masses(self, edges: FloatArray, up: bool) -> tuple[FloatArray, FloatArray, float]:
        points = self.point(edges)
        mixture, plain = self.half_lines(np.concatenate([[-np.inf], points, [np.inf]]), up=up)
        return mixture, plain, self.border_error(edges, points)

    def _newton(self, loss: FloatArray) -> FloatArray:
        """Invert a convex increasing loss from the right, where Newton's method is monotone."""
        q, a, far = self.sampling_rate, self.shift, self._far
        # Each component alone lies below the mixture, so both starts are right of the root.
        plain, moved = (loss - math.log1p(-q)) / a + a / 2.0, (loss - math.log(q)) / far + far / 2.0
        x = np.minimum(plain, moved)
        for _ in range(60):
            slope = a + self.step * special.expit(self._gain(x) + special.logit(q))
            excess = self.loss(x) - loss
            x = x - excess / slope
            if np.all(np.abs(excess) <= _ROUND * (1.0 + np.abs(loss))):
                break
        return x


@dataclass(frozen=True, slots=True)
class SubsampledGaussianPair:
    """A swap of ``parameter`` m in a sample of rate q, while the step absorbs ``shift`` a.

    The curve is symmetric. With ``g = e^epsilon`` and ``g* = e^(a (a + m) / 2)`` it is that of
    ``(1-q) N(a, 1) + q N(a + m, 1)`` against ``N(0, 1)`` for ``g >= g*``, and the average
    ``(1-q) delta_a + q delta_(a+m)`` of two Gaussian curves for ``1 <= g <= g*``; the two pieces
    meet with one slope at ``g*``, where the likelihood ratio of the mixture and of both its parts
    is the same (docs/theory/fixed_size.md). Without a shift this is ``C_q(G(m))``, the symmetric
    subsampling operator of Dong, Roth and Su (arXiv 1905.02383, section 4), and the middle piece
    shrinks to an atom at loss 0.
    """

    sampling_rate: float
    parameter: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        _check(self.sampling_rate, parameter=self.parameter, shift=self.shift)

    @property
    def symmetric(self) -> bool:
        """Always: record and replacement may change places."""
        return True

    @property
    def trivial(self) -> bool:
        """Nothing to absorb, and a record that is never sampled or that moves nothing."""
        return self._half.trivial

    @property
    def largest_loss(self) -> float:
        """Unbounded unless both laws are the same."""
        return 0.0 if self.trivial else math.inf

    def delta(self, epsilon: FloatArray, order: Order) -> FloatArray:
        """Both pieces, extended to negative ``epsilon`` by symmetry."""
        eps = np.asarray(epsilon, dtype=np.float64)
        size = np.abs(eps)
        value = self._half.delta(size, "remove")
        if self.shift > 0.0:
            parts = [w * np.exp(log_gaussian_delta(size, m)) for w, m in self._half.components()]
            value = np.where(size >= self._border, value, sum(parts))
        return np.where(eps >= 0.0, value, np.exp(-size) * value - np.expm1(-size))

    def loss_range(self, tail_mass: float, order: Order) -> tuple[float, float]:
        """Symmetric bounds: the positive half has the heavier tail."""
        high = max(self._half.loss_range(tail_mass, "remove")[1], self._border)
        return -high, high

    def cells(self, edges: FloatArray, order: Order) -> LossCells:
        """Both outer pieces and what lies between; an edge at 0 keeps the atom to itself."""
        half, center = self._half, self.shift + self.parameter / 2.0
        right, left = np.maximum(edges, self._border), np.maximum(-edges[::-1], self._border)
        # No sliver next to the border may fall into a cell of smaller losses.
        above = np.where(right > self._border, np.maximum(half.point(right), center), center)
        below = np.where(left > self._border, np.maximum(half.point(left), center), center)
        first, second = half.half_lines(np.concatenate([[center], above, [np.inf]]), up=True)
        mirror = half.half_lines(np.concatenate([[center], below, [np.inf]]), up=False)
        first = np.logaddexp(first, mirror[1][::-1])
        second = np.logaddexp(second, mirror[0][::-1])
        error = max(half.border_error(right, above), half.border_error(left, below))
        for weight, mean in half.components() if self.shift > 0.0 else ():
            between = self._between(edges, mean)
            first = np.logaddexp(first, math.log(weight) + between[0])
            second = np.logaddexp(second, math.log(weight) + between[1])
            error = max(error, between[2])
        atom = (1.0 - self.sampling_rate) * math.erf(self.parameter / math.sqrt(8.0))
        if self.shift == 0.0 and atom > 0.0:
            _add_atom(first, second, edges, 0.0, math.log(atom), math.log(atom))
        return LossCells(first + _ROUND, second - _ROUND - error, error)

    def _between(self, edges: FloatArray, mean: float) -> tuple[FloatArray, FloatArray, float]:
        """Masses of ``N(mean, 1)``, up, and ``N(0, 1)``, down, at losses between the borders."""
        plain = PoissonPair(1.0, mean)
        inner = np.clip(edges, -self._border, self._border)
        ends = plain.point(np.array([-self._border, self._border]))
        points = plain.point(inner)
        first, second = plain.half_lines(np.concatenate([ends[:1], points, ends[1:]]), up=True)
        return first, second, plain.border_error(inner, points)

    @property
    def _half(self) -> PoissonPair:
        return PoissonPair(self.sampling_rate, self.parameter, self.shift)

    @property
    def _border(self) -> float:
        """The loss at which the mixture and its parts have the same likelihood ratio."""
        return self.shift * (self.shift + self.parameter) / 2.0


@dataclass(frozen=True, slots=True)
class LaplacePair:
    """``(1-q) Lap(0) + q Lap(s)`` against ``Lap(0)``, both of scale 1, with ``s = ratio``.

    Outside ``[0, s]`` the two densities keep a constant ratio, so the loss has an atom at either
    end of its range.
    """

    ratio: float
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        _check(self.sampling_rate, ratio=self.ratio)

    @property
    def symmetric(self) -> bool:
        """Only without sampling."""
        return self.sampling_rate == 1.0 or self.trivial

    @property
    def trivial(self) -> bool:
        """A record that is never sampled, or that moves nothing."""
        return self.sampling_rate == 0.0 or self.ratio == 0.0

    @property
    def largest_loss(self) -> float:
        """The larger atom, rounded up."""
        low, high = self._ends()
        return max(-low, high, 0.0) * (1.0 + _ROUND)

    def delta(self, epsilon: FloatArray, order: Order) -> FloatArray:
        """Hockey stick of the mixture, from the closed form for two Laplace laws."""
        eps = np.asarray(epsilon, dtype=np.float64)
        total = np.maximum(-np.expm1(eps), 0.0)
        if self.trivial:
            return total
        sign = 1.0 if order == "remove" else -1.0
        gain = sign * _unmix(sign * eps, self.sampling_rate)
        inside = -np.expm1(np.minimum(gain - self.ratio, 0.0) / 2.0)
        plain = np.where(gain >= -self.ratio, inside, -np.expm1(np.minimum(gain, 0.0)))
        weight = 1.0 if order == "remove" else np.exp(eps - gain)
        return np.maximum(self.sampling_rate * weight * plain, total)

    def loss_range(self, tail_mass: float, order: Order) -> tuple[float, float]:
        """Both atoms, with room for the rounding of their place."""
        low, high = self._ends()
        room = _ROUND * (1.0 + self.ratio)
        return _ordered(low - room, high + room, order)

    def cells(self, edges: FloatArray, order: Order) -> LossCells:
        """Masses of the exponential parts and of both atoms."""
        return _oriented(self._masses, edges, order)

    def _masses(self, edges: FloatArray, up: bool) -> tuple[FloatArray, FloatArray, float]:
        s, q = self.ratio, self.sampling_rate
        gain = np.concatenate([[-s], np.clip(_unmix(edges, q), -s, s), [s]])
        gain = np.maximum.accumulate(gain)
        still, moved = self._exponentials(gain, up=up)
        mixture = math.log(q) + moved
        if q < 1.0:
            mixture = np.logaddexp(mixture, math.log1p(-q) + still)
        plain = self._exponentials(gain, up=not up)[0]
        half, (low, high) = math.log(0.5), self._ends()
        _add_atom(mixture, plain, edges, low, half + low, half)
        _add_atom(mixture, plain, edges, high, half - s + high, half - s)
        size = 1.0 + s + float(np.max(np.abs(edges)))
        slack = _ROUND * size * (1.0 if up else -1.0)
        return mixture + slack, plain - slack, _ROUND * size

    def _ends(self) -> tuple[float, float]:
        ends = _mix(np.array([-self.ratio, self.ratio]), self.sampling_rate)
        return float(ends[0]), float(ends[1])

    def _exponentials(self, gain: FloatArray, *, up: bool) -> tuple[FloatArray, FloatArray]:
        """Log masses of ``Lap(0)`` and ``Lap(s)`` where their log ratio runs between ``gain``."""
        slack = _ROUND * (1.0 + self.ratio) * (1.0 if up else -1.0)
        gap = np.maximum(-np.expm1(-np.diff(gain) / 2.0) + slack, 0.0)
        with np.errstate(divide="ignore"):
            log_gap = np.log(gap / 2.0)
        return log_gap - (gain[:-1] + self.ratio) / 2.0, log_gap + (gain[1:] - self.ratio) / 2.0


def log_normal_cells(
    low: FloatArray, high: FloatArray, mean: float | FloatArray, *, up: bool
) -> FloatArray:
    """Log mass of ``N(mean, 1)`` between ``low`` and ``high``, rounded up or down.

    The nearer tail of each cell is used, so that the difference loses only the digits that a
    narrow cell must lose; that loss is what the allowance measures.
    """
    # With next to no losses one cell is the whole line, whose mass is 1: no tail is nearer.
    line = np.isneginf(low) & np.isposinf(high)
    low, high = np.where(line, 0.0, low - mean), np.where(line, 0.0, high - mean)
    flip = low + high > 0.0
    near = special.log_ndtr(np.where(flip, -low, high))
    far = special.log_ndtr(np.where(flip, -high, low))
    place = np.minimum(np.abs(low), np.abs(high))
    slack = _ROUND * (1.0 + np.abs(near) + (1.0 + place) * (place + 2.0 * np.abs(mean)))
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = -np.expm1(far - near) + (slack if up else -slack)
        value = near + np.log(np.maximum(gap, 0.0))
    return np.where(line, 0.0, np.where(low < high, value, -np.inf))


def _oriented(
    masses: Callable[[FloatArray, bool], tuple[FloatArray, FloatArray, float]],
    edges: FloatArray,
    order: Order,
) -> LossCells:
    """Read masses known for the order ``remove`` in either order; ``add`` negates the loss."""
    if order == "remove":
        p, q, error = masses(edges, True)
        return LossCells(p, q - error, error)
    p, q, error = masses(-edges[::-1], False)
    return LossCells(q[::-1], p[::-1] - error, error)


def _add_atom(
    first: FloatArray, second: FloatArray, edges: FloatArray, loss: float, p: float, s: float
) -> None:
    """Put an atom of log masses ``p`` and ``s`` into the cell that holds ``loss``, in place."""
    cell = int(np.searchsorted(edges, loss, side="left"))
    first[cell], second[cell] = np.logaddexp(first[cell], p), np.logaddexp(second[cell], s)


def _mix(gain: FloatArray, rate: float) -> FloatArray:
    """``log(1 - q + q e^gain)``, accurate also where it is close to 0."""
    if rate in (0.0, 1.0):
        return rate * gain
    return np.logaddexp(math.log1p(-rate), math.log(rate) + gain)


def _unmix(loss: FloatArray, rate: float) -> FloatArray:
    """Inverse of :func:`_mix` for a positive rate; minus infinity below its range."""
    if rate == 1.0:
        return loss
    with np.errstate(divide="ignore"):
        return loss - math.log(rate) + np.log(-np.expm1(np.minimum(math.log1p(-rate) - loss, 0.0)))


def _ordered(low: float, high: float, order: Order) -> tuple[float, float]:
    return (low, high) if order == "remove" else (-high, -low)


def _check(rate: float, **sizes: float) -> None:
    if not 0.0 <= rate <= 1.0:
        raise InvalidInput(f"sampling_rate must lie in [0, 1]; got sampling_rate={rate!r}.")
    for name, value in sizes.items():
        if not (math.isfinite(value) and value >= 0.0):
            raise InvalidInput(f"{name} must be finite and at least 0; got {name}={value!r}.")
