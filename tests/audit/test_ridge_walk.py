"""The walk without walls under Poisson sampling, against enumeration, sampling and a table."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from dplateau.audit.final_law import RoundedLaw
from dplateau.audit.linear_walks import RidgeLaw, bernoulli_cumulants, gaussian_law
from dplateau.audit.problems import WalkProblem, lower_epsilon, solve
from dplateau.audit.walks import Always, Bernoulli, Walk
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

# contraction, rate, noise / record_step, steps, epsilon at delta = 1e-5 from an independent
# laboratory computation of the same walk, printed to three digits.
TABLE = [
    (0.99, 0.01, 1.0, 5000, 0.569),
    (0.99, 0.01, 2.0, 20000, 0.248),
    (0.95, 0.05, 2.0, 2000, 0.644),
    (0.995, 0.02, 4.0, 20000, 0.348),
    (0.9, 0.1, 2.0, 1000, 0.984),
    (0.98, 0.1, 5.0, 5000, 0.747),
    (0.999, 0.01, 4.0, 50000, 0.389),
]


def sampled_walk(steps: int, ratio: float, rate: float, jump: float, **more: float) -> Walk:
    return Walk(steps=steps, contraction=ratio, noise_std=more.get("noise_std", 1.0),
                 drift=more.get("drift", 0.0), jump=jump, inclusion=Bernoulli(rate),
                 start=more.get("start", 0.0))  # fmt: skip


def enumerate_tail(walk: Walk, points: FloatArray) -> list[mpmath.mpf]:
    """Sum over every pattern of indicators, in 30 digits."""
    assert isinstance(walk.inclusion, Bernoulli)
    ratio, noise, drift, jump = (mpmath.mpf(v) for v in walk.constants())
    rate = mpmath.mpf(walk.inclusion.rate)
    weights = [ratio**k for k in range(walk.steps)]
    base = ratio**walk.steps * mpmath.mpf(walk.start) + drift * mpmath.fsum(weights)
    std = noise * mpmath.sqrt(mpmath.fsum(w**2 for w in weights))
    found = [mpmath.mpf(0)] * points.size
    for bits in itertools.product((0, 1), repeat=walk.steps):
        mass = rate ** sum(bits) * (1 - rate) ** (walk.steps - sum(bits))
        mean = base + jump * mpmath.fsum(w for w, bit in zip(weights, bits, strict=True) if bit)
        for k, point in enumerate(points):
            found[k] += mass * mpmath.ncdf((mean - mpmath.mpf(float(point))) / std)
    return found


@pytest.mark.parametrize(("ratio", "rate", "noise", "steps", "epsilon"), TABLE)
def test_table_is_reproduced(
    ratio: float, rate: float, noise: float, steps: int, epsilon: float
) -> None:
    problem = WalkProblem(steps=steps, contraction=ratio, record_step=1.0, noise_std=noise,
                          inclusion=Bernoulli(rate))  # fmt: skip
    found = lower_epsilon(problem, 1e-5).epsilon
    assert found <= epsilon + 5.1e-4
    assert found >= 0.99 * epsilon
    assert max(bracket.width for bracket in solve(problem)) < 1e-11


@pytest.mark.parametrize("seed", range(12))
def test_brackets_hold_the_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ratio = float(rng.choice([0.0, 1.0, 1.15, rng.uniform(0.2, 1.0)]))
    jump = float(rng.choice([-1, 1]) * 10 ** rng.uniform(-3, 1.7))
    walk = sampled_walk(int(rng.integers(1, 7)), ratio, float(rng.uniform(0.01, 0.99)), jump,
                 drift=float(rng.normal()), start=float(rng.normal()))  # fmt: skip
    law = RidgeLaw(walk)
    points = np.linspace(*law.span, 9)
    tail = law.tail(points)
    with mpmath.workdps(30):
        for k, exact in enumerate(enumerate_tail(walk, points)):
            assert tail.lower[k] <= exact <= tail.upper[k]
            assert tail.below_lower[k] <= 1 - exact <= tail.below_upper[k]
    assert tail.width < 1e-11


def test_thresholds_beyond_the_span_are_bracketed_too() -> None:
    law = RidgeLaw(sampled_walk(5, 0.9, 0.3, 1.0))
    low, high = law.span
    tail = law.tail(np.array([low - 5, low - 100, high + 5, high + 100]))
    assert np.all(tail.lower[:2] > 1 - 1e-15)
    assert np.all(tail.upper[2:] < 1e-17)


@pytest.mark.parametrize(("ratio", "steps"), [(1.0, 3000), (0.999, 3000)])
def test_large_step_counts_agree_with_sampling(ratio: float, steps: int) -> None:
    walk = sampled_walk(steps, ratio, 0.02, 1.5)
    rng = np.random.default_rng(7)
    weights = ratio ** np.arange(steps)
    total = np.zeros(20_000)
    for start in range(0, steps, 500):
        part = weights[start : start + 500]
        total += (rng.random((total.size, part.size)) < 0.02) @ part * 1.5
    total += rng.normal(size=total.size) * math.sqrt(np.sum(weights**2))
    points = np.quantile(total, [0.01, 0.3, 0.5, 0.9, 0.999])
    tail = RidgeLaw(walk).tail(points)
    frequency = np.mean(total[:, None] > points, axis=0)
    noise = 5 * np.sqrt(frequency * (1 - frequency) / total.size) + 1e-4
    assert np.all(np.abs(frequency - tail.lower) < noise)


def test_rates_near_one_approach_the_full_batch() -> None:
    steps, ratio = 400, 0.98
    sure = gaussian_law(Walk(steps=steps, contraction=ratio, noise_std=1.0, drift=0.0, jump=0.5,
                              inclusion=Always(), start=0.0))  # fmt: skip
    points = np.linspace(*sure.span, 15)
    close = RidgeLaw(sampled_walk(steps, ratio, 1 - 1e-9, 0.5)).tail(points)
    assert np.max(np.abs(close.lower - sure.tail(points).lower)) < 1e-8


def test_monotone_rounding_agrees() -> None:
    walk = sampled_walk(12, 0.9, 0.3, 0.8, start=0.5, drift=-0.1)
    points = np.linspace(-3.0, 6.0, 19)
    exact = RidgeLaw(walk).tail(points)
    coarse, fine = (RoundedLaw(walk, size).tail(points) for size in (401, 801))
    assert np.all(coarse.lower <= exact.upper)
    assert np.all(coarse.upper >= exact.lower)
    assert np.all(fine.lower <= exact.upper)
    assert np.all(fine.upper >= exact.lower)
    assert fine.width < 0.6 * coarse.width


@pytest.mark.parametrize("rate", [0.001, 0.4, 0.95])
def test_cumulants_match_the_series(rate: float) -> None:
    with mpmath.workdps(40):
        exact = mpmath.taylor(lambda w: mpmath.log(1 + rate * (mpmath.exp(w) - 1)), 0, 10)
    assert bernoulli_cumulants(rate) == pytest.approx([float(a) for a in exact], abs=1e-15)


def test_listed_parameters_agree_with_constants() -> None:
    steps = 60
    constant = sampled_walk(steps, 0.9, 0.2, 1.3)
    listed = Walk(steps=steps, contraction=(0.9,) * steps, noise_std=(1.0,) * steps, drift=0.0,
                   jump=(1.3,) * steps, inclusion=Bernoulli(0.2), start=0.0)  # fmt: skip
    points = np.linspace(-5.0, 12.0, 30)
    one, two = RidgeLaw(constant).tail(points), RidgeLaw(listed).tail(points)
    assert np.all(one.lower <= two.upper)
    assert np.all(two.lower <= one.upper)


def test_refusals() -> None:
    with pytest.raises(NotApplicable, match="0 < rate < 1"):
        RidgeLaw(sampled_walk(3, 1.0, 1.0, 1.0))
    with pytest.raises(NotApplicable, match="frequencies"):
        RidgeLaw(sampled_walk(3, 1.0, 0.5, 1e9))
