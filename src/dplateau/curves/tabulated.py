"""Composition of curves of which only delta(epsilon) is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dplateau.curves.base import PrivacyCurve, checked_delta, checked_epsilon
from dplateau.numerics.privacy_loss import ComposedLoss, LossPmf, compose
from dplateau.numerics.types import FloatArray

_POINTS = 1500
_SMALLEST_CENTRE = 1e-200


@dataclass(frozen=True)
class TabulatedComposition(PrivacyCurve):
    """Several releases, each replaced by a symmetric pair of laws that its delta curve dominates.

    A curve delta(epsilon) that holds in both orders is that of some symmetric pair (Zhu, Dong and
    Wang, 2022, Proposition 9). Between the points of a grid it is replaced by its chord in
    e^epsilon, which lies above it (connect the dots), and the pairs compose as privacy losses.
    """

    curves: tuple[PrivacyCurve, ...]

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the composed laws."""
        target = checked_delta(delta)
        centre = min(max(target, _SMALLEST_CENTRE), 0.5)
        return _composed(self.curves, centre).epsilon(min(target, 1 - 1e-16))

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta over compositions tabulated for several deltas."""
        eps = np.array(checked_epsilon(epsilon))
        centres = (1e-3, 1e-6, 1e-10)
        return min(float(_composed(self.curves, centre).delta(eps)) for centre in centres)


@lru_cache(maxsize=8)
def _composed(curves: tuple[PrivacyCurve, ...], centre: float) -> ComposedLoss:
    # One grid for all: wide enough for the widest curve's tail, fine enough for the narrowest.
    share = centre * 1e-4
    top = max(curve.epsilon(share) for curve in curves)
    if math.isinf(top):
        top = max(curve.epsilon(centre / len(curves)) for curve in curves) * 2
    step = max(top, 1e-9) / _POINTS
    grid = step * np.arange(_POINTS + 1, dtype=np.float64)
    laws = [law_of(curve.deltas(grid, centre), step) for curve in curves]
    return compose([(law, 1) for law in laws], target_delta=centre)


def law_of(deltas: FloatArray, step: float) -> LossPmf:
    """Return the symmetric law of the loss whose delta has these values at 0, step, 2 step ...

    Slopes in e^epsilon give the second law's mass at each point; a slope that falls, which is
    rounding, is taken to stay, which only raises delta.
    """
    falling = np.minimum.accumulate(deltas)
    points = np.exp(step * np.arange(falling.size))
    slopes = np.append(np.diff(falling) / np.diff(points), 0.0)
    second = np.maximum(np.diff(slopes), 0.0)
    first = second * points[1:]
    rest = max(0.0, 1.0 - float(falling[-1]) - float((first + second).sum()))
    masses = np.r_[second[::-1], rest, first]
    return LossPmf(step, -second.size, masses * (1 + 1e-12), float(falling[-1]))
