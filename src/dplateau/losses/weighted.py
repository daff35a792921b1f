"""Losses of classes that count more or less than others, by public weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import Domain, Holder, LossGeometry
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray
from dplateau.losses.base import Loss, Scores
from dplateau.losses.multiclass import ClassLoss
from dplateau.losses.scalar import Classifier

_UP = 1 + 1e-15


@dataclass(frozen=True)
class ClassWeighted(Loss):
    """A classifier's loss, times the weight of the record's class: L, M and jumps grow by the most.

    With targets -1 and 1 the weights are those of -1 and of 1, else those of the classes 0 ... k-1.
    A clip is that of the heaviest class; another class is cut in proportion, so its loss is its
    weight times the same clipped loss.

    >>> from dplateau.losses import Logistic
    >>> ClassWeighted(Logistic(), (1.0, 4.0)).geometry(1.0).smoothness
    1.000000000000001
    >>> ClassWeighted(Logistic(), (0.25, 1.0)).geometry(1.0) == Logistic().geometry(1.0)
    True
    """

    loss: Loss
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check that every class of the loss has a positive weight."""
        if not isinstance(self.loss, Classifier | ClassLoss):
            raise InvalidInput(
                f"class weights need a loss of classes (Logistic, SmoothedHinge, Softmax ...); got "
                f"{self.loss!r}"
            )
        weights = tuple(checks.positive("a class weight", weight) for weight in self.weights)
        classes = self.loss.n_classes if isinstance(self.loss, ClassLoss) else 2
        if len(weights) != classes:
            raise InvalidInput(f"{self.loss!r} needs {classes} class weights; got {len(weights)}")
        checks.put(self, "weights", weights)

    @property
    def heaviest(self) -> float:
        """Return the largest weight, by which the constants grow."""
        return max(self.weights)

    @property
    def n_outputs(self) -> int:
        """Return the number of scores of the loss."""
        return self.loss.n_outputs

    def geometry(self, feature_norm: float, clip: float | None = None) -> LossGeometry:
        """Return the constants of the heaviest class, rounded up."""
        most = self.heaviest
        one = self.loss.geometry(feature_norm, None if clip is None else clip / most)
        if most == 1.0:
            return one
        lipschitz = most * one.lipschitz * _UP
        jumps = [Holder(power, most * constant * _UP) for power, constant in one.holders]
        return LossGeometry(
            lipschitz=lipschitz if clip is None else min(clip, lipschitz),
            convex=one.convex,
            smoothness=most * one.smoothness * _UP,
            holder=jumps or None,
        )

    def value(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return every record's loss times its weight."""
        weighted: Scores = self.loss.value(scores, targets) * self.of(targets)
        return weighted

    def derivative(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return every record's derivative times its weight."""
        slopes = self.loss.derivative(scores, targets)
        weights = self.of(targets)
        weighted: Scores = slopes * (weights if slopes.ndim == 1 else weights[:, None])
        return weighted

    def of(self, targets: npt.NDArray[Any]) -> FloatArray:
        """Return the weight of every record."""
        places = targets if isinstance(self.loss, ClassLoss) else targets > 0
        return np.array(self.weights)[places.astype(np.int64)]

    def check_targets(self, targets: npt.NDArray[Any]) -> None:
        """Refuse what the loss itself refuses."""
        self.loss.check_targets(targets)

    def check_domain(self, domain: Domain | None) -> None:
        """Refuse what the loss itself refuses."""
        self.loss.check_domain(domain)


def balanced_share(weights: tuple[float, ...]) -> float:
    """Return the mean weight of a record, the largest being 1, if all classes add up to the same.

    That is what weights are for: shares of records proportional to 1 / weight. A guess, for
    forecasts alone.
    """
    heaviest = max(weights)
    return len(weights) / math.fsum(heaviest / weight for weight in weights)
