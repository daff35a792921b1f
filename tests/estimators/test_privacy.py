"""What leaves a fit: noisy weights and what was public before, nothing else."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from dplateau import (
    Certificate,
    LossGeometry,
    NoisySGD,
    OnePassSGD,
    PoorPlanWarning,
    PrivacyLeakWarning,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)
from dplateau.algorithms import Run
from dplateau.bounds.base import Assumption

pytestmark = pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning")

rng = np.random.default_rng(1)
X = rng.normal(size=(40, 2))
OTHER = rng.normal(size=(40, 2)) + 1
LABELS = np.arange(40) % 2
QUICK: dict[str, Any] = {"compute_budget": 5, "algorithm": "momentum"}
MODELS = [
    PrivateLogisticRegression(classes=[0, 1], **QUICK),
    PrivateLogisticRegression(classes=[0, 1, 2], **QUICK),
    PrivateLinearSVC(classes=[0, 1], **QUICK),
    PrivateLinearSVC(classes=[0, 1, 2], **QUICK),
    PrivateRidge(**QUICK),
    PrivateHuberRegressor(**QUICK),
]
RELEASED = {"coef_", "intercept_"}
PUBLIC = {"plan_", "row_map_", "certificate_", "n_features_in_"}


def one_step(**changes: Any) -> Run:
    loss = LossGeometry(lipschitz=2.0, convex=True, smoothness=2.0)
    options = {"n": 40, "batch_size": 4, "steps": 3, "learning_rate": 0.1, "loss": loss}
    return NoisySGD(**{**options, "noise_multiplier": 1.0, "release": "last", **changes})


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_all_but_the_weights_is_the_same_for_any_data(model: Any) -> None:
    kept = []
    for rows, targets in ((X, LABELS), (OTHER, LABELS[::-1])):
        model.fit(rows, targets)
        kept.append(vars(model).copy())
        expected = {*model.get_params(), *RELEASED, *PUBLIC}
        beyond = {"coef_beyond_", "intercept_beyond_"}
        more = {"classes_", "decision_shift_"} if hasattr(model, "classes") else beyond
        more |= {"widening_"} if hasattr(model, "predict_proba") else set()
        assert set(vars(model)) == expected | more
    assert not np.array_equal(kept[0]["coef_"], kept[1]["coef_"])
    for name in set(kept[0]) - RELEASED:
        assert pickle.dumps(kept[0][name]) == pickle.dumps(kept[1][name]), name


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_certificate_keeps_the_promise_and_verifies(model: Any) -> None:
    model.fit(X, LABELS)
    certificate = model.certificate_
    assert certificate.claimed_epsilon <= model.epsilon
    assert certificate.claimed_delta == 1e-5
    assert certificate.run == model.plan_.run
    assert certificate.verify().ok
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_replaced_records_need_twice_the_noise() -> None:
    model = PrivateRidge(**QUICK)
    one = model.fit(X, LABELS).plan_.run.noise_multiplier
    two = model.set_params(neighbors="replace").fit(X, LABELS).plan_.run
    assert two.neighbors == "replace"
    assert two.noise_multiplier == pytest.approx(2 * one, rel=1e-3)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_all_the_records_of_a_person_are_protected_together(model: Any) -> None:
    one, four = clone(model), clone(model).set_params(max_records_per_person=4)
    for found in (one, four):
        found.fit(X, LABELS)
    assert four.plan_.run.group_size == four.certificate_.run.group_size == 4
    # In units of the gradients' bound, which a plan may choose anew.
    noise, alone = (found.plan_.run.noise_multiplier for found in (four, one))
    assert noise == pytest.approx(4 * alone, rel=1e-9)
    assert four.certificate_.claimed_epsilon <= four.epsilon
    assert four.certificate_.verify().ok
    for said in (four.certificate_, four.plan_):
        assert "neighbors differ in all the records of one person, at most 4" in str(said)
    vouched = Assumption("no person has more than 4 records", "declared")
    assert vouched in four.certificate_.assumptions
    assert "person" not in assumptions(one)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_noise_is_fresh_in_every_fit(model: Any) -> None:
    first = model.fit(X, LABELS).coef_
    assert not np.any(first == model.fit(X, LABELS).coef_)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_pickling_keeps_predictions(model: Any) -> None:
    again = pickle.loads(pickle.dumps(model.fit(X, LABELS)))
    np.testing.assert_array_equal(again.predict(OTHER), model.predict(OTHER))
    assert again.certificate_ == model.certificate_


def assumptions(model: Any) -> str:
    return "\n".join(assumption.text for assumption in model.certificate_.assumptions)


def test_the_certificate_says_where_randomness_and_sizes_come_from() -> None:
    model = PrivateLogisticRegression(classes=[0, 1], **QUICK).fit(X, LABELS)
    text = assumptions(model)
    assert "keystream keyed by the operating system" in text
    assert "the number of records is public: 40" in text
    assert "classes were declared" in text
    assert "data_norm on its own" in text
    text = assumptions(model.set_params(n_public=100, safe_noise=True).fit(X, LABELS))
    assert "hidden below n_public=100" in text
    assert "each noise value built from several" in text
    assert model.plan_.run.n == 100


def test_a_seed_warns_and_marks_the_certificate() -> None:
    model = PrivateRidge(random_state=5, **QUICK)
    with pytest.warns(PrivacyLeakWarning, match=r"random_state .* leave it None"):
        first = model.fit(X, LABELS).coef_
    assert model.certificate_.claim is None
    assert model.certificate_.headline == "not private (seeded run)"
    verified = model.certificate_.verify()
    assert not verified.ok
    assert "not private (seeded run)" in str(verified)
    assert model.plan_.certificate.claim is not None
    assert model.plan_.certificate.verify().ok
    with pytest.warns(PrivacyLeakWarning):
        assert np.array_equal(first, model.fit(X, LABELS).coef_)
    model.set_params(random_state=np.random.RandomState(5))
    with pytest.warns(PrivacyLeakWarning):
        assert not np.array_equal(model.fit(X, LABELS).coef_, model.fit(X, LABELS).coef_)


def test_no_paper_holds_the_seed() -> None:
    model = PrivateRidge(random_state=987_654_321, **QUICK)
    with pytest.warns(PrivacyLeakWarning):
        model.fit(X, LABELS)
    assert "987654321" not in model.certificate_.to_json()


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_inferred_classes_warn(kind: Any) -> None:
    with pytest.warns(PrivacyLeakWarning, match=r"declare them with classes=") as caught:
        model = kind(**QUICK).fit(X, LABELS)
    assert {leak.filename for leak in caught} == {__file__}
    assert "which labels occur is public" in assumptions(model)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_nothing_warns_otherwise_whatever_the_data(model: Any) -> None:
    extreme = np.where(X > 0, 1e308, -1e-308)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PoorPlanWarning)  # it follows from sizes alone
        model.fit(extreme, LABELS).predict(extreme)
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model._scores(extreme)))


class Stop(BaseException):
    """What the keyboard may raise at any time."""


def stop(done: int, steps: int) -> None:
    raise Stop


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_an_interrupted_fit_leaves_nothing(model: Any) -> None:
    model = type(model)(**model.get_params()).fit(X, LABELS)
    model.set_params(verbose=stop)
    with pytest.raises(Stop):
        model.fit(X, LABELS)
    assert set(vars(model)) == set(model.get_params())


def test_a_refused_fit_forgets_the_fit_before() -> None:
    model = PrivateRidge(**QUICK).fit(X, LABELS)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((3, 2), np.nan), np.zeros(3))
    assert set(vars(model)) == set(model.get_params())


def test_progress_learns_steps_only(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int]] = []
    PrivateRidge(verbose=lambda *numbers: seen.append(numbers), **QUICK).fit(X, LABELS)
    assert seen[-1] == (5, 5)
    assert all(type(number) is int for numbers in seen for number in numbers)
    PrivateRidge(**QUICK).fit(X, LABELS)
    assert capsys.readouterr().err == ""


def test_progress_would_give_a_random_stop_away() -> None:
    run = OnePassSGD(
        n=40,
        learning_rate=0.1,
        noise_std=1.0,
        loss=LossGeometry(lipschitz=2.0, convex=True, smoothness=2.0),
        release="random_stop",
    )
    seen: list[int] = []
    PrivateRidge(algorithm=run, verbose=lambda done, steps: seen.append(done)).fit(X, LABELS)
    assert seen == []


def test_a_run_of_ones_own_is_calibrated_and_run() -> None:
    model = PrivateLogisticRegression(classes=[0, 1], epsilon=2.0, algorithm=one_step())
    run = model.fit(X, LABELS).plan_.run
    assert (run.kind, run.steps, run.batch_size) == ("NoisySGD", 3, 4)
    assert run.noise_multiplier != 1.0
    assert model.certificate_.claimed_epsilon <= 2.0
