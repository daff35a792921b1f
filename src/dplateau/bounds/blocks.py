"""Poisson-sampled descent with a hidden state: the theorem of lagged blocks for a run.

docs/theory/blocks.md has the proof, dplateau.shifts.blocks the evaluation; here a run becomes the
constants that both need, under a cap on the sizes of its batches.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dplateau.algorithms import Poisson, Run
from dplateau.algorithms.schedule import values_over
from dplateau.algorithms.stated import equal_steps, learning_rate_of, learning_rates, loss_of
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, Assumption, Bound, Witness
from dplateau.bounds.conditions import (
    FEW_TO_SPLIT,
    GEOMETRY,
    AboutBatches,
    Asks,
    HiddenIterates,
    Needs,
    NeighborsAre,
    SmoothLosses,
)
from dplateau.bounds.step_maps import (
    BatchSizes,
    StepMap,
    batch_sizes,
    geometry_assumptions,
    linear_class,
    sizes_of,
)
from dplateau.curves import LossCurve, PrivacyCurve, WorstCurve
from dplateau.ground.types import FloatArray, IntArray
from dplateau.shifts.blocks import (
    BlockPlan,
    Lags,
    block_pairs,
    cheapest_plans,
    memory,
    running_growth,
)

MOST_SCHEDULED_STEPS = 1 << 21
# A curve over lengths is planned anew where epsilon has grown by this factor.
_CURVE_STEP = 1.02


def _why_no_memory_loss(run: Run) -> str | None:
    """Return why nothing makes the run forget old uses, in a user's words, or None."""
    if run.steps > MOST_SCHEDULED_STEPS and run.has_schedule:
        return f"follows schedules over at most {MOST_SCHEDULED_STEPS} steps; yours has {run.steps}"
    if math.isfinite(run.diameter):
        return None
    sizes = batch_sizes(run, 1e-9)
    constants = [linear_constant(run, sizes, eta) for eta in learning_rates(run)]
    if min(constants) < 1:
        return None
    return (
        f"needs steps that contract, or a bounded domain; yours stretch distances by up to "
        f"{max(constants):.6g}: add l2 > 0 with learning_rate * (smoothness + l2) < 2, or a domain"
    )


_FORGETS: Needs = (*GEOMETRY, SmoothLosses(), Asks(_why_no_memory_loss), FEW_TO_SPLIT)


class PoissonBlocks(Bound):
    """Lagged blocks for a record that is added or removed."""

    name = "poisson_blocks"
    claim_margin = COMPOSED_MARGIN
    note = "docs/theory/blocks.md"
    title = "Hidden-state Poisson SGD"
    citation = literature.this_library("docs/theory/blocks.md, Theorem 2")
    release = HiddenIterates()
    needs: ClassVar[Needs] = (
        AboutBatches((Poisson,)),
        NeighborsAre("add_remove"),
        *_FORGETS,
    )
    knows_groups = True
    rates = None

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the plan with the least surrogate cost, or composition where that is smaller."""
        sizes = batch_sizes(run, delta)
        lags = lags_of(run, sizes)
        plans = cheapest_plans(lags, run.group_size)
        witnesses = [_witness(run, sizes, plan) for plan in plans]
        if len(witnesses) == 1:
            return witnesses[0]
        return min(witnesses, key=lambda witness: self.curve(run, witness).epsilon(delta))

    def plan_one_of_many(self, run: Run, delta: float) -> Witness:
        """Return the plan for a run that is composed with many like it."""
        sizes = batch_sizes(run, delta)
        plans = cheapest_plans(lags_of(run, sizes), run.group_size, one_of_many=True)
        return _witness(run, sizes, plans[0])

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Check the plan and compose its blocks; of a group, the worst way to split it."""
        sizes = sizes_of(run, int(witness["batch_cap"]), int(witness["batch_floor"]))
        lags = lags_of(run, sizes)
        plan = BlockPlan.read(witness, lags.steps)
        curves = [
            LossCurve(block_pairs(lags, plan, up, down), extra_delta=sizes.extra_delta)
            for up, down in self.splits(run.group_size)
        ]
        return curves[0] if len(curves) == 1 else WorstCurve(tuple(curves))

    def splits(self, size: int) -> list[tuple[int, int]]:
        """Return how many of a group's records only one and only the other neighbor has."""
        return [(size - other, other) for other in range(size // 2 + 1)]

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Plan at as few lengths as keep neighbors within about two percent of each other."""
        return over_lengths(self, run, delta, steps)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        text = "batches outside the sizes that the contraction is computed for are charged to delta"
        losses = (linear_class(loss_of(run)),)
        geometry = geometry_assumptions(run, losses, contracts=False)
        return (*geometry, Assumption(text, "checked"))


class PoissonBlocksReplace(PoissonBlocks):
    """Lagged blocks for a record that is replaced: moves to either side of a run without it."""

    name = "poisson_blocks_replace"
    title = "Hidden-state Poisson SGD, replace"
    citation = literature.this_library("docs/theory/blocks.md, Theorem 3")
    needs = (AboutBatches((Poisson,)), NeighborsAre("replace"), *_FORGETS)

    def splits(self, size: int) -> list[tuple[int, int]]:
        """Return the one way: every record of the group on both sides."""
        return [(size, size)]


def lags_of(run: Run, sizes: BatchSizes) -> Lags:
    """Return the run read backwards, for common batches of these sizes."""
    if run.has_schedule:
        return _scheduled_lags(run, sizes)
    steps = equal_steps(run)
    contraction = linear_constant(run, sizes, steps.eta)
    kept, log_older = memory(contraction, run.steps, math.log(steps.step))
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = np.where(np.arange(kept) == 0, 0.0, np.arange(kept) * np.log(contraction))
    largest = float(np.abs(growth[np.isfinite(growth)]).max())
    return Lags(
        steps=run.steps,
        reach=np.full(kept, steps.step),
        noise=np.full(kept, steps.nu),
        rate=np.full(kept, run.sampling_rate),
        log_growth=growth,
        log_older=log_older,
        diameter=run.diameter,
        alike=contraction,
        log_error=1e-15 * largest,
    )


def _scheduled_lags(run: Run, sizes: BatchSizes) -> Lags:
    stated = (learning_rate_of(run), run.iterate_std, run.record_step)
    etas, stds, reach = (values_over(value, run.steps)[::-1] for value in stated)
    distinct, where = np.unique(etas, return_inverse=True)
    with np.errstate(divide="ignore"):
        logs = np.log([linear_constant(run, sizes, float(eta)) for eta in distinct])[where]
    growth, error = running_growth(logs)
    rates = run.sampling_rates()[::-1]
    return Lags(run.steps, reach, stds, rates, growth, -math.inf, run.diameter, None, error)


def linear_constant(run: Run, sizes: BatchSizes, eta: float) -> float:
    """Return the Lipschitz constant of a step whose common batch has one of these sizes."""
    least, most = sizes.floor / run.batch_size, sizes.cap / run.batch_size
    return StepMap(loss_of(run), run.l2, least, most).contraction(eta).c


def _witness(run: Run, sizes: BatchSizes, plan: BlockPlan) -> Witness:
    return {
        "losses": linear_class(loss_of(run)),
        "batch_cap": sizes.cap,
        "batch_floor": sizes.floor,
        "extra_delta": sizes.extra_delta,
        "single_steps": plan.single_steps,
        "edges": [list(edge) for edge in plan.edges],
    }


def over_lengths(bound: PoissonBlocks, run: Run, delta: float, steps: IntArray) -> FloatArray:
    """Return epsilon at each length from plans at as few lengths as needed.

    A claim for a longer run covers a shorter one, which is the same run begun later from the common
    start. Lengths are planned where epsilon has grown by more than about two percent between them.
    """
    lengths, where = np.unique(steps, return_inverse=True)
    epsilons = np.full(lengths.size, np.inf)

    def planned(place: int) -> float:
        if math.isinf(epsilons[place]):
            longer = run.replace(steps=int(lengths[place]))
            if bound.refusal(longer) is None:
                curve = bound.curve(longer, bound.plan(longer, delta))
                epsilons[place] = coarse(curve).epsilon(delta)
        return float(epsilons[place])

    stack = [(0, lengths.size - 1)]
    planned(0)
    while stack:
        low, high = stack.pop()
        if high - low <= 1 or planned(high) <= _CURVE_STEP * planned(low):
            continue
        middle = int(
            np.searchsorted(lengths, math.sqrt(float(lengths[low]) * float(lengths[high])))
        )
        middle = min(max(middle, low + 1), high - 1)
        planned(middle)
        stack += [(low, middle), (middle, high)]
    return np.minimum.accumulate(epsilons[::-1])[::-1][where]


def coarse(curve: PrivacyCurve) -> PrivacyCurve:
    """Return the same claim on a coarser grid: as sound, faster, a little looser."""
    match curve:
        case LossCurve():
            return replace(curve, resolution=5e-3)
        case WorstCurve():
            return WorstCurve(tuple(coarse(part) for part in curve.curves))
        case _:
            return curve
