"""Averages of compositions that share their pairs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from dplateau.curves import AveragedLossCurve, GaussianCurve, LossCurve, MixtureCurve
from dplateau.curves.pairs import PoissonPair
from dplateau.errors import InvalidInput

PAIRS = (PoissonPair(1.0, 0.1), PoissonPair(1.0, 0.4))
COUNTS = ((100, 0), (100, 2), (100, 8))
WEIGHTS = (0.9, 0.09, 0.01)


def row_mu(row: tuple[int, ...]) -> float:
    return math.sqrt(sum(n * pair.step**2 for n, pair in zip(row, PAIRS, strict=True)))


EXACT = MixtureCurve(WEIGHTS, tuple(GaussianCurve(row_mu(row)) for row in COUNTS))
CURVE = AveragedLossCurve(PAIRS, COUNTS, WEIGHTS)


@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-5, 1e-9, 1e-30])
def test_epsilon_is_just_above_the_exact_average(delta: float) -> None:
    exact = EXACT.epsilon(delta)
    assert exact * (1 - 1e-12) <= CURVE.epsilon(delta) <= exact * 1.005


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 5.0, 12.0])
def test_delta_is_just_above_the_exact_average(epsilon: float) -> None:
    exact = EXACT.delta(epsilon)
    assert exact * (1 - 1e-12) <= CURVE.delta(epsilon) <= exact * 1.1


def test_curves_fall_and_invert() -> None:
    sampled = AveragedLossCurve(
        (PoissonPair(0.05, 1.0), PoissonPair(0.05, 1.0, 0.3)), ((50, 0), (45, 5)), (0.5, 0.5)
    )
    for curve in (CURVE, sampled):
        found = [curve.delta(eps) for eps in (0.0, 0.3, 1.0, 3.0, 9.0, 300.0)]
        assert all(0 <= value <= 1 for value in found)
        assert all(b <= a for a, b in itertools.pairwise(found))
        for delta in (1e-2, 1e-6):
            assert curve.delta(curve.epsilon(delta)) <= delta * 1.05


def test_one_row_is_a_plain_composition() -> None:
    alone = AveragedLossCurve((PoissonPair(0.02, 1.0),), ((500,),), (1.0,))
    plain = LossCurve(((PoissonPair(0.02, 1.0), 500),))
    assert alone.epsilon(1e-5) == pytest.approx(plain.epsilon(1e-5), rel=3e-3)


def test_an_average_is_below_its_worst_row() -> None:
    worst = AveragedLossCurve(PAIRS, COUNTS, (0.0, 0.0, 1.0)).epsilon(1e-5)
    best = AveragedLossCurve(PAIRS, COUNTS, (1.0, 0.0, 0.0)).epsilon(1e-5)
    assert best < CURVE.epsilon(1e-5) < worst


def test_outright_failures_are_charged() -> None:
    failing = AveragedLossCurve(PAIRS, COUNTS, WEIGHTS, extra_delta=1e-6)
    assert failing.epsilon(1e-6) == math.inf
    assert failing.epsilon(1e-5) > CURVE.epsilon(1e-5)
    assert failing.delta(50.0) >= 1e-6
    assert failing.delta(50.0) <= 1.01e-6


def test_a_coarse_resolution_is_looser() -> None:
    coarse = AveragedLossCurve(PAIRS, COUNTS, WEIGHTS, resolution=0.03)
    exact = EXACT.epsilon(1e-5)
    assert exact <= coarse.epsilon(1e-5) <= exact * 1.1


def test_deltas_at_many_epsilons() -> None:
    epsilons = np.array([0.5, 2.0])
    found = CURVE.deltas(epsilons, 1e-4)
    exact = np.array([EXACT.delta(eps) for eps in epsilons.tolist()])
    assert np.all((exact * (1 - 1e-12) <= found) & (found <= exact * 1.02))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": (1.0,)}, "one weight per row and one count per pair"),
        ({"counts": ((1, 2, 3),) * 3}, "one weight per row and one count per pair"),
        ({"counts": ((1, 2), (1,), (1, 2))}, "one weight per row and one count per pair"),
        ({"weights": (1.0, -0.1, 0.1)}, "at least 0"),
        ({"weights": (1.0, math.nan, 0.1)}, "at least 0"),
        ({"extra_delta": -1e-9}, "at least 0"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        AveragedLossCurve(**{"pairs": PAIRS, "counts": COUNTS, "weights": WEIGHTS, **changes})
