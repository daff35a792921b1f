from __future__ import annotations

import json

import numpy as np
import pytest

from dplateau.errors import InvalidInput
from dplateau.shifts import ShiftBlock, ShiftPlan

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


def test_equal_neighbours_join() -> None:
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
