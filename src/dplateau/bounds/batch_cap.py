"""Poisson batches vary in size: a cap that they exceed with small, charged probability.

The step divides by the constant b, so a batch of |B| records has the smoothness M |B| / b: for
|B| > b more than one record's, and the step may expand. Conditioning on all the common batches,
which have the same law in both neighbours, costs T P(|B| > cap) in delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dplateau.algorithms import FixedSize, Poisson, Run, Schedule
from dplateau.bounds.step_maps import StepMap, double_below, learning_rates
from dplateau.numerics.solve import largest_integer, smallest_integer

# Share of delta that batches above the cap may cost.
_SHARE = 1e-4
_ROUND_UP = 1 + 1e-9


@dataclass(frozen=True)
class BatchCap:
    """No batch holds more than ``records``, except with probability ``extra_delta`` in the run."""

    records: int
    extra_delta: float


def batch_cap(run: Run, delta: float) -> BatchCap:
    """Return the cap that spends a small share of ``delta``, or a larger one that costs nothing.

    Up to the largest batch for which the step still contracts like 1 - eta l2 a larger cap is free,
    so the cap is raised to it.
    """
    return cap_of(run, max(tail_cap(run, delta).records, _free_cap(run)))


def tail_cap(run: Run, delta: float) -> BatchCap:
    """Return the smallest cap that spends no more: for moduli that grow with every record."""
    budget = delta * _SHARE
    records = smallest_integer(
        lambda records: exceedance(run, records) <= budget, start=int(run.batch_size), limit=run.n
    )
    return cap_of(run, records)


def cap_of(run: Run, records: int) -> BatchCap:
    """Return the cap at that many records, with what it costs."""
    return BatchCap(records, exceedance(run, records))


def exceedance(run: Run, records: int) -> float:
    """Return an upper bound on the probability that some batch holds more records."""
    if records >= run.n or (isinstance(run.batches, FixedSize) and records >= run.batch_size):
        return 0.0
    from scipy.special import bdtrc

    tails = [count * float(bdtrc(records, run.n, rate)) for rate, count in _rate_blocks(run)]
    return min(1.0, math.fsum(tails) * _ROUND_UP)


def _rate_blocks(run: Run) -> tuple[tuple[float, int], ...]:
    """Return the rates of sampling, each with its number of steps."""
    if isinstance(run.batches, Poisson) and isinstance(run.batches.rate, Schedule):
        return run.batches.rate.blocks
    return ((run.sampling_rate, run.steps),)


def _free_cap(run: Run, floor: int = 0) -> int:
    """Return a batch up to which the flattest direction decides, or a rounding below the largest.

    eta (M |B| / b + l2) - 1 <= 1 - eta (l2 + m floor / b), m the losses' own strong convexity.
    """
    assert run.loss is not None
    own = run.loss.strong_convexity * floor / run.batch_size
    room = 2 / max(learning_rates(run)) - 2 * run.l2 - own
    if math.isinf(run.loss.smoothness) or room <= 0:
        return 0
    return min(run.n, math.floor(run.batch_size * room / run.loss.smoothness * (1 - 1e-12)))


def capped_step_map(run: Run, cap: BatchCap) -> StepMap:
    """Return the step map of common batches up to the cap: of one size, they lack one at most."""
    assert run.loss is not None
    least = 0.0
    if isinstance(run.batches, FixedSize):
        least = double_below(1 - 1 / Fraction(run.batch_size))
    return StepMap(
        loss=run.loss,
        l2=run.l2,
        least_fraction=least,
        most_fraction=cap.records / run.batch_size,
    )


@dataclass(frozen=True)
class BatchSizes:
    """Every common batch holds ``floor`` to ``cap`` records, but for ``extra_delta``."""

    cap: int
    floor: int
    extra_delta: float


def batch_sizes(run: Run, delta: float) -> BatchSizes:
    """Return sizes that spend a small share of ``delta`` each way.

    Only strongly convex losses gain from a floor: fewer records have less curvature.
    """
    assert run.loss is not None
    floor = 0
    if run.loss.strong_convexity > 0:
        budget = delta * _SHARE
        floor = largest_integer(
            lambda records: shortfall(run, records) <= budget, start=0, limit=int(run.batch_size)
        )
    cap = tail_cap(run, delta).records
    if run.loss.convex:
        cap = max(cap, _free_cap(run, floor))
    return sizes_of(run, cap, floor)


def sizes_of(run: Run, cap: int, floor: int) -> BatchSizes:
    """Return these sizes with what they cost."""
    return BatchSizes(cap, floor, exceedance(run, cap) + shortfall(run, floor))


def shortfall(run: Run, records: int) -> float:
    """Return an upper bound on the probability that some common batch holds fewer records."""
    if records <= 0:
        return 0.0
    from scipy.special import bdtr

    others = run.n - run.group_size
    if records > others:
        return 1.0
    tails = [count * float(bdtr(records - 1, others, rate)) for rate, count in _rate_blocks(run)]
    return min(1.0, math.fsum(tails) * _ROUND_UP)
