"""A small network on handwritten digits, by per-record gradients, every accountant beside.

    python examples/two_layer_network.py [--epsilon 4] [--epochs 30] [--hidden 32]

Two layers in plain NumPy: tanh units and a softmax. The function ``gradients`` gives one gradient
for each record; the engine cuts each to length 1, draws the batches, adds the noise and takes the
steps. The loss is not convex, so what is certified is composition: the same claim holds if every
iterate is released, and checkpoints on the way cost nothing more. What a convex model with a ridge
gains by hiding its iterates stands in README.md.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits

from dplateau import LossGeometry, NoisySGD, calibrate, compare, train_gradient
from dplateau.ground.shown import rounded_up
from dplateau.ground.types import FloatArray, IntArray

DELTA, CLASSES = 1e-5, 10
Weights = dict[str, FloatArray]
Batch = tuple[FloatArray, IntArray]


def gradients(weights: Weights, batch: Batch) -> Weights:
    """Return the gradient of every record's cross entropy, by hand."""
    pixels, digits = batch
    hidden = np.tanh(pixels @ weights["in"] + weights["shift"])
    scores = hidden @ weights["out"]
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    slopes = chances - np.eye(CLASSES)[digits]
    back = (slopes @ weights["out"].T) * (1 - hidden**2)
    return {
        "in": pixels[:, :, None] * back[:, None, :],
        "shift": back,
        "out": hidden[:, :, None] * slopes[:, None, :],
    }


def predicted(weights: Weights, pixels: FloatArray) -> IntArray:
    """Return the most likely digit of every image."""
    hidden = np.tanh(pixels @ weights["in"] + weights["shift"])
    found: IntArray = (hidden @ weights["out"]).argmax(axis=1)
    return found


def start(hidden: int, seed: int = 0) -> Weights:
    """Return public weights to start from: random ones, since equal units would stay equal."""
    rng = np.random.default_rng(seed)
    return {
        "in": rng.normal(size=(64, hidden)) / 8,
        "shift": np.zeros(hidden),
        "out": np.zeros((hidden, CLASSES)),
    }


def data() -> tuple[Batch, Batch]:
    """Return images with entries between -1 and 1, and their digits: 1500 to train, 297 to test."""
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(digits))
    pixels, digits = images[order] / 8 - 1, digits[order]
    return (pixels[:1500], digits[:1500]), (pixels[1500:], digits[1500:])


def main() -> None:
    """Describe, calibrate, account, train and test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--hidden", type=int, default=32)
    chosen = parser.parse_args()
    records, (unseen, truth) = data()
    described = NoisySGD(
        n=len(records[1]),
        batch_size=250,
        epochs=chosen.epochs,
        learning_rate=4.0,
        momentum=0.5,
        noise_multiplier=1.0,
        loss=LossGeometry(lipschitz=1.0, convex=False),
        release="all",
    )
    run = calibrate(described, epsilon=chosen.epsilon, delta=DELTA).run
    print(f"{run.steps} steps with noise multiplier {run.noise_multiplier:.3f}")
    for row in compare(run, DELTA).rows:
        if row.epsilon is not None:
            print(f"  {row.title:<25} epsilon {rounded_up(row.epsilon):>8}")
    found = train_gradient(run, gradients, records, start=start(chosen.hidden))
    right = float(np.mean(predicted(found, unseen) == truth))
    print(f"{right:.1%} of {len(truth)} digits that were not trained on are right")


if __name__ == "__main__":
    main()
