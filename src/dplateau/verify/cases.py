"""A certificate under examination: what its run says, and what a theorem's checker hands back.

A claim holds if it is not below what was derived. There is no tolerance: whoever makes a claim
leaves room for evaluating its proof in another way. Numbers of the run are converted anew; lengths
are rounded up and shares of a batch outward, so that what is derived from them is an upper bound in
exact arithmetic too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    Release,
    Run,
    Schedule,
    Scheme,
    refuse_batches,
)
from dplateau.algorithms.schedule import PerStep
from dplateau.algorithms.stated import learning_rate_of, loss_of
from dplateau.errors import NotApplicable
from dplateau.verify.composed import Curve, Rows, composed_epsilon
from dplateau.verify.precise import MP, Precise, binomial_tail, gaussian_epsilon, up
from dplateau.verify.reading import Entry
from dplateau.verify.report import Examination

# More than a few products and roots of doubles can be off.
ROUNDED = 1 + 1e-13
HIDDEN = LastIterate()
# (value, number of steps)
Blocks = list[tuple[float, int]]
_MOST_RECORDS = 10**6
_MOST_VALUES = 5000
# Steps of different sizes that are composed each on its own: rounding up fewer of a schedule that
# spreads fortyfold costs more than the margin of honest claims.
MOST_USES = 2000


@dataclass(frozen=True)
class Case:
    """One certificate under examination: the run, its witness and claim, and the checks so far.

    ``delta`` is a double, or of fifty digits where group privacy makes it too small for one.
    """

    run: Run
    witness: Entry
    epsilon: float
    delta: Precise
    examination: Examination

    def require(self, name: str, condition: bool, detail: str) -> None:
        """Write a check down, and stop if it failed."""
        self.examination.require(name, condition, detail)


@dataclass(frozen=True)
class Derived:
    """The epsilon that the theorem gives with the certificate's witness, and how it was found.

    What else is known of the whole curve serves groups and compositions: epsilon at a delta if
    every distance were so many times as long (``stretched``: a group moves the center of Gaussian
    and Laplace noise as often as it has records), that it is ``mu``-GDP, that it is an average of
    products of pairs (``rows``), or upper bounds that are sharp ``near`` an (epsilon, delta).
    """

    epsilon: float
    how: str
    stretched: Callable[[int, Precise], float] | None = None
    mu: float | None = None
    rows: Rows | None = None
    near: Callable[[float, float], Curve] | None = None

    @property
    def proved_mu(self) -> float:
        """Return mu, or end the derivation where no Gaussian curve is proved."""
        if self.mu is None:
            raise ArithmeticError("the theorem proves no Gaussian curve here")
        return self.mu


Theorem = Callable[[Case], Derived]
# Every theorem that can be verified, by the name that certificates use.
THEOREMS: dict[str, Theorem] = {}
# Theorems that speak of several records themselves; the others are extended by group privacy.
KNOW_GROUPS: set[str] = set()


def theorem(
    *schemes: Scheme,
    release: Release | None = HIDDEN,
    noise: str | None = "gaussian",
    neighbors: str | None = None,
    domain: bool = False,
    own_rates: bool = False,
    knows_groups: bool = False,
) -> Callable[[Theorem], Theorem]:
    """Register a derivation under its own name, with what it requires of every run.

    A theorem about one release is about plain steps and known losses too; with None it requires
    what it needs itself.
    """

    def registered(derive: Theorem) -> Theorem:
        def checked(case: Case) -> Derived:
            run = case.run
            if release is not None:
                case.require("release", run.release == release, f"it is {run.release.name!r}")
                require_plain(case, own_rates=own_rates)
            if noise is not None:
                require_noise(case, noise)
            if schemes:
                require_batches(case, *schemes)
            if neighbors is not None:
                fits = run.neighbors == neighbors
                case.require("neighbors", fits, f"they are {run.neighbors!r}")
            if domain:
                require_domain(case)
            return derive(case)

        THEOREMS[derive.__name__] = checked
        if knows_groups:
            KNOW_GROUPS.add(derive.__name__)
        return checked

    return registered


def rederived(case: Case, name: str) -> Derived:
    """Return what the theorem gives, whatever the group size."""
    case.require("bound", name in THEOREMS, f"{name!r}")
    if case.run.group_size == 1 or name in KNOW_GROUPS:
        return THEOREMS[name](case)
    return _group_derived(case, THEOREMS[name])


# --- from curves to epsilons ---------------------------------------------------------------------


def gaussian_derived(mu: float, delta: Precise) -> Derived:
    """Return mu-GDP as an epsilon; m records that change together are m mu-GDP."""
    mu *= ROUNDED

    def stretched(size: int, level: Precise) -> float:
        return gaussian_epsilon(size * mu, level)

    return Derived(stretched(1, delta), f"{mu:.9g}-GDP, in fifty digits", stretched, mu=mu)


def product_derived(case: Case, rows: Rows, *, of_two: bool = False) -> Derived:
    """Return what an average of products of pairs gives.

    With ``of_two`` that of two records: (1 + e^(eps/2)) delta(eps/2), each at half epsilon.
    """
    composed = composed_epsilon(rows, case.epsilon, case.delta, of_two=of_two)
    count = len(rows.weights)
    many = "two records" if of_two else f"{count} composition{'s' if count > 1 else ''}"
    how = f"{many}, losses on a grid of {composed.interval:.3g}"
    return Derived(composed.epsilon, how, rows=None if of_two else rows, near=composed.near)


def _group_derived(case: Case, derive: Theorem) -> Derived:
    """Derive a claim about m records that change together from the theorem's claim about one.

    A chain of m single changes leads from one data set to the other, and every change is
    (e, d)-private: so all of them are (m e, d (1 + e^e + ... + e^((m-1) e)))-private. With e the
    share of one record in the claimed epsilon, one record must be (e, d)-private at the d that adds
    up to the claimed delta. Where the distances of Gaussian or Laplace noise are known, m times the
    distance is sharper.
    """
    size, loss = case.run.group_size, case.run.loss
    case.require("group size", size <= _MOST_RECORDS, f"{size} records")
    share = math.nextafter(case.epsilon / size, 0.0)
    terms = MP.expm1(size * MP.mpf(share)) / MP.expm1(share) if share > 0 else size
    level = case.delta / terms
    if level > 1e-290:
        level = math.nextafter(float(level), 0.0)
    if loss is not None and case.run.neighbors == "add_remove":
        # Absent records take their curvature with them.
        loss = replace(loss, strong_convexity=0.0, dissipativity=None)
    single = case.run.replace(group_size=1, loss=loss)
    one = derive(replace(case, run=single, epsilon=share, delta=level))
    if one.stretched is not None:
        how = f"{one.how}, at {size} times the distance"
        mu = None if one.mu is None else size * one.mu
        return Derived(one.stretched(size, case.delta), how, mu=mu)
    how = f"{one.how}, for each of {size} records at delta {float(level):.3g}"
    # The sum of deltas is that of the share: a record that costs more proves nothing here.
    met = one.epsilon <= share
    return Derived(up(size * MP.mpf(one.epsilon)) if met else math.inf, how)


# --- what theorems require -----------------------------------------------------------------------


def require_plain(
    case: Case, *, own_rates: bool = False, record_moves: bool = True, averaged: bool = False
) -> None:
    """Require plain steps of known length, and known losses; bounded ones if a record may move."""
    run = case.run
    if not own_rates:
        detail = "records join with another probability than batch_size / n"
        case.require("sampling rate", not run.has_own_rate, detail)
    plain = run.momentum == 0 and (averaged or run.average_last == 1)
    case.require("plain steps", plain, "momentum and averaged iterates are not covered")
    case.require("learning rate", run.learning_rate is not None, "the theorem needs it")
    known = run.loss is not None and (not record_moves or math.isfinite(run.loss.lipschitz))
    case.require("geometry", known, "the loss's constants must be known")


def require_noise(case: Case, kind: str = "gaussian") -> None:
    """Require the kind of noise that a theorem is about."""
    case.require("noise kind", case.run.noise_kind == kind, f"the noise is {case.run.noise_kind}")


def require_batches(case: Case, *schemes: Scheme) -> None:
    """Require the kind of batches that a theorem is about."""
    about = " or ".join(scheme.described for scheme in schemes)
    fits = isinstance(case.run.batches, schemes)
    detail = f"the theorem is about {about}; this is {case.run.described}"
    case.require("algorithm", fits, detail)


def require_domain(case: Case) -> None:
    """Require a bounded domain."""
    case.require("domain", math.isfinite(case.run.diameter), f"D = {case.run.diameter:g}")


def require_constant(case: Case) -> Stage:
    """Require the same learning rate and noise at every step, and return them."""
    first, *others = {(stage.eta, stage.nu) for stage in stages(case.run)}
    case.require("constant steps", not others, "the theorem is about equal steps")
    return Stage(case.run.steps, *first)


def require_contraction(case: Case) -> None:
    """Require smooth losses, and that no step expands: eta (M + l2) <= 2, and convexity or l2 >= M.

    What a step does to distances is derived exactly elsewhere, so the room for rounding left here
    is not part of any claim.
    """
    run, loss = case.run, loss_of(case.run)
    case.require("losses", math.isfinite(loss.smoothness), "a contraction needs smooth losses")
    outweighed = loss.convex or run.l2 >= loss.smoothness
    detail = f"nonconvex losses of smoothness M = {loss.smoothness:.9g} against l2 = {run.l2:.9g}"
    case.require("convexity", outweighed, "convex losses" if loss.convex else detail)
    largest = max(eta for eta, _ in blocks_of(learning_rate_of(run), run.steps))
    level = largest * (loss.smoothness + run.l2)
    detail = f"eta (M + l2) = {level:.9g} must not exceed 2"
    case.require("contraction", level <= 2 * (1 + 1e-9), detail)


def require_cap(case: Case) -> tuple[int, Precise]:
    """Return the cap on batches and what exceeding it costs: the sum of P(Bin(n, q_t) > cap)."""
    run, cap = case.run, case.witness["batch_cap"].whole()
    match run.batches:
        case Poisson(rate=rate):
            rates = joined(blocks_of(rate, run.steps))
            cost = MP.fsum(n * binomial_tail(cap, run.n, q) for q, n in rates)
        case FixedSize(size=size):
            case.require("batch cap", cap == size, f"{cap} of {size}")
            cost = MP.zero
        case FullBatch() | Cyclic() | OnePass():
            raise NotApplicable("only random batches need a cap")
        case _ as unknown:
            refuse_batches(unknown)
    detail = f"more than {cap} records in a batch: chance {float(cost):.3g}"
    case.require("batches above the cap", cost < case.delta, detail)
    return cap, cost


# --- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """``count`` equal steps: learning rate eta and noise nu in parameter space."""

    count: int
    eta: float
    nu: float


def blocks_of(value: PerStep, steps: int) -> Blocks:
    """Return (value, number of steps) for a constant or a schedule."""
    if isinstance(value, Schedule):
        return list(value.blocks)
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
    counted: dict[float, int] = {}
    for value, count in blocks:
        counted[value] = counted.get(value, 0) + count
    if len(counted) > _MOST_VALUES:
        raise ArithmeticError(f"a schedule of more than {_MOST_VALUES} values")
    return list(counted.items())


def fewer_uses(
    counted: dict[tuple[float, float], int], most: int = MOST_USES
) -> dict[tuple[float, float], int]:
    """Return uses (distance, sampling rate) with their counts, few enough to be told apart.

    If there are too many, both are rounded up to their largest divided by powers of one number, so
    that what never changes stays as it is.
    """

    def raised(value: float, largest: float) -> float:
        powers = math.floor(math.log(largest / value) / ratio)
        return min(largest, max(value, largest * math.exp(-powers * ratio)))

    ratio, rounded = 1e-4, counted
    while len(rounded) > most:
        tops = [max(values) for values in zip(*counted, strict=True)]
        rounded = {}
        for use, count in counted.items():
            size, rate = map(raised, use, tops)
            rounded[size, rate] = rounded.get((size, rate), 0) + count
        ratio *= 1.4
    return rounded


def multipliers(case: Case) -> Blocks:
    """Return the noise multiplier z = sigma b / L over the steps."""
    run, (name, value) = case.run, _stated_noise(case.run)
    noises = blocks_of(value, run.steps)
    if name == "noise_multiplier":
        return noises
    lipschitz = math.inf if run.loss is None else run.loss.lipschitz
    known = math.isfinite(lipschitz)
    case.require("noise multiplier", known, f"{name} with a Lipschitz constant of {lipschitz}")
    if name == "noise_std":
        return [(std * run.batch_size / lipschitz, count) for std, count in noises]
    case.require("learning rate", run.learning_rate is not None, "needed to read iterate_std")
    steps = together(noises, blocks_of(learning_rate_of(run), run.steps))
    return [(nu / eta * run.batch_size / lipschitz, count) for nu, eta, count in steps]


def stages(run: Run) -> list[Stage]:
    """Return learning rate and noise in parameter space over the steps (geometry is known)."""
    name, value = _stated_noise(run)
    unit = loss_of(run).lipschitz / run.batch_size if name == "noise_multiplier" else 1.0
    rates = blocks_of(learning_rate_of(run), run.steps)
    return [
        Stage(count, eta, (noise if name == "iterate_std" else eta * noise) * unit)
        for eta, noise, count in together(rates, blocks_of(value, run.steps))
    ]


def _stated_noise(run: Run) -> tuple[str, PerStep]:
    if run.inverse_temperature is None:
        return run.noise.name, run.noise.value
    rates = blocks_of(learning_rate_of(run), run.steps)
    noises = [(math.sqrt(2 * eta / run.inverse_temperature), count) for eta, count in rates]
    return "iterate_std", Schedule(tuple(noises))


def distance_factor(run: Run) -> int:
    """Return Delta / L: one gradient for add_remove, two for replace."""
    return {"add_remove": 1, "replace": 2}[run.neighbors]


def moved_by_record(run: Run, eta: float) -> float:
    """Return how far the record moves a step: eta Delta / b, rounded up."""
    return distance_factor(run) * eta * loss_of(run).lipschitz / run.batch_size * ROUNDED


# --- batches -------------------------------------------------------------------------------------


def batches_per_epoch(run: Run) -> int:
    """Return ceil(n / b) (one pass: the number of steps, which is the same)."""
    return -(-run.n // int(run.batch_size))


def order_of(run: Run) -> str | None:
    """Return the order of batches in turn, or None if they do not take turns."""
    return run.batches.order if isinstance(run.batches, Cyclic) else None


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
    share = common / run.batch_size
    exact = Fraction(share) * Fraction(run.batch_size) <= common
    return share if exact else math.nextafter(share, 0)


def largest_share(run: Run, records: int) -> float:
    """Return the share of b that so many records are, rounded up."""
    share = records / run.batch_size
    exact = Fraction(share) * Fraction(run.batch_size) >= records
    return share if exact else math.nextafter(share, math.inf)


def equal_steps(run: Run) -> bool:
    """Return whether all steps that use the record are alike, and all others are.

    Schedules change them, and so does a shorter last batch if records add curvature.
    """
    if run.has_schedule:
        return False
    return loss_of(run).strong_convexity == 0 or smallest_batch(run) == int(run.batch_size)
