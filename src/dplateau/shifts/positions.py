"""Linear chains that differ only in when their record is used: all their optimal costs at once.

Between two uses of a record nothing arrives, so the greatest convex minorant of ``linear`` can only
bend where the next use begins. A chain is therefore a row of *blocks*, from one use to the next:
what arrives in it, and the noise variance in it, both measured by what would be left of them at the
end of the run. Neighboring blocks are pooled as long as the ratio of the two falls from left to
right; the cost is the sum of arrived^2 / noise over the pools.

The record is used once in every epoch of ``length`` steps. Products and sums over a block are made
of those from a step to the end of its epoch and from the start of the next epoch to a step, which
all chains share: every position of a long run costs no more time than the run has steps. Only
products and sums of positive numbers occur, so the rounding error is relative and small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.compiled import compiled
from dplateau.ground.types import FloatArray, IntArray

# The two kinds of start: with equal states at step 0, or the cheapest one found.
FROM_ZERO = -1
_CHEAPEST = -2
# A cost is made of at most six roundings per step, of 1.2e-16 each, and a few more.
_ROUNDINGS_PER_STEP, _ROUNDINGS, _ROUNDING = 6, 64, 1.2e-16
_UNDERFLOW = 1e-290


@dataclass(frozen=True)
class EpochSteps:
    """A run in epochs, an entry per step; the last epoch may be cut off.

    ``others`` is the Lipschitz constant of a step that does not use the record, ``own`` of one that
    does, ``reach`` how far the record then moves it, ``noise_std`` the noise in parameter space.
    """

    length: int
    others: FloatArray
    own: FloatArray
    reach: FloatArray
    noise_std: FloatArray

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return self.others.size

    @property
    def epochs(self) -> int:
        """Return the number of epochs, a cut-off one included."""
        return -(-self.steps // self.length)

    def filled(self) -> EpochSteps:
        """Return the run with its last epoch filled up by steps that do nothing."""
        missing = self.epochs * self.length - self.steps
        if missing == 0:
            return self
        ones, zeros = np.ones(missing), np.zeros(missing)
        return EpochSteps(
            self.length,
            np.r_[self.others, ones],
            np.r_[self.own, ones],
            np.r_[self.reach, zeros],
            np.r_[self.noise_std, zeros],
        )

    def kept_order(self) -> IntArray:
        """Return the step of every use (a column per epoch) for each position in an epoch."""
        places = np.arange(min(self.length, self.steps))
        return places[:, None] + self.length * np.arange(self.epochs)[None, :]


def reshuffled(steps: EpochSteps) -> tuple[EpochSteps, IntArray]:
    """Return the run charged at the end of each epoch, and its uses for each last position.

    Whole epochs whose steps have one constant, used or not. The most that a use anywhere in an
    epoch leaves at the epoch's end is charged there, in all epochs but the last.
    """
    after, _, _, _ = _windows(steps.others, steps.noise_std, steps.length)
    left = (steps.reach * after).reshape(steps.epochs, steps.length).max(axis=1)
    ends = steps.length * np.arange(1, steps.epochs + 1) - 1
    reach = steps.reach.copy()
    reach[ends[:-1]] = left[:-1] * (1 + steps.length * _ROUNDING)
    uses = np.tile(ends, (steps.length, 1))
    uses[:, -1] = ends[-1] - steps.length + 1 + np.arange(steps.length)
    return EpochSteps(steps.length, steps.others, steps.own, reach, steps.noise_std), uses


def position_costs(
    steps: EpochSteps, uses: IntArray, diameter: float, starts: IntArray | None = None
) -> tuple[FloatArray, IntArray]:
    """Return for each row of ``uses`` the sum of squares, rounded up, and the start it takes.

    A start k means: begin right after the use of epoch k, from states a diameter apart; FROM_ZERO
    begins with the run. Without ``starts`` the cheapest are searched for.
    """
    whole = steps.filled()
    if starts is None:
        wish = _CHEAPEST if math.isfinite(diameter) else FROM_ZERO
        starts = np.full(uses.shape[0], wish, dtype=np.int64)
    else:
        starts = _checked(np.asarray(starts, dtype=np.int64), uses, steps, diameter)
    far = diameter if math.isfinite(diameter) else 0.0
    windows = _windows(whole.others, whole.noise_std, whole.length)
    costs, taken = _pooled_costs(
        *windows, whole.own, whole.reach, whole.noise_std, uses, far, starts
    )
    roundings = _ROUNDINGS_PER_STEP * steps.steps + _ROUNDINGS
    return costs * (1 + roundings * _ROUNDING) + _UNDERFLOW, taken


def _checked(starts: IntArray, uses: IntArray, steps: EpochSteps, diameter: float) -> IntArray:
    fits = starts.shape == uses.shape[:1]
    late = np.take_along_axis(uses, np.maximum(starts, 0)[:, None] % uses.shape[1], 1)[:, 0]
    if fits and math.isinf(diameter):
        fits = bool(np.all(starts == FROM_ZERO))
    inside = (starts == FROM_ZERO) | ((starts < uses.shape[1]) & (late < steps.steps - 1))
    if not (fits and np.all(starts >= FROM_ZERO) and np.all(inside)):
        raise InvalidInput(
            f"each of {uses.shape[0]} positions starts at {FROM_ZERO} or, in a bounded domain, "
            f"after a use before the last step; the witness has {starts.tolist()[:5]} ..."
        )
    return starts


@compiled
def _windows(
    others: FloatArray, noise: FloatArray, length: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return products and noise variances after a step of its epoch, and before it.

    Neither holds the step itself; the variances are measured at the end of the epoch and right
    before the step.
    """
    size = others.size
    after = np.empty(size)
    after_noise = np.empty(size)
    before = np.empty(size)
    before_noise = np.empty(size)
    for first in range(0, size, length):
        product = 1.0
        variance = 0.0
        for t in range(first, first + length):
            before[t] = product
            before_noise[t] = variance
            product *= others[t]
            variance = variance * others[t] * others[t] + noise[t] * noise[t]
        product = 1.0
        variance = 0.0
        for t in range(first + length - 1, first - 1, -1):
            after[t] = product
            after_noise[t] = variance
            variance += noise[t] * noise[t] * product * product
            product *= others[t]
    return after, after_noise, before, before_noise


@compiled
def _pooled(
    arrived: float, noise: float, top: int, pools_arrived: FloatArray, pools_noise: FloatArray
) -> tuple[float, float, int]:
    """Join a block to the pools on its right while its ratio exceeds theirs; how many are left."""
    while top > 0 and arrived * pools_noise[top - 1] >= pools_arrived[top - 1] * noise:
        top -= 1
        arrived += pools_arrived[top]
        noise += pools_noise[top]
    return arrived, noise, top


@compiled
def _pooled_costs(
    after: FloatArray,
    after_noise: FloatArray,
    before: FloatArray,
    before_noise: FloatArray,
    own: FloatArray,
    reach: FloatArray,
    noise: FloatArray,
    uses: IntArray,
    far: float,
    starts: IntArray,
) -> tuple[FloatArray, IntArray]:
    """Return each row's cost at its start (or the cheapest), and that start."""
    rows, epochs = uses.shape
    costs = np.empty(rows)
    taken = np.empty(rows, dtype=np.int64)
    pools_arrived = np.empty(epochs + 1)
    pools_noise = np.empty(epochs + 1)
    below = np.empty(epochs + 2)  # cost of the pools to the right
    for row in range(rows):
        below[0] = 0.0
        top = 0
        scale = 1.0  # what is left at the end of the run of a unit after the block
        best = math.inf
        best_start = -1
        done = False
        for epoch in range(epochs - 1, -1, -1):
            t = uses[row, epoch]
            tail = after[t]
            later = after_noise[t]
            if epoch + 1 < epochs:
                following = uses[row, epoch + 1]
                tail *= before[following]
                later = later * before[following] ** 2 + before_noise[following]
            if far > 0.0 and (starts[row] == -2 or starts[row] == epoch):
                arrived, variance, k = _pooled(
                    far * tail * scale, later * scale * scale, top, pools_arrived, pools_noise
                )
                if variance > 0.0 and below[k] + arrived * arrived / variance < best:
                    best = below[k] + arrived * arrived / variance
                    best_start = epoch
                if starts[row] == epoch:
                    done = True
                    break
            arrived = reach[t] * tail * scale
            variance = (noise[t] * noise[t] * tail * tail + later) * scale * scale
            if arrived > 0.0 or variance > 0.0:
                arrived, variance, top = _pooled(arrived, variance, top, pools_arrived, pools_noise)
                pools_arrived[top] = arrived
                pools_noise[top] = variance
                square = arrived * arrived / variance if variance > 0.0 else 0.0
                below[top + 1] = below[top] + square
                top += 1
            scale *= own[t] * tail
        if not done and below[top] <= best:
            best = below[top]
            best_start = -1
        costs[row] = best
        taken[row] = best_start
    return costs, taken
