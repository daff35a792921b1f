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
    refuse_batches,
)
from dplateau.algorithms.stated import loss_of
from dplateau.errors import NotApplicable
from dplateau.verify.cases import (
    THEOREMS,
    Case,
    Derived,
    Stage,
    batches_per_epoch,
    equal_steps,
    gaussian_derived,
    largest_share,
    least_share,
    moved_by_record,
    order_of,
    require_cap,
    require_contraction,
    smallest_batch,
    stages,
    theorem,
)
from dplateau.verify.precise import MP, gaussian_run_epsilon
from dplateau.verify.walks import (
    CONTRACTION,
    SMOOTH,
    Modulus,
    Program,
    Stretch,
    plan_squares,
    step_losses,
)

# (number of steps, whether the record is used), first step first.
Uses = Sequence[tuple[int, bool]]
# Steps, and (steps) x (positions), that are looked at one by one.
MOST_STEPS, _MOST_WORK = 10**6, 10**8
# What the Rényi form of amplification by iteration is stated about.
_LIFTED = ("gd_contraction", "gd_bounded", "cyclic_contraction", "one_pass_contraction")


@theorem(FullBatch)
def gd_contraction(case: Case) -> Derived:
    """Derive full batches, contractive steps, no domain."""
    return squares_derived(case, worst_record_squares(case, contractive_losses(case), math.inf))


@theorem(FullBatch, domain=True)
def gd_bounded(case: Case) -> Derived:
    """Derive full batches, contractive steps, on a bounded domain."""
    losses = contractive_losses(case)
    return squares_derived(case, worst_record_squares(case, losses, case.run.diameter))


@theorem(FullBatch, Cyclic, OnePass)
def modulus(case: Case) -> Derived:
    """Derive any declared class of losses, batches known in advance."""
    case.require("order", order_of(case.run) != "reshuffle", f"this is {case.run.described}")
    losses = case.witness["losses"].word()
    if "plans" in case.witness:
        return squares_derived(case, _worst_plan(case, losses))
    squares = worst_record_squares(case, losses, case.run.diameter, every=True)
    return squares_derived(case, squares)


@theorem(Poisson, FixedSize, own_rates=True, knows_groups=True)
def every_batch(case: Case) -> Derived:
    """Derive random batches as if each held the record; batches above the cap cost delta."""
    run = case.run
    cap, extra = require_cap(case)
    # The common records of a batch of fixed size are b or b - 1; a Poisson batch may be empty.
    fixed = isinstance(run.batches, FixedSize)
    least = least_share(run, smallest_batch(run), used=True) if fixed else 0.0
    maps = step_losses(case, least, largest_share(run, cap))
    losses, steps = case.witness["losses"].word(), stages(run)
    moduli = {eta: maps.modulus(losses, eta) for eta in {stage.eta for stage in steps}}
    parts = [_stretch(run, stage, stage.count, True, moduli[stage.eta]) for stage in steps]
    program = Program(tuple(parts), 1, run.diameter)
    # A group moves all distances as often as it has records; batches of common ones stay the same.
    mu = run.group_size * math.sqrt(plan_squares(case, program, case.witness["plan"]))
    derived = gaussian_derived(mu, MP.mpf(case.delta) - extra)
    return derived if extra == 0 else replace(derived, mu=None)


@theorem(release=None, noise=None)
def iteration_rdp(case: Case) -> Derived:
    """Derive the same sums of squares as Rényi divergences, alpha / 2 times the sum."""
    lifted = case.witness["lifted"].word()
    case.require("lifted bound", lifted in _LIFTED, f"{lifted!r}")
    mu = THEOREMS[lifted](case).proved_mu
    epsilon = gaussian_run_epsilon(mu**2, case.delta)
    return Derived(epsilon, f"best order at sum of squares {mu**2:.9g}")


def squares_derived(case: Case, sum_of_squares: float) -> Derived:
    """Return what a sum of squared shifts gives, in units of the noise."""
    return gaussian_derived(math.sqrt(sum_of_squares), case.delta)


def contractive_losses(case: Case) -> str:
    """Require that no step expands, and return the class of losses that says so."""
    require_contraction(case)
    return CONTRACTION if loss_of(case.run).convex else SMOOTH


def require_short(case: Case, positions: int) -> None:
    """Require that looking at every step of every position comes to an end."""
    steps = case.run.steps
    short = steps <= MOST_STEPS and steps * positions <= _MOST_WORK
    case.require("length", short, f"{steps} steps, {positions} positions")


# --- one plan for the worst record ---------------------------------------------------------------


def worst_record_squares(case: Case, losses: str, diameter: float, *, every: bool = False) -> float:
    """Walk the plan for the record of the last step, and return its sum of squares."""
    period, uses = _pattern(case.run)
    parts = [(period - 1, False), (1, True)]
    program = program_of(case, parts, uses, losses, diameter, every=every)
    # Whole epochs begin before a run that ends within one, and nothing happens before its first
    # use. A plan of steps that are not alike counts from the run's own first step.
    ahead = 0 if equal_steps(case.run) else program.steps - case.run.steps
    return plan_squares(case, program, case.witness["plan"], ahead=ahead)


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
    run, steps = case.run, stages(case.run)
    phi = _modulus_by_rate(case, losses, every=every)
    if run.has_schedule:
        # Every step counts as a use, which it is at worst.
        parts = [_stretch(run, one, one.count, True, phi(one.eta, True)) for one in steps]
        return Program(tuple(parts), 1, diameter)
    uses = [(n, used) for n, used in uses if n]
    if len(uses) == 1:
        uses, repeats = [(repeats * uses[0][0], uses[0][1])], 1
    parts = [_stretch(run, steps[0], n, used, phi(steps[0].eta, used)) for n, used in uses]
    return Program(tuple(parts), repeats, diameter)


def _worst_plan(case: Case, losses: str) -> float:
    """Walk one plan for each position of an ordered run with a schedule; the largest counts."""
    run, length = case.run, batches_per_epoch(case.run)
    plans, count = case.witness["plans"].rows(), min(length, run.steps)
    case.require("plans", len(plans) == count, f"{len(plans)} plans of {count} positions")
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
        totals.append(plan_squares(case, program, plan, f"[{place}]"))
    return max(totals)


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
        return step_losses(case, least).modulus(losses, eta)

    return phi


def _stretch(run: Run, stage: Stage, count: int, used: bool, phi: Modulus) -> Stretch:
    return Stretch(count, phi, moved_by_record(run, stage.eta) if used else 0.0, stage.nu)
