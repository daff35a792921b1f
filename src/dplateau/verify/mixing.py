"""A second derivation of mixing claims: two copies of one chain, started a diameter apart.

The blocks of the witness are walked as shift programs without any record; a block that leaves no
distance proves TV <= 2 Phi(mu/2) - 1 between any two starts, and factors multiply over blocks
because each holds from every start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.stats import binom

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    LossGeometry,
    OnePass,
    Poisson,
    Run,
    refuse_batches,
    run_from_dict,
)
from dplateau.errors import DplateauError
from dplateau.ground.sealed import MIXING
from dplateau.ground.shown import rounded_up
from dplateau.verify import reading
from dplateau.verify.facts import Stage, require_usual_rate, stages
from dplateau.verify.precise import MP, Precise
from dplateau.verify.report import Check, Ledger, Refused
from dplateau.verify.walks import Program, StepLosses, Stretch, absorb

# Rounding of the claim (a relative error of log TV counts for log TV times as much in TV).
_BELOW, _ABOVE = 1e-9, 1e-6
_LEFTOVER = 1e-9


@dataclass(frozen=True)
class MixingVerification:
    """The verdict on one mixing certificate; checks stop at the first failure."""

    ok: bool
    checks: tuple[Check, ...]
    claimed_tv: float | None
    rederived_tv: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-ready data."""
        return {**vars(self), "checks": [vars(check) for check in self.checks]}

    def __str__(self) -> str:
        """Show the verdict and every check, one line each."""
        what = "verified" if self.ok else "NOT verified"
        for name, value in (("claimed", self.claimed_tv), ("re-derived", self.rederived_tv)):
            if value is not None:
                what += f", {name} total variation {rounded_up(value)}"
        lines = [f"  {'ok  ' if c.ok else 'FAIL'} {c.name}: {c.detail}" for c in self.checks]
        return "\n".join([what, *lines])


def verify_mixing(found: Any) -> MixingVerification:
    """Re-derive a mixing certificate's claim; whatever is wrong with it is said in the verdict."""
    ledger = Ledger()
    derived: float | None = None
    ok = False
    try:
        claimed, run, witness = _opened(found, ledger)
        log_tv = _log_tv(run, witness, ledger)
        derived = float(MP.exp(log_tv))
        _compare(claimed, log_tv, ledger)
        ok = True
    except Refused:
        pass  # the ledger's last line says why
    except reading.Malformed as problem:
        ledger.fail("readable", str(problem))
    except Exception as problem:
        # Whatever else happens on the way, the claim was not confirmed: that is the verdict.
        ledger.fail("derivation", f"could not be carried out ({type(problem).__name__}: {problem})")
    shown = reading.stated(found, "claim", "total_variation")
    return MixingVerification(ok, tuple(ledger.checks), shown, derived)


def _opened(found: Any, ledger: Ledger) -> tuple[float, Run, dict[str, Any]]:
    content = reading.require_envelope(found, MIXING, ledger)
    claim = reading.record(content, "claim")
    claimed = reading.number(claim, "total_variation")
    ledger.require("claim", 0 <= claimed <= 1, f"total variation {rounded_up(claimed, 9)}")
    reading.assumptions(content)
    reading.word(content, "citation")
    try:
        run = run_from_dict(reading.record(content, "run"))
    except DplateauError as problem:
        ledger.require("run", False, str(problem))
        raise
    steps = reading.whole(claim, "steps", 1)
    ledger.require("steps", steps == run.steps, f"stated {steps}, the run has {run.steps}")
    return claimed, run, reading.record(content, "witness")


def _log_tv(run: Run, witness: dict[str, Any], ledger: Ledger) -> Precise:
    _require_kind(run, ledger)
    maps, failure = _maps(run, witness, ledger)
    found = stages(run)
    blocks = reading.rows(witness, "blocks")
    ledger.require("blocks", len(blocks) > 0, f"{len(blocks)} kinds of blocks")
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


def _require_kind(run: Run, ledger: Ledger) -> None:
    kinds = isinstance(run.batches, FullBatch | Poisson | FixedSize)
    ledger.require("algorithm", kinds, f"{run.kind} has steps of one kind")
    require_usual_rate(run, ledger)
    plain = run.momentum == 0 and run.average_last == 1
    ledger.require("plain steps", plain, "momentum and averaged iterates are not covered")
    ledger.require("noise kind", run.noise_kind == "gaussian", f"the noise is {run.noise_kind}")
    known = run.loss is not None and run.learning_rate is not None
    ledger.require("geometry", known, "the potential's constants and the learning rate are known")
    ledger.require("bounded body", math.isfinite(run.diameter), f"D = {run.diameter:g}")


def _maps(run: Run, witness: dict[str, Any], ledger: Ledger) -> tuple[StepLosses, float]:
    """Return the step maps and the probability that a step's batch is larger than assumed."""
    assert run.loss is not None
    match run.batches:
        case Poisson():
            return _capped_maps(run, run.loss, witness, ledger)
        case FullBatch() | FixedSize() | Cyclic() | OnePass():
            return StepLosses(run.loss, run.l2, 1.0, 1.0), 0.0
        case _ as unknown:
            refuse_batches(unknown)


def _capped_maps(
    run: Run, loss: LossGeometry, witness: dict[str, Any], ledger: Ledger
) -> tuple[StepLosses, float]:
    cap = reading.whole(witness, "largest_batch", 0)
    failure = 0.0 if cap >= run.n else float(binom.sf(cap, run.n, run.sampling_rate))
    ledger.require("largest batch", failure < 1, f"more than {cap} records: {failure:.3g}")
    return StepLosses(loss, run.l2, 0.0, min(cap, run.n) / run.batch_size), failure


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
        Stretch(count, maps.modulus(losses, stage.eta, ledger), 0.0, stage.nu)
        for stage, count in zip(found, counts, strict=True)
    )
    program = Program(period, 1, run.diameter)
    plan = reading.record(block, "plan")
    start = reading.whole(plan, "start_step")
    shifts = reading.shift_blocks(reading.entry(plan, "blocks"))
    ends = start + sum(count for count, _, _ in shifts)
    ledger.require(f"plan length{where}", ends == program.steps == steps, f"ends at step {ends}")
    outcome = absorb(program, start, _distance(program, start), shifts)
    zero = outcome.leftover <= _LEFTOVER * outcome.scale
    detail = f"leaves {outcome.leftover:.3g} of distances up to {outcome.scale:.6g}"
    ledger.require(f"plan absorbs all{where}", zero, detail)
    ledger.agree(
        f"sum of squares{where}", reading.number(block, "sum_of_squares"), outcome.sum_of_squares
    )
    return MP.sqrt(MP.mpf(outcome.sum_of_squares))


def _distance(program: Program, step: int) -> float:
    """Return how far two copies may be apart after ``step`` steps when nothing is absorbed."""
    if step == 0:
        return program.diameter
    stretches = list(program.stretches_from(0))
    if len(stretches) == 1:
        return _iterated(program, stretches[0], step)
    u = program.diameter
    for stretch in stretches:
        for _ in range(min(stretch.count, step)):
            u = min(program.diameter, stretch.modulus(u))
        step = max(0, step - stretch.count)
    return u


def _iterated(program: Program, stretch: Stretch, step: int) -> float:
    slope, jump = stretch.modulus.slope, stretch.modulus.jump
    if slope >= 1:
        return program.diameter
    if jump == 0:
        return program.diameter * slope**step
    # u^2 <- c u^2 + h: towards the fixed point from either side, never above D.
    fixed = jump / (1 - slope * slope)
    square = fixed + (program.diameter**2 - fixed) * slope ** (2 * step)
    return min(program.diameter, math.sqrt(square))


def _compare(claimed: float, log_tv: Precise, ledger: Ledger) -> None:
    """Require that the claim is what the proof gives: not less, and not something else."""
    found = MP.exp(log_tv)
    slack = 1 + abs(float(log_tv))
    low, high = found * (1 - _BELOW * slack), found * (1 + _ABOVE * slack) + MP.mpf(10) ** -300
    detail = f"claimed {rounded_up(claimed, 9)}, derived {float(found):.9g} (fifty digits)"
    ledger.require("total variation is proved", claimed >= low, detail)
    ledger.require("total variation is the proof's own", claimed <= min(high, 1), detail)
