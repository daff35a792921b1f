"""Whitening maps: white where the moments are known, short always, the same for prediction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from dplateau.engines.rows import row_norms
from dplateau.errors import InvalidInput
from dplateau.estimators import PrivateLogisticRegression
from dplateau.estimators.whitening import whitening_from_dict, whitening_of, whitening_to_dict


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
    weights = np.append(unscaled, (model.intercept_ + found._at_centre(model.coef_)))
    weights[3:] /= found.intercept or 1.0
    turn = np.eye(mapped.shape[1])
    for one in found.whitening:
        mapped, turn = one.rows(mapped), turn @ one.matrix
    inner = np.linalg.solve(turn, weights[: mapped.shape[1]])
    assert np.allclose(mapped @ inner, model.decision_function(rows), atol=1e-6)
    sparse = csr_array(rows - 5)
    with pytest.raises(InvalidInput, match="symmetric about 0"):
        model.decision_function(sparse)


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


def test_the_map_goes_through_json():
    found = whitening_of(np.diag([1.0, 0.1]), 1e-3, 1.0)
    (again,) = whitening_from_dict(whitening_to_dict((found,)), 2)
    assert np.array_equal(again.matrix, found.matrix)
    with pytest.raises(InvalidInput, match="whitening needs 3 x 3 matrices"):
        whitening_from_dict(whitening_to_dict((found,)), 3)
