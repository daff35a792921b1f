"""Random batches taken as if each of them held the record: no gain from sampling, none lost.

Given all batches a run is one with batches known in advance, and a plan of shifts for a record that
is used at every step also absorbs what a record does that is used at some of them
(docs/theory/every_batch.md). This wins at sampling rates near 1, and is exact at rate 1.
"""

from __future__ import annotations

import math

from dplateau.algorithms import FixedSize, Poisson, Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness, why_not_about
from dplateau.bounds.batch_cap import BatchCap, batch_cap, cap_of, capped_step_map, tail_cap
from dplateau.bounds.iteration import (
    CONTRACTION,
    chain_of,
    every_step,
    geometry_assumptions,
    step_map,
)
from dplateau.bounds.step_maps import StepMap, learning_rates, why_no_geometry
from dplateau.curves import GaussianCurve, MixtureCurve, PrivacyCurve
from dplateau.errors import InvalidInput
from dplateau.shifts import Chain, Linear, ShiftPlan, evaluate, solve

_SQRT_UP = 1 + 4e-16


class EveryBatch(Bound):
    """mu-GDP with the mu of a record in every batch, whatever the losses and the sampling rate."""

    name = "every_batch"
    note = "docs/theory/every_batch.md"
    title = "Hidden state, record in every batch"
    citation = literature.this_library("docs/theory/every_batch.md, Theorem 1")
    hidden_state = True
    # They only matter to how large batches are.
    rates = "per step"

    def missing(self, run: Run) -> str | None:
        """Return why the run has no random batches or no known modulus, if so."""
        reason = why_not_about(run, Poisson, FixedSize) or why_no_geometry(run)
        if reason is not None:
            return reason
        if not any(_classes(run, _maps(run, cap)) for cap in _caps(run, 1e-9)):
            return (
                "needs a bound on how far a step drives two states apart: say convex=True, "
                "smoothness=..., holder=... or dissipativity=..."
            )
        return None

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest plan over caps on batches and classes of losses."""
        found = []
        for cap in _caps(run, delta):
            for losses in _classes(run, _maps(run, cap)):
                solved = solve(_chain(run, cap, losses))
                found.append((solved.sum_of_squares, solved.plan, cap, losses))
        squares, plan, cap, losses = min(found, key=lambda item: item[0])
        return {
            "losses": losses,
            "batch_cap": cap.records,
            "extra_delta": cap.extra_delta,
            "plan": plan.to_dict(),
            "sum_of_squares": squares,
        }

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the Gaussian curve of the re-evaluated plan, and charge larger batches."""
        cap, losses = cap_of(run, int(witness["batch_cap"])), str(witness["losses"])
        if losses not in _classes(run, _maps(run, cap)):
            raise InvalidInput(f"no modulus is known for losses={losses!r}")
        plan = ShiftPlan.from_dict(witness["plan"])
        squares = evaluate(plan, _chain(run, cap, losses)).sum_of_squares
        gaussian = GaussianCurve(math.sqrt(squares) * _SQRT_UP)
        if cap.extra_delta == 0:
            return gaussian
        return MixtureCurve((1.0,), (gaussian,), cap.extra_delta)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the classes of losses, and the cap on batches."""
        classes = {losses for cap in _caps(run, 1e-9) for losses in _classes(run, _maps(run, cap))}
        found = geometry_assumptions(run, tuple(sorted(classes)), bounded=True)
        if isinstance(run.batches, FixedSize):
            return found
        return (*found, Assumption("batches above a cap are charged to delta", "checked"))


def _caps(run: Run, delta: float) -> tuple[BatchCap, ...]:
    """Return the batch size if it is fixed, else a small cap and one that costs nothing more."""
    if isinstance(run.batches, FixedSize):
        return (cap_of(run, int(run.batch_size)),)
    return tuple(dict.fromkeys((batch_cap(run, delta), tail_cap(run, delta))))


def _maps(run: Run, cap: BatchCap) -> StepMap:
    """Return the maps of common batches: b or b - 1 records, or any number up to the cap."""
    return step_map(run) if isinstance(run.batches, FixedSize) else capped_step_map(run, cap)


def _classes(run: Run, maps: StepMap) -> tuple[str, ...]:
    """Return the classes of losses that the declared constants justify at every learning rate.

    Convex smooth losses whose steps expand are left to their other classes.
    """
    moduli = [maps.moduli(eta) for eta in learning_rates(run)]
    shared = set.intersection(*(set(found) for found in moduli))
    smooth = [found[CONTRACTION] for found in moduli if CONTRACTION in found]
    if any(isinstance(modulus, Linear) and modulus.c > 1 for modulus in smooth):
        shared.discard(CONTRACTION)
    return tuple(sorted(shared))


def _chain(run: Run, cap: BatchCap, losses: str) -> Chain:
    return chain_of(run, every_step(run), losses, maps=_maps(run, cap))
