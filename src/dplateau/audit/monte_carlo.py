"""Audit a trainer by running it, to see whether it keeps the promise of its certificate.

Train many times on two neighboring data sets and try to tell the outputs apart. The first part of
the runs chooses a score and thresholds, the rest is only counted; so everything that is tested was
fixed before, and the stated confidence is honest whatever the score.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from dplateau.audit.monte_carlo_rates import (
    Audited,
    ClaimTable,
    DetectableLeak,
    ThresholdResult,
    count_hits,
    detectable_leak,
    judge,
    level_of_each,
    place_thresholds,
    proved_epsilon,
    region_corners,
)
from dplateau.audit.monte_carlo_runs import Trainer, Trials, outputs_of, seed_on_file
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.progress import Progress
from dplateau.ground.sealed import TRAINER_AUDIT, Kind, Sealed, Stamp
from dplateau.ground.shown import Shown, rounded_down, rounded_up
from dplateau.ground.types import FloatArray

FEWEST_RUNS = 100
# The share of the runs that chooses the score and the thresholds.
_FITTED_SHARE = 0.25


def audit_trainer(
    train: Trainer,
    certificate: Audited,
    data: Any,
    neighbor: Any,
    *,
    runs: int,
    confidence: float = 0.95,
    seed: int | None = None,
    at_once: int | None = None,
    statistic: Statistic | None = None,
    direction: FloatArray | None = None,
    progress: Progress | None = None,
    jobs: int | None = 1,
    state: str | Path | None = None,
) -> AuditReport:
    """Train on ``data`` and on ``neighbor`` many times and test the certificate's whole curve.

    Parameters
    ----------
    train
        Called as ``train(data, rng)``, or ``train(data)`` if it takes one argument, and returns
        everything that leaves, as numbers. With ``at_once`` it is called as
        ``train(data, rng, count)`` and returns the outputs of ``count`` runs, one per row. Runs
        must be independent: all randomness comes from ``rng``, or is fresh.
    certificate
        The claim: a certificate, or several composed.
    data, neighbor
        Two data sets that differ in one record, in the sense of the certificate's run. They are
        handed to ``train`` as they are. :func:`worst_case_pair` makes a pair.
    runs
        Runs on each of the two. A quarter chooses what is tested.
    confidence
        A right trainer is called a violation with probability at most 1 - confidence.
    seed
        Fixes the generators that ``train`` gets. If absent, a fresh one is drawn and reported.
    at_once
        The largest ``count`` for trainers that do many runs in one call.
    statistic
        A function from outputs (one run per row) to one score per run, fixed before the audit. By
        default a linear discriminant is fitted on the runs that are not tested.
    direction
        Where the record moves the output, if known: the discriminant is used only if it separates
        better.
    progress
        Called with the number of runs done and their total, and nothing else.
    jobs
        Processes that share the runs, with the same outputs; None: one for every processor. More
        than one needs joblib (extra ``train``).
    state
        A file of finished runs: an audit that was stopped goes on from it. It holds what the
        trainer returned, so audit with data made for it, not with private ones.

    Returns
    -------
    AuditReport
        The verdict, what was tested, and the epsilon that the runs prove to be needed.

    Raises
    ------
    InvalidInput
        If the trainer returns what cannot be counted, or the options contradict each other.

    Examples
    --------
    >>> from dplateau import NoisyGD, certify
    >>> run = NoisyGD(n=1, steps=1, noise_multiplier=1.0, release="last")
    >>> claim = certify(run, delta=1e-5)
    >>> def train(record, rng, count):
    ...     return record + rng.normal(size=(count, 1))
    >>> audit_trainer(train, claim, 1.0, 0.0, runs=4000, seed=1, at_once=4000).verdict
    'not violated'
    >>> audit_trainer(train, claim, 2.0, 0.0, runs=4000, seed=1, at_once=4000).verdict
    'violated'
    """
    count = checks.whole("runs", runs, least=FEWEST_RUNS)
    level = checks.probability("confidence", confidence)
    place = None if state is None else Path(state)
    known = seed_on_file(place) if seed is None else checks.whole("seed", seed, least=0)
    start = _fresh_seed() if known is None else known
    trials = Trials(train, (data, neighbor), count, start, at_once)
    outputs = outputs_of(trials, jobs=jobs, state=place, progress=progress)
    fitted = int(_FITTED_SHARE * count)
    chosen, rest = [rows[:fitted] for rows in outputs], [rows[fitted:] for rows in outputs]
    score = fit_score(chosen[0], chosen[1], statistic=statistic, direction=direction)
    half = fitted // 2
    thresholds = place_thresholds(score(chosen[0][half:]), score(chosen[1][half:]))
    hits = (count_hits(score(rest[0]), thresholds), count_hits(score(rest[1]), thresholds))
    tested = count - fitted
    table = ClaimTable.of(certificate, tested)
    corners = region_corners(hits, tested, level_of_each(level))
    points = judge(thresholds, hits, corners, table)
    return AuditReport(
        claimed_epsilon=certificate.claimed_epsilon,
        claimed_delta=certificate.claimed_delta,
        runs=count,
        fitted=fitted,
        tested=tested,
        confidence=level,
        seed=start,
        statistic=score.name,
        epsilon_lower_bound=proved_epsilon(corners, certificate.claimed_delta),
        gdp_estimate=_gdp_estimate(points, tested),
        power=detectable_leak(table, tested, level),
        points=points,
    )


def _fresh_seed() -> int:
    return secrets.randbits(53)  # every reader of JSON keeps such a number


def _gdp_estimate(points: tuple[ThresholdResult, ...], tested: int) -> float:
    from scipy.special import ndtri

    point = min(points, key=lambda result: abs(result.hits_data + result.hits_neighbor - tested))
    rates = (np.array([point.hits_data, point.hits_neighbor]) + 0.5) / (tested + 1)
    return float(max(0.0, ndtri(rates[0]) - ndtri(rates[1])))


# ---- scores -------------------------------------------------------------------------------------
#
# From outputs to one number: a score that is large where the record was in the data.
#
# The score may be anything that was fixed before the tested runs are looked at; a poor one costs
# power, never honesty. The one fitted here is the likelihood ratio of two Gaussian laws with a
# common covariance (Fisher's linear discriminant).

Statistic = Callable[[FloatArray], FloatArray]

# With fewer runs per output coordinate than this, correlations are left out of the discriminant.
_RUNS_PER_COORDINATE = 4
_MOST_COORDINATES = 2000
# What a coordinate without any noise is taken to vary by, in units of its size.
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class FittedScore:
    """A statistic with the sign that makes it larger on the data than on the neighbor."""

    statistic: Statistic
    sign: float
    name: str

    def __call__(self, outputs: FloatArray) -> FloatArray:
        """Return one score per row of ``outputs``."""
        scores = np.asarray(self.statistic(outputs), dtype=np.float64)
        if scores.shape != (outputs.shape[0],):
            raise InvalidInput(
                f"statistic must return one number per run, an array of shape "
                f"({outputs.shape[0]},); got shape {scores.shape}"
            )
        if not np.all(np.isfinite(scores)):
            raise InvalidInput("statistic returned a score that is not finite")
        return self.sign * scores


def fit_score(
    data: FloatArray,
    neighbor: FloatArray,
    *,
    statistic: Statistic | None = None,
    direction: FloatArray | None = None,
) -> FittedScore:
    """Return the score to test with, from runs that are not tested.

    A given ``statistic`` is used as it is. Otherwise the discriminant is fitted on the first half
    of the runs, and the second half decides between it and the projection on ``direction``.
    """
    if statistic is not None:
        return _oriented(statistic, data, neighbor, "given statistic")
    half = min(len(data), len(neighbor)) // 2
    weights = _discriminant(data[:half], neighbor[:half])
    scores = [_oriented(_projection(weights), data[:half], neighbor[:half], "linear discriminant")]
    if direction is not None:
        known = _projection(_checked_direction(direction, data.shape[1]))
        scores.append(_oriented(known, data[:half], neighbor[:half], "given direction"))
    return max(scores, key=lambda score: _separation(score(data[half:]), score(neighbor[half:])))


def _projection(weights: FloatArray) -> Statistic:
    return lambda outputs: outputs @ weights


def _oriented(
    statistic: Statistic, data: FloatArray, neighbor: FloatArray, name: str
) -> FittedScore:
    plain = FittedScore(statistic, 1.0, name)
    turned = float(np.mean(plain(data))) < float(np.mean(plain(neighbor)))
    return FittedScore(statistic, -1.0 if turned else 1.0, name)


def _separation(data: FloatArray, neighbor: FloatArray) -> float:
    """Return how far the means lie apart in standard deviations."""
    gap = float(np.mean(data) - np.mean(neighbor))
    spread = float(np.sqrt((np.var(data) + np.var(neighbor)) / 2))
    return gap / spread if spread > 0 else gap * np.inf if gap else 0.0


def _discriminant(data: FloatArray, neighbor: FloatArray) -> FloatArray:
    """Return the weights covariance^-1 (mean on the data - mean on the neighbor)."""
    gap = data.mean(axis=0) - neighbor.mean(axis=0)
    rest = np.concatenate([data - data.mean(axis=0), neighbor - neighbor.mean(axis=0)])
    size = np.maximum(np.abs(data).max(axis=0), np.abs(neighbor).max(axis=0))
    scale = np.maximum(rest.std(axis=0), _TINY * np.where(size > 0, size, 1.0))
    count, width = rest.shape
    if width > min(count / _RUNS_PER_COORDINATE, _MOST_COORDINATES):
        return np.asarray(gap / scale**2)
    rest /= scale
    correlations = rest.T @ rest / count + _TINY * np.eye(width)
    return np.asarray(np.linalg.solve(correlations, gap / scale) / scale)


def _checked_direction(direction: FloatArray, width: int) -> FloatArray:
    vector = np.asarray(direction, dtype=np.float64).ravel()
    if vector.size != width:
        raise InvalidInput(
            f"direction has {vector.size} coordinates, but the trainer returns {width}; "
            "leave it out to let the audit find one"
        )
    if not np.all(np.isfinite(vector)) or not np.any(vector):
        raise InvalidInput("direction must be finite and not zero")
    return vector


# ---- the report ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class AuditReport(Shown, Sealed):
    """The verdict of one audit, with the counts that it rests on.

    Each of two neighboring data sets was trained on ``runs`` times. The first ``fitted`` runs of
    each chose the score and the thresholds; the other ``tested`` ones were only counted. If the
    claim holds, the verdict is "violated" with probability at most 1 - ``confidence``. With the
    same confidence every (epsilon, claimed_delta) that holds for the trainer has an epsilon of at
    least ``epsilon_lower_bound``. ``gdp_estimate`` is an estimate, and no bound: the mu at which a
    Gaussian law would give the rates seen at the most balanced threshold.
    """

    kind: ClassVar[Kind] = TRAINER_AUDIT
    claimed_epsilon: float
    claimed_delta: float
    runs: int
    fitted: int
    tested: int
    confidence: float
    seed: int
    statistic: str
    epsilon_lower_bound: float
    gdp_estimate: float
    power: DetectableLeak
    points: tuple[ThresholdResult, ...]
    stamp: Stamp = field(default_factory=Stamp.now, compare=False)

    @property
    def worst(self) -> ThresholdResult:
        """The threshold at which the claim fares worst."""
        return max(self.points, key=lambda point: (point.violated, point.ratio))

    @property
    def violated(self) -> bool:
        """Whether the runs refute the claim."""
        return self.worst.violated

    @property
    def verdict(self) -> Literal["violated", "not violated"]:
        """The same in words."""
        return "violated" if self.violated else "not violated"

    def _content(self) -> dict[str, Any]:
        fields = {item.name: getattr(self, item.name) for item in dataclass_fields(self)}
        own = {name: value for name, value in fields.items() if name != "stamp"}
        return {
            **own,
            "verdict": self.verdict,
            "power": asdict(self.power),
            "points": [asdict(point) for point in self.points],
        }

    @classmethod
    def _read(cls, content: dict[str, Any], stamp: Stamp) -> AuditReport:
        fields = {name: value for name, value in content.items() if name != "verdict"}
        try:
            fields["power"] = DetectableLeak(**fields["power"])
            fields["points"] = tuple(ThresholdResult(**point) for point in fields["points"])
            report = cls(**fields, stamp=stamp)
            verdict = report.verdict
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"not a whole audit report: {error}") from None
        if verdict != content["verdict"]:
            raise InvalidInput(
                f"the audit report was altered: it says {content['verdict']!r}, "
                f"its counts say {verdict!r}"
            )
        return report

    def __str__(self) -> str:
        """Say the verdict, what it rests on, and what it cannot say."""
        return "\n".join(
            [
                f"{self.verdict}: claimed ({rounded_up(self.claimed_epsilon)}, "
                f"{rounded_up(self.claimed_delta)})-DP, "
                f"{self.runs} runs on each of two neighbors, confidence {self.confidence:g}",
                f"  {self._worst_line()}",
                f"  epsilon is at least {rounded_down(self.epsilon_lower_bound, 4)} at delta "
                f"{rounded_up(self.claimed_delta)}; estimate (no bound): "
                f"{self.gdp_estimate:.3g}-GDP",
                f"  power: {self.power}",
            ]
        )

    def _worst_line(self) -> str:
        worst = self.worst
        counts = f"{worst.hits_data} and {worst.hits_neighbor} of {self.tested} tested runs"
        proved = (
            f"delta is at least {rounded_down(worst.proved_delta, 4)}, claimed "
            f"{rounded_up(worst.claimed_delta, 4)}"
        )
        return (
            f"worst threshold, exceeded in {counts} with and without the record: "
            f"at epsilon {rounded_up(worst.epsilon, 3)} {proved}"
        )
