"""What an audit of this size would have found.

An audit that finds nothing says little without this number. It is simulated, and is no part of any
claim: scores are taken to be Gaussian, N(0, 1) on the neighbour and N(mu, 1) on the data, as they
are for the last iterate of a ridge-regularised run on linear losses, and the score is taken to be
the best one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dplateau.audit.monte_carlo_bounds import level_of_each, region_corners
from dplateau.audit.monte_carlo_rates import ClaimTable, tail_levels
from dplateau.ground.types import FloatArray, IntArray
from dplateau.numerics import normal

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
            f"a leak of {self.detectable_mu:.3g}-GDP would have been found with probability "
            f"{self.probability:g} ({self.method}); the claim allows {self.allowed_mu:.3g}-GDP, "
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
