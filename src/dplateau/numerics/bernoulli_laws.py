"""Laws of weighted sums of independent coin flips, moved upwards and never down.

M = sum_j weights[j] * Binomial(copies, rates[j]): how far the records of one person, joining
batches at random, have moved a run. What is returned lies stochastically above M: weights and
atoms are rounded up, and every tail is an upper bound. Rounding to both neighbors of an atom, which
keeps the mean, would not do: the equal mixture of N(0, 1) and N(2d, 1) does not dominate N(d, 1).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray

# The least that the rounding of transforms may cost; Chernoff's inequality bounds smaller tails.
_ROUND_OFF = 1e-14
_EPSILON = float(np.finfo(np.float64).eps)
_UP = 1 + 1e-12
# Weights that are this small in total, relative to the largest, are charged as if always drawn.
_DROPPED_SHARE = 1e-4
# Up to this many flips every outcome is an atom of its own.
_ENUMERATED = 9
# The logarithm's series converges quickly enough below this rate.
_SERIES_LIMIT = 0.48
_ATOMS_WITHIN, _ATOMS_BEYOND = 480, 60


@dataclass(frozen=True)
class AtomLaw:
    """A law of finitely many atoms: ``points`` >= 0 rise, positive ``masses`` sum to one."""

    points: tuple[float, ...]
    masses: tuple[float, ...]

    def scaled(self, factor: float, *, rest: float = 0.0) -> AtomLaw:
        """Return the law of ``rest`` + ``factor`` times the variable, rounded up."""
        return AtomLaw(tuple((p * factor + rest) * _UP for p in self.points), self.masses)

    def above(self, point: float) -> float:
        """Return the probability of more than ``point``, rounded up."""
        first = bisect_right(self.points, point)
        return min(1.0, math.fsum(self.masses[first:]) * _UP)

    def exceeded_by(self, level: float) -> float:
        """Return the smallest atom that is exceeded with probability at most ``level``."""
        places = range(len(self.points))
        return self.points[bisect_left(places, -level, key=lambda i: -self.above(self.points[i]))]

    def capped(self, cap: float) -> AtomLaw:
        """Return the law of the variable or ``cap``, whichever is smaller."""
        points, masses = np.array(self.points), np.array(self.masses)
        return _merged(np.minimum(points, cap), masses)

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Return points and masses."""
        return np.array(self.points), np.array(self.masses)


NOTHING = AtomLaw((0.0,), (1.0,))


def upper_law(
    weights: FloatArray, rates: FloatArray, *, copies: int = 1, rest: float = 0.0
) -> AtomLaw:
    """Return a law above that of ``rest`` + sum_j weights[j] * Binomial(copies, rates[j]).

    >>> law = upper_law(np.array([1.0, 0.5]), np.array([0.1, 0.1]))
    >>> [(point, round(mass, 6)) for point, mass in zip(law.points, law.masses)]
    [(0.0, 0.81), (0.5, 0.09), (1.0, 0.09), (1.5, 0.01)]
    """
    if weights.shape != rates.shape or np.any(weights < 0) or np.any((rates < 0) | (rates > 1)):
        raise InvalidInput("each weight of a sum is at least 0 and has a rate in [0, 1]")
    drawn = (weights > 0) & (rates > 0)
    terms, chances = weights[drawn], rates[drawn]
    order = np.argsort(-terms, kind="stable")
    terms, chances = terms[order], chances[order]
    if terms.size == 0:
        return AtomLaw((rest,), (1.0,))
    if terms.size * copies <= _ENUMERATED:
        points, masses = _enumerated(np.repeat(terms, copies), np.repeat(chances, copies))
        return _merged(points + rest, masses)
    points, tails = _tails(terms, chances, copies)
    masses = np.r_[1.0, tails[:-1]] - tails  # an upper bound of each tail moves mass upwards
    return _merged(points + rest, masses)


def _enumerated(terms: FloatArray, chances: FloatArray) -> tuple[FloatArray, FloatArray]:
    points, masses = np.zeros(1), np.ones(1)
    for term, chance in zip(terms, chances, strict=True):
        points = np.r_[points, points + term]
        masses = np.r_[masses * (1 - chance), masses * chance]
    return points, masses


def _merged(points: FloatArray, masses: FloatArray) -> AtomLaw:
    """Put equal points together, in rising order, and leave out those that cannot occur."""
    possible = masses > 0
    distinct, where = np.unique(points[possible], return_inverse=True)
    sums = np.bincount(where, masses[possible])
    return AtomLaw(tuple(distinct.tolist()), tuple(sums.tolist()))


def _tails(terms: FloatArray, chances: FloatArray, copies: int) -> tuple[FloatArray, FloatArray]:
    """Return rising points and upper bounds on the chance of exceeding each; the last is 0."""
    total = copies * float(terms.sum()) * _UP
    kept, rates, dropped = _without_dust(terms, chances)
    mean = copies * float(rates @ kept)
    deviation = math.sqrt(copies * float((rates * (1 - rates)) @ kept**2))
    top = min(copies * float(kept.sum()), _far_point(mean, deviation, float(kept[0])))
    cells = _cells(copies * float(rates.sum()))
    grid = _snapped(top / cells, float(kept[0]))
    counts = np.ceil(kept / grid * (1 - 1e-15)).astype(np.int64)
    fine = _fine_tails(counts, rates, copies, 2 * cells)
    # A table of a few hundred points: even where most of the mass is, ever wider beyond.
    within = np.linspace(max(0.0, mean - 6 * deviation), mean + 5 * deviation, _ATOMS_WITHIN)
    beyond = np.geomspace(max(mean + 5 * deviation, grid), max(total, 2 * grid), _ATOMS_BEYOND)
    places = np.unique(np.floor(np.r_[0.0, within, beyond] / grid).astype(np.int64))
    places = places[(places >= 0) & (places * grid < total)]
    numeric = np.where(places < fine.size, fine[np.minimum(places, fine.size - 1)], 1.0)
    tails = np.minimum(numeric, _chernoff(counts, rates, copies, places + 1.0))
    points = places * (grid * (1 + 4e-15)) + copies * dropped
    inside = points < total
    tails = np.minimum.accumulate(tails[inside])
    return np.r_[points[inside], total], np.r_[tails, 0.0]


def _without_dust(terms: FloatArray, chances: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Split off the smallest weights, whose sum is charged as if all of them were drawn."""
    left = np.cumsum(terms[::-1])[::-1]
    keep = left > _DROPPED_SHARE * terms[0]
    keep[0] = True
    return terms[keep], chances[keep], float(terms[~keep].sum()) * _UP


def _far_point(mean: float, deviation: float, largest: float) -> float:
    """Return a point that the sum exceeds with probability below 1e-17 (Bernstein)."""
    reach = 40.0 * largest / 3
    return mean + reach + math.sqrt(reach**2 + 80.0 * deviation**2)


def _cells(expected: float) -> int:
    """Return a grid size: rounding up costs half a cell for each weight drawn."""
    return 1 << min(18, max(14, math.ceil(math.log2(1 + 1500 * expected))))


def _snapped(grid: float, weight: float) -> float:
    """Return a grid no finer in which the largest weight, and all that equal it, lie exactly."""
    return weight / math.floor(weight / grid) if weight >= grid else grid


def _fine_tails(counts: IntArray, rates: FloatArray, copies: int, size: int) -> FloatArray:
    """Return upper bounds on P(sum > i) for the integer sum and i = 0 .. size - 1."""
    masses, error = _law(counts, rates, copies, size)
    beyond = float(_chernoff(counts, rates, copies, np.array([float(size)]))[0])
    above = np.r_[np.cumsum(masses[::-1])[::-1][1:], 0.0]
    summed = 1 + size * _EPSILON
    tails: FloatArray = np.minimum(1.0, above * summed + beyond + error + _ROUND_OFF)
    return tails


def _chernoff(counts: IntArray, rates: FloatArray, copies: int, levels: FloatArray) -> FloatArray:
    """Return Chernoff bounds on P(sum >= level) for each level."""
    slopes = np.geomspace(0.01, 200.0, 48) / float(counts.max())
    values, chances, repeats = _grouped(counts, rates)
    growth = np.expm1(np.minimum(slopes[:, None] * values, 700.0))
    logs = copies * (np.log1p(chances * growth) @ repeats)
    bounds: FloatArray = np.min(logs[:, None] - slopes[:, None] * levels, axis=0)
    return np.exp(np.minimum(bounds * (1 - 1e-12) + 1e-9, 0.0))


def _grouped(counts: IntArray, rates: FloatArray) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the distinct (count, rate) pairs and how often each stands."""
    distinct, kind = np.unique(rates, return_inverse=True)
    keys, repeats = np.unique(counts * distinct.size + kind, return_counts=True)
    return keys // distinct.size, distinct[keys % distinct.size], repeats


def _law(counts: IntArray, rates: FloatArray, copies: int, size: int) -> tuple[FloatArray, float]:
    """Return the masses of sum_j counts[j] I_j modulo ``size``, by its characteristic function.

    A likely flip is counted by its failures: count * I = count - count * (1 - I). With the masses
    comes a bound on what rounding may take off any of their sums over [i, size). An error e in the
    logarithm of the transform F costs e |F_f| times the transform of that interval, at most
    1 / sin(pi f / size) for f > 0: in all e (1 + log size). The last transform is wrong by
    log2(size) roundings in the norm of F.
    """
    from scipy import fft

    likely = rates > 0.5
    chances = np.where(likely, 1 - rates, rates)
    steps = np.where(likely, -counts, counts)
    even = chances >= _SERIES_LIMIT
    series, error = _log_series(steps[~even], chances[~even], size)
    log_transform = fft.rfft(series)
    log_transform += float(np.log1p(-chances[~even]).sum())
    frequencies = np.arange(size // 2 + 1, dtype=np.int64)
    circle = np.exp(-2j * math.pi / size * np.arange(size))
    for chance in np.unique(chances[even]):
        turns = np.log(1 - chance + chance * circle)
        alike, repeats = np.unique(steps[even & (chances == chance)], return_counts=True)
        for step, repeat in zip(alike.tolist(), repeats.tolist(), strict=True):
            # Reduce step * frequency modulo the size, a power of two, before it meets 2 pi.
            log_transform += repeat * turns[(step * frequencies) & (size - 1)]
            error += 8 * _EPSILON * repeat
    start = copies * int(counts[likely].sum()) % size
    masses: FloatArray = np.maximum(fft.irfft(np.exp(copies * log_transform), size), 0.0)
    norm = math.sqrt(size * float((masses**2).sum()))
    rounding = copies * error * (1 + math.log(size)) + _EPSILON * math.log2(size) * norm
    return np.roll(masses, start), rounding


def _log_series(steps: IntArray, chances: FloatArray, size: int) -> tuple[FloatArray, float]:
    """Return the coefficients of sum_j log(1 + odds_j x^step_j) modulo ``size``, and their error.

    The error bounds what rounding does to their transform and to its value at frequency 0.
    """
    series = np.zeros(size)
    if steps.size == 0:
        return series, 0.0
    values, rates, repeats = _grouped(steps, chances)
    odds = rates / (1 - rates)
    crowd = int(np.bincount(values % size, minlength=size).max())
    power, sign, total = 1, 1.0, 0.0
    while float(repeats @ odds**power) > 1e-19 * power:
        terms = sign * repeats * odds**power / power
        series += np.bincount((values * power) % size, terms, size)
        total += float(np.abs(terms).sum())
        power, sign = power + 1, -sign
    # Each coefficient is added up from a crowd of values and the powers that fall on it.
    return series, _EPSILON * total * (crowd + min(power, 40) + 4 * math.log2(size))
