"""Audit a trainer by running it, to see whether it keeps the promise of its certificate.

Train many times on two neighbouring data sets and try to tell the outputs apart. The first part of
the runs chooses a score and thresholds, the rest is only counted; so everything that is tested was
fixed before, and the stated confidence is honest whatever the score.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dplateau.audit.monte_carlo_bounds import level_of_each, region_corners
from dplateau.audit.monte_carlo_power import detectable_leak
from dplateau.audit.monte_carlo_rates import (
    Claim,
    ClaimTable,
    ThresholdResult,
    count_hits,
    judge,
    place_thresholds,
    proved_epsilon,
)
from dplateau.audit.monte_carlo_report import AuditReport
from dplateau.audit.monte_carlo_scores import Statistic, fit_score
from dplateau.errors import InvalidInput
from dplateau.ground import checks as _check
from dplateau.ground.types import FloatArray

Trainer = Callable[..., Any]
Progress = Callable[[int, int], None]

FEWEST_RUNS = 100
# The share of the runs that chooses the score and the thresholds.
_FITTED_SHARE = 0.25


def audit_trainer(
    train: Trainer,
    certificate: Claim,
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
    count = _check.whole("runs", runs, least=FEWEST_RUNS)
    level = _check.probability("confidence", confidence)
    start = _fresh_seed() if seed is None else _check.whole("seed", seed, least=0)
    outputs = _outputs(train, (data, neighbor), count, start, at_once, progress)
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
    entropy = np.random.SeedSequence().entropy
    assert isinstance(entropy, int)
    return entropy % 2**53  # every reader of JSON keeps such a number


def _gdp_estimate(points: tuple[ThresholdResult, ...], tested: int) -> float:
    from scipy.special import ndtri

    point = min(points, key=lambda found: abs(found.hits_data + found.hits_neighbor - tested))
    rates = (np.array([point.hits_data, point.hits_neighbor]) + 0.5) / (tested + 1)
    return float(max(0.0, ndtri(rates[0]) - ndtri(rates[1])))


def _outputs(
    train: Trainer,
    pair: tuple[Any, Any],
    runs: int,
    seed: int,
    at_once: int | None,
    progress: Progress | None,
) -> list[FloatArray]:
    """Return what left, one run per row, for both data sets."""
    report = progress or (lambda done, total: None)
    found: list[FloatArray] = []
    for side, given in enumerate(pair):
        parts: list[FloatArray] = []
        done = 0
        for part in _calls(train, given, runs, (seed, side), at_once):
            parts.append(part)
            done += len(part)
            report(side * runs + done, 2 * runs)
        found.append(_stacked(parts))
    if found[0].shape[1] != found[1].shape[1]:
        raise InvalidInput(
            f"the trainer returned {found[0].shape[1]} numbers on the data and "
            f"{found[1].shape[1]} on its neighbour; outputs must have one size"
        )
    return found


def _calls(
    train: Trainer, given: Any, runs: int, stream: tuple[int, int], at_once: int | None
) -> Iterator[FloatArray]:
    """Yield outputs call by call; every call has a generator of its own."""
    most = 1 if at_once is None else _check.whole("at_once", at_once)
    alone = at_once is None and _takes_one_argument(train)
    for call, first in enumerate(range(0, runs, most)):
        count = min(most, runs - first)
        seed, side = stream
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(side, call)))
        if at_once is None:
            raw = train(given) if alone else train(given, rng)
            yield _rows(raw, 1, first)
        else:
            yield _rows(train(given, rng, count), count, first)


def _takes_one_argument(train: Trainer) -> bool:
    try:
        parameters = inspect.signature(train).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return False
    return sum(parameter.kind in kinds for parameter in parameters) == 1


def _rows(raw: Any, count: int, first: int) -> FloatArray:
    """Return outputs as ``count`` rows of finite numbers."""
    try:
        found = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"the trainer must return numbers; run {first} returned {type(raw).__name__}"
        ) from None
    if count > 1 and (found.ndim == 0 or len(found) != count):
        raise InvalidInput(
            f"with at_once the trainer must return one row per run: {count} rows were asked for, "
            f"the shape is {found.shape}"
        )
    if found.size == 0:
        raise InvalidInput(f"the trainer returned nothing in run {first}")
    rows = found.reshape(count, -1)
    if not np.all(np.isfinite(rows)):
        bad = first + int(np.argmin(np.all(np.isfinite(rows), axis=1)))
        raise InvalidInput(f"the trainer returned a number that is not finite in run {bad}")
    return rows


def _stacked(parts: list[FloatArray]) -> FloatArray:
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        raise InvalidInput(f"outputs must have one size; the trainer returned {sorted(widths)}")
    return np.concatenate(parts)
