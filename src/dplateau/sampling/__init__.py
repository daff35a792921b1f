"""Sampling on convex bodies by projected Langevin steps, with certificates of mixing.

``certify_mixing`` says how soon a chain forgets where it started, ``LangevinSampler`` runs what a
description says, ``sample`` does both in one call.
"""

from __future__ import annotations

from dplateau.sampling.bodies import OffCenterBall, Polytope, Simplex, check_projection
from dplateau.sampling.mixing import (
    MixingCertificate,
    block_tv_over_steps,
    certify_mixing,
    largest_learning_rate,
    nonexpansive_learning_rate,
    tv_over_steps,
)
from dplateau.sampling.potentials import Potential, check_constants
from dplateau.sampling.published import Published, theorem_4_2, theorem_4_2_over_steps
from dplateau.sampling.sampler import LangevinSampler, LangevinState
from dplateau.sampling.samples import Samples, sample

__all__ = [
    "LangevinSampler",
    "LangevinState",
    "MixingCertificate",
    "OffCenterBall",
    "Polytope",
    "Potential",
    "Published",
    "Samples",
    "Simplex",
    "block_tv_over_steps",
    "certify_mixing",
    "check_constants",
    "check_projection",
    "largest_learning_rate",
    "nonexpansive_learning_rate",
    "sample",
    "theorem_4_2",
    "theorem_4_2_over_steps",
    "tv_over_steps",
]
