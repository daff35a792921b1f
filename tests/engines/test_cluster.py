"""What workers of a cluster do, without one: shards, batches and sums (suites/ray has the rest)."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import stats

from dplateau.algorithms import NoisyGD, NoisySGD, OnePassSGD, Run
from dplateau.engines import (
    ArraySource,
    ChunkSource,
    Ray,
    Source,
    TableSource,
    scaled,
    train,
)
from dplateau.engines.cluster import engine_of
from dplateau.engines.randomness import Keystream, binomial_thresholds
from dplateau.engines.records import ALL, ArrayRecords, Terms, joined
from dplateau.engines.shards import (
    Gradients,
    Shard,
    Worker,
    poisson_batch,
    shard_key,
    shards_of,
)
from dplateau.errors import InvalidInput, MissingExtra, NotApplicable
from dplateau.ground.types import IntArray
from dplateau.losses import Logistic

N, D = 900, 3
RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(N, D))
SIGNS = RNG.choice([-1.0, 1.0], N)
NAMES = [f"x{j}" for j in range(D)]
LOSS = Logistic()
COMMON: dict[str, Any] = {
    "n": N, "learning_rate": 0.5, "loss": LOSS.geometry(1.0), "release": "last",
}  # fmt: skip
FULL = NoisyGD(steps=3, noise_std=0.01, **COMMON)
SAMPLED = NoisySGD(batch_size=90, steps=6, noise_multiplier=1.0, **COMMON)
KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def _processors_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker says for its whole process how many processors it may use."""
    monkeypatch.setattr("dplateau.engines.records.PROCESSORS", None)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    table = pa.table([*X.T.copy(), SIGNS], [*NAMES, "sign"])
    parquet.write_table(table.slice(0, 500), tmp_path / "a.parquet", row_group_size=100)
    parquet.write_table(table.slice(500), tmp_path / "b.parquet")
    return tmp_path


def source(files: Path) -> Source:
    return scaled(TableSource(files, NAMES, "sign"), 1.0)


def totals(shards: list[Shard], run: Run, workers: int, steps: range, in_memory: bool) -> Any:
    """Return the sums of some steps, over workers that share the shards out."""
    terms = Terms(LOSS, 1.0, None)
    job = Gradients(run, terms, terms.ruler(N, D), in_memory)
    team = [Worker(1) for _ in range(workers)]
    # What is sent to a worker is pickled.
    for worker, mine in zip(team, (shards[i::workers] for i in range(workers)), strict=True):
        assert worker.hold(*pickle.loads(pickle.dumps((mine, job)))) is None
    found = []
    for step in steps:
        at = np.full(D, 0.1 * step)
        answers = [
            worker.total({i: shard_key(KEY, i) for i in worker.shares}, step, (D,), at)
            for worker in team
        ]
        assert all(answer[0] is None for answer in answers)
        found.append(sum(np.concatenate(answer[1:]) for answer in answers))
    return np.array(found)


def batch(key: bytes, shard: Shard, step: int, rate: float) -> IntArray:
    return poisson_batch(key, shard, step, binomial_thresholds(shard.n, rate))


def test_sums_are_those_of_one_machine_whatever_the_workers(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dplateau.engines.shards.SHARD_BYTES", 5000)
    shards = shards_of(source(files))
    assert [shard.n for shard in shards] == [200, 200, 100, 400]
    terms = Terms(LOSS, 1.0, None)
    here = ArrayRecords(X, SIGNS, terms)
    expected = [here.units(np.full(D, 0.1 * step), ALL) for step in range(3)]
    for workers, in_memory in ((1, True), (3, True), (2, False)):
        found = totals(shards, FULL, workers, range(3), in_memory)
        assert np.array_equal(found, expected)
    firsts = zip((0, 200, 400, 500), shards, strict=True)
    keyed = [(first, shard_key(KEY, shard.number), shard) for first, shard in firsts]
    batches = [
        np.concatenate([first + batch(key, one, step, 0.1) for first, key, one in keyed])
        for step in range(6)
    ]
    drawn = [here.units(np.full(D, 0.1 * step), rows) for step, rows in enumerate(batches)]
    for workers, in_memory in ((1, True), (4, True), (2, False)):
        assert np.array_equal(totals(shards, SAMPLED, workers, range(6), in_memory), drawn)
    # A worker that takes over in mid-run draws the same batches.
    assert np.array_equal(totals(shards, SAMPLED, 2, range(4, 6), True), drawn[4:])


def test_batches_are_poisson_and_independent_over_steps_and_shards() -> None:
    q, n, steps = 0.3, 40, 3000
    drawn = np.zeros((2, steps, n))
    for number in range(2):
        for step in range(steps):
            key = shard_key(KEY, number)
            drawn[number, step, batch(key, Shard(number, n, list, 0), step, q)] = 1  # type: ignore[arg-type]
    sizes = np.bincount(drawn.sum(axis=2).astype(int).ravel(), minlength=n + 1)
    law = stats.binom.pmf(np.arange(n + 1), n, q) * 2 * steps
    kept = law > 5
    assert stats.chisquare(sizes[kept], law[kept] * sizes[kept].sum() / law[kept].sum())[1] > 1e-4
    assert np.abs(drawn.mean(axis=(0, 1)) - q).max() < 5 * np.sqrt(q * (1 - q) / (2 * steps))
    centered = drawn - q
    room = 5 * q * (1 - q) / np.sqrt(steps * n)
    assert abs(np.mean(centered[0] * centered[1])) < room
    assert abs(np.mean(centered[:, 1:] * centered[:, :-1])) < room


def test_files_are_opened_at_their_turn_and_share_the_room_of_a_chunk(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many shards in a worker take the memory of one."""
    monkeypatch.setattr("dplateau.engines.shards.SHARD_BYTES", 5000)
    monkeypatch.setattr("dplateau.engines.records.CHUNK_BYTES", 800 * X[0].nbytes)
    terms = Terms(LOSS, 1.0, None)
    job = Gradients(SAMPLED, terms, terms.ruler(N, D), in_memory=False)
    shards = shards_of(source(files))
    worker = Worker(1)
    assert worker.hold(shards, job) is None
    shares = [cast(Any, share) for share in worker.shares.values()]
    assert not any("records" in vars(share) for share in shares)
    collected: list[int] = []
    monkeypatch.setattr(
        "dplateau.engines.records.joined",
        lambda parts: collected.append(sum(len(y) for _, y in parts)) or joined(parts),
    )
    keys = {i: shard_key(KEY, i) for i in worker.shares}
    assert worker.total(keys, 0, (D,), np.zeros(D))[0] is None
    assert len(collected) == len(shards) == 4
    assert 60 < max(collected) <= 800 // 4
    assert all(share.records._here is None for share in shares)


def test_what_names_no_cluster_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"address": "ray://a:1"}, "must be 'host:port'"),
        ({"address": "nowhere"}, "must be 'host:port' of a Ray cluster, or 'auto'; got 'nowhere'"),
        ({"address": 3}, "got 3"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"workers": 1.5}, "workers must be a whole number"),
        ({"patience": -1}, "patience must be finite and above 0"),
    ]
    for asked, message in refused:
        with pytest.raises(InvalidInput, match=message):
            Ray(**asked)


def test_shards_have_keys_of_their_own() -> None:
    keys = {shard_key(KEY, number) for number in range(100)}
    assert len(keys | {KEY}) == 101
    assert all(len(key) == 32 for key in keys)


def test_a_keystream_is_its_key_and_its_numbers() -> None:
    words = Keystream(KEY, 1, 2).words(1000)
    stream = Keystream(KEY, 1, 2)
    assert np.array_equal(np.concatenate([stream.words(3), stream.words(997)]), words)
    others = [Keystream(KEY, 2, 1), Keystream(KEY, 1, 3), Keystream(bytes(32), 1, 2)]
    seen = {int(word) for other in others for word in other.words(1000)}
    assert not seen & {int(word) for word in words}


def test_shards_of_mapped_arrays_are_opened_where_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", SIGNS)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy"]
    shards = shards_of(scaled(ArraySource(*mapped), 1.0))
    assert len(pickle.dumps(shards)) < 2000  # no record travels
    expected = ArrayRecords(X, SIGNS, Terms(LOSS, 1.0, None)).units(np.zeros(D), ALL)
    assert np.array_equal(totals(shards, FULL, 1, range(1), True)[0], expected)


def test_what_workers_cannot_load_is_refused(files: Path) -> None:
    for bad in (ArraySource(X, SIGNS), ChunkSource([(X, SIGNS)])):
        with pytest.raises(InvalidInput, match="workers load files of their own"):
            shards_of(bad)
    with pytest.raises(NotApplicable, match="takes full and Poisson batches"):
        train(
            OnePassSGD(noise_std=0.1, **COMMON), LOSS, source(files), feature_norm=1.0, engine="ray"
        )
    with pytest.raises(InvalidInput, match=r"holds 900 records, but the run .* n=901"):
        train(FULL.replace(n=901), LOSS, source(files), feature_norm=1.0, engine="ray")
    with pytest.raises(InvalidInput, match="engine must be"):
        engine_of("spark")


def test_workers_say_what_is_wrong_and_show_nothing(files: Path) -> None:
    terms = Terms(LOSS, 1.0, None)
    job = Gradients(FULL, terms, terms.ruler(N, D), True)
    long = TableSource(files, NAMES, "sign")
    (shard, *_) = shards_of(scaled(long, 7.0))
    assert Worker(1).hold([shard], job) is None
    (shard, *_) = shards_of(TableSource(files, [*NAMES, "sign"], "sign"))
    assert "longer than feature_norm" in str(Worker(1).hold([shard], job))
    (files / "a.parquet").unlink()
    assert "there is no such file" in str(Worker(1).hold([shard], job))
    assert Worker(1).total({0: KEY}, 0, (D,), np.zeros(D))[0] == "a worker failed (KeyError)"


def test_without_ray_the_extra_is_named(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dplateau\[ray\]'"):
        train(FULL, LOSS, source(files), feature_norm=1.0, engine=Ray())
