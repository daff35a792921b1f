"""Contraction of the hockey stick: steps that both runs take alike bring their laws together.

Everything is derived anew in fifty digits from three lengths in units of the noise: how far the
record moves its own step, how far apart a common step leaves two states of the domain, and how
much such a step shrinks distances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dplateau.algorithms import Cyclic, LastIterate, OnePass, RandomStop, Release, Run, Scheme
from dplateau.verify import reading
from dplateau.verify.claims import CLOSED, Case, Derived
from dplateau.verify.composed import Rows
from dplateau.verify.facts import (
    Stage,
    batches_per_epoch,
    distance_factor,
    least_share,
    require_constant,
    require_usual_rate,
    smallest_batch,
)
from dplateau.verify.pairs import LaplacePair
from dplateau.verify.precise import (
    MP,
    Precise,
    epsilon_at,
    gaussian_delta,
    laplace_delta,
)
from dplateau.verify.walks import StepLosses

LIPSCHITZ = "Lipschitz"
HIDDEN, STOPPED = LastIterate(), RandomStop()


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
    require_noise(case, "gaussian")
    return _last_record(case, _one_use(case, OnePass, HIDDEN, bounded=True))


def one_pass_laplace(case: Case) -> Derived:
    """Derive one pass with Laplace noise: the last record's own step."""
    require_noise(case, "laplace")
    return _last_record(case, _one_use(case, OnePass, HIDDEN, bounded=True))


def one_pass_hybrid(case: Case) -> Derived:
    """Derive one pass, shifts before contraction: the last record's own step."""
    require_noise(case, "gaussian")
    return _last_record(case, _one_use(case, OnePass, HIDDEN, bounded=True, shifts=True))


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
    facts = _one_use(case, OnePass, STOPPED, bounded=True)

    def delta(epsilon: Precise) -> Precise:
        factor = facts.stick(epsilon, facts.reach)
        return facts.stick(epsilon, facts.step) / (1 - factor) / case.run.steps

    epsilon = epsilon_at(delta, case.delta, case.epsilon)
    return Derived(float(epsilon), CLOSED, f"geometric series over {case.run.steps} steps")


def random_stop_mean(case: Case) -> Derived:
    """Derive the average over the released iterate, for the first record."""
    facts = _one_use(case, OnePass, STOPPED, bounded=False, shifts=True)
    share = 1 / MP.mpf(case.run.steps)
    return _averaged(case, facts, share, share)


def shuffled_pass(case: Case) -> Derived:
    """Derive the average over the record's place in a random order of one epoch."""
    facts = _one_use(case, Cyclic, HIDDEN, bounded=False, shifts=True)
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


# --- what the run says ---------------------------------------------------------------------------


def require_run(case: Case, scheme: Scheme, release: Release) -> tuple[Run, Stage]:
    """Require the batches, the release and equal plain steps that a theorem is about."""
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


def require_noise(case: Case, kind: str) -> None:
    """Require the kind of noise that a theorem is about."""
    found = case.run.noise_kind
    case.ledger.require("noise kind", found == kind, f"the noise is {found}")


def require_domain(case: Case) -> None:
    """Require a bounded domain."""
    diameter = case.run.diameter
    case.ledger.require("domain", math.isfinite(diameter), f"D = {diameter:g}")


def _one_use(
    case: Case, scheme: Scheme, release: Release, *, bounded: bool, shifts: bool = False
) -> Facts:
    run, stage = require_run(case, scheme, release)
    if bounded:
        require_domain(case)
    assert run.loss is not None
    least = least_share(run, smallest_batch(run), used=False)
    maps = StepLosses(run.loss, run.l2, least, 1.0)
    return facts_of(case, run, stage, maps, shifts=shifts)


def facts_of(case: Case, run: Run, stage: Stage, maps: StepLosses, *, shifts: bool) -> Facts:
    """Return the lengths of a run in units of its noise."""
    unit = stage.nu / math.sqrt(2) if run.noise_kind == "laplace" else stage.nu
    slope = None
    if shifts and reading.entry(case.witness, "shifts_by") is not None:
        losses = reading.word(case.witness, "shifts_by")
        modulus = maps.modulus(losses, stage.eta, case.ledger)
        case.ledger.require("linear modulus", modulus.jump == 0, f"{losses!r}")
        slope = modulus.slope
    return Facts(
        laplace=run.noise_kind == "laplace",
        step=moved_by_record(run, stage.eta) / unit,
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


def moved_by_record(run: Run, eta: float) -> float:
    """Return how far the record moves a step: eta Delta / b."""
    assert run.loss is not None
    return distance_factor(run) * eta * run.loss.lipschitz / run.batch_size
