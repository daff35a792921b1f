"""Exported models under onnxruntime give what predict gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from dplateau import (
    InvalidInput,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)
from dplateau.onnx import to_onnx

ROWS = np.random.default_rng(0).normal(size=(3000, 4)) * [1.0, 2.0, 5.0, 1.0] + [0, 0, 10, 0]
NEW = np.random.default_rng(1).normal(size=(500, 4)) * [3.0, 5.0, 20.0, 3.0] + [0, 0, 10, 0]
BOUNDS = ([-2, -4, 0, -2], [2, 4, 20, 2])
TARGETS = np.clip(ROWS[:, 0] + ROWS[:, 2] / 5, -4, 6)


def served(model: Any, rows: Any = NEW) -> dict[str, Any]:
    """Run the exported graph as a server would: from bytes, without the library."""
    session = onnxruntime.InferenceSession(
        to_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, {"rows": rows}), strict=True))


def column(scores: Any) -> Any:
    return scores[:, None] if scores.ndim == 1 else scores


def thirds(names: list[Any]) -> Any:
    return np.array(names, dtype=object if isinstance(names[0], str) else None)[
        np.digitize(TARGETS, [1.0, 3.0][: len(names) - 1])
    ]


@pytest.mark.parametrize("names", [[0, 1], ["no", "yes"], [3, 5, 9], ["a", "b", "c"]], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"feature_bounds": BOUNDS},
        {"data_norm": 3.0},
        {"feature_bounds": BOUNDS, "whitening": "never", "fit_intercept": False},
    ],
    ids=["bounds", "norm", "no intercept"],
)
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_classifiers(kind: Any, options: dict[str, Any], names: list[Any]) -> None:
    model = kind(epsilon=2.0, classes=names, **options).fit(ROWS, thirds(names))
    found = served(model)
    np.testing.assert_allclose(found["scores"], column(model.decision_function(NEW)), atol=1e-10)
    assert found["label"].tolist() == model.predict(NEW).tolist()
    assert ("probabilities" in found) == hasattr(model, "predict_proba")
    if "probabilities" in found:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(NEW), atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
@pytest.mark.parametrize("names", [["no", "yes"], [3, 5, 9]], ids=str)
def test_decisions_for_another_prior(names: list[Any], epsilon: float) -> None:
    """Labels move, scores and widened probabilities are those of the library."""
    prior = dict(zip(names, [0.7, 0.2, 0.1] if len(names) > 2 else [0.8, 0.2], strict=True))
    asked = {"classes": names, "feature_bounds": BOUNDS, "class_weight": {names[-1]: 2.0}}
    model = PrivateLogisticRegression(
        epsilon=epsilon, class_prior=prior, decision_prior="balanced", **asked
    ).fit(ROWS, thirds(names))
    found = served(model)
    assert found["label"].tolist() == model.predict(NEW).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(NEW), atol=1e-12)
    model.decision_shift_ = None
    assert found["label"].tolist() != model.predict(NEW).tolist()


def test_whitened_models() -> None:
    """Rows turned by noisy moments: the graph shortens them as the library does."""
    rows = np.random.default_rng(2).normal(size=(20000, 6)) @ np.diag([5, 3, 1, 0.3, 0.1, 0.05])
    model = PrivateRidge(epsilon=8.0, feature_bounds=(-6, 6), target_bound=6.0)
    model.fit(rows, np.clip(rows @ [0.2, 0.1, 1.0, 0.5, 2.0, 3.0], -6, 6))
    assert model.row_map_.whitening
    assert model.row_map_.bend is not None
    far = rows[:300] * 4
    np.testing.assert_allclose(served(model, far)["prediction"], model.predict(far), atol=1e-9)


@pytest.mark.parametrize("kind", [PrivateRidge, PrivateHuberRegressor])
@pytest.mark.parametrize("options", [{"feature_bounds": BOUNDS}, {"data_norm": 3.0}], ids=str)
def test_regressors(kind: Any, options: dict[str, Any]) -> None:
    model = kind(epsilon=2.0, target_bound=(-4, 6), **options).fit(ROWS, TARGETS)
    np.testing.assert_allclose(served(model)["prediction"], model.predict(NEW), atol=1e-9)


def test_the_claim_travels_and_the_graph_is_small() -> None:
    model = PrivateRidge(epsilon=1.0, feature_bounds=BOUNDS, target_bound=6.0).fit(ROWS, TARGETS)
    graph = to_onnx(model)
    onnx.checker.check_model(graph, full_check=True)
    assert {one.key: one.value for one in graph.metadata_props} == {
        "privacy": model.certificate_.headline
    }
    assert len(graph.SerializeToString()) < 5000


def test_scores_far_from_zero_give_probabilities() -> None:
    model = PrivateLogisticRegression(epsilon=1.0, classes=[0, 1], data_norm=1e6)
    model.fit(ROWS, (TARGETS > 1).astype(int))
    model.coef_ = model.coef_ * 1e6
    found = served(model)["probabilities"]
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found, model.predict_proba(NEW), atol=1e-12)


def test_what_is_no_fitted_model_is_refused() -> None:
    with pytest.raises(InvalidInput, match="fitted private model of this library; got dict"):
        to_onnx({})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="this PrivateRidge is not fitted"):
        to_onnx(PrivateRidge())
