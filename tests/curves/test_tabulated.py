from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplateau.curves import BasicCompositionCurve, GaussianCurve, MixtureCurve, TabulatedComposition
from dplateau.curves.tabulated import law_of


@settings(max_examples=10)
@given(st.lists(st.floats(0.05, 3.0), min_size=2, max_size=4), st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_gaussians_compose_as_if_exactly(mus: list[float], delta: float) -> None:
    exact = GaussianCurve(math.hypot(*mus)).epsilon(delta)
    found = TabulatedComposition(tuple(GaussianCurve(mu) for mu in mus)).epsilon(delta)
    assert exact <= found <= exact * 1.001 + 1e-6


def test_mixtures_compose_below_the_basic_theorem_and_above_their_parts() -> None:
    mixture = MixtureCurve((0.9, 0.1), (GaussianCurve(0.3), GaussianCurve(1.0)), extra_delta=1e-8)
    composed = TabulatedComposition((mixture, mixture))
    basic = BasicCompositionCurve((mixture, mixture))
    assert mixture.epsilon(1e-5) < composed.epsilon(1e-5) < basic.epsilon(1e-5)
    # The mixture is no better than its better part throughout, nor worse than its worse part.
    assert composed.epsilon(1e-5) >= GaussianCurve(0.3 * math.sqrt(2)).epsilon(1e-5)
    assert composed.epsilon(1e-5) <= GaussianCurve(math.sqrt(2)).epsilon(1e-5)


def test_a_law_gives_back_the_curve_at_its_grid_points() -> None:
    step, curve = 0.01, GaussianCurve(0.7)
    grid = step * np.arange(800)
    law = law_of(np.array([curve.delta(x) for x in grid]), step)
    losses = step * (law.lowest + np.arange(law.masses.size))
    for x in (0.0, 0.5, 1.0, 3.0):
        delta = float(np.sum(law.masses * np.maximum(0.0, -np.expm1(x - losses))))
        assert delta + law.infinity_mass == pytest.approx(curve.delta(x), rel=1e-9)
    assert law.masses.sum() + law.infinity_mass == pytest.approx(1.0, abs=1e-9)


def test_delta_inverts_epsilon() -> None:
    composed = TabulatedComposition((GaussianCurve(0.5), GaussianCurve(0.8)))
    epsilon = composed.epsilon(1e-6)
    assert composed.delta(epsilon) == pytest.approx(1e-6, rel=2e-3)
