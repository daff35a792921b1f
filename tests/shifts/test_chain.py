from __future__ import annotations

import math

import numpy as np
import pytest

from dplateau.errors import InvalidInput
from dplateau.shifts import (
    Chain,
    DescentAscent,
    Linear,
    Segment,
    SquareRoot,
    forward_distance,
    forward_distances,
)
from shifts.chains import cyclic, linear

MODULI = [Linear(0.9), Linear(1.0), Linear(1.2), SquareRoot(0.8, 0.3), DescentAscent(0.1, 2.0, 7.0)]


@pytest.mark.parametrize("modulus", MODULI, ids=repr)
def test_moduli_vanish_at_zero_rise_and_vectorize(modulus: Linear) -> None:
    grid = np.linspace(0.0, 12.0, 300)
    values = modulus(grid)
    assert values[0] == modulus(0.0) == 0.0
    assert np.all(np.diff(values) >= 0)
    np.testing.assert_allclose(values, [modulus(float(u)) for u in grid], rtol=1e-15)


def test_descent_ascent_lies_below_both_of_its_majorants() -> None:
    modulus, grid = DescentAscent(0.1, 2.0, 7.0), np.linspace(0.0, 12.0, 300)
    tolerance = 1 + 1e-15
    assert np.all(modulus(grid) <= SquareRoot(1.0, 0.4**2)(grid) * tolerance)
    assert np.all(modulus(grid) <= Linear(math.sqrt(1 + 0.7**2))(grid) * tolerance)


def test_equal_steps_are_joined() -> None:
    chain = linear(0.9, [0.0, 0.0, 1.0, 1.0, 1.0], 2.0)
    assert chain.columns.counts.tolist() == [2, 3]
    assert chain.steps == 5
    assert linear(np.full(1000, 0.9), 0.1, 1.0).uniform_linear_step() == (0.9, 0.1, 1.0)


def test_a_repeated_uniform_segment_is_one_row() -> None:
    chain = Chain.of([Segment(3, Linear(0.9), 0.1, 1.0)], repeats=5)
    assert (chain.steps, chain.repeats, chain.columns.counts.tolist()) == (15, 1, [15])


def test_cyclic_chain_places_the_contact() -> None:
    for position in range(4):
        chain = cyclic(3, 4, position, Linear(0.9), 0.5, 1.0)
        sensitivities = chain.columns.sensitivities[chain.rows_from(0)]
        expected = [0.5 if t % 4 == position else 0.0 for t in range(12)]
        assert sensitivities.tolist() == expected


def test_locate_finds_every_step() -> None:
    chain = Chain.of(
        [Segment(2, Linear(0.9), 0.0, 1.0), Segment(3, Linear(0.8), 0.0, 1.0)], repeats=3
    )
    found = [chain.locate(t) for t in range(chain.steps + 1)]
    expected = [(2 * turn + row, place) for turn in range(3) for row, place in
                ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2))]  # fmt: skip
    assert found == [*expected, (6, 0)]


@pytest.mark.parametrize("diameter", [math.inf, 2.0, 0.3])
@pytest.mark.parametrize("start", [0.0, 0.2])
@pytest.mark.parametrize("modulus", [*MODULI, Linear(0.0)], ids=repr)
def test_forward_distances_follow_the_recursion(
    modulus: Linear, start: float, diameter: float
) -> None:
    chain = Chain.homogeneous(40, modulus, 0.05, 1.0, diameter=diameter, initial_distance=start)
    expected = [start]
    for _ in range(40):
        expected.append(min(diameter, modulus(expected[-1]) + 0.05))
    distances = forward_distances(chain)
    np.testing.assert_allclose(distances, expected, rtol=1e-12)
    singly = [forward_distance(chain, t) for t in range(41)]
    np.testing.assert_allclose(singly, expected, rtol=3e-12)


def test_forward_distance_of_mixed_rows_takes_long_runs_at_once() -> None:
    chain = Chain.of(
        [Segment(50, Linear(0.9), 0.1, 1.0), Segment(2, SquareRoot(1.0, 0.01), 0.0, 1.0)],
        repeats=4,
        diameter=0.8,
    )
    distances = forward_distances(chain)
    for step in (1, 49, 50, 51, 52, 75, 208):
        assert forward_distance(chain, step) == pytest.approx(distances[step], rel=1e-12)


def test_forward_distance_never_overflows() -> None:
    assert forward_distance(Chain.homogeneous(10**7, Linear(1.5), 1.0, 1.0), 10**7) == math.inf
    bounded = Chain.homogeneous(10**7, Linear(1.5), 1.0, 1.0, diameter=3.0)
    assert forward_distance(bounded, 10**7) == 3.0


def test_impossible_chains_are_refused() -> None:
    with pytest.raises(InvalidInput, match="noise_stds > 0; got"):
        Chain.homogeneous(3, Linear(0.9), 0.1, 0.0)
    with pytest.raises(InvalidInput, match="sensitivities >= 0; got"):
        linear(0.9, [0.1, -0.1], 1.0)
    with pytest.raises(InvalidInput, match="diameter > 0; got 0"):
        Chain.homogeneous(3, Linear(0.9), 0.1, 1.0, diameter=0.0)
    with pytest.raises(InvalidInput, match="initial distance within its diameter"):
        Chain.homogeneous(3, Linear(0.9), 0.1, 1.0, diameter=1.0, initial_distance=2.0)
    with pytest.raises(InvalidInput, match="at least one step"):
        Chain.of([])
    with pytest.raises(InvalidInput, match="whole count >= 1; got count=0"):
        Segment(0, Linear(0.9), 0.1, 1.0)
    with pytest.raises(InvalidInput, match="whole repeats >= 1"):
        Chain.of([Segment(1, Linear(0.9), 0.1, 1.0), Segment(1, Linear(0.8), 0.1, 1.0)], repeats=0)
    with pytest.raises(InvalidInput, match=r"step must lie in 0\.\.3; got 4"):
        forward_distance(Chain.homogeneous(3, Linear(0.9), 0.1, 1.0), 4)


def test_impossible_moduli_are_refused() -> None:
    with pytest.raises(InvalidInput, match="Linear needs a finite c >= 0; got c=-1"):
        Linear(-1.0)
    with pytest.raises(InvalidInput, match="SquareRoot needs a finite c > 0; got c=0"):
        SquareRoot(0.0, 1.0)
    with pytest.raises(InvalidInput, match="finite h >= 0; got h=inf"):
        SquareRoot(1.0, math.inf)
    with pytest.raises(InvalidInput, match="finite smoothness > 0"):
        DescentAscent(0.1, 1.0, 0.0)
