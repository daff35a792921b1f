"""Train the same private logistic regression with one trainer; prints one line of JSON.

    python benchmarks/peers/trainers.py NAME DATA.npz SETTINGS

Every trainer runs in a process of its own, so that peak memory and processor seconds are its own.
"""

from __future__ import annotations

import importlib.metadata
import json
import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np


def dplateau(rows, signs, settings):
    from dplateau import NoisySGD, train
    from dplateau.losses import Logistic

    loss = Logistic()

    def call(steps):
        run = NoisySGD(
            n=len(rows),
            batch_size=settings["batch"],
            steps=steps,
            learning_rate=settings["rate"],
            l2=settings["ridge"],
            noise_multiplier=settings["noise"],
            loss=loss.geometry(1.0),
            release="last",
        )
        return train(run, loss, rows, signs, feature_norm=1.0)

    return "dplateau", call


def numpy(rows, signs, settings):
    answers = signs.astype(np.float32)
    n, batch = len(rows), settings["batch"]

    def call(steps):
        rng = np.random.default_rng()
        weights = np.zeros(rows.shape[1], np.float32)
        for _ in range(steps):
            chosen = rng.choice(n, rng.binomial(n, batch / n), replace=False)
            part, there = rows[chosen], answers[chosen]
            slopes = -there / (1 + np.exp(there * (part @ weights)))
            norms = np.abs(slopes) * np.sqrt(np.einsum("ij,ij->i", part, part))
            slopes *= np.minimum(1, 1 / np.maximum(norms, 1e-12))
            noise = rng.standard_normal(weights.size, dtype=np.float32)
            noisy = slopes @ part + settings["noise"] * noise
            weights -= settings["rate"] * (noisy / batch + settings["ridge"] * weights)
        return weights

    return "numpy", call


def opacus(rows, signs, settings):
    import torch
    from opacus import PrivacyEngine

    torch.set_num_threads(1)
    data = torch.utils.data.TensorDataset(
        torch.from_numpy(rows), torch.from_numpy((signs > 0).astype(np.float32))[:, None]
    )

    def call(steps):
        model = torch.nn.Linear(rows.shape[1], 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=settings["rate"], weight_decay=settings["ridge"]
        )
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            data_loader=torch.utils.data.DataLoader(data, batch_size=settings["batch"]),
            noise_multiplier=settings["noise"],
            max_grad_norm=1.0,
        )
        criterion, done = torch.nn.BCEWithLogitsLoss(), 0
        while done < steps:
            for batch, there in loader:
                optimizer.zero_grad()
                criterion(model(batch), there).backward()
                optimizer.step()
                done += 1
                if done == steps:
                    break
        return model._module.weight.detach().numpy()[0]

    return "opacus", call


def jax_privacy(rows, signs, settings):
    import jax
    import jax.numpy as jnp
    from jax_privacy import batch_selection, clipping

    n, batch = len(rows), settings["batch"]
    features, answers = jnp.asarray(rows), jnp.asarray(signs, dtype=jnp.float32)

    def loss(weights, row, sign):
        return jax.nn.softplus(-sign[0] * (row[0] @ weights))

    gradient = jax.jit(
        clipping.clipped_grad(
            loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=float(batch)
        )
    )

    def call(steps):
        key, rng = jax.random.key(0), np.random.default_rng()
        weights = jnp.zeros(rows.shape[1])
        sampling = batch_selection.CyclicPoissonSampling(sampling_prob=batch / n, iterations=steps)
        for chosen in sampling.batch_iterator(n, rng):
            padded = batch_selection.pad_to_multiple_of(chosen, 32)
            there = jnp.where(padded >= 0, 1.0, 0.0)[:, None]
            part = features[padded] * there
            key, fresh = jax.random.split(key)
            noise = settings["noise"] / batch * jax.random.normal(fresh, weights.shape)
            step = gradient(weights, part, answers[padded]) + noise
            weights = weights - settings["rate"] * (step + settings["ridge"] * weights)
        return np.asarray(weights)

    return "jax-privacy", call


def jax(rows, signs, settings):
    import jax
    import jax.numpy as jnp

    n, batch = len(rows), settings["batch"]
    slots = int(batch + 6 * batch**0.5)
    features, answers = jnp.asarray(rows), jnp.asarray(signs, dtype=jnp.float32)

    @jax.jit
    def scan(chosen, there, key):
        def one(weights, given):
            places, mask, key = given
            part, sign = features[places], answers[places]
            slopes = -sign * jax.nn.sigmoid(-sign * (part @ weights))
            norms = jnp.abs(slopes) * jnp.linalg.norm(part, axis=1)
            slopes = slopes * jnp.minimum(1.0, 1.0 / jnp.maximum(norms, 1e-12)) * mask
            noise = settings["noise"] * jax.random.normal(key, weights.shape)
            noisy = (slopes @ part + noise) / batch
            return weights - settings["rate"] * (noisy + settings["ridge"] * weights), None

        start = jnp.zeros(features.shape[1])
        return jax.lax.scan(one, start, (chosen, there, key))[0]

    def call(steps):
        rng = np.random.default_rng()
        chosen, there = np.zeros((steps, slots), np.int32), np.zeros((steps, slots), np.float32)
        for t in range(steps):
            places = rng.choice(n, min(rng.binomial(n, batch / n), slots), replace=False)
            chosen[t, : len(places)], there[t, : len(places)] = places, 1.0
        return np.asarray(scan(chosen, there, jax.random.split(jax.random.key(0), steps)))

    return "jax", call


TRAINERS = {
    "dplateau": dplateau,
    "NumPy": numpy,
    "Opacus": opacus,
    "jax-privacy": jax_privacy,
    "JAX scan": jax,
}


def peak() -> float:
    """Return the largest memory of this process in megabytes (Linux: not that of its parent)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    found, settings = np.load(sys.argv[2]), json.loads(sys.argv[3])
    rows, signs = found["rows"], found["signs"]
    package, call = TRAINERS[sys.argv[1]](rows, signs, settings)
    steps = settings["steps"]
    begun = time.perf_counter()
    call(steps)  # compiles what has to be compiled, for this number of steps
    first = time.perf_counter() - begun
    wall, processor = [], []
    for _ in range(settings["repeats"]):
        start, used = time.perf_counter(), time.process_time()
        weights = call(steps)
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    right = float(np.mean(np.sign(rows @ weights) == signs))
    answer = {
        "version": importlib.metadata.version(package),
        "examples_per_second": settings["batch"] * steps / statistics.median(wall),
        "first": first,
        "wall": wall,
        "cpu": processor,
        "memory": peak(),
        "accuracy": right,
    }
    print(json.dumps(answer))


main()
