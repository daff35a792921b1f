"""Where records come from when they do not fit in memory: a closed set of frozen values.

A source yields its records in chunks, in the same order on every pass, and a chunk gives some of
its rows when it is asked for them: nothing is copied before it is needed. The run declares n; a
source never counts for it. Five kinds cover what there is:

* ``ArraySource``: arrays, memory-mapped ones above all, in slices;
* ``ChunkSource``: any iterable of (features, targets); an iterator, which iterates once, serves
  runs of one pass;
* ``TableSource``: Parquet files and folders, Arrow tables and datasets, by column names;
* ``Prepared``: another source with a function applied to its rows, on the fly;
* ``Selected``: the rows of another source whose coin fell one way (``hold_out`` makes both parts).

``in_scratch_file`` does the work of the last two once instead of on every pass.
"""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, assert_never, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from dplateau.engines.arrow import (
    batches,
    begun,
    is_reader,
    labels,
    numbers,
    picked,
    table_rows,
)
from dplateau.engines.randomness import Coins, SecureRandomness, SeededRandomness, coins_for
from dplateau.engines.rows import blocks, is_sparse, scale_rows
from dplateau.errors import BadRecord, DplateauError, InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import IntArray

Rows = slice | IntArray
Part = tuple[Any, npt.NDArray[Any]]
Result = TypeVar("Result")
# A chunk, where the source leaves the choice to us.
CHUNK_BYTES = 1 << 26
# Rows that are looked at together where they are summed, counted or stored one after the other.
ROWS_AT_ONCE = 1 << 14


class Chunk(Protocol):
    """Some consecutive records, which become rows when they are asked for."""

    @property
    def n(self) -> int:
        """Return how many there are."""

    @property
    def names(self) -> Sequence[str] | None:
        """Return how the columns of its rows are called, if that is known."""

    def rows(self, chosen: Rows) -> Part:
        """Return features and targets of some of them, counted from the first of the chunk."""

    def numbers(self, chosen: Rows) -> IntArray:
        """Return the places of those records in all that the source is read from."""


@dataclass(frozen=True, eq=False)
class ArraySource:
    """A matrix (memory-mapped, in memory, or CSR) with an array of targets.

    With ``at_most`` there may be fewer rows than the run declares: what is missing counts as absent
    records. The same holds for the other sources.
    """

    features: Any
    targets: Any
    at_most: bool = False


@dataclass(frozen=True, eq=False)
class ChunkSource:
    """An iterable of pairs (features, targets); an iterator is a stream that can be read once."""

    chunks: Iterable[Part]
    at_most: bool = False


@dataclass(frozen=True)
class MappedFile:
    """An array that lies in a file."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def open(self) -> npt.NDArray[Any]:
        """Return the array, memory-mapped."""
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


@dataclass(frozen=True, eq=False)
class TableSource:
    """Columns of Parquet files, of folders of them, or of an Arrow table or dataset.

    Parameters
    ----------
    data
        A path or a sequence of paths (a folder stands for the Parquet files below it, in order of
        their names), a ``pyarrow`` table, record batch or dataset, or a ``RecordBatchReader``,
        which is a stream that can be read once.
    features
        The columns that make a row: numbers, or one column of lists of a fixed size. The rows are
        float32 if all columns are, else float64.
    target
        The column of targets.
    at_most
        Whether there may be fewer rows than the run declares.
    encode
        Makes (rows, targets) of a ``pyarrow.RecordBatch`` with these columns, each from its own
        record alone; by default columns of numbers are taken as they are. One that has a method
        ``at`` is asked for the function for rows at these places, ``encode.at(places)``, so that
        what it refuses can say where.
    """

    data: Any
    features: Sequence[str] | str
    target: str
    at_most: bool = False
    encode: Callable[[Any], Part] | None = None


@dataclass(frozen=True, eq=False)
class Prepared:
    """A source whose rows pass through ``prepare`` whenever they are read.

    ``prepare(features, targets)`` returns as many rows and targets, each from its own record alone.
    """

    source: Source
    prepare: Callable[[Any, Any], Part]

    @property
    def at_most(self) -> bool:
        """Return whether there may be fewer rows than the run declares."""
        return self.source.at_most


@dataclass(frozen=True, eq=False)
class Selected:
    """The rows of a source whose coin is ``heads``; the source's first row has coin ``first``."""

    source: Source
    coins: Coins
    heads: bool
    first: int = 0

    @property
    def at_most(self) -> bool:
        """Return whether there may be fewer rows than the run declares."""
        return self.source.at_most

    def places(self, start: int, stop: int) -> IntArray:
        """Return which of the source's rows ``start`` ... ``stop`` - 1 these are, from there."""
        fell = self.coins.heads(self.first + start, self.first + stop)
        return np.flatnonzero(fell if self.heads else ~fell)

    def count(self, start: int, stop: int) -> int:
        """Return how many of the source's rows ``start`` ... ``stop`` - 1 these are."""
        heads = self.coins.count(self.first + start, self.first + stop)
        return heads if self.heads else stop - start - heads


Source = ArraySource | ChunkSource | TableSource | Prepared | Selected


def scaled(source: Source, norm: float) -> Prepared:
    """Return the source with every row scaled down to at most ``norm``, as :func:`scale_rows` does.

    >>> source = scaled(ArraySource(np.array([[3.0, 4.0]]), np.array([1])), norm=1.0)
    >>> next(chunks_of(source)).rows(slice(None))[0].round(6)
    array([[0.6, 0.8]])
    """
    norm = checks.positive("norm", norm)
    return Prepared(source, partial(_scale, norm=norm))


def _scale(features: Any, targets: Any, norm: float) -> Part:
    return scale_rows(features, norm), targets


def hold_out(
    source: Source, *, share: float = 0.1, seed: int | None = None
) -> tuple[Selected, Selected]:
    """Split a source in two, by a coin of its own for every row: what is left, and a share of it.

    Both parts are read from the source, and see the same coins on every pass. The coins know
    nothing of the rows: which row is in which part may be public. A record is in one part, so for
    one row per person the worse of two releases about the parts counts
    (``compose(..., records="disjoint")``).

    Parameters
    ----------
    source
        Where the records come from; it must be one that can be read again, and give its rows in the
        same order on every pass: coins belong to places, and a row that moves may be in both parts.
    share
        The probability with which a row is held out.
    seed
        Makes the split repeatable.

    Raises
    ------
    InvalidInput
        If the source is a stream, or too small.

    Examples
    --------
    >>> numbers = ArraySource(np.arange(1000.0)[:, None], np.arange(1000))
    >>> rest, held = hold_out(numbers, seed=1)
    >>> size_of(rest), size_of(held)
    (904, 96)
    """
    if not 0 < checks.probability("share", share) < 1:
        raise InvalidInput(f"share must lie between 0 and 1; got {share:g}")
    if reads_once(source):
        raise InvalidInput(
            "a stream can be read once, and two parts of it need two passes; give a source that "
            "can be read again (a list of chunks, files), or keep it first: in_scratch_file(source)"
        )
    randomness = SecureRandomness() if seed is None else SeededRandomness(seed)
    coins = coins_for(size_of(source), share, randomness)
    return Selected(source, coins, heads=False), Selected(source, coins, heads=True)


def reads_once(source: Source) -> bool:
    """Return whether the source is a stream, which cannot be read a second time."""
    match source:
        case ChunkSource(chunks=chunks):
            return iter(chunks) is chunks if isinstance(chunks, Iterator) else False
        case Prepared(source=inner) | Selected(source=inner):
            return reads_once(inner)
        case TableSource(data=data):
            return is_reader(data)
        case ArraySource():
            return False
        case _ as unknown:
            assert_never(unknown)


def size_of(source: Source) -> int | None:
    """Return how many records there are if that is known without reading them."""
    match source:
        case ArraySource(features=features):
            _check_array(features)
            return int(features.shape[0])
        case ChunkSource():
            return None
        case TableSource(data=data):
            return table_rows(data)
        case Prepared(source=inner):
            return size_of(inner)
        case Selected(source=inner):
            n = size_of(inner)
            return None if n is None else source.count(0, n)
        case _ as unknown:
            assert_never(unknown)


def check_count(source: Source, seen: int, n: int) -> None:
    """Refuse a source that held another number of records than the run declares."""
    if seen > n:
        raise InvalidInput(f"the source holds more records than n={n}")
    if seen < n and not source.at_most:
        raise InvalidInput(
            f"the source holds {seen} records, but the run is described for n={n}; with "
            "at_most=True the missing ones count as absent"
        )


def bounded(source: Source) -> Source:
    """Return the source as one that may hold fewer records than a run declares."""
    if isinstance(source, Prepared | Selected):
        return replace(source, source=bounded(source.source))
    return replace(source, at_most=True)


def opened(source: Source) -> tuple[Source, Part]:
    """Return the source and its first record; a stream is read that far and goes on from there."""
    source, start = _begun(source) if reads_once(source) else (source, source)
    for chunk in chunks_of(start):
        if chunk.n:
            return source, chunk.rows(slice(0, 1))
    raise InvalidInput("the source holds no records at all")


def _begun(source: Source) -> tuple[Source, Source]:
    """Return a stream that has lost nothing, and a source of its first records."""
    match source:
        case ChunkSource(chunks=chunks):
            items = (item for item, chunk in _items(chunks) if chunk.n)
            first = list(itertools.islice(items, 1))
            whole = itertools.chain(first, chunks)
            return replace(source, chunks=whole), replace(source, chunks=first)
        case TableSource(data=data):
            reader, table = begun(data)
            return replace(source, data=reader), replace(source, data=table)
        case Prepared(source=inner) | Selected(source=inner):
            rest, start = _begun(inner)
            return replace(source, source=rest), replace(source, source=start)
        case ArraySource():
            return source, source
        case _ as unknown:
            assert_never(unknown)


def chunks_of(source: Source, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Start over and yield the source's chunks."""
    match source:
        case ArraySource(features=features, targets=targets):
            return _slices(features, targets, chunk_bytes)
        case ChunkSource(chunks=chunks):
            return (chunk for _, chunk in _items(chunks))
        case TableSource():
            return _read_ahead(_columns(source, chunk_bytes))
        case Prepared(source=inner, prepare=prepare):
            return (_PreparedChunk(chunk, prepare) for chunk in chunks_of(inner, chunk_bytes))
        case Selected(source=inner):
            return _selected(source, chunks_of(inner, chunk_bytes))
        case _ as unknown:
            assert_never(unknown)


def parts_of(source: Source) -> Iterator[Part]:
    """Start over and yield the source's rows and targets, some at a time."""
    return over_parts(source, lambda features, targets: (features, targets))


def over_parts(source: Source, use: Callable[[Any, Any], Result]) -> Iterator[Result]:
    """Start over, and yield what a function makes of rows and targets, some at a time.

    Where it refuses one of them, the refusal says where in the source that stands.
    """
    for chunk in chunks_of(source):
        for part in blocks(chunk.n, 1, ROWS_AT_ONCE):
            features, targets = chunk.rows(part)
            with placed(chunk, part):
                used = use(features, targets)
            yield used


@contextmanager
def placed(chunk: Chunk, chosen: Rows) -> Iterator[None]:
    """Let refusals of some of a chunk's rows say where in the whole source they stand."""
    try:
        yield
    except BadRecord as refusal:
        raise refusal.at(chunk.numbers(chosen).tolist(), chunk.names) from None


def is_mapped(array: Any) -> bool:
    """Return whether an array's memory is a file's."""
    while array is not None:
        if isinstance(array, np.memmap | mmap.mmap):
            return True
        array = getattr(array, "base", None)
    return False


def mapped_file(array: Any) -> MappedFile | None:
    """Return where a whole memory-mapped array lies, for others to open; None if nowhere."""
    root = isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)
    if not root or not array.flags.c_contiguous or not Path(array.filename or "").is_file():
        return None
    path = str(Path(array.filename).resolve())
    return MappedFile(path, array.dtype.str, array.shape, array.offset)


def in_scratch_file(source: Source, *, folder: str | os.PathLike[str] | None = None) -> ArraySource:
    """Return the source's records in a file of their own: read, prepared and stored once.

    Nobody else can open the file (its mode is 0600), and it has no name any more as soon as it is
    open, so that nothing is left of it once the last array is gone, however the process ends.

    Parameters
    ----------
    source
        Where the records come from; a stream is used up.
    folder
        On which disk, if not that of temporary files.

    Raises
    ------
    InvalidInput
        If there are no records, if they are no dense numbers, if chunks differ in their columns, or
        if the disk does not take them.
    """
    with _unlinked(folder) as features, _unlinked(folder) as targets:
        kinds: set[tuple[int, np.dtype[Any], np.dtype[Any]]] = set()
        n = 0
        for rows, answers in parts_of(source):
            if issparse(rows):
                raise InvalidInput("a scratch file holds dense rows; leave sparse ones as is")
            kinds.add((rows.shape[1], rows.dtype, answers.dtype))
            if len(kinds) > 1:
                raise InvalidInput(
                    "a scratch file needs records with the same columns and types; others come "
                    f"after {n} records"
                )
            _append(rows, features)
            _append(answers, targets)
            n += len(rows)
        if not n:
            raise InvalidInput("the source holds no records at all")
        width, of_rows, of_targets = kinds.pop()
        return ArraySource(
            np.memmap(features, of_rows, "r", shape=(n, width)),
            np.memmap(targets, of_targets, "r", shape=(n,)),
            at_most=source.at_most,
        )


def _unlinked(folder: str | os.PathLike[str] | None) -> Any:
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix="dplateau-")
    except OSError as error:
        raise InvalidInput(
            f"cannot make a scratch file in {folder or tempfile.gettempdir()}: {error.strerror}"
        ) from None
    os.unlink(name)
    return os.fdopen(handle, "w+b")


def _append(values: npt.NDArray[Any], file: Any) -> None:
    if values.dtype.hasobject:
        raise InvalidInput("a scratch file holds numbers; encode texts and objects first")
    try:
        np.ascontiguousarray(values).tofile(file)
        file.flush()
    except OSError as error:
        raise InvalidInput(
            f"cannot write a scratch file ({error.strerror or 'the disk is full'}); choose a "
            "folder on a larger disk"
        ) from None


@dataclass(frozen=True, eq=False)
class _Slice:
    """Records in arrays."""

    features: Any
    targets: npt.NDArray[Any]
    first: int = 0
    names: Sequence[str] | None = None

    @property
    def n(self) -> int:
        return int(self.features.shape[0])

    def rows(self, chosen: Rows) -> Part:
        return self.features[chosen], self.targets[chosen]

    def numbers(self, chosen: Rows) -> IntArray:
        return _numbers(self.first, self.n, chosen)


@dataclass(frozen=True, eq=False)
class _PreparedChunk:
    """Another chunk, with a function applied to what is taken from it."""

    chunk: Chunk
    prepare: Callable[[Any, Any], Part]

    @property
    def n(self) -> int:
        return self.chunk.n

    @property
    def names(self) -> None:
        return None  # of the columns that are made

    def numbers(self, chosen: Rows) -> IntArray:
        return self.chunk.numbers(chosen)

    def rows(self, chosen: Rows) -> Part:
        before, answers = self.chunk.rows(chosen)
        count = before.shape[0]
        with placed(self.chunk, chosen):
            features, targets = unquoted(
                "prepare", lambda part: self.prepare(*_part(before, answers, part)), count
            )
        if not features.shape[0] == len(targets) == count:
            raise InvalidInput(
                f"prepare made {features.shape[0]} rows and {len(targets)} targets of {count} "
                "records; it must keep every one of them"
            )
        return features, targets


@dataclass(frozen=True, eq=False)
class _SelectedChunk:
    """Some records of another chunk, by their places in it."""

    chunk: Chunk
    places: IntArray

    @property
    def n(self) -> int:
        return len(self.places)

    @property
    def names(self) -> Sequence[str] | None:
        return self.chunk.names

    def numbers(self, chosen: Rows) -> IntArray:
        return self.chunk.numbers(self.places[chosen])

    def rows(self, chosen: Rows) -> Part:
        return self.chunk.rows(self.places[chosen])


@dataclass(frozen=True, eq=False)
class _Columns:
    """Records in columns, and so are the rows that are asked for: transposing them is slow."""

    columns: tuple[npt.NDArray[Any], ...]
    targets: npt.NDArray[Any]
    dtype: np.dtype[Any]
    first: int
    names: Sequence[str]

    @property
    def n(self) -> int:
        return len(self.targets)

    def numbers(self, chosen: Rows) -> IntArray:
        return _numbers(self.first, self.n, chosen)

    def rows(self, chosen: Rows) -> Part:
        targets = self.targets[chosen]
        features = np.empty((len(self.columns), len(targets)), self.dtype)
        for j, column in enumerate(self.columns):
            features[j] = column[chosen]
        return features.T, targets


@dataclass(frozen=True, eq=False)
class _Encoded:
    """Records of a batch that a function makes rows of, when they are asked for."""

    batch: Any
    encode: Callable[[Any], Part]
    first: int

    @property
    def n(self) -> int:
        return int(self.batch.num_rows)

    @property
    def names(self) -> None:
        return None

    def numbers(self, chosen: Rows) -> IntArray:
        return _numbers(self.first, self.n, chosen)

    def rows(self, chosen: Rows) -> Part:
        if isinstance(chosen, slice):
            start, stop, _ = chosen.indices(self.n)
            batch = self.batch.slice(start, stop - start)
        else:
            batch = picked(self.batch, chosen)
        at = getattr(self.encode, "at", None)

        def some(part: slice) -> Part:
            encode = self.encode if at is None else at(self.numbers(chosen)[part])
            return cast(Part, encode(batch.slice(part.start, part.stop - part.start)))

        with placed(self, chosen):
            return unquoted("encode", some, batch.num_rows)


def _numbers(first: int, n: int, chosen: Rows) -> IntArray:
    return first + np.arange(n)[chosen]


def _part(features: Any, targets: npt.NDArray[Any], part: slice) -> Part:
    """Return a part of some rows; all of them as they are, since sparse ones would be copied."""
    whole = part == slice(0, len(targets))
    return (features, targets) if whole else (features[part], targets[part])


def unquoted(name: str, make: Callable[[slice], Part], n: int) -> Part:
    """Return what a function makes of n records; what it says of them may quote one, and is lost.

    Told is what kind of trouble it had, and the first record that it has it with.
    """
    try:
        return make(slice(0, n))
    except DplateauError:
        raise
    except Exception as error:
        failed = type(error).__name__
    advice = "; try it on made-up records, which may be quoted"
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fails(make, low, middle) else (middle, high)
    if low == high or not _fails(make, low, high):
        raise InvalidInput(f"{name} raised {failed}{advice}")
    raise BadRecord(f"{name} raised {failed} at ", low, advice)


def _fails(make: Callable[[slice], Part], start: int, stop: int) -> bool:
    try:
        make(slice(start, stop))
    except Exception:
        return True
    return False


def _items(chunks: Iterable[Any]) -> Iterator[tuple[Any, Chunk]]:
    """Yield what a user's iterable holds, as it is and as a chunk.

    What it raises on its way may quote what it reads, and is lost but for its kind.
    """
    first = 0
    iterator: Iterator[Any] | None = None
    while True:
        try:
            iterator = iter(chunks) if iterator is None else iterator
            item = next(iterator)
        except StopIteration:
            return
        except DplateauError:
            raise
        except Exception as error:
            failed = type(error).__name__
            break
        chunk = _chunk(item, first)
        yield item, chunk
        first += chunk.n
    raise InvalidInput(
        f"the source of chunks raised {failed} after {first} records; iterate over it alone to see "
        "why, where the records may be seen"
    )


def names_in(frame: Any) -> list[str] | None:
    """Return how a frame's columns are called; None for what has no names."""
    # What Arrow calls columns are their cells.
    names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
    if names is None or not all(isinstance(name, str | int | tuple) for name in names):
        return None
    return list(map(str, names))


def _chunk(part: Any, first: int = 0) -> _Slice:
    """Return a pair (features, targets) as a chunk whose first record has this number."""
    asked, where = (
        "a chunk is a matrix with one target per row",
        f"the chunk from row {first} on, counted from 0",
    )
    try:
        features, targets = part
    except Exception:
        features = targets = None
    if features is None or targets is None:
        raise InvalidInput(
            "a source of chunks yields pairs (features, targets); "
            f"got an item of type {type(part).__name__} ({where})"
        )
    names = names_in(features)
    try:
        if not isinstance(features, np.ndarray) and not issparse(features):
            features = np.asarray(features)
        targets, trouble = np.asarray(targets), None
    except ValueError:
        trouble = "its rows differ"
    except Exception as error:
        trouble = f"it is none ({type(error).__name__})"
    # Outside the handler: a chained exception would keep what the first one quoted.
    if trouble is None and (len(features.shape) != 2 or targets.shape != (features.shape[0],)):
        trouble = f"got shapes {features.shape} and {targets.shape}"
    if trouble is not None:
        raise InvalidInput(f"{asked}; {trouble} ({where})")
    if issparse(features) and cast(Any, features).format != "csr":
        raise InvalidInput(
            f"sparse features must be CSR; got {type(features).__name__}: call .tocsr() ({where})"
        )
    return _Slice(features, targets, first, names)


def _selected(source: Selected, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    start = 0
    for chunk in chunks:
        yield _SelectedChunk(chunk, source.places(start, start + chunk.n))
        start += chunk.n


def _read_ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the chunks while the next one is read in the background: two are held at a time."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk


def _check_array(features: Any) -> None:
    """Refuse what has no rows that could be read a few at a time."""
    if not hasattr(features, "dtype") or len(features.shape) != 2:
        raise InvalidInput(
            f"ArraySource takes a matrix with a row per record; got {type(features).__name__}"
        )
    is_sparse(features)  # or a refusal: rows of other layouts cannot be told apart


def _slices(features: Any, targets: Any, chunk_bytes: int) -> Iterator[Chunk]:
    _check_array(features)
    whole = _chunk((features, targets))
    features, targets, n = whole.features, whole.targets, whole.n
    held = features.data.nbytes if hasattr(features, "indptr") else features.nbytes
    for part in blocks(n, max(1, held // max(1, n)), chunk_bytes):
        yield _Slice(features[part], targets[part], part.start, whole.names)


def _columns(source: TableSource, chunk_bytes: int) -> Iterator[Chunk]:
    names = [source.features] if isinstance(source.features, str) else list(source.features)
    wanted = list(dict.fromkeys([*names, source.target]))
    first, end = 0, 0
    for batch in batches(source.data, wanted, chunk_bytes):
        first, end = end, end + batch.num_rows
        if source.encode is not None:
            yield _Encoded(batch, source.encode, first)
            continue
        try:
            columns = [numbers(batch.column(name), name) for name in names]
            targets = labels(batch.column(source.target), source.target)
        except BadRecord as refusal:
            raise refusal.at(range(first, end)) from None
        if targets.ndim != 1:
            raise InvalidInput(f"column {source.target!r} holds lists; a target is one number")
        if len(columns) == 1 and columns[0].ndim == 2:
            yield _Slice(columns[0], targets, first)
            continue
        if any(column.ndim == 2 for column in columns):
            raise InvalidInput("a column of lists must be the only column of features")
        single = all(column.dtype == np.float32 for column in columns)
        dtype = np.dtype(np.float32 if single else np.float64)
        yield _Columns(tuple(columns), targets, dtype, first, names)
