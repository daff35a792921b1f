"""Corollaries 3.7 to 3.9: closed forms against the solver, the theorem and each other."""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from dplateau.errors import InvalidInput
from dplateau.shifts import (
    Chain,
    Linear,
    Modulus,
    SquareRoot,
    corollary_3_7,
    corollary_3_8,
    corollary_3_9,
    solve,
)
from dplateau.shifts.modulus_forms import corollary_3_9_logarithm
from dplateau.shifts.square_root import theorem_3_4


def solved(modulus: Modulus, diameter: float, noise: float, steps: int) -> float:
    chain = Chain.homogeneous(
        steps, modulus, 0.0, noise, diameter=diameter, initial_distance=diameter
    )
    return solve(chain).sum_of_squares


@pytest.mark.parametrize("steps", [1, 2, 7, 60])
@pytest.mark.parametrize("jump", [1e-6, 1e-3, 0.2])
def test_convex_losses(steps: int, jump: float) -> None:
    value = corollary_3_7(1.3, jump, 0.7, steps)
    harmonic = mp.harmonic(steps)
    assert value == pytest.approx(float((1.3**2 / steps + jump * harmonic) / 0.49), rel=1e-12)
    assert value == pytest.approx(theorem_3_4(1.3, [1.0] * steps, jump, 0.49), rel=1e-12)
    assert harmonic <= 1 + math.log(steps)
    # The solver may use fewer of the last steps, and does when the jump is large.
    fewer = min(corollary_3_7(1.3, jump, 0.7, count) for count in range(1, steps + 1))
    assert solved(SquareRoot(1.0, jump), 1.3, 0.7, steps) == pytest.approx(fewer, rel=1e-9)


@pytest.mark.parametrize("steps", [1, 5, 400])
@pytest.mark.parametrize("factor", [0.3, 0.99, 1.0, 1.02, 3.0])
def test_no_jump(steps: int, factor: float) -> None:
    value = corollary_3_8(0.8, factor, 0.5, steps)
    with mp.workdps(40):
        c = mp.mpf(factor)
        exact = mp.mpf("0.64") / mp.fsum(c ** (-j) for j in range(1, steps + 1)) / mp.mpf("0.25")
    assert value == pytest.approx(float(exact), rel=1e-12)
    assert solved(Linear(math.sqrt(factor)), 0.8, 0.5, steps) == pytest.approx(value, rel=1e-9)
    assert solved(SquareRoot(factor, 0.0), 0.8, 0.5, steps) == pytest.approx(value, rel=1e-9)


def test_expanding_steps_have_a_plateau_and_contracting_ones_forget() -> None:
    assert corollary_3_8(2.0, 1.5, 0.5, 10**6) == pytest.approx(4 * 0.5 / 0.25, rel=1e-12)
    assert corollary_3_8(2.0, 0.5, 0.5, 10**6) == 0.0


@pytest.mark.parametrize("steps", [1, 3, 40])
@pytest.mark.parametrize("factor", [0.6, 0.97, 1.0, 1.1])
@pytest.mark.parametrize("jump", [1e-4, 0.05])
def test_dissipative_losses(steps: int, factor: float, jump: float) -> None:
    value = corollary_3_9(1.1, factor, jump, 0.6, steps)
    assert value == pytest.approx(theorem_3_4(1.1, [factor] * steps, jump, 0.36), rel=1e-12)
    assert value <= corollary_3_9_logarithm(1.1, factor, jump, 0.6, steps) * (1 + 1e-12)
    fewer = min(corollary_3_9(1.1, factor, jump, 0.6, count) for count in range(1, steps + 1))
    found = solved(SquareRoot(factor, jump), 1.1, 0.6, steps)
    # For c < 1 the forward distance falls below D, so starting later costs even less.
    assert found <= fewer * (1 + 1e-9)
    if factor >= 1:
        assert found == pytest.approx(fewer, rel=1e-9)


def test_they_agree_where_they_meet() -> None:
    assert corollary_3_9(1.0, 1.0, 0.2, 1.0, 9) == pytest.approx(
        corollary_3_7(1.0, 0.2, 1.0, 9), rel=1e-12
    )
    assert corollary_3_9(1.0, 0.9, 0.0, 1.0, 9) == corollary_3_8(1.0, 0.9, 1.0, 9)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="steps must be a finite number > 0; got 0"):
        corollary_3_7(1.0, 0.1, 1.0, 0)
    with pytest.raises(InvalidInput, match="squared_factor must be a finite number > 0"):
        corollary_3_8(1.0, -0.5, 1.0, 4)
    with pytest.raises(InvalidInput, match="noise_std must be"):
        corollary_3_9(1.0, 0.5, 0.1, 0.0, 4)
