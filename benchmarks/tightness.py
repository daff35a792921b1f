"""Print how close the main theorem is to the exact privacy loss of one admissible problem.

python benchmarks/tightness.py
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from dplateau import LossGeometry, NoisySGD, certify
from dplateau.audit import lower_bound
from dplateau.bounds.registry import bound_named

DELTA = 1e-5
SETTINGS = [
    (0.99, 0.01, 1.0, 5_000),
    (0.99, 0.01, 2.0, 20_000),
    (0.95, 0.05, 2.0, 2_000),
    (0.995, 0.02, 4.0, 20_000),
    (0.9, 0.1, 2.0, 1_000),
    (0.98, 0.1, 5.0, 5_000),
    (0.999, 0.01, 4.0, 50_000),
]
BOUNDS = ("pld_composition", "poisson_plain", "poisson_high_probability", "poisson_averaged")


def ridge_run(c: float, q: float, z: float, steps: int) -> NoisySGD:
    return NoisySGD(
        n=60_000,
        sampling_rate=q,
        steps=steps,
        learning_rate=2.0,
        l2=(1 - c) / 2,
        noise_multiplier=z,
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
        release="last",
    )


def main() -> None:
    table = Table(title=f"epsilon at delta = {DELTA:g}")
    for name in ("c", "q", "z", "T", *BOUNDS, "lower", "averaged / lower"):
        table.add_column(name, justify="right")
    for setting in SETTINGS:
        run = ridge_run(*setting)
        claims = [certify(run, DELTA, bounds=[bound_named(b)]).claimed_epsilon for b in BOUNDS]
        lower = lower_bound(run, DELTA).epsilon
        shown = [f"{value:.4f}" for value in (*claims, lower)]
        table.add_row(*(f"{v:g}" for v in setting), *shown, f"{claims[-1] / lower:.3f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
