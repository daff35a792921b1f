"""Every bound that can be verified, by the name that certificates use."""

from __future__ import annotations

from dplateau.verify import (
    blocks,
    compositions,
    contraction,
    fixed_size,
    published,
    random_batches,
    shift_bounds,
    split_modulus,
)
from dplateau.verify.claims import Theorem

THEOREMS: dict[str, Theorem] = {
    "naive_composition": compositions.naive_composition,
    "advanced_composition": compositions.advanced_composition,
    "rdp_composition": compositions.rdp_composition,
    "gdp_composition": compositions.gdp_composition,
    "pld_composition": compositions.pld_composition,
    "iteration_rdp": shift_bounds.iteration_rdp,
    "gd_contraction": shift_bounds.gd_contraction,
    "gd_bounded": shift_bounds.gd_bounded,
    "cyclic_contraction": shift_bounds.cyclic_contraction,
    "shuffle_once_average": shift_bounds.shuffle_once_average,
    "reshuffle_average": shift_bounds.reshuffle_average,
    "one_pass_contraction": shift_bounds.one_pass_contraction,
    "one_pass_hockey_stick": contraction.one_pass_hockey_stick,
    "one_pass_hybrid": contraction.one_pass_hybrid,
    "one_pass_laplace": contraction.one_pass_laplace,
    "mixing_rdp": contraction.mixing_rdp,
    "shuffled_pass": contraction.shuffled_pass,
    "random_stop_contraction": contraction.random_stop_contraction,
    "random_stop_lipschitz": contraction.random_stop_lipschitz,
    "random_stop_mean": contraction.random_stop_mean,
    "random_stop_rdp": contraction.random_stop_rdp,
    "modulus": shift_bounds.modulus,
    "every_batch": shift_bounds.every_batch,
    "poisson_modulus": random_batches.poisson_modulus,
    "poisson_blocks": blocks.poisson_blocks,
    "poisson_blocks_replace": blocks.poisson_blocks_replace,
    "fixed_size_averaged": fixed_size.fixed_size_averaged,
    "asoodeh_diaz_closed": published.asoodeh_diaz_closed,
    "fixed_size_modulus": split_modulus.fixed_size_modulus,
    "poisson_replace_modulus": split_modulus.poisson_replace_modulus,
    "poisson_recursion": contraction.poisson_recursion,
    "fixed_size_recursion": contraction.fixed_size_recursion,
}
# Theorems that speak of several records themselves; the others are extended by group privacy.
KNOW_GROUPS = frozenset({"poisson_blocks", "poisson_blocks_replace"})
