"""Accuracy at equal privacy as a run gets longer: every iterate charged, or only the last.

    python benchmarks/run_length.py [--data FOLDER]

DP-SGD with ridge on the Adult data: nothing but the number of epochs changes, and the noise is the
least that proves the target. Finished cells are kept in benchmarks/results/run_length.csv.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from utility import SEEDS, Results
from utility_data import ROOT, Data, data_folder, from_file
from utility_peers import DELTA, model_for, with_constant

from dplateau.algorithms import LossGeometry, NoisySGD, Run
from dplateau.certificates import calibrate
from dplateau.engines import SeededRandomness, train

EPSILON = 0.1
EPOCHS = (3, 10, 30, 100, 300, 1000)
RIDGE = 1e-3
RESULTS = ROOT / "benchmarks" / "results" / "run_length.csv"
METHODS = {"every iterate charged": "all", "only the last iterate leaves": "last"}


def geometry_for(data: Data) -> LossGeometry:
    """Return the constants of one record's loss."""
    model = model_for(data)
    return model.loss.geometry(model.feature_norm * (1 + 1e-6), model.clip)


def accuracy(data: Data, run: Run, seed: int) -> float:
    """Train a run and return its accuracy on the test rows."""
    model = model_for(data)
    rows = with_constant(data.rows, model.intercept)
    weights = train(run, model.loss, rows, 2 * data.targets - 1, clip=model.clip,
                    feature_norm=model.feature_norm * (1 + 1e-6),
                    randomness=SeededRandomness(seed))  # fmt: skip
    return data.score((with_constant(data.test_rows, model.intercept) @ weights)[:, None])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    if not (chosen.data / "adult.npz").is_file():
        parser.error(f"{chosen.data} has no adult.npz; pass --data or set DPLATEAU_DATA")
    data, results = from_file(chosen.data, "adult"), Results(chosen.results)
    for epochs in EPOCHS:
        run = NoisySGD(
            n=len(data.targets), batch_size=1024, epochs=epochs, learning_rate=2.0, l2=RIDGE,
            noise_multiplier=1.0, loss=geometry_for(data), release="last",
        )  # fmt: skip
        for method, release in METHODS.items():
            setting = f"{epochs} epochs"
            if results.has(method=method, setting=setting):
                continue
            found = calibrate(run.replace(release=release), EPSILON, DELTA).run
            scores = [accuracy(data, found, seed) for seed in SEEDS]
            for seed, score in zip(SEEDS, scores, strict=True):
                results.add(data=data.name, method=method, epsilon=EPSILON, seed=seed,
                            score=f"{score:.5f}", setting=setting)  # fmt: skip
            print(f"{setting}, {method}: noise multiplier {found.noise_multiplier:.2f}, "
                  f"accuracy {np.mean(scores):.4f} ({np.std(scores):.4f})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
