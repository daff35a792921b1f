"""Deterministic batches at the edges: runs shorter than an epoch, short batches, tiny deltas."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from dplateau import CyclicSGD, LossGeometry, NoisySGD, OnePassSGD, certify, compare, per_record
from dplateau.algorithms import Run
from dplateau.bounds.iteration import Pattern, at_position
from dplateau.bounds.registry import bound_named

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)


def cyclic(order: str, steps: int, n: int = 40, batch_size: int = 4) -> Run:
    return CyclicSGD(
        n=n,
        batch_size=batch_size,
        steps=steps,
        order=order,  # type: ignore[arg-type]
        learning_rate=0.5,
        l2=0.01,
        noise_multiplier=2.0,
        loss=LOSS,
        release="last",
    )


@pytest.mark.parametrize("order", ["cyclic", "shuffle_once", "reshuffle"])
@pytest.mark.parametrize("steps", [1, 3, 10, 13, 40])
def test_runs_of_any_length_are_covered(order: str, steps: int) -> None:
    run = cyclic(order, steps)
    table = compare(run, 1e-5)
    assert table.best.epsilon is not None
    released = table.epsilon("gdp_composition")
    assert released is not None
    assert table.best.epsilon <= released * (1 + 1e-9)


def test_a_record_whose_turn_never_comes_costs_nothing() -> None:
    found = per_record(cyclic("cyclic", 3), 1e-5)
    assert found.epsilons[2] > 0
    assert found.epsilons[3:].tolist() == [0.0] * 7


def test_patterns_place_the_uses() -> None:
    run = cyclic("cyclic", 23)
    for position in range(10):
        flags = at_position(run, position).at_steps(run.steps)
        assert [t for t in range(23) if flags[t]] == list(range(position, 23, 10))
    assert at_position(run, 2) == Pattern(period=10, trailing=0, uses=3)


def test_later_records_of_one_pass_are_exposed_more() -> None:
    run = OnePassSGD(n=30, learning_rate=0.5, noise_std=2.0, loss=LOSS, release="last")
    found = per_record(run, 1e-5).epsilons
    assert all(a <= b for a, b in pairwise(found))
    last = bound_named("one_pass_contraction")
    assert found[-1] == pytest.approx(last.curve(run, last.plan(run, 1e-5)).epsilon(1e-5))


def test_a_tiny_delta_never_breaks_the_contraction_behind_a_claim() -> None:
    # At the edge of the learning rates that contract for likely batches, a tiny delta needs a cap
    # at which steps expand; the claim must then fall back to composition.
    run = NoisySGD(
        n=1000,
        batch_size=100,
        steps=50,
        learning_rate=4.37,
        l2=0.001,
        noise_multiplier=4.0,
        loss=LOSS,
        release="last",
    )
    bound = bound_named("poisson_blocks")
    assert bound.refusal(run) is None
    for delta in (1e-5, 1e-30):
        hidden = certify(run, delta, bounds=[bound]).claimed_epsilon
        assert math.isfinite(hidden)
    released = certify(run, 1e-30, bounds=[bound_named("pld_composition")]).claimed_epsilon
    assert hidden == pytest.approx(released, rel=5e-3)
