"""What a bound is: a theorem that knows when it applies, what it gives, and where it is from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from dplateau.algorithms import Run
from dplateau.curves.base import PrivacyCurve
from dplateau.numerics.types import FloatArray, IntArray

# JSON-ready numbers that single out one proof among those a theorem allows: its free choices and
# what was derived from them. Every feasible witness is a valid proof, so it may come from anywhere.
Witness = Mapping[str, Any]

# Margins of claims that are composed on a grid of losses, or are the best of some Rényi orders.
COMPOSED_MARGIN = 2e-3
RENYI_MARGIN = 1e-7


@dataclass(frozen=True)
class Citation:
    """Where a statement stands: paper, version and number."""

    key: str
    authors: str
    title: str
    year: int
    where: str
    statement: str

    def short(self) -> str:
        """Return one line for a table; a proof of this project's own is named by its page."""
        if self.key == "dplateau":
            return self.statement
        return f"{self.authors.split(' and ')[0].split(',')[0]} {self.year}, {self.statement}"

    def bibtex(self) -> str:
        """Return a BibTeX entry."""
        fields = {
            "author": self.authors,
            "title": self.title,
            "year": str(self.year),
            "howpublished": self.where,
            "note": self.statement,
        }
        body = ",\n".join(f"  {name} = {{{text}}}" for name, text in fields.items())
        return f"@misc{{{self.key},\n{body}\n}}"


@dataclass(frozen=True)
class Assumption:
    """Something a claim rests on, and who answers for it.

    "checked": computed from the description. "by construction": a property of the described
    algorithm. "declared": stated by the user and taken on trust.
    """

    text: str
    status: Literal["checked", "by construction", "declared"]


class Bound(ABC):
    """One theorem. Adding a subclass to the registry makes it join every law and attack.

    A bound is split in two so that its claims can be checked by others: :meth:`plan` searches for
    the theorem's free choices (heuristics are welcome), :meth:`curve` evaluates the theorem at
    given choices (no heuristics).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    citation: ClassVar[Citation]
    # Where this project writes the proof down.
    note: ClassVar[str]
    # Bounds that are never worse where they apply: with one of them, choosing may skip this one.
    dominated_by: ClassVar[tuple[str, ...]] = ()
    # Bounds with a gap in their published proof are shown on request and never chosen.
    sound: ClassVar[bool] = True
    # Room above the curve's epsilon for whoever evaluates the proof anew with other roundings. A
    # claim is verified without any tolerance, so the room is part of the claim.
    claim_margin: ClassVar[float] = 1e-9
    # Which releases the statement is about ("all" also covers the others: it hides nothing).
    hidden_state: ClassVar[bool] = False
    releases: ClassVar[tuple[str, ...]] = ("last",)

    @abstractmethod
    def missing(self, run: Run) -> str | None:
        """Return why the theorem says nothing about ``run``, in a user's words, or None."""

    def refusal(self, run: Run) -> str | None:
        """Return :meth:`missing`, after checking that the theorem is about this kind of release."""
        if self.hidden_state and run.release == "all":
            return "needs hidden iterates (release='last'); yours releases all of them"
        if self.hidden_state and run.release not in self.releases:
            return f"is about release={self.releases[0]!r}; yours is {run.release!r}"
        if self.hidden_state and not run.is_plain:
            return (
                "is about the last iterate of plain steps; yours has momentum or averages iterates "
                "(composition covers both)"
            )
        return self.missing(run)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the free choices that make the claim at ``delta`` small."""
        return {}

    def replan(self, run: Run, delta: float, near: Witness) -> Witness:
        """Return choices for a run much like the one that ``near`` is for, in less time.

        They may be a little worse than those of :meth:`plan`, which is the default.
        """
        return self.plan(run, delta)

    @abstractmethod
    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the claim that the theorem proves with these choices."""

    def claim(self, epsilon: float) -> float:
        """Return the epsilon to claim: a margin above the curve's (of epsilons below .001 too)."""
        return epsilon + self.claim_margin * max(epsilon, 1e-3)

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Return an epsilon for each number of steps, ``run`` being otherwise the same.

        The default certifies each length on its own; bounds that can share work override it.
        """
        found = np.full(steps.shape, np.inf)
        for i, count in enumerate(steps):
            shorter = run.replace(steps=int(count))
            if self.refusal(shorter) is None:
                found[i] = self.curve(shorter, self.plan(shorter, delta)).epsilon(delta)
        return found

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return what the theorem adds to the assumptions that every claim makes."""
        return ()


@runtime_checkable
class KnowsRecords(Protocol):
    """A bound that tells the records of an ordered run apart by their position."""

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        """Return the curve of a record in the batch ``position`` (from 0) of each epoch."""
        ...
