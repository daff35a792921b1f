"""Noisy second moments: exact sums, the described noise, and one record's share of them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dplateau import certify
from dplateau.algorithms import NoisyGD
from dplateau.engines import SeededRandomness, scale_rows
from dplateau.engines.moments import BITS, MOST_ROWS, moments_run, noisy_moments
from dplateau.engines.rows import NORM_ROOM
from dplateau.errors import InvalidInput

NORM = 1.25


class NoNoise(SeededRandomness):
    """The same release without its noise, so that sums can be looked at."""

    def gaussian(self, count):
        return np.zeros(count)


def described(n, multiplier=2.0, **more):
    options = {"neighbors": "add_remove", "group_size": 1} | more
    return moments_run(n=n, feature_norm=NORM, noise_multiplier=multiplier, **options)


def random_rows(n, p, dtype, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, p)).astype(dtype)
    return scale_rows(rows, NORM)


def bare(rows):
    return noisy_moments(described(len(rows)), rows, feature_norm=NORM, randomness=NoNoise(0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_those_of_the_cut_rows_exactly(dtype):
    rows = random_rows(300, 3, dtype)
    unit = Fraction(2) ** (math.frexp(NORM)[1] - BITS)
    cut = [[unit * int(Fraction(float(x)) / unit) for x in row] for row in rows]  # towards zero
    for i in range(3):
        for j in range(3):
            exact = sum(row[i] * row[j] for row in cut) / 300
            assert bare(rows)[i, j] == pytest.approx(float(exact), rel=1e-15)


def test_cutting_costs_little():
    rows = random_rows(5000, 4, np.float64)
    assert np.abs(bare(rows) - rows.T @ rows / 5000).max() < 2 * NORM**2 / 2**BITS * 4


@pytest.mark.parametrize("n", [1, 1000, 100_000])
def test_one_record_moves_the_sum_by_its_own_share_whatever_the_others(n):
    """Identical rows are the worst case of floating-point sums; a last row is long or absent."""
    rows = np.tile(scale_rows(np.array([[3.0, -4.0, 5.0]], np.float32), NORM), (n + 1, 1))
    absent = rows.copy()
    absent[-1] = 0.0
    moved = (bare(rows) - bare(absent)) * (n + 1)
    assert np.linalg.norm(moved) <= NORM**2 * (1 + 1e-9)
    assert np.linalg.norm(moved) >= NORM**2 * (1 - 1e-3)


def test_the_noise_is_white_in_the_frobenius_norm():
    run, rows = described(10, multiplier=5.0), np.zeros((10, 40), np.float32)
    noise = noisy_moments(run, rows, feature_norm=NORM, randomness=SeededRandomness(3))
    assert np.array_equal(noise, noise.T)
    diagonal, beside = np.diag(noise), noise[np.triu_indices(40, 1)]
    # 5 standard errors of a sample deviation
    assert diagonal.std() == pytest.approx(run.noise_std, rel=5 / math.sqrt(2 * 40))
    assert beside.std() == pytest.approx(run.noise_std / math.sqrt(2), rel=5 / math.sqrt(2 * 780))


@pytest.mark.parametrize(("neighbors", "size", "factor"), [("add_remove", 1, 1), ("replace", 3, 6)])
def test_the_description_is_a_gaussian_mechanism(neighbors, size, factor):
    run = described(50, multiplier=8.0, neighbors=neighbors, group_size=size)
    certificate = certify(run, delta=1e-5)
    alone = certify(NoisyGD(n=1, steps=1, noise_multiplier=8.0 / factor, release="all"), delta=1e-5)
    assert certificate.claimed_epsilon == pytest.approx(alone.claimed_epsilon, rel=1e-6)
    assert certificate.verify().ok


def test_a_longer_row_is_refused():
    rows = random_rows(20, 3, np.float64) * 1.01
    with pytest.raises(InvalidInput, match="some rows are longer than feature_norm"):
        bare(rows)
    rows /= 2
    rows[3, 1] = np.nan
    with pytest.raises(InvalidInput, match="must be finite numbers; row 3, column 1"):
        bare(rows)


def test_more_rows_than_whole_numbers_hold_are_refused():
    """The longest rows have 2^BITS units, but for what checks of norms let pass."""
    assert np.iinfo(np.int64).max > (2**BITS * (1 + NORM_ROOM)) ** 2 * MOST_ROWS
    with pytest.raises(InvalidInput, match="at most 2,000,000,000 rows; got n = 2,000,000,001"):
        noisy_moments(
            described(MOST_ROWS + 1), np.zeros((1, 2)), feature_norm=NORM, randomness=NoNoise(0)
        )


def test_another_description_is_refused():
    rows = random_rows(20, 3, np.float64)
    two_steps = described(20).replace(steps=2)
    with pytest.raises(InvalidInput, match="does not describe second moments of 20 rows"):
        noisy_moments(two_steps, rows, feature_norm=NORM, randomness=NoNoise(0))
    with pytest.raises(InvalidInput, match="are up to 4 long"):
        noisy_moments(described(20), rows, feature_norm=2.0, randomness=NoNoise(0))
