"""Losses with one score per class: the softmax, and each class against all others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import LossGeometry
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.losses.base import Loss, Scores, norm_and_limit, refuse_others
from dplateau.losses.scalar import Classifier


class ClassLoss(Loss):
    """A loss of k scores and a class number y = 0 ... k - 1."""

    n_classes: int

    @property
    def n_outputs(self) -> int:
        """Return the number of classes."""
        return self.n_classes

    def check_targets(self, targets: npt.NDArray[Any]) -> None:
        """Refuse targets that are not class numbers."""
        asked = (
            f"{type(self).__name__} takes one integer target per record, "
            f"from 0 to {self.n_classes - 1}"
        )
        if targets.dtype.kind not in "iu":
            raise InvalidInput(asked)
        refuse_others(asked, targets, (targets >= 0) & (targets < self.n_classes))


@dataclass(frozen=True)
class Softmax(ClassLoss):
    """log(sum_j exp(z_j)) - z_y for classes y = 0 ... k - 1: L = sqrt(2) X and M = X^2 / 2.

    The derivative p - e_y has norm at most sqrt(2); its Jacobian diag(p) - p p^T has eigenvalues of
    at most 1/2. With two classes everything happens along z_1 - z_0, a scalar link, and the
    clipped gradient is that of a convex loss. With three or more it is the gradient of no convex
    loss and a step may expand distances; it is still Lipschitz with the same constant, because
    shortening to a ball moves no two vectors apart. So the constants then say "not convex":
    composition covers such a run, and bounds that need convexity refuse it.

    >>> Softmax(10).geometry(1.0).smoothness
    0.5
    """

    n_classes: int

    def __post_init__(self) -> None:
        """Check the number of classes."""
        checks.put(self, "n_classes", checks.whole("n_classes", self.n_classes, least=2))

    def geometry(self, feature_norm: float, clip: float | None = None) -> LossGeometry:
        """Return L = sqrt(2) X and M = X^2 / 2; a clip lowers L, and with two classes M too."""
        norm, limit = norm_and_limit(feature_norm, clip)
        lipschitz = math.sqrt(2) * norm
        if clip is not None and clip < lipschitz and self.n_classes > 2:
            return LossGeometry(lipschitz=clip, convex=False, smoothness=norm * norm / 2)
        largest = min(limit / math.sqrt(2), 0.5)
        return LossGeometry(
            lipschitz=lipschitz if clip is None else min(lipschitz, clip),
            convex=True,
            smoothness=2 * norm * norm * largest * (1 - largest),
        )

    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return log-sum-exp minus the score of the target's class."""
        highest = scores.max(axis=1)
        sums = np.exp(scores - highest[:, None]).sum(axis=1)
        chosen = scores[np.arange(len(scores)), targets]
        loss: Scores = np.log(sums) + (highest - chosen)
        return loss

    def derivative(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the class probabilities, less one at the target's class."""
        slope: Scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        slope /= slope.sum(axis=1, keepdims=True)
        slope[np.arange(len(slope)), targets] -= 1
        return slope


@dataclass(frozen=True)
class OneVersusRest(ClassLoss):
    """sum_j l(z_j, s_j) with s_j = 1 for the record's class and -1 for the others.

    Each of the k scores contributes a derivative of at most l's, so the gradient has norm at most
    L = sqrt(k) * X * (largest slope); scores do not interact, so M is that of one link.

    >>> from dplateau.losses import SmoothedHinge
    >>> OneVersusRest(SmoothedHinge(), 4).geometry(1.0).lipschitz
    2.0
    """

    link: Classifier
    n_classes: int

    def __post_init__(self) -> None:
        """Check the link and the number of classes."""
        if not isinstance(self.link, Classifier):
            raise InvalidInput(
                f"OneVersusRest takes a link for targets -1 and 1 (Logistic, SmoothedHinge ...); "
                f"got {self.link!r}"
            )
        checks.put(self, "n_classes", checks.whole("n_classes", self.n_classes, least=2))

    def geometry(self, feature_norm: float, clip: float | None = None) -> LossGeometry:
        """Return L = sqrt(k) * X * slope and M = X^2 * curvature."""
        norm, _ = norm_and_limit(feature_norm, clip)
        if clip is not None:
            raise NotApplicable(
                f"clip={clip:g} with one score per class: the clipped gradient belongs to no "
                "convex loss, and a step may expand. Leave the clip out, or lower feature_norm"
            )
        one = self.link.geometry(norm)
        if one.holder is not None:
            raise NotApplicable(f"{self.link!r} has corners; smooth it first: SmoothedHinge")
        return LossGeometry(
            lipschitz=math.sqrt(self.n_classes) * one.lipschitz,
            convex=True,
            smoothness=one.smoothness,
        )

    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the sum of the links."""
        total: Scores = self.link.value(scores, self._signs(scores, targets)).sum(axis=1)
        return total

    def derivative(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return every link's derivative."""
        return self.link.derivative(scores, self._signs(scores, targets))

    def _signs(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        signs = np.full_like(scores, -1)
        signs[np.arange(len(scores)), targets] = 1
        return signs
