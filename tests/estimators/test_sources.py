"""Estimators on records that stay where they are: the same model, no copy, one pass if need be."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from scipy import sparse
from sklearn.base import clone

from dplateau.algorithms import OnePass, Poisson
from dplateau.engines import ArraySource, ChunkSource, Prepared, TableSource
from dplateau.errors import InvalidInput, PrivacyLeakWarning
from dplateau.estimators import PrivateLogisticRegression, PrivateRidge

N, D = 6000, 3
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, size=(N, D)).astype(np.float32)
Y = np.where(X[:, 0] > X[:, 1], "yes", "no")
NAMES = [f"x{j}" for j in range(D)]


def fitted(*data: Any, kind: Any = PrivateLogisticRegression, **options: Any) -> Any:
    if kind is PrivateLogisticRegression:
        options = {"classes": ["no", "yes"]} | options
    options = {"algorithm": "momentum", "compute_budget": 60} | options
    model = kind(feature_bounds=(0, 10), random_state=3, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return model.fit(*data)


def table() -> Any:
    return pa.table([*X.T.copy(), Y], [*NAMES, "y"])


def pieces() -> list[tuple[Any, Any]]:
    return [(X[i : i + 700], Y[i : i + 700]) for i in range(0, N, 700)]


def test_every_source_gives_the_model_of_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fitted(X, Y)
    # Enough passes for rounds of whitening.
    whitened: dict[str, Any] = {"compute_budget": 500}
    turned = fitted(X, Y, **whitened)
    assert len(turned.plan_.moments) > 0
    monkeypatch.setattr("dplateau.engines.sources.chunks_of.__defaults__", (1000 * X[0].nbytes,))
    monkeypatch.setattr("dplateau.estimators.data.CHUNK_BYTES", 1)
    np.save(tmp_path / "rows.npy", X)
    folder = tmp_path / "parts"
    folder.mkdir()
    parquet.write_table(table().slice(0, 2000), folder / "a.parquet", row_group_size=900)
    parquet.write_table(table().slice(2000), folder / "b.parquet")
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    found = {
        "mapped": fitted(mapped, Y),
        "mapped into a scratch file": fitted(mapped, Y, scratch=tmp_path),
        "array in chunks": fitted(X, Y, scratch=True),
        "folder": fitted(str(folder), "y"),
        "files": fitted(sorted(folder.iterdir()), "y", scratch=True),
        "dataset": fitted(dataset.dataset(folder), "y"),
        "source": fitted(TableSource(table(), NAMES, "y")),
        "record batch": fitted(table().to_batches()[0], "y"),
        "chunks of frames": fitted([(pl.DataFrame(X, NAMES), pl.Series(Y))], n_public=N),
        "chunks": fitted(pieces(), n_public=N),
        "stream, kept in a scratch file": fitted(iter(pieces()), n_public=N, scratch=tmp_path),
    }
    for name, model in found.items():
        # Columns add up in another order than rows.
        assert np.allclose(model.coef_, expected.coef_, rtol=1e-5), name
        assert np.allclose(model.intercept_, expected.intercept_, rtol=1e-4, atol=1e-5), name
        assert model.plan_.run == expected.plan_.run, name
        assert model.n_features_in_ == D
    for model in (fitted(str(folder), "y", **whitened), fitted(X, Y, scratch=True, **whitened)):
        assert model.plan_.run == turned.plan_.run
        assert np.allclose(model.coef_, turned.coef_, rtol=1e-4)
    sampled = fitted(X, Y, algorithm="sgd")
    assert isinstance(sampled.plan_.run.batches, Poisson)
    assert np.array_equal(fitted(pieces(), algorithm="sgd", n_public=N).coef_, sampled.coef_)
    framed = fitted(pd.DataFrame(X, columns=NAMES), Y, scratch=True)
    for named in (framed, found["folder"]):
        assert list(named.feature_names_in_) == NAMES
    assert list(tmp_path.glob("dplateau-*")) == []


def test_numbers_several_classes_and_sparse_rows() -> None:
    numbers = (X[:, 0] + X[:, 1]).astype(np.float64)
    bounds: dict[str, Any] = {"kind": PrivateRidge, "target_bound": (0, 20)}
    columns = pa.table([*X.T.copy(), numbers], [*NAMES, "y"])
    expected = fitted(X, numbers, **bounds)
    assert np.allclose(fitted(columns, "y", **bounds).coef_, expected.coef_, rtol=1e-5)
    three = np.argmax(X, axis=1)
    several: dict[str, Any] = {"classes": [0, 1, 2]}
    same = fitted([(X[:4000], three[:4000]), (X[4000:], three[4000:])], n_public=N, **several)
    assert np.allclose(same.coef_, fitted(X, three, **several).coef_, rtol=1e-6)
    options: dict[str, Any] = {"data_norm": 3.0, "classes": ["no", "yes"], "random_state": 1}
    rows = sparse.csr_array(X)
    with pytest.warns(PrivacyLeakWarning):
        held = PrivateLogisticRegression(**options).fit(rows, Y)
    with pytest.warns(PrivacyLeakWarning):
        read = PrivateLogisticRegression(**options).fit(ArraySource(rows, Y))
    assert np.array_equal(held.coef_, read.coef_)


def test_absent_records_below_a_public_bound() -> None:
    expected = fitted(X, Y, n_public=N + 500)
    found = fitted(pieces(), n_public=N + 500)
    assert np.allclose(found.coef_, expected.coef_, rtol=1e-6)
    texts = [assumption.text for assumption in found.certificate_.assumptions]
    assert any("hidden below n_public=6500" in text for text in texts)


def test_a_stream_gets_a_plan_of_one_pass() -> None:
    read: list[int] = []

    def stream() -> Iterator[tuple[Any, Any]]:
        for number, piece in enumerate(pieces()):
            read.append(number)
            yield piece

    model = fitted(stream(), n_public=N, algorithm="auto")
    assert isinstance(model.plan_.run.batches, OnePass)
    assert read == list(range(len(pieces())))
    # Nothing is lost of a stream that is looked into first, whatever it is wrapped in.
    as_is = Prepared(ChunkSource(stream()), lambda rows, labels: (rows, labels))
    batches = table().to_batches(max_chunksize=900)
    reader = pa.RecordBatchReader.from_batches(table().schema, batches)
    for other in ((as_is,), (reader, "y")):
        found = fitted(*other, n_public=N, algorithm="auto")
        assert np.allclose(found.coef_, model.coef_, rtol=1e-5)
    assert model.plan_.certificate.claimed_epsilon <= 1.0
    assert model.plan_.certificate.verify().ok
    assert np.mean(model.predict(X) == Y) > 0.9
    # Its records are as many as declared: a batch is where a record stands.
    assert any(
        "the number of records is public" in assumption.text
        for assumption in model.certificate_.assumptions
    )
    with pytest.raises(InvalidInput, match=r"holds 6000 records, but the run .* n=6001"):
        fitted(stream(), n_public=N + 1, algorithm="auto")
    with pytest.raises(InvalidInput, match="can be read once, and in order"):
        fitted(stream(), n_public=N)


def test_a_failed_pass_leaves_no_model() -> None:
    model = clone(PrivateLogisticRegression(classes=["no", "yes"], feature_bounds=(0, 10)))
    for bad in (np.nan, np.inf):
        rows = X.copy()
        rows[N - 1, 1] = bad
        with pytest.raises(InvalidInput, match="features must be finite numbers") as caught:
            model.set_params(n_public=N).fit([(rows, Y)])
        assert not hasattr(model, "coef_")
        assert "nan" not in str(caught.value)
    with pytest.raises(InvalidInput, match=r"not among classes=\['no', 'yes'\]: row 5999"):
        model.fit([(X, np.where(np.arange(N) == N - 1, "maybe", Y))])


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ((pieces(),), {}, "declare it with n_public"),
        ((pieces(),), {"n_public": N, "classes": None}, r"declare classes=\[...\]"),
        ((pieces(), Y), {"n_public": N}, "X must be a matrix|inhomogeneous|cannot be used"),
        ((TableSource(table(), NAMES, "y"), Y), {}, "a source brings its own targets"),
        ((X, "y"), {}, "X must be a table then: Parquet files"),
        ((table(), "z"), {}, "there is no column 'z'"),
        ((ChunkSource([]),), {"n_public": N}, "no records at all"),
        ((table(), "x0"), {"classes": [0, 1]}, "column 'y' holds string, not numbers; leave it"),
        ((pa.table([X[:, 0], X[:, 1], Y], ["a", "a", "y"]), "y"), {}, "several columns 'a'"),
        (([(X, Y), (X[:, :2], Y)],), {"n_public": 2 * N}, "got 3 and then 2"),
        ((X, Y), {"scratch": "/no/such/folder"}, "scratch file in /no/such/folder: No such file"),
        (("/no/such.parquet", "y"), {}, r"cannot read /no/such.parquet: there is no such file"),
    ],
)
def test_what_cannot_be_read_is_refused(
    data: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        fitted(*data, **options)


MEMORY = """
import re, sys, threading
import numpy as np
from dplateau.engines import records, sources
from dplateau.estimators import PrivateLogisticRegression, data
data.CHUNK_BYTES = 1 << 22
sources.chunks_of.__defaults__ = (1 << 22,)
records.CHUNK_BYTES = 1 << 22

n, d = 500_000, 50
rows = np.memmap(sys.argv[1], np.float32, "r", shape=(n, d))
labels = np.memmap(sys.argv[2], np.int8, "r", shape=(n,))

def anonymous():
    with open("/proc/self/status") as status:
        return int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1]) / 1024

def fit(rows, labels, **more):
    PrivateLogisticRegression(
        classes=[0, 1], feature_bounds=(-1, 1), compute_budget=2, algorithm="momentum", **more
    ).fit(rows, labels)

few = np.zeros((3000, d), np.float32), np.arange(3000) % 2
fit(*few, scratch=True)  # compile
before, most = anonymous(), [0.0]
done = threading.Event()
def watch():
    while not done.wait(0.01):
        most[0] = max(most[0], anonymous())
watcher = threading.Thread(target=watch)
watcher.start()
fit(rows, labels)
fit(rows, labels, scratch=sys.argv[3])
done.set()
watcher.join()
print(most[0] - before)
"""


def test_a_mapped_file_is_not_copied(tmp_path: Path) -> None:
    n, d = 500_000, 50
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(n, d))  # 100 MB
    mapped[:] = np.float32(0.1)
    (np.arange(n) % 2).astype(np.int8).tofile(tmp_path / "labels")
    del mapped
    places = [str(tmp_path / "rows"), str(tmp_path / "labels"), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEMORY, *places],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Two chunks of 4 MB, and blocks of 1 MB in several stages on every processor.
    assert float(done.stdout) < 60
