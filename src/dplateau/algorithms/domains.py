"""Convex bodies that iterates are projected onto; ``None`` in a run means unconstrained."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.types import FloatArray


@dataclass(frozen=True)
class Ball:
    """The Euclidean ball of ``radius`` around the origin; diameter 2 * radius.

    >>> Ball(radius=1.5).diameter
    3.0
    """

    radius: float

    def __post_init__(self) -> None:
        """Check the radius."""
        object.__setattr__(self, "radius", checks.positive("radius", self.radius))

    @property
    def diameter(self) -> float:
        """Largest distance between two points."""
        return 2 * self.radius

    def project(self, point: FloatArray) -> FloatArray:
        """Return the nearest point (the last axis holds the coordinates)."""
        norm = np.linalg.norm(point, axis=-1, keepdims=True)
        return np.where(norm > self.radius, point * (self.radius / np.maximum(norm, 1e-300)), point)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {"kind": "ball", "radius": self.radius}


@dataclass(frozen=True)
class Box:
    """The product of the intervals [lower_j, upper_j]; plain numbers mean one dimension.

    >>> Box(lower=-1.0, upper=1.0).diameter
    2.0
    >>> Box(lower=[0, 0], upper=[3, 4]).diameter
    5.0
    """

    lower: float | Sequence[float]
    upper: float | Sequence[float]

    def __post_init__(self) -> None:
        """Store both corners as tuples and check that the box is not empty."""
        lower, upper = _corner("lower", self.lower), _corner("upper", self.upper)
        if len(lower) != len(upper):
            raise InvalidInput(
                f"Box needs as many lower as upper bounds; got {len(lower)} and {len(upper)}"
            )
        for low, high in zip(lower, upper, strict=True):
            if low >= high:
                raise InvalidInput(f"Box needs lower < upper; got lower={low:g}, upper={high:g}")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return len(np.atleast_1d(self.lower))

    @property
    def diameter(self) -> float:
        """Length of the diagonal."""
        return math.dist(np.atleast_1d(self.upper), np.atleast_1d(self.lower))

    def project(self, point: FloatArray) -> FloatArray:
        """Return the nearest point (the last axis holds the coordinates)."""
        return np.clip(point, np.asarray(self.lower), np.asarray(self.upper))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "kind": "box",
            "lower": np.atleast_1d(self.lower).tolist(),
            "upper": np.atleast_1d(self.upper).tolist(),
        }


@dataclass(frozen=True)
class Body:
    """Any convex body of which only the diameter matters here; ``project`` is needed to run.

    >>> Body(diameter=2.0).diameter
    2.0
    """

    diameter: float
    projection: Callable[[FloatArray], FloatArray] | None = field(default=None, compare=False)

    def __init__(
        self,
        diameter: float,
        project: Callable[[FloatArray], FloatArray] | None = None,
    ) -> None:
        object.__setattr__(self, "diameter", checks.positive("diameter", diameter))
        if project is not None and not callable(project):
            raise InvalidInput(f"project must be a function of a point; got {project!r}")
        object.__setattr__(self, "projection", project)

    def project(self, point: FloatArray) -> FloatArray:
        """Return the nearest point, by the user's function."""
        if self.projection is None:
            raise NotApplicable(
                f"Body(diameter={self.diameter:g}) can be accounted for but not run: "
                "pass project=..., or use Ball or Box"
            )
        return self.projection(point)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description (the projection itself is not part of a claim)."""
        return {"kind": "body", "diameter": self.diameter}


Domain = Ball | Box | Body


def domain_from_dict(found: dict[str, Any]) -> Domain:
    """Read what a domain's ``to_dict`` wrote."""
    match found:
        case {"kind": "ball", "radius": radius}:
            return Ball(radius)
        case {"kind": "box", "lower": lower, "upper": upper}:
            return Box(lower, upper)
        case {"kind": "body", "diameter": diameter}:
            return Body(diameter)
    raise InvalidInput(f"unknown domain {found!r}; known kinds are ball, box and body")


def _corner(name: str, value: object) -> tuple[float, ...]:
    items = value if isinstance(value, Sequence | np.ndarray) else [value]
    numbers = tuple(checks.real(name, item) for item in items)
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise InvalidInput(f"{name} must hold finite numbers; got {value!r}")
    return numbers
