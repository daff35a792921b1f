"""The models learn: close to their public counterparts where noise is small, worse with more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from dplateau import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning"),
]

rng = np.random.default_rng(4)
N = 4000
X = rng.normal(size=(N, 3)) / 2
TRUTH = np.array([2.0, -1.0, 0.5])
NOISE = rng.logistic(size=N)
LABELS = (X @ TRUTH * 3 + 1 + NOISE > 0).astype(int)
THREE = np.argmax(X @ rng.normal(size=(3, 3)) * 4 + rng.gumbel(size=(N, 3)), axis=1)
Y = 20 + X @ TRUTH + 0.3 * rng.normal(size=N)
FAST: dict[str, Any] = {
    "data_norm": 1.0,
    "compute_budget": 100,
    "algorithm": "momentum",
    "random_state": 0,
}


@pytest.mark.parametrize(
    ("private", "public", "y"),
    [
        (PrivateLogisticRegression(classes=[0, 1], **FAST), LogisticRegression(), LABELS),
        (PrivateLogisticRegression(classes=[0, 1, 2], **FAST), LogisticRegression(), THREE),
        (PrivateLinearSVC(classes=[0, 1], **FAST), LinearSVC(), LABELS),
        (PrivateLinearSVC(classes=[0, 1, 2], **FAST), LinearSVC(), THREE),
        (PrivateRidge(target_bound=(14, 26), **FAST), Ridge(), Y),
        (PrivateHuberRegressor(target_bound=(14, 26), **FAST), Ridge(), Y),
    ],
)
def test_close_to_the_public_model(private: Any, public: Any, y: Any) -> None:
    short = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    best = public.fit(short, y).score(short, y)
    assert private.fit(X, y).score(X, y) > best - 0.06


def test_more_privacy_costs_accuracy() -> None:
    def error(epsilon: float) -> float:
        fits = [
            PrivateRidge(epsilon=epsilon, target_bound=(14, 26), random_state=seed)
            for seed in range(5)
        ]
        return float(
            np.mean([np.mean((fit.fit(X[:300], Y[:300]).predict(X) - Y) ** 2) for fit in fits])
        )

    assert error(0.1) > 2 * error(10.0)


def test_outliers_move_the_robust_model_less() -> None:
    dirty = Y.copy()
    dirty[:200] = 1000.0  # counts as the upper end of the range
    moved = {}
    for kind in (PrivateRidge, PrivateHuberRegressor):
        model = kind(epsilon=20.0, target_bound=(-40, 80), **FAST)
        moved[kind] = abs(model.fit(X, dirty).intercept_ - 20)
    assert moved[PrivateHuberRegressor] < moved[PrivateRidge]


def test_an_offset_needs_the_intercept() -> None:
    with_constant = PrivateRidge(target_bound=(14, 26), **FAST).fit(X, Y)
    without = PrivateRidge(target_bound=(14, 26), fit_intercept=False, **FAST).fit(X, Y)
    assert with_constant.intercept_ == pytest.approx(20, abs=0.5)
    assert without.intercept_ == 0.0
