"""The epsilon of composed pairs, on grids that are refined until they settle the claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dplateau.verify._dp_accounting import SampledNoise, composed_epsilon
from dplateau.verify.block_pairs import BlockPair, TwoSidedPair
from dplateau.verify.claims import COMPOSED, COMPOSED_TINY, TINY_DELTA, Derived
from dplateau.verify.compose import Curve, Rows, composed_curve, epsilon_near
from dplateau.verify.losses import (
    GaussianPair,
    LaplacePair,
    LossPair,
    SampledPair,
    SwappedPair,
    TableLoss,
)

_HALVINGS = 4
# Distinct steps that dp-accounting is asked to compose one by one.
_MOST_NATIVE = 8
# Below this delta the plain transforms of dp-accounting are all noise.
_NOISE = 1e-11


def derived(
    evaluate: Callable[[float], float], interval: float, claim: tuple[float, float], how: str
) -> Derived:
    """Evaluate on finer and finer grids until the claim is met closely or nothing changes.

    A grid only ever makes epsilon larger, by about the square of its interval.
    """
    claimed, delta = claim
    excess = COMPOSED if delta >= TINY_DELTA else COMPOSED_TINY
    best = math.inf
    for _ in range(_HALVINGS):
        try:
            found = evaluate(interval)
        except ArithmeticError:
            if math.isinf(best):
                raise
            break
        converged = math.isfinite(best) and best - found <= 2e-4 * found
        best = min(best, found)
        met = best <= claimed <= best * (1 + excess / 2)
        # No finer grid gains a fifth: such a claim is not this proof's.
        hopeless = best > 1.2 * claimed + 1e-3
        if converged or met or hopeless:
            break
        interval /= 2
    return Derived(best, excess, f"{how}, losses on a grid of {interval:.3g}")


def rows_epsilon(
    rows: Rows,
    claimed: float,
    delta: float,
    *,
    level: float | None = None,
    of: Callable[[Curve], Curve] | None = None,
) -> Derived:
    """Return the epsilon of an average of compositions.

    ``of`` turns its curve into that of two records, who each get half of epsilon at ``level``.
    """
    half = 1.0 if of is None else 0.5
    finest = delta if level is None else level

    def evaluate(width: float) -> float:
        def near(eps: float) -> Curve:
            curve = composed_curve(rows, width, half * eps, finest)
            return curve if of is None else of(curve)

        return epsilon_near(near, delta, claimed)

    how, first = f"{len(rows.weights)} compositions", starting_interval(rows, half * claimed)
    found = derived(evaluate, first, (claimed, delta), how)

    def sharp_near(eps: float, level: float) -> Curve:
        share = delta / finest
        curve = composed_curve(rows, first / 2, half * eps, level / share)
        return curve if of is None else of(curve)

    return replace(found, rows=rows if of is None else None, near=sharp_near)


def starting_interval(rows: Rows, epsilon: float) -> float:
    """Return a grid that is a small part of the typical loss of one step, and of epsilon.

    A grid adds about a sixth of its squared interval to the variance of every step.
    """
    variances = np.array([_typical_loss(pair) ** 2 for pair in rows.pairs])
    steps = rows.counts.sum(axis=1)
    small = math.sqrt(float(((rows.counts * variances).sum(axis=1) / steps).min()))
    if steps.max() == 1:
        small *= 0.2
    finest = max(epsilon / 50000, 1e-12)
    return max(min(small / 12, max(epsilon, small) / 300), finest)


def _typical_loss(pair: LossPair) -> float:
    """Return about how far one step's loss usually is from its mean."""
    if isinstance(pair, SampledPair):
        x = np.linspace(pair.shift - 8, pair.shift + pair.step + 8, 2001)
        near, far = (
            np.exp(-((x - mean) ** 2) / 2) for mean in (pair.shift, pair.shift + pair.step)
        )
        law = (1 - pair.rate) * near + pair.rate * far
        law /= law.sum()
        loss = pair.loss(x)
        return math.sqrt(float(law @ (loss - law @ loss) ** 2))
    if isinstance(pair, GaussianPair):
        return pair.mu
    if isinstance(pair, BlockPair | TwoSidedPair):
        return pair.typical_loss
    if isinstance(pair, LaplacePair):
        return pair.rate * min(pair.ratio, 1.0)
    if isinstance(pair, TableLoss):
        # E[loss^2] is the integral of 2 eps P(loss > eps), and delta is at most that chance.
        x = np.linspace(0.0, pair.rows[-1][0], 2001)
        total = 4.0 * float((x * pair.deltas(x, 0)).mean()) * pair.rows[-1][0]
        return math.sqrt(total) + 1e-9
    assert isinstance(pair, SwappedPair)
    if pair.rate == 1:
        return pair.distance + pair.shift
    return _typical_loss(SampledPair(pair.rate, pair.distance, pair.shift))


def level_of_two(epsilon: float, delta: float) -> float:
    """Return the delta of one record where two of them are charged at half of epsilon each."""
    return delta / (1 + math.exp(min(epsilon / 2, 600.0)))


def two_records(curve: Curve) -> Curve:
    """Return delta(eps) of two records that change together: (1 + e^{eps/2}) delta_1(eps/2)."""
    return lambda eps: (1 + math.exp(min(eps / 2, 700.0))) * curve(eps / 2)


def released_epsilon(
    parts: Sequence[tuple[LossPair, int]], claimed: float, delta: float
) -> Derived:
    """Return the epsilon of one composition, by dp-accounting alone where it can."""
    merged = _merged(parts)
    rows = _one_row(merged)
    natives = [_native(pair, count) for pair, count in merged]
    # dp-accounting sets no limit to its grids, so it is asked about usual sizes only.
    usual = len(natives) <= _MOST_NATIVE and float(rows.counts.sum()) <= 1e5 and claimed <= 100
    usual = usual and all(1e-6 < _typical_loss(pair) < 3 for pair in rows.pairs)
    if delta < _NOISE or any(part is None for part in natives) or not usual:
        return rows_epsilon(rows, claimed, delta)
    known = [part for part in natives if part is not None]

    def evaluate(width: float) -> float:
        return composed_epsilon(known, delta, width)

    first = starting_interval(rows, claimed)
    found = derived(evaluate, first, (claimed, delta), "dp-accounting")

    def sharp_near(eps: float, level: float) -> Curve:
        return composed_curve(rows, first / 2, eps, level)

    return replace(found, rows=rows, near=sharp_near)


def released_epsilon_of_two(
    parts: Sequence[tuple[LossPair, int]], claimed: float, delta: float
) -> Derived:
    """Return the epsilon of two records, each with the composition given."""
    level = level_of_two(claimed, delta)
    return rows_epsilon(_one_row(_merged(parts)), claimed, delta, level=level, of=two_records)


def _one_row(merged: Sequence[tuple[LossPair, int]]) -> Rows:
    pairs = tuple(pair for pair, _ in merged)
    return Rows(pairs, np.array([[float(count) for _, count in merged]]), (1.0,), 0.0)


def _merged(parts: Sequence[tuple[LossPair, int]]) -> list[tuple[LossPair, int]]:
    """Join equal pairs, and nearly equal ones of a long schedule as the most exposed of them."""
    found: dict[LossPair, int] = {}
    for pair, count in parts:
        found[pair] = found.get(pair, 0) + count
    if len(found) <= _MOST_NATIVE:
        return list(found.items())
    rounded: dict[LossPair, int] = {}
    for pair, count in found.items():
        rounded_pair = _rounded_up(pair)
        rounded[rounded_pair] = rounded.get(rounded_pair, 0) + count
    return list(rounded.items())


def _rounded_up(pair: LossPair) -> LossPair:
    """Return the same pair at a distance of the next power of 1.0005."""

    def up(distance: float) -> float:
        return math.exp(math.ceil(math.log(distance) / 5e-4) * 5e-4)

    match pair:
        case GaussianPair(mu):
            return GaussianPair(up(mu))
        case SampledPair(rate, step, shift):
            return SampledPair(rate, up(step), shift)
        case SwappedPair(rate, distance, shift):
            return SwappedPair(rate, up(distance), shift)
        case TwoSidedPair(rate, step):
            return TwoSidedPair(rate, up(step))
        case LaplacePair(ratio, rate):
            return LaplacePair(up(ratio), rate)
    return pair


def _native(pair: LossPair, count: int) -> SampledNoise | None:
    """Return a pair as dp-accounting knows it, or None."""
    match pair:
        case GaussianPair(mu):
            return SampledNoise("gaussian", mu, 1.0, count)
        case SampledPair(rate, step, shift) if shift == 0:
            return SampledNoise("gaussian", step, rate, count)
        case LaplacePair(ratio, rate):
            return SampledNoise("laplace", ratio, rate, count)
    return None
