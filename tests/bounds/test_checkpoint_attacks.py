"""Checkpoints attacked: the exact joint law of all that leaves, against what its stretches prove.

The runs are one-dimensional and as nonlinear as their constants allow (``exact_chains``); the joint
law of the released states is summed over cells, which are events. Beside them stand the mistakes
that look natural: to average over a secret order stretch by stretch, to count only the steps that
were done, to let the noise before a release hide what comes after it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from dplateau import Checkpoints, CyclicSGD, LossGeometry, NoisyGD, certify
from dplateau.algorithms import Run
from dplateau.audit.lower_bounds import lower_bound
from dplateau.bounds.checkpoints import composed, costs_of_positions
from dplateau.bounds.registry import bound_named
from dplateau.curves import GaussianCurve, LossCurve, MixtureCurve, tabulate
from dplateau.numerics.normal import gaussian_delta
from dplateau.shifts import Chain as Program
from dplateau.shifts import Linear, Segment, solve
from dplateau.shifts.blocks import BlockPlan, block_pairs
from exact_chains import (
    EPSILONS,
    SLACK,
    Chain,
    Parts,
    Step,
    checked,
    constant,
    headroom,
    line,
    proved,
    random_chain,
    random_plan,
    straight,
)

WAYS = [(1, 0), (1, 1), (1, 0), (2, 0), (1, 1), (2, 1)]


def stretches(chain: Chain, releases: list[int]) -> list[Chain]:
    return [
        replace(chain, steps=chain.steps[start:stop])
        for start, stop in zip([0, *releases[:-1]], releases, strict=True)
    ]


def random_releases(rng: np.random.Generator, steps: int) -> list[int]:
    inner = [t for t in range(1, steps) if rng.random() < 0.6] or [int(rng.integers(1, steps))]
    return [*inner[: 2 if steps < 4 else 1], steps]


@pytest.mark.parametrize("seed", range(24))
def test_stretches_of_sampled_runs_stand_above_the_joint_law(seed: int) -> None:
    rng = np.random.default_rng([31, seed])
    up, down = WAYS[seed % len(WAYS)]
    walls = bool(rng.random() < 0.4)
    chain = random_chain(rng, up, down, walls=walls, steps=int(rng.integers(2, 5)))
    releases = random_releases(rng, len(chain.steps))
    for _ in range(2):
        parts: Parts = ()
        for stretch in stretches(chain, releases):
            lags = stretch.lags()
            parts += block_pairs(lags, random_plan(rng, lags), up, down)
        assert headroom(parts, chain, releases) >= 1.0


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_releases_of_a_straight_walk_are_nearly_what_is_proved(rate: float) -> None:
    chain = straight(0.6, 1.0, 1.2, rate, 4)
    parts: Parts = ()
    for stretch in stretches(chain, [2, 4]):
        parts += block_pairs(stretch.lags(), BlockPlan(0, ((0, 0), (1, 1), (2, 2))), 1, 0)
    assert 1.0 <= headroom(parts, chain, [2, 4]) < 1.1
    # What leaves at the end alone is less.
    assert headroom(parts, chain) > 1.1


@pytest.mark.parametrize("seed", range(12))
def test_squares_of_stretches_in_order_stand_above_the_joint_law(seed: int) -> None:
    """Two or three batches in turn: the record of one place, nonlinear maps, some walls."""
    rng = np.random.default_rng([32, seed])
    length, steps = int(rng.integers(2, 4)), int(rng.integers(3, 6))
    drawn = random_chain(rng, 1, 0, walls=bool(rng.random() < 0.4), steps=steps)
    place = int(rng.integers(min(length, steps)))
    chain = replace(
        drawn,
        steps=tuple(
            replace(step, rate=1.0, up=step.up if t % length == place else ())
            for t, step in enumerate(drawn.steps)
        ),
    )
    releases = random_releases(rng, steps)
    squares = 0.0
    for stretch in stretches(chain, releases):
        parts = [
            Segment(1, Linear(step.lipschitz), step.reach if step.up else 0.0, step.noise)
            for step in stretch.steps
        ]
        squares += solve(Program.of(parts, diameter=2 * chain.radius)).sum_of_squares
    bound = gaussian_delta(EPSILONS, math.sqrt(squares))
    for values in chain.deltas(releases=releases).values():
        assert np.all(values <= bound + SLACK)


# --- full batches: exact ------------------------------------------------------------------------

LINEAR = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.1)


@pytest.mark.parametrize(
    "release",
    [Checkpoints(every=10), Checkpoints(every=7), Checkpoints(last=9), Checkpoints(at=[3, 50, 51])],
    ids=repr,
)
@pytest.mark.parametrize("rates", [0.5, [0.5] * 35 + [0.2] * 65])
def test_linear_losses_attain_the_claim_of_full_batches(
    release: Checkpoints, rates: float | list[float]
) -> None:
    run = NoisyGD(
        n=10, steps=100, learning_rate=0.5, l2=0.1, noise_std=1.0, loss=LINEAR, release=release
    ).replace(learning_rate=rates)
    found = certify(run, 1e-5)
    assert found.bound == "checkpoints_full_batch"
    needed = lower_bound(run, 1e-5).epsilon
    # With a schedule the best plan may not begin with its stretch, which linear losses do not see.
    assert needed <= found.claimed_epsilon <= needed * (1 + 1e-8 if rates == 0.5 else 1.02)


# --- what would be wrong ------------------------------------------------------------------------

TWO_BATCHES = CyclicSGD(
    n=2,
    batch_size=1,
    epochs=16,
    order="shuffle_once",
    learning_rate=1.0,
    l2=1.0,
    noise_std=2.0,
    loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1e-9),
    release=Checkpoints(every=2),
)


def exact_two_batches(epsilon: float) -> float:
    """Return E_g of half N(0) and half N(2) against N(0): each epoch forgets the one before."""
    g = math.exp(epsilon)
    # (N(0) + N(2)) / 2 > g N(0) where exp(2 x - 2) > 2 g - 1.
    x = (math.log(2 * g - 1) + 2) / 2
    return 0.5 * float(ndtr(2 - x)) - (g - 0.5) * float(ndtr(-x))


def test_averaging_each_stretch_first_would_be_wrong() -> None:
    """One order for all epochs: 16 averages, composed, forget that they share it."""
    claim = certify(TWO_BATCHES, 1e-5)
    assert claim.bound == "checkpoints_shuffled"
    assert claim.claimed_epsilon == pytest.approx(9.675, abs=6e-4)
    each = MixtureCurve((0.5, 0.5), (GaussianCurve(0.0), GaussianCurve(0.5)))
    wrong = LossCurve(((tabulate(each, 1e-7), 16),)).epsilon(1e-5)
    assert wrong == pytest.approx(7.438, abs=0.02)
    assert exact_two_batches(8.981) == pytest.approx(1e-5, rel=1e-3)
    assert exact_two_batches(wrong) > 3e-5
    assert exact_two_batches(claim.claimed_epsilon) < 1e-5


def test_counting_only_the_steps_done_would_be_wrong() -> None:
    """An observer who stops when the record shows best is right more often than is claimed.

    Each of 400 steps is .1-GDP and released. After t steps the observer knows the loss L_t, a walk
    of mean mu^2 / 2 and variance mu^2 a step. If the claim after t steps were eps_t, the epsilon of
    t steps at delta .001, the chance left over would be the largest E (1 - exp(eps_t - L_t))_+ over
    rules for stopping: found backwards from the last step.
    """
    mu, steps, delta = 0.1, 400, 1e-3
    width = mu**2 / 4
    losses = np.arange(-4.0, 12.0, width)
    reach = round(8 * mu / width)
    kernel = np.exp(-((np.arange(-reach, reach + 1) * width / mu) ** 2) / 2)
    kernel /= kernel.sum()
    value = np.zeros(losses.size)
    for t in range(steps, 0, -1):
        claimed = GaussianCurve(mu * math.sqrt(t)).epsilon(delta)
        value = np.maximum(value, np.maximum(-np.expm1(claimed - losses), 0.0))
        value = np.convolve(value, kernel, mode="same")
        value = np.r_[value[2:], value[-1], value[-1]]  # the mean, two cells
    start = float(value[np.argmin(np.abs(losses))])
    assert start > 6.3e-3 > 6 * delta
    # The certificate of the whole plan covers every rule for stopping.
    whole = GaussianCurve(mu * math.sqrt(steps)).epsilon(delta)
    run = NoisyGD(n=10, steps=steps, noise_multiplier=10.0, release=Checkpoints(every=1))
    assert certify(run, delta).claimed_epsilon == pytest.approx(whole, rel=1e-8)


def test_noise_from_before_a_release_hides_nothing_after_it() -> None:
    """A plan of the whole run uses noise that stays in the state; what was seen of it is spent."""
    chain = straight(0.3, 1.0, 1.0, 0.3, 3)
    whole = block_pairs(chain.lags(), BlockPlan(0, ((0, 0), (1, 1), (2, 3))), 1, 0)
    assert checked(whole, chain) <= 1.0
    joint = chain.deltas(releases=[1, 2, 3])
    assert np.any(joint["remove"][:4] > 1.1 * proved(whole)["remove"][:4])


def test_a_release_inside_a_reshuffled_epoch_is_refused() -> None:
    run = TWO_BATCHES.replace(order="reshuffle", release=Checkpoints(every=3))
    for name in ("checkpoints_ordered", "checkpoints_shuffled"):
        assert bound_named(name).refusal(run) is not None
    reason = bound_named("checkpoints_ordered").refusal(run)
    assert reason is not None
    assert "needs releases between epochs" in reason


# --- positions, once more ------------------------------------------------------------------------


def costs_by_hand(run: Run) -> list[float]:
    """Return the sum of squares of each position, every stretch solved as a program of its own."""
    assert isinstance(run.release, Checkpoints)
    rate, std = run.learning_rate, run.iterate_std
    assert isinstance(rate, float)
    assert isinstance(std, float)
    length = run.batches_per_epoch
    contraction, reach = Linear(1 - rate * run.l2), rate / run.batch_size
    found = []
    for place in range(min(length, run.steps)):
        total, start = 0.0, 0
        for stop in run.release.times(run.steps):
            parts = [
                Segment(1, contraction, reach if t % length == place else 0.0, std)
                for t in range(start, stop)
            ]
            if any(part.sensitivity for part in parts):
                total += solve(Program.of(parts, diameter=run.diameter)).sum_of_squares
            start = stop
        found.append(total)
    return found


@pytest.mark.parametrize("every", [1, 3, 5, 7, 10, 23])
def test_positions_are_solved_as_by_hand(every: int) -> None:
    run = CyclicSGD(
        n=15,
        batch_size=3,
        steps=23,
        learning_rate=0.5,
        l2=0.3,
        noise_std=0.7,
        loss=LINEAR,
        release=Checkpoints(every=every),
    )
    np.testing.assert_allclose(costs_of_positions(run)[0], costs_by_hand(run), rtol=1e-9)


def test_a_group_is_split_once_for_the_whole_run() -> None:
    """Composing the worst split of each stretch would claim more than is needed, never less."""
    curves = [GaussianCurve(0.3), GaussianCurve(0.4)]
    found = composed([(curve, 2) for curve in curves])
    assert isinstance(found, GaussianCurve)
    assert found.mu == pytest.approx(math.sqrt(2 * 0.09 + 2 * 0.16))


def test_steps_that_forget_everything() -> None:
    """A record that is not used in a stretch's last step leaves nothing in it."""
    forgetful = Step(0.0, 1.0, 1.0, 1.0, (line(0.0),), (constant(1.0),))
    idle = replace(forgetful, up=())
    chain = Chain((forgetful, idle, forgetful), cell=0.5)
    deltas = chain.deltas(releases=[2, 3])["remove"]
    np.testing.assert_allclose(deltas, gaussian_delta(EPSILONS, 1.0), rtol=0.02)
