"""How to cut a run into blocks: total variation multiplies over them.

One block of n steps forgets all but TV(n) <= 2 Phi(mu_n / 2) - 1 of its start, whatever the start;
k blocks forget all but the product. Long blocks have small factors and short blocks are many, so
the best length lies in between. Everything here only *proposes* lengths, from the closed form of
Bravo et al., Theorem 3.4, for equal steps; what is claimed is re-evaluated from plans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.ground.types import FloatArray, IntArray
from dplateau.numerics.normal import log_gaussian_delta
from dplateau.sampling.step_law import StepLaw, squared

# Blocks of steps with jumps (h > 0) are not made longer than this: their plans list every shift.
LONGEST_LISTED = 1 << 17
# No block is longer than this: evaluating its plan takes about a second for 10^8 steps.
_LONGEST = 1 << 27
# A run that needs more steps than this has no certificate worth the name.
MOST_STEPS = 10**15
_ALL_LENGTHS = 4096
_PER_OCTAVE = 64


@dataclass(frozen=True)
class Partition:
    """``long`` blocks of ``length`` steps and ``short`` blocks of one step less."""

    length: int
    long: int
    short: int = 0

    @property
    def steps(self) -> int:
        """Number of steps in all."""
        return self.long * self.length + self.short * (self.length - 1)


class Proposals:
    """log TV of one block, as a function of its length; the best class of losses at each length."""

    def __init__(self, law: StepLaw) -> None:
        self.law = law
        self._listed = {
            losses: _listed_costs(law, losses)
            for losses in law.losses
            if squared(law.modulus(losses))[1] > 0
        }

    def log_tv(self, lengths: IntArray) -> FloatArray:
        """Return log TV for each length (0 or more steps)."""
        costs = np.min([self._costs(losses, lengths) for losses in self.law.losses], axis=0)
        found: FloatArray = np.asarray(log_gaussian_delta(0.0, np.sqrt(costs)))
        if self.law.failure > 0:
            with np.errstate(divide="ignore"):
                found = np.logaddexp(found, np.log(lengths * self.law.failure))
        return np.minimum(np.where(lengths > 0, found, 0.0), 0.0)

    def _costs(self, losses: str, lengths: IntArray) -> FloatArray:
        inside = np.maximum(lengths, 1)
        if losses in self._listed:
            listed = self._listed[losses]
            found: FloatArray = listed[np.minimum(inside, listed.size) - 1]
            return found
        c, _ = squared(self.law.modulus(losses))
        return self.law.diameter**2 / _inverse(c, self.law.noise_std, inside.astype(np.float64))


def shortest(proposals: Proposals, log_target: float) -> Partition | None:
    """Return a partition of few steps whose log TV is below the target, None if there is none."""
    best = _best_of(proposals, _selection(_LONGEST), log_target)
    if best is None:
        return None
    return _best_of(proposals, _around(best.length), log_target)


def even(proposals: Proposals, steps: int) -> Partition:
    """Return the partition of exactly ``steps`` steps into near-equal blocks of smallest TV."""
    best = _best_even(proposals, steps, _selection(steps))
    near = _around(best.long + best.short)
    return _best_even(proposals, steps, near[near <= steps])


def log_tv(proposals: Proposals, partition: Partition) -> float:
    """Return the proposed log TV of a partition."""
    pair = proposals.log_tv(np.array([partition.length, partition.length - 1]))
    short = partition.short * float(pair[1]) if partition.short else 0.0
    return partition.long * float(pair[0]) + short


def _best_even(proposals: Proposals, steps: int, counts: IntArray) -> Partition:
    lengths = -(-steps // counts)  # rounded up: some blocks are one step shorter
    shorter = lengths * counts - steps
    total = (counts - shorter) * proposals.log_tv(lengths)
    total += np.where(shorter > 0, shorter * proposals.log_tv(lengths - 1), 0.0)
    best = int(np.argmin(total))
    few = int(shorter[best])
    return Partition(int(lengths[best]), int(counts[best]) - few, few)


def _best_of(proposals: Proposals, lengths: IntArray, goal: float) -> Partition | None:
    each = proposals.log_tv(lengths)
    less = proposals.log_tv(lengths - 1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        counts = np.maximum(np.ceil(goal / each), 1.0)
        # So many blocks may be one step shorter before the product misses the goal.
        spare = np.floor((goal - counts * each) / (less - each))
        spare = np.clip(np.nan_to_num(spare, nan=0.0, posinf=0.0, neginf=0.0), 0, counts - 1)
        spare = np.where((lengths > 1) & (less > each), spare, 0.0)
        steps = lengths * counts - spare
    usable = (each < 0) & (steps <= MOST_STEPS)
    if not np.any(usable):
        return None
    best = int(np.argmin(np.where(usable, steps, np.inf)))
    return Partition(int(lengths[best]), int(counts[best] - spare[best]), int(spare[best]))


def _selection(last: int) -> IntArray:
    """Return all whole numbers up to a few thousand, then a geometric selection up to ``last``."""
    few = np.arange(1, min(last, _ALL_LENGTHS) + 1)
    if last <= _ALL_LENGTHS:
        return few
    size = math.ceil(math.log2(last / _ALL_LENGTHS) * _PER_OCTAVE) + 1
    many = np.geomspace(_ALL_LENGTHS, last, size).round().astype(np.int64)
    return np.unique(np.concatenate([few, many]))


def _around(chosen: int) -> IntArray:
    """Return numbers near an entry of a selection: what lies between it and the next ones."""
    reach = max(1, chosen // _PER_OCTAVE)
    near = np.linspace(max(1, chosen - reach), chosen + reach, _ALL_LENGTHS)
    return np.unique(np.append(near.astype(np.int64), chosen))


def _inverse(c: float, noise_std: float, steps: FloatArray) -> FloatArray:
    """Return 1/A of theorem 3.4 after so many equal steps: nu^2 (1/c + ... + 1/c^n)."""
    rate = -math.log(c) if c > 0 else math.inf
    if rate == 0:
        total = steps
    elif math.isinf(rate):
        total = np.full(steps.shape, math.inf)
    else:
        with np.errstate(over="ignore"):
            total = np.expm1(rate * steps) / -math.expm1(-rate)
    with np.errstate(over="ignore"):
        found: FloatArray = noise_std**2 * total
    return found


def _listed_costs(law: StepLaw, losses: str) -> FloatArray:
    """Return mu^2 for 1, 2, ... steps with jumps; a block may stop early, so it never grows."""
    c, h = squared(law.modulus(losses))
    inverse = _inverse(c, law.noise_std, np.arange(1.0, LONGEST_LISTED + 1))
    costs = law.diameter**2 / inverse + np.cumsum(h / (c * inverse))
    return np.minimum.accumulate(costs)
