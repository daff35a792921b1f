"""The clamped Gaussian walk against quadrature, sampling, symmetry and its own limits."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from dplateau.audit import clamped_walks
from dplateau.audit.clamped_walks import ClampedLaw, gauss_legendre, quadrature_error
from dplateau.audit.final_law import RoundedLaw, final_law, wall_probability
from dplateau.audit.laws import PaddedLaw
from dplateau.audit.linear_walks import RidgeLaw, gaussian_law
from dplateau.audit.problems import WalkProblem, lower_epsilon, solve
from dplateau.audit.walks import Always, Bernoulli, Once, Periodic, Walk
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

BASE = Walk(steps=3, contraction=0.9, noise_std=0.8, drift=-0.1, jump=0.6,
             inclusion=Bernoulli(0.3), start=0.4, lower=-1.0, upper=1.5)  # fmt: skip


def by_quad(walk: Walk, point: float, at: int = 0, state: float | None = None) -> float:
    """P(X_T > point | X_at = state), by adaptive quadrature of nested integrals."""
    x = walk.start if state is None else state
    step, last = walk.step_at(at), at == walk.steps - 1
    total = 0.0
    for shift, weight in zip(step.shifts, step.weights, strict=True):
        u, noise = step.contraction * x + shift, step.noise_std
        if last:
            total += weight * float(ndtr((u - point) / noise))
            continue
        low = by_quad(walk, point, at + 1, walk.lower) * ndtr((walk.lower - u) / noise)
        high = by_quad(walk, point, at + 1, walk.upper) * ndtr((u - walk.upper) / noise)

        def inner(z: float, u: float = u, noise: float = noise) -> float:
            height = math.exp(-(((z - u) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))
            return height * by_quad(walk, point, at + 1, z)

        middle = quad(inner, walk.lower, walk.upper, epsabs=1e-13, epsrel=1e-12)[0]
        total += weight * float(low + high + middle)
    return total


def sample(walk: Walk, size: int, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    x = np.full(size, walk.start)
    for at in range(walk.steps):
        step = walk.step_at(at)
        shifts = rng.choice(step.shifts, size=size, p=step.weights)
        x = step.contraction * x + shifts + step.noise_std * rng.normal(size=size)
        x = np.clip(x, walk.lower, walk.upper)
    return x


@pytest.mark.parametrize(
    "walk",
    [
        replace(BASE, steps=1),
        replace(BASE, steps=2),
        replace(BASE, steps=3, inclusion=Once(1)),
        replace(BASE, steps=2, contraction=(1.2, 0.5), noise_std=(0.3, 0.9)),
    ],
    ids=["one", "two", "three-once", "schedule"],
)
def test_brackets_hold_nested_integrals(walk: Walk) -> None:
    points = np.array([-1.0, -0.2, 0.5, 1.499])
    tail = ClampedLaw(walk).tail(points)
    exact = np.array([by_quad(walk, float(point)) for point in points])
    assert np.all(tail.lower <= exact + 1e-11)
    assert np.all(exact <= tail.upper + 1e-11)
    assert tail.width < 1e-11
    assert np.all(tail.below_lower <= 1 - exact + 1e-11)
    assert np.all(1 - exact <= tail.below_upper + 1e-11)


@pytest.mark.parametrize("inclusion", [Always(), Bernoulli(0.2), Periodic(7, 3), Once(50)])
def test_brackets_hold_sampled_frequencies(inclusion: Always | Bernoulli | Periodic | Once) -> None:
    walk = Walk(steps=60, contraction=1.0, noise_std=1.0, drift=-0.05, jump=0.5,
                  inclusion=inclusion, start=0.0, lower=-4.0, upper=4.0)  # fmt: skip
    found = sample(walk, 40_000, 5)
    points = np.array([-4.0, -3.0, 0.0, 2.0, np.nextafter(4.0, 0.0)])
    tail = ClampedLaw(walk).tail(points)
    frequency = np.mean(found[:, None] > points, axis=0)
    noise = 5 * np.sqrt(frequency * (1 - frequency) / found.size) + 1e-4
    assert np.all(np.abs(frequency - tail.lower) < noise)
    assert np.all(np.abs(frequency - tail.upper) < noise)


def test_monotone_rounding_brackets_the_same_law_and_narrows() -> None:
    walk = replace(BASE, steps=15)
    points = np.linspace(-1.0, 1.49, 13)
    exact = ClampedLaw(walk).tail(points)
    widths = []
    for size in (101, 201, 401):
        rounded = RoundedLaw(walk, size).tail(points)
        assert np.all(rounded.lower <= exact.upper)
        assert np.all(exact.lower <= rounded.upper)
        widths.append(rounded.width)
    assert widths[1] < 0.55 * widths[0]
    assert widths[2] < 0.55 * widths[1]


@pytest.mark.parametrize("count", [199, 200, 640, 5000])
@pytest.mark.parametrize("inclusion", [Always(), Bernoulli(0.1), Periodic(9, 8), Once(123)])
def test_powers_of_the_kernel_equal_step_by_step(
    count: int, inclusion: Always | Bernoulli | Periodic | Once
) -> None:
    walk = Walk(steps=count, contraction=0.995, noise_std=1.0, drift=0.1, jump=0.4,
                  inclusion=inclusion, start=2.0, lower=-3.0, upper=3.0)  # fmt: skip
    points = np.linspace(-3.0, 2.9, 7)
    quick = ClampedLaw(walk).tail(points)
    law = ClampedLaw(replace(walk, steps=1))
    plain = replace(walk, steps=count)
    occupied = np.zeros(law._states.size)
    occupied[-1] = 1.0
    matrices = {plain.step_at(t): law._matrix(plain.step_at(t)) for t in range(count - 1)}
    for t in range(count - 1):
        occupied = occupied @ matrices[plain.step_at(t)]
    last = plain.step_at(count - 1)
    exact = sum(
        weight * (occupied @ ndtr((0.995 * law._states + shift)[:, None] - points))
        for shift, weight in zip(last.shifts, last.weights, strict=True)
    )
    assert np.all(quick.lower <= exact + 1e-10)
    assert np.all(exact <= quick.upper + 1e-10)


def test_far_walls_leave_the_walk_alone() -> None:
    free = Walk(steps=200, contraction=0.97, noise_std=1.0, drift=0.0, jump=0.3,
                 inclusion=Always(), start=0.0)  # fmt: skip
    points = np.linspace(-5.0, 20.0, 26)
    exact = gaussian_law(free).tail(points)
    clamped = ClampedLaw(replace(free, lower=-60.0, upper=80.0)).tail(points)
    assert np.all(clamped.lower <= exact.upper)
    assert np.all(exact.lower <= clamped.upper)
    assert np.max(np.abs(clamped.lower - exact.lower)) < 1e-8
    random = replace(free, inclusion=Bernoulli(0.2))
    exact = RidgeLaw(random).tail(points)
    clamped = ClampedLaw(replace(random, lower=-60.0, upper=80.0)).tail(points)
    assert np.max(np.abs(clamped.lower - exact.lower)) < 1e-8


def test_walls_out_of_reach_are_ignored_with_a_charge() -> None:
    walk = Walk(steps=200, contraction=0.97, noise_std=1.0, drift=0.0, jump=0.3,
                  inclusion=Bernoulli(0.2), start=0.0, lower=-60.0, upper=80.0)  # fmt: skip
    met = wall_probability(walk)
    assert 0 <= met < 1e-16
    assert isinstance(final_law(walk), PaddedLaw)
    near = replace(walk, lower=-15.0)
    assert isinstance(final_law(near), ClampedLaw)
    hit = np.mean(sample(replace(walk, lower=-6.0, steps=30), 4000, 2) <= -6.0)
    assert hit <= wall_probability(replace(walk, lower=-6.0, steps=30)) <= 1.0


def test_reflection_swaps_the_tails() -> None:
    walk = replace(BASE, steps=40)
    mirror = replace(walk, drift=0.1, jump=-0.6, start=-0.4, lower=-1.5, upper=1.0)
    points = np.linspace(-0.9, 1.4, 9)
    there, back = ClampedLaw(walk).tail(points), ClampedLaw(mirror).tail(-points)
    assert there.lower == pytest.approx(back.below_lower, rel=1e-10)
    assert there.below_upper == pytest.approx(back.upper, rel=1e-10)


def test_symmetric_replacement_is_symmetric() -> None:
    problem = WalkProblem(steps=500, contraction=1.0, record_step=0.1, noise_std=1.0,
                          lower=-5.0, upper=5.0, neighbors="replace")  # fmt: skip
    present, absent = solve(problem, np.linspace(-4.5, 4.5, 19))
    assert present.lower == pytest.approx(absent.below_lower[::-1], rel=1e-9)


def test_long_runs_reach_a_plateau() -> None:
    problem = WalkProblem(steps=10**4, contraction=1.0, record_step=0.05, noise_std=1.0,
                          lower=-5.0, upper=5.0)  # fmt: skip
    early = lower_epsilon(problem, 1e-5).epsilon
    late = lower_epsilon(replace(problem, steps=10**6), 1e-5).epsilon
    assert late == pytest.approx(early, rel=1e-4)
    assert early < 0.05 * math.sqrt(10**4)


def test_an_even_drift_from_the_wall_helps_the_attack() -> None:
    plain = WalkProblem(steps=3000, contraction=1.0, record_step=0.02, noise_std=1.0,
                        lower=-10.0, upper=10.0)  # fmt: skip
    pushed = replace(plain, drift=-0.15)
    assert lower_epsilon(pushed, 1e-5).epsilon > 1.3 * lower_epsilon(plain, 1e-5).epsilon


@pytest.mark.parametrize("points", [4, 17, 40, 64])
def test_rules_are_correctly_rounded(points: int) -> None:
    nodes, weights = gauss_legendre(points)
    with mpmath.workdps(40):
        for node, weight in list(zip(nodes, weights, strict=True))[:: max(1, points // 7)]:
            x = mpmath.findroot(lambda t: mpmath.legendre(points, t), mpmath.mpf(float(node)))
            slope = points * mpmath.legendre(points - 1, x) / (1 - x * x)
            assert abs(x - node) < 1.2e-16
            assert abs(2 / ((1 - x * x) * slope**2) / weight - 1) < 1.2e-16


@pytest.mark.parametrize(("points", "half"), [(6, 1.0), (12, 2.0), (24, 6.0)])
def test_quadrature_error_bound_is_one(points: int, half: float) -> None:
    """Integrate density times normal tail over [-half, half] and compare with 30 digits."""
    nodes, weights = gauss_legendre(points)
    for center, edge in [(0.0, 0.3), (0.5 * half, -0.2), (half, half)]:
        values = np.exp(-((half * nodes - center) ** 2) / 2) * ndtr(half * nodes - edge)
        found = half * float(weights @ values) / math.sqrt(2 * math.pi)
        with mpmath.workdps(30):
            exact = mpmath.quad(
                lambda z, m=center, e=edge: mpmath.npdf(z - m) * mpmath.ncdf(z - e),
                mpmath.linspace(-half, half, 9),
            )
            assert abs(found - exact) <= quadrature_error(points, 1, half, 1.0) + 1e-15


@pytest.mark.parametrize("steps", [10, 1000, 10**6])
def test_a_long_walk_takes_few_small_products(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    without_trifles = clamped_walks._drop

    def counted(product: FloatArray) -> FloatArray:
        sizes.append(product.size)
        return without_trifles(product)

    monkeypatch.setattr(clamped_walks, "_drop", counted)
    ClampedLaw(Walk(steps=steps, contraction=1.0, noise_std=1.0, drift=0.0, jump=0.3,
                     inclusion=Bernoulli(0.1), start=0.0, lower=-5.0, upper=5.0))  # fmt: skip
    assert 0 < len(sizes) < 30 + math.log2(steps)
    assert max(sizes) < 50**2


def test_refusals() -> None:
    with pytest.raises(NotApplicable, match="bounded interval"):
        ClampedLaw(BASE.unconstrained())
    with pytest.raises(NotApplicable, match="noises wide"):
        ClampedLaw(replace(BASE, lower=-1e5, upper=1e5))
