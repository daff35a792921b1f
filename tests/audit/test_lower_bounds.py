"""From descriptions of runs to lower bounds."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from dplateau.algorithms import (
    Ball,
    Box,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
)
from dplateau.audit import lower_bound, lower_epsilon, problems_of
from dplateau.audit.laws import gaussian_epsilon_below
from dplateau.audit.walks import Bernoulli, Once, Periodic, Shuffled
from dplateau.errors import NotApplicable

LINEAR = LossGeometry(lipschitz=1.0, convex=True)


def test_full_batch_meets_the_closed_form_from_below() -> None:
    run = NoisyGD(n=10, steps=100, learning_rate=0.5, l2=0.1, noise_std=1.0, loss=LINEAR,
                  release="last")  # fmt: skip
    found = lower_bound(run, 1e-5).epsilon
    assert found == pytest.approx(2.540615, abs=1e-6)
    doubled = lower_bound(run.replace(neighbors="replace"), 1e-5).epsilon
    assert doubled == pytest.approx(gaussian_epsilon_below(2 * 0.6208132, 1e-5), abs=1e-5)


def test_without_ridge_and_domain_the_unit_is_free() -> None:
    run = NoisyGD(n=10, steps=16, noise_multiplier=8.0, release="last")
    assert lower_bound(run, 1e-5).epsilon == pytest.approx(
        gaussian_epsilon_below(0.5, 1e-5), rel=1e-9
    )


def test_poisson_ridge_gives_the_table() -> None:
    run = NoisySGD(n=1000, batch_size=50, steps=2000, learning_rate=0.5, l2=0.1,
                   noise_multiplier=2.0, loss=LINEAR, release="last")  # fmt: skip
    bound = lower_bound(run, 1e-5)
    assert bound.epsilon == pytest.approx(0.6437, abs=1e-4)
    assert bound.problem.inclusion == Bernoulli(0.05)


def test_scales_are_those_of_the_run() -> None:
    run = NoisyGD(n=20, steps=7, learning_rate=0.5, l2=0.2, noise_std=0.3, domain=Ball(2.0),
                  loss=LossGeometry(lipschitz=3.0, convex=True), release="last")  # fmt: skip
    plain = problems_of(run, 1e-5)[0]
    assert plain.contraction == pytest.approx(0.9)
    assert plain.record_step == pytest.approx(0.5 * 3.0 / 20)
    assert plain.noise_std == pytest.approx(0.15)
    assert (plain.lower, plain.upper, plain.start) == (-2.0, 2.0, 0.0)


def test_every_problem_is_admissible() -> None:
    """No record moves a step by more than record_step, and b of them make the drift."""
    runs = [
        NoisyGD(n=20, steps=50, learning_rate=0.1, noise_std=0.3, domain=Ball(1.0), loss=LINEAR,
                release="last"),
        NoisySGD(n=40, batch_size=4, steps=50, learning_rate=0.1, noise_std=0.5, domain=Ball(1.0),
                 loss=LINEAR, sampling="fixed", neighbors="replace", release="last"),
        CyclicSGD(n=40, batch_size=4, steps=50, learning_rate=0.1, noise_std=0.5,
                  domain=Ball(1.0), loss=LINEAR, release="last"),
    ]  # fmt: skip
    for run in runs:
        for problem in problems_of(run, 1e-5):
            step = np.asarray(problem.record_step)
            assert np.all(np.abs(problem.removed_step) <= step * (1 + 1e-12))
            assert problem.drift == pytest.approx(run.batch_size * np.asarray(problem.removed_step))
        assert len(problems_of(run, 1e-5)) >= 6


def test_poisson_drift_is_only_used_on_request() -> None:
    run = NoisySGD(n=1000, batch_size=20, steps=500, learning_rate=0.1, noise_multiplier=1.0,
                   domain=Ball(0.02), loss=LINEAR, release="last")  # fmt: skip
    assert all(problem.drift == 0 for problem in problems_of(run, 1e-5))
    limits = problems_of(run, 1e-5, limit_drift=True)
    assert any(problem.drift != 0 for problem in limits)
    assert all(problem.removed_step == 0 for problem in limits)
    plain, limit = lower_bound(run, 1e-5), lower_bound(run, 1e-5, limit_drift=True)
    assert limit.epsilon > plain.epsilon > 0


def test_bounded_runs_plateau_and_beat_the_plain_problem() -> None:
    run = NoisyGD(n=100, steps=2000, learning_rate=1.0, iterate_std=1.0, domain=Ball(10.0),
                  loss=LossGeometry(lipschitz=2.0, convex=True), release="last")  # fmt: skip
    bound = lower_bound(run, 1e-5)
    plain = lower_epsilon(problems_of(run, 1e-5)[0], 1e-5)
    assert bound.epsilon > 1.2 * plain.epsilon
    assert lower_bound(run.replace(steps=8000), 1e-5).epsilon == pytest.approx(
        bound.epsilon, rel=1e-3
    )
    # 4 D s / nu^2 is the squared GDP parameter of the plateau (plus a little for whole steps).
    assert bound.epsilon <= gaussian_epsilon_below(math.sqrt(4 * 20 * 0.02) * 1.05, 1e-5)


def test_fixed_size_batches_try_opposite_others() -> None:
    run = NoisySGD(n=10, batch_size=2, steps=20, learning_rate=0.5, l2=0.2, noise_multiplier=2.0,
                   loss=LINEAR, sampling="fixed", neighbors="replace", release="last")  # fmt: skip
    problems = problems_of(run, 1e-5)
    assert len(problems) == 2
    assert problems[1].removed_step == -np.asarray(problems[1].record_step)
    assert lower_bound(run, 1e-5).epsilon > 0


def test_cycles_use_the_last_slot_by_default() -> None:
    run = CyclicSGD(n=40, batch_size=4, steps=25, learning_rate=0.5, l2=0.1, noise_multiplier=2.0,
                    loss=LINEAR, release="last")  # fmt: skip
    assert problems_of(run, 1e-5)[0].inclusion == Periodic(10, 4)
    assert problems_of(run, 1e-5, position=2)[0].inclusion == Periodic(10, 2)
    worst = lower_bound(run, 1e-5).epsilon
    others = [lower_bound(run, 1e-5, position=j).epsilon for j in range(10)]
    assert worst == max(others)
    secret = run.replace(order="shuffle_once")
    assert problems_of(secret, 1e-5)[0].inclusion == Shuffled(10, 1.0)
    assert 0 < lower_bound(secret, 1e-5).epsilon < worst
    uneven = secret.replace(n=38)
    assert problems_of(uneven, 1e-5)[0].inclusion == Shuffled(10, 0.5)


def test_one_pass_and_random_stop() -> None:
    run = OnePassSGD(n=20, learning_rate=0.5, noise_std=1.0, domain=Ball(1.0), loss=LINEAR,
                     release="last")  # fmt: skip
    assert problems_of(run, 1e-5)[0].inclusion == Once(19)
    last, early = lower_bound(run, 1e-3), lower_bound(run, 1e-3, position=10)
    assert last.epsilon > early.epsilon
    stop = OnePassSGD(n=12, learning_rate=0.5, noise_std=1.0, loss=LINEAR, release="random_stop")
    found = lower_bound(stop, 1e-3)
    assert found.problem.random_stop
    assert 0 < found.epsilon < gaussian_epsilon_below(1.0, 1e-3)
    # A record of the first step is the most exposed: one stop in twelve shows it almost bare.
    assert found.problem.inclusion == Once(0)


def test_laplace_one_pass() -> None:
    run = OnePassSGD(n=5, learning_rate=0.5, noise_std=2.0, domain=Box(-0.5, 0.5), loss=LINEAR,
                     noise_kind="laplace", dimension=1, release="last")  # fmt: skip
    found = lower_bound(run, 1e-4)
    assert 0 < found.epsilon <= math.sqrt(2.0) / 2.0


def test_langevin_and_boxes() -> None:
    run = ProjectedLangevin(n=5, steps=30, learning_rate=0.05, domain=Box([0, -1], [3, 1]),
                            loss=LINEAR, release="last")  # fmt: skip
    plain = problems_of(run, 1e-5)[0]
    assert (plain.lower, plain.upper, plain.start) == (0.0, 3.0, 1.5)
    assert plain.noise_std == pytest.approx(math.sqrt(0.1))
    assert lower_bound(run, 1e-5).epsilon > 0


def test_schedules_reach_the_walk() -> None:
    rates = [0.5, 0.5, 0.25, 0.125]
    run = NoisyGD(n=4, steps=4, learning_rate=rates, l2=0.4, noise_std=1.0, loss=LINEAR,
                  release="last")  # fmt: skip
    shift, variance = 0.0, 0.0
    for eta in rates:
        keep = 1 - 0.4 * eta
        shift, variance = keep * shift + eta / 4, keep**2 * variance + eta**2
    expected = gaussian_epsilon_below(shift / math.sqrt(variance), 1e-3)
    assert lower_bound(run, 1e-3).epsilon == pytest.approx(expected, rel=1e-9)
    walled = run.replace(domain=Ball(1.0))
    assert lower_bound(walled, 1e-3).epsilon > 0


def test_refusals() -> None:
    base = NoisyGD(n=4, steps=4, learning_rate=0.5, l2=0.4, noise_std=1.0, loss=LINEAR,
                   release="last")  # fmt: skip
    curved = LossGeometry(lipschitz=1.0, convex=True, smoothness=2.0, strong_convexity=0.5)
    with pytest.raises(NotApplicable, match="not strongly convex"):
        lower_bound(base.replace(loss=curved), 1e-5)
    pulled = LossGeometry(lipschitz=1.0, convex=False, dissipativity=(0.1, 1.0))
    with pytest.raises(NotApplicable, match="not dissipative"):
        lower_bound(base.replace(loss=pulled, domain=Ball(3.0)), 1e-5)
    with pytest.raises(NotApplicable, match="oscillates"):
        lower_bound(base.replace(l2=3.0), 1e-5)


def test_classes_without_linear_losses_get_quadratic_ones() -> None:
    run = NoisyGD(n=20, steps=50, learning_rate=0.5, noise_std=0.1, domain=Ball(0.5),
                  loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=2.0,
                                    strong_convexity=0.5), release="last")  # fmt: skip
    plain = problems_of(run, 1e-5)[0]
    assert plain.record_pull == pytest.approx(0.5 * 0.5 / 20)
    assert (plain.pull, plain.removed_pull) == pytest.approx((0.25, 0.25 / 20))
    # The record's gradient m x + slope reaches L at the end of the domain.
    assert plain.record_step == pytest.approx(0.5 * (1.0 - 0.5 * 0.5) / 20)
    # As a ridge outside of the losses the same curvature leaves the record its whole slope.
    ridge = run.replace(loss=LINEAR, l2=0.5)
    assert 0 < lower_epsilon(plain, 1e-5).epsilon < lower_epsilon(
        problems_of(ridge, 1e-5)[0], 1e-5
    ).epsilon  # fmt: skip


def test_wide_domains_are_no_longer_refused() -> None:
    run = NoisyGD(n=1000, steps=300, learning_rate=1.0, iterate_std=0.01, domain=Ball(4.0),
                  loss=LINEAR, release="last")  # fmt: skip
    assert lower_bound(run, 1e-5).epsilon > 0


def test_importing_the_room_is_cheap() -> None:
    code = "import sys, dplateau.audit; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_names_are_refused() -> None:
    import dplateau.audit

    with pytest.raises(AttributeError, match="attribute nothing"):
        dplateau.audit.nothing  # noqa: B018
