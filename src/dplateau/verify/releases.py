"""From a composition of certificates as plain data to a verdict.

Every certificate in it is verified on its own. Then the law that stands for each part is checked:
a Gaussian one against the part's own mu, a table row by row against curves derived here. What was
confirmed is composed by dp-accounting's masses, and the claim must not be below what that gives.
Parts that other software answers for are taken as declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dplateau.algorithms.base import NEIGHBORS
from dplateau.ground.sealed import COMPOSITION, FOREIGN, digest_of
from dplateau.ground.shown import rounded_up
from dplateau.verify import reading
from dplateau.verify.cases import ROUNDED, Case, Derived, rederived
from dplateau.verify.composed import STRIDE, Curve, Rows, composed_epsilon
from dplateau.verify.pairs import GaussianPair, LossPair, TableLoss
from dplateau.verify.precise import gaussian_delta, gaussian_epsilon, up
from dplateau.verify.reading import Entry
from dplateau.verify.report import Examination, Malformed, Refused, Verification, go_on
from dplateau.verify.verdict import examined

_FIXED = "the parts and their settings were fixed before the first release"
_DISJOINT = "the parts use disjoint records, divided without looking at the data"
_MOST_PARTS = 10**6
# Deeper nesting than anyone writes by hand is somebody's attempt to exhaust the stack.
_DEEPEST = 8
Row = tuple[float, float]
# From an (epsilon, delta) to one that is proved: the same, or the next one above it that is known.
Confirm = Callable[[Row], Row | None]


def verify_composition(document: Any, seconds: float) -> Verification:
    """Re-derive the claim of a composition; whatever is wrong with it, the answer is a verdict."""
    examination = Examination()

    def derivation() -> None:
        node = _Node(document, examination, "", 0)
        examination.require_proved(node.epsilon, node.derived(), "composed")

    return Verification(
        ok=examination.settles(derivation, seconds),
        checks=tuple(examination.checks),
        claimed_epsilon=reading.stated(document, "claim", "epsilon"),
        rederived_epsilon=examination.derived,
        bound=reading.stated_text(document, "method"),
    )


@dataclass(frozen=True)
class _Part:
    """A part with its repeats: where it stands, what it is, and the law that stands for it."""

    where: str
    count: int
    document: Entry
    law: Entry

    @classmethod
    def of(cls, item: Entry, where: str) -> _Part:
        part = cls(where, item["count"].whole(1), item["part"], item["law"])
        if part.kind not in (reading.CERTIFICATE, reading.FOREIGN, reading.COMPOSITION):
            raise Malformed(f"{where.strip()} is of no kind that can be composed")
        if part.law.value is not None:
            part.law.record()
        return part

    @property
    def kind(self) -> str:
        return self.document["kind"].word()

    @property
    def content(self) -> Entry:
        return self.document["content"]

    @property
    def law_kind(self) -> str:
        return self.law["kind"].word()


class _Node:
    """One composition, its envelope checked when it is made."""

    def __init__(
        self,
        document: Any,
        examination: Examination,
        where: str,
        depth: int,
        verified: dict[str, tuple[Case, str, Derived]] | None = None,
    ) -> None:
        self.examination, self.where, self.depth = examination, where, depth
        # By digest, in this composition and those inside: equal certificates are verified once.
        self.verified = {} if verified is None else verified
        examination.require(f"nesting{where}", depth <= _DEEPEST, f"at most {_DEEPEST} levels")
        self.content = reading.require_envelope(document, COMPOSITION, examination, where)
        self.epsilon, self.delta = reading.claim(self.content, examination, where)
        self.method, records = self.content["method"].word(), self.content["records"].word()
        examination.require(f"records{where}", records in ("same", "disjoint"), f"{records!r}")
        self.disjoint = records == "disjoint"
        self.parts = [
            _Part.of(item, f"{where} part {i}")
            for i, item in enumerate(self.content["parts"].rows(), 1)
        ]
        for part in self.parts:
            if part.kind == reading.FOREIGN:
                reading.require_envelope(part.document.value, FOREIGN, examination, part.where)
                self._require_law(part)
        total = sum(part.count for part in self.parts)
        examination.require(f"parts{where}", total <= _MOST_PARTS, f"{total} parts")
        self._require_one_relation()
        self._require_assumptions()
        self._known: dict[int, Any] = {}

    def _require_law(self, part: _Part) -> None:
        """Require that what somebody else answers for is a law about neighbors that there are."""
        content, law = part.content, part.content["law"]
        known = content["neighbors"].word() in NEIGHBORS
        self.examination.require(
            f"neighbors{part.where}", known, f"{content['neighbors'].word()!r}"
        )
        content["name"].word()
        kind = law["kind"].word()
        if kind == "gaussian":
            sensible, detail = law["mu"].number() >= 0, f"mu {law['mu'].number():.9g}"
        else:
            rows = _table(law)
            sensible = kind == "table" and all(e >= 0 and 0 <= d <= 1 for e, d in rows)
            detail = f"a {kind} of {len(rows)} rows"
        self.examination.require(f"law{part.where}", sensible, detail)

    def _require_one_relation(self) -> None:
        relations = {_relation(part.document) for part in self.parts}
        detail = ", ".join(" by ".join(relation) for relation in sorted(relations))
        self.examination.require(f"neighbors{self.where}", len(relations) == 1, detail)
        # A larger unit may have records in several of the disjoint parts.
        single = all(unit == "record" for _, unit in relations)
        self.examination.require(f"units{self.where}", single or not self.disjoint, detail)

    def _require_assumptions(self) -> None:
        """Require that nothing a part rests on was left out, nor who answers for it changed."""
        stated = _assumed(self.content)
        needed = {(_FIXED, "declared")} | ({(_DISJOINT, "declared")} if self.disjoint else set())
        for part in self.parts:
            if part.kind != reading.FOREIGN:
                needed |= _assumed(part.content)
        missing = sorted(needed - stated)
        detail = "complete"
        if missing:
            text, status = missing[0]
            detail = f"it lacks {text!r} ({status})"
        self.examination.require(f"assumptions{self.where}", not missing, detail)

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
        self.examination.require(
            f"method{self.where}", False, f"{self.method!r} is not re-derived here"
        )
        return math.inf

    def _worst(self) -> float:
        """Require the claim of each part on its own: a record is in one of them only."""
        for part in self.parts:
            met = self._confirm(part)((self.epsilon, self.delta)) == (self.epsilon, self.delta)
            detail = f"epsilon {rounded_up(self.epsilon, 9)} at delta {rounded_up(self.delta)}"
            self.examination.require(f"claim of{part.where}", met, detail)
        return self.epsilon

    def _basic(self) -> float:
        """Add up what was confirmed, exactly."""
        epsilons, deltas = Fraction(0), Fraction(0)
        for part in self.parts:
            row = self._confirmed_rows(part)[-1]
            epsilons += part.count * Fraction(row[0])
            deltas += part.count * Fraction(row[1])
        within = deltas <= Fraction(self.delta)
        self.examination.require(f"deltas{self.where}", within, f"add up to {float(deltas):.9g}")
        met = epsilons <= Fraction(self.epsilon)
        return self.epsilon if met else float(epsilons) * (1 + 1e-15)

    def _gaussian(self) -> float:
        squares = sum(part.count * self._mu(part) ** 2 for part in self.parts)
        return gaussian_epsilon(math.sqrt(squares) * ROUNDED, self.delta)

    def _composed(self) -> float:
        """Compose what was confirmed."""
        return composed_epsilon(self._rows(), self.epsilon, self.delta).epsilon

    def _rows(self) -> Rows:
        """Return the product of all confirmed laws; Gaussian ones are one Gaussian."""
        pairs: dict[LossPair, float] = {}
        squares, failing = 0.0, 0.0
        for part in self.parts:
            kind = part.law_kind
            if kind == "gaussian":
                squares += part.count * self._mu(part) ** 2
            elif kind == "table":
                table = TableLoss.of(self._confirmed_rows(part))
                pairs[table] = pairs.get(table, 0.0) + part.count
            else:
                product = self._product(part)
                failing += part.count * product.extra
                for pair, count in zip(product.pairs, product.counts[0].tolist(), strict=True):
                    if count:
                        pairs[pair] = pairs.get(pair, 0.0) + part.count * count
        if squares > 0:
            pairs[GaussianPair(math.sqrt(squares) * ROUNDED)] = 1.0
        # Each failure is a mass at infinite loss beside a whole law: prod (1 + x) - 1 in all.
        extra = math.expm1(failing * (1 + 1e-12))
        return Rows.product(list(pairs.items()), extra)

    def _mu(self, part: _Part) -> float:
        """Return the law's mu, not below the part's own."""
        gaussian = part.law_kind == "gaussian"
        self.examination.require(f"law of{part.where}", gaussian, "is a Gaussian one")
        mu = part.law["mu"].number()
        own = self._own_mu(part)
        met = own is not None and mu >= own
        detail = f"mu {mu:.9g}, derived {'none' if own is None else format(own, '.9g')}"
        self.examination.require(f"law of{part.where}", met, detail)
        return mu

    def _own_mu(self, part: _Part) -> float | None:
        if part.kind == reading.FOREIGN:
            law = part.content["law"]
            return law["mu"].number() if law["kind"].word() == "gaussian" else None
        if part.kind == reading.CERTIFICATE:
            return self._certificate(part)[2].mu
        inner = self._inner(part)
        mus = [(inner._own_mu(child), child.count) for child in inner.parts]
        known = [(mu, count) for mu, count in mus if mu is not None]
        if len(known) < len(mus):
            return None
        if inner.disjoint:
            return max(mu for mu, _ in known)
        return math.sqrt(math.fsum(count * mu**2 for mu, count in known))

    def _product(self, part: _Part) -> Rows:
        """Return the pairs of a certificate whose proof is one product of them."""
        is_certificate = part.kind == reading.CERTIFICATE and part.law_kind == "pairs"
        self.examination.require(f"law of{part.where}", is_certificate, "pairs of a certificate")
        rows = self._certificate(part)[2].rows
        single = rows is not None and rows.weights == (1.0,)
        self.examination.require(f"law of{part.where}", single, "the proof is one product of pairs")
        assert rows is not None
        return rows

    def _confirmed_rows(self, part: _Part) -> list[Row]:
        """Return the rows of a law's table, raised where less than they say is proved.

        At epsilon 0 a row is not needed: the others imply one.
        """
        self.examination.require(f"law of{part.where}", part.law_kind == "table", "is a table")
        columns = part.law["epsilons"].numbers(), part.law["deltas"].numbers()
        same = len(columns[0]) == len(columns[1])
        self.examination.require(f"table of{part.where}", same, "one delta for each epsilon")
        confirm, kept, raised = self._confirm(part), [], 0
        for row in zip(*columns, strict=True):
            go_on()
            sensible = row[0] >= 0 and 0 <= row[1] <= 1
            proved = confirm(row) if sensible else None
            if proved is not None:
                kept.append(proved)
                raised += proved != row
            elif row[0] != 0:
                detail = f"delta {row[1]:.6g} at epsilon {row[0]:.6g} is not confirmed"
                self.examination.require(f"table of{part.where}", False, detail)
        detail = f"{len(kept)} rows confirmed, {raised} of them raised"
        self.examination.require(f"table of{part.where}", bool(kept), detail)
        return kept

    def _confirm(self, part: _Part) -> Confirm:
        """Return what proves rows (epsilon, delta) of one part."""
        if part.kind == reading.FOREIGN:
            return _declared(part.content["law"])
        if part.kind == reading.CERTIFICATE:
            return _derived_rows(*self._certificate(part))
        return self._inner(part)._confirm_all()

    def _confirm_all(self) -> Confirm:
        """Return what proves rows of the composition as a whole."""
        if self.disjoint:
            return _for_every([self._confirm(part) for part in self.parts])
        if self.method not in ("PLD composition", "GDP composition"):
            return _claimed_or(self.epsilon, self.delta, lambda _: None)
        composed = composed_epsilon(self._rows(), self.epsilon, self.delta)
        return _claimed_or(self.epsilon, self.delta, _near_rows(composed.near))

    def _inner(self, part: _Part) -> _Node:
        """Return a composition inside this one, its own claim confirmed."""
        place = self.parts.index(part)
        if place not in self._known:
            inner = _Node(
                part.document.value, self.examination, part.where, self.depth + 1, self.verified
            )
            detail = f"epsilon {rounded_up(inner.epsilon, 9)} at delta {rounded_up(inner.delta)}"
            met = inner.derived() <= inner.epsilon
            self.examination.require(f"claim of{part.where}", met, detail)
            self._known[place] = inner
        known: _Node = self._known[place]
        return known

    def _certificate(self, part: _Part) -> tuple[Case, str, Derived]:
        """Verify a certificate as it would be on its own, and return what was derived."""
        place = self.parts.index(part)
        if place not in self._known:
            digest = digest_of(part.document.record())
            try:
                if digest not in self.verified:
                    self.verified[digest] = examined(part.document.value, Examination())
                self._known[place] = self.verified[digest]
            except Refused as problem:
                self.examination.require(f"certificate of{part.where}", False, str(problem))
            derived = self._known[place][2]
            detail = f"derived {rounded_up(derived.epsilon, 9)} ({derived.how})"
            self.examination.require(f"certificate of{part.where}", True, detail)
        case, name, derived = self._known[place]
        return case, name, derived


def _assumed(content: Entry) -> set[tuple[str, str]]:
    items = content["assumptions"].rows()
    return {(item["text"].word(), item["status"].word()) for item in items}


def _table(law: Entry) -> list[Row]:
    epsilons, deltas = law["epsilons"].numbers(), law["deltas"].numbers()
    if len(epsilons) != len(deltas):
        raise Malformed("a table needs one delta for each epsilon")
    return list(zip(epsilons, deltas, strict=True))


def _relation(document: Entry) -> tuple[str, str]:
    """Return which neighbors a part speaks of, and the unit in which they differ."""
    kind, content = document["kind"].word(), document["content"]
    if kind == reading.COMPOSITION:
        inner = {_relation(item["part"]) for item in content["parts"].rows()}
        return inner.pop() if len(inner) == 1 else ("different", "relations")
    if kind == reading.FOREIGN:
        return content["neighbors"].word(), content["unit"].word()
    run = content["run"]
    size = run["group_size"].whole(1) if "group_size" in run else 1
    return run["neighbors"].word(), "record" if size == 1 else f"group of {size} records"


def _for_every(confirms: list[Confirm]) -> Confirm:
    """Return rows that hold for each of several parts."""

    def confirm(row: Row) -> Row | None:
        for one in confirms:
            proved = one(row)
            if proved is None:
                return None
            row = proved
        return row

    return confirm


def _declared(law: Entry) -> Confirm:
    """Return the rows of a part that somebody else answers for: those of its stated law."""
    if law["kind"].word() == "gaussian":
        return _gaussian_rows(law["mu"].number())
    rows = _table(law)
    table = TableLoss.of(rows)

    def stated(row: Row) -> Row:
        if any(epsilon <= row[0] and delta <= row[1] for epsilon, delta in rows):
            return row
        return _raised(row, float(table.deltas(np.array(row[0]), 0)))

    return stated


def _derived_rows(case: Case, name: str, derived: Derived) -> Confirm:
    """Return the rows of a certificate: its own claim, its curves, or the theorem once more."""

    def derived_anew(row: Row) -> Row | None:
        epsilon, delta = row
        if delta == 1:
            return row
        # Grids are refined until a claim is nearly met: ask for a little less than is needed.
        for asked in (epsilon * (1 - 1e-3), epsilon):
            there = replace(case, epsilon=asked, delta=delta, examination=Examination())
            # A theorem may refuse a delta, and grids may not reach it: such a row is not confirmed.
            with suppress(Refused, ArithmeticError):
                again = rederived(there, name).epsilon
                if math.isfinite(again):
                    return max(epsilon, again), delta
        return None

    if derived.mu is not None:
        return _gaussian_rows(derived.mu)
    known = derived_anew if derived.near is None else _near_rows(derived.near)
    return _claimed_or(case.epsilon, case.delta, known)


def _gaussian_rows(mu: float) -> Confirm:
    def exact(row: Row) -> Row:
        return _raised(row, up(gaussian_delta(row[0], mu)))

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
        best = min((value for _, value in around), default=math.inf)
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
