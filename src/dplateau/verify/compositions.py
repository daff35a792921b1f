"""Classical theorems: every iterate is released, and one record's uses are composed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    refuse_batches,
)
from dplateau.verify.cases import (
    MOST_USES,
    ROUNDED,
    Blocks,
    Case,
    Derived,
    batches_per_epoch,
    blocks_of,
    distance_factor,
    fewer_uses,
    gaussian_derived,
    multipliers,
    product_derived,
    theorem,
    together,
)
from dplateau.verify.composed import Rows
from dplateau.verify.pairs import (
    Between,
    GaussianPair,
    LaplacePair,
    LossPair,
    SampledPair,
    SwappedPair,
    two_sided_pair,
)
from dplateau.verify.precise import (
    MP,
    Precise,
    amplified,
    gaussian_epsilon,
    laplace_epsilon,
    sampled_epsilon,
    up,
)

# Shares of delta among which advanced composition picks; any share is a proof.
_SHARES = ("0.5", "0.1", "0.01", "0.9", "0.99")
# Closer to 1 a sum in doubles cancels to the digits that rounding left.
_LEAST_ORDER = 1.0004
# Steps of a schedule that are looked at one by one.
_MOST_SCHEDULED = 10**6
# Sampling rates that each have a pair of their own, for so many distances, and rates between them.
_MOST_RATES, _FEW_DISTANCES, _MOST_MIXED = 128, 4, 5000
# (distance in units of the noise, chance of joining, count), or with a noise multiplier first.
Uses = list[tuple[float, float, int]]


@theorem(release=None, noise=None)
def naive_composition(case: Case) -> Derived:
    """Derive T eps' at T delta', each step amplified by sampling."""
    distance, rate, count = _worst_use(case)
    epsilon = count * _step_epsilon(case, distance, rate, MP.mpf(case.delta) / count)
    return Derived(up(epsilon), f"{count} steps, in fifty digits")


@theorem(release=None, noise=None)
def advanced_composition(case: Case) -> Derived:
    """Derive eps' sqrt(2 T log(1/d'')) + T eps' tanh(eps'/2) at T d' + d'' = delta."""
    distance, rate, count = _worst_use(case)
    delta = MP.mpf(case.delta)
    epsilons = []
    for share in map(MP.mpf, _SHARES):
        each = _step_epsilon(case, distance, rate, delta * (1 - share) / count)
        spread = MP.sqrt(2 * count * MP.log(1 / (share * delta)))
        epsilons.append(each * spread + count * each * MP.tanh(each / 2))
    return Derived(up(min(epsilons)), f"{count} steps, in fifty digits")


@theorem(release=None)
def rdp_composition(case: Case) -> Derived:
    """Derive the best conversion of summed Rényi divergences at the witness's orders."""
    uses = _uses(case)
    swapped = case.run.neighbors == "replace" and _is_sampled(uses)
    case.require("neighbors", not swapped, "sampled steps are covered for add_remove only")
    orders = case.witness["orders"].numbers(most=500)
    detail = f"the smallest order is {min(orders):g}, at least {_LEAST_ORDER:g} is summed"
    case.require("orders", min(orders) >= _LEAST_ORDER, detail)
    epsilon = sampled_epsilon(uses, orders, case.delta)
    return Derived(epsilon, f"best of {len(orders)} orders, in fifty digits")


@theorem(release=None)
def gdp_composition(case: Case) -> Derived:
    """Derive mu-GDP: squared distances of plain Gaussians add up."""
    uses = _uses(case)
    case.require("sampling", not _is_sampled(uses), "the sampling rate is below 1")
    total = math.fsum(count * distance**2 for distance, _, count in uses)
    return gaussian_derived(math.sqrt(total), case.delta)


@theorem(release=None, noise=None)
def pld_composition(case: Case) -> Derived:
    """Derive the product of every use's dominating pair."""
    run = case.run
    laplace_swap = run.noise_kind == "laplace" and run.neighbors == "replace"
    unknown = laplace_swap and isinstance(run.batches, FixedSize)
    case.require("neighbors", not unknown, "sampled Laplace noise needs add_remove")
    # One record removed and one added: (2 eps, (1 + e^eps) delta).
    twice = laplace_swap and isinstance(run.batches, Poisson)
    single = replace(case, run=run.replace(neighbors="add_remove")) if twice else case
    parts = _pairs(single)
    match parts:
        case [(GaussianPair(mu), 1)] if case.delta > 0:
            return gaussian_derived(mu, case.delta)
    rows = Rows.product(parts)
    if case.delta == 0 or run.noise_kind == "laplace":
        # A claim that holds without any delta needs no grid.
        pure = _pure(case, parts, 2 if twice else 1)
        if case.delta == 0 or pure.epsilon <= case.epsilon:
            return pure if twice else replace(pure, rows=rows)
    return product_derived(case, rows, of_two=twice)


def _pure(case: Case, parts: list[tuple[LossPair, int]], times: int) -> Derived:
    """Add up the largest losses, which only Laplace noise has."""
    case.require("pure", case.run.noise_kind == "laplace", "delta = 0 needs bounded losses")
    totals = [math.fsum(n * pair.reach(0.0, order)[1] for pair, n in parts) for order in (0, 1)]
    return Derived(times * max(totals) * ROUNDED, "sum of the largest losses")


def _pairs(case: Case) -> list[tuple[LossPair, int]]:
    """Return the pairs of all uses, equal ones together; Gaussian ones are one Gaussian pair."""
    counted: dict[tuple[float, float], int] = {}
    squares = []
    for distance, rate, count in _uses(case):
        if rate == 1 and case.run.noise_kind == "gaussian":
            squares.append(count * distance**2)
        else:
            counted[distance, rate] = counted.get((distance, rate), 0) + count
    pairs = pairs_of_uses(counted, partial(_pair, case))
    if squares:
        pairs.append((GaussianPair(math.sqrt(math.fsum(squares)) * ROUNDED), 1))
    return pairs


def pairs_of_uses(
    counted: dict[tuple[float, float], int],
    pair_at: Callable[[float, float], LossPair],
    most: int = MOST_USES,
) -> list[tuple[LossPair, int]]:
    """Return the pairs of sampled uses; many rates are mixtures of few, as law by law they are."""
    distances = len({distance for distance, _ in counted})
    if len(counted) <= _MOST_RATES or distances > _FEW_DISTANCES:
        return [(pair_at(*use), count) for use, count in fewer_uses(counted, most).items()]
    alike: dict[float, list[tuple[float, int]]] = {}
    for (distance, rate), count in sorted(fewer_uses(counted, _MOST_MIXED).items()):
        alike.setdefault(distance, []).append((rate, count))
    pairs: list[tuple[LossPair, int]] = []
    for distance, rates in alike.items():
        if len(rates) == 1:
            pairs += [(pair_at(distance, rate), count) for rate, count in rates]
            continue
        knots = np.geomspace(rates[0][0], rates[-1][0], 1 + _MOST_RATES // distances)
        knots[-1] = rates[-1][0]
        ends = [pair_at(distance, float(rate)) for rate in knots]
        for rate, count in rates:
            i = min(max(int(np.searchsorted(knots, rate)), 1), knots.size - 1)
            # A rounding towards the likelier end.
            share = (knots[i] - rate) / (knots[i] - knots[i - 1]) - 1e-12
            pairs.append((Between(ends[i - 1], ends[i], min(max(share, 0.0), 1.0)), count))
    return pairs


def _pair(case: Case, distance: float, rate: float) -> LossPair:
    """Return a step's pair; ``distance`` is that of two opposite gradients if records are replaced.

    In a Poisson batch the record and its replacement each leave the same step without them, by half
    the distance. A batch of one size always holds somebody in their place.
    """
    if case.run.noise_kind == "laplace":
        return LaplacePair(distance, rate)
    if case.run.neighbors == "add_remove":
        return SampledPair(rate, distance)
    if isinstance(case.run.batches, Poisson):
        return two_sided_pair(rate, distance / 2, min(1e-30, 1e-7 * float(case.delta)))
    return SwappedPair(rate, distance)


def _is_sampled(uses: Uses) -> bool:
    return any(rate < 1 for _, rate, _ in uses)


def _uses(case: Case) -> Uses:
    """Return the uses of the record that is exposed most."""
    factor = distance_factor(case.run) * ROUNDED
    if case.run.noise_kind == "laplace":
        factor *= math.sqrt(2)  # a standard deviation is sqrt(2) scales
    exposed = _exposed(case.run, multipliers(case))
    return [(factor / z, rate, count) for z, rate, count in exposed]


def _exposed(run: Run, noise: Blocks) -> Uses:
    """Return (noise multiplier, chance of joining, uses) over the run."""
    match run.batches:
        case FullBatch():
            return [(z, 1.0, count) for z, count in noise]
        case Poisson(rate=rate):
            return list(together(noise, blocks_of(rate, run.steps)))
        case FixedSize():
            return [(z, run.sampling_rate, count) for z, count in noise]
        case Cyclic():
            return [(z, 1.0, count) for z, count in _once_an_epoch(run, noise)]
        case OnePass():
            return [(min(z for z, _ in noise), 1.0, 1)]
        case _ as unknown:
            refuse_batches(unknown)


def _once_an_epoch(run: Run, noise: Blocks) -> Blocks:
    """Return one use per epoch, at its quietest step."""
    length = batches_per_epoch(run)
    epochs = -(-run.steps // length)
    if len(noise) == 1:
        return [(noise[0][0], epochs)]
    if run.steps > _MOST_SCHEDULED:
        raise ArithmeticError(f"{run.steps} steps of a schedule are too many to look through")
    each = [z for z, count in noise for _ in range(count)]
    return [(min(each[i * length : (i + 1) * length]), 1) for i in range(epochs)]


def _worst_use(case: Case) -> tuple[float, float, int]:
    """Return the largest distance of a use, the one sampling rate, and how many uses there are."""
    run, uses = case.run, _uses(case)
    unknown = run.noise_kind == "laplace" and run.neighbors == "replace" and _is_sampled(uses)
    case.require("neighbors", not unknown, "sampled Laplace noise needs add_remove")
    rates = {rate for _, rate, _ in uses}
    case.require("sampling rate", len(rates) == 1, "it changes from step to step")
    return max(distance for distance, _, _ in uses), rates.pop(), sum(n for _, _, n in uses)


def _step_epsilon(case: Case, distance: float, rate: float, delta: Precise) -> Precise:
    plain = laplace_epsilon if case.run.noise_kind == "laplace" else gaussian_epsilon
    return amplified(lambda level: plain(distance, level), rate, delta)
