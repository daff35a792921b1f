"""The adversary: its problems are of the run's class, its numbers right, and no claim is below."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplateau.algorithms import (
    Ball,
    Box,
    CyclicSGD,
    FixedSize,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    Poisson,
    ProjectedLangevin,
    Run,
    Schedule,
)
from dplateau.audit import (
    LowerBound,
    Reshuffled,
    WalkProblem,
    lower_bound,
    lower_epsilon,
    search_adversary,
)
from dplateau.audit.adversary import BUDGETS
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray
from falsify_settings import settings

CURVED = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5)
ONE_PASS = OnePassSGD(n=600, batch_size=50, learning_rate=2.0, noise_multiplier=1.5, loss=CURVED,
                      release="last")  # fmt: skip
RUNS: dict[str, Run] = {
    "ball": NoisyGD(n=40, steps=30, learning_rate=0.5, noise_std=0.05, domain=Ball(0.1),
                    loss=CURVED, release="last"),
    "nonconvex": NoisyGD(n=40, steps=20, learning_rate=0.5, noise_std=0.05, domain=Box(0.0, 0.5),
                         loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=1.0),
                         release="last", neighbors="replace"),
    "holder": NoisyGD(n=40, steps=20, learning_rate=0.5, noise_std=0.05, domain=Ball(0.2),
                      loss=LossGeometry(lipschitz=1.0, convex=True, holder=(0.5, 0.4)),
                      release="last"),
    "strong": ProjectedLangevin(n=5, steps=12, learning_rate=0.05, domain=Ball(0.6), release="last",
                                loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=2.0,
                                                  strong_convexity=0.8)),
    "dissipative": NoisyGD(n=10, steps=15, learning_rate=0.3, noise_std=0.2, domain=Ball(0.5),
                           loss=LossGeometry(lipschitz=2.0, convex=False, smoothness=1.5,
                                             dissipativity=(0.1, 1.0)), release="last"),
    "one_pass": ONE_PASS.replace(n=590, l2=0.02),
    "random_stop": ONE_PASS.replace(n=200, release="random_stop"),
    "cyclic": CyclicSGD(n=100, batch_size=25, epochs=4, learning_rate=2.0, noise_multiplier=3.0,
                        loss=CURVED, release="last"),
    "uneven": CyclicSGD(n=90, batch_size=25, epochs=3, learning_rate=2.0, noise_multiplier=3.0,
                        loss=CURVED, release="last", domain=Ball(0.4)),
    "shuffle_once": CyclicSGD(n=100, batch_size=25, epochs=2, learning_rate=2.0, loss=CURVED,
                              noise_multiplier=3.0, order="shuffle_once", release="last"),
    "reshuffle": CyclicSGD(n=60, batch_size=20, epochs=4, learning_rate=2.0, loss=CURVED,
                           noise_multiplier=3.0, order="reshuffle", release="last"),
    "fixed": NoisySGD(n=50, batch_size=10, steps=9, learning_rate=1.0, noise_multiplier=1.0,
                      loss=CURVED, sampling="fixed", neighbors="replace", release="last"),
    "poisson": NoisySGD(n=500, batch_size=50, steps=9, learning_rate=1.0, noise_multiplier=1.0,
                        loss=CURVED, domain=Ball(0.1), release="last"),
    "schedule": NoisyGD(n=20, steps=6, learning_rate=[0.5, 0.5, 0.4, 0.4, 0.2, 0.1], l2=0.2,
                        noise_std=0.1, loss=CURVED, domain=Ball(0.3), release="last"),
}  # fmt: skip
DELTA = 1e-4


def found(name: str) -> LowerBound:
    if name not in _FOUND:
        _FOUND[name] = search_adversary(RUNS[name], DELTA, effort="quick", limit=name == "poisson")
    return _FOUND[name]


_FOUND: dict[str, LowerBound] = {}


# --- the search ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_the_witness_replays_to_the_same_number(name: str) -> None:
    bound = found(name)
    again = WalkProblem.from_dict(json.loads(json.dumps(bound.problem.to_dict())))
    assert again == bound.problem
    assert lower_epsilon(again, DELTA).epsilon == pytest.approx(bound.epsilon, rel=1e-11)
    assert bound.epsilon > 0


@pytest.mark.parametrize("name", RUNS)
def test_never_below_the_usual_problems(name: str) -> None:
    usual = lower_bound(RUNS[name], DELTA, limit_drift=name == "poisson").epsilon
    assert found(name).epsilon >= usual * (1 - 1e-12)


def test_more_effort_is_never_worse() -> None:
    efforts: Any = [*BUDGETS][:2]
    values = [search_adversary(RUNS["ball"], DELTA, effort=effort).epsilon for effort in efforts]
    assert values[0] <= values[1]
    again = search_adversary(RUNS["ball"], DELTA, effort="quick")
    assert again.epsilon == values[0]


def test_curved_losses_make_one_pass_exact() -> None:
    """Earlier batches wipe out their noise: the record's own step is seen as if released."""
    claim = bound_named("one_pass_contraction")
    upper = claim.curve(ONE_PASS, claim.plan(ONE_PASS, DELTA)).epsilon(DELTA)
    assert lower_bound(ONE_PASS, DELTA).epsilon < 0.25 * upper
    bound = search_adversary(ONE_PASS, DELTA)
    assert 0.98 * upper < bound.epsilon <= upper
    early = search_adversary(ONE_PASS, DELTA, position=3)
    assert early.epsilon < 0.6 * bound.epsilon


def test_ridge_on_the_full_batch_is_exact() -> None:
    run = RUNS["ball"].replace(domain=None, l2=0.1)
    claim = bound_named("gd_contraction")
    upper = claim.curve(run, claim.plan(run, DELTA)).epsilon(DELTA)
    lower = search_adversary(run, DELTA, effort="quick").epsilon
    assert upper * (1 - 1e-9) < lower <= upper


def test_released_iterates_are_exact_for_known_batches() -> None:
    for run in (RUNS["ball"].replace(domain=None, release="all"),
                RUNS["cyclic"].replace(release="all")):  # fmt: skip
        claim = bound_named("gdp_composition")
        upper = claim.curve(run, claim.plan(run, DELTA)).epsilon(DELTA)
        lower = search_adversary(run, DELTA, effort="quick").epsilon
        assert upper * (1 - 1e-9) < lower <= upper


def test_others_help_most_where_the_plain_problem_is_weak() -> None:
    for name in ("one_pass", "cyclic", "ball"):
        assert found(name).epsilon > 1.1 * lower_bound(RUNS[name], DELTA).epsilon
    assert found("cyclic").problem.is_pulled
    assert not np.any(found("reshuffle").problem.record_pull)


def test_poisson_without_the_limit_leaves_others_alone() -> None:
    bound = search_adversary(RUNS["poisson"], DELTA, effort="quick")
    assert bound.problem.drift == 0
    assert not bound.problem.is_pulled
    assert bound.epsilon < found("poisson").epsilon


def test_refusals() -> None:
    effort: Any = "endless"
    with pytest.raises(InvalidInput, match="quick, normal, thorough"):
        search_adversary(RUNS["ball"], DELTA, effort=effort)
    with pytest.raises(NotApplicable, match="class is empty"):
        search_adversary(RUNS["strong"].replace(domain=None), DELTA)
    loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0, strong_convexity=0.5)
    with pytest.raises(NotApplicable, match="depends on how many"):
        search_adversary(RUNS["poisson"].replace(loss=loss), DELTA)
    with pytest.raises(NotApplicable, match="momentum"):
        search_adversary(RUNS["ball"].replace(momentum=0.5), DELTA)


# --- every problem belongs to the run's class ----------------------------------------------------


def per_step(run: Run, value: Any) -> FloatArray:
    values = value.values() if isinstance(value, Schedule) else np.asarray(value)
    return np.broadcast_to(values, (run.steps,)).astype(np.float64)


def slopes_of_others(run: Run, problem: WalkProblem, x: FloatArray) -> FloatArray:
    """Gradients of one other record at ``x``, read off the walk at its first curved step."""
    rate = float(np.max(per_step(run, run.learning_rate)))
    at = int(np.argmax(np.broadcast_to(problem.record_step, problem.steps)))
    drift = np.broadcast_to(problem.drift, problem.steps)[at]
    pull = np.broadcast_to(problem.pull, problem.steps)[at]
    width = problem.pull_width
    bent = np.clip(x - problem.pull_center, -width, width) if pull else np.zeros(x.shape)
    step = drift - pull * bent
    found: FloatArray = -step / rate
    return found


@pytest.mark.parametrize("name", RUNS)
def test_every_problem_is_of_the_class(name: str) -> None:
    run, problem = RUNS[name], found(name).problem
    loss = run.loss
    assert loss is not None
    # The run itself: ridge, noise, domain, start.
    rates = per_step(run, run.learning_rate)
    kept = np.broadcast_to(problem.contraction, run.steps)
    assert kept == pytest.approx(1 - rates * run.l2)
    noise = np.broadcast_to(problem.noise_std, run.steps)
    assert noise == pytest.approx(per_step(run, run.iterate_std))
    if run.domain is not None:
        assert problem.upper - problem.lower == pytest.approx(run.diameter)
    assert problem.lower <= problem.start <= problem.upper
    # The others: gradients, curvature, Hölder continuity, monotony.
    low, high = (problem.lower, problem.upper) if run.domain is not None else (-9.0, 9.0)
    x = np.linspace(low, high, 801)
    part = 1.0 if run.n % run.batch_size == 0 or isinstance(run.batches, Poisson | FixedSize) else (
        run.n % run.batch_size / run.batch_size
    )  # fmt: skip
    slopes = slopes_of_others(run, problem, x) / part
    rise = np.diff(slopes) / np.diff(x)
    assert np.max(np.abs(slopes)) <= loss.lipschitz * (1 + 1e-9)
    assert np.max(np.abs(rise)) <= loss.smoothness * (1 + 1e-6)
    assert np.min(rise) >= (loss.strong_convexity - 1e-6 if loss.convex else -math.inf)
    gaps, apart = np.abs(np.subtract.outer(slopes, slopes)), np.abs(np.subtract.outer(x, x))
    if loss.holder is not None:
        exponent, constant = loss.holder
        assert np.all(gaps <= constant * apart**exponent + 1e-9)
    if loss.dissipativity is not None:
        offset, rate = loss.dissipativity
        products = np.subtract.outer(slopes, slopes) * np.subtract.outer(x, x)
        assert np.all(products >= rate * apart**2 - offset - 1e-9)
    # The record: its slope and its own curvature stay within L.
    own = np.asarray(problem.record_pull) * run.batch_size / rates
    reach = own * (high - low) / 2 if np.any(own) else 0.0
    slope = np.asarray(problem.record_step) * run.batch_size / rates
    assert np.all(slope + reach <= loss.lipschitz * (1 + 1e-9))
    assert np.all(own >= loss.strong_convexity - 1e-12)


@pytest.mark.parametrize("name", ["cyclic", "one_pass", "uneven", "fixed", "ball"])
def test_the_record_sits_in_the_slot_of_another(name: str) -> None:
    """What a batch of b others adds falls by exactly one of them where the record takes part."""
    run, problem = RUNS[name], found(name).problem
    size = run.batch_size
    if name in ("one_pass", "uneven"):
        # The record's batch is the short last one: its fewer others are as curved as needed.
        size = run.n % run.batch_size if run.n % run.batch_size else size
    if name == "uneven":
        assert run.steps % run.batches_per_epoch == 0
    assert np.asarray(problem.removed_pull) * size == pytest.approx(np.asarray(problem.pull))
    assert np.asarray(problem.removed_step) * size == pytest.approx(np.asarray(problem.drift))


# --- the numbers, computed again by other means --------------------------------------------------


def final_density(
    run: Run, problem: WalkProblem, grid: FloatArray, sign: float, own: float
) -> FloatArray:
    """Masses of the last state on a fine grid, from the run's description and the losses.

    Plain transition matrices between cells of the grid, for known or independent batches; a wall
    collects in its cell what lies beyond it.
    """
    from scipy.special import ndtr

    edges = np.r_[-np.inf, (grid[1:] + grid[:-1]) / 2, np.inf]
    mass = np.zeros(grid.size)
    mass[int(np.argmin(np.abs(grid - problem.start)))] = 1.0
    kernels: dict[Any, FloatArray] = {}
    for time in range(run.steps):
        values = {
            name: float(np.broadcast_to(getattr(problem, name), run.steps)[time])
            for name in ("contraction", "drift", "removed_step", "record_step", "pull",
                         "removed_pull", "record_pull", "noise_std")
        }  # fmt: skip
        total = np.zeros(grid.size)
        for used, weight in uses(run, problem, time):
            curved = pulled_at(problem, time)
            key = (used, curved, *values.values())
            if key not in kernels:
                bent = np.clip(grid - problem.pull_center, -problem.pull_width, problem.pull_width)
                pull = values["pull"] * curved
                shift = values["drift"]
                if used:
                    pull += own * values["record_pull"] - curved * values["removed_pull"]
                    shift += sign * values["record_step"] - values["removed_step"]
                centers = values["contraction"] * grid + shift - pull * bent
                below = ndtr((edges[None, :] - centers[:, None]) / values["noise_std"])
                kernels[key] = np.diff(below, axis=1)
            total += weight * (mass @ kernels[key])
        mass = total
    return mass


def uses(run: Run, problem: WalkProblem, time: int) -> list[tuple[bool, float]]:
    kind = problem.inclusion.__class__.__name__
    inclusion: Any = problem.inclusion
    if kind == "Always":
        return [(True, 1.0)]
    if kind == "Bernoulli":
        rate = run.batch_size / run.n
        return [(True, rate), (False, 1 - rate)]
    if kind == "Once":
        return [(time == inclusion.step, 1.0)]
    assert kind == "Periodic"
    return [(time % inclusion.period == inclusion.position, 1.0)]


def pulled_at(problem: WalkProblem, time: int) -> bool:
    when: Any = problem.pull_when
    kind = when.__class__.__name__
    return (
        kind == "Always"
        or (kind == "Until" and time <= when.step)
        or (kind == "Periodic" and time % when.period == when.position)
    )


@pytest.mark.parametrize(
    "name",
    ["ball", "nonconvex", "holder", "strong", "dissipative", "one_pass", "cyclic", "uneven",
     "fixed", "poisson", "schedule"],
)  # fmt: skip
def test_numbers_against_transition_matrices(name: str) -> None:
    run, bound = RUNS[name], found(name)
    problem = bound.problem
    low, high = problem.lower, problem.upper
    if math.isinf(low):
        spread = 12 * float(np.max(problem.noise_std)) * math.sqrt(problem.steps)
        steps = np.broadcast_to(np.abs(problem.record_step) + np.abs(problem.drift), run.steps)
        away = math.copysign(float(np.sum(steps)), float(np.sum(problem.drift)))
        low = problem.start - spread + min(0.0, away)
        high = problem.start + spread + max(0.0, away)
    grid = np.linspace(low, high, 1601)
    present = final_density(run, problem, grid, 1.0, 1.0)
    other = (-1.0, 1.0) if run.neighbors == "replace" else (0.0, 0.0)
    absent = final_density(run, problem, grid, *other)
    best = 0.0
    for first, second in ((present, absent), (absent, present)):
        for order in (1, -1):
            p, q = np.cumsum(first[::order]), np.cumsum(second[::order])
            usable = p > DELTA * 1.0001
            best = max(best, float(np.max(np.log((p[usable] - DELTA) / q[usable]))))
    assert bound.epsilon == pytest.approx(best, rel=2e-2, abs=2e-3)


def test_reshuffled_walls_against_sampling() -> None:
    """One use per epoch at a random place, on a domain, by plain simulation."""
    problem = WalkProblem(steps=10, contraction=0.95, record_step=0.8, noise_std=1.0, lower=-2.0,
                          upper=2.5, inclusion=Reshuffled(4, 0.5), pull=0.5, removed_pull=0.1,
                          pull_width=1.0, pull_center=0.3, drift=0.1,
                          removed_step=0.05)  # fmt: skip
    from dplateau.audit import solve

    points = np.array([-2.0, -0.5, 0.4, 1.5, np.nextafter(2.5, 0.0)])
    brackets = solve(problem, points)
    draw = np.random.default_rng(3)
    size = 60_000
    for factor, bracket in zip((1.0, 0.0), brackets, strict=True):
        x = np.zeros(size)
        for time in range(10):
            if time % 4 == 0:
                place = draw.choice(4, size=size, p=np.array([1, 1, 1, 0.5]) / 3.5)
            used = place == time % 4
            moved = 0.95 * x + 0.1 + used * (0.8 * factor - 0.05)
            moved -= (0.5 - 0.1 * used) * np.clip(x - 0.3, -1.0, 1.0)
            x = np.clip(moved + draw.normal(size=size), -2.0, 2.5)
        frequency = np.mean(x[:, None] > points, axis=0)
        slack = 5 * np.sqrt(frequency * (1 - frequency) / size) + 1e-4
        assert np.all(np.abs(frequency - bracket.lower) < slack)
        assert bracket.width < 1e-10


def test_reshuffled_without_walls_meets_far_walls() -> None:
    free = WalkProblem(steps=7, contraction=0.9, record_step=1.0, noise_std=1.0,
                       inclusion=Reshuffled(3))  # fmt: skip
    walled = replace(free, lower=-40.0, upper=40.0)
    assert lower_epsilon(walled, 1e-5).epsilon == pytest.approx(
        lower_epsilon(free, 1e-5).epsilon, rel=1e-3
    )


# --- against the claims --------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_no_claim_about_these_runs_is_below(name: str) -> None:
    run, lower = RUNS[name], found(name).epsilon
    claims = {b.name: b.curve(run, b.plan(run, DELTA)).epsilon(DELTA)
              for b in BOUNDS if b.sound and b.refusal(run) is None}  # fmt: skip
    assert claims
    assert min(claims.values()) >= lower, claims


def test_no_claim_about_random_runs_is_below() -> None:
    attacked = 0
    for chosen in settings(77, 36):
        run = chosen.run
        if run.noise_kind == "laplace" or run.steps > 40:
            continue
        limit = isinstance(run.batches, Poisson)
        try:
            lower = search_adversary(run, chosen.delta, effort="quick", limit=limit)
        except NotApplicable:
            continue
        usual = lower_bound(run, chosen.delta, limit_drift=limit).epsilon
        assert lower.epsilon >= usual * (1 - 1e-12), chosen
        quick = [b for b in BOUNDS if b.sound and b.name in QUICK and b.refusal(run) is None]
        for bound in quick:
            claim = bound.curve_for(run, bound.plan_for(run, chosen.delta)).epsilon(chosen.delta)
            assert claim >= lower.epsilon, (bound.name, str(chosen))
            attacked += 1
    assert attacked > 15


# The campaign attacks all bounds; here those that cost next to nothing.
QUICK = ("gdp_composition", "gd_contraction", "gd_bounded", "modulus", "cyclic_contraction",
         "one_pass_contraction", "random_stop_contraction")  # fmt: skip
