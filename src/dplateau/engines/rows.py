"""Rows of features: their norms, and scaling them down to a public bound one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, csr_matrix, issparse

from dplateau.engines.kernels import (
    bring_columns_to_bounds,
    bring_rows_to_bounds,
    squared_norms,
    squared_norms_by_column,
)
from dplateau.errors import BadRecord, InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray

Dense = npt.NDArray[np.floating[Any]]
Sparse = Any  # a CSR matrix or array of scipy
Features = TypeVar("Features")
# Rows that are handled together: small enough for memory, large enough for speed.
BLOCK_BYTES = 1 << 24
# Room for the rounding of norms when rows are checked; the noise covers it (see ``ruler``).
NORM_ROOM = 1e-9
# Records whose sums stay in the fastest cache.
ROWS_IN_CACHE = 1 << 11


def blocks(n: int, row_bytes: int, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices of about ``block_bytes`` each that cover n rows."""
    step = max(1, block_bytes // max(1, row_bytes))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def is_sparse(features: object) -> bool:
    """Return whether these are rows in compressed form, refusing other sparse layouts."""
    if not issparse(features):
        return False
    if not isinstance(features, csr_array | csr_matrix):
        raise InvalidInput(
            f"sparse features must be CSR; got {type(features).__name__}: call .tocsr()"
        )
    if not features.has_canonical_format:
        # Entries of one place that are stored apart would each count for less than their sum.
        raise InvalidInput(
            "sparse features must hold every place once and in order: call .sum_duplicates()"
        )
    return True


def by_columns(features: object) -> bool:
    """Return whether the entries of a dense column stand side by side in memory.

    The step from row to row says so of a single row too: how rows are summed must not depend on how
    many there are.
    """
    return isinstance(features, np.ndarray) and (
        features.strides[0] == features.itemsize and features.shape[1] > 1
    )


def check_features(features: object) -> None:
    """Refuse what is not a matrix of floats."""
    shape, dtype = getattr(features, "shape", None), getattr(features, "dtype", None)
    if shape is None or len(shape) != 2 or min(shape) < 1:
        raise InvalidInput(
            f"features must be a matrix with a row per record; got shape {shape} "
            f"of {type(features).__name__}"
        )
    if dtype not in (np.float32, np.float64):
        raise InvalidInput(f"features must be float32 or float64; got {dtype}: use .astype(float)")


def row_norms(features: Dense | Sparse) -> FloatArray:
    """Return the Euclidean norm of every row, computed in double precision."""
    n = features.shape[0]
    if is_sparse(features):
        rows = cast(Sparse, features)
        filled = np.repeat(np.arange(n), np.diff(rows.indptr))
        # In whatever thread: a warning about overflow would tell something of the data.
        with np.errstate(all="ignore"):
            squares = np.square(rows.data.astype(np.float64))
        sums: FloatArray = np.bincount(filled, weights=squares, minlength=n).astype(float)
    elif by_columns(features):
        sums = squared_norms_by_column(cast(Dense, features).T, ROWS_IN_CACHE)
    else:
        sums = squared_norms(np.ascontiguousarray(features))
    norms: FloatArray = np.sqrt(sums)
    return norms


def scale_rows(features: Features, norm: float, *, out: Dense | None = None) -> Features:
    """Return a copy whose rows are scaled down, each on its own, to at most ``norm``.

    ``out`` is where a dense result goes, for instance a memory-mapped array; it may be ``features``
    itself.

    A row that is short enough stays as it is. The factor is a little less than norm / |x|, by more
    than all rounding together, so that the exact norm of the stored row never exceeds ``norm``.

    >>> scale_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0).round(6)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    norm = checks.positive("norm", norm)
    check_features(features)
    rows = cast(Any, features)
    if is_sparse(rows):
        filled = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        scaled = rows.copy()
        scaled.data = (rows.data * _factors(rows, norm)[filled]).astype(rows.dtype)
        return cast(Features, scaled)
    if out is None:
        out = np.empty(rows.shape, rows.dtype, "F" if by_columns(rows) else "C")
    dense = out
    if dense.shape != rows.shape or dense.dtype != rows.dtype:
        raise InvalidInput(
            f"out must have shape {rows.shape} and type {rows.dtype}; "
            f"got {dense.shape} and {dense.dtype}"
        )
    bring_to_bounds(rows, norm, EVERYTHING, dense)
    return cast(Features, dense)


def check_norms(
    norms: FloatArray, features: Dense | Sparse, feature_norm: float, *, first: int = 0
) -> None:
    """Refuse rows that are not finite, or longer than was declared; ``first`` is the first's place.

    Written so that a norm that is not a number does not pass.
    """
    if np.all(norms <= feature_norm * (1 + NORM_ROOM)):
        return
    row = int(np.argmin(norms <= feature_norm * (1 + NORM_ROOM)))
    column = _not_finite(cast(Any, features)[[row]])
    if column is not None:
        raise not_finite(first + row, column)
    raise BadRecord(
        f"some rows are longer than feature_norm={feature_norm:g}, the first is ",
        first + row,
        f"; scale every row on its own first: scale_rows(features, {feature_norm:g})",
    )


def check_finite(features: Dense) -> None:
    """Refuse dense rows with an entry that is no finite number."""
    finite = np.isfinite(features).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise not_finite(row, _not_finite(features[[row]]))


def not_finite(row: int, column: int | None) -> BadRecord:
    """Return the refusal of an entry that is no finite number."""
    return BadRecord("features must be finite numbers; ", row, " holds none", column=column)


def _not_finite(row: Dense | Sparse) -> int | None:
    """Return the first column in which a matrix of one row holds no finite number."""
    entries: Any = row
    odd = np.flatnonzero(~np.isfinite(entries.data if issparse(row) else entries[0]))
    if not len(odd):
        return None
    return int(entries.indices[odd[0]] if issparse(row) else odd[0])


class Bounds(Protocol):
    """What columns are cut to, and what becomes 0 and 1 in them."""

    @property
    def low(self) -> FloatArray | float:
        """Return the least value."""

    @property
    def high(self) -> FloatArray | float:
        """Return the largest value."""

    @property
    def center(self) -> FloatArray | float:
        """Return what becomes 0."""

    @property
    def half(self) -> FloatArray | float:
        """Return how far from the center is what becomes 1."""


@dataclass(frozen=True)
class _Everything:
    low: float = -math.inf
    high: float = math.inf
    center: float = 0.0
    half: float = 1.0


EVERYTHING = _Everything()


def bring_to_bounds(rows: Dense, norm: float, bounds: Bounds, out: Dense) -> bool:
    """Put dense rows into ``out``, columns mapped by their bounds, then scaled as by scale_rows.

    Return whether all values were finite. ``out`` may be ``rows`` itself, and it may have more
    columns and rows, which stay as they are.
    """
    width = rows.shape[1]
    columns = np.empty((4, width))
    for side, numbers in enumerate((bounds.low, bounds.high, bounds.center, bounds.half)):
        columns[side] = numbers
    columns[3] = 1.0 / columns[3]
    longest = _longest(out.dtype, width, norm)
    if by_columns(rows) and by_columns(out):
        return bring_columns_to_bounds(rows.T, columns, longest, ROWS_IN_CACHE, out.T)
    return bring_rows_to_bounds(rows, columns, longest, out)


def _longest(dtype: np.dtype[Any], width: int, norm: float) -> float:
    """Return how long a scaled row is before it is rounded.

    Every entry and the norm itself are rounded: allow a few units in the last place of the
    stored type, and the error of a sum of squares in double precision.
    """
    unit = float(np.finfo(dtype).eps)
    return norm * (1 - (4 * unit + width * float(np.finfo(np.float64).eps)))


def _factors(rows: Sparse, norm: float) -> FloatArray:
    longest, norms = _longest(rows.dtype, rows.shape[1], norm), row_norms(rows)
    return np.where(norms > longest, longest / np.maximum(norms, 1e-300), 1.0)
