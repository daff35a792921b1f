"""Privacy-loss distributions: discretize dominating pairs, compose them, read off the curve.

Every number is an upper bound. Discretization is pessimistic (connect the dots); mass beyond the
grid or the window is added to delta, and so is a bound on the rounding of the Fourier transforms.
An exponential tilt centers the transforms on the losses that decide the wanted delta, which keeps
the relative error small however small that delta is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from scipy import fft

from dplateau.curves.pairs import DominatingPair, Order
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray

# Relative allowance for a short chain of roundings: 32 unit roundoffs.
_ROUND: Final = 16.0 * float(np.finfo(np.float64).eps)
_TAIL_SHARE: Final = 1e-5  # part of the wanted delta that tails and windows may cost
_UNDERFLOW: Final = 1e-300  # more than all masses together that are too small for a double
_MAX_SIZE: Final = 1 << 22  # most entries of a window, and twice the most cells of a grid
Parts = Sequence[tuple["LossPmf", int]]
_Tilt = tuple[float, float, float, float]  # theta, log moment, its first two derivatives


@dataclass(frozen=True, eq=False)
class LossPmf:
    """A law of the privacy loss on ``step * index + shift``, dominating the pair it came from.

    ``masses[i]`` belongs to index ``lowest + i``; being upper bounds they may sum to above 1.
    """

    step: float
    lowest: int
    masses: FloatArray
    infinity_mass: float
    shift: float = 0.0

    @cached_property
    def _logs(self) -> tuple[FloatArray, FloatArray, float]:
        """Indices, log masses and the largest finite ``|log mass|``."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.masses)
        size = float(np.max(np.abs(logs[self.masses > 0.0]), initial=0.0))
        return self.lowest + np.arange(self.masses.size, dtype=np.float64), logs, size

    def _tilted(self, theta: float) -> tuple[FloatArray, float, float, float]:
        """Weights ``masses e^{theta index - level}`` of sum 1, level, mean and variance."""
        indices, logs, size = self._logs
        exponent = theta * indices + logs
        top = float(exponent.max())
        weights = np.exp(exponent - top)
        total = float(weights.sum())
        weights /= total
        mean = float((weights * indices).sum())
        variance = float((weights * (indices - mean) ** 2).sum())
        # This bounds the log error of tilting, composing and tilting back; the level pays for it.
        error = _ROUND * (2.0 + size + abs(theta) * float(np.abs(indices[[0, -1]]).max()))
        return weights, top + math.log(total) + error, mean, variance


def discretize(pair: DominatingPair, order: Order, step: float, tail_mass: float) -> LossPmf:
    """Move the loss of ``pair`` onto multiples of ``step`` so that the result dominates it.

    Connect the dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, arXiv 2207.04380): the
    mass of each cell goes to its two ends such that both laws keep their mass. As a function of
    ``e^-loss`` a hockey stick is convex, so this only raises delta, and not at all on the grid.
    Losses above the grid become infinite and losses below it are raised to its lowest point.
    """
    if not (0.0 < step < math.inf and 0.0 < tail_mass < 1.0):
        raise InvalidInput(f"need step > 0 and 0 < tail_mass < 1; got {step!r} and {tail_mass!r}.")
    if pair.trivial:
        return LossPmf(step, 0, np.ones(1), 0.0)
    low, high = pair.loss_range(tail_mass, order)
    lowest = math.floor(low / step)
    edges = step * np.arange(lowest, max(math.ceil(high / step), lowest + 1) + 1, dtype=np.float64)
    cells = pair.cells(edges, order)
    log_p, log_s = cells.log_first, cells.log_second[1:-1]
    with np.errstate(invalid="ignore"):
        p = np.exp(np.where(log_p > -np.inf, log_p + _ROUND * (1.0 - log_p), -np.inf))
        log_ratio = log_s + edges[:-1] - log_p[1:-1]
        log_ratio -= _ROUND * (1.0 + np.abs(log_s) + np.abs(edges[:-1]) + np.abs(log_p[1:-1]))
    # p >= s e^low >= p e^-step in every cell of masses p and s; rounding is clipped upwards.
    rise = -np.expm1(np.where(p[1:-1] > 0.0, np.minimum(log_ratio, 0.0), 0.0)) / -math.expm1(-step)
    up = p[1:-1] * np.minimum(rise * (1.0 + _ROUND), 1.0)
    masses = np.append(p[1:-1] - up, 0.0) + np.append(p[0], up)
    # Borders that sit border_error away from their edges cost one shift of the whole law.
    shift = cells.border_error + _ROUND * float(np.max(np.abs(edges)))
    return LossPmf(step, lowest, masses * (1.0 + _ROUND), float(p[-1]) + _UNDERFLOW, shift)


@dataclass(frozen=True, eq=False)
class ComposedLoss:
    """Upper bounds on the masses of a composed loss in a window, and on the mass above it.

    ``tail_mass`` counts as infinite loss: at no smaller delta is a finite epsilon known. Far from
    the target delta the curve is valid but may be loose: compose again with another target.
    """

    step: float
    lowest: int
    masses: FloatArray
    tail_mass: float
    shift: float

    @cached_property
    def _suffix(self) -> tuple[FloatArray, FloatArray]:
        """Delta at every grid point, and its slope ``sum_{i>=j} masses_i e^{l_j - l_i}``."""
        decayed, reach = self.masses.copy(), 1
        while reach < decayed.size and self.step * reach < 745.0:
            decayed[:-reach] += math.exp(-self.step * reach) * decayed[reach:]
            reach *= 2
        decayed *= 1.0 + _ROUND * (4.0 + decayed.size)
        # From point to point delta drops by 1 - e^-step times the next slope: nothing cancels.
        drops = np.cumsum(-math.expm1(-self.step) * decayed[:0:-1])
        return np.append(drops[::-1], 0.0) * (1.0 + _ROUND * (4.0 + drops.size)), decayed

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """Upper bound on delta at every real ``epsilon``."""
        eps = np.asarray(epsilon, dtype=np.float64)
        at_grid, decayed = self._suffix
        place = eps - self.shift - _ROUND * (np.abs(eps) + self.shift)
        low, last = self.step * self.lowest, at_grid.size - 1
        cell = np.clip(np.floor(place / self.step) + 1.0 - self.lowest, 0, last).astype(np.int64)
        gap = np.minimum(place - self.step * (cell + self.lowest), 0.0)
        inside = at_grid[cell] - decayed[cell] * np.expm1(gap) + self.tail_mass
        # Below the window the chord from (0, 1) bounds delta, which is convex in e^epsilon.
        start = min(float(at_grid[0]) + self.tail_mass, 1.0)
        chord = 1.0 - (1.0 - start) * np.exp(np.minimum(place - low, 0.0)) * (1.0 - _ROUND)
        return np.minimum(np.where(place < low, chord, inside) * (1.0 + _ROUND), 1.0)

    def epsilon(self, delta: float) -> float:
        """Smallest ``epsilon >= 0`` with delta at most ``delta``; infinite if tails exceed it."""
        _check_delta(delta)
        budget = delta * (1.0 - 4.0 * _ROUND) - self.tail_mass
        if budget <= 0.0:
            return math.inf
        at_grid, decayed = self._suffix
        cell = at_grid.size - int(np.searchsorted(at_grid[::-1], budget, side="right"))
        label = self.step * (self.lowest + cell)
        if cell == 0:  # below the window, where the chord from (0, 1) bounds delta
            value = label + math.log1p(-delta) - math.log1p(-float(at_grid[0]) - self.tail_mass)
        else:
            share = min(float((budget - at_grid[cell]) / decayed[cell]), -math.expm1(-self.step))
            value = label + (math.log1p(-share) if share < 1.0 else -self.step)
        return max(value + self.shift + 4.0 * _ROUND * (abs(value) + abs(label) + self.shift), 0.0)


def compose(parts: Parts, *, target_delta: float) -> ComposedLoss:
    """Compose laws, each repeated a number of times, accurately where delta is the target."""
    _check_delta(target_delta)
    parts = [(pmf, _whole(count)) for pmf, count in parts if count != 0]
    if not parts:
        return ComposedLoss(1.0, 0, np.ones(1), 0.0, 0.0)
    first = parts[0][0]
    if any(pmf.step != first.step for pmf, _ in parts):
        raise InvalidInput("all laws must be discretized with the same step to be composed.")
    shift = sum(n * pmf.shift for pmf, n in parts) * (1.0 + _ROUND)
    finite = sum(n * math.log1p(-min(pmf.infinity_mass, 1.0 - 1e-16)) for pmf, n in parts)
    infinite = -math.expm1(finite) * (1.0 + _ROUND)
    if not all(pmf.masses.any() for pmf, _ in parts):
        return ComposedLoss(first.step, 0, np.zeros(1), 1.0, 0.0)  # some law is infinite for sure
    if sum(n for _, n in parts) == 1:
        return ComposedLoss(first.step, first.lowest, first.masses, infinite, shift)
    guess = 1.0 / math.sqrt(max(_cumulants(parts, 0.0)[3], 1e-12))
    tilt = _saddle(parts, math.log(target_delta), guess, step=first.step)
    result = _at_tilt(parts, tilt, target_delta, infinite, shift)
    # Where a few large losses decide, the prefactor misleads: center on what was found instead.
    place = (result.epsilon(target_delta) - shift) / first.step
    if 4.0 < tilt[0] * (tilt[2] - place) < math.inf:
        tilt = _saddle(parts, 0.0, tilt[0], center=place)
        again = _at_tilt(parts, tilt, target_delta, infinite, shift)
        result = min(result, again, key=lambda loss: loss.epsilon(target_delta))
    return result


def _at_tilt(parts: Parts, tilt: _Tilt, target: float, tail: float, shift: float) -> ComposedLoss:
    """Compose in the window that suits one tilt; every tilt gives valid bounds."""
    low, size, above = _window(parts, tilt, math.log(target * _TAIL_SHARE))
    exponent = tilt[1] - tilt[0] * (low + np.arange(size))
    masses = _power(parts, tilt[0], low, size) * np.exp(np.minimum(exponent, 700.0))
    masses, tail = np.minimum(masses, 1.0), tail + above + _UNDERFLOW
    return ComposedLoss(parts[0][0].step, low, masses, tail, shift)


def _cumulants(parts: Parts, theta: float) -> _Tilt:
    """Log moment of the composed index under a tilt, and its first two derivatives."""
    rows = np.array([pmf._tilted(theta)[1:] for pmf, _ in parts])
    level, mean, variance = (np.array([n for _, n in parts]) @ rows).tolist()
    return theta, level, mean, variance


def _saddle(
    parts: Parts, log_target: float, theta: float, *, step: float = 0.0, center: float | None = None
) -> _Tilt:
    """Tilt, roughly, at which ``exp(K - theta K')`` is the target: the best Chernoff exponent.

    With ``step`` the target is a delta and the usual saddle-point prefactor is counted; with
    ``center`` the tilt is the one of that mean index. Any tilt whatsoever is valid.
    """
    theta, low, high = min(theta, 50.0), 0.0, math.inf
    for _ in range(60):
        _, level, mean, variance = tilt = _cumulants(parts, theta)
        excess = level - theta * mean - log_target
        if center is not None:
            excess = theta * (center - mean)
        elif step > 0.0:
            excess -= math.log1p(2.5 * theta * math.sqrt(variance)) + math.log1p(theta / step)
        if abs(excess) < 0.1 or (theta >= 50.0 and excess > 0.0):
            break
        # The excess decreases in theta: keep a bracket, since it may fall very steeply.
        low, high = (theta, high) if excess > 0.0 else (low, theta)
        guess = theta + excess / max(theta * variance, 1e-300)
        middle = math.sqrt(low * high) if low > 0.0 else 0.5 * high
        inside = max(low, 0.3 * theta) < guess < min(high, 3.0 * theta)
        theta = guess if inside else min(middle, 3.0 * theta)
    return tilt


def _window(parts: Parts, tilt: _Tilt, log_tail: float) -> tuple[int, int, float]:
    """Lowest index, size, and a Chernoff bound on the mass above the window."""
    theta, level, mean, variance = tilt
    spread = max(math.sqrt(variance), 1e-6)
    floor = sum(n * pmf.lowest for pmf, n in parts)
    ceiling = floor + sum(n * (pmf.masses.size - 1) for pmf, n in parts)
    # Chernoff bounds under the tilt, on both sides, leave little to wrap around.
    slopes = [share / spread for share in (8.0, 3.0, 1.0)]
    ends = [(level - _cumulants(parts, theta - x)[1] - 30.0) / x for x in slopes]
    tops = [(_cumulants(parts, theta + x)[1] - level + 30.0) / x for x in slopes]
    low = max(floor, math.floor(max(ends)))
    theta, level, _, _ = _saddle(parts, log_tail, 1.3 * theta)
    top = max((level - log_tail) / theta, min(*tops, mean + 100.0 * spread))
    high = min(math.ceil(top) + 1, ceiling)
    low = max(low, high - _MAX_SIZE)
    size = int(fft.next_fast_len(max(high - low, 1) + 1, real=True))
    above = math.exp(min(level - theta * (low + size), 0.0)) * (1.0 + _ROUND)
    return low, size, 0.0 if low + size > ceiling else above


def _power(parts: Parts, theta: float, low: int, size: int) -> FloatArray:
    """Composed tilted masses on ``low .. low + size - 1``.

    Every output of a transform of a law is wrong by at most ``g``, a few roundoffs per halving
    (Higham, Accuracy and stability of numerical algorithms, theorem 24.2, read entrywise and with
    room for radices above 2). So ``A = |F| + g`` bounds the true modulus, and the product of powers
    with moduli ``A`` is wrong by at most ``prod A^n sum n (2 g / A + rounding of log and angle)``.
    The mean of this over all frequencies bounds the error of every mass and is added to it. Mass
    from outside the window wraps around into it, which adds to the masses and never takes away.
    """
    log_modulus, relative = np.zeros((2, size // 2 + 1))
    spectra, origin = [], 0
    for pmf, count in parts:
        weights, _, mean, _ = pmf._tilted(theta)
        base = round(mean)
        places = (pmf.lowest - base + np.arange(weights.size)) % size
        spectrum = fft.rfft(np.bincount(places, weights, size))
        unit = _ROUND * (math.log2(size) + weights.size / size)
        modulus = np.abs(spectrum) + unit
        logs = np.log(modulus)
        log_modulus += count * logs
        relative += count * (2.0 * unit / modulus + _ROUND * (4.0 + np.abs(logs)))
        spectra.append((spectrum, count))
        origin += count * base
    modulus = np.exp(log_modulus)
    kept = log_modulus > -120.0
    relative[~kept] = 2.0  # frequencies this small are left out and counted as error
    # The last term is the inverse transform's own error; 2.1 counts both halves of the spectrum.
    relative = np.minimum(relative, 2.0) + _ROUND * math.log2(size)
    error = 2.1 / size * float((modulus * relative).sum())
    angle = sum(count * np.angle(spectrum[kept]) for spectrum, count in spectra)
    product = np.zeros(modulus.size, dtype=np.complex128)
    product[kept] = modulus[kept] * np.exp(1j * angle)
    masses = np.maximum(fft.irfft(product, size) + error, 0.0)
    return np.roll(masses, -((low - origin) % size))


@dataclass(frozen=True, eq=False)
class PldResult:
    """The composed loss in every order asked for; the curve is the larger of them."""

    target_delta: float
    orders: tuple[Order, ...]
    composed: tuple[ComposedLoss, ...]

    def delta(self, epsilon: FloatArray) -> FloatArray:
        """Upper bound on delta at every real ``epsilon``, in either order."""
        return np.asarray(np.max([loss.delta(epsilon) for loss in self.composed], axis=0))

    def epsilon(self, delta: float | None = None) -> float:
        """Smallest proved ``epsilon >= 0`` at ``delta``, or at the target if none is given."""
        level = self.target_delta if delta is None else delta
        return max(loss.epsilon(level) for loss in self.composed)


def compose_pairs(
    parts: Sequence[tuple[DominatingPair, int]],
    *,
    target_delta: float,
    rtol: float = 1e-3,
    orders: tuple[Order, ...] = ("remove", "add"),
) -> PldResult:
    """Compose pairs on a grid refined until it costs epsilon at the target at most ``rtol``.

    If that grid would be too large a coarser one is used: looser, never unsound. An epsilon so
    close to 0 that its relative error is moot is resolved to ``rtol / 100`` of delta instead.
    """
    _check_delta(target_delta)
    if not (rtol > 0.0 and orders and set(orders) <= {"remove", "add"}):
        raise InvalidInput(f"need rtol > 0 and known orders; got {rtol!r} and {orders!r}.")
    merged: dict[DominatingPair, int] = {}
    for pair, count in parts:
        if _whole(count) and not pair.trivial:
            merged[pair] = merged.get(pair, 0) + int(count)
    if all(pair.symmetric for pair in merged):
        orders = orders[:1]
    total = sum(merged.values())
    tail = target_delta * _TAIL_SHARE / max(total, 1)
    spans = [float(np.ptp(pair.loss_range(tail, o))) for pair in merged for o in orders]
    # Where a use is rarer than the tail all losses may be one double: then any grid does.
    step, finest = (max(spans, default=0.0) or 1.0) / 1000.0, 2.0 * sum(spans) / _MAX_SIZE
    best: dict[Order, ComposedLoss] = {}
    deciding = orders
    for _ in range(8):
        for order in deciding:
            law = [(discretize(pair, order, step, tail), n) for pair, n in merged.items()]
            loss = compose(law, target_delta=target_delta)
            if order not in best or loss.epsilon(target_delta) < best[order].epsilon(target_delta):
                best[order] = loss
        result = PldResult(target_delta, orders, tuple(best[order] for order in orders))
        deciding = tuple(order for order in orders if _decides(best[order], result))
        size = max(best[order].masses.size for order in deciding)
        finest = max(finest, step * size / _MAX_SIZE * (4.0 if size >= _MAX_SIZE else 1.0))
        wanted = max(_wanted_step(result, total, rtol), finest)
        if step <= 1.25 * wanted and size < _MAX_SIZE:
            break
        step = wanted
    return result


def _decides(loss: ComposedLoss, result: PldResult) -> bool:
    """Whether an order may be the one that sets epsilon: only such a one is worth a finer grid."""
    return loss.epsilon(result.target_delta) >= 0.9 * result.epsilon()


def _wanted_step(result: PldResult, total: int, rtol: float) -> float:
    """Grid step that is fine enough, judged from a composition on a coarser grid.

    Each factor gets a variance of at most ``step^2 / 4`` while ``e^-loss`` keeps its mean. A hockey
    stick is straight in ``e^-loss`` but for its kink at epsilon, so delta grows by at most about
    ``step^2 / 8`` times the density there. Nor does any loss move by more than one step.
    """
    epsilon, steps = result.epsilon(), [math.inf]
    for loss in result.composed if 0.0 < epsilon < math.inf else ():
        if _decides(loss, result):
            cell = (epsilon - loss.shift) // loss.step - loss.lowest
            cell = int(min(max(cell, 0.0), loss.masses.size - 2.0)) + 1
            density = float(loss.masses[max(cell - 3, 0) : cell + 3].max()) / loss.step + 1e-300
            slope = float(loss._suffix[1][cell]) + 1e-300
            room = 0.4 * rtol * max(epsilon, 0.01 * result.target_delta / slope) / total
            steps.append(max(room, math.sqrt(8.0 * room * slope / density)))
    return min(steps)


def epsilon_over_counts(
    pair: DominatingPair, counts: IntArray, delta: float, rtol: float = 0.02
) -> FloatArray:
    """Epsilon of the ``count``-fold composition of ``pair`` at every count, nondecreasing."""
    _check_delta(delta)
    wanted, where = np.unique([_whole(n) for n in counts], return_inverse=True)
    values, stop = np.zeros(wanted.size), wanted.size
    while stop > 0 and wanted[stop - 1] > 0 and not pair.trivial:
        start = int(np.searchsorted(wanted, wanted[stop - 1] // 2, side="right"))
        # The criterion for the grid spends 0.4 of its tolerance, so there is room for 1.5 of it.
        values[start:stop] = _epsilon_group(pair, wanted[start:stop], delta, 1.5 * rtol)
        stop = start
    # Epsilon grows with the count, so carrying a larger value on keeps the relative error.
    return np.asarray(np.maximum.accumulate(values)[where])


def _epsilon_group(pair: DominatingPair, counts: IntArray, delta: float, rtol: float) -> FloatArray:
    """Epsilon at counts within a factor of two, on one grid unless it is too coarse for some."""
    most = int(counts[-1])
    model = compose_pairs([(pair, most)], target_delta=delta, rtol=rtol)
    step, tail = model.composed[0].step, delta * _TAIL_SHARE / most
    laws = [discretize(pair, order, step, tail) for order in model.orders]
    values = []
    for n in counts.tolist():
        composed = tuple(compose([(law, n)], target_delta=delta) for law in laws)
        result = PldResult(delta, model.orders, composed)
        if step > 1.25 * _wanted_step(result, n, rtol):
            result = compose_pairs([(pair, n)], target_delta=delta, rtol=rtol)
        values.append(result.epsilon())
    return np.array(values)


def _whole(count: int) -> int:
    if not (count >= 0 and float(count).is_integer()):
        raise InvalidInput(f"a pair is repeated a whole number of times; got {count!r}.")
    return int(count)


def _check_delta(delta: float) -> None:
    if not 1e-280 <= delta < 1.0:
        raise InvalidInput(f"delta must lie between 1e-280 and 1; got {delta!r}.")
