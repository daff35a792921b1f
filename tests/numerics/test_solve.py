"""Inversions end where the property holds; rounding goes the way it is asked to."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplateau.errors import InvalidInput
from dplateau.numerics.solve import (
    bracketed_roots,
    exp_up,
    geometric_sum,
    largest_integer,
    largest_where,
    log_add_exp,
    log_expm1,
    round_up,
    smallest_integer,
    smallest_where,
)


class TestRounding:
    @settings(deadline=None)
    @given(st.floats(-1e300, 1e300), st.floats(0, 100))
    def test_moves_up_and_not_far(self, value, ulps):
        up = round_up(value, ulps)
        assert value < up
        room = (ulps + 2) * np.finfo(float).eps * abs(value) + 1e-323
        assert up - value <= room

    def test_infinities_stay(self):
        assert round_up(math.inf) == math.inf
        assert round_up(np.array([1.0, 2.0])).shape == (2,)

    @settings(deadline=None)
    @given(st.floats(-800, 700))
    def test_exponential_rounds_up(self, value):
        with mp.workdps(40):
            exact = mp.exp(mp.mpf(value))
            assert exact < mp.mpf(exp_up(value)) <= exact * (1 + mp.mpf("2e-15")) + mp.mpf("1e-323")

    def test_exponential_at_the_ends(self):
        assert exp_up(-math.inf) == 0.0
        assert exp_up(-1e300) == 5e-324
        assert exp_up(1e300) == math.inf


class TestLogSums:
    @settings(deadline=None)
    @given(st.floats(-1e5, 1e5), st.floats(0, 800))
    def test_sum_against_many_digits(self, low, gap):
        high = low + gap
        with mp.workdps(400):
            total = float(mp.log(mp.exp(mp.mpf(high)) + mp.exp(mp.mpf(low))))
        assert log_add_exp(low, high) == pytest.approx(total, rel=1e-14, abs=1e-14)

    def test_zero_terms(self):
        assert log_add_exp(-math.inf, 2.0) == 2.0

    @settings(deadline=None)
    @given(st.floats(-0.5, 5.0), st.integers(0, 200))
    def test_geometric_sum_against_term_by_term(self, rate, count):
        exact = math.fsum(math.exp(-rate * k) for k in range(count))
        assert geometric_sum(rate, count) == pytest.approx(exact, rel=1e-12)
        assert geometric_sum(rate, np.array([float(count)]))[0] == pytest.approx(exact, rel=1e-12)

    def test_geometric_sum_at_the_ends(self):
        assert geometric_sum(0.0, 7) == 7.0
        assert [geometric_sum(math.inf, count) for count in (0, 1, 5)] == [0.0, 1.0, 1.0]

    @settings(deadline=None)
    @given(st.floats(1e-300, 1e6))
    def test_log_expm1(self, value):
        with mp.workdps(400):
            exact = float(mp.log(mp.expm1(mp.mpf(value))))
        assert log_expm1(value) == pytest.approx(exact, rel=1e-14, abs=1e-15)

    def test_log_expm1_at_zero(self):
        assert log_expm1(0.0) == -math.inf


class TestRealInversion:
    @settings(deadline=None)
    @given(st.floats(1e-250, 1e250))
    def test_smallest_lands_on_the_true_side_of_the_threshold(self, threshold):
        found = smallest_where(lambda x: x >= threshold, 1e-300, 1e300)
        assert threshold <= found <= threshold * (1 + 2e-12)

    @settings(deadline=None)
    @given(st.floats(1e-250, 1e250))
    def test_largest_lands_on_the_true_side_of_the_threshold(self, threshold):
        found = largest_where(lambda x: x <= threshold, 1e-300, 1e300)
        assert threshold * (1 - 2e-12) <= found <= threshold

    @settings(deadline=None)
    @given(st.floats(-1e3, 1e3))
    def test_brackets_may_contain_zero(self, threshold):
        found = smallest_where(lambda x: x >= threshold, -1e3, 1e3)
        assert threshold <= found <= threshold + 2e-12 * abs(threshold) + 1e-300

    def test_geometric_bisection_is_short(self):
        calls = []
        smallest_where(lambda x: calls.append(x) or x >= 3e-200, 1e-300, 1e300)
        assert len(calls) < 70

    def test_ends_are_answers_too(self):
        assert smallest_where(lambda x: True, 2.0, 5.0) == 2.0
        assert largest_where(lambda x: True, 2.0, 5.0) == 5.0
        assert smallest_where(lambda x: x >= 5.0, 2.0, 5.0) == 5.0

    def test_rtol_zero_gives_neighboring_doubles(self):
        found = smallest_where(lambda x: x * x >= 2.0, 1.0, 2.0, rtol=0.0)
        assert found * found >= 2.0 > np.nextafter(found, 0.0) ** 2

    @pytest.mark.parametrize("search", [smallest_where, largest_where])
    def test_refuses_when_the_condition_never_holds(self, search):
        with pytest.raises(InvalidInput, match="the condition holds nowhere"):
            search(lambda x: False, 0.0, 1.0)

    @pytest.mark.parametrize(("lo", "hi"), [(1.0, 0.0), (0.0, math.inf), (math.nan, 1.0)])
    def test_refuses_a_broken_bracket(self, lo, hi):
        with pytest.raises(InvalidInput, match="finite ends lo <= hi"):
            smallest_where(lambda x: True, lo, hi)

    def test_refuses_a_negative_tolerance(self):
        with pytest.raises(InvalidInput, match="rtol must be zero or positive"):
            largest_where(lambda x: True, 0.0, 1.0, rtol=-1.0)


class TestBracketedRoots:
    def test_many_roots_at_once(self):
        targets = 10 ** np.linspace(-8, 8, 50)
        roots = bracketed_roots(
            lambda x: x - np.log(targets), np.full(50, -40.0), np.full(50, 40.0)
        )
        assert np.allclose(roots, np.log(targets), atol=1e-8)

    def test_takes_few_steps_on_smooth_functions(self):
        calls = []

        def function(x):
            calls.append(1)
            return np.expm1(x) - np.array([0.5, 3.0])

        bracketed_roots(function, np.full(2, -20.0), np.full(2, 20.0), xtol=1e-9)
        assert len(calls) < 25

    def test_without_a_sign_change_the_nearer_end_answers(self):
        shifts = np.array([-9.0, 9.0, 0.0])
        roots = bracketed_roots(lambda x: x - shifts, np.full(3, -1.0), np.full(3, 1.0))
        assert roots.tolist()[:2] == [-1.0, 1.0]
        assert abs(roots[2]) < 1e-8

    def test_steps_functions_end_at_the_jump(self):
        roots = bracketed_roots(lambda x: np.where(x < 0.3, -1.0, 1.0), np.zeros(1), np.ones(1))
        assert abs(roots[0] - 0.3) < 1e-8


class TestIntegerInversion:
    @settings(deadline=None)
    @given(st.integers(-50, 10**12), st.integers(-50, 50))
    def test_smallest_is_exact(self, threshold, start):
        assert smallest_integer(lambda n: n >= threshold, start) == max(start, threshold)

    @settings(deadline=None)
    @given(st.integers(0, 10**12))
    def test_largest_is_exact(self, threshold):
        assert largest_integer(lambda n: n <= threshold) == threshold

    @settings(max_examples=30, deadline=None)
    @given(st.integers(1, 10**6))
    def test_small_answers_are_cheap(self, threshold):
        calls = []
        smallest_integer(lambda n: calls.append(n) or n >= threshold)
        assert len(calls) <= 2 * math.log2(threshold + 1) + 4

    def test_limits(self):
        assert largest_integer(lambda n: True, 1, limit=9) == 9
        assert largest_integer(lambda n: n <= 8, 1, limit=9) == 8
        assert smallest_integer(lambda n: n >= 9, 1, limit=9) == 9
        assert smallest_integer(lambda n: True, 4) == 4

    def test_refuses_when_nothing_qualifies(self):
        with pytest.raises(InvalidInput, match="for no integer from 0 to 100"):
            smallest_integer(lambda n: False, limit=100)
        with pytest.raises(InvalidInput, match="fails already at 3"):
            largest_integer(lambda n: False, 3)

    @pytest.mark.parametrize("search", [smallest_integer, largest_integer])
    def test_refuses_an_empty_range(self, search):
        with pytest.raises(InvalidInput, match="start <= limit"):
            search(lambda n: True, 5, limit=4)
