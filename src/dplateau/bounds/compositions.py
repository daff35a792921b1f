"""Composition: what an observer of every iterate sees of one record, a list of noisy uses.

Nothing but noise levels and sampling enters, so the five classical accountants hold for any losses,
step sizes and domains, and, since hiding iterates only helps, for any release
(docs/theory/compositions.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    Schedule,
    refuse_batches,
)
from dplateau.algorithms.schedule import PerStep, extremes, values_over
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, RENYI_MARGIN, Bound, Witness
from dplateau.bounds.conditions import Asks, Condition, ConstantRates, GaussianNoise
from dplateau.curves import (
    LARGEST_ORDER,
    LARGEST_REAL_ORDER,
    AdvancedCompositionCurve,
    DominatingPair,
    GaussianCurve,
    GroupCurve,
    LaplaceCurve,
    LaplacePair,
    LossCurve,
    MixturePair,
    NaiveCompositionCurve,
    PoissonPair,
    PrivacyCurve,
    RenyiCurve,
    SubsampledCurve,
    SubsampledGaussianPair,
    conversions,
    epsilon_over_counts,
    sampled_gaussian_rdp,
)
from dplateau.ground.types import FloatArray, IntArray
from dplateau.numerics.bernoulli_laws import AtomLaw

# Rényi orders: how many different uses tell which one is best, how often the grid is refined around
# it, and how many lengths are converted at every order (others only at the orders in between).
_MOST_ALIKE = 24
_REFINEMENTS = 3
_FULL_SEARCHES = 24
_ROUND_UP = 1 + 1e-14
# Uses that differ in distance and in rate, as many as a verification tells apart; up to so few
# distances it mixes rates. The finest ratio of a grid for more, and its steps.
_MOST_USES, _FEW_DISTANCES = 2000, 4
_FINEST_RATIO, _COARSER = 1e-4, 1.4


@dataclass(frozen=True)
class Use:
    """``count`` steps in which the record joins with probability ``sampling_rate``.

    ``distance`` is how far it can move the step, in units of the noise: of the standard deviation
    for Gaussian noise, of the scale for Laplace noise.
    """

    distance: float
    sampling_rate: float
    count: int


def uses_of_one_record(run: Run) -> tuple[Use, ...]:
    """Return the uses of the record that is exposed most."""
    per_unit = run.neighbor_factor * (math.sqrt(2.0) if run.noise_kind == "laplace" else 1.0)
    return tuple(Use(per_unit / noise, rate, count) for noise, rate, count in _exposed_blocks(run))


def is_sampled(run: Run) -> bool:
    """Return whether chance leaves a record out of some step's batch."""
    match run.batches:
        case Poisson() | FixedSize():
            return extremes(run.stated_rate)[0] < 1
        case FullBatch() | Cyclic() | OnePass():
            return False
        case _ as unknown:
            refuse_batches(unknown)


# A noise multiplier, the chance of joining at that noise, and for how many uses.
_Block = tuple[float, float, int]


def _exposed_blocks(run: Run) -> tuple[_Block, ...]:
    """Return the uses of the record that is exposed most, in blocks of equal ones."""
    noise = run.noise_multiplier
    match run.batches:
        case FullBatch():
            return _paired(noise, 1.0, run.steps)
        case Poisson(rate=rate):
            return _paired(noise, rate, run.steps)
        case FixedSize():
            return _paired(noise, run.sampling_rate, run.steps)
        case Cyclic():
            return _cyclic_blocks(run)
        case OnePass():
            return ((extremes(noise)[0], 1.0, 1),)
        case _ as unknown:
            refuse_batches(unknown)


def _paired(noise: PerStep, rate: PerStep, steps: int) -> tuple[_Block, ...]:
    """Return blocks of steps in which neither noise nor rate changes."""
    if not isinstance(rate, Schedule):
        blocks = noise.blocks if isinstance(noise, Schedule) else ((noise, steps),)
        return tuple((value, rate, count) for value, count in blocks)
    noises, rates = values_over(noise, steps), rate.values()
    changes = (noises[1:] != noises[:-1]) | (rates[1:] != rates[:-1])
    starts = np.flatnonzero(np.r_[True, changes])
    counts = np.diff(np.r_[starts, steps])
    return tuple(
        (float(noises[i]), float(rates[i]), int(k)) for i, k in zip(starts, counts, strict=True)
    )


def _cyclic_blocks(run: Run) -> tuple[_Block, ...]:
    noise = run.noise_multiplier
    epochs = -(-run.steps // run.batches_per_epoch)
    if not isinstance(noise, Schedule):
        return ((noise, 1.0, epochs),)
    # A record is used once an epoch; its slot is unknown, so charge each epoch's quietest step.
    padded = np.full(epochs * run.batches_per_epoch, np.inf)
    padded[: run.steps] = values_over(noise, run.steps)
    quietest = padded.reshape(epochs, run.batches_per_epoch).min(axis=1)
    return _paired(Schedule.of(quietest), 1.0, epochs)


def uses_over_steps(run: Run, steps: IntArray) -> tuple[Use, IntArray]:
    """Return the record's one kind of use, and how often it happens in runs of these lengths.

    ``run`` has no schedule: only then is there one kind, and a length that can be changed.
    """
    (use,) = uses_of_one_record(run)
    period = run.batches_per_epoch if isinstance(run.batches, Cyclic) else 1
    return use, -(-steps // period)


def for_each_count(counts: IntArray, epsilon: Callable[[int], float]) -> FloatArray:
    """Return ``epsilon(count)`` for every count, asking once for equal ones."""
    distinct, where = np.unique(counts, return_inverse=True)
    return np.array([epsilon(int(count)) for count in distinct])[where]


def _why_no_uses(run: Run) -> str | None:
    uses_of_one_record(run)  # refuses if the noise multiplier is not known
    return None


KNOWN_USES = Asks(_why_no_uses)


# Composing Gaussians is exact: where that applies, no other accountant is smaller.
_EXACT_WITHOUT_SAMPLING = ("gdp_composition",)


class Accountant(Bound):
    """What classical accountants share: they read the uses of the most exposed record."""

    note = "docs/theory/compositions.md"
    release = None
    rates: ClassVar[Condition | None] = None


class RepeatedStep(Accountant):
    """The most exposed step, amplified by sampling, as often as there are steps."""

    rates = ConstantRates()
    dominated_by = _EXACT_WITHOUT_SAMPLING
    repeated: ClassVar[type[NaiveCompositionCurve] | type[AdvancedCompositionCurve]]

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        uses = uses_of_one_record(run)
        worst = max(uses, key=lambda use: use.distance)
        return self.repeated(_step_curve(worst, run), sum(use.count for use in uses))

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        use, counts = uses_over_steps(run, steps)
        step = _step_curve(use, run)
        return for_each_count(counts, lambda n: self.repeated(step, n).epsilon(delta))


def _swaps_under_laplace(run: Run) -> bool:
    return run.noise_kind == "laplace" and run.neighbors == "replace"


_SWAPPED_LAPLACE = (
    "knows sampled Laplace noise for neighbors='add_remove' only; use that, or "
    "noise_kind='gaussian'"
)


def _why_no_step_curve(run: Run) -> str | None:
    return _SWAPPED_LAPLACE if _swaps_under_laplace(run) and is_sampled(run) else None


def _step_curve(use: Use, run: Run) -> PrivacyCurve:
    """Return one use's curve, amplified by sampling (both neighboring relations)."""
    laplace = run.noise_kind == "laplace"
    alone = LaplaceCurve(use.distance) if laplace else GaussianCurve(use.distance)
    return alone if use.sampling_rate == 1 else SubsampledCurve(alone, use.sampling_rate)


class NaiveComposition(RepeatedStep):
    """(T eps', T delta') after amplifying each step by sampling; the quietest step sets eps'."""

    name = "naive_composition"
    title = "Naive composition"
    citation = literature.dwork_roth("Theorem 3.16, with amplification by sampling at each step")
    needs = (Asks(_why_no_step_curve), KNOWN_USES)
    repeated = NaiveCompositionCurve


class AdvancedComposition(RepeatedStep):
    """eps' sqrt(2T log(1/delta'')) + T eps' tanh(eps'/2), after amplifying each step."""

    name = "advanced_composition"
    title = "Advanced composition"
    citation = literature.dwork_roth("Theorem 3.20, with amplification by sampling at each step")
    needs = (Asks(_why_no_step_curve), KNOWN_USES)
    repeated = AdvancedCompositionCurve


def _why_no_poisson_sample(run: Run) -> str | None:
    if run.neighbors == "replace" and is_sampled(run):
        return (
            "is about a record that joins or leaves a Poisson sample; for neighbors='replace' on "
            "random batches use PLD composition"
        )
    return None


class RdpComposition(Accountant):
    """The moments accountant: Rényi divergences add up over steps, converted at the best order."""

    name = "rdp_composition"
    claim_margin = RENYI_MARGIN
    title = "RDP (moments accountant)"
    dominated_by = _EXACT_WITHOUT_SAMPLING
    citation = literature.mironov_sampled("Theorem 4 and section 3.3")
    needs = (
        GaussianNoise("PLD composition covers it"),
        Asks(_why_no_poisson_sample),
        KNOWN_USES,
    )

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the orders near the best one, after refining the grid around it.

        Any orders are valid, so uses that are nearly alike are taken for the same here.
        """
        uses = _few_alike(uses_of_one_record(run))
        orders = starting_orders(60, 24)
        values = total_rdp(uses, orders)
        for _ in range(_REFINEMENTS):
            place = int(np.argmin(conversions.optimal_epsilon(orders, values, delta)))
            low, high = orders[max(0, place - 1)], orders[min(place + 1, orders.size - 1)]
            extra = np.setdiff1d(_between(low, high, 8), orders)
            values = np.concatenate([values, total_rdp(uses, extra)])
            ranks = np.argsort(np.concatenate([orders, extra]))
            orders, values = np.concatenate([orders, extra])[ranks], values[ranks]
        near = np.abs(np.log((orders - 1) / (orders[place] - 1))) <= math.log(2.0)
        return {"orders": [float(a) for a in orders[near]]}

    def curve(self, run: Run, witness: Witness) -> RenyiCurve:
        orders = np.asarray(witness["orders"], dtype=float)
        values = total_rdp(uses_of_one_record(run), orders)
        return RenyiCurve(tuple(orders.tolist()), tuple(values.tolist()))

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Scale one step's divergences, on a denser grid of orders instead of a refined one."""
        use, counts = uses_over_steps(run, steps)
        lengths, where = np.unique(counts, return_inverse=True)
        return _least_over_orders(use, lengths, delta)[where]


def _few_alike(uses: tuple[Use, ...]) -> tuple[Use, ...]:
    """Return a few uses that stand for all, each for those of about its rate and distance."""
    alike, spacing = uses, 1e-3
    while len(alike) > _MOST_ALIKE:
        counts: dict[tuple[int, int], int] = {}
        for use in uses:
            logs = math.log(use.sampling_rate), math.log(use.distance)
            key = round(logs[0] / spacing), round(logs[1] / spacing)
            counts[key] = counts.get(key, 0) + use.count
        alike = tuple(
            Use(math.exp(distance * spacing), min(math.exp(rate * spacing), 1.0), count)
            for (rate, distance), count in counts.items()
        )
        spacing *= 2
    return alike


def total_rdp(uses: tuple[Use, ...], orders: FloatArray) -> FloatArray:
    """Return the divergence of all uses together at each order."""
    total = np.zeros_like(orders)
    for use in uses:
        total += use.count * sampled_gaussian_rdp(orders, use.sampling_rate, use.distance)
    total *= _ROUND_UP
    return total


def starting_orders(real: int, whole: int) -> FloatArray:
    """Return orders from 1.0005 to 16384, dense where the best order usually lies."""
    low = 1 + np.geomspace(5e-4, LARGEST_REAL_ORDER - 1, real)
    high = np.unique(np.round(np.geomspace(LARGEST_REAL_ORDER + 1, LARGEST_ORDER, whole)))
    return np.concatenate([low, high])


def _between(low: float, high: float, count: int) -> FloatArray:
    """Return orders between two orders, whole ones where real ones are not computed."""
    points = 1 + np.geomspace(low - 1, high - 1, count)
    return np.unique(np.where(points > LARGEST_REAL_ORDER, np.round(points), points))


def _least_over_orders(use: Use, lengths: IntArray, delta: float) -> FloatArray:
    """Return the least epsilon over orders for ``lengths`` (increasing) repeats of ``use``.

    The best order falls with the length, so it is searched in full for a few lengths, and for each
    other one between the best orders of its neighbors (any range of orders would be valid).
    """
    shown = np.unique(np.linspace(0, lengths.size - 1, _FULL_SEARCHES).round().astype(int))
    orders, _, best = _best_orders(use, starting_orders(60, 24), lengths[shown], delta)
    low, high = orders[max(best.min() - 1, 0)], orders[min(best.max() + 1, orders.size - 1)]
    orders, once, best = _best_orders(use, _between(low, high, 300), lengths[shown], delta)
    right = np.minimum(np.searchsorted(shown, np.arange(lengths.size)), shown.size - 1)
    ends = np.sort([best[np.maximum(right - 1, 0)], best[right]], axis=0)
    first, last = np.maximum(ends[0] - 1, 0), np.minimum(ends[1] + 1, orders.size - 1)
    # One flat list of (length, order) pairs: each length with its own range of orders.
    widths = last - first + 1
    starts = np.cumsum(widths) - widths
    column = np.arange(widths.sum()) - np.repeat(starts - first, widths)
    totals = np.repeat(lengths, widths) * once[column] * _ROUND_UP
    epsilons = conversions.optimal_epsilon(orders[column], totals, delta)
    return np.minimum.reduceat(epsilons, starts)


def _best_orders(
    use: Use, orders: FloatArray, lengths: IntArray, delta: float
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the orders, one use's divergence at each, and the best order's place per length."""
    once = sampled_gaussian_rdp(orders, use.sampling_rate, use.distance)
    epsilons = conversions.optimal_epsilon(orders, np.multiply.outer(lengths, once), delta)
    return orders, once, epsilons.argmin(axis=1)


def _why_sampled(run: Run) -> str | None:
    if is_sampled(run):
        return (
            "needs records that join every batch they are due in; random batches make mixtures, "
            "which are no Gaussian (PLD composition covers them)"
        )
    return None


class GdpComposition(Accountant):
    """Exact without sampling: mu = sqrt(sum of squared distances over the record's uses)."""

    name = "gdp_composition"
    title = "GDP composition"
    citation = literature.dong_roth_su("Corollary 3.3")
    needs = (GaussianNoise("PLD composition covers it"), Asks(_why_sampled), KNOWN_USES)

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        total = math.fsum(use.count * use.distance**2 for use in uses_of_one_record(run))
        return GaussianCurve(math.sqrt(total) * (1 + 1e-15))

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        use, counts = uses_over_steps(run, steps)
        mu = use.distance * (1 + 1e-15)
        return for_each_count(counts, lambda n: GaussianCurve(mu * math.sqrt(n)).epsilon(delta))


def _why_no_pair(run: Run) -> str | None:
    match run.batches:
        case FixedSize() if _swaps_under_laplace(run):
            return _SWAPPED_LAPLACE
        case _:
            return None


class PldComposition(Accountant):
    """The product of every step's dominating pair, composed in both orders and rounded up."""

    name = "pld_composition"
    claim_margin = COMPOSED_MARGIN
    title = "PLD composition"
    citation = literature.connect_the_dots("Algorithm 1, composed by fast Fourier transform")
    dominated_by = _EXACT_WITHOUT_SAMPLING
    needs = (Asks(_why_no_pair), KNOWN_USES)

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        match run.batches:
            case Poisson() if _swaps_under_laplace(run):
                # One removed and one added: no sharper pair is known.
                return GroupCurve(self.curve(run.replace(neighbors="add_remove"), witness), 2)
            case _:
                uses = _told_apart(uses_of_one_record(run))
                return LossCurve(tuple((pair_of(use, run), use.count) for use in uses))

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Share discretized pairs between close lengths; at most about two percent looser."""
        if _swaps_under_laplace(run):
            return Bound.epsilon_over_steps(self, run, delta, steps)
        use, counts = uses_over_steps(run, steps)
        return epsilon_over_counts(pair_of(use, run), counts, delta)


def _told_apart(uses: Sequence[Use]) -> Sequence[Use]:
    """Return uses that a verification tells apart in seconds, or larger ones.

    Many distances at one rate, or many rates at few distances, cost next to nothing there. Where
    both change from step to step, both are rounded up here too: to powers of a ratio below the
    largest. So what is claimed is what can be derived again.
    """
    sampled = [use for use in uses if use.sampling_rate < 1]
    numbers = np.array([(use.distance, use.sampling_rate) for use in sampled]).reshape(-1, 2)
    several = [np.unique(column).size for column in numbers.T]
    few = len(np.unique(numbers, axis=0)) <= _MOST_USES
    if few or several[0] <= _FEW_DISTANCES or several[1] == 1:
        return uses
    logs, ratio = np.log(numbers.max(axis=0) / numbers), _FINEST_RATIO
    while len(np.unique(np.floor(logs / ratio), axis=0)) > _MOST_USES:
        ratio *= _COARSER
    powers = np.exp(-ratio * np.floor(logs / ratio)) * _ROUND_UP
    raised = numbers.max(axis=0) * np.minimum(powers, 1.0)
    counts = Counter[tuple[float, float]]()
    for use, (distance, rate) in zip(sampled, raised.tolist(), strict=True):
        counts[distance, rate] += use.count
    rounded = [Use(distance, rate, count) for (distance, rate), count in counts.items()]
    return [*(use for use in uses if use.sampling_rate == 1), *rounded]


def pair_of(use: Use, run: Run) -> DominatingPair:
    """Return the pair that dominates one use.

    A replaced record in a Poisson sample moves the step to one side for one neighbor and to the
    other side for the other: two mixtures that mirror each other (docs/theory/blocks.md, Theorem 3,
    whose blocks are single steps here). In a sample of fixed size it is in the sample of both
    neighbors or of neither, two gradient bounds apart: the symmetric subsampling operator at the
    full distance (Dong, Roth and Su, Theorem 4.2).
    """
    if run.noise_kind == "laplace":
        return LaplacePair(ratio=use.distance, sampling_rate=use.sampling_rate)
    if run.neighbors == "replace" and use.sampling_rate < 1:
        if isinstance(run.batches, Poisson):
            moved = AtomLaw((0.0, use.distance / 2), (1 - use.sampling_rate, use.sampling_rate))
            return MixturePair(moved, moved)
        return SubsampledGaussianPair(sampling_rate=use.sampling_rate, parameter=use.distance)
    return PoissonPair(sampling_rate=use.sampling_rate, step=use.distance)
