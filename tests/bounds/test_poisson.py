"""Pieces of bounds for random batches: the cap on batch sizes, and plans that absorb a start."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplateau import LossGeometry, NoisySGD
from dplateau.algorithms import Run
from dplateau.bounds.batch_cap import batch_cap, cap_of, exceedance
from dplateau.bounds.shift_levels import SampledSteps, absorbs, shared_levels

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


@pytest.mark.parametrize("contraction", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("start", [0.01, 1.0, 30.0])
def test_plans_absorb_their_start_step_by_step(contraction: float, start: float) -> None:
    steps = SampledSteps(contraction, 0.05, 0.7, 60)
    levels = shared_levels(steps.largest_shift(start), 32)
    counts = steps.plan(start, levels)
    assert absorbs(steps, start, counts, levels)
    # Replay: the smaller shifts come first.
    distance = start
    for count, shift in zip(counts, (0.0, *levels), strict=True):
        for _ in range(int(count)):
            distance = max(0.0, contraction * distance - shift)
    assert distance <= 1e-9 * start
    # Rounding to levels costs little: the surrogate's own optimum is a lower bound on any plan.
    shifts = np.repeat(np.r_[0.0, levels], counts)
    drift = 0.05 * 0.7
    cost = float(np.sum(shifts**2 + 2 * drift * shifts))
    best = steps.surrogate_cost(start) - 60 * 0.05**2 * math.expm1(0.7**2)
    assert best * (1 - 1e-9) <= cost <= 1.05 * best + 1e-9
