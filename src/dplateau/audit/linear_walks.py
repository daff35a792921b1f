"""Linear walks without walls: Gaussian, reshuffled, and with random batches.

X_T = gain * X_0 + sum_t w_t (drift_t + I_t jump_t) + sum_t w_t nu_t xi_t, where w_t is the product
of the contractions after step t. Given the indicators I_t the law is Gaussian; what is random about
them decides how its tails are found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.audit.laws import UNIT, TailBracket, normal_tail
from dplateau.audit.walks import (
    Always,
    Bernoulli,
    Once,
    Pattern,
    Periodic,
    Reshuffled,
    Until,
    Walk,
    active_steps,
)
from dplateau.errors import NotApplicable
from dplateau.ground.types import ComplexArray, FloatArray

# ---- indicators that are not random -------------------------------------------------------------
#
# The law is Gaussian, and two such walks that differ only in their jumps are told apart by
# mu = |difference of means| / std. The sums serve the other walks too.


@dataclass(frozen=True)
class LinearSums:
    """Sums over the steps of an unconstrained walk; ``relative`` bounds the error of each.

    ``jump`` adds the jumps of the active steps (all steps if the indicators are random), and
    ``jump_size`` their absolute values, which is what ``relative`` refers to for ``jump``.
    """

    gain: float
    drift: float
    drift_size: float
    jump: float
    jump_size: float
    variance: float
    relative: float


def geometric_sum(ratio: float, power: int, count: int) -> float:
    """Return the sum of ratio^(power k) over k = 0 .. count - 1, to a few units in the last place.

    >>> geometric_sum(0.5, 1, 3)
    1.75
    """
    if count <= 0:
        return 0.0
    if ratio == 0:
        return 1.0
    if ratio == 1:
        return float(count)
    # log1p of the exact difference keeps every digit of 1 - ratio when the ratio is close to 1.
    rate = power * (math.log(ratio) if ratio < 0.5 else math.log1p(ratio - 1.0))
    return math.expm1(count * rate) / math.expm1(rate)


def linear_sums(walk: Walk) -> LinearSums:
    """Return the gain, the summed shifts and the variance of the walk without its walls."""
    if walk.homogeneous:
        return _closed_sums(walk)
    return _explicit_sums(walk)


def step_weights(walk: Walk) -> FloatArray:
    """Return w_t, the product of the contractions after step t, for every step."""
    later = walk.per_step("contraction")[:0:-1]
    return np.concatenate(([1.0], np.cumprod(later)))[::-1]


def active_weight(pattern: Pattern, ratio: float, steps: int) -> float:
    """Return the sum of ratio^(steps - 1 - t) over the steps t at which the record takes part."""
    match pattern:
        case Always():
            return geometric_sum(ratio, 1, steps)
        case Until(step):
            return ratio ** (steps - 1 - step) * geometric_sum(ratio, 1, step + 1)
        case Once(step):
            return ratio ** (steps - 1 - step)
        case Periodic(period, position):
            count = len(range(position, steps, period))
            if count == 0:
                return 0.0
            last = position + period * (count - 1)
            return ratio ** (steps - 1 - last) * geometric_sum(ratio, period, count)


def _pattern(walk: Walk) -> Pattern | None:
    """Return when the record takes part; None if every step may be one of its own."""
    match walk.inclusion:
        case Bernoulli():
            return None
        case Reshuffled():
            raise NotApplicable("the record's places are random: its summed jumps are no number")
        case pattern:
            return pattern


def _closed_sums(walk: Walk) -> LinearSums:
    ratio, noise, drift, jump = walk.constants()
    growth = 2 * walk.steps * math.log(ratio) if ratio > 1 else 0.0
    if growth > 600:
        raise NotApplicable(
            f"{walk.steps} steps of contraction {ratio} overflow; use fewer steps or a domain"
        )
    everywhere = geometric_sum(ratio, 1, walk.steps)
    pattern = _pattern(walk)
    moved = everywhere if pattern is None else active_weight(pattern, ratio, walk.steps)
    return LinearSums(
        gain=ratio**walk.steps,
        drift=drift * everywhere,
        drift_size=abs(drift) * everywhere,
        jump=jump * moved,
        jump_size=abs(jump) * moved,
        variance=noise**2 * geometric_sum(ratio, 2, walk.steps),
        relative=UNIT * (32 + 8 * growth),
    )


def _explicit_sums(walk: Walk) -> LinearSums:
    weights = step_weights(walk)
    jumps = weights * walk.per_step("jump")
    pattern = _pattern(walk)
    if pattern is not None:
        jumps = np.where(active_steps(pattern, walk.steps), jumps, 0.0)
    drifts = weights * walk.per_step("drift")
    return LinearSums(
        gain=float(weights[0] * walk.per_step("contraction")[0]),
        drift=math.fsum(drifts),
        drift_size=math.fsum(np.abs(drifts)),
        jump=math.fsum(jumps),
        jump_size=math.fsum(np.abs(jumps)),
        variance=math.fsum(np.square(weights * walk.per_step("noise_std"))),
        # The running product of the contractions gathers one rounding per step, twice if squared.
        relative=UNIT * (32 + 4 * walk.steps),
    )


@dataclass(frozen=True)
class GaussianLaw:
    """N(mean, std^2), with the error of the mean and the relative error of std."""

    mean: float
    std: float
    mean_error: float
    std_relative: float

    @property
    def span(self) -> tuple[float, float]:
        """Return eleven standard deviations on either side of the mean."""
        return self.mean - 11 * self.std, self.mean + 11 * self.std

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on the tails, accurate in relative terms on both sides."""
        z = (self.mean - points) / self.std
        shift = self.mean_error + 2 * UNIT * (abs(self.mean) + np.abs(points))
        error = shift / self.std * (1 + self.std_relative) + np.abs(z) * (
            self.std_relative + 4 * UNIT
        )
        above, below = normal_tail(z, error), normal_tail(-z, error)
        return TailBracket(points, *above, *below)


def gaussian_law(walk: Walk) -> GaussianLaw:
    """Return the exact law of X_T for a walk without walls and without random indicators."""
    if walk.noise_kind != "gaussian" or isinstance(walk.inclusion, Bernoulli):
        raise NotApplicable(
            "the Gaussian law needs Gaussian noise and indicators that are not random; "
            f"got noise_kind={walk.noise_kind!r}, inclusion={walk.inclusion!r}"
        )
    sums = linear_sums(walk)
    size = abs(sums.gain * walk.start) + sums.drift_size + sums.jump_size
    return GaussianLaw(
        mean=sums.gain * walk.start + sums.drift + sums.jump,
        std=math.sqrt(sums.variance),
        mean_error=size * (sums.relative + 8 * UNIT),
        std_relative=sums.relative + 4 * UNIT,
    )


def gaussian_shift(difference: Walk) -> float:
    """Return mu, rounded down, for two walks whose jumps differ by those of ``difference``."""
    sums = linear_sums(difference)
    shift = abs(sums.jump) - sums.jump_size * (sums.relative + 8 * UNIT)
    return max(0.0, shift) / math.sqrt(sums.variance) * (1 - sums.relative - 8 * UNIT)


# ---- once per epoch, at a random place ----------------------------------------------------------
#
# Walks without walls whose record is used once per epoch, at a fresh random place.
#
# Given the record's places the law is Gaussian. The places in the last few epochs are enumerated;
# the jumps of an earlier epoch lie between those of its least and of its most weighty place, so
# that the tails are bracketed.

_MOST_PATTERNS = 4096


class ReshuffledLaw:
    """A mixture of Gaussians of one variance, each mean known up to a common slack."""

    def __init__(self, walk: Walk) -> None:
        epochs = walk.inclusion
        if not isinstance(epochs, Reshuffled) or not walk.homogeneous or walk.pulled:
            raise NotApplicable("a reshuffled walk without walls needs constant linear steps")
        ratio, noise, drift, jump = walk.constants()
        if not 0 <= ratio <= 1:
            raise NotApplicable(f"a reshuffled walk needs contraction in [0, 1]; got {ratio}")
        self._weights, least, slack = _uses(epochs, ratio, walk.steps)
        fixed = ratio**walk.steps * walk.start + drift * geometric_sum(ratio, 1, walk.steps)
        self._std = noise * math.sqrt(geometric_sum(ratio, 2, walk.steps))
        self._low = fixed + np.minimum(jump * least, jump * (least + slack))
        self._high = fixed + np.maximum(jump * least, jump * (least + slack))
        count = -(-walk.steps // epochs.period)
        size = abs(fixed) + abs(jump) * (count + 1)
        self._error = UNIT * (64 + 4 * count) * size / self._std

    @property
    def span(self) -> tuple[float, float]:
        """Return eleven standard deviations beyond the outermost means."""
        return float(self._low.min()) - 11 * self._std, float(self._high.max()) + 11 * self._std

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on the tails: the least means below, the greatest above."""
        low, _ = self._mean(self._low, points, 1.0)
        _, high = self._mean(self._high, points, 1.0)
        below_low, _ = self._mean(self._high, points, -1.0)
        _, below_high = self._mean(self._low, points, -1.0)
        return TailBracket(points, low, high, below_low, below_high)

    def _mean(
        self, means: FloatArray, points: FloatArray, side: float
    ) -> tuple[FloatArray, FloatArray]:
        z = side * (means - points[:, None]) / self._std
        error = self._error + 16 * UNIT * (np.abs(z) + np.abs(points[:, None]) / self._std)
        lower, upper = normal_tail(z, error)
        slack = UNIT * (4 * self._weights.size + 64)
        most = np.minimum(1.0, upper @ self._weights * (1 + slack))
        return np.minimum(1.0, lower @ self._weights * (1 - slack)), most


def _uses(epochs: Reshuffled, ratio: float, steps: int) -> tuple[FloatArray, FloatArray, float]:
    """Return probabilities and weighted uses of the enumerated places, and what is left open.

    The uses count the least weighty place of every epoch that is not enumerated; the open part is
    how much more these epochs could weigh. A place beyond the end of the run is no use at all.
    """
    shares = np.array(epochs.places())
    weights, least, slack = np.ones(1), np.zeros(1), 0.0
    for epoch in reversed(range(-(-steps // epochs.period))):
        times = epoch * epochs.period + np.arange(epochs.period)
        used = np.where(times < steps, ratio ** np.maximum(steps - 1.0 - times, 0.0), 0.0)
        if weights.size * epochs.period <= _MOST_PATTERNS:
            weights = np.multiply.outer(weights, shares).ravel()
            least = np.add.outer(least, used).ravel()
        else:
            least, slack = least + used.min(), slack + float(used.max() - used.min())
    return weights, least, slack


# ---- independent indicators ---------------------------------------------------------------------
#
# Linear walks without walls under Poisson sampling: exact tails by Fourier inversion.
#
# X_T = m + S + N(0, v) with S = sum_t w_t I_t, the I_t independent Bernoulli(q). With Y = X_T minus
# its mean, chi(u) = E exp(i u Y) has modulus at most exp(-v u^2 / 2). The square wave of
# half-period W = 2 pi / h has the Fourier series sum_k sin((k + 1/2) h y) / (pi (k + 1/2)), equal
# to sign(y) / 2 for |y| < W; taking expectations,
#
#     P(Y > x) = 1/2 + sum_k Im[chi(u_k) exp(-i u_k x)] / (pi (k + 1/2)) + error, u_k = (k + 1/2) h,
#
# where the error lies between -P(Y < x - W) and P(Y > x + W) (the inversion of Davies, Biometrika
# 60, 1973). Every other error is charged as well: the cut of the series (by the Gaussian factor),
# the cut of the cumulant series of small weights (by Cauchy's estimate) and the round-off.


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


def split_weights(walk: Walk, threshold: float) -> Weights:
    """Separate the weights larger than ``threshold`` from the others."""
    match walk:
        case Walk(homogeneous=True, contraction=float(ratio), jump=float(jump)) if ratio <= 1:
            return _split_geometric(jump, ratio, walk.steps, threshold)
    weights = step_weights(walk) * walk.per_step("jump")
    large = np.abs(weights) > threshold
    orders = np.arange(_ORDER + 2)[:, None]
    small = weights[~large]
    return Weights(
        listed=weights[large],
        counts=np.ones(int(np.count_nonzero(large))),
        powers=np.sum(small**orders, axis=1),
        sizes=np.sum(np.abs(small) ** orders, axis=1),
        relative=UNIT * (16 + 2 * walk.steps),
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
    cumulants = [0.0]
    for m in range(1, _ORDER + 1):
        mixed = math.fsum(k * cumulants[k] * inverse[m - k] for k in range(1, m))
        cumulants.append(rate * (inverse[m] - mixed / m))
    return np.array(cumulants)


class RidgeLaw:
    """The law of X_T, as its characteristic function on a grid of frequencies."""

    def __init__(self, walk: Walk) -> None:
        if not isinstance(walk.inclusion, Bernoulli) or not 0 < walk.inclusion.rate < 1:
            raise NotApplicable("Fourier inversion is for indicators with 0 < rate < 1")
        sums = linear_sums(walk)
        self._rate = walk.inclusion.rate
        self._variance = sums.variance
        self._relative = sums.relative
        std = math.sqrt(sums.variance)
        self._top = math.sqrt(2 * _LOG_CUT) / std
        self._weights = split_weights(walk, _SMALL_PHASE / self._top)
        self.mean = sums.gain * walk.start + sums.drift + self._rate * sums.jump
        size = abs(sums.gain * walk.start) + sums.drift_size + sums.jump_size
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
            values *= np.prod(_centered_factors(phase, rate, counts), axis=0)
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
        tails = np.empty(near.shape)
        rows = max(1, _BLOCK // self._frequencies.size)
        for first in range(0, near.size, rows):
            part = near[first : first + rows]
            waves = np.exp(np.multiply.outer(-1j * part, self._frequencies))
            tails[first : first + rows] = 0.5 + np.imag(waves @ self._terms)
        # A threshold moved by e moves each term by at most e times its frequency.
        moved = self._mean_error + 4 * UNIT * (abs(self.mean) + np.abs(near))
        error = self._absolute + moved * self._phase_size
        lower, upper = np.zeros(points.shape), np.ones(points.shape)
        lower[inside] = np.clip(tails - error, 0.0, 1.0)
        upper[inside] = np.clip(tails + error, 0.0, 1.0)
        lower[offset < -self._below] = 1 - 2 * _OUTSIDE - UNIT
        upper[offset > self._above] = 2 * _OUTSIDE
        return TailBracket.between(points, lower, upper)


def _centered_factors(phase: FloatArray, rate: float, counts: FloatArray) -> ComplexArray:
    """Return E exp(i phase (I - rate)) to the power counts, without loss for high powers."""
    factors: ComplexArray
    if np.all(counts == 1):
        factors = (1 - rate + rate * np.exp(1j * phase)) * np.exp(-1j * rate * phase)
        return factors
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
    factors = np.exp(counts * (log_size + 1j * angle))
    return factors
