"""Checkpoints are what a shorter run would have released, and all that leaves on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplateau import Ball, Checkpoints, InvalidInput, NoisyGD, NoisySGD, certify
from dplateau.algorithms import Run
from dplateau.engines import SeededRandomness, scale_rows, train
from dplateau.ground.types import FloatArray
from dplateau.losses import Logistic, Softmax

N, D, NORM = 40, 3, 1.0
RNG = np.random.default_rng(5)
X = scale_rows(RNG.normal(size=(N, D)), NORM)
SIGNS = np.where(RNG.random(N) < 0.5, -1, 1)
CLASSES = RNG.integers(0, 3, N)
OPTIONS: dict[str, Any] = {"learning_rate": 0.5, "l2": 0.1, "loss": Logistic().geometry(NORM)}
RUNS = {
    "full batch": NoisyGD(n=N, steps=10, noise_std=0.1, release="last", **OPTIONS),
    "Poisson": NoisySGD(
        n=N, batch_size=8, steps=10, noise_std=0.1, domain=Ball(0.3), release="last", **OPTIONS
    ),
    "momentum": NoisyGD(n=N, steps=10, noise_std=0.1, momentum=0.5, release="last", **OPTIONS),
}


def trained(run: Run, **options: Any) -> FloatArray:
    return train(
        run, Logistic(), X, SIGNS, feature_norm=NORM, randomness=SeededRandomness(3), **options
    )


@pytest.mark.parametrize("name", ["full batch", "momentum"])
@pytest.mark.parametrize("release", [Checkpoints(every=4), Checkpoints(at=[1, 7])], ids=repr)
def test_a_checkpoint_is_the_last_iterate_of_a_shorter_run(name: str, release: Checkpoints) -> None:
    found = trained(RUNS[name].replace(release=release))
    times = release.times(10)
    assert found.shape == (len(times), D)
    for weights, steps in zip(found, times, strict=True):
        np.testing.assert_array_equal(weights, trained(RUNS[name].replace(steps=steps)))


@pytest.mark.parametrize("name", RUNS)
def test_releasing_more_changes_nothing_of_the_run(name: str) -> None:
    found = trained(RUNS[name].replace(release=Checkpoints(every=3)))
    np.testing.assert_array_equal(found[-1], trained(RUNS[name]))


def test_the_last_iterates_average_to_the_averaged_run() -> None:
    run = RUNS["full batch"]
    iterates = trained(run.replace(release=Checkpoints(last=4)))
    np.testing.assert_allclose(iterates.mean(axis=0), trained(run.replace(average_last=4)))


def test_each_checkpoint_is_handed_out_as_it_is_reached() -> None:
    run = RUNS["Poisson"].replace(release=Checkpoints(every=3))
    seen: list[tuple[int, FloatArray]] = []

    def look(step: int, weights: FloatArray) -> None:
        seen.append((step, weights.copy()))
        weights.fill(np.nan)  # it is theirs

    found = trained(run, on_checkpoint=look)
    assert [step for step, _ in seen] == [3, 6, 9, 10]
    np.testing.assert_array_equal(np.stack([weights for _, weights in seen]), found)
    np.testing.assert_array_equal(found, trained(run))


def test_stopping_ends_the_run_and_leaves_the_claim() -> None:
    run = RUNS["full batch"].replace(release=Checkpoints(every=2))
    planned = certify(run, 1e-5).claimed_epsilon
    steps = []

    def stop(step: int, weights: FloatArray) -> bool:
        steps.append(step)
        return step == 4

    found = trained(run, on_checkpoint=stop)
    assert steps == [2, 4]
    np.testing.assert_array_equal(found, trained(run)[:2])
    # The claim is that of the description, which stopping does not change.
    assert certify(run, 1e-5).claimed_epsilon == planned
    assert certify(run.replace(steps=4), 1e-5).claimed_epsilon < planned


@pytest.mark.parametrize("release", ["last", "all"])
def test_nothing_is_handed_out_of_other_runs(release: Any) -> None:
    with pytest.raises(InvalidInput, match=f"release='{release}' is handed out on its way"):
        trained(RUNS["full batch"].replace(release=release), on_checkpoint=lambda *_: None)


def test_an_error_of_the_observer_ends_the_run() -> None:
    def fail(step: int, weights: FloatArray) -> None:
        raise LookupError("no validation data")

    run = RUNS["full batch"].replace(release=Checkpoints(every=2))
    with pytest.raises(LookupError, match="no validation data"):
        trained(run, on_checkpoint=fail)


def test_a_softmax_releases_matrices() -> None:
    loss = Softmax(3)
    run = NoisyGD(
        n=N,
        steps=5,
        learning_rate=0.5,
        noise_std=0.1,
        loss=loss.geometry(NORM),
        release=Checkpoints(every=2),
    )
    found = train(run, loss, X, CLASSES, feature_norm=NORM, randomness=SeededRandomness(1))
    assert found.shape == (3, D, 3)
