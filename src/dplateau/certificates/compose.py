"""Several releases on the same data, accounted together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from dplateau.algorithms import _check
from dplateau.certificates.certificate import Certificate
from dplateau.curves import (
    BasicCompositionCurve,
    GaussianCurve,
    LossCurve,
    PrivacyCurve,
    RenyiCurve,
    TabulatedComposition,
)
from dplateau.errors import InvalidInput, NotApplicable

# Beyond this epsilon e^epsilon leaves the range of floating-point numbers.
_WIDEST_TABLE = 300.0
_RENYI_ORDERS = (
    1.25,
    1.5,
    2,
    2.5,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    16,
    20,
    24,
    32,
    48,
    64,
    96,
    128,
    256,
    512,
)


@dataclass(frozen=True)
class Composition:
    """All of ``certificates`` together are (claimed_epsilon, claimed_delta)-private."""

    certificates: tuple[Certificate, ...]
    method: str
    curve: PrivacyCurve
    claimed_epsilon: float
    claimed_delta: float

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of all releases together at another delta."""
        return self.curve.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the delta of all releases together at an epsilon."""
        return self.curve.delta(epsilon)

    def __str__(self) -> str:
        """Show the claim in one line."""
        count = len(self.certificates)
        return (
            f"{count} releases: ({self.claimed_epsilon:.6g}, {self.claimed_delta:g})-DP "
            f"by {self.method}"
        )


def compose(certificates: Sequence[Certificate], delta: float) -> Composition:
    """Return the smallest epsilon at ``delta`` for releasing everything that was certified.

    Gaussian curves compose exactly, privacy losses numerically (tabulated from delta(epsilon) where
    a curve has no pairs of its own), Rényi divergences by adding up; the best that applies wins.

    >>> from dplateau import NoisyGD, certify
    >>> one = certify(NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all"), 1e-5)
    >>> both = compose([one, one], 1e-5)
    >>> one.claimed_epsilon < both.claimed_epsilon < 2 * one.claimed_epsilon
    True
    """
    level = _check.probability("delta", delta)
    if not certificates:
        raise InvalidInput("compose needs at least one certificate")
    relations = {(found.run.neighbors, found.run.group_size) for found in certificates}
    if len(relations) > 1:
        raise InvalidInput(
            "the certificates speak of different neighbours (add_remove and replace, or groups of "
            "different sizes); certify all runs with the same neighbors= and group_size="
        )
    curves = [certificate.curve for certificate in certificates]
    found: list[tuple[float, str, PrivacyCurve]] = []
    for method, build in _METHODS.items():
        curve = build(curves)
        if curve is not None:
            found.append((curve.epsilon(level), method, curve))
    epsilon, method, curve = min(found, key=lambda item: item[0])
    return Composition(tuple(certificates), method, curve, epsilon, level)


def _gaussian(curves: Sequence[PrivacyCurve]) -> PrivacyCurve | None:
    mus = [curve.mu for curve in curves if isinstance(curve, GaussianCurve)]
    if len(mus) < len(curves):
        return None
    return GaussianCurve(sum(mu**2 for mu in mus) ** 0.5 * (1 + 1e-15))


def _losses(curves: Sequence[PrivacyCurve]) -> PrivacyCurve | None:
    parts = [curve.loss_parts() for curve in curves]
    known = [part for part in parts if part is not None]
    return LossCurve(sum(known, ())) if len(known) == len(curves) else None


def _tabulated(curves: Sequence[PrivacyCurve]) -> PrivacyCurve | None:
    if len(curves) == 1 or max(curve.epsilon(1e-12) for curve in curves) > _WIDEST_TABLE:
        return None
    return TabulatedComposition(tuple(curves))


def _renyi(curves: Sequence[PrivacyCurve]) -> PrivacyCurve | None:
    try:
        return reduce(RenyiCurve.plus, [_as_renyi(curve) for curve in curves])
    except NotApplicable:
        return None


def _as_renyi(curve: PrivacyCurve) -> RenyiCurve:
    if isinstance(curve, RenyiCurve):
        return curve
    return RenyiCurve(_RENYI_ORDERS, tuple(curve.rdp(order) for order in _RENYI_ORDERS))


def _basic(curves: Sequence[PrivacyCurve]) -> PrivacyCurve | None:
    return BasicCompositionCurve(tuple(curves))


_METHODS: dict[str, Callable[[Sequence[PrivacyCurve]], PrivacyCurve | None]] = {
    "GDP composition": _gaussian,
    "PLD composition": _losses,
    "PLD composition of tabulated curves": _tabulated,
    "RDP composition": _renyi,
    "basic composition": _basic,
}
