"""From a certificate as plain data to a verdict: claims of privacy, and claims of mixing."""

from __future__ import annotations

import math
from typing import Any

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    refuse_batches,
)
from dplateau.ground import checks
from dplateau.ground.progress import counting
from dplateau.ground.sealed import CERTIFICATE, MIXING
from dplateau.ground.shown import rounded_up
from dplateau.verify import (
    blocks,
    checkpoints,
    compositions,
    fixed_size,
    iteration,
    momentum,
    one_use,
    ordered,
    reading,
    square_root_moduli,
)
from dplateau.verify.cases import (
    ROUNDED,
    THEOREMS,
    Case,
    Derived,
    largest_share,
    rederived,
    require_batches,
    require_domain,
    require_noise,
    require_plain,
    stages,
)
from dplateau.verify.precise import MP, Precise, binomial_tail, up
from dplateau.verify.reading import Entry
from dplateau.verify.report import SECONDS, Examination, MixingVerification, Verification
from dplateau.verify.walks import Program, StepLosses, Stretch, plan_squares, step_losses

__all__ = ["THEOREMS", "examined", "verify", "verify_mixing"]
# Copies that no step sends to one point stay apart, however small a double their distance needs.
_LEAST_SQUARES = 1e-300
# Each registers its theorems.
FAMILIES = (
    *(compositions, iteration, ordered, one_use, blocks, momentum),
    *(fixed_size, square_root_moduli, checkpoints),
)


@counting("verifying")
def verify(document: Any, *, seconds: float = SECONDS) -> Verification:
    """Re-derive a certificate's claim by code that shares nothing with the code that made it.

    Whatever is wrong with it, the answer is a verdict that says so, never an error.

    Parameters
    ----------
    document
        What ``Certificate.to_dict`` returns or what JSON reads from a file.
    seconds
        How much processor time to give it. A claim that is not confirmed by then is not verified,
        and the verdict says why; files from strangers may ask for hours.

    Returns
    -------
    Verification
        The verdict, the epsilon derived, and every check.
    """
    from dplateau.verify.releases import verify_composition

    checks.positive("seconds", seconds, infinite=True)
    if isinstance(document, dict) and document.get("kind") == reading.COMPOSITION:
        return verify_composition(document, seconds)
    examination = Examination()
    ok = examination.settles(lambda: examined(document, examination), seconds)
    return Verification(
        ok=ok,
        checks=tuple(examination.checks),
        claimed_epsilon=reading.stated(document, "claim", "epsilon"),
        rederived_epsilon=examination.derived,
        bound=reading.stated_text(document, "bound"),
    )


def examined(document: Any, examination: Examination) -> tuple[Case, str, Derived]:
    """Return what is known of a certificate whose claim holds; a failed check is an error."""
    content = reading.require_envelope(document, CERTIFICATE, examination)
    epsilon, delta = reading.claim(content, examination)
    content["citation"].word()
    run, name = reading.run(content, examination), content["bound"].word()
    case = Case(run, content["witness"], epsilon, delta, examination)
    case.witness.record()
    derived = rederived(case, name)
    examination.require_proved(epsilon, derived.epsilon, derived.how)
    return case, name, derived


# --- mixing: two copies of one chain, started a diameter apart -----------------------------------
#
# The blocks of the witness are walked as shift programs without any record; a block of mu proves
# TV <= 2 Phi(mu/2) - 1 between any two starts, and factors multiply over blocks because each holds
# from every start.


def verify_mixing(document: Any, *, seconds: float = SECONDS) -> MixingVerification:
    """Re-derive a mixing certificate's claim; whatever is wrong with it is said in the verdict."""
    checks.positive("seconds", seconds, infinite=True)
    examination = Examination()

    def derivation() -> None:
        content = reading.require_envelope(document, MIXING, examination)
        claimed = content["claim"]["total_variation"].number()
        # A number that nothing derives must not stand beside those that are.
        sensible = len(content["claim"].record()) == 2 and 0 <= claimed <= 1
        examination.require("claim", sensible, f"total variation {rounded_up(claimed, 9)}")
        content["citation"].word()
        run, steps = reading.run(content, examination), content["claim"]["steps"].whole(1)
        examination.require("steps", steps == run.steps, f"stated {steps}, the run has {run.steps}")
        case = Case(run, content["witness"], claimed, 0.0, examination)
        total_variation = MP.exp(_log_total_variation(case))
        examination.derived = up(total_variation)
        shown = [rounded_up(value, 9) for value in (claimed, examination.derived)]
        detail = f"claimed {shown[0]}, derived {shown[1]} (fifty digits)"
        examination.require("total variation is proved", claimed >= min(total_variation, 1), detail)

    ok = examination.settles(derivation, seconds)
    claimed = reading.stated(document, "claim", "total_variation")
    return MixingVerification(ok, tuple(examination.checks), claimed, examination.derived)


def _log_total_variation(case: Case) -> Precise:
    run = case.run
    require_batches(case, FullBatch, Poisson, FixedSize)
    require_plain(case, record_moves=False)
    require_noise(case)
    require_domain(case)
    # In units of an unknown Lipschitz constant the noise may be nothing.
    known = all(math.isfinite(stage.nu) for stage in stages(run))
    case.require("noise", known, f"{run.noise.name} in units of a Lipschitz constant: unknown")
    maps, failure = _maps(case)
    rows = case.witness["blocks"].rows(1000)
    single = len(rows) == 1 and rows[0]["count"].value == 1
    equal = len(stages(run)) == 1
    case.require("equal steps", single or equal, "several blocks need equal steps")
    covered, total = 0, MP.zero
    for i, block in enumerate(rows):
        count, steps = block["count"].whole(1), block["steps"].whole(1)
        mu = _block_mu(case, maps, block, steps, f"[{i}]")
        # 2 Phi(mu/2) - 1 = erf(mu / sqrt 8), and the steps may meet too large a batch.
        tv = MP.erf(mu / MP.sqrt(8)) + steps * MP.mpf(failure)
        case.require(f"block[{i}] forgets", tv < 1, f"keeps {float(tv):.9g} in {steps} steps")
        total += count * MP.log(tv) if tv > 0 else -MP.inf
        covered += count * steps
    case.require("length", covered == run.steps, f"blocks cover {covered} of {run.steps} steps")
    return total


def _maps(case: Case) -> tuple[StepLosses, Precise]:
    """Return the step maps and the probability that a step's batch is larger than assumed."""
    run = case.run
    match run.batches:
        case Poisson():
            cap = min(case.witness["largest_batch"].whole(), run.n)
            failure = binomial_tail(cap, run.n, run.sampling_rate)
            return step_losses(case, 0.0, largest_share(run, cap)), failure
        case FullBatch() | FixedSize() | Cyclic() | OnePass():
            return step_losses(case, 1.0), MP.zero
        case _ as unknown:
            refuse_batches(unknown)


def _block_mu(case: Case, maps: StepLosses, block: Entry, steps: int, where: str) -> Precise:
    """Walk a block's plan from a distance D, and return mu."""
    forward, losses = stages(case.run), block["losses"].word()
    counts = [steps] if len(forward) == 1 else [stage.count for stage in forward]
    period = tuple(
        Stretch(count, maps.modulus(losses, stage.eta), 0.0, stage.nu / ROUNDED)
        for stage, count in zip(forward, counts, strict=True)
    )
    program = Program(period, 1, case.run.diameter)
    case.require(f"block length{where}", program.steps == steps, f"{steps} steps")
    # Two copies that absorb nothing come as near as their steps bring them.
    squares = plan_squares(case, program, block["plan"], where, case.run.diameter)
    if all(stretch.modulus.slope > 0 or stretch.modulus.jump > 0 for stretch in period):
        squares = max(squares, _LEAST_SQUARES)
    return MP.sqrt(MP.mpf(squares))
