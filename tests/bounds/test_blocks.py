"""Lagged blocks: tables, examples worked by hand, limits, and laws that claims must follow.

The theorem itself is attacked in test_block_attacks.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dplateau import Ball, LossGeometry, NoisySGD, certify, compare
from dplateau.algorithms import Run
from dplateau.audit import lower_bound
from dplateau.bounds.base import Witness
from dplateau.bounds.blocks import PoissonBlocks, PoissonBlocksReplace, lags_of
from dplateau.bounds.conditions import MOST_SPLIT
from dplateau.bounds.registry import bound_named
from dplateau.bounds.step_maps import batch_sizes
from dplateau.curves import GaussianCurve, LossCurve, MixturePair
from dplateau.errors import InvalidInput
from dplateau.shifts.blocks import (
    BlockPlan,
    Lags,
    block_pairs,
    cheapest_plans,
    memory,
    running_growth,
)
from dplateau.verify.blocks import _MOST_RECORDS_OF_A_GROUP

DELTA = 1e-5
BLOCKS = {"add_remove": PoissonBlocks(), "replace": PoissonBlocksReplace()}
CONVEX = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
# A planner's grid of lags and the grid of losses leave this much between claims that are ordered.
GRIDS = 1 + 5e-3


def ridge_run(c: float, q: float, z: float, steps: int, **changes: Any) -> Run:
    given: dict[str, Any] = {"n": 60_000, "loss": CONVEX, "release": "last", "learning_rate": 2.0}
    given |= {"l2": (1 - c) / 2, "noise_multiplier": float(z)} | changes
    return NoisySGD(sampling_rate=q, steps=steps, **given)


def claim(run: Run, delta: float = DELTA) -> float:
    bound = BLOCKS[run.neighbors]
    assert bound.refusal(run) is None
    return bound.curve(run, bound.plan(run, delta)).epsilon(delta)


def even_lags(
    c: float, q: float, z: float, steps: int, diameter: float = math.inf, reach: float = 1.0
) -> Lags:
    """Return a run of equal steps, in units of the record's reach."""
    kept, log_older = memory(c, steps, math.log(reach))
    with np.errstate(divide="ignore"):
        growth = np.r_[0.0, np.arange(1, kept) * np.log(c)]
    ones = np.ones(kept)
    return Lags(
        steps, reach * ones, z * reach * ones, q * ones, growth, log_older, diameter, alike=c
    )


def curve_of(lags: Lags, singles: int, edges: list[list[int]], up: int, down: int) -> LossCurve:
    plan = BlockPlan.read({"single_steps": singles, "edges": edges}, lags.steps)
    return LossCurve(block_pairs(lags, plan, up, down))


def composition(run: Run) -> Witness:
    sizes = batch_sizes(run, DELTA)
    return {
        "batch_cap": sizes.cap,
        "batch_floor": sizes.floor,
        "single_steps": run.steps,
        "edges": [[run.steps, run.steps]],
    }


# (c, q, z, T, blocks, replaced, exact lower bound of a replaced record): two laboratory
# implementations of the doubling plan at delta = 1e-5.
TABLE = [
    (0.99, 0.01, 1, 5000, 0.656, 1.10, 1.068),
    (0.99, 0.01, 2, 20000, 0.2534, 0.503, 0.4966),
    (0.95, 0.05, 2, 2000, 0.690, 1.246, 1.196),
    (0.995, 0.02, 4, 20000, 0.3523, 0.735, 0.7244),
    (0.9, 0.1, 2, 1000, 1.074, 1.83, 1.745),
    (0.98, 0.1, 5, 5000, 0.7565, 1.568, 1.545),
    (0.999, 0.01, 4, 50000, 0.397, 0.837, 0.8193),
]


@pytest.mark.parametrize(("c", "q", "z", "steps", "added", "replaced", "lower"), TABLE)
def test_tables_are_met_and_never_broken(
    c: float, q: float, z: float, steps: int, added: float, replaced: float, lower: float
) -> None:
    run = ridge_run(c, q, z, steps)
    assert lower_bound(run, DELTA).epsilon <= claim(run) <= 1.005 * added
    assert lower <= claim(run.replace(neighbors="replace")) <= 1.005 * replaced


def test_examples_worked_by_hand() -> None:
    two = even_lags(0.9, 0.5, 2.0, 2)
    composed = curve_of(two, 2, [[2, 2]], 1, 0)
    assert composed.delta(0.0) == pytest.approx(0.139799, abs=1e-5)
    assert composed.epsilon(DELTA) == pytest.approx(1.83358, rel=1e-3)
    together = curve_of(two, 0, [[0, 0], [1, 2]], 1, 0)
    assert together.delta(0.0) == pytest.approx(0.183921, abs=1e-5)
    assert together.epsilon(DELTA) == pytest.approx(2.75375, rel=1e-3)
    three = curve_of(even_lags(0.5, 0.2, 1.0, 3), 0, [[0, 0], [1, 2], [3, 3]], 1, 0)
    assert three.delta(0.0) == pytest.approx(0.119084, abs=1e-5)
    assert three.delta(0.5) == pytest.approx(0.030412, abs=1e-5)
    assert three.epsilon(DELTA) == pytest.approx(3.38997, rel=1e-3)


def test_atoms_worked_by_hand() -> None:
    together = curve_of(even_lags(0.9, 0.5, 2.0, 2), 0, [[0, 0], [1, 2]], 1, 0)
    ((pair, count),) = together.parts
    assert count == 1
    np.testing.assert_allclose(pair.up.points, [0, 0.45, 0.5, 0.95], rtol=1e-8)
    np.testing.assert_allclose(pair.up.masses, 0.25)
    three = curve_of(even_lags(0.5, 0.2, 1.0, 3), 0, [[0, 0], [1, 2], [3, 3]], 1, 0)
    (first, _), (second, _) = three.parts
    np.testing.assert_allclose(first.up.points, [0, 0.5, 1, 1.5], rtol=1e-8)
    np.testing.assert_allclose(first.up.masses, [0.64, 0.16, 0.16, 0.04])
    np.testing.assert_allclose(second.up.points, [0, 0.25 / math.sqrt(0.25 + 0.0625)], rtol=1e-8)
    np.testing.assert_allclose(second.up.masses, [0.8, 0.2])


@pytest.mark.parametrize(
    ("q", "z", "steps", "epsilon"),
    [
        (0.01, 1, 5000, 7.146),
        (0.1, 2, 1000, 17.685),
        (0.01, 2, 20000, 6.602),
        (0.1, 5, 5000, 15.423),
    ],
)
def test_released_iterates_of_replaced_records(
    q: float, z: float, steps: int, epsilon: float
) -> None:
    run = ridge_run(0.99, q, z, steps, neighbors="replace", release="all")
    found = bound_named("pld_composition").curve(run, {}).epsilon(DELTA)
    # The table's values are rounded to three digits behind the point.
    assert epsilon - 5e-4 <= found <= 1.001 * epsilon


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
def test_single_steps_are_composition(neighbors: str) -> None:
    run = ridge_run(0.99, 0.02, 2.0, 300, neighbors=neighbors)
    blocks = BLOCKS[neighbors].curve(run, composition(run))
    composed = bound_named("pld_composition").curve(run.replace(release="all"), {})
    for delta in (1e-3, DELTA, 1e-9):
        assert blocks.epsilon(delta) == pytest.approx(composed.epsilon(delta), rel=2e-3)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize(("c", "steps"), [(0.9, 50), (0.5, 4), (0.99, 400), (0.9, 1)])
def test_known_uses_cost_at_least_the_shift_program(c: float, steps: int, sides: int) -> None:
    """With q = 1 the exact answer is Gaussian, and blocks are plans of that program."""
    best = sides / 4 * math.sqrt((1 + c) / (1 - c) * (1 - c**steps) / (1 + c**steps))
    lags = even_lags(c, 1.0, 4.0, steps)
    found = min(
        LossCurve(block_pairs(lags, plan, 1, sides - 1)).epsilon(DELTA)
        for plan in cheapest_plans(lags, 1)
    )
    exact = GaussianCurve(best).epsilon(DELTA)
    assert exact * (1 - 1e-9) <= found <= 1.2 * exact


def test_one_step_is_the_sampled_gaussian() -> None:
    run = ridge_run(0.9, 0.3, 1.0, 1)
    composed = bound_named("pld_composition").curve(run.replace(release="all"), {})
    assert claim(run) == pytest.approx(composed.epsilon(DELTA), rel=2e-3)


def test_steps_that_forget_everything_leave_the_last_one() -> None:
    forgetful, last = even_lags(0.0, 0.3, 1.0, 50), even_lags(0.9, 0.3, 1.0, 1)
    blocks = curve_of(forgetful, 0, [[0, 0], [1, 50]], 1, 0)
    alone = curve_of(last, 1, [[1, 1]], 1, 0)
    assert blocks.epsilon(DELTA) == pytest.approx(alone.epsilon(DELTA), rel=1e-6)
    (plan, *_) = cheapest_plans(forgetful, 1)
    found = LossCurve(block_pairs(forgetful, plan, 1, 0)).epsilon(DELTA)
    assert found == pytest.approx(alone.epsilon(DELTA), rel=1e-6)
    with pytest.raises(InvalidInput, match="within the last 1 steps"):
        curve_of(forgetful, 0, [[0, 0], [1, 1], [2, 50]], 1, 0)


def test_little_noise() -> None:
    assert claim(ridge_run(0.95, 0.98, 0.3, 400), 1e-4) <= 295


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
def test_tiny_deltas(neighbors: str) -> None:
    run = ridge_run(0.95, 0.05, 2.0, 500, neighbors=neighbors)
    values = [claim(run, delta) for delta in (1e-5, 1e-8, 1e-12, 1e-30)]
    assert values == sorted(values)
    assert lower_bound(run, 1e-12).epsilon <= values[2] <= 3 * values[0]


def test_a_group_costs_less_than_group_privacy_and_more_than_one_record() -> None:
    lags = even_lags(0.95, 0.05, 2.0, 500)
    (plan, *_) = cheapest_plans(lags, 3)
    one, three, split = (
        LossCurve(block_pairs(lags, plan, up, down)) for up, down in ((1, 0), (3, 0), (2, 1))
    )
    single = one.epsilon(DELTA)
    grouped = 3 * one.epsilon(DELTA / (1 + math.exp(single) + math.exp(2 * single)))
    for group in (three, split):
        assert single < group.epsilon(DELTA) < grouped


# --- laws ---------------------------------------------------------------------------------------

SETTINGS = [(0.99, 0.01, 1.0, 2000), (0.9, 0.3, 3.0, 40), (0.95, 0.9, 1.0, 100)]


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize(("c", "q", "z", "steps"), SETTINGS)
def test_claims_are_monotone(c: float, q: float, z: float, steps: int, neighbors: str) -> None:
    def at(c: float = c, q: float = q, z: float = z, steps: int = steps) -> float:
        return claim(ridge_run(c, q, z, steps, neighbors=neighbors))

    middle = at()
    assert at(z=1.3 * z) <= middle * GRIDS
    assert at(z=0.8 * z) >= middle / GRIDS
    assert at(steps=2 * steps) >= middle / GRIDS
    assert at(steps=steps // 2) <= middle * GRIDS
    assert at(q=1.1 * q) >= middle / GRIDS
    assert at(q=0.7 * q) <= middle * GRIDS
    assert at(c=1 - 0.7 * (1 - c)) >= middle / GRIDS


def test_a_constant_schedule_is_a_constant() -> None:
    run = ridge_run(0.95, 0.05, 2.0, 120)
    witness = BLOCKS["add_remove"].plan(run, DELTA)
    plain = BLOCKS["add_remove"].curve(run, witness)
    for changes in ({"learning_rate": [2.0] * 120}, {"noise_multiplier": [2.0] * 120}):
        scheduled = run.replace(**changes)
        curve = BLOCKS["add_remove"].curve(scheduled, witness)
        assert curve.epsilon(DELTA) == pytest.approx(plain.epsilon(DELTA), rel=2e-3)
        assert claim(scheduled) == pytest.approx(claim(run), rel=GRIDS - 1)


def test_schedules_beat_their_worst_constant() -> None:
    noises = np.linspace(1.0, 3.0, 120)
    scheduled = claim(ridge_run(0.95, 0.05, 2.0, 120, noise_multiplier=noises.tolist()))
    assert claim(ridge_run(0.95, 0.05, 3.0, 120)) / GRIDS <= scheduled
    assert scheduled <= claim(ridge_run(0.95, 0.05, 1.0, 120)) * GRIDS


def test_a_schedule_that_forgets_early_steps_is_planned() -> None:
    """Noise of 2^-200 is nothing next to the last step's, and no number divides by it."""
    rates = [1.0] * 150 + [2.0] * 150
    loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=1e-6)
    run = ridge_run(0.3, 0.05, 2.0, 300, learning_rate=rates, loss=loss)
    constant = run.replace(learning_rate=2.0)
    assert claim(run) == pytest.approx(claim(constant), rel=GRIDS - 1)


def test_a_huge_domain_is_none_and_a_smaller_one_is_never_worse() -> None:
    run = ridge_run(0.99, 0.05, 2.0, 3000)
    free = claim(run)
    assert claim(run.replace(domain=Ball(1e6))) == pytest.approx(free, rel=1e-6)
    values = [claim(run.replace(domain=Ball(10.0**-k))) for k in range(6)]
    assert values[0] <= free * GRIDS
    assert all(small <= large * GRIDS for large, small in pairwise(values))
    assert values[-1] < 0.5 * free


def test_a_small_domain_forgets_without_contraction() -> None:
    run = ridge_run(1.0, 0.01, 2.0, 100_000, domain=Ball(1e-4))
    assert claim(run) == pytest.approx(claim(run.replace(steps=1000)), rel=1e-3)
    assert claim(run) < 0.2
    assert claim(run.replace(domain=Ball(1e-13))) < 0.1


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
def test_steps_that_stretch_need_a_domain(neighbors: str) -> None:
    nonconvex = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.25)
    run = ridge_run(1.0, 0.05, 2.0, 3000, loss=nonconvex, learning_rate=0.1, neighbors=neighbors)
    reason = BLOCKS[neighbors].refusal(run)
    assert reason is not None
    assert "a bounded domain" in reason
    bounded = run.replace(domain=Ball(5e-5))
    lags = lags_of(bounded, batch_sizes(bounded, DELTA))
    assert lags.alike is not None
    assert lags.alike > 1
    epsilon = claim(bounded)
    assert lower_bound(bounded, DELTA).epsilon <= epsilon < 8.0
    # Ten times as long; its lags are cut more coarsely.
    assert epsilon / GRIDS <= claim(bounded.replace(steps=30_000)) <= 1.05 * epsilon


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_units_do_not_matter(scale: float) -> None:
    wanted = even_lags(0.95, 0.1, 2.0, 200)
    scaled = even_lags(0.95, 0.1, 2.0, 200, reach=scale)
    values = []
    for lags in (wanted, scaled):
        (plan, *_) = cheapest_plans(lags, 1)
        values.append(LossCurve(block_pairs(lags, plan, 1, 0)).epsilon(DELTA))
    assert values[0] == pytest.approx(values[1], rel=1e-6)


# --- witnesses that prove nothing ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("singles", "edges", "why"),
    [
        (0, [], "starts where its single steps end"),
        (0, [[0, 1], [1, 4]], "starts where its single steps end"),
        (5, [[5, 5]], "starts where its single steps end"),
        (-1, [[-1, -1], [0, 4]], "starts where its single steps end"),
        (0, [[0, 0], [0, 4]], "must rise"),
        (0, [[0, 0], [1, 2], [2, 2], [3, 4]], "must rise"),
        (0, [[0, 0], [1, 4], [5, 5]], "must rise"),
        (0, [[0, 0], [2, 4]], "comes before the use"),
        (1, [[1, 1], [2, 2], [4, 4]], "comes before the use"),
        (0, [[0, 0], [1, 3]], "must hide all 4 uses"),
        (3, [[3, 3]], "must hide all 4 uses"),
    ],
)
def test_false_plans_are_refused(singles: int, edges: list[list[int]], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        BlockPlan.read({"single_steps": singles, "edges": edges}, 4)


# --- strongly convex losses, groups and schedules of rates ---------------------------------------


def test_strong_convexity_of_the_losses_counts_but_for_rare_small_batches() -> None:
    """Ridge .1 and smoothness .9, or losses of smoothness 1 and strong convexity .1."""
    options: dict[str, Any] = {
        "n": 20_000, "batch_size": 1000, "steps": 2000, "learning_rate": 0.5,
        "noise_multiplier": 2.0, "release": "last",
    }  # fmt: skip
    curved = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0, strong_convexity=0.1)
    ridged = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.9)
    own = certify(NoisySGD(**options, loss=curved), DELTA)
    ridge = certify(NoisySGD(**options, loss=ridged, l2=0.1), DELTA)
    flat = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)
    without = certify(NoisySGD(**options, loss=flat), DELTA)
    assert own.bound == ridge.bound == "poisson_blocks"
    assert ridge.claimed_epsilon < own.claimed_epsilon < 1.2 * ridge.claimed_epsilon
    assert own.claimed_epsilon < 0.25 * without.claimed_epsilon
    assert 700 < own.witness["batch_floor"] < 1000
    assert own.verify().ok
    # A floor that is broken too often is charged, and a verifier does not take it for free.
    higher = {**own.witness, "batch_floor": 960}
    assert bound_named("poisson_blocks").curve(own.run, higher).epsilon(DELTA) == math.inf


def test_nonconvex_losses_under_enough_ridge_need_no_domain() -> None:
    loss = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.02)
    run = NoisySGD(
        n=10_000, batch_size=500, steps=3000, learning_rate=0.5, l2=0.1, noise_multiplier=2.0,
        loss=loss, release="last",
    )  # fmt: skip
    found = certify(run, DELTA)
    assert found.bound == "poisson_blocks"
    assert found.claimed_epsilon < 0.5 * compare(run, DELTA).epsilon("pld_composition")  # type: ignore[operator]
    assert found.verify().ok
    reason = bound_named("poisson_blocks").refusal(run.replace(l2=0.01))
    assert reason is not None
    assert "needs steps that contract, or a bounded domain" in reason


def test_rates_that_grow_cost_more_where_they_are_late() -> None:
    loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
    options: dict[str, Any] = {
        "n": 10_000, "batch_size": 200, "steps": 600, "learning_rate": 1.0, "l2": 0.02,
        "noise_multiplier": 2.0, "loss": loss, "release": "last",
    }  # fmt: skip
    low, high = [0.01] * 300, [0.03] * 300
    claims = [
        certify(NoisySGD(**options, sampling_rate=rates), DELTA)
        for rates in (low + low, high + low, low + high, high + high)
    ]
    assert all(claim.bound == "poisson_blocks" and claim.verify().ok for claim in claims)
    found = [claim.claimed_epsilon for claim in claims]
    assert found == sorted(found)
    # 300 steps back a use weighs c^300 = .002 of the last one's: early rates hardly matter.
    assert found[1] < 1.02 * found[0]
    assert found[2] > 0.98 * found[3]


@pytest.mark.parametrize("size", [2, 5])
def test_a_group_is_between_one_record_and_that_many_steps_at_once(size: int) -> None:
    run = ridge_run(0.95, 0.05, 4.0, 400)
    bound = bound_named("poisson_blocks")
    one = certify(run, DELTA, bounds=[bound]).claimed_epsilon
    group = certify(run, DELTA, bounds=[bound], group_size=size)
    # One record that moves a step by as much as all of them, always drawn together.
    together = certify(
        run.replace(noise_multiplier=4.0 / size), DELTA, bounds=[bound]
    ).claimed_epsilon
    assert one < group.claimed_epsilon < together
    assert group.verify().ok


def test_the_running_sum_of_logs_is_as_exact_as_it_says() -> None:
    """Two million scheduled steps: plain sums were off by more than the room that they had."""
    random = np.random.default_rng(5)
    logs = np.log1p(-random.uniform(0.0, 0.02, 1 << 21))
    growth, error = running_growth(logs)
    assert growth[0] == 0.0
    for lag in (1, 1000, 1 << 20, (1 << 21) - 1):
        exact = math.fsum(logs[:lag].tolist())
        assert abs(growth[lag] - exact) <= error
    assert 0 < error < 1e-8
    stopped, _ = running_growth(np.array([-0.5, -math.inf, -0.5]))
    assert stopped.tolist() == [0.0, -0.5, -math.inf]


def test_the_error_of_the_sum_is_charged() -> None:
    lags = Lags(
        2, np.ones(2), np.ones(2), np.full(2, 0.5), np.array([0.0, -0.1]), -math.inf, 9.0, None
    )
    plan = BlockPlan.read({"single_steps": 0, "edges": [[0, 0], [1, 2]]}, 2)
    ((exact, _),) = block_pairs(lags, plan, 1, 0)
    ((charged, _),) = block_pairs(replace(lags, log_error=1e-3), plan, 1, 0)
    assert isinstance(exact, MixturePair)
    assert isinstance(charged, MixturePair)
    ratios = np.array(charged.up.points)[1:] / np.array(exact.up.points)[1:]
    assert ratios == pytest.approx(math.exp(2e-3), rel=1e-6)


@pytest.mark.parametrize("name", ["poisson_blocks", "poisson_blocks_replace", "momentum"])
def test_groups_that_the_verifier_does_not_split_are_not_claimed(name: str) -> None:
    """Each way to split a group is a product of its own, which somebody has to compose again."""
    neighbors = "replace" if name.endswith("replace") else "add_remove"
    run, bound = ridge_run(0.95, 0.05, 4.0, 40, neighbors=neighbors), bound_named(name)
    run = run.replace(momentum=0.5, learning_rate=1.0) if name == "momentum" else run
    assert bound.refusal(run.replace(group_size=MOST_SPLIT)) is None
    assert "at most 50 records" in str(bound.refusal(run.replace(group_size=MOST_SPLIT + 1)))
    assert MOST_SPLIT == _MOST_RECORDS_OF_A_GROUP
