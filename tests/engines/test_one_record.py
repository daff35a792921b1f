"""One record moves the computed sum of gradients by at most L, on every path of the engine.

The proof is in the docstring of ``engines/ruler.py``. Here it is measured on neighbors that were
made to hurt: many identical rows with slopes at their limits, where plain sums round the same way
every time, and a record that leaves its place so that all others move up.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow
import pytest
from scipy import sparse

from dplateau.algorithms import Checkpoints, NoisyGD
from dplateau.engines import SeededRandomness, kernels, records, scale_rows, train
from dplateau.engines.records import ArrayRecords, Records, SourceRecords, Terms
from dplateau.engines.ruler import BITS, ruler_for
from dplateau.engines.sources import ChunkSource, TableSource
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray, IntArray
from dplateau.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Loss,
    MoreauSmoothed,
    OneVersusRest,
    Pinball,
    SmoothedHinge,
    Softmax,
    SquaredOnBall,
)

N, D, NORM = 30_000, 7, 1.0
MOST = 1e-6


class OwnHinge(Hinge):
    """A derivative of the user's own, which no compiled loop knows."""

    def derivative(self, scores: Any, targets: Any) -> Any:
        return np.where(targets * scores < 1, -targets, 0 * scores)


LOSSES: list[tuple[Loss, float]] = [
    (Logistic(), 1),
    (Hinge(), 1),
    (SmoothedHinge(0.5), 1),
    (MoreauSmoothed(Hinge(), 0.3), 1),
    (Huber(0.7), 9.0),
    (Absolute(), 9.0),
    (Pinball(0.7), 9.0),
    (SquaredOnBall(0.7, 1.3), 5.0),
    (Softmax(3), 2),
    (OneVersusRest(SmoothedHinge(0.7), 3), 1),
    (OneVersusRest(Logistic(), 3), 1),
    (OwnHinge(), 1),
]


def identical(loss: Loss, target: float, dtype: Any) -> tuple[Any, Any, FloatArray]:
    """Return equal rows of the largest norm, their targets, and weights with large slopes."""
    rng = np.random.default_rng(3)
    row = rng.normal(size=D)
    rows = scale_rows(np.tile(row / np.linalg.norm(row), (N, 1)).astype(dtype), NORM)
    kind = np.int64 if loss.n_outputs > 1 else np.float64
    weights = rng.normal(size=D)
    if loss.n_outputs > 1:
        weights = np.multiply.outer(rows[0], np.where(np.arange(3) == target, -6.1, 3.3))
    elif isinstance(loss, SquaredOnBall):
        weights *= -loss.radius / np.linalg.norm(weights)
    else:
        weights *= -np.sign(rows[0] @ weights)
    return rows, np.full(N, target, kind), weights


class Pieces:
    """The same records in chunks of uneven length."""

    def __init__(self, rows: Any, targets: Any) -> None:
        self.n, self.rows, self.targets = len(targets), rows, targets

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for start, stop in itertools.pairwise([0, 1, 9_001, 23_333, self.n]):
            yield self.rows[start:stop], self.targets[start:stop]


Path = Callable[[Any, Any, Loss, float | None], Records]
PATHS: dict[str, Path] = {
    "dense": lambda rows, y, loss, clip: ArrayRecords(rows, y, Terms(loss, NORM, clip)),
    "sparse": lambda rows, y, loss, clip: ArrayRecords(
        sparse.csr_array(rows), y, Terms(loss, NORM, clip)
    ),
    "chunks": lambda rows, y, loss, clip: SourceRecords(
        ChunkSource(Pieces(rows, y)), Terms(loss, NORM, clip), N
    ),
}


def batches() -> list[slice | IntArray]:
    some = np.random.default_rng(4).choice(N, N // 3, replace=False)
    return [slice(None), np.append(some[some != 7], 7)]


def without(rows: Any, at: int) -> Any:
    """Return the rows with one absent: a row of zeros in its place, and one at the end."""
    empty = rows.copy()
    empty[at] = 0
    return empty, np.concatenate([np.delete(rows, at, axis=0), 0 * rows[:1]])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("loss", "target"), LOSSES, ids=lambda v: repr(v)[:40] if isinstance(v, Loss) else ""
)
def test_a_record_moves_the_sum_by_its_own_gradient(
    loss: Loss, target: float, dtype: Any, path: str
) -> None:
    rows, targets, weights = identical(loss, target, dtype)
    clips = (None,) if isinstance(loss, OneVersusRest) else (None, 0.31)
    for clip in clips:
        limit = loss.geometry(NORM, clip).lipschitz
        there = PATHS[path](rows, targets, loss, clip)
        for batch in batches():
            before = there.gradient(weights, batch)
            gone, moved = without(rows, 7)
            others = (gone, moved) if isinstance(batch, slice) else (gone,)
            steps = [
                np.linalg.norm(
                    before - PATHS[path](other, targets, loss, clip).gradient(weights, batch)
                )
                for other in others
            ]
            assert max(steps) <= limit * (1 + there.ruler.slack)
            assert there.ruler.slack < MOST
            # The pair is a hard one: the record's gradient is (nearly) as long as it may be.
            assert min(steps) > 0.3 * limit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("loss", [Logistic(), Absolute(), Softmax(4)], ids=repr)
def test_the_sum_does_not_depend_on_order_tiles_or_threads(
    loss: Loss, form: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    n, d = 9_001, 37
    rows = scale_rows(rng.normal(size=(n, d)).astype(dtype), 1.0)
    targets = rng.integers(0, 4, n) if loss.n_outputs > 1 else rng.choice([-1, 1], n)
    weights = 3 * rng.normal(size=(d, loss.n_outputs) if loss.n_outputs > 1 else d)

    def units(order: IntArray) -> IntArray:
        data = ArrayRecords(form(rows[order]), targets[order], Terms(loss, 1.0, None))
        return data.units(weights, slice(None))

    expected = units(np.arange(n))
    assert np.abs(expected).max() > 2**BITS
    assert np.array_equal(units(rng.permutation(n)), expected)
    data = ArrayRecords(form(rows), targets, Terms(loss, 1.0, None))
    assert np.array_equal(data.units(weights, rng.permutation(n)), expected)
    monkeypatch.setattr(records, "THREAD_BYTES", 1)
    monkeypatch.setattr(records, "processors", lambda: 5)
    monkeypatch.setattr(records, "TILE_BYTES", 37 * 8 * 11)
    assert np.array_equal(units(rng.permutation(n)), expected)


def test_products_are_rounded_to_units_and_added_without_error() -> None:
    """Exact rational arithmetic agrees to the last unit, ties and signs included."""
    rng = np.random.default_rng(6)
    unit = 2.0**-40
    rows = rng.normal(size=(255, 9)) * np.exp2(rng.integers(-30, 0, (255, 9)))
    slopes = rng.normal(size=255)
    # Halves of a unit, which are ties.
    rows[:40], slopes[:40] = rng.integers(-9, 9, (40, 9)) * unit / 2, 1.0
    total = np.zeros(9)
    kernels.add_products(rows, slopes, 1.5 * 2.0**52 * unit, total)
    for j in range(9):
        products = [float(s) * float(x) for s, x in zip(slopes, rows[:, j], strict=True)]
        exact = sum(round(Fraction(product) / Fraction(unit)) for product in products)
        assert total[j] == float(exact * Fraction(unit))


def test_weights_that_overflow_leave_a_record_no_more_than_its_limit() -> None:
    """Not a number times a row would take the whole sum with it: infinitely more than L."""
    rows = np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 3]]
    rows[4] = [0.5, -0.5, 0.5, -0.5]
    for loss, weights in (
        (Logistic(), np.array([np.inf, np.inf, 1.0, 1.0])),
        (Huber(), np.array([np.inf, np.inf, 1.0, 1.0])),
        (Hinge(), np.array([np.inf, np.inf, 1.0, 1.0])),
        (Softmax(2), np.full((4, 2), np.inf)),
        (OwnHinge(), np.array([np.inf, np.inf, 1.0, 1.0])),
    ):
        targets = np.array([1, 1, 1, 1, 1])
        for form in (np.asarray, sparse.csr_array):
            with np.errstate(all="ignore"):
                data = ArrayRecords(form(rows), targets, Terms(loss, 1.0, None))
                both = [data.gradient(weights, np.arange(k)) for k in (4, 5)]
            limit = loss.geometry(1.0).lipschitz * (1 + data.ruler.slack)
            assert np.linalg.norm(both[1] - both[0]) <= limit


def test_the_noise_covers_what_arithmetic_adds() -> None:
    """Rows of zeros leave noise alone, which is larger than stated by the slack, and no less."""
    loss = Logistic()
    run = NoisyGD(
        n=30, steps=1, learning_rate=0.5, noise_std=0.25, loss=loss.geometry(1.0), release="last"
    )
    found = train(
        run, loss, np.zeros((30, 3)), np.ones(30), feature_norm=1.0, randomness=SeededRandomness(1)
    )
    slack = ruler_for(1.0, 30, 3, 1).slack
    stated = 0.5 * 0.25 * SeededRandomness(1).gaussian(3)
    assert np.allclose(found / stated, 1 + slack, rtol=1e-14, atol=0)
    assert np.all(np.abs(found) > np.abs(stated))


@pytest.mark.parametrize("n", [10, 10**5, 10**9, 4 * 10**9])
def test_the_slack_is_small_at_every_size(n: int) -> None:
    ruler = ruler_for(0.7, n, 50, 2)
    assert 0 < ruler.slack < MOST
    # Every sum of n gradients fits into a 64-bit integer.
    assert n * 0.7 * (1 + ruler.slack) / ruler.unit < 2**63
    assert ruler_for(0.7, n, 10**6, 1).slack < 4 * MOST


def test_gradients_without_a_bound_are_refused() -> None:
    with pytest.raises(NotApplicable, match="finite Lipschitz constant"):
        ruler_for(float("inf"), 10, 3, 1)


def rows_at_a_corner(dtype: Any, d: int, count: int, seed: int) -> tuple[Any, FloatArray]:
    """Return equal rows of norm 1, and weights."""
    rng = np.random.default_rng(seed)
    row = scale_rows(rng.normal(size=(1, d)).astype(dtype), 1.0)
    return np.repeat(row, count, axis=0), rng.normal(size=d)


def as_columns(rows: Any, targets: Any) -> TableSource:
    columns = {f"x{j}": rows[:, j] for j in range(rows.shape[1])}
    return TableSource(pyarrow.table({**columns, "y": targets}), list(columns), "y")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_single_row_is_computed_as_it_is_among_others(dtype: Any) -> None:
    # Its score is its target to the last bit: another order of adding puts it beside the corner.
    terms, everything = Terms(Absolute(), 1.0, None), slice(None)
    for seed in range(50):
        rows, weights = rows_at_a_corner(dtype, 9, 2, seed)
        rows[1] = 0
        score, square = np.empty(1, dtype), np.empty(1)
        kernels.column_scores(rows[:1].T.copy(), 0, weights.astype(dtype), score, square)
        targets = np.array([float(score[0]), 0.0])
        both = SourceRecords(as_columns(rows, targets), terms, 2).units(weights, everything)
        alone = SourceRecords(as_columns(rows[:1], targets[:1]), terms, 1)
        # An absent record is a row of zeros, so both are sums over the same record.
        moved = alone.ruler.value(alone.units(weights, everything)) - alone.ruler.value(both)
        assert np.linalg.norm(moved) < MOST


def test_a_derivative_of_ones_own_sees_scores_that_know_no_other_rows() -> None:
    for seed, d in itertools.product(range(20), (8, 33)):
        rows, weights = rows_at_a_corner(float, d, 600, seed)
        targets = np.full(600, 1.0)
        at_corner = weights / (rows[0] @ weights)
        some, all_ = (
            ArrayRecords(rows[:n], targets[:n], Terms(OwnHinge(), 1.0, None)) for n in (599, 600)
        )
        moved = all_.gradient(at_corner, slice(None)) - some.gradient(at_corner, slice(None))
        assert np.linalg.norm(moved) <= 1 + MOST


def test_one_record_does_not_change_the_precision_of_others() -> None:
    rows, weights = rows_at_a_corner(np.float32, 5, 1000, 1)
    chunks = ChunkSource([(rows, np.ones(1000)), (rows[:1].astype(float), np.ones(1))])
    mixed = SourceRecords(chunks, Terms(Logistic(), 1.0, None), 1001)
    with pytest.raises(InvalidInput, match="float32 and then float64 from row 1000 "):
        next(mixed.in_turn([np.arange(1001)]))(weights)


@pytest.mark.parametrize("mapped", [False, True])
def test_rows_that_change_during_a_run_change_no_step(mapped: bool, tmp_path: pathlib.Path) -> None:
    loss, n = Huber(1.0), 100
    run = NoisyGD(
        n=n,
        steps=50,
        learning_rate=0.5,
        noise_multiplier=1.0,
        loss=loss.geometry(1.0),
        release=Checkpoints(every=10),
    )
    rows = np.full((n, 1), 0.5)
    given: Any = rows
    if mapped:
        np.save(tmp_path / "rows.npy", rows)
        rows = np.load(tmp_path / "rows.npy", mmap_mode="r+")
        given = np.load(tmp_path / "rows.npy", mmap_mode="r")

    def grow(step: int, weights: FloatArray) -> None:
        rows[:] = 1e6

    weights = train(
        run,
        loss,
        given,
        np.ones(n),
        feature_norm=1.0,
        randomness=SeededRandomness(0),
        on_checkpoint=grow,
    )
    assert np.all(np.abs(weights) < 10)
