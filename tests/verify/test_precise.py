"""Curves of fifty digits and Rényi divergences, against numbers known from elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplateau.verify.precise import (
    best_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    sampled_divergences,
)


def test_gaussian_curves_of_fifty_digits() -> None:
    assert gaussian_epsilon(1.0, 1e-5) == pytest.approx(4.377178, abs=1e-6)
    assert 0 < gaussian_delta(800, 1) < 1e-300
    assert gaussian_epsilon(0.0, 1e-5) == 0
    assert gaussian_epsilon(1e-7, 1e-5) == 0
    assert gaussian_epsilon(0.0, 0.0) == 0
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    assert all(gaussian_delta(10.0**power, 1) > 0 for power in range(0, 40, 4))


@pytest.mark.parametrize(
    ("order", "divergence", "epsilon"),
    [
        (10, 1.0, 1.917997),
        (5, 0.5, 2.716384),
        (2, 0.1, 7.874843),
        (2, 0.01, 5.530437),
        (10, 1e-4, 0.175289),
    ],
)
def test_best_conversion_of_a_renyi_divergence(
    order: float, divergence: float, epsilon: float
) -> None:
    assert best_epsilon(order, divergence, 1e-5) == pytest.approx(epsilon, abs=1e-6)


def test_sampled_divergence_of_whole_order() -> None:
    """For order 2 it is log(1 + q^2 (e^(d^2) - 1))."""
    rates, distances = np.array([1e-4, 0.01, 1.0, 0.3]), np.array([0.2, 1.0, 1.5, 2.5])
    exact = np.log1p(rates**2 * np.expm1(distances**2))
    derived = sampled_divergences(2.0, rates, distances)
    assert np.all(exact * (1 - 1e-15) <= derived)
    assert np.all(derived <= exact * (1 + 1e-10))
    alone = [sampled_divergences(2.0, rates[[i]], distances[[i]])[0] for i in range(4)]
    assert derived == pytest.approx(alone, rel=1e-12)
