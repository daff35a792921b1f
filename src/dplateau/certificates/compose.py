"""Several releases on the same data, accounted together.

What leaves is one *release*: a composition of parts that were fixed in advance. Parts on the same
records compose as privacy losses; parts on disjoint records cost the worst of them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dplateau.algorithms import _check
from dplateau.bounds.base import Assumption
from dplateau.certificates.certificate import SCHEMA as CERTIFICATE
from dplateau.certificates.certificate import Certificate
from dplateau.certificates.foreign import SCHEMA as FOREIGN
from dplateau.certificates.foreign import ForeignPart, law_from_dict, law_to_dict
from dplateau.curves import (
    BasicCompositionCurve,
    BestCurve,
    GaussianCurve,
    LossCurve,
    PrivacyCurve,
    RenyiCurve,
    TabulatedCurve,
    WorstCurve,
    tabulate,
)
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.numerics.table_pair import WIDEST_EPSILON, TablePair

if TYPE_CHECKING:
    from dplateau.verify import Verification

SCHEMA = "dplateau/composition"
SCHEMA_VERSION = 1
FIELDS = (
    "schema",
    "schema_version",
    "claimed_epsilon",
    "claimed_delta",
    "records",
    "method",
    "parts",
    "assumptions",
)
FIXED = Assumption("the parts and their settings were fixed before the first release", "declared")
DISJOINT = Assumption(
    "the parts use disjoint records, divided without looking at the data", "declared"
)
Records = Literal["same", "disjoint"]
# Room for a second derivation on grids of its own: on the claim, and on every row of a table.
_CLAIM_MARGIN, _ROW_MARGIN = 1e-3, 2e-3
# The same for numbers that have closed forms on both sides.
_CLOSED_MARGIN = 1e-9
_RENYI_ORDERS = (
    *(1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0),
    *(16.0, 20.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 256.0, 512.0),
)


@dataclass(frozen=True)
class Entry:
    """A part, how often it is released, and the law that stands for it (if one is needed)."""

    part: Certificate | ForeignPart | Composition
    count: int
    law: PrivacyCurve | None


@dataclass(frozen=True)
class Composition:
    """All parts together are (claimed_epsilon, claimed_delta)-private.

    ``records`` says whether the parts see the same records or disjoint ones. The laws of the
    entries are the witness: Gaussian ones, products of pairs, or tables of delta(epsilon), with
    which :meth:`verify` re-derives the claim.
    """

    entries: tuple[Entry, ...]
    records: Records
    method: str
    claimed_epsilon: float
    claimed_delta: float

    @property
    def parts(self) -> tuple[Certificate | ForeignPart | Composition, ...]:
        """Every part, as often as it is released."""
        return tuple(entry.part for entry in self.entries for _ in range(entry.count))

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates among the parts."""
        return tuple(part for part in self.parts if isinstance(part, Certificate))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What all parts rest on, and what their composition adds."""
        own = (FIXED, DISJOINT) if self.records == "disjoint" else (FIXED,)
        found = dict.fromkeys(a for entry in self.entries for a in entry.part.assumptions)
        return tuple(dict.fromkeys((*found, *own)))

    @cached_property
    def curve(self) -> PrivacyCurve:
        """The privacy curve of all releases together."""
        return _METHODS[self.method](self.entries)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of all releases together at another delta."""
        return self.claimed_epsilon if delta == self.claimed_delta else self.curve.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the delta of all releases together at an epsilon."""
        return self.curve.delta(epsilon)

    def tradeoff(self, fpr: float) -> float:
        """Return a lower bound on any attack's false-negative rate at that false-positive rate."""
        return self.curve.tradeoff(fpr)

    def verify(self) -> Verification:
        """Verify every part and re-derive the claim by code that shares nothing with this one."""
        from dplateau.verify import verify

        return verify(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the composition as JSON-ready data."""
        body: dict[str, Any] = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "claimed_epsilon": self.claimed_epsilon,
            "claimed_delta": self.claimed_delta,
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
            "assumptions": [{"text": a.text, "status": a.status} for a in self.assumptions],
        }
        return {**body, "digest": _digest(body)}

    def to_json(self) -> str:
        """Return the composition as JSON text; floats keep every digit."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Composition:
        """Read what :meth:`to_json` wrote; altered, foreign or later-schema text is refused."""
        try:
            found = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidInput(f"not a composition: the text is no JSON ({error})") from None
        return cls.from_dict(found)

    @classmethod
    def from_dict(cls, found: Any) -> Composition:
        """Read what :meth:`to_dict` returned."""
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise InvalidInput(f"not a composition: the text lacks 'schema': '{SCHEMA}'")
        if found.get("schema_version") != SCHEMA_VERSION:
            raise InvalidInput(
                f"composition of schema version {found.get('schema_version')!r}; "
                f"this release reads {SCHEMA_VERSION}"
            )
        if found.get("digest") != _digest(found):
            raise InvalidInput("the composition was altered after it was made: its digest differs")
        items = found.get("parts")
        if not isinstance(items, list) or not items:
            raise InvalidInput("not a whole composition: it lacks 'parts'")
        records = _check.choice("records", found.get("records"), ("same", "disjoint"))
        return cls(
            entries=tuple(map(_entry_from_dict, items)),
            records="same" if records == "same" else "disjoint",
            method=_check.choice("method", found.get("method"), tuple(_METHODS)),
            claimed_epsilon=_check.nonnegative("claimed_epsilon", found.get("claimed_epsilon")),
            claimed_delta=_check.level("claimed_delta", found.get("claimed_delta")),
        )

    def __str__(self) -> str:
        """Show the claim in one line and the parts below it, one line each."""
        count = sum(entry.count for entry in self.entries)
        where = "" if self.records == "same" else " on disjoint records"
        head = (
            f"{count} release{'s' if count > 1 else ''}{where}: ({self.claimed_epsilon:.6g}, "
            f"{self.claimed_delta:g})-DP by {self.method}"
        )
        return "\n".join([head, *(f"  {line}" for entry in self.entries for line in _lines(entry))])


def compose(
    parts: Sequence[Certificate | ForeignPart | Composition],
    delta: float,
    *,
    records: Records = "same",
) -> Composition:
    """Return the smallest epsilon at ``delta`` for releasing all ``parts``, fixed in advance.

    Parts are certificates, other compositions, and what :func:`foreign` makes of numbers of other
    software. Gaussian curves compose exactly, all others as privacy losses: by their own pairs, or
    through a table of delta(epsilon). With ``records="disjoint"`` every record is used by one part
    only, and the worst part counts.

    The claim is about parts that do not depend on each other's results: choosing the next one by
    what the last one showed, with a budget in mind, needs a privacy filter, which this is not.

    >>> from dplateau import NoisyGD, certify
    >>> one = certify(NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all"), 1e-5)
    >>> both = compose([one, one], 1e-5)
    >>> one.claimed_epsilon < both.claimed_epsilon < 2 * one.claimed_epsilon
    True
    """
    level = _check.level("delta", delta)
    _check.choice("records", records, ("same", "disjoint"))
    listed = _counted(_checked_parts(parts), flat=records == "same")
    if records == "disjoint":
        entries = tuple(Entry(part, count, None) for part, count in listed)
        return _smallest(
            [_claim(_Found("worst part", entries, _CLAIM_MARGIN), records, level)], level
        )
    found = [f for build in (_gaussian, _losses, _renyi) for f in build(listed, level)]
    claims = [_claim(way, "same", level) for way in found]
    if not any(_clearly_best(claim) for claim in claims):
        claims += [_claim(way, "same", level) for way in _basic(listed, level)]
    return _smallest(claims, level)


def _clearly_best(claim: Composition) -> bool:
    """Return whether adding up epsilons cannot win: it gives each part a smaller delta."""
    laws = [(entry.law, entry.count) for entry in claim.entries if entry.law is not None]
    if claim.method == "GDP composition" or len(laws) < len(claim.entries):
        return claim.method == "GDP composition"
    apart = math.fsum(count * law.epsilon(claim.claimed_delta) for law, count in laws)
    return claim.claimed_epsilon < 0.98 * apart


Listed = list[tuple["Certificate | ForeignPart | Composition", int]]


@dataclass(frozen=True)
class _Found:
    """A way to account for the parts, and the room its claim leaves for a second derivation."""

    method: str
    entries: tuple[Entry, ...]
    margin: float


def _claim(way: _Found, records: Records, delta: float) -> Composition:
    epsilon = _METHODS[way.method](way.entries).epsilon(delta) * (1 + way.margin)
    return Composition(way.entries, records, way.method, epsilon, delta)


def _smallest(claims: list[Composition], delta: float) -> Composition:
    best = min(claims, key=lambda claim: claim.claimed_epsilon, default=None)
    if best is None or math.isinf(best.claimed_epsilon):
        raise NotApplicable(
            f"the parts have no finite epsilon together at delta = {delta:g}; "
            "choose a larger delta, or certify the parts at smaller ones"
        )
    return best


def _checked_parts(parts: Sequence[Any]) -> list[Certificate | ForeignPart | Composition]:
    """Refuse what cannot be composed, and parts that speak of different neighbors."""
    if isinstance(parts, Certificate | ForeignPart | Composition):
        raise InvalidInput("compose takes a list of parts; put this one into [ ]")
    found = list(parts)
    if not found:
        raise InvalidInput("compose needs at least one part")
    for part in found:
        if isinstance(part, tuple) and len(part) == 2:
            raise InvalidInput(
                f"the pair {part!r} does not say which neighbors it is about; write "
                f'foreign(epsilon={part[0]!r}, delta={part[1]!r}, neighbors="add_remove", name=...)'
            )
        if not isinstance(part, Certificate | ForeignPart | Composition):
            raise InvalidInput(
                "parts are certificates, compositions and what foreign(...) returns; "
                f"got {type(part).__name__}"
            )
    relations = {relation for part in found for relation in _relations(part)}
    if len({neighbors for neighbors, _ in relations}) > 1:
        raise InvalidInput(
            "the parts speak of different neighbors (add_remove and replace); certify all runs "
            "with the same neighbors= (a replaced record is one removed and one added: a group "
            "of two)"
        )
    if len(relations) > 1:
        units = ", ".join(sorted(unit for _, unit in relations))
        raise InvalidInput(
            f"the parts speak of different units ({units}); state what protects the same unit"
        )
    return found


def _relations(part: Certificate | ForeignPart | Composition) -> Iterator[tuple[str, str]]:
    if isinstance(part, Composition):
        for entry in part.entries:
            yield from _relations(entry.part)
    elif isinstance(part, ForeignPart):
        yield part.neighbors, part.unit
    else:
        yield part.run.neighbors, "record"


def _counted(parts: list[Certificate | ForeignPart | Composition], *, flat: bool) -> Listed:
    """Return the different parts with their repeats; compositions on the same records dissolve."""
    found: dict[str, tuple[Certificate | ForeignPart | Composition, int]] = {}
    keys: dict[int, str] = {}

    def add(part: Certificate | ForeignPart | Composition, count: int) -> None:
        if flat and isinstance(part, Composition) and part.records == "same":
            for entry in part.entries:
                add(entry.part, count * entry.count)
            return
        key = keys.setdefault(id(part), json.dumps(part.to_dict(), sort_keys=True))
        first, before = found.get(key, (part, 0))
        found[key] = (first, before + count)

    for part in parts:
        add(part, 1)
    return list(found.values())


def _gaussian(listed: Listed, delta: float) -> Iterator[_Found]:
    entries = [Entry(part, n, _gaussian_law(part.curve)) for part, n in listed]
    if all(entry.law is not None for entry in entries):
        yield _Found("GDP composition", tuple(entries), _CLOSED_MARGIN)


def _gaussian_law(curve: PrivacyCurve) -> GaussianCurve | None:
    if isinstance(curve, WorstCurve):
        laws = [_gaussian_law(inner) for inner in curve.curves]
        known = [law for law in laws if law is not None]
        return max(known, key=lambda law: law.mu) if len(known) == len(laws) else None
    if not isinstance(curve, GaussianCurve):
        return None
    return GaussianCurve(curve.mu * (1 + _CLOSED_MARGIN))


def _losses(listed: Listed, delta: float) -> Iterator[_Found]:
    share = delta / sum(count for _, count in listed)
    if share == 0:
        return
    try:
        entries = tuple(Entry(part, n, _law(part, share)) for part, n in listed)
    except NotApplicable:
        return
    if not all(isinstance(entry.law, GaussianCurve) for entry in entries):
        yield _Found("PLD composition", entries, _CLAIM_MARGIN)


def _law(part: Certificate | ForeignPart | Composition, delta: float) -> PrivacyCurve:
    curve = part.curve
    law = _gaussian_law(curve)
    if law is not None:
        return law
    if isinstance(curve, TabulatedCurve):
        return curve
    pairs = curve.loss_parts() if isinstance(part, Certificate) else None
    if pairs is not None:
        return LossCurve(pairs)
    return TabulatedCurve(tabulate(curve, delta, margin=_ROW_MARGIN))


def _renyi(listed: Listed, delta: float) -> Iterator[_Found]:
    entries = tuple(Entry(part, count, None) for part, count in listed)
    # Divergences of curves that have pairs never compose better than the pairs.
    if delta == 0 or all(part.curve.loss_parts() is not None for part, _ in listed):
        return
    try:
        _renyi_curve(entries)
    except NotApplicable:
        return
    yield _Found("RDP composition", entries, 0.0)


def _basic(listed: Listed, delta: float) -> Iterator[_Found]:
    """Split delta among the parts and add up their epsilons."""
    curves = tuple(part.curve for part, count in listed for _ in range(count))
    shares = BasicCompositionCurve(curves).split(delta)
    entries, place = [], 0
    for part, count in listed:
        row = _row(part, min(shares[place : place + count]))
        if row is None:
            return
        entries.append(Entry(part, count, row))
        place += count
    yield _Found("basic composition", tuple(entries), 1e-15 * len(curves))


def _row(part: Certificate | ForeignPart | Composition, delta: float) -> TabulatedCurve | None:
    """Return one (epsilon, delta) of a part, with room for a second derivation of it."""
    stated = isinstance(part, ForeignPart) or part.claimed_delta == delta
    epsilon = part.epsilon(delta) * (1 if stated else 1 + _CLAIM_MARGIN)
    if epsilon > WIDEST_EPSILON:
        return None
    return TabulatedCurve(TablePair.hull(np.array([epsilon]), np.array([delta])))


def _gaussian_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    squares = math.fsum(n * mu**2 for mu, n in _mus(entries))
    return GaussianCurve(math.sqrt(squares) * (1 + 1e-15))


def _mus(entries: tuple[Entry, ...]) -> list[tuple[float, int]]:
    return [(e.law.mu, e.count) for e in entries if isinstance(e.law, GaussianCurve)]


def _losses_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    """Compose pairs and tables as they are, and all Gaussian laws as one."""
    gaussian = _gaussian_curve(entries)
    parts = [*(gaussian.loss_parts() or ())]
    for entry in entries:
        own = None if entry.law is None else entry.law.loss_parts()
        if own is None:
            raise InvalidInput("not a whole composition: a part lacks its law")
        if not isinstance(entry.law, GaussianCurve):
            parts += [(pair, entry.count * count) for pair, count in own]
    return LossCurve(tuple(parts))


def _renyi_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    curves = [entry.part.curve for entry in entries for _ in range(entry.count)]
    return reduce(RenyiCurve.plus, map(_as_renyi, curves))


def _as_renyi(curve: PrivacyCurve) -> RenyiCurve:
    if isinstance(curve, RenyiCurve):
        return curve
    return RenyiCurve(_RENYI_ORDERS, tuple(curve.rdp(order) for order in _RENYI_ORDERS))


def _basic_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    """Add up the rows where they were made for, and whole curves elsewhere."""
    rows = [entry.law for entry in entries for _ in range(entry.count)]
    if not all(isinstance(row, TabulatedCurve) for row in rows):
        raise InvalidInput("not a whole composition: a part lacks its row")
    pairs = [row.pair for row in rows if isinstance(row, TabulatedCurve)]
    epsilon = math.fsum(pair.epsilons[-1] for pair in pairs)
    delta = math.fsum(pair.deltas[-1] for pair in pairs)
    claim = TablePair.hull(np.array([min(epsilon, WIDEST_EPSILON)]), np.array([min(1.0, delta)]))
    whole = BasicCompositionCurve(tuple(e.part.curve for e in entries for _ in range(e.count)))
    if epsilon > WIDEST_EPSILON:
        return whole
    return BestCurve((TabulatedCurve(claim), whole))


def _worst_curve(entries: tuple[Entry, ...]) -> PrivacyCurve:
    return WorstCurve(tuple(entry.part.curve for entry in entries))


_METHODS: dict[str, Callable[[tuple[Entry, ...]], PrivacyCurve]] = {
    "GDP composition": _gaussian_curve,
    "PLD composition": _losses_curve,
    "RDP composition": _renyi_curve,
    "basic composition": _basic_curve,
    "worst part": _worst_curve,
}


def _entry_from_dict(item: Any) -> Entry:
    if not isinstance(item, dict) or not isinstance(item.get("part"), dict):
        raise InvalidInput("not a composition: every part is an object with 'part' and 'count'")
    part = _part_from_dict(item["part"])
    count = _check.whole("count", item.get("count"))
    law = item.get("law")
    if law is None:
        return Entry(part, count, None)
    if isinstance(law, dict) and law.get("kind") == "pairs":
        pairs = part.curve.loss_parts()
        if pairs is None:
            raise InvalidInput("not a composition: a part without pairs claims to have some")
        return Entry(part, count, LossCurve(pairs))
    return Entry(part, count, law_from_dict(law))


def _part_from_dict(found: dict[str, Any]) -> Certificate | ForeignPart | Composition:
    schema = found.get("schema")
    if schema == CERTIFICATE:
        return Certificate.from_dict(found)
    return ForeignPart.from_dict(found) if schema == FOREIGN else Composition.from_dict(found)


def _lines(entry: Entry) -> Iterator[str]:
    """Describe one part, and what is inside it."""
    times = f"{entry.count} x " if entry.count > 1 else ""
    if isinstance(entry.part, ForeignPart):
        yield f"{times}{entry.part.name}: {entry.part.words} (declared)"
        return
    yield from (line if i else times + line for i, line in enumerate(str(entry.part).split("\n")))


def _digest(body: dict[str, Any]) -> str:
    """Return a checksum of a composition's content (it detects accidents, not forgers)."""
    own = {name: body.get(name) for name in FIELDS}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
