"""Amplification by iteration: last-iterate theorems that are one shift program or a few."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    Scheme,
    refuse_batches,
)
from dplateau.errors import NotApplicable
from dplateau.verify import reading
from dplateau.verify.claims import Case, Derived, gaussian_derived
from dplateau.verify.facts import (
    Stage,
    batches_per_epoch,
    largest_share,
    least_share,
    moved_by_record,
    require_batches,
    require_cap,
    require_contraction,
    require_domain,
    require_hidden,
    smallest_batch,
    stages,
)
from dplateau.verify.precise import MP
from dplateau.verify.walks import (
    CONTRACTION,
    SMOOTH,
    Modulus,
    Program,
    StepLosses,
    Stretch,
    absorbed_squares,
    forward_distance,
)

# (number of steps, whether the record is used), first step first.
Uses = Sequence[tuple[int, bool]]
# Steps, and (steps) x (positions), that are looked at one by one.
MOST_STEPS, _MOST_WORK = 10**6, 10**8


# --- one plan for the worst record ---------------------------------------------------------------


def gd_contraction(case: Case) -> Derived:
    """Derive full batches, contractive steps, no domain."""
    return _gaussian(case, gd_contraction_squares(case))


def gd_contraction_squares(case: Case) -> float:
    """Return the sum of squares of full batches without a domain."""
    losses = require_contractive(case, FullBatch)
    return worst_record_squares(case, losses, math.inf)


def gd_bounded(case: Case) -> Derived:
    """Derive full batches, contractive steps, on a bounded domain."""
    return _gaussian(case, gd_bounded_squares(case))


def gd_bounded_squares(case: Case) -> float:
    """Return the sum of squares of full batches on a domain."""
    losses = require_contractive(case, FullBatch)
    require_domain(case.run, case.ledger)
    return worst_record_squares(case, losses, case.run.diameter)


def modulus(case: Case) -> Derived:
    """Derive any declared class of losses, batches known in advance."""
    run, ledger = case.run, case.ledger
    require_hidden(run, ledger)
    require_batches(run, ledger, FullBatch, Cyclic, OnePass)
    ledger.require("order", order_of(run) != "reshuffle", f"this is {run.described}")
    losses = reading.word(case.witness, "losses")
    if "plans" in case.witness:
        return _gaussian(case, _worst_plan(case, losses))
    return _gaussian(case, worst_record_squares(case, losses, run.diameter, every=True))


def _worst_plan(case: Case, losses: str) -> float:
    """Walk one plan for each position of an ordered run with a schedule; the largest counts."""
    run, length = case.run, batches_per_epoch(case.run)
    plans, count = reading.rows(case.witness, "plans"), min(length, run.steps)
    case.ledger.require("plans", len(plans) == count, f"{len(plans)} plans of {count} positions")
    require_short(case, count)
    phi = _modulus_by_rate(case, losses, every=True)
    totals = []
    for place, plan in enumerate(plans):
        parts, t = [], 0
        for stage in stages(run):
            end = t + stage.count
            while t < end:
                used = t % length == place
                following = t + 1 if used else t + (place - t) % length
                n = min(following, end) - t
                parts.append(_stretch(run, stage, n, used, phi(stage.eta, used)))
                t += n
        program = Program(tuple(parts), 1, run.diameter)
        where = f"[{place}]"
        totals.append(plan_squares(case, program, reading.as_record(plan, f"plans{where}"), where))
    return max(totals)


def every_batch(case: Case) -> Derived:
    """Derive random batches as if each held the record; batches above the cap cost delta."""
    run, ledger, witness = case.run, case.ledger, case.witness
    require_hidden(run, ledger, own_rates=True)
    require_batches(run, ledger, Poisson, FixedSize)
    cap, extra = require_cap(case)
    assert run.loss is not None
    # The common records of a batch of fixed size are b or b - 1; a Poisson batch may be empty.
    fixed = isinstance(run.batches, FixedSize)
    least = least_share(run, smallest_batch(run), used=True) if fixed else 0.0
    maps = StepLosses(run.loss, run.l2, least, largest_share(run, cap))
    losses, found = reading.word(witness, "losses"), stages(run)
    moduli = {eta: maps.modulus(losses, eta, ledger) for eta in {stage.eta for stage in found}}
    parts = [_stretch(run, stage, stage.count, True, moduli[stage.eta]) for stage in found]
    program = Program(tuple(parts), 1, run.diameter)
    total = plan_squares(case, program, reading.record(witness, "plan"))
    # A group moves all distances as often as it has records; batches of common ones stay the same.
    mu = case.run.group_size * math.sqrt(total)
    derived = gaussian_derived(mu, MP.mpf(case.delta) - extra)
    return derived if extra == 0 else replace(derived, mu=None)


def _gaussian(case: Case, sum_of_squares: float) -> Derived:
    return gaussian_derived(math.sqrt(sum_of_squares), case.delta)


def require_contractive(case: Case, scheme: Scheme) -> str:
    """Require steps that do not expand, and return the class of losses that says so."""
    require_hidden(case.run, case.ledger)
    require_batches(case.run, case.ledger, scheme)
    return contractive_losses(case)


def contractive_losses(case: Case) -> str:
    """Require that no step expands, and return the class of losses that says so."""
    require_contraction(case.run, case.ledger)
    assert case.run.loss is not None
    return CONTRACTION if case.run.loss.convex else SMOOTH


def require_short(case: Case, positions: int) -> None:
    """Require that looking at every step of every position comes to an end."""
    steps = case.run.steps
    short = steps <= MOST_STEPS and steps * positions <= _MOST_WORK
    case.ledger.require("length", short, f"{steps} steps, {positions} positions")


def order_of(run: Run) -> str | None:
    """Return the order of batches in turn, or None if they do not take turns."""
    return run.batches.order if isinstance(run.batches, Cyclic) else None


def worst_record_squares(case: Case, losses: str, diameter: float, *, every: bool = False) -> float:
    """Walk the plan for the record of the last step, and return its sum of squares."""
    period, uses = _pattern(case.run)
    parts = [(period - 1, False), (1, True)]
    program = program_of(case, parts, uses, losses, diameter, every=every)
    return plan_squares(case, program, reading.record(case.witness, "plan"))


def _pattern(run: Run) -> tuple[int, int]:
    """Return every how many steps the record of the last step is used, and how often."""
    match run.batches:
        case Cyclic():
            length = batches_per_epoch(run)
            return length, -(-run.steps // length)
        case OnePass():
            return run.steps, 1
        case FullBatch():
            return 1, run.steps
        case Poisson() | FixedSize():
            raise NotApplicable("when a record joins a random batch is not known")
        case _ as unknown:
            refuse_batches(unknown)


def program_of(
    case: Case, uses: Uses, repeats: int, losses: str, diameter: float, *, every: bool = False
) -> Program:
    """Return the shift program of a record that is used as ``uses`` says, ``repeats`` times."""
    run, found = case.run, stages(case.run)
    phi = _modulus_by_rate(case, losses, every=every)
    if not run.has_schedule:
        uses = [(n, used) for n, used in uses if n]
        if len(uses) == 1:
            uses, repeats = [(repeats * uses[0][0], uses[0][1])], 1
        parts = [_stretch(run, found[0], n, used, phi(found[0].eta, used)) for n, used in uses]
        return Program(tuple(parts), repeats, diameter)
    # With a schedule every step counts as a use, which it is at worst.
    parts = [_stretch(run, one, one.count, True, phi(one.eta, True)) for one in found]
    return Program(tuple(parts), 1, diameter)


def _modulus_by_rate(case: Case, losses: str, *, every: bool) -> Callable[[float, bool], Modulus]:
    """Return the modulus of a step by its learning rate and whether the record is in its batch.

    The shortest batch stands for all; with ``every``, and where the order changes, all steps count
    as if the record were in their batch.
    """
    run, records = case.run, smallest_batch(case.run)
    always = every or order_of(run) == "reshuffle"

    @cache
    def phi(eta: float, used: bool) -> Modulus:
        least = least_share(run, records, used or always)
        assert run.loss is not None
        return StepLosses(run.loss, run.l2, least, 1.0).modulus(losses, eta, case.ledger)

    return phi


def _stretch(run: Run, stage: Stage, count: int, used: bool, phi: Modulus) -> Stretch:
    return Stretch(count, phi, moved_by_record(run, stage.eta) if used else 0.0, stage.nu)


def plan_squares(case: Case, program: Program, plan: dict[str, object], where: str = "") -> float:
    """Walk a stored plan, which must end with the run; what it leaves over is charged."""
    start_step = reading.whole(plan, "start_step")
    blocks = reading.shift_blocks(reading.entry(plan, "blocks"))
    covered = start_step + sum(count for count, _, _ in blocks)
    ends = covered == program.steps and start_step < program.steps
    case.ledger.require(f"plan length{where}", ends, f"ends at step {covered} of {program.steps}")
    start = forward_distance(program, start_step)
    squares, left = absorbed_squares(program, start_step, start, blocks)
    detail = f"sum of squares {squares:.9g}, with {left:.3g} left for the last shift"
    case.ledger.require(f"plan{where}", math.isfinite(squares), detail)
    return squares
