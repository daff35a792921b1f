"""From the description of a run to admissible one-dimensional problems, and the best of them.

The library's upper bounds hold in every dimension, so they hold for the one-dimensional member of
each class (:mod:`dplateau.audit.admissible`): losses of slope at most L plus the ridge term, on an
interval as long as the domain. What such a run loses, no bound for the class may undercut. (For a
ball in more than one dimension the statement is about the class, not about that very ball; for a
box it uses the longest side.) A run that releases every iterate also releases the last one, and
the sum of its increments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dplateau.algorithms import AllIterates, Run
from dplateau.audit.admissible import Others, Room, rooms
from dplateau.audit.inclusion import (
    Always,
    Bernoulli,
    Once,
    Periodic,
    Reshuffled,
    Shuffled,
    active_steps,
)
from dplateau.audit.laws import UNIT
from dplateau.audit.problems import LowerBound, WalkProblem, lower_epsilon

# Drifts against a wall, in units of the drift whose stationary tail across the domain is delta.
_WALL_DRIFTS = (-2.0, -1.0, -0.6, -0.3, 0.5)
# Drifts in units of the noise: they make the walk forget its past at a wall.
_NOISE_DRIFTS = (-3.0, -1.5)
# Where nobody knows which steps hold the record.
_HIDDEN = (Bernoulli, Shuffled, Reshuffled)


def lower_bound(
    run: Run, delta: float, *, limit_drift: bool = False, position: int | None = None
) -> LowerBound:
    """Return the largest epsilon that a few natural admissible problems prove to be needed.

    ``limit_drift`` also tries a constant drift under Poisson sampling, which is the limit of many
    records at fixed rate: right against bounds that do not use n, not for this very n.
    ``position`` is the step (one pass) or the place in the cycle of the record; by default the one
    used last.

    >>> from dplateau.algorithms import LossGeometry, NoisyGD
    >>> run = NoisyGD(n=10, steps=100, learning_rate=0.5, l2=0.1, noise_std=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True))
    >>> round(lower_bound(run, 1e-5).epsilon, 4)
    2.5406
    """
    problems = problems_of(run, delta, limit_drift=limit_drift, position=position)
    best = max((lower_epsilon(p, delta) for p in problems), key=lambda found: found.epsilon)
    return replace(best, epsilon=best.epsilon * (1 - rounding(best.problem)))


def problems_of(
    run: Run, delta: float, *, limit_drift: bool = False, position: int | None = None
) -> list[WalkProblem]:
    """Return the problems that :func:`lower_bound` tries, the plainest first."""
    problems: list[WalkProblem] = []
    for room in rooms(run, limit=limit_drift, position=position):
        plain = room.plain()
        problems.append(plain)
        if plain.random_stop and plain.noise_kind == "laplace":
            continue  # many walks, each of them slow
        if room.bounded:
            problems.append(replace(plain, start=plain.lower))
            problems.extend(_drifting(room, plain, delta))
        elif room.drifts and math.isfinite(room.slots) and isinstance(room.inclusion, _HIDDEN):
            # All others of opposite slope: a swap then moves the walk by two record steps, or none.
            problems.append(room.problem(Others(share=-1.0), plain))
        if isinstance(run.release, AllIterates) and not room.bounded and not room.base:
            problems.extend(_increments(plain))
    return problems


def _drifting(room: Room, plain: WalkProblem, delta: float) -> Iterator[WalkProblem]:
    """Yield problems in which the other records push the walk along the interval."""
    if not room.drifts:
        return
    noise = float(np.mean(plain.noise_std))
    wall = noise**2 * math.log(1 / delta) / (2 * (plain.upper - plain.lower))
    factors = (-0.6,) if plain.random_stop else _WALL_DRIFTS
    drifts = [factor * wall for factor in factors]
    if not plain.random_stop:
        drifts += [factor * noise for factor in _NOISE_DRIFTS]
    most = room.run.batch_size * float(np.mean(plain.record_step))
    if most <= 0:
        return
    for share in sorted({max(-1.0, min(1.0, drift / most)) for drift in drifts}):
        yield room.problem(Others(share=share), plain)


def _increments(plain: WalkProblem) -> Iterator[WalkProblem]:
    """Yield the walk whose last state is a sum over the released increments.

    Each increment less the ridge's part is drift + I_t record_step + noise; weighted by
    record_step / noise^2 and summed over the steps that may hold the record, they tell the two
    runs apart as well as all iterates together when the record's steps are known.
    """
    signal = np.broadcast_to(plain.record_step, plain.steps) / plain.noise_std
    inclusion: Always | Bernoulli = Always()
    match plain.inclusion:
        case Always() | Periodic() | Once() as pattern:
            signal = signal[active_steps(pattern, plain.steps)]
        case Bernoulli() as coins:
            inclusion = coins
        case _:
            return
    if signal.size == 0:
        return
    constant = bool(np.all(signal == signal[0]))
    yield WalkProblem(
        steps=signal.size,
        contraction=1.0,
        record_step=float(signal[0] ** 2) if constant else tuple((signal**2).tolist()),
        noise_std=float(signal[0]) if constant else tuple(signal.tolist()),
        inclusion=inclusion,
        neighbors=plain.neighbors,
        noise_kind=plain.noise_kind,
    )


def rounding(problem: WalkProblem) -> float:
    """Bound what the last digits of the run's own parameters may change in epsilon.

    The walk is exact for the contraction 1 - learning_rate * l2 as rounded, a quantity that
    matters through its distance from 1, over as many steps as the walk remembers.
    """
    gap = 1.0 - float(np.min(problem.contraction))
    memory = min(float(problem.steps), 1 / gap) if gap > 0 else 0.0
    return 16 * UNIT * (memory + 64)
