"""Tables of delta(epsilon): what they prove, and how they compose."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplateau import InvalidInput, NotApplicable
from dplateau.curves import (
    AdvancedCompositionCurve,
    BasicCompositionCurve,
    GaussianCurve,
    GroupCurve,
    LaplaceCurve,
    LossCurve,
    MixtureCurve,
    PrivacyCurve,
    TabulatedCurve,
    WorstCurve,
    tabulate,
)
from dplateau.curves.pairs import PoissonPair
from dplateau.curves.privacy_loss import discretize
from dplateau.curves.tabulated import TablePair

MIXTURE = MixtureCurve((0.9, 0.1), (GaussianCurve(0.3), GaussianCurve(1.0)), extra_delta=1e-8)


def composed(curve: PrivacyCurve, count: int, delta: float) -> float:
    return LossCurve(((tabulate(curve, delta / count), count),)).epsilon(delta)


@settings(max_examples=10)
@given(
    st.floats(0.05, 3.0), st.sampled_from([1, 2, 7, 40]), st.sampled_from([1e-3, 1e-5, 1e-8, 1e-12])
)
def test_tables_of_gaussians_compose_as_if_exactly(mu: float, count: int, delta: float) -> None:
    exact = GaussianCurve(mu * math.sqrt(count)).epsilon(delta)
    assert exact <= composed(GaussianCurve(mu), count, delta) <= exact * 1.002 + 1e-6


def test_tables_join_pairs_of_both_orders() -> None:
    pair = PoissonPair(sampling_rate=0.01, step=1.0)
    exact = LossCurve(((pair, 300), (PoissonPair(1.0, 0.5), 1))).epsilon(1e-5)
    table = tabulate(GaussianCurve(0.5), 5e-6)
    found = LossCurve(((pair, 300), (table, 1))).epsilon(1e-5)
    assert exact * (1 - 1e-3) <= found <= exact * 1.003


def test_mixtures_compose_below_the_basic_theorem_and_above_their_parts() -> None:
    found = composed(MIXTURE, 2, 1e-5)
    assert MIXTURE.epsilon(1e-5) < found < BasicCompositionCurve((MIXTURE, MIXTURE)).epsilon(1e-5)
    # The mixture is no better than its better part throughout, nor worse than its worse part.
    assert found >= GaussianCurve(0.3 * math.sqrt(2)).epsilon(1e-5)
    assert found <= GaussianCurve(math.sqrt(2)).epsilon(1e-5)


@pytest.mark.parametrize(
    "curve",
    [
        GaussianCurve(0.7),
        LaplaceCurve(1.3),
        MIXTURE,
        GroupCurve(MIXTURE, 2),
        WorstCurve((GaussianCurve(0.4), LaplaceCurve(1.0))),
    ],
    ids=lambda curve: type(curve).__name__,
)
def test_a_table_is_never_below_its_curve(curve: PrivacyCurve) -> None:
    table = TabulatedCurve(tabulate(curve, 1e-5))
    grid = np.linspace(0.0, 12.0, 400)
    # A hull may undercut a curve that is not convex in e^epsilon, but never its own rows' proof:
    # compare with the convex hull of a much finer reading.
    fine = TablePair.hull(grid, curve.deltas(grid, 1e-5))
    assert np.all(table.deltas(grid, 1e-5) >= fine.delta(grid, "remove") * (1 - 1e-9))
    assert table.epsilon(1e-4) == pytest.approx(curve.epsilon(1e-4), rel=2e-2)
    assert table.delta(table.epsilon(1e-4)) <= 1e-4 * (1 + 1e-9)


def test_deltas_without_a_formula_are_read_off_a_list() -> None:
    curve = AdvancedCompositionCurve(GaussianCurve(0.1), 5)
    for epsilon in (1.0, 2.0):
        found = float(curve.deltas(np.array([epsilon]), 1e-5)[0])
        assert curve.delta(epsilon) * (1 - 1e-6) <= found <= 1.06 * curve.delta(epsilon)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-5), (0.1, 0.0), (8.0, 1e-9), (0.0, 0.25), (40.0, 0.5)]
)
def test_one_row_is_randomized_response(epsilon: float, delta: float) -> None:
    pair = TablePair.hull(np.array([epsilon]), np.array([delta]))
    # The hardest (epsilon, delta)-private pair (Kairouz, Oh, Viswanath 2015).
    grown = math.exp(epsilon)
    assert pair.deltas[0] == pytest.approx(1 - (1 - delta) * 2 / (1 + grown), rel=1e-12)
    at = np.array([-60.0, -epsilon, 0.0, epsilon / 2, epsilon, epsilon + 1])
    line = np.maximum(0.0, (1 - delta) * (grown - np.exp(at)) / (1 + grown)) + delta
    mirrored = 1 - np.exp(at) * (1 - delta)
    truth = np.where(at >= -epsilon, line, np.maximum(line, mirrored))
    assert pair.delta(at, "remove") == pytest.approx(truth, rel=1e-9, abs=1e-12)


def test_composed_randomized_response_is_the_optimal_composition() -> None:
    """Kairouz, Oh, Viswanath 2015, Theorem 3.3, for k equal parts at their kinks."""
    epsilon, delta, count = 0.1, 1e-7, 20
    curve = LossCurve(((TablePair.hull(np.array([epsilon]), np.array([delta])), count),))
    for i in range(8):
        kink = (count - 2 * i) * epsilon
        total = (
            sum(
                math.comb(count, j)
                * (math.exp((count - j) * epsilon) - math.exp((count - 2 * i + j) * epsilon))
                for j in range(i)
            )
            / (1 + math.exp(epsilon)) ** count
        )
        exact = 1 - (1 - delta) ** count * (1 - total)
        assert exact * (1 - 1e-9) <= curve.delta(kink) <= exact * 1.01


def test_a_law_gives_back_the_curve_at_its_corners() -> None:
    table = tabulate(GaussianCurve(0.7), 1e-6)
    law = discretize(table, "remove", 1e-3, 1e-12)
    losses = law.step * (law.lowest + np.arange(law.masses.size))
    for x in table.epsilons[::20]:
        delta = float(np.sum(law.masses * np.maximum(0.0, -np.expm1(x - losses))))
        exact = GaussianCurve(0.7).delta(x)
        assert exact * (1 - 1e-12) <= delta + law.infinity_mass <= exact * 1.001 + 1e-9
    assert law.masses.sum() + law.infinity_mass == pytest.approx(1.0, abs=1e-9)


def test_rows_in_any_order_and_rows_that_say_nothing() -> None:
    rows = np.array([2.0, 0.5, 1.0, 1.0]), np.array([1e-3, 0.2, 1e-2, 0.9])
    pair = TablePair.hull(*rows)
    assert pair == TablePair.hull(np.array([0.5, 1.0, 2.0]), np.array([0.2, 1e-2, 1e-3]))
    later = TablePair.hull(np.append(rows[0], 3.0), np.append(rows[1], 0.5))
    assert later == pair


def test_refused_tables() -> None:
    with pytest.raises(InvalidInput, match="epsilons rise from 0"):
        TablePair((0.0, 0.0), (0.1, 0.05))
    with pytest.raises(InvalidInput, match=r"deltas fall and lie in \[0, 1\]"):
        TablePair((0.0, 1.0), (0.1, 0.2))
    with pytest.raises(NotApplicable, match=r"its delta is 0.001 at epsilon 700"):
        tabulate(MixtureCurve((1.0,), (GaussianCurve(1.0),), extra_delta=1e-3), 1e-4)
