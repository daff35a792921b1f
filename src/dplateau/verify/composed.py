"""The package without types, dp-accounting, behind a few typed functions.

Compositions of dominating pairs on a grid of losses, and the epsilon they give.

dp-accounting makes the masses of one step; several rows of counts share them. Products of
characteristic functions compose them. Before the transform the masses are tilted by e^(tilt loss),
so that the losses that decide about delta are the likely ones and rounding errors of the transform
stay far below any delta asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import fft, optimize

from dplateau.ground.types import FloatArray
from dplateau.verify.pairs import LossPair


@dataclass(frozen=True)
class LossMasses:
    """Privacy losses ``(lowest + i) * interval`` with ``masses[i]``, and the mass at infinity."""

    interval: float
    lowest: int
    masses: FloatArray
    infinity: float


def connected_dots(interval: float, lowest: int, deltas: FloatArray) -> LossMasses:
    """Return the losses on a grid that dominate a curve given by its deltas on that grid.

    This is dp-accounting's pessimistic estimate (Doroshenko et al., 2022): its hockey sticks are
    the given ones at every grid point and nowhere smaller in between.
    """
    from dp_accounting.pld import pld_pmf

    falling = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    found = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        interval, lowest, lowest + deltas.size - 1, falling
    ).to_dense_pmf()
    return LossMasses(
        interval,
        int(found._lower_loss),
        np.asarray(found._probs, dtype=float),
        float(found._infinity_mass),
    )


@dataclass(frozen=True)
class SampledNoise:
    """``count`` sampled releases: a distance in units of the noise's deviation or scale."""

    kind: str
    distance: float
    sampling_rate: float
    count: int


def composed_epsilon(parts: Sequence[SampledNoise], delta: float, interval: float) -> float:
    """Return dp-accounting's own epsilon for add/remove neighbours, rounded up on its grid."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    total: Any = None
    for part in parts:
        options: dict[str, Any] = {
            "sensitivity": part.distance,
            "sampling_prob": part.sampling_rate,
            "value_discretization_interval": interval,
        }
        if part.kind == "laplace":
            one = pld.from_laplace_mechanism(1.0, **options)
        else:
            one = pld.from_gaussian_mechanism(1.0, **options)
        several = one.self_compose(part.count) if part.count > 1 else one
        total = several if total is None else total.compose(several)
    return float(total.get_epsilon_for_delta(delta))


# Chance left out of a window, in the tilted law, as a negative logarithm.
_WINDOW = 40.0
_MOST_CELLS = 1 << 21
_MOST_CELLS_OF_ONE = 1 << 19
# What the losses beyond the grid may cost, as a share of delta.
_SHARE_BEYOND = 1e-5
# A chance this much below delta, as a logarithm, need not be made likelier.
_DEEP = 20.0
# How far from its point a composed curve is read, as a factor, and the least epsilon told from 0.
STRIDE = 1.2
# A claim further from its proof than so many strides is not looked for.
_MOST_MOVES = 12
_SMALLEST = 1e-9


@dataclass(frozen=True)
class Rows:
    """delta(eps) <= sum_k weights[k] delta_k(eps) + extra; row k composes counts[k][i] pairs[i]."""

    pairs: tuple[LossPair, ...]
    counts: FloatArray
    weights: tuple[float, ...]
    extra: float

    @property
    def orders(self) -> tuple[int, ...]:
        """Return the orders that must be looked at."""
        return (0,) if all(pair.symmetric for pair in self.pairs) else (0, 1)


Curve = Callable[[float], float]


def composed_curve(rows: Rows, interval: float, epsilon: float, delta: float) -> Curve:
    """Return an upper bound on delta(eps) that is sharp near the given point."""
    tail = _SHARE_BEYOND * delta / max(1.0, float(rows.counts.sum(axis=1).max()))
    curves = []
    for order in rows.orders:
        parts = [_masses(pair, order, interval, tail) for pair in rows.pairs]
        near = _Near(epsilon, math.log(delta) - _DEEP)
        curves.append(_average(parts, rows.counts, np.array(rows.weights), near))
    return lambda eps: max(curve(eps) for curve in curves) + rows.extra


def _masses(pair: LossPair, order: int, interval: float, tail: float) -> LossMasses:
    low, high = pair.reach(tail, order)
    first, last = math.floor(low / interval), math.ceil(high / interval)
    if last - first > _MOST_CELLS_OF_ONE:
        raise ArithmeticError("one step's losses need too fine a grid")
    grid = np.arange(first, last + 1, dtype=np.float64) * interval
    return connected_dots(interval, first, pair.deltas(grid, order))


@dataclass(frozen=True)
class _Near:
    """The epsilon around which a curve is wanted, and the logarithm of a delta far below any."""

    epsilon: float
    log_floor: float


def _average(
    parts: list[LossMasses], counts: FloatArray, weights: FloatArray, near: _Near
) -> Curve:
    """Return the average curve of the rows, those with the same tilt composed together."""
    moments = _Moments(parts, counts)
    tilts = moments.best_tilts(near)
    curves = []
    for tilt in np.unique(tilts):
        alike = tilts == tilt
        curves.append(_mixture(moments.of_rows(alike), weights[alike], float(tilt)))
    infinity = float(weights @ (counts @ np.array([part.infinity for part in parts])))
    return lambda eps: sum(curve(eps) for curve in curves) + infinity


def _mixture(moments: _Moments, weights: FloatArray, tilt: float) -> Curve:
    """Compose every row under one tilt, and return the weighted sum of their curves."""
    interval = moments.parts[0].interval
    windows = moments.windows(tilt)
    laws = moments.laws(windows, tilt)
    logs = moments.at(tilt)
    top = float(logs.max())
    sizes = weights * np.exp(logs - top)
    lowest = min(low for low, _ in windows)
    total = np.zeros(max(low for low, _ in windows) - lowest + laws[0].size)
    for (low, _), law, size in zip(windows, laws, sizes, strict=True):
        total[low - lowest : low - lowest + law.size] += size * law
    losses = (lowest + np.arange(total.size)) * interval
    # What the windows leave out and what the transform rounds, both relative to the tilted law.
    noise = float(sizes.sum()) * (2 * math.exp(-_WINDOW) + 1e-16 * total.size)

    def delta(eps: float) -> float:
        first = int(np.searchsorted(losses, eps, side="right"))
        x = losses[first:] - eps
        masses = total[first:] * np.exp(-tilt * x) * -np.expm1(-x)
        return math.exp(min(top - tilt * eps, 600.0)) * (float(masses.sum()) + noise)

    return delta


@dataclass(frozen=True)
class _Moments:
    """Rows of counts over parts, known through their moment generating functions."""

    parts: list[LossMasses]
    counts: FloatArray
    # Logarithms of the parts' moments at tilts asked for before.
    known: dict[float, FloatArray] = field(default_factory=dict)

    def of_rows(self, chosen: npt.NDArray[np.bool_]) -> _Moments:
        """Return some of the rows; what is known of the parts is shared."""
        return _Moments(self.parts, self.counts[chosen], self.known)

    def at(self, tilt: float) -> FloatArray:
        """Return log E e^(tilt loss) of every row."""
        if tilt not in self.known:
            self.known[tilt] = np.array([_log_moment(part, tilt) for part in self.parts])
        found: FloatArray = self.counts @ self.known[tilt]
        return found

    def best_tilts(self, near: _Near) -> FloatArray:
        """Return for every row about the tilt at which e^-(tilt eps) times its moment is least.

        Zero, or a power of two: rows whose losses are above epsilon anyway are not tilted, and
        none is tilted further once its losses there are too rare to matter.
        """
        tilt, best = 0.0, self.at(0.0)
        tilts = np.zeros(best.size)
        while tilt < 1e7:
            tilt = max(2 * tilt, 2.0**-6)
            heights = self.at(tilt) - tilt * near.epsilon
            better = (heights < best) & (best > near.log_floor)
            if not better.any():
                break
            tilts[better] = tilt
            best = np.minimum(best, heights)
        return tilts

    def windows(self, tilt: float) -> list[tuple[int, int]]:
        """Return for every row the cells that hold all but e^-40 of its tilted law (Chernoff)."""
        base, interval = self.at(tilt), self.parts[0].interval
        spread = self._deviations(tilt)
        slopes = np.geomspace(1 / spread.max(), 12 / spread.min(), 12)
        highs = [(self.at(tilt + s) - base + _WINDOW) / s for s in slopes]
        lows = [(base - self.at(tilt - s) - _WINDOW) / s for s in slopes]
        high = np.ceil(np.min(highs, axis=0) / interval).astype(np.int64)
        low = np.floor(np.max(lows, axis=0) / interval).astype(np.int64)
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def _deviations(self, tilt: float) -> FloatArray:
        """Return the standard deviation of every row's tilted loss."""
        variances = []
        for part in self.parts:
            law, x = _tilted(part, tilt), _losses(part)
            mean = float((law * x).sum())
            variances.append(float((law * (x - mean) ** 2).sum()))
        found: FloatArray = np.sqrt(self.counts @ np.array(variances))
        return np.maximum(found, self.parts[0].interval)

    def laws(self, windows: list[tuple[int, int]], tilt: float) -> list[FloatArray]:
        """Return the tilted law of every row on its window, by one transform of each part."""
        size = fft.next_fast_len(max(high - low for low, high in windows) + 2, real=True)
        if size > _MOST_CELLS:
            raise ArithmeticError("the composition needs too fine a grid")
        logs = np.zeros((len(windows), size // 2 + 1), dtype=np.complex128)
        for i, part in enumerate(self.parts):
            if not self.counts[:, i].any():
                continue
            # Only residues modulo the size count: the window holds each of them once.
            places = np.arange(part.masses.size) % size
            transform = fft.rfft(np.bincount(places, _tilted(part, tilt), size))
            transform[np.abs(transform) < 1e-250] = 1e-250
            log = np.log(transform)
            for k in np.flatnonzero(self.counts[:, i]):
                logs[k] += self.counts[k, i] * log
        found = []
        for (low, _), row, log in zip(windows, self.counts, logs, strict=True):
            law = np.maximum(fft.irfft(np.exp(log), size), 0.0)
            lowest = sum(int(n) * part.lowest for n, part in zip(row, self.parts, strict=True))
            found.append(np.roll(law, -((low - lowest) % size)))
        return found


def _losses(part: LossMasses) -> FloatArray:
    cells = np.arange(part.masses.size, dtype=np.float64)
    return (part.lowest + cells) * part.interval


def _tilted(part: LossMasses, tilt: float) -> FloatArray:
    """Return the masses times e^(tilt loss), divided by their sum."""
    x = tilt * _losses(part) - _log_moment(part, tilt)
    return part.masses * np.exp(np.maximum(x, -300.0))


def _log_moment(part: LossMasses, tilt: float) -> float:
    """Return log E e^(tilt loss)."""
    x = tilt * _losses(part)
    top = float(x.max())
    # Losses that weigh less than e^-300 count as e^-300: nothing is lost, and underflow is slow.
    sizes = part.masses * np.exp(np.maximum(x - top, -300.0))
    return top + math.log(float(sizes.sum()))


def epsilon_near(curve_near: Callable[[float], Curve], delta: float, guess: float) -> float:
    """Return the epsilon at which a falling curve reaches delta; infinite if it never does.

    ``curve_near(point)`` is sharp around the point only, so the search looks a little to both
    sides of it and moves on if the answer is not there.
    """
    point = guess
    if point <= _SMALLEST:
        if curve_near(0.0)(0.0) <= delta:
            return 0.0
        point = 1e-3
    for _ in range(_MOST_MOVES):
        curve = curve_near(point)
        low, high = point / STRIDE, point * STRIDE
        if curve(high) > delta:
            point = high * STRIDE
        elif curve(low) <= delta:
            point = low / STRIDE
        else:
            return _root(curve, delta, low, high)
        if point > 1e9:
            return math.inf
        if point <= _SMALLEST:
            return 0.0
    return math.inf


def _root(curve: Curve, delta: float, low: float, high: float) -> float:
    def excess(eps: float) -> float:
        return math.log(max(curve(eps), 1e-300) / delta)

    return float(optimize.brentq(excess, low, high, rtol=1e-10))
