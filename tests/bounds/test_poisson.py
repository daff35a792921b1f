"""The main theorem: its published table, its search over R, and the pieces it is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplateau import LossGeometry, NoisySGD, certify
from dplateau.algorithms import Run
from dplateau.audit import lower_bound
from dplateau.bounds.batch_cap import batch_cap, cap_of, exceedance
from dplateau.bounds.poisson import FINE, setting_of
from dplateau.bounds.poisson_forms import PoissonAveraged
from dplateau.bounds.registry import bound_named
from dplateau.bounds.shift_levels import SampledSteps, absorbs, shared_levels

DELTA = 1e-5
AVERAGED = PoissonAveraged()


def ridge_run(c: float, q: float, z: float, steps: int) -> Run:
    return NoisySGD(
        n=60_000,
        sampling_rate=q,
        steps=steps,
        learning_rate=2.0,
        l2=(1 - c) / 2,
        noise_multiplier=float(z),
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
        release="last",
    )


# (c, q, z, T, averaged start, exact lower bound of one admissible problem), from a laboratory
# implementation of the theorem at delta = 1e-5.
TABLE = [
    (0.99, 0.01, 1, 5000, 0.972, 0.569),
    (0.99, 0.01, 2, 20000, 0.323, 0.248),
    (0.95, 0.05, 2, 2000, 0.813, 0.644),
    (0.995, 0.02, 4, 20000, 0.418, 0.348),
    (0.9, 0.1, 2, 1000, 1.207, 0.984),
    (0.98, 0.1, 5, 5000, 0.867, 0.747),
    (0.999, 0.01, 4, 50000, 0.474, 0.389),
]


@pytest.mark.parametrize(("c", "q", "z", "steps", "averaged", "lower"), TABLE)
def test_table_is_met_or_beaten_and_never_broken(
    c: float, q: float, z: float, steps: int, averaged: float, lower: float
) -> None:
    run = ridge_run(c, q, z, steps)
    epsilon = certify(run, DELTA, bounds=[AVERAGED]).claimed_epsilon
    assert epsilon <= 1.03 * averaged
    exact = lower_bound(run, DELTA).epsilon
    assert exact == pytest.approx(lower, abs=6e-4)
    assert epsilon >= exact


def random_run(rng: np.random.Generator) -> Run:
    c = 1 - 10 ** rng.uniform(-2.5, -1)
    q = 10 ** rng.uniform(-2.3, -0.8)
    steps = int(rng.uniform(3, 12) / (1 - c))
    return ridge_run(c, q, float(rng.uniform(0.8, 6.0)), steps)


@pytest.mark.parametrize("seed", range(4))
def test_search_over_last_steps_is_within_three_percent_of_a_scan(seed: int) -> None:
    run = random_run(np.random.default_rng(seed))
    cap = batch_cap(run, DELTA)
    setting = setting_of(run, cap)
    found = AVERAGED.plan(run, DELTA)
    epsilon = AVERAGED.curve(run, found).epsilon(DELTA)
    scanned = []
    most = min(run.steps, math.ceil(12 / (1 - setting.contraction)))
    for last_steps in np.unique(np.geomspace(1, most, 14).round()).astype(int):
        witness = AVERAGED._witness(setting, cap, int(last_steps), DELTA, FINE)
        scanned.append(AVERAGED.curve(run, witness).epsilon(DELTA))
    assert epsilon <= 1.03 * min(scanned)


def test_forms_are_ordered_and_beat_composition() -> None:
    run = ridge_run(0.98, 0.02, 2.0, 2000)
    names = ("poisson_averaged", "poisson_high_probability", "poisson_plain", "pld_composition")
    values = [certify(run, DELTA, bounds=[bound_named(name)]).claimed_epsilon for name in names]
    assert values == sorted(values)


def test_composition_is_a_special_case() -> None:
    run = ridge_run(0.999, 0.05, 3.0, 40)
    hidden = certify(run, DELTA, bounds=[AVERAGED]).claimed_epsilon
    released = certify(run, DELTA, bounds=[bound_named("pld_composition")]).claimed_epsilon
    assert hidden <= released * 1.002


def test_batch_cap_bounds_the_tail() -> None:
    run = ridge_run(0.99, 0.01, 1.0, 5000)
    cap = batch_cap(run, DELTA)
    assert cap.records >= run.batch_size
    assert cap.extra_delta <= 1e-4 * DELTA
    # Between the first term of the tail and the Chernoff bound, both computed here.
    for records in (690, 700, 760):
        share = (records + 1) / run.n
        rate = share * math.log(share / 0.01) + (1 - share) * math.log((1 - share) / 0.99)
        chernoff = run.steps * math.exp(-run.n * rate)
        log_first = math.lgamma(run.n + 1) - math.lgamma(records + 2) - math.lgamma(run.n - records)
        log_first += (records + 1) * math.log(0.01) + (run.n - records - 1) * math.log(0.99)
        first = run.steps * math.exp(log_first) * (1 - 1e-6)
        assert first <= exceedance(run, records) <= chernoff
    assert cap_of(run, run.n).extra_delta == 0.0


def test_a_large_batch_that_would_expand_is_refused_with_the_nearest_learning_rate() -> None:
    run = ridge_run(0.99, 0.01, 1.0, 500).replace(learning_rate=7.5)
    reason = AVERAGED.refusal(run)
    assert reason is not None
    assert "largest batch / batch_size" in reason
    assert "lower the learning rate to" in reason


@pytest.mark.parametrize("contraction", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("start", [0.01, 1.0, 30.0])
def test_plans_absorb_their_start_step_by_step(contraction: float, start: float) -> None:
    steps = SampledSteps(contraction, 0.05, 0.7, 60)
    levels = shared_levels(steps.largest_shift(start), 32)
    counts = steps.plan(start, levels)
    assert absorbs(steps, start, counts, levels)
    # Replay: the smaller shifts come first.
    distance = start
    for count, shift in zip(counts, (0.0, *levels), strict=True):
        for _ in range(int(count)):
            distance = max(0.0, contraction * distance - shift)
    assert distance <= 1e-9 * start
    # Rounding to levels costs little: the surrogate's own optimum is a lower bound on any plan.
    shifts = np.repeat(np.r_[0.0, levels], counts)
    drift = 0.05 * 0.7
    cost = float(np.sum(shifts**2 + 2 * drift * shifts))
    best = steps.surrogate_cost(start) - 60 * 0.05**2 * math.expm1(0.7**2)
    assert best * (1 - 1e-9) <= cost <= 1.05 * best + 1e-9


def test_a_plan_that_absorbs_too_little_is_refused() -> None:
    run = ridge_run(0.95, 0.05, 2.0, 300)
    witness = dict(AVERAGED.plan(run, DELTA))
    witness["levels"] = [0.99 * level for level in witness["levels"]]
    with pytest.raises(ValueError, match="does not absorb"):
        AVERAGED.curve(run, witness)


def test_curve_over_steps_stays_within_two_percent_of_certify() -> None:
    run = ridge_run(0.9, 0.1, 2.0, 100)
    lengths = np.unique(np.geomspace(1, 10**5, 60).round().astype(np.int64))
    curve = AVERAGED.epsilon_over_steps(run, DELTA, lengths)
    assert np.all(np.diff(curve) >= -0.01 * curve[1:])
    for place in (0, 8, 16, 24, 40, -1):
        shorter = run.replace(steps=int(lengths[place]))
        best = certify(shorter, DELTA).claimed_epsilon
        assert best * 0.985 <= curve[place] <= 1.02 * best
