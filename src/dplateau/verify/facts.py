"""What a run says, in the numbers that theorems speak of; conversions are written out anew.

Lengths are rounded up and shares of a batch outward, so that what is derived from them is an upper
bound in exact arithmetic too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from scipy import special

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    Run,
    Schedule,
    Scheme,
    refuse_batches,
)
from dplateau.errors import NotApplicable
from dplateau.verify import reading
from dplateau.verify.claims import ROUNDED, Case
from dplateau.verify.precise import MP, Precise
from dplateau.verify.report import Ledger

# (value, number of steps)
Blocks = list[tuple[float, int]]
_MOST_VALUES = 5000
# Single steps of different sizes that are composed each on its own.
_MOST_USES = 600
_MOST_TERMS = 10**6


@dataclass(frozen=True)
class Stage:
    """``count`` equal steps: learning rate eta and noise nu in parameter space."""

    count: int
    eta: float
    nu: float


def blocks_of(value: object, steps: int) -> Blocks:
    """Return (value, number of steps) for a constant or a schedule."""
    if isinstance(value, Schedule):
        return list(value.blocks)
    assert isinstance(value, int | float)
    return [(float(value), steps)]


def together(first: Blocks, second: Blocks) -> Iterator[tuple[float, float, int]]:
    """Yield (value of the first, value of the second, count) over common stretches."""
    left, right = list(first), list(second)
    i = j = 0
    while i < len(left) and j < len(right):
        (a, m), (b, n) = left[i], right[j]
        count = min(m, n)
        yield a, b, count
        left[i], right[j] = (a, m - count), (b, n - count)
        i, j = i + (m == count), j + (n == count)


def joined(blocks: Blocks) -> Blocks:
    """Return every value once, with all its steps."""
    found: dict[float, int] = {}
    for value, count in blocks:
        found[value] = found.get(value, 0) + count
    if len(found) > _MOST_VALUES:
        raise ArithmeticError(f"a schedule of more than {_MOST_VALUES} values")
    return list(found.items())


def fewer_uses(counted: dict[tuple[float, float], int]) -> dict[tuple[float, float], int]:
    """Return uses (distance, sampling rate) with their counts, few enough to be told apart.

    If there are too many, both are rounded up to powers of the same number.
    """
    ratio, found = 1e-4, counted
    while len(found) > _MOST_USES:
        found = {}
        for (size, rate), count in counted.items():
            up = max(size, math.exp(math.ceil(math.log(size) / ratio) * ratio))
            likelier = min(1.0, max(rate, math.exp(math.ceil(math.log(rate) / ratio) * ratio)))
            found[up, likelier] = found.get((up, likelier), 0) + count
        ratio *= 1.4
    return found


def multipliers(run: Run, ledger: Ledger) -> Blocks:
    """Return the noise multiplier z = sigma b / L over the steps."""
    name, value = _stated_noise(run)
    if name == "noise_multiplier":
        return blocks_of(value, run.steps)
    lipschitz = math.inf if run.loss is None else run.loss.lipschitz
    known = math.isfinite(lipschitz)
    ledger.require("noise multiplier", known, f"{name} with a Lipschitz constant of {lipschitz}")
    stated = blocks_of(value, run.steps)
    if name == "noise_std":
        return [(std * run.batch_size / lipschitz, count) for std, count in stated]
    ledger.require("learning rate", run.learning_rate is not None, "needed to read iterate_std")
    rates = blocks_of(run.learning_rate, run.steps)
    return [
        (nu / eta * run.batch_size / lipschitz, count) for nu, eta, count in together(stated, rates)
    ]


def stages(run: Run) -> list[Stage]:
    """Return learning rate and noise in parameter space over the steps (geometry is known)."""
    assert run.loss is not None
    assert run.learning_rate is not None
    name, value = _stated_noise(run)
    rates, stated = blocks_of(run.learning_rate, run.steps), blocks_of(value, run.steps)
    found = []
    for eta, noise, count in together(rates, stated):
        nu = noise if name == "iterate_std" else eta * noise
        if name == "noise_multiplier":
            nu *= run.loss.lipschitz / run.batch_size
        found.append(Stage(count, eta, nu))
    return found


def _stated_noise(run: Run) -> tuple[str, object]:
    if run.inverse_temperature is not None:
        assert run.learning_rate is not None
        found = tuple(
            (math.sqrt(2 * eta / run.inverse_temperature), count)
            for eta, count in blocks_of(run.learning_rate, run.steps)
        )
        return "iterate_std", Schedule(found)
    return run.noise.name, run.noise.value


def distance_factor(run: Run) -> int:
    """Return Delta / L: one gradient for add_remove, two for replace."""
    return {"add_remove": 1, "replace": 2}[run.neighbors]


def moved_by_record(run: Run, eta: float) -> float:
    """Return how far the record moves a step: eta Delta / b, rounded up."""
    assert run.loss is not None
    return distance_factor(run) * eta * run.loss.lipschitz / run.batch_size * ROUNDED


# --- what theorems require -----------------------------------------------------------------------


def require_hidden(run: Run, ledger: Ledger, *, own_rates: bool = False) -> None:
    """Require what every last-iterate theorem needs: a hidden state and a known geometry."""
    hidden = isinstance(run.release, LastIterate)
    ledger.require("release", hidden, f"the run releases {run.release.name!r}")
    require_plain(run, ledger, own_rates=own_rates)
    ledger.require("noise kind", run.noise_kind == "gaussian", f"the noise is {run.noise_kind}")


def require_plain(
    run: Run,
    ledger: Ledger,
    *,
    own_rates: bool = False,
    record_moves: bool = True,
    averaged: bool = False,
) -> None:
    """Require plain steps of known length, and known losses; bounded ones if a record may move."""
    if not own_rates:
        detail = "records join with another probability than batch_size / n"
        ledger.require("sampling rate", not run.has_own_rate, detail)
    plain = run.momentum == 0 and (averaged or run.average_last == 1)
    ledger.require("plain steps", plain, "momentum and averaged iterates are not covered")
    ledger.require("learning rate", run.learning_rate is not None, "the theorem needs it")
    bounded = run.loss is not None and math.isfinite(run.loss.lipschitz)
    known = bounded if record_moves else run.loss is not None
    ledger.require("geometry", known, "the loss's constants must be known")


def require_batches(run: Run, ledger: Ledger, *schemes: Scheme) -> None:
    """Require the kind of batches that a theorem is about."""
    about = " or ".join(scheme.described for scheme in schemes)
    fits = isinstance(run.batches, schemes)
    ledger.require("algorithm", fits, f"the theorem is about {about}; this is {run.described}")


def require_neighbors(run: Run, ledger: Ledger, neighbors: str) -> None:
    """Require the kind of neighbors that a theorem is about."""
    ledger.require("neighbors", run.neighbors == neighbors, f"they are {run.neighbors!r}")


def require_domain(run: Run, ledger: Ledger) -> None:
    """Require a bounded domain."""
    ledger.require("domain", math.isfinite(run.diameter), f"D = {run.diameter:g}")


def require_constant(run: Run, ledger: Ledger) -> Stage:
    """Require the same learning rate and noise at every step, and return them."""
    found = stages(run)
    alike = len({(stage.eta, stage.nu) for stage in found}) == 1
    ledger.require("constant steps", alike, "the theorem is about equal steps")
    return Stage(run.steps, found[0].eta, found[0].nu)


def require_contraction(run: Run, ledger: Ledger) -> None:
    """Require smooth losses, and that no step expands: eta (M + l2) <= 2, and convexity or l2 >= M.

    What a step does to distances is derived exactly elsewhere, so the room for rounding left here
    is not part of any claim.
    """
    assert run.loss is not None
    steepest = run.loss.smoothness
    ledger.require("losses", math.isfinite(steepest), "a contraction needs smooth losses")
    outweighed = run.loss.convex or run.l2 >= steepest
    detail = f"nonconvex losses of smoothness M = {steepest:.9g} against l2 = {run.l2:.9g}"
    ledger.require("convexity", outweighed, "convex losses" if run.loss.convex else detail)
    level = max(eta for eta, _ in blocks_of(run.learning_rate, run.steps)) * (steepest + run.l2)
    detail = f"eta (M + l2) = {level:.9g} must not exceed 2"
    ledger.require("contraction", level <= 2 * (1 + 1e-9), detail)


# --- batches -------------------------------------------------------------------------------------


def batches_per_epoch(run: Run) -> int:
    """Return ceil(n / b) (one pass: the number of steps, which is the same)."""
    return -(-run.n // int(run.batch_size))


def smallest_batch(run: Run) -> int:
    """Return how many records the shortest batch holds (Poisson batches are not asked about)."""
    match run.batches:
        case FullBatch():
            return run.n
        case FixedSize(size=size):
            return size
        case Cyclic(size=size) | OnePass(size=size):
            return run.n % size or size
        case Poisson():
            raise NotApplicable("a random batch may be empty")
        case _ as unknown:
            refuse_batches(unknown)


def least_share(run: Run, records: int, used: bool) -> float:
    """Return the share of b that a batch has of records common to both runs, rounded down."""
    common = records - 1 if used else records
    found = common / run.batch_size
    exact = Fraction(found) * Fraction(run.batch_size) <= common
    return found if exact else math.nextafter(found, 0)


def largest_share(run: Run, records: int) -> float:
    """Return the share of b that so many records are, rounded up."""
    found = records / run.batch_size
    exact = Fraction(found) * Fraction(run.batch_size) >= records
    return found if exact else math.nextafter(found, math.inf)


def equal_steps(run: Run) -> bool:
    """Return whether all steps that use the record are alike, and all others are.

    Schedules change them, and so does a shorter last batch if records add curvature.
    """
    assert run.loss is not None
    if isinstance(run.learning_rate, Schedule) or isinstance(run.noise.value, Schedule):
        return False
    return run.loss.strong_convexity == 0 or smallest_batch(run) == int(run.batch_size)


def require_cap(case: Case) -> tuple[int, Precise]:
    """Return the cap on batches and what exceeding it costs: the sum of P(Bin(n, q_t) > cap)."""
    run, cap = case.run, reading.whole(case.witness, "batch_cap")
    match run.batches:
        case Poisson(rate=rate):
            rates = joined(blocks_of(rate, run.steps))
            cost = MP.fsum(n * binomial_tail(cap, run.n, q) for q, n in rates)
        case FixedSize(size=size):
            case.ledger.require("batch cap", cap == size, f"{cap} of {size}")
            cost = MP.zero
        case FullBatch() | Cyclic() | OnePass():
            raise NotApplicable("only random batches need a cap")
        case _ as unknown:
            refuse_batches(unknown)
    detail = f"more than {cap} records in a batch: chance {float(cost):.3g}"
    case.ledger.require("batches above the cap", cost < case.delta, detail)
    return cap, cost


def binomial_tail(most: int, trials: int, rate: float) -> Precise:
    """Return P(Bin(trials, rate) > most), rounded up.

    Term by term from the first one beyond: each is the one before times a falling factor, which
    bounds all that are left.
    """
    first = most + 1
    if first > trials:
        return MP.zero
    if rate == 1:
        return MP.one
    if first <= trials * rate:
        # No tail at all: any precision will do.
        return MP.mpf(min(1.0, 1.001 * float(special.betainc(first, trials - most, rate)) + 1e-6))
    n, k, q = MP.mpf(trials), MP.mpf(first), MP.mpf(rate)
    log = MP.loggamma(n + 1) - MP.loggamma(k + 1) - MP.loggamma(n - k + 1)
    term = total = 1.0  # in units of the first one
    odds, factor = rate / (1 - rate), 1.0
    for j in range(first, min(trials, first + _MOST_TERMS)):
        factor = (trials - j) / (j + 1) * odds
        term *= factor
        total += term
        if term < 1e-17 * total * (1 - factor):
            break
    left = term * factor / (1 - factor) if first + _MOST_TERMS < trials else 0.0
    rounding = (1 + 1e-15 * min(trials - first, _MOST_TERMS)) * (1 + 1e-12)
    return MP.exp(log + k * MP.log(q) + (n - k) * MP.log1p(-q)) * (total + left) * rounding
