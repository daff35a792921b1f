"""The hockey stick contracts: a step that both runs take alike brings their laws together.

Everything is derived anew in fifty digits from three lengths in units of the noise: how far the
record moves its own step, how far apart a common step leaves two states of the domain, and how
much such a step shrinks distances. Records are used once, or at random by every step on a narrow
domain; beside them stand the Rényi forms of one pass, as papers state them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from dplateau.algorithms import Cyclic, FixedSize, OnePass, Poisson, RandomStop, Run
from dplateau.algorithms.stated import loss_of
from dplateau.verify.cases import (
    ROUNDED,
    Case,
    Derived,
    Stage,
    batches_per_epoch,
    largest_share,
    least_share,
    moved_by_record,
    order_of,
    require_cap,
    require_constant,
    require_contraction,
    smallest_batch,
    theorem,
)
from dplateau.verify.composed import Rows
from dplateau.verify.pairs import LaplacePair
from dplateau.verify.precise import (
    MP,
    Precise,
    epsilon_at,
    gaussian_delta,
    gaussian_overlap,
    laplace_delta,
    laplace_overlap,
    sampled_epsilon,
    up,
)
from dplateau.verify.walks import CONTRACTION, StepLosses, step_losses

LIPSCHITZ = "Lipschitz"
STOPPED = RandomStop()
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

    def overlap(self, epsilon: Precise, distance: Precise) -> Precise:
        """Return 1 less the hockey stick, which fifty digits may not tell from 1."""
        if distance == math.inf:
            return MP.zero
        return (laplace_overlap if self.laplace else gaussian_overlap)(epsilon, distance)

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
        left = self.step / MP.sqrt(squares)
        if self.diameter < self.step and self.slope <= 1:
            left = min(left, self.diameter / MP.sqrt(squares - 1))
        return left


def _powers(ratio: Precise, count: int) -> Precise:
    """Return 1 + x + ... + x^(count - 1)."""
    return MP.mpf(count) if ratio == 1 else (ratio**count - 1) / (ratio - 1)


def _curve_derived(case: Case, curve: Callable[[Precise], Precise], how: str) -> Derived:
    return Derived(epsilon_at(curve, case.delta, case.epsilon), how)


# --- one pass: the claim is that of the record which no later step hides -------------------------


@theorem(OnePass, domain=True)
def one_pass_hockey_stick(case: Case) -> Derived:
    """Derive one pass with Gaussian noise: the last record's own step."""
    return _last_record(case, _one_use(case))


@theorem(OnePass, domain=True, noise="laplace")
def one_pass_laplace(case: Case) -> Derived:
    """Derive one pass with Laplace noise: the last record's own step."""
    return _last_record(case, _one_use(case))


@theorem(OnePass, domain=True)
def one_pass_hybrid(case: Case) -> Derived:
    """Derive one pass, shifts before contraction: the last record's own step."""
    return _last_record(case, _one_use(case, shifts=True))


def _last_record(case: Case, lengths: Lengths) -> Derived:
    def stretched(size: int, delta: Precise) -> float:
        return epsilon_at(lambda eps: lengths.stick(eps, size * lengths.step), delta, case.epsilon)

    epsilon = stretched(1, case.delta)
    how = f"one use, moved by {lengths.step:.9g} of the noise"
    if not lengths.laplace:
        return Derived(epsilon, how, stretched, mu=lengths.step)
    rows = Rows.product([(LaplacePair(lengths.step, 1.0), 1)])
    return Derived(epsilon, how, stretched, rows=rows)


# --- averages over the number of later steps -----------------------------------------------------


@theorem(OnePass, release=STOPPED, noise=None, domain=True)
def random_stop_contraction(case: Case) -> Derived:
    """Derive the closed form for a random stop, by a class of losses with a modulus."""
    losses = case.witness["losses"].word()
    case.require("class of losses", losses != LIPSCHITZ, f"{losses!r}")
    return _series(case)


@theorem(OnePass, release=STOPPED, noise=None, domain=True)
def random_stop_lipschitz(case: Case) -> Derived:
    """Derive the closed form for a random stop, by the length of the gradients alone."""
    losses = case.witness["losses"].word()
    case.require("class of losses", losses == LIPSCHITZ, f"{losses!r}")
    return _series(case)


def _series(case: Case) -> Derived:
    lengths, steps = _one_use(case), case.run.steps

    def delta(epsilon: Precise) -> Precise:
        met = lengths.overlap(epsilon, lengths.reach)
        # No delta is more than 1, whatever the series says.
        return lengths.stick(epsilon, lengths.step) / met / steps if met > 0 else MP.mpf(1)

    return _curve_derived(case, delta, f"geometric series over {steps} steps")


@theorem(OnePass, release=STOPPED, noise=None)
def random_stop_mean(case: Case) -> Derived:
    """Derive the average over the released iterate, for the first record."""
    share = 1 / MP.mpf(case.run.steps)
    return _averaged(case, _one_use(case, shifts=True), share, share)


@theorem(Cyclic, noise=None)
def shuffled_pass(case: Case) -> Derived:
    """Derive the average over the record's place in a random order of one epoch."""
    run, lengths = case.run, _one_use(case, shifts=True)
    case.require("order", order_of(run) != "cyclic", f"this is {run.described}")
    length = batches_per_epoch(run)
    case.require("one epoch", run.steps <= length, f"{run.steps} steps of {length}")
    records, size = MP.mpf(run.n), int(run.batch_size)
    used_last = min(size, run.n - (run.steps - 1) * size)
    return _averaged(case, lengths, used_last / records, size / records)


def _averaged(case: Case, lengths: Lengths, first: Precise, share: Precise) -> Derived:
    """Sum over stretches: within one, every step multiplies by the factor of a common step."""
    ages, count = case.witness["knots"].wholes(most=_MOST_KNOTS), case.run.steps
    rising = ages[0] == 0 and all(a < b for a, b in pairwise([*ages, count]))
    alone = count == 1 or ages[1:2] == [1]
    detail = f"{len(ages)} numbers of later steps, below {count}"
    case.require("knots", rising and alone, detail)
    distances = [lengths.shifted(age) for age in ages]

    def delta(epsilon: Precise) -> Precise:
        factor = lengths.stick(epsilon, lengths.reach)
        best, before, total = MP.mpf(1), 0, MP.zero
        for (age, end), distance in zip(pairwise([*ages, count]), distances, strict=True):
            best = min(best * factor ** (age - before), lengths.stick(epsilon, distance))
            total += best * _powers(factor, end - age) * (share if age else first)
            before = age
        return total

    return _curve_derived(case, delta, f"average over {count} iterates, {len(ages)} knots")


# --- what the run says ---------------------------------------------------------------------------


def _one_use(case: Case, *, shifts: bool = False) -> Lengths:
    stage = require_constant(case)
    maps = step_losses(case, least_share(case.run, smallest_batch(case.run), used=False))
    return _lengths(case, stage, maps, shifts=shifts)


def _lengths(case: Case, stage: Stage, maps: StepLosses, *, shifts: bool = False) -> Lengths:
    """Return the lengths of a run in units of its noise, rounded up."""
    run, losses, unit = case.run, case.witness["losses"].word(), _noise_unit(case.run, stage)
    slope = None
    if shifts and case.witness["shifts_by"].value is not None:
        slope = maps.slope(case.witness["shifts_by"].word(), stage.eta)
    if losses == LIPSCHITZ:
        # Triangle inequality: two gradients differ by 2 L |B| / b at most.
        reach = _apart(run, stage, maps.most)
    else:
        modulus = maps.modulus(losses, stage.eta)
        reach = math.inf if math.isinf(run.diameter) else modulus(run.diameter)
    return Lengths(
        laplace=run.noise_kind == "laplace",
        step=moved_by_record(run, stage.eta) / unit,
        reach=reach / unit * ROUNDED,
        slope=slope,
        diameter=run.diameter / unit * ROUNDED,
    )


def _apart(run: Run, stage: Stage, share: float = 1.0) -> float:
    """Return how far apart steps by any gradients leave two states: the ridge shrinks, 2 L f."""
    shrunk = abs(1 - stage.eta * run.l2) * run.diameter
    return shrunk + 2 * stage.eta * loss_of(run).lipschitz * share


def _noise_unit(run: Run, stage: Stage) -> float:
    """Return the deviation of Gaussian noise, or the scale of Laplace noise, rounded down."""
    return (stage.nu / math.sqrt(2) if run.noise_kind == "laplace" else stage.nu) / ROUNDED


# --- random batches on a narrow domain -----------------------------------------------------------


@theorem(Poisson, noise=None, domain=True)
def poisson_recursion(case: Case) -> Derived:
    """Derive the recursion over steps whose batches each record joins on its own."""
    stage = require_constant(case)
    cap, extra = require_cap(case)
    # A batch may be empty.
    lengths = _lengths(case, stage, step_losses(case, 0.0, largest_share(case.run, cap)))
    return _recursion(case, lengths, MP.mpf(lengths.reach) + lengths.step, extra)


@theorem(FixedSize, noise=None, domain=True)
def fixed_size_recursion(case: Case) -> Derived:
    """Derive the recursion over steps whose batches have one size."""
    run, stage = case.run, require_constant(case)
    require_cap(case)
    # Common batches lack one record at most.
    maps = step_losses(case, least_share(run, smallest_batch(run), used=True))
    lengths = _lengths(case, stage, maps)
    # All b gradients are exchanged at worst, the record's among them.
    apart = _apart(run, stage) / _noise_unit(run, stage) * ROUNDED
    return _recursion(case, lengths, min(MP.mpf(lengths.reach) + lengths.step, apart), MP.zero)


def _recursion(case: Case, lengths: Lengths, far: Precise, extra: Precise) -> Derived:
    """Derive e_T + extra for e_{t+1} = (1 - e_t) A + e_t B, from one step off a common start."""
    q, steps = MP.mpf(case.run.sampling_rate), case.run.steps

    def delta(epsilon: Precise) -> Precise:
        order = 1 + MP.expm1(epsilon) / q
        inner = MP.log(order)
        near, away = lengths.stick(inner, lengths.step), lengths.stick(inner, far)
        fresh = q * (near / order + (1 - 1 / order) * away)
        mixed = (1 - q) * lengths.stick(epsilon, lengths.reach) + q * lengths.stick(epsilon, far)
        limit = fresh / (1 - mixed + fresh)
        # e_t minus its limit shrinks by the same factor at every step.
        return limit + (q * near - limit) * (mixed - fresh) ** (steps - 1) + extra

    return _curve_derived(case, delta, f"recursion over {steps} steps")


@theorem(FixedSize, neighbors="replace", domain=True)
def asoodeh_diaz_closed(case: Case) -> Derived:
    """Derive the plateau of e <- (1-q) theta e + q theta, theta <= exp(-(eps/m - m/2)^2 / 2).

    The plateau is below delta as soon as theta is below delta / (q + (1-q) delta).
    """
    run, stage = case.run, require_constant(case)
    moved = _apart(run, stage) / stage.nu * ROUNDED
    m, q, delta = (MP.mpf(x) for x in (moved, run.sampling_rate, case.delta))
    theta = delta / (q + (1 - q) * delta)
    epsilon = m * m / 2 + m * MP.sqrt(-2 * MP.log(theta))
    return Derived(up(epsilon), f"one step is {float(m):.9g}-GDP, in fifty digits")


# --- Rényi forms of one pass ---------------------------------------------------------------------


@theorem(OnePass)
def mixing_rdp(case: Case) -> Derived:
    """Derive the Rényi rate of the last record, and its classic conversion.

    Earlier records have shorter ways in units of the noise that hides them, as long as a step does
    not stretch distances by sqrt(2) and more.
    """
    rate = _contractive_pass(case)[0] / 2
    epsilon = up(rate + 2 * MP.sqrt(-rate * MP.log(case.delta)))
    return Derived(epsilon, f"alpha * {float(rate):.9g} at the best order")


@theorem(OnePass, release=STOPPED)
def random_stop_rdp(case: Case) -> Derived:
    """Derive the Rényi bound of a random stop: twice the mean, where that is allowed."""
    square, slope = _contractive_pass(case)
    steps = case.run.steps
    # A step that stretches distances by a rounding may do so in every one of them.
    square *= max(MP.mpf(1), MP.mpf(slope) ** (2 * steps))
    orders = case.witness["orders"].numbers(most=500)
    # With x = (alpha - 1) D_alpha: e^x - 1 <= 2 x not only up to 1 but up to 1.25.
    fits = all(order > 1 and order * (order - 1) * square <= 2.1 for order in orders)
    case.require("orders", fits, f"up to {max(orders):.9g} at step {float(square):.9g}^.5")
    rate = up(square * MP.harmonic(steps) / steps)
    # As of two Gaussians: alpha times the rate.
    epsilon = sampled_epsilon([(math.sqrt(2 * rate) * ROUNDED, 1.0, 1)], orders, case.delta)
    return Derived(epsilon, f"best of {len(orders)} orders, rate {rate:.9g}")


def _contractive_pass(case: Case) -> tuple[Precise, float]:
    """Return the squared length of a record's step in units of the noise, and a step's slope."""
    run, stage = case.run, require_constant(case)
    require_contraction(case)
    maps = step_losses(case, least_share(run, smallest_batch(run), used=True))
    square = (MP.mpf(moved_by_record(run, stage.eta)) / stage.nu) ** 2
    return square, maps.slope(CONTRACTION, stage.eta)
