"""Training on a real Ray: one model whatever the workers, deaths in mid-run, nothing on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pytest
import ray
from pyarrow import parquet
from ray.cluster_utils import Cluster
from ray.experimental import get_object_locations

from dplateau.algorithms import NoisyGD, NoisySGD, Run
from dplateau.certificates import Composition
from dplateau.cli import main
from dplateau.engines import Prepared, Ray, SeededRandomness, Source, TableSource, scaled, train
from dplateau.engines.cluster import Workers, WorkersLost, cluster_moments
from dplateau.engines.moments import moments_run, noisy_moments
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.estimators import PrivateLogisticRegression
from dplateau.losses import Logistic
from dplateau.tables import load_model

N, D, FILES = 6000, 4, 6
RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(N, D))
SIGNS = np.where(X[:, 0] > X[:, 1], 1.0, -1.0)
NAMES = [f"x{j}" for j in range(D)]
LOSS = Logistic()
COMMON: dict[str, Any] = {
    "n": N, "learning_rate": 0.5, "l2": 0.01, "loss": LOSS.geometry(1.0), "release": "last",
}  # fmt: skip
FULL = NoisyGD(steps=12, noise_std=0.01, **COMMON)
SAMPLED = NoisySGD(batch_size=300, steps=12, noise_multiplier=1.0, **COMMON)


class Watched(SeededRandomness):
    """Counts the noise that is drawn, and does something before the fifth draw."""

    def __init__(self, act: Callable[[], object] | None = None) -> None:
        super().__init__(7)
        self.draws, self.act = 0, act

    def gaussian(self, count: int) -> Any:
        self.draws += 1
        if self.draws == 5 and self.act is not None:
            self.act()
        return super().gaussian(count)


def weights(run: Run, source: Source, engine: Ray | None, noise: Any = None) -> Any:
    noise = noise or Watched()
    return train(run, LOSS, source, feature_norm=1.0, randomness=noise, engine=engine)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("parts")
    for k, rows in enumerate(np.array_split(np.arange(N), FILES)):
        table = pa.table([*X[rows].T.copy(), SIGNS[rows]], [*NAMES, "sign"])
        parquet.write_table(table, place / f"{k}.parquet")
    return place


@pytest.fixture(scope="module")
def source(folder: Path) -> Source:
    return scaled(TableSource(folder, NAMES, "sign"), 1.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster that runs already, of one node; a second one joins to be killed."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    found = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 << 20},
    )
    ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture(scope="module")
def calm(cluster: Cluster, source: Source) -> dict[str, Any]:
    """The models of undisturbed runs with two workers."""
    return {run.kind: weights(run, source, Ray(workers=2)) for run in (FULL, SAMPLED)}


def gone(processes: list[psutil.Process]) -> bool:
    """Return whether processes that were told to end have ended."""
    return not psutil.wait_procs(processes, timeout=90)[1]


def worker_processes() -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [""])[0].startswith("ray::Worker")
    ]


@pytest.mark.parametrize("run", [FULL, SAMPLED], ids=lambda run: run.kind)
def test_one_and_four_workers_give_the_same_model(
    run: Run, source: Source, calm: dict[str, Any]
) -> None:
    for engine in (Ray(workers=1, in_memory=False), Ray(workers=4)):
        noise = Watched()
        assert np.array_equal(weights(run, source, engine, noise), calm[run.kind])
        assert noise.draws == run.steps
    assert gone(worker_processes())


def test_full_batches_give_the_model_of_one_machine(source: Source, calm: dict[str, Any]) -> None:
    noise = Watched()
    noise.words(4)  # the key of a run on a cluster
    here = weights(FULL, source, None, noise)
    assert np.allclose(here, calm[FULL.kind], rtol=1e-9)


def kill_a_worker() -> None:
    victim = worker_processes()[0]
    victim.send_signal(signal.SIGKILL)
    victim.wait(20)


@pytest.mark.parametrize("run", [FULL, SAMPLED], ids=lambda run: run.kind)
def test_a_killed_worker_changes_nothing(run: Run, source: Source, calm: dict[str, Any]) -> None:
    noise = Watched(kill_a_worker)
    assert np.array_equal(weights(run, source, Ray(workers=2), noise), calm[run.kind])
    assert noise.draws == run.steps


def test_killing_all_workers_changes_nothing(source: Source, calm: dict[str, Any]) -> None:
    def kill_all() -> None:
        for process in worker_processes():
            process.send_signal(signal.SIGKILL)

    found = weights(SAMPLED, source, Ray(workers=2), Watched(kill_all))
    assert np.array_equal(found, calm[SAMPLED.kind])


def test_a_killed_node_changes_nothing(
    cluster: Cluster, source: Source, calm: dict[str, Any]
) -> None:
    node = cluster.add_node(num_cpus=2, object_store_memory=80 << 20)
    cluster.wait_for_nodes()
    before = len(ray.nodes())
    places: list[str] = []

    def kill_the_node() -> None:
        raylet = node.all_processes["raylet"][0].process.pid
        below = psutil.Process(raylet).children(recursive=True)
        places.extend("".join(one.cmdline()[:1]) for one in below)
        cluster.remove_node(node, allow_graceful=False)

    found = weights(SAMPLED, source, Ray(workers=4), Watched(kill_the_node))
    # It held workers of this run.
    assert any(place.startswith("ray::Worker") for place in places)
    assert before == 2
    assert np.array_equal(found, calm[SAMPLED.kind])


class Deadly:
    """Ends the process that reads the rows, but not the driver."""

    def __init__(self) -> None:
        self.driver = os.getpid()

    def __call__(self, features: Any, targets: Any) -> Any:
        if os.getpid() != self.driver:
            os.kill(os.getpid(), signal.SIGKILL)
        return features, targets


def test_a_shard_that_kills_its_workers_ends_the_run(
    source: Source, calm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dplateau.engines.cluster.MOST_LOADS", 1)
    noise = Watched()
    with pytest.raises(WorkersLost, match=r"died 1 times with the same shard .*released"):
        weights(FULL, Prepared(source, Deadly()), Ray(workers=2), noise)
    assert noise.draws == 0
    assert gone(worker_processes())


class Slow:
    """Lets the driver wait."""

    def __init__(self) -> None:
        self.driver = os.getpid()

    def __call__(self, features: Any, targets: Any) -> Any:
        if os.getpid() != self.driver:
            time.sleep(60)
        return features, targets


def test_a_worker_that_does_not_answer_ends_the_run(source: Source, calm: Any) -> None:
    with pytest.raises(WorkersLost, match="did not answer within 3 s; nothing was released"):
        weights(FULL, Prepared(source, Slow()), Ray(workers=1, patience=3.0))


def test_an_address_where_nobody_listens_is_refused(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(InvalidInput, match=r"no Ray cluster answers at 127.0.0.1:1: Connection"):
        weights(FULL, source, Ray(address="127.0.0.1:1"))


def test_sums_that_no_message_holds_are_refused(source: Source) -> None:
    asked: dict[str, Any] = {"feature_norm": 1.0, "engine": Ray(workers=1)}
    wide = [f"x{j % D}" for j in range(1025)]
    run = moments_run(
        n=N, noise_multiplier=1.0, feature_norm=1.0, neighbors="add_remove", group_size=1
    )
    table = TableSource(cast(Any, source).source.data, wide, "sign")
    with pytest.raises(NotApplicable, match=r"1050625; whitening='never' does without"):
        cluster_moments(run, table, randomness=SeededRandomness(1), **asked)


def test_refusals_of_workers_arrive_in_words(folder: Path, calm: Any) -> None:
    unscaled = TableSource(folder, [*NAMES, "sign"], "sign")
    with pytest.raises(InvalidInput, match="some rows are longer than feature_norm=1"):
        weights(FULL, unscaled, Ray(workers=2))


def test_moments_are_those_of_one_machine(source: Source, calm: Any) -> None:
    run = moments_run(
        n=N, feature_norm=1.0, noise_multiplier=3.0, neighbors="add_remove", group_size=1
    )
    asked: dict[str, Any] = {"feature_norm": 1.0}
    here = noisy_moments(run, source, randomness=SeededRandomness(3), **asked)
    there = cluster_moments(
        run, source, randomness=SeededRandomness(3), engine=Ray(workers=2), **asked
    )
    assert np.array_equal(here, there)


def test_an_estimator_whitens_and_trains_on_the_cluster(folder: Path, calm: Any) -> None:
    models = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for workers in (1, 3):
            model = PrivateLogisticRegression(
                classes=[-1, 1], feature_bounds=(-0.5, 0.5), random_state=1, compute_budget=500,
                algorithm="momentum",
                engine=Ray(workers=workers),
            )  # fmt: skip
            models.append(model.fit(str(folder), "sign"))
    first, second = models
    assert len(first.plan_.moments) > 0
    assert np.array_equal(first.coef_, second.coef_)
    assert np.mean(first.predict(pd.DataFrame(X, columns=NAMES)) == SIGNS) > 0.95
    # What is claimed is what one machine would claim; who took part is an assumption more.
    alone = PrivateLogisticRegression(
        classes=[-1, 1], feature_bounds=(-0.5, 0.5), compute_budget=500, algorithm="momentum"
    ).fit(str(folder), "sign")
    assert first.plan_.run == alone.plan_.run
    assert first.plan_.certificate.claimed_epsilon == alone.certificate_.claimed_epsilon
    texts = [assumption.text for assumption in first.certificate_.assumptions]
    assert any("the cluster's machines keep weights and sums" in text for text in texts)


def test_nothing_data_dependent_is_stored_or_logged(
    source: Source, calm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, sums and keys of a run are in no file of Ray's and in no store of objects."""
    sent: list[bytes] = []
    stored: list[Any] = []
    total, answered = Workers.total, Workers._answer

    def listening(self: Workers, key: bytes, step: int, at: Any) -> Any:
        found = total(self, key, step, at)
        sent.extend([key, at.tobytes() if at.any() else key, found.tobytes()])
        return found

    def looking(self: Workers, worker: Any, refs: Any) -> Any:
        answer = answered(self, worker, refs)
        stored.extend(found["node_ids"] for found in get_object_locations(list(refs)).values())
        return answer

    monkeypatch.setattr(Workers, "total", listening)
    monkeypatch.setattr(Workers, "_answer", looking)
    weights(SAMPLED, source, Ray(workers=2))
    assert len(sent) == 3 * SAMPLED.steps
    assert len(stored) > 2 * 2 * SAMPLED.steps
    assert not any(stored)
    # A value in the store of objects would have been seen.
    large = ray.put(np.zeros(1 << 20))
    assert get_object_locations([large])[large]["node_ids"]
    session = Path(ray._private.worker.global_worker.node.get_session_dir_path())
    files = [path for path in session.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(path.suffix in (".log", ".out", ".err") for path in files)
    for path in files:
        content = path.read_bytes()
        assert not any(secret in content for secret in sent), path


def test_the_command_line_trains_on_the_cluster(
    folder: Path, calm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", *map(str, sorted(folder.iterdir())), "--engine", "ray", "--epsilon", "1"]
    words += ["--target", "sign", "--classes=-1,1", "--compute-budget", "500"]
    words += [word for name in NAMES for word in ("--bounds", f"{name}=-0.5:0.5")]
    with pytest.raises(SystemExit) as stop:
        main([*words, "-o", str(tmp_path / "model")])
    assert not stop.value.code
    certificate = Composition.from_json((tmp_path / "model" / "certificate.json").read_text())
    assert certificate.claimed_epsilon <= 1
    assert certificate.verify().ok
    frame = pd.DataFrame(X, columns=NAMES)
    guessed = load_model(tmp_path / "model" / "model.json").predict(frame)
    assert np.mean(guessed.astype(float) == SIGNS) > 0.95
    assert "the cluster's machines keep" in capsys.readouterr().out


LOCAL = """
import sys, warnings
import numpy as np
import ray
from dplateau.engines import Ray
from dplateau.estimators import PrivateLogisticRegression
from dplateau.engines import cluster

started = cluster.Workers._start
def looking(self):
    info = ray._private.worker.global_worker.node.address_info
    print("dashboard", repr(info.get("webui_url")))
    started(self)
cluster.Workers._start = looking
model = PrivateLogisticRegression(
    classes=[-1, 1], feature_bounds=(-0.5, 0.5), compute_budget=20, algorithm="momentum",
    whitening="never", engine="ray",
).fit(sys.argv[1], "sign")
print("running", ray.is_initialized(), "epsilon", model.certificate_.claimed_epsilon <= 1)
"""


def test_a_cluster_of_one_s_own_is_quiet_and_goes_away(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOCAL, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["dashboard ''", "running False epsilon True"]
    assert "usage" not in done.stderr.lower()


def test_rows_are_held_out_by_the_same_coins_as_on_one_machine(
    cluster: Cluster, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers leave out the rows that the driver scores."""
    del cluster
    words = ["train", *map(str, sorted(folder.iterdir())), "--target", "sign"]
    words += ["--classes=-1,1", "--epsilon", "1", "--evaluate-epsilon", "0.5", "--seed", "3"]
    words += ["--compute-budget", "60", "--json"]
    words += [word for name in NAMES for word in ("--bounds", f"{name}=-0.5:0.5")]
    said = []
    for place, engine in enumerate(([], ["--engine", "ray"])):
        with pytest.raises(SystemExit) as stop:
            main([*words, *engine, "-o", str(tmp_path / str(place))])
        assert not stop.value.code
        said.append(json.loads(capsys.readouterr().out)["evaluation"])
    assert said[0]["rows"] == said[1]["rows"]
    assert abs(said[1]["rows"] - N / 10) < 6 * (N * 0.09) ** 0.5
    assert said[1]["value"] > 0.9
