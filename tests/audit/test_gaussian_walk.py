"""The walk without walls and with a fixed pattern: exact means, variances and curves."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from dplateau.audit.laws import gaussian_delta_below, gaussian_epsilon_below, normal_tail
from dplateau.audit.linear_walks import gaussian_law, geometric_sum, linear_sums
from dplateau.audit.problems import WalkProblem, lower_delta, lower_epsilon
from dplateau.audit.walks import Always, Bernoulli, Once, Periodic, Walk
from dplateau.errors import NotApplicable

# Closed forms of the full-batch and cyclic linear-quadratic problems, evaluated with mpmath.
FULL_BATCH = [
    (0.95, 100, 0.620813, 2.540615),
    (0.95, 10**6, 0.624500, 2.557622),
    (0.99, 10**6, 1.410674, 6.553399),
]
CYCLIC = [(50, 0.9999, 0.992491, 4.339159), (200, 0.9998, 1.506124, 7.085873)]


def theta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize(("ratio", "steps", "mu", "epsilon"), FULL_BATCH)
def test_full_batch_meets_the_closed_form(
    ratio: float, steps: int, mu: float, epsilon: float
) -> None:
    problem = WalkProblem(steps=steps, contraction=ratio, record_step=0.1, noise_std=1.0)
    found = lower_epsilon(problem, 1e-5)
    assert found.epsilon == pytest.approx(epsilon, abs=6e-7)
    assert found.epsilon == pytest.approx(gaussian_epsilon_below(mu, 1e-5), abs=1e-5)
    assert found.rigorous


def test_replace_doubles_the_shift() -> None:
    walk = WalkProblem(steps=50, contraction=0.9, record_step=0.1, noise_std=1.0)
    twice = WalkProblem(steps=50, contraction=0.9, record_step=0.05, noise_std=1.0,
                        neighbors="replace")  # fmt: skip
    assert lower_epsilon(walk, 1e-6).epsilon == pytest.approx(lower_epsilon(twice, 1e-6).epsilon)


@pytest.mark.parametrize(("epochs", "ratio", "mu", "epsilon"), CYCLIC)
def test_cyclic_batches_meet_the_closed_form(
    epochs: int, ratio: float, mu: float, epsilon: float
) -> None:
    problem = WalkProblem(steps=40 * epochs, contraction=ratio, record_step=2 / 3, noise_std=1.0,
                          inclusion=Periodic(40, 39))  # fmt: skip
    found = lower_epsilon(problem, 1e-5)
    # The process itself, summed in one line, and the optimum of the shift program agree only up
    # to the slack of the latter: the program is an upper bound when the record rests in between.
    ages = 40 * np.arange(epochs)
    direct = 2 / 3 * np.sum(ratio**ages) / math.sqrt(np.sum(ratio ** (2 * np.arange(40 * epochs))))
    assert found.epsilon == pytest.approx(gaussian_epsilon_below(direct, 1e-5), rel=1e-9)
    assert found.epsilon <= epsilon
    assert direct <= mu


def test_one_pass_meets_the_closed_form() -> None:
    ratio, steps, at = 0.9, 30, 20
    problem = WalkProblem(steps=steps, contraction=ratio, record_step=1.0, noise_std=2.0,
                          inclusion=Once(at))  # fmt: skip
    later = steps - 1 - at
    mu = 0.5 * ratio**later / math.sqrt(sum(ratio ** (2 * j) for j in range(steps)))
    expected = gaussian_epsilon_below(mu, 1e-3)
    assert lower_epsilon(problem, 1e-3).epsilon == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("inclusion", [Always(), Periodic(3, 1), Once(4)])
def test_constant_and_listed_parameters_agree(inclusion: Always | Periodic | Once) -> None:
    constant = Walk(steps=11, contraction=0.8, noise_std=1.5, drift=0.3, jump=0.7,
                     inclusion=inclusion, start=2.0)  # fmt: skip
    listed = Walk(steps=11, contraction=(0.8,) * 11, noise_std=(1.5,) * 11, drift=(0.3,) * 11,
                   jump=(0.7,) * 11, inclusion=inclusion, start=2.0)  # fmt: skip
    one, two = gaussian_law(constant), gaussian_law(listed)
    assert one.mean == pytest.approx(two.mean, rel=1e-14)
    assert one.std == pytest.approx(two.std, rel=1e-14)


def test_schedules_follow_the_recursion() -> None:
    rng = np.random.default_rng(3)
    steps = 9
    ratios, noises = rng.uniform(0.5, 1.1, steps), rng.uniform(0.5, 2.0, steps)
    jumps, drifts = rng.normal(size=steps), rng.normal(size=steps)
    walk = Walk(steps=steps, contraction=tuple(ratios), noise_std=tuple(noises),
                  drift=tuple(drifts), jump=tuple(jumps), inclusion=Periodic(2, 1),
                  start=1.0)  # fmt: skip
    mean, variance = 1.0, 0.0
    for t in range(steps):
        mean = ratios[t] * mean + drifts[t] + (jumps[t] if t % 2 == 1 else 0.0)
        variance = ratios[t] ** 2 * variance + noises[t] ** 2
    law = gaussian_law(walk)
    assert law.mean == pytest.approx(mean, abs=1e-13)
    assert law.std == pytest.approx(math.sqrt(variance), rel=1e-14)


@pytest.mark.parametrize("ratio", [0.0, 1e-9, 0.3, 0.999999, 1.0, 1.01])
@pytest.mark.parametrize("power", [1, 2, 7])
def test_geometric_sums_keep_their_digits(ratio: float, power: int) -> None:
    with mpmath.workdps(50):
        exact = mpmath.fsum(mpmath.mpf(ratio) ** (power * k) for k in range(200))
        assert abs(geometric_sum(ratio, power, 200) / exact - 1) < 4e-15


def test_tail_brackets_hold_the_normal_law_far_out() -> None:
    z = np.linspace(-35.0, 8.0, 87)
    lower, upper = normal_tail(z)
    with mpmath.workdps(40):
        for at, low, high in zip(z, lower, upper, strict=True):
            exact = mpmath.ncdf(mpmath.mpf(float(at)))
            assert low <= exact <= high
            assert high - low <= 1e-11 * exact


def test_law_brackets_are_tight_on_both_sides() -> None:
    walk = Walk(steps=40, contraction=0.97, noise_std=0.7, drift=0.1, jump=0.2,
                  inclusion=Always(), start=-1.0)  # fmt: skip
    law = gaussian_law(walk)
    tail = law.tail(np.array([law.mean - 8 * law.std, law.mean, law.mean + 8 * law.std]))
    assert np.all(tail.upper <= tail.lower * (1 + 1e-11))
    assert np.all(tail.below_upper <= tail.below_lower * (1 + 1e-11))


@pytest.mark.parametrize(
    ("mu", "delta"), list(itertools.product([1e-3, 0.1, 1.0, 6.0, 40.0], [1e-12, 1e-5, 0.2]))
)
def test_curve_is_rounded_down_and_close(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon_below(mu, delta)
    if epsilon == 0:
        assert theta(0.0, mu) <= delta * (1 + 1e-9)
        return
    assert theta(epsilon, mu) >= delta
    assert theta(epsilon * (1 + 1e-6), mu) < delta
    assert gaussian_delta_below(epsilon, mu) <= theta(epsilon, mu)


def test_curve_survives_large_epsilon() -> None:
    assert gaussian_delta_below(800.0, 1.0) == 0.0
    assert gaussian_delta_below(800.0, 40.0) == pytest.approx(float(theta(800.0, 40.0)), rel=1e-9)


def test_lower_delta_is_the_curve() -> None:
    problem = WalkProblem(steps=100, contraction=0.95, record_step=0.1, noise_std=1.0)
    found = lower_delta(problem, 2.540615)
    assert found.delta == pytest.approx(1e-5, rel=1e-5)
    assert found.epsilon == 2.540615


def test_refusals() -> None:
    walk = Walk(steps=3, contraction=1.0, noise_std=1.0, drift=0.0, jump=1.0,
                  inclusion=Bernoulli(0.5), start=0.0)  # fmt: skip
    with pytest.raises(NotApplicable, match="indicators that are not random"):
        gaussian_law(walk)
    wild = Walk(steps=10**6, contraction=1.5, noise_std=1.0, drift=0.0, jump=1.0,
                 inclusion=Always(), start=0.0)  # fmt: skip
    with pytest.raises(NotApplicable, match="overflow"):
        linear_sums(wild)
