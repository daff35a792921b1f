"""What is refused, and with which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplateau import (
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateRidge,
)

pytestmark = pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning")

X = np.linspace(-1, 1, 40).reshape(20, 2)
Y = np.linspace(-1, 1, 20)
LABELS = np.arange(20) % 2
BINARY: dict[str, Any] = {"classes": [0, 1], "compute_budget": 5, "algorithm": "momentum"}


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": "1"}, "epsilon must be a real number"),
        ({"delta": 0.0}, "delta must lie"),
        ({"n_public": 10}, "more rows than n_public=10"),
        ({"n_public": 0}, "n_public must be at least 1"),
        ({"data_norm": -1.0}, "data_norm must be"),
        ({"max_records_per_person": 0}, "max_records_per_person must be at least 1"),
        ({"max_records_per_person": 1.5}, "max_records_per_person must be a whole number"),
        ({"max_records_per_person": True}, "max_records_per_person must be a real number"),
        ({"max_records_per_person": 21}, "max_records_per_person=21, but there are 20 records"),
        ({"neighbors": "swap"}, "neighbors must be one of"),
        ({"algorithm": "magic"}, "algorithm must be one of"),
        ({"algorithm": ["gd"]}, "algorithm must be one of"),
        ({"epsilon": [1.0]}, "epsilon must be a real number"),
        ({"verbose": "loud"}, "verbose must be True, False or a function"),
        ({"random_state": -1}, "seed must be"),
        ({"feature_bounds": 1.0}, "feature_bounds must be a pair"),
        ({"classes": [1]}, "at least two classes"),
        ({"classes": [0, 2]}, r"a label that is not among classes=\[0, 2\]"),
        ({"classes": ["0", "1"]}, "a label that is not among"),
        ({"classes": None}, None),
    ],
)
@pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning")
def test_classifier(parameters: dict[str, Any], reason: str | None) -> None:
    model = PrivateLogisticRegression(**{**BINARY, **parameters})
    if reason is None:
        reason = "one class; a classifier needs two"
        with pytest.raises(InvalidInput, match=reason):
            model.fit(X, np.zeros(20))
        return
    with pytest.raises(InvalidInput, match=reason):
        model.fit(X, LABELS)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"target_bound": 0.0}, "target_bound must be finite and above 0"),
        ({"target_bound": (1, 1)}, "low < high"),
        ({"target_bound": (1, 2, 3)}, "a number or a pair"),
        ({"target_bound": ("a", "b")}, "a number or a pair"),
        ({"target_bound": (0, np.inf)}, "finite pair"),
        ({"threshold": -1.0}, "threshold must be"),
    ],
)
def test_regressor(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        PrivateHuberRegressor(**parameters).fit(X, Y)


def test_the_label_itself_is_not_shown() -> None:
    labels = np.array(["healthy", "ill"] * 10, dtype=object)
    labels[7] = "very secret"
    model = PrivateLogisticRegression(classes=["healthy", "ill"])
    with pytest.raises(InvalidInput, match="not among") as refusal:
        model.fit(X, labels)
    assert "secret" not in str(refusal.value)


def test_a_fixed_order_has_no_absent_records() -> None:
    run = CyclicSGD(
        n=30,
        batch_size=5,
        epochs=1,
        learning_rate=0.1,
        noise_multiplier=1.0,
        loss=LossGeometry(lipschitz=2.0, convex=True, smoothness=2.0),
        release="last",
    )
    with pytest.raises(InvalidInput, match="absent would move the later ones"):
        PrivateRidge(n_public=30, algorithm=run).fit(X, Y)


def test_a_run_must_mean_the_same_neighbors() -> None:
    run = NoisyGD(n=20, steps=1, learning_rate=0.1, noise_multiplier=1.0, release="last")
    with pytest.raises(InvalidInput, match=r"neighbors='replace', but .*='add_remove'"):
        PrivateRidge(neighbors="replace", algorithm=run).fit(X, Y)


def test_sample_weights_are_not_taken() -> None:
    with pytest.raises(TypeError, match="sample_weight"):
        PrivateRidge().fit(X, Y, sample_weight=np.ones(20))
    with pytest.raises(TypeError, match="warm_start"):
        PrivateLogisticRegression(warm_start=True)


def test_delta_by_default_never_exceeds_one_over_n() -> None:
    model = PrivateRidge(compute_budget=1, algorithm="momentum", n_public=10**6)
    assert model.fit(X, Y).certificate_.claimed_delta == 1e-6
    model.set_params(n_public=1000)
    assert model.fit(X, Y).certificate_.claimed_delta == 1e-5
