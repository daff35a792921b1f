"""The average of several compositions of the same pairs, in each order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon
from dplateau.curves.loss import LARGEST_TARGET, SMALLEST_TARGET, next_target
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.loss_family import LossFamily, compose_family
from dplateau.numerics.pairs import DominatingPair
from dplateau.numerics.solve import smallest_where

_ROUND_UP = 1 + 1e-12


@dataclass(frozen=True)
class AveragedLossCurve(PrivacyCurve):
    """delta(eps) = max over orders of sum_k weights[k] delta_k(eps), plus ``extra_delta``.

    Row k composes ``counts[k][i]`` copies of ``pairs[i]``. Rows must be ordered by exposure: a
    release that is covered by one row is covered by every later one.
    """

    pairs: tuple[DominatingPair, ...]
    counts: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    extra_delta: float = 0.0
    # How much of epsilon the grid may cost: a coarse curve is as sound, only looser.
    resolution: float = 1e-3

    def __post_init__(self) -> None:
        """Check shapes and weights."""
        widths = {len(row) for row in self.counts}
        if widths != {len(self.pairs)} or len(self.counts) != len(self.weights):
            raise InvalidInput("an average needs one weight per row and one count per pair")
        if not all(value >= 0 for value in (*self.weights, self.extra_delta)):
            raise InvalidInput("the weights of an average are at least 0")

    def epsilon(self, delta: float) -> float:
        """Invert delta(epsilon) on compositions centred at the delta asked for; infinite at 0."""
        target = checked_delta(delta)
        room = target - self.extra_delta * _ROUND_UP
        if room <= 0:
            return math.inf
        family = self._family(self._centre(target))
        if self._delta_of(family, 0.0) <= target:
            return 0.0
        top = 1.0
        while self._delta_of(family, top) > target:
            top *= 2
            if top > 1e7:
                return math.inf
        return smallest_where(
            lambda eps: self._delta_of(family, eps) <= target, 0.0, top, rtol=self.resolution * 1e-4
        )

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta found, re-centring the compositions on what they give."""
        eps = checked_epsilon(epsilon)
        best, target, wanted = 1.0, 0.0, 1e-6
        for _ in range(8):
            if wanted / 30 < target < wanted * 30:
                break
            target = wanted
            found = self._delta_of(self._family(target), eps)
            best = min(best, found)
            if found <= 2 * self.extra_delta:
                break
            wanted = next_target(found, target)
        return best

    def deltas(self, epsilons: FloatArray, centre: float) -> FloatArray:
        """Return delta at many epsilons, from one family of compositions."""
        found = self._family(self._centre(centre)).deltas(epsilons, np.array(self.weights))
        return np.asarray(np.minimum((found + self.extra_delta) * _ROUND_UP, 1.0))

    def loss_parts(self) -> tuple[tuple[DominatingPair, int], ...] | None:
        """Return the pairs if there is one row: then it is a plain product."""
        if len(self.counts) > 1 or self.weights != (1.0,):
            return None
        return tuple((pair, n) for pair, n in zip(self.pairs, self.counts[0], strict=True) if n)

    def _centre(self, delta: float) -> float:
        """Return the delta to centre on: what the failures leave of the one asked for."""
        return min(max(delta - self.extra_delta, SMALLEST_TARGET), LARGEST_TARGET)

    def _delta_of(self, family: LossFamily, epsilon: float) -> float:
        total = family.delta(epsilon, np.array(self.weights)) + self.extra_delta
        return min(1.0, total * _ROUND_UP)

    def _family(self, target: float) -> LossFamily:
        return _composed(self.pairs, self.counts, target, self.resolution)


@lru_cache(maxsize=8)
def _composed(
    pairs: tuple[DominatingPair, ...],
    counts: tuple[tuple[int, ...], ...],
    target: float,
    resolution: float,
) -> LossFamily:
    rows = np.array(counts, dtype=float)
    return compose_family(pairs, rows, target_delta=target, rtol=resolution)
