"""Claims over lower bounds: both numbers, the ratio, and the problem that anyone can replay."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from dplateau import Ball, LossGeometry, NoisyGD, NoisySGD, certify
from dplateau.audit import lower_epsilon, tightness_over_steps
from dplateau.audit.against_claims import Tightness, tightness
from dplateau.audit.problems import LowerBound, WalkProblem

SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
OPTIONS: dict[str, Any] = {"n": 100, "learning_rate": 1.0, "loss": SMOOTH, "release": "last"}
RIDGE = NoisyGD(**OPTIONS, l2=0.05, steps=200, noise_multiplier=10.0)
WALLED = NoisyGD(**OPTIONS, steps=60, noise_multiplier=10.0, domain=Ball(0.5))


def test_ridge_on_the_full_batch_is_exact() -> None:
    found = tightness(certify(RIDGE, 1e-5))
    assert 1.0 <= found.ratio < 1 + 1e-6
    assert found.bound == "gd_contraction"
    assert "(ratio 1.000)" in str(found)


def test_both_numbers_and_a_problem_that_replays() -> None:
    found = tightness(certify(WALLED, 1e-5), effort="quick")
    record = json.loads(json.dumps(found.to_dict()))
    problem = WalkProblem.from_dict(record["lower"]["problem"])
    assert problem == found.problem
    assert lower_epsilon(problem, record["delta"]).epsilon == pytest.approx(
        record["lower"]["epsilon"], rel=1e-11
    )
    assert record["ratio"] == pytest.approx(record["upper"] / record["lower"]["epsilon"])
    assert record["ratio"] > 1
    assert tightness(certify(WALLED, 1e-5), effort="normal").ratio <= found.ratio


def test_nothing_needed_is_an_infinite_ratio() -> None:
    problem = WalkProblem(steps=1, contraction=1.0, record_step=1.0, noise_std=1.0)
    nothing = LowerBound(epsilon=0.0, delta=1e-5, problem=problem, event=None)
    found = Tightness(RIDGE, 1e-5, "gd_contraction", 1.0, nothing)
    assert math.isinf(found.ratio)
    assert found.to_dict()["ratio"] is None


def test_the_limit_of_many_records_is_only_taken_on_request() -> None:
    run = NoisySGD(n=1000, batch_size=50, steps=200, learning_rate=1.0, noise_multiplier=1.0,
                   loss=SMOOTH, domain=Ball(0.1), release="last")  # fmt: skip
    certificate = certify(run, 1e-5)
    strict = tightness(certificate, effort="quick")
    limit = tightness(certificate, effort="quick", limit=True)
    assert (strict.limit, limit.limit) == (False, True)
    assert strict.ratio > limit.ratio > 1


def test_over_steps() -> None:
    counts = [1, 10, 100]
    curve = tightness_over_steps(WALLED, 1e-5, counts)
    assert curve.steps.tolist() == counts
    assert np.all(curve.ratio >= 1)
    assert curve.ratio[0] < 1.001  # one step: nothing is hidden
    for count, upper, lower, problem in zip(
        counts, curve.upper, curve.lower, curve.problems, strict=True
    ):
        claim = certify(WALLED.replace(steps=count), 1e-5).claimed_epsilon
        assert upper == pytest.approx(claim, rel=1e-12)
        assert problem is not None
        assert problem.steps == count
        assert lower_epsilon(problem, 1e-5).epsilon == pytest.approx(lower, rel=1e-11)
    assert len(curve.bounds) == 3


def test_runs_without_an_exact_problem_have_no_lower_curve() -> None:
    curve = tightness_over_steps(RIDGE.replace(momentum=0.5, domain=Ball(9.0)), 1e-5, [1, 5])
    assert curve.lower.tolist() == [0.0, 0.0]
    assert np.all(np.isinf(curve.ratio))
    assert curve.problems == (None, None)
