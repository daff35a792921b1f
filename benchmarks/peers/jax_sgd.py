"""Train the benchmark's logistic regression in one compiled JAX scan; prints one line of JSON.

Batches are drawn beforehand by coins and padded to one size with a mask, as a compiled loop needs.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np


def padded_batches(rng, n, settings):
    """Return row numbers and a mask, one line per step."""
    q = settings["batch"] / n
    width = int(settings["batch"] + 6 * settings["batch"] ** 0.5)
    chosen = np.zeros((settings["steps"], width), np.int32)
    used = np.zeros((settings["steps"], width), np.float32)
    for step in range(settings["steps"]):
        batch = rng.choice(n, min(width, rng.binomial(n, q)), replace=False)
        chosen[step, : batch.size], used[step, : batch.size] = batch, 1
    return chosen, used


def main():
    found, settings = np.load(sys.argv[1]), json.loads(sys.argv[2])
    rows = jnp.asarray(found["rows"])
    signs = jnp.asarray(found["signs"].astype(np.float32))
    n, d = rows.shape

    def one_gradient(weights, row, sign):
        return jax.grad(lambda w: jnp.logaddexp(0.0, -sign * (row @ w)))(weights)

    def step(state, batch):
        weights, key = state
        chosen, used = batch
        gradients = jax.vmap(one_gradient, (None, 0, 0))(weights, rows[chosen], signs[chosen])
        norms = jnp.linalg.norm(gradients, axis=1)
        scales = used * jnp.minimum(1, 1 / jnp.maximum(norms, 1e-12))
        key, fresh = jax.random.split(key)
        noisy = scales @ gradients + settings["noise"] * jax.random.normal(fresh, (d,))
        moved = noisy / settings["batch"] + settings["ridge"] * weights
        return (weights - settings["rate"] * moved, key), None

    @jax.jit
    def scan(key, chosen, used):
        return jax.lax.scan(step, (jnp.zeros(d), key), (chosen, used))[0][0]

    rng, times = np.random.default_rng(), []
    for repeat in range(settings["repeats"] + 1):
        start = time.perf_counter()
        weights = scan(jax.random.key(repeat), *padded_batches(rng, n, settings))
        weights.block_until_ready()
        times.append(time.perf_counter() - start)
    right = float((jnp.sign(rows @ weights) == signs).mean())
    speed = settings["batch"] * settings["steps"] / statistics.median(times[1:])
    print(json.dumps({"examples_per_second": speed, "accuracy": right}))


main()
