"""The softmax loss: one score per class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import LossGeometry
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.losses.base import Loss, Scores, norm_and_limit


@dataclass(frozen=True)
class Softmax(Loss):
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

    @property
    def n_outputs(self) -> int:
        """Return the number of classes."""
        return self.n_classes

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

    def check_targets(self, targets: npt.NDArray[Any]) -> None:
        """Refuse targets that are not class numbers."""
        whole = targets.ndim == 1 and targets.dtype.kind in "iu"
        if not whole or not np.all((targets >= 0) & (targets < self.n_classes)):
            raise InvalidInput(
                f"Softmax({self.n_classes}) takes one integer target per record, "
                f"from 0 to {self.n_classes - 1}"
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
