"""What to expect of a run before seeing data: its error on a few reference problems.

A reference is a quadratic whose j-th direction carries a share proportional to 1 / j^power of the
rows' squared norm, and contributes to the true scores in the same proportion. Real features lie
between the powers that are tried. On a reference, bias and noise of a run are known exactly,
direction by direction. The forecast ranks runs; nothing about privacy rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import Run
from dplateau.algorithms.schedule import values_over
from dplateau.ground.types import FloatArray

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
    """Root mean square error of a score: what the run has not learnt yet, and what noise adds.

    ``error`` is the geometric mean of both together over the references, so that none rules.
    """

    bias: float
    noise: float
    error: float


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
    return Forecast(float(bias), float(noise), error)


def _on_reference(
    run: Run, d: int, feature_norm: float, score_std: float, power: float
) -> tuple[float, float]:
    """Return bias and noise on one reference problem."""
    assert run.loss is not None
    share, counts = _spectrum(d, power)
    spread = feature_norm**2 * share
    curvature = CURVATURE_SHARE * run.loss.smoothness * share
    left, gain = _responses(run, curvature, share)
    learnt = curvature / (curvature + run.l2) * (1 - left)
    bias = score_std**2 * float(np.sum(counts * share * (1 - learnt) ** 2))
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
    assert run.learning_rate is not None
    assert run.loss is not None
    rates = values_over(run.learning_rate, run.steps)
    stds = values_over(run.iterate_std, run.steps)
    # Steps are alike here; schedules are judged by their mean.
    eta, variance = float(np.mean(rates)), float(np.mean(stds**2))
    # A batch in place of all records adds noise along the features.
    gradient = GRADIENT_SHARE * run.loss.lipschitz
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
    # The iterate answers a push at time 0 by x_t = (1 - pull) ((1 + m) x_(t-1) - m x_(t-2)).
    push = np.zeros(steps)
    push[0] = 1.0
    impulse = np.array(
        [lfilter([1.0], [1.0, -(1 + m) * (1 - p), m * (1 - p)], push) for p in pull]
    ).T
    reach = np.vstack([np.zeros((averaged, pull.size)), np.cumsum(impulse, axis=0)])
    # The true weights pull at every step, so what is learnt is the sum of the answers.
    left = 1 - pull * reach[-averaged:].mean(axis=0)
    gains = (reach[averaged:] - reach[:-averaged]) / averaged
    return left, np.sum(gains**2, axis=0)
