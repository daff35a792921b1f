"""Values that change from step to step, stored as runs of equal values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau import InvalidInput, NoisyGD, Schedule
from dplateau.algorithms.schedule import over, per_step, times, values_over

lists = st.lists(st.sampled_from([0.1, 0.5, 1.0, 3.0]), min_size=1, max_size=40)


@given(lists)
def test_run_lengths_keep_every_value(values: list[float]) -> None:
    schedule = Schedule.of(values)
    assert schedule.values().tolist() == values
    assert len(schedule) == len(values)
    assert all(a[0] != b[0] for a, b in zip(schedule.blocks, schedule.blocks[1:], strict=False))
    assert Schedule.of(np.array(values)) == schedule


@given(lists)
def test_equal_schedules_are_equal_however_they_were_cut(values: list[float]) -> None:
    one_by_one = Schedule(tuple((value, 1) for value in values))
    assert one_by_one == Schedule.of(values)
    assert hash(one_by_one) == hash(Schedule.of(values))


@given(lists, st.floats(1e-3, 1e3))
def test_arithmetic_is_that_of_the_values(values: list[float], factor: float) -> None:
    schedule, other = Schedule.of(values), Schedule.of(values[::-1])
    expected = np.array(values)
    np.testing.assert_allclose(schedule.scaled(factor).values(), expected * factor, rtol=1e-15)
    for product in (times(schedule, factor), times(factor, schedule)):
        np.testing.assert_allclose(values_over(product, len(values)), expected * factor)
    np.testing.assert_allclose(
        values_over(times(schedule, other), len(values)), expected * expected[::-1]
    )
    np.testing.assert_allclose(
        values_over(over(schedule, other), len(values)), expected / expected[::-1], rtol=1e-14
    )
    np.testing.assert_allclose(values_over(over(factor, schedule), len(values)), factor / expected)


def test_long_constant_schedules_stay_small() -> None:
    schedule = Schedule.of(np.full(1_000_000, 0.5))
    assert schedule.blocks == ((0.5, 1_000_000),)
    assert schedule.to_json() == [[0.5, 1_000_000]]


def test_constants_stay_numbers() -> None:
    assert times(2.0, 3.0) == 6.0
    assert over(3.0, 2.0) == 1.5
    assert values_over(2.0, 3).tolist() == [2.0, 2.0, 2.0]
    assert per_step("learning_rate", 2) == 2.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "non-empty list of numbers, one per step"),
        ([[1.0, 2.0]], "must be a real number"),
        (np.ones((2, 2)), "one per step"),
        ([1.0, 0.0], "finite and above 0; got 0"),
        ([1.0, -2.0], "finite and above 0; got -2"),
        ([1.0, math.inf], "finite and above 0; got inf"),
        ([1.0, math.nan], "got NaN"),
        (np.array([1.0, math.nan]), "finite and above 0; got nan"),
        ([True, 1.0], "must be a real number; got True"),
        (["1.0"], "must be a real number; got '1.0'"),
        ([None], "must be a real number; got None"),
        (np.array([True, False]), "holds real numbers; got an array of bool"),
        (np.array(["1.0"]), "holds real numbers"),
    ],
)
def test_refusals(values: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Schedule.of(values)
    with pytest.raises(InvalidInput, match=f"^noise_std: .*{message}"):
        NoisyGD(n=10, steps=2, noise_std=values, release="last")


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ((), "at least one value"),
        (((0.0, 1),), "schedule's value must be finite and above 0"),
        (((1.0, 0),), "block length must be at least 1"),
        (((1.0, 1.5),), "block length must be a whole number"),
    ],
)
def test_refused_blocks(blocks: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Schedule(blocks)


@pytest.mark.parametrize("name", ["learning_rate", "noise_multiplier", "noise_std", "iterate_std"])
def test_one_value_per_step(name: str) -> None:
    options: dict[str, Any] = {"noise_std": 1.0, "learning_rate": 1.0}
    if name != "learning_rate":
        options.pop("noise_std")
    with pytest.raises(InvalidInput, match=f"{name} has 3 values but the run has 4 steps"):
        NoisyGD(n=10, steps=4, release="last", **{**options, name: [1.0, 2.0, 3.0]})
    run = NoisyGD(n=10, steps=3, release="last", **{**options, name: [1.0, 1.0, 3.0]})
    assert run.parameters()[name] == Schedule(((1.0, 2), (3.0, 1)))
