"""Steps per second of our sampler beside JAX samplers on the same potential, in one run.

    python benchmarks/sampling.py [--steps 2000] [--quick]

The potential is the ridge-regularized logistic loss of 200 records. Peers run in an environment of
their own (`make bench-peers`, or name its Python in PEERS_PYTHON): blackjax's MALA and SGLD
kernels, and a hand-written projected Langevin step under lax.scan. Compilation is not counted for
anybody. Our numbers include the projection; blackjax has none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from dplateau import Ball, LangevinSampler, Potential
from dplateau.losses import Logistic

ROOT = Path(__file__).resolve().parents[1]
RECORDS = 200
RATE, RIDGE, HEAT, RADIUS = 0.05, 0.01, 200.0, 5.0

PEER = """
import json, sys, time
import jax, jax.numpy as jnp
import numpy as np

rows, labels, steps, chains, rate, ridge, heat, radius = json.loads(sys.stdin.read())
rows, labels = jnp.array(rows), jnp.array(labels)
size = rows.shape[1]

def log_density(w):
    loss = jnp.mean(jnp.logaddexp(0.0, -labels * (rows @ w)))
    return -heat * (loss + ridge * w @ w / 2)

grad = jax.grad(log_density)

def timed(run):
    keys = jax.random.split(jax.random.key(0), steps)
    start = jnp.zeros((chains, size))
    run(keys, start)[0].block_until_ready()
    begin = time.perf_counter()
    run(keys, start)[0].block_until_ready()
    return steps * chains / (time.perf_counter() - begin)

@jax.jit
def projected(keys, start):
    def one(w, key):
        noise = jax.random.normal(key, w.shape) * jnp.sqrt(2 * rate / heat)
        w = w + rate / heat * jax.vmap(grad)(w) + noise
        norm = jnp.linalg.norm(w, axis=1, keepdims=True)
        w = jnp.where(norm > radius, w * radius / norm, w)
        return w, w
    return jax.lax.scan(one, start, keys)

found = {"JAX, hand-written projected Langevin": timed(projected)}
try:
    import blackjax
except ImportError:
    pass
else:
    mala = blackjax.mala(log_density, rate / heat)

    @jax.jit
    def with_mala(keys, start):
        def one(state, key):
            state, _ = jax.vmap(mala.step)(jax.random.split(key, chains), state)
            return state, state.position
        state, kept = jax.lax.scan(one, jax.vmap(mala.init)(start), keys)
        return state.position, kept

    found["blackjax MALA"] = timed(with_mala)
    sgld = blackjax.sgld(lambda w, batch: grad(w))

    @jax.jit
    def with_sgld(keys, start):
        def one(w, key):
            step = lambda k, x: sgld.step(k, x, 0.0, rate / heat)
            w = jax.vmap(step)(jax.random.split(key, chains), w)
            return w, w
        return jax.lax.scan(one, start, keys)

    found["blackjax SGLD kernel, full gradient"] = timed(with_sgld)
print(json.dumps(found))
"""


def problem(size: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((RECORDS, size))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    return rows, np.where(rows[:, 0] + 0.3 * generator.standard_normal(RECORDS) > 0, 1.0, -1.0)


def ours(size: int, chains: int, steps: int) -> float:
    """Return chain steps per second, every iterate kept."""
    potential = Potential.from_loss(Logistic(), *problem(size), feature_norm=1.0)
    sampler = LangevinSampler.of(
        potential,
        Ball(RADIUS),
        steps=steps,
        learning_rate=RATE,
        l2=RIDGE,
        inverse_temperature=HEAT,
        release="all",
    )
    state = sampler.init(np.zeros((chains, size)))
    sampler.collect(np.random.default_rng(1), state, 10)
    begin = time.perf_counter()
    sampler.collect(np.random.default_rng(0), state, steps)
    return steps * chains / (time.perf_counter() - begin)


def peer_pythons() -> list[Path]:
    stated = os.environ.get("PEERS_PYTHON")
    places = [f".venv-peers-{name}/bin/python" for name in ("blackjax", "jax")]
    found = [Path(stated)] if stated else [ROOT / place for place in places]
    return [path for path in found if path.exists()]


def peers(size: int, chains: int, steps: int) -> dict[str, float]:
    rows, labels = problem(size)
    sent = [rows.tolist(), labels.tolist(), steps, chains, RATE, RIDGE, HEAT, RADIUS]
    for python in peer_pythons()[:1]:
        done = subprocess.run(
            [str(python), "-c", PEER],
            input=json.dumps(sent),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"},
        )
        if done.returncode == 0:
            answer: dict[str, float] = json.loads(done.stdout)
            return answer
        return {f"failed: {done.stderr.strip().splitlines()[-1][:60]}": float("nan")}
    return {"JAX and blackjax: not installed (make bench-peers)": float("nan")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="one size only")
    chosen = parser.parse_args()
    sizes = [(10, 64)] if chosen.quick else [(2, 1), (10, 1), (10, 64), (10, 1024), (100, 64)]
    table = Table(title="chain steps per second (double precision, full gradients)")
    for name in ("dimension", "chains", "sampler", "steps / s", "ours / theirs"):
        table.add_column(name, justify="left" if name == "sampler" else "right")
    for size, chains in sizes:
        steps = max(50, min(chosen.steps, chosen.steps * 64 // chains))
        mine = ours(size, chains, steps)
        table.add_row(str(size), str(chains), "dplateau (NumPy)", f"{mine:,.0f}", "")
        for name, rate in peers(size, chains, steps).items():
            known = rate == rate
            shown = (f"{rate:,.0f}", f"{mine / rate:.2f}") if known else ("-", "-")
            table.add_row(str(size), str(chains), name, *shown)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
