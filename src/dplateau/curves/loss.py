"""Curves composed numerically from one-dimensional dominating pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon
from dplateau.ground.types import FloatArray
from dplateau.numerics.pairs import DominatingPair
from dplateau.numerics.privacy_loss import PldResult, compose_pairs

Parts = tuple[tuple[DominatingPair, int], ...]
# Deltas between which a composition is centred; outside, the last one is still valid, only looser.
SMALLEST_TARGET, LARGEST_TARGET = 1e-279, 0.5
_ROUND_UP = 1 + 1e-12


@dataclass(frozen=True)
class LossCurve(PrivacyCurve):
    """The composition of ``parts`` (pairs with their repeats), pessimistic, both orders.

    >>> from dplateau.numerics.pairs import PoissonPair
    >>> curve = LossCurve(((PoissonPair(sampling_rate=0.01, step=1.0), 1000),))
    >>> curve.epsilon(1e-5) < curve.epsilon(1e-6)
    True
    """

    parts: Parts
    # What fails outright, and is charged to delta.
    extra_delta: float = 0.0
    # How much of epsilon the grid may cost: a coarse curve is as sound, only looser.
    resolution: float = 1e-3

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of a composition centred where its delta is the one asked for."""
        target = checked_delta(delta)
        if target == 0 == self.extra_delta:
            return math.fsum(n * pair.largest_loss for pair, n in self.parts if n) * (1 + 1e-14)
        room = min(target, 1 - 1e-16) - self.extra_delta * _ROUND_UP
        if room <= 0:
            return math.inf
        return self._composed(room).epsilon(room)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta found, re-centring the composition on what it finds."""
        eps = checked_epsilon(epsilon)
        found = min(float(result.delta(np.array(eps))) for result in self._centred(eps))
        return min(1.0, (found + self.extra_delta) * _ROUND_UP)

    def _centred(self, epsilon: float) -> Iterator[PldResult]:
        target, wanted = 0.0, 1e-6
        for _ in range(8):
            if wanted / 30 < target < wanted * 30:
                return
            target = wanted
            result = self._composed(target)
            yield result
            found = float(result.delta(np.array(epsilon)))
            if found <= self.extra_delta:
                return
            wanted = next_target(found, target)

    def deltas(self, epsilons: FloatArray, centre: float) -> FloatArray:
        """Return delta at many epsilons, from one composition."""
        found = self._composed(centre).delta(epsilons)
        return np.asarray(np.minimum((found + self.extra_delta) * _ROUND_UP, 1.0))

    def loss_parts(self) -> Parts:
        """Return the parts themselves."""
        return self.parts

    def _composed(self, target: float) -> PldResult:
        centre = min(max(target, SMALLEST_TARGET), LARGEST_TARGET)
        return _composed(self.parts, centre, self.resolution)


def next_target(found: float, target: float) -> float:
    """Return the delta to centre the next composition at, after ``found`` at the last one."""
    # Tails cut off at a share of the target hide whatever is smaller: then look much further down.
    aim = found if found > 1e-4 * target else found * found
    # Powers of ten, so that nearby questions share their compositions.
    power = 10.0 ** math.floor(math.log10(max(aim, SMALLEST_TARGET)))
    return min(max(power, SMALLEST_TARGET), LARGEST_TARGET)


@lru_cache(maxsize=32)
def _composed(parts: Parts, target: float, resolution: float) -> PldResult:
    return compose_pairs(parts, target_delta=target, rtol=resolution)
