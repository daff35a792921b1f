"""Releases that other software accounts for, as parts of a composition."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dplateau.bounds.base import Assumption
from dplateau.curves import (
    GaussianCurve,
    PrivacyCurve,
    TablePair,
    TabulatedCurve,
    checked_epsilon,
    tabulate,
)
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.sealed import FOREIGN, Stamp, from_text, open_sealed, seal, to_text
from dplateau.ground.shown import rounded_up
from dplateau.ground.types import FloatArray

NEIGHBORS = ("add_remove", "replace")
# Where the table of a foreign loss distribution is fine, and what its sums may be off by.
_TABLE_DELTA, _SUMS = 1e-9, 1e-9


@dataclass(frozen=True)
class ForeignPart:
    """A release whose privacy is vouched for by the user: nothing about it is checked here.

    ``neighbors`` is the relation that its numbers speak of and ``unit`` what one neighbor more or
    less is; parts compose only if both agree. Make one with :func:`foreign`.
    """

    name: str
    neighbors: str
    unit: str
    curve: GaussianCurve | TabulatedCurve
    stamp: Stamp = field(default_factory=Stamp.now, compare=False)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that the stated numbers give at a delta."""
        return self.curve.epsilon(delta)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the user vouches for."""
        return (
            Assumption(f"{self.name}: {self.words} ({self.neighbors} {self.unit})", "declared"),
        )

    @property
    def words(self) -> str:
        """The stated privacy, in words."""
        if isinstance(self.curve, GaussianCurve):
            return f"{rounded_up(self.curve.mu)}-GDP"
        pair = self.curve.pair
        if len(pair.epsilons) == 2:
            return f"({rounded_up(pair.epsilons[1])}, {rounded_up(pair.deltas[1])})-DP"
        return f"a table of {len(pair.epsilons)} rows of (epsilon, delta)"

    def to_dict(self) -> dict[str, Any]:
        """Return the part as JSON-ready data, sealed."""
        content = {
            "name": self.name,
            "neighbors": self.neighbors,
            "unit": self.unit,
            "law": law_to_dict(self.curve),
        }
        return seal(FOREIGN, content, self.stamp)

    def to_json(self) -> str:
        """Return the part as JSON text; floats keep every digit."""
        return to_text(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> ForeignPart:
        """Read what :meth:`to_json` wrote; altered, foreign and later-format text is refused."""
        return cls.from_dict(from_text(text, FOREIGN))

    @classmethod
    def from_dict(cls, found: Any) -> ForeignPart:
        """Read what :meth:`to_dict` returned."""
        content, stamp = open_sealed(found, FOREIGN)
        name, unit = content["name"], content["unit"]
        if not isinstance(name, str) or not isinstance(unit, str):
            raise InvalidInput("not a foreign part: it needs a name and a unit")
        neighbors = checks.choice("neighbors", content["neighbors"], NEIGHBORS)
        return cls(name, neighbors, unit, law_from_dict(content["law"]), stamp)


def foreign(
    *,
    neighbors: str,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    pld: Any = None,
    name: str = "foreign part",
    unit: str = "record",
) -> ForeignPart:
    """Return a release accounted for elsewhere: ``(epsilon, delta)``, ``mu``-GDP or a ``pld``.

    ``pld`` is a ``PrivacyLossDistribution`` of dp-accounting; it is kept as a table. Its numbers,
    and that they are about these ``neighbors``, are the user's word.

    >>> foreign(epsilon=0.5, delta=1e-6, neighbors="add_remove", name="a query").words
    '(0.5, 1e-06)-DP'
    """
    relation = checks.choice("neighbors", neighbors, NEIGHBORS)
    pair_given = epsilon is not None or delta is not None
    if pair_given + (mu is not None) + (pld is not None) != 1:
        raise InvalidInput("foreign takes one of: epsilon and delta; mu; pld")
    if mu is not None:
        return ForeignPart(name, relation, unit, GaussianCurve(checks.nonnegative("mu", mu)))
    if pld is not None:
        return ForeignPart(name, relation, unit, _table_of(pld))
    if epsilon is None or delta is None:
        raise InvalidInput("foreign needs both epsilon and delta (delta = 0 for pure epsilon)")
    level = checks.level("delta", delta)
    row = np.array([checks.nonnegative("epsilon", epsilon)]), np.array([level])
    return ForeignPart(name, relation, unit, TabulatedCurve(TablePair.hull(*row)))


def _table_of(pld: Any) -> TabulatedCurve:
    """Return the larger order of a loss distribution, as a table."""
    for side in ("_pmf_remove", "_pmf_add"):
        if getattr(getattr(pld, side, None), "_pessimistic_estimate", True) is False:
            raise InvalidInput(
                "the pld rounds optimistically, so its deltas are no bounds; "
                "build it with pessimistic_estimate=True"
            )
    if not hasattr(pld, "get_delta_for_epsilon") or not hasattr(pld, "get_epsilon_for_delta"):
        raise InvalidInput(
            f"pld must be a PrivacyLossDistribution of dp-accounting; got {type(pld).__name__}"
        )
    return TabulatedCurve(tabulate(_LossDistribution(pld), _TABLE_DELTA, margin=_SUMS))


@dataclass(frozen=True, eq=False)
class _LossDistribution(PrivacyCurve):
    """What dp-accounting says, in the larger of both orders."""

    pld: Any

    def delta(self, epsilon: float) -> float:
        return float(self.pld.get_delta_for_epsilon(checked_epsilon(epsilon)))

    def deltas(self, epsilons: FloatArray, center: float) -> FloatArray:
        return np.asarray(self.pld.get_delta_for_epsilon(np.asarray(epsilons)), dtype=np.float64)

    def epsilon(self, delta: float) -> float:
        return max(0.0, float(self.pld.get_epsilon_for_delta(delta)))


def unit_of(group_size: int) -> str:
    """Return the unit in which neighbors of a run differ."""
    return "record" if group_size == 1 else f"group of {group_size} records"


def law_to_dict(curve: PrivacyCurve) -> dict[str, Any]:
    """Return a law as JSON-ready data; pairs are the certificate's own and need no numbers."""
    if isinstance(curve, GaussianCurve):
        return {"kind": "gaussian", "mu": curve.mu}
    if isinstance(curve, TabulatedCurve):
        pair = curve.pair
        return {"kind": "table", "epsilons": list(pair.epsilons), "deltas": list(pair.deltas)}
    return {"kind": "pairs"}


def law_from_dict(found: Any) -> GaussianCurve | TabulatedCurve:
    """Read a Gaussian law or a table."""
    try:
        if found["kind"] == "gaussian":
            return GaussianCurve(checks.nonnegative("mu", found["mu"]))
        if found["kind"] == "table":
            columns = [tuple(map(float, found[name])) for name in ("epsilons", "deltas")]
            if all(math.isfinite(value) for column in columns for value in column):
                return TabulatedCurve(TablePair(*columns))
    except (KeyError, TypeError, ValueError):
        pass
    raise InvalidInput("not a law: it must be a Gaussian one or a table of (epsilon, delta)")
