"""Losses with a corner, and their Moreau envelopes, which are smooth.

The envelope of l with parameter h is  l_h(z) = min_u  l(u) + (z - u)^2 / (2 h). It is convex, has
the slopes of l, lies below l by at most h * (largest slope)^2 / 2, and curves by at most 1 / h; its
derivative is (z - u) / h at the minimizing u, the proximal point. In w this is the smoothing of
Altschuler and Talwar (arXiv 2205.13710, remark on smoothness) with parameter h / X^2.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.losses.base import Link, Scores, cut
from dplateau.losses.scalar import Classifier, Regressor, ScalarLoss


class NonsmoothLoss(ScalarLoss):
    """A convex scalar loss with corners that knows the way to its proximal point."""

    @abstractmethod
    def pull(self, scores: Scores, targets: npt.NDArray[Any], step: float) -> Scores:
        """Return z - u for the u that minimizes l(u, y) + (z - u)^2 / (2 step)."""

    def curvature(self, limit: float) -> float:
        """Return infinity: the derivative jumps."""
        return math.inf

    def smoothed_link(self, width: float) -> Link | None:
        """Return the derivative of the envelope as data, if it has one of the known shapes."""
        return None


class Corner(NonsmoothLoss):
    """Two straight lines that meet at z = y: the larger of low * r and high * r, r = z - y."""

    mirrored: ClassVar[bool] = False

    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the larger of the two lines."""
        low, high = self.slopes
        residual = self._turned(scores - targets, targets)
        loss: Scores = np.maximum(low * residual, high * residual)
        return loss

    @property
    def link(self) -> Link:
        """Return the step from one slope to the other."""
        return Link("step", *self.slopes, mirrored=self.mirrored)

    def derivative(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the slope of the larger line: a subgradient, 0 at the corner."""
        return self.link.derivative(scores, targets)

    def pull(self, scores: Scores, targets: npt.NDArray[Any], step: float) -> Scores:
        """Move towards the corner by ``step`` times the slope, but not past it."""
        low, high = self.slopes
        return cut(scores - targets, targets, step * low, step * high, self.mirrored)

    def smoothed_link(self, width: float) -> Link:
        """Return the ramp between the two slopes."""
        low, high = self.slopes
        return Link("ramp", low, high, scale=1.0 / width, mirrored=self.mirrored)

    def _turned(self, values: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Turn values around for a classifier's negative records."""
        turned: Scores = values * targets if self.mirrored else values
        return turned


@dataclass(frozen=True)
class Hinge(Classifier, Corner):
    """max(0, 1 - y z): L = X, no M. Two subgradients of a record differ by at most X."""

    mirrored: ClassVar[bool] = True

    @property
    def slopes(self) -> tuple[float, float]:
        """Return the slopes below and above the margin 1."""
        return -1.0, 0.0


@dataclass(frozen=True)
class Absolute(Regressor, Corner):
    """|z - y|: L = X, no M. Two subgradients of a record differ by at most 2 X."""

    @property
    def slopes(self) -> tuple[float, float]:
        """Return the slopes left and right of the target."""
        return -1.0, 1.0


@dataclass(frozen=True)
class Pinball(Regressor, Corner):
    """The loss of a quantile: q (y - z) below the target, (1 - q) (z - y) above it.

    L = max(q, 1 - q) X, no M. Two subgradients of a record differ by at most X.
    """

    quantile: float = 0.5

    def __post_init__(self) -> None:
        """Check the quantile."""
        checks.put(self, "quantile", checks.probability("quantile", self.quantile))

    @property
    def slopes(self) -> tuple[float, float]:
        """Return the slopes left and right of the target."""
        return -self.quantile, 1 - self.quantile


@dataclass(frozen=True)
class MoreauSmoothed(ScalarLoss):
    """The Moreau envelope of a loss with corners: the same L, and M = X^2 / ``width``.

    >>> MoreauSmoothed(Absolute(), width=0.1).geometry(2.0).smoothness
    40.0
    """

    loss: NonsmoothLoss
    width: float

    def __post_init__(self) -> None:
        """Check the loss and the width."""
        if not isinstance(self.loss, NonsmoothLoss):
            raise InvalidInput(
                "MoreauSmoothed takes a loss with a proximal point (Hinge, Absolute, Pinball or "
                f"your own NonsmoothLoss); got {self.loss!r}"
            )
        checks.put(self, "width", checks.positive("width", self.width))

    @property
    def slopes(self) -> tuple[float, float]:
        """Return the slopes of the loss itself: smoothing does not change their limits."""
        return self.loss.slopes

    @property
    def link(self) -> Link | None:
        """Return the smoothed derivative as data, if the loss can."""
        return self.loss.smoothed_link(self.width)

    def curvature(self, limit: float) -> float:
        """Return 1 / width."""
        return 1.0 / self.width

    def check_targets(self, targets: npt.NDArray[Any]) -> None:
        """Refuse what the loss itself refuses."""
        self.loss.check_targets(targets)

    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the loss at the proximal point plus the price of going there."""
        way = self.loss.pull(scores, targets, self.width)
        loss: Scores = self.loss.value(scores - way, targets) + np.square(way) / (2 * self.width)
        return loss

    def derivative(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the way to the proximal point, over the width."""
        slope: Scores = self.loss.pull(scores, targets, self.width) / self.width
        return slope
