"""From a table and what is publicly known about it to numbers, one row at a time."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.tables.reading import Table
from dplateau.tables.schema import Categories, Column, Hashed, Ignored, Numeric, Schema


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
