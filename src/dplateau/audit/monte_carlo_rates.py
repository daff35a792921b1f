"""What the counts of an audit prove against a claim, and what an audit has the power to find.

Binomial bounds give a region for two rates at once; set against a claim, the region refutes it or
does not. The rest is about power: how small a leak an audit of some size finds, and on which data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    refuse_batches,
    require_run,
)
from dplateau.curves import PrivacyCurve
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.shown import rounded_up
from dplateau.ground.types import FloatArray, IntArray
from dplateau.numerics import normal

# ---- regions for two rates ----------------------------------------------------------------------
#
# Binomial bounds, and confidence regions for two rates at once.
#
# A region for the pair (P, Q) collects all pairs that the counts do not rule out. Under (P, Q) the
# two one-sided tail probabilities of the counts are independent and no smaller than uniform ones,
# so minus the logarithm of their product exceeds the quantile of a Gamma(2) law no more often than
# stated (Fisher's combination of tests). The region is bounded by Clopper-Pearson bounds whose
# levels have a fixed product: it cuts off the corner that a rectangle of two separate bounds would
# add, in which both counts are unlikely at once. That is worth about two thirds more runs.

# Thresholds in an audit. Their events are nested, so that more of them find little more, while
# each makes the others a little less sharp.
THRESHOLDS = 16
# Corners that stand for the boundary of a region. Fewer enclose a larger region: safe, less sharp.
CORNERS = 24

# Counts, or rates, on the data and on the neighbor.
Hits = tuple[IntArray, IntArray]
Corners = tuple[FloatArray, FloatArray]


def least_rates(hits: IntArray, runs: int, level: float) -> FloatArray:
    """Return Clopper-Pearson lower bounds, each too high with probability at most ``level``."""
    from scipy.special import betaincinv

    counts, where = np.unique(hits, return_inverse=True)
    bounds = np.zeros(counts.shape)
    some = counts > 0
    bounds[some] = betaincinv(counts[some], runs - counts[some] + 1, level)
    return bounds[where].reshape(np.shape(hits))


def most_rates(hits: IntArray, runs: int, level: float) -> FloatArray:
    """Return Clopper-Pearson upper bounds, each too low with probability at most ``level``."""
    return 1.0 - least_rates(runs - np.asarray(hits), runs, level)


def level_of_each(confidence: float) -> float:
    """Return the error that one threshold's region may have: the audit's own, shared (Bonferroni).

    The usual band for a whole distribution function (Dvoretzky, Kiefer and Wolfowitz) is as wide in
    the tails as in the middle. With a few thresholds, binomial bounds at shared levels are as good
    in the middle and far better in the tails, where small deltas are decided.
    """
    return (1.0 - confidence) / THRESHOLDS


def region_corners(hits: Hits, runs: int, level: float, count: int = CORNERS) -> Corners:
    """Return corners (P, Q), along the first axis, of a staircase that encloses the region.

    ``hits`` holds the counts whose rates P and Q are. Whatever is true lies, but with probability
    ``level``, above P and below Q of some corner.
    """
    from scipy.special import gammainccinv

    # The levels of the two bounds multiply to exp(-total).
    total = float(gammainccinv(2.0, level))
    shares = np.arange(1, count + 1) / count
    least = [least_rates(hits[0], runs, float(np.exp(-total * share))) for share in shares]
    # One step of the staircase back, so that no pair between two corners is left out.
    most = [
        most_rates(hits[1], runs, float(np.exp(-total * (1 + 1 / count - share))))
        for share in shares
    ]
    return np.array(least), np.array(most)


# ---- a claim against its counts -----------------------------------------------------------------
#
# What counts prove against a claim.
#
# An event A is seen with probability P(A) on the one data set and Q(A) on its neighbor. A claim
# delta(epsilon) says P(A) - e^epsilon Q(A) <= delta(epsilon) at every epsilon >= 0, and the same
# with P and Q exchanged and with A exchanged for its complement. Over all epsilons that is the
# whole trade-off curve between false alarms and misses (Dong, Roth and Su, Proposition 2.12). A
# region that holds (P(A), Q(A)) with the stated confidence therefore either proves that the claim
# is false or is compatible with it. Both the region and the pairs that the claim allows are convex,
# so if they do not meet, a single epsilon shows it.

# Epsilons at which a claim is tested: fewer would test less of it, never too much.
_EPSILONS = 240
# Deltas around which a claim's numbers are sharp; each set of them is valid, so the least is.
_CENTERS = (0.1, 1e-5)

Direction = Literal["data_first", "neighbor_first"]


class Audited(Protocol):
    """What an audit asks of a claim: a certificate has it, and so has a composition of several."""

    @property
    def claimed_epsilon(self) -> float:
        """The epsilon that is claimed."""

    @property
    def claimed_delta(self) -> float:
        """The delta at which it is claimed."""

    @property
    def curve(self) -> PrivacyCurve:
        """What is claimed at every delta."""


@dataclass(frozen=True)
class ThresholdResult:
    """One event, "the score exceeds ``threshold``", and the strongest thing it says.

    ``hits_data`` and ``hits_neighbor`` count the tested runs in which it happened. With the audit's
    confidence, and for all thresholds together, they prove that at ``epsilon`` no delta below
    ``proved_delta`` holds, where ``claimed_delta`` is claimed. ``direction`` says which of the two
    laws comes first in that statement. ``least_data`` and ``most_neighbor`` are the rates that the
    counts do not rule out and that speak most for the claim.
    """

    threshold: float
    hits_data: int
    hits_neighbor: int
    least_data: float
    most_neighbor: float
    direction: Direction
    epsilon: float
    claimed_delta: float
    proved_delta: float

    @property
    def ratio(self) -> float:
        """The proved delta over the claimed one: above 1 the claim is refuted here."""
        if self.claimed_delta > 0:
            return self.proved_delta / self.claimed_delta
        return math.inf if self.proved_delta > 0 else 0.0

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted here."""
        return self.proved_delta > self.claimed_delta


@dataclass(frozen=True, eq=False)
class ClaimTable:
    """A claim at the epsilons that this many runs can say anything about."""

    epsilons: FloatArray
    deltas: FloatArray

    @classmethod
    def of(cls, claim: Audited, runs: int) -> ClaimTable:
        """Tabulate the claim; no rate below about 1 / runs can be told from 0."""
        epsilons, deltas = _tabulated(claim.curve, runs)
        # The headline is tested as it stands, whatever the curve says.
        return cls(np.r_[epsilons, claim.claimed_epsilon], np.r_[deltas, claim.claimed_delta])

    def gaps(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return first - e^epsilon second, a last axis of epsilons added."""
        # No rate that was bounded from above is as small as e^-700.
        growth = np.exp(np.minimum(self.epsilons, 700.0))
        return np.asarray(first[..., None] - second[..., None] * growth)


@lru_cache(maxsize=32)
def _tabulated(curve: PrivacyCurve, runs: int) -> tuple[FloatArray, FloatArray]:
    epsilons = np.linspace(0.0, math.log(4.0 * runs), _EPSILONS)
    return epsilons, np.min([curve.deltas(epsilons, center) for center in _CENTERS], axis=0)


def tail_levels(runs: int) -> FloatArray:
    """Return the rates at which thresholds are placed: from one half to a few hits."""
    return np.geomspace(0.5, min(0.25, 2.0 / runs), THRESHOLDS // 2)


def place_thresholds(data: FloatArray, neighbor: FloatArray) -> FloatArray:
    """Return thresholds from the scores of runs that are not tested afterwards.

    Half of them are rarely exceeded on the neighbor, half are rarely missed on the data.
    """
    levels = tail_levels(min(data.size, neighbor.size))
    rare = np.quantile(neighbor, 1.0 - levels)
    # One step down, so that a score that is always the same counts as exceeding.
    missed = np.nextafter(np.quantile(data, levels), -np.inf)
    return np.sort(np.concatenate([rare, missed]))


def count_hits(scores: FloatArray, thresholds: FloatArray) -> IntArray:
    """Return how many scores exceed each threshold."""
    above = scores.size - np.searchsorted(np.sort(scores), thresholds, side="right")
    return np.asarray(above, dtype=np.int64)


def judge(
    thresholds: FloatArray, hits: Hits, corners: Corners, table: ClaimTable
) -> tuple[ThresholdResult, ...]:
    """Return what each event proves, from its counts and the corners of its region."""
    return tuple(
        _judged(
            float(threshold),
            (int(hits[0][i]), int(hits[1][i])),
            (corners[0][:, i], corners[1][:, i]),
            table,
        )
        for i, threshold in enumerate(thresholds)
    )


def _judged(
    threshold: float, hits: tuple[int, int], corners: Corners, table: ClaimTable
) -> ThresholdResult:
    least, most = corners
    pairs: dict[Direction, Corners] = {
        "data_first": (least, most),
        "neighbor_first": (1.0 - most, 1.0 - least),
    }
    sides = []
    for direction, (first, second) in pairs.items():
        gaps = table.gaps(first, second)
        proved = gaps.min(axis=0)
        place = int(np.argmax(proved - table.deltas))
        corner = int(np.argmin(gaps[:, place]))
        sides.append(
            ThresholdResult(
                threshold=threshold,
                hits_data=hits[0],
                hits_neighbor=hits[1],
                least_data=float(least[corner]),
                most_neighbor=float(most[corner]),
                direction=direction,
                epsilon=float(table.epsilons[place]),
                claimed_delta=float(table.deltas[place]),
                proved_delta=max(0.0, float(proved[place])),
            )
        )
    return max(sides, key=lambda point: (point.violated, point.ratio))


def proved_epsilon(corners: Corners, delta: float) -> float:
    """Return the largest epsilon that some event proves to be needed at ``delta``."""
    least, most = corners
    # Both orders of the two laws; a rate bounded from above is never 0.
    present = np.min((least - delta) / most, axis=0)
    absent = np.min((1.0 - most - delta) / (1.0 - least), axis=0)
    return math.log(max(1.0, float(np.max(present)), float(np.max(absent))))


# ---- power --------------------------------------------------------------------------------------
#
# What an audit of this size would have found.
#
# An audit that finds nothing says little without this number. It is simulated, and is no part of
# any claim: scores are taken to be Gaussian, N(0, 1) on the neighbor and N(mu, 1) on the data, as
# they are for the last iterate of a ridge-regularized run on linear losses, and the score is taken
# to be the best one.

PROBABILITY = 0.8
_AUDITS = 400
_LARGEST_MU = 100.0
_ROUNDS = 12
_CORNERS = 12


@dataclass(frozen=True)
class DetectableLeak:
    """The smallest leak that the audit finds with probability at least ``probability``.

    ``allowed_mu`` is the largest mu for which mu-GDP is within the claim (as far as deltas that
    can be seen go), ``detectable_mu`` the smallest at which simulated audits of the same size
    refute it often enough, or None if they never do. ``noise_shortfall`` is 1 - allowed_mu /
    detectable_mu: for a claim that the trainer attains, by which share its noise would have to be
    too small.
    """

    allowed_mu: float
    detectable_mu: float | None
    probability: float = PROBABILITY
    method: str = "simulated for Gaussian scores"

    @property
    def noise_shortfall(self) -> float | None:
        """The share by which the noise would have to be too small, if the claim is attained."""
        return None if self.detectable_mu is None else 1.0 - self.allowed_mu / self.detectable_mu

    def __str__(self) -> str:
        """Say it in one sentence."""
        if self.detectable_mu is None or self.noise_shortfall is None:
            return (
                f"no Gaussian leak would have been found with probability {self.probability:g} "
                f"({self.method}): the claim is too weak for so few runs"
            )
        return (
            f"a leak of {rounded_up(self.detectable_mu, 3)}-GDP would have been found with "
            f"probability {self.probability:g} ({self.method}); the claim allows "
            f"{rounded_up(self.allowed_mu, 3)}-GDP, "
            "and a trainer that attains it leaks so much with noise "
            f"{100 * self.noise_shortfall:.0f} percent too small"
        )


def detectable_leak(table: ClaimTable, runs: int, confidence: float) -> DetectableLeak:
    """Search for the smallest mu at which simulated audits with ``runs`` tested runs succeed."""
    return _search(table.epsilons.tobytes(), table.deltas.tobytes(), runs, confidence)


@lru_cache(maxsize=64)
def _search(epsilons: bytes, deltas: bytes, runs: int, confidence: float) -> DetectableLeak:
    """Search once for each claim: audits are often repeated."""
    table = ClaimTable(np.frombuffer(epsilons), np.frombuffer(deltas))
    audits = SimulatedAudits.of(table, runs, confidence)
    allowed = _allowed_mu(table, runs)
    low, high = allowed, max(2 * allowed, 0.25)
    while audits.power(high) < PROBABILITY:
        low, high = high, 2 * high
        if high > _LARGEST_MU:
            return DetectableLeak(allowed, None)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if audits.power(middle) < PROBABILITY:
            low = middle
        else:
            high = middle
    return DetectableLeak(allowed, high)


@dataclass(frozen=True, eq=False)
class SimulatedAudits:
    """Audits of Gaussian scores, with everything tabulated that does not depend on their mu.

    ``misses`` are the fewest that the claim allows at ``alarms``; ``least`` and ``most`` are the
    corners of the confidence regions of ``counts``, between which they are interpolated.
    """

    runs: int
    alarms: FloatArray
    misses: FloatArray
    counts: IntArray
    least: FloatArray
    most: FloatArray

    @classmethod
    def of(cls, table: ClaimTable, runs: int, confidence: float) -> SimulatedAudits:
        """Tabulate for audits that test ``runs`` runs."""
        from scipy.special import ndtr

        # Evenly spaced normal quantiles: dense at both ends.
        alarms = np.r_[0.0, ndtr(np.linspace(-6.0, 6.0, 1201)), 1.0]
        ends = np.arange(min(30, runs) + 1)
        counts = np.unique(np.r_[ends, np.rint(runs * alarms[::4]), runs - ends].astype(np.int64))
        least, most = region_corners((counts, counts), runs, level_of_each(confidence), _CORNERS)
        return cls(runs, alarms, _fewest_misses(table, alarms), counts, least, most)

    def power(self, mu: float) -> float:
        """Return the share of audits that refute the claim when the truth is mu-GDP."""
        from scipy.special import ndtri

        quantiles = -ndtri(tail_levels(self.runs))
        thresholds = np.sort(np.concatenate([quantiles, mu - quantiles]))
        # The same randomness for every mu, so that the search meets a nearly monotone function.
        rng = np.random.default_rng(20_240_101)
        neighbor = _hits(thresholds, self.runs, rng)
        data = _hits(thresholds - mu, self.runs, rng)
        refuted = np.ones(data.shape, dtype=np.bool_)
        for least, most in zip(self.least, self.most, strict=True):
            alarms = np.interp(neighbor, self.counts, most)
            missed = 1.0 - np.interp(data, self.counts, least)
            refuted &= missed < np.interp(alarms, self.alarms, self.misses)
        return float(np.mean(np.any(refuted, axis=1)))


def _fewest_misses(table: ClaimTable, alarms: FloatArray) -> FloatArray:
    """Return the least rate of misses that the claim leaves at each rate of false alarms."""
    direct = np.max(table.gaps(np.ones_like(alarms), alarms) - table.deltas, axis=-1)
    growth = np.exp(np.minimum(table.epsilons, 700.0))
    turned = np.max((1.0 - table.deltas - alarms[:, None]) / growth, axis=-1)
    return np.asarray(np.maximum(0.0, np.maximum(direct, turned)))


def _hits(thresholds: FloatArray, runs: int, rng: np.random.Generator) -> IntArray:
    """Return how often standard normal scores exceed the thresholds, one row per audit."""
    from scipy.special import ndtr

    shares = np.diff(np.concatenate([[0.0], ndtr(thresholds), [1.0]]))
    bins = rng.multinomial(runs, shares / shares.sum(), size=_AUDITS)
    return np.asarray(runs - np.cumsum(bins, axis=1)[:, :-1], dtype=np.int64)


def _allowed_mu(table: ClaimTable, runs: int) -> float:
    seen = [
        normal.gaussian_mu(float(epsilon), float(delta))
        for epsilon, delta in zip(table.epsilons, table.deltas, strict=True)
        if delta >= 1 / runs
    ]
    return min((mu for mu in seen if math.isfinite(mu)), default=0.0)


# ---- two data sets on which an audit has power --------------------------------------------------


@dataclass(frozen=True, eq=False)
class CanaryPair:
    """``data`` holds the record number ``record`` (from 0), ``neighbor`` does not.

    Row i is the gradient of record i's linear loss f_i(w) = <row, w>, the same at every w. All rows
    are zero but the record's, which has full length along ``direction``.
    """

    data: FloatArray
    neighbor: FloatArray
    direction: FloatArray
    record: int


def worst_case_pair(
    run: Run, dimension: int | None = None, record: int | None = None
) -> CanaryPair:
    """Return a record of full gradient norm among silent others, and the same without it.

    Under "add_remove" the absent record leaves a zero row: in ordered batches it keeps its slot
    with a zero gradient, and under Poisson sampling a zero gradient is as good as none. Under
    "replace" its opposite takes its place. By default the record sits in the batch that is used
    last. On an unconstrained run these are the data that leak most among linear losses; on a
    bounded domain a drift of the others can leak more.

    Parameters
    ----------
    run
        The run that the pair is for.
    dimension
        Number of coordinates; by default the run's, or 1.
    record
        Place of the record, from 0; by default one of the batch that is used last.

    Returns
    -------
    CanaryPair
        The two data sets, one gradient per row, and where the record stands.

    Raises
    ------
    InvalidInput
        If there is no such record or dimension.
    NotApplicable
        If gradients of the run have no finite length.

    Examples
    --------
    >>> from dplateau.algorithms import LossGeometry, NoisyGD
    >>> run = NoisyGD(n=3, steps=9, noise_multiplier=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=2.0, convex=True))
    >>> worst_case_pair(run, dimension=2).data.tolist()
    [[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    width = _dimension(require_run(run), dimension)
    place = _used_last(run) if record is None else checks.whole("record", record, least=0)
    if place >= run.n:
        raise InvalidInput(f"record={place} but the run has {run.n} records, numbered from 0")
    direction = np.zeros(width)
    direction[0] = 1.0
    data, neighbor = np.zeros((run.n, width)), np.zeros((run.n, width))
    data[place] = _length(run) * direction
    neighbor[place] = (1 - run.neighbor_factor) * data[place]
    return CanaryPair(data, neighbor, direction, place)


def _dimension(run: Run, dimension: int | None) -> int:
    if dimension is None:
        return 1 if run.dimension is None else run.dimension
    size = checks.whole("dimension", dimension)
    if run.dimension not in (None, size):
        raise InvalidInput(f"dimension={size}, but the run has {run.dimension} parameters")
    return size


def _length(run: Run) -> float:
    if run.lipschitz is None and run.noise.name == "noise_multiplier":
        return 1.0  # the unit of gradients is free
    if run.lipschitz is None or math.isinf(run.lipschitz):
        raise NotApplicable(
            "a record of full gradient norm needs loss=LossGeometry(lipschitz=..., convex=...)"
        )
    return run.lipschitz


def _used_last(run: Run) -> int:
    """Return the first record of the batch of the last step, where the order is known."""
    match run.batches:
        case OnePass(size=size) | Cyclic(size=size, order="cyclic"):
            return (run.steps - 1) % run.batches_per_epoch * size
        case FullBatch() | Poisson() | FixedSize() | Cyclic():
            return 0
        case _ as unknown:
            refuse_batches(unknown)
