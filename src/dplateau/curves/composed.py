"""Curves composed numerically from one-dimensional dominating pairs.

:class:`LossCurve` is one product of pairs. A run that starts from several possible distances needs
the average of several products of the same few pairs, not equally often repeated
(:class:`AveragedLossCurve`): they share a grid, a tilt, a window and the transforms, and a row of
counts is one product. The error analysis of :mod:`dplateau.curves.privacy_loss` holds row by row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import fft

from dplateau.curves import privacy_loss as pl
from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon
from dplateau.curves.pairs import DominatingPair, Order
from dplateau.curves.privacy_loss import ComposedLoss, LossPmf, PldResult, compose_pairs
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.solve import smallest_where

ORDERS: tuple[Order, ...] = ("remove", "add")
_MOST_CELLS = 1 << 20


@dataclass(frozen=True, eq=False)
class LossFamily:
    """One composition for each row of counts, in both orders unless they are the same."""

    target_delta: float
    rows: dict[Order, tuple[ComposedLoss, ...]]

    def delta(self, epsilon: float, weights: FloatArray) -> float:
        """Return :meth:`deltas` at one epsilon."""
        return float(self.deltas(np.array([epsilon]), weights)[0])

    def deltas(self, epsilons: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the largest over orders of sum_k weights[k] * delta_k for every epsilon.

        Rows are ordered by how far their start reaches; a later row covers the earlier ones, so
        its delta is taken to be at least theirs (the weights may be upper bounds on tails).
        """
        sums = []
        for composed in self.rows.values():
            table = np.array([loss.delta(epsilons) for loss in composed])
            sums.append(weights @ np.maximum.accumulate(table, axis=0))
        largest: FloatArray = np.max(sums, axis=0)
        return largest


def compose_family(
    pairs: Sequence[DominatingPair],
    counts: FloatArray,
    *,
    target_delta: float,
    rtol: float = 1e-3,
) -> LossFamily:
    """Compose ``counts[k, i]`` copies of ``pairs[i]`` for every row k, pessimistically.

    The grid is fine enough to cost epsilon about ``rtol``; a coarser one would be as sound.
    """
    counts = np.asarray(counts, dtype=float)
    total = int(counts.sum(axis=1).max())
    tail = target_delta * pl._TAIL_SHARE / max(total, 1)
    step = _step(pairs, counts, target_delta, tail, rtol)
    orders = ORDERS[:1] if all(pair.symmetric for pair in pairs) else ORDERS
    rows = {
        order: _compose_rows(
            [pl.discretize(pair, order, step, tail) for pair in pairs], counts, target_delta
        )
        for order in orders
    }
    return LossFamily(target_delta, rows)


def _step(
    pairs: Sequence[DominatingPair],
    counts: FloatArray,
    target_delta: float,
    tail: float,
    rtol: float,
) -> float:
    """Return a grid step that costs epsilon about ``rtol`` (see ``compose_pairs`` for the rule).

    Epsilon and the tilt are read off a coarse composition of the row of largest counts.
    """
    spans = [high - low for low, high in (pair.loss_range(tail, "remove") for pair in pairs)]
    step = max(spans) / 400.0
    laws = [pl.discretize(pair, "remove", step, tail) for pair in pairs]
    parts = _parts(laws, counts[-1])
    epsilon = pl.compose(parts, target_delta=target_delta).epsilon(target_delta)
    tilt = _tilt(parts, target_delta, step)[0] / step
    room = 0.4 * rtol * min(max(epsilon, 1e-6), 1e6) / float(counts[-1].sum())
    # Splitting cells raises the log moment at this tilt by at most count * t (t + 1) step^2 / 8.
    wanted = math.sqrt(8.0 * room / (tilt + 1.0))
    return max(min(wanted, step), 2.0 * max(spans) / _MOST_CELLS)


def _compose_rows(
    laws: list[LossPmf], counts: FloatArray, target_delta: float
) -> tuple[ComposedLoss, ...]:
    """Compose every row at the tilt that suits the last one, which is exposed most."""
    light, heavy = _parts(laws, counts[0]), _parts(laws, counts[-1])
    step = laws[0].step
    tilt = _tilt(heavy, target_delta, step)
    theta, log_tail = tilt[0], math.log(target_delta * pl._TAIL_SHARE)
    windows = [pl._window(parts, pl._cumulants(parts, theta), log_tail) for parts in (light, heavy)]
    low = min(window[0] for window in windows)
    end = max(window[0] + window[1] for window in windows)
    size = int(fft.next_fast_len(end - low, real=True))
    steep = pl._saddle(heavy, log_tail, 1.3 * theta)[0]
    above = np.exp(np.minimum(counts @ _tilted(laws, steep)[1] - steep * (low + size), 0.0))
    weights, levels, means = _tilted(laws, theta)
    masses = _powers(laws, weights, means, counts, low, size)
    exponent = (counts @ levels)[:, None] - theta * (low + np.arange(size))
    masses = np.minimum(masses * np.exp(np.minimum(exponent, 700.0)), 1.0)
    shift = counts @ np.array([law.shift for law in laws]) * (1.0 + pl._ROUND)
    tails = _infinite(laws, counts) + above * (1.0 + pl._ROUND) + pl._UNDERFLOW
    return tuple(
        ComposedLoss(step, low, row, float(tail), float(moved))
        for row, tail, moved in zip(masses, tails, shift, strict=True)
    )


def _parts(laws: list[LossPmf], row: FloatArray) -> list[tuple[LossPmf, int]]:
    return [(law, int(n)) for law, n in zip(laws, row, strict=True) if n]


def _tilt(
    parts: list[tuple[LossPmf, int]], target_delta: float, step: float
) -> tuple[float, float, float, float]:
    guess = 1.0 / math.sqrt(max(pl._cumulants(parts, 0.0)[3], 1e-12))
    return pl._saddle(parts, math.log(target_delta), guess, step=step)


def _tilted(laws: list[LossPmf], theta: float) -> tuple[list[FloatArray], FloatArray, FloatArray]:
    """Return the tilted weights of every law, their log moments and their means."""
    tilted = [law._tilted(theta) for law in laws]
    levels, means = np.array([row[1] for row in tilted]), np.array([row[2] for row in tilted])
    return [row[0] for row in tilted], levels, means


def _infinite(laws: list[LossPmf], counts: FloatArray) -> FloatArray:
    logs = np.array([math.log1p(-min(law.infinity_mass, 1.0 - 1e-16)) for law in laws])
    lost: FloatArray = -np.expm1(counts @ logs) * (1.0 + pl._ROUND)
    return lost


def _powers(
    laws: list[LossPmf],
    weights: list[FloatArray],
    means: FloatArray,
    counts: FloatArray,
    low: int,
    size: int,
) -> FloatArray:
    """Return the composed tilted masses of every row, with the rounding allowance added."""
    bases = np.round(means).astype(np.int64)
    folded = np.zeros((len(laws), size))
    for i, (row, law) in enumerate(zip(weights, laws, strict=True)):
        places = (law.lowest - int(bases[i]) + np.arange(row.size)) % size
        folded[i] = np.bincount(places, row, size)
    spectra = fft.rfft(folded, axis=1)
    unit = pl._ROUND * (math.log2(size) + max(row.size for row in weights) / size)
    moduli = np.abs(spectra) + unit
    logs = np.log(moduli)
    log_modulus = counts @ logs
    relative = counts @ (2.0 * unit / moduli + pl._ROUND * (4.0 + np.abs(logs)))
    negligible = log_modulus <= -120.0
    relative[negligible] = 2.0
    relative = np.minimum(relative, 2.0) + pl._ROUND * math.log2(size)
    modulus = np.exp(log_modulus)
    error = 2.1 / size * (modulus * relative).sum(axis=1, keepdims=True)
    modulus[negligible] = 0.0
    product = modulus * np.exp(1j * (counts @ np.angle(spectra)))
    masses = np.maximum(fft.irfft(product, size, axis=1) + error, 0.0)
    turned = [
        np.roll(row, -int((low - origin) % size))
        for row, origin in zip(masses, counts @ bases, strict=True)
    ]
    return np.stack(turned)


Parts = tuple[tuple[DominatingPair, int], ...]
# Deltas between which a composition is centered; outside, the last one is still valid, only looser.
SMALLEST_TARGET, LARGEST_TARGET = 1e-279, 0.5
_ROUND_UP = 1 + 1e-12


@dataclass(frozen=True)
class LossCurve(PrivacyCurve):
    """The composition of ``parts`` (pairs with their repeats), pessimistic, both orders.

    >>> from dplateau.curves.pairs import PoissonPair
    >>> curve = LossCurve(((PoissonPair(sampling_rate=0.01, step=1.0), 1000),))
    >>> curve.epsilon(1e-5) < curve.epsilon(1e-6)
    True
    """

    parts: Parts
    # What fails outright, and is charged to delta.
    extra_delta: float = 0.0
    # How much of epsilon the grid may cost: a coarse curve is as sound, only looser.
    resolution: float = 1e-3

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of a composition centered where its delta is the one asked for."""
        target = checked_delta(delta)
        if target == 0 == self.extra_delta:
            return math.fsum(n * pair.largest_loss for pair, n in self.parts if n) * (1 + 1e-14)
        room = min(target, 1 - 1e-16) - self.extra_delta * _ROUND_UP
        if room <= 0:
            return math.inf
        return self._composed(room).epsilon(room)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta found, re-centring the composition on what it finds."""
        eps = checked_epsilon(epsilon)
        least = min(float(result.delta(np.array(eps))) for result in self._centered(eps))
        return min(1.0, (least + self.extra_delta) * _ROUND_UP)

    def _centered(self, epsilon: float) -> Iterator[PldResult]:
        target, wanted = 0.0, 1e-6
        for _ in range(8):
            if wanted / 30 < target < wanted * 30:
                return
            target = wanted
            result = self._composed(target)
            yield result
            delta = float(result.delta(np.array(epsilon)))
            if delta <= self.extra_delta:
                return
            wanted = next_target(delta, target)

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
        """Return delta at many epsilons, from one composition."""
        composed = self._composed(center).delta(epsilons)
        return np.asarray(np.minimum((composed + self.extra_delta) * _ROUND_UP, 1.0))

    def loss_parts(self) -> Parts:
        """Return the parts themselves."""
        return self.parts

    def _composed(self, target: float) -> PldResult:
        center = min(max(target, SMALLEST_TARGET), LARGEST_TARGET)
        return _composed(self.parts, center, self.resolution)


def next_target(last: float, target: float) -> float:
    """Return the delta to center the next composition at, after ``last`` at the last one."""
    # Tails cut off at a share of the target hide whatever is smaller: then look much further down.
    aim = last if last > 1e-4 * target else last * last
    # Powers of ten, so that nearby questions share their compositions.
    power = 10.0 ** math.floor(math.log10(max(aim, SMALLEST_TARGET)))
    return min(max(power, SMALLEST_TARGET), LARGEST_TARGET)


@lru_cache(maxsize=32)
def _composed(parts: Parts, target: float, resolution: float) -> PldResult:
    return compose_pairs(parts, target_delta=target, rtol=resolution)


@dataclass(frozen=True)
class AveragedLossCurve(PrivacyCurve):
    """delta(eps) = max over orders of sum_k weights[k] delta_k(eps), plus ``extra_delta``.

    Row k composes ``counts[k][i]`` copies of ``pairs[i]``. Rows must be ordered by exposure: a
    release that is covered by one row is covered by every later one.
    """

    pairs: tuple[DominatingPair, ...]
    counts: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    extra_delta: float = 0.0
    # How much of epsilon the grid may cost: a coarse curve is as sound, only looser.
    resolution: float = 1e-3

    def __post_init__(self) -> None:
        """Check shapes and weights."""
        widths = {len(row) for row in self.counts}
        if widths != {len(self.pairs)} or len(self.counts) != len(self.weights):
            raise InvalidInput("an average needs one weight per row and one count per pair")
        if not all(value >= 0 for value in (*self.weights, self.extra_delta)):
            raise InvalidInput("the weights of an average are at least 0")

    def epsilon(self, delta: float) -> float:
        """Invert delta(epsilon) on compositions centered at the delta asked for; infinite at 0."""
        target = checked_delta(delta)
        room = target - self.extra_delta * _ROUND_UP
        if room <= 0:
            return math.inf
        family = self._family(self._center(target))
        if self._delta_of(family, 0.0) <= target:
            return 0.0
        top = 1.0
        while self._delta_of(family, top) > target:
            top *= 2
            if top > 1e7:
                return math.inf
        return smallest_where(
            lambda eps: self._delta_of(family, eps) <= target, 0.0, top, rtol=self.resolution * 1e-4
        )

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta found, re-centring the compositions on what they give."""
        eps = checked_epsilon(epsilon)
        best, target, wanted = 1.0, 0.0, 1e-6
        for _ in range(8):
            if wanted / 30 < target < wanted * 30:
                break
            target = wanted
            averaged = self._delta_of(self._family(target), eps)
            best = min(best, averaged)
            if averaged <= 2 * self.extra_delta:
                break
            wanted = next_target(averaged, target)
        return best

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
        """Return delta at many epsilons, from one family of compositions."""
        averaged = self._family(self._center(center)).deltas(epsilons, np.array(self.weights))
        return np.asarray(np.minimum((averaged + self.extra_delta) * _ROUND_UP, 1.0))

    def loss_parts(self) -> tuple[tuple[DominatingPair, int], ...] | None:
        """Return the pairs if there is one row: then it is a plain product."""
        if len(self.counts) > 1 or self.weights != (1.0,):
            return None
        return tuple((pair, n) for pair, n in zip(self.pairs, self.counts[0], strict=True) if n)

    def _center(self, delta: float) -> float:
        """Return the delta to center on: what the failures leave of the one asked for."""
        return min(max(delta - self.extra_delta, SMALLEST_TARGET), LARGEST_TARGET)

    def _delta_of(self, family: LossFamily, epsilon: float) -> float:
        total = family.delta(epsilon, np.array(self.weights)) + self.extra_delta
        return min(1.0, total * _ROUND_UP)

    def _family(self, target: float) -> LossFamily:
        return _composed_family(self.pairs, self.counts, target, self.resolution)


@lru_cache(maxsize=8)
def _composed_family(
    pairs: tuple[DominatingPair, ...],
    counts: tuple[tuple[int, ...], ...],
    target: float,
    resolution: float,
) -> LossFamily:
    rows = np.array(counts, dtype=float)
    return compose_family(pairs, rows, target_delta=target, rtol=resolution)
