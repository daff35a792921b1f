from __future__ import annotations

import math

import numpy as np
import pytest

from dplateau.errors import NotApplicable
from dplateau.shifts import closed_forms as forms
from dplateau.shifts import proposition_2_17, proposition_3_2, proposition_5_6


def test_original_bound_for_one_early_contact_divides_by_the_steps() -> None:
    """s at the first step only: spread evenly, alpha s^2 / (2 T nu^2)."""
    sensitivities = np.zeros(20)
    sensitivities[0] = 0.6
    bound = proposition_2_17(sensitivities, 0.5)
    assert bound.rdp_coefficient == pytest.approx(0.36 / (2 * 20 * 0.25), rel=1e-12)
    np.testing.assert_allclose(bound.plan.shifts(), 0.03, rtol=1e-10)


def test_original_bound_for_constant_sensitivity_is_vacuous_in_the_limit() -> None:
    values = [proposition_2_17(np.full(t, 0.1), 1.0).rdp_coefficient for t in (10, 100, 1000)]
    np.testing.assert_allclose(values, [0.05, 0.5, 5.0], rtol=1e-12)


def test_bounded_version_stays_finite() -> None:
    values = [
        proposition_3_2(np.full(t, 0.1), 1.0, 2.0).rdp_coefficient for t in (5, 20, 100, 10**5)
    ]
    assert values == sorted(values)
    assert values[0] == pytest.approx(5 * 0.01 / 2, rel=1e-12)
    assert values[-1] == pytest.approx(forms.plateau(1.0, 0.1, 1.0, 2.0) / 2, rel=1e-12)


def test_bounded_version_is_no_worse_than_even_shifts_from_any_start() -> None:
    """Their own choice in the proof of theorem 3.1: equal shifts that absorb D plus the drift."""
    rng = np.random.default_rng(0)
    sensitivities = rng.uniform(0, 0.2, 30)
    value = proposition_3_2(sensitivities, 0.5, 1.0).rdp_coefficient
    for tau in range(30):
        total = 1.0 + sensitivities[tau:].sum()
        assert value <= total**2 / (2 * (30 - tau) * 0.25) * (1 + 1e-12)


def test_strongly_convex_version_beats_absorbing_all_at_the_end() -> None:
    """Their choice in the proof of theorem 5.1, without sensitivity: a_T = c^(T - tau) D."""
    steps, c = 12, 0.8
    quiet = np.zeros(steps)
    quiet[0] = 1.0  # the runs part at the first step and drift no further
    value = proposition_5_6(c, quiet, 0.5, 1.0).rdp_coefficient
    assert value <= c ** (2 * (steps - 1)) / (2 * 0.25)
    full = proposition_5_6(c, np.full(steps, 0.1), 0.5, 100.0).rdp_coefficient
    assert full == pytest.approx(0.04 * forms.full_batch_factor(c, steps) / 2, rel=1e-12)


def test_assumptions_are_checked() -> None:
    with pytest.raises(NotApplicable, match=r"Proposition 3\.2 needs a domain.*proposition_2_17"):
        proposition_3_2([0.1], 1.0, math.inf)
    with pytest.raises(NotApplicable, match=r"c < 1; got c=1\.0.*proposition_3_2"):
        proposition_5_6(1.0, [0.1], 1.0, 1.0)
    with pytest.raises(NotApplicable, match=r"Proposition 5\.6 needs a domain"):
        proposition_5_6(0.9, [0.1], 1.0, math.inf)
