"""Gaussian and Laplace hockey sticks against arbitrary precision.

The oracle is the textbook formula, which is exact once enough digits are carried.  Every check has
two sides: the reported number is never below the oracle, and exceeds it by no more than is stated.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfcx, ndtri

from dplateau.errors import InvalidInput
from dplateau.numerics.normal import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_tradeoff,
    laplace_delta,
    laplace_epsilon,
    log_gaussian_delta,
)

DELTA_EXCESS = 1e-10  # relative, wherever delta > 1e-300
LOG_EXCESS = 1e-13  # relative to log delta, deeper down


def theta(epsilon: float, mu: float, digits: int = 60) -> mp.mpf:
    """Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), with room for the cancellation."""
    near_one = epsilon / mu - mu / 2 < -3
    lost = 360 if near_one else 2 * max(0, -math.floor(math.log10(mu)))
    with mp.workdps(digits + lost):
        eps, size = mp.mpf(epsilon), mp.mpf(mu)
        lower, upper = eps / size - size / 2, eps / size + size / 2
        root = mp.sqrt(2)
        return (mp.erfc(lower / root) - mp.exp(eps) * mp.erfc(upper / root)) / 2


def relative(value: float, exact: mp.mpf) -> float:
    with mp.workdps(60):
        return float((mp.mpf(value) - exact) / exact)


def sample(count: int, seed: int) -> list[tuple[float, float]]:
    """Pairs (epsilon, mu): mu over ten decades, epsilon spread over the tail that matters."""
    rng = np.random.default_rng(seed)
    mu = 10 ** rng.uniform(-6, 4, count)
    reach = rng.uniform(-8, 38, count)
    epsilon = np.clip((reach + mu / 2) * mu, 0.0, 1e6)
    epsilon[::6] = 10 ** rng.uniform(-6, 6, len(epsilon[::6]))
    epsilon[::40] = 0.0
    return [(float(e), float(m)) for e, m in zip(epsilon, mu, strict=True)]


def check_delta(epsilon: float, mu: float, delta: float, log_delta: float) -> None:
    exact = theta(epsilon, mu)
    if exact > mp.mpf("1e-300"):
        assert 0.0 <= relative(delta, exact) <= DELTA_EXCESS, (epsilon, mu)
    with mp.workdps(400):
        log_exact = mp.log(exact)
        assert mp.mpf(log_delta) >= log_exact, (epsilon, mu)
        allowed = DELTA_EXCESS + LOG_EXCESS * abs(log_exact)
        assert mp.mpf(log_delta) - log_exact <= allowed, (epsilon, mu)


class TestGaussianDelta:
    def test_is_the_exact_value_rounded_up(self):
        points = sample(1200, seed=1)
        eps, mu = (np.array(column) for column in zip(*points, strict=True))
        deltas, logs = gaussian_delta(eps, mu), log_gaussian_delta(eps, mu)
        for (e, m), delta, log_delta in zip(points, deltas, logs, strict=True):
            check_delta(e, m, float(delta), float(log_delta))

    @pytest.mark.parametrize("mu", [1e-9, 1e-30, 1e-150])
    @pytest.mark.parametrize("ratio", [0.0, 0.1, 1.0, 7.9, 8.1, 20.0])
    def test_stays_accurate_for_vanishing_mu(self, mu, ratio):
        epsilon = ratio * mu
        assert 0.0 <= relative(gaussian_delta(epsilon, mu), theta(epsilon, mu)) <= 1e-12

    @pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.5, 1.0, 30.0])
    @pytest.mark.parametrize("epsilon", [1e3, 1e5, 1e6])
    def test_the_logarithm_has_no_floor(self, epsilon, mu):
        check_delta(epsilon, mu, gaussian_delta(epsilon, mu), log_gaussian_delta(epsilon, mu))

    @pytest.mark.parametrize(("epsilon", "mu"), [(3e-4, 1.0), (0.7, 0.5), (5.0, 2.0), (40.0, 6.0)])
    def test_negative_epsilon_is_the_hockey_stick_below_one(self, epsilon, mu):
        delta = gaussian_delta(-epsilon, mu)
        assert 0.0 <= relative(delta, theta(-epsilon, mu)) <= DELTA_EXCESS
        assert delta == pytest.approx(
            -math.expm1(-epsilon) + math.exp(-epsilon) * gaussian_delta(epsilon, mu)
        )

    def test_where_the_plain_formula_has_no_value(self):
        assert log_gaussian_delta(800.0, 1.0) == pytest.approx(-319614.413166, abs=1e-6)

    def test_limits(self):
        assert gaussian_delta(0.0, 0.0) == 0.0
        assert log_gaussian_delta(3.0, 0.0) == -math.inf
        assert gaussian_delta(-1.0, 0.0) == pytest.approx(1.0 - math.exp(-1.0), rel=1e-14)
        assert gaussian_delta(5.0, math.inf) == 1.0
        assert gaussian_delta(math.inf, 5.0) == 0.0
        assert gaussian_delta(0.0, 1e4) == 1.0

    def test_underflow_is_never_reported_as_zero(self):
        assert gaussian_delta(1e6, 1e-3) == 5e-324
        assert log_gaussian_delta(1e300, 1e-300) == np.finfo(float).min

    def test_scalars_give_floats_and_arrays_broadcast(self):
        assert type(gaussian_delta(1.0, 1.0)) is float
        grid = gaussian_delta(np.array([[0.0], [1.0]]), np.array([0.5, 1.0, 2.0]))
        assert grid.shape == (2, 3)
        assert grid[1, 1] == gaussian_delta(1.0, 1.0)
        assert gaussian_delta(np.zeros(0), 1.0).shape == (0,)

    @pytest.mark.parametrize("mu", [-1.0, math.nan])
    def test_refuses_a_negative_distance(self, mu):
        with pytest.raises(InvalidInput, match="mu is a distance"):
            gaussian_delta(1.0, mu)

    def test_refuses_a_missing_epsilon(self):
        with pytest.raises(InvalidInput, match="epsilon must be a number"):
            gaussian_delta(math.nan, 1.0)

    @settings(max_examples=150, deadline=None)
    @given(st.floats(0, 1e3), st.floats(1e-6, 1e3), st.floats(1e-6, 0.5))
    def test_falls_in_epsilon_and_grows_in_mu(self, epsilon, mu, step):
        delta = gaussian_delta(epsilon, mu)
        assert gaussian_delta(epsilon * (1 + step) + step, mu) <= delta * (1 + DELTA_EXCESS)
        assert gaussian_delta(epsilon, mu * (1 + step)) * (1 + DELTA_EXCESS) >= delta


def test_error_allowed_to_the_scaled_complementary_error_function():
    # The bound used for every delta; a new scipy that breaks it must not go unnoticed.
    rng = np.random.default_rng(3)
    points = np.concatenate([rng.uniform(-0.75, 30, 800), 10 ** rng.uniform(-12, 12, 300)])
    with mp.workdps(40):
        for x in map(float, points):
            exact = mp.exp(mp.mpf(x) ** 2) * mp.erfc(mp.mpf(x))
            assert abs(relative(float(erfcx(x)), exact)) < 2e-15


class TestGaussianEpsilon:
    @pytest.mark.parametrize(
        ("delta", "mu", "epsilon"),
        [  # accounting of full batches: mu and epsilon to six digits
            (1e-5, 1.0, 4.377178),
            (1e-5, 0.620813, 2.540615),
            (1e-5, 0.624500, 2.557622),
            (1e-5, 1.410674, 6.553399),
        ],
    )
    def test_golden(self, delta, mu, epsilon):
        assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, abs=6e-6)

    def test_golden_to_six_digits(self):
        assert round(gaussian_epsilon(1e-5, 1.0), 6) == 4.377178

    def test_is_the_exact_value_rounded_up(self):
        rng = np.random.default_rng(2)
        for _ in range(250):
            mu, delta = float(10 ** rng.uniform(-6, 3)), float(10 ** rng.uniform(-300, -0.01))
            epsilon = gaussian_epsilon(delta, mu)
            assert gaussian_delta(epsilon, mu) <= delta
            if 0.0 < epsilon <= 1e6:
                assert theta(epsilon, mu) <= delta
                less = epsilon - 1e-9 * epsilon - 1e-10 * mu
                assert less < 0.0 or theta(less, mu) > delta, (mu, delta)

    @pytest.mark.parametrize("log_delta", [-1e-3, -5.0, -1e3, -1e6, -1e12, -1e30])
    def test_accepts_the_logarithm_of_delta_at_any_depth(self, log_delta):
        epsilon = gaussian_epsilon(None, 40.0, log_delta=log_delta)
        assert log_gaussian_delta(epsilon, 40.0) <= log_delta
        assert log_gaussian_delta(epsilon * (1 - 1e-9), 40.0) > log_delta

    def test_both_ways_of_giving_the_level_agree(self):
        direct = gaussian_epsilon(1e-250, 2.0)
        assert gaussian_epsilon(None, 2.0, log_delta=math.log(1e-250)) == pytest.approx(direct)

    def test_is_zero_once_delta_covers_the_total_variation(self):
        delta = gaussian_delta(0.0, 0.3)
        assert gaussian_epsilon(delta, 0.3) == 0.0
        assert gaussian_epsilon(delta * (1 - 1e-6), 0.3) > 0.0
        assert gaussian_epsilon(1.0, 1e4) == 0.0

    def test_limits(self):
        assert gaussian_epsilon(0.0, 0.0) == 0.0
        assert gaussian_epsilon(0.0, 1.0) == math.inf
        assert gaussian_epsilon(0.5, math.inf) == math.inf
        assert gaussian_epsilon(1.0, math.inf) == 0.0

    @pytest.mark.parametrize("delta", [-1e-9, 1.5, math.nan])
    def test_refuses_what_is_no_probability(self, delta):
        with pytest.raises(InvalidInput, match="delta is a probability"):
            gaussian_epsilon(delta, 1.0)

    @pytest.mark.parametrize(("delta", "log_delta"), [(None, None), (0.1, -1.0)])
    def test_refuses_no_level_or_two(self, delta, log_delta):
        with pytest.raises(InvalidInput, match="exactly one of delta and log_delta"):
            gaussian_epsilon(delta, 1.0, log_delta=log_delta)

    @pytest.mark.parametrize("log_delta", [0.5, math.nan])
    def test_refuses_a_level_above_one(self, log_delta):
        with pytest.raises(InvalidInput, match="log_delta must be zero or negative"):
            gaussian_epsilon(None, 1.0, log_delta=log_delta)

    @settings(max_examples=100, deadline=None)
    @given(st.floats(1e-6, 1e3), st.floats(-290, -0.05), st.floats(1e-3, 0.5))
    def test_grows_in_mu_and_falls_in_delta(self, mu, exponent, step):
        delta = 10**exponent
        epsilon = gaussian_epsilon(delta, mu)
        slack = 1e-9 * (epsilon + mu)
        assert gaussian_epsilon(delta, mu * (1 + step)) >= epsilon - slack
        assert gaussian_epsilon(delta * (1 - step), mu) >= epsilon - slack


class TestGaussianMu:
    def test_is_the_exact_value_rounded_down(self):
        rng = np.random.default_rng(4)
        for _ in range(150):
            epsilon, delta = float(10 ** rng.uniform(-6, 5)), float(10 ** rng.uniform(-300, -0.01))
            mu = gaussian_mu(epsilon, delta)
            assert gaussian_delta(epsilon, mu) <= delta
            assert theta(epsilon, mu) <= delta < theta(epsilon, mu * (1 + 1e-9))

    @pytest.mark.parametrize("delta", [1e-12, 0.01, 0.5, 0.999])
    def test_at_epsilon_zero_inverts_the_total_variation(self, delta):
        assert gaussian_mu(0.0, delta) == pytest.approx(2 * ndtri((1 + delta) / 2), rel=1e-4)
        assert gaussian_mu(0.0, delta) <= 2 * mp.sqrt(2) * mp.erfinv(mp.mpf(delta))

    @settings(max_examples=80, deadline=None)
    @given(st.floats(1e-4, 1e3), st.floats(-280, -0.1))
    def test_undoes_the_inversion_in_epsilon(self, mu, exponent):
        epsilon = gaussian_epsilon(10**exponent, mu)
        if epsilon > 1e-3 * mu:
            assert gaussian_mu(epsilon, 10**exponent) == pytest.approx(mu, rel=1e-7)

    def test_limits(self):
        assert gaussian_mu(1.0, 1.0) == math.inf
        assert gaussian_mu(math.inf, 0.1) == math.inf
        assert gaussian_mu(1.0, 0.0) == 0.0

    @pytest.mark.parametrize("epsilon", [-1.0, math.nan])
    def test_refuses_a_negative_epsilon(self, epsilon):
        with pytest.raises(InvalidInput, match="epsilon must be zero or positive"):
            gaussian_mu(epsilon, 0.1)


class TestGaussianTradeoff:
    def test_is_the_exact_value_rounded_down(self):
        rng = np.random.default_rng(5)
        levels = np.concatenate([rng.uniform(0, 1, 150), 10 ** rng.uniform(-250, -1, 150)])
        for fpr in map(float, levels):
            mu = float(10 ** rng.uniform(-6, 1))
            with mp.workdps(40):
                quantile = mp.findroot(lambda z, p=fpr: mp.ncdf(-z) / p - 1, -float(ndtri(fpr)))
                exact = mp.ncdf(quantile - mu)
            assert -1e-11 <= relative(gaussian_tradeoff(fpr, mu), exact) <= 0.0

    def test_ends(self):
        rates = gaussian_tradeoff(np.array([0.0, 1.0, 0.0, 1.0]), np.array([2.0, 2.0, np.inf, 0.0]))
        assert rates.tolist() == [1.0, 0.0, 0.0, 0.0]
        assert gaussian_tradeoff(0.3, 0.0) == pytest.approx(0.7, rel=1e-11)

    def test_stays_on_the_private_side_of_the_profile(self):
        # 1 - fnr <= e^eps fpr + delta(eps) for every eps: the two faces of one curve.
        for fpr in (1e-6, 0.01, 0.3, 0.9):
            for epsilon in (0.0, 0.5, 3.0):
                power = 1.0 - gaussian_tradeoff(fpr, 1.3)
                assert power <= (math.exp(epsilon) * fpr + gaussian_delta(epsilon, 1.3)) * (
                    1 + 1e-9
                )

    @pytest.mark.parametrize(("fpr", "mu"), [(1.5, 1.0), (-0.1, 1.0), (0.1, -1.0), (math.nan, 1.0)])
    def test_refuses_what_is_no_rate(self, fpr, mu):
        with pytest.raises(InvalidInput, match="need 0 <= fpr <= 1"):
            gaussian_tradeoff(fpr, mu)


class TestLaplace:
    def test_delta_is_the_exact_value_rounded_up(self):
        rng = np.random.default_rng(6)
        for _ in range(200):
            ratio = float(10 ** rng.uniform(-6, 3))
            epsilon = ratio * float(rng.uniform(0, 1.2))
            with mp.workdps(40):
                exact = -mp.expm1((mp.mpf(epsilon) - mp.mpf(ratio)) / 2)
            delta = laplace_delta(epsilon, ratio)
            if exact <= 0:
                assert delta == 0.0
            else:
                assert 0.0 <= relative(delta, exact) <= 1e-14

    def test_epsilon_is_the_least_that_fits(self):
        rng = np.random.default_rng(7)
        for _ in range(200):
            ratio, delta = float(10 ** rng.uniform(-3, 3)), float(10 ** rng.uniform(-12, 0))
            epsilon = laplace_epsilon(delta, ratio)
            assert laplace_delta(epsilon, ratio) <= delta
            with mp.workdps(40):
                exact = max(mp.mpf(0), ratio + 2 * mp.log1p(-mp.mpf(delta)))
                assert exact <= epsilon <= exact + 1e-14 * ratio + 1e-15

    def test_golden_contraction(self):
        # One step of a chain on an interval of length 1, eta = 0.5, scale 2, ten steps after a move
        # of 1: (1 - e^{eps/2 - 1/2}) (1 - e^{eps/2 - 1/2})^10.
        for epsilon, value in ((0.1, 1.414813e-5), (0.5, 6.203252e-8)):
            assert laplace_delta(epsilon, 1.0) ** 11 == pytest.approx(value, rel=1e-6)

    def test_limits(self):
        assert laplace_delta(2.0, 2.0) == 0.0
        assert laplace_delta(1.0, math.inf) == 1.0
        assert laplace_epsilon(0.0, 3.0) == 3.0
        assert laplace_epsilon(1.0, 3.0) == 0.0
        assert laplace_epsilon(0.5, math.inf) == math.inf

    @pytest.mark.parametrize(("epsilon", "ratio"), [(-1.0, 1.0), (1.0, -1.0), (math.nan, 1.0)])
    def test_refuses_negative_arguments(self, epsilon, ratio):
        with pytest.raises(InvalidInput, match="need epsilon >= 0 and ratio >= 0"):
            laplace_delta(epsilon, ratio)

    @settings(max_examples=80, deadline=None)
    @given(st.floats(0, 50), st.floats(0, 50), st.floats(0, 5))
    def test_falls_in_epsilon_and_grows_in_the_ratio(self, epsilon, ratio, step):
        delta = laplace_delta(epsilon, ratio)
        assert laplace_delta(epsilon + step, ratio) <= delta * (1 + 1e-13)
        assert laplace_delta(epsilon, ratio + step) * (1 + 1e-13) >= delta
