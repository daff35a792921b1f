"""The model that a plan is for, and what to expect of a run before any data are seen.

A run's error is forecast on a few reference problems. A reference is a quadratic whose j-th
direction carries a share proportional to 1 / j^power of the rows' squared norm, and contributes to
the true scores in the same proportion. Real features lie between the powers that are tried. On a
reference, bias and noise of a run are known exactly, direction by direction. The forecast ranks
runs; nothing about privacy rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dplateau.algorithms import LossGeometry, Run
from dplateau.algorithms.schedule import values_over
from dplateau.algorithms.stated import learning_rate_of, loss_of
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray
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


# How fast the shares of the directions fall, in each reference problem.
SPECTRUM_POWERS = (0.0, 1.0, 2.0)
# Few features tend to be correlated: some of their directions are as weak as those of many.
FEWEST_DIRECTIONS = 30
# Rows of the same norm over more features have less in each: scores shrink with d to this power.
SHRINKING_POWER = 0.2
# Second derivative of a typical record's loss, in units of the largest.
CURVATURE_SHARE = 0.5
# Length of a typical record's gradient, in units of the longest.
GRADIENT_SHARE = 0.6
_NODES = 48


@dataclass(frozen=True)
class Forecast:
    """Root mean square error of a score: what the run has not learned yet, and what noise adds.

    ``error`` is the geometric mean of both together over the references, so that none rules;
    ``spread`` is the standard deviation of the true scores: a constant has an error as large.
    """

    bias: float
    noise: float
    error: float
    spread: float

    @property
    def share(self) -> float:
        """Return the error in units of the spread: 0 is perfect, 1 has learned nothing."""
        return self.error / self.spread


def forecast(run: Run, d: int, feature_norm: float, score_std: float) -> Forecast:
    """Return the error of the run's model on reference problems with d features.

    ``score_std`` is the standard deviation of the true scores if there are few features.
    """
    directions = max(d, FEWEST_DIRECTIONS)
    spread = score_std * (FEWEST_DIRECTIONS / directions) ** SHRINKING_POWER
    found = [
        _on_reference(run, directions, feature_norm, spread, power) for power in SPECTRUM_POWERS
    ]
    bias, noise = np.sqrt(np.mean(np.square(found), axis=0))
    error = math.exp(np.mean([math.log(math.hypot(*pair)) for pair in found]))
    return Forecast(float(bias), float(noise), error, spread)


def _on_reference(
    run: Run, d: int, feature_norm: float, score_std: float, power: float
) -> tuple[float, float]:
    """Return bias and noise on one reference problem."""
    loss = loss_of(run)
    share, counts = _spectrum(d, power)
    spread = feature_norm**2 * share
    curvature = CURVATURE_SHARE * loss.smoothness * share
    left, gain = _responses(run, curvature, share)
    learned = curvature / (curvature + run.l2) * (1 - left)
    bias = score_std**2 * float(np.sum(counts * share * (1 - learned) ** 2))
    noise = float(np.sum(counts * spread * gain))
    return math.sqrt(bias), math.sqrt(noise)


def _spectrum(d: int, power: float) -> tuple[FloatArray, FloatArray]:
    """Return shares of the rows' squared norm, and how many directions have each."""
    edges = np.unique(np.round(np.geomspace(1, d + 1, min(d, _NODES) + 1)))
    counts = np.diff(edges)
    share = np.sqrt(edges[:-1] * (edges[1:] - 1)) ** -power
    return share / float(np.sum(counts * share)), counts


def _responses(run: Run, curvature: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what is left of the starting error, and the variance of the noise, by direction."""
    rates = values_over(learning_rate_of(run), run.steps)
    stds = values_over(run.iterate_std, run.steps)
    # Steps are alike here; schedules are judged by their mean.
    eta, variance = float(np.mean(rates)), float(np.mean(stds**2))
    # A batch in place of all records adds noise along the features.
    gradient = GRADIENT_SHARE * loss_of(run).lipschitz
    sampled = gradient**2 * share * max(0.0, 1 / run.batch_size - 1 / run.n)
    pull = eta * (curvature + run.l2)
    left, squares = (_plain_responses if run.is_plain else _momentum_responses)(run, pull)
    return left, (variance + eta**2 * sampled) * squares


def _plain_responses(run: Run, pull: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what is left of the start, and the sum of squared answers to a push."""
    keep = 1 - pull
    squares = np.where(keep**2 < 1, (1 - keep ** (2 * run.steps)) / (1 - keep**2), run.steps)
    return keep**run.steps, squares


def _momentum_responses(run: Run, pull: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the same with momentum, for the mean of the last iterates."""
    from scipy.signal import lfilter

    steps, averaged, m = run.steps, run.average_last, run.momentum
    # The iterate answers a push at time 0 by x_t = (1 - pull) ((1 + m) x_(t-1) - m x_(t-2)), or for
    # a heavy ball by x_t = (1 + m - pull) x_(t-1) - m x_(t-2).
    push = np.zeros(steps)
    push[0] = 1.0
    ahead = run.momentum_kind == "nesterov"
    past = [((1 + m) * (1 - p), m * (1 - p)) if ahead else (1 + m - p, m) for p in pull]
    impulse = np.array([lfilter([1.0], [1.0, -last, other], push) for last, other in past]).T
    reach = np.vstack([np.zeros((averaged, pull.size)), np.cumsum(impulse, axis=0)])
    # The true weights pull at every step, so what is learned is the sum of the answers.
    left = 1 - pull * reach[-averaged:].mean(axis=0)
    gains = (reach[averaged:] - reach[:-averaged]) / averaged
    return left, np.sum(gains**2, axis=0)
