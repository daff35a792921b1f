"""The batches of a run: which records take part in each step."""

from __future__ import annotations

from collections.abc import Iterator

from dplateau.algorithms import CyclicSGD, NoisyGD, NoisySGD, OnePassSGD, ProjectedLangevin, Run
from dplateau.engines.randomness import Randomness
from dplateau.engines.records import ALL, Rows
from dplateau.errors import NotApplicable
from dplateau.numerics.types import IntArray

AHEAD, ROWS_AHEAD = 32, 1 << 15


def batches(run: Run, randomness: Randomness) -> Iterator[Rows]:
    """Yield the batch of every step, for ever: the run's length is counted elsewhere."""
    match run:
        case NoisyGD() | ProjectedLangevin():
            return _everything()
        case NoisySGD(sampling="poisson"):
            return _poisson(run, randomness)
        case NoisySGD():
            return _fixed(run, randomness)
        case CyclicSGD(order="cyclic") | OnePassSGD():
            return _in_order(run)
        case CyclicSGD():
            return _shuffled(run, randomness)
    raise NotApplicable(f"no engine trains {type(run).__name__}; describe it by another run")


def _everything() -> Iterator[Rows]:
    while True:
        yield ALL


def _poisson(run: NoisySGD, randomness: Randomness) -> Iterator[Rows]:
    while True:
        yield from randomness.poisson_subsets(run.n, run.sampling_rate, _ahead(run))


def _fixed(run: NoisySGD, randomness: Randomness) -> Iterator[Rows]:
    while True:
        yield from randomness.subsets(run.n, [int(run.batch_size)] * _ahead(run))


def _ahead(run: Run) -> int:
    """Return how many batches to draw at once: many small ones, or one that is large."""
    return max(1, min(AHEAD, run.steps, int(ROWS_AHEAD / run.batch_size)))


def _in_order(run: Run) -> Iterator[Rows]:
    size = int(run.batch_size)
    while True:
        for start in range(0, run.n, size):
            yield slice(start, min(run.n, start + size))


def _shuffled(run: CyclicSGD, randomness: Randomness) -> Iterator[Rows]:
    order: IntArray = randomness.permutation(run.n)
    while True:
        for part in _one_epoch(run):
            yield order[part]
        if run.order == "reshuffle":
            order = randomness.permutation(run.n)


def _one_epoch(run: CyclicSGD) -> Iterator[slice]:
    size = int(run.batch_size)
    for start in range(0, run.n, size):
        yield slice(start, min(run.n, start + size))
