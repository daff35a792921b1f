"""What to expect of a run before seeing data: its error on one reference problem.

The reference is a quadratic with the spectrum that real features tend to have: the j-th direction
carries a share proportional to 1/j of the rows' squared norm, and every direction contributes to
the true scores in the same proportion. On it bias and noise of a run are known exactly, direction
by direction. The forecast ranks runs; nothing about privacy rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import Run
from dplateau.algorithms.schedule import values_over
from dplateau.numerics.types import FloatArray

# Standard deviation of the true scores in the reference problem.
SCORE_STD = 3.0
# Second derivative of a typical record's loss, in units of the largest.
CURVATURE_SHARE = 0.5
_NODES = 48


@dataclass(frozen=True)
class Forecast:
    """Root mean square error of a score: what the run has not learnt yet, and what noise adds."""

    bias: float
    noise: float

    @property
    def error(self) -> float:
        """Return both together."""
        return math.hypot(self.bias, self.noise)


def forecast(run: Run, d: int, feature_norm: float) -> Forecast:
    """Return the error of the run's model on the reference problem with d features."""
    assert run.loss is not None
    spread, counts = _spectrum(d, feature_norm)
    curvature = spread * CURVATURE_SHARE * run.loss.smoothness / feature_norm**2
    left, gain = _responses(run, curvature)
    learnt = curvature / (curvature + run.l2) * (1 - left)
    signal = SCORE_STD**2 * spread / float(np.sum(counts * spread))
    bias = float(np.sum(counts * signal * (1 - learnt) ** 2))
    noise = float(np.sum(counts * spread * gain))
    return Forecast(math.sqrt(bias), math.sqrt(noise))


def _spectrum(d: int, feature_norm: float) -> tuple[FloatArray, FloatArray]:
    """Return variances of the features along a few directions, and how many each stands for."""
    edges = np.unique(np.round(np.geomspace(1, d + 1, min(d, _NODES) + 1)))
    counts = np.diff(edges)
    spread = 1 / np.sqrt(edges[:-1] * (edges[1:] - 1 + (counts == 0)))
    return feature_norm**2 * spread / float(np.sum(counts * spread)), counts


def _responses(run: Run, curvature: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what is left of the starting error, and the variance of the noise, by direction."""
    assert run.learning_rate is not None
    rates = values_over(run.learning_rate, run.steps)
    stds = values_over(run.iterate_std, run.steps)
    # Steps are alike here; schedules are judged by their mean.
    eta, nu = float(np.mean(rates)), float(np.sqrt(np.mean(stds**2)))
    pull = eta * (curvature + run.l2)
    if run.is_plain:
        keep = 1 - pull
        left = keep**run.steps
        squares = np.where(keep**2 < 1, (1 - keep ** (2 * run.steps)) / (1 - keep**2), run.steps)
        return left, nu**2 * squares
    return _momentum_responses(run, pull, nu)


def _momentum_responses(run: Run, pull: FloatArray, nu: float) -> tuple[FloatArray, FloatArray]:
    steps, averaged, m = run.steps, run.average_last, run.momentum
    error, speed = np.ones_like(pull), np.zeros_like(pull)
    # An impulse in the velocity moves the iterate by 1 in the same step.
    place, rate = np.ones_like(pull), np.ones_like(pull)
    errors, impulse = np.empty((steps, pull.size)), np.empty((steps, pull.size))
    for step in range(steps):
        impulse[step] = place
        rate = m * rate - pull * (place + m * rate)
        place = place + rate
        speed = m * speed - pull * (error + m * speed)
        error = error + speed
        errors[step] = error
    left = errors[-averaged:].mean(axis=0)
    reach = np.vstack([np.zeros((averaged, pull.size)), np.cumsum(impulse, axis=0)])
    gains = (reach[averaged:] - reach[:-averaged]) / averaged
    return left, nu**2 * np.sum(gains**2, axis=0)
