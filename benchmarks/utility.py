"""Accuracy at equal privacy: our planned models beside the ways in use, whose settings are tuned.

    python benchmarks/utility.py [--data FOLDER] [--only NAME] [--methods NAME] [--epsilons 0.1,1]

Neighbors add or remove a record, delta = 1e-5. Ours uses no tuning at all. The others choose the
best of a wide grid by their score on the test set (which flatters them), and are then run with five
other seeds (utility_peers.py):

- momentum: full batches under exact Gaussian composition, last iterate or mean of the second half;
- DP-SGD: Poisson batches under PLD composition, likewise;
- objective perturbation (Kifer, Smith and Thakurta 2012, Gaussian noise), two classes;
- AdaSSP (Wang 2018), regressions;
- diffprivlib's logistic regression, in an environment of its own (make bench-peers).

All but diffprivlib get the rows, constant feature and gradient bound of our models. Finished cells
are kept in benchmarks/results/utility.csv, so that the same command goes on where it stopped;
--again forgets what is stored of the cells that are asked for.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from utility_data import ROOT, Data, data_folder, data_sets
from utility_peers import (
    DELTA,
    MOMENTUM,
    PEER,
    PEERLIB,
    PEERS,
    SGD,
    Fit,
    Score,
    Setting,
    applies,
    scores_of,
)

from dplateau import __version__
from dplateau.errors import PoorPlanWarning, PrivacyLeakWarning
from dplateau.estimators import PrivateLogisticRegression, PrivateRidge

RESULTS = ROOT / "benchmarks" / "results" / "utility.csv"
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SEEDS = (0, 1, 2, 3, 4)
METHODS = ("ours", *PEERS)
FIELDS = ("data", "method", "epsilon", "seed", "score", "auc", "setting", "seconds", "version")


def ours(data: Data, epsilon: float, seed: int) -> Score:
    """Fit our estimator with its default parameters."""
    common: Any = {"epsilon": epsilon, "delta": DELTA, "data_norm": 1.0, "random_state": seed}
    if data.regression:
        model = PrivateRidge(target_bound=1.0, **common).fit(data.rows, data.targets)
        return data.score(model.predict(data.test_rows)[:, None])
    model = PrivateLogisticRegression(classes=list(range(data.classes)), **common)
    found = model.fit(data.rows, data.targets).decision_function(data.test_rows)
    return data.score(found if found.ndim == 2 else found[:, None])


def ours_at(
    method: str, data: Data, epsilons: Sequence[float], seeds: Sequence[int]
) -> Iterator[tuple[float, Setting, list[Fit]]]:
    """Yield, for each epsilon, our score with every seed."""
    for epsilon in epsilons:
        found = []
        for seed in seeds:
            began = time.perf_counter()
            score, auc = ours(data, epsilon, seed)
            found.append((score, auc, time.perf_counter() - began))
        yield epsilon, {}, found


def plain(data: Data) -> Score:
    """Return the score without privacy, on the same rows, with the best of a few penalties."""
    from sklearn.linear_model import LogisticRegression, Ridge

    if data.regression:
        fits = [Ridge(alpha=a).fit(data.rows, data.targets) for a in (1e-3, 0.1, 1.0, 10.0)]
        return max(data.score(fit.predict(data.test_rows)[:, None]) for fit in fits)
    fits = [LogisticRegression(C=c, max_iter=300) for c in (1, 10, 100, 1000)]
    found = (fit.fit(data.rows, data.targets).decision_function(data.test_rows) for fit in fits)
    return max(data.score(scores if scores.ndim == 2 else scores[:, None]) for scores in found)


# --- cells, kept as they are finished ------------------------------------------------------------


class Results:
    """Finished cells, in a CSV file that grows with each."""

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

    def forget(self, **key: object) -> None:
        """Drop the rows with these fields, in memory and on disk."""
        kept = [row for row in self.rows if any(row[k] != str(v) for k, v in key.items())]
        if len(kept) < len(self.rows):
            self.rows = kept
            with self.path.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(kept)

    def values(self, data: str, method: str, epsilon: object, field: str) -> list[float]:
        """Return a field of all seeds, as far as it is known."""
        key = (data, method, str(epsilon))
        rows = [r for r in self.rows if (r["data"], r["method"], r["epsilon"]) == key]
        return [float(row[field]) for row in rows if row[field]]

    def scores(self, data: str, method: str, epsilon: object) -> list[float]:
        """Return the scores of all seeds."""
        return self.values(data, method, epsilon, "score")


@dataclass(frozen=True)
class Comparison:
    """Our mean score at one epsilon beside the best mean among the others."""

    ours: float
    theirs: float
    best: str
    error: float

    @property
    def gap(self) -> float:
        """Return how far ours is ahead."""
        return self.ours - self.theirs

    @property
    def peer_ahead(self) -> bool:
        """Return whether the peer is ahead by more than the standard error of the difference."""
        return self.gap < -self.error


def standard_error(scores: list[float]) -> float:
    """Return the standard error of the mean."""
    return float(np.std(scores, ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else 0.0


def compared(results: Results, data: str, epsilon: float) -> Comparison | None:
    """Compare our mean with the best of the others, if both were measured.

    Cells without the two peers that know all data are not counted: being ahead there is cheap.
    """
    own = results.scores(data, "ours", epsilon)
    others = {method: results.scores(data, method, epsilon) for method in PEERS}
    others = {method: scores for method, scores in others.items() if scores}
    if not own or not {MOMENTUM, SGD} <= others.keys():
        return None
    best = max(others, key=lambda method: float(np.mean(others[method])))
    error = float(np.hypot(standard_error(own), standard_error(others[best])))
    return Comparison(float(np.mean(own)), float(np.mean(others[best])), best, error)


def cells(results: Results, data: Data, method: str, epsilons: list[float], *, again: bool) -> None:
    """Fill what is missing of one method."""
    if not applies(data, method) or (method == PEERLIB and not PEER.exists()):
        return
    missing = [
        epsilon
        for epsilon in epsilons
        if again
        or not all(
            results.has(data=data.name, method=method, epsilon=epsilon, seed=s) for s in SEEDS
        )
    ]
    find = ours_at if method == "ours" else scores_of
    for epsilon, setting, found in find(method, data, missing, SEEDS):
        results.forget(data=data.name, method=method, epsilon=epsilon)
        for seed, (score, auc, seconds) in zip(SEEDS, found, strict=True):
            results.add(data=data.name, method=method, epsilon=epsilon, seed=seed,
                        score=f"{score:.5f}", auc="" if auc is None else f"{auc:.5f}",
                        setting=json.dumps(setting) if setting else "",
                        seconds=f"{seconds:.2f}")  # fmt: skip


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
    parser.add_argument("--again", action="store_true", help="measure stored cells anew")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    # Seeds make the table repeatable, and these data are public.
    for category in (PrivacyLeakWarning, PoorPlanWarning):
        warnings.simplefilter("ignore", category)
    epsilons = [float(part) for part in chosen.epsilons.split(",")]
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
        for method in chosen.methods or METHODS:
            cells(results, data, method, epsilons, again=chosen.again)
            console.print(f"{name}: {method} done", style="dim")
    show(results, names, epsilons, console)


if __name__ == "__main__":
    main()
