"""A record that cannot be used is named by its place in the whole source, never shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import sparse

from dplateau import (
    InvalidInput,
    NoisyGD,
    NoisySGD,
    PrivateLogisticRegression,
    PrivateRidge,
    noisy_score,
    train,
)
from dplateau.engines import (
    ArraySource,
    ChunkSource,
    Prepared,
    TableSource,
    hold_out,
    in_scratch_file,
)
from dplateau.engines.moments import moments_run, noisy_moments
from dplateau.engines.randomness import SeededRandomness
from dplateau.losses import Logistic, Softmax
from dplateau.tables import Schema, fit_table
from dplateau.tables.files import read_tables
from dplateau.tables.table import read_table

N, BAD = 600, 437
RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(N, 2))
SIGNS = RNG.choice(np.array([-1.0, 1.0]), N)
NAMES = ["age", "income"]
SECRET = 7654321.125
HERE, CELL, NAMED = (f"row {BAD}{column} \\(" for column in ("", ", column 1", ", column 'income'"))

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning"),
]


@pytest.fixture(autouse=True)
def many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let chunks and blocks be so short that the record stands in none of the first ones."""
    monkeypatch.setattr("dplateau.engines.sources.chunks_of.__defaults__", (100 * X[0].nbytes,))
    monkeypatch.setattr("dplateau.engines.sources.ROWS_AT_ONCE", 64)
    monkeypatch.setattr("dplateau.engines.records.PART_BYTES", 50 * X[0].nbytes)


def changed(values: Any, at: Any, cell: Any, kind: Any = float) -> Any:
    found = np.asarray(values).astype(kind)
    found[at] = cell
    return found


def pieces(rows: Any, targets: Any = SIGNS) -> list[tuple[Any, Any]]:
    return [(rows[i : i + 90], targets[i : i + 90]) for i in range(0, N, 90)]


def table(rows: Any, targets: Any = SIGNS) -> Any:
    return pa.table([*rows.T.copy(), targets], [*NAMES, "y"])


def frames(rows: Any, targets: Any = SIGNS) -> list[tuple[Any, Any]]:
    return [(pl.DataFrame(x, NAMES, orient="row"), y) for x, y in pieces(rows, targets)]


def refused(act: Callable[[], Any], where: str) -> None:
    with pytest.raises(InvalidInput, match=where) as refusal:
        act()
    assert "7654321" not in str(refusal.value)
    assert "nan" not in str(refusal.value)


# --- the engine ----------------------------------------------------------------------------------


def runs(loss: Any) -> list[Any]:
    common: dict[str, Any] = {"n": N, "learning_rate": 0.1, "loss": loss.geometry(1.0)}
    common |= {"noise_multiplier": 1.0, "release": "last"}
    return [NoisyGD(steps=2, **common), NoisySGD(batch_size=300, steps=9, **common)]


def forms(rows: Any, targets: Any = SIGNS) -> Iterator[tuple[str, Any]]:
    """Yield sources of the same records, and how their second column is called."""
    yield CELL, pieces(rows, targets)
    yield NAMED, frames(rows, targets)
    yield NAMED, TableSource(table(rows, targets), NAMES, "y")
    yield CELL, Prepared(ArraySource(rows, targets), lambda x, y: (x, y))
    yield CELL, pieces(sparse.csr_array(rows), targets)


@pytest.mark.parametrize("run", runs(Logistic()), ids=lambda run: run.kind)
def test_rows_and_targets_of_an_engine(run: Any) -> None:
    def trained(source: Any) -> Callable[[], Any]:
        asked: dict[str, Any] = {"feature_norm": 1.0, "randomness": SeededRandomness(1)}
        return lambda: train(run, Logistic(), source, **asked)

    for bad in (np.nan, np.inf):
        for where, source in forms(changed(X, (BAD, 1), bad)):
            refused(trained(source), f"finite numbers; {where}")
    for cell in (SECRET, 1e200):
        for _, source in forms(changed(X, (BAD, 1), cell)):
            refused(trained(source), f"longer than feature_norm=1, the first is {HERE}")
    for _, source in forms(X, changed(SIGNS, BAD, SECRET)):
        refused(trained(source), f"each -1 or 1: .*{HERE}")
    word = np.array(["Alice"])
    texts = [(X[:BAD], SIGNS[:BAD]), (X[:1], word), (X[BAD:-1], SIGNS[BAD:-1])]
    refused(trained(texts), f"targets must be numbers; got str_ in {HERE}")
    wider = [*pieces(X)[:-1], (np.hstack([X, X])[540:], SIGNS[540:])]
    refused(trained(wider), "got 2 and then 4 from row 540 ")


def test_class_numbers_of_an_engine() -> None:
    loss = Softmax(3)
    odd = changed(np.zeros(N), BAD, 7, np.int64)
    for run in runs(loss):
        refused(
            lambda run=run: train(run, loss, pieces(X, odd), feature_norm=1.0),
            f"from 0 to 2; {HERE}",
        )


def test_rows_keep_their_numbers_when_others_are_held_out() -> None:
    rest, held = hold_out(TableSource(table(changed(X, (BAD, 1), np.nan)), NAMES, "y"), seed=3)
    (there,) = [p for p in (rest, held) if BAD in p.places(0, N)]
    for run in runs(Logistic()):
        refused(
            lambda run=run: train(
                run.replace(n=len(there.places(0, N))), Logistic(), there, feature_norm=1.0
            ),
            f"finite numbers; {NAMED}",
        )


def test_missing_values_of_tables() -> None:
    holes = table(X).set_column(1, "income", pa.array(X[:, 1], mask=np.arange(N) == BAD))
    no_target = table(X).set_column(2, "y", pa.array(SIGNS, mask=np.arange(N) == BAD))
    lists = pa.array(
        [[1.0, None if i == BAD else 2.0] for i in range(N)], pa.list_(pa.float64(), 2)
    )
    for data, names in (
        (holes, NAMES),
        (no_target, NAMES),
        (pa.table([lists, SIGNS], ["x", "y"]), ["x"]),
    ):
        source = TableSource(data, names, "y")
        refused(
            lambda source=source: train(runs(Logistic())[0], Logistic(), source, feature_norm=1.0),
            f"column '(income|y|x)' has missing values.*, the first in {HERE}",
        )


def test_moments_of_a_source() -> None:
    run = moments_run(
        n=N, feature_norm=1.0, noise_multiplier=1.0, neighbors="add_remove", group_size=1
    )
    asked: dict[str, Any] = {"feature_norm": 1.0, "randomness": SeededRandomness(1)}
    for bad, where in ((np.nan, f"finite numbers; {CELL}"), (SECRET, f"the first is {HERE}")):
        rows = changed(X, (BAD, 1), bad)
        for source in (rows, ArraySource(rows, SIGNS)):
            refused(lambda source=source: noisy_moments(run, source, **asked), where)


# --- what users bring ----------------------------------------------------------------------------


def test_functions_and_iterables_that_raise() -> None:
    def prepare(rows: Any, targets: Any) -> Any:
        if np.any(rows == SECRET):
            raise ValueError(f"cannot use {SECRET}")
        return rows, targets

    rows = changed(X, (BAD, 1), SECRET)
    # Of random batches some might never have the record.
    model = PrivateRidge(n_public=N, algorithm="momentum", compute_budget=2)
    for source in (ArraySource(rows, SIGNS), TableSource(table(rows), NAMES, "y")):
        refused(lambda s=source: model.fit(Prepared(s, prepare)), f"raised ValueError at {HERE}")

    def encode(batch: Any) -> Any:
        return prepare(np.column_stack([batch[name] for name in NAMES]), np.asarray(batch["y"]))

    source = TableSource(table(rows), NAMES, "y", encode=encode)
    refused(lambda: model.fit(source), f"encode raised ValueError at {HERE}")

    class Reading:
        def __iter__(self) -> Iterator[Any]:
            yield from pieces(X)[:3]
            raise ValueError(f"could not convert string to float: {SECRET}")

    with pytest.raises(InvalidInput, match="raised ValueError after 270 records") as refusal:
        model.fit(Reading())
    assert refusal.value.__context__ is None
    for odd in ((X[:4], SIGNS), ([[1.0], [1.0, 2.0]], SIGNS[:2]), 3):
        refused(lambda odd=odd: model.fit([*pieces(X)[:2], odd]), "the chunk from row 180 on")


# --- estimators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"scratch": True}, {"algorithm": "sgd"}], ids=str)
def test_records_of_estimators(more: dict[str, Any]) -> None:
    more = {"n_public": N, "compute_budget": 20, "feature_bounds": (-1, 1)} | more
    ridge = PrivateRidge(**more)
    logistic = PrivateLogisticRegression(classes=[-1, 1], **more)
    for where, source in forms(changed(X, (BAD, 1), np.nan)):
        if more.get("scratch") is None or not sparse.issparse(getattr(source, "features", 0)):
            refused(lambda s=source: ridge.fit(s), f"finite numbers; {where}|dense rows")
    texts = [(x.astype(object), y) for x, y in pieces(changed(X, (BAD, 1), "Alice", object))]
    refused(lambda: ridge.fit(texts), f"features must be numbers; .*{CELL}.*, text")
    named = frames(changed(X, (BAD, 1), "Alice", object))
    refused(lambda: ridge.fit(named), f"features must be numbers; .*{NAMED}.*, text")
    for bad in (np.nan, "Alice"):
        targets = changed(SIGNS, BAD, bad, object)
        refused(lambda t=targets: ridge.fit(pieces(X, t)), f"targets must be .*{HERE}")
        refused(lambda t=targets: logistic.fit(pieces(X, t)), f"a label that is not .*{HERE}")
    listed = changed(SIGNS, BAD, None, object)
    listed[BAD] = [SECRET]
    refused(lambda: logistic.fit(pieces(X, listed)), f"no label: .*{HERE}")


def test_scored_records() -> None:
    more: dict[str, Any] = {"compute_budget": 20, "feature_bounds": (-1, 1)}
    model = PrivateLogisticRegression(classes=[-1, 1], **more).fit(X, SIGNS)
    odd = changed(SIGNS, BAD, SECRET)
    refused(lambda: noisy_score(model, X, odd, epsilon=1.0), f"a label that is not .*{HERE}")
    refused(lambda: noisy_score(model, pieces(X, odd), epsilon=1.0), f"not among .*{HERE}")
    for where, source in ((CELL, pieces), (NAMED, frames)):
        rows = source(changed(X, (BAD, 1), np.nan))
        refused(lambda rows=rows: noisy_score(model, rows, epsilon=1.0), f"X, {where}.*NaN")
    refused(lambda: noisy_score(model, [(X[:0], SIGNS[:0])], epsilon=1.0), "no rows to score")
    ridge = PrivateRidge(**more).fit(X, SIGNS)
    odd[BAD] = np.inf
    refused(lambda: noisy_score(ridge, pieces(X, odd), epsilon=1.0), f"finite numbers: {HERE}")


def test_a_scratch_file_says_where() -> None:
    narrow = [*pieces(X)[:5], (X[450:].astype(np.float32), SIGNS[450:])]
    with pytest.raises(InvalidInput, match="others come after 450 records"):
        in_scratch_file(ChunkSource(narrow))


# --- tables: rows count from 1, below the header -------------------------------------------------

SCHEMA = """
[target]
column = "y"
classes = ["no", "yes"]
[columns.age]
kind = "numeric"
low = -1
high = 1
[columns.income]
kind = "numeric"
low = -1
high = 1
"""


def test_tables_in_files_and_tables_in_parts(tmp_path: Path) -> None:
    schema = Schema.from_toml(SCHEMA)
    labels = np.where(SIGNS > 0, "yes", "no").astype(object)
    holes = table(X, labels).set_column(1, "income", pa.array(X[:, 1], mask=np.arange(N) == BAD))
    odd = table(X, changed(labels, BAD, "Alice", object))
    for name, contents in (("holes", holes), ("odd", odd)):
        where = f"row {BAD + 1} of column '{'income' if name == 'holes' else 'y'}'"
        folder = tmp_path / name
        folder.mkdir()
        parquet.write_table(contents.slice(0, 250), folder / "a.parquet", row_group_size=70)
        parquet.write_table(contents.slice(250), folder / "b.parquet")
        parquet.write_table(contents, tmp_path / f"{name}.parquet")
        files = read_tables([folder], stay=True)
        whole = read_table(tmp_path / f"{name}.parquet")
        for data in (files, whole):
            for more in ({}, {"evaluate_epsilon": 1.0}):
                with pytest.raises(InvalidInput, match=re.escape(where)) as refusal:
                    fit_table(data, schema, epsilon=1.0, compute_budget=40, **more)
                assert "Alice" not in str(refusal.value)
