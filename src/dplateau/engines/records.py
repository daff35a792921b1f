"""The private records, behind one question: the sum of gradients over some of them.

For a score z = <x, w> the gradient of a record is x times a number (or a row of k numbers), so the
sum over a batch is X_B^T l'(X_B w): no record's gradient is ever formed.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache, cached_property
from threading import Lock
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from dplateau.engines import kernels
from dplateau.engines.rows import Dense, Sparse, blocks, check_features, is_sparse, row_norms
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray
from dplateau.losses import Link, Loss, ScalarLoss, Scores, Softmax

Rows = slice | IntArray
ALL = slice(None)
NO_ROWS = np.empty(0, dtype=np.int64)
NO_LIMITS = np.empty(0)
# A tile of rows stays in a core's own cache between its forward and its backward pass.
TILE_BYTES = 1 << 15
MATRIX_BYTES = 1 << 21
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

    @abstractmethod
    def gradient(self, weights: FloatArray, rows: Rows) -> FloatArray:
        """Return the sum of the (clipped) gradients of some records, shaped as the weights."""


class ArrayRecords(Records):
    """Records in an array, a memory-mapped array or a CSR matrix.

    ``checked`` says that the same records have passed the checks before.
    """

    def __init__(
        self,
        features: Dense | Sparse,
        targets: npt.NDArray[Any],
        loss: Loss,
        feature_norm: float,
        clip: float | None,
        *,
        checked: bool = False,
    ) -> None:
        check_features(features)
        self.sparse = is_sparse(features)
        self.n, self.n_features = features.shape
        self.features: Any = features if self.sparse else np.ascontiguousarray(features)
        self.dtype = features.dtype
        self.loss = loss
        self.link = _link(loss)
        self.targets = self._read(targets, checked)
        self.limits = np.empty(0, dtype=self.dtype)
        if not checked or clip is not None:
            norms = row_norms(self.features)
            _check_norms(norms, feature_norm)
            if clip is not None:
                # A little less than clip / |x|, so that rounding cannot exceed the clip: of the
                # quotient, and of a norm over so many scores.
                safe = clip * (1 - (4 + loss.n_outputs) * float(np.finfo(self.dtype).eps))
                with np.errstate(divide="ignore"):
                    self.limits = np.divide(safe, norms).astype(self.dtype)

    def gradient(self, weights: FloatArray, rows: Rows) -> FloatArray:
        """Return X_B^T l'(X_B w)."""
        narrow = weights.astype(self.dtype)
        # A library's own threads do not pay for products with so few columns; ours do.
        with _OneThreadEach() if self.link is None else nullcontext():
            if isinstance(rows, slice):
                start, stop, _ = rows.indices(self.n)
                return self._on_all_processors(
                    lambda first, last: self._range(narrow, start + first, start + last),
                    stop - start,
                )
            index = rows.astype(np.int64, copy=False)
            return self._on_all_processors(
                lambda first, last: self._listed(narrow, index[first:last]), index.size
            )

    def _on_all_processors(self, part: Callable[[int, int], FloatArray], n: int) -> FloatArray:
        """Return the sum of the parts of n rows, shared out if that is worth it."""
        if self._bytes * n / self.n < THREAD_BYTES:
            return part(0, n)
        cuts = np.linspace(0, n, _processors() + 1).astype(int).tolist()
        return cast(FloatArray, sum(self._pool.map(part, cuts[:-1], cuts[1:])))

    def _range(self, weights: Scores, start: int, stop: int) -> FloatArray:
        """Return the sum over consecutive rows."""
        if self.link is None:
            return self._by_blocks(weights, slice(start, stop))
        if self.sparse:
            return self._sparse(weights, NO_ROWS, start, stop)
        return kernels.range_gradient(
            self.features, *self._known(weights), start, stop, self._height
        )

    def _listed(self, weights: Scores, rows: IntArray) -> FloatArray:
        """Return the sum over the listed rows."""
        if self.link is None:
            return self._by_blocks(weights, rows)
        if self.sparse:
            return self._sparse(weights, rows, 0, rows.size)
        return kernels.rows_gradient(self.features, *self._known(weights), rows, self._height)

    def _sparse(self, weights: Scores, rows: IntArray, start: int, stop: int) -> FloatArray:
        matrix = self.features
        return kernels.sparse_gradient(
            matrix.data, matrix.indices, matrix.indptr, *self._known(weights), rows, start, stop
        )

    def _known(self, weights: Scores) -> tuple[Scores, Scores, Scores, int, Scores]:
        """Return what every compiled loop takes after the features."""
        return (self.targets, self.limits, weights, *self._shape)

    def _by_blocks(self, weights: Scores, rows: Rows) -> FloatArray:
        """Return the sum by matrix products: for a softmax and for losses of the user's own."""
        total = np.zeros(weights.shape)
        for part in self._blocks(rows):
            block = self.features[part]
            limits = self.limits[part] if self.limits.size else None
            slopes = clipped_slopes(self.loss, block @ weights, self.targets[part], limits)
            total += block.T @ slopes
        return total

    def _blocks(self, rows: Rows) -> Iterator[Rows]:
        # Features and scores of a block have to fit.
        row_bytes = max(self._bytes // self.n, self.dtype.itemsize * self.loss.n_outputs)
        if not isinstance(rows, slice):
            for part in blocks(rows.size, row_bytes, MATRIX_BYTES):
                yield rows[part]
            return
        start, stop, _ = rows.indices(self.n)
        for part in blocks(stop - start, row_bytes, MATRIX_BYTES):
            yield slice(start + part.start, start + part.stop)

    @cached_property
    def _shape(self) -> tuple[int, Scores]:
        """Return the link's shape and numbers, for the compiled loops."""
        assert self.link is not None
        return link_numbers(self.link, self.dtype)

    @cached_property
    def _bytes(self) -> int:
        return int(self.features.data.nbytes if self.sparse else self.features.nbytes)

    @cached_property
    def _height(self) -> int:
        """Return the number of rows of a tile."""
        return int(min(256, max(4, TILE_BYTES // (self.dtype.itemsize * self.n_features))))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_processors())

    def _read(self, targets: npt.NDArray[Any], checked: bool) -> npt.NDArray[Any]:
        targets = np.asarray(targets)
        if targets.shape != (self.n,):
            raise InvalidInput(
                f"{self.n} rows need {self.n} targets; got an array of shape {targets.shape}"
            )
        if not checked:
            self.loss.check_targets(targets)
        if self.loss.n_outputs > 1:
            return targets.astype(np.int64)
        bound = np.inf if self.link is None else self.link.target_bound
        near: Scores = np.clip(targets.astype(self.dtype), -bound, bound)
        return near


class ChunkRecords(Records):
    """Records that arrive in chunks, for runs that walk through them in order."""

    def __init__(self, chunks: Chunks, loss: Loss, feature_norm: float, clip: float | None) -> None:
        self.chunks = chunks
        self.settings = (loss, feature_norm, clip)
        self.n, self.n_features = 0, 0
        # One pass beforehand finds what is wrong with the data before any noise is drawn.
        for part in self._parts(checked=False):
            if self.n and part.n_features != self.n_features:
                raise InvalidInput(
                    f"every chunk must have the same columns; got {self.n_features} "
                    f"and then {part.n_features}"
                )
            self.n, self.n_features = self.n + part.n, part.n_features
        if self.n != chunks.n:
            raise InvalidInput(f"the chunks hold {self.n} records, but say n={chunks.n}")
        self._walk: Iterator[tuple[int, ArrayRecords]] = iter(())
        self._here: tuple[int, ArrayRecords] | None = None

    def gradient(self, weights: FloatArray, rows: Rows) -> FloatArray:
        """Return the sum over consecutive records; going back means starting over."""
        if not isinstance(rows, slice):
            raise InvalidInput(
                "chunks are walked through in order: they serve full batches, CyclicSGD with "
                "order='cyclic' and OnePassSGD; random batches need an array"
            )
        start, stop, _ = rows.indices(self.n)
        total = np.zeros(weights.shape)
        while start < stop:
            first, part = self._part_with(start)
            last = min(stop, first + part.n)
            total += part.gradient(weights, slice(start - first, last - first))
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
        for part in self._parts(checked=True):
            yield first, part
            first += part.n

    def _parts(self, *, checked: bool) -> Iterator[ArrayRecords]:
        for features, targets in self.chunks:
            yield ArrayRecords(features, targets, *self.settings, checked=checked)


def clipped_slopes(
    loss: Loss, scores: Scores, targets: npt.NDArray[Any], limits: Scores | None
) -> Scores:
    """Return the derivatives, each (or each row's norm) cut to the record's limit clip / |x|.

    The scores may be overwritten.
    """
    if type(loss).derivative is Softmax.derivative:
        kernels.softmax_slopes(scores, targets, NO_LIMITS if limits is None else limits)
        return scores
    slopes = loss.derivative(scores, targets)
    if limits is None:
        return slopes
    if slopes.ndim == 1:
        return np.clip(slopes, -limits, limits)
    sizes = np.sqrt(np.square(slopes).sum(axis=1))
    cut: Scores = slopes * np.where(sizes > limits, limits / np.maximum(sizes, 1e-30), 1)[:, None]
    return cut.astype(scores.dtype, copy=False)


def link_numbers(link: Link, dtype: np.dtype[Any]) -> tuple[int, Scores]:
    """Return a link in the form that the compiled loops take."""
    if link.shape == "logistic":
        shape = kernels.LOGISTIC
    else:
        shape = kernels.MIRRORED_RAMP if link.mirrored else kernels.RAMP
    return shape, np.array([link.low, link.high, link.scale], dtype=dtype)


def _check_norms(norms: FloatArray, feature_norm: float) -> None:
    """Refuse rows that are not finite, or longer than was declared."""
    if not np.all(np.isfinite(norms)):
        raise InvalidInput("features must be finite numbers; some are not")
    # Room for the rounding of the norms themselves.
    if np.any(norms > feature_norm * (1 + 1e-9)):
        raise InvalidInput(
            f"some rows are longer than feature_norm={feature_norm:g}; scale every row on its own "
            f"first: scale_rows(features, {feature_norm:g})"
        )


def _link(loss: Loss) -> Link | None:
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
