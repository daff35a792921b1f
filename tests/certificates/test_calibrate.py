"""Calibration: what is returned meets the target, and only just."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplateau import (
    Ball,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    OnePassSGD,
    ProjectedLangevin,
    Schedule,
    calibrate,
    certify,
    lower_bound,
    noise_needed,
)
from dplateau.algorithms import FixedSize, Run
from dplateau.bounds.registry import bound_named
from dplateau.numerics.normal import gaussian_mu

DELTA = 1e-5
LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
RIDGE = NoisyGD(
    n=1000, steps=400, learning_rate=0.5, l2=0.1, noise_std=0.02, loss=LOSS, release="last"
)
FULL = NoisyGD(n=100, steps=25, noise_multiplier=1.0, release="all")
SAMPLED = NoisySGD(n=60000, batch_size=256, epochs=10, noise_multiplier=1.1, release="all")


def epsilon(run: Run) -> float:
    return certify(run, DELTA).claimed_epsilon


def assert_met(found: Any, target: float) -> None:
    assert found.certificate.claimed_epsilon <= target
    assert found.certificate.run == found.run
    assert epsilon(found.run) == found.certificate.claimed_epsilon
    assert found.certificate.claimed_delta == DELTA


# --- noise -------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(target=st.floats(0.05, 20.0), start=st.floats(1e-4, 1e4))
def test_gaussian_noise_is_the_exact_one_wherever_the_search_starts(
    target: float, start: float
) -> None:
    found = calibrate(FULL.replace(noise_multiplier=start), target, DELTA)
    assert_met(found, target)
    exact = math.sqrt(25) / gaussian_mu(target, DELTA)
    assert exact * (1 - 1e-9) <= found.value <= exact * (1 + 1e-3)
    assert found.run.noise_multiplier == found.value


@pytest.mark.parametrize("run", [SAMPLED, RIDGE], ids=["sampled", "hidden"])
def test_noise_is_within_a_thousandth_of_the_bisection_optimum(run: Run) -> None:
    target = 1.0
    found = calibrate(run, target, DELTA)
    assert_met(found, target)
    name = run.noise.name
    assert epsilon(run.replace(**{name: found.value * (1 - 1e-3)})) > target
    low, high = found.value / 2, found.value * 2
    for _ in range(14):
        middle = math.sqrt(low * high)
        met = epsilon(run.replace(**{name: middle})) <= target
        low, high = (low, middle) if met else (middle, high)
    assert found.value <= high * (1 + 1e-3)


def test_choices_kept_from_a_neighboring_run_are_a_proof_of_their_own() -> None:
    run = NoisySGD(
        n=400, batch_size=40, steps=60, learning_rate=0.5, l2=0.1, noise_multiplier=1.0,
        loss=LOSS, release="last",
    )  # fmt: skip
    bound, other = bound_named("poisson_blocks"), run.replace(noise_multiplier=1.3)
    kept = bound.curve(other, bound.replan(other, DELTA, bound.plan(run, DELTA))).epsilon(DELTA)
    assert lower_bound(other, DELTA).epsilon <= kept <= 1.05 * epsilon(other)
    found = calibrate(run, 1.0, DELTA)
    assert found.certificate.claimed_epsilon <= 1.0
    assert found.certificate.verify().ok
    assert epsilon(run.replace(noise_multiplier=found.value * (1 - 2e-3))) > 1.0


@pytest.mark.parametrize("convention", ["noise_multiplier", "noise_std", "iterate_std"])
def test_the_convention_is_kept(convention: str) -> None:
    run = RIDGE.replace(**{convention: 3.0})
    found = calibrate(run, 1.0, DELTA)
    assert_met(found, 1.0)
    assert found.varied == convention
    assert found.run.noise.name == convention
    assert found.run.noise.value == found.value
    # One noise level under three names.
    assert found.run.noise_std == pytest.approx(calibrate(RIDGE, 1.0, DELTA).value, rel=3e-4)
    assert calibrate(run, 1.0, DELTA, vary=convention).value == found.value


def test_a_schedule_is_scaled_as_a_whole() -> None:
    shape = [1.0, 1.0, 2.0, 4.0]
    run = NoisyGD(n=10, steps=4, noise_multiplier=shape, release="all")
    found = calibrate(run, 2.0, DELTA)
    assert_met(found, 2.0)
    kept = found.run.noise_multiplier
    assert isinstance(kept, Schedule)
    assert kept.values() / found.value == pytest.approx(shape)
    exact = math.sqrt(sum(1 / z**2 for z in shape)) / gaussian_mu(2.0, DELTA)
    assert exact <= found.value <= exact * (1 + 1e-3)


def test_only_the_bounds_asked_for_are_used() -> None:
    alone = calibrate(SAMPLED, 1.0, DELTA, bounds=[bound_named("rdp_composition")])
    assert alone.certificate.bound == "rdp_composition"
    assert alone.value > calibrate(SAMPLED, 1.0, DELTA).value


def test_targets_met_without_noise() -> None:
    """Whoever joins with probability below delta needs no noise."""
    run = NoisySGD(n=10**7, sampling_rate=1e-7, steps=1, noise_multiplier=1.0, release="all")
    with pytest.raises(NotApplicable, match="is met without noise; nothing to calibrate"):
        calibrate(run, 1.0, DELTA, bounds=[bound_named("naive_composition")])


# --- everything else ---------------------------------------------------------------------------


def test_the_longest_run() -> None:
    found = calibrate(SAMPLED, 2.0, DELTA, vary="steps")
    assert_met(found, 2.0)
    assert not found.unlimited
    assert found.value == found.run.steps
    assert epsilon(found.run.replace(steps=found.run.steps + 10)) > 2.0
    exact = calibrate(FULL.replace(noise_multiplier=10.0), 1.0, DELTA, vary="steps")
    assert exact.run.steps == math.floor((10.0 * gaussian_mu(1.0, DELTA)) ** 2)
    assert calibrate(SAMPLED, 2.0, DELTA, vary="epochs").value == found.value


def test_a_plateau_below_the_target_is_unlimited() -> None:
    target = epsilon(RIDGE.replace(steps=10**6)) * 1.01
    found = calibrate(RIDGE, target, DELTA, vary="steps")
    assert found.unlimited
    assert found.run.steps == 10**9
    assert_met(found, target)
    assert "unlimited" in str(found)
    short = calibrate(RIDGE, target * 0.8, DELTA, vary="steps")
    assert not short.unlimited
    assert short.run.steps < 400
    assert "unlimited" not in str(short)


def test_the_smallest_ridge() -> None:
    target = 0.7 * epsilon(RIDGE)
    found = calibrate(RIDGE, target, DELTA, vary="l2")
    assert_met(found, target)
    assert found.run.l2 == found.value > 0.1
    assert epsilon(RIDGE.replace(l2=found.value * 0.999)) > target
    assert calibrate(RIDGE.replace(steps=2), 5.0, DELTA, vary="l2").value == 0.0


def test_the_largest_learning_rate() -> None:
    run = RIDGE.replace(iterate_std=0.01)
    found = calibrate(run, 0.5, DELTA, vary="learning_rate")
    assert_met(found, 0.5)
    assert found.run.learning_rate == found.value
    assert epsilon(run.replace(learning_rate=found.value * 1.001)) > 0.5


def test_the_largest_batch() -> None:
    found = calibrate(SAMPLED, 2.0, DELTA, vary="batch_size")
    assert_met(found, 2.0)
    assert found.run.batch_size == int(found.value)
    assert epsilon(SAMPLED.replace(batch_size=found.value + 5)) > 2.0
    everything = calibrate(SAMPLED.replace(noise_multiplier=1000.0), 2.0, DELTA, vary="batch_size")
    assert everything.run.batch_size == 60000


def test_the_largest_fixed_size_batch() -> None:
    run = NoisySGD(
        n=500,
        batch_size=5,
        steps=20,
        sampling="fixed",
        neighbors="replace",
        noise_multiplier=2.0,
        release="all",
    )
    found = calibrate(run, 2.0, DELTA, vary="batch_size")
    assert_met(found, 2.0)
    assert isinstance(found.run.batches, FixedSize)
    assert epsilon(run.replace(batch_size=found.value + 1)) > 2.0


def test_langevin_varies_its_step_size() -> None:
    run = ProjectedLangevin(
        n=100, steps=50, learning_rate=0.1, loss=LOSS, domain=Ball(2.0), release="last"
    )
    target = 0.5 * epsilon(run)
    found = calibrate(run, target, DELTA, vary="learning_rate")
    assert_met(found, target)
    assert found.run.learning_rate < 0.1
    with pytest.raises(InvalidInput, match="Langevin noise follows from learning_rate; vary 'st"):
        calibrate(run, target, DELTA)


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "target", "vary", "message"),
    [
        (FULL, 1.0, "magic", "vary must be one of 'noise', 'l2', 'steps'"),
        (FULL, 1.0, None, "vary must be one of"),
        (FULL, 1.0, "noise_std", "states its noise as noise_multiplier; vary 'noise', or state it"),
        (FULL, 1.0, "batch_size", "NoisyGD has no batch_size to vary; vary 'noise'"),
        (FULL, 1.0, "learning_rate", "states no learning_rate to vary; pass one as a starting p"),
        (FULL, 0.0, "noise", "epsilon must be finite and above 0; got 0"),
        (FULL, -1.0, "noise", "epsilon must be finite and above 0"),
        (FULL, math.nan, "noise", "epsilon must be a real number; got NaN"),
        (FULL, math.inf, "noise", "epsilon must be finite"),
        (
            OnePassSGD(n=9, noise_multiplier=1.0, release="all"),
            1.0,
            "steps",
            "OnePassSGD has no steps to vary",
        ),
        (
            NoisyGD(n=9, steps=2, noise_multiplier=[1.0, 2.0], release="all"),
            1.0,
            "steps",
            "steps cannot vary in a run with schedules; vary 'noise' instead",
        ),
        (
            CyclicSGD(n=9, batch_size=3, epochs=1, noise_multiplier=[1.0, 2, 3], release="all"),
            1.0,
            "batch_size",
            "batch_size cannot vary in a run with schedules",
        ),
    ],
)
def test_refused_questions(run: Run, target: float, vary: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        calibrate(run, target, DELTA, vary=vary)


@pytest.mark.parametrize(
    ("run", "target", "vary", "message"),
    [
        (FULL, 1e-3, "steps", "even one step exceeds epsilon 0.001; vary 'noise' instead"),
        (FULL, 1.0, "l2", r"l2 lowers epsilon only through the contraction; pass learning_rate="),
        (SAMPLED.replace(noise_multiplier=0.1), 0.01, "batch_size", "even batch_size=1 exceeds"),
        (RIDGE.replace(noise_std=1e-5), 0.01, "l2", "no l2 up to 1 / learning_rate = 2 meets"),
        (FULL.replace(learning_rate=1.0), 1e-3, "learning_rate", "no learning rate meets epsilon"),
        (FULL.replace(learning_rate=1.0), 1e3, "learning_rate", "every learning rate up to 10000"),
    ],
)
def test_unreachable_targets(run: Run, target: float, vary: str, message: str) -> None:
    with pytest.raises(NotApplicable, match=message):
        calibrate(run, target, DELTA, vary=vary)


# --- the noise each bound asks for -------------------------------------------------------------


def test_older_accountants_ask_for_more_noise() -> None:
    needs = noise_needed(SAMPLED, 1.0, DELTA)
    order = ["naive_composition", "advanced_composition", "rdp_composition", "pld_composition"]
    values = [needs.noise(name) for name in order]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == 4
    assert needs.convention == "noise_multiplier"
    assert needs.rows[0].bound == "pld_composition"
    ratios = {row.bound: row.ratio for row in needs.rows if row.ratio is not None}
    assert ratios["pld_composition"] == 1.0
    assert 1.05 < ratios["rdp_composition"] < 1.2
    assert ratios["naive_composition"] > ratios["advanced_composition"] > 3
    assert needs.noise("gdp_composition") is None
    for row in needs.rows:
        assert (row.noise is None) == (row.reason is not None)
    for name in order:
        level = SAMPLED.replace(noise_multiplier=needs.noise(name))
        assert certify(level, DELTA, bounds=[bound_named(name)]).claimed_epsilon <= 1.0
    assert len(str(needs).splitlines()) == len(needs.rows) + 1
    assert needs.to_frame().loc["pld_composition", "ratio"] == 1.0


def test_hiding_iterates_asks_for_less_noise() -> None:
    needs = noise_needed(RIDGE, 1.0, DELTA)
    assert needs.convention == "noise_std"
    assert needs.rows[0].ratio == 1.0
    assert needs.noise("gdp_composition") > 2 * needs.rows[0].noise


def test_a_run_that_no_bound_covers() -> None:
    unknown = NoisyGD(n=10, steps=2, noise_std=1.0, release="all")
    with pytest.raises(NotApplicable, match=r"no bound applies .*; compare\(run, delta\) says why"):
        noise_needed(unknown, 1.0, DELTA)
