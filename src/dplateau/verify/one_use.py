"""Records that are used once: later steps, which both runs take alike, bring their laws together.

Everything is derived anew in fifty digits from three lengths in units of the noise: how far the
record moves its own step, how far apart a common step leaves two states of the domain, and how
much such a step shrinks distances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from dplateau.algorithms import Cyclic, LastIterate, OnePass, RandomStop, Release, Run, Scheme
from dplateau.verify import reading
from dplateau.verify.claims import ROUNDED, Case, Derived
from dplateau.verify.composed import Rows
from dplateau.verify.facts import (
    Stage,
    batches_per_epoch,
    least_share,
    moved_by_record,
    require_batches,
    require_constant,
    require_domain,
    require_plain,
    smallest_batch,
)
from dplateau.verify.pairs import LaplacePair
from dplateau.verify.precise import MP, Precise, epsilon_at, gaussian_delta, laplace_delta
from dplateau.verify.walks import StepLosses

LIPSCHITZ = "Lipschitz"
HIDDEN, STOPPED = LastIterate(), RandomStop()
_MOST_KNOTS = 2000


@dataclass(frozen=True)
class Lengths:
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
    return _last_record(case)


def one_pass_laplace(case: Case) -> Derived:
    """Derive one pass with Laplace noise: the last record's own step."""
    require_noise(case, "laplace")
    return _last_record(case)


def one_pass_hybrid(case: Case) -> Derived:
    """Derive one pass, shifts before contraction: the last record's own step."""
    require_noise(case, "gaussian")
    return _last_record(case, shifts=True)


def _last_record(case: Case, *, shifts: bool = False) -> Derived:
    lengths = _one_use(case, OnePass, HIDDEN, bounded=True, shifts=shifts)

    def stretched(size: int, delta: Precise) -> float:
        return epsilon_at(lambda eps: lengths.stick(eps, size * lengths.step), delta, case.epsilon)

    epsilon = stretched(1, case.delta)
    how = f"one use, moved by {lengths.step:.9g} of the noise"
    if not lengths.laplace:
        return Derived(epsilon, how, stretched, mu=lengths.step)
    rows = Rows.product([(LaplacePair(lengths.step, 1.0), 1)])
    return Derived(epsilon, how, stretched, rows=rows)


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
    lengths = _one_use(case, OnePass, STOPPED, bounded=True)

    def delta(epsilon: Precise) -> Precise:
        factor = lengths.stick(epsilon, lengths.reach)
        return lengths.stick(epsilon, lengths.step) / (1 - factor) / case.run.steps

    epsilon = epsilon_at(delta, case.delta, case.epsilon)
    return Derived(epsilon, f"geometric series over {case.run.steps} steps")


def random_stop_mean(case: Case) -> Derived:
    """Derive the average over the released iterate, for the first record."""
    lengths = _one_use(case, OnePass, STOPPED, bounded=False, shifts=True)
    share = 1 / MP.mpf(case.run.steps)
    return _averaged(case, lengths, share, share)


def shuffled_pass(case: Case) -> Derived:
    """Derive the average over the record's place in a random order of one epoch."""
    lengths = _one_use(case, Cyclic, HIDDEN, bounded=False, shifts=True)
    run = case.run
    secret = isinstance(run.batches, Cyclic) and run.batches.order != "cyclic"
    case.ledger.require("order", secret, f"this is {run.described}")
    length = batches_per_epoch(run)
    case.ledger.require("one epoch", run.steps <= length, f"{run.steps} steps of {length}")
    records = MP.mpf(run.n)
    used_last = min(int(run.batch_size), run.n - (run.steps - 1) * int(run.batch_size))
    return _averaged(case, lengths, used_last / records, int(run.batch_size) / records)


def _averaged(case: Case, lengths: Lengths, first: Precise, share: Precise) -> Derived:
    """Sum over stretches: within one, every step multiplies by the factor of a common step."""
    ages, count = reading.wholes(case.witness, "knots", most=_MOST_KNOTS), case.run.steps
    rising = ages[0] == 0 and all(a < b for a, b in pairwise([*ages, count]))
    alone = count == 1 or ages[1:2] == [1]
    detail = f"{len(ages)} numbers of later steps, below {count}"
    case.ledger.require("knots", rising and alone, detail)
    distances = [lengths.shifted(age) for age in ages]

    def delta(epsilon: Precise) -> Precise:
        factor = lengths.stick(epsilon, lengths.reach)
        best, before, total = MP.mpf(1), 0, MP.zero
        for (age, end), distance in zip(pairwise([*ages, count]), distances, strict=True):
            best = min(best * factor ** (age - before), lengths.stick(epsilon, distance))
            total += best * _powers(factor, end - age) * (share if age else first)
            before = age
        return total

    epsilon = epsilon_at(delta, case.delta, case.epsilon)
    return Derived(epsilon, f"average over {count} iterates, {len(ages)} knots")


# --- what the run says ---------------------------------------------------------------------------


def require_run(case: Case, scheme: Scheme, release: Release) -> Stage:
    """Require the batches and the release that a theorem is about, and equal plain steps."""
    run, ledger = case.run, case.ledger
    ledger.require("release", run.release == release, f"the run releases {run.release.name!r}")
    require_plain(run, ledger)
    require_batches(run, ledger, scheme)
    return require_constant(run, ledger)


def require_noise(case: Case, kind: str) -> None:
    """Require the kind of noise that a theorem is about."""
    found = case.run.noise_kind
    case.ledger.require("noise kind", found == kind, f"the noise is {found}")


def _one_use(
    case: Case, scheme: Scheme, release: Release, *, bounded: bool, shifts: bool = False
) -> Lengths:
    stage, run = require_run(case, scheme, release), case.run
    if bounded:
        require_domain(run, case.ledger)
    assert run.loss is not None
    least = least_share(run, smallest_batch(run), used=False)
    return lengths_of(case, stage, StepLosses(run.loss, run.l2, least, 1.0), shifts=shifts)


def lengths_of(case: Case, stage: Stage, maps: StepLosses, *, shifts: bool = False) -> Lengths:
    """Return the lengths of a run in units of its noise, rounded up."""
    run, witness = case.run, case.witness
    unit = noise_unit(run, stage)
    slope = None
    if shifts and reading.entry(witness, "shifts_by") is not None:
        slope = maps.slope(reading.word(witness, "shifts_by"), stage.eta, case.ledger)
    return Lengths(
        laplace=run.noise_kind == "laplace",
        step=moved_by_record(run, stage.eta) / unit,
        reach=_reach(case, stage.eta, maps) / unit * ROUNDED,
        slope=slope,
        diameter=run.diameter / unit * ROUNDED,
    )


def noise_unit(run: Run, stage: Stage) -> float:
    """Return the deviation of Gaussian noise, or the scale of Laplace noise, rounded down."""
    return (stage.nu / math.sqrt(2) if run.noise_kind == "laplace" else stage.nu) / ROUNDED


def _reach(case: Case, eta: float, maps: StepLosses) -> float:
    """Return how far apart a common step leaves two states of the domain."""
    losses, diameter = reading.word(case.witness, "losses"), case.run.diameter
    if losses == LIPSCHITZ:
        # Triangle inequality: the ridge shrinks, two gradients differ by 2 L |B| / b at most.
        shrunk = abs(1 - eta * case.run.l2) * diameter
        return shrunk + 2 * eta * maps.loss.lipschitz * maps.most
    modulus = maps.modulus(losses, eta, case.ledger)
    return math.inf if math.isinf(diameter) else modulus(diameter)
