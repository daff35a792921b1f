"""From outputs to one number: a score that is large where the record was in the data.

The score may be anything that was fixed before the tested runs are looked at; a poor one costs
power, never honesty. The one fitted here is the likelihood ratio of two Gaussian laws with a common
covariance (Fisher's linear discriminant).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray

Statistic = Callable[[FloatArray], FloatArray]

# With fewer runs per output coordinate than this, correlations are left out of the discriminant.
_RUNS_PER_COORDINATE = 4
_MOST_COORDINATES = 2000
# What a coordinate without any noise is taken to vary by, in units of its size.
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class FittedScore:
    """A statistic with the sign that makes it larger on the data than on the neighbour."""

    statistic: Statistic
    sign: float
    name: str

    def __call__(self, outputs: FloatArray) -> FloatArray:
        """Return one score per row of ``outputs``."""
        scores = np.asarray(self.statistic(outputs), dtype=np.float64)
        if scores.shape != (outputs.shape[0],):
            raise InvalidInput(
                f"statistic must return one number per run, an array of shape "
                f"({outputs.shape[0]},); got shape {scores.shape}"
            )
        if not np.all(np.isfinite(scores)):
            raise InvalidInput("statistic returned a score that is not finite")
        return self.sign * scores


def fit_score(
    data: FloatArray,
    neighbor: FloatArray,
    *,
    statistic: Statistic | None = None,
    direction: FloatArray | None = None,
) -> FittedScore:
    """Return the score to test with, from runs that are not tested.

    A given ``statistic`` is used as it is. Otherwise the discriminant is fitted on the first half
    of the runs, and the second half decides between it and the projection on ``direction``.
    """
    if statistic is not None:
        return _oriented(statistic, data, neighbor, "given statistic")
    half = min(len(data), len(neighbor)) // 2
    weights = _discriminant(data[:half], neighbor[:half])
    found = [_oriented(_projection(weights), data[:half], neighbor[:half], "linear discriminant")]
    if direction is not None:
        known = _projection(_checked_direction(direction, data.shape[1]))
        found.append(_oriented(known, data[:half], neighbor[:half], "given direction"))
    return max(found, key=lambda score: _separation(score(data[half:]), score(neighbor[half:])))


def _projection(weights: FloatArray) -> Statistic:
    return lambda outputs: outputs @ weights


def _oriented(
    statistic: Statistic, data: FloatArray, neighbor: FloatArray, name: str
) -> FittedScore:
    plain = FittedScore(statistic, 1.0, name)
    turned = float(np.mean(plain(data))) < float(np.mean(plain(neighbor)))
    return FittedScore(statistic, -1.0 if turned else 1.0, name)


def _separation(data: FloatArray, neighbor: FloatArray) -> float:
    """Return how far the means lie apart in standard deviations."""
    gap = float(np.mean(data) - np.mean(neighbor))
    spread = float(np.sqrt((np.var(data) + np.var(neighbor)) / 2))
    return gap / spread if spread > 0 else gap * np.inf if gap else 0.0


def _discriminant(data: FloatArray, neighbor: FloatArray) -> FloatArray:
    """Return the weights covariance^-1 (mean on the data - mean on the neighbour)."""
    gap = data.mean(axis=0) - neighbor.mean(axis=0)
    rest = np.concatenate([data - data.mean(axis=0), neighbor - neighbor.mean(axis=0)])
    size = np.maximum(np.abs(data).max(axis=0), np.abs(neighbor).max(axis=0))
    scale = np.maximum(rest.std(axis=0), _TINY * np.where(size > 0, size, 1.0))
    count, width = rest.shape
    if width > min(count / _RUNS_PER_COORDINATE, _MOST_COORDINATES):
        return np.asarray(gap / scale**2)
    rest /= scale
    correlations = rest.T @ rest / count + _TINY * np.eye(width)
    return np.asarray(np.linalg.solve(correlations, gap / scale) / scale)


def _checked_direction(direction: FloatArray, width: int) -> FloatArray:
    found = np.asarray(direction, dtype=np.float64).ravel()
    if found.size != width:
        raise InvalidInput(
            f"direction has {found.size} coordinates, but the trainer returns {width}; "
            "leave it out to let the audit find one"
        )
    if not np.all(np.isfinite(found)) or not np.any(found):
        raise InvalidInput("direction must be finite and not zero")
    return found
