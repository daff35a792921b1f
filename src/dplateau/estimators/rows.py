"""How rows enter a model: columns brought to public bounds, rows to a public norm, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from dplateau.engines.rows import Dense, Sparse, blocks, by_columns, row_norms, scale_rows
from dplateau.errors import InvalidInput
from dplateau.estimators.whitening import Whitening
from dplateau.ground.types import FloatArray


@dataclass(frozen=True, eq=False)
class RowMap:
    """The map from a row of X to what the model sees, chosen before any row was seen.

    Each column is cut to [low, high] and mapped to [-1, 1] (not at all where there are no bounds);
    a row that is then longer than ``data_norm`` is scaled down to it; a constant feature of size
    ``intercept`` is appended unless that is 0. Rounds of whitening, made of noisy moments, follow.
    """

    data_norm: float
    intercept: float
    low: FloatArray | None = None
    high: FloatArray | None = None
    whitening: tuple[Whitening, ...] = ()

    @property
    def center(self) -> FloatArray | float:
        """Return the middle of every column's bounds."""
        return 0.0 if self.low is None or self.high is None else (self.low + self.high) / 2

    @property
    def half(self) -> FloatArray | float:
        """Return half the width of every column's bounds."""
        return 1.0 if self.low is None or self.high is None else (self.high - self.low) / 2

    def training_rows(self, features: Dense | Sparse, slots: int) -> Dense | Sparse:
        """Return one row per record, and rows of zeros up to ``slots`` for absent records.

        This is the map up to whitening, which they are needed for. A row of zeros has a zero
        gradient under every loss, its constant feature included.
        """
        n, d = features.shape
        dtype: np.dtype[Any] = features.dtype
        constant = _not_above(self.intercept, dtype)
        if issparse(features):
            scaled: Sparse = scale_rows(self._bounded_sparse(features), self.data_norm)
            if self.intercept:
                column = csr_array(np.full((n, 1), constant, dtype=dtype))
                scaled = hstack([scaled, column], format="csr", dtype=dtype)
            scaled.resize((slots, scaled.shape[1]))
            return scaled
        # Rows that stand in columns stay there: transposing is slow.
        order: Any = "F" if by_columns(features) else "C"
        filled = np.zeros((slots, d + (self.intercept > 0)), dtype=dtype, order=order)
        for part in blocks(n, 8 * d):
            filled[part, :d] = scale_rows(self._bounded(features[part]), self.data_norm)
        if self.intercept:
            filled[:n, d] = constant
        return filled

    def in_original_units(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (coef, intercept) of the scores, one row per score, for rows as the user has them.

        For a row within bounds and norm the score is then <x, coef> + intercept.
        """
        by_score = weights.reshape(len(weights), -1)
        for round_ in reversed(self.whitening):
            by_score = round_.matrix @ by_score
        by_score = by_score.T
        if self.intercept:
            coef, offset = by_score[:, :-1] / self.half, by_score[:, -1] * self.intercept
        else:
            coef, offset = by_score / self.half, np.zeros(len(by_score))
        return coef, offset - self._at_centre(coef)

    def scores(
        self, features: Dense | Sparse, coef: FloatArray, intercept: FloatArray
    ) -> FloatArray:
        """Return the scores of rows after the same map, from coefficients in original units.

        A row that is scaled by s has the score s <x, coef> + (1 - s) <center, coef> + intercept;
        whitening shortens it, and the score with it.
        """
        found = self._unshortened(features, coef, intercept)
        if self.whitening:
            for part in blocks(len(found), 16 * features.shape[1]):
                found[part] *= self._shortening(features[part])[:, None]
        return found

    def _shortening(self, features: Dense | Sparse) -> FloatArray:
        """Return by how much all rounds of whitening together shorten every row."""
        dense: Dense = cast(Sparse, features).toarray() if issparse(features) else features
        turned = self.training_rows(dense, len(dense)).astype(np.float64)
        shares = np.ones(len(turned))
        for round_ in self.whitening:
            turned = turned @ round_.matrix
            each = round_.shares(turned)
            turned *= each[:, None]
            shares *= each
        return shares

    def _unshortened(
        self, features: Dense | Sparse, coef: FloatArray, intercept: FloatArray
    ) -> FloatArray:
        n, d = features.shape
        found = np.empty((n, len(coef)))
        if issparse(features):
            rows = self._cut_sparse(features)
            shares = self._shares(self._divided_sparse(rows))
            rows.data = rows.data * np.repeat(shares, np.diff(rows.indptr))
            found[:] = rows @ coef.T
            return found + intercept
        for part in blocks(n, 8 * d):
            cut = self._cut(features[part])
            shares = self._shares((cut - self.center) / self.half)
            found[part] = (cut * shares[:, None]) @ coef.T
            found[part] += (1 - shares)[:, None] * self._at_centre(coef)
        return found + intercept

    def _shares(self, mapped: Dense | Sparse) -> FloatArray:
        """Return by how much every row is scaled down."""
        shares: FloatArray = self.data_norm / np.maximum(row_norms(mapped), self.data_norm)
        return shares

    def _at_centre(self, coef: FloatArray) -> FloatArray:
        found: FloatArray = np.sum(coef * self.center, axis=1)
        return found

    def _cut(self, rows: Dense) -> Dense:
        rows = np.asarray(rows)
        return rows if self.low is None else np.clip(rows, self.low, self.high)

    def _bounded(self, rows: Dense) -> Dense:
        if self.low is None:
            return np.asarray(rows)
        mapped: Dense = ((self._cut(rows) - self.center) / self.half).astype(rows.dtype)
        return mapped

    def _cut_sparse(self, rows: Sparse) -> Sparse:
        """Return a copy with every entry once and within its column's bounds."""
        cut = rows.copy()
        # Entries that are stored twice count as their sum, which a norm would not see.
        cut.sum_duplicates()
        if self.low is not None and self.high is not None:
            self._check_keeps_zeros()
            cut.data = np.clip(cut.data, self.low[cut.indices], self.high[cut.indices])
        return cut

    def _divided_sparse(self, cut: Sparse) -> Sparse:
        if isinstance(self.half, float):
            return cut
        divided = cut.copy()
        divided.data = cut.data / self.half[cut.indices]
        return divided

    def _bounded_sparse(self, rows: Sparse) -> Sparse:
        return self._divided_sparse(self._cut_sparse(rows)).astype(rows.dtype)

    def _check_keeps_zeros(self) -> None:
        if np.any(self.center != 0):
            raise InvalidInput(
                "sparse X needs feature_bounds that are symmetric about 0, so that zeros stay "
                "zeros; pass such bounds, or X.toarray()"
            )


def bounds_of_columns(feature_bounds: Any, d: int) -> tuple[FloatArray | None, FloatArray | None]:
    """Return lower and upper bounds of d columns, or two Nones if there are none."""
    if feature_bounds is None:
        return None, None
    try:
        low, high = (
            np.broadcast_to(np.asarray(side, dtype=np.float64), (d,)).copy()
            for side in feature_bounds
        )
    except (TypeError, ValueError):
        raise InvalidInput(
            f"feature_bounds must be a pair (low, high) of numbers or of {d} numbers each, one per "
            f"column; got {feature_bounds!r}"
        ) from None
    if not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
        raise InvalidInput(
            "feature_bounds must be finite with low < high in every column; drop columns that "
            f"cannot vary. Got low={low.tolist()}, high={high.tolist()}"
        )
    return low, high


def _not_above(value: float, dtype: np.dtype[Any]) -> Any:
    """Return the largest number of that type that is not above ``value``."""
    rounded = dtype.type(value)
    return np.nextafter(rounded, dtype.type(0)) if float(rounded) > value else rounded
