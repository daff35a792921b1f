"""Compositions that share their transforms, and laws of random starts, one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dplateau.bounds.registry import bound_named
from dplateau.curves import (
    AveragedLossCurve,
    PoissonPair,
    SubsampledGaussianPair,
    compose_family,
    compose_pairs,
)
from dplateau.numerics.bernoulli_laws import upper_law
from falsify_settings import Setting, settings

SEED, EACH = 5, 3
SHARING = ("fixed_size_averaged",)


def examples(name: str) -> list[Setting]:
    bound = bound_named(name)
    short = (s for s in settings(SEED, 900) if s.run.steps <= 300 and s.run.group_size == 1)
    found = (s for s in short if bound.refusal(s.run) is None)
    return list(itertools.islice(found, EACH))


@pytest.mark.parametrize("name", SHARING)
def test_rows_of_a_claim_agree_with_compositions_of_their_own(name: str) -> None:
    """Together they claim at least what finer, separate compositions do, and .3 percent at most."""
    bound = bound_named(name)
    for chosen in examples(name):
        curve = bound.curve_for(chosen.run, bound.plan_for(chosen.run, chosen.delta))
        assert isinstance(curve, AveragedLossCurve)
        epsilon = curve.epsilon(chosen.delta)
        if epsilon == 0:
            continue
        lower = epsilon * (1 - 3e-3)
        total = curve.extra_delta
        for row, weight in zip(curve.counts, curve.weights, strict=True):
            parts = [(pair, n) for pair, n in zip(curve.pairs, row, strict=True) if n]
            alone = compose_pairs(parts, target_delta=chosen.delta, rtol=1e-4)
            total += weight * float(alone.delta(np.array(lower)))
        assert total >= chosen.delta, chosen


@pytest.mark.parametrize("seed", range(8))
def test_no_row_is_below_a_finer_composition(seed: int) -> None:
    """Rows far from the heaviest may be loose; a finer grid costs less than 2e-4 of epsilon."""
    draw = np.random.default_rng(seed)
    q, step = float(10 ** draw.uniform(-3, 0)), float(np.exp(draw.uniform(-3, 1)))
    count, delta = int(10 ** draw.uniform(0, 3)), float(10 ** draw.uniform(-10, -2))
    if seed % 2:
        shifts = np.sort(np.exp(draw.uniform(-4, 0.5, 3))).tolist()
        pairs = [PoissonPair(q, step, shift) for shift in (0.0, *shifts)]
        counts = np.zeros((3, 4), dtype=int)
        for row in range(3):
            counts[row, row + 1] = min(count, 1 + row)
            counts[row, 0] = count - counts[row, row + 1]
    else:
        mus = np.sort(np.exp(draw.uniform(-4, 0.5, 2))).tolist()
        pairs = [SubsampledGaussianPair(q, step), *[PoissonPair(1.0, mu) for mu in mus]]
        counts = np.array([[count, 1, 0], [count, 0, 1]])
    family = compose_family(tuple(pairs), counts, target_delta=delta)
    for at, row in enumerate(counts):
        parts = [(pair, int(n)) for pair, n in zip(pairs, row, strict=True) if n]
        alone = compose_pairs(parts, target_delta=delta, rtol=1e-4).epsilon(delta)
        shared = max(rows[at].epsilon(delta) for rows in family.rows.values())
        assert shared >= alone * (1 - 2e-4)
    assert shared <= alone * (1 + 3e-3) + 1e-6


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.45, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("contraction", [0.3, 0.9, 1.0])
def test_tails_of_a_start_are_upper_bounds(rate: float, contraction: float) -> None:
    """Against all outcomes of twelve flips."""
    weights = contraction ** np.arange(12.0)
    flips = np.array(list(itertools.product([0, 1], repeat=12)))
    values = flips @ weights
    chances = np.prod(np.where(flips == 1, rate, 1 - rate), axis=1)
    law = upper_law(weights, np.full(12, rate))
    for point in np.r_[0.0, np.unique(values.round(9))[::37], 0.5, 1.5, 3.3]:
        exact = float(chances[values > point * (1 + 1e-12)].sum())
        # A point just below a possible value must still count that value.
        assert law.above(point) >= float(chances[values > point].sum()) * (1 - 1e-12) - 1e-15
        # Tables are even where most of the mass is, and coarse far out.
        later = float(chances[values > point - 0.05 * weights.sum()].sum())
        assert exact - 1e-12 <= law.above(point) <= later + 1e-10


def test_tails_far_out_are_upper_bounds() -> None:
    from scipy.stats import binom

    law = upper_law(np.ones(5000), np.full(5000, 0.02))
    for count in range(60, 260, 7):
        exact = float(binom.sf(count, 5000, 0.02))
        assert exact <= law.above(count) <= exact * 100 + 1e-11
