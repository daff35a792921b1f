"""Compositions of dominating pairs on a grid of losses, and the epsilon they give.

dp-accounting makes the masses of one step; several rows of counts share them. Products of
characteristic functions compose them. Before the transform the masses are tilted by e^(tilt loss),
so that the losses that decide about delta are the likely ones: what rounding may take off is stated
relative to the tilted law, and lies far below any delta asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache

import numpy as np
from scipy import fft, optimize

from dplateau.ground.types import BoolArray, ComplexArray, FloatArray, IntArray
from dplateau.verify.pairs import Between, LossPair
from dplateau.verify.precise import Precise, up
from dplateau.verify.report import go_on

# delta as a function of epsilon.
Curve = Callable[[float], float]
# Chance left out of a window, in the tilted law, as a negative logarithm.
_WINDOW = 40.0
_MOST_CELLS, _MOST_CELLS_OF_ALL = 1 << 21, 1 << 24
_MOST_CELLS_OF_ONE = 1 << 19
# Intervals of a grid; e^interval must be a number.
_FINEST, _COARSEST = 1e-12, 500.0
# What the losses beyond the grid may cost, as a share of delta.
_SHARE_BEYOND = 1e-5
# A chance this much below delta, as a logarithm, need not be made likelier.
_DEEP = 20.0
# How far from its point a composed curve is read, as a factor, and the least epsilon told from 0.
STRIDE = 1.2
_SMALLEST, _SMALL = 1e-9, 1e-2
# A claim further from its proof than so many strides is not looked for.
_MOST_MOVES = 12
# More steps than that leave nothing but rounding.
_MOST_STEPS = 1e10
# Grids that are tried for one epsilon.
_ATTEMPTS = 8
# A rounding, times the few that each step takes.
_UNIT = 1e-15
# Transforms that are multiplied before a logarithm is taken, none of them taken for smaller.
_TOGETHER, _LEAST = 8, 1e-30


@dataclass(frozen=True)
class Rows:
    """delta(eps) <= sum_k weights[k] delta_k(eps) + extra; row k composes counts[k][i] pairs[i]."""

    pairs: tuple[LossPair, ...]
    counts: FloatArray
    weights: tuple[float, ...]
    extra: float

    @classmethod
    def product(cls, parts: Sequence[tuple[LossPair, float]], extra: Precise = 0.0) -> Rows:
        """Return one product of pairs, each so many times."""
        counts = np.array([[float(count) for _, count in parts]])
        return cls(tuple(pair for pair, _ in parts), counts, (1.0,), up(extra))

    @property
    def orders(self) -> tuple[int, ...]:
        """Return the orders that must be looked at."""
        return (0,) if all(pair.symmetric for pair in self.pairs) else (0, 1)

    def interval(self, epsilon: float) -> float:
        """Return a grid that is a small part of the typical loss of one step, and of epsilon.

        A grid adds about a sixth of its squared interval to the variance of every step.
        """
        mixes = _Mixes.of(self.pairs)
        variances = mixes.average(np.array([_variance(pair) for pair in mixes.ends]))
        steps = self.counts.sum(axis=1)
        small = math.sqrt(float(((self.counts * variances).sum(axis=1) / steps).min()))
        if steps.max() == 1:
            small *= 0.2
        found = max(min(small / 12, max(epsilon, 5 * small) / 300), epsilon / 50000)
        return min(max(found, _FINEST), _COARSEST)

    def curves(self, interval: float, delta: float) -> Callable[[float], Curve]:
        """Return upper bounds on delta(eps), each sharp near one epsilon and this delta."""
        steps = float(self.counts.sum(axis=1).max())
        if steps > _MOST_STEPS:
            raise ArithmeticError(f"{steps:g} steps in one composition are too many")
        tail = _SHARE_BEYOND * delta / max(1.0, steps)
        mixes = _Mixes.of(self.pairs)
        parts = [
            [_masses(pair, order, interval, tail) for pair in mixes.ends] for order in self.orders
        ]
        weights, floor = np.array(self.weights), math.log(delta) - _DEEP

        def near(epsilon: float) -> Curve:
            moments = [_Moments(part, mixes, self.counts) for part in parts]
            curves = [_average(one, weights, epsilon, floor) for one in moments]
            return lambda eps: _largest([curve(eps) for curve in curves]) + self.extra

        return near


def _largest(deltas: list[float]) -> float:
    """Return the largest of some deltas; what is no number is not below any other."""
    if any(map(math.isnan, deltas)):
        raise ArithmeticError("a curve has a value that is no number")
    return max(deltas)


@dataclass(frozen=True)
class LossMasses:
    """Privacy losses ``(lowest + i) * interval`` with ``masses[i]``, and the mass at infinity."""

    interval: float
    lowest: int
    masses: FloatArray
    infinity: float

    @property
    def losses(self) -> FloatArray:
        """Return the losses themselves."""
        return (self.lowest + np.arange(self.masses.size, dtype=np.float64)) * self.interval

    @cached_property
    def logs(self) -> FloatArray:
        """Return the logarithms of the masses."""
        with np.errstate(divide="ignore"):
            return np.log(self.masses)


def _masses(pair: LossPair, order: int, interval: float, tail: float) -> LossMasses:
    go_on()
    low, high = pair.reach(tail, order)
    first, last = math.floor(low / interval), math.ceil(high / interval)
    if last - first > _MOST_CELLS_OF_ONE:
        raise ArithmeticError("one step's losses need too fine a grid")
    grid = np.arange(first, last + 1, dtype=np.float64) * interval
    deltas = pair.deltas(grid, order)
    # What is no number is not above a claim either, and would prove every one.
    if np.isnan(deltas).any():
        raise ArithmeticError("one step's curve has a value that is no number")
    return connected_dots(interval, first, deltas)


def _variance(pair: LossPair) -> float:
    """Return about the variance of a pair's loss under its first law."""
    low, high = pair.reach(1e-6, 0)
    part = _masses(pair, 0, min(max((high - low) / 4000, _FINEST), _COARSEST), 1e-6)
    mean = float(part.masses @ part.losses) / float(part.masses.sum())
    return float(part.masses @ (part.losses - mean) ** 2)


def connected_dots(interval: float, lowest: int, deltas: FloatArray) -> LossMasses:
    """Return the losses on a grid that dominate a curve given by its deltas on that grid.

    This is dp-accounting's pessimistic estimate (Doroshenko et al., 2022): its hockey sticks are
    the given ones at every grid point and nowhere smaller in between.
    """
    from dp_accounting.pld import pld_pmf

    falling = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    law = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        interval, lowest, lowest + deltas.size - 1, falling
    ).to_dense_pmf()
    masses = np.asarray(law._probs, dtype=float)
    return LossMasses(interval, int(law._lower_loss), masses, float(law._infinity_mass))


def _average(moments: _Moments, weights: FloatArray, epsilon: float, floor: float) -> Curve:
    """Return the average curve of the rows, those with the same tilt composed together."""
    tilts = moments.best_tilts(epsilon, floor)
    curves = []
    for tilt in np.unique(tilts):
        alike = tilts == tilt
        curves.append(_mixture(moments.of_rows(alike), weights[alike], float(tilt)))
    beyond = moments.mixes.average(np.array([part.infinity for part in moments.parts]))
    infinity = float(weights @ (moments.counts @ beyond)) * (1 + _UNIT)
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
    # What the windows leave out, and what transforms and their powers round, both relative to the
    # tilted law: a power of n multiplies a transform's log2(size) roundings by n.
    powers = _UNIT * float(moments.counts.sum(axis=1).max()) * math.log2(2 * total.size)
    noise = float(sizes.sum()) * (2 * math.exp(-_WINDOW) + 1e-16 * total.size + 10 * powers)

    def delta(eps: float) -> float:
        first = int(np.searchsorted(losses, eps, side="right"))
        x = losses[first:] - eps
        masses = total[first:] * np.exp(-tilt * x) * -np.expm1(-x)
        scale = math.exp(min(top - tilt * eps, 600.0)) * (1 + powers)
        return scale * (float(masses.sum()) + noise)

    return delta


@dataclass(frozen=True)
class _Mixes:
    """Pairs as mixtures of a few: ``share`` of one end and the rest of another, by their places."""

    ends: tuple[LossPair, ...]
    one: IntArray
    other: IntArray
    share: FloatArray

    @classmethod
    def of(cls, pairs: Sequence[LossPair]) -> _Mixes:
        """Return the ends of mixed pairs; another pair is all of itself."""
        mixed = [p if isinstance(p, Between) else Between(p, p, 1.0) for p in pairs]
        places: dict[LossPair, int] = {}
        for end in (end for mix in mixed for end in (mix.one, mix.other)):
            places.setdefault(end, len(places))
        return cls(
            tuple(places),
            np.array([places[mix.one] for mix in mixed]),
            np.array([places[mix.other] for mix in mixed]),
            np.array([mix.share for mix in mixed]),
        )

    def average(self, values: FloatArray) -> FloatArray:
        """Return every mixture's average of what its ends have."""
        return np.asarray(self.share * values[self.one] + (1 - self.share) * values[self.other])

    def tilted(self, logs: FloatArray) -> tuple[FloatArray, _Mixes]:
        """Return log moments of the mixtures by those of their ends, and their tilted laws."""
        with np.errstate(divide="ignore"):
            ours = np.log(self.share) + logs[self.one]
            mixed = np.logaddexp(ours, np.log1p(-self.share) + logs[self.other])
        return mixed, replace(self, share=np.exp(ours - mixed))


@dataclass(frozen=True)
class _Moments:
    """Rows of counts over mixtures of parts, known through their moment generating functions."""

    parts: list[LossMasses]
    mixes: _Mixes
    counts: FloatArray
    # What was asked for before: logarithms of the mixtures' moments at a tilt, and their laws.
    known: dict[float, tuple[FloatArray, _Mixes]] = field(default_factory=dict)

    def of_rows(self, chosen: BoolArray) -> _Moments:
        """Return some of the rows; what is known of the parts is shared."""
        return replace(self, counts=self.counts[chosen])

    def at(self, tilt: float) -> FloatArray:
        """Return log E e^(tilt loss) of every row."""
        return np.asarray(self.counts @ self._mixed(tilt)[0])

    def _mixed(self, tilt: float) -> tuple[FloatArray, _Mixes]:
        if tilt not in self.known:
            logs = np.array([_log_moment(part, tilt) for part in self.parts])
            self.known[tilt] = self.mixes.tilted(logs)
        return self.known[tilt]

    def best_tilts(self, epsilon: float, floor: float) -> FloatArray:
        """Return for every row about the tilt at which e^-(tilt eps) times its moment is least.

        Zero, or near a power of two: rows whose losses are above epsilon anyway are not tilted,
        and none is tilted further once its losses there are too rare to matter.
        """
        tilt, best = 0.0, self.at(0.0)
        tilts = np.zeros(best.size)
        while tilt < 1e7:
            tilt = max(2 * tilt, 2.0**-6)
            heights = self.at(tilt) - tilt * epsilon
            better = (heights < best) & (best > floor)
            if not better.any():
                break
            tilts[better] = tilt
            best = np.minimum(best, heights)
        if best.size == 1 and tilts[0] > 0:
            return np.array([self._sharpest(float(tilts[0]), epsilon)])
        for tilt in np.unique(tilts[tilts > 0]):
            rows = tilts == tilt
            for factor in (0.6, 0.8, 1.25, 1.6):  # where delta is tiny, a factor of two costs much
                heights = self.at(factor * tilt) - factor * tilt * epsilon
                better = rows & (heights < best)
                tilts[better] = factor * tilt
                best[better] = heights[better]
        return tilts

    def _sharpest(self, near: float, epsilon: float) -> float:
        """Return the tilt near this one at which e^-(tilt eps) times the one row's moment is least.

        The further losses spread, the sooner a tilt beside it puts epsilon where nothing is likely.
        """
        best = optimize.minimize_scalar(
            lambda tilt: float(self.at(tilt)[0]) - tilt * epsilon,
            bounds=(near / 2, 2 * near),
            options={"xatol": 1e-3 * near},
            method="bounded",
        )
        return float(best.x)

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
        moments = np.array([_mean_and_square(part, tilt) for part in self.parts]).T
        mean, square = (self._mixed(tilt)[1].average(values) for values in moments)
        spread = np.sqrt(self.counts @ np.maximum(square - mean**2, 0.0))
        return np.asarray(np.maximum(spread, self.parts[0].interval))

    def laws(self, windows: list[tuple[int, int]], tilt: float) -> list[FloatArray]:
        """Return the tilted law of every row on its window, by one transform of each part."""
        size = fft.next_fast_len(max(high - low for low, high in windows) + 2, real=True)
        if size > _MOST_CELLS or size * len(windows) > _MOST_CELLS_OF_ALL:
            raise ArithmeticError("the composition needs too fine a grid")
        logs = np.zeros((len(windows), size // 2 + 1), dtype=np.complex128)
        columns, where = np.unique(self.counts, axis=1, return_inverse=True)
        for i, column in enumerate(columns.T):
            # Mixtures that all rows repeat equally often.
            alike = np.flatnonzero(where.ravel() == i).tolist() if column.any() else []
            for log in self._log_transforms(alike, tilt, size):
                for k in np.flatnonzero(column):
                    logs[k] += column[k] * log
        laws = []
        for (low, _), log in zip(windows, logs, strict=True):
            law = np.maximum(fft.irfft(np.exp(log), size), 0.0)
            laws.append(np.roll(law, -(low % size)))
        return laws

    def _log_transforms(
        self, chosen: Sequence[int], tilt: float, size: int
    ) -> Iterator[ComplexArray]:
        """Yield logarithms that add up to that of the product of the chosen tilted transforms."""
        mixes = self._mixed(tilt)[1]

        # Mixtures come in the order of their ends, so that the last few transforms serve them.
        @lru_cache(maxsize=4)
        def transform(place: int) -> ComplexArray:
            go_on()
            # Only residues modulo the size count: the window holds each of them once.
            part = self.parts[place]
            residues = (part.lowest + np.arange(part.masses.size)) % size
            return np.asarray(fft.rfft(np.bincount(residues, _tilted(part, tilt), size)))

        for begin in range(0, len(chosen), _TOGETHER):
            product = np.ones(size // 2 + 1, dtype=np.complex128)
            for i in chosen[begin : begin + _TOGETHER]:
                share, one, other = mixes.share[i], int(mixes.one[i]), int(mixes.other[i])
                mixed = transform(one)
                if share < 1:
                    mixed = share * mixed + (1 - share) * transform(other)
                product *= np.where(np.abs(mixed) < _LEAST, _LEAST, mixed)
            yield np.log(product)


def _tilted(part: LossMasses, tilt: float) -> FloatArray:
    """Return the masses times e^(tilt loss), divided by their sum."""
    return _sizes(tilt * part.losses + part.logs - _log_moment(part, tilt))


def _mean_and_square(part: LossMasses, tilt: float) -> tuple[float, float]:
    """Return the mean of the tilted loss, and of its square."""
    law, x = _tilted(part, tilt), part.losses
    return float(law @ x), float(law @ x**2)


def _log_moment(part: LossMasses, tilt: float) -> float:
    """Return log E e^(tilt loss)."""
    go_on()
    heights = tilt * part.losses + part.logs
    top = float(heights.max())
    return top + math.log(float(_sizes(heights - top).sum()))


def _sizes(logs: FloatArray) -> FloatArray:
    """Return e^logs; below e^-300 count as e^-300: nothing is lost, and underflow is slow."""
    masses: FloatArray = np.exp(np.maximum(logs, -300.0))
    return masses


# --- from curves to epsilons ---------------------------------------------------------------------


def epsilon_near(near: Callable[[float], Curve], delta: float, guess: float) -> float:
    """Return an epsilon at which a falling curve is not above delta; infinite if it never is.

    ``near(point)`` is sharp around the point only, so the search looks a little to both sides of it
    and moves on if the answer is not there.
    """
    if guess <= _SMALL and near(0.0)(0.0) <= delta:
        return 0.0
    point, below, stride = max(guess, _SMALLEST), 0.0, STRIDE
    for _ in range(_MOST_MOVES):
        curve = near(point)
        low, high = point / STRIDE, point * STRIDE
        if curve(high) > delta:
            # A claim far below its proof is looked for in longer and longer strides.
            below, stride = high, stride**1.5
            point = high * stride
        elif curve(low) > delta:
            return _root(curve, delta, low, high)
        elif below > 0:
            return _root(curve, delta, below, low) if curve(below) > delta else low
        else:
            point = low / STRIDE
        if not _SMALLEST / 2 < point < 1e9:
            return math.inf if point > 1 else low
    return math.inf


def _root(curve: Curve, delta: float, low: float, high: float) -> float:
    """Return where the curve crosses delta, from the right."""

    def excess(eps: float) -> float:
        return math.log(max(curve(eps), 1e-300) / delta)

    root = float(optimize.brentq(excess, low, high, rtol=1e-10)) * (1 + 1e-9)
    return root if curve(root) <= delta else high


@dataclass(frozen=True)
class Composed:
    """An epsilon, the grid it was read from, and upper bounds near any (epsilon, delta)."""

    epsilon: float
    interval: float
    near: Callable[[float, float], Curve]


def composed_epsilon(rows: Rows, claimed: float, delta: float, *, of_two: bool = False) -> Composed:
    """Return the epsilon of an average of compositions, on finer and finer grids.

    A grid only ever makes epsilon larger, by about the square of its interval; it is refined until
    the claim is met or nothing changes. With ``of_two`` the curve is that of two records,
    (1 + e^(eps/2)) delta(eps/2), each at half epsilon.
    """
    half, share = (0.5, 1 / (1 + math.exp(min(claimed / 2, 600.0)))) if of_two else (1.0, 1.0)
    coarsest = rows.interval(half * claimed)

    def near_on(interval: float, level: float) -> Callable[[float], Curve]:
        curves = rows.curves(interval, level)
        if not of_two:
            return curves

        def near_half(epsilon: float) -> Curve:
            curve = curves(epsilon / 2)
            # Where the factor is beyond all numbers nothing but delta <= 1 is known.
            return lambda eps: (1 + math.exp(eps / 2)) * curve(eps / 2) if eps < 1400 else 1.0

        return near_half

    interval, best, problem = coarsest, math.nan, None
    for _ in range(_ATTEMPTS):
        try:
            here = epsilon_near(near_on(interval, share * delta), delta, claimed)
        except ArithmeticError as error:
            if not math.isnan(best):
                break
            interval, problem = 4 * interval, error  # too fine for losses that reach so far
            continue
        settled = best - here <= 1e-5 * here
        best = here if math.isnan(best) else min(best, here)
        # No finer grid gains a fifth: such a claim is not this proof's.
        if best <= claimed or settled or best > 1.2 * claimed + 1e-3:
            break
        interval /= 2
    if math.isnan(best):
        raise ArithmeticError(f"no grid settles this composition ({problem})")
    kept = cache(near_on)

    def near(epsilon: float, delta: float) -> Curve:
        return kept(coarsest / 2, share * 10.0 ** math.floor(math.log10(delta)))(epsilon)

    return Composed(best, interval, near)
