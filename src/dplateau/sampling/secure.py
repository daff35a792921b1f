"""A secure source of noise and batches, with the methods of a NumPy generator that chains use."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplateau.engines import SecureRandomness
from dplateau.ground.types import FloatArray, IntArray


class SecureGenerator:
    """Numbers from the operating system's entropy, for draws that leave as private releases."""

    def __init__(self) -> None:
        self._randomness = SecureRandomness()

    def standard_normal(self, *, out: FloatArray) -> FloatArray:
        """Fill an array with standard normal numbers."""
        out[...] = self._randomness.gaussian(out.size).reshape(out.shape)
        return out

    def binomial(self, n: int, p: float, size: int) -> IntArray:
        """Return binomial numbers."""
        return np.array(self._randomness.binomials(n, p, size), dtype=np.int64)

    def choice(self, n: int, size: int, **_: Any) -> IntArray:
        """Return a uniformly random set of 0 ... n - 1, without repetition."""
        return self._randomness.subsets(n, [int(size)])[0] if size else np.empty(0, np.int64)


Source = np.random.Generator | SecureGenerator
