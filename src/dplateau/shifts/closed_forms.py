"""Equal contractions of factor c <= 1: optimal sums of squares, and plans, in closed form.

Each sum is sum a^2 / nu^2 in units of (s / nu)^2, the squared mu of one step, unless it says
otherwise. They are the exact optimum up to rounding and are *not* rounded up: a claim takes the
value of a re-evaluated plan. For c > 1 they can be too small (the line they draw would make a
distance negative), and ``solve`` is the way out. Plans are a handful of numbers for any length.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.numerics.solve import geometric_sum
from dplateau.shifts.chain import Chain
from dplateau.shifts.linear import LOG_GROWTH
from dplateau.shifts.plan import ShiftBlock, ShiftPlan, linear_forward, sealed


def decay_rate(contraction: float) -> float:
    """Return -log c (c = 0 gives infinity)."""
    if not 0 <= contraction < math.inf:
        raise InvalidInput(f"A contraction must be finite and >= 0; got {contraction!r}.")
    return -math.log(contraction) if contraction > 0 else math.inf


def full_batch_factor(contraction: float, steps: int) -> float:
    """Return (1-c^T)(1+c) / ((1+c^T)(1-c)); T at c = 1: s acts at each of T steps from u = 0.

    The plateau (1+c)/(1-c) is reached as T grows (Bok, Su and Altschuler, arXiv 2403.00278).
    """
    rate = _require_contraction("full_batch_factor", contraction)
    _require_counts(steps=steps)
    if rate == 0:
        return float(steps)
    if math.isinf(rate):
        return 1.0
    # (1-x)/(1+x) = tanh(-log(x)/2), free of cancellation for c near 1.
    return math.tanh(rate * steps / 2) / math.tanh(rate / 2)


def cyclic_factor(contraction: float, batches: int, epochs: int, position: int) -> float:
    """Return the optimum when s acts at one position (from 0) of each of E epochs of l steps.

    The points of the minorant just before each contact lie on a concave curve, so it has at most
    one inner vertex: the last contact, unless the chord from the first contact passes below it.
    """
    rate = _require_contraction("cyclic_factor", contraction)
    _require_counts(batches=batches, epochs=epochs)
    if not 0 <= position < batches:
        raise InvalidInput(f"A position must lie in 0..{batches - 1}; got {position!r}.")
    rest = batches - position  # steps from the last contact on, its own included
    if math.isinf(rate):
        return 1.0 if rest == 1 else 0.0
    last = math.exp(-2 * rate * (rest - 1)) / geometric_sum(2 * rate, rest)
    if epochs == 1:
        return last
    span = batches * (epochs - 1)
    # Convex at the last contact iff c^l <= c^(2 rest) (1 + c^(l(E-1)) (1 - c^l)).
    bend = math.log1p(math.exp(-rate * span) * -math.expm1(-rate * batches))
    if rate * (2 * rest - batches) <= bend:
        drift = geometric_sum(rate * batches, epochs - 1)
        earlier = math.exp(-rate * (batches - 1)) * drift
        return last + earlier**2 / geometric_sum(2 * rate, span)
    drift = math.exp(-rate * (rest - 1)) * geometric_sum(rate * batches, epochs)
    return drift**2 / geometric_sum(2 * rate, rest + span)


def one_pass_factor(contraction: float, records: int, record: int) -> float:
    """Return 1 / sum_{j=0}^{n-i} c^(-2j): one pass, s only at the turn of record i (from 1)."""
    _require_contraction("one_pass_factor", contraction)
    _require_counts(records=records)
    if not 1 <= record <= records:
        raise InvalidInput(f"A record must lie in 1..{records}; got {record!r}.")
    return cyclic_factor(contraction, records, 1, record - 1)


def bounded_sum_of_squares(
    contraction: float, sensitivity: float, noise_std: float, distance: float, steps: int
) -> float:
    """Return (c^R u + s (1-c^R)/(1-c))^2 / (nu^2 (1-c^(2R))/(1-c^2)): R steps from distance u.

    This one is in absolute units. At c = 1 it is (u + R s)^2 / (R nu^2).
    """
    rate = _require_contraction("bounded_sum_of_squares", contraction)
    _require_counts(steps=steps)
    start = distance * math.exp(-rate * steps) if distance else 0.0
    drift = start + sensitivity * geometric_sum(rate, steps)
    return (drift / noise_std) ** 2 / geometric_sum(2 * rate, steps)


def best_steps_from_diameter(contraction: float, sensitivity: float, diameter: float) -> float:
    """Return the real number R of steps that costs least when the runs start a diameter D apart.

    c^R = 1 - D (1-c)/s, or R = D/s at c = 1; the cost falls before it and rises after it. Where
    the cap D is active, D (1-c) <= s, so that R exists; infinity means the more the better. The
    same R holds for c > 1, since the line it draws still stays below the points of the minorant.
    """
    if sensitivity == 0:
        return math.inf
    share = diameter * (contraction - 1) / sensitivity
    if share <= -1:
        return math.inf
    if contraction == 1:
        return diameter / sensitivity
    return math.log1p(share) / -decay_rate(contraction)


def _require_contraction(name: str, contraction: float) -> float:
    rate = decay_rate(contraction)
    if contraction > 1:
        raise NotApplicable(
            f"{name} needs c <= 1; got c={contraction!r}, for which it can be too small. "
            "Use dplateau.shifts.solve, which handles expanding maps."
        )
    return rate


def _require_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1 or value != int(value):
            raise InvalidInput(f"{name} must be a whole number >= 1; got {value!r}.")


# Steps from which less than e^-42 of a distance survives change the optimum by e^-84 of itself.
NEGLIGIBLE = 42.0
# Below this factor a single step forgets everything, and 1/c could overflow.
FORGETFUL = 1e-100


def homogeneous_plan(chain: Chain) -> ShiftPlan:
    """Return an optimal plan of a chain of equal linear steps (any c, with or without a domain).

    Only two kinds of start can be optimal. From step 0, or from a step where the cap D is active:
    otherwise absorbing nothing before the start would give the same plan from step 0.
    """
    step = chain.uniform_linear_step()
    assert step is not None
    c, s, _ = step
    plans = [_from_start(c, s, chain)]
    earliest = _first_step_at_diameter(c, s, chain)
    if earliest is not None:
        room = chain.steps - earliest
        wish = min(best_steps_from_diameter(c, s, chain.diameter), _longest(c))
        # An infinite wish means that the cap acts at step 0 at most: that plan is there already.
        lower = max(1, math.floor(min(wish, room)))
        for used in {lower, min(room, lower + 1)} if wish < math.inf else ():
            block = single_block(c, s, chain.diameter, used)
            plans.append(ShiftPlan.of(chain.steps - used, chain.diameter, [block]))
    return min(plans, key=_sum_of_squares)


def single_block(c: float, s: float, distance: float, steps: int) -> ShiftBlock:
    """Return the geometric shifts that bring a distance to zero along one line of the minorant.

    They are a_j proportional to c^(R-1-j). The first one is chosen for the *stored* ratio, which
    is 1/c only up to rounding, so that R = 10^7 steps still end at zero.
    """
    if steps == 1:
        return ShiftBlock(1, c * distance + s)
    if c < FORGETFUL:
        return ShiftBlock(steps, s)
    rate = decay_rate(c)
    ratio = 1 / c
    climb = math.log(ratio)
    if c <= 1:  # in units of the end of the run
        drift = distance * math.exp(-rate * steps) + s * geometric_sum(rate, steps)
        last = drift / geometric_sum(rate + climb, steps)
        return ShiftBlock(steps, last * math.exp(-climb * (steps - 1)), ratio)
    # In units of the start of the run, where nothing overflows: divide by c^R.
    drift = distance + s / c * geometric_sum(-rate, steps)
    return ShiftBlock(steps, c * drift / geometric_sum(-rate - climb, steps), ratio)


def _from_start(c: float, s: float, chain: Chain) -> ShiftPlan:
    steps, distance = chain.steps, chain.initial_distance
    if c > 1:
        return _expanding_plan(c, s, chain)
    used = steps
    if c < 1:
        used = 1 if c < FORGETFUL else min(steps, 1 + math.ceil(NEGLIGIBLE / decay_rate(c)))
    if used < steps:
        distance = linear_forward(c, s, steps - used, chain.diameter, distance)
    return ShiftPlan.of(steps - used, distance, [single_block(c, s, distance, used)])


def _expanding_plan(c: float, s: float, chain: Chain) -> ShiftPlan:
    """Absorb the initial distance along the tangent, then each sensitivity as it comes.

    For c > 1 the points of the minorant are convex. From height -u, with k = s/(c-1), v = 1 + u/k
    and y = c^-R, the tangent touches them where y^2 - 2 v y + 1 = 0.
    """
    steps, distance = chain.steps, chain.initial_distance
    if distance == 0:
        return ShiftPlan.of(0, 0.0, [ShiftBlock(steps, s)])
    v = 1 + distance * (c - 1) / s if s else math.inf
    touch = math.log(v + math.sqrt(v * v - 1)) / math.log(c)
    lower = max(1, math.floor(min(touch, steps, _longest(c))))
    options = [single_block(c, s, distance, used) for used in {lower, min(steps, lower + 1)}]
    # The tangent is the line of least slope, that is of the smallest first shift.
    block = min(options, key=lambda option: option.first_shift)
    if block.count == steps:
        return ShiftPlan.of(0, distance, [block])
    plan = ShiftPlan.of(0, distance, [block, ShiftBlock(steps - block.count, s)])
    return sealed(plan, chain, np.array([True, True]))


def _longest(c: float) -> float:
    """Return how many steps a block may have before rounding errors outgrow what it absorbs."""
    return LOG_GROWTH / math.log(c) if c > 1 else math.inf


def _first_step_at_diameter(c: float, s: float, chain: Chain) -> int | None:
    def capped(step: int) -> bool:
        start = chain.initial_distance
        reached = linear_forward(c, s, step, chain.diameter, start) if step else start
        return reached == chain.diameter

    if math.isinf(chain.diameter) or not capped(chain.steps - 1):
        return 0 if chain.initial_distance == chain.diameter else None
    return _first_true(capped, chain.steps - 1)


def _first_true(condition: Callable[[int], bool], last: int) -> int:
    """Return the least integer of 0..last that satisfies a monotone condition (last does)."""
    low, high = -1, last
    while high - low > 1:
        middle = (low + high) // 2
        if condition(middle):
            high = middle
        else:
            low = middle
    return high


def _sum_of_squares(plan: ShiftPlan) -> float:
    """Return the cost in units of 1/nu^2, only to choose between plans."""
    total = 0.0
    for block in plan.blocks:
        rate = -2 * math.log(block.ratio)
        if rate < 0:  # growing shifts: sum from the last one
            last = block.first_shift * block.ratio ** (block.count - 1)
            total += last**2 * geometric_sum(-rate, block.count)
        else:
            total += block.first_shift**2 * geometric_sum(rate, block.count)
    return total
