"""Lagged blocks attacked: exact laws of nonlinear runs against the pairs of random plans.

The law of the last state of a one-dimensional run is propagated by Gauss quadrature: maps that
change with time and bend anywhere within their Lipschitz constant, record contributions whose size
and sign depend on the state, random common batches, schedules of everything, walls. Kinks and jumps
lie on the borders of cells. The hockey stick is summed over cells of the last state, which are
events: up to quadrature it can only be too small. Plans are random causal ones, not the planner's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import ndtr

from dplateau.curves import DominatingPair, MixturePair, compose_pairs
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.bernoulli_laws import AtomLaw
from dplateau.numerics.normal import gaussian_delta
from dplateau.shifts.blocks import BlockPlan as Plan
from dplateau.shifts.blocks import Lags, block_pairs

Parts = tuple[tuple[DominatingPair, int], ...]
Function = Callable[[FloatArray], FloatArray]
EPSILONS = np.array([0.0, 0.1, 0.4, 1.0, 2.0, 4.0])
# What windows and quadrature may be wrong by in delta (seen against closed forms: below 1e-10).
SLACK = 1e-8
_NODES, _SHARES = np.polynomial.legendre.leggauss(5)
_FAR = 7.0  # standard deviations of one step's noise that a window holds


@dataclass(frozen=True, eq=False)
class Step:
    """x <- Proj[map(x) + sum of the pushes of records that take part + noise * N(0, 1)].

    Each of ``maps`` is as likely as the others: the common batch. ``up`` holds a push for every
    record that only the first run has, ``down`` those of the second run.
    """

    lipschitz: float
    reach: float
    noise: float
    rate: float
    maps: tuple[Function, ...]
    up: tuple[Function, ...]
    down: tuple[Function, ...] = ()

    def means(self, x: FloatArray, pushes: tuple[Function, ...]) -> list[tuple[float, FloatArray]]:
        """Return where x may be sent before noise, and how likely."""
        found = []
        for image in self.maps:
            for drawn in itertools.product((False, True), repeat=len(pushes)):
                share = math.prod(self.rate if is_in else 1 - self.rate for is_in in drawn)
                taken = itertools.compress(pushes, drawn)
                moved = sum((push(x) for push in taken), image(x))
                found.append((share / len(self.maps), moved))
        return found


@dataclass(frozen=True, eq=False)
class Chain:
    """A run from a point ``start``, all of whose kinks are multiples of ``cell``."""

    steps: tuple[Step, ...]
    cell: float
    start: float = 0.0
    radius: float = math.inf  # the domain is [-radius, radius]

    def lags(self) -> Lags:
        """Return the constants of the run, read backwards."""
        steps = self.steps[::-1]
        reach, noise, rate, lipschitz = (
            np.array([getattr(step, name) for step in steps])
            for name in ("reach", "noise", "rate", "lipschitz")
        )
        with np.errstate(divide="ignore"):
            growth = np.r_[0.0, np.cumsum(np.log(lipschitz[:-1]))]
        return Lags(len(steps), reach, noise, rate, growth, -math.inf, 2 * self.radius, None)

    def last_laws(self, refine: int = 4) -> tuple[FloatArray, FloatArray]:
        """Return the masses of both runs' last states in the same cells."""
        laws = []
        ends = self._windows()
        for side in ("up", "down"):
            x, mass = np.array([self.start]), np.ones(1)
            for t, step in enumerate(self.steps):
                last = t == len(self.steps) - 1
                cell = self.cell / refine if last else self.cell
                x, mass = self._move(step, getattr(step, side), x, mass, ends[t], cell)
            laws.append(mass)
        return laws[0], laws[1]

    def _windows(self) -> list[float]:
        """Return how far from 0 a state can be after each step, in whole cells."""
        ends, end = [], abs(self.start)
        for step in self.steps:
            x = np.linspace(-end, end, 4001)
            pushes = len(step.up) + len(step.down)
            image = max(float(np.abs(one(x)).max()) for one in step.maps)
            end = min(image + pushes * step.reach + _FAR * step.noise, self.radius)
            end = self.cell * math.ceil(end / self.cell - 1e-9)
            ends.append(end)
        return ends

    def _move(
        self,
        step: Step,
        pushes: tuple[Function, ...],
        x: FloatArray,
        mass: FloatArray,
        end: float,
        cell: float,
    ) -> tuple[FloatArray, FloatArray]:
        count = round(2 * end / cell)
        middles = -end + cell * (np.arange(count) + 0.5)
        nodes = np.add.outer(middles, _NODES * cell / 2).ravel()
        weights = np.tile(_SHARES * cell / 2, count) / (step.noise * math.sqrt(2 * math.pi))
        density, walls = np.zeros(nodes.size), np.zeros(2)
        for share, mean in step.means(x, pushes):
            gap = (nodes[:, None] - mean) / step.noise
            density += share * (np.exp(-(gap**2) / 2) @ mass)
            for side, wall in enumerate((-end, end)):
                sign = 1 - 2 * side
                walls[side] += share * float(ndtr(sign * (wall - mean) / step.noise) @ mass)
        return np.r_[-end, nodes, end], np.r_[walls[0], density * weights, walls[1]]

    def deltas(self, epsilons: FloatArray = EPSILONS) -> dict[str, FloatArray]:
        """Return the hockey sticks in both orders, from events that are unions of cells."""
        laws = [
            np.r_[law[[0, -1]], law[1:-1].reshape(-1, _NODES.size).sum(axis=1)]
            for law in self.last_laws()
        ]
        return {
            order: np.array(
                [float(np.maximum(p - math.exp(eps) * q, 0.0).sum()) for eps in epsilons]
            )
            for order, (p, q) in (("remove", laws), ("add", laws[::-1]))
        }


def proved(parts: Parts, epsilons: FloatArray = EPSILONS) -> dict[str, FloatArray]:
    """Return what the pairs prove, order by order."""
    found = compose_pairs(parts, target_delta=1e-3)
    values = [loss.delta(epsilons) for loss in found.composed]
    return {"remove": values[0], "add": values[-1]}


def headroom(parts: Parts, chain: Chain) -> float:
    """Return the smallest bound / exact where delta is large enough to be told from SLACK."""
    exact, bound = chain.deltas(), proved(parts)
    worst = math.inf
    for order, values in exact.items():
        assert np.all(bound[order] >= values - SLACK), (order, bound[order], values)
        seen = values > 1e3 * SLACK
        worst = min(worst, float(np.min(bound[order][seen] / values[seen], initial=math.inf)))
    return worst


# --- random runs and plans ----------------------------------------------------------------------


def line(slope: float) -> Function:
    return lambda x: slope * x


def constant(value: float) -> Function:
    return lambda x: np.full(x.shape, value)


def bent(rng: np.random.Generator, lipschitz: float, cell: float, spread: float) -> Function:
    """Return a map with random slopes of at most ``lipschitz`` between random knots."""
    kind = rng.choice(
        ["line", "mirror", "clamp", "dead", "zigzag"], p=[0.45, 0.05, 0.15, 0.1, 0.25]
    )
    most = max(2, round(spread / cell))
    knots = cell * np.sort(rng.choice(np.arange(-most, most + 1), size=3, replace=False))
    slopes = {
        "line": np.ones(4),
        "mirror": -np.ones(4),
        "clamp": np.array([0.0, 1.0, 1.0, 0.0]),
        "dead": np.array([1.0, 0.0, 0.0, 1.0]),
        "zigzag": rng.choice([-1.0, 1.0, 0.5], size=4),
    }[str(kind)] * lipschitz
    heights = np.r_[0.0, np.cumsum(slopes[1:3] * np.diff(knots))]
    offset = 0.0 if kind == "line" else float(rng.normal(0, 0.3 * spread))

    def image(x: FloatArray) -> FloatArray:
        inner = np.interp(x, knots, heights)
        left, right = np.minimum(x - knots[0], 0.0), np.maximum(x - knots[-1], 0.0)
        return inner + slopes[0] * left + slopes[-1] * right + offset

    return image


def pushed(rng: np.random.Generator, reach: float, cell: float, spread: float) -> Function:
    """Return a contribution of at most ``reach``: constant, with jumps, or a ramp."""
    kind = rng.choice(["right", "left", "jumps", "ramp", "away"], p=[0.4, 0.1, 0.2, 0.1, 0.2])
    most = max(2, round(spread / cell))
    low, high = cell * np.sort(rng.choice(np.arange(-most, most + 1), size=2, replace=False))
    values = reach * rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=3)
    match kind:
        case "right":
            return constant(reach)
        case "left":
            return constant(-reach)
        case "jumps":
            return lambda x: np.where(x < low, values[0], np.where(x < high, values[1], values[2]))
        case "ramp":
            return lambda x: reach * (2 * np.clip((x - low) / (high - low), 0.0, 1.0) - 1)
        case _:
            return lambda x: np.where(x < low, -reach, reach)


def random_chain(rng: np.random.Generator, up: int, down: int, *, walls: bool) -> Chain:
    steps = int(rng.choice([1, 2, 3, 4, 5, 6], p=[0.05, 0.25, 0.25, 0.2, 0.15, 0.1]))
    if rng.random() < 0.05 and up + down == 1:
        steps = int(rng.integers(7, 13))
    even = rng.random() < 0.3
    noises = rng.uniform(0.6, 1.6, steps)
    reaches = rng.uniform(0.2, 2.0, steps) * rng.choice([1.0, 0.1], size=steps, p=[0.85, 0.15])
    lipschitz = rng.uniform(0.3, 1.5 if steps <= 4 else 1.05, steps)
    lipschitz[rng.random(steps) < 0.03] = 0.0
    rates = rng.choice([0.03, 0.1, 0.3, 0.5, 0.8, 1.0], size=steps)
    if even:
        noises[:], reaches[:], lipschitz[:], rates[:] = (
            noises[0],
            reaches[0],
            lipschitz[0],
            rates[0],
        )
    cell = 0.7 * float(noises.min())
    half = cell * int(rng.integers(1, 6))
    spread = 2.0
    straight = rng.random() < 0.4  # the strongest runs are straight lines and pushes to one side
    opposed = straight or rng.random() < 0.4
    batches = 2 if rng.random() < 0.2 and not straight else 1

    def maps(step: int) -> tuple[Function, ...]:
        if straight:
            return (line(lipschitz[step]),)
        return tuple(bent(rng, lipschitz[step], cell, spread) for _ in range(batches))

    def pushes(step: int, count: int, sign: float) -> tuple[Function, ...]:
        if opposed:
            return (constant(reaches[step] * sign),) * count
        return tuple(pushed(rng, reaches[step], cell, spread) for _ in range(count))

    return Chain(
        tuple(
            Step(
                lipschitz[t],
                reaches[t],
                noises[t],
                rates[t],
                maps(t),
                pushes(t, up, 1.0),
                pushes(t, down, -1.0),
            )
            for t in range(steps)
        ),
        cell,
        start=float(np.clip(rng.normal(), -half, half)) if walls else float(rng.normal()),
        radius=half if walls else math.inf,
    )


def random_plan(rng: np.random.Generator, lags: Lags) -> Plan:
    """Return any causal plan whose noise reaches the end, checked as a witness would be."""
    steps = lags.steps
    reaching = int(np.sum(np.isfinite(lags.log_growth)))
    singles = int(rng.integers(0, steps)) if rng.random() < 0.5 else 0
    singles = steps if rng.random() < 0.05 else min(singles, reaching - 1)
    edges = [(singles, singles)]
    while edges[-1][1] < steps:
        a, used = edges[-1]
        most = min(used + 1, reaching)
        later = int(rng.integers(used + 1, steps + 1))
        if a >= most:  # nothing is left for another block: the last one takes all
            edges[-1] = (a, steps)
            break
        edges.append((most if rng.random() < 0.6 else int(rng.integers(a + 1, most + 1)), later))
    witness = {"single_steps": singles, "edges": [list(edge) for edge in edges]}
    return Plan.read(witness, steps)


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


def straight(
    c: float, r: float, nu: float, q: float, steps: int, *, down: int = 0, radius: float = math.inf
) -> Chain:
    """Return the walk that the theorem's worst case comes close to."""
    step = Step(c, r, nu, q, (line(c),), (constant(r),), (constant(-r),) * down)
    return Chain((step,) * steps, cell=0.5 * nu, radius=radius)


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
    plan = Plan.read({"single_steps": 0, "edges": [[0, 0], [1, 1]]}, 1)
    assert 1.0 <= headroom(block_pairs(chain.lags(), plan, 1, down), chain) < 1.004


def checked(parts: Parts, chain: Chain) -> float:
    """Return the largest exact delta / bound: above one, the pairs prove nothing."""
    exact, bound = chain.deltas(), proved(parts)
    return max(
        float(np.max(np.where(values > 1e3 * SLACK, values - SLACK, 0.0) / bound[order]))
        for order, values in exact.items()
    )


# --- the aligned worst case, written down without blocks -----------------------------------------


def aligned_deltas(lags: Lags, plan: Plan, epsilons: FloatArray, down: int) -> FloatArray:
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
    plan = Plan.read({"single_steps": singles, "edges": edges}, 3)
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
    plan = Plan.read({"single_steps": 1, "edges": [[1, 1], [2, 3], [4, 6]]}, 6)
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
            nodes = np.add.outer(middles, _NODES * width / 2).ravel()
            weights = np.tile(_SHARES * width / 2, count) / (noise * math.sqrt(2 * math.pi))
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
        cells = law.reshape(count, _NODES.size, count, _NODES.size).sum(axis=(1, 3)).ravel()
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
    for plan in [Plan(steps, ((steps, steps),)), *(random_plan(rng, lags) for _ in range(4))]:
        bound = proved(block_pairs(lags, plan, 1, int(two_sided)))
        for order, values in exact.items():
            assert np.all(bound[order] >= values - SLACK)


# --- what would be wrong ------------------------------------------------------------------------


def test_rounding_a_weight_to_both_neighbors_would_be_wrong() -> None:
    """One certain use of weight d is not covered by weights 0 and 2d, each with chance 1/2."""
    chain = straight(0.9, 0.8, 1.0, 1.0, 1)
    wrong = MixturePair(AtomLaw((0.0, 1.6), (0.5, 0.5)))
    assert checked(((wrong, 1),), chain) > 1.1
    right = block_pairs(chain.lags(), Plan(0, ((0, 0), (1, 1))), 1, 0)
    assert checked(right, chain) <= 1.0


def test_noise_before_a_use_does_not_hide_it() -> None:
    """The last step forgets all before it, so only its own noise hides its own use."""
    first = Step(1.0, 0.01, 1.0, 0.5, (line(0.0),), (constant(0.01),))
    chain = Chain((first, replace(first, reach=1.0, up=(constant(1.0),))), cell=0.5)
    edges = [[0, 0], [2, 2]]  # a_1 - 1 <= l_1, but not <= l_0
    assert checked(block_pairs(chain.lags(), Plan(0, ((0, 0), (2, 2))), 1, 0), chain) > 1.1
    with pytest.raises(InvalidInput, match="comes before the use"):
        Plan.read({"single_steps": 0, "edges": edges}, 2)


def test_a_use_that_no_block_hides_is_missed() -> None:
    chain = straight(1.0, 1.0, 1.0, 0.3, 3)
    lags = chain.lags()
    assert checked(block_pairs(lags, Plan(0, ((0, 0), (1, 1), (2, 2))), 1, 0), chain) > 1.05
    assert checked(block_pairs(lags, Plan(0, ((0, 0), (1, 1), (2, 3))), 1, 0), chain) <= 1.0
    with pytest.raises(InvalidInput, match="must hide all 3 uses"):
        Plan.read({"single_steps": 0, "edges": [[0, 0], [1, 1], [2, 2]]}, 3)


def test_a_use_split_over_two_blocks_is_not_two_uses() -> None:
    """Half a use in each of two blocks is drawn in both or in none, not independently."""
    never = Step(1.0, 1e-9, 1.0, 0.1, (line(1.0),), (constant(1e-9),))
    chain = Chain((replace(never, reach=2.0, up=(constant(2.0),)), never), cell=0.5)
    half = MixturePair(AtomLaw((0.0, 1.0), (0.9, 0.1)))
    assert checked(((half, 2),), chain) > 1.2
    whole = block_pairs(chain.lags(), Plan(0, ((0, 0), (1, 1), (2, 2))), 1, 0)
    assert checked(whole, chain) <= 1.0


@pytest.mark.parametrize("steps", [1, 3])
def test_pairs_of_an_added_record_do_not_cover_a_replaced_one(steps: int) -> None:
    chain = straight(0.9, 1.0, 1.0, 0.3, steps, down=1)
    plan = Plan(0, ((0, 0), (1, 1), (2, 3))) if steps == 3 else Plan(1, ((1, 1),))
    assert checked(block_pairs(chain.lags(), plan, 1, 0), chain) > 1.3
    assert checked(block_pairs(chain.lags(), plan, 1, 1), chain) <= 1.0


def test_copies_of_one_side_do_not_cover_a_group_on_both_sides() -> None:
    """Two records, one in either run: neither two in one run nor one in one run covers them."""
    chain = straight(0.9, 1.0, 1.0, 0.3, 2, down=1)
    plan = Plan(0, ((0, 0), (1, 1), (2, 2)))
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
    uncapped = block_pairs(lags, Plan(0, ((0, 0), (1, 3))), 1, 0)
    assert uncapped[0][0].loss_range(1e-3, "remove")[1] > 100
    # a_2 = l_1 = 1 would leave no noise; with the single last step before it nothing is capped.
    right = block_pairs(lags, Plan(0, ((0, 0), (1, 2), (2, 3))), 1, 0)
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
    wrong = block_pairs(chain.lags(), Plan(0, ((0, 0), (1, 2))), 1, 0)
    assert checked(wrong, chain) > 2.0
