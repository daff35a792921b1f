"""The cap on the sizes of random batches."""

from __future__ import annotations

import math

from dplateau import LossGeometry, NoisySGD
from dplateau.algorithms import Run
from dplateau.bounds.step_maps import batch_cap, cap_of, exceedance

DELTA = 1e-5


def ridge_run(c: float, q: float, z: float, steps: int) -> Run:
    return NoisySGD(
        n=60_000,
        sampling_rate=q,
        steps=steps,
        learning_rate=2.0,
        l2=(1 - c) / 2,
        noise_multiplier=float(z),
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
        release="last",
    )


def test_batch_cap_bounds_the_tail() -> None:
    run = ridge_run(0.99, 0.01, 1.0, 5000)
    cap = batch_cap(run, DELTA)
    assert cap.records >= run.batch_size
    assert cap.extra_delta <= 1e-4 * DELTA
    # Between the first term of the tail and the Chernoff bound, both computed here.
    for records in (690, 700, 760):
        share = (records + 1) / run.n
        rate = share * math.log(share / 0.01) + (1 - share) * math.log((1 - share) / 0.99)
        chernoff = run.steps * math.exp(-run.n * rate)
        log_first = math.lgamma(run.n + 1) - math.lgamma(records + 2) - math.lgamma(run.n - records)
        log_first += (records + 1) * math.log(0.01) + (run.n - records - 1) * math.log(0.99)
        first = run.steps * math.exp(log_first) * (1 - 1e-6)
        assert first <= exceedance(run, records) <= chernoff
    assert cap_of(run, run.n).extra_delta == 0.0
