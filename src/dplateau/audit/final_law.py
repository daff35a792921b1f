"""The final law of one walk, by the sharpest means at hand.

Walls that are hardly ever met are left out, and put around walks that need some; where no other
solver applies, the walk is rounded on a grid, which asks nothing of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dplateau.algorithms.base import NoiseKind
from dplateau.audit.clamped_walks import ClampedLaw
from dplateau.audit.laws import UNIT, Law, MixtureLaw, PaddedLaw, TailBracket
from dplateau.audit.linear_walks import (
    ReshuffledLaw,
    RidgeLaw,
    gaussian_law,
    geometric_sum,
    linear_sums,
)
from dplateau.audit.walks import Bernoulli, Reshuffled, Step, Walk
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

# Walls that are met with less than this probability may as well not be there.
_NEVER = 1e-16
# Grid points of a walk that has to be rounded, and of each of several such walks.
_GRID, _GRID_OF_MANY = 1201, 401


def mixed_law(parts: Sequence[tuple[float, Walk]]) -> Law:
    """Return the law of a walk drawn at random; equal walks are solved once."""
    merged: dict[Walk, float] = {}
    for weight, walk in parts:
        merged[walk] = merged.get(walk, 0.0) + weight
    size = _GRID if len(merged) == 1 else _GRID_OF_MANY
    laws = [(weight, final_law(walk, size)) for walk, weight in merged.items()]
    return laws[0][1] if len(laws) == 1 else MixtureLaw(tuple(laws))


def final_law(walk: Walk, size: int = _GRID) -> Law:
    """Return the tightest bracket at hand: exact, by Fourier, by quadrature or by rounding.

    ``size`` is the number of grid points where only rounding is left.
    """
    if walk.noise_kind != "gaussian":
        return RoundedLaw(walk, size)
    if math.isinf(walk.lower) and math.isinf(walk.upper):
        return _enclosed_law(walk) if walk.pulled else _unbounded_law(walk)
    met = wall_probability(walk)
    if met <= _NEVER:
        law = _unbounded_law(walk.unconstrained())
        span = max(law.span[0], walk.lower), min(law.span[1], walk.upper)
        return PaddedLaw(law, met, span)
    if not walk.bounded:
        return RoundedLaw(walk, size)
    return ClampedLaw(walk)


def _unbounded_law(walk: Walk) -> Law:
    match walk.inclusion:
        case Bernoulli():
            return RidgeLaw(walk)
        case Reshuffled():
            return ReshuffledLaw(walk)
        case _:
            return gaussian_law(walk)


def _enclosed_law(walk: Walk) -> Law:
    """Return the law of a walk without walls through one with walls that it hardly ever meets."""
    lower, upper, met = enclose(walk)
    law = ClampedLaw(replace(walk, lower=lower, upper=upper))
    return PaddedLaw(law, met, law.span)


def wall_probability(walk: Walk) -> float:
    """Bound the probability that the walk without walls ever leaves the domain.

    A union bound over the steps. At step t the walk is X_0's part, which moves monotonely between
    X_0 and its last value, plus jumps of one sign (at most those of all steps; for random
    indicators Chernoff's bound), plus Gaussian noise of at most the final variance. Needs constant
    parameters and contraction <= 1; otherwise the trivial bound 1 is returned.
    """
    ratio, jump, drift = walk.contraction, walk.jump, walk.drift
    if walk.pulled or isinstance(walk.inclusion, Reshuffled):
        return 1.0
    if isinstance(ratio, tuple) or isinstance(jump, tuple) or isinstance(drift, tuple):
        return 1.0
    if isinstance(walk.noise_std, tuple) or ratio > 1:
        return 1.0
    sums = linear_sums(walk)
    std = math.sqrt(sums.variance) * (1 + 1e-9)
    ends = (walk.start, sums.gain * walk.start + sums.drift)
    slack = 1e-9 * (std + max(map(abs, ends)))
    up = walk.upper - max(ends) - slack
    down = min(ends) - walk.lower - slack
    toward, away = (up, down) if jump >= 0 else (down, up)
    grown = geometric_sum(ratio, 1, walk.steps)
    chance = _leave(walk, abs(jump), grown, std, toward) + _leave(walk, 0.0, grown, std, away)
    return min(1.0, chance)


def _leave(walk: Walk, jump: float, grown: float, std: float, room: float) -> float:
    """Bound the probability of ever going ``room`` beyond the undisturbed mean.

    ``grown`` is what a jump of one at every step adds up to.
    """
    if math.isinf(room):
        return 0.0
    if room <= 0:
        return 1.0
    slopes = np.geomspace(0.5, 40.0, 24) / std
    moment = slopes * jump * grown
    if jump and isinstance(walk.inclusion, Bernoulli):
        rate = walk.inclusion.rate
        # log(1 + q (e^y - 1)) <= q (e^y - 1) <= q y (e^Y - 1)/Y for 0 <= y <= Y.
        with np.errstate(over="ignore"):
            moment = np.minimum(moment, rate * np.expm1(slopes * jump) * moment / (slopes * jump))
    logs = moment + np.square(slopes * std) / 2 - slopes * room
    return walk.steps * math.exp(min(float(np.min(logs)), 0.0)) * (1 + 1e-9)


# ---- an interval that is never left -------------------------------------------------------------
#
# An interval that a walk without walls never leaves, up to a proved trifle.
#
# For a slope a > 0, E exp(a X_t) is followed from step to step. A map that is pulled to a center m
# is nowhere above the larger of two lines,
#
#     (c - pull) x + pull m + shift     and     c x + shift - pull * width
#
# (if pull > c, the first is replaced by the map's largest value below the upper kink; if pull <= 0,
# the second suffices). By Jensen, E exp(a p X) <= (E exp(a X))^p for 0 <= p <= 1; so the moment
# after a step is at most exp(a^2 nu^2 / 2) times a sum of such powers, and Markov's inequality with
# a union over the steps bounds the chance of ever exceeding a level. The lower side is the upper
# side of the mirrored walk.

# The logarithm of a factor at every slope, and the power of the moment that it multiplies.
Term = tuple[FloatArray, float]
# What may be left outside on each side, over all steps.
_OUTSIDE = 1e-17
# After so many equal steps a level that no longer grows is looked for.
_PATIENCE = 64


@lru_cache(maxsize=32)
def enclose(walk: Walk) -> tuple[float, float, float]:
    """Return (lower, upper, probability that the walk without walls ever leaves them)."""
    if walk.noise_kind != "gaussian" or np.any(walk.per_step("contraction") > 1):
        raise NotApplicable("an enclosing interval needs Gaussian noise and contraction <= 1")
    if walk.pulled and math.isinf(walk.width):
        raise NotApplicable("losses that are curved everywhere have no Lipschitz constant")
    upper, lower = _highest(walk, 1.0), -_highest(walk, -1.0)
    return lower, upper, 2.1 * _OUTSIDE


def _highest(walk: Walk, side: float) -> float:
    """Return a level that ``side`` * X_t exceeds with probability below ``_OUTSIDE``, ever."""
    noise = walk.per_step("noise_std")
    slopes = np.geomspace(2e-3, 14.0, 60) / float(np.max(noise))
    moments = slopes * (side * walk.start)
    total = np.full(slopes.shape, -math.inf)
    growth: dict[Step, list[Term]] = {}
    for time in range(walk.steps):
        steps = _possible_steps(walk, time)
        for step in steps:
            if step not in growth:
                growth[step] = _terms(step, slopes, side)
        moments = _grown(moments, [growth[step] for step in steps])
        total = np.logaddexp(total, moments)
        if time % _PATIENCE == _PATIENCE - 1 and walk.homogeneous and len(growth) == 1:
            raised = moments + 1e-3
            settled = _grown(raised, list(growth.values())) <= raised
            if np.any(settled):
                # These moments stay below ``raised`` for good; the others are given up.
                left = math.log(walk.steps - time)
                total = np.where(settled, np.logaddexp(total, raised + left), math.inf)
                break
    levels = (total - math.log(_OUTSIDE) + 1e-9) / slopes
    return float(np.min(levels)) * (1 + 1e-12) + 1e-9 * float(np.max(noise))


def _possible_steps(walk: Walk, time: int) -> list[Step]:
    if isinstance(walk.inclusion, Reshuffled):
        return [walk.step_if(time, False), walk.step_if(time, True)]
    return [walk.step_at(time)]


def _grown(moments: FloatArray, choices: list[list[Term]]) -> FloatArray:
    """Return the logarithms of the moments after a step (the worst of several possible ones)."""
    grown = [
        np.logaddexp.reduce([push + power * moments for push, power in terms]) for terms in choices
    ]
    worst: FloatArray = np.max(grown, axis=0)
    return worst


def _terms(step: Step, slopes: FloatArray, side: float) -> list[Term]:
    """Return the (log factor, power) pairs whose sum bounds the moment after a step."""
    heat = np.square(slopes * step.noise_std) / 2
    pulls = step.pulls or (0.0,) * len(step.shifts)
    terms: list[Term] = []
    for shift, weight, pull in zip(step.shifts, step.weights, pulls, strict=True):
        base = heat + math.log(weight)
        outer = side * shift - (pull * step.width if pull else 0.0)
        terms.append((base + slopes * outer, step.contraction))
        if 0 < pull <= step.contraction:
            inner = side * (shift + pull * step.center)
            terms.append((base + slopes * inner, step.contraction - pull))
        elif pull > 0:
            edges = np.array([step.center - step.width, step.center + step.width])
            ends = step.contraction * edges + shift - pull * (edges - step.center)
            terms.append((base + slopes * float(np.max(side * ends)), 0.0))
    return terms


# ---- any noise: rounding ------------------------------------------------------------------------
#
# Walks with any noise, clamped or not: tails bracketed by rounding monotonely on a grid.
#
# x -> clamp(c x + shift + noise) is nondecreasing in x (c >= 0). A copy of the walk that rounds
# every state down to the grid therefore stays stochastically below the walk, and a copy that rounds
# up stays above it; their tails bracket the true ones. Where there is no wall, mass that leaves the
# grid downwards is never counted again by the lower copy and sits at the grid's end in the upper
# one, and the other way round above. The last step is not rounded. The bracket narrows in
# proportion to the grid's spacing times the number of steps: the price of asking nothing of the
# noise.

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

    def __init__(self, walk: Walk, size: int = 1201) -> None:
        if np.any(walk.per_step("contraction") < np.maximum(walk.pull_slopes(), 0.0)):
            raise NotApplicable("monotone rounding needs contraction >= 0 and no larger pulls")
        if walk.steps * float(size) ** 2 > _MOST_WORK:
            raise NotApplicable(
                f"{walk.steps} steps on a grid of {size} points are too many; use fewer"
            )
        self._walk, self._size = walk, size
        low, high = self._window()
        self._grid = np.linspace(low, high, size)
        self._last = walk.step_at(walk.steps - 1)
        self._low, self._high, self._absorbed = self._run()
        # Each step sums ``size`` products of numbers below 1, after one rounded difference each.
        self._error = walk.steps * UNIT * (8.0 * size + 64) + self._argument_error()

    @property
    def span(self) -> tuple[float, float]:
        """Return the ends of the grid, an upper wall's atom included."""
        return float(self._grid[0]), math.nextafter(float(self._grid[-1]), -math.inf)

    def _window(self) -> tuple[float, float]:
        walk, sums = self._walk, linear_sums(self._walk.unconstrained())
        reach = _REACH * math.sqrt(sums.variance)
        moves = (0.0, sums.drift, sums.jump, sums.drift + sums.jump)
        ends = (walk.start, sums.gain * walk.start)
        low = min(ends) + min(moves) - reach
        high = max(ends) + max(moves) + reach
        if math.isfinite(walk.lower):
            low = walk.lower
        if math.isfinite(walk.upper):
            high = walk.upper
        return low, max(high, math.nextafter(low, math.inf))

    def _argument_error(self) -> float:
        """Bound what rounded arguments change: the noise density is at most 1/sqrt(2) per std."""
        walk = self._walk
        shifts = np.abs(walk.per_step("drift")) + np.abs(walk.per_step("jump"))
        reach = 3 * float(np.max(np.abs(self._grid))) + float(np.max(shifts))
        if walk.pulled:
            bend = float(np.max(np.abs(walk.pull_slopes())))
            reach = (1 + bend) * (reach + abs(walk.center))
        noise = float(np.min(walk.per_step("noise_std")))
        return walk.steps * 8 * UNIT * (reach / noise + 1)

    def _run(self) -> tuple[FloatArray, FloatArray, float]:
        """Return the mass of both copies before the last step, and the upper one's beyond it."""
        walk = self._walk
        if walk.steps == 1:
            return np.zeros(self._size), np.zeros(self._size), 0.0
        first = _survival(walk.step_at(0), np.array([walk.start]), self._grid, walk.noise_kind)
        low, (high, beyond) = self._settle_down(first[0]), self._settle_up(first[0])
        kernels: dict[Step, FloatArray] = {}
        for time in range(1, walk.steps - 1):
            step = walk.step_at(time)
            if step not in kernels:
                # A pattern has two kinds of steps; a schedule has many, not worth keeping.
                kernels = kernels if len(kernels) < 2 else {}
                kernels[step] = _survival(step, self._grid, self._grid, walk.noise_kind)
            above = np.stack([low, high]) @ kernels[step]
            low, (high, beyond) = self._settle_down(above[0]), self._settle_up(above[1] + beyond)
        return low, high, beyond

    def _settle_up(self, above: FloatArray) -> tuple[FloatArray, float]:
        """Turn P(value > grid point) into masses of values rounded up, and the mass beyond.

        A value goes to grid point j exactly when it lies in (g_{j-1}, g_j].
        """
        tails = np.r_[1.0, above]
        if math.isfinite(self._walk.upper):
            tails[-1] = 0.0
        tails = np.minimum.accumulate(tails)
        return tails[:-1] - tails[1:], float(tails[-1])

    def _settle_down(self, above: FloatArray) -> FloatArray:
        """Turn P(value > grid point) into the masses of values rounded down.

        True tails decrease, so the running minimum is no farther from them than what it tidies; and
        as the next tails are sums by parts against monotone rows, errors only add up.
        """
        tails = np.r_[above, 0.0]
        if math.isfinite(self._walk.lower):
            tails[0] = 1.0
        tails = np.minimum.accumulate(tails)
        return tails[:-1] - tails[1:]

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on the tails at the given thresholds."""
        walk = self._walk
        if walk.steps == 1:
            start = np.array([walk.start])
            lower = _survival(self._last, start, points, walk.noise_kind)[0]
            upper = lower
        else:
            kernel = _survival(self._last, self._grid, points, walk.noise_kind)
            lower, upper = self._low @ kernel, self._high @ kernel + self._absorbed
        left, right = points < walk.lower, points >= walk.upper
        lower, upper = (np.where(right, 0.0, np.where(left, 1.0, v)) for v in (lower, upper))
        below = np.clip(lower - self._error, 0.0, 1.0)
        return TailBracket.between(points, below, np.clip(upper + self._error, 0.0, 1.0))


def _survival(step: Step, states: FloatArray, points: FloatArray, kind: NoiseKind) -> FloatArray:
    """Return P(c x + shift + noise > y) for each state x (rows) and point y (columns)."""
    survival = np.zeros((states.size, points.size))
    for weight, centers in step.images(states):
        z = (points - centers[:, None]) / step.noise_std
        survival += weight * noise_survival(z, kind)
    return survival
