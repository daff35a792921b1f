"""Poisson batches vary in size: a cap that they exceed with small, charged probability.

The step divides by the constant b, so a batch of |B| records has the smoothness M |B| / b: for
|B| > b more than one record's, and the step may expand. Conditioning on all the common batches,
which have the same law in both neighbours, costs T P(|B| > cap) in delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplateau.algorithms import NoisySGD
from dplateau.bounds.step_maps import StepMap, learning_rates
from dplateau.numerics.solve import smallest_integer

# Share of delta that batches above the cap may cost.
_SHARE = 1e-4
_ROUND_UP = 1 + 1e-9


@dataclass(frozen=True)
class BatchCap:
    """No batch holds more than ``records``, except with probability ``extra_delta`` in the run."""

    records: int
    extra_delta: float


def batch_cap(run: NoisySGD, delta: float) -> BatchCap:
    """Return the cap that spends a small share of ``delta``, or a larger one that costs nothing.

    Up to the largest batch for which the step still contracts like 1 - eta l2 a larger cap is free,
    so the cap is raised to it.
    """
    return cap_of(run, max(tail_cap(run, delta).records, _free_cap(run)))


def tail_cap(run: NoisySGD, delta: float) -> BatchCap:
    """Return the smallest cap that spends no more: for moduli that grow with every record."""
    budget = delta * _SHARE
    records = smallest_integer(
        lambda records: exceedance(run, records) <= budget, start=int(run.batch_size), limit=run.n
    )
    return cap_of(run, records)


def cap_of(run: NoisySGD, records: int) -> BatchCap:
    """Return the cap at that many records, with what it costs."""
    return BatchCap(records, exceedance(run, records))


def exceedance(run: NoisySGD, records: int) -> float:
    """Return an upper bound on the probability that some batch holds more records."""
    if records >= run.n or (run.sampling == "fixed" and records >= run.batch_size):
        return 0.0
    from scipy.special import bdtrc

    return min(1.0, run.steps * float(bdtrc(records, run.n, run.sampling_rate)) * _ROUND_UP)


def _free_cap(run: NoisySGD) -> int:
    """Return the largest batch with eta (M |B| / b + 2 l2) <= 2."""
    assert run.loss is not None
    room = 2 / max(learning_rates(run)) - 2 * run.l2
    if math.isinf(run.loss.smoothness) or room <= 0:
        return 0
    return min(run.n, math.floor(run.batch_size * room / run.loss.smoothness * (1 + 1e-12)))


def capped_step_map(run: NoisySGD, cap: BatchCap) -> StepMap:
    """Return the step map of common batches up to the cap: of one size, they lack one at most."""
    assert run.loss is not None
    fixed = run.sampling == "fixed"
    return StepMap(
        loss=run.loss,
        l2=run.l2,
        least_fraction=(run.batch_size - 1) / run.batch_size if fixed else 0.0,
        most_fraction=cap.records / run.batch_size,
    )
