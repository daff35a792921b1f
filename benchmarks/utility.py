"""Accuracy at equal privacy: our planned models beside the ways in use, whose settings are tuned.

    python benchmarks/utility.py [--data FOLDER] [--only NAME] [--epsilons 0.1,1] [--minutes 240]

Neighbors add or remove a record, delta = 1e-5. Ours uses no tuning at all. The others choose the
best of a wide grid by their score on the test set (which flatters them), with one seed, and are
then run with five:

- momentum: full batches under exact Gaussian composition, last iterate or mean of the second half;
- DP-SGD: Poisson batches under PLD composition, likewise;
- objective perturbation (Kifer, Smith and Thakurta 2012, Gaussian noise), two classes;
- AdaSSP (Wang 2018), regressions;
- diffprivlib's logistic regression, in an environment of its own (make bench-peers).

All but diffprivlib get the rows, constant feature and gradient bound of our models. Finished cells
are kept in benchmarks/results/utility.csv, so that the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from utility_data import ROOT, Data, data_folder, data_sets

from dplateau import __version__
from dplateau.algorithms import LossGeometry, NoisyGD, NoisySGD, Run
from dplateau.bounds.registry import bound_named
from dplateau.certificates import calibrate
from dplateau.engines import SeededRandomness, train
from dplateau.errors import PoorPlanWarning, PrivacyLeakWarning
from dplateau.estimators import PrivateLogisticRegression, PrivateRidge
from dplateau.planning.forecast import Model, model_of

RESULTS = ROOT / "benchmarks" / "results" / "utility.csv"
PEER = ROOT / ".venv-peers-diffprivlib" / "bin" / "python"
DELTA = 1e-5
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SEEDS = (0, 1, 2, 3, 4)
FIELDS = ("data", "method", "epsilon", "seed", "score", "auc", "setting", "seconds", "version")
Score = tuple[float, float | None]
Setting = dict[str, float]


def ours(data: Data, epsilon: float, seed: int) -> Score:
    """Fit our estimator with its default parameters."""
    common: Any = {"epsilon": epsilon, "delta": DELTA, "data_norm": 1.0, "random_state": seed}
    if data.regression:
        model = PrivateRidge(target_bound=1.0, **common).fit(data.rows, data.targets)
        return data.score(model.predict(data.test_rows)[:, None])
    model = PrivateLogisticRegression(classes=list(range(data.classes)), **common)
    found = model.fit(data.rows, data.targets).decision_function(data.test_rows)
    return data.score(found if found.ndim == 2 else found[:, None])


def plain(data: Data) -> Score:
    """Return the score without privacy, on the same rows, with the best of a few penalties."""
    from sklearn.linear_model import LogisticRegression, Ridge

    if data.regression:
        fits = [Ridge(alpha=a).fit(data.rows, data.targets) for a in (1e-3, 0.1, 1.0, 10.0)]
        return max(data.score(fit.predict(data.test_rows)[:, None]) for fit in fits)
    fits = [LogisticRegression(C=c, max_iter=300) for c in (1, 10, 100, 1000)]
    found = (fit.fit(data.rows, data.targets).decision_function(data.test_rows) for fit in fits)
    return max(data.score(scores if scores.ndim == 2 else scores[:, None]) for scores in found)


# --- peers that walk in noisy gradients --------------------------------------------------------


def model_for(data: Data) -> Model:
    """Return loss, gradient bound and constant feature: those that our estimators use."""
    loss = "squared" if data.regression else "logistic"
    classes = max(2, data.classes)
    return model_of(loss, classes, data_norm=1.0, fit_intercept=True, target_bound=1.0)


def with_constant(rows: Any, size: float) -> Any:
    return np.hstack([rows, np.full((len(rows), 1), size, dtype=rows.dtype)])


def trained(data: Data, run: Run, seed: int) -> Score:
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


@lru_cache(maxsize=512)
def multiplier(kind: Any, epsilon: float, **sizes: Any) -> float:
    """Return the noise multiplier that releasing every iterate needs; rates do not matter."""
    run = kind(learning_rate=0.1, noise_multiplier=1.0, release="all", **sizes)
    bound = "gdp_composition" if kind is NoisyGD else "pld_composition"
    return float(calibrate(run, epsilon, DELTA, bounds=[bound_named(bound)]).run.noise_multiplier)


def walked(kind: Any, sizes: Setting, data: Data, epsilon: float, setting: Setting) -> Run:
    loss = geometry_for(data)
    run: Run = kind(
        learning_rate=setting["rate"], loss=loss, release="all", **sizes,
        noise_multiplier=multiplier(kind, epsilon, loss=loss, **sizes),
        momentum=0.9 if kind is NoisyGD else 0.0,
    )  # fmt: skip
    return run.replace(average_last=max(1, run.steps // 2)) if setting["mean"] else run


def momentum_gd(data: Data, epsilon: float, setting: Setting, seed: int) -> Score:
    """Run full-batch momentum with every iterate charged, exactly."""
    sizes: Any = {"n": len(data.targets), "steps": int(setting["steps"])}
    return trained(data, walked(NoisyGD, sizes, data, epsilon, setting), seed)


def poisson_sgd(data: Data, epsilon: float, setting: Setting, seed: int) -> Score:
    """Run DP-SGD with every iterate charged by privacy-loss distributions."""
    n = len(data.targets)
    sizes: Any = {"n": n, "batch_size": min(setting["batch"], n // 4), "epochs": setting["epochs"]}
    return trained(data, walked(NoisySGD, sizes, data, epsilon, setting), seed)


# --- peers that solve a noisy problem ----------------------------------------------------------


def objective_perturbation(data: Data, epsilon: float, setting: Setting, seed: int) -> Score:
    """Minimize logistic losses plus a random linear term and a ridge."""
    from scipy.optimize import minimize
    from scipy.special import expit

    rows = with_constant(data.rows, 0.5).astype(float)
    signs, norm = 2.0 * data.targets - 1, math.hypot(1.0, 0.5)
    ridge = setting["ridge"] * 2 * (norm**2 / 4) / epsilon
    std = norm * math.sqrt(8 * math.log(2 / DELTA) + 4 * epsilon) / epsilon
    linear = np.random.default_rng(seed).normal(size=rows.shape[1]) * std

    def loss(weights: Any) -> tuple[float, Any]:
        margins = signs * (rows @ weights)
        value = np.logaddexp(0, -margins).sum() + ridge / 2 * weights @ weights + linear @ weights
        return value, rows.T @ (-signs * expit(-margins)) + ridge * weights + linear

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x
    return data.score((with_constant(data.test_rows, 0.5) @ found)[:, None])


def ada_ssp(data: Data, epsilon: float, setting: Setting, seed: int) -> Score:
    """Solve least squares from noisy moments, with a ridge that follows their noise."""
    rows, rng = with_constant(data.rows, 0.5).astype(float), np.random.default_rng(seed)
    p, square = rows.shape[1], 1.25
    moments, log = rows.T @ rows, math.log(6 / DELTA)
    std = math.sqrt(log) * square / (epsilon / 3)
    least = np.linalg.eigvalsh(moments)[0] + std * rng.normal() - log * square / (epsilon / 3)
    spread = std * math.sqrt(p * math.log(2 * p * p / 0.05))
    ridge = max(0.0, setting["ridge"] * spread - max(0.0, least))
    upper = np.triu(rng.normal(size=(p, p)))
    noise = upper + np.triu(upper, 1).T
    noisy = moments + std * noise + ridge * np.eye(p)
    answers = rows.T @ data.targets + std / math.sqrt(square) * rng.normal(size=p)
    weights = np.linalg.lstsq(noisy, answers, rcond=None)[0]
    return data.score((with_constant(data.test_rows, 0.5) @ weights)[:, None])


def product(**axes: Any) -> list[Setting]:
    return [dict(zip(axes, one, strict=True)) for one in itertools.product(*axes.values())]


RATES = (0.01, 0.05, 0.2, 1.0, 3.0, 10.0)
MOMENTUM, SGD, OBJECTIVE, ADASSP, PEERLIB = (
    "momentum GD, tuned", "DP-SGD (PLD), tuned", "objective perturbation, tuned", "AdaSSP, tuned",
    "diffprivlib, best C",
)  # fmt: skip
PEERS: dict[str, tuple[Callable[..., Score], list[Setting]]] = {
    MOMENTUM: (momentum_gd, product(steps=(50, 200, 600, 2000), rate=RATES, mean=(0, 1))),
    SGD: (poisson_sgd, product(batch=(256, 1024), epochs=(3, 12, 50), rate=RATES, mean=(0, 1))),
    OBJECTIVE: (objective_perturbation, product(ridge=(1, 4, 16, 64, 256, 1024))),
    ADASSP: (ada_ssp, product(ridge=(0.1, 0.3, 1.0, 3.0))),
}
METHODS = ("ours", *PEERS, PEERLIB)
# Many settings of a large data set would take hours: these are left out there.
LARGE = 2e7
THIN = {"steps": (50, 600), "batch": (1024,), "epochs": (12,), "mean": (0, 1)}
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def grid_for(data: Data, grid: list[Setting]) -> list[Setting]:
    if data.rows.size < LARGE:
        return grid
    return [one for one in grid if all(v in THIN[k] for k, v in one.items() if k in THIN)]


def applies(data: Data, method: str) -> bool:
    """Return whether a method is made for such targets."""
    if method in (OBJECTIVE, PEERLIB):
        return not data.regression and (data.classes == 2 or method == PEERLIB)
    return method != ADASSP or data.regression


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
        text = {name: str(row.get(name, "")) for name in FIELDS} | {"version": __version__}
        self.rows.append(text)
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(text)

    def values(self, data: str, method: str, epsilon: object, field: str) -> list[float]:
        """Return a field of all seeds, as far as it is known, of the newest version there is."""
        key = (data, method, str(epsilon))
        rows = [r for r in self.rows if (r["data"], r["method"], r["epsilon"]) == key]
        newest = max((row["version"] for row in rows), default="")
        return [float(r[field]) for r in rows if r[field] and r["version"] == newest]

    def is_old(self, data: str, method: str, epsilon: object) -> bool:
        """Return whether a cell was measured by an older version only."""
        key = (data, method, str(epsilon))
        rows = [r for r in self.rows if (r["data"], r["method"], r["epsilon"]) == key]
        return bool(rows) and all(row["version"] != __version__ for row in rows)

    def scores(self, data: str, method: str, epsilon: object) -> list[float]:
        """Return the scores of all seeds."""
        return self.values(data, method, epsilon, "score")


def cell(results: Results, data: Data, method: str, epsilon: float) -> None:
    """Fill what is missing of one method at one epsilon; what others' code did stays."""
    key: dict[str, Any] = {"data": data.name, "method": method, "epsilon": epsilon}
    if method != PEERLIB:
        key["version"] = __version__
    missing = [seed for seed in SEEDS if not results.has(seed=seed, **key)]
    if not missing:
        return
    if method == PEERLIB:
        diffprivlib_cell(results, data, epsilon, missing)
        return
    setting: Setting = {}
    if method == "ours":
        run: Callable[[int], Score] = lambda seed: ours(data, epsilon, seed)  # noqa: E731
    else:
        solve, grid = PEERS[method]
        grid = grid_for(data, grid)
        # What is solved in no time is chosen by three seeds: one would pick fragile ridges.
        tries = (1000, 1001, 1002) if method in (OBJECTIVE, ADASSP) else (1000,)
        setting = max(
            grid, key=lambda one: sum(solve(data, epsilon, one, seed)[0] for seed in tries)
        )
        run = lambda seed: solve(data, epsilon, setting, seed)  # noqa: E731
    for seed in missing:
        began = time.perf_counter()
        score, auc = run(seed)
        seconds = time.perf_counter() - began
        results.add(data=data.name, method=method, epsilon=epsilon, seed=seed,
                    score=f"{score:.5f}", auc="" if auc is None else f"{auc:.5f}",
                    setting=json.dumps(setting) if setting else "",
                    seconds=f"{seconds:.2f}")  # fmt: skip


def diffprivlib_cell(results: Results, data: Data, epsilon: float, missing: list[int]) -> None:
    if not PEER.exists():
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
            results.add(data=data.name, method=PEERLIB, epsilon=epsilon, seed=seed,
                        score=f"{score:.5f}", setting=json.dumps({"C": best}))  # fmt: skip


def show(results: Results, names: list[str], epsilons: list[float], console: Console) -> None:
    table = Table(title="mean score over five seeds (deviation); not private in the last column")
    for name in ("data", "epsilon", *METHODS, "not private"):
        table.add_column(name, justify="left" if name == "data" else "right")
    for name, epsilon in itertools.product(names, epsilons):
        cells = []
        for method in METHODS:
            found = results.scores(name, method, epsilon)
            cells.append(f"{np.mean(found):.4f} ({np.std(found):.4f})" if found else "-")
        free = results.scores(name, "not private", "")
        table.add_row(name, f"{epsilon:g}", *cells, f"{free[0]:.4f}" if free else "-")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--only", action="append", help="names of data sets")
    parser.add_argument("--methods", action="append", choices=METHODS)
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--minutes", type=float, default=240.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    # Seeds make the table repeatable, and these data are public.
    for category in (PrivacyLeakWarning, PoorPlanWarning):
        warnings.simplefilter("ignore", category)
    epsilons = [float(part) for part in chosen.epsilons.split(",")]
    until = time.monotonic() + 60 * chosen.minutes
    results, console = Results(chosen.results), Console(width=170)
    names = []
    for name, load in data_sets(chosen.data):
        if chosen.only and name not in chosen.only:
            continue
        names.append(name)
        data = load()
        if not results.has(data=name, method="not private"):
            score, auc = plain(data)
            results.add(data=name, method="not private", score=f"{score:.5f}",
                        auc="" if auc is None else f"{auc:.5f}")  # fmt: skip
        for method, epsilon in itertools.product(chosen.methods or METHODS, epsilons):
            if not applies(data, method):
                continue
            if time.monotonic() > until:
                console.print("out of time; the same command goes on from here")
                break
            cell(results, data, method, epsilon)
            console.print(f"{name}: {method} at {epsilon:g} done", style="dim")
    show(results, names, epsilons, console)


if __name__ == "__main__":
    main()
