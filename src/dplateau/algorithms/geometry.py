"""What is known of one record's data loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from dplateau.errors import InvalidInput
from dplateau.ground import checks


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
        subgradients differ by at most M.
    dissipativity
        (lambda, kappa): <grad f_i(x) - grad f_i(y), x - y> >= kappa |x - y|^2 - lambda.

    >>> LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25).smoothness
    0.25
    """

    lipschitz: float
    convex: bool
    smoothness: float = math.inf
    strong_convexity: float = 0.0
    holder: Holder | tuple[float, float] | None = None
    dissipativity: Dissipativity | tuple[float, float] | None = None

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
            checks.put(self, "holder", _holder(self.holder))
        if self.dissipativity is not None:
            checks.put(self, "dissipativity", _dissipativity(self.dissipativity))

    def to_dict(self) -> dict[str, Any]:
        """Return the constants that were given, JSON-ready (an infinite constant is left out)."""
        found: dict[str, Any] = {"convex": self.convex}
        if math.isfinite(self.lipschitz):
            found["lipschitz"] = self.lipschitz
        if math.isfinite(self.smoothness):
            found["smoothness"] = self.smoothness
        if self.strong_convexity:
            found["strong_convexity"] = self.strong_convexity
        if self.holder is not None:
            found["holder"] = list(self.holder)
        if self.dissipativity is not None:
            found["dissipativity"] = list(self.dissipativity)
        return found

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> LossGeometry:
        """Read what :meth:`to_dict` wrote."""
        try:
            return cls(**{"lipschitz": math.inf, **found})
        except TypeError as error:
            raise InvalidInput(f"loss: {error}") from None


def _pair(name: str, value: object, meaning: str) -> tuple[object, object]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidInput(f"{name} must be a pair {meaning}; got {value!r}")
    return value[0], value[1]


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
