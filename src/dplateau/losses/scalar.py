"""Losses with one score per record: l(z, y) with its derivative in z.

Cutting the derivative of such a loss to [-C / |x|, C / |x|] (which is what clipping a record's
gradient to norm C does) leaves a non-decreasing function of z: the clipped loss is still convex,
and its second derivative is nowhere larger. Classifiers take targets -1 and 1.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import Ball, Domain, Holder, LossGeometry
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.losses.base import LOGISTIC, Link, Loss, Scores, norm_and_limit, refuse_others


class ScalarLoss(Loss):
    """A convex function of one score, by its slopes: all that the constants need."""

    @property
    @abstractmethod
    def slopes(self) -> tuple[float, float]:
        """Return the least and the largest derivative (of a classifier: for y = 1)."""

    @abstractmethod
    def curvature(self, limit: float) -> float:
        """Return the largest second derivative where |derivative| < ``limit`` (infinite: jumps)."""

    @property
    def link(self) -> Link | None:
        """Return the derivative as data, or None if only :meth:`derivative` can compute it."""
        return None

    def geometry(self, feature_norm: float, clip: float | None = None) -> LossGeometry:
        """Return L = X * (largest slope, or clip / X if less) and M = X^2 * curvature."""
        norm, limit = norm_and_limit(feature_norm, clip)
        low, high = (max(-limit, min(limit, slope)) for slope in self.slopes)
        largest = max(-low, high)
        # clip / X * X may round to another number; the clip itself is what was promised.
        lipschitz = clip if clip is not None and largest == limit else norm * largest
        curvature = self.curvature(limit)
        jumps = Holder(0.0, norm * (high - low)) if math.isinf(curvature) else None
        return LossGeometry(
            lipschitz=lipschitz, convex=True, smoothness=norm * norm * curvature, holder=jumps
        )


class Classifier(ScalarLoss):
    """A function of the margin y * z."""

    def check_targets(self, targets: npt.NDArray[Any]) -> None:
        """Refuse targets other than -1 and 1."""
        asked = f"{type(self).__name__} takes one target per record, each -1 or 1: encode them so"
        refuse_others(asked, targets, (targets == 1) | (targets == -1))


class Regressor(ScalarLoss):
    """A function of the residual z - y."""

    def check_targets(self, targets: npt.NDArray[Any]) -> None:
        """Refuse targets that are not finite numbers."""
        asked = f"{type(self).__name__} takes one finite number per record"
        if targets.dtype.kind not in "iuf":
            raise InvalidInput(asked)
        refuse_others(asked, targets, np.isfinite(targets))


class LinkedLoss(ScalarLoss):
    """A smooth loss whose derivative is a link."""

    @property
    @abstractmethod
    def link(self) -> Link:
        """Return the derivative as data."""

    @property
    def slopes(self) -> tuple[float, float]:
        """Return the limits of the link."""
        return self.link.low, self.link.high

    def curvature(self, limit: float) -> float:
        """Return the scale of the link."""
        return self.link.scale

    def derivative(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the link at every score."""
        return self.link.derivative(scores, targets)


@dataclass(frozen=True)
class Logistic(Classifier, LinkedLoss):
    """log(1 + exp(-y z)): L = X and M = X^2 / 4.

    Clipped below X / 2, only scores with a small derivative p still curve, by p (1 - p):
    M = C (X - C).

    >>> Logistic().geometry(2.0)
    LossGeometry(lipschitz=2.0, convex=True, smoothness=1.0, strong_convexity=0.0, holder=None, \
dissipativity=None, saddle=False)
    >>> Logistic().geometry(2.0, clip=0.5).smoothness
    0.75
    """

    @property
    def link(self) -> Link:
        """Return the logistic link."""
        return LOGISTIC

    def curvature(self, limit: float) -> float:
        """Return p (1 - p) at the largest allowed p."""
        largest = min(limit, 0.5)
        return largest * (1 - largest)

    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return log(1 + exp(-y z)), without overflow."""
        loss: Scores = np.logaddexp(scores.dtype.type(0), -scores * targets)
        return loss


@dataclass(frozen=True)
class Huber(Regressor, LinkedLoss):
    """Squared loss with a clipped slope: r^2 / 2 up to |r| = threshold, linear beyond; r = z - y.

    L = threshold * X and M = X^2: regression without a bounded domain or bounded targets.

    >>> Huber(threshold=0.5).geometry(1.0).lipschitz
    0.5
    """

    threshold: float = 1.0

    def __post_init__(self) -> None:
        """Check the threshold."""
        checks.put(self, "threshold", checks.positive("threshold", self.threshold))

    @property
    def link(self) -> Link:
        """Return the clipped residual."""
        return Link("ramp", -self.threshold, self.threshold)

    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the quadratic part plus the linear rest."""
        size = np.abs(scores - targets)
        inner = np.minimum(size, self.threshold)
        loss: Scores = inner * (size - inner / 2)
        return loss


@dataclass(frozen=True)
class SquaredOnBall(Regressor, LinkedLoss):
    """(z - y)^2 / 2 for w in a ball of ``radius`` R and |y| <= ``target_bound`` Y.

    L = X (X R + Y) and M = X^2. The run must be projected onto a ball no larger than R; a target
    beyond Y is taken as the nearest allowed one, record by record.

    >>> SquaredOnBall(radius=2.0, target_bound=1.0).geometry(1.0).lipschitz
    3.0
    """

    radius: float
    target_bound: float

    def __post_init__(self) -> None:
        """Check both bounds."""
        checks.put(self, "radius", checks.positive("radius", self.radius))
        checks.put(self, "target_bound", checks.nonnegative("target_bound", self.target_bound))

    @property
    def link(self) -> Link:
        """Return the residual to the nearest allowed target."""
        return Link("ramp", -math.inf, math.inf, target_bound=self.target_bound)

    def geometry(self, feature_norm: float, clip: float | None = None) -> LossGeometry:
        """Return L = X (X R + Y), or the clip if less, and M = X^2."""
        norm, _ = norm_and_limit(feature_norm, clip)
        lipschitz = norm * (norm * self.radius + self.target_bound)
        if clip is not None:
            lipschitz = min(lipschitz, clip)
        return LossGeometry(lipschitz=lipschitz, convex=True, smoothness=norm * norm)

    def check_domain(self, domain: Domain | None) -> None:
        """Refuse anything but a ball inside the one that the constants are for."""
        if not isinstance(domain, Ball) or domain.radius > self.radius:
            raise InvalidInput(
                f"SquaredOnBall(radius={self.radius:g}) needs domain=Ball({self.radius:g}) or a "
                f"smaller ball; the run has domain={domain!r} (Huber needs no domain)"
            )

    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return half the squared residual."""
        loss: Scores = 0.5 * np.square(self.derivative(scores, targets))
        return loss


@dataclass(frozen=True)
class SmoothedHinge(Classifier, LinkedLoss):
    """The hinge max(0, 1 - y z) with its corner rounded over ``width`` h: L = X, M = X^2 / h.

    Zero from margin 1 on, (1 - m)^2 / (2 h) for margins in [1 - h, 1], linear below.

    >>> SmoothedHinge(width=0.5).geometry(1.0).smoothness
    2.0
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        """Check the width."""
        checks.put(self, "width", checks.positive("width", self.width))

    @property
    def link(self) -> Link:
        """Return -y times the share of the corner that the margin has passed."""
        return Link("ramp", -1.0, 0.0, scale=1.0 / self.width, mirrored=True)

    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the rounded hinge."""
        gap = np.maximum(1 - targets * scores, 0)
        inner = np.minimum(gap, self.width)
        loss: Scores = inner * (gap - inner / 2) / self.width
        return loss
