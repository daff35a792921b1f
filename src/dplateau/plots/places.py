"""At which lengths, or for which records, a curve is worth computing."""

from __future__ import annotations

import numpy as np

from dplateau.algorithms import Cyclic, Run
from dplateau.errors import InvalidInput
from dplateau.ground.types import IntArray


def step_counts(run: Run, first: int, last: int, points: int = 60) -> IntArray:
    """Return up to ``points`` numbers of steps, evenly spread on a logarithmic axis.

    Runs over consecutive batches are looked at after whole epochs, if there is room for one.

    >>> from dplateau import NoisyGD
    >>> step_counts(NoisyGD(n=9, steps=1, noise_std=1.0, release="all"), 1, 1000, 4).tolist()
    [1, 10, 100, 1000]
    """
    _check_range(first, last, points)
    counts = np.unique(np.geomspace(first, last, points).round().astype(np.int64))
    if isinstance(run.batches, Cyclic):
        epoch = run.batches_per_epoch
        whole = np.unique(counts // epoch * epoch)
        whole = whole[whole >= max(first, epoch)]
        return whole if whole.size else counts
    return counts


def record_positions(first: int, last: int, points: int = 60) -> IntArray:
    """Return all positions, or ``points`` of them, densest at the end where losses change most.

    >>> record_positions(1, 1000, 4).tolist()
    [1, 901, 991, 1000]
    """
    _check_range(first, last, points)
    if last - first < points:
        return np.arange(first, last + 1)
    back = np.geomspace(1, last - first + 1, points).round().astype(np.int64)
    return np.unique(last + 1 - back)


def _check_range(first: int, last: int, points: int) -> None:
    if points < 2:
        raise InvalidInput(f"a curve needs at least 2 points; got {points}")
    if not 1 <= first <= last:
        raise InvalidInput(
            f"a curve goes from 1 or more to something no smaller; got from {first} to {last}"
        )
