"""Several classes by a scalar link: one score per class, each class against all others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import LossGeometry
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.losses.base import Loss, Scores, norm_and_limit
from dplateau.losses.scalar import Classifier


@dataclass(frozen=True)
class OneVersusRest(Loss):
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

    @property
    def n_outputs(self) -> int:
        """Return the number of classes."""
        return self.n_classes

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

    def check_targets(self, targets: npt.NDArray[Any]) -> None:
        """Refuse targets that are not class numbers."""
        whole = targets.ndim == 1 and targets.dtype.kind in "iu"
        if not whole or not np.all((targets >= 0) & (targets < self.n_classes)):
            raise InvalidInput(
                f"OneVersusRest takes one integer target per record, from 0 to {self.n_classes - 1}"
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
