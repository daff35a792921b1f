"""Training that does exactly what a run describes, with nothing shown on the way."""

from __future__ import annotations

from dplateau.engines.cluster import Ray
from dplateau.engines.gradients import train_gradient
from dplateau.engines.randomness import Randomness, SecureRandomness, SeededRandomness
from dplateau.engines.rows import scale_rows
from dplateau.engines.sources import (
    ArraySource,
    ChunkSource,
    Prepared,
    Selected,
    Source,
    TableSource,
    hold_out,
    in_scratch_file,
    scaled,
)
from dplateau.engines.training import train

__all__ = [
    "ArraySource",
    "ChunkSource",
    "Prepared",
    "Randomness",
    "Ray",
    "SecureRandomness",
    "SeededRandomness",
    "Selected",
    "Source",
    "TableSource",
    "hold_out",
    "in_scratch_file",
    "scale_rows",
    "scaled",
    "train",
    "train_gradient",
]
