"""The audit's own statistics: its error rate, its bounds, its power, and what it refuses."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from dplateau import (
    AuditReport,
    Certificate,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    OnePassSGD,
    audit_trainer,
    certify,
    compose,
    worst_case_pair,
)
from dplateau.audit.monte_carlo import fit_score
from dplateau.audit.monte_carlo_rates import (
    THRESHOLDS,
    ClaimTable,
    SimulatedAudits,
    count_hits,
    detectable_leak,
    judge,
    least_rates,
    level_of_each,
    most_rates,
    place_thresholds,
    proved_epsilon,
    region_corners,
)
from dplateau.certificates.certificate import Claim
from dplateau.ground.sealed import resealed
from dplateau.ground.types import FloatArray
from forging import forged

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)


@lru_cache
def gaussian_claim(mu: float = 1.0) -> Certificate:
    """A claim of exactly mu-GDP: one noisy step of size mu."""
    return certify(NoisyGD(n=1, steps=1, noise_multiplier=1 / mu, release="last"), delta=1e-5)


def one_step(record: float, rng: np.random.Generator, count: int) -> FloatArray:
    return record + rng.normal(size=(count, 1))


def audit(shift: float, *, seed: int, runs: int = 2000, **options: Any) -> AuditReport:
    """Audit a claim of 1-GDP on outputs that leak exactly shift-GDP."""
    claim = options.pop("claim", gaussian_claim())
    return audit_trainer(one_step, claim, shift, 0.0, runs=runs, seed=seed, at_once=runs, **options)


# --- binomial bounds


@pytest.mark.parametrize(("hits", "runs"), [(0, 20), (1, 20), (7, 20), (20, 20), (37, 4000)])
@pytest.mark.parametrize("level", [0.025, 1e-3, 1e-6])
def test_bounds_are_clopper_pearson(hits: int, runs: int, level: float) -> None:
    expected = binomtest(hits, runs).proportion_ci(confidence_level=1 - 2 * level, method="exact")
    count = np.array([hits])
    # SciPy searches for its ends to within 2e-12.
    assert least_rates(count, runs, level)[0] == pytest.approx(expected.low, abs=1e-11)
    assert most_rates(count, runs, level)[0] == pytest.approx(expected.high, abs=1e-11)


def test_published_clopper_pearson_numbers() -> None:
    # 0 of 10 at 95 percent: the rule 1 - 0.025^(1/10).
    assert most_rates(np.array([0]), 10, 0.025)[0] == pytest.approx(0.30849710781876083, rel=1e-12)
    assert least_rates(np.array([10]), 10, 0.025)[0] == pytest.approx(0.6915028921812392, rel=1e-12)


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.5, 0.93])
def test_a_bound_is_wrong_no_more_often_than_stated(rate: float) -> None:
    """Exact coverage, by adding up all outcomes of 60 runs."""
    counts = np.arange(61)
    chances = binom.pmf(counts, 60, rate)
    for level in (0.1, 0.01):
        assert chances[least_rates(counts, 60, level) > rate].sum() <= level
        assert chances[most_rates(counts, 60, level) < rate].sum() <= level


@given(runs=st.integers(1, 5000), share=st.floats(0, 1), level=st.floats(1e-9, 0.4))
def test_bounds_enclose_the_share_and_widen_with_confidence(
    runs: int, share: float, level: float
) -> None:
    hits = np.array([round(share * runs)])
    low, high = least_rates(hits, runs, level)[0], most_rates(hits, runs, level)[0]
    assert 0 <= low <= hits[0] / runs <= high <= 1
    assert least_rates(hits, runs, level / 2)[0] <= low
    assert most_rates(hits, runs, level / 2)[0] >= high


def test_more_hits_never_lower_a_bound() -> None:
    counts = np.arange(301)
    assert np.all(np.diff(least_rates(counts, 300, 1e-3)) > 0)
    assert np.all(np.diff(most_rates(counts, 300, 1e-3)) >= 0)


def test_all_errors_together_stay_within_the_confidence() -> None:
    assert THRESHOLDS * level_of_each(0.95) == pytest.approx(0.05)


@pytest.mark.parametrize("rates", [(0.5, 0.2), (0.93, 0.5), (0.1, 0.01), (0.99, 0.9)])
@pytest.mark.parametrize("level", [0.1, 0.01])
def test_a_region_is_wrong_no_more_often_than_stated(
    rates: tuple[float, float], level: float
) -> None:
    """Exact coverage of both rates at once, by adding up all pairs of outcomes of 40 runs."""
    counts = np.arange(41)
    first, second = (grid.ravel() for grid in np.meshgrid(counts, counts, indexing="ij"))
    least, most = region_corners((first, second), 40, level)
    missed = ~np.any((least <= rates[0]) & (most >= rates[1]), axis=0)
    chances = binom.pmf(first, 40, rates[0]) * binom.pmf(second, 40, rates[1])
    assert 0 < chances[missed].sum() <= level


def test_a_region_is_sharper_than_two_separate_bounds() -> None:
    """At the same level it rules out more of what needs both counts to be unlikely."""
    hits, level = (np.array([700]), np.array([300])), 1e-3
    least, most = region_corners(hits, 1000, level)
    together = float(np.min(least[:, 0] - most[:, 0]))
    apart = least_rates(hits[0], 1000, level / 2)[0] - most_rates(hits[1], 1000, level / 2)[0]
    assert apart + 0.02 < together < 0.4


def test_more_corners_enclose_a_smaller_region() -> None:
    hits = (np.array([70]), np.array([30]))
    found = []
    for count in (1, 4, 24, 200):
        least, most = region_corners(hits, 100, 0.01, count)
        found.append(float(np.min(least - 2 * most)))
    assert found == sorted(found)


# --- events and what they prove


def test_hits_are_counted_above_the_threshold_only() -> None:
    scores = np.array([3.0, 1.0, 2.0, 2.0])
    assert count_hits(scores, np.array([0.0, 1.0, 2.0, 3.0])).tolist() == [4, 3, 1, 0]


def test_thresholds_are_as_many_as_the_correction_counts() -> None:
    rng = np.random.default_rng(0)
    placed = place_thresholds(1 + rng.normal(size=500), rng.normal(size=500))
    assert placed.size == THRESHOLDS
    assert np.all(np.diff(placed) >= 0)


@pytest.mark.parametrize("turned", [False, True])
def test_both_orders_of_the_two_laws_are_tested(turned: bool) -> None:
    """Few misses refute a claim as well as few false alarms do."""
    table = ClaimTable.of(gaussian_claim(), 1000)
    hits = (np.array([100]), np.array([0]))
    if turned:
        hits = (1000 - hits[1], 1000 - hits[0])
    corners = region_corners(hits, 1000, 1e-3)
    point = judge(np.array([0.0]), hits, corners, table)[0]
    assert point.violated
    assert point.direction == ("neighbor_first" if turned else "data_first")
    least, most = corners[0][:, 0], corners[1][:, 0]
    first, second = (1 - most, 1 - least) if turned else (least, most)
    assert point.proved_delta == pytest.approx(np.min(first - math.exp(point.epsilon) * second))
    assert point.claimed_delta == pytest.approx(gaussian_claim().delta(point.epsilon), rel=1e-6)


def test_a_proved_epsilon_is_the_one_that_the_rates_need() -> None:
    corners = region_corners((np.array([900]), np.array([30])), 1000, 1e-3)
    found = proved_epsilon(corners, 1e-5)
    assert found > 0
    assert np.min(corners[0] - math.exp(found) * corners[1]) == pytest.approx(1e-5, abs=1e-12)
    silent = region_corners((np.array([500]), np.array([500])), 1000, 1e-3)
    assert proved_epsilon(silent, 1e-5) == 0


def test_the_headline_is_tested_even_if_the_curve_says_more() -> None:
    claim = gaussian_claim(1.0)
    altered = replace(claim, claim=Claim(0.5, claim.claimed_delta))
    assert not audit(1.0, seed=1).violated
    report = audit(1.0, seed=1, claim=altered)
    assert report.violated
    assert report.worst.epsilon == 0.5
    assert report.epsilon_lower_bound > 0.5


# --- the error rate and the power


def test_a_right_trainer_is_rejected_no_more_often_than_stated() -> None:
    """The trainer attains its claim exactly, so that nothing but the correction protects it."""
    found = [audit(1.0, seed=seed, runs=1000) for seed in range(200)]
    # At 95 percent at most 10 of 200 are expected; the correction is on the safe side.
    assert sum(report.violated for report in found) <= 10
    true_epsilon = gaussian_claim().epsilon(1e-5)
    assert sum(report.epsilon_lower_bound > true_epsilon for report in found) <= 10


def test_a_low_confidence_rejects_more_and_still_keeps_its_word() -> None:
    found = [audit(1.0, seed=seed, runs=1000, confidence=0.5).violated for seed in range(200)]
    assert 1 <= sum(found) <= 100


def test_power_is_as_simulated() -> None:
    claim, runs = gaussian_claim(), 2000
    tested = 1500
    leak = detectable_leak(ClaimTable.of(claim, tested), tested, 0.95)
    assert leak.allowed_mu == pytest.approx(1.0, rel=1e-3)
    assert leak.detectable_mu is not None
    caught = [audit(leak.detectable_mu, seed=seed, runs=runs).violated for seed in range(100)]
    # 0.8 is wanted; thresholds and score are fitted here and known there.
    assert 65 <= sum(caught) <= 95


def test_more_runs_find_smaller_leaks() -> None:
    found = []
    for tested in (300, 3000, 30_000):
        leak = detectable_leak(ClaimTable.of(gaussian_claim(), tested), tested, 0.95)
        assert leak.noise_shortfall is not None
        found.append(leak.noise_shortfall)
    assert found[0] > 2 * found[1] > 4 * found[2] > 0


def test_power_grows_with_the_leak_and_shrinks_with_confidence() -> None:
    table = ClaimTable.of(gaussian_claim(), 1000)
    grown = [SimulatedAudits.of(table, 1000, 0.95).power(mu) for mu in (1.0, 1.2, 1.4, 2.0)]
    assert grown == sorted(grown)
    assert grown[0] < 0.05
    assert grown[-1] == 1.0
    strict, lax = (SimulatedAudits.of(table, 1000, level).power(1.2) for level in (0.999, 0.9))
    assert strict < lax


def test_a_claim_too_weak_to_refute_says_so() -> None:
    report = audit(1.0, seed=0, runs=100, claim=gaussian_claim(12.0))
    assert report.power.detectable_mu is None
    assert report.power.noise_shortfall is None
    assert "no Gaussian leak would have been found" in str(report)


# --- scores


def test_the_discriminant_uses_correlations() -> None:
    """A shift hidden by common noise shows when the common part is taken out."""
    rng = np.random.default_rng(5)

    def outputs(shift: float) -> FloatArray:
        common = 10 * rng.normal(size=(400, 1))
        return np.hstack([common + 0.1 * rng.normal(size=(400, 1)) + shift, common])

    data, neighbor = outputs(0.5), outputs(0.0)
    score = fit_score(data, neighbor, direction=np.array([1.0, 0.0]))
    assert score.name == "linear discriminant"
    assert np.mean(score(outputs(0.5)) > np.max(score(neighbor[200:]))) > 0.9


def test_a_given_direction_wins_where_the_discriminant_overfits() -> None:
    rng = np.random.default_rng(6)
    shift = np.r_[0.8, np.zeros(199)]
    data, neighbor = rng.normal(size=(60, 200)) + shift, rng.normal(size=(60, 200))
    assert fit_score(data, neighbor, direction=shift).name == "given direction"
    assert fit_score(data, neighbor).name == "linear discriminant"


def test_a_score_is_turned_upwards() -> None:
    report = audit(3.0, seed=2, statistic=lambda outputs: -outputs[:, 0])
    assert report.statistic == "given statistic"
    assert report.violated


def test_constant_outputs_that_differ_are_told_apart_and_equal_ones_are_not() -> None:
    def constant(record: float) -> list[float]:
        return [record, 5.0]

    claim = gaussian_claim()
    report = audit_trainer(constant, claim, 1.0, 0.0, runs=200, seed=0)
    assert report.violated
    assert report.worst.hits_data - report.worst.hits_neighbor == report.tested
    same = audit_trainer(constant, claim, 1.0, 1.0, runs=200, seed=0)
    assert not same.violated
    assert same.epsilon_lower_bound == 0


# --- the report


def test_the_same_seed_gives_the_same_report() -> None:
    assert audit(1.2, seed=7) == audit(1.2, seed=7)
    assert audit(1.2, seed=7) != audit(1.2, seed=8)


def test_an_absent_seed_is_drawn_and_told() -> None:
    first = audit_trainer(one_step, gaussian_claim(), 1.0, 0.0, runs=200, at_once=200)
    again = audit_trainer(
        one_step, gaussian_claim(), 1.0, 0.0, runs=200, at_once=200, seed=first.seed
    )
    assert first == again


def test_a_report_survives_json() -> None:
    report = audit(1.5, seed=3)
    assert AuditReport.from_json(report.to_json()) == report
    found = json.loads(report.to_json())["content"]
    assert found["verdict"] == report.verdict == "violated"
    assert found["runs"] == found["fitted"] + found["tested"] == 2000
    assert len(found["points"]) == THRESHOLDS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "lacks 'kind'"),
        ({"format": 99}, "of format 99"),
        ({"verdict": "not violated"}, "was altered"),
        ({"points": [{"threshold": 1.0}]}, "not a whole audit report"),
    ],
)
def test_a_wrong_report_is_refused(change: dict[str, Any], message: str) -> None:
    found = forged(audit(1.5, seed=3).to_dict(), **change)
    with pytest.raises(InvalidInput, match=message):
        AuditReport.from_json(json.dumps(found))
    with pytest.raises(InvalidInput, match="is no JSON"):
        AuditReport.from_json("{")
    if not change.keys() & {"kind", "format"}:
        del found["content"]["seed"]
        with pytest.raises(InvalidInput, match="it lacks 'seed'"):
            AuditReport.from_json(json.dumps(resealed(found)))


def test_the_text_names_verdict_counts_power_and_what_is_an_estimate() -> None:
    report = audit(1.5, seed=3)
    text = str(report)
    assert text.startswith("violated: claimed (4.37718, 1e-05)-DP, 2000 runs on each")
    assert f"{report.worst.hits_data} and {report.worst.hits_neighbor} of 1500" in text
    assert "estimate (no bound): " in text
    assert "with probability 0.8 (simulated for Gaussian scores)" in text
    with pytest.raises(FrozenInstanceError, match="seed"):
        report.seed = 1  # type: ignore[misc]


def test_the_estimate_is_near_the_truth_and_the_bound_below_it() -> None:
    report = audit(2.0, seed=4, runs=40_000)
    assert report.gdp_estimate == pytest.approx(2.0, abs=0.05)
    assert 0 < report.epsilon_lower_bound < gaussian_claim(2.0).epsilon(1e-5)


def test_a_composition_can_be_audited() -> None:
    """Two releases claim sqrt(2)-GDP; noise shared between them cancels in their difference."""
    both = compose([gaussian_claim(), gaussian_claim()], delta=1e-5)

    def train(record: float, rng: np.random.Generator, count: int, shared: bool) -> FloatArray:
        noise = rng.normal(size=(count, 2))
        if shared:
            noise[:, 1] = noise[:, 0]
        return noise + record * np.array([1.0, -1.0])

    for shared in (False, True):
        report = audit_trainer(
            lambda record, rng, count, shared=shared: train(record, rng, count, shared),
            both,
            1.0,
            0.0,
            runs=2000,
            seed=1,
            at_once=2000,
        )
        assert report.violated is shared


# --- how trainers are called


def test_every_way_to_call_a_trainer() -> None:
    claim = gaussian_claim()
    generator = np.random.default_rng(9)
    reports = [
        audit_trainer(lambda x, rng: x + rng.normal(), claim, 3.0, 0.0, runs=300, seed=1),
        audit_trainer(lambda x: x + generator.normal(), claim, 3.0, 0.0, runs=300, seed=1),
        audit_trainer(one_step, claim, 3.0, 0.0, runs=300, seed=1, at_once=70),
    ]
    assert all(report.violated for report in reports)


def test_each_run_has_a_generator_of_its_own() -> None:
    seen: list[float] = []

    def train(record: float, rng: np.random.Generator) -> float:
        seen.append(float(rng.normal()))
        return record + seen[-1]

    audit_trainer(train, gaussian_claim(), 1.0, 0.0, runs=100, seed=0)
    assert len(set(seen)) == len(seen) == 200


def test_progress_counts_runs_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplateau.ground.progress.SECONDS_BETWEEN", 0.0)
    calls: list[tuple[int, int]] = []
    audit_trainer(
        one_step,
        gaussian_claim(),
        1.0,
        0.0,
        runs=250,
        seed=0,
        at_once=100,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(done, 500) for done in (100, 200, 250, 350, 450, 500)]


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (one_step, {"runs": 99}, "runs must be at least 100; got 99"),
        (one_step, {"confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
        (one_step, {"seed": -1}, "seed must be at least 0"),
        (one_step, {"at_once": 0}, "at_once must be at least 1"),
        (lambda x, rng, count: "weights", {}, "must return numbers; run 0 returned str"),
        (lambda x, rng, count: np.zeros((2, 1)), {}, r"the shape is \(2, 1\)"),
        (lambda x, rng, count: np.zeros((count, 0)), {}, "returned nothing in run 0"),
        (lambda x, rng, count: np.full((count, 1), np.nan), {}, "not finite in run 0"),
        (lambda x, rng, count: np.zeros((count, 1 + int(x))), {}, "outputs must have one size"),
        (one_step, {"direction": np.ones(3)}, "direction has 3 coordinates"),
        (one_step, {"direction": np.zeros(1)}, "finite and not zero"),
        (one_step, {"statistic": lambda outputs: outputs}, "one number per run"),
        (one_step, {"statistic": lambda outputs: outputs[:, 0] / 0}, "score that is not finite"),
    ],
)
def test_bad_requests_are_refused(train: Any, options: dict[str, Any], message: str) -> None:
    given_ = {"runs": 100, "seed": 0, "at_once": 100, **options}
    with np.errstate(all="ignore"), pytest.raises(InvalidInput, match=message):
        audit_trainer(train, gaussian_claim(), 1.0, 0.0, **given_)


def test_outputs_that_change_their_size_are_refused() -> None:
    def train(record: float, rng: np.random.Generator) -> FloatArray:
        return np.zeros(int(rng.integers(1, 3)))

    with pytest.raises(InvalidInput, match=r"returned \[1, 2\]"):
        audit_trainer(train, gaussian_claim(), 1.0, 0.0, runs=100, seed=0)


# --- neighboring data sets


def test_pairs_differ_in_one_record_of_full_length() -> None:
    run = CyclicSGD(n=10, batch_size=4, steps=5, noise_multiplier=1.0, loss=LOSS, release="last")
    pair = worst_case_pair(run, dimension=3)
    # Step 5 of batches 0 1 2 0 1: the record sits in batch 1.
    assert pair.record == 4
    assert np.flatnonzero(np.any(pair.data != pair.neighbor, axis=1)).tolist() == [4]
    assert np.linalg.norm(pair.data[4]) == 1.0
    assert not pair.neighbor.any()
    swapped = worst_case_pair(run.replace(neighbors="replace"), dimension=3)
    assert np.array_equal(swapped.neighbor[4], -swapped.data[4])


def test_pairs_of_a_single_pass_put_the_record_last() -> None:
    run = OnePassSGD(n=9, batch_size=2, noise_std=1.0, loss=LOSS, release="last")
    assert worst_case_pair(run).record == 8
    assert worst_case_pair(run, record=3).record == 3


def test_pairs_that_cannot_be_made_are_refused() -> None:
    plain = NoisySGD(n=5, batch_size=1, steps=2, noise_std=1.0, release="all")
    with pytest.raises(NotApplicable, match="needs loss=LossGeometry"):
        worst_case_pair(plain)
    assert worst_case_pair(plain.replace(noise_multiplier=2.0)).data.sum() == 1.0
    run = plain.replace(loss=LOSS, dimension=2)
    with pytest.raises(InvalidInput, match="record=5 but the run has 5 records"):
        worst_case_pair(run, record=5)
    with pytest.raises(InvalidInput, match="dimension=3, but the run has 2"):
        worst_case_pair(run, dimension=3)


# -- processes and files --------------------------------------------------------------------------


def one_run(record: float, rng: np.random.Generator) -> float:
    return record + float(rng.normal())


def test_processes_change_nothing() -> None:
    claim = certify(NoisyGD(n=1, steps=1, noise_multiplier=1.0, release="last"), delta=1e-5)
    reports = [
        audit_trainer(one_run, claim, 1.0, 0.0, runs=200, seed=5, jobs=jobs).to_dict()["content"]
        for jobs in (1, 2)
    ]
    assert reports[0] == reports[1]


def test_an_audit_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dplateau.ground.progress.SECONDS_BETWEEN", 0.0)
    claim = certify(NoisyGD(n=1, steps=1, noise_multiplier=1.0, release="last"), delta=1e-5)
    made: list[int] = []

    def train(record: float, rng: np.random.Generator, count: int) -> Any:
        made.append(count)
        if len(made) == 7:
            raise KeyboardInterrupt
        return record + rng.normal(size=(count, 1))

    def audit(state: Path | None, **more: Any) -> Any:
        options = {"runs": 1000, "at_once": 100} | more
        return audit_trainer(train, claim, 1.0, 0.0, state=state, **options)

    place, told = tmp_path / "runs.jsonl", []
    with pytest.raises(KeyboardInterrupt):
        audit(place, seed=3)
    assert len(made) == 7
    with place.open("a") as file:
        file.write('{"call": [0, 6, 600, 10')  # cut off
    resumed = audit(place, progress=lambda done, total: told.append((done, total)))
    assert len(made) == 7 + 14
    assert told[:2] == [(600, 2000), (700, 2000)]  # what is on file counts
    assert told[-1] == (2000, 2000)
    assert resumed.seed == 3
    assert resumed.points == audit(None, seed=3).points
    calls = len(made)
    assert audit(place).points == resumed.points
    assert len(made) == calls
    with pytest.raises(InvalidInput, match="holds runs of another audit"):
        audit(place, runs=1200)
