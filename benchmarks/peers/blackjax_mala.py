"""Draw from the benchmark's potential with blackjax; draws go to a file, times are printed."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

rows, labels, steps, chains, rate, ridge, heat, path = json.loads(sys.stdin.read())
rows, labels = jnp.array(rows), jnp.array(labels)


def log_density(w):
    loss = jnp.mean(jnp.logaddexp(0.0, -labels * (rows @ w)))
    return -heat * (loss + ridge * w @ w / 2)


def chain(kernel):
    @jax.jit
    def run(keys, start):
        def one(state, key):
            state, _ = jax.vmap(kernel.step)(jax.random.split(key, chains), state)
            return state, state.position

        return jax.lax.scan(one, jax.vmap(kernel.init)(start), keys)[1]

    return run


kernels = {
    "MALA": blackjax.mala(log_density, rate / heat),
    "NUTS": blackjax.nuts(log_density, 0.5 * (rate / heat) ** 0.5, jnp.ones(rows.shape[1])),
}
found, draws = {}, {}
for name, kernel in kernels.items():
    run, count = chain(kernel), steps if name == "MALA" else max(50, steps // 10)
    keys = jax.random.split(jax.random.key(0), count)
    start = jnp.zeros((chains, rows.shape[1]))
    run(keys, start).block_until_ready()
    begin, used = time.perf_counter(), time.process_time()
    kept = run(keys, start).block_until_ready()
    found[name] = {
        "wall": time.perf_counter() - begin,
        "cpu": time.process_time() - used,
        "version": importlib.metadata.version("blackjax"),
    }
    draws[name] = np.asarray(kept)
np.savez(path, **draws)
print(json.dumps(found))
