"""What every loss of a linear model answers: its value, its derivative and its constants.

A record is a row x of features and a target y; the model gives it the score z = <x, w> (one for a
scalar link, k of them for a softmax). The gradient in w is x times the derivative in z, so that
constants in the score turn into constants in w through a public bound X on the norm of x:

    L = X * (largest derivative),    M = X^2 * (largest second derivative).

An intercept is one more feature that is always 1; the bound is then sqrt(X^2 + 1).

The derivative of a loss with one score is data too (``Link``), so that compiled loops can compute
it. Three shapes cover the losses of this library. With r = z - y:

* ``logistic``: -y / (1 + exp(y z));
* ``ramp``: scale * r, cut to [low, high];
* ``step``: low for r < 0, high for r > 0, and 0 at the corner r = 0.

A classifier's ramp or step is for y = 1; for y = -1 it is turned around (``mirrored``), and since
y^2 = 1 its corner y z = 1 is again r = 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dplateau.algorithms import Domain, LossGeometry
from dplateau.errors import BadRecord, InvalidInput
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


def refuse_others(asked: str, targets: npt.NDArray[Any], fit: npt.NDArray[np.bool_]) -> None:
    """Refuse targets that are not one per record, or of which some do not fit."""
    if targets.ndim != 1:
        raise InvalidInput(asked)
    if not np.all(fit):
        raise BadRecord(f"{asked}; ", int(np.argmin(fit)), " has another target")


def norm_and_limit(feature_norm: float, clip: float | None) -> tuple[float, float]:
    """Return X and the largest derivative that a row of that norm may have (infinite if none)."""
    norm = checks.positive("feature_norm", feature_norm)
    if clip is None:
        return norm, math.inf
    return norm, checks.positive("clip", clip) / norm


class Link(NamedTuple):
    """Shape and numbers of a derivative; ``low`` and ``high`` are its limits (for y = 1)."""

    shape: Literal["logistic", "ramp", "step"]
    low: float
    high: float
    scale: float = 1.0
    mirrored: bool = False
    target_bound: float = math.inf

    def derivative(self, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
        """Return the derivative at every score."""
        if self.shape == "logistic":
            logistic: Scores = -targets * expit(-targets * scores)
            return logistic
        residual = scores - np.clip(targets, -self.target_bound, self.target_bound)
        if self.shape == "step":
            around = np.where(targets > 0, 1, -1) if self.mirrored else 1
            side = np.sign(residual * around)
            step: Scores = around * (self.high * (side > 0) + self.low * (side < 0))
            return step.astype(scores.dtype)
        return cut(self.scale * residual, targets, self.low, self.high, self.mirrored)


def cut(
    values: Scores, targets: npt.NDArray[Any], low: float, high: float, mirrored: bool
) -> Scores:
    """Cut values to [low, high], or to [-high, -low] where the target is negative and mirrored."""
    inside = np.clip(values, low, high)
    if not mirrored:
        return inside
    return np.where(targets > 0, inside, np.clip(values, -high, -low))


LOGISTIC = Link("logistic", -1.0, 0.0, mirrored=True)
