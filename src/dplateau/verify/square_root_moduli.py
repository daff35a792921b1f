"""Poisson batches, records added or removed, any declared losses: shifts beside sampled steps."""

from __future__ import annotations

from dplateau.algorithms import Poisson
from dplateau.verify import reading
from dplateau.verify.claims import ROUNDED, Case, Derived, product_derived
from dplateau.verify.composed import Rows
from dplateau.verify.facts import (
    Stage,
    largest_share,
    moved_by_record,
    require_batches,
    require_cap,
    require_constant,
    require_hidden,
    require_neighbors,
)
from dplateau.verify.pairs import GaussianPair, LossPair, SampledPair
from dplateau.verify.report import Malformed
from dplateau.verify.walks import Modulus, Program, StepLosses, Stretch, forward_distance

# Shifts are taken this much larger than they are written, so that rounding leaves nothing over.
_LARGER = 1 + 1e-9
_MOST_STEPS = 10**6


def poisson_modulus(case: Case) -> Derived:
    """Derive the main theorem with any declared losses, from the largest start possible."""
    run, ledger = case.run, case.ledger
    require_hidden(run, ledger)
    require_batches(run, ledger, Poisson)
    require_neighbors(run, ledger, "add_remove")
    stage = require_constant(run, ledger)
    cap, extra = require_cap(case)
    assert run.loss is not None
    maps = StepLosses(run.loss, run.l2, 0.0, largest_share(run, cap))
    phi = maps.modulus(reading.word(case.witness, "losses"), stage.eta, ledger)
    shifts: dict[float, int] = {}
    for count, _, shift in absorbing_walk(case, stage, phi):
        shifts[shift] = shifts.get(shift, 0) + count
    step = moved_by_record(run, stage.eta) / stage.nu
    pairs = [
        (_step_pair(run.sampling_rate, step, shift / stage.nu * ROUNDED), count)
        for shift, count in shifts.items()
    ]
    return product_derived(case, Rows.product(pairs, extra))


def _step_pair(rate: float, step: float, shift: float) -> LossPair:
    return GaussianPair(shift + step) if rate == 1 else SampledPair(rate, step, shift)


def absorbing_walk(case: Case, stage: Stage, phi: Modulus) -> list[tuple[int, float, float]]:
    """Walk the last steps of a run, whose shifts absorb all that the steps before may have done.

    Return (steps, distance before them, shift). The last shift absorbs what is left over.
    """
    run, ledger = case.run, case.ledger
    last_steps = reading.whole(case.witness, "last_steps", 1)
    before = run.steps - last_steps
    ledger.require("last steps", before >= 0, f"{last_steps} of {run.steps} steps")
    blocks = _constant_blocks(case, last_steps)
    moved = moved_by_record(run, stage.eta)
    drift = Program((Stretch(max(before, 1), phi, moved, stage.nu),), 1, run.diameter)
    u = forward_distance(drift, before) if before else 0.0
    if u == 0:
        return [(last_steps, 0.0, 0.0)]
    if last_steps > _MOST_STEPS:
        raise ArithmeticError(f"{last_steps} steps are too many to walk through")
    found, left, shift = [], u, 0.0
    for count, shift in blocks:
        for _ in range(count):
            found.append((1, u, shift))
            # A rounding too far is on the safe side.
            left = max(0.0, phi(u) * (1 + 1e-15) - shift)
            u = min(run.diameter, left)
    # The noise acts before the last projection, which hence does not help.
    found[-1] = (1, found[-1][1], shift + left * ROUNDED)
    return found


def _constant_blocks(case: Case, last_steps: int) -> list[tuple[int, float]]:
    """Read blocks of [count, shift]."""
    found = []
    stored = reading.tuples(reading.entry(case.witness, "blocks"), "blocks", ("count", "shift"))
    for i, item in enumerate(stored):
        shift = reading.as_number(item[1], f"blocks[{i}][1]")
        if shift < 0:
            raise Malformed(f"blocks[{i}] holds a negative shift")
        found.append((reading.as_whole(item[0], f"blocks[{i}][0]", 1), shift * _LARGER))
    covered = sum(count for count, _ in found)
    detail = f"covers {covered} of {last_steps} steps"
    case.ledger.require("plan length", covered == last_steps, detail)
    return found
