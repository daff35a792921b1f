"""From a certificate as plain data to a verdict.

Every bound that can be verified, by the name that certificates use.
"""

from __future__ import annotations

import math
from typing import Any

from dplateau.algorithms import Run, run_from_dict
from dplateau.errors import DplateauError
from dplateau.ground.sealed import CERTIFICATE
from dplateau.ground.shown import rounded_up
from dplateau.verify import (
    blocks,
    checkpoints,
    compositions,
    historical,
    iteration,
    momentum,
    one_use,
    reading,
    recursion,
    split,
    square_root_moduli,
)
from dplateau.verify.claims import Case, Derived, Theorem, group_derived
from dplateau.verify.releases import verify_composition
from dplateau.verify.report import Ledger, Refused, Verification

# Epsilons below this count as this where a claim is compared: nothing is that private for a reason.
_SMALL = 1e-3
# Longer runs and larger data are not looked at: sums over steps must end.
_LARGEST = 10**12


def verify(found: Any) -> Verification:
    """Re-derive a certificate's claim by code that shares nothing with the code that made it.

    Whatever is wrong with what was found, the answer is a verdict that says so, never an error.

    Parameters
    ----------
    found
        What ``Certificate.to_dict`` returns or what JSON reads from a file.

    Returns
    -------
    Verification
        The verdict, the epsilon derived, and every check.
    """
    if isinstance(found, dict) and found.get("kind") == reading.COMPOSITION:
        return verify_composition(found)
    ledger = Ledger()
    derived: Derived | None = None
    ok = False
    try:
        case, name = _opened(found, ledger)
        derived = rederived(case, name)
        _compare(case, derived)
        ok = True
    except Refused:
        pass  # the ledger's last line says why
    except reading.Malformed as problem:
        ledger.fail("readable", str(problem))
    except Exception as problem:
        # Whatever else happens on the way, the claim was not confirmed: that is the verdict.
        ledger.fail("derivation", f"could not be carried out ({type(problem).__name__}: {problem})")
    return Verification(
        ok=ok,
        checks=tuple(ledger.checks),
        claimed_epsilon=reading.stated(found, "claim", "epsilon"),
        rederived_epsilon=_finite(derived),
        bound=reading.stated_text(found, "bound"),
    )


def examined(found: Any, ledger: Ledger) -> tuple[Case, str, Derived]:
    """Return what is known of a certificate whose claim holds; a failed check is an error."""
    case, name = _opened(found, ledger)
    derived = rederived(case, name)
    _compare(case, derived)
    return case, name, derived


def _opened(found: Any, ledger: Ledger) -> tuple[Case, str]:
    """Check the envelope: format, version, checksum, the run and the claimed numbers."""
    content = reading.require_envelope(found, CERTIFICATE, ledger)
    epsilon, delta = reading.claim(content, ledger)
    reading.assumptions(content)
    reading.word(content, "citation")
    reading.files(content)
    run = _run(reading.record(content, "run"), ledger)
    witness = reading.record(content, "witness")
    return Case(run, witness, epsilon, delta, ledger), reading.word(content, "bound")


def _run(described: dict[str, Any], ledger: Ledger) -> Run:
    try:
        run = run_from_dict(described)
    except (DplateauError, ArithmeticError) as problem:
        ledger.require("run", False, str(problem))
        raise
    size = max(run.steps, run.n)
    ledger.require("size", size <= _LARGEST, f"at most {_LARGEST:.0e} steps and records")
    return run


def rederived(case: Case, name: str) -> Derived:
    """Return what the theorem gives, whatever the group size."""
    case.ledger.require("bound", name in THEOREMS, f"{name!r}")
    if case.run.group_size == 1 or name in KNOW_GROUPS:
        return THEOREMS[name](case)
    return group_derived(case, THEOREMS[name])


def _compare(case: Case, derived: Derived) -> None:
    """Require that the claim is what the proof gives: not less, and not something else."""
    claimed, found = case.epsilon, derived.epsilon
    high = found + derived.excess * max(found, _SMALL)
    detail = f"claimed {rounded_up(claimed, 12)}, derived {rounded_up(found, 12)} ({derived.how})"
    finite = math.isfinite(found)
    case.ledger.require("epsilon is proved", finite and claimed >= found, detail)
    case.ledger.require("epsilon is the proof's own", claimed <= high, detail)


def _finite(derived: Derived | None) -> float | None:
    """Return the derived epsilon, or None if there is none that JSON could hold."""
    return derived.epsilon if derived is not None and math.isfinite(derived.epsilon) else None


THEOREMS: dict[str, Theorem] = {
    "naive_composition": compositions.naive_composition,
    "advanced_composition": compositions.advanced_composition,
    "rdp_composition": compositions.rdp_composition,
    "gdp_composition": compositions.gdp_composition,
    "pld_composition": compositions.pld_composition,
    "iteration_rdp": historical.iteration_rdp,
    "gd_contraction": iteration.gd_contraction,
    "gd_bounded": iteration.gd_bounded,
    "cyclic_contraction": iteration.cyclic_contraction,
    "shuffle_once_average": iteration.shuffle_once_average,
    "reshuffle_average": iteration.reshuffle_average,
    "one_pass_contraction": iteration.one_pass_contraction,
    "one_pass_hockey_stick": one_use.one_pass_hockey_stick,
    "one_pass_hybrid": one_use.one_pass_hybrid,
    "one_pass_laplace": one_use.one_pass_laplace,
    "mixing_rdp": historical.mixing_rdp,
    "shuffled_pass": one_use.shuffled_pass,
    "random_stop_contraction": one_use.random_stop_contraction,
    "random_stop_lipschitz": one_use.random_stop_lipschitz,
    "random_stop_mean": one_use.random_stop_mean,
    "random_stop_rdp": historical.random_stop_rdp,
    "modulus": iteration.modulus,
    "every_batch": iteration.every_batch,
    "poisson_modulus": square_root_moduli.poisson_modulus,
    "poisson_blocks": blocks.poisson_blocks,
    "poisson_blocks_replace": blocks.poisson_blocks_replace,
    "fixed_size_averaged": split.fixed_size_averaged,
    "asoodeh_diaz_closed": historical.asoodeh_diaz_closed,
    "fixed_size_modulus": split.fixed_size_modulus,
    "poisson_replace_modulus": split.poisson_replace_modulus,
    "poisson_recursion": recursion.poisson_recursion,
    "fixed_size_recursion": recursion.fixed_size_recursion,
    "momentum": momentum.momentum,
    "checkpoints_full_batch": checkpoints.checkpoints_full_batch,
    "checkpoints_poisson": checkpoints.checkpoints_poisson,
    "checkpoints_ordered": checkpoints.checkpoints_ordered,
    "checkpoints_shuffled": checkpoints.checkpoints_shuffled,
}
# Theorems that speak of several records themselves; the others are extended by group privacy.
KNOW_GROUPS = frozenset(
    {"poisson_blocks", "poisson_blocks_replace", "checkpoints_poisson", "momentum"}
)
