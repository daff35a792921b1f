"""Gaussian walks clamped to an interval: tails by a positive quadrature with a proved error.

Let f_t(x) = P(X_T > y | X_t = x). For t < T it is a mixture of E f_{t+1}(clamp(u + nu xi)),
u = c x + shift, hence entire, with |f_t(x + iy)| <= exp(c^2 y^2 / (2 nu^2)). The walls carry atoms
of known mass, and what is left is the integral of f_{t+1} times a Gaussian density over the
interval, which :mod:`dplateau.audit.quadrature` replaces by a positive sum. A step is thus a
product with a nonnegative matrix whose absolute error is fixed in advance, while round-off is
relative: nothing is ever subtracted. A rounded node moves f_t by a small multiple of itself,
because Phi^-1 of each term of the mixture is Lipschitz with constant c / nu. No monotone rounding
is needed, and the error of a tail after a hundred thousand steps is near 1e-15 plus 1e-7 of it.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.audit.chain import Chain, Step, Stretch
from dplateau.audit.laws import FAR, UNIT, TailBracket
from dplateau.audit.quadrature import make_rule
from dplateau.errors import NotApplicable
from dplateau.numerics.types import FloatArray

# Entries below this are dropped: they would only reach the slow subnormal range.
_TRIFLE = 1e-50
# A matrix product runs about this many times faster, per operation, than a vector one.
_MATRIX_ADVANTAGE = 4


class ClampedLaw:
    """The law of X_T on [lower, upper], as weights on quadrature nodes one step before the end."""

    def __init__(self, chain: Chain) -> None:
        if not chain.bounded or chain.noise_kind != "gaussian":
            raise NotApplicable("this solver is for Gaussian noise on a bounded interval")
        self._chain = chain
        noise = float(np.min(chain.per_step("noise_std")))
        contraction = float(np.max(np.abs(chain.per_step("contraction"))))
        self._rule = make_rule(chain.lower, chain.upper, noise, contraction, chain.steps)
        # States: the nodes, the two walls, and the start (entered by no step).
        self._states = np.r_[self._rule.nodes, chain.lower, chain.upper, chain.start]
        self._last = chain.step_at(chain.steps - 1)
        occupied = np.zeros(self._states.size)
        occupied[-1] = 1.0
        for stretch in chain.stretches(chain.steps - 1):
            occupied = self._advance(occupied, stretch)
        self._occupied = occupied
        self._relative, self._absolute = self._errors(noise, contraction)

    @property
    def span(self) -> tuple[float, float]:
        """Return the interval, the upper wall's atom included."""
        return self._chain.lower, math.nextafter(self._chain.upper, -math.inf)

    def _errors(self, noise: float, contraction: float) -> tuple[float, float]:
        """Return the relative and the absolute error of a tail after all steps."""
        chain, size = self._chain, self._states.size
        shifts = np.abs(chain.per_step("drift")) + np.abs(chain.per_step("jump"))
        reach = max(abs(chain.lower), abs(chain.upper), abs(chain.start))
        reach = reach * (1 + contraction) + float(np.max(shifts))
        moved = 8 * UNIT * (reach / noise + FAR)
        # Entries: hazard rate at most FAR + 1; nodes: Lipschitz constant of the normal quantile.
        entry = (FAR + 1) * moved + 1e-13
        node = 12 * max(contraction, 1.0) * moved
        relative = math.expm1(chain.steps * (entry + node + 1.1 * UNIT * (size + 8)))
        # The quantile argument is used down to probability 1e-29; less than that may double.
        dropped = 8 * size * _TRIFLE + 1e-28
        return relative, chain.steps * (self._rule.error + dropped) * (1 + relative) * 1.1

    def _matrix(self, step: Step) -> FloatArray:
        """Return the nonnegative matrix of one step between states."""
        from scipy.special import ndtr

        rule, chain, noise = self._rule, self._chain, step.noise_std
        found = np.zeros((self._states.size, self._states.size))
        count = rule.nodes.size
        heights = rule.weights / (noise * math.sqrt(2 * math.pi))
        for shift, weight in zip(step.shifts, step.weights, strict=True):
            centres = step.contraction * self._states + shift
            z = (rule.nodes - centres[:, None]) / noise
            found[:, :count] += weight * (np.exp(-0.5 * np.square(z)) * heights)
            found[:, count] += weight * ndtr((chain.lower - centres) / noise)
            found[:, count + 1] += weight * ndtr((centres - chain.upper) / noise)
        found[found < _TRIFLE] = 0.0
        return found

    def _advance(self, occupied: FloatArray, stretch: Stretch) -> FloatArray:
        """Push the weights through a stretch of steps."""
        cycle, repeats = stretch
        size = self._states.size
        matrices = [(self._matrix(step), count) for step, count in cycle]
        if len(matrices) == 1:
            matrix, count = matrices[0]
            return _push(occupied, matrix, count * repeats)
        length = sum(count for _, count in cycle)
        if repeats * length * _MATRIX_ADVANTAGE > size * (4 * len(cycle) + 16):
            whole = np.eye(size)
            for matrix, count in matrices:
                whole = _drop(whole @ _power(matrix, count))
            return _push(occupied, whole, repeats)
        for _ in range(repeats):
            for matrix, count in matrices:
                occupied = _push(occupied, matrix, count)
        return occupied

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on both tails, each accurate in relative terms down to about 1e-12."""
        from scipy.special import ndtr

        chain, step = self._chain, self._last
        above, below = np.zeros(points.shape), np.zeros(points.shape)
        for shift, weight in zip(step.shifts, step.weights, strict=True):
            centres = step.contraction * self._states + shift
            z = (centres[:, None] - points) / step.noise_std
            above += weight * (self._occupied @ ndtr(z))
            below += weight * (self._occupied @ ndtr(-z))
        left, right = points < chain.lower, points >= chain.upper
        above, below = np.where(left, 1.0, above), np.where(left, 0.0, below)
        above, below = np.where(right, 0.0, above), np.where(right, 1.0, below)
        return TailBracket.around(
            points, above, below=below, relative=self._relative, absolute=self._absolute
        )


def _drop(matrix: FloatArray) -> FloatArray:
    matrix[matrix < _TRIFLE] = 0.0
    return matrix


def _push(row: FloatArray, matrix: FloatArray, count: int) -> FloatArray:
    """Return row @ matrix^count, squaring the matrix while that is cheaper than going on."""
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
