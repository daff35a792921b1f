"""Models on the way: checkpoints of a fit, staged predictions, and stopping by public data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from dplateau import (
    Checkpoints,
    InvalidInput,
    NoisySGD,
    PrivateLogisticRegression,
    PrivateRidge,
    certify,
)
from dplateau.estimators.stages import Stages, Watching, staged
from dplateau.losses import Logistic
from dplateau.planning import plan

RNG = np.random.default_rng(8)
X = RNG.uniform(-1, 1, (3000, 4))
Y = np.where(X @ [1.0, -2.0, 0.5, 0.0] > 0, "yes", "no")
PUBLIC = (RNG.uniform(-1, 1, (200, 4)), np.array(["yes", "no"] * 100))
DECLARED: dict[str, Any] = {"feature_bounds": (-1, 1), "classes": ["no", "yes"], "epsilon": 2.0}
SAMPLED = NoisySGD(
    n=3000,
    batch_size=100,
    steps=400,
    learning_rate=2.0,
    l2=0.02,
    noise_multiplier=1.0,
    loss=Logistic().geometry(2**0.5),
    release="last",
)


def test_stages_are_what_the_certificate_releases() -> None:
    model = PrivateLogisticRegression(**DECLARED, checkpoints=5).fit(X, Y)
    assert len(model.staged_weights_) == 5
    np.testing.assert_array_equal(model.staged_weights_[-1]["coef_"], model.coef_)
    run = model.plan_.run
    assert isinstance(run.release, Checkpoints)
    assert run.average_last == 1
    assert model.certificate_.claimed_epsilon <= 2.0
    assert model.certificate_.verify().ok
    accuracies = [np.mean(found == Y) for found in model.staged_predict(X)]
    assert len(accuracies) == 5
    assert accuracies[-1] == model.score(X, Y) > 0.85
    assert len(list(model.staged_predict_proba(X[:3]))) == 5


def test_the_last_stage_is_the_model_of_a_fit_without_stages() -> None:
    """A plan whose claim is composition's pays nothing for stages, so the noise is the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seeded, to compare
        plain = PrivateLogisticRegression(**DECLARED, random_state=3).fit(X, Y)
        some = PrivateLogisticRegression(**DECLARED, random_state=3, checkpoints=4).fit(X, Y)
    assert plain.plan_.run.average_last > 1
    np.testing.assert_allclose(some.coef_, plain.coef_, rtol=1e-9, atol=1e-12)
    assert some.plan_.run.noise_multiplier == plain.plan_.run.noise_multiplier


def test_a_hidden_state_pays_for_stages_with_noise() -> None:
    planned = plan(n=3000, d=4, epsilon=1.0, data_norm=1.0, algorithm=SAMPLED)
    dearer, stages = staged(planned, 10)
    assert stages.times == tuple(range(40, 401, 40))
    assert dearer.run.noise_multiplier > 1.05 * planned.run.noise_multiplier
    assert dearer.certificate.claimed_epsilon <= planned.certificate.claimed_epsilon
    direct = certify(planned.run.replace(release=Checkpoints(every=40)), 1e-5)
    assert direct.claimed_epsilon > planned.certificate.claimed_epsilon


def test_stages_average_the_part_of_their_steps_that_the_run_does() -> None:
    run = SAMPLED.replace(steps=100, average_last=20)
    stages = Stages.of(run, 4)
    assert (stages.times, stages.means) == ((25, 50, 75, 100), (5, 10, 15, 20))
    steps = stages.checkpoints
    assert len(steps) == 50
    assert steps[0] == 21
    path = {step: np.array([float(step)]) for step in steps if step <= 60}
    np.testing.assert_allclose(stages.weights(path), [[23.0], [45.5]])
    assert Stages.of(run.replace(average_last=100), 4).release() == Checkpoints(every=1)


def test_public_records_stop_a_fit_and_choose_a_stage() -> None:
    """The public labels are coins, so that nothing improves for long."""
    model = PrivateLogisticRegression(
        **DECLARED, checkpoints=12, early_stopping="released", public_validation=PUBLIC
    ).fit(X, Y)
    scores = model.validation_scores_
    best = int(np.argmax(scores))
    assert len(scores) == len(model.staged_weights_) == min(12, best + 3)
    np.testing.assert_array_equal(model.coef_, model.staged_weights_[best]["coef_"])
    assert model.score(*PUBLIC) == max(scores)
    whole = PrivateLogisticRegression(**DECLARED, checkpoints=12).fit(X, Y)
    assert model.certificate_.claimed_epsilon == whole.certificate_.claimed_epsilon
    texts = {one.text: one.status for one in model.certificate_.assumptions}
    assert texts["the validation records are public"] == "declared"


def test_watching_stops_after_two_stages_without_a_better_one() -> None:
    stages = Stages((2, 4, 6, 8), (1, 1, 1, 1))
    scores = iter([0.5, 0.7, 0.6, 0.7])
    watching = Watching(stages, lambda weights: next(scores))
    stopped = [watching(step, np.zeros(1)) for step in (2, 4, 6, 8)]
    assert stopped == [False, False, False, True]
    assert watching.best == 1


def test_regressors_have_stages_too() -> None:
    y = 30 + 10 * X[:, 0]
    model = PrivateRidge(
        feature_bounds=(-1, 1), target_bound=(0, 60), epsilon=4.0, checkpoints=3
    ).fit(X, y)
    errors = [np.abs(found - y).mean() for found in model.staged_predict(X)]
    assert len(errors) == 3
    assert errors[-1] < 3


def test_refusals() -> None:
    def refused(text: str, **options: Any) -> None:
        with pytest.raises(InvalidInput, match=text):
            PrivateLogisticRegression(**DECLARED, **options).fit(X, Y)

    refused("pass checkpoints=... and public_validation=", early_stopping="released")
    refused(
        "a score on private records would be one more", early_stopping="released", checkpoints=3
    )
    refused("is for early_stopping='released'; pass both", public_validation=PUBLIC)
    refused("early_stopping must be", early_stopping=True, checkpoints=3)
    refused(
        r"public_validation is a pair \(X, y\); got ndarray",
        early_stopping="released",
        checkpoints=3,
        public_validation=PUBLIC[0],
    )
    refused("checkpoints=10000000, but the plan takes", checkpoints=10**7)
    refused("checkpoints must be", checkpoints=0)
    model = PrivateLogisticRegression(**DECLARED).fit(X, Y)
    with pytest.raises(InvalidInput, match="was fitted without stages: pass checkpoints=5"):
        next(model.staged_predict(X))
    assert not hasattr(model, "staged_weights_")
    assert clone(model).checkpoints is None
