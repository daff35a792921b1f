"""Descent and ascent at once, and losses that declare several Hölder pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dplateau import (
    Ball,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NotApplicable,
    ProjectedLangevin,
    certify,
    certify_mixing,
    lower_bound,
    train_gradient,
)
from dplateau.algorithms import Run
from dplateau.bounds.registry import bound_named
from dplateau.bounds.step_maps import StepMap
from dplateau.curves import GaussianCurve
from dplateau.engines import SeededRandomness
from dplateau.ground.types import FloatArray

SADDLE = LossGeometry(lipschitz=1.0, convex=False, smoothness=1.0, saddle=True)
GAME = NoisyGD(
    n=1000,
    steps=20_000,
    learning_rate=0.1,
    noise_std=0.05,
    domain=Ball(0.05),
    loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=0.1, saddle=True),
    release="last",
)
IN_TURN = CyclicSGD(
    n=1000,
    batch_size=50,
    steps=600,
    learning_rate=0.1,
    noise_std=0.2,
    domain=Ball(1.0),
    loss=SADDLE,
    release="last",
)
MODULUS = bound_named("modulus")


def mu(run: Run) -> float:
    curve = MODULUS.curve(run, MODULUS.plan(run, 1e-5))
    assert isinstance(curve, GaussianCurve)
    return curve.mu


# --- how far a step drives two states apart ------------------------------------------------------


def field(point: FloatArray, bend: float, tilt: float, turn: float) -> FloatArray:
    """Return (df/dx, -df/dy) of f = bend log cosh(x - tilt) + turn x y - bend log cosh(y)."""
    x, y = point.T
    return np.c_[bend * np.tanh(x - tilt) + turn * y, bend * np.tanh(y) - turn * x]


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_no_pair_of_states_is_driven_further_apart(l2: float) -> None:
    """Random convex-concave games: rotations (turn) attain the modulus, curvature stays below."""
    rng = np.random.default_rng(5)
    closest = 0.0
    for _ in range(40):
        bend, tilt, turn, eta = rng.uniform([0, -1, 0, 0.02], [1, 1, 1, 0.6])
        bend *= rng.random() < 0.5
        points, others = rng.uniform(-1, 1, (2, 500, 2))
        fields = field(points, bend, tilt, turn), field(others, bend, tilt, turn)
        lipschitz = float(max(np.linalg.norm(one, axis=1).max() for one in fields))
        loss = LossGeometry(
            lipschitz=lipschitz, convex=False, smoothness=math.hypot(bend, turn), saddle=True
        )
        before = np.linalg.norm(points - others, axis=1)
        moved = [p - eta * (f + l2 * p) for p, f in zip((points, others), fields, strict=True)]
        after = np.linalg.norm(moved[0] - moved[1], axis=1)
        for modulus in StepMap(loss, l2).moduli(eta).values():
            assert np.all(after <= modulus(before) * (1 + 1e-12))
            closest = max(closest, float(np.max(after / modulus(before))))
    assert closest > 0.999


def test_the_modulus_of_the_published_remark() -> None:
    """sqrt(u^2 + min(2 eta L, eta beta u)^2): Bravo et al., remark 3.6."""
    found = StepMap(SADDLE, 0.0).moduli(0.1)["convex-concave, Lipschitz and smooth"]
    for u in (1e-3, 1.0, 2.0, 7.0):
        expected = math.sqrt(u * u + min(0.2, 0.1 * u) ** 2)
        assert found(u) == pytest.approx(expected, rel=1e-12)
        assert found(u) >= expected


# --- claims --------------------------------------------------------------------------------------


def test_a_game_is_certified_with_a_hidden_state() -> None:
    """Golden: this library (composition 15.4562; without the word of a saddle nothing better)."""
    found = certify(GAME, 1e-5)
    assert found.bound == "modulus"
    assert found.claimed_epsilon == pytest.approx(5.84409, abs=2e-5)
    assert found.verify().ok
    assert lower_bound(GAME, 1e-5).epsilon < found.claimed_epsilon
    plain = GAME.replace(loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=0.1))
    assert certify(plain, 1e-5).claimed_epsilon == pytest.approx(15.45616, abs=2e-5)


def test_a_ridge_makes_a_game_contract() -> None:
    run = GAME.replace(domain=None, l2=0.3, loss=SADDLE, steps=2000)
    found = certify(run, 1e-5)
    assert found.witness["losses"] == "convex-concave and smooth"
    c = math.hypot(1 - 0.03, 0.1)
    plateau = 0.1 / 1000 / 0.005 * math.sqrt((1 + c) / (1 - c))  # the full-batch closed form
    assert found.claimed_epsilon <= GaussianCurve(plateau).epsilon(1e-5) * (1 + 2e-5)
    assert found.verify().ok


def test_knowing_more_of_a_game_never_costs() -> None:
    both = mu(IN_TURN)
    flat = mu(IN_TURN.replace(loss=LossGeometry(lipschitz=1.0, convex=False, saddle=True)))
    convex = mu(IN_TURN.replace(loss=LossGeometry(lipschitz=1.0, convex=True)))
    assert both <= flat
    # The remark: games cost no more than convex Lipschitz losses.
    assert flat == pytest.approx(convex, rel=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 5, 40])
def test_a_turning_attack_in_the_plane_stays_below(steps: int) -> None:
    """The game f = beta x y turns and stretches each step; pushes turn along. Exact: Gaussian."""
    eta, beta, n, std = 0.3, 1.0, 20, 0.05
    run = NoisyGD(
        n=n,
        steps=steps,
        learning_rate=eta,
        noise_std=std,
        domain=Ball(1e6),
        loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=beta, saddle=True),
        release="last",
    )
    turn = np.eye(2) + eta * beta * np.array([[0.0, -1.0], [1.0, 0.0]])
    spread, apart = np.zeros((2, 2)), np.zeros(2)
    ahead = np.array([1.0, 0.0])
    for _ in range(steps):
        spread = turn @ spread @ turn.T + (eta * std) ** 2 * np.eye(2)
        ahead = turn @ ahead / np.linalg.norm(turn @ ahead)
        apart = turn @ apart + eta / n * ahead
    exact = math.sqrt(float(apart @ np.linalg.solve(spread, apart)))
    assert exact <= mu(run) * (1 + 1e-9)
    assert mu(run) <= 1.02 * math.sqrt(steps) / n / std


def test_what_runs_is_the_game() -> None:
    """Descent in x and ascent in y towards the saddle point (0.3, -0.2) of a noisy game."""
    run = NoisyGD(
        n=200,
        steps=400,
        learning_rate=0.2,
        noise_std=1e-3,
        domain=Ball(2.0),
        loss=LossGeometry(lipschitz=9.0, convex=False, smoothness=2.0, saddle=True),
        release="last",
    )
    rows = np.random.default_rng(0).normal([0.3, -0.2], 0.1, (200, 2))

    def fields(weights: FloatArray, batch: FloatArray) -> FloatArray:
        gap = weights - batch
        return np.c_[gap[:, 0] + gap[:, 1], gap[:, 1] - gap[:, 0]]

    options: dict[str, Any] = {"start": np.zeros(2), "randomness": SeededRandomness(1)}
    with pytest.raises(InvalidInput, match="declares convex-concave losses, but gradients that"):
        train_gradient(run, fields, rows, **options)
    found = train_gradient(run, fields, rows, never_clips=True, **options)
    np.testing.assert_allclose(found, rows.mean(axis=0), atol=0.02)


# --- several Hölder pairs ------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [(0.5, 0.4), (0.5, 5.0)], ids=str)
def test_the_best_of_several_pairs_is_used(pair: tuple[float, float]) -> None:
    def of(holder: Any) -> Run:
        loss = LossGeometry(lipschitz=1.0, convex=True, holder=holder)
        return IN_TURN.replace(loss=loss)

    alone = [mu(of((0.0, 1.2))), mu(of(pair))]
    assert mu(of([(0.0, 1.2), pair])) == pytest.approx(min(alone), rel=1e-12)
    found = certify(of([(0.0, 1.2), pair]), 1e-5)
    assert found.verify().ok
    assert found.run.loss == of([pair, (0.0, 1.2)]).loss


def test_pairs_read_back() -> None:
    several = LossGeometry(lipschitz=1.0, convex=True, holder=[(0.5, 3.0), (0, 2.0)])
    assert several.to_dict()["holder"] == [[0.0, 2.0], [0.5, 3.0]]
    assert LossGeometry.from_dict(several.to_dict()) == several
    one = LossGeometry(lipschitz=1.0, convex=True, holder=[(0.5, 3.0)])
    assert one.to_dict()["holder"] == [0.5, 3.0]
    assert LossGeometry.from_dict(SADDLE.to_dict()) == SADDLE


# --- refusals ------------------------------------------------------------------------------------


def test_refusals() -> None:
    with pytest.raises(InvalidInput, match="one holder constant for each exponent"):
        LossGeometry(lipschitz=1.0, convex=True, holder=[(0.5, 3.0), (0.5, 2.0)])
    with pytest.raises(InvalidInput, match="set convex=False, or leave saddle out"):
        LossGeometry(lipschitz=1.0, convex=True, saddle=True)
    with pytest.raises(InvalidInput, match="saddle must be True or False; got 1"):
        LossGeometry(lipschitz=1.0, convex=False, saddle=1)  # type: ignore[arg-type]
    chain = ProjectedLangevin(
        steps=5, learning_rate=0.1, domain=Ball(1.0), loss=SADDLE, release="last"
    )
    with pytest.raises(NotApplicable, match="yours descends and ascends"):
        certify_mixing(chain, tv=0.1)
