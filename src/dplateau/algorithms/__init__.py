"""Descriptions of what runs: loss geometry, domains, noise and the five algorithms."""

from dplateau.algorithms.base import Run
from dplateau.algorithms.domains import Ball, Body, Box, Domain
from dplateau.algorithms.geometry import Dissipativity, Holder, LossGeometry
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
    "Ball",
    "Body",
    "Box",
    "CyclicSGD",
    "Dissipativity",
    "Domain",
    "Holder",
    "LossGeometry",
    "NoisyGD",
    "NoisySGD",
    "OnePassSGD",
    "ProjectedLangevin",
    "Run",
    "Schedule",
    "run_from_dict",
]
