"""Conversions from one Rényi divergence, against formulas and a minimization in many digits.

The oracle of the optimal conversion is the primal problem, a minimum over two-point laws, which
shares nothing with the dual that the library evaluates: at the reported (epsilon, delta) the
least divergence compatible with it must be at least zeta, and a hair below it must not.
"""

from __future__ import annotations

import math
import time

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammainc

from dplateau.curves.conversions import (
    CONVERSIONS,
    balle_delta,
    balle_epsilon,
    classic_delta,
    classic_epsilon,
    largest_zeta,
    linearized_delta,
    linearized_epsilon,
    optimal_delta,
    optimal_epsilon,
    rdp_delta,
    rdp_epsilon,
)
from dplateau.errors import InvalidInput
from dplateau.numerics.normal import gaussian_delta, gaussian_epsilon

EPSILONS = (classic_epsilon, balle_epsilon, linearized_epsilon, optimal_epsilon)
DELTAS = (classic_delta, balle_delta, linearized_delta, optimal_delta)

# (alpha, zeta, delta) -> classic, balle, linearized, optimal; six digits, from the primal problem
# minimized to 1e-12 and from the closed forms.
GOLDEN = [
    ((10.0, 1.0, 1e-5), (2.279214, 1.918011, 2.023357, 1.917997)),
    ((5.0, 0.5, 1e-5), (3.378231, 2.752728, 2.939520, 2.716384)),
    ((2.0, 0.1, 1e-5), (11.612925, 10.226631, 8.567800, 7.874843)),
    ((2.0, 0.01, 1e-5), (11.522925, 10.136631, 6.221600, 5.530437)),
    ((10.0, 1e-4, 1e-5), (1.279314, 0.918111, 0.255888, 0.175289)),
]

EPSILON_EXCESS = 1e-11  # relative; the difference of two large terms adds 1e-14 of them
ORDER = st.floats(1e-3, 1e4).map(lambda k: 1.0 + k)
BOUND = st.floats(-8, 2).map(lambda x: 10.0**x)
LEVEL = st.floats(-30, -0.05).map(lambda x: 10.0**x)


def least_divergence(alpha: float, epsilon: float, delta: float) -> mp.mpf:
    """Least D_alpha of a pair whose hockey stick at e^epsilon is delta, over two-point laws.

    The derivative in p changes sign once; it is bisected in t = log((p - delta) / (1 - p)), which
    resolves both ends.
    """
    with mp.workdps(45):
        a, eps, d = mp.mpf(alpha), mp.mpf(epsilon), mp.mpf(delta)
        if a * d >= 1:
            return eps - mp.log(1 - d)
        rise = mp.expm1(eps) + d

        def pieces(t: mp.mpf) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
            share = 1 / (1 + mp.exp(-t))
            return d + (1 - d) * share, (1 - d) * share, (1 - d) / (1 + mp.exp(t))

        def grows(t: mp.mpf) -> bool:
            p, above, rest = pieces(t)
            if above <= (a - 1) * d:
                return False
            left = (a - 1) * mp.log(p / above) + mp.log((above - (a - 1) * d) / above)
            right = (a - 1) * mp.log(rest / (rise + rest))
            return left > right + mp.log((rest + a * rise) / (rise + rest))

        low, high = mp.log(d * min(a - 1, mp.mpf(1))) - 5, mp.mpf(10)  # p > alpha delta
        while not grows(high):
            high *= 2
        while high - low > mp.mpf("1e-18") * (1 + abs(high)):
            middle = (low + high) / 2
            low, high = (low, middle) if grows(middle) else (middle, high)
        p, above, rest = pieces((low + high) / 2)
        q, other = above * mp.exp(-eps), (rise + rest) * mp.exp(-eps)
        return mp.log(p * (p / q) ** (a - 1) + rest * (rest / other) ** (a - 1)) / (a - 1)


def exact_forms(alpha: float, zeta: float, delta: float) -> list[mp.mpf]:
    with mp.workdps(45):
        a, z, d = mp.mpf(alpha), mp.mpf(zeta), mp.mpf(delta)
        k = a - 1
        return [
            z - mp.log(d) / k,
            z + mp.log(k / a) - mp.log(a * d) / k,
            mp.log1p(mp.expm1(k * z) / (a * d)) / k,
        ]


def sample(count: int, seed: int) -> list[tuple[float, float, float]]:
    """Half over the whole range, half where accountants live."""
    rng = np.random.default_rng(seed)
    half = count // 2
    alpha = 1 + 10 ** np.r_[rng.uniform(-4, 5.99, half), rng.uniform(-1, 2.5, count - half)]
    zeta = 10 ** np.r_[rng.uniform(-12, 6, half), rng.uniform(-6, 1, count - half)]
    delta = 10 ** -np.r_[rng.uniform(0, 300, half), rng.uniform(0.1, 12, count - half)]
    return [tuple(map(float, row)) for row in np.c_[alpha, zeta, delta]]


class TestGolden:
    @pytest.mark.parametrize(("given_", "expected"), GOLDEN)
    def test_table(self, given_, expected):
        assert tuple(round(f(*given_), 6) for f in EPSILONS) == expected

    @pytest.mark.parametrize(("given_", "expected"), GOLDEN)
    def test_table_read_backwards(self, given_, expected):
        alpha, zeta, delta = given_
        for conversion, epsilon in zip(DELTAS, expected, strict=True):
            # Six digits of epsilon fix delta to about alpha 1e-6 / epsilon.
            assert conversion(alpha, zeta, epsilon) == pytest.approx(delta, rel=1e-4)


class TestLargestZeta:
    @pytest.mark.parametrize(("given_", "expected"), GOLDEN)
    def test_table_read_backwards(self, given_, expected):
        alpha, zeta, delta = given_
        for conversion, epsilon in zip(CONVERSIONS, expected, strict=True):
            # Six digits of epsilon fix zeta to about 1e-6; small ones less well.
            found = largest_zeta(alpha, epsilon, delta, conversion)
            assert found == pytest.approx(zeta, abs=1e-6, rel=1e-4)

    def test_is_the_least_divergence_of_two_point_laws(self):
        """Rounded down: no pair with so little divergence breaks (epsilon, delta)."""
        for alpha, epsilon, delta in sample(80, seed=7):
            if delta < 1e-12 or epsilon > 1e3:
                continue
            found, exact = (
                largest_zeta(alpha, epsilon, delta),
                least_divergence(alpha, epsilon, delta),
            )
            assert mp.mpf(found) <= exact
            assert found >= float(exact) * (1 - 1e-6) - 1e-12, (alpha, epsilon, delta)

    @settings(max_examples=8)
    @given(ORDER, BOUND, LEVEL)
    def test_more_is_not_implied(self, alpha, epsilon, delta):
        for conversion, forward in zip(CONVERSIONS, EPSILONS, strict=True):
            zeta = largest_zeta(alpha, epsilon, delta, conversion)
            assert zeta == 0 or forward(alpha, zeta, delta) <= epsilon
            assert forward(alpha, zeta * (1 + 1e-7) + 1e-300, delta) > epsilon or zeta == 0
        best = largest_zeta(alpha, epsilon, delta)
        assert best >= max(largest_zeta(alpha, epsilon, delta, way) for way in CONVERSIONS[:3])

    def test_ends(self):
        assert largest_zeta(2.0, 1.0, 0.0) == 0.0
        assert largest_zeta(2.0, 1.0, 1.0) == math.inf
        assert largest_zeta(2.0, 1.0, 0.6) == pytest.approx(1 - math.log(0.4))
        with pytest.raises(InvalidInput, match="conversion must be one of"):
            largest_zeta(2.0, 1.0, 0.1, "best")
        with pytest.raises(InvalidInput, match=r"finite and above 1; got 1$"):
            largest_zeta(1.0, 1.0, 0.1)


class TestClosedForms:
    def test_are_exact_rounded_up(self):
        for point in sample(250, seed=1):
            alpha, zeta, _ = point
            terms = zeta + (300 * math.log(10) + math.log(alpha)) / (alpha - 1)
            for conversion, exact in zip(EPSILONS[:3], exact_forms(*point), strict=True):
                value = conversion(*point)
                assert mp.mpf(value) >= exact, (conversion, point)
                assert value <= max(0.0, float(exact)) * (1 + 1e-12) + 1e-14 * terms, point

    def test_deltas_invert_them(self):
        for alpha, zeta, delta in sample(150, seed=2):
            for forward, back in zip(EPSILONS[:3], DELTAS[:3], strict=True):
                epsilon = forward(alpha, zeta, delta)
                if epsilon > 1e-6 and alpha * (zeta + epsilon) < 1e5:
                    assert back(alpha, zeta, epsilon) == pytest.approx(delta, rel=1e-8)


class TestOptimalEpsilon:
    def test_is_the_primal_optimum_rounded_up(self):
        for alpha, zeta, delta in sample(110, seed=3):
            epsilon = optimal_epsilon(alpha, zeta, delta)
            assert least_divergence(alpha, epsilon, delta) >= zeta, (alpha, zeta, delta)
            less = epsilon * (1 - EPSILON_EXCESS) - 1e-14
            if less > 0.0:
                assert least_divergence(alpha, less, delta) < zeta, (alpha, zeta, delta)

    @pytest.mark.parametrize("alpha", [1.0 + 1e-9, 1.01, 2.0, 40.0, 1e6])
    @pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-3, 0.2])
    @pytest.mark.parametrize("zeta", [1e-6, 1.0, 1e6])
    def test_corners_of_the_range(self, alpha, zeta, delta):
        epsilon = optimal_epsilon(alpha, zeta, delta)
        assert 0.0 <= epsilon < math.inf
        assert least_divergence(alpha, epsilon, delta) >= zeta

    @pytest.mark.parametrize(("alpha", "delta"), [(10.0, 0.1), (10.0, 0.4), (3.0, 0.99)])
    def test_large_delta_has_a_closed_form(self, alpha, delta):
        exact = 2.5 + math.log1p(-delta)
        assert optimal_epsilon(alpha, 2.5, delta) == pytest.approx(max(0.0, exact), rel=1e-13)
        assert optimal_epsilon(alpha, 1e-3, delta) == 0.0

    def test_is_continuous_where_the_closed_form_starts(self):
        below, above = optimal_epsilon(4.0, 1.0, 0.25 * (1 - 1e-9)), optimal_epsilon(4.0, 1.0, 0.25)
        assert above == pytest.approx(below, rel=1e-8)

    @settings(max_examples=150, deadline=None)
    @given(ORDER, BOUND, LEVEL)
    def test_is_never_above_the_others(self, alpha, zeta, delta):
        best = optimal_epsilon(alpha, zeta, delta)
        assert best <= min(conversion(alpha, zeta, delta) for conversion in EPSILONS[:3])

    @settings(max_examples=150, deadline=None)
    @given(ORDER, BOUND, LEVEL, st.floats(1e-3, 0.5))
    def test_is_monotone(self, alpha, zeta, delta, step):
        epsilon = optimal_epsilon(alpha, zeta, delta)
        slack = EPSILON_EXCESS * epsilon + 1e-13
        assert optimal_epsilon(alpha, zeta * (1 + step), delta) >= epsilon - slack
        assert optimal_epsilon(alpha, zeta, delta * (1 - step)) >= epsilon - slack
        # The same bound on a higher divergence says more.
        assert optimal_epsilon(alpha * (1 + step), zeta, delta) <= epsilon + slack


class TestOptimalDelta:
    def test_is_the_primal_optimum_rounded_up(self):
        rng = np.random.default_rng(4)
        for alpha, zeta, _ in sample(110, seed=5):
            epsilon = float(10 ** rng.uniform(-4, 2))
            delta = optimal_delta(alpha, zeta, epsilon)
            if not 1e-300 < delta < 1.0:
                continue
            assert least_divergence(alpha, epsilon, delta) >= zeta, (alpha, zeta, epsilon)
            excess = 1e-14 * (100 + alpha * (zeta + epsilon))
            if excess < 1e-3:
                less = delta * (1 - excess)
                assert least_divergence(alpha, epsilon, less) < zeta, (alpha, zeta, epsilon)

    @settings(max_examples=100, deadline=None)
    @given(st.floats(1e-2, 1e3), BOUND, LEVEL)
    def test_undoes_the_inversion_in_epsilon(self, k, zeta, delta):
        epsilon = optimal_epsilon(1 + k, zeta, delta)
        if epsilon > 1e-3:
            assert optimal_delta(1 + k, zeta, epsilon) == pytest.approx(delta, rel=1e-7)

    @settings(max_examples=100, deadline=None)
    @given(ORDER, BOUND, st.floats(0, 50))
    def test_is_a_probability_and_never_above_the_others(self, alpha, zeta, epsilon):
        best = optimal_delta(alpha, zeta, epsilon)
        assert 0.0 < best <= min(conversion(alpha, zeta, epsilon) for conversion in DELTAS[:3])

    @settings(max_examples=100, deadline=None)
    @given(ORDER, BOUND, st.floats(0, 50), st.floats(1e-3, 1))
    def test_falls_in_epsilon_and_grows_in_zeta(self, alpha, zeta, epsilon, step):
        delta = optimal_delta(alpha, zeta, epsilon)
        slack = 1 + 1e-13 * (100 + alpha * (zeta + epsilon))
        assert optimal_delta(alpha, zeta, epsilon + step) <= delta * slack
        assert optimal_delta(alpha, zeta * (1 + step), epsilon) * slack >= delta


class TestAgainstDistributions:
    """The conversions hold for every pair of laws; here for random ones."""

    @pytest.mark.parametrize("seed", range(8))
    def test_bound_random_discrete_pairs(self, seed):
        rng = np.random.default_rng(seed)
        p, q = rng.dirichlet(np.full(5, 0.5)) + 1e-6, rng.dirichlet(np.full(5, 0.5)) + 1e-6
        p, q = p / p.sum(), q / q.sum()
        for alpha in (1.1, 2.0, 7.0):
            zeta = math.log(float(np.sum(p**alpha * q ** (1 - alpha)))) / (alpha - 1)
            for epsilon in (0.0, 0.3, 1.0, 3.0):
                truth = float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)))
                assert truth <= optimal_delta(alpha, zeta, epsilon) * (1 + 1e-12)

    @pytest.mark.parametrize("alpha", [1.5, 2.0, 10.0])
    def test_the_extremal_pair_leaves_no_slack(self, alpha):
        p, q, epsilon = 0.02, 1e-3, 1.0
        delta = p - math.exp(epsilon) * q
        zeta = float(least_divergence(alpha, epsilon, delta))
        assert optimal_delta(alpha, zeta, epsilon) == pytest.approx(delta, rel=1e-11)
        own = math.log(p**alpha * q ** (1 - alpha) + (1 - p) ** alpha * (1 - q) ** (1 - alpha))
        assert zeta <= own / (alpha - 1) * (1 + 1e-12)

    @pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
    def test_a_gaussian_loses_by_going_through_renyi(self, mu):
        orders = 1 + np.geomspace(1e-2, 1e3, 200)
        epsilon, best = rdp_epsilon(orders, orders * mu**2 / 2, 1e-5)
        assert gaussian_epsilon(1e-5, mu) < epsilon < gaussian_epsilon(1e-5, mu) * 1.2
        assert 0 < best < 199
        assert gaussian_delta(mu, mu) < rdp_delta(orders, orders * mu**2 / 2, mu)[0]


class TestManyOrders:
    orders = np.r_[1.25, 1.5, np.arange(2.0, 64.0), np.geomspace(64.0, 1e6, 100)]

    @pytest.mark.parametrize("conversion", CONVERSIONS)
    def test_takes_the_best_order(self, conversion):
        zetas = 0.3 * self.orders
        single = dict(zip(CONVERSIONS, EPSILONS, strict=True))[conversion]
        epsilon, best = rdp_epsilon(self.orders, zetas, 1e-6, conversion)
        assert epsilon == min(
            single(float(a), float(z), 1e-6) for a, z in zip(self.orders, zetas, strict=True)
        )
        assert epsilon == single(float(self.orders[best]), float(zetas[best]), 1e-6)
        delta, best = rdp_delta(self.orders, zetas, epsilon, conversion)
        assert delta == pytest.approx(1e-6, rel=1e-9)

    def test_orders_without_a_bound_are_passed_over(self):
        zetas = np.where(self.orders < 10, 0.3 * self.orders, np.inf)
        assert self.orders[rdp_epsilon(self.orders, zetas, 1e-9)[1]] < 10
        assert rdp_epsilon(self.orders, np.full_like(self.orders, np.inf), 1e-9) == (math.inf, 0)
        assert rdp_delta(self.orders, np.full_like(self.orders, np.inf), 1.0) == (1.0, 0)

    def test_is_fast_enough_to_be_called_in_a_search(self):
        zetas = 0.3 * self.orders
        took = []
        for _ in range(5):
            start = time.process_time()
            rdp_epsilon(self.orders, zetas, 1e-6)
            took.append(time.process_time() - start)
        assert min(took) < 0.02

    def test_refuses_an_unknown_conversion(self):
        with pytest.raises(InvalidInput, match="conversion must be one of"):
            rdp_epsilon(self.orders, self.orders, 1e-6, "best")

    @pytest.mark.parametrize("zetas", [np.ones(3), np.ones((2, 2)), np.ones(0)])
    def test_refuses_shapes_that_do_not_match(self, zetas):
        with pytest.raises(InvalidInput, match="as many bounds as orders"):
            rdp_epsilon(np.full(zetas.shape, 2.0)[:1] if zetas.size else zetas, zetas, 1e-6)


class TestLimits:
    @pytest.mark.parametrize("conversion", EPSILONS)
    def test_epsilon(self, conversion):
        assert conversion(2.0, 1.0, 0.0) == math.inf
        assert conversion(2.0, math.inf, 1e-5) == math.inf
        assert conversion(2.0, 1.0, 1.0) == 0.0
        assert conversion(2.0, 0.0, 0.0) == 0.0
        assert conversion(2.0, 1e-3, 0.9) >= 0.0

    @pytest.mark.parametrize("conversion", DELTAS)
    def test_delta(self, conversion):
        assert conversion(2.0, 1.0, math.inf) == 0.0
        assert conversion(2.0, math.inf, 1.0) == 1.0
        assert conversion(2.0, 0.0, 1.0) == 0.0
        assert 0.0 < conversion(1e6, 1e-6, 1e6) < 1e-300
        assert conversion(1.5, 1e3, 0.0) <= 1.0

    @pytest.mark.parametrize("conversion", [*EPSILONS, *DELTAS])
    def test_never_nan_nor_negative_far_outside_the_range(self, conversion):
        rng = np.random.default_rng(8)
        alpha, zeta = 1 + 10 ** rng.uniform(-15, 15, 3000), 10 ** rng.uniform(-320, 300, 3000)
        small = conversion in EPSILONS
        level = 10 ** (rng.uniform(-323, 0, 3000) if small else rng.uniform(-320, 300, 3000))
        values = conversion(alpha, zeta, level)
        assert np.all(values >= 0.0)

    @pytest.mark.parametrize("conversion", [*EPSILONS, *DELTAS])
    def test_scalars_give_floats_and_arrays_broadcast(self, conversion):
        assert type(conversion(2.0, 1.0, 0.5)) is float
        grid = conversion(np.array([[2.0], [3.0]]), np.array([0.1, 1.0, 5.0]), 0.01)
        assert grid.shape == (2, 3)
        assert grid[1, 2] == conversion(3.0, 5.0, 0.01)

    @pytest.mark.parametrize("alpha", [1.0, 0.5, math.inf, math.nan])
    def test_refuses_orders_outside_the_open_range(self, alpha):
        with pytest.raises(InvalidInput, match="orders must be finite and above 1"):
            optimal_epsilon(alpha, 1.0, 1e-5)

    @pytest.mark.parametrize("zeta", [-1e-9, math.nan])
    def test_refuses_a_negative_divergence(self, zeta):
        with pytest.raises(InvalidInput, match="divergence is zero or positive"):
            classic_epsilon(2.0, zeta, 1e-5)

    @pytest.mark.parametrize("delta", [-0.1, 1.1, math.nan])
    def test_refuses_what_is_no_probability(self, delta):
        with pytest.raises(InvalidInput, match="delta is a probability"):
            balle_epsilon(2.0, 1.0, delta)

    @pytest.mark.parametrize("epsilon", [-0.1, math.nan])
    def test_refuses_a_negative_epsilon(self, epsilon):
        with pytest.raises(InvalidInput, match="epsilon must be zero or positive"):
            optimal_delta(2.0, 1.0, epsilon)


def test_error_allowed_to_the_incomplete_gamma_function():
    # 1 - e^{-z}(1 + z), over the arguments that the search for the tangent visits.
    rng = np.random.default_rng(9)
    with mp.workdps(120):
        for z in map(float, 10 ** rng.uniform(-32, 1.7, 800)):
            exact = 1 - mp.exp(-mp.mpf(z)) * (1 + mp.mpf(z))
            assert abs(float((mp.mpf(float(gammainc(2.0, z))) - exact) / exact)) < 3e-14
