"""Random batches for many chains at once, drawn as the run describes them."""

from __future__ import annotations

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    refuse_batches,
)
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray, IntArray
from dplateau.sampling.secure import Source


def random_batches(run: Run, chains: int, generator: Source) -> tuple[IntArray, FloatArray]:
    """Return the records of each chain's batch and their weights: 1 / b, or 0 for padding.

    Poisson: the size is binomial and, given its size, a batch is a uniformly random set; that is
    the law of independent inclusions. The step divides by the constant b all the same.
    """
    match run.batches:
        case Poisson():
            sizes = generator.binomial(run.n, run.sampling_rate, size=chains)
        case FixedSize(size=each):
            sizes = np.full(chains, each)
        case FullBatch() | Cyclic() | OnePass():
            raise NotApplicable(f"chains draw random batches; {run.kind} has none")
        case _ as unknown:
            refuse_batches(unknown)
    width = int(sizes.max())
    rows = np.zeros((chains, width), dtype=np.int64)
    for chain, size in enumerate(sizes):
        rows[chain, :size] = generator.choice(run.n, size=size, replace=False, shuffle=False)
    weights = (np.arange(width) < sizes[:, None]) / run.batch_size
    return rows, weights
