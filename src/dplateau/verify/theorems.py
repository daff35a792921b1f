"""Every bound that can be verified, by the name that certificates use."""

from __future__ import annotations

from dplateau.verify import compositions, random_batches, shift_bounds
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
    "modulus": shift_bounds.modulus,
    "poisson_plain": random_batches.poisson_plain,
    "poisson_high_probability": random_batches.poisson_high_probability,
    "poisson_averaged": random_batches.poisson_averaged,
    "poisson_modulus": random_batches.poisson_modulus,
    "poisson_replace_split": random_batches.poisson_replace_split,
    "poisson_replace_group": random_batches.poisson_replace_group,
    "fixed_size_split": random_batches.fixed_size_split,
}
