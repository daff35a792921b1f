"""Ten million steps: nothing overflows, and the value is that of the closed form or of a law."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dplateau.shifts import Chain, Linear, ShiftSolution, SquareRoot, solve
from dplateau.shifts import closed_forms as forms

STEPS = 10**7


def timed(name: str, chain: Chain) -> ShiftSolution:
    begin = time.perf_counter()
    solution = solve(chain)
    print(f"{name}: {time.perf_counter() - begin:.2f} s, {solution.plan.counts.size} blocks")
    return solution


@pytest.mark.parametrize("contraction", [0.1, 0.5, 0.999, 1 - 1e-7, 1.0])
def test_homogeneous(contraction: float) -> None:
    solution = timed("homogeneous", Chain.homogeneous(STEPS, Linear(contraction), 1.0, 1.0))
    exact = forms.full_batch_factor(contraction, STEPS)
    assert exact * (1 - 1e-15) <= solution.sum_of_squares <= exact * (1 + 1e-8)
    assert solution.plan.counts.size <= 2


def test_homogeneous_expanding_is_composition() -> None:
    solution = timed("expanding", Chain.homogeneous(STEPS, Linear(1.5), 1.0, 1.0))
    assert solution.sum_of_squares == pytest.approx(STEPS, rel=1e-12)


@pytest.mark.parametrize("contraction", [0.9999, 1.0, 1.001])
def test_homogeneous_bounded(contraction: float) -> None:
    chain = Chain.homogeneous(STEPS, Linear(contraction), 1e-3, 1.0, diameter=1.0)
    short = Chain.homogeneous(20_000, Linear(contraction), 1e-3, 1.0, diameter=1.0)
    solution = timed("bounded", chain)
    assert solution.sum_of_squares == pytest.approx(solve(short).sum_of_squares, rel=1e-12)


def test_cyclic() -> None:
    chain = Chain.cyclic(STEPS // 40, 40, 39, Linear(1 - 1e-6), 1.0, 1.0)
    solution = timed("cyclic", chain)
    exact = forms.cyclic_worst_factor(1 - 1e-6, 40, STEPS // 40)
    assert exact * (1 - 1e-15) <= solution.sum_of_squares <= exact * (1 + 1e-8)
    assert solution.plan.counts.size < 8


def test_schedule_whose_products_leave_the_range_of_floats() -> None:
    rng = np.random.default_rng(0)
    contractions = rng.uniform(0.1, 1.5, STEPS)
    sensitivities = rng.uniform(0.0, 1.0, STEPS)
    whole = timed("schedule", Chain.from_arrays(contractions, sensitivities, 1.0))
    # The last thousand steps decide: everything before has been forgotten.
    tail = solve(Chain.from_arrays(contractions[-1000:], sensitivities[-1000:], 1.0))
    assert whole.sum_of_squares == pytest.approx(tail.sum_of_squares, rel=1e-11)


def test_single_contact_forgotten_or_remembered() -> None:
    rng = np.random.default_rng(1)
    contact = np.zeros(10**6)
    contact[0] = 1.0
    forgotten = solve(Chain.from_arrays(rng.uniform(0.1, 1.5, 10**6), contact, 1.0))
    assert 0 < forgotten.sum_of_squares < 1e-280
    expanding = rng.uniform(0.9, 1.5, 10**6)
    remembered = solve(Chain.from_arrays(expanding, contact, 1.0))
    head = solve(Chain.from_arrays(expanding[:400], contact[:400], 1.0))
    assert remembered.sum_of_squares == pytest.approx(head.sum_of_squares, rel=1e-10)


def test_square_root() -> None:
    chain = Chain.homogeneous(
        STEPS, SquareRoot(1.0, 1e-4), 0.0, 1.0, diameter=1.0, initial_distance=1.0
    )
    harmonic = float(np.sum(1 / np.arange(1, 10_001)))
    solution = timed("square root", chain)
    assert solution.sum_of_squares == pytest.approx(1e-4 * (1 + harmonic), rel=1e-9)
