"""The model that a plan is for: its loss, its constants, and how rows are prepared."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from dplateau.algorithms import LossGeometry
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.losses import Huber, Logistic, Loss, SmoothedHinge, Softmax

LOSSES = ("logistic", "hinge", "squared", "huber")
# The constant feature's size in units of the data norm: every gradient carries it, so a small one
# costs little noise, and the ridge on it is weak enough for the intercept to grow.
INTERCEPT_SHARE = 0.5
# Slopes are cut here, in units of the feature norm: at the start they are 1/2 (logistic) or just
# below 1 (softmax), so mostly records on the wrong side lose weight, and the noise shrinks by as
# much.
LOGISTIC_CUT = 0.6
SOFTMAX_CUT = 0.8
HINGE_WIDTH = 0.5
# Standard deviation of the scores of a good model with few features: of margins, and of predictions
# in units of the target bound.
MARGIN_STD = 4.0
PREDICTION_STD = 1.0


@dataclass(frozen=True)
class Model:
    """A linear model on rows of norm at most ``data_norm``, with a constant feature or none.

    ``score_std`` is a guess at how far its scores would spread with few features; only the forecast
    uses it.
    """

    loss: Loss
    data_norm: float
    intercept: float
    cut: float | None = None
    score_std: float = MARGIN_STD

    @property
    def feature_norm(self) -> float:
        """Return the norm bound of a row with its constant feature."""
        return math.hypot(self.data_norm, self.intercept) * (1 + 1e-15)

    @property
    def clip(self) -> float | None:
        """Return the bound that records' gradients are clipped to, or None."""
        return None if self.cut is None else self.cut * self.feature_norm

    @cached_property
    def geometry(self) -> LossGeometry:
        """Return the constants of one record's loss."""
        return self.loss.geometry(self.feature_norm, self.clip)

    @property
    def convex(self) -> Model:
        """Return the model without a cut if the cut would cost it convexity."""
        return self if self.geometry.convex else replace(self, cut=None)


def model_of(
    loss: str | Loss,
    n_classes: int,
    *,
    data_norm: float,
    fit_intercept: bool,
    target_bound: float,
) -> Model:
    """Return the model that a name stands for."""
    norm = checks.positive("data_norm", data_norm)
    intercept = INTERCEPT_SHARE * norm if fit_intercept else 0.0
    if isinstance(loss, Loss):
        return Model(loss, norm, intercept)
    name = checks.choice("loss", loss, LOSSES)
    classes = checks.whole("n_classes", n_classes, least=2)
    bound = checks.positive("target_bound", target_bound)
    if name == "logistic":
        if classes > 2:
            return Model(Softmax(classes), norm, intercept, SOFTMAX_CUT)
        return Model(Logistic(), norm, intercept, LOGISTIC_CUT)
    if classes > 2:
        raise InvalidInput(f"loss={name!r} has one score; n_classes={classes} needs 'logistic'")
    if name == "hinge":
        return Model(SmoothedHinge(HINGE_WIDTH), norm, intercept)
    loss = Huber(bound if name == "squared" else bound / 2)
    return Model(loss, norm, intercept, score_std=PREDICTION_STD * bound)
