"""From the description of a run to admissible one-dimensional problems, and the best of them.

The library's upper bounds hold in every dimension, so they hold for the one-dimensional member of
each class: linear losses of slope at most L plus the ridge term, on an interval as long as the
domain. What such a run loses, no bound for the class may undercut. (For a ball in more than one
dimension the statement is about the class, not about that very ball; for a box it uses the longest
side.) A run that releases every iterate also releases the last one, and is treated as such.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dplateau.algorithms import (
    Box,
    CyclicSGD,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
    Run,
    Schedule,
)
from dplateau.audit.chain import PerStep
from dplateau.audit.inclusion import Always, Bernoulli, Inclusion, Once, Periodic, Shuffled
from dplateau.audit.laws import UNIT
from dplateau.audit.problems import LowerBound, WalkProblem, lower_epsilon
from dplateau.errors import NotApplicable

# Drifts against a wall, in units of the drift whose stationary tail across the domain is delta.
_WALL_DRIFTS = (-2.0, -1.0, -0.6, -0.3, 0.5)
# Drifts in units of the noise: they make the walk forget its past at a wall.
_NOISE_DRIFTS = (-3.0, -1.5)


def lower_bound(
    run: Run, delta: float, *, limit_drift: bool = False, position: int | None = None
) -> LowerBound:
    """Return the largest epsilon that a few natural admissible problems prove to be needed.

    ``limit_drift`` also tries a constant drift under Poisson sampling, which is the limit of many
    records at fixed rate: right against bounds that do not use n, not for this very n.
    ``position`` is the step (one pass) or the place in the cycle of the record; by default the one
    used last.

    >>> from dplateau.algorithms import LossGeometry
    >>> run = NoisyGD(n=10, steps=100, learning_rate=0.5, l2=0.1, noise_std=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True))
    >>> round(lower_bound(run, 1e-5).epsilon, 4)
    2.5406
    """
    problems = problems_of(run, delta, limit_drift=limit_drift, position=position)
    best = max((lower_epsilon(p, delta) for p in problems), key=lambda found: found.epsilon)
    return replace(best, epsilon=best.epsilon * (1 - _rounding(best.problem)))


def problems_of(
    run: Run, delta: float, *, limit_drift: bool = False, position: int | None = None
) -> list[WalkProblem]:
    """Return the problems that :func:`lower_bound` tries, the plainest first."""
    _check(run)
    problems: list[WalkProblem] = []
    for inclusion in _inclusions(run, position):
        plain = _plain_problem(run, inclusion)
        problems.append(plain)
        if math.isfinite(plain.lower):
            problems.append(replace(plain, start=plain.lower))
            problems.extend(_drifting(run, plain, delta, limit_drift))
        elif _sampling(run) == "fixed":
            # All others of opposite slope: a swap then moves the walk by two record steps, or none.
            problems.append(_with_drift(run, plain, -1.0))
    return problems


def _check(run: Run) -> None:
    """Refuse runs whose class holds no linear loss, and runs that are no plain walks."""
    if not run.is_plain:
        raise NotApplicable(
            "exact problems are known for plain steps; yours has momentum or averages iterates"
        )
    loss = run.loss
    if loss is None:
        return
    if loss.strong_convexity > 0:
        raise NotApplicable(
            f"linear losses are not strongly convex; got strong_convexity="
            f"{loss.strong_convexity:g}; state the ridge term as l2=... of the run"
        )
    if loss.dissipativity is not None:
        offset, rate = loss.dissipativity
        if rate * run.diameter**2 > offset:
            raise NotApplicable(
                f"linear losses are not dissipative with offset {offset:g} and rate {rate:g} on a "
                f"domain of diameter {run.diameter:g}"
            )


def _plain_problem(run: Run, inclusion: Inclusion) -> WalkProblem:
    """Return the problem in which the other records have zero gradients, from the middle."""
    contraction, step, noise = _scales(run)
    lower, upper = _interval(run)
    return WalkProblem(
        steps=run.steps,
        contraction=contraction,
        record_step=step,
        noise_std=noise,
        inclusion=inclusion,
        start=(lower + upper) / 2 if math.isfinite(lower) else 0.0,
        lower=lower,
        upper=upper,
        neighbors=run.neighbors,
        noise_kind=run.noise_kind,
        random_stop=run.release == "random_stop",
    )


def _scales(run: Run) -> tuple[PerStep, PerStep, PerStep]:
    """Return contraction, record step and noise in parameter space."""
    if run.learning_rate is None and run.l2 == 0 and run.domain is None:
        # Without walls and ridge the unit of length is free: measure in record steps.
        return 1.0, 1.0, _per_step(run.noise_multiplier)
    step, noise = _per_step(run.record_step), _per_step(run.iterate_std)
    rate = run.learning_rate
    assert rate is not None
    if isinstance(rate, Schedule) and run.l2 > 0:
        contraction: PerStep = tuple((1.0 - rate.values() * run.l2).tolist())
    else:
        contraction = 1.0 if isinstance(rate, Schedule) else 1.0 - rate * run.l2
    if np.any(np.asarray(contraction) < 0):
        raise NotApplicable(
            f"learning_rate * l2 exceeds 1 (l2={run.l2:g}): the walk oscillates; "
            "use a smaller learning rate"
        )
    return contraction, step, noise


def _per_step(value: float | Schedule) -> PerStep:
    return tuple(value.values().tolist()) if isinstance(value, Schedule) else float(value)


def _interval(run: Run) -> tuple[float, float]:
    domain = run.domain
    if domain is None:
        return -math.inf, math.inf
    if isinstance(domain, Box):
        lower, upper = np.atleast_1d(domain.lower), np.atleast_1d(domain.upper)
        longest = int(np.argmax(upper - lower))
        return float(lower[longest]), float(upper[longest])
    return -domain.diameter / 2, domain.diameter / 2


def _sampling(run: Run) -> str:
    return run.sampling if isinstance(run, NoisySGD) else "none"


def _inclusions(run: Run, position: int | None) -> Iterator[Inclusion]:
    """Yield when the record takes part: once per pattern worth trying."""
    match run:
        case NoisyGD() | ProjectedLangevin():
            yield Always()
        case NoisySGD():
            yield Bernoulli(run.sampling_rate)
        case OnePassSGD():
            last = run.steps - 1
            middle = {0, last // 2, last} if run.release == "random_stop" else {last}
            for step in sorted(middle) if position is None else [position]:
                yield Once(step)
        case CyclicSGD():
            yield _cycle(run, position)
        case _:
            raise NotApplicable(f"no one-dimensional problems are known for {run.kind}")


def _cycle(run: CyclicSGD, position: int | None) -> Inclusion:
    period = run.batches_per_epoch
    if run.order == "cyclic":
        return Periodic(period, (run.steps - 1) % period if position is None else position)
    if run.order == "reshuffle" and run.steps > period:
        raise NotApplicable(
            "no exact problem is known for order='reshuffle' over several epochs; "
            "use order='cyclic' or 'shuffle_once'"
        )
    size = int(run.batch_size)
    return Shuffled(period, (run.n - (period - 1) * size) / size)


def _drifting(
    run: Run, plain: WalkProblem, delta: float, limit_drift: bool
) -> Iterator[WalkProblem]:
    """Yield problems in which the other records push the walk along the interval."""
    if _sampling(run) == "poisson" and not limit_drift:
        return
    noise = float(np.mean(plain.noise_std))
    wall = noise**2 * math.log(1 / delta) / (2 * (plain.upper - plain.lower))
    factors = (-0.6,) if plain.random_stop else _WALL_DRIFTS
    drifts = [factor * wall for factor in factors]
    if not plain.random_stop:
        drifts += [factor * noise for factor in _NOISE_DRIFTS]
    most = run.batch_size * float(np.mean(plain.record_step))
    for share in sorted({max(-1.0, min(1.0, drift / most)) for drift in drifts}):
        yield _with_drift(run, plain, share)


def _with_drift(run: Run, plain: WalkProblem, share: float) -> WalkProblem:
    """Give every other record the slope ``share`` * L."""
    steps = np.asarray(plain.record_step)
    changes: dict[str, Any] = {"drift": _plain(share * run.batch_size * steps)}
    if _sampling(run) != "poisson":
        changes["removed_step"] = _plain(share * steps)
    return replace(plain, **changes)


def _plain(values: Any) -> PerStep:
    return tuple(values.tolist()) if np.ndim(values) else float(values)


def _rounding(problem: WalkProblem) -> float:
    """Bound what the last digits of the run's own parameters may change in epsilon.

    The walk is exact for the contraction 1 - learning_rate * l2 as rounded, a quantity that
    matters through its distance from 1, over as many steps as the walk remembers.
    """
    gap = 1.0 - float(np.min(problem.contraction))
    memory = min(float(problem.steps), 1 / gap) if gap > 0 else 0.0
    return 16 * UNIT * (memory + 64)
