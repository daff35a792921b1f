"""Tables from CSV and Parquet files, and their cells as numbers, one row at a time.

A file is refused in one line if there is anything wrong with it; no message quotes a cell.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.tables.schema import Categories, Column, Hashed, Ignored, Numeric, Schema

LONGEST_CELL = 100_000
_BLOCK = 1 << 24


@dataclass(frozen=True)
class Table:
    """Columns by name: arrays of numbers, or of text (None where a cell is empty)."""

    columns: Mapping[str, npt.NDArray[Any]]
    path: str

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def types(self) -> dict[str, str]:
        """Return "number" or "text" for every column."""
        return {
            name: "number" if column.dtype.kind == "f" else "text"
            for name, column in self.columns.items()
        }

    def part(self, rows: npt.NDArray[np.intp]) -> Table:
        """Return some of the rows."""
        return Table({name: column[rows] for name, column in self.columns.items()}, self.path)


def read_table(path: Path) -> Table:
    """Read a CSV file (UTF-8, with a header) or a Parquet file."""
    if not path.is_file():
        raise InvalidInput(f"cannot read {path}: there is no such file")
    found = _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _csv(path)
    names = [str(name) for name in found.column_names]
    _check_names(names, path)
    if found.num_rows == 0:
        raise InvalidInput(f"{path} has a header but no rows")
    return Table(
        {name: _array(found.column(i), name, path) for i, name in enumerate(names)}, str(path)
    )


def _csv(path: Path) -> Any:
    arrow = _arrow()
    from pyarrow import csv

    if path.stat().st_size == 0:
        raise InvalidInput(f"{path} is empty")
    # Only an empty cell is a missing value: text such as "NA" may be a name.
    convert = csv.ConvertOptions(null_values=[""], strings_can_be_null=True)
    reading = csv.ReadOptions(block_size=_BLOCK)
    try:
        return csv.read_csv(
            path,
            read_options=reading,
            convert_options=convert,
            parse_options=csv.ParseOptions(newlines_in_values=True),
        )
    except (arrow.ArrowInvalid, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path} as CSV: {_reason(error)}") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None


def _reason(error: Exception) -> str:
    """Return what is wrong with a file, without the cells that a message may quote."""
    text = str(error)
    if isinstance(error, UnicodeDecodeError) or "UTF8" in text or "UTF-8" in text:
        return "it is not UTF-8 text; convert its encoding first"
    if "Expected" in text and "columns" in text:
        return "its rows have different numbers of cells"
    if "straddling" in text or "block size" in text:
        return "a cell is too long"
    if "Empty CSV" in text:
        return "it is empty"
    return "it cannot be parsed"


def _parquet(path: Path) -> Any:
    arrow = _arrow()
    from pyarrow import parquet

    try:
        return parquet.read_table(path)
    except (arrow.ArrowInvalid, OSError):
        raise InvalidInput(f"cannot read {path}: it is no Parquet file") from None


def _arrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise InvalidInput("reading tables needs pyarrow: pip install 'dplateau[all]'") from None
    return pyarrow


def _check_names(names: list[str], path: Path) -> None:
    if "" in names:
        raise InvalidInput(f"{path}: column {names.index('') + 1} has no name")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput(f"{path} has two columns named {twice[0]!r}; names must differ")


def _array(column: Any, name: str, path: Path) -> npt.NDArray[Any]:
    from pyarrow import compute, types

    kind = column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        numbers: npt.NDArray[Any] = column.cast("float64").to_numpy()
        return numbers.astype(float)
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    try:
        text = column.cast("string")
    except (_arrow().ArrowInvalid, _arrow().ArrowNotImplementedError):
        raise InvalidInput(
            f"{path}: column {name!r} is neither numbers nor UTF-8 text; convert its encoding first"
        ) from None
    longest = compute.max(compute.utf8_length(text)).as_py() or 0
    if longest > LONGEST_CELL:
        raise InvalidInput(
            f"{path}: column {name!r} has a cell of more than {LONGEST_CELL} characters"
        )
    return np.array(text.to_pylist(), dtype=object)


def encode_features(table: Table, schema: Schema) -> FloatArray:
    """Return one row of features for each row of the table.

    Numbers are cut to their public range and mapped to [-1, 1]; a category becomes a one among
    zeros. A row's features depend on that row and the schema alone.
    """
    parts = [
        _encoded(_column(table, name), name, column)
        for name, column in schema.columns.items()
        if not isinstance(column, Ignored)
    ]
    if not parts:
        raise InvalidInput("the schema leaves no column to learn from")
    return np.hstack(parts)


def _column(table: Table, name: str) -> npt.NDArray[Any]:
    if name not in table.columns:
        known = ", ".join(map(repr, list(table.columns)[:20]))
        raise InvalidInput(f"{table.path} has no column {name!r}; it has {known}")
    return table.columns[name]


def _encoded(values: npt.NDArray[Any], name: str, column: Column) -> FloatArray:
    if isinstance(column, Numeric):
        low, high = column.low, column.high
        cut = np.clip(_numbers(values, name), low, high)
        return (2 * (cut - low) / (high - low) - 1)[:, None]
    texts = _texts(values, name)
    if isinstance(column, Categories):
        places = {category: place for place, category in enumerate(column.categories)}
        return _one_hot([places.get(text, -1) for text in texts], column.width)
    assert isinstance(column, Hashed)
    # The column's name goes in, so that equal values of two columns need not share a bucket.
    return _one_hot(
        [zlib.crc32(f"{name}={t}".encode()) % column.buckets for t in texts], column.width
    )


def _one_hot(places: list[int], width: int) -> FloatArray:
    found = np.zeros((len(places), width))
    chosen = np.array(places)
    rows = np.flatnonzero(chosen >= 0)
    found[rows, chosen[rows]] = 1.0
    return found


def _numbers(values: npt.NDArray[Any], name: str) -> FloatArray:
    if values.dtype.kind != "f":
        raise InvalidInput(
            f"column {name!r} is declared numeric but holds text; declare categories or buckets"
        )
    if not np.all(np.isfinite(values)):
        raise InvalidInput(f"column {name!r} has missing or infinite numbers; fill them in first")
    return values.astype(float)


def _texts(values: npt.NDArray[Any], name: str) -> list[str]:
    if values.dtype.kind == "f":
        return [_short(value) for value in values.tolist()]
    if any(value is None for value in values):
        raise InvalidInput(f"column {name!r} has missing values; fill them in first")
    return [str(value) for value in values]


def _short(value: float) -> str:
    """Return a number as a category: 1.0 and 1 are the same."""
    return (
        str(int(value))
        if value == value and abs(value) < 1e15 and value == int(value)
        else repr(value)
    )


def encode_target(table: Table, schema: Schema) -> npt.NDArray[Any]:
    """Return the classes as text, or the numbers."""
    target = schema.target
    values = _column(table, target.column)
    if target.bounds is not None:
        return _numbers(values, target.column)
    texts = np.array(_texts(values, target.column))
    if target.classes is not None and not np.all(np.isin(texts, target.classes)):
        raise InvalidInput(
            f"the target {target.column!r} has values that are none of the declared classes "
            f"{', '.join(map(repr, target.classes))}"
        )
    if target.classes is None and len(np.unique(texts)) < 2:
        raise InvalidInput(f"the target {target.column!r} has one class only; two are needed")
    return texts
