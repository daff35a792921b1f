"""The estimators under attack: what they release is tested against their own certificates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplateau import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    audit_trainer,
)
from dplateau.engines import Randomness, SeededRandomness
from dplateau.ground.types import FloatArray

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning"),
]

# The canary is the second record; its neighbor is the same data without it.
X = np.array([[-0.3, 0.0], [3.0, 4.0]])
COMMON: dict[str, Any] = {"epsilon": 8.0, "n_public": 2}


class QuietRandomness(SeededRandomness):
    """Noise that is 40 percent too small."""

    def gaussian(self, count: int) -> FloatArray:
        return 0.6 * super().gaussian(count)


class Quiet:
    """A trainer that draws too little noise."""

    random_state: int

    def _randomness(self) -> Randomness:
        return QuietRandomness(self.random_state)


class QuietLogisticRegression(Quiet, PrivateLogisticRegression):
    pass


class QuietRidge(Quiet, PrivateRidge):
    pass


def released(model: Any, data: tuple[Any, Any], rng: np.random.Generator) -> list[float]:
    model.set_params(random_state=int(rng.integers(2**31))).fit(*data)
    return [*np.ravel(model.coef_), *np.ravel(model.intercept_)]


def verdict(model: Any, y: Any, runs: int) -> str:
    model.set_params(**COMMON)
    data, neighbor = (X, y), (X[:1], y[:1])
    released(model, data, np.random.default_rng(0))
    report = audit_trainer(
        lambda given, rng: released(model, given, rng),
        model.plan_.certificate,  # a seeded fit itself claims nothing
        data,
        neighbor,
        runs=runs,
        seed=1,
    )
    return report.verdict


LABELS = np.array([1, 0])
TARGETS = np.array([1.0, -1.0])


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (PrivateLogisticRegression(classes=[0, 1]), LABELS),
        (PrivateLogisticRegression(classes=[0, 1, 2]), LABELS),
        (PrivateLinearSVC(classes=[0, 1]), LABELS),
        (PrivateLinearSVC(classes=[0, 1, 2]), LABELS),
        (PrivateRidge(), TARGETS),
        (PrivateHuberRegressor(), TARGETS),
    ],
)
def test_what_is_released_keeps_the_promise(model: Any, y: Any) -> None:
    """One step: what leaves is all there is, so the claim is nearly attained."""
    model.set_params(compute_budget=1, algorithm="momentum")
    assert verdict(model, y, runs=400) == "not violated"


@pytest.mark.parametrize(
    ("model", "y"),
    [(PrivateLogisticRegression(classes=[0, 1]), LABELS), (PrivateRidge(), TARGETS)],
)
@pytest.mark.parametrize("recipe", ["momentum", "gd", "sgd_momentum"])
def test_longer_runs_keep_it_too(model: Any, y: Any, recipe: str) -> None:
    model.set_params(compute_budget=10, algorithm=recipe)
    assert verdict(model, y, runs=300) == "not violated"


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (QuietLogisticRegression(classes=[0, 1]), LABELS),
        (QuietRidge(), TARGETS),
    ],
)
def test_too_little_noise_is_caught(model: Any, y: Any) -> None:
    model.set_params(compute_budget=1, algorithm="momentum")
    assert verdict(model, y, runs=900) == "violated"
