"""No certificate lies below the exact law of a small chain."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from dplateau import Ball, Box, LossGeometry, NotApplicable, ProjectedLangevin, tv_over_steps
from dplateau.algorithms import Run
from dplateau.ground.types import FloatArray
from mixing_truth import GridChain, extreme_nodes, grid_chain

Gradient = Callable[[FloatArray], FloatArray]
STEPS = np.array([1, 2, 3, 5, 10, 20, 40])


def chain(domain: Any, eta: float, **known: Any) -> Run:
    return ProjectedLangevin(
        steps=1,
        learning_rate=eta,
        domain=domain,
        loss=LossGeometry(**{"lipschitz": math.inf, "convex": True, **known}),
        dimension=2 if isinstance(domain, Ball) else None,
        release="last",
    )


INTERVAL = Box(-1.0, 1.0)
LINE: dict[str, tuple[ProjectedLangevin, Gradient]] = {
    "uniform": (chain(INTERVAL, 0.05, smoothness=1e-9), np.zeros_like),
    "Gaussian": (chain(INTERVAL, 0.05, smoothness=3.0, strong_convexity=3.0), lambda x: 3 * x),
    "corner": (chain(INTERVAL, 0.05, lipschitz=2.0), lambda x: 2 * np.sign(x)),
    "tilted": (chain(INTERVAL, 0.05, smoothness=1e-9), lambda x: np.full_like(x, 4.0)),
    "power": (
        chain(INTERVAL, 0.05, holder=(0.5, 2 * math.sqrt(2))),
        lambda x: 2 * np.sign(x) * np.sqrt(np.abs(x)),
    ),
    "two wells": (
        chain(INTERVAL, 0.05, convex=False, smoothness=5.5),
        lambda x: x * (4 * x**2 - 1) / 2,
    ),
    "waves": (
        chain(INTERVAL, 0.05, convex=False, smoothness=9.0, dissipativity=(8 / 3, 1.5)),
        lambda x: 3 * x - 2 * np.sin(3 * x),
    ),
    "a step that expands": (chain(INTERVAL, 1.2, smoothness=2.0), lambda x: 2 * x),
}


@pytest.mark.parametrize("name", LINE)
def test_the_truth_on_an_interval_lies_below(name: str) -> None:
    run, gradient = LINE[name]
    truth = grid_chain(run, gradient, panels=20, corners=(0.0,))
    assert truth.defect < 1e-12
    last = len(truth.nodes) - 1
    between, to_limit = truth.apart(STEPS, np.append(np.arange(0, last, 8), last))
    claims = tv_over_steps(run, STEPS)
    assert np.all(between <= claims + 1e-10)
    # The stationary law is an average over starts, so it is never further away than another start.
    assert np.all(to_limit <= between + 1e-10)
    finer = grid_chain(run, gradient, panels=40, corners=(0.0,))
    ends, _ = truth.apart(STEPS, np.array([0, last]))
    again, _ = finer.apart(STEPS, np.array([0, len(finer.nodes) - 1]))
    # Kinks of the difference inside a panel cost a little; masses themselves are exact to 1e-12.
    assert again == pytest.approx(ends, abs=5e-5)


@given(
    low=st.integers(-300, 300).map(lambda hundredths: hundredths / 100),
    gain=st.floats(0.01, 6.0),
    place=st.floats(-0.8, 0.8),
    width=st.floats(0.05, 0.5),
    tilt=st.floats(-3.0, 3.0),
    eta=st.floats(0.02, 0.4),
)
def test_random_curvatures_lie_below(
    low: float, gain: float, place: float, width: float, tilt: float, eta: float
) -> None:
    """A gradient of slope ``low``, and ``low + gain`` on one stretch: any smooth potential."""

    def gradient(x: FloatArray) -> FloatArray:
        return tilt + low * x + gain * np.clip(x - place, -width, width)

    steepest = max(abs(low), abs(low + gain))
    known: dict[str, Any] = {"convex": False, "smoothness": steepest}
    if low >= 0:
        known = {"smoothness": low + gain, "strong_convexity": low}
    run = chain(INTERVAL, eta, **known)
    corners = (place - width, place + width)
    truth = grid_chain(run, gradient, panels=12, corners=corners)
    assert truth.defect < 1e-9
    last = len(truth.nodes) - 1
    between, _ = truth.apart(STEPS[:6], np.append(np.arange(0, last, 6), last))
    # Kinks of the difference inside a panel, as above.
    assert np.all(between <= tv_over_steps(run, STEPS[:6]) + 5e-5)


def test_after_one_step_the_bound_is_attained() -> None:
    """Two Gaussians D apart: clamping to the interval between their means costs nothing."""
    run, gradient = LINE["uniform"]
    truth = grid_chain(run, gradient, panels=20)
    between, _ = truth.apart([1], np.array([0, len(truth.nodes) - 1]))
    exact = 2 * ndtr(1 / math.sqrt(2 * 0.05)) - 1
    assert between[0] == pytest.approx(exact, abs=1e-12)
    assert float(tv_over_steps(run, [1])[0]) == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize(
    ("run", "gradient"),
    [
        (chain(Ball(0.8), 0.05, smoothness=1e-9), np.zeros_like),
        (chain(Ball(0.8), 0.05, smoothness=2.0, strong_convexity=2.0), lambda x: 2 * x),
        (chain(Box([-0.5, -0.5], [0.5, 0.5]), 0.05, lipschitz=math.sqrt(2)), np.sign),
    ],
    ids=["disc", "Gaussian on a disc", "corners on a square"],
)
def test_the_truth_in_two_dimensions_lies_below(run: Run, gradient: Gradient) -> None:
    truth = grid_chain(run, gradient, panels=2, corners=(0.0,))
    assert truth.defect < 1e-6
    between, to_limit = truth.apart(STEPS[:5], extreme_nodes(truth, 8))
    claims = tv_over_steps(run, STEPS[:5])
    # One step attains the bound; the integral of a difference's size is good to about 1e-3 here.
    assert np.all(between <= claims + 2e-3)
    assert np.all(between[1:] <= claims[1:])
    assert np.all(to_limit <= between + 1e-9)


def test_the_stationary_law_of_a_flat_potential_by_simulation() -> None:
    run, gradient = LINE["tilted"]
    truth = grid_chain(run, gradient, panels=20)
    law = truth.stationary()
    assert law.min() > -1e-12
    assert law @ truth.kernel == pytest.approx(law, abs=1e-12)
    generator = np.random.default_rng(0)
    x = np.zeros(20_000)
    for _ in range(60):
        x = np.clip(x - 0.05 * 4 + math.sqrt(0.1) * generator.standard_normal(x.size), -1, 1)
    assert np.mean(x == -1) == pytest.approx(law[0], abs=0.015)
    assert np.mean(x) == pytest.approx(float(law @ truth.nodes[:, 0]), abs=0.015)


def test_mass_on_the_circle_by_simulation() -> None:
    run = chain(Ball(0.8), 0.05, smoothness=1e-9)
    truth = grid_chain(run, np.zeros_like, panels=3)
    radii = np.linalg.norm(truth.nodes, axis=1)
    start = int(np.argmin(np.abs(radii - 0.4)))
    rim = float(truth.kernel[start][radii > 0.8 - 1e-12].sum())
    generator = np.random.default_rng(1)
    y = truth.nodes[start] + math.sqrt(0.1) * generator.standard_normal((200_000, 2))
    assert np.mean(np.linalg.norm(y, axis=1) > 0.8) == pytest.approx(rim, abs=0.005)


def test_first_below_counts_steps() -> None:
    coin = GridChain(np.array([[0.0], [1.0]]), np.array([[0.75, 0.25], [0.25, 0.75]]))
    # Two states: the distance halves each step.
    assert coin.first_below(0.13, np.array([0, 1]), 10) == 3
    assert coin.first_below(0.0, np.array([0, 1]), 10) == 11
    between, to_limit = coin.apart([1, 2], np.array([0, 1]))
    assert between.tolist() == [0.5, 0.25]
    assert to_limit == pytest.approx([0.25, 0.125])


def test_bodies_without_an_exact_law_are_refused() -> None:
    cube = chain(Box([0, 0, 0], [1, 1, 1]), 0.05, smoothness=1.0)
    with pytest.raises(NotApplicable, match="one or two dimensions"):
        grid_chain(cube, np.zeros_like, panels=2)
    with pytest.raises(NotApplicable, match="equal steps"):
        grid_chain(cube.replace(steps=2, learning_rate=[0.1, 0.2]), np.zeros_like, panels=2)
