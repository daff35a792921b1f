"""Plans meet their target by proof, and are chosen from public sizes alone."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplateau import InvalidInput, LossGeometry, NoisyGD, certify
from dplateau.algorithms import Run
from dplateau.losses import Huber, Logistic, Softmax
from dplateau.planning import plan, recipes
from dplateau.planning.forecast import (
    Model,
    _momentum_responses,
    forecast,
    model_of,
    residual_cuts,
)
from dplateau.planning.recipes import AS_GOOD, MOST_PASSES, RECIPES, Task

SIZES: list[dict[str, Any]] = [
    {"n": 32_561, "d": 108},
    {"n": 60_000, "d": 784, "n_classes": 10},
    {"n": 400, "d": 5, "loss": "squared", "neighbors": "replace"},
    {"n": 2_000, "d": 30, "loss": "hinge", "fit_intercept": False},
    {"n": 2_000, "d": 30, "loss": "huber", "target_bound": 3.0, "data_norm": 2.0},
    {"n": 1_000_000, "d": 1000, "compute_budget": 60},
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_plan_meets_its_target_and_its_certificate_is_verified(
    size: dict[str, Any], epsilon: float
) -> None:
    found = plan(**size, epsilon=epsilon, delta=1e-6)
    assert found.gradients.run == found.run
    assert 0.99 * epsilon <= found.certificate.claimed_epsilon <= epsilon
    assert found.certificate.claimed_delta == 1e-6
    assert found.certificate.verify().ok
    assert found.run.neighbors == size.get("neighbors", "add_remove")
    assert found.run.release.name == "last"


@pytest.mark.parametrize("size", SIZES[:5], ids=str)
def test_the_run_declares_the_constants_of_the_loss_it_is_for(size: dict[str, Any]) -> None:
    found = plan(**size)
    assert found.run.loss == found.loss.geometry(found.feature_norm, found.clip)
    assert found.row_norm >= np.hypot(found.data_norm, found.intercept)
    assert found.feature_norm == pytest.approx(1.0 if found.moments else found.row_norm)
    assert (found.intercept > 0) == size.get("fit_intercept", True)


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_can_be_asked_for(name: str) -> None:
    found = plan(5000, 20, epsilon=2.0, algorithm=name, compute_budget=25)
    assert found.chosen is not None
    assert found.chosen.name == name
    assert found.certificate.claimed_epsilon <= 2.0


def test_the_better_of_hidden_state_and_composition_is_claimed() -> None:
    found = plan(30_000, 100, epsilon=1.0, algorithm="gd", whitening="never")
    released = certify(found.run.replace(release="all"), found.certificate.claimed_delta)
    assert found.certificate.claimed_epsilon <= 1.0 < released.claimed_epsilon


def test_means_of_last_iterates_are_considered_under_a_hidden_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: dict[str, Any] = {"epsilon": 1.0, "algorithm": "gd", "whitening": "never"}
    found = plan(3000, 10, **options)
    assert found.run.average_last > 1
    assert found.certificate.claimed_epsilon <= 1.0
    monkeypatch.setattr(recipes, "HIDDEN_TAILS", (0.0,))
    alone = plan(3000, 10, **options)
    assert alone.run.average_last == 1
    assert found.expected is not None
    assert alone.expected is not None
    assert found.expected.error < 0.7 * alone.expected.error


def test_a_run_keeps_everything_but_its_noise() -> None:
    run = NoisyGD(
        n=500,
        steps=40,
        learning_rate=0.5,
        l2=0.01,
        noise_std=1.0,
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
        release="last",
    )
    found = plan(500, 3, epsilon=1.5, algorithm=run)
    assert found.run.replace(noise_std=1.0) == run
    assert found.certificate.claimed_epsilon <= 1.5


def test_a_plan_says_what_it_chose_and_what_it_rejected() -> None:
    found = plan(5000, 20)
    lines = found.summary.splitlines()
    assert lines[0].startswith("chosen: momentum")
    assert any(line.startswith("rejected: gd") for line in lines)
    assert re.search(r"\((1|0\.9999\d*), 1e-05\)-DP", found.summary)


def test_few_passes_bring_sampled_batches_into_the_choice() -> None:
    few = plan(5000, 20, compute_budget=5)
    names = {few.chosen.name if few.chosen else "", *(other.name for other in few.rejected)}
    assert "sgd" in names
    assert few.run.epochs <= 5 * 1.01


def test_no_argument_of_a_plan_holds_data() -> None:
    allowed = {int, float, str, bool}
    for size in SIZES:
        assert {type(value) for value in size.values()} <= allowed
    assert {"X", "y", "data"}.isdisjoint(inspect.signature(plan).parameters)


@settings(max_examples=15)
@given(
    n=st.integers(50, 10**7),
    d=st.integers(1, 5000),
    classes=st.integers(2, 20),
    epsilon=st.floats(0.05, 20),
)
def test_random_sizes_have_plans(n: int, d: int, classes: int, epsilon: float) -> None:
    found = plan(n, d, classes, epsilon=epsilon, delta=1e-7)
    assert found.certificate.claimed_epsilon <= epsilon
    assert isinstance(found.loss, Softmax if classes > 2 else Logistic)


def test_a_run_shorter_than_the_lag_of_its_momentum_is_not_shortened() -> None:
    assert plan(5_668_878, 22, 3, epsilon=20.0, delta=1e-7).certificate.claimed_epsilon <= 20.0


def test_more_privacy_never_forecasts_a_better_model() -> None:
    errors = []
    for epsilon in (0.1, 0.5, 1, 2, 4, 8):
        chosen = plan(20_000, 50, epsilon=epsilon).chosen
        assert chosen is not None
        errors.append(chosen.expected.error)
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"d": 0}, "d must be at least 1"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must"),
        ({"loss": "cauchy"}, "loss must be one of"),
        ({"loss": "hinge", "n_classes": 3}, "needs 'logistic'"),
        ({"algorithm": "adam"}, "algorithm must be one of"),
        ({"neighbors": "swap"}, "neighbors must be one of"),
        ({"data_norm": -1.0}, "data_norm"),
        ({"compute_budget": 0}, "compute_budget"),
    ],
)
def test_bad_requests_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        plan(**{"n": 100, "d": 3, **changes})


def test_a_loss_object_is_taken_as_it_is() -> None:
    found = plan(1000, 4, loss=Huber(0.7))
    assert found.loss == Huber(0.7)
    assert found.clip is None


# --- the forecast, against simulation --------------------------------------------------------


def simulated(run: Run, curvature: Any, seed: int) -> tuple[Any, Any]:
    """Return what is unlearned and the noise in each direction, by running the recursion."""
    rng = np.random.default_rng(seed)
    shape = (2000, len(curvature))
    w, v, total = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    rate, std = float(np.mean(run.learning_rate)), float(np.mean(run.iterate_std))  # type: ignore[arg-type]
    for step in range(run.steps):
        ahead = w + run.momentum * v
        slope = curvature * (ahead - 1.0) + run.l2 * ahead
        noise = std * rng.standard_normal(shape)
        noise[0] = 0.0  # the first repetition shows what is learned
        v = run.momentum * v - rate * slope + noise
        w = w + v
        if step >= run.steps - run.average_last:
            total += w
    model = total / run.average_last
    return 1 - model[0], model[1:].std(axis=0)


@pytest.mark.parametrize(
    "changes", [{}, {"l2": 0.05}, {"momentum": 0.9}, {"momentum": 0.7, "average_last": 20}], ids=str
)
def test_the_forecast_is_the_error_of_the_reference_problem(changes: dict[str, Any]) -> None:
    loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
    run = NoisyGD(
        n=100, steps=60, learning_rate=0.8, noise_std=0.3, loss=loss, release="last", **changes
    )
    found = forecast(run, 40, Model(Logistic(), 1.0, 0.0, score_std=3.0))
    biases, noises = [], []
    for power in (0.0, 1.0, 2.0):
        share = np.arange(1.0, 41.0) ** -power
        share /= share.sum()
        # A typical record has half the largest curvature.
        unlearned, noise = simulated(run, curvature=0.125 * share, seed=3)
        biases.append(3 * (30 / 40) ** 0.2 * np.sqrt(np.sum(share * unlearned**2)))
        noises.append(np.sqrt(np.sum(share * noise**2)))
    assert found.bias == pytest.approx(np.sqrt(np.mean(np.square(biases))), rel=0.05)
    assert found.noise == pytest.approx(np.sqrt(np.mean(np.square(noises))), rel=0.05)
    errors = np.hypot(biases, noises)
    assert found.error == pytest.approx(np.prod(errors) ** (1 / 3), rel=0.05)


@pytest.mark.parametrize("name", list(RECIPES))
def test_the_target_holds_for_all_the_records_of_a_person(name: str) -> None:
    asked: dict[str, Any] = {"epsilon": 1.0, "algorithm": name, "compute_budget": 40}
    four = plan(2000, 10, **asked, max_records_per_person=4)
    assert four.run.group_size == 4
    assert four.gradients.run == four.run
    assert 0.99 <= four.certificate.claimed_epsilon <= 1.0
    assert four.certificate.verify().ok
    assert "neighbors differ in all the records of one person, at most 4" in str(four)
    assert four.chosen is not None
    # The forecast ranks runs by the noise that they really need.
    assert four.chosen.run.noise_std == pytest.approx(four.run.noise_std, rel=0.05)


def test_full_batches_need_exactly_so_many_times_the_noise() -> None:
    for neighbors in ("add_remove", "replace"):
        asked: dict[str, Any] = {"neighbors": neighbors, "algorithm": "momentum"}
        asked["whitening"] = "never"  # one person with more records may be too many for it
        one, four = (plan(2000, 10, **asked, max_records_per_person=m) for m in (1, 4))
        assert four.run.noise_std == pytest.approx(4 * one.run.noise_std, rel=1e-9)
        assert "person" not in str(one)
        # The same noise protects one record with a quarter of the Gaussian parameter.
        alone = certify(four.run.replace(group_size=1), 1e-5)
        assert alone.claimed_epsilon < one.certificate.claimed_epsilon / 4


def test_a_run_of_ones_own_is_about_persons_too() -> None:
    loss = LossGeometry(lipschitz=1.0, smoothness=0.25, convex=True)
    own = NoisyGD(
        n=500, steps=20, learning_rate=1.0, l2=0.05, noise_std=1.0, loss=loss, release="last"
    )
    one = plan(500, 3, algorithm=own)
    three = plan(500, 3, algorithm=own, max_records_per_person=3)
    assert three.run.group_size == 3
    assert three.run.noise_std == pytest.approx(3 * one.run.noise_std, rel=1e-3)
    assert three.certificate.verify().ok
    stated = plan(500, 3, algorithm=own.replace(group_size=3), max_records_per_person=3)
    assert stated.run == three.run
    with pytest.raises(InvalidInput, match="described with group_size=3; make them the same"):
        plan(500, 3, algorithm=own.replace(group_size=3))


@pytest.mark.parametrize(
    ("most", "reason"),
    [
        (0, "max_records_per_person must be at least 1"),
        (2.5, "max_records_per_person must be a whole number"),
        (True, "max_records_per_person must be a real number"),
        ("3", "max_records_per_person must be a real number"),
        (51, "max_records_per_person=51, but there are 50 records; use at most 50"),
    ],
)
def test_how_many_records_a_person_cannot_have(most: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        plan(50, 2, max_records_per_person=most)


def test_moments_and_gradients_share_the_target() -> None:
    found = plan(30_000, 100, epsilon=1.0)
    assert len(found.moments) == 2
    assert [part.run.steps for part in found.moments] == [1, 1]
    assert found.moments[0].run.loss.lipschitz == found.row_norm**2  # type: ignore[union-attr]
    apart = [part.claimed_epsilon for part in (*found.moments, found.gradients)]
    assert max(apart) < found.certificate.claimed_epsilon < sum(apart)
    assert "whitened 2 times by noisy second moments, which take 10%" in found.summary
    assert plan(30_000, 100, epsilon=1.0, whitening="never").moments == ()


@pytest.mark.parametrize(
    "size",
    [
        {"n": 900, "d": 5, "epsilon": 8.0},  # few records
        {"n": 3000, "d": 100, "epsilon": 0.1},  # the noise hides the moments
        {"n": 60_000, "d": 784, "epsilon": 0.1},  # few directions would stand out
        {"n": 30_000, "d": 20, "compute_budget": 5},  # few passes
        {"n": 30_000, "d": 20, "algorithm": "sgd_momentum"},
    ],
    ids=str,
)
def test_rows_are_whitened_only_where_public_sizes_promise_a_gain(size: dict[str, Any]) -> None:
    assert plan(**size).moments == ()


def test_an_unknown_whitening_is_refused() -> None:
    with pytest.raises(InvalidInput, match="whitening must be one of"):
        plan(5000, 20, whitening="always")


def _pushed(run: Run, pull: float) -> tuple[float, float]:
    """Return what momentum leaves of the start, and the sum of squared answers, step by step."""
    answers = np.zeros(run.steps)
    last = before = 0.0
    for step in range(run.steps):
        ahead = last + run.momentum * (last - before)
        seen = ahead if run.momentum_kind == "nesterov" else last
        before, last = last, ahead - pull * seen + (step == 0)
        answers[step] = last
    reach = np.concatenate([np.zeros(run.average_last), np.cumsum(answers)])
    gains = (reach[run.average_last :] - reach[: -run.average_last]) / run.average_last
    return 1 - pull * reach[-run.average_last :].mean(), float(np.sum(gains**2))


@pytest.mark.parametrize("momentum", [0.9, 0.97])
@pytest.mark.parametrize("averaged", [1, 30, 150, 200])
@pytest.mark.parametrize("kind", ["nesterov", "heavy_ball"])
def test_answers_to_pushes_are_those_of_the_recursion(
    momentum: float, averaged: int, kind: str
) -> None:
    run = NoisyGD(
        n=10,
        steps=200,
        learning_rate=0.1,
        noise_std=1.0,
        momentum=momentum,
        momentum_kind=kind,
        average_last=averaged,
        release="last",
    )
    pulls = np.array([1e-7, 1e-4, 3e-3, 0.05, 0.6, 1.0])
    left, squares = _momentum_responses(run, pulls)
    slow = np.array([_pushed(run, pull) for pull in pulls])
    assert left == pytest.approx(slow[:, 0], rel=1e-2, abs=1e-6)
    assert squares == pytest.approx(slow[:, 1], rel=1e-2)


@pytest.mark.parametrize(("n", "d", "loss"), [(2344, 1386, "squared"), (32561, 108, "logistic")])
def test_shorter_runs_learn_as_much_with_as_little_noise(n: int, d: int, loss: str) -> None:
    found = plan(n=n, d=d, loss=loss, whitening="never")
    assert found.run.steps < MOST_PASSES
    task = Task(
        n=n,
        d=d,
        epsilon=1.0,
        delta=1e-5,
        neighbors="add_remove",
        max_records_per_person=1,
        passes=None,
        model=model_of(loss, 2, data_norm=1.0, fit_intercept=True, target_bound=1.0),
    )
    cuts = residual_cuts(task.model, 1.0) if loss == "squared" else [task.model]
    longest = [RECIPES["momentum"](replace(task, model=model)).expected for model in cuts]
    best = min(longest, key=lambda expected: expected.error)
    assert found.expected is not None
    room = AS_GOOD * best.error
    assert found.expected.bias <= best.bias + room
    assert found.expected.noise <= best.noise + room
    assert found.expected.bias >= best.bias - room  # nor does it trade one for the other
