"""Lagged blocks: the noise of a few steps hides the record's uses in a few earlier ones.

Steps are counted by their lag, the last one having lag 0. C_l is the product of the Lipschitz
constants of the l steps after the one of lag l. The noise of the lags [a_i, a_{i+1}) hides the uses
of the lags [l_i, l_{i+1}) if a_{i+1} - 1 <= l_i, and each block costs the pair

    M_i / E_i + N(0, 1)  against  N(0, 1),     E_i^2 = sum of (nu_j C_j)^2 over its noise,
                                               M_i = sum of r_l C_l I_l over its uses,

with independent coins I_l of chance q_l (docs/theory/blocks.md). Everything but the edges is
derived here: weights are rounded up, and uses too old to matter count as certain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dplateau.algorithms import Poisson, Run
from dplateau.algorithms.stated import loss_of
from dplateau.ground.types import FloatArray
from dplateau.verify.cases import (
    Blocks,
    Case,
    Derived,
    blocks_of,
    fewer_uses,
    joined,
    largest_share,
    least_share,
    product_derived,
    require_batches,
    stages,
    theorem,
    together,
)
from dplateau.verify.coins import (
    NO_USES,
    Coins,
    SmoothedCoins,
    SmoothedLaw,
    capped_atoms,
    coarser,
    few_atoms,
    fewer_atoms,
)
from dplateau.verify.composed import Curve, Rows
from dplateau.verify.compositions import pairs_of_uses
from dplateau.verify.pairs import BlockPair, GaussianPair, LossPair, SampledPair
from dplateau.verify.precise import MP, Precise, binomial_tail, up
from dplateau.verify.walks import step_losses

_MOST_BLOCKS = 200
# Blocks times splits of a group, each of which has laws of its own.
_MOST_LAWS = 600
_MOST_STRETCHES = 10**5
_MOST_RECORDS_OF_A_GROUP = 50
# Values of M that are written out one by one.
_FEW = 1500
# Single steps of different sizes whose pairs are found point by point.
_MOST_SINGLES = 600
# Coins told apart in one block.
_GROUPS = 4000
# Logarithms of products beyond this are not followed.
_LARGEST_LOG = 300.0
# Rounding of weights, far above that of the arithmetic, and of a logarithm, for each of its size.
_UP, _OF_LOG = 1 + 1e-12, 1e-15
# Losses rarer than this share of delta are not told apart; of that, uses rarer than this share
# count as all uses together.
_RAREST_SHARE, _NEVER_SHARE = 1e-7, 1e-3


@dataclass(frozen=True)
class Stretch:
    """``count`` equal steps from lag ``first`` on; ``log_c`` belongs to one step."""

    first: int
    count: int
    reach: float
    nu: float
    rate: float
    log_c: float
    log_product: float  # log C at the lag ``first``


@dataclass(frozen=True)
class Edges:
    """Noise lags ``noise`` and use lags ``uses``, after ``singles`` steps that hide themselves."""

    singles: int
    noise: tuple[int, ...]
    uses: tuple[int, ...]


# The pairs of a product with their repeats.
Parts = list[tuple[LossPair, int]]


@theorem(Poisson, neighbors="add_remove", own_rates=True, knows_groups=True)
def poisson_blocks(case: Case) -> Derived:
    """Derive Poisson batches, records added or removed: the worst split of a group."""
    return worst_split(case, *parts_of(case))


@theorem(Poisson, neighbors="replace", own_rates=True, knows_groups=True)
def poisson_blocks_replace(case: Case) -> Derived:
    """Derive Poisson batches, records replaced: both runs leave the same reference run."""
    return worst_split(case, *parts_of(case))


def parts_of(case: Case) -> tuple[list[Parts], Precise]:
    """Return the pairs of the witness's blocks for every split of a group, and what caps cost.

    A split says how many records only the one and only the other run has; of replaced records
    both runs have all.
    """
    stretches, extra = stretches_of(case)
    edges, diameter, rarest = require_edges(case), case.run.diameter, rarest_chance(case)
    splits = require_splits(case)
    laws = len(splits) * (len(edges.uses) - 1)
    detail = f"{laws} blocks for {len(splits)} splits of the group, at most {_MOST_LAWS}"
    case.require("laws", laws <= _MOST_LAWS, detail)
    return [block_parts(stretches, edges, split, diameter, rarest) for split in splits], extra


def require_splits(case: Case) -> list[tuple[int, int]]:
    """Return how many records of a group only the one and only the other run may have."""
    size = case.run.group_size
    detail = f"{size} records, at most {_MOST_RECORDS_OF_A_GROUP} are verified"
    case.require("group size", size <= _MOST_RECORDS_OF_A_GROUP, detail)
    if case.run.neighbors == "replace":
        return [(size, size)]
    return [(size - left, left) for left in range(size // 2 + 1)]


def rarest_chance(case: Case) -> float:
    """Return the chance below which losses are not told apart."""
    return _RAREST_SHARE * float(case.delta)


def worst_split(case: Case, splits: list[Parts], extra: Precise) -> Derived:
    """Return the largest epsilon of the products, one for each split."""
    each = [
        product_derived(case, Rows.product(parts, extra))
        if parts
        else Derived(0.0, "nothing is left of any use")
        for parts in splits
    ]
    worst = max(each, key=lambda derived: derived.epsilon)
    if len(each) == 1:
        return worst
    # No split need be the worst one everywhere.
    nears = [derived.near for derived in each if derived.near is not None]

    def near(epsilon: float, delta: float) -> Curve:
        curves = [one(epsilon, delta) for one in nears]
        return lambda eps: max((curve(eps) for curve in curves), default=up(extra))

    return replace(worst, rows=None, near=near)


# --- the run, by lag -----------------------------------------------------------------------------


def stretches_of(case: Case) -> tuple[list[Stretch], Precise]:
    """Return the steps from the last one back, and the chance that some batch breaks its limits."""
    run = case.run
    require_batches(case, Poisson)
    rates = blocks_of(run.stated_rate, run.steps)
    least, most, extra = _require_limits(case, rates)
    maps, losses = step_losses(case, least, most), case.witness["losses"].word()
    logs: dict[float, float] = {}
    stretches: list[Stretch] = []
    first, log_product = 0, 0.0
    for eta, nu, rate, count in _steps_back(run, rates):
        if eta not in logs:
            # A larger constant is a Lipschitz constant too: rounded up once, used everywhere.
            slope = maps.slope(losses, eta)
            logs[eta] = math.log(slope) + 4e-16 if slope > 0 else -math.inf
        reach = eta * loss_of(run).lipschitz / run.batch_size
        stretches.append(Stretch(first, count, reach, nu, rate, logs[eta], log_product))
        first, log_product = first + count, log_product + count * logs[eta]
    return stretches, extra


def _steps_back(run: Run, rates: Blocks) -> Iterator[tuple[float, float, float, int]]:
    """Yield (learning rate, noise, sampling rate, count), the last steps first."""
    forward = stages(run)
    if len(forward) + len(rates) > _MOST_STRETCHES:
        raise ArithmeticError(f"more than {_MOST_STRETCHES} different steps")
    noises = [(float(i), stage.count) for i, stage in enumerate(forward)]
    for place, rate, count in together(noises[::-1], rates[::-1]):
        stage = forward[int(place)]
        yield stage.eta, stage.nu, rate, count


def _require_limits(case: Case, rates: Blocks) -> tuple[float, float, Precise]:
    """Return the least and largest share of common records in a batch, and the chance of others.

    The common batch is drawn from the records that both runs have: all n at most (one record that
    leaves may make room for another), and n less the group at least.
    """
    run, witness = case.run, case.witness
    cap, floor = witness["batch_cap"].whole(), witness["batch_floor"].whole()
    common = run.n - run.group_size
    case.require("batch limits", floor <= cap, f"between {floor} and {cap} records")
    # Fewer than ``floor`` in means more than ``common - floor`` out.
    out = common - floor
    chances = []
    for rate, steps in joined(rates):
        chances.append(steps * binomial_tail(cap, run.n, rate))
        if floor > 0:
            outside = math.nextafter(1 - rate, 1.0)
            chances.append(steps * (binomial_tail(out, common, outside) if out >= 0 else MP.one))
    extra = MP.fsum(chances)
    detail = f"broken with chance {float(extra):.3g}"
    case.require("batch limits", extra < case.delta, detail)
    return least_share(run, floor, used=False), largest_share(run, cap), extra


def require_edges(case: Case) -> Edges:
    """Read the edges: rising, causal, every use in one block."""
    steps, singles = case.run.steps, case.witness["single_steps"].whole()
    case.require("single steps", singles <= steps, f"{singles} of {steps} steps")
    rows = case.witness["edges"].tuples("noise lag", "use lag")
    case.require("edges", len(rows) <= _MOST_BLOCKS, f"{len(rows)} of at most {_MOST_BLOCKS}")
    noise, uses = (tuple(row[k].whole() for row in rows) for k in (0, 1))
    begins = noise[0] == uses[0] == singles
    case.require("first edge", begins, f"{noise[0], uses[0]} after {singles} single steps")
    rising = all(a < b for edge in (noise, uses) for a, b in pairwise(edge))
    case.require("rising edges", rising, "noise and uses, each in one block")
    case.require("last edge", uses[-1] == steps, f"uses up to lag {uses[-1]} of {steps} steps")
    case.require("noise", noise[-1] <= steps, f"up to lag {noise[-1]} of {steps} steps")
    for i, (end, use) in enumerate(zip(noise[1:], uses[:-1], strict=True)):
        detail = f"block {i}: noise up to lag {end - 1} hides uses from lag {use} on"
        case.require("causality", end - 1 <= use, detail)
    return Edges(singles, noise, uses)


# --- one block -----------------------------------------------------------------------------------


def _pieces(stretches: list[Stretch], first: int, end: int) -> Iterator[tuple[Stretch, float, int]]:
    """Yield (stretch, log C at its first lag inside, lags inside) for the lags [first, end)."""
    for stretch in stretches:
        low, high = max(first, stretch.first), min(end, stretch.first + stretch.count)
        if low < high:
            behind = low - stretch.first
            log = stretch.log_product + (behind * stretch.log_c if behind else 0.0)
            yield stretch, log, high - low


def noise_size(stretches: list[Stretch], first: int, end: int, log_unit: float) -> float:
    """Return E / C for the noise of the lags [first, end), rounded down; log C is the unit."""
    total = 0.0
    for stretch, log, count in _pieces(stretches, first, end):
        ratio = 2 * stretch.log_c
        if math.isinf(ratio):
            squares = 1.0
        elif ratio == 0:
            squares = float(count)
        else:
            # Noise of steps from which distances grow beyond all numbers may be left out.
            exponent = min(count * ratio, _LARGEST_LOG)
            squares = math.expm1(exponent) / math.expm1(ratio)
        if log == -math.inf:
            break
        grown = min(log - log_unit, _LARGEST_LOG / 2) - _OF_LOG * (abs(log) + abs(log_unit))
        total += (stretch.nu * math.exp(grown)) ** 2 * squares
    return math.sqrt(total) / _UP


def uses_of(
    stretches: list[Stretch], first: int, end: int, log_unit: float, most: float = math.inf
) -> Coins | None:
    """Return M / C for the uses of the lags [first, end), rounded up; None if there is none.

    A use that alone moves further than ``most`` counts as ``most``.
    """
    parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    offset = 0.0
    for stretch, log, count in _pieces(stretches, first, end):
        if log == -math.inf:
            break  # nothing is left of these uses, nor of older ones
        log += _OF_LOG * (abs(log) + abs(log_unit)) - log_unit + math.log(stretch.reach * _UP)
        if stretch.log_c > 0:
            # Older uses weigh more: those beyond the most are alike.
            within = count
            if most < math.inf:
                fit = math.floor((math.log(most) - log) / stretch.log_c) + 1
                within = min(max(fit, 0), count)
                parts.append(_alike(most, stretch.rate, count - within))
            count, log = within, log + (within - 1) * stretch.log_c
        if count == 0:
            continue
        if log > _LARGEST_LOG:
            raise ArithmeticError("distances grow beyond all numbers")
        weights, counts, rest = _falling(count, abs(stretch.log_c), stretch.rate)
        weights = np.minimum(math.exp(log) * weights, most)
        parts.append((weights, np.full(weights.size, stretch.rate), counts))
        offset += math.exp(log) * rest
    if not parts:
        return None
    weights, rates, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    heavy = (weights > 0) & (counts > 0)
    if not heavy.any():
        return None
    return Coins(weights[heavy], rates[heavy], counts[heavy], offset)


def _alike(weight: float, rate: float, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    return np.array([weight]), np.array([rate]), np.array([float(count)])


def _falling(count: int, fall: float, rate: float) -> tuple[FloatArray, FloatArray, float]:
    """Return weights e^-(fall j), j < count, in groups with the largest weight of each.

    Groups grow with age, so that each adds about as much to the sum. The last number is the sum of
    the weights of uses too old for a group.
    """
    if fall == 0:
        return np.array([1.0]), np.array([float(count)]), 0.0
    if math.isinf(fall):
        return np.array([1.0]), np.array([1.0]), 0.0
    if count <= _GROUPS // 2:
        ages = np.arange(count, dtype=np.float64)
        return np.exp(-fall * ages), np.ones(count), 0.0
    logs = -2 * np.log1p(-np.arange(_GROUPS) / _GROUPS)
    older = logs[-1] + np.arange(0.5, 20.0 - math.log(rate), 0.5)
    ages = np.unique(np.floor(np.r_[logs, older] / fall))
    if ages[-1] >= count:
        ages = ages[ages < count]
        return np.exp(-fall * ages), np.diff(np.r_[ages, count]), 0.0
    last = ages[-1]
    rest = math.exp(-fall * last) * -math.expm1(-fall * (count - last)) / -math.expm1(-fall)
    return np.exp(-fall * ages[:-1]), np.diff(ages), rest


def smoothed(coins: Coins, cap: float, rarest: float) -> SmoothedLaw:
    """Return the law of min(M, cap) + N(0, 1), or of something larger."""
    few = few_atoms(coins, _FEW)
    if few is not None:
        capped = replace(few, points=np.minimum(few.points, cap))
        return fewer_atoms(capped, _NEVER_SHARE * rarest)
    cut = capped_atoms(coins, cap) if cap < coins.most else None
    if cut is not None:
        return cut
    return SmoothedCoins(coarser(coins, _GROUPS), rarest)


# --- the product of all blocks -------------------------------------------------------------------


def block_parts(
    stretches: list[Stretch],
    edges: Edges,
    split: tuple[int, int],
    diameter: float,
    rarest: float,
) -> Parts:
    """Return the pairs of (records here, records there) with these edges."""
    pairs = _block_pairs(stretches, edges, split, diameter, rarest)
    blocks = [(pair, 1) for pair in pairs if pair is not None]
    return _single_pairs(stretches, edges.singles, split, rarest) + blocks


def _block_pairs(
    stretches: list[Stretch],
    edges: Edges,
    split: tuple[int, int],
    diameter: float,
    rarest: float,
) -> Iterator[LossPair | None]:
    last = len(edges.uses) - 2
    for i in range(last + 1):
        noise, uses = edges.noise[i : i + 2], edges.uses[i : i + 2]
        unit = _log_product(stretches, noise[0])
        if math.isinf(unit):
            yield None  # nothing of these uses is left, and no later one either
            continue
        size = noise_size(stretches, noise[0], noise[1], unit)
        cap = math.inf
        # Both runs lie in the domain after the last use of the oldest block.
        if i == last and noise[1] <= uses[0] and math.isfinite(diameter):
            log = _log_product(stretches, uses[0])
            if log - unit < _LARGEST_LOG:
                grown = log - unit + (_OF_LOG * (abs(log) + abs(unit)) if log > -math.inf else 0.0)
                cap = diameter * math.exp(grown) * _UP / size
        coins = uses_of(stretches, uses[0], uses[1], unit, cap * size)
        yield None if coins is None else coin_pair(coins.scaled(_UP / size), split, cap, rarest)


def _log_product(stretches: list[Stretch], lag: int) -> float:
    """Return log C at a lag (that of the oldest step, beyond it)."""
    for stretch in stretches:
        behind = lag - stretch.first
        if behind <= stretch.count:
            return stretch.log_product + (behind * stretch.log_c if behind else 0.0)
    raise ArithmeticError(f"no step has the lag {lag}")


def coin_pair(coins: Coins, split: tuple[int, int], cap: float, rarest: float) -> LossPair:
    """Return the pair of (records here, records there), each moving by such coins."""
    here, there = split
    right = smoothed(coins.copies(here), cap, rarest)
    if here == there:
        return BlockPair(right, right, rarest)
    left = smoothed(coins.copies(there), cap, rarest) if there else NO_USES
    return BlockPair(right, left, rarest)


def _single_pairs(
    stretches: list[Stretch], singles: int, split: tuple[int, int], rarest: float
) -> list[tuple[LossPair, int]]:
    """Return the pairs of steps whose own noise hides their own use, equal ones together."""
    counted: dict[tuple[float, float], int] = {}

    def pair_at(size: float, rate: float) -> LossPair:
        return single_pair(size, rate, split, rarest)

    for stretch, log, count in _pieces(stretches, 0, singles):
        alive = 0 if math.isinf(log) else 1 if math.isinf(stretch.log_c) else count
        size = (stretch.reach / stretch.nu * _UP, stretch.rate)
        counted[size] = counted.get(size, 0) + alive
    counted = {use: count for use, count in counted.items() if count}
    if split == (1, 0):
        return pairs_of_uses(counted, pair_at)
    if split == (1, 1):
        # Each law is one coin's, so that its rate mixes it too.
        return pairs_of_uses(counted, pair_at, _MOST_SINGLES)
    return [(pair_at(*use), count) for use, count in fewer_uses(counted, _MOST_SINGLES).items()]


def single_pair(size: float, rate: float, split: tuple[int, int], rarest: float) -> LossPair:
    """Return the pair of one step whose own noise hides its own use."""
    if split == (1, 0):
        return GaussianPair(size) if rate == 1 else SampledPair(rate, size)
    coins = Coins(*_alike(size, rate, 1))
    return coin_pair(coins, split, math.inf, rarest)
