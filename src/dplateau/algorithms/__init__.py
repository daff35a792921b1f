"""Descriptions of what runs: loss geometry, domains, noise, batches and the five algorithms."""

from dplateau.algorithms.base import Run, require_run
from dplateau.algorithms.batches import (
    Batches,
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Scheme,
    refuse_batches,
)
from dplateau.algorithms.geometry import (
    Ball,
    Body,
    Box,
    Dissipativity,
    Domain,
    Holder,
    LossGeometry,
)
from dplateau.algorithms.release import (
    AllIterates,
    Checkpoints,
    LastIterate,
    RandomStop,
    Release,
    refuse_release,
)
from dplateau.algorithms.runs import (
    CyclicSGD,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
    run_from_dict,
)
from dplateau.algorithms.schedule import Schedule

__all__ = [
    "AllIterates",
    "Ball",
    "Batches",
    "Body",
    "Box",
    "Checkpoints",
    "Cyclic",
    "CyclicSGD",
    "Dissipativity",
    "Domain",
    "FixedSize",
    "FullBatch",
    "Holder",
    "LastIterate",
    "LossGeometry",
    "NoisyGD",
    "NoisySGD",
    "OnePass",
    "OnePassSGD",
    "Poisson",
    "ProjectedLangevin",
    "RandomStop",
    "Release",
    "Run",
    "Schedule",
    "Scheme",
    "refuse_batches",
    "refuse_release",
    "require_run",
    "run_from_dict",
]
