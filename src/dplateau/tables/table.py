"""Tables from CSV and Parquet files or frames, and their cells as numbers, one row at a time.

A file is refused in one line if there is anything wrong with it. The line says which file, row and
column, and never shows a cell. Rows are counted from 1, below the header.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.engines.randomness import Coins
from dplateau.errors import InvalidInput, MissingExtra
from dplateau.ground.shown import counted
from dplateau.ground.types import BoolArray, FloatArray, IntArray
from dplateau.tables.schema import (
    INDICATOR,
    ZERO,
    Boolean,
    Categories,
    CellKind,
    Column,
    Day,
    Hashed,
    Ignored,
    Nonnegative,
    Numeric,
    Problems,
    Schema,
)

LONGEST_CELL = 100_000
# Cells that say that nothing is there, unless a category of that name is declared.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL")
# What says the same where no text can be meant: among numbers, dates and booleans.
_NOTHING = {*MISSING, "?", "-", ".", "None"}
SEPARATORS = (",", ";", "\t", "|")
_BLOCK = 1 << 24
# Numbers, dates and times.
_NO_WORD = re.compile(r"[-+.,/:% \d]*\d[-+.,/:% \d]*")
_NOT_UTF8 = "it is not UTF-8 text; convert its encoding first"
_NO_NUMBER = (
    "text where a number is declared; numbers are written as 1234.5, with no %, no currency and "
    "nothing between thousands (decimal commas: --decimal ,)"
)
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, eq=False)
class Cells:
    """A column: numbers (NaN where nothing is), or texts (None where nothing is).

    Dates are numbers of days since 1970, booleans 0 and 1.
    """

    kind: CellKind
    values: npt.NDArray[Any]

    def texts(self) -> list[str | None]:
        """Return the cells as categories have them."""
        if self.kind == "text":
            return list(self.values.tolist())
        return [None if np.isnan(value) else self._text(value) for value in self.values.tolist()]

    def _text(self, value: float) -> str:
        if self.kind == "boolean":
            return "true" if value else "false"
        if self.kind == "date":
            # Years beyond those of Python's calendar too: files hold whatever was computed.
            return str(np.datetime64(int(np.floor(value)), "D"))
        # 1.0 and 1 are the same category.
        whole = abs(value) < 1e15 and value == int(value)
        return str(int(value)) if whole else repr(value)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, and where they come from.

    ``places`` holds where each row stands in the whole file, if that is not its place here.
    """

    columns: Mapping[str, Cells]
    path: str
    places: IntArray | None = None

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values())).values) if self.columns else 0

    def types(self) -> dict[str, CellKind]:
        """Return the kind of every column's cells."""
        return {name: cells.kind for name, cells in self.columns.items()}

    def part(self, rows: npt.NDArray[Any]) -> Table:
        """Return some of the rows."""
        columns = {name: Cells(one.kind, one.values[rows]) for name, one in self.columns.items()}
        places = np.arange(self.n_rows) if self.places is None else self.places
        return Table(columns, self.path, places[rows])

    def split(self, coins: Coins) -> tuple[Table, Table]:
        """Return the rows that stay, and those whose coin holds them out."""
        heads = coins.heads(0, self.n_rows)
        return self.part(~heads), self.part(heads)

    def cells(self, name: str) -> Cells:
        """Return a column, or refuse."""
        if name not in self.columns:
            known = ", ".join(map(repr, list(self.columns)[:20]))
            raise InvalidInput(f"{self.path} has no column {name!r}; it has {known}")
        return self.columns[name]


# --- reading -------------------------------------------------------------------------------------


def read_table(path: Path, *, separator: str | None = None, decimal: str = ".") -> Table:
    """Read a CSV file (UTF-8, with a header) or a Parquet file.

    The separator is by default the one of comma, semicolon, tab and bar that the header has most
    of. Empty cells and NA are missing values. Of a CSV file blanks around names and texts do not
    count, and a column without a name is called by its place, Unnamed: 0. A header that reads like
    a record is refused: names are shown freely, and the first record must not be.
    """
    if path.is_dir():
        raise InvalidInput(f"cannot read {path}: it is a folder; give a CSV or Parquet file")
    if not path.is_file():
        what = (
            "it is no regular file; write it to one" if path.exists() else "there is no such file"
        )
        raise InvalidInput(f"cannot read {path}: {what}")
    if path.suffix.lower() in (".parquet", ".pq"):
        contents = _parquet(path)
    else:
        contents = _csv(path, separator, decimal)
    if contents.num_rows == 0:
        raise InvalidInput(f"{path} has a header but no rows")
    return arrow_table(contents, str(path))


def as_table(data: Any, *, name: str = "the table") -> Table:
    """Return a table that a path, a pandas or polars frame or a mapping of columns stands for."""
    if isinstance(data, Table):
        return data
    if isinstance(data, str | Path):
        return read_table(Path(data))
    arrow = _arrow()
    if not hasattr(data, "columns") and not isinstance(data, Mapping):
        raise InvalidInput(
            f"{name} must be a path, a frame or a mapping of columns; got {type(data).__name__}"
        )
    columns, trouble = {}, None
    for column in data if isinstance(data, Mapping) else list(data.columns):
        try:
            columns[str(column)] = _arrow_column(data[column])
        except Exception:
            # What Arrow says may quote a cell, and so would an exception chained to it.
            trouble = str(column)
            break
    if trouble is not None:
        raise InvalidInput(f"{name}: column {trouble!r} mixes types, or holds what is no cell")
    return arrow_table(arrow.table(columns), name)


def _arrow_column(values: Any) -> Any:
    arrow = _arrow()
    if hasattr(values, "to_arrow"):
        return values.to_arrow()
    return arrow.array(values, from_pandas=True)


def _csv(path: Path, separator: str | None, decimal: str) -> Any:
    arrow = _arrow()
    from pyarrow import csv as arrow_csv

    if path.stat().st_size == 0:
        raise InvalidInput(f"{path} is empty")
    if _begin(path)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise InvalidInput(f"cannot read {path} as CSV: {_NOT_UTF8}")
    parse = arrow_csv.ParseOptions(
        delimiter=_separator(path) if separator is None else _character("separator", separator),
        newlines_in_values=True,
    )
    reading = arrow_csv.ReadOptions(block_size=_BLOCK)
    options: dict[str, Any] = {
        "null_values": list(MISSING),
        "strings_can_be_null": False,
        "decimal_point": _character("decimal", decimal),
    }

    def read(**more: Any) -> Any:
        convert = arrow_csv.ConvertOptions(**options, **more)
        return arrow_csv.read_csv(
            path, read_options=reading, convert_options=convert, parse_options=parse
        )

    _refuse_record_as_header(path, parse.delimiter)
    try:
        try:
            return _bare(read())
        except arrow.ArrowInvalid as error:
            reading.use_threads = False  # what is refused then is refused with its row
            if "conversion error" not in str(error):
                return _bare(read())
            # A later block has cells of another type than the first: all is text then, and what
            # is a number throughout becomes one again.
            names = arrow_csv.open_csv(path, read_options=reading, parse_options=parse).schema.names
            return _with_numbers(_bare(read(column_types=dict.fromkeys(names, arrow.string()))))
    except (arrow.ArrowInvalid, UnicodeDecodeError) as error:
        reason = _reason(error)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or 'it failed'}") from None
    # Outside the handler: a chained exception would keep the cells that the first one quoted.
    raise InvalidInput(f"cannot read {path} as CSV: {reason}")


def _refuse_record_as_header(path: Path, delimiter: str) -> None:
    """Refuse a file whose names are numbers or dates, unless the numbers count the columns."""
    first = _begin(path).decode("utf-8-sig", errors="replace").splitlines()[:1]
    names = [cell.strip() for row in csv.reader(first, delimiter=delimiter) for cell in row]
    places = [at for at, name in enumerate(names, 1) if _NO_WORD.fullmatch(name)]
    counted_from = {int(names[at - 1]) - at if names[at - 1].isdecimal() else None for at in places}
    if not places or (len(places) > 1 and len(counted_from) == 1 and None not in counted_from):
        return
    raise InvalidInput(
        f"cannot read {path} as CSV: its first row holds a number or a date where the name of "
        f"column {places[0]} should stand, so it seems to be a record; put a row of names first"
    )


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(LONGEST_CELL)


def _separator(path: Path) -> str:
    """Return the separator that the header has most of; the rows are not looked at."""
    outside = b"".join(_begin(path).split(b'"')[::2])
    return max(SEPARATORS, key=lambda separator: outside.count(separator.encode()))


def _character(name: str, value: str) -> str:
    named = {"tab": "\t", "\\t": "\t"}.get(value, value)
    if len(named) != 1 or not named.isascii() or named in "\r\n\0":
        raise InvalidInput(f"{name} must be one ASCII character (or tab); got {value!r}")
    return named


def _bare(cells: Any) -> Any:
    """Return the cells of a CSV without blanks around names and texts; every column has a name."""
    from pyarrow import compute, types

    names = [name.strip() or f"Unnamed: {at}" for at, name in enumerate(cells.column_names)]
    for place, column in enumerate(cells.columns):
        if types.is_string(column.type):
            bare = compute.utf8_trim_whitespace(column)
            cells = cells.set_column(place, cells.field(place), bare)
    return cells.rename_columns(names)


def _with_numbers(cells: Any) -> Any:
    arrow = _arrow()
    from pyarrow import compute

    for place, name in enumerate(cells.column_names):
        column = cells.column(place)
        absent = compute.is_in(column, value_set=arrow.array(MISSING))
        try:
            numbers = compute.if_else(absent, None, column).cast("float64")
        except arrow.ArrowInvalid:
            continue
        cells = cells.set_column(place, name, numbers)
    return cells


def _reason(error: Exception) -> str:
    """Return what is wrong with a file, without the cells that a message may quote."""
    text = str(error)
    if isinstance(error, UnicodeDecodeError) or "UTF8" in text or "UTF-8" in text:
        return _NOT_UTF8
    counts = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", text)
    if counts:
        row = f"row {int(counts[1]) - 1}" if counts[1] else "a row"
        return f"its header has {counted(int(counts[2]), 'cell')}, {row} has {counts[3]}"
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
        pass
    raise InvalidInput(f"cannot read {path}: it is no Parquet file")


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("tables need pyarrow: pip install 'dplateau[all]'") from None
    return pyarrow


def arrow_table(contents: Any, path: str) -> Table:
    """Return the cells of an Arrow table or record batch."""
    names = [str(name) for name in contents.schema.names]
    if "" in names:
        raise InvalidInput(f"{path}: column {names.index('') + 1} has no name")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput(f"{path} has two columns named {twice[0]!r}; names must differ")
    columns = {name: _cells(contents.column(i), name, path) for i, name in enumerate(names)}
    return Table(columns, path)


def _cells(column: Any, name: str, path: str) -> Cells:
    from pyarrow import compute, types

    kind = column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if types.is_boolean(kind):
        return Cells("boolean", _floats(column))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return Cells("number", _floats(column))
    if types.is_null(kind):
        return Cells("number", np.full(len(column), np.nan))
    if types.is_date(kind) or types.is_timestamp(kind):
        moments = _floats(column.cast("timestamp[us]").cast("int64"))
        return Cells("date", moments / (86_400 * 1e6))
    try:
        text = column.cast("string")
    except (_arrow().ArrowInvalid, _arrow().ArrowNotImplementedError):
        text = None
    if text is None:
        raise InvalidInput(
            f"{path}: column {name!r} is neither numbers nor UTF-8 text; convert its encoding first"
        )
    longest = compute.max(compute.utf8_length(text)).as_py() or 0
    if longest > LONGEST_CELL:
        raise InvalidInput(
            f"{path}: column {name!r} has a cell of more than {LONGEST_CELL} characters"
        )
    return Cells("text", np.array(text.to_pylist(), dtype=object))


def _floats(column: Any) -> FloatArray:
    """Return numbers, NaN where nothing is."""
    numbers: npt.NDArray[Any] = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return numbers.astype(float)


# --- writing -------------------------------------------------------------------------------------


def written(columns: Mapping[str, Sequence[Any]], suffix: str) -> bytes:
    """Return columns as the content of a CSV or a Parquet file, as the file's name ends."""
    if suffix in (".parquet", ".pq"):
        arrow = _arrow()
        from pyarrow import parquet

        sink = arrow.BufferOutputStream()
        parquet.write_table(arrow.table({name: list(one) for name, one in columns.items()}), sink)
        content: bytes = sink.getvalue().to_pybytes()
        return content
    if suffix not in ("", ".csv", ".txt"):
        raise InvalidInput(f"tables are written as .csv or .parquet; got a name with {suffix!r}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


# --- encoding ------------------------------------------------------------------------------------


def encode_features(table: Table, schema: Schema) -> FloatArray:
    """Return one row of features for each row of the table.

    Numbers and dates are cut to their public range and mapped to [-1, 1], or to [0, 1] if they are
    never negative; a category becomes a one among zeros. A row's features depend on that row and
    the schema alone.
    """
    if not schema.used:
        raise InvalidInput(f"{table.path}: the schema leaves no column to learn from")
    problems = Problems(table.path)
    parts: list[FloatArray] = []
    with_missing: dict[str, str] = {}
    for name in schema.used:
        try:
            parts.append(_encoded(table, name, schema.columns[name]))
        except _MissingCells as refusal:
            with_missing[name] = str(refusal)
        except InvalidInput as refusal:
            problems.add(None, str(refusal))
    if len(with_missing) == 1:
        problems.add(None, *with_missing.values())
    for name in with_missing if len(with_missing) > 1 else ():
        problems.add(name, f"there are missing cells: {_declare_missing('COLUMN')}")
    return np.hstack(problems.settled(parts))


class _MissingCells(InvalidInput):
    """Cells of a column are missing, and nothing says what they count as."""


def _encoded(table: Table, name: str, column: Column) -> FloatArray:
    match column:
        case Numeric(low, high, missing):
            return _scaled(table, name, _numbers(table, name), low, high, missing)
        case Nonnegative(high, missing):
            filled, left = _filled(_numbers(table, name), missing)
            return _with_missing(table, name, np.clip(filled, 0, high)[:, None] / high, left)
        case Day(low, high, missing):
            as_number: Any = missing
            if missing is not None and missing not in (ZERO, INDICATOR):
                as_number = _since_epoch(date.fromisoformat(missing))
            days = _days(table, name)
            return _scaled(table, name, days, _since_epoch(low), _since_epoch(high), as_number)
        case Boolean(missing):
            return _with_missing(table, name, _truths(table, name)[:, None], missing)
        case Categories(categories, missing):
            places = {category: place for place, category in enumerate(categories)}
            texts = _texts(table, name, missing, known=categories)
            chosen = [None if text is None else places.get(text, -1) for text in texts]
            return _one_hot(chosen, len(categories), missing)
        case Hashed(buckets, missing):
            texts = _texts(table, name, missing)
            # The column's name goes in, so that equal values of two columns need not share a
            # bucket.
            chosen = [
                None if text is None else zlib.crc32(f"{name}={text}".encode()) % buckets
                for text in texts
            ]
            return _one_hot(chosen, buckets, missing)
        case Ignored():
            return np.zeros((table.n_rows, 0))


def _scaled(
    table: Table, name: str, values: FloatArray, low: float, high: float, missing: Any
) -> FloatArray:
    filled, left = _filled(values, missing)
    mapped = 2 * (np.clip(filled, low, high) - low) / (high - low) - 1
    return _with_missing(table, name, mapped[:, None], left)


def _filled(values: FloatArray, missing: Any) -> tuple[FloatArray, Any]:
    """Return the numbers with a public value where one is declared, and what is left to say."""
    if missing in (None, ZERO, INDICATOR):
        return values, missing
    return np.where(np.isnan(values), missing, values), None


def _with_missing(table: Table, name: str, values: FloatArray, missing: Any) -> FloatArray:
    """Return one column of features with missing cells as zeros, and the indicator if asked."""
    absent = np.isnan(values[:, 0])
    if missing is None:
        _refuse_missing(table, name, absent)
        return values
    if isinstance(missing, bool):
        return np.where(absent[:, None], float(missing), values)
    filled = np.where(absent[:, None], 0.0, values)
    return np.hstack([filled, absent[:, None]]) if missing == INDICATOR else filled


def _one_hot(places: Sequence[int | None], width: int, missing: Any) -> FloatArray:
    """Return a one among zeros; no one for -1 (an unknown category) and None (a missing cell)."""
    encoded = np.zeros((len(places), width + (missing == INDICATOR)))
    chosen = np.array([-1 if place is None else place for place in places])
    rows = np.flatnonzero(chosen >= 0)
    encoded[rows, chosen[rows]] = 1.0
    if missing == INDICATOR:
        encoded[:, width] = [place is None for place in places]
    return encoded


def _numbers(table: Table, name: str) -> FloatArray:
    """Return numbers, NaN where a cell is missing."""
    cells = table.cells(name)
    if cells.kind == "date":
        raise InvalidInput(f"{table.path}: column {name!r} holds dates; declare kind = 'date'")
    if cells.kind != "text":
        values: FloatArray = cells.values
    else:
        values = _parsed(table, name, _as_float, _NO_NUMBER)
    infinite = np.isinf(values)
    if infinite.any():
        raise InvalidInput(f"{_first(table, name, infinite)} holds an infinite number")
    return values


def _days(table: Table, name: str) -> FloatArray:
    cells = table.cells(name)
    if cells.kind == "date":
        days: FloatArray = np.floor(cells.values)
        return days
    if cells.kind == "text":
        return _parsed(table, name, _as_day, "no date of the form 1999-12-31")
    raise InvalidInput(f"{table.path}: column {name!r} is declared as dates but holds numbers")


def _truths(table: Table, name: str) -> FloatArray:
    cells = table.cells(name)
    if cells.kind in ("boolean", "number"):
        odd = ~(np.isnan(cells.values) | np.isin(cells.values, (0.0, 1.0)))
        if odd.any():
            raise InvalidInput(f"{_first(table, name, odd)} is neither 0 nor 1, true nor false")
        values: FloatArray = cells.values
        return values
    return _parsed(table, name, _as_truth, "neither true nor false, yes nor no")


def _parsed(table: Table, name: str, read: Any, otherwise: str) -> FloatArray:
    """Return the texts of a column as numbers; the first that is none is refused by its place."""
    numbers = np.empty(table.n_rows)
    for row, text in enumerate(table.cells(name).texts()):
        number = np.nan if text is None or text.strip() in _NOTHING else read(text)
        if number is None:
            raise InvalidInput(f"{_place(table, name, row)} holds {otherwise}")
        numbers[row] = number
    return numbers


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _since_epoch(day: date) -> float:
    return float(day.toordinal() - _EPOCH)


def _as_day(text: str) -> float | None:
    try:
        return _since_epoch(datetime.fromisoformat(text.strip()))
    except ValueError:
        return None


def _as_truth(text: str) -> float | None:
    word = text.strip().lower()
    if word in ("true", "yes", "y", "t", "1"):
        return 1.0
    return 0.0 if word in ("false", "no", "n", "f", "0") else None


def _texts(
    table: Table, name: str, missing: str | None, *, known: Sequence[str] = ()
) -> list[str | None]:
    """Return texts, None where a cell is missing and that is declared."""
    silent = set(MISSING) - set(known)
    texts = [None if text in silent else text for text in table.cells(name).texts()]
    if missing is None:
        _refuse_missing(table, name, np.array([text is None for text in texts], dtype=bool))
    if missing in (None, ZERO, INDICATOR):
        return texts
    return [missing if text is None else text for text in texts]


def _refuse_missing(table: Table, name: str, absent: BoolArray) -> None:
    if absent.any():
        raise _MissingCells(f"{_first(table, name, absent)} is missing: {_declare_missing(name)}")


def _declare_missing(name: str) -> str:
    return (
        f"declare what missing cells count as (--missing {name}=zero, {name}=indicator or a "
        "public value; in a schema file missing = ...), or fill them in first"
    )


def _first(table: Table, name: str, bad: BoolArray) -> str:
    return _place(table, name, int(np.argmax(bad)))


def _place(table: Table, name: str, row: int) -> str:
    place = row if table.places is None else int(table.places[row])
    return f"{table.path}: row {place + 1} of column {name!r}"


def encode_target(table: Table, schema: Schema) -> npt.NDArray[Any]:
    """Return the classes as text, or the numbers."""
    target = schema.target
    if target.bounds is not None:
        numbers = _numbers(table, target.column)
        _refuse_missing_target(table, target.column, np.isnan(numbers))
        return numbers
    classes = target.classes
    silent = set(MISSING) - set(classes or ())
    texts = [None if text in silent else text for text in table.cells(target.column).texts()]
    _refuse_missing_target(table, target.column, np.array([t is None for t in texts], dtype=bool))
    labels = np.array(texts, dtype=str)
    if classes is not None:
        strange = ~np.isin(labels, classes)
        if strange.any():
            raise InvalidInput(
                f"{_first(table, target.column, strange)}, the target, is none of the declared "
                f"classes {', '.join(map(repr, classes))}"
            )
    elif len(np.unique(labels)) < 2:
        raise InvalidInput(
            f"{table.path}: the target {target.column!r} has one class only; two are needed"
        )
    return labels


def _refuse_missing_target(table: Table, name: str, absent: BoolArray) -> None:
    if absent.any():
        raise InvalidInput(
            f"{_first(table, name, absent)}, the target, is missing; leave such rows out, row by "
            "row, before training"
        )
