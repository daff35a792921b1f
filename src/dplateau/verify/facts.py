"""What a run says, in the numbers that theorems speak of; conversions are written out anew.

What the theorems for random batches share: the kind of batches, and a cap on their size.
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
from dplateau.verify.claims import Case
from dplateau.verify.precise import MP
from dplateau.verify.report import Ledger

Blocks = list[tuple[float, int]]


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


def require_hidden(run: Run, ledger: Ledger, *, own_rates: bool = False) -> None:
    """Require what every last-iterate theorem needs: a hidden state and a known geometry."""
    hidden = isinstance(run.release, LastIterate)
    ledger.require("release", hidden, f"the run releases {run.release.name!r}")
    if not own_rates:
        require_usual_rate(run, ledger)
    plain = run.momentum == 0 and run.average_last == 1
    ledger.require("plain steps", plain, "momentum and averaged iterates are not covered")
    ledger.require("noise kind", run.noise_kind == "gaussian", f"the noise is {run.noise_kind}")
    ledger.require("learning rate", run.learning_rate is not None, "a last-iterate bound needs it")
    known = run.loss is not None and math.isfinite(run.loss.lipschitz)
    ledger.require("geometry", known, "the loss's Lipschitz constant must be known")


def require_usual_rate(run: Run, ledger: Ledger) -> None:
    """Require that records join Poisson batches with probability b / n, at every step."""
    detail = "records join with another probability than batch_size / n"
    ledger.require("sampling rate", not run.has_own_rate, detail)


def require_constant(run: Run, ledger: Ledger) -> Stage:
    """Require the same learning rate and noise at every step, and return them."""
    found = stages(run)
    alike = len({(stage.eta, stage.nu) for stage in found}) == 1
    ledger.require("constant steps", alike, "the theorem is about equal steps")
    return Stage(run.steps, found[0].eta, found[0].nu)


def require_contraction(run: Run, most_fraction: float, ledger: Ledger) -> None:
    """Require smooth losses, and that no step expands at the largest batch share f.

    eta (M f + l2) <= 2, and for nonconvex losses l2 >= M f.
    """
    assert run.loss is not None
    steepest = run.loss.smoothness * most_fraction
    ledger.require("losses", math.isfinite(steepest), "a contraction needs smooth losses")
    outweighed = run.loss.convex or run.l2 >= steepest
    detail = f"nonconvex losses of smoothness M f = {steepest:.9g} against l2 = {run.l2:.9g}"
    ledger.require("convexity", outweighed, "convex losses" if run.loss.convex else detail)
    rates = [eta for eta, _ in blocks_of(run.learning_rate, run.steps)]
    level = max(rates) * (steepest + run.l2)
    detail = f"eta (M f + l2) = {level:.9g} must not exceed 2"
    ledger.require("contraction", level <= 2 * (1 + 1e-9), detail)


def batches_per_epoch(run: Run) -> int:
    """Return ceil(n / b) (one pass: the number of steps, which is the same)."""
    return -(-run.n // int(run.batch_size))


def smallest_batch(run: Run) -> int:
    """Return how many records the shortest batch holds (random batches are not asked about)."""
    match run.batches:
        case FullBatch():
            return run.n
        case Cyclic(size=size) | OnePass(size=size):
            return run.n % size or size
        case Poisson() | FixedSize():
            raise NotApplicable("which records share a random batch is not known")
        case _ as unknown:
            refuse_batches(unknown)


def least_share(run: Run, records: int, used: bool) -> float:
    """Return the share of b that a batch has of records common to both runs, rounded down."""
    common = records - 1 if used else records
    found = common / run.batch_size
    return (
        found if Fraction(found) * Fraction(run.batch_size) <= common else math.nextafter(found, 0)
    )


def equal_steps(run: Run) -> bool:
    """Return whether all steps that use the record are alike, and all others are.

    Schedules change them, and so does a shorter last batch if records add curvature.
    """
    assert run.loss is not None
    if isinstance(run.learning_rate, Schedule) or isinstance(run.noise.value, Schedule):
        return False
    return run.loss.strong_convexity == 0 or smallest_batch(run) == int(run.batch_size)


_SCHEMES: dict[str, Scheme] = {"poisson": Poisson, "fixed": FixedSize}


def require_sampled(case: Case, sampling: str, neighbors: str, *, own_rates: bool = False) -> Run:
    """Require the kind of batches and of neighbours that a theorem is about."""
    run, ledger = case.run, case.ledger
    require_hidden(run, ledger, own_rates=own_rates)
    require_sampling(case, sampling)
    ledger.require("neighbours", run.neighbors == neighbors, f"they are {run.neighbors!r}")
    return run


def require_sampling(case: Case, sampling: str) -> None:
    """Require the kind of random batches that a theorem is about."""
    wanted = isinstance(case.run.batches, _SCHEMES[sampling])
    case.ledger.require("sampling", wanted, f"this is {case.run.described}")


def require_cap(case: Case, run: Run) -> tuple[int, float]:
    """Check the cap on batches and what exceeding it costs: the sum of P(Bin(n, q_t) > cap)."""
    cap = reading.whole(case.witness, "batch_cap")
    stored = reading.number(case.witness, "extra_delta")
    if isinstance(run.batches, FixedSize):
        case.ledger.require("batch cap", cap == run.batch_size, f"{cap} of {run.batch_size:g}")
        cost = 0.0
    else:
        assert isinstance(run.batches, Poisson)
        rates = blocks_of(run.batches.rate, run.steps)
        cost = sum(count * binomial_tail(cap, run.n, rate) for rate, count in rates)
    detail = f"stored {stored:.9g}, derived {cost:.9g}"
    close = cost * (1 - 1e-9) <= stored <= cost * (1 + 1e-6)
    case.ledger.require("batches above the cap", close, detail)
    return cap, max(stored, cost * (1 + 1e-12))


def binomial_tail(most: int, trials: int, rate: float) -> float:
    """Return P(Bin(trials, rate) > most), term by term from the first one beyond."""
    first = most + 1
    if first > trials:
        return 0.0
    if rate == 1:
        return 1.0
    if first <= trials * rate:
        # No tail at all: any precision will do.
        return float(special.betainc(first, trials - most, rate))
    n, k, q = MP.mpf(trials), MP.mpf(first), MP.mpf(rate)
    log = MP.loggamma(n + 1) - MP.loggamma(k + 1) - MP.loggamma(n - k + 1)
    term = total = float(MP.exp(log + k * MP.log(q) + (n - k) * MP.log1p(-q)))
    odds = rate / (1 - rate)
    for j in range(first, trials):
        term *= (trials - j) / (j + 1) * odds
        total += term
        if term < 1e-17 * total:
            break
    return total
