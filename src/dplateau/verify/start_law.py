"""Upper bounds on the tails of a sum of weighted coins, any weights, by a tree of convolutions.

Weights are rounded up to a grid, coins of equal rounded weight are one binomial law, and the laws
are added up in pairs. What lies beyond the grid is counted as larger than everything on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import signal, special

from dplateau.verify._dp_accounting import FloatArray

# Cells for each weight that is drawn: rounding up costs half a cell each time.
_CELLS_PER_DRAW, _LEAST_CELLS, _MOST_CELLS = 1600.0, 1 << 16, 1 << 18
# Coins that weigh less than this together, relative to the largest, count as thrown.
_DUST = 1e-4
# Up to this many coins all outcomes are written out.
_FEW = 14
# Up to this many masses are added up one by one, which rounds by next to nothing.
_SHORT = 64
_UNIT = 1.2e-16


@dataclass(frozen=True)
class StartLaw:
    """``tails[i]`` is not below P(W > points[i]); points rise."""

    points: FloatArray
    tails: FloatArray

    def tail(self, point: float) -> float:
        """Return an upper bound on P(W > point)."""
        place = int(np.searchsorted(self.points, point * (1 - 1e-12), side="right")) - 1
        return 1.0 if place < 0 else float(self.tails[place])


def start_law(weights: FloatArray, rate: float, older: float) -> StartLaw:
    """Return the tails of sum_j weights[j] I_j + older, the I_j being coins of chance ``rate``."""
    rising = np.sort(weights[weights > 0])
    if rising.size <= _FEW:
        return _few(rising, rate, older)
    sums = np.cumsum(rising)
    dust = int(np.searchsorted(sums, _DUST * rising[-1]))
    dropped = float(sums[dust - 1]) if dust else 0.0
    kept = rising[dust:]
    # Bernstein's inequality: the sum is above ``far`` with a chance below e^-39.
    reach = 39.0 * float(kept[-1]) / 3
    spread = 78.0 * rate * (1 - rate) * float(kept @ kept)
    far = min(float(kept.sum()), rate * float(kept.sum()) + reach + math.sqrt(reach**2 + spread))
    wanted = _CELLS_PER_DRAW * (rate * kept.size + 1)
    cells = int(min(max(wanted, _LEAST_CELLS), _MOST_CELLS))
    # The largest weight, and all that equal it, lie on the grid.
    cell = float(kept[-1]) / max(1, math.floor(float(kept[-1]) * cells / far))
    places = np.ceil(kept / cell * (1 - 1e-13)).astype(np.int64)
    law, missing = _total(places, rate, 2 * cells)
    points = (dropped + older) * (1 + 1e-12) + np.arange(law.size, dtype=np.float64) * cell
    return StartLaw(points, _tails(law, missing))


def _few(weights: FloatArray, rate: float, older: float) -> StartLaw:
    """Write out all outcomes."""
    points, masses = np.array([older]), np.ones(1)
    for weight in weights.tolist():
        points = np.r_[points, points + weight]
        masses = np.r_[masses * (1 - rate), masses * rate]
    order = np.argsort(points)
    return StartLaw(points[order] * (1 + 1e-13), _tails(masses[order], 0.0))


def _tails(masses: FloatArray, missing: float) -> FloatArray:
    """Return the sums of all later masses, rounded up."""
    above = np.r_[np.cumsum(masses[::-1])[::-1][1:], 0.0]
    found: FloatArray = np.minimum(above * (1 + 4 * masses.size * _UNIT) + missing, 1.0)
    return found


def _total(places: npt.NDArray[np.int64], rate: float, size: int) -> tuple[FloatArray, float]:
    """Return the law of sum_j places[j] I_j below ``size``, and what may be missing from a tail.

    That is what lies beyond, and what rounding takes off any sum of the masses.
    """
    values, repeats = np.unique(places, return_counts=True)
    laws, beyond = [], 0.0
    for value, count in zip(values.tolist(), repeats.tolist(), strict=True):
        law, lost = _binomial(value, count, rate, size)
        laws.append(law)
        beyond += lost
    while len(laws) > 1:
        added = [_added(laws[i], laws[i + 1], size) for i in range(0, len(laws) - 1, 2)]
        beyond += math.fsum(lost for _, lost in added)
        laws = [law for law, _ in added] + laws[len(laws) - len(laws) % 2 :]
    return laws[0], beyond


def _binomial(value: int, count: int, rate: float, size: int) -> tuple[FloatArray, float]:
    most = min(count, (size - 1) // value, math.ceil(count * rate + 12 * math.sqrt(count) + 30))
    drawn = np.arange(most + 1, dtype=np.float64)
    law = np.zeros(most * value + 1)
    logs = special.gammaln(count + 1) - special.gammaln(drawn + 1)
    logs -= special.gammaln(count - drawn + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs += special.xlogy(drawn, rate) + special.xlog1py(count - drawn, -rate)
    law[::value] = np.exp(logs) * (1 + 1e-13 + 40 * _UNIT * special.gammaln(count + 2))
    return law, float(special.bdtrc(most, count, rate)) if most < count else 0.0


def _added(first: FloatArray, second: FloatArray, size: int) -> tuple[FloatArray, float]:
    short, long = sorted((first, second), key=np.count_nonzero)
    filled, lost = np.flatnonzero(short), 0.0
    if filled.size <= _SHORT:
        both = np.zeros(first.size + second.size - 1)
        for place in filled.tolist():
            both[place : place + long.size] += short[place] * long
    else:
        both = np.maximum(signal.fftconvolve(first, second), 0.0)
        lost = _transformed(first, second, both)
    return both[:size], float(both[size:].sum()) + lost


def _transformed(first: FloatArray, second: FloatArray, both: FloatArray) -> float:
    """Bound what transforms take off a sum of ``both``: log2(n) roundings each, in the norm.

    No transform of masses exceeds 1, and a sum of n errors is at most sqrt(n) times their norm.
    """
    norms = sum(float(np.linalg.norm(law)) for law in (first, second, both))
    return _UNIT * math.log2(2 * both.size) * math.sqrt(both.size) * norms
