"""Records that stay where they are: every source trains the same model, in the memory of chunks."""

from __future__ import annotations

import itertools
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from scipy import sparse

from dplateau.algorithms import CyclicSGD, NoisyGD, NoisySGD, OnePassSGD, Run
from dplateau.engines import (
    ArraySource,
    ChunkSource,
    Prepared,
    SeededRandomness,
    Source,
    TableSource,
    hold_out,
    in_scratch_file,
    scale_rows,
    scaled,
    train,
)
from dplateau.engines.shards import shards_of
from dplateau.engines.sources import _append, chunks_of, parts_of, size_of
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.losses import Logistic, Loss, Softmax

N, D = 501, 4
RNG = np.random.default_rng(0)
RAW = RNG.normal(size=(N, D)).astype(np.float32)
X = scale_rows(RAW, 1.0)
SIGNS = RNG.choice(np.array([-1, 1], dtype=np.int8), N)
NAMES = [f"x{j}" for j in range(D)]
LOSS = Logistic()
BY_ROWS = ("mapped", "chunks", "lists", "scaled", "scratch")


def runs(loss: Loss = LOSS, n: int = N) -> list[Run]:
    common: dict[str, Any] = {
        "n": n, "learning_rate": 0.5, "l2": 0.01, "loss": loss.geometry(1.0), "release": "last",
    }  # fmt: skip
    return [
        NoisyGD(steps=3, noise_std=0.01, **common),
        NoisySGD(batch_size=20, steps=20, noise_multiplier=0.5, **common),
        NoisySGD(batch_size=20, steps=9, noise_multiplier=0.5, sampling="fixed",
                 neighbors="replace", **common),
        CyclicSGD(batch_size=64, epochs=2, noise_std=0.01, order="reshuffle", **common),
        CyclicSGD(batch_size=64, epochs=2, noise_std=0.01, order="cyclic", **common),
        OnePassSGD(batch_size=50, noise_std=0.01, **common),
    ]  # fmt: skip


def weights(run: Run, source: Any, targets: Any = None, loss: Loss = LOSS) -> FloatArray:
    return train(run, loss, source, targets, feature_norm=1.0, randomness=SeededRandomness(5))


def table(rows: Any = X) -> Any:
    return pa.table([*rows.T.copy(), SIGNS], [*NAMES, "sign"])


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Source]:
    """Return the same records in every form there is, on real files where it has files."""
    np.save(tmp_path / "rows.npy", X)
    np.save(tmp_path / "signs.npy", SIGNS)
    folder = tmp_path / "year=2024" / "parts"
    folder.mkdir(parents=True)
    parquet.write_table(table(), tmp_path / "one.parquet", row_group_size=100)
    parquet.write_table(table().slice(0, 77), folder / "a.parquet", row_group_size=13)
    parquet.write_table(table().slice(77), folder / "b.parquet")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)
    parquet.write_table(pa.table([lists, SIGNS], ["x", "sign"]), tmp_path / "lists.parquet")
    cuts = [0, 1, 200, 200, 444, N]
    pieces = [(X[a:b], SIGNS[a:b]) for a, b in itertools.pairwise(cuts)]
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    by_name = {"features": NAMES, "target": "sign"}
    return {
        "mapped": ArraySource(mapped, np.load(tmp_path / "signs.npy", mmap_mode="r")),
        "mapped by columns": ArraySource(np.asfortranarray(X), SIGNS),
        "csr": ArraySource(sparse.csr_array(X), SIGNS),
        "chunks": ChunkSource(pieces),
        "file": TableSource(tmp_path / "one.parquet", **by_name),
        "folder": TableSource(str(tmp_path / "year=2024"), **by_name),
        "files": TableSource([folder / "a.parquet", folder / "b.parquet"], **by_name),
        "lists": TableSource(tmp_path / "lists.parquet", "x", "sign"),
        "table": TableSource(
            pa.concat_tables([table().slice(0, 50), table().slice(50)]), **by_name
        ),
        "dataset": TableSource(dataset.dataset(folder), **by_name),
        "scaled": scaled(ArraySource(RAW, SIGNS), 1.0),
        "scratch": in_scratch_file(scaled(ChunkSource([(RAW, SIGNS)]), 1.0), folder=tmp_path),
    }


def test_every_source_trains_the_same_model(
    sources: dict[str, Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Chunks and blocks of a few rows, so that there are many of them.
    for place in ("records.CHUNK_BYTES", "records.PART_BYTES"):
        monkeypatch.setattr(f"dplateau.engines.{place}", 150 * X[0].nbytes)
    monkeypatch.setattr("dplateau.engines.sources.chunks_of.__defaults__", (200 * X[0].nbytes,))
    for run in runs():
        expected = weights(run, X, SIGNS)
        for name, source in sources.items():
            found = weights(run, source)
            if name not in BY_ROWS:  # scores add up in another order
                assert np.allclose(found, expected, rtol=1e-5), run
            else:
                assert np.array_equal(found, expected), (name, run)


def test_columns_are_clipped_as_rows_are() -> None:
    loss, rows = Logistic(), X.copy()
    rows[7] = 0.0  # of no length: nothing to clip
    for clip in (0.05, 0.3):
        run = runs()[0].replace(loss=loss.geometry(1.0, clip))
        asked: dict[str, Any] = {"feature_norm": 1.0, "clip": clip}
        by_row, by_column = (
            train(run, loss, *given, randomness=SeededRandomness(5), **asked)
            for given in ((rows, SIGNS), (TableSource(table(rows), NAMES, "sign"),))
        )
        assert np.allclose(by_row, by_column, rtol=1e-5)


def test_several_classes_and_a_user_s_own_rows(sources: dict[str, Source]) -> None:
    loss = Softmax(3)

    def prepare(rows: Any, signs: Any) -> tuple[Any, Any]:
        assert set(np.unique(signs)) <= {-1, 1}
        return rows * np.float32(0.5), (rows[:, 0] > 0).astype(np.int64)

    halves, above = X * np.float32(0.5), (X[:, 0] > 0).astype(np.int64)
    for run in runs(loss):
        found = weights(run, Prepared(sources["folder"], prepare), None, loss)
        assert np.array_equal(found, weights(run, halves, above, loss))


def test_a_stream_is_read_once_and_in_order() -> None:
    def stream() -> Iterator[tuple[Any, Any]]:
        for part in np.array_split(np.arange(N), 7):
            yield X[part], SIGNS[part]

    *many, one_pass = runs()
    assert np.array_equal(weights(one_pass, stream()), weights(one_pass, X, SIGNS))
    single = many[0].replace(steps=1)
    assert np.array_equal(weights(single, stream()), weights(single, X, SIGNS))
    for run in many:
        with pytest.raises(InvalidInput, match="a stream can be read once, and in order"):
            weights(run, scaled(ChunkSource(stream()), 1.0))


def test_missing_records_count_as_absent_where_that_is_declared() -> None:
    slots = N + 60
    padded = np.zeros((slots, D), np.float32)
    padded[:N] = X
    signs = np.ones(slots)
    signs[:N] = SIGNS
    for run in runs(n=slots):
        expected = weights(run, padded, signs)
        fewer = [(X[:300], SIGNS[:300]), (X[300:], SIGNS[300:])]
        assert np.array_equal(weights(run, ChunkSource(fewer, at_most=True)), expected)
        with pytest.raises(InvalidInput, match=r"holds 501 records, but the run .* n=561"):
            weights(run, ChunkSource(fewer))
    with pytest.raises(InvalidInput, match="holds more records than n=400"):
        weights(runs(n=400)[0], ChunkSource(fewer, at_most=True))


# -- the scratch file ---------------------------------------------------------------------------


def open_scratch_files(folder: Path) -> list[os.stat_result]:
    """Return what this process has open of a folder's scratch files, deleted or not."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(link).startswith(f"{folder}/dplateau-"):
                found.append(os.stat(link))
        except FileNotFoundError:
            continue
    return found


def test_a_scratch_file_has_no_name_and_no_other_reader(tmp_path: Path) -> None:
    seen: list[os.stat_result] = []

    def watched() -> Iterator[tuple[Any, Any]]:
        for part in np.array_split(np.arange(N), 3):
            assert list(tmp_path.iterdir()) == []
            seen.extend(open_scratch_files(tmp_path))
            yield X[part], SIGNS[part]

    kept = in_scratch_file(ChunkSource(watched()), folder=tmp_path)
    assert np.array_equal(kept.features, X)
    assert np.array_equal(kept.targets, SIGNS)
    assert len(seen) == 6
    assert all(stat.S_IMODE(found.st_mode) == 0o600 and found.st_nlink == 0 for found in seen)
    del kept
    assert open_scratch_files(tmp_path) == []


KILLED = """
import os, signal, sys
import numpy as np
from dplateau.engines import ChunkSource, in_scratch_file
def chunks():
    for k in range(5):
        if k == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        yield np.ones((1000, 3)), np.ones(1000)
in_scratch_file(ChunkSource(chunks()), folder=sys.argv[1])
"""


def test_a_killed_process_leaves_no_scratch_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


# -- memory -------------------------------------------------------------------------------------

LARGE = """
import re, sys, threading
import numpy as np
from dplateau.algorithms import NoisyGD, NoisySGD
from dplateau.engines import records, sources, train, training
from dplateau.losses import Logistic

n, d = 500_000, 50
rows = np.memmap(sys.argv[1], np.float32, "r", shape=(n, d))
signs = np.memmap(sys.argv[2], np.int8, "r", shape=(n,))
loss = Logistic()
common = dict(learning_rate=1.0, loss=loss.geometry(1.0), release="last")

def anonymous():
    with open("/proc/self/status") as status:
        return int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1]) / 1024

def fit(n, rows, signs):
    train(NoisyGD(n=n, steps=2, noise_std=1e-3, **common), loss, rows, signs, feature_norm=1.0)
    run = NoisySGD(n=n, batch_size=n // 100, steps=20, noise_multiplier=1.0, **common)
    train(run, loss, rows, signs, feature_norm=1.0)

fit(1000, np.zeros((1000, d), np.float32), np.ones(1000))  # compile
before, most = anonymous(), [0.0]
done = threading.Event()
def watch():
    while not done.wait(0.01):
        most[0] = max(most[0], anonymous())
watcher = threading.Thread(target=watch)
watcher.start()
fit(n, rows, signs)
done.set()
watcher.join()
print(most[0] - before)
"""


def test_a_mapped_file_is_trained_on_in_the_memory_of_a_few_chunks(tmp_path: Path) -> None:
    n, d = 500_000, 50
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(n, d))  # 100 MB
    mapped[:] = np.float32(0.1)
    np.ones(n, np.int8).tofile(tmp_path / "signs")
    del mapped
    places = [str(tmp_path / "rows"), str(tmp_path / "signs")]
    small = "records.CHUNK_BYTES = training.CHUNK_BYTES = 1 << 22"
    script = LARGE.replace("\nn, d =", f"\n{small}\nn, d =", 1)
    script = script.replace("\nn, d =", "\nsources.chunks_of.__defaults__ = (1 << 22,)\nn, d =", 1)
    done = subprocess.run(
        [sys.executable, "-c", script, *places], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Two chunks of 4 MB, two blocks of 1 MB with their copies, and what allocators keep.
    assert float(done.stdout) < 40


# -- refusals -----------------------------------------------------------------------------------


def texts() -> Any:
    return pa.table({"x": ["Alice"] * N, "sign": SIGNS})


def one_odd(number: float) -> FloatArray:
    found = np.zeros((N, D), np.float32)
    found[N - 1, D - 1] = number
    return found


def gaps() -> Any:
    return pa.table({"x": [None, *range(N - 1)], "sign": SIGNS})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (TableSource(table(), ["x0", "x9"], "sign"), "no column 'x9'; there are x0, x1"),
        (TableSource(texts(), ["x"], "sign"), "column 'x' holds string, not numbers"),
        (TableSource(gaps(), ["x"], "sign"), "column 'x' has missing values"),
        (TableSource(3, ["x"], "sign"), "a path, a list of paths, .* got int"),
        (TableSource(__file__, ["x"], "sign"), "it is no Parquet file"),
        (TableSource(Path(__file__).parent, ["x"], "sign"), "no Parquet file in the folder"),
        (ChunkSource([1, 2]), r"yields pairs \(features, targets\)"),
        (ChunkSource([(X, SIGNS[1:])]), r"got shapes \(501, 4\) and \(500,\)"),
        (ChunkSource([(X[:1], SIGNS[:1]), (X[1:, :3], SIGNS[1:])]), "got 4 and then 3"),
        (ChunkSource([], at_most=True), "no records at all"),
        (ArraySource(X.tolist(), SIGNS), "takes a matrix with a row per record; got list"),
        (ArraySource(sparse.coo_array(X), SIGNS), "sparse features must be CSR; got coo_array"),
        (ChunkSource([(RAW, SIGNS)]), "longer than feature_norm=1"),
        (TableSource(table(RAW), NAMES, "sign"), "longer than feature_norm=1"),
        (TableSource(table(X + one_odd(np.nan)), NAMES, "sign"), "must be finite"),
        (TableSource(table(X + one_odd(-np.inf)), NAMES, "sign"), "must be finite"),
        (Prepared(ChunkSource([(X, SIGNS)]), lambda x, y: (x[1:], y)), "made 1 rows and 2 targets"),
    ],
)
def test_sources_that_cannot_be_read_are_refused(source: Source, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        weights(runs()[0], source)
    assert not re.search("Alice", str(caught.value))


def test_files_that_change_or_break_end_a_run(tmp_path: Path) -> None:
    sizes = itertools.chain([N, N], itertools.repeat(N - 1))

    class Shrinking:
        def __iter__(self) -> Iterator[tuple[Any, Any]]:
            n = next(sizes)
            return iter([(X[:n], SIGNS[:n])])

    with pytest.raises(InvalidInput, match=r"501 records on one pass and 500 on the next"):
        weights(runs()[0], ChunkSource(Shrinking(), at_most=True))
    place = tmp_path / "one.parquet"
    parquet.write_table(table(), place, compression="none", use_dictionary=False)
    broken = bytearray(place.read_bytes())
    broken[4:900] = bytes(896)
    place.write_bytes(broken)
    with pytest.raises(InvalidInput, match=r"one.parquet: damaged, or changed meanwhile"):
        weights(runs()[0], TableSource(place, NAMES, "sign"))


def test_a_scratch_file_takes_one_kind_of_dense_rows() -> None:
    with pytest.raises(InvalidInput, match="dense rows"):
        in_scratch_file(ChunkSource([(sparse.csr_array(X), SIGNS)]))
    with pytest.raises(InvalidInput, match="holds numbers; encode texts"):
        in_scratch_file(ChunkSource([(X, SIGNS.astype(object))]))
    with (
        open("/dev/full", "wb") as full,
        pytest.raises(InvalidInput, match=r"cannot write a scratch file \(.*full\)"),
    ):
        _append(X, full)
    with pytest.raises(InvalidInput, match="others come after 501 records"):
        in_scratch_file(ChunkSource([(X, SIGNS), (X.astype(float), SIGNS)]))


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_both_parts_of_a_source_are_the_same_on_every_pass(tmp_path: Path, share: float) -> None:
    n = 150_000  # more than one block of coins
    numbers = np.arange(n, dtype=np.float64)
    for k, part in enumerate(np.array_split(numbers, 7)):
        table = pa.table({"x": part, "y": part})
        parquet.write_table(table, tmp_path / f"{k}.parquet", row_group_size=9999)
    source = TableSource(tmp_path, ["x"], "y")
    rest, held = hold_out(source, share=share)
    seen = []
    for one in (rest, held):
        passes = [np.concatenate([y for _, y in parts_of(one)]) for _ in range(2)]
        assert np.array_equal(passes[0], passes[1])
        assert len(passes[0]) == size_of(one)
        # Another way to cut the rows, and the shards of a cluster, see the same coins.
        narrow = [chunk.rows(slice(None))[1] for chunk in chunks_of(one, 1 << 13)]
        assert np.array_equal(np.concatenate(narrow), passes[0])
        shards = shards_of(one)
        loaded = [np.concatenate([y for _, y in parts_of(shard.load())]) for shard in shards]
        assert [len(rows) for rows in loaded] == [shard.n for shard in shards]
        assert np.array_equal(np.concatenate(loaded), passes[0])
        seen.append(passes[0])
    assert np.array_equal(np.sort(np.concatenate(seen)), numbers)
    assert abs(len(seen[1]) - share * n) < 6 * np.sqrt(n * share * (1 - share))
    # Neighbors in the order are held out independently.
    chosen = np.isin(numbers, seen[1])
    both = np.count_nonzero(chosen[1:] & chosen[:-1])
    assert abs(both - share**2 * n) < 8 * np.sqrt(n * share * (1 - share))


def test_a_part_trains_the_model_of_its_rows() -> None:
    rest, _ = hold_out(ArraySource(X, SIGNS), seed=4)
    places = np.concatenate([chunk.places for chunk in chunks_of(rest)])
    assert size_of(rest) == len(places)
    for run in runs(n=len(places)):
        found = train(run, LOSS, rest, feature_norm=1.0, randomness=SeededRandomness(5))
        rows, signs = X[places], SIGNS[places]
        expected = train(run, LOSS, rows, signs, feature_norm=1.0, randomness=SeededRandomness(5))
        assert np.array_equal(found, expected)
    with pytest.raises(InvalidInput, match="two parts of it need two passes"):
        hold_out(ChunkSource(iter([(X, SIGNS)])))
    with pytest.raises(InvalidInput, match="4 rows are too few"):
        hold_out(ArraySource(X[:4], SIGNS[:4]))


class RefusesToBegin:
    def __iter__(self) -> Iterator[Any]:
        raise ValueError("Alice Smith")


def test_an_iterable_that_fails_to_begin_is_not_quoted() -> None:
    with pytest.raises(InvalidInput, match="raised ValueError after 0 records") as caught:
        weights(runs()[0], ChunkSource(RefusesToBegin()))
    assert caught.value.__context__ is None


def test_sparse_chunks_of_other_layouts_are_refused_in_words() -> None:
    source = ChunkSource([(sparse.bsr_array(X), SIGNS)])
    with pytest.raises(InvalidInput, match=r"got bsr_array: call .tocsr\(\) \(the chunk f"):
        weights(runs()[0], source)


def test_rows_are_picked_from_views_of_texts_too() -> None:
    columns = {"x": pa.array(["1", "-1"] * 250).cast(pa.string_view()), "y": np.ones(500)}

    def encode(batch: Any) -> tuple[Any, Any]:
        numbers = [float(text) for text in batch.column("x").to_pylist()]
        return np.array(numbers)[:, None], batch.column("y").to_numpy()

    source = TableSource(pa.table(columns), ["x"], "y", encode=encode)
    (chunk,) = chunks_of(source)
    assert chunk.rows(np.array([0, 3, 5]))[0].ravel().tolist() == [1.0, -1.0, -1.0]
