"""Train on records that stay on disk: time beside reading them, and memory beside nothing.

    python benchmarks/scale.py [--rows 20_000_000] [--columns 50] [--folder DIR]
    python benchmarks/scale.py --rows 4_000_000 --workers 1 2

Writes float32 rows to Parquet files (4 GB by default, deleted afterwards), reads them once to warm
the cache, then takes full-batch steps and sets a step beside a pass of pyarrow over the same
batches. Anonymous memory (RssAnon) is watched during training. With ``--workers`` the same steps
are taken on a local Ray (extra ``ray``) whose workers hold the rows in memory.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dplateau.algorithms import NoisyGD, NoisySGD
from dplateau.engines import Ray, SecureRandomness, TableSource, train
from dplateau.engines.sources import CHUNK_BYTES
from dplateau.estimators import PrivateLogisticRegression
from dplateau.losses import Logistic

GROUP = 1_000_000


def write(folder: Path, rows: int, names: list[str]) -> None:
    rng = np.random.default_rng(0)
    schema = pa.schema([*((name, pa.float32()) for name in names), ("y", pa.int8())])
    for start in range(0, rows, 5 * GROUP):
        with parquet.ParquetWriter(folder / f"part-{start:012d}.parquet", schema) as writer:
            for first in range(start, min(rows, start + 5 * GROUP), GROUP):
                count = min(GROUP, rows - first)
                columns = rng.random((len(names), count), dtype=np.float32) / len(names) ** 0.5
                signs = np.where(columns[0] > columns[1], 1, -1).astype(np.int8)
                writer.write_table(pa.table([*columns, signs], schema=schema))


def read(folder: Path, names: list[str]) -> None:
    """Read the batches that training reads, in the same way, and do nothing with them."""
    for path in sorted(folder.iterdir()):
        with parquet.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
            size = CHUNK_BYTES // (4 * len(names) + 1)
            for batch in file.iter_batches(size, columns=[*names, "y"]):
                assert batch.num_rows


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds on the clock, and those of all processors together."""
    clock, work = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - clock, time.process_time() - work


class Watch:
    """The most anonymous memory while it is on."""

    def __enter__(self) -> Watch:
        self.most, self.done = 0.0, threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def _look(self) -> None:
        while not self.done.wait(0.02):
            found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
            self.most = max(self.most, int(found[1]) / 1024 if found else 0.0)

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


def measure(folder: Path, rows: int, names: list[str], steps: int) -> None:
    loss = Logistic()
    common: dict[str, Any] = {
        "n": rows, "learning_rate": 1.0, "loss": loss.geometry(1.0), "release": "last",
    }  # fmt: skip
    source = TableSource(folder, features=names, target="y")
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e9

    def fit(run: Any) -> None:
        train(run, loss, source, feature_norm=1.0)

    full = NoisyGD(steps=steps, noise_std=1e-6, **common)
    poisson = NoisySGD(batch_size=1000, steps=300, noise_multiplier=1.0, **common)
    fit(full.replace(steps=1))  # compiles, and warms the cache
    clock, work = timed(lambda: read(folder, names))
    print(f"pyarrow reads {size:.2f} GB: {clock:.2f} s, {work:.2f} s of processors")
    with Watch() as watch:
        ours, spent = (seconds / steps for seconds in timed(lambda: fit(full)))
    print(f"a full-batch step: {ours:.2f} s, {spent:.2f} s of processors")
    print(f"a step over a read: {ours / clock:.2f} on the clock, {spent / work:.2f} of processors")
    print(f"most anonymous memory {watch.most:.0f} MB")
    with Watch() as watch:
        more, _ = timed(lambda: fit(poisson))
    print(f"300 Poisson batches of 1000: {more:.2f} s; most anonymous memory {watch.most:.0f} MB")


def estimate(folder: Path, names: list[str], passes: int) -> None:
    """Fit an estimator in few passes, rows mapped on every pass or once into a scratch file."""
    for scratch in (None, folder.parent):
        model = PrivateLogisticRegression(
            classes=[-1, 1], feature_bounds=(0, 1), compute_budget=passes, algorithm="momentum",
            scratch=scratch,
        )  # fmt: skip
        with Watch() as watch:
            clock, work = timed(lambda: model.fit(str(folder), "y"))  # noqa: B023
        how = "on every pass" if scratch is None else "once, into a scratch file"
        print(
            f"an estimator, {passes} passes, rows mapped {how}: {clock:.1f} s, {work:.1f} s of "
            f"processors; most anonymous memory {watch.most:.0f} MB"
        )


class Clock(SecureRandomness):
    """Remembers when noise was drawn: once a step, after its last sum came in."""

    def __init__(self) -> None:
        super().__init__()
        self.times = [time.perf_counter()]

    def gaussian(self, count: int) -> Any:
        """Draw noise, and look at the clock."""
        self.times.append(time.perf_counter())
        return super().gaussian(count)


def on_ray(folder: Path, rows: int, names: list[str], workers: int) -> None:
    """Take steps on a local Ray, and tell apart what starting and loading take."""
    loss, clock = Logistic(), Clock()
    run = NoisyGD(
        n=rows, steps=40, noise_std=1e-6, learning_rate=1.0, loss=loss.geometry(1.0),
        release="last",
    )  # fmt: skip
    source = TableSource(folder, features=names, target="y")
    engine = Ray(workers=workers)
    train(run, loss, source, feature_norm=1.0, engine=engine, randomness=clock)
    start, *steps = np.diff(clock.times)
    print(
        f"Ray, {workers} workers: start and load {start:.1f} s, a step {np.median(steps):.4f} s "
        f"(the fastest {min(steps):.4f} s)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20 * GROUP)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--passes", type=int, default=3, help="of an estimator")
    parser.add_argument("--workers", type=int, nargs="*", help="of a local Ray, and nothing else")
    parser.add_argument("--folder", help="on which disk the files are written")
    chosen = parser.parse_args()
    names = [f"x{j}" for j in range(chosen.columns)]
    with tempfile.TemporaryDirectory(dir=chosen.folder) as place:
        folder = Path(place) / "rows"
        folder.mkdir()
        write(folder, chosen.rows, names)
        print(f"{chosen.rows} rows of {chosen.columns} columns")
        if chosen.workers:
            for workers in chosen.workers:
                on_ray(folder, chosen.rows, names, workers)
            return
        measure(folder, chosen.rows, names, chosen.steps)
        estimate(folder, names, chosen.passes)


if __name__ == "__main__":
    main()
