"""Several releases together: certificates, what other software accounts for, compositions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar, Literal, Union

import numpy as np

from dplateau.bounds.base import COMPOSED_MARGIN, Assumption
from dplateau.certificates.certificate import Certificate, Claimed, claim_fields
from dplateau.curves import (
    WIDEST_EPSILON,
    BasicCompositionCurve,
    GaussianCurve,
    LossCurve,
    PrivacyCurve,
    RenyiCurve,
    TablePair,
    TabulatedCurve,
    WorstCurve,
    checked_epsilon,
    tabulate,
)
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.sealed import CERTIFICATE, COMPOSITION, FOREIGN, Kind, Sealed, Stamp
from dplateau.ground.shown import rounded_up
from dplateau.ground.types import FloatArray

# ---- releases that other software accounts for ---------------------------------------------------


NEIGHBORS = ("add_remove", "replace")
# Where the table of a foreign loss distribution is fine, and what its sums may be off by.
_TABLE_DELTA, _SUMS = 1e-9, 1e-9
# Room for a second derivation of numbers that have closed forms on both sides.
CLOSED_MARGIN = 1e-9
# More than the verifier follows.
_MOST_RELEASES = 10**6


@dataclass(frozen=True)
class ForeignPart(Sealed):
    """A release whose privacy is vouched for by the user: nothing about it is checked here.

    ``neighbors`` is the relation that its numbers speak of and ``unit`` what one neighbor more or
    less is; parts compose only if both agree. Make one with :func:`foreign`.
    """

    kind: ClassVar[Kind] = FOREIGN
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

    def _content(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "neighbors": self.neighbors,
            "unit": self.unit,
            "law": law_to_dict(self.curve),
        }

    @classmethod
    def _read(cls, content: dict[str, Any], stamp: Stamp) -> ForeignPart:
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

    The numbers, and that they are about these ``neighbors``, are the user's word.

    Parameters
    ----------
    neighbors
        "add_remove" or "replace": which neighbors the numbers are about.
    epsilon, delta
        The numbers of an (epsilon, delta) claim.
    mu
        The parameter of a Gaussian claim.
    pld
        A ``PrivacyLossDistribution`` of dp-accounting; it is kept as a table.
    name
        What texts call the part.
    unit
        What one neighbor has and the other lacks.

    Returns
    -------
    ForeignPart
        Something that :func:`compose` takes.

    Raises
    ------
    InvalidInput
        If not exactly one of the three forms is stated, or a number is none of its kind.

    Examples
    --------
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
    stated = checks.nonnegative("epsilon", epsilon)
    if stated > WIDEST_EPSILON:
        raise InvalidInput(
            f"epsilon = {rounded_up(stated)} protects nobody; a declared one is at most "
            f"{WIDEST_EPSILON:g}"
        )
    row = np.array([stated]), np.array([level])
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


def law_from_dict(document: Any) -> GaussianCurve | TabulatedCurve:
    """Read a Gaussian law or a table."""
    try:
        if document["kind"] == "gaussian":
            return GaussianCurve(checks.nonnegative("mu", document["mu"]))
        if document["kind"] == "table":
            columns = [tuple(map(float, document[name])) for name in ("epsilons", "deltas")]
            if all(math.isfinite(value) for column in columns for value in column):
                return TabulatedCurve(TablePair(*columns))
    except (KeyError, TypeError, ValueError):
        pass
    raise InvalidInput("not a law: it must be a Gaussian one or a table of (epsilon, delta)")


# ---- the composition -----------------------------------------------------------------------------


FIXED = Assumption("the parts and their settings were fixed before the first release", "declared")
DISJOINT = Assumption(
    "the parts use disjoint records, divided without looking at the data", "declared"
)
Records = Literal["same", "disjoint"]
Part = Union[Certificate, ForeignPart, "Composition"]
_RENYI_ORDERS = (
    *(1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0),
    *(16.0, 20.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 256.0, 512.0),
)


@dataclass(frozen=True)
class Entry:
    """A part, how often it is released, and the law that stands for it (if one is needed)."""

    part: Part
    count: int
    law: PrivacyCurve | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Composition(Claimed):
    """All parts together are (claim.epsilon, claim.delta)-private.

    ``records`` says whether the parts see the same records or disjoint ones. The laws of the
    entries are the witness: Gaussian ones, products of pairs, or tables of delta(epsilon), with
    which :meth:`verify` re-derives the claim.
    """

    kind: ClassVar[Kind] = COMPOSITION
    entries: tuple[Entry, ...]
    records: Records
    method: str
    # Whether the laws come from a file, where anybody may have written them.
    read: bool = field(default=False, compare=False)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part, as often as it is released."""
        return tuple(entry.part for entry in self.entries for _ in range(entry.count))

    @property
    def count(self) -> int:
        """How many releases there are; a file may state more than a tuple of them can hold."""
        return sum(entry.count for entry in self.entries)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates among the parts."""
        return tuple(part for part in self.parts if isinstance(part, Certificate))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What all parts rest on, and what their composition adds."""
        own = (FIXED, DISJOINT) if self.records == "disjoint" else (FIXED,)
        stated = dict.fromkeys(a for entry in self.entries for a in entry.part.assumptions)
        return tuple(dict.fromkeys((*stated, *own)))

    def _proved_curve(self) -> PrivacyCurve:
        entries = self.entries
        if self.read and self.method in ("GDP composition", "PLD composition"):
            # A file's laws are for verifying its claim; what they say elsewhere nobody checked.
            listed = [(entry.part, entry.count) for entry in entries]
            entries = with_laws(listed, self.claimed_delta or _TABLE_DELTA)
        return METHODS[self.method](entries)

    def without_claim(self, reason: str) -> Composition:
        """Return the same paper with nothing claimed, neither together nor by its parts."""
        bare = tuple(Entry(_without_claim(e.part, reason), e.count, None) for e in self.entries)
        return replace(self, entries=bare, claim=None, no_claim=reason)

    def _content(self) -> dict[str, Any]:
        return {
            **self._claim_content(),
            "records": self.records,
            "method": self.method,
            "parts": [
                {
                    "count": entry.count,
                    "law": None if entry.law is None else law_to_dict(entry.law),
                    "part": entry.part.to_dict(),
                }
                for entry in self.entries
            ],
            "assumptions": self._stated_assumptions(),
        }

    @classmethod
    def _read(cls, content: dict[str, Any], stamp: Stamp) -> Composition:
        items = content["parts"]
        if not isinstance(items, list) or not items:
            raise InvalidInput("not a whole composition: it has no parts")
        records = checks.choice("records", content["records"], ("same", "disjoint"))
        whole = cls(
            **claim_fields(content, COMPOSITION),
            entries=tuple(map(_entry_from_dict, items)),
            records="same" if records == "same" else "disjoint",
            method=checks.choice("method", content["method"], tuple(METHODS)),
            stamp=stamp,
            read=True,
        )
        if content["assumptions"] != whole._stated_assumptions():
            raise InvalidInput("not a whole composition: it must state what its parts rest on")
        return whole

    def _stated_assumptions(self) -> list[dict[str, str]]:
        return [a.to_dict() for a in self.assumptions]

    def __str__(self) -> str:
        """Show the claim in one line and the parts below it, one line each."""
        where = "" if self.records == "same" else " on disjoint records"
        by = "" if self.claim is None else f" by {self.method}"
        head = f"{self.count} release{'s' if self.count > 1 else ''}{where}: {self.headline}{by}"
        return "\n".join([head, *(f"  {line}" for entry in self.entries for line in _lines(entry))])


def gaussian_law(curve: PrivacyCurve) -> GaussianCurve | None:
    """Return the Gaussian law of a curve that is one, with room for a second derivation."""
    if isinstance(curve, WorstCurve):
        laws = [gaussian_law(inner) for inner in curve.curves]
        known = [law for law in laws if law is not None]
        return max(known, key=lambda law: law.mu) if len(known) == len(laws) else None
    if not isinstance(curve, GaussianCurve):
        return None
    return GaussianCurve(curve.mu * (1 + CLOSED_MARGIN))


def with_laws(listed: Iterable[tuple[Part, int]], delta: float) -> tuple[Entry, ...]:
    """Return the parts with laws that their own proofs give, tables being fine near a delta."""
    counted = list(listed)
    share = delta / sum(count for _, count in counted)
    if share == 0:
        raise NotApplicable(f"delta = {delta:g} is too small to be divided among the parts")
    return tuple(Entry(part, count, _law(part, share)) for part, count in counted)


def _law(part: Part, delta: float) -> PrivacyCurve:
    curve = part.curve
    law = gaussian_law(curve)
    if law is not None:
        return law
    if isinstance(curve, TabulatedCurve):
        return curve
    pairs = curve.loss_parts() if _proves_pairs(part) else None
    if pairs is not None:
        return LossCurve(pairs, extra_delta=curve.extra_delta)
    return TabulatedCurve(tabulate(curve, delta, margin=COMPOSED_MARGIN))


def _proves_pairs(part: Part) -> bool:
    """Return whether a part's proof itself is about the pairs, not extended to a group."""
    if not isinstance(part, Certificate):
        return False
    return part.run.group_size == 1 or part.theorem.knows_groups


def _all_gaussian_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    if not all(isinstance(entry.law, GaussianCurve) for entry in entries):
        raise InvalidInput("not a GDP composition: a part has no Gaussian curve")
    return _gaussian_curve(entries)


def _gaussian_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    squares = math.fsum(n * mu**2 for mu, n in _mus(entries))
    return GaussianCurve(math.sqrt(squares) * (1 + 1e-15))


def _mus(entries: tuple[Entry, ...]) -> list[tuple[float, int]]:
    return [(e.law.mu, e.count) for e in entries if isinstance(e.law, GaussianCurve)]


def _losses_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    """Compose pairs and tables as they are, and all Gaussian laws as one.

    A part that fails with chance x is dominated by its pairs with a mass of x at infinite loss
    added, in both orders; what a product of such pairs has there is prod (1 + x) - 1 at most.
    """
    gaussian = _gaussian_curve(entries)
    parts = [*(gaussian.loss_parts() or ())]
    for entry in entries:
        own = None if entry.law is None else entry.law.loss_parts()
        if own is None:
            raise InvalidInput("not a whole composition: a part lacks its law")
        if not isinstance(entry.law, GaussianCurve):
            parts += [(pair, entry.count * count) for pair, count in own]
    failing = math.fsum(e.count * e.law.extra_delta for e in entries if e.law is not None)
    return LossCurve(tuple(parts), extra_delta=math.expm1(failing) * (1 + 1e-14))


def renyi_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    """Add up Rényi divergences; refused if a part has none."""
    return reduce(RenyiCurve.plus, map(_as_renyi, _one_by_one(entries)))


def _as_renyi(curve: PrivacyCurve) -> RenyiCurve:
    if isinstance(curve, RenyiCurve):
        return curve
    return RenyiCurve(_RENYI_ORDERS, tuple(curve.rdp(order) for order in _RENYI_ORDERS))


def _basic_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    """Add up the epsilons of whole curves: the rows are for the claimed delta only."""
    return BasicCompositionCurve(tuple(_one_by_one(entries)))


def _one_by_one(entries: tuple[Entry, ...]) -> list[PrivacyCurve]:
    """Return the curve of every release; a file may state more of them than memory holds."""
    count = sum(entry.count for entry in entries)
    if count > _MOST_RELEASES:
        raise NotApplicable(
            f"{count} releases are too many to be added up one by one; no verification follows "
            f"more than {_MOST_RELEASES}"
        )
    return [entry.part.curve for entry in entries for _ in range(entry.count)]


def row_of(entry: Entry) -> tuple[float, float]:
    """Return the one (epsilon, delta) that stands for a part when epsilons are added up."""
    if not isinstance(entry.law, TabulatedCurve):
        raise InvalidInput("not a whole composition: a part lacks its row")
    return entry.law.pair.epsilons[-1], entry.law.pair.deltas[-1]


def _worst_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    return WorstCurve(tuple(entry.part.curve for entry in entries))


METHODS: dict[str, Callable[[tuple[Entry, ...]], PrivacyCurve]] = {
    "GDP composition": _all_gaussian_curve,
    "PLD composition": _losses_curve,
    "RDP composition": renyi_curve,
    "basic composition": _basic_curve,
    "worst part": _worst_curve,
}


def _entry_from_dict(item: Any) -> Entry:
    if not isinstance(item, dict) or not isinstance(item.get("part"), dict):
        raise InvalidInput("not a composition: every part is an object with 'part' and 'count'")
    part = _part_from_dict(item["part"])
    count = checks.whole("count", item.get("count"))
    law = item.get("law")
    if law is None:
        return Entry(part, count, None)
    if isinstance(law, dict) and law.get("kind") == "pairs":
        pairs = part.curve.loss_parts()
        if pairs is None:
            raise InvalidInput("not a composition: a part without pairs claims to have some")
        return Entry(part, count, LossCurve(pairs, extra_delta=part.curve.extra_delta))
    return Entry(part, count, law_from_dict(law))


def _part_from_dict(document: dict[str, Any]) -> Part:
    kind = document.get("kind")
    if kind == CERTIFICATE.name:
        return Certificate.from_dict(document)
    return (
        ForeignPart.from_dict(document) if kind == FOREIGN.name else Composition.from_dict(document)
    )


def _without_claim(part: Part, reason: str) -> Part:
    """Return a part that claims nothing; what other software answers for stays as declared."""
    return part if isinstance(part, ForeignPart) else part.without_claim(reason)


def _lines(entry: Entry) -> Iterator[str]:
    """Describe one part, and what is inside it."""
    times = f"{entry.count} x " if entry.count > 1 else ""
    if isinstance(entry.part, ForeignPart):
        yield f"{times}{entry.part.name}: {entry.part.words} (declared)"
        return
    yield from (line if i else times + line for i, line in enumerate(str(entry.part).split("\n")))
