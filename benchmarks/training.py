"""Time private training: batches beside NumPy and the peers, full batches beside reading memory.

    python benchmarks/training.py [--repeats 7] [--gigabytes 1.0] [--quick] [--picture FILE]

Every number is measured in this run. Peers live in environments of their own (`make bench-peers`);
one that is not there is a row that says so.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import numpy as np
from rich.console import Console
from rich.table import Table

from dplateau.algorithms import LossGeometry, NoisySGD, Run
from dplateau.engines import Randomness, SecureRandomness, SeededRandomness, scale_rows, train
from dplateau.engines.records import ArrayRecords, Terms
from dplateau.losses import Logistic, Loss, Softmax

ROOT = Path(__file__).resolve().parents[1]
PEERS = {
    "Opacus, hooks, Poisson loader": (".venv-peers-torch", "trainers.py", "Opacus"),
    "JAX, hand-written scan": (".venv-peers-jax", "trainers.py", "JAX scan"),
    "diffprivlib, LogisticRegression": (".venv-peers-diffprivlib", "diffprivlib_fit.py"),
}
RATE, RIDGE, NOISE = 4.0, 1e-3, 1.0
CONSOLE = Console(width=130)
BLUE, ORANGE = "#0072B2", "#E69F00"


def data(n: int, d: int, seed: int = 0) -> tuple[Any, Any]:
    """Return float32 rows of norm at most 1, and signs that follow a linear rule with errors."""
    rng = np.random.default_rng(seed)
    rows = scale_rows(rng.standard_normal((n, d), dtype=np.float32) / np.float32(d**0.5), 1.0)
    scores = rows @ rng.standard_normal(d, dtype=np.float32)
    signs = np.where(scores + 0.5 * rng.standard_normal(n, dtype=np.float32) > 0, 1, -1)
    return rows, signs


def poisson_run(n: int, batch: int, steps: int, loss: LossGeometry) -> Run:
    return NoisySGD(
        n=n, batch_size=batch, steps=steps, learning_rate=RATE, l2=RIDGE, noise_multiplier=NOISE,
        loss=loss, release="last",
    )  # fmt: skip


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Return the median time of ``repeats`` calls, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def numpy_sgd(rows: Any, signs: Any, batch: int, steps: int, draw: Callable[..., Any]) -> Any:
    """Vectorized DP-SGD in single precision, with norms in closed form: the loop one would write.

    ``draw(rng, n, q)`` chooses a batch.
    """
    rng = np.random.default_rng()
    n, d = rows.shape
    weights, answers = np.zeros(d, np.float32), signs.astype(np.float32)
    for _ in range(steps):
        chosen = draw(rng, n, batch / n)
        part, there = rows[chosen], answers[chosen]
        slopes = -there / (1 + np.exp(there * (part @ weights)))
        norms = np.abs(slopes) * np.sqrt(np.einsum("ij,ij->i", part, part))
        slopes *= np.minimum(1, 1 / np.maximum(norms, 1e-12))
        noisy = slopes @ part + NOISE * rng.standard_normal(d, dtype=np.float32)
        weights -= RATE * (noisy / batch + RIDGE * weights)
    return weights


def by_mask(rng: np.random.Generator, n: int, q: float) -> Any:
    return np.flatnonzero(rng.random(n) < q)


def by_choice(rng: np.random.Generator, n: int, q: float) -> Any:
    return rng.choice(n, rng.binomial(n, q), replace=False)


def ours(rows: Any, signs: Any, batch: int, steps: int, source: Callable[[], Randomness]) -> Any:
    run = poisson_run(len(rows), batch, steps, Logistic().geometry(1.0))
    return train(run, Logistic(), rows, signs, feature_norm=1.0, randomness=source())


def sgd_table(repeats: int, n: int, d: int, batch: int, steps: int) -> None:
    rows, signs = data(n, d)
    table = Table(
        title=f"Poisson batches: n={n}, d={d}, b={batch}, {steps} steps, medians of {repeats}"
    )
    for name in ("trainer", "examples/s", "our speed over it", "accuracy"):
        table.add_column(name, justify="left" if name == "trainer" else "right")
    trainers: dict[str, Callable[[], Any]] = {
        "dplateau, secure source (default)": lambda: ours(
            rows, signs, batch, steps, SecureRandomness
        ),
        "dplateau, secure source, safe_noise": lambda: ours(
            rows, signs, batch, steps, lambda: SecureRandomness(safe_noise=True)
        ),
        "dplateau, seeded source": lambda: ours(
            rows, signs, batch, steps, lambda: SeededRandomness(1)
        ),
        "NumPy float32, mask over all records": lambda: numpy_sgd(
            rows, signs, batch, steps, by_mask
        ),
        "NumPy float32, binomial and choice": lambda: numpy_sgd(
            rows, signs, batch, steps, by_choice
        ),
    }
    first = 0.0
    for name, call in trainers.items():
        speed = batch * steps / median_seconds(call, repeats)
        first = first or speed
        right = float(np.mean(np.sign(rows @ call()) == signs))
        table.add_row(name, f"{speed:,.0f}", f"{first / speed:.2f}", f"{right:.4f}")
    for name, answer in peer_answers(rows, signs, batch, steps, repeats):
        if "reason" in answer:
            table.add_row(name, f"not installed: {answer['reason']}", "", "")
            continue
        speed = answer["examples_per_second"]
        table.add_row(name, f"{speed:,.0f}", f"{first / speed:.2f}", f"{answer['accuracy']:.4f}")
    CONSOLE.print(table)


def peer_answers(
    rows: Any, signs: Any, batch: int, steps: int, repeats: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, rows=rows, signs=signs)
        settings = {
            "batch": batch, "steps": steps, "repeats": repeats, "rate": RATE, "ridge": RIDGE,
            "noise": NOISE,
        }  # fmt: skip
        for name, (place, *script) in PEERS.items():
            yield name, peer_answer(place, script, path, settings)


def peer_answer(
    place: str, script: list[str], path: Path, settings: dict[str, Any]
) -> dict[str, Any]:
    python = ROOT / place / "bin" / "python"
    if not python.exists():
        return {"reason": f"no {place}; run make bench-peers"}
    file, *arguments = script
    command = [str(python), "-W", "ignore", str(ROOT / "benchmarks" / "peers" / file), *arguments]
    done = subprocess.run(
        [*command, str(path), json.dumps(settings)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return {"reason": lines[-1][:80]}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


@numba.njit(nogil=True, fastmath=True)
def add_up(rows: Any, start: int, stop: int) -> float:
    """Read rows and do almost nothing with them: the speed of memory."""
    total = np.float32(0)
    for i in range(start, stop):
        for j in range(rows.shape[1]):
            total += rows[i, j]
    return total


def full_batch_table(repeats: int, gigabytes: float, d: int) -> None:
    n = int(gigabytes * 1e9 / (4 * d))
    rows = np.empty((n, d), np.float32)
    rng = np.random.default_rng(1)
    for start in range(0, n, 100_000):
        block = rows[start : start + 100_000]
        block[:] = rng.random(block.shape, dtype=np.float32) / np.float32(d**0.5)
    signs = np.where(rng.random(n) < 0.5, 1, -1)
    records = ArrayRecords(rows, signs, Terms(Logistic(), 1.0, None))
    weights = rng.normal(size=d)
    halves = [(0, n // 2), (n // 2, n)]
    with ThreadPoolExecutor(2) as pool:
        reads = {
            "reading all features, 1 thread": lambda: add_up(rows, 0, n),
            "reading all features, 2 threads": lambda: list(
                pool.map(lambda ends: add_up(rows, *ends), halves)
            ),
        }
        times = {name: median_seconds(call, repeats) for name, call in reads.items()}
    best = min(times.values())
    times["dplateau, one full-batch gradient"] = median_seconds(
        lambda: records.gradient(weights, slice(None)), repeats
    )
    table = Table(title=f"full batch: {rows.nbytes / 1e9:.2f} GB of features, d={d}, logistic")
    for name in ("what", "ms", "GB/s", "over the fastest read"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for name, seconds in times.items():
        speed = rows.nbytes / seconds / 1e9
        table.add_row(name, f"{1e3 * seconds:.1f}", f"{speed:.1f}", f"{seconds / best:.2f}")
    CONSOLE.print(table)


Point = tuple[str, int, float, float]


def base_rows(quick: bool) -> int:
    return 6_000 if quick else 60_000


def scaling(quick: bool) -> Iterator[Point]:
    """Yield (what grows, its value, seconds per step, bytes allocated beside the features)."""
    base = {"n": base_rows(quick), "d": 100, "batch": 256, "classes": 1}
    grown = {
        "n": [3_000, 10_000, 30_000, 100_000, 300_000],
        "d": [10, 30, 100, 300, 1000],
        "batch": [16, 64, 256, 1024, 4096],
        "classes": [2, 5, 10, 30, 100],
    }
    for what, values in grown.items():
        for value in values[:: 2 if quick else 1]:
            yield (what, value, *step_cost(**{**base, what: value}, quick=quick))


def step_cost(n: int, d: int, batch: int, classes: int, quick: bool) -> tuple[float, float]:
    loss: Loss = Logistic() if classes == 1 else Softmax(classes)
    rows, targets = data(n, d)
    if classes > 1:
        targets = np.random.default_rng(2).integers(0, classes, n)
    geometry = loss.geometry(1.0)

    def call(steps: int) -> None:
        run = poisson_run(n, batch, steps, geometry)
        train(run, loss, rows, targets, feature_norm=1.0, randomness=SeededRandomness(3))

    long = 60 if quick else 300
    spent = median_seconds(lambda: call(long), 3) - median_seconds(lambda: call(1), 3)
    tracemalloc.start()
    call(2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return max(spent, 0) / (long - 1), float(peak)


def scaling_table(quick: bool, picture: str | None) -> None:
    points = list(scaling(quick))
    rest = f"n={base_rows(quick)}, d=100, b=256, binary logistic"
    table = Table(title=f"what a step costs (where nothing else is said: {rest})")
    for name in ("grows", "value", "microseconds per step", "MB beside the features"):
        table.add_column(name, justify="left" if name == "grows" else "right")
    for what, value, seconds, peak in points:
        table.add_row(what, f"{value:,}", f"{1e6 * seconds:.0f}", f"{peak / 1e6:.2f}")
    CONSOLE.print(table)
    if picture:
        draw_scaling(points, picture)


def draw_scaling(points: list[Point], path: str) -> None:
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(point[0] for point in points))
    figure, rows = plt.subplots(
        2, len(kinds), figsize=(11, 5), sharex="col", sharey="row", layout="constrained"
    )
    for column, kind in enumerate(kinds):
        chosen = [point for point in points if point[0] == kind]
        values = [point[1] for point in chosen]
        rows[0, column].loglog(values, [1e6 * point[2] for point in chosen], "o-", color=BLUE)
        rows[1, column].loglog(values, [point[3] / 1e6 for point in chosen], "o-", color=ORANGE)
        rows[1, column].set_xlabel(kind)
    for axes in rows.flat:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    rows[0, 0].set_ylabel("microseconds per step")
    rows[1, 0].set_ylabel("MB beside the features")
    figure.suptitle("What a step of private training costs", fontsize=10)
    figure.savefig(path, dpi=150)
    CONSOLE.print(f"picture: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--picture", help="draw the scaling into this file")
    chosen = parser.parse_args()
    sgd_table(chosen.repeats, 60_000, 100, 256, 200 if chosen.quick else 1175)
    full_batch_table(chosen.repeats, chosen.gigabytes, 100)
    scaling_table(chosen.quick, chosen.picture)


if __name__ == "__main__":
    main()
