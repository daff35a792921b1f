"""What a bound is: a theorem that knows when it applies, what it gives, and where it is from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from dplateau.algorithms import (
    AllIterates,
    Checkpoints,
    Cyclic,
    FixedSize,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    RandomStop,
    Run,
    refuse_batches,
    refuse_release,
)
from dplateau.bounds.conditions import AnyIterates, Condition, Needs, RatesOfBatches, first_unmet
from dplateau.bounds.literature import Citation
from dplateau.curves import PrivacyCurve
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
class Assumption:
    """Something a claim rests on, and who answers for it.

    "checked": computed from the description. "by construction": a property of the described
    algorithm. "declared": stated by the user and taken on trust.
    """

    text: str
    status: Literal["checked", "by construction", "declared"]

    def to_dict(self) -> dict[str, str]:
        """Return JSON-ready data."""
        return {"text": self.text, "status": self.status}


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
    # What may leave: None if the statement is about releasing everything, which covers any release.
    # It has no default, so that no bound covers a release by mistake.
    release: ClassVar[Condition | None]
    # What else the theorem asks of a run, in the order of asking.
    needs: ClassVar[Needs]
    # Which probabilities of joining a Poisson batch the statement reads: None if any, by schedule.
    rates: ClassVar[Condition | None] = RatesOfBatches()
    # Whether the theorem itself speaks of several records; else group privacy extends it.
    knows_groups: ClassVar[bool] = False

    @property
    def hidden_state(self) -> bool:
        """Return whether the statement needs iterates that nobody sees."""
        return self.release is not None

    def refusal(self, run: Run) -> str | None:
        """Return why the theorem says nothing about ``run``, in a user's words, or None."""
        asked = (self.release or AnyIterates(), self.rates, *self.needs)
        return first_unmet((one for one in asked if one is not None), self._asked(run))

    def _asked(self, run: Run) -> Run:
        """Return the run that the theorem itself is asked about."""
        return run if self.knows_groups else for_one_record(run)

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

    # What callers use: the same three for any group size. Every neighbor in a chain of group_size
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
        epsilons = np.full(steps.shape, np.inf)
        for i, count in enumerate(steps):
            shorter = run.replace(steps=int(count))
            if self.refusal(shorter) is None:
                witness = self.plan_for(shorter, delta)
                epsilons[i] = self.curve_for(shorter, witness).epsilon(delta)
        return epsilons

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return what the theorem adds to the assumptions that every claim makes."""
        return ()


def for_one_record(run: Run) -> Run:
    """Return ``run`` with neighbors one record apart, valid anywhere in a chain of such changes.

    In a chain of absent records all but the last are missing from both neighbors, and so is the
    curvature that they would have brought: it is left out of what the losses promise.
    """
    if run.group_size == 1:
        return run
    loss = run.loss
    if loss is not None and run.neighbors == "add_remove":
        loss = replace(loss, strong_convexity=0.0, dissipativity=None)
    return run.replace(group_size=1, loss=loss)


def base_assumptions(run: Run) -> tuple[Assumption, ...]:
    """Return what every claim about ``run`` rests on."""
    texts = (
        "no record's gradient is longer than the Lipschitz constant",
        "n and the batch size that steps divide by are public constants",
        "start, schedule and number of steps do not depend on the data",
        f"{run.noise_kind.capitalize()} noise, fresh and independent at every step",
        "real-number arithmetic: floating-point leaks are outside the claim",
    )
    always = (Assumption(text, "declared") for text in texts)
    return (*always, *_about_persons(run), *_about_batches(run), *_about_release(run))


def _about_persons(run: Run) -> tuple[Assumption, ...]:
    text = f"no person has more than {run.group_size} records"
    return (Assumption(text, "declared"),) if run.group_size > 1 else ()


def _about_batches(run: Run) -> tuple[Assumption, ...]:
    match run.batches:
        case Poisson():
            chance = "the stated probability" if run.has_own_rate else "probability b / n"
            text = f"each record joins each batch independently with {chance}"
            return (Assumption(text, "declared"),)
        case FixedSize():
            text = "each batch is a uniformly random set of exactly b records, drawn afresh"
            return (Assumption(text, "declared"),)
        case Cyclic() | OnePass():
            text = "an absent record keeps its slot with a zero gradient"
            absent = run.neighbors == "add_remove"
            return (Assumption(text, "by construction"),) if absent else ()
        case FullBatch():
            return ()
        case _ as unknown:
            refuse_batches(unknown)


def _about_release(run: Run) -> tuple[Assumption, ...]:
    match run.release:
        case LastIterate():
            text = "only the last iterate leaves; no metric, log or callback before"
            return (Assumption(text, "declared"),)
        case Checkpoints():
            text = (
                "only the checkpoints leave, at steps fixed in advance; no metric, log or callback "
                "between"
            )
            return (Assumption(text, "declared"),)
        case AllIterates() | RandomStop():
            return ()
        case _ as unknown:
            refuse_release(unknown)


@runtime_checkable
class KnowsRecords(Protocol):
    """A bound that tells the records of an ordered run apart by their position."""

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        """Return the curve of a record in the batch ``position`` (from 0) of each epoch."""
        ...
