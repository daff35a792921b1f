"""Weights of classes: the constants of the heaviest, the sums of the engine, and nothing hidden."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from dplateau import NoisyGD, certify, verify
from dplateau.engines import ArraySource, SeededRandomness, train
from dplateau.engines.records import ArrayRecords, SourceRecords, Terms
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.losses import (
    ClassWeighted,
    Hinge,
    Huber,
    Logistic,
    Loss,
    OneVersusRest,
    SmoothedHinge,
    Softmax,
)
from forging import forged

WEIGHTED = [
    ClassWeighted(Logistic(), (0.2, 1.7)),
    ClassWeighted(Logistic(), (1.0, 0.05)),
    ClassWeighted(SmoothedHinge(0.5), (3.0, 1.0)),
    ClassWeighted(Hinge(), (3.0, 1.0)),
    ClassWeighted(Softmax(3), (1.0, 2.5, 0.1)),
    ClassWeighted(OneVersusRest(SmoothedHinge(0.5), 3), (1.0, 2.5, 0.1)),
]
CASES = [
    (loss, clip)
    for loss, clip in itertools.product(WEIGHTED, (None, 0.3, 1.2))
    if clip is None or not isinstance(loss.loss, OneVersusRest)
]


def targets_of(loss: ClassWeighted, count: int) -> Any:
    rng = np.random.default_rng(1)
    two = loss.n_outputs == 1
    return rng.choice([-1.0, 1.0], count) if two else rng.integers(0, loss.n_outputs, count)


def one_gradient(loss: Loss, row: FloatArray, target: Any, w: FloatArray, clip: Any) -> FloatArray:
    """Return what the engine adds up for one record."""
    records = ArrayRecords(row[None], np.array([target]), Terms(loss, 1.0, clip))
    return records.gradient(w, slice(None))


@pytest.mark.parametrize(("loss", "clip"), CASES, ids=repr)
def test_no_record_exceeds_the_constants_and_the_heaviest_attains_them(
    loss: ClassWeighted, clip: float | None
) -> None:
    """The worst neighbors: a record of the heaviest class, at weights where it is steepest."""
    geometry = loss.geometry(1.0, clip)
    row = np.array([0.6, -0.8])
    k = loss.n_outputs
    rng = np.random.default_rng(0)
    labels = [-1.0, 1.0] if k == 1 else list(range(k))
    longest = steepest = 0.0
    for label in labels:
        away = row if k == 1 else np.outer(row, np.where(np.arange(k) == label, -1.0, 0.5))
        towards = -label * away if k == 1 else away
        # Far on the wrong side, at random, and two points a little apart.
        for w in (40 * towards, *rng.normal(size=(200, *towards.shape))):
            found = one_gradient(loss, row, label, w, clip)
            longest = max(longest, float(np.linalg.norm(found)))
            push = 1e-4 * (row if k == 1 else np.outer(row, rng.normal(size=k)))
            other = one_gradient(loss, row, label, w + push, clip)
            turned = float(np.linalg.norm(other - found) / np.linalg.norm(push))
            steepest = max(steepest, turned)
            if geometry.convex:
                assert np.sum((other - found) * push) >= -1e-9
    assert longest <= geometry.lipschitz * (1 + 1e-11)
    assert longest >= (0.75 if k > 1 else 0.999) * geometry.lipschitz
    assert steepest <= geometry.smoothness * (1 + 1e-5) + 1e-7
    unweighted = loss.loss.geometry(1.0, None if clip is None else clip / loss.heaviest)
    assert geometry.smoothness >= loss.heaviest * unweighted.smoothness


def test_a_step_of_a_corner_grows_by_the_largest_weight() -> None:
    assert ClassWeighted(Hinge(), (3.0, 1.0)).geometry(2.0).holders[0].constant >= 6.0


@pytest.mark.parametrize(("loss", "clip"), CASES, ids=repr)
def test_every_way_to_sum_gives_the_weighted_sum(loss: ClassWeighted, clip: float | None) -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(301, 5))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None] * (1 + 1e-9)
    targets = targets_of(loss, len(rows))
    w = 3 * rng.normal(size=(5,) if loss.n_outputs == 1 else (5, loss.n_outputs))
    slopes = loss.loss.derivative(rows @ w, targets).reshape(len(rows), -1)
    if clip is not None:
        most = clip / loss.heaviest / np.linalg.norm(rows, axis=1)
        lengths = np.maximum(np.linalg.norm(slopes, axis=1), 1e-300)
        slopes = slopes * np.minimum(1.0, most / lengths)[:, None]
    expected = (rows.T @ (slopes * loss.of(targets)[:, None])).reshape(w.shape)
    terms = Terms(loss, 1.0, clip)
    ways = [
        ArrayRecords(rows, targets, terms).gradient(w, slice(None)),
        ArrayRecords(rows, targets, terms).gradient(w, np.arange(len(rows))),
        ArrayRecords(csr_array(rows), targets, terms).gradient(w, slice(None)),
        SourceRecords(ArraySource(rows, targets), terms, len(rows)).gradient(w, slice(None)),
        SourceRecords(ArraySource(np.asfortranarray(rows), targets), terms, len(rows)).gradient(
            w, slice(None)
        ),
    ]
    for found in ways:
        assert np.allclose(found, expected, rtol=0, atol=1e-9)


def test_training_finds_what_scikit_learn_finds_with_the_same_weights() -> None:
    rng = np.random.default_rng(3)
    rows = rng.uniform(-0.7, 0.7, size=(400, 2))
    labels = np.where(rng.uniform(size=400) < 1 / (1 + np.exp(2 - 3 * rows[:, 0])), 1.0, -1.0)
    loss, ridge = ClassWeighted(Logistic(), (0.3, 2.0)), 0.01
    run = NoisyGD(
        n=400,
        steps=3000,
        learning_rate=1.5,
        l2=ridge,
        noise_std=1e-9,
        loss=loss.geometry(1.0),
        release="last",
    )
    found = train(run, loss, rows, labels, feature_norm=1.0, randomness=SeededRandomness(0))
    model = LogisticRegression(
        class_weight={-1.0: 0.3, 1.0: 2.0}, C=1 / (400 * ridge), fit_intercept=False, tol=1e-12
    ).fit(rows, labels)
    assert np.allclose(found, model.coef_[0], atol=1e-4)
    unweighted = LogisticRegression(C=1 / (400 * ridge), fit_intercept=False).fit(rows, labels)
    assert np.abs(found - unweighted.coef_[0]).max() > 0.1


def test_a_forged_weight_is_refused_by_trainer_and_verifier() -> None:
    """A run that declares the constants of lighter classes neither trains nor verifies."""
    rows, labels = np.array([[0.5], [-0.5]] * 50), np.array([1.0, -1.0] * 50)
    honest, heavier = ClassWeighted(Logistic(), (0.5, 1.0)), ClassWeighted(Logistic(), (0.5, 4.0))
    run = NoisyGD(
        n=100,
        steps=10,
        learning_rate=1.0,
        l2=0.1,
        noise_std=0.05,
        loss=honest.geometry(1.0),
        release="last",
    )
    train(run, honest, rows, labels, feature_norm=1.0, randomness=SeededRandomness(0))
    with pytest.raises(InvalidInput, match=r"declares lipschitz=1, but ClassWeighted.* has 4"):
        train(run, heavier, rows, labels, feature_norm=1.0)
    claim = certify(run, 1e-5)
    assert verify(claim.to_dict()).ok
    true = certify(run.replace(loss=heavier.geometry(1.0)), 1e-5)
    assert verify(true.to_dict()).ok
    assert true.claimed_epsilon > 2 * claim.claimed_epsilon
    assert not verify(forged(true.to_dict(), claimed_epsilon=claim.claimed_epsilon)).ok


def test_weights_that_are_none_are_refused() -> None:
    for weights, said in (
        ((1.0,), "needs 2 class weights; got 1"),
        ((1.0, 0.0), "class weight"),
        ((1.0, float("nan")), "class weight"),
        ((1.0, float("inf")), "class weight"),
    ):
        with pytest.raises(InvalidInput, match=said):
            ClassWeighted(Logistic(), weights)
    with pytest.raises(InvalidInput, match="need a loss of classes"):
        ClassWeighted(Huber(), (1.0, 1.0))
