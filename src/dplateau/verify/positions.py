"""Ordered batches whose steps differ: the shift program of every position, solved anew.

One walk from the last step back serves all positions. For each it keeps how much a unit of distance
would shrink until the end of the run, and the noise met since the position's next use, both in the
units of the end of the run. At a use these become a block: what arrives, and what noise may absorb
it. Shifts must not absorb what has not arrived, so from left to right the ratio of absorbed
distance to noise may only rise; where it would fall, blocks are pooled. The cost is the sum over
pools of arrived^2 / noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dplateau.algorithms import Cyclic, Run
from dplateau.verify import reading
from dplateau.verify._dp_accounting import FloatArray
from dplateau.verify.claims import Case
from dplateau.verify.facts import (
    batches_per_epoch,
    distance_factor,
    least_share,
    smallest_batch,
    stages,
)
from dplateau.verify.moduli import StepLosses

# A walk that is longer than this in (steps) x (positions) is not attempted.
_MOST_WORK = 2 * 10**9


@dataclass(frozen=True)
class Steps:
    """Every step's constants: c if another's turn, c if the record's, its reach, the noise."""

    length: int
    others: list[float]
    own: list[float]
    reach: list[float]
    nu: list[float]


@dataclass
class Pools:
    """Blocks of one position, the last ones of the run first, their ratios falling."""

    arrived: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    closed: bool = False

    def close(self, arrived: float, noise: float) -> None:
        """Put the first block of all: the program starts here, from a distance."""
        self.push(arrived, noise)
        self.closed = True

    def push(self, arrived: float, noise: float) -> None:
        """Put a block to the left of the others, and pool it with those of a smaller ratio."""
        if self.closed or (arrived == 0 and noise == 0):
            return
        while self.arrived and arrived * self.noise[-1] > self.arrived[-1] * noise:
            arrived += self.arrived.pop()
            noise += self.noise.pop()
        self.arrived.append(arrived)
        self.noise.append(noise)

    def cost(self) -> float:
        """Return the sum of squares."""
        pairs = [(s, w) for s, w in zip(self.arrived, self.noise, strict=True) if s > 0]
        return math.fsum(s * s / w if w > 0 else math.inf for s, w in pairs)


def position_costs(case: Case, losses: str) -> list[float]:
    """Return the sum of squares of each position, started where the witness says."""
    run = case.run
    steps = _steps(case, losses)
    count = min(steps.length, run.steps)
    starts = _starts(case, count)
    if steps.length >= run.steps and math.isinf(run.diameter):
        return _single_uses(steps)
    work = count * run.steps
    case.ledger.require("length", work <= _MOST_WORK, f"{run.steps} steps, {count} positions")
    if isinstance(run.batches, Cyclic) and run.batches.order == "reshuffle":
        return _reshuffled(run, steps, starts)
    return _kept(run, steps, starts)


def _steps(case: Case, losses: str) -> Steps:
    """Read off every step. Reshuffled steps count as lacking one record, used or not."""
    run, ledger, loss = case.run, case.ledger, case.run.loss
    assert loss is not None
    length, size, short = batches_per_epoch(run), int(run.batch_size), smallest_batch(run)
    free = not (isinstance(run.batches, Cyclic) and run.batches.order == "reshuffle")
    known: dict[tuple[float, int, bool], float] = {}

    def slope(eta: float, records: int, used: bool) -> float:
        if (eta, records, used) not in known:
            maps = StepLosses(loss, run.l2, least_share(run, records, used), 1.0)
            modulus = maps.modulus(losses, eta, ledger)
            ledger.require("linear modulus", modulus.jump == 0, f"{losses!r}")
            known[eta, records, used] = modulus.slope
        return known[eta, records, used]

    steps = Steps(length, [], [], [], [])
    for stage in stages(run):
        reach = distance_factor(run) * stage.eta * loss.lipschitz / run.batch_size
        for _ in range(stage.count):
            records = short if len(steps.nu) % length == length - 1 else size
            steps.others.append(slope(stage.eta, records, not free))
            steps.own.append(slope(stage.eta, records, True))
            steps.reach.append(reach)
            steps.nu.append(stage.nu)
    return steps


def _starts(case: Case, count: int) -> list[int]:
    """Return after which use each position's program starts, -1 for the start of the run."""
    stored = reading.entry(case.witness, "starts")
    if math.isinf(case.run.diameter):
        case.ledger.require("starts", stored is None, "without a domain there are none")
        return [-1] * count
    found = [reading.as_number(x, "starts") for x in reading.rows(case.witness, "starts")]
    whole = len(found) == count and all(x == int(x) >= -1 for x in found)
    case.ledger.require("starts", whole, f"{len(found)} starts of {count} positions")
    return [int(x) for x in found]


def _single_uses(steps: Steps) -> list[float]:
    """Return the costs where every record is used once: (s c ... c)^2 / (noise from there on)."""
    left, noise, found = 1.0, 0.0, []
    for t in range(len(steps.nu) - 1, -1, -1):
        noise += (steps.nu[t] * left) ** 2
        found.append((steps.reach[t] * left) ** 2 / noise)
        left *= steps.others[t]
    return found[::-1]


def _kept(run: Run, steps: Steps, starts: list[int]) -> list[float]:
    left, noise = np.ones(len(starts)), np.zeros(len(starts))
    pools = [Pools() for _ in starts]
    for t in range(run.steps - 1, -1, -1):
        epoch, place = divmod(t, steps.length)
        here, met = float(left[place]), float(noise[place])
        if epoch == starts[place]:
            pools[place].close(run.diameter * here, met)
        pools[place].push(steps.reach[t] * here, met + (steps.nu[t] * here) ** 2)
        noise += (steps.nu[t] * left) ** 2
        noise[place] = 0.0
        factor = left[place] * steps.own[t]
        left *= steps.others[t]
        left[place] = factor
    return _costs(pools, starts)


def _reshuffled(run: Run, steps: Steps, starts: list[int]) -> list[float]:
    """Charge every epoch but the last at its end, with the most that any place leaves there."""
    left, length = 1.0, steps.length
    noise: FloatArray = np.zeros(len(starts))
    pools = [Pools() for _ in starts]
    last = run.steps // length - 1
    for t in range(run.steps - 1, -1, -1):
        epoch, place = divmod(t, length)
        reach, users = steps.reach[t], range(place, place + 1)
        if epoch < last:
            ends = place == length - 1
            reach, users = (_most_left(steps, t), range(length)) if ends else (0.0, range(0))
        absorbs = (steps.nu[t] * left) ** 2
        for j in users:
            met = float(noise[j])
            if epoch == starts[j]:
                pools[j].close(run.diameter * left, met)
            pools[j].push(reach * left, met + absorbs)
        noise += absorbs
        noise[users.start : users.stop] = 0.0
        left *= steps.others[t]
    return _costs(pools, starts)


def _most_left(steps: Steps, end: int) -> float:
    """Return the most that a use in the epoch up to step ``end`` leaves after that step."""
    kept, most = 1.0, 0.0
    for t in range(end, end - steps.length, -1):
        most = max(most, steps.reach[t] * kept)
        kept *= steps.others[t]
    return most


def _costs(pools: list[Pools], starts: list[int]) -> list[float]:
    reached = all(pool.closed for pool, start in zip(pools, starts, strict=True) if start >= 0)
    return [pool.cost() for pool in pools] if reached else [math.inf]
