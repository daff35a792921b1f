"""Plans survive JSON, and are worth what their evaluation says."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from dplateau.errors import InvalidInput
from dplateau.shifts import (
    Chain,
    DescentAscent,
    Linear,
    Segment,
    ShiftBlock,
    ShiftPlan,
    SquareRoot,
    evaluate,
)
from dplateau.shifts.chain import modulus_of
from dplateau.shifts.plan import sealed
from shifts.chains import linear

PLAN = ShiftPlan.of(3, 0.25, [ShiftBlock(4, 0.1, 1.5), ShiftBlock(2, 0.0), ShiftBlock(1, 0.7, 1.0)])


def test_expansion_follows_the_blocks() -> None:
    expected = [0.1, 0.15, 0.225, 0.3375, 0.0, 0.0, 0.7]
    assert PLAN.steps == 7
    np.testing.assert_allclose(PLAN.shifts(), expected, rtol=1e-15)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_chunks_are_small_and_join_to_the_whole(size: int) -> None:
    for plan in (PLAN, ShiftPlan.from_shifts(0, 0.0, np.array([0.1, 0.2, 0.3, 0.25]))):
        chunks = list(plan.chunks(size))
        assert max(chunk.size for chunk in chunks) <= size
        np.testing.assert_array_equal(np.concatenate(chunks), plan.shifts())


def test_plan_survives_json() -> None:
    again = ShiftPlan.from_dict(json.loads(json.dumps(PLAN.to_dict())))
    assert again.to_dict() == PLAN.to_dict()
    assert again.blocks == PLAN.blocks
    assert PLAN.to_dict()["blocks"][0] == [4, 0.1, 1.5]


def test_equal_neighbors_join() -> None:
    plan = ShiftPlan.from_shifts(2, 0.5, np.array([0.2, 0.2, 0.2, 0.4, 0.0, 0.0]))
    assert plan.blocks == (ShiftBlock(3, 0.2), ShiftBlock(1, 0.4), ShiftBlock(2, 0.0))


def test_raising_splits_off_the_last_shift_only() -> None:
    raised = PLAN.raised(np.array([0.5, 0.0, 0.01]))
    change = raised.shifts() - PLAN.shifts()
    assert raised.counts.tolist() == [3, 1, 2, 1]
    np.testing.assert_allclose(change, [0, 0, 0, 0.5, 0, 0, 0.01], atol=1e-14)
    assert change[3] >= 0.5
    assert PLAN.raised(np.zeros(3)) is PLAN


def test_ten_million_equal_steps_are_one_block() -> None:
    plan = ShiftPlan.of(0, 0.0, [ShiftBlock(10**7, 1e-9, 1.000001)])
    assert len(json.dumps(plan.to_dict())) < 100
    assert sum(chunk.size for chunk in plan.chunks()) == 10**7


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([], "at least one block"),
        ([ShiftBlock(0, 0.1)], "count >= 1; got 0"),
        ([ShiftBlock(2, -0.1)], "shifts must be finite and >= 0"),
        ([ShiftBlock(2, 0.1, float("nan"))], "ratios must be finite"),
        ([ShiftBlock(3000, 0.1, 2.0)], "last shifts must be finite"),
    ],
)
def test_impossible_blocks_are_refused(blocks: list[ShiftBlock], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ShiftPlan.of(0, 0.0, blocks)


def test_impossible_starts_are_refused() -> None:
    with pytest.raises(InvalidInput, match="whole step >= 0; got -1"):
        ShiftPlan.of(-1, 0.0, [ShiftBlock(1, 0.1)])
    with pytest.raises(InvalidInput, match="start distance >= 0; got inf"):
        ShiftPlan.of(0, float("inf"), [ShiftBlock(1, 0.1)])


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"start_step": 0, "start_distance": 0.0},
        {"start_step": 0, "start_distance": 0.0, "blocks": [[1, 2]]},
        {"start_step": 0, "start_distance": 0.0, "blocks": 5},
    ],
)
def test_unreadable_descriptions_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="needs start_step, start_distance and blocks"):
        ShiftPlan.from_dict(data)


def exact_rational(plan: ShiftPlan, chain: Chain) -> tuple[Fraction, Fraction]:
    """The recursion in rational arithmetic: no rounding at all."""
    columns, rows = chain.columns, chain.rows_from(0)
    blocks = [(n, Fraction(a), Fraction(r)) for n, a, r in plan.to_dict()["blocks"]]
    shifts = [first * ratio**j for count, first, ratio in blocks for j in range(count)]
    u, total = Fraction(chain.initial_distance), Fraction(0)
    for t, row in enumerate(rows.tolist()):
        a = shifts[t - plan.start_step] if t >= plan.start_step else Fraction(0)
        if t == plan.start_step:
            u = max(u, Fraction(plan.start_distance))
        u = max(
            Fraction(0),
            Fraction(float(columns.first[row])) * u
            + Fraction(float(columns.sensitivities[row]))
            - a,
        )
        if t == len(rows) - 1:
            a += u  # before the projection: the last shift must absorb all of it
        elif not math.isinf(chain.diameter):
            u = min(u, Fraction(chain.diameter))
        total += (a / Fraction(float(columns.noise_stds[row]))) ** 2
    return u, total


def random_case(seed: int) -> tuple[ShiftPlan, Chain]:
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(1, 30))
    start = int(rng.integers(0, steps))
    chain = linear(
        np.repeat(rng.uniform(0.6, 1.3, steps), 1),
        rng.uniform(0, 1, steps) * (rng.random(steps) < 0.6),
        rng.uniform(0.3, 2, steps),
        diameter=float(rng.choice([math.inf, 1.5])),
        initial_distance=float(rng.choice([0.0, 0.4])),
    )
    blocks, left = [], steps - start
    while left:
        count = int(rng.integers(1, left + 1))
        blocks.append(ShiftBlock(count, float(rng.uniform(0, 1)), float(rng.uniform(0.7, 1.4))))
        left -= count
    return ShiftPlan.of(start, 0.0, blocks), chain


@pytest.mark.parametrize("seed", range(60))
def test_value_lies_just_above_the_exact_one(seed: int) -> None:
    plan, chain = random_case(seed)
    distance, total = evaluate(plan, chain)
    exact_distance, exact_total = exact_rational(plan, chain)
    assert distance >= exact_distance
    assert total >= exact_total
    # The scale of the distance, not its value: differences may cancel.
    assert distance - exact_distance <= 1e-11 * max(1, plan.shifts().max(), distance)
    assert total <= float(exact_total) * (1 + 1e-10)


@pytest.mark.parametrize("seed", range(60))
def test_sealed_plans_end_at_zero_exactly_and_cost_the_same(seed: int) -> None:
    plan, chain = random_case(seed)
    closed = sealed(plan, chain)
    assert exact_rational(closed, chain)[0] == 0
    assert evaluate(closed, chain).final_distance == 0
    assert evaluate(closed, chain).sum_of_squares == pytest.approx(
        evaluate(plan, chain).sum_of_squares, rel=1e-11
    )


@pytest.mark.parametrize(
    "modulus",
    [SquareRoot(1.01, 0.02), SquareRoot(0.9, 0.0), DescentAscent(0.1, 1.0, 5.0)],
    ids=repr,
)
def test_curved_moduli_are_rounded_up_too(modulus: SquareRoot) -> None:
    chain = Chain.homogeneous(50, modulus, 0.01, 0.7, initial_distance=1.0, diameter=4.0)
    plan = ShiftPlan.of(0, 1.0, [ShiftBlock(50, 0.05, 0.99)])
    kind, first, second = modulus.code()
    with mp.workdps(40):
        u, total = mp.mpf(1), mp.mpf(0)
        for j in range(50):
            grown = (
                mp.sqrt(first * u**2 + second)
                if kind == 1
                else mp.sqrt(u**2 + min(mp.mpf(first), second * u) ** 2)
            )
            a = mp.mpf(0.05) * mp.mpf(0.99) ** j
            u = max(0, grown + mp.mpf(0.01) - a)
            u = min(4, u) if j < 49 else u
            total += ((a + u if j == 49 else a) / mp.mpf(0.7)) ** 2
        value = evaluate(plan, chain)
        assert u <= value.final_distance <= u * (1 + mp.mpf("1e-12"))
        assert total <= value.sum_of_squares <= total * (1 + mp.mpf("1e-12"))


def test_long_geometric_blocks_are_summed_to_full_precision() -> None:
    chain = Chain.homogeneous(200_000, Linear(0.0), 0.0, 1.0)
    plan = ShiftPlan.of(0, 0.0, [ShiftBlock(200_000, 1e-3, 1.00001)])
    with mp.workdps(40):
        square = mp.mpf(1.00001) ** 2
        exact = mp.mpf(1e-3) ** 2 * (square**200_000 - 1) / (square - 1)
        value = evaluate(plan, chain).sum_of_squares
        assert exact <= value <= exact * (1 + mp.mpf("3e-13"))


def test_a_plan_cannot_claim_a_smaller_start() -> None:
    chain = Chain.homogeneous(10, Linear(1.0), 0.1, 1.0)
    honest = ShiftPlan.of(5, 0.5, [ShiftBlock(5, 0.2)])
    boastful = ShiftPlan.of(5, 0.0, [ShiftBlock(5, 0.2)])
    assert evaluate(boastful, chain).sum_of_squares >= 5 * 0.2**2
    assert evaluate(boastful, chain).final_distance <= 1e-14
    assert evaluate(boastful, chain).sum_of_squares == pytest.approx(
        evaluate(honest, chain).sum_of_squares, rel=1e-12
    )


def test_leftover_is_charged_to_the_last_shift() -> None:
    chain = Chain.homogeneous(2, Linear(1.0), 1.0, 0.5)
    distance, total = evaluate(ShiftPlan.of(0, 0.0, [ShiftBlock(2, 0.0)]), chain)
    assert distance == pytest.approx(2.0)
    assert total == pytest.approx(16.0)


def test_the_domain_caps_the_distance_but_not_what_the_last_shift_absorbs() -> None:
    """The noise acts before the projection: D + s must be hidden by a single last step."""
    chain = Chain.homogeneous(100, Linear(1.0), 1.0, 1.0, diameter=3.0)
    distance, total = evaluate(ShiftPlan.of(0, 0.0, [ShiftBlock(100, 0.0)]), chain)
    assert distance == pytest.approx(4.0, rel=1e-14)
    assert total == pytest.approx(16.0, rel=1e-12)


def test_tiny_costs_do_not_round_to_nothing() -> None:
    chain = Chain.homogeneous(3, Linear(1.0), 1e-200, 1.0)
    assert evaluate(ShiftPlan.of(0, 0.0, [ShiftBlock(3, 1e-200)]), chain).sum_of_squares > 0
    idle = Chain.homogeneous(3, Linear(1.0), 0.0, 1.0)
    assert evaluate(ShiftPlan.of(0, 0.0, [ShiftBlock(3, 0.0)]), idle) == (0.0, 0.0)


def test_a_vanishing_distance_still_jumps() -> None:
    """1e-320 * 1e-10 underflows, but sqrt(u^2 + h) must not be taken at zero afterwards."""
    chain = Chain.of(
        [Segment(1, Linear(1e-10), 0.0, 1.0), Segment(1, SquareRoot(1.0, 4.0), 0.0, 1.0)],
        initial_distance=1e-320,
    )
    plan = ShiftPlan.of(0, 1e-320, [ShiftBlock(2, 0.0)])
    assert evaluate(plan, chain).final_distance >= 2.0


def test_plans_must_end_with_the_chain() -> None:
    chain = Chain.homogeneous(5, Linear(1.0), 0.1, 1.0)
    with pytest.raises(InvalidInput, match="end with its chain, at step 5; this one starts at 1"):
        evaluate(ShiftPlan.of(1, 0.1, [ShiftBlock(3, 0.2)]), chain)


def test_encoded_moduli_decode() -> None:
    grid = np.linspace(0, 3, 7)
    for modulus in (Linear(0.4), SquareRoot(0.5, 0.1), DescentAscent(0.1, 1.0, 20.0)):
        np.testing.assert_allclose(modulus_of(*modulus.code())(grid), modulus(grid), rtol=1e-15)
