"""Every constant is an upper bound that no record exceeds, and that some record attains."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau.algorithms import Ball
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Loss,
    MoreauSmoothed,
    OneVersusRest,
    Pinball,
    ScalarLoss,
    SmoothedHinge,
    Softmax,
    SquaredOnBall,
)

SMOOTH: list[ScalarLoss] = [
    Logistic(),
    Huber(0.7),
    Huber(3.0),
    SmoothedHinge(0.3),
    SmoothedHinge(2.0),
    MoreauSmoothed(Absolute(), 0.2),
    MoreauSmoothed(Hinge(), 0.5),
    MoreauSmoothed(Pinball(0.9), 0.4),
]
CORNERS: list[ScalarLoss] = [Absolute(), Hinge(), Pinball(0.2)]
CLASSIFIERS = (Logistic, SmoothedHinge, Hinge)


def is_classifier(loss: ScalarLoss) -> bool:
    inner = loss.loss if isinstance(loss, MoreauSmoothed) else loss
    return isinstance(inner, CLASSIFIERS)


def target_choices(loss: ScalarLoss) -> FloatArray:
    return np.array([-1.0, 1.0]) if is_classifier(loss) else np.array([-2.5, 0.0, 0.4])


def clipped(loss: Loss, scores: FloatArray, target: float, limit: float) -> FloatArray:
    """Return the derivative of the clipped loss of one record: what an engine must use."""
    return np.clip(loss.derivative(scores, np.full(scores.shape, target)), -limit, limit)


@pytest.mark.parametrize("clip", [None, 0.15, 0.8, 50.0])
@pytest.mark.parametrize("norm", [0.5, 2.0])
@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_no_record_exceeds_the_constants_and_one_attains_them(
    loss: ScalarLoss, norm: float, clip: float | None
) -> None:
    # With a linear score the gradient's norm is |x| |l'| and the Hessian's largest eigenvalue is
    # |x|^2 l'', so a fine grid of scores and of row norms sees everything.
    geometry = loss.geometry(norm, clip)
    scores = np.concatenate([np.linspace(-6, 6, 60_001), [-1e6, -40.0, 40.0, 1e6]])
    longest, steepest = 0.0, 0.0
    for size in (0.01 * norm, 0.3 * norm, 0.77 * norm, norm):
        limit = math.inf if clip is None else clip / size
        for target in target_choices(loss):
            slopes = clipped(loss, scores, float(target), limit)
            longest = max(longest, size * np.abs(slopes).max())
            inner = np.diff(slopes[:-4]) / np.diff(scores[:-4])
            assert inner.min() >= -1e-9, "a convex loss has a non-decreasing derivative"
            steepest = max(steepest, size * size * inner.max())
    assert 0.99 * geometry.lipschitz <= longest <= geometry.lipschitz * (1 + 1e-12)
    assert 0.99 * geometry.smoothness <= steepest <= geometry.smoothness * (1 + 1e-6)


@pytest.mark.parametrize("loss", CORNERS, ids=repr)
@pytest.mark.parametrize("clip", [None, 0.3])
def test_losses_with_corners_declare_the_jump(loss: ScalarLoss, clip: float | None) -> None:
    norm = 1.5
    geometry = loss.geometry(norm, clip)
    limit = math.inf if clip is None else clip / norm
    scores = np.linspace(-5, 5, 4001)
    jumps = [
        norm * np.ptp(clipped(loss, scores, float(target), limit))
        for target in target_choices(loss)
    ]
    assert geometry.smoothness == math.inf
    assert geometry.holder is not None
    assert geometry.holder[0] == 0
    assert max(jumps) == pytest.approx(geometry.holder[1])
    longest = max(
        norm * np.abs(clipped(loss, scores, float(target), limit)).max()
        for target in target_choices(loss)
    )
    assert longest == pytest.approx(geometry.lipschitz)


@pytest.mark.parametrize("loss", [*SMOOTH, *CORNERS, SquaredOnBall(1.0, 2.5)], ids=repr)
def test_the_derivative_is_the_derivative_of_the_value(loss: ScalarLoss) -> None:
    # Off the corners, which a shifted grid avoids.
    scores = np.linspace(-4, 4, 401) + 1e-3 / 7
    step = 1e-6
    for target in target_choices(loss):
        targets = np.full(scores.shape, target)
        upper = loss.value(scores + step, targets)
        numeric = (upper - loss.value(scores - step, targets)) / (2 * step)
        assert np.allclose(loss.derivative(scores, targets), numeric, atol=2e-5)


@given(
    score=st.floats(-30, 30),
    width=st.floats(0.01, 5),
    target=st.sampled_from([-1.0, 1.0]),
    which=st.sampled_from([Absolute(), Hinge(), Pinball(0.3)]),
)
def test_the_envelope_is_the_minimum_over_a_grid(
    score: float, width: float, target: float, which: ScalarLoss
) -> None:
    assert isinstance(which, Absolute | Hinge | Pinball)
    envelope = MoreauSmoothed(which, width).value(np.array([score]), np.array([target]))[0]
    points = np.linspace(score - 1.2 * width, score + 1.2 * width, 4001)
    priced = which.value(points, np.full(points.shape, target)) + (points - score) ** 2 / (
        2 * width
    )
    assert envelope <= priced.min() + 1e-9
    assert priced.min() <= envelope + 2e-3 * width  # the spacing of the grid


def test_the_smoothed_hinge_is_the_envelope_of_the_hinge() -> None:
    scores, targets = np.linspace(-3, 3, 601), np.tile([1.0, -1.0], 301)[:601]
    for width in (0.1, 1.0, 3.0):
        one, other = SmoothedHinge(width), MoreauSmoothed(Hinge(), width)
        assert np.allclose(one.value(scores, targets), other.value(scores, targets))
        assert np.allclose(one.derivative(scores, targets), other.derivative(scores, targets))
    scaled = MoreauSmoothed(Absolute(), 0.5)
    assert np.allclose(
        Huber(0.5).derivative(scores, targets), 0.5 * scaled.derivative(scores, targets)
    )


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 6), size=st.floats(0.1, 30))
def test_softmax_constants_hold(seed: int, k: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    loss, norm = Softmax(k), 1.7
    geometry = loss.geometry(norm)
    scores = size * rng.normal(size=(1, k))
    target = rng.integers(0, k, 1)
    slope = loss.derivative(scores, target)[0]
    assert norm * np.linalg.norm(slope) <= geometry.lipschitz * (1 + 1e-12)
    jacobian = softmax_jacobian(loss, scores[0], int(target[0]))
    assert norm**2 * np.linalg.eigvalsh(jacobian).max() <= geometry.smoothness * (1 + 1e-6)
    assert np.linalg.eigvalsh(jacobian).min() >= -1e-8


def softmax_jacobian(loss: Softmax, scores: FloatArray, target: int) -> FloatArray:
    """Return the matrix of second derivatives, by central differences."""
    step = 1e-5 * np.eye(scores.size)
    targets = np.full(scores.size, target)
    return (loss.derivative(scores + step, targets) - loss.derivative(scores - step, targets)) / (
        2e-5
    )


@pytest.mark.parametrize("k", [2, 3, 7])
def test_softmax_constants_are_attained(k: int) -> None:
    loss, norm = Softmax(k), 1.7
    wrong = np.full((1, k), -30.0)
    wrong[0, 1] = 30.0
    slope = loss.derivative(wrong, np.array([0]))
    geometry = loss.geometry(norm)
    assert norm * np.linalg.norm(slope) >= 0.99 * geometry.lipschitz
    tied = np.full(k, -30.0)
    tied[:2] = 0.0
    steepest = np.linalg.eigvalsh(softmax_jacobian(loss, tied, 0)).max()
    assert norm**2 * steepest >= 0.99 * geometry.smoothness


@pytest.mark.parametrize("clip", [0.2, 1.0, 9.0])
def test_two_classes_are_a_scalar_link_and_may_be_clipped(clip: float) -> None:
    # Along z_1 - z_0 = s the derivative has norm sqrt(2) p(s) and everything happens there.
    loss, norm = Softmax(2), 1.3
    s = np.linspace(-9, 9, 20_001)
    scores = np.stack([-s / 2, s / 2], axis=1)
    slopes = loss.derivative(scores, np.zeros(s.size, dtype=int))
    sizes = np.minimum(np.linalg.norm(slopes, axis=1), clip / norm)
    geometry = loss.geometry(norm, clip)
    assert 0.99 * geometry.lipschitz <= norm * sizes.max() <= geometry.lipschitz * (1 + 1e-12)
    # A unit step in s is a step of 1 / sqrt(2) in the scores.
    steepest = norm**2 * math.sqrt(2) * (np.diff(sizes) / np.diff(s)).max()
    assert 0.99 * geometry.smoothness <= steepest <= geometry.smoothness * (1 + 1e-6)


def test_a_clipped_softmax_with_three_classes_is_not_convex_because_its_step_expands() -> None:
    clipped_geometry = Softmax(3).geometry(1.0, clip=0.9969)
    assert (clipped_geometry.lipschitz, clipped_geometry.convex) == (0.9969, False)
    assert clipped_geometry.smoothness == Softmax(3).geometry(1.0).smoothness
    assert Softmax(3).geometry(1.0, clip=1.5).convex  # no gradient is that long
    # The reason: one step of size 1/2 at this point moves two near points apart.
    point, clip = np.array([-2.667, -1.912, -0.309]), 0.9969

    def step(scores: FloatArray) -> FloatArray:
        slope = Softmax(3).derivative(scores[None], np.array([0]))[0]
        return scores - 0.5 * slope * min(1, clip / float(np.linalg.norm(slope)))

    size = 1e-6
    jacobian = np.array(
        [(step(point + size * e) - step(point - size * e)) / (2 * size) for e in np.eye(3)]
    )
    assert np.linalg.norm(jacobian, 2) > 1.003


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("link", [Logistic(), SmoothedHinge(0.4)], ids=repr)
def test_one_versus_rest_adds_up_links(link: Logistic | SmoothedHinge, k: int) -> None:
    loss, norm = OneVersusRest(link, k), 1.4
    geometry, one = loss.geometry(norm), link.geometry(norm)
    wrong = np.full((1, k), 40.0)
    wrong[0, 0] = -40.0
    longest = norm * np.linalg.norm(loss.derivative(wrong, np.array([0])))
    assert 0.99 * geometry.lipschitz <= longest <= geometry.lipschitz
    assert geometry.smoothness == one.smoothness  # scores do not interact
    rng = np.random.default_rng(k)
    scores, classes = 2 * rng.normal(size=(50, k)), rng.integers(0, k, 50)
    signs = np.where(np.arange(k) == classes[:, None], 1.0, -1.0)
    apart = sum(link.value(scores[:, j], signs[:, j]) for j in range(k))
    assert np.allclose(loss.value(scores, classes), apart)
    for j in range(k):
        column = loss.derivative(scores, classes)[:, j]
        assert np.allclose(column, link.derivative(scores[:, j], signs[:, j]))
    with pytest.raises(NotApplicable, match="belongs to no convex loss"):
        loss.geometry(norm, clip=0.5)


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 6))
def test_squared_loss_on_a_ball_keeps_to_its_constant(seed: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    loss, norm = SquaredOnBall(radius=2.0, target_bound=1.5), 0.7
    x = rng.normal(size=dimension)
    x *= norm * rng.random() / np.linalg.norm(x)
    w = Ball(2.0).project(5 * rng.normal(size=dimension))
    target = np.array([rng.uniform(-9, 9)])
    slope = loss.derivative(np.array([x @ w]), target)[0]
    assert abs(slope) * np.linalg.norm(x) <= loss.geometry(norm).lipschitz * (1 + 1e-12)


def test_squared_loss_on_a_ball_attains_its_constant_and_needs_the_ball() -> None:
    loss = SquaredOnBall(radius=2.0, target_bound=1.5)
    slope = loss.derivative(np.array([0.7 * 2.0]), np.array([-7.0]))[0]
    assert 0.7 * slope == pytest.approx(loss.geometry(0.7).lipschitz)
    assert loss.geometry(0.7, clip=0.1).lipschitz == 0.1
    loss.check_domain(Ball(1.9))
    with pytest.raises(InvalidInput, match="needs domain=Ball"):
        loss.check_domain(Ball(2.1))
    with pytest.raises(InvalidInput, match="Huber needs no domain"):
        loss.check_domain(None)


@pytest.mark.parametrize(
    ("loss", "bad"),
    [
        (Logistic(), np.array([0, 1])),
        (Hinge(), np.array([2.0, 1.0])),
        (MoreauSmoothed(Hinge(), 1.0), np.array([0.0])),
        (Huber(), np.array([np.nan])),
        (Huber(), np.array(["a"])),
        (Softmax(3), np.array([0, 3])),
        (Softmax(3), np.array([0.0, 1.0])),
        (Softmax(3), np.array([-1])),
    ],
)
def test_targets_that_mean_nothing_are_refused(loss: Loss, bad: FloatArray) -> None:
    with pytest.raises(InvalidInput, match="takes one"):
        loss.check_targets(bad)


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="threshold must be finite and above 0"):
        Huber(0.0)
    with pytest.raises(InvalidInput, match="width"):
        SmoothedHinge(-1.0)
    with pytest.raises(InvalidInput, match="quantile"):
        Pinball(1.0)
    with pytest.raises(InvalidInput, match="proximal point"):
        MoreauSmoothed(Logistic(), 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="n_classes must be at least 2"):
        Softmax(1)
    with pytest.raises(InvalidInput, match="feature_norm"):
        Logistic().geometry(0.0)
    with pytest.raises(InvalidInput, match="clip"):
        Logistic().geometry(1.0, clip=-1.0)


@pytest.mark.parametrize("loss", [*SMOOTH, *CORNERS, SquaredOnBall(1.0, 1.0)], ids=repr)
def test_single_precision_scores_stay_single(loss: ScalarLoss) -> None:
    scores, targets = np.zeros(3, dtype=np.float32), np.ones(3, dtype=np.float32)
    assert loss.derivative(scores, targets).dtype == np.float32
    assert loss.value(scores, targets).dtype == np.float32


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(3, 6), clip=st.floats(0.05, 1.4))
def test_clipping_a_softmax_keeps_its_gradient_lipschitz(seed: int, k: int, clip: float) -> None:
    rng = np.random.default_rng(seed)
    pair = rng.normal(scale=3, size=(2, k))
    pair[1] = pair[0] + rng.choice([1e-3, 1.0]) * rng.normal(size=k)
    slopes = Softmax(k).derivative(pair, np.zeros(2, dtype=int))
    sizes = np.linalg.norm(slopes, axis=1, keepdims=True)
    cut = slopes * np.minimum(1, clip / np.maximum(sizes, 1e-30))
    apart = float(np.linalg.norm(cut[0] - cut[1]))
    assert apart <= 0.5 * float(np.linalg.norm(pair[0] - pair[1])) * (1 + 1e-9) + 1e-15
