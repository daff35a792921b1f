"""What is known of one record's data loss, and the convex bodies iterates are projected onto."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.types import FloatArray


class Holder(NamedTuple):
    """Weak smoothness: |grad f(x) - grad f(y)| <= constant * |x - y| ** exponent."""

    exponent: float
    constant: float


class Dissipativity(NamedTuple):
    """Strong dissipativity: <grad f(x) - grad f(y), x - y> >= rate * |x - y|^2 - offset."""

    offset: float
    rate: float


@dataclass(frozen=True, kw_only=True)
class LossGeometry:
    """Constants of one record's *data* loss f_i; the ridge term is described by ``l2`` of the run.

    Parameters
    ----------
    lipschitz
        L: no record's gradient is longer than this anywhere in the domain. With per-record
        clipping it is the clip norm (then the other constants must hold for the clipped loss).
        ``inf`` if unknown: enough for mixing times, not for privacy.
    convex
        Whether every f_i is convex.
    smoothness
        M: |grad f_i(x) - grad f_i(y)| <= M |x - y|. ``inf`` (the default) if not smooth.
    strong_convexity
        m: f_i(x) - m |x|^2 / 2 is convex. Keep an explicit ridge in the run's ``l2`` instead:
        that term is not clipped and costs no sensitivity.
    holder
        (p, M) with 0 <= p < 1 if the gradients are only Hölder continuous; p = 0 means that two
        subgradients differ by at most M. Several pairs may hold at once: give a list of them, and
        each bound uses the best.
    dissipativity
        (lambda, kappa): <grad f_i(x) - grad f_i(y), x - y> >= kappa |x - y|^2 - lambda.
    saddle
        Whether every f_i is convex in some weights and concave in the others, and "gradient" means
        descent in the former and ascent in the latter: (grad_x f_i, -grad_y f_i), whose length and
        smoothness are the L and M above. Then ``convex`` is False.

    Examples
    --------
    >>> LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25).smoothness
    0.25
    """

    lipschitz: float
    convex: bool
    smoothness: float = math.inf
    strong_convexity: float = 0.0
    holder: Holder | tuple[float, float] | Sequence[tuple[float, float]] | None = None
    dissipativity: Dissipativity | tuple[float, float] | None = None
    saddle: bool = False

    def __post_init__(self) -> None:
        """Validate each constant, and the constants against each other."""
        checks.put(self, "lipschitz", checks.positive("lipschitz", self.lipschitz, infinite=True))
        if not isinstance(self.convex, bool):
            raise InvalidInput(f"convex must be True or False; got {self.convex!r}")
        checks.put(
            self, "smoothness", checks.positive("smoothness", self.smoothness, infinite=True)
        )
        checks.put(
            self, "strong_convexity", checks.nonnegative("strong_convexity", self.strong_convexity)
        )
        if self.strong_convexity > 0 and not self.convex:
            raise InvalidInput(
                f"strong_convexity={self.strong_convexity:g} contradicts convex=False; "
                "set convex=True"
            )
        if self.strong_convexity > self.smoothness:
            raise InvalidInput(
                f"strong_convexity={self.strong_convexity:g} exceeds "
                f"smoothness={self.smoothness:g}; no function has both"
            )
        if self.holder is not None:
            checks.put(self, "holder", _holders(self.holder))
        if self.dissipativity is not None:
            checks.put(self, "dissipativity", _dissipativity(self.dissipativity))
        if not isinstance(self.saddle, bool):
            raise InvalidInput(f"saddle must be True or False; got {self.saddle!r}")
        if self.saddle and self.convex:
            raise InvalidInput(
                "saddle=True is about losses convex in some weights and concave in the others; "
                "set convex=False, or leave saddle out if they are convex in all"
            )

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Return every pair (p, M) that was declared.

        >>> LossGeometry(lipschitz=1.0, convex=True, holder=[(0.0, 2.0), (0.5, 3.0)]).holders[1]
        Holder(exponent=0.5, constant=3.0)
        """
        if self.holder is None:
            return ()
        pairs: Any = (self.holder,) if isinstance(self.holder, Holder) else self.holder
        return tuple(pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return the constants that were given, JSON-ready (an infinite constant is left out)."""
        described: dict[str, Any] = {"convex": self.convex}
        if math.isfinite(self.lipschitz):
            described["lipschitz"] = self.lipschitz
        if math.isfinite(self.smoothness):
            described["smoothness"] = self.smoothness
        if self.strong_convexity:
            described["strong_convexity"] = self.strong_convexity
        if self.holder is not None:
            pairs = [list(pair) for pair in self.holders]
            described["holder"] = pairs[0] if len(pairs) == 1 else pairs
        if self.dissipativity is not None:
            described["dissipativity"] = list(self.dissipativity)
        if self.saddle:
            described["saddle"] = True
        return described

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> LossGeometry:
        """Read what :meth:`to_dict` wrote."""
        try:
            return cls(**{"lipschitz": math.inf, **document})
        except TypeError as error:
            raise InvalidInput(f"loss: {error}") from None


def _pair(name: str, value: object, meaning: str) -> tuple[object, object]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidInput(f"{name} must be a pair {meaning}; got {value!r}")
    return value[0], value[1]


def _holders(value: object) -> Holder | tuple[Holder, ...]:
    """Read one pair, or several of different exponents."""
    if not isinstance(value, tuple | list) or not any(isinstance(v, tuple | list) for v in value):
        return _holder(value)
    pairs = tuple(sorted(_holder(pair) for pair in value))
    if len({pair.exponent for pair in pairs}) < len(pairs):
        raise InvalidInput(
            f"state one holder constant for each exponent; got {[tuple(pair) for pair in pairs]}"
        )
    return pairs if len(pairs) > 1 else pairs[0]


def _holder(value: object) -> Holder:
    first, second = _pair("holder", value, "(exponent, constant)")
    exponent = checks.nonnegative("holder exponent", first)
    if exponent >= 1:
        raise InvalidInput(
            f"holder exponent must lie in [0, 1); got {exponent:g}; exponent 1 is smoothness=..."
        )
    return Holder(exponent, checks.positive("holder constant", second))


def _dissipativity(value: object) -> Dissipativity:
    first, second = _pair("dissipativity", value, "(offset lambda, rate kappa)")
    return Dissipativity(
        checks.nonnegative("dissipativity offset", first),
        checks.positive("dissipativity rate", second),
    )


# ---- domains; None in a run means unconstrained -------------------------------------------------


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


def domain_from_dict(document: dict[str, Any]) -> Domain:
    """Read what a domain's ``to_dict`` wrote."""
    match document:
        case {"kind": "ball", "radius": radius}:
            return Ball(radius)
        case {"kind": "box", "lower": lower, "upper": upper}:
            return Box(lower, upper)
        case {"kind": "body", "diameter": diameter}:
            return Body(diameter)
    raise InvalidInput(f"unknown domain {document!r}; known kinds are ball, box and body")


def _corner(name: str, value: object) -> tuple[float, ...]:
    items = value if isinstance(value, Sequence | np.ndarray) else [value]
    numbers = tuple(checks.real(name, item) for item in items)
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise InvalidInput(f"{name} must hold finite numbers; got {value!r}")
    return numbers
