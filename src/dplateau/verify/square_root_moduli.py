"""Last-iterate theorems for random batches: products of one-dimensional pairs."""

from __future__ import annotations

import numpy as np

from dplateau.verify import reading
from dplateau.verify.claims import Case, Derived, rows_epsilon
from dplateau.verify.composed import Rows
from dplateau.verify.facts import require_cap, require_constant, require_sampled
from dplateau.verify.pairs import GaussianPair, LossPair, SampledPair
from dplateau.verify.walks import (
    Program,
    ShiftBlocks,
    StepLosses,
    Stretch,
    absorb,
    forward_distance,
)

# What rounding may leave over, relative to the largest shift and to a record's step.
_LEFTOVER, _LEFTOVER_OF_STEP = 1e-12, 1e-13
# Shifts are taken this much larger than they are written, so that nothing is left over.
_LARGER = 1 + 1e-9


def _step_pair(rate: float, step: float, shift: float) -> LossPair:
    return GaussianPair(shift + step) if rate == 1 else SampledPair(rate, step, shift)


def poisson_modulus(case: Case) -> Derived:
    """Derive the main theorem with any declared losses, from the largest start possible."""
    run = require_sampled(case, "poisson", "add_remove")
    stage = require_constant(run, case.ledger)
    cap, extra = require_cap(case, run)
    assert run.loss is not None
    maps = StepLosses(run.loss, run.l2, 0.0, cap / run.batch_size)
    phi = maps.modulus(reading.word(case.witness, "losses"), stage.eta, case.ledger)
    reach = stage.eta * run.loss.lipschitz / run.batch_size
    last_steps = reading.whole(case.witness, "last_steps", 1)
    before = run.steps - last_steps
    case.ledger.require("last steps", before >= 0, f"{last_steps} of {run.steps} steps")
    drift = Program((Stretch(max(before, 1), phi, reach, stage.nu),), 1, run.diameter)
    start = forward_distance(drift, before) if before else 0.0
    case.ledger.agree("start distance", reading.number(case.witness, "start_distance"), start)
    blocks = constant_blocks(case, last_steps)
    program = Program((Stretch(last_steps, phi, 0.0, stage.nu),), 1, run.diameter)
    outcome = absorb(program, 0, start, blocks)
    largest = max(shift for _, shift, _ in blocks)
    detail = f"leaves {outcome.leftover:.3g} of a start at {start:.6g}"
    done = outcome.leftover <= _LEFTOVER * largest + _LEFTOVER_OF_STEP * reach
    case.ledger.require("plan absorbs its start", done, detail)
    totals: dict[float, int] = {}
    for count, shift, _ in blocks:
        totals[shift] = totals.get(shift, 0) + count
    pairs = [_step_pair(run.sampling_rate, reach / stage.nu, a / stage.nu) for a in totals]
    counts = np.array([[float(n) for n in totals.values()]])
    rows = Rows(tuple(pairs), counts, (1.0,), extra)
    return rows_epsilon(rows, case.epsilon, case.delta)


def constant_blocks(case: Case, last_steps: int) -> ShiftBlocks:
    """Read blocks of [count, shift]."""
    found = []
    for i, item in enumerate(reading.rows(case.witness, "blocks")):
        if not isinstance(item, list) or len(item) != 2:
            raise reading.Malformed(f"blocks[{i}] must be [count, shift]; it is {item!r}")
        shift = reading.as_number(item[1], f"blocks[{i}][1]")
        if shift < 0:
            raise reading.Malformed(f"blocks[{i}] holds a negative shift")
        found.append((reading.as_whole(item[0], f"blocks[{i}][0]", 1), shift * _LARGER, 1.0))
    covered = sum(count for count, _, _ in found)
    detail = f"covers {covered} of {last_steps} steps"
    case.ledger.require("plan length", covered == last_steps, detail)
    return found
