"""Tables as Arrow has them: Parquet files and folders, tables and datasets, read in batches."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dplateau.engines.rows import blocks
from dplateau.errors import BadRecord, InvalidInput

SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True)
class RowGroups:
    """Some row groups of a Parquet file, by their numbers."""

    path: Path
    groups: tuple[int, ...]


def row_groups(data: Any) -> list[tuple[Path, list[tuple[int, int]]]] | None:
    """Return files with the rows and bytes of their row groups; None for what is in memory."""
    if _holds_schema(data):
        return None
    files = []
    for path in _files(data):
        with _opened_file(path) as file:
            every = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            files.append((path.resolve(), [(one.num_rows, one.total_byte_size) for one in every]))
    return files


def table_rows(data: Any) -> int | None:
    """Return the number of rows, as the files state it; None for a reader of batches."""
    pyarrow, dataset, _ = _arrow()
    if isinstance(data, pyarrow.RecordBatchReader):
        return None
    if isinstance(data, dataset.Dataset):
        return int(data.count_rows())
    if _holds_schema(data):
        return int(data.num_rows)
    return int(sum(_opened_file(path).metadata.num_rows for path in _files(data)))


def arrow_schema(data: Any) -> Any:
    """Return the Arrow schema of a table, of its first file if there are several."""
    if _holds_schema(data):
        return data.schema
    with _opened_file(_files(data)[0]) as file:
        return file.schema_arrow


def is_reader(data: Any) -> bool:
    """Return whether these are batches that can be read once."""
    pyarrow, _, _ = _arrow()
    return isinstance(data, pyarrow.RecordBatchReader)


def begun(reader: Any) -> tuple[Any, Any]:
    """Return a reader that has lost nothing, and a table of its first batch that holds rows."""
    pyarrow, _, _ = _arrow()
    first = [batch for batch in itertools.islice(filter(len, reader), 1)]
    whole = pyarrow.RecordBatchReader.from_batches(reader.schema, itertools.chain(first, reader))
    return whole, pyarrow.Table.from_batches(first, reader.schema)


def _holds_schema(data: Any) -> bool:
    """Return whether these are no paths, but something of Arrow's that holds rows."""
    pyarrow, dataset, _ = _arrow()
    kinds = pyarrow.Table | pyarrow.RecordBatch | pyarrow.RecordBatchReader | dataset.Dataset
    return isinstance(data, kinds)


def _arrow() -> tuple[Any, Any, Any]:
    try:
        import pyarrow
        from pyarrow import dataset, parquet
    except ModuleNotFoundError:
        raise InvalidInput("reading tables needs pyarrow: pip install 'dplateau[frames]'") from None
    return pyarrow, dataset, parquet


def _opened_file(path: Path) -> Any:
    pyarrow, _, parquet = _arrow()
    try:
        # Mapped: pages are decoded from the file's own memory, not from copies of row groups.
        return parquet.ParquetFile(path, memory_map=True, pre_buffer=False)
    except FileNotFoundError:
        raise InvalidInput(f"cannot read {path}: there is no such file") from None
    except PermissionError:
        raise InvalidInput(f"cannot read {path}: permission denied") from None
    except (pyarrow.ArrowInvalid, OSError):
        raise InvalidInput(f"cannot read {path}: it is no Parquet file") from None


def batches(data: Any, names: list[str], chunk_bytes: int) -> Iterator[Any]:
    """Yield the record batches of a table, of about the size of a chunk."""
    pyarrow, _, _ = _arrow()
    where = "the table"
    try:
        if _holds_schema(data):
            yield from _batches_of_arrow(data, names, chunk_bytes)
            return
        part = isinstance(data, RowGroups)
        for path in [data.path] if part else _files(data):
            where = str(path)
            with _opened_file(path) as file:
                groups = data.groups if part else None
                rows = _batch_rows(names, file.schema_arrow, chunk_bytes)
                yield from file.iter_batches(rows, row_groups=groups, columns=names)
    except (pyarrow.ArrowException, OSError) as error:
        # What Arrow says may quote what it read.
        raise InvalidInput(
            f"cannot read {where}: damaged, or changed meanwhile ({type(error).__name__})"
        ) from None


def _batches_of_arrow(data: Any, names: list[str], chunk_bytes: int) -> Iterator[Any]:
    pyarrow, dataset, _ = _arrow()
    rows = _batch_rows(names, data.schema, chunk_bytes)
    if isinstance(data, dataset.Dataset):
        # Otherwise the scanner reads many row groups ahead.
        frugal = {"batch_readahead": 1, "fragment_readahead": 1}
        if isinstance(getattr(data, "format", None), dataset.ParquetFileFormat):
            frugal["fragment_scan_options"] = dataset.ParquetFragmentScanOptions(pre_buffer=False)
        yield from data.to_batches(columns=names, batch_size=rows, **frugal)
        return
    whole = [data] if isinstance(data, pyarrow.RecordBatch) else data
    for batch in data.to_batches() if isinstance(data, pyarrow.Table) else whole:
        for part in blocks(batch.num_rows, 1, rows):
            yield batch.select(names).slice(part.start, part.stop - part.start)


def picked(batch: Any, rows: Any) -> Any:
    """Return some rows of a batch."""
    pyarrow, _, _ = _arrow()
    # Arrow picks from texts, but not from views of them.
    columns = [
        column.cast("large_string") if pyarrow.types.is_string_view(column.type) else column
        for column in batch.columns
    ]
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names).take(rows)


def _files(data: Any) -> list[Path]:
    """Return the files that paths stand for, folders opened."""
    paths = [data] if isinstance(data, str | os.PathLike) else data
    if not isinstance(paths, Sequence) or not all(isinstance(p, str | os.PathLike) for p in paths):
        raise InvalidInput(
            "a table is a path, a list of paths, or Arrow's table, dataset, batch or reader; "
            f"got {type(data).__name__}"
        )
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        below = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
        if not below:
            raise InvalidInput(f"there is no Parquet file in the folder {path}")
        files += below
    return files


def _batch_rows(names: list[str], schema: Any, chunk_bytes: int) -> int:
    """Return how many rows make a chunk, from the widths of the columns; each must be there."""
    bits = 0
    for name in names:
        if name not in schema.names:
            raise InvalidInput(f"there is no column {name!r}; there are {', '.join(schema.names)}")
        if schema.names.count(name) > 1:
            raise InvalidInput(f"there are several columns {name!r}; give each a name of its own")
        field = schema.field(name)
        listed = hasattr(field.type, "list_size")
        kind, size = (field.type.value_type, field.type.list_size) if listed else (field.type, 1)
        try:
            bits += size * kind.bit_width
        except ValueError:  # texts have no width; they are refused later, by name
            bits += 64
    return max(1024, 8 * chunk_bytes // bits)


def labels(column: Any, name: str) -> npt.NDArray[Any]:
    """Return a column of targets: numbers, or texts that name classes."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_string_view(column.type):
        column = column.cast("large_string")
    if column.null_count or not (
        types.is_string(column.type) or types.is_large_string(column.type)
    ):
        return numbers(column, name)
    texts: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return texts


def numbers(column: Any, name: str) -> npt.NDArray[Any]:
    """Return a column as an array without a copy where there can be one, or refuse it by name."""
    from pyarrow import types

    if column.null_count:
        raise _missing(column, f"column {name!r} has missing values")
    kind = column.type
    size = kind.list_size if types.is_fixed_size_list(kind) else None
    if size is not None:
        column = column.flatten()
        kind = column.type
        if column.null_count:
            raise _missing(column, f"column {name!r} has missing values inside its lists", size)
    if types.is_boolean(kind):
        column = column.cast("int8")
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        raise InvalidInput(
            f"column {name!r} holds {kind}, not numbers; leave it out (TableSource names the "
            "columns to read), or encode it from what is public (dplateau train does)"
        )
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values if size is None else values.reshape(-1, size)


def _missing(column: Any, trouble: str, size: int = 1) -> BadRecord:
    """Return the refusal of a column with missing values, so many of which make a row."""
    absent = column.is_null().to_numpy(zero_copy_only=False)
    row = int(absent.argmax()) // size
    return BadRecord(f"{trouble}, the first in ", row, "; fill them record by record first")
