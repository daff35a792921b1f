"""Shift programs walked in closed form, against walks step by step."""

from __future__ import annotations

import math
import random

import mpmath
import pytest

from dplateau.verify.walks import (
    Modulus,
    Program,
    ShiftBlocks,
    Stretch,
    _Walk,
    absorbed_squares,
    forward_distance,
)


def naive(program: Program, start: int, u: float, blocks: ShiftBlocks) -> tuple[float, float]:
    """Walk one step at a time."""
    steps = [s for s in program.stretches_from(start) for _ in range(s.count)]
    shifts = [first * ratio**i for count, first, ratio in blocks for i in range(count)]
    total, beyond = 0.0, u
    for step, shift in zip(steps, shifts, strict=True):
        beyond = max(0.0, step.modulus(u) + step.reach - shift)
        u = min(program.diameter, beyond)
        total += (shift / step.nu) ** 2
    extra = beyond * (2 * shifts[-1] + beyond) / steps[-1].nu ** 2
    return beyond, total + extra


@pytest.mark.parametrize("seed", range(40))
def test_walks_in_closed_form_are_the_walks_step_by_step(seed: int) -> None:
    rng = random.Random(seed)
    period = tuple(
        Stretch(
            rng.choice([1, 3, 60, 200]),
            Modulus(rng.choice([0.0, 0.7, 0.99, 1.0, 1.01]), rng.choice([0.0, 0.0, 1e-3])),
            rng.choice([0.0, 0.1, 1.0]),
            rng.uniform(0.5, 2.0),
        )
        for _ in range(rng.randint(1, 3))
    )
    program = Program(period, rng.randint(1, 4), rng.choice([math.inf, 0.5, 20.0]))
    start = rng.randrange(program.steps)
    blocks: ShiftBlocks = []
    left = program.steps - start
    while left:
        count = rng.randint(1, left)
        blocks.append((count, rng.choice([0.0, rng.uniform(0, 1)]), rng.choice([1.0, 1.02, 0.9])))
        left -= count
    u = 0.0
    for stretch in program.stretches_from(0):
        for _ in range(stretch.count):
            u = min(program.diameter, stretch.modulus(u) + stretch.reach)
    assert forward_distance(program, program.steps) == pytest.approx(u, rel=1e-9)
    squares, left = absorbed_squares(program, start, 0.3, blocks)
    leftover, total = naive(program, start, 0.3, blocks)
    assert left == pytest.approx(leftover, rel=1e-8, abs=1e-8)
    # Rounding is charged, never left out.
    assert total * (1 - 1e-10) <= squares <= total * (1 + 1e-8) + 1e-12


def test_closed_forms_charge_what_they_round() -> None:
    """Against a hundred digits: powers of hundreds of e-folds, and shifts that fall as distances.

    Shifts that absorb nearly all are drawn, since they leave rounding and little else.
    """
    rng = random.Random(1)
    mp = mpmath.mp.clone()
    mp.dps = 100
    looked_at = 0
    for _ in range(3000):
        n, c = int(10 ** rng.uniform(1.5, 4)), 1 - 10 ** rng.uniform(-6, -0.4)
        near = c * (1 + rng.uniform(-1, 1) * 10 ** rng.uniform(-12, -2))
        ratio, u = rng.choice([c, 1.0, near]), 10 ** rng.uniform(-3, 3)
        if n * math.log(c) < -300:
            continue
        power = mp.mpf(c) ** n
        gap = mp.mpf(ratio) - c
        worth = (mp.mpf(ratio) ** n - power) / gap if gap else n * power / c
        first = float(power * u / worth) * rng.uniform(0.9, 1)
        walk = _Walk(math.inf, u)
        if not walk._in_closed_form(Stretch(n, Modulus(c), 0.0, 1.0), first, ratio):
            continue
        exact = max(0, power * u - first * worth)
        charged = math.sqrt(walk.slips[0])
        if charged > 1e-140:  # its square is a double
            assert abs(exact - walk.u) <= charged
            looked_at += 1
    assert looked_at > 1500


@pytest.mark.parametrize(
    ("slope", "jump", "reach", "count", "start"),
    [
        (0.9999999999872861, 8.696782096767592, 0.0, 417, 1.8e-5),  # 1 - c^2n lost its digits
        (0.9999999999999997, 0.069048120838792, 0.0, 15902770, 2e-12),
        (1.0, 1e-30, 9e-17, 10**12, 1.0),  # each step is lost to rounding, all of them are not
        (1.0, 1e-17, 0.0, 10**12, 1.0),
    ],
)
def test_many_little_moves_are_a_large_one(
    slope: float, jump: float, reach: float, count: int, start: float
) -> None:
    """Distances once came out too small by 3e-9, and by 1e-4."""
    mp = mpmath.mp.clone()
    mp.dps = 50
    if reach > 0:
        least = start + count * mp.mpf(reach)
    else:
        kept = mp.mpf(slope) ** 2
        gained = (1 - kept**count) / (1 - kept) if kept != 1 else count
        least = mp.sqrt(mp.mpf(jump) * gained + kept**count * mp.mpf(start) ** 2)
    program = Program((Stretch(count, Modulus(slope, jump), reach, 1.0),), 1, math.inf)
    assert least <= forward_distance(program, count, start) <= least * (1 + 1e-3)


@pytest.mark.parametrize("slope", [3.5, 4.5, 100.0])
def test_what_a_plan_absorbs_too_early_is_not_paid_back(slope: float) -> None:
    """Shifts beyond the distance were lent against later steps where distances grow fast."""
    mp = mpmath.mp.clone()
    mp.dps = 100
    steps, ratio = 24, 1e-6
    # The first shift would absorb all the steps, if a distance could be negative meanwhile.
    arrives = (mp.mpf(slope) ** steps - 1) / (mp.mpf(slope) - 1)
    worth = (mp.mpf(slope) ** steps - mp.mpf(ratio) ** steps) / (mp.mpf(slope) - ratio)
    first = float(arrives / worth)
    exact, shift = mp.zero, mp.mpf(first)
    for _ in range(steps + 1):
        exact, shift = max(mp.zero, slope * exact + 1 - shift), shift * ratio
    walk = _Walk(math.inf, 0.0)
    walk.absorb(Stretch(steps + 1, Modulus(slope), 1.0, 1.0), first, ratio)
    assert walk.u >= exact * (1 - 1e-9)
