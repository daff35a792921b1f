"""The exact adversary: a search over admissible problems for the one that leaks most.

Whatever it tries is a problem of the run's class (:mod:`dplateau.audit.lower_bounds`) whose privacy
loss is bracketed rigorously, so the search itself needs no proof: a poor search finds a smaller
lower bound, never a wrong one. It varies the start, the slope of the other records, and the
strength, width, place and batches of their curvature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dplateau.algorithms import Run, require_run
from dplateau.algorithms.stated import loss_of
from dplateau.audit.final_law import enclose
from dplateau.audit.lower_bounds import (
    Others,
    Room,
    problems_of,
    pull_patterns,
    rooms,
    rounding,
    scales,
)
from dplateau.audit.problems import LowerBound, WalkProblem, lower_epsilon
from dplateau.audit.walks import Always, Once, Periodic, Reshuffled, Shuffled
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.progress import Advance, counting

Effort = Literal["quick", "normal", "thorough"]
# How much each effort may spend; a walk of a few dozen noises' width costs 1.
BUDGETS: dict[Effort, float] = {"quick": 14.0, "normal": 60.0, "thorough": 300.0}
_SMALLEST_MOVE = 1 / 16
# An improvement below this is not worth another round.
_WORTHWHILE = 1e-4


@dataclass(frozen=True)
class Choice:
    """The other records' losses and the start: one point of the search."""

    others: Others
    start: float


def search_adversary(
    run: Run,
    delta: float,
    *,
    effort: Effort = "normal",
    limit: bool = False,
    position: int | None = None,
) -> LowerBound:
    """Return the largest epsilon that a search over admissible problems proves to be needed.

    Never smaller than :func:`~dplateau.audit.lower_bounds.lower_bound` with the same options.

    Parameters
    ----------
    run
        The run to attack.
    delta
        The failure probability.
    effort
        "quick", "normal" or "thorough".
    limit
        Also try what other records add under Poisson sampling in the limit of many of them: right
        against bounds that do not use n, not for this very n.
    position
        The step (one pass) or the place in the cycle of the record; by default the one used last.

    Returns
    -------
    LowerBound
        The epsilon, the problem that proves it, and whether the proof is rigorous.

    Raises
    ------
    InvalidInput
        If there is no such effort.
    NotApplicable
        If no exact problem is known in the run's class.

    Examples
    --------
    >>> from dplateau.algorithms import LossGeometry, OnePassSGD
    >>> run = OnePassSGD(n=600, batch_size=50, learning_rate=0.5, noise_std=0.02, release="last",
    ...                  loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=2.0))
    >>> proven = search_adversary(run, 1e-5, effort="quick")
    >>> round(proven.epsilon, 1), round(proven.problem.pull, 1)
    (4.4, 1.0)
    """
    if effort not in BUDGETS:
        raise InvalidInput(f"effort must be one of {', '.join(BUDGETS)}; got {effort!r}")
    with counting("adversaries tried") as advance:
        search = _Search(delta, BUDGETS[effort], advance)
        for problem in problems_of(require_run(run), delta, limit_drift=limit, position=position):
            search.try_problem(problem, free=True)
        open_rooms = list(rooms(run, limit=limit, position=position)) if run.is_plain else []
        for room in open_rooms:
            if room.drifts and run.loss is not None:
                search.explore(room, BUDGETS[effort] / len(open_rooms))
    return search.best()


class _Search:
    """The best problem so far, and what is left to spend."""

    def __init__(self, delta: float, budget: float, advance: Advance) -> None:
        self._delta, self._left, self._advance = delta, budget, advance
        self._found: LowerBound | None = None
        self._seen: dict[WalkProblem, float] = {}
        self._refusal = NotApplicable("no problem was tried")

    def best(self) -> LowerBound:
        """Return the best bound, rounded down for the last digits of the run's own parameters."""
        if self._found is None:
            raise self._refusal
        factor = 1 - rounding(self._found.problem)
        return replace(self._found, epsilon=self._found.epsilon * factor)

    def try_problem(self, problem: WalkProblem, *, free: bool = False) -> float:
        """Return the epsilon that a problem proves; -inf if it is out of reach or too dear."""
        if problem in self._seen:
            return self._seen[problem]
        self._advance(1)
        try:
            price = 0.0 if free else _price(problem)
            if price > self._left:
                return -math.inf
            self._left -= price
            bound = lower_epsilon(problem, self._delta)
        except NotApplicable as reason:
            self._left -= 0.2
            self._refusal = reason
            self._seen[problem] = -math.inf
            return -math.inf
        if self._found is None or bound.epsilon > self._found.epsilon:
            self._found = bound
        self._seen[problem] = bound.epsilon
        return bound.epsilon

    def explore(self, room: Room, budget: float) -> None:
        """Try the seeds of one room, then move from the best of them."""
        plain, self._left = room.plain(), budget
        scored = [(-math.inf, Choice(Others(), plain.start))]
        for choice in _seeds(room, plain, self._delta):
            # Half of the budget stays for moves.
            if self._left < budget / 2:
                break
            scored.append((self._score(room, plain, choice), choice))
        value, choice = max(scored, key=lambda pair: pair[0])
        self._climb(room, plain, value, choice)

    def _score(self, room: Room, plain: WalkProblem, choice: Choice) -> float:
        return self.try_problem(room.problem(choice.others, plain, choice.start))

    def _climb(self, room: Room, plain: WalkProblem, value: float, choice: Choice) -> None:
        size = 1.0
        while size >= _SMALLEST_MOVE and self._left > 0:
            improved = False
            for neighbor in _moves(room, plain, choice, size):
                if self._left <= 0:
                    return
                score = self._score(room, plain, neighbor)
                if score > value + _WORTHWHILE * abs(value):
                    value, choice, improved = score, neighbor, True
                    break
            size = size if improved else size / 4


def _price(problem: WalkProblem) -> float:
    """Return the rough cost of solving one problem."""
    noise, lower, upper = float(np.min(problem.noise_std)), problem.lower, problem.upper
    if problem.is_pulled and math.isinf(lower) and problem.noise_kind == "gaussian":
        lower, upper, _ = enclose(problem.present()[0][1])
    width = (upper - lower) / noise if math.isfinite(lower) else 10.0
    price = 0.5 + (width / 80) ** 2
    if problem.noise_kind == "laplace":
        price += 2 + problem.steps / 4
    if problem.random_stop:
        price *= 1 + problem.steps / 6
    match problem.inclusion:
        case Shuffled(period, _):
            price *= 1 + period / 3
        case Reshuffled():
            price *= 1 + problem.steps / 100
        case _:
            changing = (problem.noise_std, problem.contraction, problem.drift)
            price *= 1 + problem.steps / 50 * any(isinstance(each, tuple) for each in changing)
    return price


def _strengths(room: Room, plain: WalkProblem) -> list[float]:
    """Return curvatures worth trying: enough to wipe out the past, half of it, a repulsion."""
    loss = loss_of(room.run)
    rate = _rate(room)
    wipe = min(float(np.min(plain.contraction)) / rate, room.smoothness)
    strengths = [wipe, wipe / 2]
    if not loss.convex:
        strengths += [-min(room.smoothness, 1 / rate), -min(room.smoothness, 0.2 / rate)]
    elif room.smoothness * rate > 1.5:
        # Steps so long that they overshoot.
        strengths.append(min(room.smoothness, 1.9 / rate))
    return strengths


def _rate(room: Room) -> float:
    """Return the largest learning rate."""
    step = np.asarray(scales(room.run)[1])
    loss = loss_of(room.run)
    return float(np.max(step)) * room.run.batch_size / loss.lipschitz


def _seeds(room: Room, plain: WalkProblem, delta: float) -> Iterator[Choice]:
    """Yield where to begin, the most promising first."""
    noise = float(np.mean(plain.noise_std))
    places = [room.middle]
    if room.bounded:
        places += [room.lower, room.upper]
    single = isinstance(room.inclusion, Once | Periodic | Shuffled | Reshuffled)
    walls = list(_wall_seeds(room, noise, delta)) if room.bounded and not room.base else []
    if not single:
        yield from walls
    for when in pull_patterns(room):
        for curvature in _strengths(room, plain):
            for place in places:
                pulled = Others(curvature=curvature, center=place, when=when)
                yield Choice(pulled, place)
    if single:
        yield from walls


def _wall_seeds(room: Room, noise: float, delta: float) -> Iterator[Choice]:
    loss = loss_of(room.run)
    wall = noise**2 * math.log(1 / delta) / (2 * (room.upper - room.lower))
    unit = _rate(room) * loss.lipschitz
    for drift in (-0.6 * wall, -1.5 * noise, -2 * wall, 0.5 * wall):
        yield Choice(Others(share=drift / unit), room.middle)


def _moves(room: Room, plain: WalkProblem, choice: Choice, size: float) -> Iterator[Choice]:
    """Yield the neighbors of a choice, a move of ``size`` away."""
    noise = float(np.mean(plain.noise_std))
    loss = loss_of(room.run)
    others, unit = room.fitted(choice.others), _rate(room) * loss.lipschitz
    grow = 2.0**size
    reach = (room.upper - room.lower) / 4 if room.bounded else 4 * noise
    nearer = size * min(reach, 6 * noise)
    for share in (others.share * grow, others.share / grow):
        if share:
            yield replace(choice, others=replace(others, share=share))
    if room.bounded or others.curvature:
        for sign in (-1, 1):
            moved = others.share + sign * size * 0.5 * noise / unit
            yield replace(choice, others=replace(others, share=moved))
    if others.curvature:
        for factor in (grow, 1 / grow):
            yield replace(choice, others=replace(others, curvature=others.curvature * factor))
            yield replace(choice, others=replace(others, width=others.width * factor))
        for sign in (-1, 1):
            yield replace(choice, others=replace(others, center=others.center + sign * nearer))
            both = replace(others, center=others.center + sign * nearer)
            yield Choice(both, _inside(room, choice.start + sign * nearer))
    elif not isinstance(room.inclusion, Always):
        curvature = min(0.3 / _rate(room), room.smoothness)
        yield replace(choice, others=replace(others, curvature=curvature, center=choice.start))
    if room.bounded:
        for sign in (-1, 1):
            yield replace(choice, start=_inside(room, choice.start + sign * nearer))


def _inside(room: Room, place: float) -> float:
    return max(room.lower, min(room.upper, place))
