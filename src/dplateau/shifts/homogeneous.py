"""Optimal plans of equal linear steps, in closed form: a handful of numbers for any length."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dplateau.numerics.solve import geometric_sum
from dplateau.shifts.chain import Chain
from dplateau.shifts.closed_forms import best_steps_from_diameter, decay_rate
from dplateau.shifts.evaluation import sealed
from dplateau.shifts.forward import linear_forward
from dplateau.shifts.geometric import LOG_GROWTH
from dplateau.shifts.plan import ShiftBlock, ShiftPlan

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
