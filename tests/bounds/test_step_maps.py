"""The cap on the sizes of random batches."""

from __future__ import annotations

import math

import pytest

from dplateau import LossGeometry, NoisySGD
from dplateau.algorithms import Run
from dplateau.bounds.step_maps import batch_cap, cap_of, exceedance, shortfall
from dplateau.verify.precise import binomial_tail

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


@pytest.mark.parametrize("n", [10**4, 10**6, 10**9, 10**10, 10**12])
@pytest.mark.parametrize("deviations", [3.0, 6.5, 8.0])
def test_the_tail_keeps_its_digits_for_any_number_of_records(n: int, deviations: float) -> None:
    """Against a sum of terms whose first one is computed in fifty digits."""
    run = ridge_run(0.99, 0.01, 1.0, 1).replace(n=n, sampling_rate=0.01)
    records = int(0.01 * n + deviations * math.sqrt(0.0099 * n))
    # The verifier's tail is rounded up by as many parts in 10^15 as it may add terms.
    exact = binomial_tail(records, n, 0.01) / (1 + 1e-15 * min(n, 10**6)) / (1 + 1e-12)
    assert exact <= exceedance(run, records) <= exact * (1 + 4e-9)
    low = int(0.01 * n - deviations * math.sqrt(0.0099 * n))
    missing = binomial_tail(n - 1 - low, n - 1, 0.99)
    assert shortfall(run, low) == pytest.approx(missing, rel=4e-9)
