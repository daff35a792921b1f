"""Last-iterate theorems for batches known in advance: each is one shift program or a few.

Ordered batches whose steps differ: the shift program of every position, solved anew.

One walk from the last step back serves all positions. For each it keeps how much a unit of distance
would shrink until the end of the run, and the noise met since the position's next use, both in the
units of the end of the run. At a use these become a block: what arrives, and what noise may absorb
it. Shifts must not absorb what has not arrived, so from left to right the ratio of absorbed
distance to noise may only rise; where it would fall, blocks are pooled. The cost is the sum over
pools of arrived^2 / noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    Schedule,
    Scheme,
    refuse_batches,
)
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.verify import reading
from dplateau.verify.claims import CLOSED, Case, Derived, gaussian_derived
from dplateau.verify.facts import (
    Stage,
    batches_per_epoch,
    distance_factor,
    equal_steps,
    least_share,
    require_cap,
    require_contraction,
    require_hidden,
    smallest_batch,
    stages,
)
from dplateau.verify.precise import epsilon_at, mixture
from dplateau.verify.walks import (
    CONTRACTION,
    SMOOTH,
    Modulus,
    Program,
    ShiftBlocks,
    StepLosses,
    Stretch,
    absorb,
    forward_distance,
)

# (number of steps, whether the record is used), first step first.
Uses = Sequence[tuple[int, bool]]
_LEFTOVER = 1e-9
_MOST_EPOCHS = 10**6
# More than walking a plan in doubles can lose.
_ROUNDING = 1e-11


def gd_contraction(case: Case) -> Derived:
    """Derive full batches, contractive steps, no domain."""
    return _gaussian(case, gd_contraction_squares(case))


def gd_bounded(case: Case) -> Derived:
    """Derive full batches, contractive steps, on a bounded domain."""
    return _gaussian(case, gd_bounded_squares(case))


def cyclic_contraction(case: Case) -> Derived:
    """Derive batches in turn: the record of the last step."""
    return _gaussian(case, cyclic_squares(case))


def one_pass_contraction(case: Case) -> Derived:
    """Derive one pass: the record of the last step."""
    return _gaussian(case, one_pass_squares(case))


def modulus(case: Case) -> Derived:
    """Derive any declared class of losses, batches known in advance."""
    run, ledger = case.run, case.ledger
    require_hidden(run, ledger)
    known = isinstance(run.batches, FullBatch | Cyclic | OnePass)
    ledger.require("algorithm", known, f"{run.kind} has known batches")
    if isinstance(run.batches, Cyclic):
        order = run.batches.order
        ledger.require("order", order != "reshuffle", f"the order is {order!r}")
    scheduled = isinstance(run.learning_rate, Schedule) or isinstance(run.noise.value, Schedule)
    if scheduled and isinstance(run.batches, Cyclic | OnePass):
        return _gaussian(case, _worst_plan(case))
    return _gaussian(case, _worst_record(case, bounded=True, every=True))


def _worst_plan(case: Case) -> float:
    """Walk one plan for each position of an ordered run with a schedule; the largest counts."""
    run, ledger = case.run, case.ledger
    length = batches_per_epoch(run)
    losses = reading.word(case.witness, "losses")
    ledger.require("domain used", case.witness.get("bounded") is True, "bounded is True")
    plans = reading.rows(case.witness, "plans")
    count = min(length, run.steps)
    ledger.require("plans", len(plans) == count, f"{len(plans)} plans of {count} positions")
    totals = []
    for place, plan in enumerate(plans):
        if not isinstance(plan, dict):
            raise reading.Malformed(f"plans[{place}] must be an object")
        program = _scheduled_program(case, place, length, losses)
        totals.append(_plan_cost(case, program, plan, f"[{place}]"))
    worst = max(totals)
    ledger.agree("sum of squares", reading.number(case.witness, "sum_of_squares"), worst)
    return worst


def _scheduled_program(case: Case, place: int, length: int, losses: str) -> Program:
    """Return the program of a record that is used at every step t = place mod length."""
    phi = _modulus_by_rate(case, losses, every=True)
    parts, t = [], 0
    for stage in stages(case.run):
        end = t + stage.count
        while t < end:
            used = t % length == place
            following = t + 1 if used else t + (place - t) % length
            count = min(following, end) - t
            parts.append(_stretch(case, stage, count, used, phi(stage.eta, used)))
            t += count
    return Program(tuple(parts), 1, case.run.diameter)


def every_batch(case: Case) -> Derived:
    """Derive random batches as if each held the record; batches above the cap cost delta."""
    run, ledger, witness = case.run, case.ledger, case.witness
    require_hidden(run, ledger, own_rates=True)
    drawn = isinstance(run.batches, Poisson | FixedSize)
    ledger.require("algorithm", drawn, f"the batches are random; this is {run.kind}")
    assert run.loss is not None
    cap, extra = require_cap(case, run)
    # The common records of a batch of fixed size are b or b - 1; a Poisson batch may be empty.
    fixed = isinstance(run.batches, FixedSize)
    least = (run.batch_size - 1) / run.batch_size if fixed else 0.0
    maps = StepLosses(run.loss, run.l2, least, cap / run.batch_size)
    losses = reading.word(witness, "losses")
    found = stages(run)
    moduli = {eta: maps.modulus(losses, eta, ledger) for eta in {stage.eta for stage in found}}
    parts = [_stretch(case, stage, stage.count, True, moduli[stage.eta]) for stage in found]
    program = Program(tuple(parts), 1, run.diameter)
    total = _plan_cost(case, program, reading.record(witness, "plan"))
    ledger.agree("sum of squares", reading.number(witness, "sum_of_squares"), total)
    ledger.require("room", extra < case.delta, f"the cap leaves {case.delta - extra:.3g} of delta")
    derived = _gaussian(replace(case, delta=case.delta - extra), total)
    # Group privacy adds up what the cap costs; without it m records are m times as far apart.
    return derived if extra == 0 else replace(derived, stretched=None)


def shuffle_once_average(case: Case) -> Derived:
    """Derive the average over the record's position: one secret order for all epochs."""
    run = _shuffled(case, "shuffle_once")
    if not equal_steps(run):
        return _averaged_positions(case, run)
    length = batches_per_epoch(run)

    def program(trailing: int, uses: int) -> Program:
        before = length - 1 - trailing
        parts = [(before, False), (1, True), (trailing, False)]
        return _program(case, parts, uses, contractive_class(run), run.diameter)

    return _averaged(case, run, program)


def reshuffle_average(case: Case) -> Derived:
    """Derive the average over the position in the last epoch: a fresh order each epoch."""
    run = _shuffled(case, "reshuffle")
    _require_whole_epochs(case, run)
    if not equal_steps(run):
        return _averaged_positions(case, run)
    length = batches_per_epoch(run)

    def program(trailing: int, uses: int) -> Program:
        if uses > _MOST_EPOCHS:
            raise ArithmeticError(f"{uses} epochs are too many to walk through")
        early = [(length - 1, False), (1, True)] * (uses - 1)
        last = [(length - 1 - trailing, False), (1, True), (trailing, False)]
        return _program(case, [*early, *last], 1, contractive_class(run), run.diameter)

    return _averaged(case, run, program)


def gd_contraction_squares(case: Case) -> float:
    """Return the sum of squares of full batches without a domain."""
    require_contractive(case, FullBatch)
    return _worst_record(case, bounded=False)


def gd_bounded_squares(case: Case) -> float:
    """Return the sum of squares of full batches on a domain."""
    require_contractive(case, FullBatch)
    case.ledger.require("domain", math.isfinite(case.run.diameter), f"D = {case.run.diameter:g}")
    return _worst_record(case, bounded=True)


def cyclic_squares(case: Case) -> float:
    """Return the sum of squares of batches in turn, for the worst record."""
    require_contractive(case, Cyclic)
    # In a cut-off epoch of a reshuffled run two uses may be neighbours, and no cyclic pattern has
    # that. One epoch alone, whole or not, has one use at most.
    if _order(case.run) == "reshuffle" and case.run.steps > batches_per_epoch(case.run):
        _require_whole_epochs(case, case.run)
    return _worst_record(case, bounded=True) if equal_steps(case.run) else _worst_position(case)


def one_pass_squares(case: Case) -> float:
    """Return the sum of squares of one pass, for the worst record."""
    require_contractive(case, OnePass)
    return _worst_record(case, bounded=True) if equal_steps(case.run) else _worst_position(case)


def require_contractive(case: Case, scheme: Scheme) -> None:
    """Require a last iterate of steps that do not expand, of such batches."""
    require_hidden(case.run, case.ledger)
    about = f"the theorem is about {scheme.described}; this is {case.run.kind}"
    case.ledger.require("algorithm", isinstance(case.run.batches, scheme), about)
    require_contraction(case.run, 1.0, case.ledger)
    losses = reading.word(case.witness, "losses")
    fits = losses == contractive_class(case.run)
    case.ledger.require("class of losses", fits, f"{losses!r}")


def contractive_class(run: Run) -> str:
    """Return the class of losses whose steps contract."""
    assert run.loss is not None
    return CONTRACTION if run.loss.convex else SMOOTH


def _worst_position(case: Case) -> float:
    """Return the largest sum of squares of any position, and compare with what is stored."""
    ledger = case.ledger
    ledger.require("domain used", case.witness.get("bounded") is True, "bounded is True")
    costs = position_costs(case, contractive_class(case.run))
    worst = max(costs)
    ledger.agree("sum of squares", reading.number(case.witness, "sum_of_squares"), worst)
    place = reading.whole(case.witness, "position")
    named = place < len(costs) and costs[place] >= worst * (1 - 1e-9)
    ledger.require("position", named, f"the worst of {len(costs)} is said to be {place}")
    return worst


def _require_whole_epochs(case: Case, run: Run) -> None:
    left = run.steps % batches_per_epoch(run)
    case.ledger.require("whole epochs", left == 0, f"{left} steps lie in a cut-off epoch")


def _worst_record(case: Case, *, bounded: bool, every: bool = False) -> float:
    """Check the plan for the record of the last step, and return its sum of squares."""
    run, witness, ledger = case.run, case.witness, case.ledger
    period, uses = _pattern(run)
    for name, value in (("period", period), ("trailing", 0), ("uses", uses)):
        stored = reading.whole(witness, name)
        ledger.require(name, stored == value, f"stored {stored}, derived {value}")
    ledger.require("domain used", witness.get("bounded") is bounded, f"bounded is {bounded}")
    losses = reading.word(witness, "losses")
    parts = [(period - 1, False), (1, True)]
    diameter = run.diameter if bounded else math.inf
    program = _program(case, parts, uses, losses, diameter, every=every)
    total = _plan_cost(case, program, reading.record(witness, "plan"))
    ledger.agree("sum of squares", reading.number(witness, "sum_of_squares"), total)
    return total


def _pattern(run: Run) -> tuple[int, int]:
    """Return every how many steps the record of the last step is used, and how often."""
    match run.batches:
        case Cyclic():
            length = batches_per_epoch(run)
            return length, -(-run.steps // length)
        case OnePass():
            return run.steps, 1
        case FullBatch():
            return 1, run.steps
        case Poisson() | FixedSize():
            raise NotApplicable("when a record joins a random batch is not known")
        case _ as unknown:
            refuse_batches(unknown)


def _order(run: Run) -> str | None:
    return run.batches.order if isinstance(run.batches, Cyclic) else None


def _program(
    case: Case, uses: Uses, repeats: int, losses: str, diameter: float, *, every: bool = False
) -> Program:
    """Return the shift program of a record that is used as ``uses`` says, ``repeats`` times."""
    found, phi = stages(case.run), _modulus_by_rate(case, losses, every=every)
    if len(found) == 1:
        moduli = {used: phi(found[0].eta, used) for used in (False, True)}
        parts = [_stretch(case, found[0], n, used, moduli[used]) for n, used in uses if n]
        return Program(tuple(parts), repeats, diameter)
    # Here schedules come with a record that is used at every step only.
    parts = [_stretch(case, one, one.count, True, phi(one.eta, True)) for one in found]
    return Program(tuple(parts), 1, diameter)


def _modulus_by_rate(case: Case, losses: str, *, every: bool) -> Callable[[float, bool], Modulus]:
    """Return the modulus of a step by its learning rate and whether the record is in its batch.

    The shortest batch stands for all; with ``every`` all steps count as if the record were in it.
    """
    run, records = case.run, smallest_batch(case.run)
    always = every or (isinstance(run.batches, Cyclic) and run.batches.order == "reshuffle")

    @cache
    def phi(eta: float, used: bool) -> Modulus:
        # Where the order changes, every step counts as if the record were in it.
        least = least_share(run, records, used or always)
        assert run.loss is not None
        return StepLosses(run.loss, run.l2, least, 1.0).modulus(losses, eta, case.ledger)

    return phi


def _stretch(case: Case, stage: Stage, count: int, used: bool, phi: Modulus) -> Stretch:
    run = case.run
    assert run.loss is not None
    reach = distance_factor(run) * stage.eta * run.loss.lipschitz / run.batch_size if used else 0.0
    return Stretch(count, phi, reach, stage.nu)


def _plan_cost(case: Case, program: Program, plan: dict[str, object], where: str = "") -> float:
    """Walk a stored plan: it must start where it says, end with the run, and leave nothing."""
    ledger = case.ledger
    start_step = reading.whole(plan, "start_step")
    blocks: ShiftBlocks = reading.shift_blocks(reading.entry(plan, "blocks"))
    covered = start_step + sum(count for count, _, _ in blocks)
    ends = covered == program.steps and start_step < program.steps
    ledger.require(f"plan length{where}", ends, f"ends at step {covered} of {program.steps}")
    start = forward_distance(program, start_step)
    ledger.agree(f"start distance{where}", reading.number(plan, "start_distance"), start)
    outcome = absorb(program, start_step, start, blocks)
    detail = f"leaves {outcome.leftover:.3g} of distances up to {outcome.scale:.6g}"
    zero = outcome.leftover <= _LEFTOVER * outcome.scale
    ledger.require(f"plan absorbs all{where}", zero, detail)
    return outcome.sum_of_squares


def _gaussian(case: Case, sum_of_squares: float) -> Derived:
    mu = math.sqrt(sum_of_squares) * (1 + _ROUNDING)
    return gaussian_derived(mu, case.delta)


def _shuffled(case: Case, order: str) -> Run:
    require_contractive(case, Cyclic)
    found = _order(case.run)
    about = f"the theorem is about {order!r}; this is {found!r}"
    case.ledger.require("order", found == order, about)
    case.ledger.require("domain used", case.witness.get("bounded") is True, "bounded is True")
    return case.run


def _averaged(case: Case, run: Run, program: Callable[[int, int], Program]) -> Derived:
    """Average over groups of positions, each charged as its most exposed member."""
    weights, mus = [], []
    groups = reading.rows(case.witness, "groups")
    firsts = []
    for i, group in enumerate(groups):
        if not isinstance(group, dict):
            raise reading.Malformed(f"groups[{i}] must be an object")
        firsts.append(reading.whole(group, "trailing"))
    for i, (group, share) in enumerate(zip(groups, _shares(case, run, firsts), strict=True)):
        uses = reading.whole(group, "uses", 1)
        # A record that a short run never reaches is charged as if it were used once.
        expected = max(1, _uses_of(run, firsts[i]))
        case.ledger.require(f"uses[{i}]", uses == expected, f"stored {uses}, derived {expected}")
        case.ledger.agree(f"weight[{i}]", reading.number(group, "weight"), share)
        total = _plan_cost(case, program(firsts[i], uses), reading.record(group, "plan"), f"[{i}]")
        weights.append(share)
        mus.append(math.sqrt(total) * (1 + _ROUNDING))
    curve = mixture(weights, mus)
    epsilon = epsilon_at(curve, case.delta, case.epsilon)
    how = f"average of {len(mus)} Gaussian curves, fifty digits"
    return Derived(float(epsilon), CLOSED, how, near=lambda *_: lambda eps: float(curve(eps)))


def _averaged_positions(case: Case, run: Run) -> Derived:
    """Average over groups of positions, each charged as its worst member."""
    length, size = batches_per_epoch(run), int(run.batch_size)
    costs = position_costs(case, contractive_class(run))
    stored = reading.rows(case.witness, "edges")
    edges = [reading.as_whole(edge, f"edges[{i}]") for i, edge in enumerate(stored)]
    ends = [*edges[1:], len(costs)]
    rising = edges[0] == 0 and all(a < b for a, b in zip(edges, ends, strict=True))
    case.ledger.require("groups", rising, f"{len(edges)} groups of {len(costs)} positions")
    weights, mus = [], []
    for low, high in zip(edges, ends, strict=True):
        # The last position of an epoch holds what is left over.
        weights.append((min(high * size, run.n) - low * size) / run.n)
        mus.append(math.sqrt(max(costs[low:high])))
    epsilon = epsilon_at(mixture(weights, mus), case.delta, case.epsilon)
    how = f"average of {len(mus)} Gaussian curves over {length} positions, fifty digits"
    return Derived(float(epsilon), CLOSED, how)


def _shares(case: Case, run: Run, firsts: list[int]) -> list[float]:
    """Return the share of records in each group; groups must cover all positions in turn.

    A group holds the positions from its own number of trailing steps up to the next group's. More
    steps after a record's last use, or fewer uses, only hide it better, so its first member stands
    for all.
    """
    length, size = batches_per_epoch(run), int(run.batch_size)
    ordered = firsts[0] == 0 and all(a < b for a, b in pairwise(firsts))
    inside = ordered and firsts[-1] < length
    case.ledger.require("groups", inside, f"{len(firsts)} groups of {length} positions")
    short = run.n - (length - 1) * size
    # The number of trailing steps of the record in the last, perhaps shorter, batch of an epoch.
    of_short = (run.steps - 1 - (length - 1)) % length
    shares = []
    for low, high in zip(firsts, [*firsts[1:], length], strict=True):
        records = (high - low) * size - (size - short if low <= of_short < high else 0)
        shares.append(records / run.n)
    return shares


def _uses_of(run: Run, trailing: int) -> int:
    """Count the steps T - 1 - trailing, and every epoch before."""
    return max(0, -(-(run.steps - trailing) // batches_per_epoch(run)))


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
    steps = steps_of(case, losses)
    count = min(steps.length, run.steps)
    starts = read_starts(case, count)
    if not (steps.length >= run.steps and math.isinf(run.diameter)):
        work = count * run.steps
        case.ledger.require("length", work <= _MOST_WORK, f"{run.steps} steps, {count} positions")
    if isinstance(run.batches, Cyclic) and run.batches.order == "reshuffle":
        return reshuffled_costs(steps, starts, run.diameter)
    return kept_costs(steps, starts, run.diameter)


def steps_of(case: Case, losses: str) -> Steps:
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


def read_starts(case: Case, count: int) -> list[int]:
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


def kept_costs(steps: Steps, starts: list[int], diameter: float) -> list[float]:
    """Return the cost of every position in an order that stays the same."""
    if steps.length >= len(steps.nu) and math.isinf(diameter):
        return _single_uses(steps)
    left, noise = np.ones(len(starts)), np.zeros(len(starts))
    pools = [Pools() for _ in starts]
    for t in range(len(steps.nu) - 1, -1, -1):
        epoch, place = divmod(t, steps.length)
        here, met = float(left[place]), float(noise[place])
        if epoch == starts[place]:
            pools[place].close(diameter * here, met)
        pools[place].push(steps.reach[t] * here, met + (steps.nu[t] * here) ** 2)
        noise += (steps.nu[t] * left) ** 2
        noise[place] = 0.0
        factor = left[place] * steps.own[t]
        left *= steps.others[t]
        left[place] = factor
    return _costs(pools, starts)


def reshuffled_costs(steps: Steps, starts: list[int], diameter: float) -> list[float]:
    """Charge every epoch but the last at its end, with the most that any place leaves there."""
    left, length = 1.0, steps.length
    noise: FloatArray = np.zeros(len(starts))
    pools = [Pools() for _ in starts]
    last = len(steps.nu) // length - 1
    for t in range(len(steps.nu) - 1, -1, -1):
        epoch, place = divmod(t, length)
        reach, users = steps.reach[t], range(place, place + 1)
        if epoch < last:
            ends = place == length - 1
            reach, users = (_most_left(steps, t), range(length)) if ends else (0.0, range(0))
        absorbs = (steps.nu[t] * left) ** 2
        for j in users:
            met = float(noise[j])
            if epoch == starts[j]:
                pools[j].close(diameter * left, met)
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
