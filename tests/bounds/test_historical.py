"""Statements as they were published: their numbers, their conditions, and what they are not."""

from __future__ import annotations

import json
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from dplateau import Ball, LossGeometry, NoisyGD, NoisySGD, certify, compare
from dplateau.algorithms import Run
from dplateau.bounds.historical import (
    BravoNonconvex,
    BravoWeaklySmooth,
    burn_in,
    nonconvex_steps,
    order_limit,
    sampled_divergence,
    weakly_smooth_steps,
)
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.bounds.registry import HISTORICAL as REGISTERED
from dplateau.cli import main
from dplateau.curves import ClosedRecursionCurve, RenyiCurve, sampled_gaussian_rdp
from dplateau.errors import NotApplicable
from dplateau.numerics.normal import gaussian_delta

HISTORICAL = (
    "at_convex_rdp",
    "at_convex_closed",
    "at_strongly_convex_rdp",
    "at_strongly_convex_closed",
    "bravo_weakly_smooth",
    "bravo_nonconvex",
)
SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.2)
# L = 1, b sigma / L = 20, sigma = .4, D = 2, eta = 1/2.
FIXED: dict[str, Any] = {
    "n": 1000,
    "batch_size": 50,
    "steps": 5000,
    "learning_rate": 0.5,
    "domain": Ball(1.0),
    "noise_multiplier": 20.0,
    "loss": SMOOTH,
    "neighbors": "replace",
    "sampling": "fixed",
    "release": "last",
}
POISSON = {**FIXED, "sampling": "poisson"}
HOLDER = LossGeometry(lipschitz=1.0, convex=True, holder=(0.5, 0.1))
NONCONVEX = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.2)


def curve(name: str, run: Run) -> RenyiCurve:
    bound = bound_named(name)
    assert bound.refusal(run) is None
    found = bound.curve(run, bound.plan(run, 1e-5))
    assert isinstance(found, RenyiCurve)
    return found


def divergence(order: float, rate: float, distance: float) -> Any:
    """Return the larger order of the sampled Gaussian's divergence by adaptive quadrature."""

    def integrand(x: Any) -> Any:
        ratio = 1 - rate + rate * mp.exp(distance * x - distance**2 / 2)
        return ratio**order * mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)

    moment = mp.quad(integrand, [-30, 0, order * distance, order * distance + 30])
    return mp.log(moment) / (order - 1)


# --- Altschuler and Talwar -----------------------------------------------------------------------


def test_the_example_of_two_records_is_charged_in_the_larger_order() -> None:
    """Slopes +L and -L against +L twice, one drawn: order 8 needs 15.21, the smaller order .574."""
    run = NoisySGD(**{**FIXED, "n": 2, "batch_size": 1, "steps": 1, "noise_multiplier": 1.0})
    exact = float(divergence(8, 0.5, 2.0))
    assert exact == pytest.approx(15.21, abs=5e-3)
    found = curve("at_convex_rdp", run)
    assert exact * (1 - 1e-9) <= found.rdp(8.0) <= exact * 1.02
    at = found.orders.index(min(found.orders, key=lambda order: abs(order - 8)))
    exact = float(divergence(found.orders[at], 0.5, 2.0))
    assert found.values[at] == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("l2", [0.0, 0.02])
def test_the_best_step_and_split_are_found(l2: float) -> None:
    """(3.6) and (5.3) at every R and many splits, by other code; c = .99 with the ridge."""
    run = NoisySGD(**{**FIXED, "noise_multiplier": 6.0, "l2": l2})
    found = curve("at_strongly_convex_rdp" if l2 else "at_convex_rdp", run)
    width = run.diameter / run.iterate_std
    steps = np.arange(1.0, 5001.0)
    absorbed = (0.99**steps * width) ** 2 if l2 else width**2 / steps
    for at in (12, 30, 36):
        order = found.orders[at]
        least = 5000 * float(divergence(order, 0.05, 2 / 6))
        for share in (0.2, 0.35, 0.5, 0.65, 0.8, 0.9):
            sampled = float(divergence(order, 0.05, 2 / 6 / math.sqrt(share)))
            total = steps * sampled + order / (2 * (1 - share)) * absorbed
            least = min(least, float(total.min()))
        assert found.values[at] == pytest.approx(least, rel=2e-2)


def test_the_closed_form_by_hand() -> None:
    """R = D n / (4 eta L) = 1000: 2 (16 * 1000 / (10^6 .16) + 4 / (.25 * .16 * 1000)) = .4."""
    run = NoisySGD(**FIXED)
    found = curve("at_convex_closed", run)
    assert found.rdp(2.0) == pytest.approx(0.4, rel=1e-3)
    assert found.rdp(2.0) >= 0.4 * (1 - 1e-12)
    # Fewer steps than that: composition with all the noise, 8 alpha L^2 T / (n sigma)^2.
    short = curve("at_convex_closed", run.replace(steps=100))
    assert short.rdp(2.0) == pytest.approx(8 * 2 * 100 / (1000 * 0.4) ** 2, rel=1e-3)
    assert burn_in(run) == 4000


def test_the_closed_form_under_strong_convexity_by_hand() -> None:
    """c = .9: 32 (R / 10^6 + .81^R 16 / 16) / .16 is least at R = 58 or its neighbors."""
    run = NoisySGD(**{**FIXED, "l2": 0.2})
    steps = np.arange(1, 200)
    least = 2 / 0.16 * np.min(16 * steps / 1e6 + 0.81**steps * 4 / 0.25)
    found = curve("at_strongly_convex_closed", run).rdp(2.0)
    assert least * (1 - 1e-12) <= found <= least * 1.001


def test_large_batches_ignore_sampling() -> None:
    """From n / 5 on the order has no limit, and S = 2 alpha (L / (b sigma_2))^2."""
    run = NoisySGD(**{**FIXED, "batch_size": 200, "steps": 3})
    found = curve("at_convex_closed", run)
    assert found.orders[-1] > 1e4
    assert found.rdp(2.0) == pytest.approx(3 * 2 * (2 / 20) ** 2 / 2, rel=1e-3)


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.19])
@pytest.mark.parametrize("noise", [4.0, 7.5, 40.0])
def test_the_lemma_bounds_the_larger_order_up_to_its_limit(rate: float, noise: float) -> None:
    limit = order_limit(rate, noise)
    assert limit > 1
    orders = np.unique(np.r_[np.geomspace(1.01, limit, 12), math.floor(limit)])
    orders = orders[(orders > 1) & ((orders < 60) | (orders == np.floor(orders)))]
    exact = sampled_gaussian_rdp(orders, rate, 1 / noise)
    assert np.all(exact <= sampled_divergence(orders, rate, noise))
    # At the limit one of the two conditions is an equality, in thirty digits.
    with mp.workdps(30):
        a, q, s = mp.mpf(limit), mp.mpf(rate), mp.mpf(noise)
        m = mp.log(1 + 1 / (q * (a - 1)))
        first = m * s**2 / 2 - mp.log(s**2) - a
        below = m + mp.log(q * a) + 1 / (2 * s**2)
        second = (m**2 * s**2 / 2 - mp.log(5 * s**2)) / below - a
        assert -1e-9 * a < min(first, second) < 1e-6 * a


@pytest.mark.parametrize(("rate", "noise"), [(0.2, 9.0), (0.1, 3.9)])
def test_the_lemma_refuses_other_settings(rate: float, noise: float) -> None:
    with pytest.raises(NotApplicable, match="needs q < 1/5 and sigma >= 4"):
        order_limit(rate, noise)


# --- Bravo, Flores-Mella and Guzmán --------------------------------------------------------------


def test_weakly_smooth_by_hand() -> None:
    """R = 1000: .016 + .016 + 4 eta^2 (1/3) (.05)^4 ln(1000 e), times alpha / .16."""
    run = NoisySGD(**{**POISSON, "loss": HOLDER})
    bound = BravoWeaklySmooth()
    assert weakly_smooth_steps(run) == 1000
    assert bound.factor(run) == pytest.approx(0.0320164745, abs=1e-10)
    assert curve("bravo_weakly_smooth", run).rdp(3.0) == pytest.approx(
        3 * 0.0320164745 / 0.16, rel=1e-3
    )
    assert bound.limit(run) == order_limit(0.05, 20 / (2 * math.sqrt(2)))


def test_nonsmooth_losses_are_weakly_smooth_of_exponent_zero() -> None:
    """p = 0, M = 2 L: the third term is 4 L^2 ln(1000 e), and composition of 5000 steps is less."""
    run = NoisySGD(**{**POISSON, "loss": LossGeometry(lipschitz=1.0, convex=True)})
    assert BravoWeaklySmooth().factor(run) == pytest.approx(16 * 5000 / 1e6, rel=1e-12)
    endless = run.replace(steps=10**9)
    expected = 0.032 + 4 * (1 + math.log(1000))
    assert BravoWeaklySmooth().factor(endless) == pytest.approx(expected, rel=1e-12)


def test_nonconvex_by_hand() -> None:
    """eta beta = .1, so R = 4: 52 * 4 / 10^6 + 4 * 4 * .2 / .5 + 2 * .16 = 6.720208."""
    run = NoisySGD(**{**FIXED, "loss": NONCONVEX})
    bound = BravoNonconvex()
    assert nonconvex_steps(run) == 4
    assert bound.factor(run) == pytest.approx(6.720208, rel=1e-12)
    assert bound.limit(run) == pytest.approx(25 * math.log(20), rel=1e-12)
    found = curve("bravo_nonconvex", run)
    assert found.orders[-1] == pytest.approx(74.8933, abs=1e-4)
    assert found.rdp(2.0) == pytest.approx(2 * 6.720208 / 0.16, rel=1e-3)


def test_their_conversion_is_never_smaller() -> None:
    """(22) at delta = 1e-5: 6.720208 / .16 + 5 sqrt(11.512925 * 6.720208) = 85.98."""
    run = NoisySGD(**{**FIXED, "loss": NONCONVEX})
    bound = BravoNonconvex()
    assert bound.converted_epsilon(run, 1e-5) == pytest.approx(85.98, abs=0.01)
    for delta in (1e-2, 1e-5, 1e-9):
        assert curve("bravo_nonconvex", run).epsilon(delta) <= bound.converted_epsilon(run, delta)
    with pytest.raises(NotApplicable, match=r"\(22\) needs the order .*; at most 74\.89 is"):
        bound.converted_epsilon(run.replace(domain=Ball(1e-4)), 1e-5)


# --- any Lipschitz losses ------------------------------------------------------------------------


def test_the_closed_plateau_by_hand() -> None:
    """m = (2 + 1) / .2 = 15: 112.5 + 15 sqrt(2 ln(1 + .05 * 99999)) = 174.415."""
    run = NoisySGD(**{**FIXED, "loss": LossGeometry(lipschitz=1.0, convex=False)})
    bound = bound_named("asoodeh_diaz_closed")
    assert bound.refusal(run) is None
    found = bound.curve(run, {}).epsilon(1e-5)
    assert found == pytest.approx(112.5 + 15 * math.sqrt(2 * math.log(1 + 0.05 * 99999)), rel=1e-9)
    assert found == pytest.approx(174.41, abs=0.01)


@pytest.mark.parametrize("mu", [0.05, 1.0, 7.0])
@pytest.mark.parametrize("rate", [1e-3, 0.3, 1.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_the_closed_plateau_covers_the_recursion(mu: float, rate: float, delta: float) -> None:
    closed = ClosedRecursionCurve(mu, rate)
    epsilon = closed.epsilon(delta)
    theta = float(gaussian_delta(epsilon, mu))
    reached = 0.0
    for _ in range(2000):
        reached = (1 - rate) * theta * reached + rate * theta
    assert reached <= delta
    assert delta * (1 - 1e-6) <= closed.delta(epsilon * (1 - 1e-9)) <= delta * (1 + 1e-4)
    assert closed.delta(epsilon) <= delta * (1 + 1e-9)
    assert closed.delta(0.4 * mu**2) == 1.0


# --- conditions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("at_convex_rdp", {"sampling": "poisson"}, "is about NoisySGD with sampling='fixed'"),
        ("at_convex_rdp", {"domain": None}, "needs a bounded domain"),
        ("at_convex_rdp", {"loss": NONCONVEX}, "needs convex losses"),
        ("at_convex_rdp", {"learning_rate": 11.0}, "lower the learning rate to 10"),
        ("at_convex_rdp", {"learning_rate": [0.5] * 4999 + [0.4]}, "yours has a schedule"),
        ("at_convex_rdp", {"release": "all"}, "needs hidden iterates"),
        ("at_strongly_convex_rdp", {}, "needs strong convexity"),
        (
            "at_convex_closed",
            {"noise_multiplier": 11.3},
            "noise_multiplier >= 11.31; yours is 11.3",
        ),
        ("bravo_weakly_smooth", {}, "is about NoisySGD with sampling='poisson'"),
        ("bravo_nonconvex", {"l2": 0.1}, "is stated without a ridge term; yours has l2=0.1"),
        ("bravo_nonconvex", {"domain": None}, "needs a bounded domain"),
        ("bravo_nonconvex", {"loss": HOLDER}, "needs smooth losses"),
        ("bravo_nonconvex", {"steps": 3}, "needs at least 4 steps; yours has 3"),
        ("bravo_nonconvex", {"batch_size": 101}, "needs batch_size <= n / 10; yours is 0.101 n"),
        ("bravo_nonconvex", {"noise_multiplier": 6.3}, r"2 sqrt(10) = 6.325; yours is 6.3"),
        ("asoodeh_diaz_closed", {"domain": None}, "needs a bounded domain"),
        ("asoodeh_diaz_closed", {"sampling": "poisson"}, "is about NoisySGD with sampling='fixed'"),
    ],
)
def test_conditions_are_checked(name: str, changes: dict[str, Any], reason: str) -> None:
    assert reason in (bound_named(name).refusal(NoisySGD(**{**FIXED, **changes})) or "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"neighbors": "add_remove"}, "is about neighbors='replace'"),
        ({"batch_size": 200}, "needs batch_size < n / 5; yours is 0.2 n"),
        ({"noise_multiplier": 11.3}, "noise_multiplier >= 11.31; yours is 11.3"),
        ({"steps": 999}, "needs at least 1000 steps; yours has 999"),
        ({"loss": NONCONVEX}, "needs convex losses"),
        ({"loss": LossGeometry(lipschitz=math.inf, convex=True)}, "Lipschitz constant"),
        ({"release": "all"}, "needs hidden iterates"),
    ],
)
def test_conditions_of_the_weakly_smooth_case(changes: dict[str, Any], reason: str) -> None:
    if "lipschitz" in reason.lower():
        changes = {**changes, "noise_multiplier": None, "iterate_std": 0.1}
    run = NoisySGD(**{**POISSON, "loss": HOLDER, **changes})
    assert reason in (bound_named("bravo_weakly_smooth").refusal(run) or "")


def test_full_batches_have_a_proof() -> None:
    options = {k: v for k, v in FIXED.items() if k not in ("batch_size", "sampling")}
    run = NoisyGD(**options)
    assert "iteration_rdp is the same" in (bound_named("at_convex_rdp").refusal(run) or "")
    assert bound_named("iteration_rdp").refusal(run) is None
    assert bound_named("iteration_rdp").sound


# --- shown, never chosen -------------------------------------------------------------------------


def test_they_are_marked_and_never_chosen() -> None:
    assert {bound.name for bound in REGISTERED} == set(HISTORICAL)
    assert not any(bound.sound for bound in REGISTERED)
    assert all(bound.sound for bound in BOUNDS)
    run = NoisySGD(**{**FIXED, "steps": 300})
    shown = compare(run, 1e-5, historical=True)
    marked = [row for row in shown.rows if not row.sound]
    assert {row.bound for row in marked} == set(HISTORICAL)
    assert str(shown).count("(historical, not a claim)") == len(HISTORICAL)
    assert "(historical, not a claim)" in shown._repr_html_()
    assert "historical" not in str(compare(run, 1e-5))
    assert certify(run, 1e-5).bound not in HISTORICAL
    for name in HISTORICAL:
        with pytest.raises(NotApplicable, match="no bound applies"):
            certify(run, 1e-5, bounds=[bound_named(name)])


def test_what_is_proved_is_smaller_here() -> None:
    """No conversion, an averaged start, and no split of the noise."""
    run = NoisySGD(**{**FIXED, "l2": 0.1, "noise_multiplier": 12.0})
    shown = compare(run, 1e-5, historical=True)
    proved = shown.epsilon("fixed_size_averaged")
    published = shown.epsilon("at_strongly_convex_rdp")
    assert proved is not None
    assert published is not None
    assert proved < published


def test_the_command_line_marks_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = "compare sgd --n 1000 --batch-size 50 --steps 20 --learning-rate 0.5 --diameter 2"
    words += " --lipschitz 1 --smoothness 0.2 --noise-multiplier 20 --sampling fixed"
    words += " --neighbors replace --release last --delta 1e-5 --json"
    for extra, expected in (((), set()), (("--historical",), set(HISTORICAL))):
        with pytest.raises(SystemExit) as ended:
            main([*words.split(), *extra])
        assert ended.value.code == 0
        found = json.loads(capsys.readouterr().out)
        assert {row["bound"] for row in found["bounds"] if not row["sound"]} == expected
        assert found["bound"] not in HISTORICAL
