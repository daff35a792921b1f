"""Laws of weighted coin flips: always above the exact one, and close to it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.bernoulli_laws import NOTHING, AtomLaw, _chernoff, _law, upper_law


def enumerated(
    weights: FloatArray, rates: FloatArray, copies: int = 1
) -> tuple[FloatArray, FloatArray]:
    """Return every outcome of the sum in rising order, and its chance."""
    points, masses = np.zeros(1), np.ones(1)
    for weight, rate in zip(weights, rates, strict=True):
        counts = np.arange(copies + 1)
        chances = stats.binom.pmf(counts, copies, rate)
        points = np.add.outer(points, weight * counts).ravel()
        masses = np.multiply.outer(masses, chances).ravel()
    order = np.argsort(points)
    return points[order], masses[order]


def exceeds(law: AtomLaw, points: FloatArray, masses: FloatArray) -> FloatArray:
    """Return P(law > x) - P(exact > x) at every point x where either may jump, and just before."""
    atoms, shares = law.arrays()
    every = np.unique(np.r_[atoms, points])
    at = np.unique(np.r_[every, every * (1 - 1e-9), every * (1 + 1e-9)])
    above = np.r_[np.cumsum(shares[::-1])[::-1], 0.0][np.searchsorted(atoms, at, side="right")]
    # Points that differ by rounding are one: the exact law may sit a hair lower.
    lower = points * (1 - 1e-12)
    exact = np.r_[np.cumsum(masses[::-1])[::-1], 0.0][np.searchsorted(lower, at, side="right")]
    found: FloatArray = above - exact
    return found


def law_of_sorts(law: AtomLaw) -> None:
    points, masses = law.arrays()
    assert np.all(np.diff(points) > 0)
    assert points[0] >= 0
    assert np.all(masses > 0)
    assert float(masses.sum()) == pytest.approx(1.0, abs=1e-14)


@settings(max_examples=30)
@given(data=st.data())
def test_it_is_above_every_enumerated_law(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    copies = data.draw(st.integers(1, 3 if n <= 5 else 1))
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.05, 1.0, n) * 10.0 ** rng.uniform(-5, 5)
    if data.draw(st.booleans()):
        weights = weights.max() * data.draw(st.floats(0.1, 1.0)) ** np.arange(n)
    rates = data.draw(
        st.lists(
            st.sampled_from(
                [0.0, 1e-9, 1e-4, 0.1, 0.3, 0.479, 0.48, 0.5, 0.500001, 0.6, 0.97, 1.0]
            ),
            min_size=n,
            max_size=n,
        )
    )
    chances = np.array(rates)
    law = upper_law(weights, chances, copies=copies)
    law_of_sorts(law)
    points, masses = enumerated(weights, chances, copies)
    assert np.all(exceeds(law, points, masses) >= -1e-13)
    assert law.points[-1] <= copies * float(weights.sum()) * (1 + 1e-11)
    mean = float(np.dot(*law.arrays()))
    exact = float(points @ masses)
    assert (
        exact * (1 - 1e-12) <= mean <= exact + 0.02 * float(copies * weights.sum()) / math.sqrt(n)
    )


@given(seed=st.integers(0, 2**32 - 1))
def test_a_few_flips_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    weights, rates = rng.uniform(0.1, 1.0, n), rng.uniform(0.01, 0.99, n)
    points, masses = upper_law(weights, rates).arrays()
    exact_points, exact_masses = enumerated(weights, rates)
    np.testing.assert_allclose(points, exact_points, rtol=1e-14)
    np.testing.assert_allclose(masses, exact_masses, rtol=1e-12)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize(
    ("n", "rate"),
    [
        (20, 0.5),
        (40, 1e-6),
        (300, 0.01),
        (300, 0.49),
        (300, 0.51),
        (2000, 0.3),
        (2000, 0.999),
        (100_000, 0.4),
        (100_000, 0.6),
        (1_000_000, 0.01),
    ],
)
def test_equal_weights_stay_above_the_binomial_law(n: int, rate: float, copies: int) -> None:
    law = upper_law(np.full(n, 0.7), np.full(n, rate), copies=copies)
    law_of_sorts(law)
    points, masses = law.arrays()
    tails = np.r_[np.cumsum(masses[::-1])[::-1][1:], 0.0]
    counts = np.floor(points / 0.7 * (1 + 1e-13))
    exact = stats.binom.sf(counts, n * copies, rate)
    assert np.all(tails >= exact * (1 - 1e-9))
    mean, deviation = n * copies * rate, math.sqrt(n * copies * rate * (1 - rate))
    assert 0.7 * mean <= float(points @ masses) * (1 + 1e-12)
    assert float(points @ masses) <= 0.7 * (mean + 0.05 * deviation + 0.1)


def test_tails_far_below_rounding_are_bounded_and_not_lost() -> None:
    n, rate = 2000, 0.01
    points, masses = upper_law(np.ones(n), np.full(n, rate)).arrays()
    tails = np.r_[np.cumsum(masses[::-1])[::-1][1:], 0.0]
    far = (points > 120) & (points < 250)
    exact = stats.binom.sf(np.floor(points[far] + 1e-9), n, rate)
    assert np.any(exact < 1e-100)
    assert np.all(tails[far] >= exact)
    # A few powers of ten above, on a logarithmic scale a few percent.
    assert np.all(np.log(tails[far]) <= 0.75 * np.log(exact))


@given(
    n=st.integers(10, 60), rate=st.floats(1e-6, 0.999), top=st.integers(1, 50), seed=st.integers(0)
)
def test_chernoff_bounds_are_bounds(n: int, rate: float, top: int, seed: int) -> None:
    counts = np.random.default_rng(seed % 2**32).integers(1, top + 1, n)
    law = _law(counts, np.full(n, rate), 1, 4096)[0]
    levels = np.arange(0.0, 4096.0, 37.0)
    tails = np.array([law[int(level) :].sum() for level in levels])
    assert np.all(_chernoff(counts, np.full(n, rate), 1, levels) >= tails - 1e-12)


@pytest.mark.parametrize("n", [1000, 100_000])
@pytest.mark.parametrize("rate", [0.05, 0.45, 0.49, 0.55])
def test_the_transform_conserves_mass(n: int, rate: float) -> None:
    law = _law(np.ones(n, dtype=np.int64), np.full(n, rate), 1, 1 << 18)[0]
    counts = np.arange(n + 1)
    np.testing.assert_allclose(law[: n + 1], stats.binom.pmf(counts, n, rate), atol=1e-12)
    # Rounding below 0 is cut off, which adds a little everywhere.
    assert 1 - 1e-9 <= float(law.sum()) <= 1 + 1e-7


def test_dust_is_charged_as_if_drawn() -> None:
    weights = np.r_[np.ones(12), np.full(50, 1e-7)]
    rates = np.full(62, 0.3)
    law = upper_law(weights, rates)
    with_dust = upper_law(np.ones(12), rates[:12], rest=5e-6)
    assert float(np.dot(*law.arrays())) >= 0.3 * float(weights.sum())
    assert float(np.dot(*law.arrays())) <= float(np.dot(*with_dust.arrays())) * (1 + 1e-3)


def test_rest_moves_every_atom_and_caps_move_none_up() -> None:
    weights, rates = np.array([1.0, 0.5, 0.25]), np.array([0.2, 0.3, 0.4])
    plain, moved = upper_law(weights, rates), upper_law(weights, rates, rest=2.0)
    np.testing.assert_allclose(moved.points, np.array(plain.points) + 2.0)
    assert moved.masses == plain.masses
    capped = plain.capped(0.6)
    law_of_sorts(capped)
    assert capped.points == (0.0, 0.25, 0.5, 0.6)
    assert capped.masses[-1] == pytest.approx(sum(plain.masses[3:]))
    assert np.all(np.array(plain.scaled(3.0).points) >= 3.0 * np.array(plain.points))


def test_sums_of_nothing() -> None:
    assert upper_law(np.zeros(0), np.zeros(0)) == NOTHING
    assert upper_law(np.array([0.0, 1.0]), np.array([0.5, 0.0])) == NOTHING
    assert upper_law(np.array([1.0]), np.array([1.0])) == AtomLaw((1.0,), (1.0,))
    assert upper_law(np.ones(30), np.ones(30)).points[-1] == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("weights", "rates"), [([-1.0], [0.5]), ([1.0], [1.5]), ([1.0], [-0.1]), ([1.0, 1.0], [0.5])]
)
def test_what_is_no_sum_of_flips_is_refused(weights: list[float], rates: list[float]) -> None:
    with pytest.raises(InvalidInput, match="has a rate in"):
        upper_law(np.array(weights), np.array(rates))


def test_both_neighbors_of_an_atom_with_the_mean_kept_would_not_be_above() -> None:
    rounded = AtomLaw((0.0, 2.0), (0.5, 0.5))
    assert np.any(exceeds(rounded, np.array([1.0]), np.array([1.0])) < -0.4)


def test_enumeration_agrees_with_itself() -> None:
    weights, rates = np.array([0.3, 0.7, 0.2]), np.array([0.1, 0.6, 0.9])
    points, masses = enumerated(weights, rates)
    for drawn in itertools.product((0, 1), repeat=3):
        chance = math.prod(q if i else 1 - q for i, q in zip(drawn, rates, strict=True))
        place = int(np.argmin(np.abs(points - np.dot(drawn, weights))))
        assert masses[place] == pytest.approx(chance)
