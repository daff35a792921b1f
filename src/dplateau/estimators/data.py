"""The records that a fit is given: arrays in memory, or a source that is read where it is.

Arrays are checked, mapped and whitened once, in a copy. A source is mapped whenever a chunk of it
is read, or once into a scratch file: never more than a few chunks of it are in memory. Both end in
what :func:`dplateau.engines.train` takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from dplateau.certificates import Certificate
from dplateau.engines import (
    ArraySource,
    ChunkSource,
    Prepared,
    Randomness,
    Ray,
    Selected,
    Source,
    TableSource,
    in_scratch_file,
)
from dplateau.engines.arrow import arrow_schema
from dplateau.engines.cluster import cluster_moments
from dplateau.engines.moments import noise_std_of, noisy_moments
from dplateau.engines.sources import (
    CHUNK_BYTES,
    Part,
    bounded,
    is_mapped,
    opened,
    reads_once,
    size_of,
)
from dplateau.errors import BadRecord, InvalidInput
from dplateau.estimators.inputs import Goal, first_bad, in_doubles
from dplateau.estimators.rows import RowMap
from dplateau.estimators.whitening import Whitening, bent, whitened_rows, whitening_of
from dplateau.ground import checks
from dplateau.planning import Plan


@dataclass(frozen=True)
class Training:
    """What an engine trains on; a source brings its own targets."""

    features: Any
    targets: npt.NDArray[Any] | None
    whitening: tuple[Whitening, ...]


@dataclass(frozen=True, eq=False)
class ArrayData:
    """Checked arrays in memory."""

    features: Any
    targets: npt.NDArray[Any]
    exact: bool

    @property
    def n(self) -> int:
        """Return the number of rows."""
        return int(self.features.shape[0])

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return int(self.features.shape[1])

    @property
    def dtype(self) -> Any:
        """Return the precision of the rows."""
        return self.features.dtype

    @property
    def whitens(self) -> bool:
        """Return whether rows may be turned: sparse ones would no longer be sparse."""
        return not issparse(self.features)

    @property
    def streams(self) -> bool:
        """Return whether the records can be read only once."""
        return False

    def training(
        self, row_map: RowMap, goal: Goal, slots: int, chosen: Plan, randomness: Randomness
    ) -> Training:
        """Return the mapped records, with rows of zeros for those that are absent."""
        mapped = row_map.training_rows(self.features, slots)
        rows, rounds = whitened_rows(mapped, chosen, randomness)
        read = goal.read(self.targets)
        absent = np.full(slots - len(read), goal.absent, dtype=read.dtype)
        return Training(rows, np.concatenate([read, absent]), rounds)


@dataclass(frozen=True, eq=False)
class SourceData:
    """Records that stay where they are.

    ``scratch`` says where mapped rows are kept: nowhere (None), in an unnamed file among the
    temporary ones (True), or in one in a folder. With an ``engine`` its workers read the records.
    The number of records is ``exact``, or an upper bound.
    """

    source: Source
    n: int
    width: int
    dtype: Any
    targets: npt.NDArray[Any] | None
    scratch: Any
    engine: Ray | None
    exact: bool
    whitens: bool

    @property
    def streams(self) -> bool:
        """Return whether the records can be read only once, and are not kept in a file."""
        return reads_once(self.source) and self.scratch is None

    def training(
        self, row_map: RowMap, goal: Goal, slots: int, chosen: Plan, randomness: Randomness
    ) -> Training:
        """Return the source with every row mapped when it is read, or from a scratch file."""
        del slots  # the run declares how many records there are
        source: Source = Prepared(self.source, Mapped(row_map, goal.read, self.width, self.dtype))
        if self.scratch is not None:
            source = in_scratch_file(source, folder=None if self.scratch is True else self.scratch)
        rounds: list[Whitening] = []
        lengths = chosen.lengths
        if lengths is not None:
            for planned in chosen.moments:
                norm = 1.0 if rounds else chosen.row_norm
                rounds.append(self._round(planned, source, norm, lengths.radius, randomness))
                source = Prepared(source, Turned(rounds[-1]))
            if lengths.bend_of_longest is not None:
                source = Prepared(source, Bent(lengths.bend_of_longest))
        if rounds and self.scratch is not None:
            source = in_scratch_file(source, folder=None if self.scratch is True else self.scratch)
        return Training(source, None, tuple(rounds))

    def _round(
        self,
        planned: Certificate,
        source: Source,
        norm: float,
        radius: float,
        randomness: Randomness,
    ) -> Whitening:
        """Release moments of a source with noise, and return the map that they suggest."""
        asked: dict[str, Any] = {"feature_norm": norm, "randomness": randomness}
        if self.engine is None:
            moments = noisy_moments(planned.run, source, **asked)
        else:
            moments = cluster_moments(planned.run, source, engine=self.engine, **asked)
        return whitening_of(moments, noise_std_of(planned.run), norm, radius)


Data = ArrayData | SourceData


@dataclass(frozen=True, eq=False)
class Mapped:
    """Brings some records to the model's bounds, each on its own."""

    row_map: RowMap
    read: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    width: int
    dtype: Any

    def __call__(self, features: Any, targets: Any) -> Part:
        """Return rows and targets as the loss takes them, in the precision of the first rows."""
        count = len(targets)
        if features.shape[1] != self.width:
            had = f"every chunk must have the same columns; got {self.width}"
            raise BadRecord(f"{had} and then {features.shape[1]} from ", 0, " on")
        if issparse(features):
            rows: Any = cast(Any, features).astype(self.dtype, copy=False)
        else:
            rows = _numbers(np.asarray(features))
        return self.row_map.training_rows(rows, count, self.dtype), self.read(targets)


def _numbers(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return rows as floats: objects and texts that are numbers too, as of arrays in memory."""
    if rows.dtype in (np.float32, np.float64):
        return rows
    doubles = in_doubles(rows)
    if doubles is not None:
        return doubles
    kind = rows.dtype.type.__name__  # without the length of texts
    (row, column), trouble = first_bad(rows) or ((0, None), "no number")
    held = f"features must be numbers; a chunk holds {kind}: "
    raise BadRecord(held, row, f", {trouble}", column=column)


@dataclass(frozen=True, eq=False)
class Turned:
    """Turns and shortens some records by a round of whitening."""

    round: Whitening

    def __call__(self, features: Any, targets: Any) -> Part:
        """Return the rows after the round."""
        return self.round.rows(features), targets


@dataclass(frozen=True, eq=False)
class Bent:
    """Gives some white records twice as wide: before the bend, and beyond."""

    bend: float

    def __call__(self, features: Any, targets: Any) -> Part:
        """Return the rows as both parts."""
        return bent(features, self.bend), targets


def source_of(X: Any, y: Any, *, anyway: bool) -> Source | None:
    """Return the source that X and y stand for; None if they are in memory.

    With ``anyway`` small arrays that are memory-mapped stay where they are too.
    """
    if isinstance(X, Source):
        _no_targets(y)
        return X
    if isinstance(y, str):
        if _is_table(X):
            names = [name for name in arrow_schema(X).names if name != y]
            return TableSource(X, names, y)
        raise InvalidInput(
            "a text y names the column of targets, and X must be a table then: Parquet files, a "
            f"folder of them, or an Arrow table or dataset; got {type(X).__name__}"
        )
    if y is None and isinstance(X, Iterable) and not hasattr(X, "shape") and not _is_table(X):
        return ChunkSource(X)
    if y is not None and is_mapped(X) and (anyway or X.nbytes > 2 * CHUNK_BYTES):
        return ArraySource(X, np.asarray(y))
    return None


def _no_targets(y: Any) -> None:
    if y is not None:
        raise InvalidInput("a source brings its own targets; leave y out")


def _is_table(X: Any) -> bool:
    if isinstance(X, str | os.PathLike) or type(X).__module__.partition(".")[0] == "pyarrow":
        return True
    several = isinstance(X, list | tuple) and len(X) > 0
    return several and all(isinstance(path, str | os.PathLike) for path in X)


def source_data(
    source: Source, n_public: int | None, scratch: Any, engine: Ray | None, *, ordered: bool
) -> SourceData:
    """Return the records of a source, with their number: declared, or as its files state it.

    Where batches follow the order of the records the number is exact; else it is an upper bound.
    """
    if scratch is not None and engine is not None:
        raise InvalidInput(
            "scratch keeps rows in a file of this process, which an engine's workers cannot read; "
            "leave one of scratch and engine out"
        )
    n = size_of(source) if n_public is None else checks.whole("n_public", n_public)
    if n is None:
        raise InvalidInput(
            "how many records a source of chunks holds is not known in advance; declare it with "
            "n_public=..."
        )
    source, (row, _) = opened(source)
    exact = n_public is None or ordered or (reads_once(source) and scratch is None)
    source = source if exact else bounded(source)
    targets = source.targets if isinstance(source, ArraySource) else None
    dtype = row.dtype if row.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    width, dense = int(row.shape[1]), not issparse(row)
    return SourceData(source, n, width, dtype, targets, scratch, engine, exact, dense)


def names_of(source: Source) -> list[str] | None:
    """Return the names of the columns, if they have names."""
    while isinstance(source, Prepared | Selected):
        source = source.source
    if not isinstance(source, TableSource) or source.encode is not None:
        return None
    return None if isinstance(source.features, str) else list(source.features)
