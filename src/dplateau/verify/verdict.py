"""From a certificate as plain data to a verdict."""

from __future__ import annotations

import math
from typing import Any

from dplateau.ground.sealed import CERTIFICATE
from dplateau.verify import (
    blocks,
    compositions,
    fixed_size,
    iteration,
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
}
# Theorems that speak of several records themselves; the others are extended by group privacy.
KNOW_GROUPS = frozenset({"poisson_blocks", "poisson_blocks_replace"})


def verify(found: Any) -> Verification:
    """Re-derive a certificate's claim by code that shares nothing with the code that made it.

    ``found`` is what ``Certificate.to_dict`` returns or what JSON reads from a file. Whatever is
    wrong with it, the answer is a verdict that says so, never an error.
    """
    from dplateau.verify.releases import verify_composition

    if isinstance(found, dict) and found.get("schema") == reading.COMPOSITION:
        return verify_composition(found)
    ledger = Ledger()
    ok = ledger.settles(lambda: examined(found, ledger))
    return Verification(
        ok=ok,
        checks=tuple(ledger.checks),
        claimed_epsilon=reading.shown_number(found, "claimed_epsilon"),
        rederived_epsilon=ledger.derived,
        bound=reading.shown_word(found, "bound"),
    )


def examined(found: Any, ledger: Ledger) -> tuple[Case, str, Derived]:
    """Return what is known of a certificate whose claim holds; a failed check is an error."""
    reading.require_envelope(found, CERTIFICATE, ledger)
    epsilon, delta = (
        reading.number(found, "claimed_epsilon"),
        reading.number(found, "claimed_delta"),
    )
    sensible = epsilon >= 0 and 0 <= delta < 1
    ledger.require("claim", sensible, f"epsilon {epsilon:.9g} at delta {delta:g}")
    reading.word(found, "citation")
    run = reading.run(found, ledger)
    case = Case(run, reading.record(found, "witness"), epsilon, delta, ledger)
    name = reading.word(found, "bound")
    derived = rederived(case, name)
    detail = f"claimed {epsilon:.12g}, derived {derived.epsilon:.12g} ({derived.how})"
    if math.isfinite(derived.epsilon):
        ledger.derived = derived.epsilon
    ledger.require("epsilon is proved", derived.epsilon <= epsilon, detail)
    return case, name, derived


def rederived(case: Case, name: str) -> Derived:
    """Return what the theorem gives, whatever the group size."""
    case.ledger.require("bound", name in THEOREMS, f"{name!r}")
    if case.run.group_size == 1 or name in KNOW_GROUPS:
        return THEOREMS[name](case)
    return group_derived(case, THEOREMS[name])
