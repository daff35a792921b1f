from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.reproduce.published_forms import plateau
from dplateau.shifts import closed_forms as forms


@pytest.mark.parametrize(
    ("contraction", "steps", "mu"),
    [(0.95, 100, 0.620813), (0.95, 10**6, 0.624500), (0.99, 10**6, 1.410674)],
)
def test_full_batch_golden_mu_at_ratio_one_tenth(contraction: float, steps: int, mu: float) -> None:
    assert 0.1 * math.sqrt(forms.full_batch_factor(contraction, steps)) == pytest.approx(
        mu, abs=5e-7
    )


@pytest.mark.parametrize(
    ("contraction", "epochs", "mu"), [(0.9999, 50, 0.992491), (0.9998, 200, 1.506124)]
)
def test_cyclic_golden_mu_at_ratio_two_thirds(contraction: float, epochs: int, mu: float) -> None:
    factor = forms.cyclic_factor(contraction, 40, epochs, 39)
    assert 2 / 3 * math.sqrt(factor) == pytest.approx(mu, abs=5e-7)


def test_permutation_golden_worst_and_mean() -> None:
    factors = np.array([forms.cyclic_factor(0.9999, 40, 50, place) for place in range(40)])
    assert factors.max() == factors[-1] == pytest.approx(2.2163, abs=5e-5)
    assert factors.mean() == pytest.approx(1.3232, abs=5e-5)


@pytest.mark.parametrize("gap", ["0.5", "1e-3", "1e-8", "1e-12", "1e-15"])
@pytest.mark.parametrize("steps", [1, 7, 10**4, 10**7])
def test_full_batch_keeps_its_digits_near_one(gap: str, steps: int) -> None:
    contraction = 1 - float(gap)
    with mp.workdps(60):
        c = mp.mpf(contraction)
        exact = (1 - c**steps) * (1 + c) / ((1 + c**steps) * (1 - c))
        assert abs(forms.full_batch_factor(contraction, steps) / exact - 1) < 1e-14


@pytest.mark.parametrize("contraction", [0.3, 0.97, 0.9999, 1 - 1e-9])
@pytest.mark.parametrize("batches", [2, 5, 40])
@pytest.mark.parametrize("epochs", [1, 2, 30])
def test_cyclic_worst_is_the_published_expression(
    contraction: float, batches: int, epochs: int
) -> None:
    with mp.workdps(60):
        c = mp.mpf(contraction)
        tail = c ** (batches * (epochs - 1))
        exact = 1 + c ** (2 * batches - 2) * (1 - c**2) / (1 - c**batches) ** 2 * (1 - tail) / (
            1 + tail
        )
        value = forms.cyclic_factor(contraction, batches, epochs, batches - 1)
        assert abs(value / exact - 1) < 1e-13


def test_cyclic_with_one_batch_is_the_full_batch() -> None:
    for contraction in (0.0, 0.4, 0.99, 1.0):
        value = forms.cyclic_factor(contraction, 1, 9, 0)
        assert value == pytest.approx(forms.full_batch_factor(contraction, 9), rel=1e-13)


def test_limits_at_one_are_attained_continuously() -> None:
    below = math.nextafter(1.0, 0.0)
    assert forms.full_batch_factor(1.0, 1000) == 1000
    assert forms.full_batch_factor(below, 1000) == pytest.approx(1000, rel=1e-12)
    assert forms.cyclic_factor(1.0, 40, 50, 39) == pytest.approx(1 + 49 / 40, rel=1e-14)
    assert forms.cyclic_factor(1.0, 40, 50, 9) == pytest.approx(1 / 31 + 49 / 40, rel=1e-14)
    assert forms.cyclic_factor(below, 40, 50, 9) == pytest.approx(1 / 31 + 49 / 40, rel=1e-12)
    assert forms.one_pass_factor(1.0, 40, 20) == pytest.approx(1 / 21, rel=1e-14)


def test_one_pass_is_the_reciprocal_sum() -> None:
    for record in (1, 17, 39, 40):
        total = sum(0.9 ** (-2 * j) for j in range(40 - record + 1))
        assert forms.one_pass_factor(0.9, 40, record) == pytest.approx(1 / total, rel=1e-13)


def test_bounded_form_and_its_plateau() -> None:
    # c = 1: (D + R s)^2 / (R nu^2), least at R = D/s, where it is 4 D s / nu^2.
    assert forms.bounded_sum_of_squares(1.0, 0.01, 0.5, 1.0, 100) == pytest.approx(0.16, rel=1e-13)
    assert forms.best_steps_from_diameter(1.0, 0.01, 1.0) == pytest.approx(100)
    assert plateau(1.0, 0.01, 0.5, 1.0) == pytest.approx(0.16, rel=1e-13)
    for c, s, diameter in ((0.99, 0.05, 2.0), (0.9, 0.3, 1.7), (0.999, 0.01, 9.0)):
        costs = [forms.bounded_sum_of_squares(c, s, 1.0, diameter, r) for r in range(1, 6000)]
        best = forms.best_steps_from_diameter(c, s, diameter)
        assert abs(int(np.argmin(costs)) + 1 - best) <= 1
        floor = plateau(c, s, 1.0, diameter)
        assert floor * (1 - 1e-12) <= min(costs) <= floor * 1.02


def test_plateau_without_a_binding_domain_is_the_unconstrained_one() -> None:
    assert plateau(0.95, 0.1, 1.0, 50.0) == pytest.approx(0.01 * 39, rel=1e-12)
    assert forms.best_steps_from_diameter(0.95, 0.1, 50.0) == math.inf
    assert forms.best_steps_from_diameter(0.95, 0.0, 1.0) == math.inf


def test_expanding_maps_are_refused_with_a_way_out() -> None:
    for call in (
        lambda: forms.full_batch_factor(1.01, 5),
        lambda: forms.cyclic_factor(1.01, 3, 5, 2),
        lambda: forms.one_pass_factor(1.01, 5, 2),
        lambda: forms.bounded_sum_of_squares(1.01, 0.1, 1.0, 1.0, 4),
    ):
        with pytest.raises(NotApplicable, match=r"needs c <= 1; got c=1\.01.*solve"):
            call()


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="contraction must be finite"):
        forms.full_batch_factor(-0.1, 5)
    with pytest.raises(InvalidInput, match="steps must be a whole number >= 1; got 0"):
        forms.full_batch_factor(0.9, 0)
    with pytest.raises(InvalidInput, match=r"position must lie in 0\.\.3; got 4"):
        forms.cyclic_factor(0.9, 4, 2, 4)
    with pytest.raises(InvalidInput, match=r"record must lie in 1\.\.4; got 0"):
        forms.one_pass_factor(0.9, 4, 0)
