"""Models that cannot work, and claims that protect nobody, are not made without a word."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from dplateau import (
    LossGeometry,
    NoisyGD,
    PoorPlanWarning,
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateRidge,
    plan,
)
from dplateau.ground.checks import weak_claim

QUICK: dict[str, Any] = {"compute_budget": 20, "algorithm": "momentum"}


def doubts(model: Any, X: Any, y: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert {warning.category for warning in caught} <= {PoorPlanWarning}
    assert {warning.filename for warning in caught} <= {__file__}
    return [str(warning.message) for warning in caught]


def test_targets_of_which_nothing_is_known() -> None:
    X, y = load_diabetes(return_X_y=True)
    for kind in (PrivateRidge, PrivateHuberRegressor):
        said = doubts(kind(data_norm=0.2, **QUICK), X, y)
        assert len(said) == 1
        assert "declare target_bound=(low, high)" in said[0]
    declared = PrivateRidge(data_norm=0.2, target_bound=(25, 346), **QUICK)
    assert doubts(declared, X, y) == []


def test_rows_of_which_nothing_is_known() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    said = doubts(PrivateLogisticRegression(classes=[0, 1], **QUICK), X, y)
    assert len(said) == 1
    assert "Declare feature_bounds=(low, high)" in said[0]
    limits = np.full(30, 100.0)
    for declared in ({"data_norm": 1.0}, {"feature_bounds": (0, limits)}):
        model = PrivateLogisticRegression(classes=[0, 1], **declared, **QUICK)
        assert doubts(model, X, y) == []


def test_two_records_teach_nothing() -> None:
    X, y = np.array([[0.1], [0.2]]), np.array([0, 1])
    model = PrivateLogisticRegression(classes=[0, 1], data_norm=1.0, **QUICK)
    said = doubts(model, X, y)
    assert len(said) == 1
    assert "with n = 2 records at epsilon = 1" in said[0]
    # What is said follows from what is public: two hundred rows say the same as two.
    model.set_params(n_public=200, epsilon=0.01)
    many = doubts(model, np.repeat(X, 100, axis=0), np.repeat(y, 100))
    assert many == doubts(model, X, y) != []


def test_an_epsilon_or_delta_that_protects_nobody() -> None:
    X, y = np.linspace(-1, 1, 400)[:, None], np.linspace(-1, 1, 400)
    model = PrivateRidge(epsilon=1e9, data_norm=1.0, target_bound=1.0, **QUICK)
    assert ["is above 20: what an attacker" in text for text in doubts(model, X, y)] == [True]
    model.set_params(epsilon=2.0, delta=0.003)
    assert ["delta = 0.003 is above 1/n = 0.0025" in text for text in doubts(model, X, y)] == [True]
    assert model.certificate_.claimed_delta == 0.003
    assert model.certificate_.verify().ok


@pytest.mark.parametrize("n", [3, 10, 1000, 464_810, 10**7])
def test_the_advice_about_delta_can_be_followed(n: int) -> None:
    (said,) = weak_claim(1.0, 1.01 / n, n)
    advice = float(said.split("; use ")[1].split()[0])
    assert 0.1 / n <= advice <= 1.0 / n
    assert weak_claim(1.0, advice, n) == ()


def test_plans_know_their_forecast() -> None:
    assert plan(30_000, 100).doubts == ()
    assert "will hardly work" in plan(50, 100, epsilon=0.1).doubts[0]
    loss = LossGeometry(lipschitz=2.0, convex=True, smoothness=2.0)
    run = NoisyGD(n=50, steps=5, learning_rate=0.1, noise_std=1.0, loss=loss, release="last")
    assert "will hardly work" in plan(50, 3, epsilon=0.1, algorithm=run).doubts[0]
