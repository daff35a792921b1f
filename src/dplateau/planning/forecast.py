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
from functools import cached_property, lru_cache

import numpy as np

from dplateau.algorithms import LossGeometry, Run
from dplateau.algorithms.schedule import values_over
from dplateau.algorithms.stated import learning_rate_of, loss_of
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import ComplexArray, FloatArray
from dplateau.losses import ClassWeighted, Huber, Logistic, Loss, SmoothedHinge, Softmax
from dplateau.losses.weighted import balanced_share

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
PREDICTION_STD = 0.3
# Where residuals may be cut, in units of the target bound. A smaller cut needs less noise and
# flattens targets that lie far off on one side: CASP and simulated lognormal targets lose this
# share of what a line explains, times (1 - cut)^3.
RESIDUAL_CUTS = (1.0, 0.7, 0.5)
FLATTENED = 0.13
# Residuals of this deviation, in the same units, still count: those beyond the cut curve no more.
RESIDUAL_STD = 0.35


@dataclass(frozen=True)
class Model:
    """A linear model on rows of norm at most ``data_norm``, with a constant feature or none.

    ``score_std`` is a guess at how far its scores would spread with few features, ``flattened`` at
    the share of their variance that cutting residuals flattens; ``curvature`` is the second
    derivative of a typical record's loss and ``typical`` the squared norm of a typical row, both in
    units of the largest; ``white`` says that the rows have no weak directions, ``bent`` that they
    have another slope far out. Only the forecast uses these.
    """

    loss: Loss
    data_norm: float
    intercept: float
    cut: float | None = None
    score_std: float = MARGIN_STD
    flattened: float = 0.0
    curvature: float = 0.5
    typical: float = 1.0
    white: bool = False
    bent: bool = False

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


def weighted(model: Model, weights: tuple[float, ...] | None) -> Model:
    """Return the model whose classes count by these weights, divided by the largest.

    Only their ratios matter for what is learned, and the constants then stay those of the loss. The
    lighter classes make the average record count less, by about as much as if the weights made all
    classes equal; the noise stays, so the forecast sees flatter losses.
    """
    if weights is None:
        return model
    ClassWeighted(model.loss, weights)  # refuses what cannot be
    relative = tuple(weight / max(weights) for weight in weights)
    if min(relative) == 0.0:
        raise InvalidInput(f"class weights {weights} differ too much: the least counts as 0")
    return replace(
        model,
        loss=ClassWeighted(model.loss, relative),
        curvature=model.curvature * balanced_share(relative),
    )


def residual_cuts(model: Model, bound: float) -> list[Model]:
    """Return the models of least squares to choose from, which cut residuals here or there."""
    return [
        replace(
            model,
            loss=Huber(cut * bound),
            flattened=model.flattened + FLATTENED * (1 - cut) ** 3,
            curvature=model.curvature * math.erf(cut / (math.sqrt(2) * RESIDUAL_STD)),
        )
        for cut in RESIDUAL_CUTS
    ]


# How fast the shares of the directions fall, in each reference problem.
SPECTRUM_POWERS = (0.0, 1.0, 2.0)
# The same of white rows, of which the weakest directions may have stayed weak.
WHITE_POWERS = (0.0, 0.5)
# Few features tend to be correlated: some of their directions are as weak as those of many.
FEWEST_DIRECTIONS = 30
# Rows of the same norm over more features have less in each: scores shrink with d to this power.
SHRINKING_POWER = 0.2
# What is beyond the bend of white rows has this share of their squared norm.
SHARE_BEYOND = 0.1
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


def forecast(run: Run, d: int, model: Model) -> Forecast:
    """Return the error of the run's weights for the model on reference problems with d features."""
    loss = loss_of(run)
    most = max(d, FEWEST_DIRECTIONS)
    directions = d if model.white else most
    spread = model.score_std * (FEWEST_DIRECTIONS / most) ** SHRINKING_POWER
    powers = WHITE_POWERS if model.white else SPECTRUM_POWERS
    # A row for each reference, a column for each direction.
    share, counts = (_bent if model.bent else _spectra)(directions, powers)
    sizes = model.typical * share
    curvature = model.curvature * loss.smoothness * sizes
    left, gain = _responses(run, curvature, sizes)
    learned = curvature / (curvature + run.l2) * (1 - left)
    biases = spread**2 * (model.flattened + np.sum(counts * share * (1 - learned) ** 2, axis=1))
    noises = np.sum(counts * model.feature_norm**2 * sizes * gain, axis=1)
    return Forecast(
        bias=math.sqrt(np.mean(biases)),
        noise=math.sqrt(np.mean(noises)),
        error=math.exp(np.mean(np.log(biases + noises)) / 2),
        spread=spread,
    )


@lru_cache(maxsize=64)
def _spectra(d: int, powers: tuple[float, ...]) -> tuple[FloatArray, FloatArray]:
    """Return shares of the rows' squared norm by power, and how many directions have each."""
    edges = np.unique(np.round(np.geomspace(1, d + 1, min(d, _NODES) + 1)))
    counts = np.diff(edges)
    share = np.sqrt(edges[:-1] * (edges[1:] - 1)) ** -np.array(powers)[:, None]
    return share / np.sum(counts * share, axis=1, keepdims=True), counts


def _bent(d: int, powers: tuple[float, ...]) -> tuple[FloatArray, FloatArray]:
    """Return the same of rows that are given as two halves, before and beyond the bend."""
    share, counts = _spectra(d // 2, powers)
    both = np.hstack([(1 - SHARE_BEYOND) * share, SHARE_BEYOND * share])
    return both, np.concatenate([counts, counts])


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
    """Return the same with momentum, for the mean of the last iterates.

    The iterate answers a push at time 0 by x_t = (1 - pull) ((1 + m) x_(t-1) - m x_(t-2)), or for a
    heavy ball by x_t = (1 + m - pull) x_(t-1) - m x_(t-2). With a and b the roots of that
    recursion, what a steady pull has reached after t steps is 1 / pull + B a^t + C b^t.
    """
    steps, averaged, m = run.steps, run.average_last, run.momentum
    # Below this nothing is learned either way, and the powers would cancel.
    pull = np.maximum(pull, 1e-3 * max(1 - m, 1e-3) / steps)
    ahead = run.momentum_kind == "nesterov"
    once, twice = ((1 + m) * (1 - pull), m * (1 - pull)) if ahead else (1 + m - pull, m + 0 * pull)
    gap = np.sqrt(_apart(once**2 - 4 * twice).astype(complex))
    a, b = (once + gap) / 2, (once - gap) / 2
    limit, first, second = 1 / pull, -(a**2) / ((1 - a) * gap), b**2 / ((1 - b) * gap)
    rest = steps - averaged
    ended = first * a**rest * _series(a, averaged) + second * b**rest * _series(b, averaged)
    # The true weights pull at every step, so what is learned is the sum of the answers.
    left = -pull * (ended / averaged).real
    early = averaged * limit**2 + 2 * limit * (
        first * _series(a, averaged) + second * _series(b, averaged)
    )
    early = early + _squares(first, a, second, b, averaged)
    late = _squares(first * (a**averaged - 1), a, second * (b**averaged - 1), b, rest)
    return left, (early + late).real / averaged**2


def _apart(discriminant: FloatArray) -> FloatArray:
    """Return it moved a little away from 0, where the two roots are one."""
    return np.where(np.abs(discriminant) < 1e-8, 1e-8, discriminant)


def _series(ratio: ComplexArray, terms: int) -> ComplexArray:
    """Return 1 + ratio + .. with so many terms."""
    return np.asarray((1 - ratio**terms) / (1 - ratio))


def _squares(
    first: ComplexArray, a: ComplexArray, second: ComplexArray, b: ComplexArray, terms: int
) -> ComplexArray:
    """Return the sum of (first a^t + second b^t)^2 over so many t from 0 on."""
    return np.asarray(
        first**2 * _series(a**2, terms)
        + second**2 * _series(b**2, terms)
        + 2 * first * second * _series(a * b, terms)
    )
