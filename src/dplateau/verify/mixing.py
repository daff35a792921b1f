"""A second derivation of mixing claims: two copies of one chain, started a diameter apart.

The blocks of the witness are walked as shift programs without any record; a block of mu proves
TV <= 2 Phi(mu/2) - 1 between any two starts, and factors multiply over blocks because each holds
from every start.
"""

from __future__ import annotations

import math
from typing import Any

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    refuse_batches,
)
from dplateau.ground.sealed import MIXING
from dplateau.ground.shown import rounded_up
from dplateau.verify import reading
from dplateau.verify.claims import ROUNDED
from dplateau.verify.facts import (
    Stage,
    binomial_tail,
    largest_share,
    require_batches,
    require_domain,
    require_plain,
    stages,
)
from dplateau.verify.precise import MP, Precise, up
from dplateau.verify.report import Ledger, MixingVerification
from dplateau.verify.walks import (
    Program,
    StepLosses,
    Stretch,
    absorbed_squares,
    forward_distance,
)


def verify_mixing(found: Any) -> MixingVerification:
    """Re-derive a mixing certificate's claim; whatever is wrong with it is said in the verdict."""
    ledger = Ledger()

    def derivation() -> None:
        content = reading.require_envelope(found, MIXING, ledger)
        claim = reading.record(content, "claim")
        claimed = reading.number(claim, "total_variation")
        ledger.require("claim", 0 <= claimed <= 1, f"total variation {rounded_up(claimed, 9)}")
        reading.word(content, "citation")
        run, steps = reading.run(content, ledger), reading.whole(claim, "steps", 1)
        ledger.require("steps", steps == run.steps, f"stated {steps}, the run has {run.steps}")
        total_variation = MP.exp(_log_tv(run, reading.record(content, "witness"), ledger))
        ledger.derived = up(total_variation)
        shown = [rounded_up(value, 9) for value in (claimed, ledger.derived)]
        detail = f"claimed {shown[0]}, derived {shown[1]} (fifty digits)"
        ledger.require("total variation is proved", claimed >= min(total_variation, 1), detail)

    ok = ledger.settles(derivation)
    claimed = reading.stated(found, "claim", "total_variation")
    return MixingVerification(ok, tuple(ledger.checks), claimed, ledger.derived)


def _log_tv(run: Run, witness: dict[str, Any], ledger: Ledger) -> Precise:
    require_batches(run, ledger, FullBatch, Poisson, FixedSize)
    require_plain(run, ledger, record_moves=False)
    ledger.require("noise kind", run.noise_kind == "gaussian", f"the noise is {run.noise_kind}")
    require_domain(run, ledger)
    maps, failure = _maps(run, witness)
    found = stages(run)
    blocks = [reading.as_record(block, "block") for block in reading.rows(witness, "blocks", 1000)]
    single = len(blocks) == 1 and blocks[0].get("count") == 1
    ledger.require("equal steps", single or len(found) == 1, "several blocks need equal steps")
    covered, total = 0, MP.zero
    for i, block in enumerate(blocks):
        count, steps = reading.whole(block, "count", 1), reading.whole(block, "steps", 1)
        mu = _block_mu(run, maps, found, block, steps, ledger, f"[{i}]")
        # 2 Phi(mu/2) - 1 = erf(mu / sqrt 8), and the steps may meet too large a batch.
        tv = MP.erf(mu / MP.sqrt(8)) + steps * MP.mpf(failure)
        ledger.require(f"block[{i}] forgets", tv < 1, f"keeps {float(tv):.9g} in {steps} steps")
        total += count * MP.log(tv) if tv > 0 else -MP.inf
        covered += count * steps
    ledger.require("length", covered == run.steps, f"blocks cover {covered} of {run.steps} steps")
    return total


def _maps(run: Run, witness: dict[str, Any]) -> tuple[StepLosses, float]:
    """Return the step maps and the probability that a step's batch is larger than assumed."""
    assert run.loss is not None
    match run.batches:
        case Poisson():
            cap = min(reading.whole(witness, "largest_batch"), run.n)
            failure = binomial_tail(cap, run.n, run.sampling_rate)
            return StepLosses(run.loss, run.l2, 0.0, largest_share(run, cap)), failure
        case FullBatch() | FixedSize() | Cyclic() | OnePass():
            return StepLosses(run.loss, run.l2, 1.0, 1.0), 0.0
        case _ as unknown:
            refuse_batches(unknown)


def _block_mu(
    run: Run,
    maps: StepLosses,
    found: list[Stage],
    block: dict[str, Any],
    steps: int,
    ledger: Ledger,
    where: str,
) -> Precise:
    """Walk a block's plan from a distance D, and return mu."""
    losses = reading.word(block, "losses")
    counts = [steps] if len(found) == 1 else [stage.count for stage in found]
    period = tuple(
        Stretch(count, maps.modulus(losses, stage.eta, ledger), 0.0, stage.nu / ROUNDED)
        for stage, count in zip(found, counts, strict=True)
    )
    program = Program(period, 1, run.diameter)
    plan = reading.record(block, "plan")
    start = reading.whole(plan, "start_step")
    shifts = reading.shift_blocks(reading.entry(plan, "blocks"))
    ends = start + sum(count for count, _, _ in shifts)
    fits = ends == program.steps == steps and start < steps
    ledger.require(f"plan length{where}", fits, f"ends at step {ends}")
    # Two copies that absorb nothing come as near as their steps bring them.
    apart = forward_distance(program, start, run.diameter)
    squares, left = absorbed_squares(program, start, apart, shifts)
    detail = f"sum of squares {squares:.9g}, with {left:.3g} left for the last shift"
    ledger.require(f"plan{where}", math.isfinite(squares), detail)
    return MP.sqrt(MP.mpf(squares))
