"""Losses of linear models whose Lipschitz and smoothness constants are known exactly."""

from __future__ import annotations

from dplateau.losses.base import Link, Loss, Scores
from dplateau.losses.multiclass import OneVersusRest, Softmax
from dplateau.losses.nonsmooth import Absolute, Hinge, MoreauSmoothed, NonsmoothLoss, Pinball
from dplateau.losses.scalar import Huber, Logistic, ScalarLoss, SmoothedHinge, SquaredOnBall
from dplateau.losses.weighted import ClassWeighted

__all__ = [
    "Absolute",
    "ClassWeighted",
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
