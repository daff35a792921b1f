"""Convex bodies to sample on, beyond the ball around the origin and the box.

Each is a :class:`~dplateau.algorithms.Body`: a diameter for the certificate, a projection to run.
Points are rows: the last axis holds the coordinates. The second half is about polytopes
{x : A x <= b}: whether they are bodies at all, how wide they are, and the projection onto them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import Ball, Body, Box, Domain
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.compiled import compiled
from dplateau.ground.types import BoolArray, FloatArray


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
    nearest: FloatArray = np.maximum(points - level, 0.0)
    return nearest


def dimension_of(domain: Domain) -> int | None:
    """Return the number of coordinates if the body knows it."""
    if isinstance(domain, Box):
        return domain.dimension
    size = getattr(domain, "dimension", None)
    return size if isinstance(size, int) else None


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
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or vector.size == 0 or not np.all(np.isfinite(vector)):
        raise InvalidInput(f"{name} must be a list of finite numbers; got {values!r}")
    return vector


# Linear programs are solved to 1e-7: what they say of the diameter is rounded up by more.
_WIDER = 1 + 1e-6
_MOST_DIMENSIONS_FOR_VERTICES = 4
_SWEEPS = 400
_TOLERANCE = 1e-13


class Polytope(Body):
    """The points with ``normals @ x <= offsets``: halfspaces that meet in a bounded body.

    The diameter is an upper bound: the largest distance of two vertices in up to four dimensions,
    the diagonal of the bounding box beyond. Projections are exact up to 1e-12 of the point's size.

    >>> triangle = Polytope([[-1, 0], [0, -1], [1, 1]], [0, 0, 1])
    >>> triangle.project(np.array([1.0, 1.0])).round(12).tolist()
    [0.5, 0.5]
    """

    normals: FloatArray
    offsets: FloatArray

    def __init__(self, normals: npt.ArrayLike, offsets: npt.ArrayLike) -> None:
        rows, limits = _halfspaces(normals, offsets)
        lower, upper = _bounding_box(rows, limits)
        super().__init__(
            _diameter(rows, limits, lower, upper), lambda point: onto_polytope(point, rows, limits)
        )
        checks.put(self, "normals", rows)
        checks.put(self, "offsets", limits)

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return int(self.normals.shape[1])


def onto_polytope(points: FloatArray, normals: FloatArray, offsets: FloatArray) -> FloatArray:
    """Return the nearest points with ``normals @ x <= offsets``; the rows of normals have norm 1.

    Hildreth's method moves along one violated normal at a time and converges to the projection;
    where it is slow (nearly parallel faces) an active-set method finishes.
    """
    flat = np.ascontiguousarray(points.reshape(-1, points.shape[-1]), dtype=np.float64)
    outside = np.flatnonzero(np.any(flat @ normals.T > offsets, axis=1))
    nearest = flat.copy()
    if outside.size:
        moved, done = _hildreth(flat[outside], normals, offsets)
        for i in np.flatnonzero(~done):
            moved[i] = _by_active_set(flat[outside[i]], normals, offsets)
        nearest[outside] = moved
    return nearest.reshape(points.shape)


@compiled
def _hildreth(
    points: FloatArray, normals: FloatArray, offsets: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return approximate projections and whether each has converged."""
    faces, size = normals.shape
    nearest = points.copy()
    done = np.zeros(points.shape[0], dtype=np.bool_)
    weights = np.empty(faces)
    for k in range(points.shape[0]):
        x = nearest[k]
        scale = 1.0
        for j in range(size):
            scale += abs(x[j])
        weights[:] = 0.0
        for _ in range(_SWEEPS):
            largest = 0.0
            for i in range(faces):
                excess = -offsets[i]
                for j in range(size):
                    excess += normals[i, j] * x[j]
                change = max(excess, -weights[i])
                if change != 0.0:
                    weights[i] += change
                    for j in range(size):
                        x[j] -= change * normals[i, j]
                    largest = max(largest, abs(change))
            if largest <= _TOLERANCE * scale:
                done[k] = True
                break
    return nearest, done


def _by_active_set(point: FloatArray, normals: FloatArray, offsets: FloatArray) -> FloatArray:
    """Return the projection as a least-distance problem (Lawson and Hanson, chapter 23)."""
    from scipy.optimize import nnls

    excess = normals @ point - offsets
    stacked = np.vstack([-normals.T, excess[None, :]])
    goal = np.zeros(point.size + 1)
    goal[-1] = 1.0
    weights, _ = nnls(stacked, goal, maxiter=50 * normals.shape[0])
    rest = goal - stacked @ weights
    moved: FloatArray = point - rest[:-1] / rest[-1]
    return moved


def _halfspaces(normals: npt.ArrayLike, offsets: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    rows = np.asarray(normals, dtype=np.float64)
    limits = np.asarray(offsets, dtype=np.float64)
    if rows.ndim != 2 or rows.size == 0 or limits.shape != rows.shape[:1]:
        raise InvalidInput(
            "Polytope needs one row of normals and one offset per halfspace; got shapes "
            f"{rows.shape} and {limits.shape}"
        )
    if not np.all(np.isfinite(rows)) or not np.all(np.isfinite(limits)):
        raise InvalidInput("Polytope needs finite normals and offsets")
    norms = np.linalg.norm(rows, axis=1)
    if np.any(norms == 0):
        raise InvalidInput(f"row {int(np.argmin(norms))} of normals is zero: no halfspace")
    return rows / norms[:, None], limits / norms


def _bounding_box(normals: FloatArray, offsets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the smallest box around the polytope; empty and unbounded ones are refused."""
    size = normals.shape[1]
    lower, upper = np.empty(size), np.empty(size)
    _least(np.zeros(size), normals, offsets)  # an empty one is told from an unbounded one
    for j in range(size):
        for sign, ends in ((1.0, lower), (-1.0, upper)):
            direction = np.zeros(size)
            direction[j] = sign
            ends[j] = sign * _least(direction, normals, offsets)
    return lower, upper


def _least(direction: FloatArray, normals: FloatArray, offsets: FloatArray) -> float:
    from scipy.optimize import linprog

    solved = linprog(direction, A_ub=normals, b_ub=offsets, bounds=(None, None), method="highs")
    if solved.status == 2:
        raise InvalidInput("the polytope is empty: no point satisfies all of its halfspaces")
    if solved.status != 0 or solved.fun is None:
        raise InvalidInput(
            f"the polytope is unbounded (in direction {(-direction).tolist()}); add halfspaces, or "
            "a box around it"
        )
    return float(solved.fun)


def _diameter(
    normals: FloatArray, offsets: FloatArray, lower: FloatArray, upper: FloatArray
) -> float:
    diagonal = math.dist(lower, upper)
    if diagonal == 0:
        raise InvalidInput("the polytope is a single point; a body needs a positive diameter")
    if 2 <= lower.size <= _MOST_DIMENSIONS_FOR_VERTICES:
        vertices = _vertices(normals, offsets)
        if vertices is not None:
            gaps = vertices[:, None, :] - vertices[None, :, :]
            widest = float(np.sqrt(np.max(np.sum(gaps * gaps, axis=-1))))
            return min(diagonal, widest) * _WIDER
    return diagonal * _WIDER


def _vertices(normals: FloatArray, offsets: FloatArray) -> FloatArray | None:
    """Return the vertices of a polytope with an interior, None for a flat one."""
    from scipy.optimize import linprog
    from scipy.spatial import HalfspaceIntersection, QhullError

    size = normals.shape[1]
    goal = np.zeros(size + 1)
    goal[-1] = -1.0
    padded = np.hstack([normals, np.ones((normals.shape[0], 1))])
    solved = linprog(goal, A_ub=padded, b_ub=offsets, bounds=(None, None), method="highs")
    if (
        solved.status != 0
        or solved.x is None
        or solved.x[-1] < 1e-4 * (1 + float(np.abs(offsets).max()))
    ):
        return None
    try:
        met = HalfspaceIntersection(np.hstack([normals, -offsets[:, None]]), solved.x[:-1])
    except QhullError:
        return None
    vertices: FloatArray = met.intersections
    return vertices if np.all(np.isfinite(vertices)) else None
