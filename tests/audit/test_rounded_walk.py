"""Monotone rounding: Laplace noise, missing walls, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad

from dplateau.audit.final_law import RoundedLaw, final_law, noise_survival
from dplateau.audit.problems import WalkProblem, lower_delta, lower_epsilon
from dplateau.audit.walks import Always, Bernoulli, Once, Walk
from dplateau.errors import NotApplicable

LAPLACE = Walk(steps=2, contraction=0.8, noise_std=math.sqrt(2.0), drift=0.2, jump=0.7,
                inclusion=Always(), start=0.1, noise_kind="laplace")  # fmt: skip


def laplace_tail(z: float) -> float:
    return 0.5 * math.exp(-z) if z >= 0 else 1 - 0.5 * math.exp(z)


def two_steps(walk: Walk, point: float) -> float:
    """P(X_2 > point) for unit Laplace scale, by one adaptive integral and the walls' atoms."""

    def last(x: float) -> float:
        return laplace_tail(point - 0.8 * x - 0.9)

    center = 0.8 * walk.start + 0.9

    def inner(x: float) -> float:
        return 0.5 * math.exp(-abs(x - center)) * last(x)

    low, high = max(walk.lower, center - 60), min(walk.upper, center + 60)
    found: float = quad(inner, low, center, epsabs=1e-12)[0]
    found += quad(inner, center, high, epsabs=1e-12)[0]
    if math.isfinite(walk.lower):
        found += (1 - laplace_tail(walk.lower - center)) * last(walk.lower)
    if math.isfinite(walk.upper):
        found += laplace_tail(walk.upper - center) * last(walk.upper)
    return found


@pytest.mark.parametrize(
    ("lower", "upper"), [(-math.inf, math.inf), (-1.0, 2.0), (-1.0, math.inf), (-math.inf, 2.0)]
)
def test_laplace_brackets_hold_the_integral(lower: float, upper: float) -> None:
    walk = replace(LAPLACE, lower=lower, upper=upper)
    points = np.array([-0.9, 0.0, 1.0, 1.9])
    exact = np.array([two_steps(walk, float(point)) for point in points])
    coarse, fine = (RoundedLaw(walk, size).tail(points) for size in (401, 1601))
    for tail in (coarse, fine):
        assert np.all(tail.lower <= exact)
        assert np.all(exact <= tail.upper)
    assert fine.width < 0.35 * coarse.width


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.9])
def test_one_laplace_step_is_exact(epsilon: float) -> None:
    shift, scale = 1.3, 1.1
    problem = WalkProblem(steps=1, contraction=1.0, record_step=shift,
                          noise_std=scale * math.sqrt(2.0), noise_kind="laplace")  # fmt: skip
    exact = 1 - math.exp(epsilon / 2 - shift / (2 * scale))
    assert lower_delta(problem, epsilon).delta == pytest.approx(exact, rel=2e-3)
    assert lower_delta(problem, epsilon).delta <= exact


def test_pure_epsilon_is_not_exceeded() -> None:
    problem = WalkProblem(steps=1, contraction=1.0, record_step=1.0, noise_std=math.sqrt(2.0),
                          noise_kind="laplace")  # fmt: skip
    assert 0.99 < lower_epsilon(problem, 1e-9).epsilon <= 1.0


def test_one_pass_with_laplace_noise_forgets() -> None:
    def found(at: int) -> float:
        walk = WalkProblem(steps=10, contraction=1.0, record_step=1.0, noise_std=1.5,
                           inclusion=Once(at), lower=-1.0, upper=1.0,
                           noise_kind="laplace")  # fmt: skip
        return lower_delta(walk, 0.1).delta

    assert found(9) > found(8) > found(5)


def test_gaussian_walk_with_one_wall_is_rounded() -> None:
    walk = Walk(steps=5, contraction=1.0, noise_std=1.0, drift=-0.5, jump=1.0,
                  inclusion=Bernoulli(0.5), start=0.0, lower=0.0)  # fmt: skip
    law = final_law(walk)
    assert isinstance(law, RoundedLaw)
    rng = np.random.default_rng(0)
    x = np.zeros(40_000)
    for _ in range(5):
        x = np.maximum(0.0, x - 0.5 + (rng.random(x.size) < 0.5) + rng.normal(size=x.size))
    tail = law.tail(np.array([0.0, 1.0, 3.0]))
    frequency = np.mean(x[:, None] > tail.points, axis=0)
    assert np.all(tail.lower <= frequency + 0.012)
    assert np.all(frequency <= tail.upper + 0.012)


def test_noise_tails_have_unit_variance() -> None:
    for kind in ("gaussian", "laplace"):
        variance = quad(lambda z, k=kind: 4 * z * noise_survival(np.array([z]), k)[0], 0, 40)[0]
        assert variance == pytest.approx(1.0, rel=1e-6)


def test_refusals() -> None:
    with pytest.raises(NotApplicable, match="contraction >= 0"):
        RoundedLaw(replace(LAPLACE, contraction=-0.5))
    with pytest.raises(NotApplicable, match="too many"):
        RoundedLaw(replace(LAPLACE, steps=10**6))
