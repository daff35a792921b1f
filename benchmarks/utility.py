"""Accuracy at equal privacy: our planned models beside the ways in use, whose settings are tuned.

    python benchmarks/utility.py [--data FOLDER] [--only NAME] [--epsilons 0.1,1] [--minutes 90]

Neighbors add or remove a record, delta = 1e-5. Ours uses no tuning at all. The others choose the
best of 12 settings by their accuracy on the test set (which flatters them), with one seed, and are
then run with five: Poisson DP-SGD under PLD composition, full-batch momentum under exact Gaussian
composition, both on the same rows, constant feature and gradient bound as ours, and diffprivlib's
objective perturbation with the best of its C. Finished cells are kept in
benchmarks/results/utility.csv, so that the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dplateau.algorithms import LossGeometry, NoisyGD, NoisySGD, Run
from dplateau.bounds.registry import bound_named
from dplateau.certificates import calibrate
from dplateau.engines import SeededRandomness, scale_rows, train
from dplateau.errors import PrivacyLeakWarning
from dplateau.estimators import PrivateLogisticRegression, PrivateRidge
from dplateau.planning.forecast import Model, model_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "utility.csv"
PEER = ROOT / ".venv-peers-diffprivlib" / "bin" / "python"
DELTA = 1e-5
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SEEDS = (0, 1, 2, 3, 4)
FIELDS = ("data", "method", "epsilon", "seed", "score", "setting", "seconds")
# Public ranges: the census's own codes and top-codes; physical limits of the protein measures.
ADULT_LOW = (17.0, 0.0, 1.0, 0.0, 0.0, 1.0)
ADULT_HIGH = (90.0, 1.5e6, 16.0, 1e5, 5e3, 99.0)
CASP_LOW = (2000.0, 0.0, 0.0, 0.0, 3e5, 0.0, 0.0, 0.0, 15.0)
CASP_HIGH = (45000.0, 16000.0, 0.6, 400.0, 6e6, 600.0, 1.1e5, 400.0, 60.0)
CASP_TARGET = (0.0, 21.0)
# Columns of scikit-learn's breast_cancer data: mean, error and worst of ten measures.
BREAST_HIGH = (30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1, 3, 5, 22, 550, 0.04, 0.15, 0.4,
               0.06, 0.08, 0.03, 40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.25)  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Rows prepared by public knowledge alone, of norm at most 1."""

    name: str
    rows: Any
    targets: Any
    test_rows: Any
    test_targets: Any
    regression: bool = False

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return 1 if self.regression else int(self.targets.max()) + 1

    def score(self, scores: Any) -> float:
        """Return accuracy, or R^2, of raw scores."""
        if self.regression:
            rest = np.mean((scores[:, 0] - self.test_targets) ** 2)
            return float(1 - rest / np.var(self.test_targets))
        guess = scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        return float(np.mean(guess == self.test_targets))


def ranged(rows: Any, low: Any, high: Any) -> Any:
    low, high = np.asarray(low, dtype=np.float32), np.asarray(high, dtype=np.float32)
    return np.clip(2 * (rows - low) / (high - low) - 1, -1, 1)


def unit(rows: Any) -> Any:
    return scale_rows(np.ascontiguousarray(rows, dtype=np.float32), 1.0)


def from_file(folder: Path, name: str) -> Data:
    found = np.load(folder / f"{name}.npz")
    rows, test = found["X_train"].astype(np.float32), found["X_test"].astype(np.float32)
    y, y_test = found["y_train"], found["y_test"]
    if name == "adult":
        for part in (rows, test):
            part[:, :6] = ranged(part[:, :6], ADULT_LOW, ADULT_HIGH)
    if name == "mnist":
        rows, test = rows / 255, test / 255
    if name.startswith("casp"):
        rows, test = (ranged(part, CASP_LOW, CASP_HIGH) for part in (rows, test))
        middle, half = np.mean(CASP_TARGET), np.ptp(CASP_TARGET) / 2
        y, y_test = (y - middle) / half, (y_test - middle) / half
        return Data(name, unit(rows), y, unit(test), y_test, regression=True)
    return Data(name, unit(rows), y.astype(int), unit(test), y_test.astype(int))


def bundled(name: str) -> Data:
    from sklearn.datasets import load_breast_cancer, load_digits

    loaded = load_breast_cancer if name == "breast_cancer" else load_digits
    rows, labels = loaded(return_X_y=True)
    rows = ranged(rows, 0, BREAST_HIGH) if name == "breast_cancer" else rows / 16
    order = np.random.default_rng(0).permutation(len(labels))
    rows, labels, cut = unit(rows[order]), labels[order], round(0.2 * len(labels))
    return Data(name, rows[cut:], labels[cut:], rows[:cut], labels[:cut])


def data_sets(folder: Path) -> Iterator[tuple[str, Callable[[], Data]]]:
    for name in ("breast_cancer", "digits"):
        yield name, lambda name=name: bundled(name)
    for name in ("adult", "casp_protein_regression", "imdb_hash4096", "mnist"):
        if (folder / f"{name}.npz").is_file():
            yield name, lambda name=name: from_file(folder, name)


# --- the methods -------------------------------------------------------------------------------


def ours(data: Data, epsilon: float, seed: int) -> float:
    """Fit our estimator with its default parameters."""
    common = {"epsilon": epsilon, "delta": DELTA, "random_state": seed}
    if data.regression:
        model = PrivateRidge(**common).fit(data.rows, data.targets)
        return data.score(model.predict(data.test_rows)[:, None])
    model = PrivateLogisticRegression(classes=list(range(data.classes)), **common)
    return float(model.fit(data.rows, data.targets).score(data.test_rows, data.test_targets))


def plain(data: Data) -> float:
    """Return the score without privacy, on the same rows, with the best of a few penalties."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    models = [LogisticRegression(C=c, max_iter=300) for c in (1, 10, 100, 1000)]
    fits = [LinearRegression()] if data.regression else models
    return max(
        float(fit.fit(data.rows, data.targets).score(data.test_rows, data.test_targets))
        for fit in fits
    )


def model_for(data: Data) -> Model:
    """Return loss, gradient bound and constant feature: those that our estimators use."""
    loss = "squared" if data.regression else "logistic"
    classes = max(2, data.classes)
    return model_of(loss, classes, data_norm=1.0, fit_intercept=True, target_bound=1.0)


def with_constant(rows: Any, size: float) -> Any:
    return np.hstack([rows, np.full((len(rows), 1), size, dtype=rows.dtype)])


def trained(data: Data, run: Run, seed: int) -> float:
    model = model_for(data)
    rows = with_constant(data.rows, model.intercept)
    targets = data.targets if data.regression or data.classes > 2 else 2 * data.targets - 1
    weights = train(run, model.loss, rows, targets, feature_norm=model.feature_norm * (1 + 1e-6),
                    clip=model.clip, randomness=SeededRandomness(seed))  # fmt: skip
    scores = with_constant(data.test_rows, model.intercept) @ weights.reshape(rows.shape[1], -1)
    return data.score(scores)


def geometry_for(data: Data) -> LossGeometry:
    model = model_for(data)
    return model.loss.geometry(model.feature_norm * (1 + 1e-6), model.clip)


def momentum_gd(data: Data, epsilon: float, setting: dict[str, float]) -> Run:
    """Describe full-batch momentum with every iterate charged, exactly."""
    run = NoisyGD(
        n=len(data.targets), steps=int(setting["steps"]), learning_rate=setting["rate"],
        momentum=0.9, noise_multiplier=1.0, loss=geometry_for(data), release="all",
    )  # fmt: skip
    return calibrate(run, epsilon, DELTA, bounds=[bound_named("gdp_composition")]).run


def poisson_sgd(data: Data, epsilon: float, setting: dict[str, float]) -> Run:
    """Describe DP-SGD with every iterate charged by privacy-loss distributions."""
    n = len(data.targets)
    run = NoisySGD(
        n=n, batch_size=min(setting["batch"], n // 4), epochs=setting["epochs"],
        learning_rate=setting["rate"], noise_multiplier=1.0, loss=geometry_for(data),
        release="all",
    )  # fmt: skip
    return calibrate(run, epsilon, DELTA, bounds=[bound_named("pld_composition")]).run


RATES = (0.05, 0.2, 0.5, 1, 2, 5)
GRIDS: dict[str, tuple[Callable[..., Run], list[dict[str, float]]]] = {
    "momentum GD, tuned": (
        momentum_gd,
        [{"steps": s, "rate": r} for s, r in itertools.product((50, 150), RATES)],
    ),
    "DP-SGD (PLD), tuned": (
        poisson_sgd,
        [
            {"batch": b, "epochs": e, "rate": r}
            for b, e, r in itertools.product((256, 1024), (3, 12), (0.3, 1.5, 6))
        ],
    ),
}
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


# --- cells, kept as they are finished ------------------------------------------------------------


class Results:
    """Finished cells, in a CSV file that is only ever appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="") as file:
                self.rows = list(csv.DictReader(file))

    def has(self, **key: object) -> bool:
        """Return whether there is a row with these fields."""
        return any(all(row[k] == str(v) for k, v in key.items()) for row in self.rows)

    def add(self, **row: object) -> None:
        """Keep a row, in memory and on disk."""
        text = {name: str(row.get(name, "")) for name in FIELDS}
        self.rows.append(text)
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(text)

    def scores(self, data: str, method: str, epsilon: object) -> list[float]:
        """Return the scores of all seeds."""
        return [
            float(row["score"])
            for row in self.rows
            if (row["data"], row["method"], row["epsilon"]) == (data, method, str(epsilon))
        ]


def cell(results: Results, data: Data, method: str, epsilon: float) -> None:
    """Fill what is missing of one method at one epsilon."""
    missing = [
        seed for seed in SEEDS
        if not results.has(data=data.name, method=method, epsilon=epsilon, seed=seed)
    ]  # fmt: skip
    if not missing:
        return
    if method == "ours":
        for seed in missing:
            began = time.perf_counter()
            score = ours(data, epsilon, seed)
            seconds = f"{time.perf_counter() - began:.2f}"
            results.add(data=data.name, method=method, epsilon=epsilon, seed=seed,
                        score=f"{score:.5f}", seconds=seconds)  # fmt: skip
        return
    if method.startswith("diffprivlib"):
        peer_cell(results, data, method, epsilon, missing)
        return
    describe, grid = GRIDS[method]
    runs = [describe(data, epsilon, setting) for setting in grid]
    tried = [trained(data, run, 1000) for run in runs]
    best = int(np.argmax(tried))
    for seed in missing:
        began = time.perf_counter()
        score = trained(data, runs[best], seed)
        results.add(data=data.name, method=method, epsilon=epsilon, seed=seed,
                    score=f"{score:.5f}", setting=json.dumps(grid[best]),
                    seconds=f"{time.perf_counter() - began:.2f}")  # fmt: skip


def peer_cell(
    results: Results, data: Data, method: str, epsilon: float, missing: list[int]
) -> None:
    if data.regression or not PEER.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, rows=data.rows, labels=data.targets, test_rows=data.test_rows,
                 test_labels=data.test_targets)  # fmt: skip

        def scores(penalty: float, seeds: list[int]) -> list[float]:
            script = ROOT / "benchmarks" / "peers" / "diffprivlib_accuracy.py"
            settings = json.dumps({"epsilon": epsilon, "C": penalty, "seeds": seeds})
            done = subprocess.run([PEER, script, path, settings], capture_output=True, text=True,
                                  check=True)  # fmt: skip
            found: list[float] = json.loads(done.stdout.splitlines()[-1])
            return found

        best = max(PENALTIES, key=lambda penalty: scores(penalty, [1000])[0])
        for seed, score in zip(missing, scores(best, missing), strict=True):
            results.add(data=data.name, method=method, epsilon=epsilon, seed=seed,
                        score=f"{score:.5f}", setting=json.dumps({"C": best}))  # fmt: skip


METHODS = ("ours", "momentum GD, tuned", "DP-SGD (PLD), tuned", "diffprivlib, best C")


def show(results: Results, names: list[str], epsilons: list[float], console: Console) -> None:
    table = Table(title="mean score over five seeds (deviation); not private in the last column")
    for name in ("data", "epsilon", *METHODS, "not private"):
        table.add_column(name, justify="left" if name == "data" else "right")
    for name in names:
        for epsilon in epsilons:
            cells = []
            for method in METHODS:
                found = results.scores(name, method, epsilon)
                cells.append(f"{np.mean(found):.4f} ({np.std(found):.4f})" if found else "-")
            free = results.scores(name, "not private", "")
            table.add_row(name, f"{epsilon:g}", *cells, f"{free[0]:.4f}" if free else "-")
    console.print(table)


def data_folder() -> Path:
    """Return where the larger data sets are: $DPLATEAU_DATA, or ../shared/data."""
    return Path(os.environ.get("DPLATEAU_DATA", ROOT.parent / "shared" / "data"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--only", action="append", help="names of data sets")
    parser.add_argument("--methods", action="append", choices=METHODS)
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    # Seeds make the table repeatable, and these data are public.
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    epsilons = [float(part) for part in chosen.epsilons.split(",")]
    until = time.monotonic() + 60 * chosen.minutes
    results, console = Results(chosen.results), Console(width=150)
    names = []
    for name, load in data_sets(chosen.data):
        if chosen.only and name not in chosen.only:
            continue
        names.append(name)
        data = load()
        if not results.has(data=name, method="not private"):
            results.add(data=name, method="not private", score=f"{plain(data):.5f}")
        for method, epsilon in itertools.product(chosen.methods or METHODS, epsilons):
            if time.monotonic() > until:
                console.print("out of time; the same command goes on from here")
                break
            cell(results, data, method, epsilon)
            console.print(f"{name}: {method} at {epsilon:g} done", style="dim")
    show(results, names, epsilons, console)


if __name__ == "__main__":
    main()
