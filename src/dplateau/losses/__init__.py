"""Losses of linear models whose Lipschitz and smoothness constants are known exactly."""

from __future__ import annotations

from dplateau.losses.base import Loss, Scores
from dplateau.losses.links import Link
from dplateau.losses.nonsmooth import Absolute, Hinge, MoreauSmoothed, NonsmoothLoss, Pinball
from dplateau.losses.one_versus_rest import OneVersusRest
from dplateau.losses.scalar import Huber, Logistic, ScalarLoss, SmoothedHinge, SquaredOnBall
from dplateau.losses.softmax import Softmax

__all__ = [
    "Absolute",
    "Hinge",
    "Huber",
    "Link",
    "Logistic",
    "Loss",
    "MoreauSmoothed",
    "NonsmoothLoss",
    "OneVersusRest",
    "Pinball",
    "ScalarLoss",
    "Scores",
    "SmoothedHinge",
    "Softmax",
    "SquaredOnBall",
]
