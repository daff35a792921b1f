"""Exact laws of small nonlinear runs, and random plans of lagged blocks to set against them.

The law of the last state of a one-dimensional run is propagated by Gauss quadrature: maps that
change with time and bend anywhere within their Lipschitz constant, record contributions whose size
and sign depend on the state, random common batches, schedules of everything, walls. Kinks and jumps
lie on the borders of cells. The hockey stick is summed over cells of the last state, which are
events: up to quadrature it can only be too small. Plans are random causal ones, not the planner's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from dplateau.curves import DominatingPair, compose_pairs
from dplateau.ground.types import FloatArray, IntArray
from dplateau.shifts.blocks import BlockPlan, Lags

Parts = tuple[tuple[DominatingPair, int], ...]
Function = Callable[[FloatArray], FloatArray]
EPSILONS = np.array([0.0, 0.1, 0.4, 1.0, 2.0, 4.0])
# What windows and quadrature may be wrong by in delta (seen against closed forms: below 1e-10).
SLACK = 1e-8
NODES, SHARES = np.polynomial.legendre.leggauss(5)
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
        return self._laws([len(self.steps)], refine)

    def _laws(self, releases: Sequence[int], refine: int) -> tuple[FloatArray, FloatArray]:
        """Return the joint masses of the states after ``releases``, the last step among them.

        A column of ``mass`` is a history: the cells of what was released so far.
        """
        laws = []
        ends = self._windows()
        for side in ("up", "down"):
            x, mass = np.array([self.start]), np.ones((1, 1))
            for t, step in enumerate(self.steps, 1):
                cell = self.cell / refine if t == len(self.steps) else self.cell
                x, mass = self._move(step, getattr(step, side), x, mass, ends[t - 1], cell)
                if t in releases and t < len(self.steps):
                    cells = _cells(x.size)
                    parted = np.zeros((x.size, mass.shape[1], cells[-1] + 1))
                    parted[np.arange(x.size), :, cells] = mass
                    mass = parted.reshape(x.size, -1)
            table = np.zeros((_cells(x.size)[-1] + 1, mass.shape[1]))
            np.add.at(table, _cells(x.size), mass)
            laws.append(table.ravel())
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
        nodes = np.add.outer(middles, NODES * cell / 2).ravel()
        weights = np.tile(SHARES * cell / 2, count) / (step.noise * math.sqrt(2 * math.pi))
        density, walls = np.zeros((nodes.size, mass.shape[1])), np.zeros((2, mass.shape[1]))
        for share, mean in step.means(x, pushes):
            gap = (nodes[:, None] - mean) / step.noise
            density += share * (np.exp(-(gap**2) / 2) @ mass)
            for side, wall in enumerate((-end, end)):
                sign = 1 - 2 * side
                walls[side] += share * (ndtr(sign * (wall - mean) / step.noise) @ mass)
        inside = density * weights[:, None]
        return np.r_[-end, nodes, end], np.vstack([walls[:1], inside, walls[1:]])

    def deltas(
        self, epsilons: FloatArray = EPSILONS, releases: Sequence[int] | None = None
    ) -> dict[str, FloatArray]:
        """Return the hockey sticks in both orders, from events that are unions of cells.

        Of the last state, or of all states after ``releases`` together.
        """
        laws = self.last_laws() if releases is None else self._laws(releases, 1)
        return {
            order: np.array(
                [float(np.maximum(p - math.exp(eps) * q, 0.0).sum()) for eps in epsilons]
            )
            for order, (p, q) in (("remove", laws), ("add", laws[::-1]))
        }


def _cells(nodes: int) -> IntArray:
    """Return the cell of each node; the walls, first and last, are cells of their own."""
    inner = np.arange(nodes - 2) // NODES.size + 1
    return np.r_[0, inner, inner[-1] + 1]


def proved(parts: Parts, epsilons: FloatArray = EPSILONS) -> dict[str, FloatArray]:
    """Return what the pairs prove, order by order."""
    found = compose_pairs(parts, target_delta=1e-3)
    values = [loss.delta(epsilons) for loss in found.composed]
    return {"remove": values[0], "add": values[-1]}


def headroom(parts: Parts, chain: Chain, releases: Sequence[int] | None = None) -> float:
    """Return the smallest bound / exact where delta is large enough to be told from SLACK."""
    exact, bound = chain.deltas(releases=releases), proved(parts)
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


def random_chain(
    rng: np.random.Generator, up: int, down: int, *, walls: bool, steps: int | None = None
) -> Chain:
    """Return a run of a few steps, of ``steps`` if stated."""
    if steps is None:
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


def random_plan(rng: np.random.Generator, lags: Lags) -> BlockPlan:
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
    return BlockPlan.read(witness, steps)


def straight(
    c: float, r: float, nu: float, q: float, steps: int, *, down: int = 0, radius: float = math.inf
) -> Chain:
    """Return the walk that the theorem's worst case comes close to."""
    step = Step(c, r, nu, q, (line(c),), (constant(r),), (constant(-r),) * down)
    return Chain((step,) * steps, cell=0.5 * nu, radius=radius)


def checked(parts: Parts, chain: Chain) -> float:
    """Return the largest exact delta / bound: above one, the pairs prove nothing."""
    exact, bound = chain.deltas(), proved(parts)
    return max(
        float(np.max(np.where(values > 1e3 * SLACK, values - SLACK, 0.0) / bound[order]))
        for order, values in exact.items()
    )
