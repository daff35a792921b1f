"""The batches of a run: which records take part in each step."""

from __future__ import annotations

from collections.abc import Iterator

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    Schedule,
    refuse_batches,
)
from dplateau.algorithms.schedule import PerStep
from dplateau.engines.randomness import Randomness
from dplateau.engines.records import ALL, Rows
from dplateau.ground.types import IntArray

AHEAD, ROWS_AHEAD = 32, 1 << 15


def batches(run: Run, randomness: Randomness) -> Iterator[Rows]:
    """Yield the batch of every step, at least as many as the run has."""
    match run.batches:
        case FullBatch():
            return _everything()
        case Poisson(rate=rate):
            return _poisson(run, rate, randomness)
        case FixedSize(size=size):
            return _fixed(run, size, randomness)
        case OnePass(size=size) | Cyclic(size=size, order="cyclic"):
            return _in_order(run, size)
        case Cyclic():
            return _shuffled(run, run.batches, randomness)
        case _ as unknown:
            refuse_batches(unknown)


def _everything() -> Iterator[Rows]:
    while True:
        yield ALL


def _poisson(run: Run, rate: PerStep, randomness: Randomness) -> Iterator[Rows]:
    for value, count in rate.blocks if isinstance(rate, Schedule) else ((rate, run.steps),):
        for first in range(0, count, ahead := _ahead(count, value * run.n)):
            yield from randomness.poisson_subsets(run.n, value, min(ahead, count - first))


def _fixed(run: Run, size: int, randomness: Randomness) -> Iterator[Rows]:
    while True:
        yield from randomness.subsets(run.n, [size] * _ahead(run.steps, size))


def _ahead(steps: int, rows: float) -> int:
    """Return how many batches to draw at once: many small ones, or one that is large."""
    return max(1, min(AHEAD, steps, int(ROWS_AHEAD / rows)))


def _in_order(run: Run, size: int) -> Iterator[Rows]:
    while True:
        yield from _one_epoch(run, size)


def _shuffled(run: Run, cycle: Cyclic, randomness: Randomness) -> Iterator[Rows]:
    order: IntArray = randomness.permutation(run.n)
    while True:
        for part in _one_epoch(run, cycle.size):
            yield order[part]
        if cycle.order == "reshuffle":
            order = randomness.permutation(run.n)


def _one_epoch(run: Run, size: int) -> Iterator[slice]:
    for start in range(0, run.n, size):
        yield slice(start, min(run.n, start + size))
