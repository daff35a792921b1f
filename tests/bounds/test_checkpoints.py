"""Bounds between checkpoints: numbers computed elsewhere, their ends, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplateau import (
    Ball,
    Certificate,
    Checkpoints,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    OnePassSGD,
    calibrate,
    certify,
    epsilon_over_steps,
    verify,
)
from dplateau.algorithms import Run
from dplateau.bounds import checkpoints
from dplateau.bounds.checkpoints import stretches_of
from dplateau.bounds.registry import bound_named
from dplateau.curves import GaussianCurve

SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.1)
FULL: dict[str, Any] = {"n": 10, "learning_rate": 0.5, "noise_std": 1.0, "loss": SMOOTH}
SAMPLED = NoisySGD(
    n=10**9,
    sampling_rate=0.01,
    steps=20_000,
    learning_rate=0.5,
    l2=0.02,
    noise_multiplier=2.0,
    loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
    release="last",
)
ORDERED = CyclicSGD(
    n=1000,
    batch_size=25,
    epochs=10,
    learning_rate=0.5,
    l2=2e-3,
    noise_std=0.06,
    loss=SMOOTH,
    release="last",
)


@pytest.mark.parametrize(
    ("l2", "steps", "every", "squares", "epsilon"),
    [(0.1, 100, 10, 0.97885, 4.323369), (0.02, 10_000, 1000, 19.89828, 28.274540)],
)
def test_full_batch_numbers(
    l2: float, steps: int, every: int, squares: float, epsilon: float
) -> None:
    run = NoisyGD(**FULL, l2=l2, steps=steps, release=Checkpoints(every=every))
    found = certify(run, 1e-5)
    assert found.bound == "checkpoints_full_batch"
    assert isinstance(found.curve, GaussianCurve)
    assert found.curve.mu**2 == pytest.approx(squares, rel=1e-5)
    assert found.claimed_epsilon == pytest.approx(epsilon, abs=6e-7)


@pytest.mark.parametrize(
    ("releases", "epsilon"),
    [(1, 0.252), (2, 0.360), (5, 0.583), (10, 0.841), (40, 1.774), (200, 2.886), (20_000, 3.190)],
)
def test_poisson_numbers(releases: int, epsilon: float) -> None:
    """The numbers are estimates: a claim rounds up, by about a percent."""
    run = SAMPLED.replace(release=Checkpoints(every=20_000 // releases))
    found = certify(run, 1e-5).claimed_epsilon
    assert epsilon <= found <= 1.013 * epsilon


RUNS: dict[str, Run] = {
    "full batch": NoisyGD(**FULL, l2=0.1, steps=60, release="last"),
    "full batch, walls": NoisyGD(**FULL, steps=60, domain=Ball(0.05), release="last"),
    "Poisson": SAMPLED.replace(n=5000, steps=300),
    "Poisson, replace": SAMPLED.replace(n=5000, steps=300, neighbors="replace"),
    "Poisson, walls": SAMPLED.replace(n=5000, steps=300, l2=0.0, domain=Ball(0.02)),
    "cyclic": ORDERED,
    "shuffled once": ORDERED.replace(order="shuffle_once"),
    "reshuffled": ORDERED.replace(order="reshuffle"),
    "one pass": OnePassSGD(
        **{**FULL, "n": 40, "learning_rate": [0.5] * 30 + [0.05] * 10}, l2=0.1, release="last"
    ),
}
# Plans are searched for, and laws of uses rounded up on grids of their own.
SEARCH = 1 + 5e-3


@pytest.mark.parametrize("name", RUNS)
def test_every_claim_lies_between_the_last_iterate_and_all(name: str) -> None:
    run = RUNS[name]
    last, shown = (
        certify(run.replace(release=end), 1e-5).claimed_epsilon for end in ("last", "all")
    )
    for every in (7, run.steps // 10, run.steps // 2):
        run = run.replace(release=Checkpoints(every=every))
        found = certify(run, 1e-5).claimed_epsilon
        assert last <= found * SEARCH
        assert found <= shown * (1 + 1e-9)


@pytest.mark.parametrize("name", RUNS)
def test_one_release_is_the_last_iterate(name: str) -> None:
    run = RUNS[name]
    alone = certify(run.replace(release=Checkpoints(last=1)), 1e-5).claimed_epsilon
    last = certify(run.replace(release="last"), 1e-5).claimed_epsilon
    if name == "reshuffled":  # the average over the last epoch has no counterpart here
        assert last < alone
    else:
        assert alone == pytest.approx(last, rel=1e-9)


def test_more_releases_between_the_same_ones_cost_more() -> None:
    """A release that is added to others, wherever it is, never lowers the claim."""
    run = NoisyGD(**FULL, l2=0.1, steps=60, release="last")
    claims = [
        certify(run.replace(release=Checkpoints(at=times)), 1e-5).claimed_epsilon
        for times in ([30], [20, 30], [20, 30, 45], [1, 20, 30, 45, 59])
    ]
    assert claims == sorted(claims)


@pytest.mark.parametrize("name", ["full batch", "Poisson", "cyclic", "shuffled once", "one pass"])
def test_an_average_costs_no_more_than_its_iterates(name: str) -> None:
    run = RUNS[name]
    averaged = certify(run.replace(average_last=6), 1e-5)
    iterates = certify(run.replace(release=Checkpoints(last=6)), 1e-5)
    assert averaged.claimed_epsilon == iterates.claimed_epsilon
    assert averaged.verify().ok
    if name != "one pass":  # whose last record is as exposed in its own step as it ever is
        released = certify(run.replace(average_last=6, release="all"), 1e-5)
        assert averaged.claimed_epsilon < released.claimed_epsilon


@pytest.mark.parametrize(("k", "ratio"), [(5, 1.004), (50, 1.047), (200, 1.062)])
def test_averages_are_nearly_tight(k: int, ratio: float) -> None:
    """Against the exact mu of the mean of the last k iterates of a linear chain."""
    c, steps = 0.98, 5000
    run = NoisyGD(**FULL, l2=(1 - c) / 0.5, steps=steps, average_last=k, release="last")
    found = certify(run, 1e-5).curve
    assert isinstance(found, GaussianCurve)
    lags = np.arange(steps)
    # The mean of w_{T-k+1}, .., w_T weighs the step of lag l by (1/k) sum over its later iterates.
    weights = (c ** np.maximum(lags - k + 1, 0) - c ** (lags + 1.0)) / (1 - c) / k
    exact = 0.1 * weights.sum() / math.sqrt((weights**2).sum())
    assert found.mu / exact == pytest.approx(ratio, abs=6e-4)


def test_momentum_is_left_to_composition() -> None:
    run = NoisyGD(**FULL, l2=0.1, steps=60, momentum=0.9, release=Checkpoints(every=10))
    assert certify(run, 1e-5).bound == "gdp_composition"
    reason = bound_named("checkpoints_full_batch").refusal(run)
    assert reason == "is about plain steps; yours has momentum (composition covers it)"


def test_stretches_are_told_apart_by_where_they_begin() -> None:
    run = ORDERED.replace(release=Checkpoints(every=30))
    found = stretches_of(run, run.batches_per_epoch)
    assert [(one.start, one.length, one.count) for one in found] == [
        (0, 30, 4),
        (30, 30, 3),
        (60, 30, 3),
        (90, 30, 3),
        (390, 10, 1),
    ]
    scheduled = run.replace(noise_std=[0.06] * 200 + [0.08] * 200)
    assert len(stretches_of(scheduled)) == 14


def test_very_many_different_stretches_are_left_to_composition() -> None:
    rates = np.linspace(0.5, 0.4, 5000)
    run = NoisyGD(
        **{**FULL, "learning_rate": rates}, l2=0.1, steps=5000, release=Checkpoints(every=2)
    )
    reason = bound_named("checkpoints_full_batch").refusal(run)
    assert reason is not None
    assert "at most 2000 different stretches" in reason


def test_more_blocks_than_are_verified_in_seconds_are_left_to_composition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = 600
    run = SAMPLED.replace(
        n=5000,
        steps=steps,
        learning_rate=np.linspace(0.5, 0.4, steps),
        release=Checkpoints(every=200),
    )
    bound = bound_named("checkpoints_poisson")
    planned = bound.plan(run, 1e-5)
    each = [len(part["witness"]["edges"]) - 1 for part in planned["stretches"]]
    assert len(each) == 3
    assert min(each) > 1
    # A file with a hundred times as many is not looked at, whatever the blocks are.
    many = [dict(part["witness"]) for part in planned["stretches"]]
    for one in many:
        one["edges"] = [[k, k] for k in range(101 * max(each))]
    rows = [{**part, "witness": one} for part, one in zip(planned["stretches"], many, strict=True)]
    forged = replace(certify(run, 1e-5), bound=bound.name, witness={**planned, "stretches": rows})
    assert verify(forged.to_dict()).checks[-1].name == "laws"
    # Nor does the library claim more than that.
    monkeypatch.setattr(checkpoints, "MOST_LAWS", sum(each) - 1)
    with pytest.raises(NotApplicable, match=rf"{sum(each)} blocks for 3 different stretches"):
        bound.plan(run, 1e-5)


@pytest.mark.parametrize("name", ["full batch", "cyclic"])
def test_noise_is_calibrated_and_certificates_survive(name: str) -> None:
    run = RUNS[name].replace(release=Checkpoints(every=20))
    found = calibrate(run, 1.0, 1e-5).certificate
    assert 0.999 < found.claimed_epsilon <= 1.0
    again = Certificate.from_json(found.to_json())
    assert again.run.release == run.release
    assert again.curve.epsilon(1e-5) == found.curve.epsilon(1e-5)
    assert verify(again.to_dict()).ok


def test_lengths_belong_to_some_checkpoints() -> None:
    run = RUNS["full batch"]
    every = run.replace(release=Checkpoints(every=7))
    line = epsilon_over_steps(every, 1e-5, [1, 20, 60]).epsilon("checkpoints_full_batch")
    singly = [certify(every.replace(steps=n), 1e-5).claimed_epsilon for n in (1, 20, 60)]
    np.testing.assert_allclose(line, singly, rtol=1e-8)
    with pytest.raises(InvalidInput, match="a checkpoint at step 9 of a run of 1 steps"):
        epsilon_over_steps(run.replace(release=Checkpoints(at=[9])), 1e-5, [1, 20])
    with pytest.raises(InvalidInput, match="such checkpoints belong to one length"):
        calibrate(run.replace(release=Checkpoints(last=3)), 1.0, 1e-5, vary="steps")


def test_a_poisson_curve_over_lengths_shares_plans() -> None:
    run = RUNS["Poisson"].replace(release=Checkpoints(every=100))
    line = epsilon_over_steps(run, 1e-5, [50, 300]).epsilon("checkpoints_poisson")
    singly = [certify(run.replace(steps=n), 1e-5).claimed_epsilon for n in (50, 300)]
    np.testing.assert_allclose(line, singly, rtol=5e-3)


def test_witnesses_about_other_stretches_are_refused() -> None:
    run = RUNS["full batch"].replace(release=Checkpoints(every=10))
    bound = bound_named("checkpoints_full_batch")
    witness = dict(bound.plan(run, 1e-5))
    other = run.replace(release=Checkpoints(every=12))
    with pytest.raises(InvalidInput, match="the witness is about another one"):
        bound.curve(other, witness)
    with pytest.raises(InvalidInput, match="stretches are covered by gd_contraction"):
        bound.curve(run, {**witness, "bound": "poisson_blocks"})
    with pytest.raises(InvalidInput, match="has 2 kinds of stretches, not 1"):
        bound.curve(run.replace(release=Checkpoints(every=50)), witness)


def test_levels_that_charge_too_little_are_refused() -> None:
    run = RUNS["shuffled once"].replace(release=Checkpoints(every=90))
    bound = bound_named("checkpoints_shuffled")
    witness = dict(bound.plan(run, 1e-5))
    claim = bound.curve(run, witness).epsilon(1e-5)
    swapped = {**witness, "levels": [*witness["levels"][1:], 0.0]}
    with pytest.raises(InvalidInput, match=r"but only .* is charged that much"):
        bound.curve(run, swapped)
    # All records charged as the worst one is the claim for the worst record.
    worst = {**witness, "levels": [witness["levels"][0]], "shares": [1.0 + 1e-9]}
    ordered = bound_named("checkpoints_ordered")
    most = ordered.curve(run, ordered.plan(run, 1e-5)).epsilon(1e-5)
    assert claim < bound.curve(run, worst).epsilon(1e-5) == pytest.approx(most, rel=1e-6)
