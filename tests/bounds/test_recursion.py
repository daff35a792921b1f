"""The factor of a step and the recursion over sampled steps: on small chains, and in numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dplateau import (
    Ball,
    LossGeometry,
    NoisySGD,
)
from dplateau.bounds.registry import bound_named
from dplateau.curves import (
    PrivacyCurve,
    RecursionCurve,
)
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.numerics.normal import gaussian_delta, laplace_delta

SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5)


def claim(name: str, run: Any, delta: float = 1e-5) -> PrivacyCurve:
    bound = bound_named(name)
    assert bound.refusal(run) is None
    return bound.curve(run, bound.plan(run, delta))


# --- the theorems, on chains of a few states -----------------------------------------------------


def hockey_stick(first: FloatArray, second: FloatArray, order: float) -> float:
    return float(np.maximum(first - order * second, 0.0).sum(axis=-1).max())


def furthest(first: FloatArray, second: FloatArray, order: float) -> float:
    """Return the largest hockey stick between a row of one kernel and a row of the other."""
    return hockey_stick(first[:, None, :], second[None, :, :], order)


def random_kernel(draw: np.random.Generator, states: int) -> FloatArray:
    rows = draw.gamma(draw.choice([0.2, 1.0, 5.0]), size=(states, states)) + 1e-12
    return rows / rows.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(100))
def test_a_common_step_multiplies_the_hockey_stick_by_its_factor(seed: int) -> None:
    draw = np.random.default_rng(seed)
    kernel, laws = random_kernel(draw, 5), random_kernel(draw, 5)
    order = math.exp(draw.exponential(0.5))
    before = hockey_stick(laws[0], laws[1], order)
    after = hockey_stick(laws[0] @ kernel, laws[1] @ kernel, order)
    assert after <= before * furthest(kernel, kernel, order) + 1e-14


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("replaced", [False, True])
def test_a_sampled_step_leaks_what_the_recursion_says(seed: int, replaced: bool) -> None:
    """In both orders, with the largest hockey sticks in the places of theta."""
    draw = np.random.default_rng(seed)
    others, first = random_kernel(draw, 5), random_kernel(draw, 5)
    second = random_kernel(draw, 5) if replaced else others
    laws, q = random_kernel(draw, 5), draw.uniform(0.02, 1.0)
    order = math.exp(draw.exponential(0.5))
    inner = 1 + (order - 1) / q
    for one, other, mu, nu in ((first, second, 0, 1), (second, first, 1, 0)):
        mixed_one = (1 - q) * others + q * one
        mixed_other = (1 - q) * others + q * other
        same = max(
            hockey_stick(one, other, inner),
            hockey_stick(one, others, inner) if replaced else 0.0,
        )
        far = max(furthest(one, other, inner), furthest(one, others, inner))
        fresh = q * (same / inner + (1 - 1 / inner) * far)
        stays = (1 - q) * furthest(others, others, order) + q * furthest(one, other, order)
        before = hockey_stick(laws[mu], laws[nu], order)
        after = hockey_stick(laws[mu] @ mixed_one, laws[nu] @ mixed_other, order)
        assert after <= (1 - before) * fresh + before * stays + 1e-14
        start = hockey_stick(mixed_one, mixed_other, order)
        assert start <= q * same + 1e-14


# --- the recursion -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    ("rate", "reach", "step", "steps"),
    [(0.01, 0.2, 0.3, 500), (0.3, 1.5, 0.7, 40), (1.0, 0.1, 0.2, 7), (0.5, 2.0, 1.0, 1)],
)
def test_the_closed_form_is_the_recursion(
    kind: Any, rate: float, reach: float, step: float, steps: int
) -> None:
    stick = gaussian_delta if kind == "gaussian" else laplace_delta
    for epsilon in (0.0, 0.05, 0.7, 3.0):
        order = 1 + math.expm1(epsilon) / rate
        inner = math.log(order)
        far = float(stick(inner, reach + step))
        fresh = rate * (float(stick(inner, step)) / order + (1 - 1 / order) * far)
        stays = (1 - rate) * float(stick(epsilon, reach)) + rate * float(
            stick(epsilon, reach + step)
        )
        plain = found = rate * float(stick(inner, step))
        for _ in range(steps - 1):
            found = (1 - found) * fresh + found * stays
            plain = (1 - rate) * float(stick(epsilon, reach)) * plain + rate * float(
                stick(epsilon, reach + step)
            )
        curve = RecursionCurve(kind, rate, reach, step, reach + step, steps)
        assert found <= curve.delta(epsilon) * (1 + 1e-13)
        assert curve.delta(epsilon) <= found * (1 + 1e-9) + 1e-300
        assert found <= plain * (1 + 1e-12)


def test_in_a_batch_of_one_size_the_record_is_one_of_them() -> None:
    run = NoisySGD(
        n=9,
        batch_size=2,
        steps=30,
        sampling="fixed",
        learning_rate=0.5,
        noise_std=4.0,
        loss=LossGeometry(lipschitz=1.0, convex=False),
        domain=Ball(0.1),
        neighbors="replace",
        release="last",
    )
    curve = claim("fixed_size_recursion", run)
    assert isinstance(curve, RecursionCurve)
    assert curve.far == pytest.approx((0.2 + 2 * 0.5) / 2.0)
    assert curve.reach == pytest.approx(curve.far)
    with pytest.raises(InvalidInput, match="far >= step"):
        RecursionCurve("gaussian", 0.1, 0.2, 0.3, 0.25, 5)


def test_one_sampled_step_is_the_sampled_gaussian() -> None:
    run = NoisySGD(
        n=100,
        batch_size=5,
        steps=1,
        learning_rate=0.5,
        noise_multiplier=2.0,
        loss=SMOOTH,
        domain=Ball(1.0),
        release="last",
    )
    exact = claim("pld_composition", run).epsilon(1e-5)
    assert claim("poisson_recursion", run).epsilon(1e-5) == pytest.approx(exact, rel=2e-3)


def test_the_recursion_wins_on_narrow_domains() -> None:
    """The numbers of docs/theory/recursion.md."""
    run = NoisySGD(
        n=1000,
        batch_size=10,
        steps=20_000,
        learning_rate=0.5,
        noise_multiplier=4.0,
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.05),
        domain=Ball(0.02),
        release="last",
    )
    found = [
        claim(name, run).epsilon(1e-5)
        for name in ("poisson_recursion", "poisson_blocks", "pld_composition")
    ]
    assert found == pytest.approx([0.0212, 0.1460, 1.3849], abs=6e-5)
    wide = run.replace(domain=Ball(0.5))
    assert claim("poisson_recursion", wide).epsilon(1e-5) > 3 * 1.3849
