"""Whitening maps: white where the moments are known, short always, the same for prediction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from dplateau.engines.rows import row_norms, scale_rows
from dplateau.errors import InvalidInput
from dplateau.estimators import PrivateLogisticRegression, PrivateRidge
from dplateau.estimators.whitening import bent, bent_unit, whitening_of


def skewed_rows(n=4000, p=6, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, p)) * 10.0 ** -np.arange(p)
    turn = np.linalg.qr(rng.normal(size=(p, p)))[0]
    return rows @ turn / 10


def test_known_moments_become_white():
    rows = skewed_rows()
    moments = rows.T @ rows / len(rows)
    found = whitening_of(moments, 1e-18, 1.0)
    turned = rows @ found.matrix
    assert np.allclose(turned.T @ turned / len(rows) * 6, np.eye(6), atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("noise", [1e-12, 1e-4, 0.1])
def test_rows_come_out_short_whatever_the_noise(dtype, noise):
    rows = skewed_rows().astype(dtype)
    rng = np.random.default_rng(1)
    disturbance = rng.normal(size=(6, 6)) * noise
    found = whitening_of(rows.T @ rows / len(rows) + disturbance + disturbance.T, noise, 1.0)
    mapped = found.rows(rows)
    assert mapped.dtype == dtype
    assert row_norms(mapped).max() <= 1.0
    shares = found.shares(rows.astype(float) @ found.matrix)
    again = (rows.astype(float) @ found.matrix) * shares[:, None]
    assert np.allclose(mapped, again, rtol=1e-5, atol=1e-6)


def test_pure_noise_changes_no_more_than_a_turn():
    """With nothing but noise all directions are stretched nearly alike, by at most its size."""
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(30, 30)) / math.sqrt(2)
    found = whitening_of(noise + noise.T, 1.0, 1e9)
    sizes = np.linalg.svd(found.matrix, compute_uv=False)
    assert sizes.max() / sizes.min() < 2


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_scores_are_those_of_the_rows_that_were_trained_on(fit_intercept):
    """Predicting from coefficients in original units equals mapping the rows step by step."""
    rng = np.random.default_rng(3)
    rows, labels = rng.uniform(0, 10, size=(3000, 3)), rng.integers(0, 2, 3000)
    model = PrivateLogisticRegression(
        classes=[0, 1], feature_bounds=(0, 10), fit_intercept=fit_intercept
    )
    model.fit(rows, labels)
    found = model.row_map_
    assert len(found.whitening) == len(model.plan_.moments) > 0
    mapped, unscaled = found.training_rows(rows, len(rows)), model.coef_ * found.half
    weights = np.append(unscaled, (model.intercept_ + found._at_center(model.coef_)))
    weights[3:] /= found.intercept or 1.0
    turn = np.eye(mapped.shape[1])
    for one in found.whitening:
        mapped, turn = one.rows(mapped), turn @ one.matrix
    inner = np.linalg.solve(turn, weights[: mapped.shape[1]])
    assert np.allclose(mapped @ inner, model.decision_function(rows), atol=1e-6)
    sparse = csr_array(rows - 5)
    with pytest.raises(InvalidInput, match="symmetric about 0"):
        model.decision_function(sparse)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_regressions_predict_with_both_slopes(fit_intercept):
    """Mapping rows step by step, bent ones too, gives what is predicted in original units."""
    rng = np.random.default_rng(5)
    rows = rng.exponential(size=(3000, 2))
    targets = np.clip(40 + 3 * rows[:, 0] - rows[:, 1], 0, 100)
    model = PrivateRidge(
        feature_bounds=(0, [5.0, 8.0]), target_bound=(0, 100), fit_intercept=fit_intercept
    ).fit(rows, targets)
    found, half, center = model.row_map_, model.target_range.half, model.target_range.center
    bend = found.bend
    assert found.slopes == 2
    assert 0.2 < bend < 0.8
    mapped = found.training_rows(rows, len(rows))
    turn = np.eye(mapped.shape[1])
    for one in found.whitening:
        mapped, turn = one.rows(mapped), turn @ one.matrix
    assert 0.01 < np.mean(row_norms(mapped) > bend) < 0.99
    weights = []
    for coef, intercept in (
        (model.coef_, model.intercept_ - center),
        (model.coef_beyond_, model.intercept_beyond_),
    ):
        last = [intercept + found._at_center(coef[None])[0]] if fit_intercept else []
        weights.append(np.concatenate([coef * found.half, np.array(last) / found.intercept]))
    inner = np.linalg.solve(turn, np.array(weights).T / half / bent_unit(bend))
    by_hand = bent(mapped, bend) @ inner.T.ravel() * half + center
    assert np.allclose(np.clip(by_hand, 0, 100), model.predict(rows), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bend", [0.25, 0.5])
def test_bent_rows_are_short_and_add_up(dtype, bend):
    rows = skewed_rows().astype(dtype)
    rows = scale_rows(rows * 30, 1.0)
    found = bent(rows, bend)
    assert found.dtype == dtype
    assert row_norms(found).max() <= 1.0
    assert np.allclose(found[:, :6] + found[:, 6:], rows * bent_unit(bend), atol=1e-6)
    short = row_norms(rows) <= bend
    assert 0 < short.sum() < len(rows)
    assert not found[short, 6:].any()


def test_a_plain_line_is_learned_whole_and_so_is_its_level():
    """Shortening white rows must flatten neither a line nor the middle of the targets."""
    rng = np.random.default_rng(8)
    rows = rng.uniform(0, 10, size=(20000, 2))
    targets = 50 + 4 * rows[:, 0] - 2 * rows[:, 1]
    model = PrivateRidge(epsilon=4.0, feature_bounds=(0, 10), target_bound=(0, 110))
    model.fit(rows, targets)
    assert model.plan_.moments
    assert model.score(rows, targets) > 0.97


def test_sparse_rows_are_not_whitened():
    rng = np.random.default_rng(4)
    rows, labels = csr_array(rng.normal(size=(3000, 3)) / 4), rng.integers(0, 2, 3000)
    model = PrivateLogisticRegression(classes=[0, 1], data_norm=1.0).fit(rows, labels)
    assert model.row_map_.whitening == () == model.plan_.moments


def test_the_certificate_covers_moments_and_gradients():
    rng = np.random.default_rng(6)
    rows, labels = rng.normal(size=(3000, 3)) / 4, rng.integers(0, 2, 3000)
    model = PrivateLogisticRegression(classes=[0, 1], data_norm=1.0).fit(rows, labels)
    assert len(model.certificate_.parts) == 1 + len(model.plan_.moments) > 1
    assert model.certificate_.verify().ok
    assert 0.99 < model.certificate_.claimed_epsilon <= 1.0
