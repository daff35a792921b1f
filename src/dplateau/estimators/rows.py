"""How rows enter a model: columns brought to public bounds, rows to a public norm, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack, issparse

from dplateau.engines.kernels import scores_of
from dplateau.engines.rows import (
    EVERYTHING,
    Dense,
    Sparse,
    blocks,
    bring_to_bounds,
    by_columns,
    check_finite,
    row_norms,
    scale_rows,
)
from dplateau.errors import InvalidInput
from dplateau.estimators.columns import Columns
from dplateau.estimators.whitening import Whitening, bent_unit, share_before
from dplateau.ground.types import FloatArray


@dataclass(frozen=True, eq=False)
class RowMap:
    """The map from a row of X to what the model sees, chosen before any row was seen.

    Columns are cut to their bounds and mapped (not at all where nothing is known about them); a row
    that is then longer than ``data_norm`` is scaled down to it; a constant feature of size
    ``intercept`` is appended unless that is 0. Rounds of whitening, made of noisy moments, follow.
    With a ``bend`` scores grow by one slope up to this share of the longest white row's length, and
    by another one beyond.
    """

    data_norm: float
    intercept: float
    columns: Columns | None = None
    whitening: tuple[Whitening, ...] = ()
    bend: float | None = None

    @property
    def center(self) -> FloatArray | float:
        """Return what becomes 0 in every column."""
        return 0.0 if self.columns is None else self.columns.center

    @property
    def half(self) -> FloatArray | float:
        """Return what becomes 1 in every column, from its center."""
        return 1.0 if self.columns is None else self.columns.half

    @property
    def slopes(self) -> int:
        """Return how many slopes scores have along a row."""
        return 1 if self.bend is None else 2

    def training_rows(
        self, features: Dense | Sparse, slots: int, dtype: npt.DTypeLike | None = None
    ) -> Dense | Sparse:
        """Return one row per record, and rows of zeros up to ``slots`` for absent records.

        They have the precision of ``features``; dense ones may be given another.

        This is the map up to whitening, which they are needed for. A row of zeros has a zero
        gradient under every loss, its constant feature included.
        """
        n, d = features.shape
        dtype = features.dtype if dtype is None else np.dtype(dtype)
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
        filled = np.empty((slots, d + (self.intercept > 0)), dtype=dtype, order=order)
        filled[n:] = 0.0
        bounds = EVERYTHING if self.columns is None else self.columns
        if not bring_to_bounds(features, self.data_norm, bounds, filled):
            check_finite(features)
        if self.intercept:
            filled[:n, d] = constant
        return filled

    def in_original_units(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (coef, intercept) of the scores, one row per score, for rows as the user has them.

        For a row within bounds and norm the score is then <x, coef> + intercept. With two slopes
        those of what is beyond follow, one row per score again.
        """
        by_score = weights.reshape(len(weights), -1)
        if self.bend is not None:
            by_score = np.hstack(np.split(by_score, 2)) * bent_unit(self.bend)
        for round_ in reversed(self.whitening):
            by_score = round_.matrix @ by_score
        by_score = by_score.T
        if self.intercept:
            coef, offset = by_score[:, :-1] / self.half, by_score[:, -1] * self.intercept
        else:
            coef, offset = by_score / self.half, np.zeros(len(by_score))
        return coef, offset - self._at_center(coef)

    def scores(
        self, features: Dense | Sparse, coef: FloatArray, intercept: FloatArray
    ) -> FloatArray:
        """Return the scores of rows after the same map, from coefficients in original units.

        A row that is scaled by s has the score s <x, coef> + (1 - s) <center, coef> + intercept;
        whitening shortens it, and the score with it. With two slopes ``coef`` and ``intercept``
        have the rows that :meth:`in_original_units` returned.
        """
        scores = self._unshortened(features, coef, intercept)
        if self.whitening:
            for part in blocks(len(scores), 16 * features.shape[1]):
                scores[part] *= self._kept(features[part], scores.shape[1])
        by_slope = scores.reshape(len(scores), self.slopes, -1)
        together: FloatArray = by_slope.sum(axis=1)
        return together

    def norms(self, features: Dense | Sparse) -> FloatArray:
        """Return how long every row is to the model, its constant feature included."""
        if self.whitening:
            norms = np.empty(features.shape[0])
            for part in blocks(len(norms), 16 * features.shape[1]):
                norms[part] = row_norms(self._turned(features[part])[0])
            return norms
        if issparse(features):
            lengths = row_norms(self._divided_sparse(self._cut_sparse(features)))
        else:
            cut = np.ascontiguousarray(self._cut(features))
            lengths = row_norms((cut - self.center) / self.half)
        return np.asarray(np.hypot(np.minimum(lengths, self.data_norm), self.intercept))

    def _turned(self, features: Dense | Sparse) -> tuple[FloatArray, FloatArray]:
        """Return rows after all rounds of whitening, and how much of its length each has kept."""
        dense: Dense = cast(Sparse, features).toarray() if issparse(features) else features
        rows = self.training_rows(np.ascontiguousarray(dense), len(dense))
        turned = rows.astype(np.float64)
        kept = np.ones(len(turned))
        for round_ in self.whitening:
            turned = scores_of(turned, np.ascontiguousarray(round_.matrix.T))
            each = round_.shares(turned)
            turned *= each[:, None]
            kept *= each
        return turned, kept

    def _kept(self, features: Dense | Sparse, n_scores: int) -> FloatArray:
        """Return how much of every row each of its scores keeps, after all rounds of whitening."""
        turned, kept = self._turned(features)
        if self.bend is None:
            return kept[:, None]
        inner = kept * share_before(turned, self.bend)
        return np.repeat(np.column_stack([inner, kept - inner]), n_scores // 2, axis=1)

    def _unshortened(
        self, features: Dense | Sparse, coef: FloatArray, intercept: FloatArray
    ) -> FloatArray:
        n, d = features.shape
        scores = np.empty((n, len(coef)))
        if issparse(features):
            rows = self._cut_sparse(features)
            shares = self._shares(self._divided_sparse(rows))
            rows.data = rows.data * np.repeat(shares, np.diff(rows.indptr))
            scores[:] = rows @ coef.T
            return scores + intercept
        by_score = np.ascontiguousarray(coef, dtype=np.float64)
        for part in blocks(n, 8 * d):
            # Row by row, in one order and by one way: counts of scores are released with noise for
            # one row, so no row's score may depend on the others, not even in its last bit.
            cut = np.ascontiguousarray(self._cut(features[part]))
            shares = self._shares((cut - self.center) / self.half)
            scores[part] = scores_of(cut * shares[:, None], by_score)
            scores[part] += (1 - shares)[:, None] * self._at_center(coef)
        return scores + intercept

    def _shares(self, mapped: Dense | Sparse) -> FloatArray:
        """Return by how much every row is scaled down."""
        shares: FloatArray = self.data_norm / np.maximum(row_norms(mapped), self.data_norm)
        return shares

    def _at_center(self, coef: FloatArray) -> FloatArray:
        return np.asarray(np.sum(coef * self.center, axis=1))

    def _cut(self, rows: Dense) -> Dense:
        rows = np.asarray(rows)
        return rows if self.columns is None else self.columns.cut(rows)

    def _cut_sparse(self, rows: Sparse) -> Sparse:
        """Return a copy with every entry once and within its column's bounds."""
        cut = rows.copy()
        # Entries that are stored twice count as their sum, which a norm would not see.
        cut.sum_duplicates()
        if self.columns is not None:
            self._check_keeps_zeros(self.columns)
            low, high = self.columns.low[cut.indices], self.columns.high[cut.indices]
            cut.data = np.clip(cut.data, low, high)
        return cut

    def _divided_sparse(self, cut: Sparse) -> Sparse:
        if self.columns is None:
            return cut
        divided = cut.copy()
        divided.data = cut.data / self.columns.half[cut.indices]
        return divided

    def _bounded_sparse(self, rows: Sparse) -> Sparse:
        return self._divided_sparse(self._cut_sparse(rows)).astype(rows.dtype)

    @staticmethod
    def _check_keeps_zeros(columns: Columns) -> None:
        if not columns.keeps_zeros:
            raise InvalidInput(
                "sparse X needs feature_bounds that are symmetric about 0, so that zeros stay "
                'zeros, or of the kinds "binary" and ("nonnegative", high); or pass X.toarray()'
            )


def _not_above(value: float, dtype: np.dtype[Any]) -> Any:
    """Return the largest number of that type that is not above ``value``."""
    rounded = dtype.type(value)
    return np.nextafter(rounded, dtype.type(0)) if float(rounded) > value else rounded
