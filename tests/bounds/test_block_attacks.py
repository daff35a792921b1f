"""Lagged blocks attacked: exact laws of nonlinear runs against the pairs of random plans.

Plans are random causal ones, not the planner's (``exact_chains`` has the runs).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dplateau.curves import MixturePair
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.bernoulli_laws import AtomLaw
from dplateau.numerics.normal import gaussian_delta
from dplateau.shifts.blocks import BlockPlan, Lags, block_pairs
from exact_chains import (
    EPSILONS,
    NODES,
    SHARES,
    SLACK,
    Chain,
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

WAYS = [(1, 0), (1, 1), (1, 0), (2, 0), (1, 0), (1, 2), (1, 1), (2, 1), (3, 0), (2, 2)]


def attack(seed: int) -> float:
    rng = np.random.default_rng([20, seed])
    up, down = WAYS[seed % len(WAYS)]
    chain = random_chain(rng, up, down, walls=bool(rng.random() < 0.4))
    lags = chain.lags()
    worst = math.inf
    for _ in range(2):
        plan = random_plan(rng, lags)
        worst = min(worst, headroom(block_pairs(lags, plan, up, down), chain))
    return worst


@pytest.mark.parametrize("seed", range(40))
def test_random_plans_stand_above_exact_nonlinear_runs(seed: int) -> None:
    assert attack(seed) >= 1.0


def test_the_engine_knows_gaussian_walks() -> None:
    chain = straight(1.2, 0.7, 1.0, 1.0, 4)
    growth = 1.2 ** np.arange(4)
    exact = gaussian_delta(EPSILONS, 0.7 * growth.sum() / math.sqrt((growth**2).sum()))
    for values in chain.deltas().values():
        # Events that are unions of cells miss part of the cell in which the ratio is e^eps.
        np.testing.assert_allclose(values, exact, rtol=1e-3)
        assert np.all(values <= exact + 1e-10)
    for law in chain.last_laws():
        assert float(law.sum()) == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("down", [0, 1])
@pytest.mark.parametrize("nu", [0.5, 1.0, 3.0])
def test_one_step_is_exact(nu: float, down: int) -> None:
    chain = straight(0.9, 1.0, nu, 0.2, 1, down=down)
    plan = BlockPlan.read({"single_steps": 0, "edges": [[0, 0], [1, 1]]}, 1)
    assert 1.0 <= headroom(block_pairs(chain.lags(), plan, 1, down), chain) < 1.004


# --- the aligned worst case, written down without blocks -----------------------------------------


def aligned_deltas(lags: Lags, plan: BlockPlan, epsilons: FloatArray, down: int) -> FloatArray:
    """Return E (sum_I p_I Y_I - e^eps sum_I p_I Y'_I)_+, a normal variable for each of 3 lags.

    Every indicator vector is enumerated and moves every lag of noise by nu_j C_j M_i(I) / E_i^2 of
    its standard deviation; nothing is rotated and no block is treated alone.
    """
    steps, growth = lags.steps, np.exp(lags.log_growth)
    indicators = np.array(list(itertools.product((0, 1), repeat=steps)))
    shares = np.prod(np.where(indicators == 1, lags.rate, 1 - lags.rate), axis=1)
    singles = [((k, k), (k + 1, k + 1)) for k in range(plan.single_steps)]
    moves = np.zeros(indicators.shape)
    for (a, used), (next_a, next_used) in singles + list(itertools.pairwise(plan.edges)):
        noise = (lags.noise * growth)[a:next_a]
        total = indicators[:, used:next_used] @ (lags.reach * growth)[used:next_used]
        moves[:, a:next_a] = np.outer(total, noise) / float((noise**2).sum())
    axis = np.linspace(-8.0, 10.0, 121)
    bell = np.exp(-(axis**2) / 2) * (axis[1] - axis[0]) / math.sqrt(2 * math.pi)

    def density(sign: float) -> FloatArray:
        tilts = np.exp(sign * moves[:, :, None] * axis - moves[:, :, None] ** 2 / 2)
        return np.einsum("i,ia,ib,ic->abc", shares, *tilts.swapaxes(0, 1), optimize=True)

    weights = np.einsum("a,b,c->abc", bell, bell, bell)
    first, second = density(1.0), density(-1.0) if down else 1.0
    return np.array(
        [float((weights * np.maximum(first - math.exp(e) * second, 0.0)).sum()) for e in epsilons]
    )


@pytest.mark.parametrize("down", [0, 1])
@pytest.mark.parametrize(
    ("singles", "edges"),
    [
        (0, [[0, 0], [1, 1], [2, 3]]),
        (0, [[0, 0], [1, 2], [3, 3]]),
        (1, [[1, 1], [2, 3]]),
        (0, [[0, 0], [1, 3]]),
    ],
)
def test_blocks_compose_to_the_enumerated_worst_case(
    singles: int, edges: list[list[int]], down: int
) -> None:
    lags = Lags(
        steps=3,
        reach=np.array([0.8, 1.1, 0.9]),
        noise=np.array([1.0, 1.3, 0.9]),
        rate=np.array([0.3, 0.6, 0.2]),
        log_growth=np.log([1.0, 0.8, 0.72]),
        log_older=-math.inf,
        diameter=math.inf,
        alike=None,
    )
    plan = BlockPlan.read({"single_steps": singles, "edges": edges}, 3)
    epsilons = np.array([0.0, 0.3, 1.0, 2.0])
    wanted = aligned_deltas(lags, plan, epsilons, down)
    found = proved(block_pairs(lags, plan, 1, down), epsilons)["remove"]
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


@pytest.mark.parametrize("down", [0, 1])
def test_six_lags_compose_to_a_sample_of_the_enumerated_worst_case(down: int) -> None:
    rng = np.random.default_rng(6)
    lags = replace(
        straight(0.9, 1.0, 1.5, 0.4, 6).lags(), reach=rng.uniform(0.5, 1.5, 6), rate=rng.random(6)
    )
    plan = BlockPlan.read({"single_steps": 1, "edges": [[1, 1], [2, 3], [4, 6]]}, 6)
    epsilons = np.array([0.0, 0.5])
    growth = np.exp(lags.log_growth)
    weights, noise = lags.reach * growth, lags.noise * growth
    indicators = np.array(list(itertools.product((0, 1), repeat=6)))
    shares = np.prod(np.where(indicators == 1, lags.rate, 1 - lags.rate), axis=1)
    moves = np.zeros((64, 6))
    for a, next_a, used, next_used in ((0, 1, 0, 1), (1, 2, 1, 3), (2, 4, 3, 6)):
        total = indicators[:, used:next_used] @ weights[used:next_used]
        moves[:, a:next_a] = np.outer(total, noise[a:next_a]) / (noise[a:next_a] ** 2).sum()
    zeta = rng.standard_normal((200_000, 6))
    size = (moves**2).sum(axis=1) / 2
    first = np.exp(zeta @ moves.T - size) @ shares
    second = np.exp(-zeta @ moves.T - size) @ shares if down else np.ones(first.size)
    # Read under the second law, whose ratio to the first lies below e^-eps: no heavy tails.
    found = proved(block_pairs(lags, plan, 1, down), epsilons)["add"]
    for eps, delta in zip(epsilons, found, strict=True):
        sample = np.maximum(second - math.exp(eps) * first, 0.0)
        error = float(sample.std()) / math.sqrt(sample.size)
        assert delta == pytest.approx(float(sample.mean()), abs=4 * error)


# --- two dimensions -----------------------------------------------------------------------------


def plane_deltas(
    step: Callable[[FloatArray, bool], FloatArray],
    *,
    rate: float,
    noise: float,
    steps: int,
    down: Callable[[FloatArray, bool], FloatArray] | None = None,
) -> dict[str, FloatArray]:
    """Return the hockey sticks of a walk in the plane; ``step(x, drawn)`` is its smooth mean.

    The noise is isotropic, so a step of the law on a product grid is one product of matrices.
    """
    half, cell = 12.0, 0.8
    laws = []
    for mean in (step, down or (lambda x, drawn: step(x, False))):
        x, mass = np.zeros((1, 2)), np.ones(1)
        for t in range(steps):
            width = cell / 2 if t == steps - 1 else cell
            count = round(2 * half / width)
            middles = -half + width * (np.arange(count) + 0.5)
            nodes = np.add.outer(middles, NODES * width / 2).ravel()
            weights = np.tile(SHARES * width / 2, count) / (noise * math.sqrt(2 * math.pi))
            law = np.zeros((nodes.size, nodes.size))
            for share, drawn in ((1 - rate, False), (rate, True)):
                at = mean(x, drawn)
                across, along = (
                    np.exp(-(((nodes[:, None] - at[:, k]) / noise) ** 2) / 2) for k in (0, 1)
                )
                law += share * (across * mass) @ along.T
            law *= np.outer(weights, weights)
            seen = law.ravel() > 1e-14
            x = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)[seen]
            mass = law.ravel()[seen]
        cells = law.reshape(count, NODES.size, count, NODES.size).sum(axis=(1, 3)).ravel()
        assert float(cells.sum()) == pytest.approx(1.0, abs=1e-8)
        laws.append(cells)
    return {
        order: np.array([float(np.maximum(p - math.exp(e) * q, 0.0).sum()) for e in EPSILONS])
        for order, (p, q) in (("remove", laws), ("add", laws[::-1]))
    }


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize(
    ("angle", "swirl", "c", "rate", "steps"),
    [
        (0.0, 0.0, 0.9, 0.3, 2),
        (1.5707963, 0.0, 0.9, 0.3, 2),
        (0.4, 1.0, 0.8, 0.5, 3),
        (0.0, 2.0, 1.0, 0.2, 3),
    ],
)
def test_pushes_that_turn_with_the_state_gain_nothing_in_the_plane(
    angle: float, swirl: float, c: float, rate: float, steps: int, two_sided: bool
) -> None:
    """A rotation by ``angle`` that contracts, and a push whose direction depends on the state."""
    turn = c * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])

    def move(x: FloatArray, drawn: bool, sign: float = 1.0) -> FloatArray:
        direction = swirl * (x[:, 0] + 0.5 * np.sin(x[:, 1]))
        push = np.stack([np.cos(direction), np.sin(direction)], axis=1)
        return x @ turn.T + (sign * push if drawn else 0.0)

    exact = plane_deltas(
        move,
        rate=rate,
        noise=1.0,
        steps=steps,
        down=(lambda x, drawn: move(x, drawn, -1.0)) if two_sided else None,
    )
    lags = straight(c, 1.0, 1.0, rate, steps).lags()
    rng = np.random.default_rng(steps)
    for plan in [BlockPlan(steps, ((steps, steps),)), *(random_plan(rng, lags) for _ in range(4))]:
        bound = proved(block_pairs(lags, plan, 1, int(two_sided)))
        for order, values in exact.items():
            assert np.all(bound[order] >= values - SLACK)


# --- what would be wrong ------------------------------------------------------------------------


def test_rounding_a_weight_to_both_neighbors_would_be_wrong() -> None:
    """One certain use of weight d is not covered by weights 0 and 2d, each with chance 1/2."""
    chain = straight(0.9, 0.8, 1.0, 1.0, 1)
    wrong = MixturePair(AtomLaw((0.0, 1.6), (0.5, 0.5)))
    assert checked(((wrong, 1),), chain) > 1.1
    right = block_pairs(chain.lags(), BlockPlan(0, ((0, 0), (1, 1))), 1, 0)
    assert checked(right, chain) <= 1.0


def test_noise_before_a_use_does_not_hide_it() -> None:
    """The last step forgets all before it, so only its own noise hides its own use."""
    first = Step(1.0, 0.01, 1.0, 0.5, (line(0.0),), (constant(0.01),))
    chain = Chain((first, replace(first, reach=1.0, up=(constant(1.0),))), cell=0.5)
    edges = [[0, 0], [2, 2]]  # a_1 - 1 <= l_1, but not <= l_0
    assert checked(block_pairs(chain.lags(), BlockPlan(0, ((0, 0), (2, 2))), 1, 0), chain) > 1.1
    with pytest.raises(InvalidInput, match="comes before the use"):
        BlockPlan.read({"single_steps": 0, "edges": edges}, 2)


def test_a_use_that_no_block_hides_is_missed() -> None:
    chain = straight(1.0, 1.0, 1.0, 0.3, 3)
    lags = chain.lags()
    assert checked(block_pairs(lags, BlockPlan(0, ((0, 0), (1, 1), (2, 2))), 1, 0), chain) > 1.05
    assert checked(block_pairs(lags, BlockPlan(0, ((0, 0), (1, 1), (2, 3))), 1, 0), chain) <= 1.0
    with pytest.raises(InvalidInput, match="must hide all 3 uses"):
        BlockPlan.read({"single_steps": 0, "edges": [[0, 0], [1, 1], [2, 2]]}, 3)


def test_a_use_split_over_two_blocks_is_not_two_uses() -> None:
    """Half a use in each of two blocks is drawn in both or in none, not independently."""
    never = Step(1.0, 1e-9, 1.0, 0.1, (line(1.0),), (constant(1e-9),))
    chain = Chain((replace(never, reach=2.0, up=(constant(2.0),)), never), cell=0.5)
    half = MixturePair(AtomLaw((0.0, 1.0), (0.9, 0.1)))
    assert checked(((half, 2),), chain) > 1.2
    whole = block_pairs(chain.lags(), BlockPlan(0, ((0, 0), (1, 1), (2, 2))), 1, 0)
    assert checked(whole, chain) <= 1.0


@pytest.mark.parametrize("steps", [1, 3])
def test_pairs_of_an_added_record_do_not_cover_a_replaced_one(steps: int) -> None:
    chain = straight(0.9, 1.0, 1.0, 0.3, steps, down=1)
    plan = BlockPlan(0, ((0, 0), (1, 1), (2, 3))) if steps == 3 else BlockPlan(1, ((1, 1),))
    assert checked(block_pairs(chain.lags(), plan, 1, 0), chain) > 1.3
    assert checked(block_pairs(chain.lags(), plan, 1, 1), chain) <= 1.0


def test_copies_of_one_side_do_not_cover_a_group_on_both_sides() -> None:
    """Two records, one in either run: neither two in one run nor one in one run covers them."""
    chain = straight(0.9, 1.0, 1.0, 0.3, 2, down=1)
    plan = BlockPlan(0, ((0, 0), (1, 1), (2, 2)))
    assert checked(block_pairs(chain.lags(), plan, 1, 0), chain) > 1.3
    assert checked(block_pairs(chain.lags(), plan, 1, 1), chain) <= 1.0


def test_the_domain_caps_no_distance_that_noise_has_worked_on_before() -> None:
    """Wide pushes part the runs to both walls; the last step adds its own push to that."""
    radius = 1.0
    part = Step(1.0, 40.0, 1.0, 1.0, (lambda x: x - 20.0,), (constant(40.0),))
    last = Step(1.0, 0.8, 1.0, 1.0, (line(1.0),), (constant(0.8),))
    chain = Chain((part, part, last), cell=0.5, radius=radius)
    # a_1 = 1 > l_0 = 0: the noise of the last step, capped by the diameter after that step.
    wrong = MixturePair(AtomLaw((2 * radius,), (1.0,)))
    assert checked(((wrong, 1),), chain) > 1.05
    lags = chain.lags()
    uncapped = block_pairs(lags, BlockPlan(0, ((0, 0), (1, 3))), 1, 0)
    assert uncapped[0][0].loss_range(1e-3, "remove")[1] > 100
    # a_2 = l_1 = 1 would leave no noise; with the single last step before it nothing is capped.
    right = block_pairs(lags, BlockPlan(0, ((0, 0), (1, 2), (2, 3))), 1, 0)
    assert right[1][0] == MixturePair(AtomLaw(right[1][0].up.points, (1.0,)))
    assert right[1][0].up.points[0] == pytest.approx(2 * radius)
    assert checked(right, chain) <= 1.0


def test_a_map_that_tears_is_not_linear() -> None:
    """A step on |x| moves neighbors on both sides of the kink far apart: no constant c covers it.

    Its modulus is the square root of z^2 + h. Read as the line z it would lose what the jump adds.
    """
    torn = Step(1.0, 0.1, 0.02, 1.0, (line(1.0),), (constant(-0.1),))
    jump = Step(1.0, 0.1, 1.0, 1.0, (lambda x: x - 1.0 * np.sign(x),), (constant(-0.1),))
    chain = Chain((torn, jump), cell=0.01, start=0.05)
    wrong = block_pairs(chain.lags(), BlockPlan(0, ((0, 0), (1, 2))), 1, 0)
    assert checked(wrong, chain) > 2.0
