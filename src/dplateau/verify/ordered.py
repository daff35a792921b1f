"""Batches in a fixed or secret order: the worst position, or an average over positions.

Where steps differ, ordered batches have no plan in the witness: the program of every position is
solved anew. Seen from the end of the run, a use is a block of a distance that arrives and of the
noise that may absorb it, up to the next use. Shifts must not absorb what has not arrived, so from
left to right the ratio of absorbed distance to noise may only rise; where it would fall, blocks are
pooled. The cost is the sum over pools of arrived^2 / noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from dplateau.algorithms import Cyclic, OnePass
from dplateau.ground.types import FloatArray, IntArray
from dplateau.verify.cases import (
    ROUNDED,
    Case,
    Derived,
    Stage,
    batches_per_epoch,
    equal_steps,
    least_share,
    moved_by_record,
    order_of,
    smallest_batch,
    stages,
    theorem,
)
from dplateau.verify.iteration import (
    MOST_STEPS,
    contractive_losses,
    program_of,
    require_short,
    squares_derived,
    worst_record_squares,
)
from dplateau.verify.precise import MP, Precise, epsilon_at, mixture, up
from dplateau.verify.reading import Entry
from dplateau.verify.walks import Program, plan_squares, step_losses

_MOST_EPOCHS = 10**5


# --- the worst position --------------------------------------------------------------------------


@theorem(Cyclic)
def cyclic_contraction(case: Case) -> Derived:
    """Derive batches in turn: the record of the last step."""
    losses = contractive_losses(case)
    # In a cut-off epoch of a reshuffled run two uses may be neighbors, and no cyclic pattern has
    # that. One epoch alone, whole or not, has one use at most.
    if order_of(case.run) == "reshuffle" and case.run.steps > batches_per_epoch(case.run):
        _require_whole_epochs(case)
    return _worst_of_ordered(case, losses)


@theorem(OnePass)
def one_pass_contraction(case: Case) -> Derived:
    """Derive one pass: the record of the last step."""
    return _worst_of_ordered(case, contractive_losses(case))


def _worst_of_ordered(case: Case, losses: str) -> Derived:
    if equal_steps(case.run):
        return squares_derived(case, worst_record_squares(case, losses, case.run.diameter))
    return squares_derived(case, max(_position_costs(case, losses)))


def _require_whole_epochs(case: Case) -> None:
    left = case.run.steps % batches_per_epoch(case.run)
    case.require("whole epochs", left == 0, f"{left} steps lie in a cut-off epoch")


# --- averages over secret orders -----------------------------------------------------------------


@theorem(Cyclic)
def shuffle_once_average(case: Case) -> Derived:
    """Derive the average over the record's position: one secret order for all epochs."""
    losses = _require_shuffled(case, "shuffle_once")
    if not equal_steps(case.run):
        return _averaged_positions(case, losses)
    length = batches_per_epoch(case.run)

    def program(trailing: int, uses: int) -> Program:
        parts = [(length - 1 - trailing, False), (1, True), (trailing, False)]
        return program_of(case, parts, uses, losses, case.run.diameter)

    return _averaged(case, program)


@theorem(Cyclic)
def reshuffle_average(case: Case) -> Derived:
    """Derive the average over the position in the last epoch: a fresh order each epoch."""
    losses = _require_shuffled(case, "reshuffle")
    _require_whole_epochs(case)
    if not equal_steps(case.run):
        return _averaged_positions(case, losses)
    length = batches_per_epoch(case.run)

    def program(trailing: int, uses: int) -> Program:
        if uses > _MOST_EPOCHS:
            raise ArithmeticError(f"{uses} epochs are too many to walk through")
        early = [(length - 1, False), (1, True)] * (uses - 1)
        last = [(length - 1 - trailing, False), (1, True), (trailing, False)]
        return program_of(case, [*early, *last], 1, losses, case.run.diameter)

    return _averaged(case, program)


def _require_shuffled(case: Case, order: str) -> str:
    losses, seen = contractive_losses(case), order_of(case.run)
    case.require("order", seen == order, f"the theorem is about {order!r}; this is {seen!r}")
    return losses


def _averaged(case: Case, program: Callable[[int, int], Program]) -> Derived:
    """Average over groups of positions, each charged as its most exposed member."""
    groups = case.witness["groups"].rows(most=500)
    firsts = [group["trailing"].whole() for group in groups]
    weights, squares = _shares(case, firsts), []
    for i, (first, group) in enumerate(zip(firsts, groups, strict=True)):
        # A record that a short run never reaches is charged as if it were used once.
        uses = max(1, -(-(case.run.steps - first) // batches_per_epoch(case.run)))
        squares.append(plan_squares(case, program(first, uses), group["plan"], f"[{i}]"))
    return mixture_derived(case, weights, squares)


def _shares(case: Case, firsts: list[int]) -> list[Precise]:
    """Return the share of records in each group; groups must cover all positions in turn.

    A group holds the positions from its own number of trailing steps up to the next group's. More
    steps after a record's last use, or fewer uses, only hide it better, so its first member stands
    for all.
    """
    run = case.run
    length, size = batches_per_epoch(run), int(run.batch_size)
    rising = firsts[0] == 0 and all(a < b for a, b in pairwise([*firsts, length]))
    case.require("groups", rising, f"{len(firsts)} groups of {length} positions")
    missing = length * size - run.n
    # The number of trailing steps of the record in the last, perhaps shorter, batch of an epoch.
    of_short = (run.steps - 1 - (length - 1)) % length
    shares = []
    for low, high in pairwise([*firsts, length]):
        records = (high - low) * size - (missing if low <= of_short < high else 0)
        shares.append(MP.mpf(records) / run.n)
    return shares


def _averaged_positions(case: Case, losses: str) -> Derived:
    """Average over groups of positions, each charged as its worst member."""
    run, size = case.run, int(case.run.batch_size)
    costs = _position_costs(case, losses)
    edges = case.witness["edges"].wholes(most=500)
    rising = edges[0] == 0 and all(a < b for a, b in pairwise([*edges, len(costs)]))
    case.require("groups", rising, f"{len(edges)} groups of {len(costs)} positions")
    weights, squares = [], []
    for low, high in pairwise([*edges, len(costs)]):
        # The last position of an epoch holds what is left over.
        weights.append(MP.mpf(min(high * size, run.n) - low * size) / run.n)
        squares.append(max(costs[low:high]))
    return mixture_derived(case, weights, squares)


def mixture_derived(case: Case, weights: list[Precise], squares: list[float]) -> Derived:
    """Return what the average of Gaussian curves gives."""
    curve = mixture(weights, [math.sqrt(total) * ROUNDED for total in squares])
    how = f"average of {len(squares)} Gaussian curves, fifty digits"
    epsilon = epsilon_at(curve, case.delta, case.epsilon)
    return Derived(epsilon, how, near=lambda *_: lambda eps: up(curve(eps)))


# --- positions whose steps differ ----------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """Every step's c if it is another's turn, c if it is the record's, its reach, and the noise."""

    length: int  # of an epoch
    others: FloatArray
    own: FloatArray
    reach: FloatArray
    nu: FloatArray

    def between(self, start: int, stop: int) -> Steps:
        """Return some of the steps; their epochs begin where they do."""
        columns = (self.others, self.own, self.reach, self.nu)
        return Steps(self.length, *(column[start:stop] for column in columns))


def _position_costs(case: Case, losses: str) -> list[float]:
    """Return the sum of squares of each position, started where the witness says, rounded up."""
    length = batches_per_epoch(case.run)
    require_short(case, 1 if length >= case.run.steps else length)
    bounded = math.isfinite(case.run.diameter)
    starts = case.witness["starts"] if bounded else None
    return costs_of(case, steps_of(case, losses), starts)


def costs_of(case: Case, steps: Steps, stored: Entry | None) -> list[float]:
    """Return the sum of squares of each position over such steps, rounded up.

    ``stored`` are the starts of the positions, which only a bounded domain asks for.
    """
    count, length, diameter = steps.nu.size, steps.length, case.run.diameter
    starts = _starts(case, stored, min(length, count))
    rounding = 1 + 1e-13 + 1e-15 * count
    left = _left(steps.others)
    if length >= count:
        costs = _single_uses(steps.reach, left, steps.nu, starts, diameter)
        return [cost * rounding for cost in costs]
    costs = []
    reshuffled = order_of(case.run) == "reshuffle"
    # Every epoch but the last is charged at its end, with the most that any place leaves there.
    most = _most_left(steps.reach, steps.others, length) if reshuffled else steps.reach[:0]
    ends = np.arange(length - 1, count - length, length)
    for place, start in enumerate(starts):
        if reshuffled:
            times = np.r_[ends, count - length + place]
            arrives = np.r_[most, steps.reach[times[-1]]]
        else:
            times = np.arange(place, count, length)
            mixed = steps.others.copy()
            mixed[times] = steps.own[times]
            left, arrives = _left(mixed), steps.reach[times]
        costs.append(rounding * _position_cost(times, arrives, left, steps.nu, start, diameter))
    return costs


def _single_uses(
    reach: FloatArray, left: FloatArray, nu: FloatArray, starts: list[int], diameter: float
) -> list[float]:
    """Return the costs where every record is used once, the program starting at that use or after.

    (s c ... c)^2 / (noise from there on).
    """
    noise = np.r_[np.cumsum(((nu * left) ** 2)[::-1])[::-1], 0.0]
    costs = []
    for t, start in enumerate(starts):
        distance = float(left[t]) * (float(reach[t]) if start < 0 else diameter)
        room = float(noise[t] if start < 0 else noise[t + 1])
        known = start <= 0 and room > 0
        costs.append(distance**2 / room if known else 0.0 if distance == 0 else math.inf)
    return costs


def _left(slopes: FloatArray) -> FloatArray:
    """Return how much of a distance after each step is left at the end of the run."""
    return np.asarray(np.r_[np.cumprod(slopes[:0:-1])[::-1], 1.0])


def _most_left(reach: FloatArray, slopes: FloatArray, length: int) -> FloatArray:
    """Return the most that a use in each epoch but the last leaves at the epoch's end."""
    steps = reach.size - length
    kept = np.ones(steps // length)
    most = np.zeros(steps // length)
    for place in range(length - 1, -1, -1):
        most = np.maximum(most, reach[place:steps:length] * kept)
        kept = kept * slopes[place:steps:length]
    return np.asarray(most)


def _position_cost(
    times: IntArray,
    arrives: FloatArray,
    left: FloatArray,
    nu: FloatArray,
    start: int,
    diameter: float,
) -> float:
    """Pool blocks of (arrived, noise), the last ones of the run first, their ratios falling."""
    if start >= times.size:
        return math.inf
    energy = (nu * left) ** 2
    noise = np.add.reduceat(energy, times)
    arrived = arrives * left[times]
    if start >= 0:
        # The program starts just after this use, from as far apart as the domain allows.
        arrived[start], noise[start] = diameter * left[times[start]], _after(energy, times, start)
    pools: list[tuple[float, float]] = []
    first = max(start, 0)
    for near, far in zip(arrived[first:][::-1].tolist(), noise[first:][::-1].tolist(), strict=True):
        distance, room = near, far
        # Where nothing is left of old noise, what it should absorb is left to later noise.
        while pools and (room == 0 or distance * pools[-1][1] > pools[-1][0] * room):
            distance, room = distance + pools[-1][0], room + pools.pop()[1]
        pools.append((distance, room))
    return math.fsum(s * s / w if w > 0 else math.inf for s, w in pools if s > 0)


def _after(energy: FloatArray, times: IntArray, start: int) -> float:
    """Return the noise after a use, up to the next one."""
    end = int(times[start + 1]) if start + 1 < times.size else energy.size
    return float(energy[int(times[start]) + 1 : end].sum())


def steps_of(case: Case, losses: str) -> Steps:
    """Read off every step. Reshuffled steps count as lacking one record, used or not."""
    run = case.run
    length, always = batches_per_epoch(run), order_of(run) == "reshuffle"

    @cache
    def slope(eta: float, records: int, used: bool) -> float:
        return step_losses(case, least_share(run, records, used)).slope(losses, eta)

    forward = stages(run)
    counts = [stage.count for stage in forward]

    def column(value: Callable[[Stage], float]) -> FloatArray:
        return np.repeat(np.array([value(stage) for stage in forward]), counts)

    def slopes(records: int, used: bool) -> FloatArray:
        return column(lambda stage: slope(stage.eta, records, used))

    ends_epoch = np.arange(run.steps) % length == length - 1
    short, size = smallest_batch(run), int(run.batch_size)
    others = np.where(ends_epoch, slopes(short, always), slopes(size, always))
    own = np.where(ends_epoch, slopes(short, True), slopes(size, True))
    reach = column(lambda stage: moved_by_record(run, stage.eta))
    return Steps(length, others, own, reach, column(lambda stage: stage.nu))


def _starts(case: Case, stored: Entry | None, count: int) -> list[int]:
    """Return after which use each position's program starts, -1 for the start of the run."""
    if stored is None or math.isinf(case.run.diameter):
        return [-1] * count
    starts = stored.wholes(most=MOST_STEPS, least=-1)
    case.require("starts", len(starts) == count, f"{len(starts)} of {count} positions")
    return starts
