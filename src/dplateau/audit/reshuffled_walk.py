"""Walks without walls whose record is used once per epoch, at a fresh random place.

Given the record's places the law is Gaussian. The places in the last few epochs are enumerated; the
jumps of an earlier epoch lie between those of its least and of its most weighty place, so that the
tails are bracketed.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.audit.chain import Chain
from dplateau.audit.gaussian_walk import geometric_sum
from dplateau.audit.inclusion import Reshuffled
from dplateau.audit.laws import UNIT, TailBracket, normal_tail
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

_MOST_PATTERNS = 4096


class ReshuffledLaw:
    """A mixture of Gaussians of one variance, each mean known up to a common slack."""

    def __init__(self, chain: Chain) -> None:
        epochs = chain.inclusion
        if not isinstance(epochs, Reshuffled) or not chain.homogeneous or chain.pulled:
            raise NotApplicable("a reshuffled walk without walls needs constant linear steps")
        ratio, noise, drift, jump = chain.constants()
        if not 0 <= ratio <= 1:
            raise NotApplicable(f"a reshuffled walk needs contraction in [0, 1]; got {ratio}")
        self._weights, least, slack = _uses(epochs, ratio, chain.steps)
        fixed = ratio**chain.steps * chain.start + drift * geometric_sum(ratio, 1, chain.steps)
        self._std = noise * math.sqrt(geometric_sum(ratio, 2, chain.steps))
        self._low = fixed + np.minimum(jump * least, jump * (least + slack))
        self._high = fixed + np.maximum(jump * least, jump * (least + slack))
        count = -(-chain.steps // epochs.period)
        size = abs(fixed) + abs(jump) * (count + 1)
        self._error = UNIT * (64 + 4 * count) * size / self._std

    @property
    def span(self) -> tuple[float, float]:
        """Return eleven standard deviations beyond the outermost means."""
        return float(self._low.min()) - 11 * self._std, float(self._high.max()) + 11 * self._std

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on the tails: the least means below, the greatest above."""
        low, _ = self._mean(self._low, points, 1.0)
        _, high = self._mean(self._high, points, 1.0)
        below_low, _ = self._mean(self._high, points, -1.0)
        _, below_high = self._mean(self._low, points, -1.0)
        return TailBracket(points, low, high, below_low, below_high)

    def _mean(
        self, means: FloatArray, points: FloatArray, side: float
    ) -> tuple[FloatArray, FloatArray]:
        z = side * (means - points[:, None]) / self._std
        error = self._error + 16 * UNIT * (np.abs(z) + np.abs(points[:, None]) / self._std)
        lower, upper = normal_tail(z, error)
        slack = UNIT * (4 * self._weights.size + 64)
        most = np.minimum(1.0, upper @ self._weights * (1 + slack))
        return np.minimum(1.0, lower @ self._weights * (1 - slack)), most


def _uses(epochs: Reshuffled, ratio: float, steps: int) -> tuple[FloatArray, FloatArray, float]:
    """Return probabilities and weighted uses of the enumerated places, and what is left open.

    The uses count the least weighty place of every epoch that is not enumerated; the open part is
    how much more these epochs could weigh. A place beyond the end of the run is no use at all.
    """
    shares = np.array(epochs.places())
    weights, least, slack = np.ones(1), np.zeros(1), 0.0
    for epoch in reversed(range(-(-steps // epochs.period))):
        times = epoch * epochs.period + np.arange(epochs.period)
        used = np.where(times < steps, ratio ** np.maximum(steps - 1.0 - times, 0.0), 0.0)
        if weights.size * epochs.period <= _MOST_PATTERNS:
            weights = np.multiply.outer(weights, shares).ravel()
            least = np.add.outer(least, used).ravel()
        else:
            least, slack = least + used.min(), slack + float(used.max() - used.min())
    return weights, least, slack
