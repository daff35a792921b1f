"""Whitening maps: white where the moments are known, short always, the same for prediction."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplateau.engines.rows import row_norms
from dplateau.errors import InvalidInput
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


def test_the_map_goes_through_json():
    found = whitening_of(np.diag([1.0, 0.1]), 1e-3, 1.0)
    (again,) = whitening_from_dict(whitening_to_dict((found,)), 2)
    assert np.array_equal(again.matrix, found.matrix)
    with pytest.raises(InvalidInput, match="whitening needs 3 x 3 matrices"):
        whitening_from_dict(whitening_to_dict((found,)), 3)
