"""Tables from CSV and Parquet files, refused in one line if there is anything wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.errors import InvalidInput

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
