"""Tables that stay in their files: Parquet files and folders, read and encoded a part at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dplateau.engines import Selected, Source, TableSource
from dplateau.engines.arrow import SUFFIXES, arrow_schema
from dplateau.engines.randomness import Coins
from dplateau.engines.sources import Part, size_of
from dplateau.errors import InvalidInput
from dplateau.ground.types import IntArray
from dplateau.tables.schema import CellKind, Schema
from dplateau.tables.table import Table, arrow_table, encode_features, encode_target, read_table

# A single Parquet file of more bytes stays where it is.
LARGE = 1 << 28


@dataclass(frozen=True)
class TableFiles:
    """Parquet files with the same columns, of which a few chunks are in memory at a time.

    With ``coins`` only the rows are meant whose coin is ``heads``.
    """

    paths: tuple[Path, ...]
    coins: Coins | None = None
    heads: bool = False

    @property
    def path(self) -> str:
        """Return how the files are called."""
        first, *rest = map(str, self.paths)
        return f"{first} and {len(rest)} more" if rest else first

    @cached_property
    def n_rows(self) -> int:
        """Return the number of rows, as the files state it."""
        rows = size_of(self._selected(TableSource(list(self.paths), [], "")))
        if not rows:
            raise InvalidInput(f"{self.path}: there are no rows")
        return rows

    def types(self) -> dict[str, CellKind]:
        """Return the kind of every column's cells, from the first file's schema alone."""
        return arrow_table(arrow_schema(list(self.paths)).empty_table(), self.path).types()

    def split(self, coins: Coins) -> tuple[TableFiles, TableFiles]:
        """Return the rows that stay, and those whose coin holds them out."""
        return TableFiles(self.paths, coins, heads=False), TableFiles(self.paths, coins, heads=True)

    def _selected(self, source: TableSource) -> Source:
        return source if self.coins is None else Selected(source, self.coins, self.heads)

    def source(self, schema: Schema) -> Source:
        """Return the rows as features and targets, encoded whenever they are read."""
        if schema.target.bounds is None and schema.target.classes is None:
            raise InvalidInput(
                f"{self.path}: which classes occur is not known before all rows were read; "
                "declare them (--classes A,B)"
            )
        columns = list(dict.fromkeys([*schema.used, schema.target.column]))
        return self._selected(
            TableSource(
                list(self.paths), columns, schema.target.column, encode=Encoding(schema, self.path)
            )
        )


@dataclass(frozen=True)
class Encoding:
    """Turns some rows into features and targets, as a whole table would be.

    ``places`` says where those rows stand in the files, one after the other.
    """

    schema: Schema
    path: str
    places: IntArray | None = None

    def at(self, places: IntArray) -> Encoding:
        """Return the same for rows that stand at these places."""
        return replace(self, places=places)

    def __call__(self, batch: Any) -> Part:
        """Return one row of features and a target for each row."""
        table = replace(arrow_table(batch, self.path), places=self.places)
        return encode_features(table, self.schema), encode_target(table, self.schema)


def read_tables(
    paths: Sequence[Path], *, stay: bool, separator: str | None = None, decimal: str = "."
) -> Table | TableFiles:
    """Return the table in some files: in memory if it is one small file, else where it is.

    With ``stay`` even a small one stays where it is.
    """
    if len(paths) == 1 and not (stay or _is_large(paths[0])):
        return read_table(paths[0], separator=separator, decimal=decimal)
    for path in paths:
        if not path.is_dir() and path.suffix.lower() not in SUFFIXES:
            raise InvalidInput(
                f"cannot read {path} a part at a time: only Parquet files and folders of them; "
                "give one CSV file, or convert it"
            )
        if not path.exists():
            raise InvalidInput(f"cannot read {path}: there is no such file")
    files = TableFiles(tuple(paths))
    files.types()  # or a refusal
    return files


def _is_large(path: Path) -> bool:
    if path.is_dir():
        return True
    return path.suffix.lower() in SUFFIXES and path.is_file() and path.stat().st_size > LARGE
