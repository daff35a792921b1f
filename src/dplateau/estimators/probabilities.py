"""From noisy scores to probabilities and decisions, by what is public alone.

The scores of a private logistic regression are not the log-odds of its classes, for three reasons
that are known before any record is seen:

* Slopes were cut at c (``Plan.clip`` over the row's norm). Where the cut loss is stationary, a
  class of probability p > 1/2 satisfies (1 - p) c = p (1 - sigma), sigma = 1 / (1 + e^-z) being
  what the score says: its log-odds are z - log(sigma / c) wherever sigma > c, less than z.
* Training ends early, and the forecast says which share of a score was learned by then.
* Noise was added; the forecast says of which variance, v |x|^2 for a row x. The mean of the
  logistic function over a normal law of mean u and variance s is about that of
  u / sqrt(1 + pi s / 8) (MacKay 1992, "The evidence framework applied to classification networks").

Log-odds over the learned share, widened by noise over the same share, undo all three. The forecast
is rough, so nothing is ever made more confident than the scores themselves: probabilities lie
between what these say and 1/2. Nothing about privacy rests on any of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.errors import InvalidInput
from dplateau.estimators.inputs import by_class
from dplateau.ground import checks
from dplateau.ground.types import FloatArray
from dplateau.planning import Plan

BALANCED = "balanced"
# A forecast that expects less than this to be learned is not taken at its word.
LEAST_LEARNED = 0.05


@dataclass(frozen=True)
class Widening:
    """``clip`` of a record's gradient, ``learned`` share of scores, ``variance`` of their noise.

    The variance is that of the score of a row of norm 1, as the model sees rows.

    >>> Widening(clip=0.6, learned=1.0, variance=0.0).two(np.array([0.3, 3.0]), np.ones(2)).round(2)
    array([0.3 , 2.54])
    """

    clip: float = math.inf
    learned: float = 1.0
    variance: float = 0.0

    @classmethod
    def of(cls, plan: Plan) -> Widening:
        """Return what a plan says about the scores to come."""
        clip = math.inf if plan.clip is None else plan.clip
        if plan.expected is None:
            return cls(clip)
        learned = max(LEAST_LEARNED, 1 - plan.expected.bias / plan.expected.spread)
        return cls(clip, learned, (plan.expected.noise / plan.feature_norm) ** 2)

    def two(self, scores: FloatArray, norms: FloatArray) -> FloatArray:
        """Return log-odds of the second class, from scores and norms of rows."""
        size = np.abs(scores)
        with np.errstate(divide="ignore"):
            cut = np.clip(self.clip / norms, 0.5, 1.0)
        rest = size + np.minimum(np.log(cut) + np.log1p(np.exp(-size)), 0.0)
        log_odds: FloatArray = np.sign(scores) * np.minimum(size, rest / self._width(norms, 1.0))
        return log_odds

    def several(self, scores: FloatArray, norms: FloatArray) -> FloatArray:
        """Return scores of a softmax, each class's noise being that of a score of its own.

        What its cut does to several classes has no closed form, and stays.
        """
        widened: FloatArray = scores / np.maximum(self._width(norms, 2.0), 1.0)[:, None]
        return widened

    def _width(self, norms: FloatArray, scores: float) -> FloatArray:
        """Return by what log-odds are divided; a difference has the noise of both its scores."""
        squares = scores * math.pi / 8 * self.variance * norms**2
        width: FloatArray = np.sqrt(self.learned**2 + squares)
        return width


def decision_shift(
    class_prior: Any, decision_prior: Any, weights: tuple[float, ...] | None, classes: Any
) -> FloatArray | None:
    """Return what is added to each class's log-probability before the highest is predicted.

    A model trained on shares q of classes, which are those of the records times their weights, and
    used where shares are d, is off by log d - log q. None if predictions are to be as trained.
    """
    if class_prior is None and decision_prior is None:
        return None
    if class_prior is None or decision_prior is None:
        raise InvalidInput(
            "class_prior (publicly known shares of the classes among the records) and "
            'decision_prior (shares to decide for, or "balanced") belong together; state both'
        )
    records = shares("class_prior", class_prior, classes)
    if isinstance(decision_prior, str):
        checks.choice("decision_prior", decision_prior, (BALANCED,))
        wanted = np.full(len(classes), 1 / len(classes))
    else:
        wanted = shares("decision_prior", decision_prior, classes)
    trained = records * np.array(weights if weights is not None else np.ones(len(classes)))
    shift: FloatArray = np.log(wanted) - np.log(trained / trained.sum())
    return shift


def shares(name: str, stated: Any, classes: npt.NDArray[Any]) -> FloatArray:
    """Return the share of every class, in their order; one that is not named has the rest."""
    if isinstance(stated, str) or not isinstance(stated, Mapping):
        raise InvalidInput(
            f"{name} must be a dict from classes to publicly known shares; got {stated!r} (shares "
            "that are read off the labels would be one more release)"
        )
    by_label = {
        label: checks.probability(f"{name} of {label!r}", share)
        for label, share in by_class(name, stated, classes)
    }
    missing = [label for label in classes.tolist() if label not in by_label]
    rest = 1 - math.fsum(by_label.values())
    if len(missing) == 1 and rest > 0:
        by_label[missing[0]] = rest
    elif missing or abs(rest) > 1e-6:
        raise InvalidInput(
            f"{name} must give every class a share, 1 in all (one class may be left out and has "
            f"the rest); the shares of {sorted(map(str, by_label))} sum up to {1 - rest:g}"
        )
    return np.array([by_label[label] for label in classes.tolist()])
