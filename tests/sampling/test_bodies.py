"""Bodies: their projections are projections, their diameters are bounds, and others are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.spatial.distance import pdist

from dplateau import Ball, Body, Box, InvalidInput, OffCenterBall, Polytope, Simplex
from dplateau.ground.types import FloatArray
from dplateau.sampling import check_projection
from dplateau.sampling.bodies import _by_active_set, dimension_of, projector, random_points


def random_polytope(seed: int, dimension: int, faces: int) -> Polytope:
    generator = np.random.default_rng(seed)
    normals = generator.standard_normal((faces, dimension))
    offsets = np.abs(generator.standard_normal(faces)) + 0.1
    box = np.vstack([np.eye(dimension), -np.eye(dimension)])
    return Polytope(np.vstack([normals, box]), np.append(offsets, np.full(2 * dimension, 2.0)))


BODIES: dict[str, tuple[Any, int]] = {
    "ball": (Ball(1.5), 3),
    "box": (Box([-1, 0], [0.5, 2]), 2),
    "moved ball": (OffCenterBall(0.7, [1.0, -2.0, 0.5]), 3),
    "simplex": (Simplex(5, scale=2.0), 5),
    "triangle": (Polytope([[-1, 0], [0, -1], [1, 1]], [0, 0, 1]), 2),
    "polytope": (random_polytope(1, 4, 9), 4),
    "user's": (Body(2.0, lambda x: np.clip(x, -1 / math.sqrt(2), 1 / math.sqrt(2))), 2),
}


@pytest.mark.parametrize("name", BODIES)
def test_projections_pass_the_check(name: str) -> None:
    body, dimension = BODIES[name]
    check_projection(body, dimension)
    points = np.random.default_rng(3).standard_normal((50, dimension)) * 3
    moved = points.copy()
    projector(body)(moved)
    assert moved == pytest.approx(body.project(points), abs=1e-12)
    assert dimension_of(body) in (None, dimension)
    inside = random_points(body, 400, dimension, np.random.default_rng(0))
    assert pdist(inside).max() <= body.diameter + 1e-9


def quadratic_program(body: Polytope, point: FloatArray) -> FloatArray:
    """The nearest point by a general optimizer."""
    found = minimize(
        lambda x: np.sum((x - point) ** 2),
        np.zeros(point.size),
        jac=lambda x: 2 * (x - point),
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda x: body.offsets - body.normals @ x,
            "jac": lambda x: -body.normals,
        },
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return np.asarray(found.x)


@given(
    seed=st.integers(0, 10_000),
    dimension=st.integers(1, 6),
    faces=st.integers(1, 12),
    scale=st.floats(0.1, 30.0),
)
def test_polytope_projection_satisfies_its_optimality_conditions(
    seed: int, dimension: int, faces: int, scale: float
) -> None:
    body = random_polytope(seed, dimension, faces)
    points = np.random.default_rng(seed + 1).standard_normal((6, dimension)) * scale
    found = body.project(points)
    assert np.all(found @ body.normals.T <= body.offsets + 1e-10 * (1 + scale))
    for point, near in zip(points, found, strict=True):
        exact = _by_active_set(point, body.normals, body.offsets)
        if np.any(body.normals @ point > body.offsets):
            assert near == pytest.approx(exact, abs=1e-8 * (1 + scale))
        else:
            assert np.array_equal(near, point)


def test_polytope_projection_is_that_of_a_general_optimizer() -> None:
    body = random_polytope(7, 3, 6)
    for point in np.random.default_rng(8).standard_normal((10, 3)) * 4:
        assert body.project(point) == pytest.approx(quadratic_program(body, point), abs=1e-5)


def test_nearly_parallel_faces_are_finished_by_the_active_set() -> None:
    wedge = Polytope([[1, 1e-4], [-1, 1e-4], [0, -1], [0, 1]], [0.0, 0.0, 1e4, 10.0])
    # The two long sides meet at the origin; (0, 5) is nearest to their common point or edge.
    near = wedge.project(np.array([[0.3, 5.0], [-2.0, 1.0]]))
    for point, found in zip(np.array([[0.3, 5.0], [-2.0, 1.0]]), near, strict=True):
        assert found == pytest.approx(_by_active_set(point, wedge.normals, wedge.offsets), abs=1e-7)


def test_simplex_projection_is_the_polytope_projection() -> None:
    size = 4
    flat = Polytope(
        np.vstack([-np.eye(size), np.ones((1, size)), -np.ones((1, size))]),
        [0.0] * size + [1.0, -1.0],
    )
    points = np.random.default_rng(2).standard_normal((30, size)) * 2
    assert Simplex(size).project(points) == pytest.approx(flat.project(points), abs=1e-9)
    assert Simplex(size).diameter == pytest.approx(math.sqrt(2))


def test_diameters_are_upper_bounds_and_close() -> None:
    triangle = Polytope([[-3, 0], [0, -1], [2, 2]], [0, 0, 2])
    assert math.sqrt(2) <= triangle.diameter <= math.sqrt(2) * (1 + 2e-6)
    cube = np.vstack([np.eye(6), -np.eye(6)])
    assert math.sqrt(24) <= Polytope(cube, np.ones(12)).diameter <= math.sqrt(24) * (1 + 2e-6)


@pytest.mark.parametrize(
    ("normals", "offsets", "message"),
    [
        ([[1, 0], [-1, 0]], [0, 0], "unbounded"),
        ([[1, 0], [-1, 0], [0, 1], [0, -1]], [0, -1, 1, 1], "empty"),
        ([[1], [-1]], [1, -1], "single point"),
        ([[0, 0]], [1], "zero"),
        ([[1, 0]], [1, 2], "one offset"),
        ([[math.nan, 0]], [1], "finite"),
    ],
)
def test_what_is_no_body_is_refused(normals: Any, offsets: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Polytope(normals, offsets)


@pytest.mark.parametrize(
    ("project", "message"),
    [
        (lambda x: x / 2, "not idempotent"),
        (lambda x: -np.clip(x, -1, 1), "not idempotent"),
        (lambda x: np.round(np.clip(x, -1, 1)), "expands"),
        (lambda x: np.clip(x, -3, 3), "diameter"),
        (lambda x: x * 0 + np.array([0.5, 0.0]) * np.sign(x[..., :1]), "expands|diameter"),
        # Onto the line x_2 = 0, but askew: nonexpansive it is not, nor nearest.
        (lambda x: np.clip(np.stack([x[..., 0] + x[..., 1], 0 * x[..., 0]], -1), -1, 1), "expands"),
        # Along rays onto the square: not the nearest point.
        (lambda x: x / np.maximum(1, np.abs(x).max(-1, keepdims=True)), "no projection"),
        (lambda x: x[..., :1], "shape"),
        (lambda x: x * np.nan, "finite"),
    ],
)
def test_what_is_no_projection_is_refused(
    project: Callable[[FloatArray], FloatArray], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_projection(Body(2 * math.sqrt(2), project), 2)


def test_bad_arguments() -> None:
    with pytest.raises(InvalidInput, match="dimension"):
        Simplex(1)
    with pytest.raises(InvalidInput, match="center"):
        OffCenterBall(1.0, [math.inf])
    with pytest.raises(InvalidInput, match="radius"):
        OffCenterBall(-1.0, [0.0])
