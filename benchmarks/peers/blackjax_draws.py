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

rows, labels, steps, chains, rates, ridge, heat, path = json.loads(sys.stdin.read())
rows, labels = jnp.array(rows), jnp.array(labels)
start = jnp.zeros((chains, rows.shape[1]))


def log_density(w):
    loss = jnp.mean(jnp.logaddexp(0.0, -labels * (rows @ w)))
    return -heat * (loss + ridge * w @ w / 2)


def chain(kernel):
    @jax.jit
    def run(keys):
        def one(state, key):
            state, _ = jax.vmap(kernel.step)(jax.random.split(key, chains), state)
            return state, state.position

        return jax.lax.scan(one, jax.vmap(kernel.init)(start), keys)[1]

    return run


def adapted():
    """Return NUTS with step and scales found by blackjax's own warm-up, which is not timed."""
    warm_up = blackjax.window_adaptation(blackjax.nuts, log_density)
    (_, parameters), _ = warm_up.run(jax.random.key(1), start[0], 300)
    return blackjax.nuts(log_density, **parameters), float(parameters["step_size"])


kernels = {
    f"MALA {rate:g}": (blackjax.mala(log_density, rate / heat), rate, steps) for rate in rates
}
kernels["NUTS"] = (*adapted(), max(50, steps // 10))
found, draws = {}, {}
for name, (kernel, rate, count) in kernels.items():
    run, keys = chain(kernel), jax.random.split(jax.random.key(0), count)
    run(keys).block_until_ready()
    begin, used = time.perf_counter(), time.process_time()
    kept = run(keys).block_until_ready()
    found[name] = {
        "wall": time.perf_counter() - begin,
        "cpu": time.process_time() - used,
        "rate": rate,
        "version": importlib.metadata.version("blackjax"),
    }
    draws[name] = np.asarray(kept).swapaxes(0, 1)  # chains, steps, coordinates
np.savez(path, **draws)
print(json.dumps(found))
