"""The private records, behind one question: the sum of gradients over some of them.

For a score z = <x, w> the gradient of a record is x times a number (or a row of k numbers), so the
sum over a batch is X_B^T l'(X_B w): no record's gradient is ever formed.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, partial
from numbers import Number
from threading import Lock
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse, vstack
from threadpoolctl import ThreadpoolController

from dplateau.engines import kernels
from dplateau.engines.rows import (
    NORM_ROOM,
    Dense,
    Sparse,
    blocks,
    by_columns,
    check_features,
    check_norms,
    is_sparse,
    row_norms,
)
from dplateau.engines.ruler import Ruler, ruler_for
from dplateau.engines.sources import (
    CHUNK_BYTES,
    Chunk,
    Part,
    Rows,
    Source,
    check_count,
    chunks_of,
    placed,
    reads_once,
)
from dplateau.errors import BadRecord, DplateauError, InvalidInput
from dplateau.ground import processes
from dplateau.ground.types import FloatArray, IntArray
from dplateau.losses import (
    ClassWeighted,
    Link,
    Loss,
    OneVersusRest,
    ScalarLoss,
    Scores,
    Softmax,
)

ALL = slice(None)
# The sum of a batch's gradients at given weights, in units.
Sum = Callable[[FloatArray], IntArray]
NO_ROWS = np.empty(0, dtype=np.int64)
# A tile of rows stays in a core's own cache between its forward and its backward pass.
TILE_BYTES, COLUMN_TILE_BYTES = 1 << 15, 1 << 18
# Below this much work a second thread costs more than it saves.
THREAD_BYTES = 1 << 22
# Rows whose scores a derivative of the user's own gets at a time.
ROWS_AT_ONCE = 1 << 10
# Rows of a source that are put together, checked and summed while they are in a cache.
PART_BYTES = 1 << 20
# Processors to use, where somebody shares them out; None: all that the system allows.
PROCESSORS: int | None = None


@dataclass(frozen=True)
class Terms:
    """What a record contributes: the loss, and the public bounds that hold for every record."""

    loss: Loss
    feature_norm: float
    clip: float | None

    @cached_property
    def lipschitz(self) -> float:
        """Return L, the most that a record's gradient may measure."""
        return self.loss.geometry(self.feature_norm, self.clip).lipschitz

    @cached_property
    def unweighted(self) -> Loss:
        """Return the loss before the weights of classes, whose slopes are cut."""
        return self.loss.loss if isinstance(self.loss, ClassWeighted) else self.loss

    @cached_property
    def weights(self) -> FloatArray:
        """Return by what the slopes of every class are multiplied; nothing if by 1 for all."""
        return np.array(self.loss.weights if isinstance(self.loss, ClassWeighted) else ())

    @cached_property
    def limit(self) -> float:
        """Return what a record's gradient may measure before its class's weight."""
        heaviest = self.loss.heaviest if isinstance(self.loss, ClassWeighted) else 1.0
        return self.lipschitz / heaviest

    @cached_property
    def most(self) -> float:
        """Return the largest slope of any record; with a clip the limits of the rows say more."""
        return math.inf if self.clip is not None else self.limit / self.feature_norm

    @cached_property
    def shortest_clip(self) -> float:
        """Return a little less than the clip, so that rounding cannot exceed it; 0 without one."""
        return 0.0 if self.clip is None else self.limit * (1 - 1e-15)

    @cached_property
    def form(self) -> tuple[int, FloatArray] | None:
        """Return the loss in the form that the compiled loops take, or None: they do not know it.

        The numbers are the limits of the slopes, the scale of a link, ``most``, and the weights of
        the classes if they have any.
        """
        derivative = type(self.unweighted).derivative
        link = known_link(self.unweighted)
        if derivative is OneVersusRest.derivative:
            link = known_link(cast(OneVersusRest, self.unweighted).link)
        if link is not None:
            numbers = (max(link.low, -self.most), min(link.high, self.most), link.scale, self.most)
            return kernels.SHAPES[link.shape, link.mirrored], np.append(numbers, self.weights)
        if derivative is Softmax.derivative:
            return kernels.SOFTMAX, np.append([0.0, 0.0, 0.0, self.most], self.weights)
        return None

    @cached_property
    def target_bound(self) -> float:
        """Return the largest target; others are taken as the nearest allowed one."""
        link = known_link(self.unweighted)
        return math.inf if link is None else link.target_bound

    def ruler(self, n: int, n_features: int) -> Ruler:
        """Return the ruler for sums over n records."""
        return ruler_for(self.lipschitz, n, n_features, self.loss.n_outputs)


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

    def in_turn(self, batches: Iterable[Rows]) -> Iterator[Sum]:
        """Yield for every batch, in order, what gives its sum at given weights."""
        for rows in batches:
            yield partial(self.units, rows=rows)

    def close(self) -> None:
        """End what works for them outside of this process: nothing, as a rule."""
        return


class ArrayRecords(Records):
    """Records in an array, a memory-mapped array or a CSR matrix, checked when they come in.

    ``ruler`` is that of all the records that these are a part of. Records of which only the sum
    over all is asked for may be summed ``by_column``, if the compiled loops know the loss.
    """

    def __init__(
        self,
        features: Dense | Sparse,
        targets: npt.NDArray[Any],
        terms: Terms,
        *,
        ruler: Ruler | None = None,
        by_column: bool = False,
    ) -> None:
        check_features(features)
        self.sparse = is_sparse(features)
        self.n, self.n_features = features.shape
        self.terms, self.loss = terms, terms.loss
        self.ruler = ruler or terms.ruler(self.n, self.n_features)
        # Scores of losses with one link have the precision of the features, all others doubles.
        narrow = terms.form is not None and self.loss.n_outputs == 1
        self.in_columns = by_column and narrow and not self.sparse
        keep = self.sparse or (self.in_columns and by_columns(features))
        put = np.asfortranarray if self.in_columns else np.ascontiguousarray
        self.features: Any = features if keep else put(features)
        self.dtype = features.dtype if narrow else np.dtype(np.float64)
        self.targets = self._read(targets)
        self.limits = np.empty(0)
        if self.in_columns:
            return  # summed once, and checked while they are
        norms = row_norms(self.features)
        check_norms(norms, self.features, terms.feature_norm)
        if terms.clip is not None:
            with np.errstate(divide="ignore"):
                self.limits = terms.shortest_clip / norms

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

    def units_of_all(self, weights: FloatArray) -> IntArray:
        """Return the sum over all records, computed in this thread alone."""
        terms = self.terms
        if self.in_columns and terms.form is not None:
            inner = weights.astype(self.dtype)
            longest = terms.feature_norm * (1 + NORM_ROOM)
            known = (self.targets, longest, terms.shortest_clip, inner, *terms.form)
            tall = max(4 * kernels.LANES, COLUMN_TILE_BYTES // self._row_bytes)
            units, fits = kernels.columns_gradient(self.features.T, *known, self.ruler.unit, tall)
            if not fits:
                check_norms(row_norms(self.features), self.features, terms.feature_norm)
            return units
        return self._sum(weights.astype(self.dtype), NO_ROWS, 0, self.n)

    def _on_all_processors(self, part: Callable[[int, int], IntArray], n: int) -> IntArray:
        """Return the sum of the parts of n rows, shared out if that is worth it."""
        if self._row_work * n < THREAD_BYTES:
            return part(0, n)
        cuts = np.linspace(0, n, processors() + 1).astype(int).tolist()
        return cast(IntArray, sum(self._pool.map(part, cuts[:-1], cuts[1:])))

    def _sum(self, weights: Scores, rows: IntArray, start: int, stop: int) -> IntArray:
        """Return the sum over the listed rows; if none are, over ``start`` ... ``stop`` - 1."""
        if self.terms.form is None:
            # Threads that a library starts below ours do not pay. And a warning about overflow
            # would tell something of the data: threads have their own state.
            with _OneThreadEach(), np.errstate(all="ignore"):
                return self._by_derivative(weights, rows, start, stop)
        features, one = self.features, self.loss.n_outputs == 1
        if not (one or self.sparse):
            weights = np.ascontiguousarray(weights.T)
        known = (self.targets, self.limits, weights, *self.terms.form, self.ruler.unit)
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

    def _by_derivative(self, weights: Scores, rows: IntArray, start: int, stop: int) -> IntArray:
        """Return the sum for derivatives of the user's own, which get some scores at a time."""
        by_score: FloatArray = np.ascontiguousarray(np.atleast_2d(weights.T), dtype=np.float64)
        total = np.zeros((len(by_score), self.n_features), dtype=np.int64)
        for part in blocks(stop - start, 1, ROWS_AT_ONCE):
            chosen: Rows = rows[part] if rows.size else slice(start + part.start, start + part.stop)
            block = self.features[chosen].astype(np.float64)
            scores = block @ by_score.T if self.sparse else kernels.scores_of(block, by_score)
            shaped = scores if weights.ndim > 1 else scores[:, 0]
            slopes = self._own_slopes(shaped, self.targets[chosen])
            limits = self.limits[chosen] if self.limits.size else self.limits
            kernels.shorten(slopes.T, limits, self.terms.most)
            if isinstance(self.loss, ClassWeighted):
                slopes *= self.loss.of(self.targets[chosen])[:, None]
            known = (np.ascontiguousarray(slopes.T), self.ruler.unit)
            if self.sparse:
                entries = (block.data, block.indices, block.indptr)
                total += kernels.sparse_products(*entries, *known, self.n_features)
            else:
                total += kernels.products(block, *known)
        return total.T.reshape(weights.shape)

    def _own_slopes(self, scores: Scores, targets: npt.NDArray[Any]) -> FloatArray:
        """Return a row of slopes for each record; what the user's function says may quote one."""
        try:
            derivatives = self.terms.unweighted.derivative(scores, targets)
            return np.array(derivatives, dtype=np.float64).reshape(len(targets), -1)
        except DplateauError:
            raise
        except Exception as error:
            failed = type(error).__name__
        raise InvalidInput(
            f"the derivative of {type(self.terms.unweighted).__name__} raised {failed}; try it on "
            "made-up scores and targets, which may be quoted"
        )

    @cached_property
    def _row_work(self) -> float:
        """Return how many bytes a row takes, counted once for every score."""
        held = self.features.data.nbytes if self.sparse else self.features.nbytes
        return float(held / self.n * self.loss.n_outputs)

    @cached_property
    def _height(self) -> int:
        """Return the number of rows of a tile."""
        return int(min(256, max(4, TILE_BYTES // self._row_bytes)))

    @property
    def _row_bytes(self) -> int:
        return int(self.dtype.itemsize * self.n_features)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(processors())

    def _read(self, targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
        targets = np.asarray(targets)
        if targets.shape != (self.n,):
            raise InvalidInput(
                f"{self.n} rows need {self.n} targets; got an array of shape {targets.shape}"
            )
        _check_numbers(targets)
        self.loss.check_targets(targets)
        if self.loss.n_outputs > 1:
            return targets.astype(np.int64)
        bound = self.terms.target_bound
        with np.errstate(over="ignore"):  # a warning would tell something of the data
            near: Scores = targets.astype(self.dtype)
        return near if math.isinf(bound) else np.clip(near, -bound, bound)


class SourceRecords(Records):
    """Records of a source, of which a few chunks are in memory at a time.

    Full and ordered batches are summed as the chunks pass by. Random batches are drawn ahead, as
    many as there is room for, and collected in one pass; a batch that does not fit is summed in a
    pass of its own. Rows are checked whenever they are read: a source may bring other ones. One
    ``among`` several in a process takes its part of that room.
    """

    def __init__(
        self, source: Source, terms: Terms, n: int, *, ruler: Ruler | None = None, among: int = 1
    ) -> None:
        self.source, self.terms, self.n, self.among = source, terms, n, among
        self._passes, self._end = 0, n
        self._seen: int | None = None
        self._walk = self._pass()
        self._here = next(self._walk, None)
        self._fresh = True
        if self._here is None:
            raise InvalidInput("the source holds no records at all")
        rows, _ = self._here[1].rows(slice(0, 2))
        check_features(rows)
        self.n_features = rows.shape[1]
        # All records are computed as the first ones are, whoever is among them: a last bit that
        # differs between two ways moves a record of a loss with a corner to its other side.
        self._by_column, self._sparse, self._dtype = by_columns(rows), issparse(rows), rows.dtype
        self._row_bytes = rows.dtype.itemsize * self.n_features
        self.ruler = ruler or terms.ruler(n, self.n_features)

    def in_turn(self, batches: Iterable[Rows]) -> Iterator[Sum]:
        """Yield for every batch what gives its sum, collecting random ones ahead."""
        # They take the room of two chunks while their parts are put together.
        room = max(1, CHUNK_BYTES // (self._row_bytes * self.among))
        group: list[IntArray] = []
        held = 0
        for rows in batches:
            if isinstance(rows, slice):
                yield partial(self.units, rows=rows)
                continue
            if held + rows.size > room:
                yield from self._collected(group)
                group, held = [], 0
            if rows.size > room:
                yield partial(self.units, rows=rows)
            else:
                group.append(rows)
                held += rows.size
        yield from self._collected(group)

    def units(self, weights: FloatArray, rows: Rows) -> IntArray:
        """Return the sum over consecutive records as they pass by, or over listed ones."""
        total = np.zeros(weights.shape, dtype=np.int64)
        if not isinstance(rows, slice):
            for _, chunk, chosen in self._chosen(np.sort(rows)):
                total += self._sum(chunk, chosen, weights)
            return total
        start, stop, _ = rows.indices(self.n)
        while start < stop:
            here = self._chunk_with(start)
            if here is None:  # the rest are absent
                return total
            first, chunk = here
            last = min(stop, first + chunk.n)
            total += self._sum(chunk, range(start - first, last - first), weights)
            start = last
        if stop == self.n:
            # Nothing may be left, or the source holds more than was declared.
            self._here = next(self._walk, None)
        return total

    def _sum(self, chunk: Chunk, chosen: range | IntArray, weights: FloatArray) -> IntArray:
        """Return the sum over some records of a chunk, a block at a time on every processor."""

        def part(block: slice) -> IntArray:
            some = chosen[block]
            rows = slice(some.start, some.stop) if isinstance(some, range) else some
            # A warning would tell something of the data, and threads have their own state.
            with np.errstate(all="ignore"):
                features, targets = chunk.rows(rows)
            with placed(chunk, rows):
                records = self._records(features, targets, by_column=self._by_column)
                return records.units_of_all(weights)

        parts = self._pool.map(part, blocks(len(chosen), self._row_bytes, PART_BYTES))
        return sum(parts, start=np.zeros(weights.shape, dtype=np.int64))

    def _collected(self, group: list[IntArray]) -> Iterator[Sum]:
        """Read the records of some batches in one pass, and yield the sum over each of them."""
        if not group:
            return
        wanted = np.concatenate(group)
        order = np.argsort(wanted)
        parts, numbers, seen = [], [], 0
        for _, chunk, chosen in self._chosen(wanted[order]):
            features, targets = chunk.rows(chosen)
            with placed(chunk, chosen):
                parts.append((self._formed(features, targets), targets))
            numbers.append(chunk.numbers(chosen))
            names = chunk.names
            seen += len(chosen)
        # Where a record ended up; those that are absent are the last in the order.
        place = np.empty(wanted.size, dtype=np.int64)
        place[order] = np.arange(wanted.size)
        try:
            records = self._records(*joined(parts)) if parts else None
        except BadRecord as refusal:
            raise refusal.at(np.concatenate(numbers).tolist(), names) from None
        for batch in np.split(place, np.cumsum([rows.size for rows in group])[:-1]):
            there = batch[batch < seen]
            yield partial(_sum_over, records, there)

    def _chosen(self, rows: IntArray) -> Iterator[tuple[int, Chunk, IntArray]]:
        """Yield the chunks of one pass that hold some of the sorted rows, and which of theirs."""
        for first, chunk in self._whole_pass():
            low, high = np.searchsorted(rows, [first, first + chunk.n])
            if low < high:
                yield first, chunk, rows[low:high] - first

    def _records(self, features: Any, targets: Any, *, by_column: bool = False) -> ArrayRecords:
        rows = self._formed(features, targets)
        return ArrayRecords(rows, targets, self.terms, ruler=self.ruler, by_column=by_column)

    def _formed(self, features: Any, targets: npt.NDArray[Any]) -> Any:
        """Return rows in the form of the first ones, or refuse those that cannot stand beside."""
        _check_numbers(targets)
        if features.shape[1] != self.n_features:
            had = f"every chunk must have the same columns; got {self.n_features}"
            raise BadRecord(f"{had} and then {features.shape[1]} from ", 0, " on")
        if features.dtype != self._dtype:
            had = f"every chunk must have rows of one precision; got {self._dtype}"
            raise BadRecord(f"{had} and then {features.dtype} from ", 0, " on; convert all to one")
        if issparse(features) == self._sparse:
            return features
        return csr_array(features) if self._sparse else cast(Sparse, features).toarray()

    def _chunk_with(self, row: int) -> tuple[int, Chunk] | None:
        """Return the chunk that holds the row and the number of its first row; None if absent."""
        if row >= self._end:
            return None
        if self._here is None or row < self._here[0]:
            self._walk = self._pass()
            self._here = next(self._walk, None)
        self._fresh = False
        while self._here is not None and row >= self._here[0] + self._here[1].n:
            self._here = next(self._walk, None)
        return self._here

    def _whole_pass(self) -> Iterator[tuple[int, Chunk]]:
        """Return a pass from the first record on: the one that is open, if nothing was read yet."""
        here, self._here = self._here, None
        if self._fresh and here is not None:
            self._fresh = False
            return itertools.chain([here], self._walk)
        return self._pass()

    def _pass(self) -> Iterator[tuple[int, Chunk]]:
        """Yield every chunk and the number of its first record, and see that n was true."""
        self._passes += 1
        if self._passes > 1 and reads_once(self.source):
            raise InvalidInput(
                "a stream can be read once, and this run needs another pass; give a source that "
                "can be read again (a list of chunks, files), or describe one pass (OnePassSGD)"
            )
        first = 0
        for chunk in chunks_of(self.source):
            if first + chunk.n > self.n:
                check_count(self.source, first + chunk.n, self.n)
            if chunk.n:
                yield first, chunk
            first += chunk.n
        check_count(self.source, first, self.n)
        if self._seen not in (None, first):
            raise InvalidInput(
                f"the source held {self._seen} records on one pass and {first} on the next; it "
                "must not change during a run"
            )
        self._seen = self._end = first

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(processors())


def _sum_over(records: ArrayRecords | None, rows: IntArray, weights: FloatArray) -> IntArray:
    """Return the sum over some collected records; there are none if all are absent."""
    if records is None:
        return np.zeros(weights.shape, dtype=np.int64)
    return records.units(weights, rows)


def joined(parts: list[Part]) -> Part:
    """Return the rows of several parts as one."""
    features = [part[0] for part in parts]
    targets = np.concatenate([part[1] for part in parts])
    if any(issparse(rows) for rows in features):
        return vstack(features, format="csr"), targets
    return np.concatenate(features), targets


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


def _check_numbers(targets: npt.NDArray[Any]) -> None:
    """Refuse targets of a type that holds other things than numbers."""
    if targets.dtype.kind not in "biuf":
        row = next((i for i, one in enumerate(targets) if not isinstance(one, Number)), 0)
        raise BadRecord(f"targets must be numbers; got {targets.dtype.type.__name__} in ", row)


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


def processors() -> int:
    """Return how many processors to use."""
    return PROCESSORS or processes.processors()
