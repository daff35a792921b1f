"""Two neighbouring data sets on which an audit has power."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks as _check
from dplateau.ground.types import FloatArray


@dataclass(frozen=True, eq=False)
class CanaryPair:
    """``data`` holds the record number ``record`` (from 0), ``neighbor`` does not.

    Row i is the gradient of record i's linear loss f_i(w) = <row, w>, the same at every w. All rows
    are zero but the record's, which has full length along ``direction``.
    """

    data: FloatArray
    neighbor: FloatArray
    direction: FloatArray
    record: int


def worst_case_pair(
    run: Run, dimension: int | None = None, record: int | None = None
) -> CanaryPair:
    """Return a record of full gradient norm among silent others, and the same without it.

    Under "add_remove" the absent record leaves a zero row: in ordered batches it keeps its slot
    with a zero gradient, and under Poisson sampling a zero gradient is as good as none. Under
    "replace" its opposite takes its place. By default the record sits in the batch that is used
    last. On an unconstrained run these are the data that leak most among linear losses; on a
    bounded domain a drift of the others can leak more.

    >>> from dplateau.algorithms import LossGeometry, NoisyGD
    >>> run = NoisyGD(n=3, steps=9, noise_multiplier=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=2.0, convex=True))
    >>> worst_case_pair(run, dimension=2).data.tolist()
    [[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    width = _dimension(run, dimension)
    place = _used_last(run) if record is None else _check.whole("record", record, least=0)
    if place >= run.n:
        raise InvalidInput(f"record={place} but the run has {run.n} records, numbered from 0")
    direction = np.zeros(width)
    direction[0] = 1.0
    data, neighbor = np.zeros((run.n, width)), np.zeros((run.n, width))
    data[place] = _length(run) * direction
    neighbor[place] = (1 - run.neighbor_factor) * data[place]
    return CanaryPair(data, neighbor, direction, place)


def _dimension(run: Run, dimension: int | None) -> int:
    if dimension is None:
        return 1 if run.dimension is None else run.dimension
    found = _check.whole("dimension", dimension)
    if run.dimension not in (None, found):
        raise InvalidInput(f"dimension={found}, but the run has {run.dimension} parameters")
    return found


def _length(run: Run) -> float:
    if run.lipschitz is None and run.noise.name == "noise_multiplier":
        return 1.0  # the unit of gradients is free
    if run.lipschitz is None or math.isinf(run.lipschitz):
        raise NotApplicable(
            "a record of full gradient norm needs loss=LossGeometry(lipschitz=..., convex=...)"
        )
    return run.lipschitz


def _used_last(run: Run) -> int:
    """Return the first record of the batch of the last step, where the order is known."""
    match run.batches:
        case OnePass(size=size) | Cyclic(size=size, order="cyclic"):
            return (run.steps - 1) % run.batches_per_epoch * size
        case FullBatch() | Poisson() | FixedSize() | Cyclic():
            return 0
        case _ as unknown:
            refuse_batches(unknown)
