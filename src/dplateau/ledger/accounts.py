"""What the rows of a ledger say: its settings, what was spent, and what is left."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dplateau.certificates import Certificate, ForeignPart
from dplateau.certificates.composition import NEIGHBORS, Part, unit_of
from dplateau.errors import DplateauError, InvalidInput, LedgerBroken
from dplateau.ground import checks
from dplateau.ledger.book import Row
from dplateau.ledger.filters import (
    FILTERS,
    Budget,
    Filter,
    Terms,
    exact,
    filter_named,
    left_of,
)


@dataclass(frozen=True)
class Settings:
    """What was fixed when the ledger was made; ``planned`` counts the parts fixed in advance."""

    budget: Budget
    neighbors: str
    group_size: int
    filter: Filter | None
    planned: Counter[str] = field(default_factory=Counter)

    @property
    def unit(self) -> str:
        """What one neighbor more or less is, in words."""
        return unit_of(self.group_size)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-ready data."""
        chosen = self.filter
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "delta_share": self.budget.share,
            "neighbors": self.neighbors,
            "group_size": self.group_size,
            "filter": None if chosen is None else chosen.name,
            "order": None if chosen is None else chosen.order,
            "planned": dict(self.planned),
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Settings:
        """Read what :meth:`to_dict` returned."""
        planned = document.get("planned")
        if not isinstance(planned, dict):
            raise InvalidInput("the planned parts of a ledger are a JSON object")
        name = document.get("filter")
        return cls(
            budget=budget_of(*(document.get(part) for part in ("epsilon", "delta", "delta_share"))),
            neighbors=checks.choice("neighbors", document.get("neighbors"), NEIGHBORS),
            group_size=checks.whole("group_size", document.get("group_size")),
            filter=None if name is None else filter_named(name, document.get("order")),
            planned=Counter({key: checks.whole("count", n) for key, n in planned.items()}),
        )


def budget_of(epsilon: object, delta: object, share: object) -> Budget:
    """Return the budget, or say what is wrong with it."""
    kept = checks.level("delta_share", share)
    return Budget(checks.positive("epsilon", epsilon), checks.level("delta", delta), kept)


def chosen_filter(name: object, order: object, budget: Budget) -> Filter | None:
    """Return the filter that was asked for; None lets the first part decide."""
    if name is None or name == "auto":
        if order is not None:
            raise InvalidInput("an order is about one filter: pass filter='renyi' with it")
        return None
    checks.choice("filter", name, ("auto", *FILTERS))
    if budget.delta == 0 and name != "pure":
        raise InvalidInput(
            f"delta = 0 leaves nothing to the filter {name!r}; use filter='pure' (epsilons add up) "
            "or a delta above 0"
        )
    return filter_named(name, budget.order if name == "renyi" and order is None else order)


@dataclass(frozen=True)
class Entry:
    """One line of the ledger as people read it.

    ``status`` is "spent", "reserved" (counts as spent) or "refused" (cost nothing). ``amount`` and
    ``delta`` are the cost in the ledger's currency, None for what was planned; ``left`` is the
    share of the whole budget that remains after it.
    """

    number: int
    written: str
    name: str
    what: str
    status: str
    amount: float | None
    delta: float | None
    left: float
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as JSON-ready data."""
        return dict(vars(self))


@dataclass
class Account:
    """The ledger's state: rows read one after the other, each checked against what may follow."""

    settings: Settings
    terms: Terms | None
    head: str
    entries: list[Entry] = field(default_factory=list)
    planned: Counter[str] = field(default_factory=Counter)
    amount_spent: Fraction = Fraction()
    slack_spent: Fraction = Fraction()

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Account:
        """Read all rows; what no ledger writes is refused."""
        first = rows[0]
        try:
            if first.kind != "init":
                raise InvalidInput(f"it begins with {first.kind!r}")
            data = first.data()
            settings, terms = Settings.from_dict(data), data.get("terms")
            fixed = None if terms is None else Terms.from_dict(terms)
            account = cls(settings, fixed, first.digest, planned=Counter(settings.planned))
            for row in rows[1:]:
                account.add(row)
        except LedgerBroken:
            raise
        except (DplateauError, KeyError, TypeError) as error:
            raise LedgerBroken(f"the rows are not those of a ledger: {error}") from None
        return account

    def add(self, row: Row) -> None:
        """Read one row more."""
        data = row.data()
        self.head = row.digest
        if row.kind == "settled":
            self._settle(data["entry"])
            return
        name, what = str(data["name"]), str(data["what"])
        shown = (row.sequence, row.written, name, what)
        if row.kind == "refused":
            entry = Entry(*shown, "refused", None, None, self.left, str(data["reason"]))
            self.entries.append(entry)
            return
        checks.choice("kind", row.kind, ("spent", "reserved"))
        if data.get("terms") is not None:
            if self.terms is not None or data["cost"] is not None:
                raise InvalidInput(f"row {row.sequence} changes the terms")
            self.terms = Terms.from_dict(data["terms"])
            amount = delta = None
        elif data["cost"] is None:
            if self.planned[data["identity"]] < 1:
                raise InvalidInput(f"row {row.sequence} was never planned")
            self.planned[data["identity"]] -= 1
            amount = delta = None
        else:
            amount, delta = (checks.nonnegative(n, data["cost"][n]) for n in ("amount", "delta"))
            if not self.fits(amount, delta):
                raise InvalidInput(f"row {row.sequence} spends more than is left")
            self.amount_spent += exact(amount)
            self.slack_spent += exact(delta)
        self.entries.append(Entry(*shown, row.kind, amount, delta, self.left))

    def _settle(self, number: object) -> None:
        for place, entry in enumerate(self.entries):
            if entry.number == number and entry.status == "reserved":
                self.entries[place] = Entry(**{**vars(entry), "status": "spent"})
                return
        raise InvalidInput(f"entry {number!r} was settled and is not reserved")

    def is_reserved(self, number: int) -> bool:
        """Return whether an entry is reserved and not settled yet."""
        return any(e.number == number and e.status == "reserved" for e in self.entries)

    @property
    def amount_left(self) -> float:
        """What is left of the ledger's currency, rounded down; of nothing before terms are set."""
        return 0.0 if self.terms is None else left_of(self.terms.amount, self.amount_spent)

    @property
    def slack_left(self) -> float:
        """What is left of the share of delta for releases that may fail, rounded down."""
        return 0.0 if self.terms is None else left_of(self.terms.slack, self.slack_spent)

    def fits(self, amount: float, delta: float) -> bool:
        """Return whether a cost is within both limits; the sums are exact."""
        if self.terms is None or not (math.isfinite(amount) and math.isfinite(delta)):
            return False
        within = self.amount_spent + exact(amount) <= exact(self.terms.amount)
        return within and self.slack_spent + exact(delta) <= exact(self.terms.slack)

    @property
    def left(self) -> float:
        """The share of the whole budget that is left to what was not planned."""
        if self.terms is None:
            return 1.0
        return self.amount_left / self.terms.whole if self.terms.whole > 0 else 0.0


def identity_of(part: Part) -> str:
    """Return a digest of what a part runs, whatever is claimed about it and by which proof."""
    text = json.dumps(_executed(part), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _executed(part: Part) -> Any:
    if isinstance(part, Certificate):
        return part.run.to_dict()
    if isinstance(part, ForeignPart):
        return part.to_dict()["content"]
    return {
        "records": part.records,
        "parts": [[entry.count, _executed(entry.part)] for entry in part.entries],
    }


def words_of(part: Part) -> str:
    """Return what a part claims, in one line, epsilons rounded up."""
    if isinstance(part, ForeignPart):
        return f"{part.words} (declared)"
    claim = part.headline
    if isinstance(part, Certificate):
        return f"{claim}, {part.run.kind} by {part.theorem.title}"
    return f"{claim}, {part.releases} parts by {part.method}"
