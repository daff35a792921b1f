"""What a bound is: a theorem that knows when it applies, what it gives, and where it is from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from dplateau.algorithms import AllIterates, LastIterate, Poisson, Release, Run, Schedule, Scheme
from dplateau.curves import PrivacyCurve
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray, IntArray

# JSON-ready numbers that single out one proof among those a theorem allows: its free choices and
# what was derived from them. Every feasible witness is a valid proof, so it may come from anywhere.
Witness = Mapping[str, Any]
# Where planning for a group stops following the theory: beyond, no claim is of use.
_LARGEST_EPSILON, _LEAST_DELTA = 30.0, 1e-200

# Margins of claims that are composed on a grid of losses, or are the best of some Rényi orders.
COMPOSED_MARGIN = 2e-3
RENYI_MARGIN = 1e-6


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
    # Which release the statement is about (one about all iterates also covers the others).
    hidden_state: ClassVar[bool] = False
    hides: ClassVar[Release] = LastIterate()
    # Which probabilities of joining a Poisson batch the statement reads.
    rates: ClassVar[Literal["b / n", "constant", "per step"]] = "b / n"

    # Whether the theorem itself speaks of several records; else group privacy extends it.
    knows_groups: ClassVar[bool] = False

    @abstractmethod
    def missing(self, run: Run) -> str | None:
        """Return why the theorem says nothing about ``run``, in a user's words, or None."""

    def refusal(self, run: Run) -> str | None:
        """Return :meth:`missing`, after checking that the theorem is about this kind of release."""
        try:
            return self._refusal(self._asked(run))
        except NotApplicable as reason:  # what the theorem would read is not there
            return str(reason)

    def _asked(self, run: Run) -> Run:
        """Return the run that the theorem itself is asked about."""
        return run if self.knows_groups else for_one_record(run)

    def _refusal(self, run: Run) -> str | None:
        if self.hidden_state and run.release == AllIterates():
            return "needs hidden iterates (release='last'); yours releases all of them"
        if self.hidden_state and run.release != self.hides:
            return f"is about release={self.hides.name!r}; yours is {run.release.name!r}"
        if self.hidden_state and not run.is_plain:
            return (
                "is about the last iterate of plain steps; yours has momentum or averages iterates "
                "(composition covers both)"
            )
        return self._wrong_rates(run) or self.missing(run)

    def _wrong_rates(self, run: Run) -> str | None:
        if not (isinstance(run.batches, Poisson) and run.has_own_rate):
            return None
        if isinstance(run.batches.rate, Schedule) and self.rates != "per step":
            return (
                "needs the same learning rate, noise and sampling rate at every step; yours has a "
                "schedule of sampling rates (pld_composition and rdp_composition read it)"
            )
        if self.rates == "b / n":
            return (
                "needs records that join each batch with probability batch_size / n; yours join "
                f"with {run.batches.rate:g} (pld_composition and rdp_composition read it)"
            )
        return None

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
        return float(self.claims(np.array(epsilon)))

    def claims(self, epsilons: FloatArray) -> FloatArray:
        """Return :meth:`claim` of each epsilon."""
        return np.asarray(epsilons + self.claim_margin * np.maximum(epsilons, 1e-3))

    # What callers use: the same three for any group size. Every neighbour in a chain of group_size
    # single changes is covered by the theorem, and group privacy adds up the chain.

    def plan_for(self, run: Run, delta: float, near: Witness | None = None) -> Witness:
        """Return choices for a claim at ``delta`` about ``run``, whatever its group size.

        With the choices for a run much like it as ``near``, they take less time.
        """
        one, level = self._asked(run), delta
        if one.group_size < run.group_size:
            level = delta / run.group_size
            first = self._chosen(one, level, near)
            epsilon = self.curve(one, first).epsilon(level)
            # A group is (k eps, delta sum_j e^(j eps))-private if a record is (eps, delta)-private.
            steps = np.arange(run.group_size) * min(epsilon, _LARGEST_EPSILON)
            level = max(delta / float(np.exp(steps).sum()), _LEAST_DELTA)
        return self._chosen(one, level, near)

    def _chosen(self, run: Run, delta: float, near: Witness | None) -> Witness:
        return self.plan(run, delta) if near is None else self.replan(run, delta, near)

    def curve_for(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the claim about ``run``, whatever its group size."""
        one = self._asked(run)
        return self.curve(one, witness).group(run.group_size // one.group_size)

    def epsilon_over_steps_for(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Return :meth:`epsilon_over_steps`, whatever the group size."""
        if self._asked(run) == run:
            return self.epsilon_over_steps(run, delta, steps)
        return Bound.epsilon_over_steps(self, run, delta, steps)

    def assumptions_for(self, run: Run) -> tuple[Assumption, ...]:
        """Return :meth:`assumptions`, whatever the group size."""
        return self.assumptions(self._asked(run))

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Return an epsilon for each number of steps, ``run`` being otherwise the same.

        The default certifies each length on its own; bounds that can share work override it.
        """
        found = np.full(steps.shape, np.inf)
        for i, count in enumerate(steps):
            shorter = run.replace(steps=int(count))
            if self.refusal(shorter) is None:
                witness = self.plan_for(shorter, delta)
                found[i] = self.curve_for(shorter, witness).epsilon(delta)
        return found

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return what the theorem adds to the assumptions that every claim makes."""
        return ()


def for_one_record(run: Run) -> Run:
    """Return ``run`` with neighbours one record apart, valid anywhere in a chain of such changes.

    In a chain of absent records all but the last are missing from both neighbours, and so is the
    curvature that they would have brought: it is left out of what the losses promise.
    """
    if run.group_size == 1:
        return run
    loss = run.loss
    if loss is not None and run.neighbors == "add_remove":
        loss = replace(loss, strong_convexity=0.0, dissipativity=None)
    return run.replace(group_size=1, loss=loss)


def why_not_about(run: Run, *schemes: Scheme) -> str | None:
    """Return which batches a theorem is about, if not those of ``run``."""
    if isinstance(run.batches, schemes):
        return None
    named = " or ".join(scheme.described for scheme in schemes)
    return f"is about {named}; yours is {run.described}"


@runtime_checkable
class KnowsRecords(Protocol):
    """A bound that tells the records of an ordered run apart by their position."""

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        """Return the curve of a record in the batch ``position`` (from 0) of each epoch."""
        ...
