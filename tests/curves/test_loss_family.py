"""Families of compositions agree with compositions made one by one, and never undercut them."""

from __future__ import annotations

import numpy as np
import pytest

from dplateau.curves.composed import ORDERS, LossFamily, compose_family
from dplateau.curves.pairs import DominatingPair, PoissonPair
from dplateau.curves.privacy_loss import compose_pairs
from dplateau.numerics.normal import gaussian_delta

Q, R = 0.02, 0.9
PAIRS: list[DominatingPair] = [PoissonPair(Q, R), PoissonPair(Q, R, 0.1), PoissonPair(Q, R, 0.3)]
COUNTS = np.array([[300.0, 0, 0], [290, 10, 0], [280, 15, 5]])
DELTA = 1e-5


@pytest.fixture(scope="module")
def family() -> LossFamily:
    return compose_family(PAIRS, COUNTS, target_delta=DELTA)


def alone(row: int, order: str, target: float = DELTA, rtol: float = 1e-4) -> object:
    parts = [(pair, int(n)) for pair, n in zip(PAIRS, COUNTS[row], strict=True)]
    return compose_pairs(parts, target_delta=target, rtol=rtol, orders=(order,))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("row", [0, 1, 2])
def test_rows_match_compositions_made_alone(family: LossFamily, row: int, order: str) -> None:
    fine = alone(row, order).epsilon(DELTA)
    found = family.rows[order][row].epsilon(DELTA)
    assert found == pytest.approx(fine, rel=5e-3)
    # The fine composition is itself within 1e-4 above the truth.
    assert found >= fine * (1 - 2e-4)


def test_gaussian_rows_are_above_the_closed_form() -> None:
    pairs = [PoissonPair(1.0, 0.1), PoissonPair(1.0, 0.4)]
    counts = np.array([[100.0, 0.0], [100, 1], [100, 6]])
    family = compose_family(pairs, counts, target_delta=DELTA)
    for row, (few, many) in enumerate(counts):
        mu = float(np.sqrt(few * 0.01 + many * 0.16))
        for epsilon in (2.0, 4.0, 6.0):
            exact = gaussian_delta(epsilon, mu)
            for rows in family.rows.values():
                found = float(rows[row].delta(np.array(epsilon)))
                # Far below the target the grid costs more, and tails of a millionth of it count.
                assert exact <= found <= exact * 1.1 + 1e-4 * DELTA


def test_weights_average_rows(family: LossFamily) -> None:
    weights = np.array([0.7, 0.2, 0.1])
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        sums = []
        for order in ORDERS:
            deltas = [float(loss.delta(np.array(epsilon))) for loss in family.rows[order]]
            sums.append(weights @ np.maximum.accumulate(deltas))
        assert family.delta(epsilon, weights) == pytest.approx(max(sums), rel=1e-12)


def test_only_the_last_row_matters_when_it_has_all_the_weight(family: LossFamily) -> None:
    epsilons = np.linspace(0.0, 3.0, 7)
    rows = np.eye(3)
    table = family.deltas(epsilons, rows)
    assert table.shape == (3, 7)
    assert np.all(np.diff(table, axis=0) >= 0), "a later row covers the earlier ones"
    assert np.all(np.diff(table, axis=1) <= 0), "delta falls in epsilon"


def test_a_coarse_grid_is_looser_never_tighter(family: LossFamily) -> None:
    coarse = compose_family(PAIRS, COUNTS, target_delta=DELTA, rtol=0.03)
    weights = np.array([0.5, 0.3, 0.2])
    for epsilon in (0.5, 1.0, 1.5):
        fine = family.delta(epsilon, weights)
        assert fine * (1 - 1e-3) <= coarse.delta(epsilon, weights) <= fine * 2
