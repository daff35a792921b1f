"""Shards of a source, and what a worker does with those that it holds: batches and sums.

Nothing here knows Ray: ``cluster`` has the workers that answer by these classes, and says why a
shard that is loaded anew, by whatever worker, gives the same whole numbers.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from dplateau.algorithms import Poisson, Run
from dplateau.engines import records as local
from dplateau.engines.arrow import RowGroups, row_groups
from dplateau.engines.moments import moment_units
from dplateau.engines.randomness import Keystream, binomial_thresholds
from dplateau.engines.records import ALL, ArrayRecords, Records, SourceRecords, Sum, Terms
from dplateau.engines.rows import blocks
from dplateau.engines.ruler import Ruler
from dplateau.engines.sources import (
    ArraySource,
    ChunkSource,
    Prepared,
    Rows,
    Selected,
    Source,
    TableSource,
    chunks_of,
    mapped_file,
    over_parts,
    parts_of,
)
from dplateau.errors import BadRecord, InvalidInput
from dplateau.ground.types import FloatArray, IntArray

# A shard is about as much, as far as row groups allow.
SHARD_BYTES = 1 << 28
# Numbers in a piece of a message (see ``cluster``).
PIECE = 1 << 13


# -- shards ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Shard:
    """Some records, as a recipe for loading them: no record travels.

    ``first`` is where the first row that is read for it stands in the whole source.
    """

    number: int
    n: int
    load: Callable[[], Source]
    first: int


@dataclass(frozen=True)
class _FromTable:
    source: TableSource

    def __call__(self) -> Source:
        return self.source


@dataclass(frozen=True)
class _FromArrays:
    """Rows ``start`` ... ``stop`` - 1 of memory-mapped files."""

    features: Any
    targets: Any
    start: int
    stop: int

    def __call__(self) -> Source:
        part = slice(self.start, self.stop)
        return ArraySource(self.features.open()[part], self.targets.open()[part])


@dataclass(frozen=True)
class _Mapped:
    """A shard's loading, followed by what is done to its rows."""

    load: Callable[[], Source]
    prepare: Callable[[Any, Any], Any]

    def __call__(self) -> Source:
        return Prepared(self.load(), self.prepare)


@dataclass(frozen=True)
class _Selection:
    """A shard's loading, of whose rows some are left out."""

    load: Callable[[], Source]
    rows: Selected

    def __call__(self) -> Source:
        return replace(self.rows, source=self.load())


def shards_of(source: Source) -> list[Shard]:
    """Return the shards of a source; they depend on its files alone."""
    match source:
        case Prepared(source=inner, prepare=prepare):
            return [replace(one, load=_Mapped(one.load, prepare)) for one in shards_of(inner)]
        case Selected(source=inner):
            return list(_selected(source, shards_of(inner)))
        case TableSource():
            loads = [
                (n, _FromTable(replace(source, data=part)))
                for part, n in _row_group_runs(source.data)
            ]
        case ArraySource(features=features, targets=targets):
            files = mapped_file(features), mapped_file(targets)
            if files[0] is None or files[1] is None:
                raise _no_files("arrays in memory")
            width = max(1, features.nbytes // max(1, len(features)))
            parts = blocks(len(features), width, SHARD_BYTES)
            return [
                Shard(
                    i,
                    part.stop - part.start,
                    _FromArrays(*files, part.start, part.stop),
                    part.start,
                )
                for i, part in enumerate(parts)
            ]
        case ChunkSource():
            raise _no_files("an iterable of chunks")
    starts = itertools.accumulate((n for n, _ in loads), initial=0)
    return [Shard(i, n, load, next(starts)) for i, (n, load) in enumerate(loads)]


def _selected(source: Selected, shards: list[Shard]) -> Iterator[Shard]:
    """Yield what is left of each shard; coins go by a row's place among all rows."""
    start = 0
    for one in shards:
        n, first = source.count(start, start + one.n), source.first + start
        start += one.n
        if n:
            # The source itself stays here: a worker loads its own part.
            rows = replace(source, source=_NOTHING, first=first)
            yield replace(one, n=n, load=_Selection(one.load, rows))


_NOTHING = ChunkSource(())


def _no_files(what: str) -> InvalidInput:
    return InvalidInput(
        f"engine='ray' has workers load files of their own, and {what} would have to be sent to "
        "them; write Parquet files, or .npy files and memory-map them"
    )


def _row_group_runs(data: Any) -> Iterator[tuple[RowGroups, int]]:
    """Yield runs of row groups of about the size of a shard, and how many records each holds."""
    groups = row_groups(data)
    if groups is None:
        raise _no_files("an Arrow table or dataset")
    for path, sizes in groups:
        run: list[int] = []
        held = rows = 0
        for number, (n, size) in enumerate(sizes):
            run.append(number)
            held, rows = held + size, rows + n
            if held >= SHARD_BYTES or number == len(sizes) - 1:
                if rows:
                    yield RowGroups(path, tuple(run)), rows
                run, held, rows = [], 0, 0


# -- what a worker does with its shards -----------------------------------------------------------


class Job(Protocol):
    """What is to be summed; it opens shards in the worker that holds them."""

    def open(self, shard: Shard, among: int) -> Share:
        """Return the part of the sum that a shard contributes, one among so many in a worker."""


class Share(Protocol):
    """A shard at work."""

    def units(self, key: bytes, step: int, weights: FloatArray) -> IntArray:
        """Return the shard's part of a step's sum."""


@dataclass(frozen=True)
class Gradients:
    """Sums of gradients over the batches of a run."""

    run: Run
    terms: Terms
    ruler: Ruler
    in_memory: bool

    def open(self, shard: Shard, among: int) -> Share:
        """Return the shard's records with their batches."""
        if self.in_memory:
            rows, targets = _in_memory(shard.load(), shard.n)
            try:
                held = ArrayRecords(rows, targets, self.terms, ruler=self.ruler)
            except BadRecord as refusal:
                chunks = chunks_of(shard.load())
                numbers = np.concatenate([chunk.numbers(slice(None)) for chunk in chunks])
                raise refusal.at(numbers.tolist()) from None
            return _GradientShare(self.run, lambda: held, shard)

        def read() -> Records:
            source = shard.load()
            return SourceRecords(source, self.terms, shard.n, ruler=self.ruler, among=among)

        return _GradientShare(self.run, read, shard)


@dataclass(frozen=True)
class Moments:
    """Sums of second moments of rows."""

    feature_norm: float

    def open(self, shard: Shard, among: int) -> Share:
        """Return the shard; its rows are read when they are asked for."""
        del among
        return _MomentShare(self.feature_norm, shard)


class _GradientShare:
    def __init__(self, run: Run, opened: Callable[[], Records], shard: Shard) -> None:
        self.run, self.opened, self.shard = run, opened, shard
        self.next_step = -1
        self.sums: Iterator[Sum] = iter(())

    def units(self, key: bytes, step: int, weights: FloatArray) -> IntArray:
        if step != self.next_step:
            # Ahead of their steps: batches of a file are collected several at a time.
            self.sums = self.records.in_turn(self._batches(key, step))
        self.next_step = step + 1
        return next(self.sums)(weights)

    def _batches(self, key: bytes, first: int) -> Iterator[Rows]:
        if not isinstance(self.run.batches, Poisson):
            yield from itertools.repeat(ALL)
        rate, thresholds = None, list[int]()
        for step in range(first, self.run.steps):
            if rate != self.rates[step]:
                # Kept here: a worker may have shards of more sizes than are remembered there.
                rate = float(self.rates[step])
                thresholds = binomial_thresholds(self.shard.n, rate)
            yield poisson_batch(key, self.shard, step, thresholds)

    @cached_property
    def records(self) -> Records:
        """Return the records; those of files hold a chunk as soon as they are opened."""
        return self.opened()

    @cached_property
    def rates(self) -> FloatArray:
        return self.run.sampling_rates()


class _MomentShare:
    def __init__(self, feature_norm: float, shard: Shard) -> None:
        self.feature_norm, self.shard = feature_norm, shard

    def units(self, key: bytes, step: int, weights: FloatArray) -> IntArray:
        del key, step
        total = np.zeros(weights.shape, dtype=np.int64)
        seen = 0

        def units(rows: Any, targets: Any) -> tuple[IntArray, int]:
            return moment_units(rows, self.feature_norm), len(targets)

        for some, count in over_parts(self.shard.load(), units):
            total += some
            seen += count
        _check_seen(seen, self.shard.n)
        return total


def shard_key(key: bytes, number: int) -> bytes:
    """Return the key of a shard: it tells its worker nothing about the batches of other shards."""
    return Keystream(key, number, 0).words(4).tobytes() if key else b""


def poisson_batch(key: bytes, shard: Shard, step: int, thresholds: list[int]) -> IntArray:
    """Return which records are in the batch of a step, by the shard's key: always the same ones.

    ``thresholds`` are those of the law of its size (see ``binomial_thresholds``).
    """
    coins = Keystream(key, shard.number, step)
    return coins.subsets(shard.n, coins.binomials_by(thresholds, 1))[0]


def _parts(source: Source, n: int) -> Iterator[tuple[Any, npt.NDArray[Any]]]:
    """Yield blocks of a shard's rows, and see that they are as many as its file said."""
    seen = 0
    for rows, targets in parts_of(source):
        yield rows, targets
        seen += len(targets)
    _check_seen(seen, n)


def _check_seen(seen: int, n: int) -> None:
    if seen != n:
        raise InvalidInput(f"a shard of {n} records has {seen} now: its file was changed")


def _in_memory(source: Source, n: int) -> tuple[Any, npt.NDArray[Any]]:
    """Return all rows and targets of a shard."""
    parts = _parts(source, n)
    first, answers = next(parts)
    rest = itertools.chain([(first, answers)], parts)
    if issparse(first):
        return local.joined(list(rest))
    rows = np.empty((n, first.shape[1]), first.dtype)
    targets = np.empty(n, answers.dtype)
    place = 0
    for some, values in rest:
        rows[place : place + len(some)] = some
        targets[place : place + len(some)] = values
        place += len(some)
    return rows, targets


class Worker:
    """A process that holds shards. It prints nothing, and raises nothing: Ray would log it."""

    def __init__(self, processors: int) -> None:
        warnings.simplefilter("ignore")
        local.PROCESSORS = processors
        self.shares: dict[int, Share] = {}
        self.shards: dict[int, Shard] = {}

    def hold(self, shards: list[Shard], job: Job) -> str | None:
        """Load shards; return why that is not possible, if so."""

        def load() -> None:
            for shard in shards:
                with _said_of(shard):
                    self.shares[shard.number] = job.open(shard, len(shards))
                self.shards[shard.number] = shard

        return _trouble(load)

    def total(
        self, keys: dict[int, bytes], step: int, shape: tuple[int, ...], *weights: Any
    ) -> list[Any]:
        """Return what is wrong, or None, and then the sum over shards in pieces; keys by shard."""
        at = np.concatenate(weights).reshape(shape)
        total = np.zeros(shape, dtype=np.int64)

        def add() -> None:
            with np.errstate(all="ignore"):
                for number, key in keys.items():
                    with _said_of(self.shards[number]):
                        np.add(total, self.shares[number].units(key, step, at), out=total)

        trouble = _trouble(add)
        return [trouble, *pieces(total)]


@contextmanager
def _said_of(shard: Shard) -> Iterator[None]:
    """Let refusals say which part of the source they are about: they count rows from its first."""
    try:
        yield
    except InvalidInput as error:
        place = f"in the part of the source from row {shard.first} on, rows counted there"
        raise InvalidInput(f"{error} ({place})") from None


def _trouble(act: Callable[[], None]) -> str | None:
    """Do something and return what went wrong in words that quote no record."""
    try:
        act()
    except InvalidInput as error:
        return str(error)
    except Exception as error:
        return f"a worker failed ({type(error).__name__})"
    return None


def pieces(values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return the values in pieces that travel as messages."""
    flat = values.ravel()
    return [flat[i : i + PIECE].copy() for i in range(0, flat.size, PIECE)]
