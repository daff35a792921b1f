"""Plausible formulas that are wrong, each with the example that refutes it.

Some stand in print; every one of them would make a claim too small. The tests show that the trap is
real (the wrong formula lies below an exact value) and that the library does not step into it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import binom, norm

from dplateau import CyclicSGD, LossGeometry, NoisyGD, NoisySGD, OnePassSGD, certify, compare
from dplateau.algorithms import Run
from dplateau.audit import lower_bound
from dplateau.bounds import blocks
from dplateau.bounds.registry import bound_named
from dplateau.bounds.step_maps import BatchSizes
from dplateau.curves import GaussianCurve, RenyiCurve, sampled_gaussian_rdp
from dplateau.ground.types import FloatArray

SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.1)


def claim(name: str, run: Run, delta: float) -> float:
    bound = bound_named(name)
    assert bound.refusal(run) is None
    return bound.curve(run, bound.plan(run, delta)).epsilon(delta)


# --- the order of a Rényi divergence -------------------------------------------------------------


def renyi(alpha: float, *, mixture_first: bool) -> float:
    """Return D_alpha between N(0, 1) and an even mixture of N(0, 1) and N(2, 1)."""

    def log_ratio(x: float) -> float:
        return math.log(0.5 + 0.5 * math.exp(2 * x - 2))

    power = alpha if mixture_first else 1 - alpha
    moment, _ = quad(
        lambda x: math.exp(power * log_ratio(x)) * norm.pdf(x), -12, 30, limit=400, points=[0, 16]
    )
    return math.log(moment) / (alpha - 1)


def test_the_smaller_order_under_reports_without_limit() -> None:
    """Two records, one drawn: slopes +L and -L against +L twice, noise as large as L."""
    assert renyi(8.0, mixture_first=True) == pytest.approx(15.21, abs=5e-3)
    assert renyi(8.0, mixture_first=False) == pytest.approx(0.574, abs=5e-4)
    # The smaller order stays below log(1 / (1 - q)), whatever alpha.
    assert renyi(60.0, mixture_first=False) < math.log(2)
    assert float(sampled_gaussian_rdp(np.array([8.0]), 0.5, 2.0)[0]) == pytest.approx(
        renyi(8.0, mixture_first=True), rel=1e-8
    )


def exact_two_record_epsilon(delta: float) -> float:
    """Return the epsilon of the example: the ratio is monotone, so half-lines are best."""
    points = np.linspace(-4.0, 12.0, 4001)
    mixed = 0.5 * ndtr(-points) + 0.5 * ndtr(2 - points)
    usable = mixed > delta
    return float(np.max(np.log((mixed[usable] - delta) / ndtr(-points[usable]))))


def test_a_claim_from_the_smaller_order_would_be_false() -> None:
    delta = 1e-3
    orders = tuple(np.geomspace(1.5, 200.0, 60).tolist())
    wrong = RenyiCurve(orders, tuple(renyi(a, mixture_first=False) for a in orders))
    run = NoisySGD(
        n=2,
        batch_size=1,
        sampling="fixed",
        neighbors="replace",
        steps=1,
        learning_rate=1.0,
        noise_std=1.0,
        loss=SMOOTH,
        release="last",
    )
    needed = exact_two_record_epsilon(delta)
    assert wrong.epsilon(delta) < 0.2 * needed
    rows = [row.epsilon for row in compare(run, delta).rows if row.epsilon is not None]
    assert rows
    assert min(rows) >= needed


# --- Poisson batches above their mean size -------------------------------------------------------

# Steep losses, heavy ridge: alone, a record's step contracts by 1 - eta l2 = .2 and not less, since
# eta (M + 2 l2) = 2. With both other records in the batch its slope is 1 - .8 - 2 * .4 = -.6.
CROWDED: dict[str, Any] = {
    "n": 3,
    "batch_size": 1,
    "steps": 2,
    "learning_rate": 1.0,
    "l2": 0.8,
    "iterate_std": 0.3,
    "release": "last",
    "loss": LossGeometry(lipschitz=1.0, convex=True, smoothness=0.4),
}


def two_step_tail(points: FloatArray, *, present: bool) -> FloatArray:
    """Return P(X_2 <= point) from 0: others of gradient clip(.4 w, -1, 1), the record's sign(w).

    At 0 the record's subgradient is -1. After the first step it mostly has the opposite sign, and a
    crowded batch turns the first step's push over: both pushes add up.
    """
    q, noise = 1 / 3, 0.3
    cell = noise / 40
    x = np.arange(-4.0 + cell / 2, 6.0, cell)
    density = norm.pdf(x, 0.0, noise)
    if present:
        density = (1 - q) * density + q * norm.pdf(x, 1.0, noise)
    masses = density * cell
    total = np.zeros(points.size)
    for others in range(3):
        weight = float(binom.pmf(others, 2, q))
        mean = 0.2 * x - others * np.clip(0.4 * x, -1.0, 1.0)
        moved = [(1 - q, 0.0), (q, 1.0)] if present else [(1.0, 0.0)]
        for share, push in moved:
            after = mean - push * np.where(x > cell, 1.0, -1.0)
            total += weight * share * (ndtr((points[:, None] - after) / noise) @ masses)
    return total


def test_a_crowded_batch_expands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cap above the mean batch size the claim lies below an exact lower bound."""
    run, delta = NoisySGD(**CROWDED), 1e-6
    points = np.linspace(-4.0, 0.0, 161)
    present, absent = two_step_tail(points, present=True), two_step_tail(points, present=False)
    usable = present > 2 * delta
    needed = float(np.max(np.log((present[usable] - delta) / absent[usable])))
    assert needed == pytest.approx(24.76, abs=0.02)
    # The right thing: crowded batches are likely, so that steps may expand.
    assert "needs steps that contract" in (bound_named("poisson_blocks").refusal(run) or "")
    assert certify(run, delta).claimed_epsilon >= needed
    # The trap: every batch taken for one of b records.
    wrong = BatchSizes(cap=1, floor=0, extra_delta=0.0)
    monkeypatch.setattr(blocks, "batch_sizes", lambda run, delta: wrong)
    monkeypatch.setattr(blocks, "sizes_of", lambda run, cap, floor: wrong)
    assert claim("poisson_blocks", run, delta) < needed * 0.99


def test_crowded_batches_are_charged() -> None:
    """Where a crowded batch is unlikely its probability is part of delta."""
    run = NoisySGD(
        n=10_000,
        batch_size=400,
        steps=50,
        learning_rate=1.0,
        l2=0.1,
        noise_multiplier=2.0,
        release="last",
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.3),
    )
    witness = bound_named("poisson_blocks").plan(run, 1e-5)
    assert witness["batch_cap"] > 400
    most = 50 * binom.sf(witness["batch_cap"], 10_000, 0.04)
    assert 0 < most <= witness["extra_delta"] <= 1e-9
    sizes = BatchSizes(witness["batch_cap"], 0, witness["extra_delta"])
    assert blocks.linear_constant(run, sizes, 1.0) == pytest.approx(0.9)


# --- deletion is not zero-out --------------------------------------------------------------------


def test_deleting_a_record_is_not_zeroing_it_out() -> None:
    """One pass over 40 records, c = .5: the certificate is about a slot that stays, left empty."""
    run = OnePassSGD(n=40, learning_rate=1.0, l2=0.5, noise_std=1.0, loss=SMOOTH, release="last")
    bound: Any = bound_named("one_pass_contraction")
    assert bound.record_curve(run, 0).mu == pytest.approx(math.sqrt(3) / 2**40, rel=1e-9)
    # Every other record pulls; deleting the first one moves all pulls into the next slot.
    slopes = np.array([1.0, 0.0] * 20)
    deleted = np.append(slopes[1:], 0.0)
    weights = 0.5 ** np.arange(39.0, -1.0, -1.0)
    mu = abs((slopes - deleted) @ weights) / math.sqrt((weights**2).sum())
    assert mu == pytest.approx(0.2887, abs=5e-5)
    texts = [assumption.text for assumption in certify(run, 1e-5).assumptions]
    assert "an absent record keeps its slot with a zero gradient" in texts


# --- closed forms where steps expand -------------------------------------------------------------


@pytest.mark.parametrize("steps", [2, 5, 40])
def test_closed_forms_are_too_small_where_steps_expand(steps: int) -> None:
    """A modulus above 1 need not be attained: losses without curvature leak like composition."""
    run = NoisyGD(
        n=10,
        steps=steps,
        learning_rate=1.0,
        noise_std=0.3,
        release="last",
        loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=0.5),
    )
    c = 1.5
    factor = (c**steps - 1) * (c + 1) / ((c**steps + 1) * (c - 1))
    closed = GaussianCurve(math.sqrt(factor) / (10 * 0.3)).epsilon(1e-5)
    needed = lower_bound(run, 1e-5).epsilon
    assert closed < 0.99 * needed
    assert claim("modulus", run, 1e-5) >= needed


# --- one record step or two ----------------------------------------------------------------------


def mu_from_start(start: float, step: float, c: float) -> float:
    """Return the least mu of shifts that absorb ``start`` while every step moves by ``step`` too.

    All records drawn: the pairs are Gaussian, of distance a_j + step (in units of the noise).
    """
    found = math.inf
    for count in range(1, 200):
        weights = c ** np.arange(count)
        need = c**count * start
        multiplier = (need + step * weights.sum()) / (weights**2).sum()
        shifts = np.maximum(multiplier * weights - step, 0.0)
        shifts *= max(1.0, need / float(shifts @ weights))
        found = min(found, float(np.linalg.norm(shifts + step)))
    return found


def test_a_replaced_record_drives_runs_apart_twice_as_fast() -> None:
    """One record step as the forward distance reports about 610 where the truth is 796."""
    run = NoisySGD(
        n=10,
        batch_size=10,
        steps=3000,
        learning_rate=0.1,
        l2=0.1,
        noise_multiplier=0.7862,
        neighbors="replace",
        release="last",
        loss=SMOOTH,
    )
    needed = lower_bound(NoisyGD(**full_batch_of(run)), 1e-5).epsilon
    assert needed == pytest.approx(796, abs=1)
    one, two = 1 / 0.7862, 2 / 0.7862
    wrong = GaussianCurve(mu_from_start(one / 0.01, two, 0.99)).epsilon(1e-5)
    assert wrong == pytest.approx(614, abs=5)
    right = GaussianCurve(mu_from_start(two / 0.01, two, 0.99)).epsilon(1e-5)
    assert right >= needed
    for name in ("poisson_blocks_replace",):
        assert claim(name, run, 1e-5) >= needed


def full_batch_of(run: Run) -> dict[str, Any]:
    found = run.parameters()
    return {k: v for k, v in found.items() if k not in ("batch_size", "sampling", "sampling_rate")}


# --- a fresh order every epoch -------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-3, 1e-8])
def test_a_reshuffled_record_may_come_twice_in_a_row(delta: float) -> None:
    """Last in one epoch and first in the next: not the pattern of a fixed order cut short.

    Two records, three steps, linear losses: given the two orders the last state is Gaussian.
    """
    run = CyclicSGD(
        n=2,
        batch_size=1,
        steps=3,
        order="reshuffle",
        learning_rate=1.0,
        l2=0.5,
        noise_multiplier=1.0,
        release="last",
        loss=SMOOTH,
    )
    weights = (0.25, 0.5, 1.0)
    # The other record pulls the other way; the absent record leaves its slot empty.
    slots = [(a, b) for a in (0, 1) for b in (2, 3)]
    spread = math.sqrt(sum(w * w for w in weights))
    points = np.linspace(-3.0, 12.0, 3001)

    def tail(own: float) -> FloatArray:
        means = [sum((own if t in pair else -1.0) * weights[t] for t in range(3)) for pair in slots]
        return np.mean([ndtr((mean - points) / spread) for mean in means], axis=0)

    likely, rare = tail(1.0), tail(0.0)
    usable = likely > delta
    needed = float(np.max(np.log((likely[usable] - delta) / rare[usable])))
    fixed = claim("cyclic_contraction", run.replace(order="cyclic"), delta)
    assert fixed < needed
    assert certify(run, delta).claimed_epsilon >= needed


# --- more epochs are not free for the moments accountant -----------------------------------------


def test_epochs_cost_their_square_root_unless_the_state_is_hidden() -> None:
    options: dict[str, Any] = {
        "n": 10_000,
        "batch_size": 100,
        "learning_rate": 1.0,
        "l2": 0.05,
        "noise_multiplier": 16.0,
        "release": "last",
        "loss": SMOOTH,
    }
    short, long = NoisySGD(**options, epochs=100), NoisySGD(**options, epochs=1600)
    ratio = claim("rdp_composition", long, 1e-5) / claim("rdp_composition", short, 1e-5)
    assert ratio >= 0.95 * math.sqrt(16)
    hidden = [claim("poisson_blocks", run, 1e-5) for run in (short, long)]
    assert hidden[1] == pytest.approx(hidden[0], rel=2e-3)
