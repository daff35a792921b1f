"""Convex bodies to sample on, beyond the ball around the origin and the box.

Each is a :class:`~dplateau.algorithms.Body`: a diameter for the certificate, a projection to run.
Points are rows: the last axis holds the coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import Ball, Body, Box, Domain
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray


class OffCenterBall(Body):
    """The ball of ``radius`` around ``center``.

    >>> OffCenterBall(1.0, [3.0, 0.0]).project(np.array([0.0, 0.0])).tolist()
    [2.0, 0.0]
    """

    radius: float
    center: FloatArray

    def __init__(self, radius: float, center: npt.ArrayLike) -> None:
        middle = _finite_vector("center", center)
        inner = Ball(radius)

        def project(point: FloatArray) -> FloatArray:
            return middle + inner.project(point - middle)

        super().__init__(inner.diameter, project)
        checks.put(self, "radius", inner.radius)
        checks.put(self, "center", middle)

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.center.size


class Simplex(Body):
    """Nonnegative coordinates with the sum ``scale``; diameter sqrt(2) scale.

    >>> Simplex(3).project(np.array([1.0, 1.0, -5.0])).tolist()
    [0.5, 0.5, 0.0]
    """

    dimension: int
    scale: float

    def __init__(self, dimension: int, scale: float = 1.0) -> None:
        size = checks.whole("dimension", dimension, least=2)
        total = checks.positive("scale", scale)
        super().__init__(math.sqrt(2) * total, lambda point: onto_simplex(point, total))
        checks.put(self, "dimension", size)
        checks.put(self, "scale", total)


def onto_simplex(points: FloatArray, scale: float) -> FloatArray:
    """Return the nearest points with nonnegative coordinates and the sum ``scale``.

    All are lowered by one number each and cut at zero; sorting finds that number.
    """
    falling = -np.sort(-points, axis=-1)
    excess = np.cumsum(falling, axis=-1) - scale
    counts = np.arange(1, points.shape[-1] + 1)
    kept = np.sum(falling * counts > excess, axis=-1, keepdims=True)
    level = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    found: FloatArray = np.maximum(points - level, 0.0)
    return found


def dimension_of(domain: Domain) -> int | None:
    """Return the number of coordinates if the body knows it."""
    if isinstance(domain, Box):
        return domain.dimension
    found = getattr(domain, "dimension", None)
    return found if isinstance(found, int) else None


def projector(domain: Domain) -> Callable[[FloatArray], None]:
    """Return a function that replaces rows by their projections, in place."""
    if isinstance(domain, Box):
        return _box_projector(np.asarray(domain.lower), np.asarray(domain.upper))
    if isinstance(domain, Ball):
        return _ball_projector(domain.radius)

    def project(points: FloatArray) -> None:
        points[...] = domain.project(points)

    return project


def _box_projector(lower: FloatArray, upper: FloatArray) -> Callable[[FloatArray], None]:
    def project(points: FloatArray) -> None:
        np.maximum(points, lower, out=points)
        np.minimum(points, upper, out=points)

    return project


def _ball_projector(radius: float) -> Callable[[FloatArray], None]:
    square = radius * radius

    def project(points: FloatArray) -> None:
        squares = np.einsum("ij,ij->i", points, points)
        if squares.max() > square:
            np.maximum(squares, square, out=squares)
            points *= (radius / np.sqrt(squares))[:, None]

    return project


def random_points(
    domain: Domain, count: int, dimension: int, generator: np.random.Generator
) -> FloatArray:
    """Return points all over the body (many on its boundary): far-apart starts, not a sample."""
    spread = domain.diameter * generator.random((count, 1))
    return domain.project(generator.standard_normal((count, dimension)) * spread)


def check_inside(domain: Domain, points: FloatArray) -> None:
    """Refuse points that the projection moves."""
    moved = np.linalg.norm(domain.project(points) - points, axis=-1)
    worst = int(np.argmax(moved))
    if not moved[worst] <= 1e-9 * (1 + domain.diameter):
        raise InvalidInput(
            f"the start must lie in the body; row {worst} is {moved[worst]:.4g} away from it "
            f"(project it first: body.project(start))"
        )


def check_projection(domain: Domain, dimension: int, *, pairs: int = 256, seed: int = 0) -> None:
    """Refuse what cannot be the projection onto a convex body of the declared diameter.

    Looked at on random points x, y near and far from the body, P being the projection: P(P(x)) =
    P(x); |P(x) - P(y)| <= |x - y|; <x - P(x), P(y) - P(x)> <= 0; |P(x) - P(y)| <= diameter. A map
    that passes may still be wrong where nobody looked.
    """
    generator = np.random.default_rng(seed)
    spread = domain.diameter * np.exp(generator.uniform(-3, 1.5, (2 * pairs, 1)))
    points = generator.standard_normal((2 * pairs, dimension)) * spread
    images = np.asarray(domain.project(points.copy()), dtype=np.float64)
    if images.shape != points.shape or not np.all(np.isfinite(images)):
        raise InvalidInput(
            f"project must return finite points of the same shape {points.shape}; "
            f"got shape {images.shape}"
        )
    x, y, px, py = points[:pairs], points[pairs:], images[:pairs], images[pairs:]
    slack = 1e-7 * (domain.diameter + np.linalg.norm(x, axis=1) + np.linalg.norm(y, axis=1))
    again = np.linalg.norm(domain.project(px.copy()) - px, axis=1)
    _require(again <= slack, "it is not idempotent: projecting twice moves a point by", again)
    apart, images_apart = np.linalg.norm(x - y, axis=1), np.linalg.norm(px - py, axis=1)
    _require(images_apart <= apart + slack, "it expands distances, by", images_apart - apart)
    _require(
        images_apart <= domain.diameter + slack,
        f"two of its images are further apart than the diameter {domain.diameter:g}, by",
        images_apart - domain.diameter,
    )
    angle = np.einsum("ij,ij->i", x - px, py - px)
    allowed = slack * (domain.diameter + np.linalg.norm(x - px, axis=1))
    _require(
        angle <= allowed, "it is not the nearest point: <x - Px, Py - Px> should not be", angle
    )


def _require(held: npt.NDArray[np.bool_], what: str, amount: FloatArray) -> None:
    if not np.all(held):
        worst = float(np.max(amount[~held]))
        raise InvalidInput(f"project is no projection onto a convex body: {what} {worst:.4g}")


def _finite_vector(name: str, values: npt.ArrayLike | Sequence[float]) -> FloatArray:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or found.size == 0 or not np.all(np.isfinite(found)):
        raise InvalidInput(f"{name} must be a list of finite numbers; got {values!r}")
    return found
