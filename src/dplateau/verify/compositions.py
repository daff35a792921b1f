"""Classical theorems: every iterate is released, and one record's uses are composed."""

from __future__ import annotations

import math
from dataclasses import replace

from dplateau.algorithms import CyclicSGD, NoisySGD, OnePassSGD, Run
from dplateau.verify import reading
from dplateau.verify._dp_accounting import Precise
from dplateau.verify.claims import CLOSED, RENYI, Case, Derived
from dplateau.verify.facts import Blocks, batches_per_epoch, distance_factor, multipliers
from dplateau.verify.grids import released_epsilon, released_epsilon_of_two
from dplateau.verify.losses import (
    GaussianPair,
    LaplacePair,
    LossPair,
    SampledPair,
    SwappedPair,
)
from dplateau.verify.precise import (
    MP,
    amplified,
    gaussian_epsilon,
    laplace_epsilon,
)
from dplateau.verify.renyi import sampled_epsilon

# Shares of delta among which advanced composition picks; any share is a proof.
_SHARES = ("0.5", "0.1", "0.01", "0.9", "0.99")


def naive_composition(case: Case) -> Derived:
    """Derive T eps' at T delta', each step amplified by sampling."""
    distance, count = _worst_use(case)
    epsilon = count * _step_epsilon(case, distance, MP.mpf(case.delta) / count)
    return Derived(float(epsilon), CLOSED, f"{count} steps, in fifty digits")


def advanced_composition(case: Case) -> Derived:
    """Derive eps' sqrt(2 T log(1/d'')) + T eps' tanh(eps'/2) at T d' + d'' = delta."""
    distance, count = _worst_use(case)
    delta = MP.mpf(case.delta)
    found = []
    for share in map(MP.mpf, _SHARES):
        each = _step_epsilon(case, distance, delta * (1 - share) / count)
        spread = MP.sqrt(2 * count * MP.log(1 / (share * delta)))
        found.append(each * spread + count * each * MP.tanh(each / 2))
    return Derived(float(min(found)), CLOSED, f"{count} steps, in fifty digits")


def rdp_composition(case: Case) -> Derived:
    """Derive the best conversion of summed Rényi divergences at the witness's orders."""
    run, ledger = case.run, case.ledger
    ledger.require("noise kind", run.noise_kind == "gaussian", f"the noise is {run.noise_kind}")
    swapped = run.neighbors == "replace" and _rate(run) < 1
    ledger.require("neighbours", not swapped, "sampled steps are covered for add_remove only")
    orders = reading.numbers(case.witness, "orders")
    ledger.require("orders", min(orders) > 1, f"the smallest order is {min(orders):g}")
    uses = [(distance, _rate(run), count) for distance, count in _uses(case)]
    epsilon = sampled_epsilon(uses, orders, case.delta)
    return Derived(epsilon, RENYI, f"best of {len(orders)} orders, in forty digits")


def gdp_composition(case: Case) -> Derived:
    """Derive mu-GDP: squared distances of plain Gaussians add up."""
    run, ledger = case.run, case.ledger
    ledger.require("noise kind", run.noise_kind == "gaussian", f"the noise is {run.noise_kind}")
    ledger.require("sampling", _rate(run) == 1, f"the sampling rate is {_rate(run):g}")
    total = math.fsum(count * distance**2 for distance, count in _uses(case))
    mu = math.sqrt(total)
    epsilon = gaussian_epsilon(mu, case.delta)
    return Derived(float(epsilon), CLOSED, f"{mu:.9g}-GDP, in fifty digits", mu=mu)


def pld_composition(case: Case) -> Derived:
    """Derive the product of every use's dominating pair."""
    run, ledger = case.run, case.ledger
    laplace_swap = run.noise_kind == "laplace" and run.neighbors == "replace"
    unknown = laplace_swap and isinstance(run, NoisySGD)
    ledger.require("neighbours", not unknown, "sampled Laplace noise needs add_remove")
    parts = [(_pair(run, distance), count) for distance, count in _uses(case)]
    if case.delta == 0:
        return _pure(case, parts)
    return released_epsilon(parts, case.epsilon, case.delta)


def _pure(case: Case, parts: list[tuple[LossPair, int]]) -> Derived:
    """Add up the largest losses, which only Laplace noise has."""
    case.ledger.require("pure", case.run.noise_kind == "laplace", "delta = 0 needs bounded losses")
    ends = [(pair.reach(0.0, order), n) for pair, n in parts for order in (0, 1)]
    total = max(math.fsum(n * high for (_, high), n in ends[order::2]) for order in (0, 1))
    return Derived(total, CLOSED, "sum of the largest losses")


def pld_replace_group(case: Case) -> Derived:
    """Derive (2 eps, (1 + e^eps) delta) from the add/remove composition: two records change."""
    run, ledger = case.run, case.ledger
    sampled = isinstance(run, NoisySGD) and run.sampling == "poisson"
    ledger.require("sampling", sampled, "is about Poisson batches")
    ledger.require("neighbours", run.neighbors == "replace", f"they are {run.neighbors}")
    single = replace(case, run=run.replace(neighbors="add_remove"))
    parts = [(_pair(single.run, distance), count) for distance, count in _uses(single)]
    return released_epsilon_of_two(parts, case.epsilon, case.delta)


def _pair(run: Run, distance: float) -> LossPair:
    rate = _rate(run)
    if run.noise_kind == "laplace":
        return LaplacePair(distance, rate)
    if rate == 1:
        return GaussianPair(distance)
    # A replaced record is in the batches of both neighbours or of neither.
    if run.neighbors == "replace":
        return SwappedPair(rate, distance)
    return SampledPair(rate, distance)


def _rate(run: Run) -> float:
    return run.sampling_rate if isinstance(run, NoisySGD) else 1.0


def _uses(case: Case) -> Blocks:
    """Return (distance in units of the noise, count) for the record that is exposed most."""
    run = case.run
    factor = float(distance_factor(run))
    if run.noise_kind == "laplace":
        factor *= math.sqrt(2)  # a standard deviation is sqrt(2) scales
    return [(factor / z, count) for z, count in _exposed(run, multipliers(run, case.ledger))]


def _exposed(run: Run, noise: Blocks) -> Blocks:
    """Return (noise multiplier, uses): all steps, or one per epoch at its quietest step."""
    if isinstance(run, OnePassSGD):
        return [(min(z for z, _ in noise), 1)]
    if not isinstance(run, CyclicSGD):
        return noise
    length = batches_per_epoch(run)
    epochs = -(-run.steps // length)
    if len(noise) == 1:
        return [(noise[0][0], epochs)]
    each = [z for z, count in noise for _ in range(count)]
    return [(min(each[i * length : (i + 1) * length]), 1) for i in range(epochs)]


def _worst_use(case: Case) -> tuple[float, int]:
    """Return the largest distance of a use, and how many uses there are."""
    run = case.run
    unknown = run.noise_kind == "laplace" and run.neighbors == "replace" and _rate(run) < 1
    case.ledger.require("neighbours", not unknown, "sampled Laplace noise needs add_remove")
    uses = _uses(case)
    return max(distance for distance, _ in uses), sum(count for _, count in uses)


def _step_epsilon(case: Case, distance: float, delta: Precise) -> Precise:
    def plain(level: Precise) -> Precise:
        if case.run.noise_kind == "laplace":
            return laplace_epsilon(distance, level)
        return gaussian_epsilon(distance, level)

    return amplified(plain, _rate(case.run), delta)
