"""Bounds that nobody knows: found with noise, described, charged, verified and attacked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dplateau import InvalidInput, LossGeometry, NoisyGD, audit_trainer, certify, plan
from dplateau.engines import SeededRandomness
from dplateau.engines.ranges import ROUNDS, noisy_ranges, ranges_run
from dplateau.estimators import PrivateHuberRegressor, PrivateLogisticRegression, PrivateRidge
from dplateau.ground.types import FloatArray

rng = np.random.default_rng(0)
SIZES = np.array([0.02, 3.0, 4e5])
ROWS = rng.normal(size=(8000, 3)) * SIZES + 2 * SIZES
LEVELS = ROWS / SIZES
TARGETS = 1e6 * (LEVELS @ [1.0, -0.5, 0.3] + 0.2 * rng.normal(size=8000))


def search(n: int, columns: int, z: float, neighbors: Any = "add_remove") -> Any:
    return ranges_run(n=n, columns=columns, noise_multiplier=z, neighbors=neighbors, group_size=1)


def test_without_noise_the_quantiles_are_found_at_every_size() -> None:
    low, high = noisy_ranges(search(8000, 3, 1e-9), ROWS, randomness=SeededRandomness(1))
    first, last = np.quantile(ROWS, [0.01, 0.99], axis=0)
    np.testing.assert_allclose(low / SIZES, first / SIZES, atol=0.1)
    np.testing.assert_allclose(high / SIZES, last / SIZES, atol=0.1)


def test_noise_does_not_send_the_search_far_away() -> None:
    """One wrong turn in the first rounds would make a range a thousand times too wide."""
    draws = np.random.default_rng(5)
    values = np.column_stack([draws.normal(size=1000), draws.uniform(18, 90, 1000)])
    widths = np.ptp(values, axis=0)
    for seed in range(60):
        low, high = noisy_ranges(search(1000, 2, 20.0), values, randomness=SeededRandomness(seed))
        assert np.all(high - low < 3 * widths)


def test_constant_columns_get_a_range_all_the_same() -> None:
    constant = np.tile([[0.0, 5.0, -1e9]], (50, 1))
    low, high = noisy_ranges(search(50, 3, 0.5), constant, randomness=SeededRandomness(2))
    assert np.all(low < high)
    assert np.all(np.isfinite(high - low))


def test_only_the_run_that_describes_the_search_is_taken() -> None:
    other = NoisyGD(n=9, steps=ROUNDS, learning_rate=1.0, noise_multiplier=1.0, release="last",
                    loss=LossGeometry(lipschitz=9.0, convex=True))  # fmt: skip
    with pytest.raises(InvalidInput, match="use ranges_run"):
        noisy_ranges(other, np.zeros((9, 1)), randomness=SeededRandomness(0))
    with pytest.raises(InvalidInput, match="up to 1 long"):
        noisy_ranges(search(9, 1, 1.0), np.zeros((9, 2)), randomness=SeededRandomness(0))
    with pytest.raises(InvalidInput, match="more rows"):
        noisy_ranges(search(9, 2, 1.0), np.zeros((10, 2)), randomness=SeededRandomness(0))
    with pytest.raises(InvalidInput, match="finite"):
        noisy_ranges(search(1, 1, 1.0), np.array([[np.nan]]), randomness=SeededRandomness(0))


class Recorder(SeededRandomness):
    """Noise that is counted."""

    drawn = 0

    def gaussian(self, count: int) -> FloatArray:
        self.drawn += count
        return super().gaussian(count)


def test_every_round_draws_noise_for_every_threshold() -> None:
    source = Recorder(3)
    noisy_ranges(search(100, 4, 2.0), rng.normal(size=(100, 4)), randomness=source)
    assert source.drawn == ROUNDS * 2 * 4


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
def test_a_record_moves_a_round_by_what_is_charged(neighbors: Any) -> None:
    """The worst pair of records, by the counts themselves: half of sqrt(2 k), or all of it."""
    k = 3
    run = search(1, k, 1.0, neighbors)
    one, two = np.full(2 * k, 0.5), np.full(2 * k, -0.5)
    moved = np.linalg.norm(one - two) if neighbors == "replace" else np.linalg.norm(one)
    factor = 2 if neighbors == "replace" else 1
    assert moved <= factor * run.loss.lipschitz * (1 + 1e-12)
    claim = certify(run, 1e-5)
    assert claim.verify().ok
    # Twelve rounds at distance factor: nothing less is claimed than Gaussian composition.
    whole = NoisyGD(n=1, steps=ROUNDS, noise_multiplier=1.0, release="all", neighbors=neighbors)
    assert math.isclose(claim.claimed_epsilon, certify(whole, 1e-5).claimed_epsilon, rel_tol=1e-6)


class QuietRandomness(SeededRandomness):
    """Noise of a tenth of the size."""

    def gaussian(self, count: int) -> FloatArray:
        return super().gaussian(count) / 10


def verdict(kind: Any, runs: int) -> str:
    run = search(1, 1, 3.0)

    def found(data: Any, random: np.random.Generator) -> list[float]:
        noise = kind(int(random.integers(2**31)))
        return [
            float(np.arcsinh(1e3 * side[0])) for side in noisy_ranges(run, data, randomness=noise)
        ]

    data, neighbor = np.array([[1e6]]), np.zeros((0, 1))
    return audit_trainer(found, certify(run, 1e-5), data, neighbor, runs=runs, seed=4).verdict


def test_the_audit_passes_the_search_and_catches_too_little_noise() -> None:
    assert verdict(SeededRandomness, 500) == "not violated"
    assert verdict(QuietRandomness, 500) == "violated"


def test_a_plan_pays_for_ranges_moments_and_gradients_together() -> None:
    found = plan(n=8000, d=3, loss="squared", epsilon=1.0, private_ranges=4)
    assert found.ranges is not None
    assert len(found.before) == 1 + len(found.moments) > 1
    assert found.certificate.claimed_epsilon <= 1.0
    assert found.certificate.verify().ok
    assert "bounds are found by noisy bisection" in found.summary
    for name in ("sgd", "sgd_momentum"):
        with pytest.raises(InvalidInput, match="with private bounds"):
            plan(n=8000, d=3, algorithm=name, private_ranges=1)
    with pytest.raises(InvalidInput, match="recipe of full batches"):
        plan(n=8000, d=3, algorithm=found.run, private_ranges=1)


def test_nothing_has_to_be_known() -> None:
    model = PrivateRidge(epsilon=2.0, feature_bounds="private", target_bound="private")
    model.fit(ROWS, TARGETS)
    assert model.certificate_.claimed_epsilon <= 2.0
    assert model.certificate_.verify().ok
    assert model.score(ROWS, TARGETS) > 0.7
    low, high = model.target_bound_
    assert low < np.median(TARGETS) < high
    found = model.predict(ROWS)
    assert low <= found.min() < found.max() <= high


def test_some_columns_may_be_known() -> None:
    kinds = {0: (0, 0.1), 1: "private", 2: ("nonnegative", 2e6)}
    model = PrivateLogisticRegression(epsilon=2.0, classes=[0, 1], feature_bounds=kinds)
    model.fit(ROWS, (LEVELS[:, 1] > 2).astype(int))
    columns = model.row_map_.columns
    assert (columns.low[0], columns.high[0], columns.center[2]) == (0, 0.1, 0)
    assert -6 < columns.low[1] < 3 < 9 < columns.high[1] < 20
    assert model.plan_.ranges.run.loss.lipschitz == math.sqrt(2) / 2


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(InvalidInput, match="dense arrays in memory"):
        PrivateLogisticRegression(classes=[0, 1], feature_bounds="private").fit(
            csr_array(ROWS), (ROWS[:, 0] > 0).astype(int)
        )
    with pytest.raises(InvalidInput, match="units of y"):
        PrivateHuberRegressor(target_bound="private", threshold=1.0, data_norm=1.0).fit(
            ROWS, TARGETS
        )
