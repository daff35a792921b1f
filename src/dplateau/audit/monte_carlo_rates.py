"""What counts prove against a claim.

An event A is seen with probability P(A) on the one data set and Q(A) on its neighbour. A claim
delta(epsilon) says P(A) - e^epsilon Q(A) <= delta(epsilon) at every epsilon >= 0, and the same
with P and Q exchanged and with A exchanged for its complement. Over all epsilons that is the whole
trade-off curve between false alarms and misses (Dong, Roth and Su, Proposition 2.12). A region that
holds (P(A), Q(A)) with the stated confidence therefore either proves that the claim is false or is
compatible with it. Both the region and the pairs that the claim allows are convex, so if they do
not meet, a single epsilon shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from dplateau.audit.monte_carlo_bounds import THRESHOLDS, Corners, Hits
from dplateau.curves import PrivacyCurve
from dplateau.ground.types import FloatArray, IntArray

# Epsilons at which a claim is tested: fewer would test less of it, never too much.
_EPSILONS = 240
# Deltas around which a claim's numbers are sharp; each set of them is valid, so the least is.
_CENTRES = (0.1, 1e-5)

Direction = Literal["data_first", "neighbor_first"]


class Claim(Protocol):
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
    def of(cls, claim: Claim, runs: int) -> ClaimTable:
        """Tabulate the claim; no rate below about 1 / runs can be told from 0."""
        epsilons, found = _tabulated(claim.curve, runs)
        # The headline is tested as it stands, whatever the curve says.
        return cls(np.r_[epsilons, claim.claimed_epsilon], np.r_[found, claim.claimed_delta])

    def gaps(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return first - e^epsilon second, a last axis of epsilons added."""
        # No rate that was bounded from above is as small as e^-700.
        growth = np.exp(np.minimum(self.epsilons, 700.0))
        return np.asarray(first[..., None] - second[..., None] * growth)


@lru_cache(maxsize=32)
def _tabulated(curve: PrivacyCurve, runs: int) -> tuple[FloatArray, FloatArray]:
    epsilons = np.linspace(0.0, math.log(4.0 * runs), _EPSILONS)
    return epsilons, np.min([curve.deltas(epsilons, centre) for centre in _CENTRES], axis=0)


def tail_levels(runs: int) -> FloatArray:
    """Return the rates at which thresholds are placed: from one half to a few hits."""
    return np.geomspace(0.5, min(0.25, 2.0 / runs), THRESHOLDS // 2)


def place_thresholds(data: FloatArray, neighbor: FloatArray) -> FloatArray:
    """Return thresholds from the scores of runs that are not tested afterwards.

    Half of them are rarely exceeded on the neighbour, half are rarely missed on the data.
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
    found = []
    for direction, (first, second) in pairs.items():
        gaps = table.gaps(first, second)
        proved = gaps.min(axis=0)
        place = int(np.argmax(proved - table.deltas))
        corner = int(np.argmin(gaps[:, place]))
        found.append(
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
    return max(found, key=lambda point: (point.violated, point.ratio))


def proved_epsilon(corners: Corners, delta: float) -> float:
    """Return the largest epsilon that some event proves to be needed at ``delta``."""
    least, most = corners
    # Both orders of the two laws; a rate bounded from above is never 0.
    present = np.min((least - delta) / most, axis=0)
    absent = np.min((1.0 - most - delta) / (1.0 - least), axis=0)
    return math.log(max(1.0, float(np.max(present)), float(np.max(absent))))
