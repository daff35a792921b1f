"""What is sampled from: a potential f by its gradient, with the constants that are declared for it.

The density is proportional to exp(-inverse_temperature * (f(x) + l2 |x|^2 / 2)) on the body, where
f is the average of n records' potentials (n = 1 if there are no records). For the posterior of n
records, exp(-sum_i f_i), the inverse temperature is n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import LossGeometry
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray, IntArray

if TYPE_CHECKING:
    from dplateau.losses import ScalarLoss

_SCORES_AT_ONCE = 1 << 16

Gradient = Callable[[FloatArray], FloatArray]
# positions (chains, d), rows (chains, m), weights (chains, m) -> weighted sums of gradients.
BatchGradient = Callable[[FloatArray, IntArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class Potential:
    """A potential of ``n`` records by its (sub)gradient, and what is known of each record's part.

    Parameters
    ----------
    gradient
        Takes points as rows, (chains, d), and returns the gradient of f at each: the average over
        records. At a corner any subgradient will do, as long as it is always the same one.
    geometry
        Constants that hold on the body for every record's potential. They are taken on trust:
        ``check_constants`` looks for contradictions.
    value
        f itself at each row, if known; only pictures and tests use it.
    batch_gradient
        Takes points, the chosen records of each chain and their weights; returns the weighted sum
        of these records' gradients for each chain. Mini-batches need it.
    """

    gradient: Gradient
    geometry: LossGeometry
    value: Callable[[FloatArray], FloatArray] | None = None
    n: int = 1
    batch_gradient: BatchGradient | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without calling anything."""
        for name in ("gradient", "value", "batch_gradient"):
            given = getattr(self, name)
            if not callable(given) and not (given is None and name != "gradient"):
                raise InvalidInput(f"{name} must be a function of points; got {given!r}")
        if not isinstance(self.geometry, LossGeometry):
            raise InvalidInput(f"geometry must be a LossGeometry; got {self.geometry!r}")
        checks.put(self, "n", checks.whole("n", self.n))

    @classmethod
    def from_loss(
        cls,
        loss: ScalarLoss,
        features: npt.ArrayLike,
        targets: npt.ArrayLike,
        *,
        feature_norm: float,
    ) -> Potential:
        """Return the average loss of a linear model; rows longer than ``feature_norm`` are scaled.

        Each row is scaled on its own, so one record says nothing about another's.
        """
        return _linear_model(loss, features, targets, feature_norm)


def _linear_model(
    loss: ScalarLoss, features: npt.ArrayLike, targets: npt.ArrayLike, feature_norm: float
) -> Potential:
    rows, answers = _records(features, targets)
    loss.check_targets(answers)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows * np.minimum(1.0, feature_norm / np.maximum(norms, 1e-300))
    n = rows.shape[0]

    shares = rows / n
    # As many chains at a time as keep their scores in a fast cache.
    width = max(1, _SCORES_AT_ONCE // n)

    def gradient(points: FloatArray) -> FloatArray:
        gradients = np.empty_like(points)
        for first in range(0, len(points), width):
            some = slice(first, first + width)
            np.matmul(loss.derivative(points[some] @ rows.T, answers), shares, out=gradients[some])
        return gradients

    def value(points: FloatArray) -> FloatArray:
        means: FloatArray = loss.value(points @ rows.T, answers).mean(axis=-1)
        return means

    def batch_gradient(points: FloatArray, chosen: IntArray, weights: FloatArray) -> FloatArray:
        some = rows[chosen]
        scores = np.einsum("kmd,kd->km", some, points)
        slopes = loss.derivative(scores, answers[chosen]) * weights
        mean: FloatArray = np.einsum("km,kmd->kd", slopes, some)
        return mean

    return Potential(
        gradient=gradient,
        geometry=loss.geometry(feature_norm),
        value=value,
        n=n,
        batch_gradient=batch_gradient,
        dimension=rows.shape[1],
    )


def _records(
    features: npt.ArrayLike, targets: npt.ArrayLike
) -> tuple[FloatArray, npt.NDArray[Any]]:
    rows, answers = np.asarray(features, dtype=np.float64), np.asarray(targets)
    if rows.ndim != 2 or rows.size == 0 or answers.shape != rows.shape[:1]:
        raise InvalidInput(
            "features must be a table and targets one value per row; got shapes "
            f"{rows.shape} and {answers.shape}"
        )
    if not np.all(np.isfinite(rows)):
        raise InvalidInput("features must be finite numbers")
    return rows, answers


def check_constants(potential: Potential, points: FloatArray) -> None:
    """Refuse declared constants that the gradient contradicts at some of these points.

    Neighboring rows are compared. Passing is no proof: the constants stay declared. The check
    looks at data, so a private run must not be stopped by it.
    """
    grads = gradient_at(potential, points)
    x, y, gx, gy = points[:-1], points[1:], grads[:-1], grads[1:]
    gap, change = np.linalg.norm(x - y, axis=1), np.linalg.norm(gx - gy, axis=1)
    inner = np.einsum("ij,ij->i", gx - gy, x - y)
    size = 1e-9 * (1 + np.linalg.norm(grads, axis=1).max()) * (1 + gap)
    known = potential.geometry
    norms = np.linalg.norm(grads, axis=1)
    limits = [
        ("lipschitz", known.lipschitz, float(norms.max()), norms.max() <= known.lipschitz + size[0])
    ]
    if math.isfinite(known.smoothness):
        seen = float(np.max(change / np.maximum(gap, 1e-300)))
        held = np.all(change <= known.smoothness * gap + size)
        limits.append(("smoothness", known.smoothness, seen, held))
    for p, constant in known.holders:
        seen = float(np.max(change / np.maximum(gap, 1e-300) ** p))
        limits.append(("holder", constant, seen, np.all(change <= constant * gap**p + size)))
    for name, declared, seen, held in limits:
        if not held:
            raise InvalidInput(
                f"the gradient contradicts {name}={declared:g}: {seen:.6g} was seen on the body"
            )
    least = known.strong_convexity if known.convex else -math.inf
    if known.convex and not np.all(inner >= least * gap**2 - size):
        raise InvalidInput(
            "the gradient contradicts convex=True"
            + (f" with strong_convexity={least:g}" if least else "")
            + f": <g(x) - g(y), x - y> = {float(inner.min()):.4g} was seen"
        )
    if known.dissipativity is not None:
        offset, rate = known.dissipativity
        if not np.all(inner >= rate * gap**2 - offset - size):
            raise InvalidInput(f"the gradient contradicts dissipativity=({offset:g}, {rate:g})")


def gradient_at(potential: Potential, points: FloatArray) -> FloatArray:
    """Return the gradient, after checking its shape."""
    slopes = np.asarray(potential.gradient(points), dtype=np.float64)
    if slopes.shape != points.shape:
        raise InvalidInput(
            f"gradient must return one row per point, shape {points.shape}; got {slopes.shape} "
            "(it is called with many points at once)"
        )
    return slopes
