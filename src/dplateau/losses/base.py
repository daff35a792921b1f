"""What every loss of a linear model answers: its value, its derivative and its constants.

A record is a row x of features and a target y; the model gives it the score z = <x, w> (one for a
scalar link, k of them for a softmax). The gradient in w is x times the derivative in z, so that
constants in the score turn into constants in w through a public bound X on the norm of x:

    L = X * (largest derivative),    M = X^2 * (largest second derivative).

An intercept is one more feature that is always 1; the bound is then sqrt(X^2 + 1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import Domain, LossGeometry
from dplateau.ground import checks

# Scores keep the precision of the features that they came from.
Scores = npt.NDArray[np.floating[Any]]


class Loss(ABC):
    """A loss of one record as a function of its score(s); frozen data, no state."""

    @property
    def n_outputs(self) -> int:
        """Return the number of scores of a record: 1, or the number of classes of a softmax."""
        return 1

    @abstractmethod
    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return every record's loss."""

    @abstractmethod
    def derivative(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return every record's derivative in its score(s), in the shape of ``scores``."""

    @abstractmethod
    def geometry(self, feature_norm: float, clip: float | None = None) -> LossGeometry:
        """Return the constants that hold for every row of norm at most ``feature_norm``.

        With ``clip`` each record's derivative is cut to at most clip / |x|, which bounds the norm
        of its gradient by ``clip``.
        """

    @abstractmethod
    def check_targets(self, targets: npt.NDArray[Any]) -> None:
        """Refuse targets for which the loss is not defined."""

    def check_domain(self, domain: Domain | None) -> None:
        """Refuse a domain on which the constants do not hold (most losses need none)."""
        del domain


def norm_and_limit(feature_norm: float, clip: float | None) -> tuple[float, float]:
    """Return X and the largest derivative that a row of that norm may have (infinite if none)."""
    norm = checks.positive("feature_norm", feature_norm)
    if clip is None:
        return norm, float("inf")
    return norm, checks.positive("clip", clip) / norm
