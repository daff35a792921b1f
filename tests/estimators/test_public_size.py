"""With a public bound on the number of rows, a fitted model tells nothing else about it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from dplateau.estimators import PrivateLogisticRegression, PrivateRidge

pytestmark = pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning")

SLOTS = 200
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(SLOTS, 3))
ANSWERS: dict[Any, Any] = {
    PrivateLogisticRegression: (RNG.random(SLOTS) < 0.5).astype(int),
    PrivateRidge: RNG.uniform(-1, 1, SLOTS),
}


def state_beside_weights(model: Any) -> dict[str, bytes]:
    """Return everything that fitting left, the weights by their shape and type alone."""
    learned = {name: value for name, value in vars(model).items() if name.endswith("_")}
    for name in ("coef_", "intercept_"):
        learned[name] = (np.shape(learned[name]), np.asarray(learned[name]).dtype)
    return {name: pickle.dumps(value) for name, value in learned.items()}


@pytest.mark.parametrize(
    ("kind", "known"),
    [(PrivateLogisticRegression, {"classes": [0, 1]}), (PrivateRidge, {})],
)
def test_the_fitted_state_is_the_same_for_every_number_of_rows(
    kind: Any, known: dict[str, Any]
) -> None:
    states = []
    for rows in (1, 150, SLOTS):
        model = kind(epsilon=2.0, n_public=SLOTS, compute_budget=5, **known)
        states.append(state_beside_weights(model.fit(X[:rows], ANSWERS[kind][:rows])))
    assert states[0] == states[1] == states[2]
    assert {"coef_", "certificate_", "plan_"} <= set(states[0])
    declared = kind(epsilon=2.0, compute_budget=5, **known).fit(X[:150], ANSWERS[kind][:150])
    assert state_beside_weights(declared)["plan_"] != states[0]["plan_"]
