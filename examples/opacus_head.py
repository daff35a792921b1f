"""A linear head on a frozen network, trained by Opacus, PyTorch or JAX: two epsilons each.

    python examples/opacus_head.py [--trainer opacus|torch|jax] [--epochs 40]

The network is public and frozen, so its features are a public function of one image at a time; only
the head sees private data. Everyone's accountant charges for each iterate of it. The ridge makes
steps contract, only the last weights leave, and the second epsilon says what that is worth.

"opacus" trains with its PrivacyEngine; "torch" and "jax" hand ``vmap`` of their gradients to
``train_gradient``, which clips, adds noise and samples. All three do the same steps.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from dplateau import Certificate, LossGeometry, NoisySGD, certify, train_gradient
from dplateau.ground.types import FloatArray

WIDTH, BATCH, NOISE, CLIP = 64, 200, 5.0, 1.0
LEARNING_RATE, RIDGE, DELTA = 0.5, 0.05, 1e-5
Trained = tuple[FloatArray, FloatArray, float, Certificate]


def features(seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return what a frozen random network makes of 1797 handwritten digits, and who is above 4.

    Every row of features is scaled down to norm 1 on its own.
    """
    images, digits = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=(64, WIDTH)) / 8.0
    seen = 2.0 * np.maximum((images / 16.0 - 0.3) @ weights, 0.0)
    shares = np.minimum(1.0, (1 - 1e-6) / np.linalg.norm(seen, axis=1, keepdims=True))
    return (seen * shares).astype(np.float32), (digits > 4).astype(np.int64)


def by_opacus(rows: FloatArray, targets: FloatArray, epochs: int) -> Trained:
    """Train with Opacus under our accountant."""
    import torch
    from opacus import PrivacyEngine
    from torch import nn

    from dplateau.opacus import BoundedRows, certify_head

    data = torch.utils.data.TensorDataset(torch.from_numpy(rows), torch.from_numpy(targets))
    head = nn.Sequential(BoundedRows(1.0), nn.Linear(rows.shape[1], 2))
    nn.init.zeros_(head[1].weight)
    nn.init.zeros_(head[1].bias)
    criterion = nn.CrossEntropyLoss()
    engine = PrivacyEngine(accountant="dplateau")
    module, optimizer, loader = engine.make_private(
        module=head,
        optimizer=torch.optim.SGD(head.parameters(), lr=LEARNING_RATE, weight_decay=RIDGE),
        data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
    )
    for _ in range(epochs):
        for batch, there in loader:
            optimizer.zero_grad()
            criterion(module(batch), there).backward()
            optimizer.step()
    hidden = certify_head(
        engine,
        module=module,
        data_loader=loader,
        criterion=criterion,
        delta=DELTA,
        release="last",
    )
    weights, bias = head[1].weight.detach().numpy(), head[1].bias.detach().numpy()
    return weights, bias, engine.accountant.beside(DELTA).opacus, hidden


def by_gradient(
    rows: FloatArray, targets: FloatArray, epochs: int, gradient: Callable[..., Any], of: Any
) -> Trained:
    """Train with our engine and gradients of another library; ``of`` makes its arrays."""
    # |(x, 1)|^2 <= 2, so gradients of the two scores are never longer than 2: nothing is clipped.
    loss = LossGeometry(lipschitz=2.0, convex=True, smoothness=1.0)
    run = NoisySGD(
        n=len(rows),
        batch_size=BATCH,
        steps=epochs * math.ceil(len(rows) / BATCH),
        learning_rate=LEARNING_RATE,
        l2=RIDGE,
        noise_multiplier=NOISE,
        loss=loss,
        release="last",
    )
    start = {"weight": of(np.zeros((2, WIDTH), np.float32)), "bias": of(np.zeros(2, np.float32))}
    found = train_gradient(run, gradient, (of(rows), of(targets)), start=start, never_clips=True)
    released = certify(run.replace(release="all"), DELTA).claimed_epsilon
    weights, bias = np.asarray(found["weight"]), np.asarray(found["bias"])
    return weights, bias, released, certify(run, DELTA)


def by_torch(rows: FloatArray, targets: FloatArray, epochs: int) -> Trained:
    """Train with per-record gradients of PyTorch."""
    import torch

    def loss(weights: Any, record: Any) -> Any:
        row, target = record
        scores = weights["weight"] @ row + weights["bias"]
        return torch.logsumexp(scores, 0) - torch.where(target == 1, scores[1], scores[0])

    gradient = torch.func.vmap(torch.func.grad(loss), (None, 0))
    return by_gradient(rows, targets, epochs, gradient, torch.from_numpy)


def by_jax(rows: FloatArray, targets: FloatArray, epochs: int) -> Trained:
    """Train with per-record gradients of JAX."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, record: Any) -> Any:
        row, target = record
        scores = weights["weight"] @ row + weights["bias"]
        return jax.nn.logsumexp(scores) - scores[target]

    gradient = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))
    return by_gradient(rows, targets, epochs, gradient, jnp.asarray)


TRAINERS = {"opacus": by_opacus, "torch": by_torch, "jax": by_jax}


def accuracy(rows: FloatArray, targets: FloatArray, weights: FloatArray, bias: FloatArray) -> float:
    """Return the share of rows that the head puts on the right side."""
    return float(np.mean((rows @ weights.T + bias).argmax(axis=1) == targets))


def main() -> None:
    """Train on two thirds of the digits and show both epsilons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainer", choices=TRAINERS, default="opacus")
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    rows, targets = features()
    weights, bias, released, hidden = TRAINERS[options.trainer](
        rows[:1200], targets[:1200], options.epochs
    )
    share = accuracy(rows[1200:], targets[1200:], weights, bias)
    print(f"{hidden.run.steps} steps by {options.trainer}, accuracy {share:.3f} on 597 digits")
    print(f"epsilon if every iterate leaves:  {released:.3f}")
    print(f"epsilon if only the last one does: {hidden.claimed_epsilon:.3f}  ({hidden})")


if __name__ == "__main__":
    main()
