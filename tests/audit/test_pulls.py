"""Walks that curved losses pull: enclosing intervals, rounding, patterns and single steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from dplateau.audit.clamped_walks import ClampedLaw
from dplateau.audit.final_law import RoundedLaw, enclose, final_law
from dplateau.audit.walks import Always, Bernoulli, Once, Periodic, Reshuffled, Until, Walk
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

BASE = Walk(steps=12, contraction=0.95, noise_std=1.0, drift=0.2, jump=0.7,
             inclusion=Bernoulli(0.3), start=0.5, lower=-4.0, upper=5.0, pull=0.6,
             pull_change=-0.1, record_pull=0.05, center=0.4, width=1.3)  # fmt: skip


def sampled(walk: Walk, size: int) -> FloatArray:
    """All states of sampled walks, one column per step."""
    draw = np.random.default_rng(9)
    x = np.full(size, walk.start)
    states = []
    for time in range(walk.steps):
        step = walk.step_at(time)
        branch = draw.choice(len(step.shifts), size=size, p=step.weights)
        moved = np.stack([image for _, image in step.images(x)])[branch, np.arange(size)]
        x = np.clip(moved + step.noise_std * draw.normal(size=size), walk.lower, walk.upper)
        states.append(x)
    return np.stack(states, axis=1)


@pytest.mark.parametrize("pull", [0.6, 0.95, 1.7, -0.4])
def test_two_steps_against_an_integral(pull: float) -> None:
    walk = replace(BASE, steps=2, pull=pull, inclusion=Always())
    image = lambda x: walk.step_at(0).images(np.array([x]))[0][1][0]  # noqa: E731
    points = np.array([-3.0, 0.0, 1.1, 4.9])
    first = image(walk.start)
    tail = ClampedLaw(walk).tail(points)
    for index, point in enumerate(points):
        inside, _ = quad(
            lambda y, at=point: norm.pdf(y - first) * ndtr(image(y) - at),
            walk.lower, walk.upper, points=list(walk.kinks), epsabs=1e-13, limit=200,
        )  # fmt: skip
        below = ndtr(walk.lower - first) * ndtr(image(walk.lower) - point)
        above = ndtr(first - walk.upper) * ndtr(image(walk.upper) - point)
        assert tail.lower[index] == pytest.approx(inside + below + above, abs=1e-11)


def test_rounding_brackets_the_same_law() -> None:
    points = np.linspace(-3.5, 4.5, 9)
    exact, rounded = ClampedLaw(BASE).tail(points), RoundedLaw(BASE, 801).tail(points)
    assert np.all(rounded.lower <= exact.upper)
    assert np.all(exact.lower <= rounded.upper)
    assert rounded.width < 0.1
    with pytest.raises(NotApplicable, match="no larger pulls"):
        RoundedLaw(replace(BASE, pull=1.5))


@pytest.mark.parametrize(
    "walk",
    [
        replace(BASE, lower=-np.inf, upper=np.inf),
        replace(BASE, lower=-np.inf, upper=np.inf, steps=400, contraction=1.0, pull=0.3, width=4.0),
        replace(BASE, lower=-np.inf, upper=np.inf, pull=1.6),
        replace(BASE, lower=-np.inf, upper=np.inf, pull=-0.5),
        replace(BASE, lower=-np.inf, upper=np.inf, inclusion=Once(4), pull_when=Until(4)),
        replace(BASE, lower=-np.inf, upper=np.inf, inclusion=Periodic(3, 2),
                pull_when=Periodic(3, 1)),
    ],
    ids=["inner", "long", "overshoot", "repelled", "until", "periodic"],
)  # fmt: skip
def test_enclosed_walks(walk: Walk) -> None:
    low, high, outside = enclose(walk)
    states = sampled(walk, 4000)
    assert low < states.min() < states.max() < high
    assert outside < 1e-16
    # Not needlessly wide either.
    assert high - low < 60 + 3 * np.ptp(states)
    points = np.quantile(states[:, -1], [0.1, 0.5, 0.9])
    bracket = final_law(walk).tail(points)
    assert bracket.lower == pytest.approx([0.9, 0.5, 0.1], abs=0.03)


def test_enclosing_refuses_what_it_cannot() -> None:
    free = replace(BASE, lower=-np.inf, upper=np.inf)
    with pytest.raises(NotApplicable, match="Lipschitz"):
        enclose(replace(free, width=np.inf))
    with pytest.raises(NotApplicable, match="contraction <= 1"):
        enclose(replace(free, contraction=1.1))


def test_patterns_of_pulls() -> None:
    walk = replace(BASE, inclusion=Once(3), pull_when=Until(3), steps=6)
    pulls = [walk.step_at(t).pulls for t in range(6)]
    assert pulls[:3] == [(0.6,)] * 3
    assert pulls[3] == pytest.approx((0.55,))
    assert pulls[4:] == [(), ()]
    quiet = walk.first(2)
    assert [quiet.step_at(t) for t in range(2)] == [walk.step_at(t) for t in range(2)]
    with pytest.raises(NotApplicable, match="not independent"):
        replace(walk, inclusion=Reshuffled(3)).step_at(0)


@pytest.mark.parametrize("count", [7, 50, 333])
def test_cycles_of_pulls_equal_step_by_step(count: int) -> None:
    walk = replace(BASE, inclusion=Periodic(5, 3), pull_when=Periodic(5, 3), steps=count)
    points = np.linspace(-3.5, 4.5, 7)
    listed = replace(walk, drift=(0.2,) * count)  # not homogeneous: every step on its own
    assert ClampedLaw(walk).tail(points).lower == pytest.approx(
        ClampedLaw(listed).tail(points).lower, rel=1e-9, abs=1e-12
    )
