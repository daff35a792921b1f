"""Linear walks without walls under Poisson sampling: exact tails by Fourier inversion.

X_T = m + S + N(0, v) with S = sum_t w_t I_t, the I_t independent Bernoulli(q). With Y = X_T minus
its mean, chi(u) = E exp(i u Y) has modulus at most exp(-v u^2 / 2). The square wave of half-period
W = 2 pi / h has the Fourier series sum_k sin((k + 1/2) h y) / (pi (k + 1/2)), equal to sign(y) / 2
for |y| < W; taking expectations,

    P(Y > x) = 1/2 + sum_k Im[chi(u_k) exp(-i u_k x)] / (pi (k + 1/2)) + error,  u_k = (k + 1/2) h,

where the error lies between -P(Y < x - W) and P(Y > x + W) (the inversion of Davies, Biometrika
60, 1973). Every other error is charged as well: the cut of the series (by the Gaussian factor),
the cut of the cumulant series of small weights (by Cauchy's estimate) and the round-off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dplateau.audit.chain import Chain
from dplateau.audit.gaussian_walk import LinearSums, geometric_sum, linear_sums, step_weights
from dplateau.audit.inclusion import Bernoulli
from dplateau.audit.laws import UNIT, TailBracket
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

ComplexArray = npt.NDArray[np.complex128]

# P(Y outside the span) is at most this, on either side.
_OUTSIDE = 1e-18
_LOG_OUTSIDE = 42.0
# exp(-v u^2 / 2) at the last frequency.
_LOG_CUT = 41.0
# Below this phase a factor is expanded in cumulants up to the given order.
_SMALL_PHASE = 0.05
_ORDER = 10
_BLOCK = 1 << 20
_MOST_FREQUENCIES = 200_000


@dataclass(frozen=True)
class Weights:
    """The weights of S: the large ones listed with multiplicities, power sums of the small ones.

    ``powers[m]`` adds w^m over the small weights, ``sizes[m]`` adds |w|^m; ``relative`` is the
    error of each weight.
    """

    listed: FloatArray
    counts: FloatArray
    powers: FloatArray
    sizes: FloatArray
    relative: float


def split_weights(chain: Chain, threshold: float) -> Weights:
    """Separate the weights larger than ``threshold`` from the others."""
    if chain.homogeneous and isinstance(chain.contraction, float) and chain.contraction <= 1:
        assert isinstance(chain.jump, float)
        return _split_geometric(chain.jump, chain.contraction, chain.steps, threshold)
    weights = step_weights(chain) * chain.per_step("jump")
    large = np.abs(weights) > threshold
    orders = np.arange(_ORDER + 2)[:, None]
    small = weights[~large]
    return Weights(
        listed=weights[large],
        counts=np.ones(int(np.count_nonzero(large))),
        powers=np.sum(small**orders, axis=1),
        sizes=np.sum(np.abs(small) ** orders, axis=1),
        relative=UNIT * (16 + 2 * chain.steps),
    )


def _split_geometric(jump: float, ratio: float, steps: int, threshold: float) -> Weights:
    head = _head_length(abs(jump), ratio, steps, threshold)
    if ratio == 1:
        listed, counts = np.full(min(head, 1), jump), np.full(min(head, 1), float(steps))
    else:
        listed, counts = jump * ratio ** np.arange(float(head)), np.ones(head)
    first = abs(jump) * ratio**head
    sizes = np.array(
        [first**m * geometric_sum(ratio, m, steps - head) for m in range(1, _ORDER + 2)]
    )
    signs = np.where(np.arange(1, _ORDER + 2) % 2 == 1, math.copysign(1.0, jump), 1.0)
    return Weights(listed, counts, np.r_[0.0, signs * sizes], np.r_[0.0, sizes], 32 * UNIT)


def _head_length(size: float, ratio: float, steps: int, threshold: float) -> int:
    if size <= threshold:
        return 0
    if ratio == 1:
        return steps
    if ratio == 0:
        return 1
    return min(steps, math.ceil(math.log(threshold / size) / math.log(ratio)) + 1)


def bernoulli_cumulants(rate: float) -> FloatArray:
    """Return a_1 .. a_10 with log(1 + q (e^w - 1)) = sum a_m w^m, after a leading 0.

    >>> bernoulli_cumulants(0.5)[1:4].tolist()
    [0.5, 0.125, 0.0]
    """
    inverse = [1 / math.factorial(m) for m in range(_ORDER + 1)]
    found = [0.0]
    for m in range(1, _ORDER + 1):
        mixed = math.fsum(k * found[k] * inverse[m - k] for k in range(1, m))
        found.append(rate * (inverse[m] - mixed / m))
    return np.array(found)


class RidgeLaw:
    """The law of X_T, as its characteristic function on a grid of frequencies."""

    def __init__(self, chain: Chain) -> None:
        if not isinstance(chain.inclusion, Bernoulli) or not 0 < chain.inclusion.rate < 1:
            raise NotApplicable("Fourier inversion is for indicators with 0 < rate < 1")
        sums = linear_sums(chain)
        self._rate = chain.inclusion.rate
        self._variance = sums.variance
        self._relative = sums.relative
        std = math.sqrt(sums.variance)
        self._top = math.sqrt(2 * _LOG_CUT) / std
        self._weights = split_weights(chain, _SMALL_PHASE / self._top)
        self.mean = sums.gain * chain.start + sums.drift + self._rate * sums.jump
        size = abs(sums.gain * chain.start) + sums.drift_size + sums.jump_size
        self._mean_error = size * (sums.relative + 8 * UNIT)
        self._below = self._reach(-1.0, sums)
        self._above = self._reach(1.0, sums)
        self._invert_setup()

    @property
    def span(self) -> tuple[float, float]:
        """Return an interval that the law leaves with probability below 1e-18 on either side."""
        return self.mean - self._below, self.mean + self._above

    def _reach(self, side: float, sums: LinearSums) -> float:
        """Return t with P(side * Y > t) below ``_OUTSIDE``, by Chernoff and by the support of S."""
        std = math.sqrt(self._variance) * (1 + self._relative)
        slopes = side * np.geomspace(0.3, 12.0, 16) / std
        listed = self._weights.listed[:, None] * slopes
        logs = np.logaddexp(math.log1p(-self._rate), math.log(self._rate) + listed)
        moment = self._weights.counts @ (logs - self._rate * listed)
        # Small weights: log(1 + q(e^y - 1)) - q y <= q y^2 e^|y| / 2, and e^|y| < 1.08 here.
        moment = moment + 0.55 * self._rate * slopes**2 * self._weights.sizes[2]
        bounds = (moment + (slopes * std) ** 2 / 2 + _LOG_OUTSIDE) / np.abs(slopes)
        # S lies between the sums of its negative and of its positive weights.
        extreme = (sums.jump_size + side * sums.jump) / 2 - side * self._rate * sums.jump
        reach = min(float(np.min(bounds)), max(extreme, 0.0) + 9.5 * std)
        return 1.0001 * reach + 10 * self._mean_error

    def _invert_setup(self) -> None:
        width = self._below + self._above
        spacing = 2 * math.pi / width * (1 - 1e-9)
        count = math.ceil(self._top / spacing)
        if count > _MOST_FREQUENCIES:
            raise NotApplicable(
                f"the record's jumps exceed the noise too far: {count} frequencies needed, at "
                f"most {_MOST_FREQUENCIES} allowed; use more noise or fewer steps"
            )
        half = np.arange(count, dtype=np.float64) + 0.5
        self._frequencies: FloatArray = half * spacing
        values, errors = self._characteristic(self._frequencies)
        self._terms = values / (math.pi * half)
        sizes = np.abs(self._terms)
        self._size = float(np.sum(sizes))
        self._phase_size = float(np.sum(sizes * self._frequencies))
        last = (count + 0.5) * spacing
        decay = -math.expm1(-self._variance * last * spacing)
        cut = math.exp(-self._variance * last**2 / 2 * (1 - 1e-9)) / (math.pi * count * decay)
        summed = float(np.sum(errors / (math.pi * half)))
        self._absolute = summed + cut + _OUTSIDE + UNIT * (count + 16) * self._size

    def _characteristic(self, u: FloatArray) -> tuple[ComplexArray, FloatArray]:
        """Return chi at the frequencies, and a bound on its absolute error."""
        weights, rate = self._weights, self._rate
        values = np.ones(u.shape, dtype=np.complex128)
        # Factors have modulus at most 1, so the errors of a product add up.
        errors = np.zeros(u.shape)
        rows = max(1, _BLOCK // u.size)
        for first in range(0, weights.listed.size, rows):
            part = slice(first, first + rows)
            phase = weights.listed[part, None] * u
            counts = weights.counts[part, None]
            values *= np.prod(_centred_factors(phase, rate, counts), axis=0)
            # |d/d phase E exp(i phase (I - q))| <= 2 q: the charge for a rounded phase.
            moved = counts * np.abs(phase) * rate * (24 + 2 * weights.relative / UNIT)
            errors += np.sum(24 + moved, axis=0)
        cumulants = bernoulli_cumulants(rate)
        exponent = np.zeros(u.shape, dtype=np.complex128)
        for m in range(2, _ORDER + 1):
            exponent += cumulants[m] * weights.powers[m] * (1j * u) ** m
        # On |w| = 2 the logarithm is below 2.9 in modulus: Cauchy bounds what is left out.
        left_out = 3.0 * weights.sizes[_ORDER + 1] * (u / 2) ** (_ORDER + 1)
        square = rate * weights.sizes[2] * u**2
        gauss = self._variance * u**2 / 2
        damping = np.exp(-gauss)
        values *= damping * np.exp(exponent)
        charge = 64 * (1 + square + gauss) + (square + gauss) * (
            2 * (self._relative + weights.relative) / UNIT
        )
        return values, damping * (errors * UNIT + charge * UNIT + left_out)

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on the tails; the error is absolute, about 1e-13 for common walks."""
        offset = points - self.mean
        inside = (offset >= -self._below) & (offset <= self._above)
        near = offset[inside]
        found = np.empty(near.shape)
        rows = max(1, _BLOCK // self._frequencies.size)
        for first in range(0, near.size, rows):
            part = near[first : first + rows]
            waves = np.exp(np.multiply.outer(-1j * part, self._frequencies))
            found[first : first + rows] = 0.5 + np.imag(waves @ self._terms)
        # A threshold moved by e moves each term by at most e times its frequency.
        moved = self._mean_error + 4 * UNIT * (abs(self.mean) + np.abs(near))
        error = self._absolute + moved * self._phase_size
        lower, upper = np.zeros(points.shape), np.ones(points.shape)
        lower[inside] = np.clip(found - error, 0.0, 1.0)
        upper[inside] = np.clip(found + error, 0.0, 1.0)
        lower[offset < -self._below] = 1 - 2 * _OUTSIDE - UNIT
        upper[offset > self._above] = 2 * _OUTSIDE
        return TailBracket.between(points, lower, upper)


def _centred_factors(phase: FloatArray, rate: float, counts: FloatArray) -> ComplexArray:
    """Return E exp(i phase (I - rate)) to the power counts, without loss for high powers."""
    found: ComplexArray
    if np.all(counts == 1):
        found = (1 - rate + rate * np.exp(1j * phase)) * np.exp(-1j * rate * phase)
        return found
    sine = np.sin(phase / 2)
    real, imaginary = 1 - 2 * rate * sine**2, rate * np.sin(phase)
    lost = 4 * rate * (1 - rate) * sine**2
    # |factor|^2 = 1 - lost: log1p is exact where the modulus is near 1, hypot where it is not.
    log_size = np.where(
        lost < 0.5,
        0.5 * np.log1p(-np.minimum(lost, 0.5)),
        np.log(np.maximum(np.hypot(real, imaginary), 1e-300)),
    )
    angle = np.arctan2(imaginary, real) - rate * phase
    found = np.exp(counts * (log_size + 1j * angle))
    return found
