"""The private records, behind one question: the sum of gradients over some of them.

For a score z = <x, w> the gradient of a record is x times a number (or a row of k numbers), so the
sum over a batch is X_B^T l'(X_B w): no record's gradient is ever formed.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from threading import Lock
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from dplateau.engines import kernels
from dplateau.engines.rows import (
    NORM_ROOM,
    Dense,
    Sparse,
    blocks,
    check_features,
    is_sparse,
    row_norms,
)
from dplateau.engines.ruler import ROWS_IN_PRODUCT, Ruler, ruler_for
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray
from dplateau.losses import Link, Loss, OneVersusRest, ScalarLoss, Scores, Softmax

Rows = slice | IntArray
ALL = slice(None)
NO_ROWS = np.empty(0, dtype=np.int64)
# A tile of rows stays in a core's own cache between its forward and its backward pass.
TILE_BYTES = 1 << 15
# Below this much work a second thread costs more than it saves.
THREAD_BYTES = 1 << 22


@runtime_checkable
class Chunks(Protocol):
    """Records that do not fit in memory: (features, targets) pairs, in the same order every time.

    ``n`` is the number of records in all chunks together.
    """

    n: int

    def __iter__(self) -> Iterator[tuple[Any, npt.NDArray[Any]]]:
        """Start over and yield every chunk."""


class Records(ABC):
    """Records with a loss: what the training loop sees of the data."""

    n: int
    n_features: int
    ruler: Ruler

    @abstractmethod
    def units(self, weights: FloatArray, rows: Rows) -> IntArray:
        """Return the sum of the (clipped) gradients of some records, in units of the ruler.

        It is shaped as the weights, and no rounding of it depends on any other record.
        """

    def gradient(self, weights: FloatArray, rows: Rows) -> FloatArray:
        """Return the same sum in doubles."""
        return self.ruler.value(self.units(weights, rows))


class ArrayRecords(Records):
    """Records in an array, a memory-mapped array or a CSR matrix.

    ``ruler`` is that of all the records that these are a part of.
    """

    def __init__(
        self,
        features: Dense | Sparse,
        targets: npt.NDArray[Any],
        loss: Loss,
        feature_norm: float,
        clip: float | None,
        *,
        ruler: Ruler | None = None,
    ) -> None:
        check_features(features)
        self.sparse = is_sparse(features)
        self.n, self.n_features = features.shape
        self.features: Any = features if self.sparse else np.ascontiguousarray(features)
        self.loss = loss
        lipschitz = loss.geometry(feature_norm, clip).lipschitz
        self.ruler = ruler or ruler_for(lipschitz, self.n, self.n_features, loss.n_outputs)
        self.most = math.inf if clip is not None else lipschitz / feature_norm
        self.form = compiled_form(loss, self.most)
        # Scores of losses with one link have the precision of the features, all others doubles.
        narrow = self.form is not None and loss.n_outputs == 1
        self.dtype = features.dtype if narrow else np.dtype(np.float64)
        self.targets = self._read(targets)
        self.limits = np.empty(0)
        norms = row_norms(self.features)
        _check_norms(norms, feature_norm)
        if clip is not None:
            # A little less than clip / |x|, so that rounding cannot exceed the clip.
            with np.errstate(divide="ignore"):
                self.limits = lipschitz * (1 - 1e-15) / norms

    def units(self, weights: FloatArray, rows: Rows) -> IntArray:
        """Return X_B^T l'(X_B w)."""
        inner = weights.astype(self.dtype)
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.n)
            return self._on_all_processors(
                lambda first, last: self._sum(inner, NO_ROWS, start + first, start + last),
                stop - start,
            )
        index = rows.astype(np.int64, copy=False)
        return self._on_all_processors(
            lambda first, last: self._sum(inner, index[first:last], 0, last - first), index.size
        )

    def _on_all_processors(self, part: Callable[[int, int], IntArray], n: int) -> IntArray:
        """Return the sum of the parts of n rows, shared out if that is worth it."""
        if self._row_work * n < THREAD_BYTES:
            return part(0, n)
        cuts = np.linspace(0, n, _processors() + 1).astype(int).tolist()
        return cast(IntArray, sum(self._pool.map(part, cuts[:-1], cuts[1:])))

    def _sum(self, weights: Scores, rows: IntArray, start: int, stop: int) -> IntArray:
        """Return the sum over the listed rows; if none are, over ``start`` ... ``stop`` - 1."""
        if self.form is None:
            # A library's own threads do not pay for products with so few columns; ours do.
            with _OneThreadEach():
                return self._by_products(weights, rows, start, stop)
        features, one = self.features, self.loss.n_outputs == 1
        if not (one or self.sparse):
            weights = np.ascontiguousarray(weights.T)
        known = (self.targets, self.limits, weights, *self.form, self.ruler.unit)
        if self.sparse:
            data, columns, starts = features.data, features.indices, features.indptr
            if one:
                return kernels.sparse_gradient(data, columns, starts, *known, rows, start, stop)
            return kernels.sparse_class_gradient(data, columns, starts, *known, rows, start, stop)
        if not one:
            return kernels.class_gradient(features, *known, rows, start, stop, self._height).T
        if rows.size:
            return kernels.rows_gradient(features, *known, rows, self._height)
        return kernels.range_gradient(features, *known, start, stop, self._height)

    def _by_products(self, weights: Scores, rows: IntArray, start: int, stop: int) -> IntArray:
        """Return the sum by matrix products in doubles: for derivatives of the user's own."""
        total = np.zeros(weights.shape, dtype=np.int64)
        for part in blocks(stop - start, 1, ROWS_IN_PRODUCT):
            chosen: Rows = rows[part] if rows.size else slice(start + part.start, start + part.stop)
            block = self.features[chosen].astype(np.float64)
            found = self.loss.derivative(block @ weights, self.targets[chosen])
            slopes = np.array(found, dtype=np.float64).reshape(block.shape[0], -1)
            limits = self.limits[chosen] if self.limits.size else self.limits
            kernels.shorten(slopes.T, limits, self.most)
            total += self.ruler.units((block.T @ slopes).reshape(weights.shape))
        return total

    @cached_property
    def _row_work(self) -> float:
        """Return how many bytes a row takes, counted once for every score."""
        held = self.features.data.nbytes if self.sparse else self.features.nbytes
        return float(held / self.n * self.loss.n_outputs)

    @cached_property
    def _height(self) -> int:
        """Return the number of rows of a tile."""
        return int(min(256, max(4, TILE_BYTES // (self.dtype.itemsize * self.n_features))))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_processors())

    def _read(self, targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
        targets = np.asarray(targets)
        if targets.shape != (self.n,):
            raise InvalidInput(
                f"{self.n} rows need {self.n} targets; got an array of shape {targets.shape}"
            )
        self.loss.check_targets(targets)
        if self.loss.n_outputs > 1:
            return targets.astype(np.int64)
        link = known_link(self.loss)
        bound = np.inf if link is None else link.target_bound
        near: Scores = np.clip(targets.astype(self.dtype), -bound, bound)
        return near


class ChunkRecords(Records):
    """Records that arrive in chunks, for runs that walk through them in order."""

    def __init__(self, chunks: Chunks, loss: Loss, feature_norm: float, clip: float | None) -> None:
        self.chunks = chunks
        self.settings = (loss, feature_norm, clip)
        self.n, self.n_features = 0, 0
        # One pass beforehand finds what is wrong with the data before any noise is drawn.
        for part in self._parts(None):
            if self.n and part.n_features != self.n_features:
                raise InvalidInput(
                    f"every chunk must have the same columns; got {self.n_features} "
                    f"and then {part.n_features}"
                )
            self.n, self.n_features = self.n + part.n, part.n_features
        if self.n != chunks.n:
            raise InvalidInput(f"the chunks hold {self.n} records, but say n={chunks.n}")
        lipschitz = loss.geometry(feature_norm, clip).lipschitz
        self.ruler = ruler_for(lipschitz, self.n, self.n_features, loss.n_outputs)
        self._walk: Iterator[tuple[int, ArrayRecords]] = iter(())
        self._here: tuple[int, ArrayRecords] | None = None

    def units(self, weights: FloatArray, rows: Rows) -> IntArray:
        """Return the sum over consecutive records; going back means starting over."""
        if not isinstance(rows, slice):
            raise InvalidInput(
                "chunks are walked through in order: they serve full batches, CyclicSGD with "
                "order='cyclic' and OnePassSGD; random batches need an array"
            )
        start, stop, _ = rows.indices(self.n)
        total = np.zeros(weights.shape, dtype=np.int64)
        while start < stop:
            first, part = self._part_with(start)
            last = min(stop, first + part.n)
            total += part.units(weights, slice(start - first, last - first))
            start = last
        return total

    def _part_with(self, row: int) -> tuple[int, ArrayRecords]:
        """Return the chunk that holds the row, and the number of its first row."""
        if self._here is None or row < self._here[0]:
            self._walk = self._numbered()
            self._here = next(self._walk)
        while row >= self._here[0] + self._here[1].n:
            self._here = next(self._walk)
        return self._here

    def _numbered(self) -> Iterator[tuple[int, ArrayRecords]]:
        first = 0
        for part in self._parts(self.ruler):
            yield first, part
            first += part.n

    def _parts(self, ruler: Ruler | None) -> Iterator[ArrayRecords]:
        """Yield the chunks, each checked anew: a source may bring other rows every time."""
        for features, targets in self.chunks:
            yield ArrayRecords(features, targets, *self.settings, ruler=ruler)


def known_link(loss: Loss) -> Link | None:
    """Return the link that the compiled loops may use for the loss's derivative, or None."""
    if not isinstance(loss, ScalarLoss):
        return None
    classes = type(loss).__mro__
    defined = {
        name: next(i for i, one in enumerate(classes) if name in vars(one))
        for name in ("link", "derivative")
    }
    # A derivative of one's own below the class that states the link is another function.
    return loss.link if defined["link"] <= defined["derivative"] else None


def compiled_form(loss: Loss, most: float) -> tuple[int, FloatArray] | None:
    """Return a loss in the form that the compiled loops take, or None if they do not know it.

    ``most`` is the largest size of a record's slopes.
    """
    link = known_link(loss)
    if type(loss).derivative is OneVersusRest.derivative:
        link = known_link(cast(OneVersusRest, loss).link)
    if link is not None:
        numbers = (max(link.low, -most), min(link.high, most), link.scale, most)
        return kernels.SHAPES[link.shape, link.mirrored], np.array(numbers)
    if type(loss).derivative is Softmax.derivative:
        return kernels.SOFTMAX, np.array([0.0, 0.0, 0.0, most])
    return None


def _check_norms(norms: FloatArray, feature_norm: float) -> None:
    """Refuse rows that are not finite, or longer than was declared."""
    if not np.all(np.isfinite(norms)):
        raise InvalidInput("features must be finite numbers; some are not")
    if np.any(norms > feature_norm * (1 + NORM_ROOM)):
        raise InvalidInput(
            f"some rows are longer than feature_norm={feature_norm:g}; scale every row on its own "
            f"first: scale_rows(features, {feature_norm:g})"
        )


class _OneThreadEach:
    """While it is held, products run on one thread each, in this process as a whole.

    Trainers in several threads share the limit: the first sets it and the last lifts it.
    """

    _lock = Lock()
    _held = 0
    _limit: Any = None

    def __enter__(self) -> None:
        shared = _OneThreadEach
        with shared._lock:
            if shared._held == 0:
                shared._limit = _libraries().limit(limits=1, user_api="blas")
            shared._held += 1

    def __exit__(self, *_: object) -> None:
        shared = _OneThreadEach
        with shared._lock:
            shared._held -= 1
            if shared._held == 0:
                shared._limit.restore_original_limits()


@cache
def _libraries() -> ThreadpoolController:
    """Return the handle on the threads of the linear algebra libraries."""
    return ThreadpoolController()


def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
