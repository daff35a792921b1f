"""From a certificate as plain data to a verdict."""

from __future__ import annotations

from typing import Any

from dplateau.ground.progress import counting
from dplateau.ground.sealed import CERTIFICATE
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
    recursion,
    renyi_forms,
    square_root_moduli,
)
from dplateau.verify.claims import Case, Derived, Theorem, group_derived
from dplateau.verify.report import Ledger, Verification

# Every bound that can be verified, by the name that certificates use.
THEOREMS: dict[str, Theorem] = {
    "naive_composition": compositions.naive_composition,
    "advanced_composition": compositions.advanced_composition,
    "rdp_composition": compositions.rdp_composition,
    "gdp_composition": compositions.gdp_composition,
    "pld_composition": compositions.pld_composition,
    "iteration_rdp": renyi_forms.iteration_rdp,
    "gd_contraction": iteration.gd_contraction,
    "gd_bounded": iteration.gd_bounded,
    "cyclic_contraction": ordered.cyclic_contraction,
    "shuffle_once_average": ordered.shuffle_once_average,
    "reshuffle_average": ordered.reshuffle_average,
    "one_pass_contraction": ordered.one_pass_contraction,
    "one_pass_hockey_stick": one_use.one_pass_hockey_stick,
    "one_pass_hybrid": one_use.one_pass_hybrid,
    "one_pass_laplace": one_use.one_pass_laplace,
    "mixing_rdp": renyi_forms.mixing_rdp,
    "shuffled_pass": one_use.shuffled_pass,
    "random_stop_contraction": one_use.random_stop_contraction,
    "random_stop_lipschitz": one_use.random_stop_lipschitz,
    "random_stop_mean": one_use.random_stop_mean,
    "random_stop_rdp": renyi_forms.random_stop_rdp,
    "modulus": iteration.modulus,
    "every_batch": iteration.every_batch,
    "poisson_modulus": square_root_moduli.poisson_modulus,
    "poisson_blocks": blocks.poisson_blocks,
    "poisson_blocks_replace": blocks.poisson_blocks_replace,
    "fixed_size_averaged": fixed_size.fixed_size_averaged,
    "asoodeh_diaz_closed": recursion.asoodeh_diaz_closed,
    "fixed_size_modulus": square_root_moduli.fixed_size_modulus,
    "poisson_replace_modulus": square_root_moduli.poisson_replace_modulus,
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
    {"poisson_blocks", "poisson_blocks_replace", "checkpoints_poisson", "momentum", "every_batch"}
)


@counting("verifying")
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
    from dplateau.verify.releases import verify_composition

    if isinstance(found, dict) and found.get("kind") == reading.COMPOSITION:
        return verify_composition(found)
    ledger = Ledger()
    ok = ledger.settles(lambda: examined(found, ledger))
    return Verification(
        ok=ok,
        checks=tuple(ledger.checks),
        claimed_epsilon=reading.stated(found, "claim", "epsilon"),
        rederived_epsilon=ledger.derived,
        bound=reading.stated_text(found, "bound"),
    )


def examined(found: Any, ledger: Ledger) -> tuple[Case, str, Derived]:
    """Return what is known of a certificate whose claim holds; a failed check is an error."""
    content = reading.require_envelope(found, CERTIFICATE, ledger)
    epsilon, delta = reading.claim(content, ledger)
    reading.word(content, "citation")
    run, witness = reading.run(content, ledger), reading.record(content, "witness")
    case, name = Case(run, witness, epsilon, delta, ledger), reading.word(content, "bound")
    derived = rederived(case, name)
    ledger.require_proved(epsilon, derived.epsilon, derived.how)
    return case, name, derived


def rederived(case: Case, name: str) -> Derived:
    """Return what the theorem gives, whatever the group size."""
    case.ledger.require("bound", name in THEOREMS, f"{name!r}")
    if case.run.group_size == 1 or name in KNOW_GROUPS:
        return THEOREMS[name](case)
    return group_derived(case, THEOREMS[name])
