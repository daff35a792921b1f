"""Contraction of the hockey stick: steps that both runs take alike bring their laws together.

Everything is derived anew in fifty digits from three lengths in units of the noise: how far the
record moves its own step, how far apart a common step leaves two states of the domain, and how
much such a step shrinks distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dplateau.algorithms import Cyclic, LastIterate, OnePass, RandomStop, Release, Run, Scheme
from dplateau.verify import reading
from dplateau.verify._dp_accounting import Precise
from dplateau.verify.claims import CLOSED, RENYI, Case, Derived
from dplateau.verify.compose import Rows
from dplateau.verify.facts import (
    Stage,
    batches_per_epoch,
    distance_factor,
    least_share,
    require_constant,
    require_contraction,
    require_usual_rate,
    smallest_batch,
)
from dplateau.verify.losses import LaplacePair
from dplateau.verify.moduli import CONTRACTION, StepLosses
from dplateau.verify.precise import MP, epsilon_at, gaussian_delta, laplace_delta
from dplateau.verify.renyi import sampled_epsilon
from dplateau.verify.sampled import require_cap, require_sampling

LIPSCHITZ = "Lipschitz"
_HIDDEN, _STOPPED = LastIterate(), RandomStop()


@dataclass(frozen=True)
class Facts:
    """A record's one use and the steps after it, in units of the noise."""

    laplace: bool
    step: float
    reach: float
    slope: float | None
    diameter: float

    def stick(self, epsilon: Precise, distance: Precise) -> Precise:
        """Return the hockey stick of the noise against its shifted copy."""
        if distance == math.inf:
            return MP.mpf(1)
        return (laplace_delta if self.laplace else gaussian_delta)(epsilon, distance)

    def shifted(self, later: int) -> Precise:
        """Return the distance left by the shift program over ``later`` more steps.

        Shifts a_k with sum a_k c^(last - k) = s c^later cost least when proportional to c^(last -
        k), which leaves s / sqrt(sum_{j=0}^{later} c^(-2j)). A domain narrower than s allows to
        start one step later, from D.
        """
        if later == 0:
            return MP.mpf(self.step)
        if self.laplace or self.slope is None:
            return MP.inf
        c = MP.mpf(self.slope)
        if c == 0:
            return MP.zero
        squares = _powers(1 / c**2, later + 1)
        found = self.step / MP.sqrt(squares)
        if self.diameter < self.step and self.slope <= 1:
            found = min(found, self.diameter / MP.sqrt(squares - 1))
        return found


def _powers(ratio: Precise, count: int) -> Precise:
    """Return 1 + x + ... + x^(count - 1)."""
    return MP.mpf(count) if ratio == 1 else (ratio**count - 1) / (ratio - 1)


# --- one pass: the claim is that of the record which no later step hides --------------------------


def one_pass_hockey_stick(case: Case) -> Derived:
    """Derive one pass with Gaussian noise: the last record's own step."""
    _require_noise(case, "gaussian")
    return _last_record(case, _one_use(case, OnePass, _HIDDEN, bounded=True))


def one_pass_laplace(case: Case) -> Derived:
    """Derive one pass with Laplace noise: the last record's own step."""
    _require_noise(case, "laplace")
    return _last_record(case, _one_use(case, OnePass, _HIDDEN, bounded=True))


def one_pass_hybrid(case: Case) -> Derived:
    """Derive one pass, shifts before contraction: the last record's own step."""
    _require_noise(case, "gaussian")
    return _last_record(case, _one_use(case, OnePass, _HIDDEN, bounded=True, shifts=True))


def mixing_rdp(case: Case) -> Derived:
    """Derive the Rényi rate of the last record, and its classic conversion."""
    facts = _contractive_pass(case, _HIDDEN)
    rate = MP.mpf(facts.step) ** 2 / 2
    case.ledger.agree("rate", reading.number(case.witness, "rate"), float(rate))
    epsilon = rate + 2 * MP.sqrt(-rate * MP.log(case.delta))
    return Derived(float(epsilon), CLOSED, f"alpha * {float(rate):.9g} at the best order")


def _last_record(case: Case, facts: Facts) -> Derived:
    def stretched(size: int, delta: float) -> float:
        return float(epsilon_at(lambda eps: facts.stick(eps, size * facts.step), delta))

    epsilon = epsilon_at(lambda eps: facts.stick(eps, facts.step), case.delta, case.epsilon)
    how = f"one use, moved by {facts.step:.9g} of the noise"
    if not facts.laplace:
        return Derived(float(epsilon), CLOSED, how, stretched, mu=float(facts.step))
    pair = LaplacePair(float(facts.step), 1.0)
    rows = Rows((pair,), np.ones((1, 1)), (1.0,), 0.0)
    return Derived(float(epsilon), CLOSED, how, stretched, rows=rows)


# --- averages over the number of later steps -----------------------------------------------------


def random_stop_contraction(case: Case) -> Derived:
    """Derive the closed form for a random stop, by a class of losses with a modulus."""
    losses = reading.word(case.witness, "losses")
    case.ledger.require("class of losses", losses != LIPSCHITZ, f"{losses!r}")
    return _series(case)


def random_stop_lipschitz(case: Case) -> Derived:
    """Derive the closed form for a random stop, by the length of the gradients alone."""
    losses = reading.word(case.witness, "losses")
    case.ledger.require("class of losses", losses == LIPSCHITZ, f"{losses!r}")
    return _series(case)


def _series(case: Case) -> Derived:
    facts = _one_use(case, OnePass, _STOPPED, bounded=True)

    def delta(epsilon: Precise) -> Precise:
        factor = facts.stick(epsilon, facts.reach)
        return facts.stick(epsilon, facts.step) / (1 - factor) / case.run.steps

    epsilon = epsilon_at(delta, case.delta, case.epsilon)
    return Derived(float(epsilon), CLOSED, f"geometric series over {case.run.steps} steps")


def random_stop_mean(case: Case) -> Derived:
    """Derive the average over the released iterate, for the first record."""
    facts = _one_use(case, OnePass, _STOPPED, bounded=False, shifts=True)
    share = 1 / MP.mpf(case.run.steps)
    return _averaged(case, facts, share, share)


def shuffled_pass(case: Case) -> Derived:
    """Derive the average over the record's place in a random order of one epoch."""
    facts = _one_use(case, Cyclic, _HIDDEN, bounded=False, shifts=True)
    run = case.run
    secret = isinstance(run.batches, Cyclic) and run.batches.order != "cyclic"
    case.ledger.require("order", secret, f"this is {run.described}")
    length = batches_per_epoch(run)
    case.ledger.require("one epoch", run.steps <= length, f"{run.steps} steps of {length}")
    records = MP.mpf(run.n)
    used_last = min(int(run.batch_size), run.n - (run.steps - 1) * int(run.batch_size))
    return _averaged(case, facts, used_last / records, int(run.batch_size) / records)


def _averaged(case: Case, facts: Facts, first: Precise, share: Precise) -> Derived:
    """Sum over stretches: within one, every step multiplies by the factor of a common step."""
    ages, count = _knots(case), case.run.steps
    ends = [*ages[1:], count]
    distances = [facts.shifted(age) for age in ages]

    def delta(epsilon: Precise) -> Precise:
        factor = facts.stick(epsilon, facts.reach)
        best, before, total = MP.mpf(1), 0, MP.zero
        for age, end, distance in zip(ages, ends, distances, strict=True):
            best = min(best * factor ** (age - before), facts.stick(epsilon, distance))
            total += best * _powers(factor, end - age) * (share if age else first)
            before = age
        return total

    epsilon = epsilon_at(delta, case.delta, case.epsilon)
    return Derived(float(epsilon), CLOSED, f"average over {count} iterates, {len(ages)} knots")


def _knots(case: Case) -> list[int]:
    found = reading.rows(case.witness, "knots")
    ages = [reading.as_whole(age, f"knots[{i}]") for i, age in enumerate(found)]
    rising = ages[0] == 0 and all(a < b for a, b in pairwise(ages)) and ages[-1] < case.run.steps
    alone = case.run.steps == 1 or ages[1:2] == [1]
    detail = f"{len(ages)} numbers of later steps, below {case.run.steps}"
    case.ledger.require("knots", rising and alone, detail)
    return ages


def random_stop_rdp(case: Case) -> Derived:
    """Derive the Rényi bound of a random stop: twice the mean, where that is allowed."""
    facts = _contractive_pass(case, _STOPPED)
    square = facts.step**2
    orders = reading.numbers(case.witness, "orders")
    fits = all(order > 1 and order * (order - 1) * square <= 2 * (1 + 1e-9) for order in orders)
    case.ledger.require("orders", fits, f"up to {max(orders):.9g} at squared step {square:.9g}")
    rate = square * float(MP.harmonic(case.run.steps)) * (1 + 1e-15) / case.run.steps
    # As of two Gaussians: alpha times the rate.
    epsilon = sampled_epsilon([(math.sqrt(2 * rate), 1.0, 1)], orders, case.delta)
    return Derived(epsilon, RENYI, f"best of {len(orders)} orders, rate {rate:.9g}")


# --- random batches ------------------------------------------------------------------------------


def poisson_recursion(case: Case) -> Derived:
    """Derive the recursion over steps whose batches each record joins on its own."""
    return _recursion(case, "poisson")


def fixed_size_recursion(case: Case) -> Derived:
    """Derive the recursion over steps whose batches have one size."""
    return _recursion(case, "fixed")


def _recursion(case: Case, sampling: str) -> Derived:
    require_sampling(case, sampling)
    run, stage = _require_run(case, type(case.run.batches), _HIDDEN)
    _require_domain(case)
    cap, extra = require_cap(case, run)
    assert run.loss is not None
    # Common batches of one size lack one record at most; a Poisson batch may be empty.
    least = (run.batch_size - 1) / run.batch_size if sampling == "fixed" else 0.0
    maps = StepLosses(run.loss, run.l2, least, cap / run.batch_size)
    facts = _facts(case, run, stage, maps, shifts=False)
    far = MP.mpf(facts.reach) + facts.step
    if sampling == "fixed":
        # All b gradients are exchanged at worst, the record's among them.
        apart = abs(1 - stage.eta * run.l2) * run.diameter + 2 * stage.eta * run.loss.lipschitz
        far = min(far, apart * facts.step / _moved(run, stage.eta))
    epsilon = epsilon_at(_recursive(facts, run, far, extra), case.delta, case.epsilon)
    return Derived(float(epsilon), CLOSED, f"recursion over {run.steps} steps")


def _recursive(facts: Facts, run: Run, far: Precise, extra: float) -> Callable[[Precise], Precise]:
    """Return e_T + extra for e_{t+1} = (1 - e_t) A + e_t B, from one step off a common start."""
    q = MP.mpf(run.sampling_rate)

    def delta(epsilon: Precise) -> Precise:
        order = 1 + MP.expm1(epsilon) / q
        inner = MP.log(order)
        near, away = facts.stick(inner, facts.step), facts.stick(inner, far)
        fresh = q * (near / order + (1 - 1 / order) * away)
        mixed = (1 - q) * facts.stick(epsilon, facts.reach) + q * facts.stick(epsilon, far)
        limit = fresh / (1 - mixed + fresh)
        # e_t minus its limit shrinks by the same factor at every step.
        return limit + (q * near - limit) * (mixed - fresh) ** (run.steps - 1) + extra

    return delta


# --- what the run says ---------------------------------------------------------------------------


def _require_run(case: Case, scheme: Scheme, release: Release) -> tuple[Run, Stage]:
    run, ledger = case.run, case.ledger
    known = run.release == release
    ledger.require("release", known, f"the run releases {run.release.name!r}")
    require_usual_rate(run, ledger)
    plain = run.momentum == 0 and run.average_last == 1
    ledger.require("plain steps", plain, "momentum and averaged iterates are not covered")
    about = f"the theorem is about {scheme.described}; this is {run.kind}"
    ledger.require("algorithm", isinstance(run.batches, scheme), about)
    ledger.require("learning rate", run.learning_rate is not None, "the theorem needs it")
    known = run.loss is not None and math.isfinite(run.loss.lipschitz)
    ledger.require("geometry", known, "the loss's Lipschitz constant must be known")
    return run, require_constant(run, ledger)


def _require_noise(case: Case, kind: str) -> None:
    found = case.run.noise_kind
    case.ledger.require("noise kind", found == kind, f"the noise is {found}")


def _require_domain(case: Case) -> None:
    diameter = case.run.diameter
    case.ledger.require("domain", math.isfinite(diameter), f"D = {diameter:g}")


def _one_use(
    case: Case, scheme: Scheme, release: Release, *, bounded: bool, shifts: bool = False
) -> Facts:
    run, stage = _require_run(case, scheme, release)
    if bounded:
        _require_domain(case)
    assert run.loss is not None
    least = least_share(run, smallest_batch(run), used=False)
    maps = StepLosses(run.loss, run.l2, least, 1.0)
    return _facts(case, run, stage, maps, shifts=shifts)


def _facts(case: Case, run: Run, stage: Stage, maps: StepLosses, *, shifts: bool) -> Facts:
    unit = stage.nu / math.sqrt(2) if run.noise_kind == "laplace" else stage.nu
    slope = None
    if shifts and reading.entry(case.witness, "shifts_by") is not None:
        losses = reading.word(case.witness, "shifts_by")
        modulus = maps.modulus(losses, stage.eta, case.ledger)
        case.ledger.require("linear modulus", modulus.jump == 0, f"{losses!r}")
        slope = modulus.slope
    return Facts(
        laplace=run.noise_kind == "laplace",
        step=_moved(run, stage.eta) / unit,
        reach=_reach(case, run, stage.eta, maps) / unit,
        slope=slope,
        diameter=run.diameter / unit,
    )


def _reach(case: Case, run: Run, eta: float, maps: StepLosses) -> float:
    """Return how far apart a common step leaves two states, and compare with what is stored."""
    losses = reading.word(case.witness, "losses")
    stored = reading.entry(case.witness, "reach")
    if losses != LIPSCHITZ:
        modulus = maps.modulus(losses, eta, case.ledger)
    if math.isinf(run.diameter):
        case.ledger.require("reach", stored is None, "there is none without a domain")
        return math.inf
    if losses == LIPSCHITZ:
        # Triangle inequality: the ridge shrinks, two gradients differ by 2 L |B| / b at most.
        shrunk = abs(1 - eta * run.l2) * run.diameter
        found = shrunk + 2 * eta * maps.loss.lipschitz * maps.most
    else:
        found = modulus(run.diameter)
    case.ledger.agree("reach", reading.as_number(stored, "reach"), found)
    return found


def _contractive_pass(case: Case, release: Release) -> Facts:
    """Return the facts of a pass with Gaussian noise whose steps do not expand, domain or not."""
    run, stage = _require_run(case, OnePass, release)
    _require_noise(case, "gaussian")
    require_contraction(run, 1.0, case.ledger)
    losses = reading.word(case.witness, "losses")
    case.ledger.require("class of losses", losses == CONTRACTION, f"{losses!r}")
    return Facts(False, _moved(run, stage.eta) / stage.nu, math.inf, None, math.inf)


def _moved(run: Run, eta: float) -> float:
    """Return how far the record moves a step: eta Delta / b."""
    assert run.loss is not None
    return distance_factor(run) * eta * run.loss.lipschitz / run.batch_size
