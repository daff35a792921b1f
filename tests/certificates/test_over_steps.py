"""epsilon as a function of the number of steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dplateau import (
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    certify,
    epsilon_over_steps,
)
from dplateau.algorithms import Run
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import bound_named
from dplateau.curves import GaussianCurve

DELTA = 1e-5
SAMPLED = NoisySGD(n=60000, batch_size=256, steps=1, noise_multiplier=1.1, release="all")
THOUSAND = np.geomspace(1, 1e6, 1000).round().astype(np.int64)


def pointwise(bound: Bound, run: Run, steps: int) -> float:
    return certify(run.replace(steps=steps), DELTA, bounds=[bound]).claimed_epsilon


def test_a_thousand_lengths_of_renyi_composition() -> None:
    bound = bound_named("rdp_composition")
    found = epsilon_over_steps(SAMPLED, DELTA, THOUSAND, bounds=[bound]).epsilon(bound.name)
    assert found.shape == (1000,)
    assert np.all(np.diff(found) >= -1e-9)
    for i in (0, 100, 200, 350, 500, 640, 800, 999):
        alone = pointwise(bound, SAMPLED, int(THOUSAND[i]))
        assert alone * (1 - 1e-3) <= found[i] <= alone * (1 + 1e-3)


def test_a_hundred_lengths_of_privacy_losses() -> None:
    bound = bound_named("pld_composition")
    steps = THOUSAND[::10]
    found = epsilon_over_steps(SAMPLED, DELTA, steps, bounds=[bound]).epsilon(bound.name)
    assert np.all(np.diff(found) >= 0)
    for i in (0, 20, 40, 60, 80, 99):
        alone = pointwise(bound, SAMPLED, int(steps[i]))
        # The pointwise value is within a thousandth above the truth.
        assert alone * (1 - 2e-3) <= found[i] <= alone * 1.02


@pytest.mark.parametrize(
    "name", ["naive_composition", "advanced_composition", "rdp_composition", "pld_composition"]
)
@pytest.mark.parametrize(
    "run",
    [
        SAMPLED,
        CyclicSGD(n=100, batch_size=30, epochs=1, noise_multiplier=3.0, release="all"),
        NoisyGD(n=100, steps=1, noise_multiplier=30.0, neighbors="replace", release="all"),
    ],
    ids=lambda run: run.kind,
)
def test_each_classical_bound_agrees_with_single_runs(name: str, run: Run) -> None:
    bound = bound_named(name)
    steps = np.array([7, 1, 4, 5, 90, 4])
    found = bound.epsilon_over_steps(run, DELTA, steps)
    alone = [pointwise(bound, run, int(count)) for count in steps]
    np.testing.assert_allclose(found, alone, rtol=2e-2 if name == "pld_composition" else 1e-3)
    assert found[2] == found[5]


def test_full_batches_are_exact() -> None:
    run = NoisyGD(n=100, steps=1, noise_multiplier=2.0, release="all")
    found = epsilon_over_steps(run, DELTA, [1, 4, 9, 10**5])
    exact = [GaussianCurve(math.sqrt(t) / 2.0).epsilon(DELTA) for t in (1, 4, 9, 10**5)]
    np.testing.assert_allclose(found.epsilon("gdp_composition"), exact, rtol=2e-9)
    np.testing.assert_allclose(found.best, exact, rtol=2e-9)


def test_hidden_iterates_reach_a_plateau() -> None:
    run = NoisyGD(
        n=1000,
        steps=1,
        learning_rate=0.5,
        l2=0.1,
        noise_std=0.02,
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
        release="last",
    )
    steps = [1, 10, 100, 1000, 10000]
    found = epsilon_over_steps(run, DELTA, steps)
    assert found.best[-1] == pytest.approx(found.best[-2], rel=1e-3)
    assert found.epsilon("gdp_composition")[-1] > 5 * found.best[-1]
    for i, count in enumerate(steps):
        assert found.best[i] <= certify(run.replace(steps=count), DELTA).claimed_epsilon * 1.001
    assert {line.bound for line in found.bounds if line.hidden_state}
    assert all(line.epsilon.shape == (5,) for line in found.bounds)


def test_epochs_are_replaced_by_steps() -> None:
    run = NoisySGD(n=100, batch_size=10, epochs=3, noise_multiplier=2.0, release="all")
    found = epsilon_over_steps(run, DELTA, [30], bounds=[bound_named("rdp_composition")])
    assert found.best[0] == pytest.approx(
        pointwise(bound_named("rdp_composition"), run, 30), rel=1e-3
    )


@pytest.mark.parametrize("steps", [[], [0, 1], [-1], [1.5], [True], "12", [[1, 2]], [math.nan], 3])
def test_refused_lengths(steps: Any) -> None:
    with pytest.raises(InvalidInput, match="list of whole numbers, each at least 1"):
        epsilon_over_steps(SAMPLED, DELTA, steps)


def test_refused_runs() -> None:
    with pytest.raises(InvalidInput, match="OnePassSGD has no number of steps to vary"):
        epsilon_over_steps(OnePassSGD(n=9, noise_std=1.0, release="all"), DELTA, [1])
    scheduled = NoisyGD(n=9, steps=2, noise_multiplier=[1.0, 2.0], release="all")
    with pytest.raises(InvalidInput, match="a run with schedules has one length"):
        epsilon_over_steps(scheduled, DELTA, [1])
    unknown = NoisyGD(n=9, steps=2, noise_std=1.0, release="all")
    with pytest.raises(InvalidInput, match=r"no bound applies to this run; compare\(run, delta\)"):
        epsilon_over_steps(unknown, DELTA, [1])
    with pytest.raises(InvalidInput, match="delta must"):
        epsilon_over_steps(SAMPLED, 0.0, [1])


def test_bounds_that_do_not_apply_are_named() -> None:
    found = epsilon_over_steps(SAMPLED, DELTA, [1], bounds=[bound_named("rdp_composition")])
    with pytest.raises(InvalidInput, match=r"'gdp_composition' does not apply here; there are \['"):
        found.epsilon("gdp_composition")
