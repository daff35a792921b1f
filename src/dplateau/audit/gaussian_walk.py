"""Linear walks without walls: sums of weighted increments, and the exact Gaussian law.

X_T = gain * X_0 + sum_t w_t (drift_t + I_t jump_t) + sum_t w_t nu_t xi_t, where w_t is the product
of the contractions after step t. When the indicators are not random the law is Gaussian, and two
such walks that differ only in their jumps are told apart by mu = |difference of means| / std.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.audit.chain import Chain
from dplateau.audit.inclusion import (
    Always,
    Bernoulli,
    Once,
    Pattern,
    Periodic,
    Reshuffled,
    Until,
    active_steps,
)
from dplateau.audit.laws import UNIT, TailBracket, normal_tail
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray


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


def linear_sums(chain: Chain) -> LinearSums:
    """Return the gain, the summed shifts and the variance of the chain without its walls."""
    if chain.homogeneous:
        return _closed_sums(chain)
    return _explicit_sums(chain)


def step_weights(chain: Chain) -> FloatArray:
    """Return w_t, the product of the contractions after step t, for every step."""
    later = chain.per_step("contraction")[:0:-1]
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


def _pattern(chain: Chain) -> Pattern | None:
    """Return when the record takes part; None if every step may be one of its own."""
    match chain.inclusion:
        case Bernoulli():
            return None
        case Reshuffled():
            raise NotApplicable("the record's places are random: its summed jumps are no number")
        case pattern:
            return pattern


def _closed_sums(chain: Chain) -> LinearSums:
    ratio, noise, drift, jump = chain.constants()
    growth = 2 * chain.steps * math.log(ratio) if ratio > 1 else 0.0
    if growth > 600:
        raise NotApplicable(
            f"{chain.steps} steps of contraction {ratio} overflow; use fewer steps or a domain"
        )
    everywhere = geometric_sum(ratio, 1, chain.steps)
    pattern = _pattern(chain)
    moved = everywhere if pattern is None else active_weight(pattern, ratio, chain.steps)
    return LinearSums(
        gain=ratio**chain.steps,
        drift=drift * everywhere,
        drift_size=abs(drift) * everywhere,
        jump=jump * moved,
        jump_size=abs(jump) * moved,
        variance=noise**2 * geometric_sum(ratio, 2, chain.steps),
        relative=UNIT * (32 + 8 * growth),
    )


def _explicit_sums(chain: Chain) -> LinearSums:
    weights = step_weights(chain)
    jumps = weights * chain.per_step("jump")
    pattern = _pattern(chain)
    if pattern is not None:
        jumps = np.where(active_steps(pattern, chain.steps), jumps, 0.0)
    drifts = weights * chain.per_step("drift")
    return LinearSums(
        gain=float(weights[0] * chain.per_step("contraction")[0]),
        drift=math.fsum(drifts),
        drift_size=math.fsum(np.abs(drifts)),
        jump=math.fsum(jumps),
        jump_size=math.fsum(np.abs(jumps)),
        variance=math.fsum(np.square(weights * chain.per_step("noise_std"))),
        # The running product of the contractions gathers one rounding per step, twice if squared.
        relative=UNIT * (32 + 4 * chain.steps),
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


def gaussian_law(chain: Chain) -> GaussianLaw:
    """Return the exact law of X_T for a walk without walls and without random indicators."""
    if chain.noise_kind != "gaussian" or isinstance(chain.inclusion, Bernoulli):
        raise NotApplicable(
            "the Gaussian law needs Gaussian noise and indicators that are not random; "
            f"got noise_kind={chain.noise_kind!r}, inclusion={chain.inclusion!r}"
        )
    sums = linear_sums(chain)
    size = abs(sums.gain * chain.start) + sums.drift_size + sums.jump_size
    return GaussianLaw(
        mean=sums.gain * chain.start + sums.drift + sums.jump,
        std=math.sqrt(sums.variance),
        mean_error=size * (sums.relative + 8 * UNIT),
        std_relative=sums.relative + 4 * UNIT,
    )


def gaussian_shift(difference: Chain) -> float:
    """Return mu, rounded down, for two walks whose jumps differ by those of ``difference``."""
    sums = linear_sums(difference)
    shift = abs(sums.jump) - sums.jump_size * (sums.relative + 8 * UNIT)
    return max(0.0, shift) / math.sqrt(sums.variance) * (1 - sums.relative - 8 * UNIT)
