"""Sampling rates that change from step to step, and groups of records as the unit of privacy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from dplateau import (
    Ball,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    calibrate,
    certify,
    compare,
    compose,
    epsilon_over_steps,
    lower_bound,
    per_record,
)
from dplateau.algorithms import Run
from dplateau.bounds.base import for_one_record
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.certificates import Certificate
from dplateau.curves import GaussianCurve, GroupCurve
from forging import forged

SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
RATES = [0.02] * 10 + [0.05] * 20 + [0.2] * 5
WARMING = NoisySGD(
    n=1000, batch_size=50, sampling_rate=RATES, steps=35, noise_multiplier=1.2, release="all"
)
RIDGE: dict[str, Any] = {"learning_rate": 0.5, "l2": 0.1, "loss": SMOOTH, "release": "last"}
READ_SCHEDULES = {"pld_composition", "rdp_composition"}


def by(name: str, run: Run, delta: float = 1e-5) -> Certificate:
    return certify(run, delta, bounds=[bound_named(name)])


def other_accountant(rates: list[float], noise: list[float], delta: float = 1e-5) -> float:
    """Return epsilon by another library; the order of the steps does not matter to it."""
    accountant = PLDAccountant()
    for (rate, z), count in Counter(zip(rates, noise, strict=True)).items():
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(z)), count)
    return float(accountant.get_epsilon(delta))


def applicable(run: Run) -> set[str]:
    return {bound.name for bound in BOUNDS if bound.refusal(run) is None}


# --- sampling rates -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(READ_SCHEDULES))
def test_equal_rates_by_schedule_are_one_rate(name: str) -> None:
    run = WARMING.replace(sampling_rate=[0.05] * 35)
    plain = WARMING.replace(sampling_rate=None)
    assert plain.sampling_rate == 0.05
    claimed = by(name, plain).claimed_epsilon
    assert by(name, run).claimed_epsilon == pytest.approx(claimed, rel=1e-6)


def test_the_composition_agrees_with_an_independent_accountant() -> None:
    found = by("pld_composition", WARMING).claimed_epsilon
    assert found == pytest.approx(other_accountant(RATES, [1.2] * 35), rel=4e-3)
    assert found <= by("rdp_composition", WARMING).claimed_epsilon


def test_noise_and_rates_may_change_at_different_steps() -> None:
    noise = [2.0] * 15 + [1.0] * 20
    run = WARMING.replace(noise_multiplier=noise)
    found = certify(run, 1e-5)
    assert found.claimed_epsilon == pytest.approx(other_accountant(RATES, noise), rel=4e-3)
    assert found.verify().ok


def test_no_claim_lies_below_the_exact_loss_of_two_steps() -> None:
    rates, z = (0.6, 0.1), 1.0
    run = NoisySGD(
        n=10, batch_size=2, sampling_rate=rates, steps=2, noise_multiplier=z, release="all"
    )
    axis = np.arange(-9, 11, 0.01) + 0.005

    def density(rate: float) -> Any:
        mixed = (1 - rate) * np.exp(-(axis**2) / 2) + rate * np.exp(-((axis - 1 / z) ** 2) / 2)
        return mixed / np.sqrt(2 * np.pi)

    with_record = np.outer(density(rates[0]), density(rates[1])) * 0.01**2
    without = np.outer(density(0.0), density(0.0)) * 0.01**2
    for bound in READ_SCHEDULES:
        claim = by(bound, run, 1e-3)
        factor = np.exp(claim.claimed_epsilon)
        sticks = [
            float(np.maximum(with_record - factor * without, 0).sum()),
            float(np.maximum(without - factor * with_record, 0).sum()),
        ]
        assert max(sticks) <= 1e-3
    exact = by("pld_composition", run, 1e-3)
    factor = np.exp(exact.claimed_epsilon)
    assert np.maximum(with_record - factor * without, 0).sum() == pytest.approx(1e-3, rel=0.03)


@pytest.mark.parametrize("release", ["all", "last"])
def test_every_other_bound_refuses_a_schedule_of_rates(release: str) -> None:
    run = WARMING.replace(**RIDGE).replace(release=release)
    assert applicable(run.replace(sampling_rate=None)) > READ_SCHEDULES
    hidden = {"poisson_blocks", "every_batch"} if release == "last" else set()
    assert applicable(run) == READ_SCHEDULES | hidden
    reason = str(bound_named("naive_composition").refusal(run))
    assert "the same learning rate, noise and sampling rate at every step" in reason
    if release == "all":
        assert applicable(run.replace(neighbors="replace")) == {"pld_composition"}


def test_a_constant_rate_of_its_own_is_composed_and_never_mistaken() -> None:
    own = WARMING.replace(sampling_rate=0.2, **RIDGE)
    as_usual = NoisySGD(n=1000, batch_size=200, steps=35, noise_multiplier=1.2, release="all")
    hidden = {"poisson_blocks", "every_batch"}
    for name in sorted(applicable(own) - hidden):
        found = by(name, own)
        # Nothing but noise multiplier and rate matters to an observer of every iterate.
        assert found.claimed_epsilon == by(name, as_usual).claimed_epsilon
        assert found.verify().ok
    assert applicable(own) == {
        *READ_SCHEDULES, *hidden, "naive_composition", "advanced_composition",
    }  # fmt: skip
    assert "yours join with 0.2" in str(bound_named("poisson_recursion").refusal(own))
    assert lower_bound(own, 1e-5).epsilon <= certify(own, 1e-5).claimed_epsilon
    with pytest.raises(NotApplicable, match="another sampling rate"):
        lower_bound(own, 1e-5, limit_drift=True)
    with pytest.raises(NotApplicable, match="changes from step to step"):
        lower_bound(WARMING.replace(**RIDGE), 1e-5)


@pytest.mark.parametrize("name", sorted(READ_SCHEDULES))
def test_claims_about_schedules_are_verified(name: str) -> None:
    found = by(name, WARMING)
    report = found.verify()
    assert report.ok, str(report)
    lower = forged(found.to_dict(), claimed_epsilon=found.claimed_epsilon * 0.95)
    assert not Certificate.from_dict(lower).verify().ok


@pytest.mark.parametrize("name", ["naive_composition", "advanced_composition"])
def test_the_verifier_refuses_other_theorems_about_schedules(name: str) -> None:
    plain = WARMING.replace(sampling_rate=None, **RIDGE)
    found = by(name, plain).to_dict()
    for rate in (RATES, 0.2):
        found = forged(found, run=plain.replace(batch_size=50, sampling_rate=rate).to_dict())
        report = Certificate.from_dict(found).verify()
        assert not report.ok
    found = forged(found, run=plain.replace(batch_size=50, sampling_rate=RATES).to_dict())
    failed = [c.name for c in Certificate.from_dict(found).verify().checks if not c.ok]
    assert failed == ["sampling rate"]


def test_calibrating_keeps_the_schedule() -> None:
    found = calibrate(WARMING, 1.0, 1e-5)
    assert found.run.sampling_rates().tolist() == RATES
    assert 0.99 < found.certificate.claimed_epsilon <= 1.0
    with pytest.raises(InvalidInput, match="steps cannot vary in a run with schedules"):
        calibrate(WARMING, 1.0, 1e-5, vary="steps")
    with pytest.raises(InvalidInput, match="batch_size cannot vary"):
        calibrate(WARMING, 1.0, 1e-5, vary="batch_size")
    with pytest.raises(InvalidInput, match="schedules"):
        epsilon_over_steps(WARMING, 1e-5, [1, 2])


# --- groups -------------------------------------------------------------------------------------

GD = NoisyGD(n=100, steps=50, noise_multiplier=20.0, **RIDGE)
SGD = NoisySGD(n=1000, batch_size=50, steps=60, noise_multiplier=4.0, **RIDGE)


@pytest.mark.parametrize("name", ["gd_contraction", "gdp_composition", "rdp_composition"])
def test_a_group_has_the_group_curve_of_the_single_claim(name: str) -> None:
    pair = certify(GD, 1e-5, bounds=[bound_named(name)], group_size=2)
    assert pair.run == GD.replace(group_size=2)
    single = bound_named(name).curve(GD, pair.witness)
    assert pair.claimed_epsilon == bound_named(name).claim(single.group(2).epsilon(1e-5))
    assert pair.curve.delta(1.0) == single.group(2).delta(1.0)


def test_two_records_of_a_gaussian_are_twice_as_far() -> None:
    single, three = certify(GD, 1e-5), certify(GD, 1e-5, group_size=3)
    assert isinstance(single.curve, GaussianCurve)
    assert three.claimed_epsilon == pytest.approx(GaussianCurve(3 * single.curve.mu).epsilon(1e-5))
    # Three records that pull together: the exact Gaussian walk, three times the record step.
    attacked = lower_bound(GD.replace(noise_multiplier=20.0 / 3), 1e-5).epsilon
    assert lower_bound(GD, 1e-5).epsilon < attacked <= three.claimed_epsilon


def test_sampled_pairs_cost_what_group_privacy_says_and_no_less_than_the_truth() -> None:
    name = "pld_composition"
    pair = certify(SGD, 1e-5, bounds=[bound_named(name)], group_size=2)
    single = bound_named(name).curve(SGD, {})
    assert pair.claimed_epsilon == bound_named(name).claim(GroupCurve(single, 2).epsilon(1e-5))
    # Both records always in the same batches would be one record of twice the length.
    twice = by(name, SGD.replace(noise_multiplier=2.0)).claimed_epsilon
    assert by(name, SGD).claimed_epsilon < twice
    assert by(name, SGD).claimed_epsilon < pair.claimed_epsilon


def test_planning_for_a_group_looks_at_the_delta_that_one_record_needs() -> None:
    bound = bound_named("poisson_modulus")
    single = SGD.replace(domain=Ball(0.05), steps=400)
    pairs = single.replace(group_size=2)
    planned = certify(pairs, 1e-5, bounds=[bound])
    at_delta = bound.curve(single, bound.plan(single, 1e-5)).group(2)
    assert planned.claimed_epsilon <= bound.claim(at_delta.epsilon(1e-5))
    again = Certificate.from_json(planned.to_json())
    for curve in (bound.curve_for(pairs, planned.witness), again.curve):
        assert bound.claim(curve.epsilon(1e-5)) == planned.claimed_epsilon


def test_the_conveniences_take_the_group_too() -> None:
    pairs = GD.replace(group_size=2)
    best = compare(pairs, 1e-5).best
    assert compare(GD, 1e-5, group_size=2).best == best
    assert best.epsilon == certify(pairs, 1e-5).claimed_epsilon
    found = calibrate(GD, 1.0, 1e-5, group_size=2)
    assert found.run.group_size == 2
    assert 0.99 < found.certificate.claimed_epsilon <= 1.0
    steps = [1, 7, 50]
    bounds = [bound_named("gdp_composition")]
    curve = epsilon_over_steps(pairs, 1e-5, steps, bounds=bounds).epsilon("gdp_composition")
    each = [certify(pairs.replace(steps=k), 1e-5, bounds=bounds).claimed_epsilon for k in steps]
    assert curve.tolist() == each


def test_absent_records_take_their_curvature_along() -> None:
    curved = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25, strong_convexity=0.1)
    run = GD.replace(loss=curved, l2=0.0)
    flat = run.replace(loss=SMOOTH)
    assert for_one_record(run.replace(group_size=2)) == flat
    assert certify(run, 1e-5).claimed_epsilon < certify(flat, 1e-5).claimed_epsilon
    grouped = certify(run, 1e-5, group_size=2).claimed_epsilon
    assert grouped == certify(flat, 1e-5, group_size=2).claimed_epsilon
    with pytest.raises(NotApplicable, match=r"certify\(run, delta, group_size=2\)"):
        certify(run, 1e-5).group(2)
    # Replaced records stay, and so does their curvature.
    swapped = run.replace(neighbors="replace", group_size=2)
    assert for_one_record(swapped) == swapped.replace(group_size=1)


def test_different_units_of_privacy_do_not_compose() -> None:
    with pytest.raises(InvalidInput, match="certify all runs with the same group_size="):
        compose([certify(GD, 1e-5), certify(GD, 1e-5, group_size=2)], 1e-5)


@pytest.mark.parametrize("run", [GD, SGD, SGD.replace(neighbors="replace")])
def test_claims_about_groups_are_verified_and_smaller_ones_are_not(run: Run) -> None:
    found = certify(run, 1e-5, group_size=3)
    assert found.verify().ok
    less = certify(run, 1e-5, group_size=2).claimed_epsilon
    lower = forged(found.to_dict(), claimed_epsilon=less)
    assert not Certificate.from_dict(lower).verify().ok


def test_blocks_know_groups_and_beat_group_privacy() -> None:
    bound = bound_named("poisson_blocks")
    native = certify(SGD, 1e-5, bounds=[bound], group_size=4).claimed_epsilon
    generic = bound.curve(SGD, bound.plan(SGD, 1e-9)).group(4).epsilon(1e-5)
    assert native < generic


def test_positions_are_those_of_single_records() -> None:
    run = CyclicSGD(n=40, batch_size=4, steps=20, noise_std=1.0, group_size=2, **RIDGE)
    with pytest.raises(NotApplicable, match="group_size=2"):
        per_record(run, 1e-5)
