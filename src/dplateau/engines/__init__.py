"""Training that does exactly what a run describes, with nothing shown on the way."""

from __future__ import annotations

from dplateau.engines.randomness import Randomness, SecureRandomness, SeededRandomness
from dplateau.engines.records import Chunks
from dplateau.engines.rows import scale_rows
from dplateau.engines.training import train

__all__ = [
    "Chunks",
    "Randomness",
    "SecureRandomness",
    "SeededRandomness",
    "scale_rows",
    "train",
]
