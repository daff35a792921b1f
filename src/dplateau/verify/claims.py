"""What a theorem's checker hands back: the epsilon it derived, and how far above a claim may lie.

No claim may lie below: whoever makes one leaves room for evaluating its proof in another way.

Claims about several records that change together, from theorems about one.

A chain of m single changes leads from one data set to the other, and every change is
(e, d)-private: so all of them are (m e, d (1 + e^e + ... + e^((m-1) e)))-private. Where the
distances of Gaussian or Laplace noise are known, m times the distance is sharper.

The epsilon of composed pairs, on grids that are refined until they settle the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dplateau.algorithms import Run
from dplateau.verify.composed import (
    Curve,
    Rows,
    SampledNoise,
    composed_curve,
    composed_epsilon,
    epsilon_near,
)
from dplateau.verify.pairs import (
    BlockPair,
    GaussianPair,
    LaplacePair,
    LossPair,
    SampledPair,
    SwappedPair,
    TableLoss,
    TwoSidedPair,
)
from dplateau.verify.precise import gaussian_epsilon
from dplateau.verify.report import Ledger

# How far a claim may lie above the derived epsilon, relatively, and still be this proof's own.
# Closed forms in fifty digits: the rest is the rounding of a claim that was made in doubles.
CLOSED = 1e-6
# Rényi divergences: an integral and a maximum, both found numerically.
RENYI = 1e-5
# Compositions on a grid of losses, here and there.
COMPOSED = 1.5e-2
# Below this delta a claim charges its own rounding with a visible share of delta.
TINY_DELTA = 1e-9
COMPOSED_TINY = 5e-2


@dataclass(frozen=True)
class Derived:
    """The epsilon that the theorem gives with the certificate's witness.

    What else is known of the whole curve serves compositions: that it is ``mu``-GDP, that it is an
    average of products of pairs (``rows``), or an upper bound that is sharp ``near`` an (epsilon,
    delta).
    """

    epsilon: float
    excess: float
    how: str
    # Epsilon at a delta if every distance were so many times as long, where that is known: a group
    # moves the centre of Gaussian and Laplace noise as often as it has records.
    stretched: Callable[[int, float], float] | None = None
    mu: float | None = None
    rows: Rows | None = None
    near: Callable[[float, float], Curve] | None = None


@dataclass(frozen=True)
class Case:
    """One certificate under examination: the run, its witness and claim, and the checks so far."""

    run: Run
    witness: dict[str, Any]
    epsilon: float
    delta: float
    ledger: Ledger


Theorem = Callable[[Case], Derived]


_MOST_RECORDS = 10**6
# Claims may choose among fewer epsilons of one record than there are.
_EXCESS = 0.05


def gaussian_derived(mu: float, delta: float) -> Derived:
    """Return mu-GDP as an epsilon; m records that change together are m mu-GDP."""

    def stretched(size: int, level: float) -> float:
        return float(gaussian_epsilon(size * mu, level))

    how = f"{mu:.9g}-GDP, in fifty digits"
    return Derived(stretched(1, delta), CLOSED, how, stretched, mu=mu)


def group_derived(case: Case, theorem: Theorem) -> Derived:
    """Derive a claim about a group from the theorem's claim about one of its records.

    With e the share of one record in the claimed epsilon, one record must be (e, d)-private at the
    d that adds up to the claimed delta.
    """
    size = case.run.group_size
    case.ledger.require("group size", size <= _MOST_RECORDS, f"{size} records")
    share = case.epsilon / size
    log_sum = _log_geometric(share, size)
    level = case.delta * math.exp(-log_sum)
    pure = case.delta == 0
    case.ledger.require("delta of one record", pure or level > 1e-300, f"{level:.3g}")
    one = replace(case, run=_one_record(case.run), epsilon=share, delta=level)
    found = theorem(one)
    if found.stretched is not None:
        how = f"{found.how}, at {size} times the distance"
        mu = None if found.mu is None else size * found.mu
        return Derived(found.stretched(size, case.delta), found.excess, how, mu=mu)
    how = f"{found.how}, for each of {size} records at delta {level:.3g}"
    return Derived(size * found.epsilon, max(found.excess, _EXCESS), how)


def _one_record(run: Run) -> Run:
    """Return the run of any single change: absent records take their curvature with them."""
    loss = run.loss
    if loss is not None and run.neighbors == "add_remove":
        loss = replace(loss, strong_convexity=0.0, dissipativity=None)
    return run.replace(group_size=1, loss=loss)


def _log_geometric(epsilon: float, size: int) -> float:
    """Return log(1 + e^eps + ... + e^((size - 1) eps)), rounded up."""
    if epsilon * size < 1e-9:
        return math.log(size) + epsilon * size
    return (
        (size - 1) * epsilon
        + math.log(-math.expm1(-size * epsilon))
        - math.log(-math.expm1(-epsilon))
        + 1e-12
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
