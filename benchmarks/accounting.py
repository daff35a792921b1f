"""Time our accounting beside dp-accounting's, in one run, and print the ratios.

    python benchmarks/accounting.py [--repeats 3]

Every number is measured here. Where a peer would take minutes its total is estimated from a few
points, and the table says so.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import dp_accounting as dpa
import numpy as np
from rich.console import Console
from rich.table import Table

from dplateau import LossGeometry, NoisySGD, calibrate, certify, epsilon_over_steps
from dplateau.algorithms import Run
from dplateau.bounds.registry import bound_named

DELTA = 1e-5
RELEASED = NoisySGD(n=60_000, batch_size=256, steps=14_062, noise_multiplier=1.1, release="all")
HIDDEN = NoisySGD(
    n=60_000,
    sampling_rate=0.01,
    steps=5000,
    learning_rate=2.0,
    l2=0.005,
    noise_multiplier=1.0,
    loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
    release="last",
)
LENGTHS = np.geomspace(1, 10**6, 1000).round().astype(np.int64)
PEER_POINTS = 10


def median_seconds(call: Callable[[], float], repeats: int) -> tuple[float, float]:
    """Return the median time of ``repeats`` calls after one to warm up, and the last result."""
    value = call()
    times = []
    for _ in range(repeats):
        forget_compositions()
        start = time.perf_counter()
        value = call()
        times.append(time.perf_counter() - start)
    return statistics.median(times), value


def forget_compositions() -> None:
    """Empty the caches, so that a repeated call does its work again."""
    from dplateau.bounds import fixed_size
    from dplateau.curves import composed
    from dplateau.shifts import blocks

    composed._composed_family.cache_clear()
    composed._composed.cache_clear()
    fixed_size._law.cache_clear()
    blocks._even_law.cache_clear()


def event(run: Run, noise: float | None = None, steps: int | None = None) -> dpa.DpEvent:
    z = run.noise_multiplier if noise is None else noise
    step = dpa.PoissonSampledDpEvent(run.sampling_rate, dpa.GaussianDpEvent(z))
    return dpa.SelfComposedDpEvent(step, steps or run.steps)


def peer_pld(run: Run, steps: int | None = None) -> float:
    accountant = dpa.pld.PLDAccountant().compose(event(run, steps=steps))
    return float(accountant.get_epsilon(DELTA))


def peer_rdp(run: Run, steps: int | None = None) -> float:
    accountant = dpa.rdp.RdpAccountant().compose(event(run, steps=steps))
    return float(accountant.get_epsilon(DELTA))


def peer_calibration(run: Run) -> float:
    return float(
        dpa.calibrate_dp_mechanism(
            dpa.pld.PLDAccountant, lambda noise: event(run, noise=noise), 1.0, DELTA
        )
    )


def peer_curve(run: Run, epsilon: Callable[..., float]) -> float:
    """Return the estimated time of a call per length, from a few of them."""
    chosen = LENGTHS[np.linspace(0, LENGTHS.size - 1, PEER_POINTS).astype(int)]
    start = time.perf_counter()
    for steps in chosen:
        epsilon(run, steps=int(steps))
    return (time.perf_counter() - start) * LENGTHS.size / PEER_POINTS


def ours(run: Run, bound: str) -> float:
    return certify(run, DELTA, bounds=[bound_named(bound)]).claimed_epsilon


_ASKED = itertools.count(1)


def fresh(run: Run) -> Run:
    """Return the run with a noise that was not asked about before: nothing is remembered of it."""
    noise = run.noise_multiplier
    assert isinstance(noise, float)
    return run.replace(noise_multiplier=noise * (1 + 1e-7 * next(_ASKED)))


def our_curve(run: Run, bound: str) -> float:
    return float(epsilon_over_steps(run, DELTA, LENGTHS, bounds=[bound_named(bound)]).best[-1])


Row = tuple[str, float, float, float, float | None, str]


def rows(repeats: int) -> Iterator[Row]:
    """Yield (what, our seconds, our value, peer's seconds, peer's value, remark)."""

    def timed(call: Callable[[], float]) -> tuple[float, float]:
        return median_seconds(call, repeats)

    yield (
        "epsilon, PLD composition",
        *timed(lambda: ours(fresh(RELEASED), "pld_composition")),
        *timed(lambda: peer_pld(RELEASED)),
        "n=60000, b=256, z=1.1, T=14062",
    )
    yield (
        "epsilon, RDP composition",
        *timed(lambda: ours(RELEASED, "rdp_composition")),
        *timed(lambda: peer_rdp(RELEASED)),
        "the same run",
    )
    yield (
        "noise for epsilon 1, PLD",
        *timed(
            lambda: calibrate(RELEASED, 1.0, DELTA, bounds=[bound_named("pld_composition")]).value
        ),
        *timed(lambda: peer_calibration(RELEASED)),
        "the same run",
    )
    yield (
        "epsilon(T), 1000 lengths, RDP",
        *timed(lambda: our_curve(RELEASED, "rdp_composition")),
        peer_curve(RELEASED, peer_rdp),
        None,
        f"peer estimated from {PEER_POINTS} lengths",
    )
    yield (
        "epsilon(T), 1000 lengths, PLD",
        *timed(lambda: our_curve(RELEASED, "pld_composition")),
        peer_curve(RELEASED, peer_pld),
        None,
        f"peer estimated from {PEER_POINTS} lengths",
    )
    yield (
        "hidden state: certificate",
        *timed(lambda: certify(fresh(HIDDEN), DELTA).claimed_epsilon),
        *timed(lambda: peer_pld(HIDDEN)),
        "peer: composition of the same run",
    )
    yield (
        "hidden state: noise for epsilon 1",
        *timed(lambda: calibrate(fresh(HIDDEN), 1.0, DELTA).value),
        *timed(lambda: peer_calibration(HIDDEN)),
        "peer: composition of the same run",
    )
    yield (
        "hidden state: epsilon(T), 1000 lengths",
        *timed(lambda: our_curve(fresh(HIDDEN), "poisson_blocks")),
        peer_curve(HIDDEN, peer_pld),
        None,
        "peer: composition, estimated",
    )

    yield (
        "hidden state: smallest ridge for epsilon .5",
        *timed(lambda: calibrate(fresh(HIDDEN), 0.5, DELTA, vary="l2").value),
        *timed(lambda: peer_calibration(HIDDEN)),
        "peer: noise by composition",
    )
    certificate = certify(HIDDEN, DELTA)
    yield (
        "hidden state: verification",
        *timed(lambda: certificate.verify().rederived_epsilon or math.inf),
        *timed(lambda: peer_pld(HIDDEN)),
        "peer: composition of the same run",
    )


def import_seconds(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return float(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    table = Table(title=f"warm medians of {repeats}, delta = {DELTA:g}")
    for name in (
        "what",
        "ours, s",
        "value",
        "dp-accounting, s",
        "value",
        "ratio of times",
        "remark",
    ):
        table.add_column(name, justify="left" if name in ("what", "remark") else "right")
    console = Console(width=150)
    for what, seconds, value, peer_seconds, peer_value, remark in rows(repeats):
        shown = "" if peer_value is None else f"{peer_value:.4f}"
        table.add_row(
            what,
            f"{seconds:.3f}",
            f"{value:.4f}",
            f"{peer_seconds:.3f}",
            shown,
            f"{peer_seconds / seconds:.1f}",
            remark,
        )
        console.print(f"measured: {what}", style="dim")
    console.print(table)
    console.print(
        f"import dplateau: {import_seconds('dplateau'):.3f} s; "
        f"import dp_accounting: {import_seconds('dp_accounting'):.3f} s"
    )


if __name__ == "__main__":
    main()
