"""Many compositions of the same few pairs at once, on one grid, one tilt and one window.

A run that starts from several possible distances needs a composition for each; they repeat the
same pairs, only not equally often. Transforms are shared, and a row of counts is one product.
The error analysis is that of :mod:`dplateau.numerics.privacy_loss`, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft

from dplateau.ground.types import FloatArray
from dplateau.numerics import privacy_loss as pl
from dplateau.numerics.pairs import DominatingPair, Order
from dplateau.numerics.privacy_loss import ComposedLoss, LossPmf

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
            [pl.discretise(pair, order, step, tail) for pair in pairs], counts, target_delta
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
    laws = [pl.discretise(pair, "remove", step, tail) for pair in pairs]
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
    found = [law._tilted(theta) for law in laws]
    levels, means = np.array([row[1] for row in found]), np.array([row[2] for row in found])
    return [row[0] for row in found], levels, means


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
