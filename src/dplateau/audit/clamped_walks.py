"""Gaussian walks clamped to an interval: tails by a positive quadrature with a proved error.

Let f_t(x) = P(X_T > y | X_t = x). For t < T it is a mixture of E f_{t+1}(clamp(u + nu xi)),
u = c x + shift, hence entire, with |f_t(x + iy)| <= exp(c^2 y^2 / (2 nu^2)). The walls carry atoms
of known mass, and what is left is the integral of f_{t+1} times a Gaussian density over the
interval, which a Gauss-Legendre rule (below) replaces by a positive sum. A step is thus a
product with a nonnegative matrix whose absolute error is fixed in advance, while round-off is
relative: nothing is ever subtracted. A rounded node moves f_t by a small multiple of itself,
because Phi^-1 of each term of the mixture is Lipschitz with constant c / nu. No monotone rounding
is needed, and the error of a tail after a hundred thousand steps is near 1e-15 plus 1e-7 of it.

Curved losses bend the map at two points at most. Panels end there, and on each of them u is linear
in x as before.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dplateau.audit.laws import FAR, UNIT, TailBracket
from dplateau.audit.walks import ALWAYS, Reshuffled, Step, Stretch, Walk
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

# Entries below this are dropped: they would only reach the slow subnormal range.
_TRIFLE = 1e-50
# A matrix product runs about this many times faster, per operation, than a vector one.
_MATRIX_ADVANTAGE = 4
# A product with a sparse matrix costs this many times as much for each entry that it keeps.
_SPARSE_PRICE = 4
_MOST_RESHUFFLED_WORK = 3e10


class ClampedLaw:
    """The law of X_T on [lower, upper], as weights on quadrature nodes one step before the end."""

    def __init__(self, walk: Walk) -> None:
        if not walk.bounded or walk.noise_kind != "gaussian":
            raise NotApplicable("this solver is for Gaussian noise on a bounded interval")
        self._walk = walk
        noise, slope = float(np.min(walk.per_step("noise_std"))), walk.steepest()
        self._rule = make_rule(walk.lower, walk.upper, noise, slope, walk.steps, walk.kinks)
        # States: the nodes, the two walls, and the start (entered by no step).
        self._states = np.r_[self._rule.nodes, walk.lower, walk.upper, walk.start]
        occupied = np.zeros(self._states.size)
        occupied[-1] = 1.0
        # Weights on the states before the last step, and that step: one pair, or two.
        self._ends: list[tuple[FloatArray, Step]]
        if isinstance(walk.inclusion, Reshuffled):
            self._ends = self._reshuffled(occupied, walk.inclusion)
        else:
            for stretch in walk.stretches(walk.steps - 1):
                occupied = self._advance(occupied, stretch)
            self._ends = [(occupied, walk.step_at(walk.steps - 1))]
        self._relative, self._absolute = self._errors(noise, slope)

    @property
    def span(self) -> tuple[float, float]:
        """Return the interval, the upper wall's atom included."""
        return self._walk.lower, math.nextafter(self._walk.upper, -math.inf)

    def _errors(self, noise: float, slope: float) -> tuple[float, float]:
        """Return the relative and the absolute error of a tail after all steps."""
        walk, size = self._walk, self._states.size
        shifts = np.abs(walk.per_step("drift")) + np.abs(walk.per_step("jump"))
        bend = float(np.max(np.abs(walk.pull_slopes()))) if walk.pulled else 0.0
        reach = max(abs(walk.lower), abs(walk.upper), abs(walk.start), bend and abs(walk.center))
        reach = reach * (1 + slope + 2 * bend) + float(np.max(shifts))
        moved = 8 * UNIT * (reach / noise + FAR)
        # Entries: hazard rate at most FAR + 1; nodes: Lipschitz constant of the normal quantile.
        entry = (FAR + 1) * moved + 1e-13
        node = 12 * max(slope, 1.0) * moved
        relative = math.expm1(walk.steps * (entry + node + 1.1 * UNIT * (size + 16)))
        # The quantile argument is used down to probability 1e-29; less than that may double.
        dropped = 8 * size * _TRIFLE + 1e-28
        return relative, walk.steps * (self._rule.error + dropped) * (1 + relative) * 1.1

    def _matrix(self, step: Step) -> FloatArray:
        """Return the nonnegative matrix of one step between states."""
        from scipy.special import ndtr

        rule, walk, noise = self._rule, self._walk, step.noise_std
        matrix = np.zeros((self._states.size, self._states.size))
        count = rule.nodes.size
        heights = rule.weights / (noise * math.sqrt(2 * math.pi))
        for weight, centers in step.images(self._states):
            z = (rule.nodes - centers[:, None]) / noise
            matrix[:, :count] += weight * (np.exp(-0.5 * np.square(z)) * heights)
            matrix[:, count] += weight * ndtr((walk.lower - centers) / noise)
            matrix[:, count + 1] += weight * ndtr((centers - walk.upper) / noise)
        return _drop(matrix)

    def _advance(self, occupied: FloatArray, stretch: Stretch) -> FloatArray:
        """Push the weights through a stretch of steps."""
        cycle, repeats = stretch
        size = self._states.size
        if len(cycle) == 1:
            step, count = cycle[0]
            return _push(occupied, self._matrix(step), count * repeats)
        kept = {step: self._matrix(step) for step, _ in cycle} if len(set(cycle)) < 6 else {}
        matrices = ((kept[s] if s in kept else self._matrix(s), count) for s, count in cycle)
        length = sum(count for _, count in cycle)
        if repeats * length * _MATRIX_ADVANTAGE > size * (4 * len(cycle) + 16):
            whole = np.eye(size)
            for matrix, count in matrices:
                whole = _drop(whole @ _power(matrix, count))
            return _push(occupied, whole, repeats)
        listed = list(matrices) if repeats > 1 else matrices
        for _ in range(repeats):
            for matrix, count in listed:
                occupied = _push(occupied, matrix, count)
        return occupied

    def _reshuffled(
        self, occupied: FloatArray, epochs: Reshuffled
    ) -> list[tuple[FloatArray, Step]]:
        """Push the weights through epochs that use the record once each, at a random place.

        Within an epoch two rows are kept: not used yet (not weighted), and used already.
        """
        walk = self._walk
        if walk.steps * self._states.size**2 > _MOST_RESHUFFLED_WORK:
            raise NotApplicable(f"{walk.steps} reshuffled steps on this domain take too long")
        if not walk.homogeneous or walk.pull_when != ALWAYS:
            raise NotApplicable("a reshuffled walk needs the same parameters at every step")
        quiet, active = walk.step_if(0, False), walk.step_if(0, True)
        rest, use = _sparse(self._matrix(quiet)), _sparse(self._matrix(active))
        places = np.array(epochs.places())
        used = np.zeros(occupied.size)
        for time in range(walk.steps - 1):
            place = time % epochs.period
            if place == 0 and time:
                occupied, used = used, np.zeros(occupied.size)
            used = _drop(used @ rest + places[place] * (occupied @ use))
            occupied = _drop(occupied @ rest)
        place = (walk.steps - 1) % epochs.period
        if place == 0 and walk.steps > 1:
            occupied, used = used, np.zeros(occupied.size)
        later = float(np.sum(places[place + 1 :]))
        return [(used + later * occupied, quiet), (places[place] * occupied, active)]

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on both tails, each accurate in relative terms down to about 1e-12."""
        from scipy.special import ndtr

        walk = self._walk
        above, below = np.zeros(points.shape), np.zeros(points.shape)
        for occupied, step in self._ends:
            for weight, centers in step.images(self._states):
                z = (centers[:, None] - points) / step.noise_std
                above += weight * (occupied @ ndtr(z))
                below += weight * (occupied @ ndtr(-z))
        left, right = points < walk.lower, points >= walk.upper
        above, below = np.where(left, 1.0, above), np.where(left, 0.0, below)
        above, below = np.where(right, 0.0, above), np.where(right, 1.0, below)
        return TailBracket.around(
            points, above, below=below, relative=self._relative, absolute=self._absolute
        )


def _drop(matrix: FloatArray) -> FloatArray:
    matrix[matrix < _TRIFLE] = 0.0
    return matrix


def _sparse(matrix: FloatArray) -> Any:
    """Return the matrix without its zeros if that makes products with it faster."""
    from scipy.sparse import csr_array

    thin = np.count_nonzero(matrix) * _SPARSE_PRICE < matrix.size
    return csr_array(matrix) if thin else matrix


def _push(row: FloatArray, matrix: FloatArray, count: int) -> FloatArray:
    """Return row @ matrix^count, squaring the matrix while that is cheaper than going on."""
    size = matrix.shape[0]
    kept = np.count_nonzero(matrix) * _SPARSE_PRICE
    squarings = 2 * size**3 / _MATRIX_ADVANTAGE * math.log2(count + 1)
    if kept < matrix.size and count * kept < squarings:
        thin = _sparse(matrix)
        for _ in range(count):
            row = _drop(row @ thin)
        return row
    while count * _MATRIX_ADVANTAGE > 2 * matrix.shape[0] + 16:
        if count % 2:
            row = _drop(row @ matrix)
        matrix, count = _drop(matrix @ matrix), count // 2
    for _ in range(count):
        row = _drop(row @ matrix)
    return row


def _power(matrix: FloatArray, count: int) -> FloatArray:
    """Return matrix^count by squaring, count >= 1."""
    if count == 1:
        return matrix
    half = _power(matrix, count // 2)
    square = _drop(half @ half)
    return _drop(square @ matrix) if count % 2 else square


# ---- quadrature ---------------------------------------------------------------------------------
#
# Gauss-Legendre rules for a Gaussian kernel times an entire function, with a proved error.
#
# On a panel of half-length l the N-point rule errs by at most
#
#     (64/15) l M rho^(-2N) / (1 - rho^-2),    M = max |integrand| on the ellipse of parameter rho:
#
# the integrand's Chebyshev coefficients are below 2 M rho^-k; the rule is exact up to degree 2N - 1
# and its weights are positive, so each even term from 2N on costs at most 2 + 2/15, and odd ones
# cost nothing. For f(x) times the density of N(u, nu^2), with |f(x + iy)| <= exp(c^2 y^2 / (2
# nu^2)), M <= exp((1 + c^2) b^2 / (2 nu^2)) / (nu sqrt(2 pi)), b = l (rho - 1/rho) / 2 being the
# ellipse's height.

# Quadrature error allowed over all steps.
_TOLERANCE = 1e-15
_MOST_POINTS_PER_PANEL = 64
_MOST_NODES = 4000


@dataclass(frozen=True)
class Rule:
    """Nodes and weights on the interval, and the quadrature error of one step."""

    nodes: FloatArray
    weights: FloatArray
    error: float


def quadrature_error(points: int, panels: int, half_length: float, contraction: float) -> float:
    """Bound the error of one step; ``half_length`` of a panel is in units of the noise."""
    rho = np.geomspace(1.02, 100.0, 400)
    growth = (1 + contraction**2) * half_length**2 * np.square(rho - 1 / rho) / 8
    logs = growth - 2 * points * np.log(rho) - np.log1p(-(rho**-2.0))
    scale = panels * half_length * (64 / 15) / math.sqrt(2 * math.pi)
    # The smallest value over the trial ellipses is as valid as any other.
    return scale * math.exp(min(float(np.min(logs)), 600.0)) * (1 + 1e-9)


@lru_cache(maxsize=512)
def _panel_plan(width: float, contraction: float, tolerance: float) -> tuple[int, int, float]:
    """Return (panels, points per panel, error) for an interval ``width`` noises wide."""
    panels, points = max(1, math.ceil(width / 18.0)), _MOST_POINTS_PER_PANEL

    def error(panels: int, points: int) -> float:
        return quadrature_error(points, panels, width / (2 * panels), contraction)

    while error(panels, points) > tolerance and panels * points <= _MOST_NODES:
        panels += 1
    while points > 4 and error(panels, points - 1) <= tolerance:
        points -= 1
    return panels, points, error(panels, points)


def make_rule(
    lower: float,
    upper: float,
    noise: float,
    contraction: float,
    steps: int,
    kinks: tuple[float, ...] = (),
) -> Rule:
    """Return a rule whose error, summed over ``steps`` steps of this noise, stays below 1e-15.

    ``kinks``: points at which the integrand is not smooth. Panels end there, so that on each of
    them the estimate above applies to an entire function.
    """
    # A power of two as the tolerance lets neighboring step counts share a plan.
    tolerance = _TOLERANCE * 2.0 ** -math.ceil(math.log2(steps)) / (1 << len(kinks))
    ends = (lower, *kinks, upper)
    plans = [
        _panel_plan((right - left) / noise, contraction, tolerance)
        for left, right in pairwise(ends)
    ]
    needed = sum(panels * points for panels, points, _ in plans)
    if needed > _MOST_NODES:
        raise NotApplicable(
            f"an interval {(upper - lower) / noise:.0f} noises wide needs {needed} nodes "
            f"(at most {_MOST_NODES}); use more noise or a smaller domain"
        )
    parts = [
        _panel_nodes(left, right, panels, points)
        for (panels, points, _), (left, right) in zip(plans, pairwise(ends), strict=True)
    ]
    nodes, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Rule(nodes, weights, math.fsum(error for _, _, error in plans))


def _panel_nodes(
    lower: float, upper: float, panels: int, points: int
) -> tuple[FloatArray, FloatArray]:
    nodes, weights = gauss_legendre(points)
    half = (upper - lower) / (2 * panels)
    centers = lower + half * (2 * np.arange(panels) + 1)
    return (centers[:, None] + half * nodes).ravel(), np.tile(half * weights, panels)


@lru_cache(maxsize=64)
def gauss_legendre(points: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights on [-1, 1], correctly rounded.

    The usual floating-point routines lose four digits of the outer weights, which a hundred
    thousand steps would turn into a visible error; forty decimal digits cost milliseconds, once.

    >>> gauss_legendre(2)[1].tolist()
    [1.0, 1.0]
    """
    nodes, weights = np.empty(points), np.empty(points)
    with decimal.localcontext() as context:
        context.prec = 40
        for k in range((points + 1) // 2):
            x = decimal.Decimal(math.cos(math.pi * (k + 0.75) / (points + 0.5)))
            for _ in range(8):
                value, slope = _legendre(points, x)
                x -= value / slope
                if abs(value) < decimal.Decimal("1e-36"):
                    break
            _, slope = _legendre(points, x)
            nodes[k], nodes[-1 - k] = -float(x), float(x)
            weights[k] = weights[-1 - k] = float(2 / ((1 - x * x) * slope * slope))
    return nodes, weights


def _legendre(degree: int, x: decimal.Decimal) -> tuple[decimal.Decimal, decimal.Decimal]:
    """Return the Legendre polynomial and its derivative, by the three-term recurrence."""
    before, now = decimal.Decimal(1), x
    for n in range(2, degree + 1):
        before, now = now, ((2 * n - 1) * x * now - (n - 1) * before) / n
    return now, degree * (x * now - before) / (x * x - 1)
