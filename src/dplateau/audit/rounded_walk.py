"""Walks with any noise, clamped or not: tails bracketed by rounding monotonely on a grid.

x -> clamp(c x + shift + noise) is nondecreasing in x (c >= 0). A copy of the walk that rounds every
state down to the grid therefore stays stochastically below the walk, and a copy that rounds up
stays above it; their tails bracket the true ones. Where there is no wall, mass that leaves the grid
downwards is never counted again by the lower copy and sits at the grid's end in the upper one, and
the other way round above. The last step is not rounded. The bracket narrows in proportion to the
grid's spacing times the number of steps: the price of asking nothing of the noise.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.audit.chain import Chain, NoiseKind, Step
from dplateau.audit.gaussian_walk import linear_sums
from dplateau.audit.laws import UNIT, TailBracket
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

_MOST_WORK = 2e10
# How many standard deviations of the unconstrained walk the grid covers on either side.
_REACH = 20.0


def noise_survival(z: FloatArray, kind: NoiseKind) -> FloatArray:
    """Return P(noise > z) for noise of unit variance.

    >>> noise_survival(np.array([0.0]), "laplace")
    array([0.5])
    """
    if kind == "gaussian":
        from scipy.special import ndtr

        return np.asarray(ndtr(-z), dtype=np.float64)
    tail = 0.5 * np.exp(-math.sqrt(2.0) * np.abs(z))
    return np.where(z >= 0, tail, 1.0 - tail)


class RoundedLaw:
    """The final law between two copies of the walk that live on a grid of ``size`` points."""

    def __init__(self, chain: Chain, size: int = 1201) -> None:
        if np.any(chain.per_step("contraction") < np.maximum(chain.pull_slopes(), 0.0)):
            raise NotApplicable("monotone rounding needs contraction >= 0 and no larger pulls")
        if chain.steps * float(size) ** 2 > _MOST_WORK:
            raise NotApplicable(
                f"{chain.steps} steps on a grid of {size} points are too many; use fewer"
            )
        self._chain, self._size = chain, size
        low, high = self._window()
        self._grid = np.linspace(low, high, size)
        self._last = chain.step_at(chain.steps - 1)
        self._low, self._high, self._absorbed = self._run()
        # Each step sums ``size`` products of numbers below 1, after one rounded difference each.
        self._error = chain.steps * UNIT * (8.0 * size + 64) + self._argument_error()

    @property
    def span(self) -> tuple[float, float]:
        """Return the ends of the grid, an upper wall's atom included."""
        return float(self._grid[0]), math.nextafter(float(self._grid[-1]), -math.inf)

    def _window(self) -> tuple[float, float]:
        chain, sums = self._chain, linear_sums(self._chain.unconstrained())
        reach = _REACH * math.sqrt(sums.variance)
        moves = (0.0, sums.drift, sums.jump, sums.drift + sums.jump)
        ends = (chain.start, sums.gain * chain.start)
        low = min(ends) + min(moves) - reach
        high = max(ends) + max(moves) + reach
        if math.isfinite(chain.lower):
            low = chain.lower
        if math.isfinite(chain.upper):
            high = chain.upper
        return low, max(high, math.nextafter(low, math.inf))

    def _argument_error(self) -> float:
        """Bound what rounded arguments change: the noise density is at most 1/sqrt(2) per std."""
        chain = self._chain
        shifts = np.abs(chain.per_step("drift")) + np.abs(chain.per_step("jump"))
        reach = 3 * float(np.max(np.abs(self._grid))) + float(np.max(shifts))
        if chain.pulled:
            bend = float(np.max(np.abs(chain.pull_slopes())))
            reach = (1 + bend) * (reach + abs(chain.centre))
        noise = float(np.min(chain.per_step("noise_std")))
        return chain.steps * 8 * UNIT * (reach / noise + 1)

    def _run(self) -> tuple[FloatArray, FloatArray, float]:
        """Return the mass of both copies before the last step, and the upper one's beyond it."""
        chain = self._chain
        if chain.steps == 1:
            return np.zeros(self._size), np.zeros(self._size), 0.0
        first = _survival(chain.step_at(0), np.array([chain.start]), self._grid, chain.noise_kind)
        low, (high, beyond) = self._settle_down(first[0]), self._settle_up(first[0])
        kernels: dict[Step, FloatArray] = {}
        for time in range(1, chain.steps - 1):
            step = chain.step_at(time)
            if step not in kernels:
                # A pattern has two kinds of steps; a schedule has many, not worth keeping.
                kernels = kernels if len(kernels) < 2 else {}
                kernels[step] = _survival(step, self._grid, self._grid, chain.noise_kind)
            above = np.stack([low, high]) @ kernels[step]
            low, (high, beyond) = self._settle_down(above[0]), self._settle_up(above[1] + beyond)
        return low, high, beyond

    def _settle_up(self, above: FloatArray) -> tuple[FloatArray, float]:
        """Turn P(value > grid point) into masses of values rounded up, and the mass beyond.

        A value goes to grid point j exactly when it lies in (g_{j-1}, g_j].
        """
        tails = np.r_[1.0, above]
        if math.isfinite(self._chain.upper):
            tails[-1] = 0.0
        tails = np.minimum.accumulate(tails)
        return tails[:-1] - tails[1:], float(tails[-1])

    def _settle_down(self, above: FloatArray) -> FloatArray:
        """Turn P(value > grid point) into the masses of values rounded down.

        True tails decrease, so the running minimum is no farther from them than what it tidies; and
        as the next tails are sums by parts against monotone rows, errors only add up.
        """
        tails = np.r_[above, 0.0]
        if math.isfinite(self._chain.lower):
            tails[0] = 1.0
        tails = np.minimum.accumulate(tails)
        return tails[:-1] - tails[1:]

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on the tails at the given thresholds."""
        chain = self._chain
        if chain.steps == 1:
            start = np.array([chain.start])
            lower = _survival(self._last, start, points, chain.noise_kind)[0]
            upper = lower
        else:
            kernel = _survival(self._last, self._grid, points, chain.noise_kind)
            lower, upper = self._low @ kernel, self._high @ kernel + self._absorbed
        left, right = points < chain.lower, points >= chain.upper
        lower, upper = (np.where(right, 0.0, np.where(left, 1.0, v)) for v in (lower, upper))
        below = np.clip(lower - self._error, 0.0, 1.0)
        return TailBracket.between(points, below, np.clip(upper + self._error, 0.0, 1.0))


def _survival(step: Step, states: FloatArray, points: FloatArray, kind: NoiseKind) -> FloatArray:
    """Return P(c x + shift + noise > y) for each state x (rows) and point y (columns)."""
    found = np.zeros((states.size, points.size))
    for weight, centres in step.images(states):
        z = (points - centres[:, None]) / step.noise_std
        found += weight * noise_survival(z, kind)
    return found
