"""Sums of weighted coins: how far a record's uses may have moved a run.

With standard normal noise added, their densities and both tails are given on any points.

Few coins are enumerated. Many coins are inverted from their characteristic function, which the
noise makes fall like a Gaussian, so that the trapezoid rule is exact up to rounding (no coin is
moved to a grid). Laws are tilted by e^(tilt y) first, so that rare values keep their digits: what
rounding can add is stated beside every value and never left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import fft, special

from dplateau.ground.types import FloatArray

# Chances left out of a window of a tilted law, as a negative logarithm.
_WINDOW = 45.0
# Where the noise's own law and its characteristic function are below 1e-19.
_NOISE_REACH, _LAST_FREQUENCY = 9.5, 9.4
# What a sum of so many waves loses at most, and what each wave's angle adds to that.
_ROUNDING, _OF_ANGLE = 2e-14, 4e-16
_WIDEST = 1500.0
_MOST_TERMS = 5e7
_CHUNK = 1_000_000
# Cells of noise below a cap, and points per cell.
_CELLS, _FINER = 500, 4
_TERMS_BELOW_A_CAP = 8e6
# Up to so many uses on average, below a cap, each is rounded up to a grid, whose cells are merged.
_FEW_USES, _CELLS_PER_USE, _MOST_LATTICE, _ATOMS = 1000.0, 1200, 60000, 1200
# A law that is below its cap with a chance of e^-7 counts as never below it.
_UNLIKELY = 7.0


@dataclass(frozen=True)
class Tails:
    """P(Y > y), P(Y <= y) and the logarithm of the density, with their rounding errors."""

    upper: FloatArray
    lower: FloatArray
    log_density: FloatArray
    upper_error: FloatArray
    lower_error: FloatArray
    log_density_error: FloatArray

    def reflected(self) -> Tails:
        """Return the tails of -Y at -y."""
        return replace(
            self,
            upper=self.lower,
            lower=self.upper,
            upper_error=self.lower_error,
            lower_error=self.upper_error,
        )

    def backwards(self) -> Tails:
        """Return the same points in the opposite order."""
        return Tails(*(getattr(self, column.name)[::-1] for column in fields(self)))


class SmoothedLaw(Protocol):
    """The law of Y = M + N(0, 1) with M >= 0."""

    @property
    def most(self) -> float:
        """Return a value that M does not exceed."""

    def tails(self, y: FloatArray) -> Tails:
        """Return tails and density at these points."""

    def reach(self, mass: float) -> tuple[float, float]:
        """Return points that Y is below, and above, with at most that chance each."""


@dataclass(frozen=True, eq=False)
class Atoms:
    """M takes the value ``points[i]`` with chance ``masses[i]``, known up to ``rounding``."""

    points: FloatArray
    masses: FloatArray
    rounding: float = 0.0

    @property
    def most(self) -> float:
        """Return the largest point."""
        return float(self.points.max())

    def tails(self, y: FloatArray) -> Tails:
        """Sum over the atoms: every term is positive, so nothing cancels."""
        upper, lower = np.zeros(y.size), np.zeros(y.size)
        log_density = np.full(y.size, -np.inf)
        with np.errstate(divide="ignore"):
            logs = np.log(self.masses)
        rows = max(1, 2_000_000 // y.size)
        for first in range(0, self.points.size, rows):
            gaps = y[None, :] - self.points[first : first + rows, None]
            masses = self.masses[first : first + rows]
            upper += masses @ special.ndtr(-gaps)
            lower += masses @ special.ndtr(gaps)
            # Between atoms that are far apart densities may be smaller than any double.
            heights = logs[first : first + rows, None] - gaps**2 / 2
            log_density = np.logaddexp(log_density, special.logsumexp(heights, axis=0))
        log_density -= math.log(math.sqrt(2 * math.pi))
        slip = 1e-14 + self.rounding + 1e-15 * np.abs(log_density)
        return Tails(upper, lower, log_density, self._lost(upper), self._lost(lower), slip)

    def _lost(self, tails: FloatArray) -> FloatArray:
        """Return what rounding may take off tails: more of those whose logarithm is long."""
        logs = np.log(np.maximum(tails, 1e-300))
        return np.asarray((1e-14 + self.rounding - 1e-15 * logs) * tails)

    def reach(self, mass: float) -> tuple[float, float]:
        """Leave out atoms of less than half the mass, and as much of the noise."""
        order = np.argsort(self.points)
        beyond = np.cumsum(self.masses[order][::-1])[::-1]
        kept = self.points[order][beyond > mass / 2]
        noise = float(special.ndtri(max(mass / 2, 1e-300)))
        return float(self.points.min()) + noise, float(kept.max()) - noise


# Nothing but noise.
NO_USES = Atoms(np.zeros(1), np.ones(1))


@dataclass(frozen=True, eq=False)
class Coins:
    """M = offset + sum of weights[g] times the heads of counts[g] coins of chance rates[g]."""

    weights: FloatArray
    rates: FloatArray
    counts: FloatArray
    offset: float = 0.0

    def copies(self, times: int) -> Coins:
        """Return the sum of independent copies."""
        return Coins(self.weights, self.rates, times * self.counts, times * self.offset)

    def scaled(self, factor: float) -> Coins:
        """Return M in another unit."""
        return Coins(factor * self.weights, self.rates, self.counts, factor * self.offset)

    @property
    def most(self) -> float:
        """Return the largest value of M."""
        return self.offset + float(self.weights @ self.counts)

    @property
    def most_of_mean(self) -> float:
        """Return the mean of M, and some deviations: what a wave turns by, per frequency."""
        mean = self.offset + float(self.counts @ (self.rates * self.weights))
        return mean + 10 * self.deviation(0.0)

    @cached_property
    def _log_rates(self) -> tuple[FloatArray, FloatArray]:
        """Return the logarithms of the chances of tails and of heads."""
        with np.errstate(divide="ignore"):
            return np.log1p(-self.rates), np.log(self.rates)

    def log_moment(self, tilt: float) -> float:
        """Return log E e^(tilt M)."""
        tails, heads = self._log_rates
        logs = np.logaddexp(tails, heads + tilt * self.weights)
        return tilt * self.offset + float(self.counts @ logs)

    def tilted_rates(self, tilt: float) -> FloatArray:
        """Return the chances of heads under the law tilted by e^(tilt M)."""
        tails, heads = self._log_rates
        chances: FloatArray = special.expit(heads - tails + tilt * self.weights)
        return chances

    def deviation(self, tilt: float) -> float:
        """Return the standard deviation of M under the tilted law."""
        rates = self.tilted_rates(tilt)
        return math.sqrt(float(self.counts @ (rates * (1 - rates) * self.weights**2)))

    def span(self, tilt: float = 0.0, below: float = _WINDOW) -> tuple[float, float]:
        """Return where the tilted M lies but for small chances on each side (Chernoff).

        Above e^-45, below e^-``below``.
        """
        base = self.log_moment(tilt)
        size = max(self.deviation(tilt), 1e-3 * float(self.weights.max()), 1e-300)
        slopes = np.geomspace(0.5 / size, 60.0 / size, 9)
        highs = [(self.log_moment(tilt + s) - base + _WINDOW) / s for s in slopes]
        lows = [(base - self.log_moment(tilt - s) - below) / s for s in slopes]
        return max(self.offset, *lows), min(self.most, *highs)

    def transform(self, tilt: float, frequencies: FloatArray) -> np.ndarray:
        """Return E e^(i t M) under the tilted law."""
        if frequencies.size * self.weights.size > _MOST_TERMS:
            raise ArithmeticError("the law of the record's uses needs too many frequencies")
        rates = self.tilted_rates(tilt)
        angle, log_square = frequencies * self.offset, np.zeros(frequencies.size)
        rows = max(1, 500_000 // frequencies.size)
        with np.errstate(divide="ignore"):
            for first in range(0, self.weights.size, rows):
                part = slice(first, first + rows)
                turn = np.outer(self.weights[part], frequencies)
                rate, count = rates[part, None], self.counts[part]
                # 1 - q + q e^(i x) = 1 - 2 q sin^2(x/2) + i q sin x, squared without cancellation.
                half = np.sin(turn / 2) ** 2
                log_square += count @ np.log1p(-4 * rate * (1 - rate) * half)
                angle += count @ np.arctan2(rate * np.sin(turn), 1 - 2 * rate * half)
        return np.asarray(np.exp(log_square / 2 + 1j * angle))


@dataclass(frozen=True, eq=False)
class _Tilted:
    """Y under one tilt: its Fourier series on a window, from whose low end waves are counted."""

    tilt: float
    log_moment: float
    low: float
    high: float
    frequencies: FloatArray
    series: np.ndarray

    def log_size(self, y: FloatArray) -> FloatArray:
        """Return log of e^-(tilt y) E e^(tilt Y): values are exact up to rounding of that size."""
        return self.log_moment - self.tilt * y

    def tail_and_density(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the tilted density, and the mass above y times e^(tilt y) / E e^(tilt Y).

        The mass (below y, for negative tilts) is the integral of e^-(tilt (x - y)) times the
        series, from y to the end of the window.
        """
        end = self.high if self.tilt > 0 else self.low
        both = np.stack([self.series / (self.tilt + 1j * self.frequencies), self.series], axis=1)
        points = np.r_[y, end] - self.low
        sums = np.empty((points.size, 2))
        rows = max(1, _CHUNK // self.frequencies.size)
        for first in range(0, points.size, rows):
            part = slice(first, first + rows)
            waves = np.exp(-1j * np.outer(points[part], self.frequencies))
            sums[part] = 2 * (waves @ both).real - both[0].real
        sums /= self.high - self.low
        tail = sums[:-1, 0] - np.exp(-self.tilt * (end - y)) * sums[-1, 0]
        return (tail if self.tilt > 0 else -tail), sums[:-1, 1]


@dataclass(frozen=True, eq=False)
class SmoothedCoins:
    """Y = M + N(0, 1) for many coins; ``rarest`` is the chance down to which it is asked about."""

    coins: Coins
    rarest: float

    @property
    def most(self) -> float:
        """Return the sum of all weights, rounded up."""
        return self.coins.most * (1 + 1e-12)

    @cached_property
    def _tilts(self) -> tuple[list[_Tilted], list[_Tilted]]:
        """Return positive and negative tilts that reach the rarest values on either side."""
        sides = []
        for sign in (1.0, -1.0):
            tilted, tilt = [], 1.5 * sign / self._deviation(0.0)
            for _ in range(60):
                tilted.append(self._tilted(tilt))
                if self._log_tail(tilt) < math.log(self.rarest) - 3:
                    break
                tilt += 5 * sign / self._deviation(tilt)
            sides.append(tilted)
        return sides[0], sides[1]

    def _deviation(self, tilt: float) -> float:
        return math.hypot(1.0, self.coins.deviation(tilt))

    def _mean(self, tilt: float) -> float:
        rates = self.coins.tilted_rates(tilt)
        return tilt + self.coins.offset + float(self.coins.counts @ (rates * self.coins.weights))

    def _log_moment(self, tilt: float) -> float:
        return self.coins.log_moment(tilt) + tilt**2 / 2

    def _log_tail(self, tilt: float) -> float:
        """Return Chernoff's bound at the mean of the tilted law."""
        return self._log_moment(tilt) - tilt * self._mean(tilt)

    def _tilted(self, tilt: float) -> _Tilted:
        low, high = self.coins.span(tilt)
        low, high = low + tilt - _NOISE_REACH, high + tilt + _NOISE_REACH
        width = high - low
        if not width < _WIDEST:
            raise ArithmeticError(f"one block spreads over {width:.3g} deviations of its noise")
        step = 2 * math.pi / width
        frequencies = step * _whole_numbers(math.ceil(_LAST_FREQUENCY / step) + 1)
        noise = np.exp(1j * frequencies * (tilt - low) - frequencies**2 / 2)
        series = noise * self.coins.transform(tilt, frequencies)
        return _Tilted(tilt, self._log_moment(tilt), low, high, frequencies, series)

    def tails(self, y: FloatArray) -> Tails:
        """Read each point under the tilt that makes it likely."""
        right = y >= self._mean(0.0)
        tail, error, log_density, slip = np.empty((4, y.size))
        for side, tilts in zip((right, ~right), self._tilts, strict=True):
            columns = self._side(y[side], tilts)
            tail[side], error[side], log_density[side], slip[side] = columns
        upper, lower = np.where(right, tail, 1 - tail), np.where(right, 1 - tail, tail)
        return Tails(upper, lower, log_density, error, error, slip)

    def _side(
        self, y: FloatArray, tilts: list[_Tilted]
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return one tail and the log density with their errors; each point from its best tilt."""
        tail, slip = np.zeros(y.size), np.full(y.size, np.inf)
        log_density = -slip
        lost = _ROUNDING + _OF_ANGLE * _LAST_FREQUENCY * self.coins.most_of_mean
        sizes = np.array([tilted.log_size(y) for tilted in tilts])
        best = np.argmin(sizes, axis=0)
        for k, tilted in enumerate(tilts):
            here = np.flatnonzero((best == k) & (y >= tilted.low) & (y <= tilted.high))
            if here.size == 0:
                continue
            mass, density = tilted.tail_and_density(y[here])
            tail[here] = np.clip(np.exp(sizes[k, here]) * mass, 0.0, 1.0)
            log_density[here] = np.log(np.maximum(density, 1e-18)) + sizes[k, here]
            # A density is known as the tail is, relative to the tilted law.
            share = lost / np.maximum(density, 1e-18)
            rounding = 1e-14 + 1e-15 * np.abs(sizes[k, here])
            slip[here] = np.where(share < 0.5, 2 * share + rounding, np.inf)
        error = np.minimum(lost * np.exp(np.minimum(sizes.min(axis=0), 50.0)), 1.0)
        return tail, error, log_density, slip

    def reach(self, mass: float) -> tuple[float, float]:
        """Return Chernoff's points."""
        positive, negative = self._tilts
        log = math.log(mass)
        high = min((t.log_moment - log) / t.tilt for t in positive)
        low = max((t.log_moment - log) / t.tilt for t in negative)
        return low, high


def coarser(coins: Coins, most: int) -> Coins:
    """Return coins that weigh at least as much, in at most ``most`` groups."""
    if coins.weights.size <= most:
        return coins
    ages = np.log(coins.weights.max() / coins.weights)
    bins = np.floor(-np.expm1(-ages / 2) * most).astype(np.int64)
    order = np.argsort(bins, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(bins[order]) > 0])
    return Coins(
        np.maximum.reduceat(coins.weights[order], starts),
        np.maximum.reduceat(coins.rates[order], starts),
        np.add.reduceat(coins.counts[order], starts),
        coins.offset,
    )


def capped_atoms(coins: Coins, cap: float) -> Atoms | None:
    """Return atoms of a law at least as large as min(M, cap); None if the cap is never reached.

    M plus a little noise that is almost surely positive has a smooth law; the chance that it is not
    positive, and all rounding, is put on the cap itself.
    """
    if cap >= coins.span()[1]:
        return None
    # What one use adds beyond the cap is cut off anyway.
    coins = Coins(np.minimum(coins.weights, cap), coins.rates, coins.counts, coins.offset)
    if cap <= coins.span(below=_UNLIKELY)[0]:
        return Atoms(np.array([cap]), np.array([1.0]))
    if float(coins.rates @ coins.counts) <= _FEW_USES:
        return _lattice_atoms(coins, cap)
    low, high = coins.span(below=2 * _UNLIKELY)
    # Of the cap itself a part in 1500 is fine enough.
    cell = max((cap - low) / _CELLS, cap / (3 * _CELLS))
    noise, shift = cell / 8, 7 * cell / 8
    start, end = low - 10 * noise, high + shift + 10 * noise
    step = 2 * math.pi / (end - start)
    frequencies = step * _whole_numbers(math.ceil(_LAST_FREQUENCY / noise / step) + 1)
    if frequencies.size * min(coins.weights.size, 200) > _TERMS_BELOW_A_CAP:
        return Atoms(np.array([cap]), np.array([1.0]))  # too fine to resolve: all of it counts
    tilt = 1.0 / max(coins.deviation(0.0), cell)
    turned = np.exp(1j * frequencies * (shift + noise**2 * tilt - start))
    # The noise under the tilt has the mean noise^2 tilt and the moment e^((noise tilt)^2 / 2).
    coins = coarser(coins, max(200, min(2000, int(_TERMS_BELOW_A_CAP / frequencies.size))))
    series = turned * np.exp(-((frequencies * noise) ** 2) / 2) * coins.transform(tilt, frequencies)
    moment = coins.log_moment(tilt) + tilt * shift + (noise * tilt) ** 2 / 2
    survival, points = _survival(series / (tilt + 1j * frequencies), start, end)
    # As in _Tilted, but on a whole grid at once.
    tails = survival - np.exp(-tilt * (end - points)) * survival[0]
    chosen = slice(None, None, max(1, int(cell / _FINER / (points[1] - points[0]))))
    points, tails = points[chosen], (np.exp(moment - tilt * points) * tails)[chosen]
    inside = (points >= low) & (points <= cap)
    points, tails = points[inside], tails[inside]
    # The chances under the tilt are known to a few roundings of one.
    lost = (_ROUNDING + _OF_ANGLE * frequencies[-1] * end) * np.exp(moment - tilt * points)
    falling = np.clip(np.maximum.accumulate((tails + lost)[::-1])[::-1], 0.0, 1.0)
    masses = np.r_[1 - falling[0], falling[:-1] - falling[1:], falling[-1]]
    masses[-1] += float(special.ndtr(-7.0))
    return Atoms(np.r_[points, cap], masses)


def _lattice_atoms(coins: Coins, cap: float) -> Atoms:
    """Return the law of some uses below a cap, each rounded up to a grid: all terms positive."""
    uses = float(coins.rates @ coins.counts)
    merged = math.ceil(min(_CELLS_PER_USE * (uses + 1), _MOST_LATTICE) / _ATOMS)
    size = merged * _ATOMS
    cell = cap / size
    # Coins that weigh less than a cell together count as thrown.
    order = np.argsort(coins.weights)
    dust = np.cumsum((coins.weights * coins.counts)[order]) <= cell
    offset = coins.offset + float((coins.weights * coins.counts)[order][dust].sum())
    masses = np.zeros(size + 1)
    masses[min(size, math.ceil(offset / cell))] = 1.0
    kept = order[~dust]
    columns = (coins.weights[kept], coins.rates[kept], coins.counts[kept])
    for weight, rate, count in zip(*(column.tolist() for column in columns), strict=True):
        jump = min(size, math.ceil(weight / cell * (1 - 1e-13)))
        # More heads than that are next to impossible; they count as the cap.
        likely = math.ceil(count * rate + 10 * math.sqrt(count * rate) + 20)
        heads = _whole_numbers(min(int(count), size // jump, likely) + 1)
        chances = binomial_at(heads, count, rate) * (1 - rounding_of(count))
        moved = chances[0] * masses
        for k in range(1, heads.size):
            moved[k * jump :] += chances[k] * masses[: size + 1 - k * jump]
        # All that is not below the cap is at the cap.
        moved[-1] = max(0.0, 1 + 1e-13 - float(moved[:-1].sum()))
        masses = moved
    groups = masses[1:].reshape(-1, merged).sum(axis=1)
    points = cell * merged * np.arange(groups.size + 1)
    return Atoms(points, np.r_[masses[0], groups])


def _survival(parts: np.ndarray, start: float, end: float) -> tuple[FloatArray, FloatArray]:
    """Return the sum of a Fourier series on a fine grid of its period, and the grid."""
    size = fft.next_fast_len(2 * parts.size, real=True)
    sums = fft.irfft(np.conj(parts), size) * size / (end - start)
    return sums, start + (end - start) / size * _whole_numbers(size)


def _whole_numbers(count: int) -> FloatArray:
    numbers: FloatArray = np.arange(count, dtype=np.float64)
    return numbers


def few_atoms(coins: Coins, most: int) -> Atoms | None:
    """Enumerate M exactly, or return None if it takes more values than ``most``."""
    if float(np.sum(np.log1p(coins.counts))) > math.log(most) + 1e-9:
        return None
    points, masses, rounding = np.array([coins.offset]), np.array([1.0]), 0.0
    for weight, rate, count in zip(coins.weights, coins.rates, coins.counts, strict=True):
        heads = np.arange(int(count) + 1, dtype=np.float64)
        chances = binomial_at(heads, float(count), float(rate))
        points = np.add.outer(points, weight * heads).ravel()
        masses = np.multiply.outer(masses, chances).ravel()
        rounding += rounding_of(count)
    return Atoms(points, masses, rounding)


def fewer_atoms(atoms: Atoms, never: float) -> Atoms:
    """Return a law at least as large: atoms of ``never`` in all are moved to the largest point."""
    order = np.argsort(atoms.masses)
    rare = order[np.cumsum(atoms.masses[order]) <= never]
    masses = atoms.masses.copy()
    masses[int(np.argmax(atoms.points))] += float(masses[rare].sum()) * (1 + 1e-12)
    kept = np.ones(masses.size, dtype=bool)
    kept[rare] = False
    kept[int(np.argmax(atoms.points))] = True
    return Atoms(atoms.points[kept], masses[kept], atoms.rounding)


def binomial_at(heads: FloatArray, count: float, rate: float) -> FloatArray:
    """Return the chances of so many heads of ``count`` coins, up to ``rounding_of(count)``."""
    ways = -math.log(count + 1) - special.betaln(count - heads + 1, heads + 1)
    masses: FloatArray = np.exp(
        ways + special.xlogy(heads, rate) + special.xlog1py(count - heads, -rate)
    )
    return masses


def rounding_of(count: float) -> float:
    """Return how far, relatively, a chance of ``binomial_at`` may be off: logarithms are large."""
    return 1e-13 + 8 * 1.2e-16 * float(special.gammaln(count + 2))
