"""Ordered batches with schedules and strongly convex losses, against their exact privacy loss.

Small one-dimensional runs on an interval. The other records' losses are strongly convex and bent,
the record's own is anything of bounded slope; the law of each iterate is propagated by quadrature
over every order that the run may take. Steps may differ in learning rate, noise and batch size.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from dplateau import Ball, CyclicSGD, LossGeometry, OnePassSGD, Schedule
from dplateau.algorithms.schedule import values_over
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.ground.types import FloatArray

# What quadrature may be wrong by, in epsilon.
TOLERANCE = 1e-3
HIDDEN = ("cyclic_contraction", "shuffle_once_average", "reshuffle_average", "one_pass_contraction")
_NODES = np.array([-math.sqrt(0.6), 0.0, math.sqrt(0.6)])
_SHARES = np.array([5.0, 8.0, 5.0]) / 18.0


@dataclass(frozen=True)
class Bent:
    """A gradient of slope ``curve`` and, between two points, of a larger one."""

    offset: float
    curve: float
    rise: float
    at: float
    width: float

    def __call__(self, w: FloatArray) -> FloatArray:
        bent: FloatArray = self.rise * np.clip((w - self.at) / self.width, 0.0, 1.0)
        return self.offset + self.curve * w + bent


class Interval:
    """Quadrature nodes between two walls, which hold atoms."""

    def __init__(self, half: float, cells: int) -> None:
        cell = 2 * half / cells
        middles = -half + (np.arange(cells) + 0.5) * cell
        self.half, self.inner = half, np.add.outer(middles, _NODES * cell / 2).ravel()
        self.weights = np.tile(_SHARES * cell, cells)
        self.nodes = np.r_[self.inner, -half, half]

    def spread(self, means: FloatArray, noise: float) -> FloatArray:
        """Return the masses at all nodes of states with these means, a row for each."""
        apart = (self.inner - means[:, None]) / noise
        masses = np.exp(-apart * apart / 2) * self.weights / (noise * math.sqrt(2 * math.pi))
        below, above = ndtr((-self.half - means) / noise), ndtr((means - self.half) / noise)
        return np.column_stack([masses, below, above])


def exact_epsilon(run: Any, losses: list[Any], other: Any, slots: list[int], delta: float) -> float:
    """Return the privacy loss of the run on these losses; record 0 is present, or ``other`` is."""
    line = Interval(run.diameter / 2, 120)
    laws = [_last_law(run, line, [record, *losses[1:]], slots) for record in (losses[0], other)]
    return max(_epsilon(*laws, delta), _epsilon(*laws[::-1], delta))


def _last_law(run: Any, line: Interval, losses: list[Any], slots: list[int]) -> FloatArray:
    etas = values_over(run.learning_rate, run.steps)
    stds = values_over(run.iterate_std, run.steps)
    size, order = int(run.batch_size), getattr(run, "order", "cyclic")
    length = -(-run.n // size)

    def kernel(at: FloatArray, t: int, batch: tuple[int, ...]) -> FloatArray:
        pull = sum(losses[i](at) for i in batch) / size + run.l2 * at
        return line.spread(at - etas[t] * pull, float(stds[t]))

    def through(law: FloatArray, batches: list[tuple[int, ...]], first: int) -> FloatArray:
        for t, batch in enumerate(batches, first):
            law = law @ kernel(line.nodes, t, batch)
        return law

    orders = [slots] if order == "cyclic" else list(itertools.permutations(range(run.n)))
    epochs = [[tuple(o[i : i + size]) for i in range(0, run.n, size)] for o in orders]
    start = np.zeros(line.nodes.size)
    start[np.argmin(np.abs(line.nodes))] = 1.0
    if order == "reshuffle":
        law = start
        for first in range(0, run.steps, length):
            law = sum(through(law, epoch, first) for epoch in epochs) / len(epochs)
        return np.asarray(law)
    runs = [(epoch * (run.steps // length + 1))[: run.steps] for epoch in epochs]
    return np.asarray(sum(through(start, batches, 0) for batches in runs) / len(runs))


def _epsilon(first: FloatArray, second: FloatArray, delta: float) -> float:
    low, high = 0.0, 60.0
    for _ in range(40):
        middle = (low + high) / 2
        over = float(np.maximum(first - math.exp(middle) * second, 0.0).sum()) > delta
        low, high = (middle, high) if over else (low, middle)
    return low


def drawn(kind: str, seed: int) -> tuple[Any, list[Any], Any, list[int]]:
    """Draw a run and losses that it admits."""
    draw = np.random.default_rng([seed, len(kind)])
    n = int(draw.integers(2, 5 if kind != "reshuffle" else 4))
    size = 1 if draw.random() < 0.5 else int(draw.integers(1, n))
    length = -(-n // size)
    steps = length if kind == "one_pass" else length * int(draw.integers(2, 4))
    if kind in ("cyclic", "shuffle_once") and draw.random() < 0.5:
        steps += int(draw.integers(0, length))
    half = float(draw.uniform(0.5, 2.0))
    curve = draw.uniform(0.0, 0.9) if draw.random() < 0.8 else 0.0
    lipschitz = 1.0 + curve * half
    eta, ridge = float(draw.uniform(0.3, 1.0)), float(draw.choice([0.0, 0.2]))
    bend = float(draw.uniform(0.1, 1.0)) * (2 / eta - curve - ridge)
    rates = Schedule.of(eta * draw.uniform(0.3, 1.0, steps))
    if draw.random() < 0.3:
        rates = Schedule(((eta, steps // 2), (eta / 3, steps - steps // 2)))
    noise = Schedule.of(float(rates.values().mean()) * draw.uniform(0.5, 2.0, steps) / size)
    options: dict[str, Any] = {
        "learning_rate": rates if draw.random() < 0.8 else eta,
        "l2": ridge,
        "domain": Ball(half),
        "iterate_std": noise if draw.random() < 0.7 else float(noise.values()[0]),
        "neighbors": str(draw.choice(["add_remove", "replace"])),
        "release": "last",
        "loss": LossGeometry(
            lipschitz=lipschitz, convex=True, smoothness=curve + bend, strong_convexity=curve
        ),
    }
    run: Any = (
        OnePassSGD(n=n, batch_size=size, **options)
        if kind == "one_pass"
        else CyclicSGD(n=n, batch_size=size, steps=steps, order=kind, **options)  # type: ignore[arg-type]
    )
    # Slopes within the bound at both walls: offset + curve * w + rise.
    losses: list[Any] = [Bent(-lipschitz, 0.0, 0.0, 0.0, 1.0)]
    for _ in range(n - 1):
        rise = float(draw.uniform(0.0, 1.0))
        offset = float(draw.uniform(-1.0, 1.0 - rise))
        losses.append(
            Bent(offset, curve, rise, float(draw.normal(0.0, 0.3)), max(rise / bend, 0.05))
        )
    replaced = run.neighbors == "replace"
    other = Bent(lipschitz if replaced else 0.0, 0.0, 0.0, 0.0, 1.0)
    slots = [int(i) for i in draw.permutation(n)]
    return run, losses, other, slots


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["cyclic", "shuffle_once", "reshuffle", "one_pass"])
def test_no_claim_is_below_the_exact_loss(kind: str, seed: int) -> None:
    run, losses, other, slots = drawn(kind, seed)
    delta = float(10 ** np.random.default_rng(seed).uniform(-5, -1.5))
    needed = exact_epsilon(run, losses, other, slots, delta)
    applied = [b for b in BOUNDS if b.sound and b.hidden_state and b.refusal(run) is None]
    assert {bound.name for bound in applied} & set(HIDDEN)
    for bound in applied:
        claim = bound.curve(run, bound.plan(run, delta)).epsilon(delta)
        assert claim >= needed * (1 - TOLERANCE) - 1e-9, bound.name


def test_a_claim_that_is_too_small_would_be_caught() -> None:
    """Linear losses in a wide interval meet the bound of the first record, the worst one here."""
    run = OnePassSGD(
        n=3,
        learning_rate=[2.0, 0.5, 0.2],
        iterate_std=[0.9, 1.0, 1.1],
        l2=0.3,
        domain=Ball(16.0),
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.1),
        release="last",
    )
    flat = Bent(0.0, 0.0, 0.0, 0.0, 1.0)
    losses = [Bent(-1.0, 0.0, 0.0, 0.0, 1.0), flat, flat]
    bound = bound_named("one_pass_contraction")
    witness = bound.plan(run, 1e-3)
    assert witness["position"] == 0
    needed = exact_epsilon(run, losses, flat, [0, 1, 2], 1e-3)
    claim = bound.curve(run, witness).epsilon(1e-3)
    assert needed == pytest.approx(claim, rel=5e-3)
    assert needed <= claim * (1 + TOLERANCE)
