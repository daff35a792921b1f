"""From a composition of certificates as plain data to a verdict.

Every certificate in it is verified on its own. Then the law that stands for each part is checked:
a Gaussian one against the part's own mu, a table row by row against curves derived here. What was
confirmed is composed by dp-accounting's masses, and the claim must not be below what that gives.
Parts that other software answers for are taken as declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dplateau.ground.sealed import COMPOSITION, FOREIGN
from dplateau.ground.shown import rounded_up
from dplateau.verify import reading
from dplateau.verify.claims import ROUNDED, Case, Derived
from dplateau.verify.composed import STRIDE, Curve, Rows, composed_epsilon
from dplateau.verify.pairs import GaussianPair, LossPair, TableLoss
from dplateau.verify.precise import gaussian_delta, gaussian_epsilon
from dplateau.verify.reading import Found
from dplateau.verify.report import Ledger, Malformed, Refused, Verification
from dplateau.verify.verdict import examined, rederived

_FIXED = "the parts and their settings were fixed before the first release"
_DISJOINT = "the parts use disjoint records, divided without looking at the data"
_MOST_PARTS = 10**6
# Deeper nesting than anyone writes by hand is somebody's attempt to exhaust the stack.
_DEEPEST = 8
Row = tuple[float, float]
# From an (epsilon, delta) to one that is proved: the same, or the next one above it that is known.
Confirm = Callable[[Row], Row | None]


def verify_composition(found: Any) -> Verification:
    """Re-derive the claim of a composition; whatever is wrong with it, the answer is a verdict."""
    ledger = Ledger()

    def derivation() -> None:
        node = _Node(found, ledger, "", 0)
        ledger.require_proved(node.epsilon, node.derived(), "composed")

    return Verification(
        ok=ledger.settles(derivation),
        checks=tuple(ledger.checks),
        claimed_epsilon=reading.stated(found, "claim", "epsilon"),
        rederived_epsilon=ledger.derived,
        bound=reading.stated_text(found, "method"),
    )


@dataclass(frozen=True)
class _Entry:
    """A part with its repeats: where it stands, what it is, and the law that stands for it."""

    where: str
    count: int
    part: Found
    law: Found | None

    @property
    def kind(self) -> str:
        return reading.word(self.part, "kind")

    @property
    def content(self) -> Found:
        return reading.record(self.part, "content")


class _Node:
    """One composition, its envelope checked when it is made."""

    def __init__(self, found: Any, ledger: Ledger, where: str, depth: int) -> None:
        self.ledger, self.where, self.depth = ledger, where, depth
        ledger.require(f"nesting{where}", depth <= _DEEPEST, f"at most {_DEEPEST} levels")
        self.content = reading.require_envelope(found, COMPOSITION, ledger, where)
        self.epsilon, self.delta = reading.claim(self.content, ledger, where)
        self.method = reading.word(self.content, "method")
        records = reading.word(self.content, "records")
        ledger.require(f"records{where}", records in ("same", "disjoint"), f"{records!r}")
        self.disjoint = records == "disjoint"
        self.entries = [
            _entry(item, f"{where} part {i}")
            for i, item in enumerate(reading.rows(self.content, "parts"), 1)
        ]
        for entry in self.entries:
            if entry.kind == reading.FOREIGN:
                reading.require_envelope(entry.part, FOREIGN, ledger, entry.where)
        total = sum(entry.count for entry in self.entries)
        ledger.require(f"parts{where}", total <= _MOST_PARTS, f"{total} parts")
        self._require_one_relation()
        self._require_assumptions()
        self._known: dict[int, Any] = {}

    def _require_one_relation(self) -> None:
        relations = {_relation(entry.part) for entry in self.entries}
        detail = ", ".join(" by ".join(relation) for relation in sorted(relations))
        self.ledger.require(f"neighbors{self.where}", len(relations) == 1, detail)
        # A larger unit may have records in several of the disjoint parts.
        single = all(unit == "record" for _, unit in relations)
        self.ledger.require(f"units{self.where}", single or not self.disjoint, detail)

    def _require_assumptions(self) -> None:
        """Require that nothing a part rests on was left out."""
        stated = {item["text"] for item in self.content["assumptions"]}
        needed = {_FIXED} | ({_DISJOINT} if self.disjoint else set())
        for entry in self.entries:
            if entry.kind != reading.FOREIGN:
                needed |= {item["text"] for item in reading.rows(entry.content, "assumptions")}
        missing = sorted(needed - stated)
        detail = "complete" if not missing else f"it lacks {missing[0]!r}"
        self.ledger.require(f"assumptions{self.where}", not missing, detail)

    def derived(self) -> float:
        """Return the epsilon that the parts are confirmed to have together."""
        if self.disjoint:
            return self._worst()
        if self.method == "GDP composition":
            return self._gaussian()
        if self.method == "PLD composition":
            return self._composed()
        if self.method == "basic composition":
            return self._basic()
        self.ledger.require(f"method{self.where}", False, f"{self.method!r} is not re-derived here")
        return math.inf

    def _worst(self) -> float:
        """Require the claim of each part on its own: a record is in one of them only."""
        for entry in self.entries:
            found = self._confirm(entry)((self.epsilon, self.delta))
            met = found == (self.epsilon, self.delta)
            detail = f"epsilon {rounded_up(self.epsilon, 9)} at delta {self.delta:g}"
            self.ledger.require(f"claim of{entry.where}", met, detail)
        return self.epsilon

    def _basic(self) -> float:
        """Add up what was confirmed, exactly."""
        epsilons, deltas = Fraction(0), Fraction(0)
        for entry in self.entries:
            row = self._confirmed_rows(entry)[-1]
            epsilons += entry.count * Fraction(row[0])
            deltas += entry.count * Fraction(row[1])
        within = deltas <= Fraction(self.delta)
        self.ledger.require(f"deltas{self.where}", within, f"add up to {float(deltas):.9g}")
        met = epsilons <= Fraction(self.epsilon)
        return self.epsilon if met else float(epsilons) * (1 + 1e-15)

    def _gaussian(self) -> float:
        squares = sum(entry.count * self._mu(entry) ** 2 for entry in self.entries)
        return gaussian_epsilon(math.sqrt(squares) * ROUNDED, self.delta)

    def _composed(self) -> float:
        """Compose what was confirmed."""
        return composed_epsilon(self._rows(), self.epsilon, self.delta).epsilon

    def _rows(self) -> Rows:
        """Return the product of all confirmed laws; Gaussian ones are one Gaussian."""
        pairs: dict[LossPair, float] = {}
        squares, failing = 0.0, 0.0
        for entry in self.entries:
            kind = _kind(entry)
            if kind == "gaussian":
                squares += entry.count * self._mu(entry) ** 2
            elif kind == "table":
                table = TableLoss.of(self._confirmed_rows(entry))
                pairs[table] = pairs.get(table, 0.0) + entry.count
            else:
                product = self._product(entry)
                failing += entry.count * product.extra
                for pair, count in zip(product.pairs, product.counts[0].tolist(), strict=True):
                    if count:
                        pairs[pair] = pairs.get(pair, 0.0) + entry.count * count
        if squares > 0:
            pairs[GaussianPair(math.sqrt(squares) * ROUNDED)] = 1.0
        # Each failure is a mass at infinite loss beside a whole law: prod (1 + x) - 1 in all.
        extra = math.expm1(failing * (1 + 1e-12))
        return Rows.product(list(pairs.items()), extra)

    def _mu(self, entry: _Entry) -> float:
        """Return the law's mu, not below the part's own."""
        law = _law(entry)
        self.ledger.require(f"law of{entry.where}", _kind(entry) == "gaussian", "is a Gaussian one")
        mu = reading.number(law, "mu")
        own = self._own_mu(entry)
        met = own is not None and mu >= own
        detail = f"mu {mu:.9g}, derived {'none' if own is None else format(own, '.9g')}"
        self.ledger.require(f"law of{entry.where}", met, detail)
        return mu

    def _own_mu(self, entry: _Entry) -> float | None:
        if entry.kind == reading.FOREIGN:
            declared = reading.record(entry.content, "law")
            return reading.number(declared, "mu") if declared.get("kind") == "gaussian" else None
        if entry.kind == reading.CERTIFICATE:
            return self._certificate(entry)[2].mu
        inner = self._inner(entry)
        mus = [(inner._own_mu(child), child.count) for child in inner.entries]
        known = [(mu, count) for mu, count in mus if mu is not None]
        if len(known) < len(mus):
            return None
        if inner.disjoint:
            return max(mu for mu, _ in known)
        return math.sqrt(math.fsum(count * mu**2 for mu, count in known))

    def _product(self, entry: _Entry) -> Rows:
        """Return the pairs of a certificate whose proof is one product of them."""
        is_certificate = entry.kind == reading.CERTIFICATE and _kind(entry) == "pairs"
        self.ledger.require(f"law of{entry.where}", is_certificate, "pairs of a certificate")
        rows = self._certificate(entry)[2].rows
        single = rows is not None and rows.weights == (1.0,)
        self.ledger.require(f"law of{entry.where}", single, "the proof is one product of pairs")
        assert rows is not None
        return rows

    def _confirmed_rows(self, entry: _Entry) -> list[Row]:
        """Return the rows of a law's table, raised where less than they say is proved.

        At epsilon 0 a row is not needed: the others imply one.
        """
        law = _law(entry)
        self.ledger.require(f"law of{entry.where}", _kind(entry) == "table", "is a table")
        epsilons, deltas = reading.numbers(law, "epsilons"), reading.numbers(law, "deltas")
        same = len(epsilons) == len(deltas)
        self.ledger.require(f"table of{entry.where}", same, "one delta for each epsilon")
        confirm, kept, raised = self._confirm(entry), [], 0
        for row in zip(epsilons, deltas, strict=True):
            sensible = row[0] >= 0 and 0 <= row[1] <= 1
            found = confirm(row) if sensible else None
            if found is not None:
                kept.append(found)
                raised += found != row
            elif row[0] != 0:
                detail = f"delta {row[1]:.6g} at epsilon {row[0]:.6g} is not confirmed"
                self.ledger.require(f"table of{entry.where}", False, detail)
        detail = f"{len(kept)} rows confirmed, {raised} of them raised"
        self.ledger.require(f"table of{entry.where}", bool(kept), detail)
        return kept

    def _confirm(self, entry: _Entry) -> Confirm:
        """Return what proves rows (epsilon, delta) of one part."""
        kind = entry.kind
        if kind == reading.FOREIGN:
            return _declared(reading.record(entry.content, "law"))
        if kind == reading.CERTIFICATE:
            return _derived_rows(*self._certificate(entry))
        return self._inner(entry)._confirm_all()

    def _confirm_all(self) -> Confirm:
        """Return what proves rows of the composition as a whole."""
        if self.disjoint:
            return _for_every([self._confirm(entry) for entry in self.entries])
        if self.method not in ("PLD composition", "GDP composition"):
            return _claimed_or(self.epsilon, self.delta, lambda _: None)
        found = composed_epsilon(self._rows(), self.epsilon, self.delta)
        return _claimed_or(self.epsilon, self.delta, _near_rows(found.near))

    def _inner(self, entry: _Entry) -> _Node:
        """Return a composition inside this one, its own claim confirmed."""
        place = self.entries.index(entry)
        if place not in self._known:
            inner = _Node(entry.part, self.ledger, entry.where, self.depth + 1)
            detail = f"epsilon {rounded_up(inner.epsilon, 9)} at delta {inner.delta:g}"
            met = inner.derived() <= inner.epsilon
            self.ledger.require(f"claim of{entry.where}", met, detail)
            self._known[place] = inner
        known: _Node = self._known[place]
        return known

    def _certificate(self, entry: _Entry) -> tuple[Case, str, Derived]:
        """Verify a certificate as it would be on its own, and return what was derived."""
        place = self.entries.index(entry)
        if place not in self._known:
            try:
                self._known[place] = examined(entry.part, Ledger())
            except Refused as problem:
                self.ledger.require(f"certificate of{entry.where}", False, str(problem))
            derived = self._known[place][2]
            detail = f"derived {rounded_up(derived.epsilon, 9)} ({derived.how})"
            self.ledger.require(f"certificate of{entry.where}", True, detail)
        case, name, derived = self._known[place]
        return case, name, derived


def _entry(item: Any, where: str) -> _Entry:
    if not isinstance(item, dict):
        raise Malformed(f"{where.strip()} must be an object")
    part, law = reading.record(item, "part"), reading.entry(item, "law")
    if part.get("kind") not in (reading.CERTIFICATE, reading.FOREIGN, reading.COMPOSITION):
        raise Malformed(f"{where.strip()} is of no kind that can be composed")
    if law is not None and not isinstance(law, dict):
        raise Malformed(f"the law of {where.strip()} must be an object")
    return _Entry(where, reading.whole(item, "count", 1), part, law)


def _law(entry: _Entry) -> Found:
    if entry.law is None:
        raise Malformed(f"{entry.where.strip()} has no law")
    return entry.law


def _kind(entry: _Entry) -> str:
    return reading.word(_law(entry), "kind")


def _relation(part: Found) -> tuple[str, str]:
    """Return which neighbors a part speaks of, and the unit in which they differ."""
    content = reading.record(part, "content")
    if part["kind"] == reading.COMPOSITION:
        inner = {_relation(_entry(item, "a part").part) for item in reading.rows(content, "parts")}
        return inner.pop() if len(inner) == 1 else ("different", "relations")
    if part["kind"] == reading.FOREIGN:
        return reading.word(content, "neighbors"), reading.word(content, "unit")
    run = reading.record(content, "run")
    size = reading.whole(run, "group_size", 1) if "group_size" in run else 1
    return reading.word(run, "neighbors"), "record" if size == 1 else f"group of {size} records"


def _for_every(confirms: list[Confirm]) -> Confirm:
    """Return rows that hold for each of several parts."""

    def confirm(row: Row) -> Row | None:
        for one in confirms:
            found = one(row)
            if found is None:
                return None
            row = found
        return row

    return confirm


def _declared(law: Found) -> Confirm:
    """Return the rows of a part that somebody else answers for: those of its stated law."""
    if reading.word(law, "kind") == "gaussian":
        return _gaussian_rows(reading.number(law, "mu"))
    columns = reading.numbers(law, "epsilons"), reading.numbers(law, "deltas")
    rows = list(zip(*columns, strict=True))
    table = TableLoss.of(rows)

    def stated(row: Row) -> Row:
        if any(epsilon <= row[0] and delta <= row[1] for epsilon, delta in rows):
            return row
        return _raised(row, float(table.deltas(np.array(row[0]), 0)))

    return stated


def _derived_rows(case: Case, name: str, derived: Derived) -> Confirm:
    """Return the rows of a certificate: its own claim, its curves, or the theorem once more."""

    def again(row: Row) -> Row | None:
        epsilon, delta = row
        if delta == 1:
            return row
        # Grids are refined until a claim is nearly met: ask for a little less than is needed.
        for asked in (epsilon * (1 - 1e-3), epsilon):
            there = replace(case, epsilon=asked, delta=delta, ledger=Ledger())
            found = rederived(there, name).epsilon
            if math.isfinite(found):
                return max(epsilon, found), delta
        return None

    if derived.mu is not None:
        return _gaussian_rows(derived.mu)
    known = again if derived.near is None else _near_rows(derived.near)
    return _claimed_or(case.epsilon, case.delta, known)


def _gaussian_rows(mu: float) -> Confirm:
    def exact(row: Row) -> Row:
        return _raised(row, float(gaussian_delta(row[0], mu)) * (1 + 1e-15))

    return exact


def _claimed_or(epsilon: float, delta: float, known: Confirm) -> Confirm:
    """Let a claim that was confirmed before stand for itself."""
    return lambda row: row if row[0] >= epsilon and row[1] >= delta else known(row)


def _near_rows(near: Callable[[float, float], Curve]) -> Confirm:
    """Return rows by upper bounds that are sharp near a point, kept for the points around."""
    kept: list[tuple[float, Curve]] = []

    def confirm(row: Row) -> Row | None:
        epsilon, delta = row
        around = [(point, curve(epsilon)) for point, curve in kept[-2:]]
        best = min((found for _, found in around), default=math.inf)
        if best <= delta or any(point <= epsilon <= STRIDE * point for point, _ in around):
            return _raised(row, best)
        try:
            kept.append((epsilon, near(epsilon, max(delta, 1e-300))))
        except ArithmeticError:
            return None
        return _raised(row, min(best, kept[-1][1](epsilon)))

    return confirm


def _raised(row: Row, delta: float) -> Row:
    """Return the row with at least this delta; whatever is no number counts as one."""
    return row[0], max(row[1], delta) if delta <= 1 else 1.0
