"""The verifier's own tools against brute force and numbers known from elsewhere."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import stats

from dplateau.verify.claims import released_epsilon, rows_epsilon
from dplateau.verify.composed import Rows, SampledNoise, composed_curve, composed_epsilon
from dplateau.verify.facts import binomial_tail
from dplateau.verify.pairs import (
    GaussianPair,
    LaplacePair,
    LossPair,
    SampledPair,
    SwappedPair,
)
from dplateau.verify.precise import (
    best_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    sampled_divergence,
)
from dplateau.verify.walks import Modulus, Program, ShiftBlocks, Stretch, absorb, forward_distance


def test_gaussian_curves_of_fifty_digits() -> None:
    assert float(gaussian_epsilon(1.0, 1e-5)) == pytest.approx(4.377178, abs=1e-6)
    assert 0 < gaussian_delta(800, 1) < 1e-300
    assert gaussian_epsilon(0.0, 1e-5) == 0
    assert gaussian_epsilon(1e-7, 1e-5) == 0


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
    assert float(best_epsilon(order, divergence, 1e-5)) == pytest.approx(epsilon, abs=1e-6)


def test_sampled_divergence_of_whole_order() -> None:
    """For order 2 it is log(1 + q^2 (e^(d^2) - 1))."""
    for rate, distance in ((0.01, 1.0), (0.3, 2.5), (1e-4, 0.2)):
        exact = math.log1p(rate**2 * math.expm1(distance**2))
        assert float(sampled_divergence(2.0, rate, distance)) == pytest.approx(exact, rel=1e-12)


def naive(program: Program, start: int, u: float, blocks: ShiftBlocks) -> tuple[float, float]:
    """Walk one step at a time."""
    steps = [s for s in program.stretches_from(start) for _ in range(s.count)]
    shifts = [first * ratio**i for count, first, ratio in blocks for i in range(count)]
    total, beyond = 0.0, u
    for step, shift in zip(steps, shifts, strict=True):
        beyond = max(0.0, step.modulus(u) + step.reach - shift)
        u = min(program.diameter, beyond)
        total += (shift / step.nu) ** 2
    extra = beyond * (2 * shifts[-1] + beyond) / steps[-1].nu ** 2
    return beyond, total + extra


@pytest.mark.parametrize("seed", range(40))
def test_walks_in_closed_form_are_the_walks_step_by_step(seed: int) -> None:
    rng = random.Random(seed)
    period = tuple(
        Stretch(
            rng.choice([1, 3, 60, 200]),
            Modulus(rng.choice([0.0, 0.7, 0.99, 1.0, 1.01]), rng.choice([0.0, 0.0, 1e-3])),
            rng.choice([0.0, 0.1, 1.0]),
            rng.uniform(0.5, 2.0),
        )
        for _ in range(rng.randint(1, 3))
    )
    program = Program(period, rng.randint(1, 4), rng.choice([math.inf, 0.5, 20.0]))
    start = rng.randrange(program.steps)
    blocks: ShiftBlocks = []
    left = program.steps - start
    while left:
        count = rng.randint(1, left)
        blocks.append((count, rng.choice([0.0, rng.uniform(0, 1)]), rng.choice([1.0, 1.02, 0.9])))
        left -= count
    u = 0.0
    for stretch in program.stretches_from(0):
        for _ in range(stretch.count):
            u = min(program.diameter, stretch.modulus(u) + stretch.reach)
    assert forward_distance(program, program.steps) == pytest.approx(u, rel=1e-9)
    found = absorb(program, start, 0.3, blocks)
    leftover, total = naive(program, start, 0.3, blocks)
    assert found.leftover == pytest.approx(leftover, rel=1e-8, abs=1e-9 * found.scale)
    assert found.sum_of_squares == pytest.approx(total, rel=1e-8, abs=1e-12)


def test_binomial_tails() -> None:
    for most, trials, rate in ((15, 100, 0.05), (3, 5, 0.9), (500, 1000, 0.3), (120, 10**5, 1e-3)):
        exact = float(stats.binom.sf(most, trials, rate))
        assert binomial_tail(most, trials, rate) == pytest.approx(exact, rel=1e-9)
    assert binomial_tail(7, 7, 0.5) == 0


def brute_delta(pair: SampledPair, epsilon: float, order: int) -> float:
    x = np.linspace(-12.0, 12.0 + pair.shift + pair.step, 400_001)
    plain = stats.norm.pdf(x)
    mixed = (1 - pair.rate) * stats.norm.pdf(x - pair.shift)
    mixed += pair.rate * stats.norm.pdf(x - pair.shift - pair.step)
    first, second = (mixed, plain) if order == 0 else (plain, mixed)
    gap = np.maximum(first - math.exp(epsilon) * second, 0.0)
    return float(gap.sum() * (x[1] - x[0]))


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("pair", [SampledPair(0.1, 1.0), SampledPair(0.02, 2.0, 0.3)])
def test_deltas_of_a_sampled_step(pair: SampledPair, order: int) -> None:
    epsilons = np.array([-1.0, -0.05, 0.0, 0.04, 0.3, 1.5])
    found = pair.deltas(epsilons, order)
    exact = [brute_delta(pair, float(eps), order) for eps in epsilons]
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-9)


def test_deltas_of_a_swap_follow_from_its_law_of_losses() -> None:
    """The law of the loss of C_q(G(m)), of which the curve is an integral."""
    rate, m = 0.2, 1.5

    def cdf(t: float) -> float:
        inner = math.log((rate - 1 + math.exp(abs(t))) / rate) / m
        if t < 0:
            return float(stats.norm.cdf(-inner - m / 2))
        plain, moved = stats.norm.cdf(inner + m / 2), stats.norm.cdf(inner - m / 2)
        return float(rate * moved + (1 - rate) * plain)

    grid = np.linspace(-8.0, 12.0, 40_001)
    values = np.array([cdf(float(t)) for t in grid])
    masses, middles = np.diff(values), (grid[1:] + grid[:-1]) / 2
    for epsilon in (-0.7, 0.0, 0.4, 1.3):
        above = middles > epsilon
        exact = float(masses[above] @ -np.expm1(epsilon - middles[above]))
        found = SwappedPair(rate, m).deltas(np.array([epsilon]), 0)[0]
        assert found == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize(
    ("pair", "native"),
    [
        (SampledPair(0.05, 0.7), SampledNoise("gaussian", 0.7, 0.05, 200)),
        (GaussianPair(0.08), SampledNoise("gaussian", 0.08, 1.0, 200)),
        (LaplacePair(0.1, 1.0), SampledNoise("laplace", 0.1, 1.0, 200)),
        (LaplacePair(0.8, 0.1), SampledNoise("laplace", 0.8, 0.1, 200)),
    ],
)
def test_compositions_are_those_of_dp_accounting(pair: LossPair, native: SampledNoise) -> None:
    other = composed_epsilon([native], 1e-5, 1e-3)
    rows = Rows((pair,), np.array([[200.0]]), (1.0,), 0.0)
    assert rows_epsilon(rows, other, 1e-5).epsilon == pytest.approx(other, rel=2e-3)
    assert released_epsilon([(pair, 200)], other, 1e-5).epsilon == pytest.approx(other, rel=1e-3)


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-30, 1e-120])
def test_composed_gaussians_are_gaussian_at_every_delta(delta: float) -> None:
    exact = float(gaussian_epsilon(1.5, delta))
    rows = Rows((GaussianPair(0.15),), np.array([[100.0]]), (1.0,), 0.0)
    found = rows_epsilon(rows, exact, delta).epsilon
    assert exact <= found <= exact * 1.001


def test_rows_are_averaged_whatever_their_exposure() -> None:
    """A rare row with losses far above epsilon counts with its whole weight."""
    pairs = (GaussianPair(0.05), GaussianPair(3.0))
    counts = np.array([[100.0, 0.0], [100.0, 20.0]])
    rows = Rows(pairs, counts, (1 - 1e-6, 1e-6), 0.0)
    found = composed_curve(rows, 1e-3, 2.0, 1e-6)(2.0)
    exact = (1 - 1e-6) * gaussian_delta(2, 0.5) + 1e-6 * gaussian_delta(2, math.sqrt(180.25))
    assert float(exact) <= found <= float(exact) * 1.02


def test_long_schedules_are_grouped_upwards() -> None:
    mus = [0.1 + 1e-4 * i for i in range(300)]
    parts = [(GaussianPair(mu), 1) for mu in mus]
    exact = float(gaussian_epsilon(math.sqrt(sum(mu**2 for mu in mus)), 1e-5))
    assert released_epsilon(parts, exact, 1e-5).epsilon == pytest.approx(exact, rel=2e-3)
