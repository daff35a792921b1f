"""scikit-learn's tools and other people's tables take the estimators as their own."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import threadpool_limits

from dplateau import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    compose,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning"),
]

rng = np.random.default_rng(2)
X = rng.uniform(-0.5, 0.5, size=(200, 2))
LABELS = np.where(X[:, 0] > X[:, 1], "up", "down")
Y = X[:, 0] - X[:, 1]
QUICK: dict[str, Any] = {"compute_budget": 10, "algorithm": "momentum", "epsilon": 10.0}


def test_clones_carry_parameters_and_no_fit() -> None:
    model = PrivateHuberRegressor(target_bound=(0, 1), threshold=0.5, **QUICK)
    model.set_params(algorithm=model.fit(X, Y).plan_.run)
    again = clone(model.fit(X, Y))
    assert not hasattr(again, "coef_")
    assert again.get_params() == model.get_params()
    assert again.fit(X, Y).plan_ == model.plan_


def test_pipelines_and_scores() -> None:
    pipe = make_pipeline(
        FunctionTransformer(np.tanh),
        PrivateLogisticRegression(classes=["down", "up"], random_state=0, **QUICK),
    )
    assert pipe.fit(X, LABELS).score(X, LABELS) > 0.8
    assert set(pipe.predict(X)) == {"down", "up"}


def test_grid_search() -> None:
    search = GridSearchCV(
        PrivateLinearSVC(classes=["down", "up"], random_state=0, **QUICK),
        {"data_norm": [0.01, 0.7]},
        cv=3,
    )
    search.fit(X, LABELS)
    assert search.best_estimator_.plan_.certificate.claimed_epsilon <= 10
    assert len(search.cv_results_["mean_test_score"]) == 2


def test_cross_validation_costs_what_composition_says() -> None:
    """Each record is in all but one of the training sets: count every fit."""
    fits = [PrivateRidge(epsilon=1.0).fit(X, Y).certificate_ for _ in range(3)]
    together = compose(fits, delta=1e-5)
    assert 1.0 < together.claimed_epsilon < 3.0
    assert len(cross_val_score(PrivateRidge(**QUICK), X, Y, cv=3)) == 3


def test_one_model_per_class_with_declared_classes() -> None:
    three = np.digitize(X[:, 0], [-0.2, 0.2])
    model = OneVsRestClassifier(PrivateLogisticRegression(classes=[0, 1], **QUICK))
    assert set(model.fit(X, three).predict(X)) <= {0, 1, 2}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_give_names(frame: Any) -> None:
    table = frame({"left": X[:, 0], "right": X[:, 1]})
    targets = {pd.DataFrame: pd.Series, pl.DataFrame: pl.Series}[frame](LABELS.tolist())
    model = PrivateLogisticRegression(classes=["down", "up"], random_state=1, **QUICK)
    plain = model.fit(X, LABELS).coef_
    model.fit(table, targets)
    assert model.feature_names_in_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(model.coef_, plain)
    np.testing.assert_array_equal(model.predict(table), clone(model).fit(X, LABELS).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(
            table.rename({"left": "other"}) if frame is pl.DataFrame else -table[["right"]]
        )


def test_thread_limits_hold_and_change_little() -> None:
    wide = rng.normal(size=(300, 200))
    model = PrivateRidge(random_state=0, algorithm="momentum", compute_budget=5)
    found = []
    for limit in (1, 2):
        with threadpool_limits(limit):
            found.append(model.fit(wide, wide[:, 0]).coef_)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_probabilities_are_those_of_the_scores() -> None:
    model = PrivateLogisticRegression(classes=["down", "up"], **QUICK).fit(X, LABELS)
    scores, chances = model.decision_function(X), model.predict_proba(X)
    np.testing.assert_allclose(chances[:, 1], 1 / (1 + np.exp(-scores)))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    three = PrivateLogisticRegression(classes=["down", "level", "up"], **QUICK).fit(X, LABELS)
    raw = np.exp(three.decision_function(X))
    np.testing.assert_allclose(three.predict_proba(X), raw / raw.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(np.exp(three.predict_log_proba(X)), three.predict_proba(X))
    assert three.coef_.shape == (3, 2)
    assert three.intercept_.shape == (3,)
    assert three.classes_.tolist() == ["down", "level", "up"]


def test_a_declared_class_may_be_absent() -> None:
    for kind in (PrivateLogisticRegression, PrivateLinearSVC):
        model = kind(classes=["up", "never", "down"], **QUICK).fit(X, LABELS)
        assert model.classes_.tolist() == ["down", "never", "up"]
        assert model.decision_function(X).shape == (200, 3)


def test_a_missing_scikit_learn_is_named() -> None:
    script = "import sys; sys.modules['sklearn'] = None; import dplateau; dplateau.PrivateRidge"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "pip install 'dplateau[train]'" in done.stderr.splitlines()[-1]


def test_help_lists_every_parameter_once() -> None:
    kinds = (PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge, PrivateHuberRegressor)
    for kind in kinds:
        text = inspect.getdoc(kind)
        assert text is not None
        listed = text.partition("Parameters\n----------\n")[2].partition("Attributes\n")[0]
        names = re.findall(r"^(\w.*)$", listed, re.MULTILINE)
        assert sorted(", ".join(names).split(", ")) == sorted(kind().get_params())
