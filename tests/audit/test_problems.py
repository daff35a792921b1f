"""Problems, events and lower bounds: replay, order, direction, and catching false claims."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from dplateau.audit import (
    Always,
    Bernoulli,
    Once,
    Periodic,
    Shuffled,
    TailBracket,
    WalkProblem,
    delta_from_brackets,
    epsilon_from_brackets,
    lower_delta,
    lower_epsilon,
    solve,
)
from dplateau.audit.laws import gaussian_delta_below, gaussian_epsilon_below
from dplateau.audit.walks import active_steps, inclusion_from_dict, takes_part
from dplateau.errors import InvalidInput

PROBLEMS = [
    WalkProblem(steps=5, contraction=0.9, record_step=0.3, noise_std=1.0),
    WalkProblem(steps=50, contraction=1.0, record_step=0.5, noise_std=1.0,
                inclusion=Bernoulli(0.1), lower=-3.0, upper=3.0, start=-3.0),
    WalkProblem(steps=50, contraction=0.98, record_step=-0.5, noise_std=1.0,
                inclusion=Bernoulli(0.1), neighbors="replace", removed_step=0.05, drift=0.5),
    WalkProblem(steps=3, contraction=(1.0, 0.9, 0.8), record_step=(0.1, 0.2, 0.3),
                noise_std=(1.0, 1.0, 2.0), drift=(0.0, 0.1, 0.0)),
    WalkProblem(steps=40, contraction=0.99, record_step=0.5, noise_std=1.0,
                inclusion=Periodic(8, 7), lower=-2.0, upper=9.0),
    WalkProblem(steps=40, contraction=0.99, record_step=0.5, noise_std=1.0,
                inclusion=Shuffled(8, 0.5), neighbors="replace"),
    WalkProblem(steps=12, contraction=1.0, record_step=1.0, noise_std=1.0, inclusion=Once(3),
                random_stop=True),
    WalkProblem(steps=4, contraction=1.0, record_step=1.0, noise_std=1.0, inclusion=Once(3),
                noise_kind="laplace", lower=-1.0, upper=1.0),
]  # fmt: skip


@pytest.mark.parametrize("problem", PROBLEMS, ids=range(len(PROBLEMS)))
def test_problems_survive_a_file(problem: WalkProblem) -> None:
    text = json.dumps(problem.to_dict())
    assert WalkProblem.from_dict(json.loads(text)) == problem


@pytest.mark.parametrize("problem", PROBLEMS, ids=range(len(PROBLEMS)))
def test_bounds_are_consistent(problem: WalkProblem) -> None:
    bound = lower_epsilon(problem, 1e-4)
    assert bound.epsilon > 0
    assert bound.event is not None
    again = lower_delta(problem, bound.epsilon)
    # The event of the epsilon forces at least its delta; the search may find a little more.
    assert again.delta >= 0.98e-4
    assert lower_epsilon(problem, 1e-2).epsilon <= bound.epsilon
    assert json.dumps(bound.to_dict())


@pytest.mark.parametrize("problem", PROBLEMS[:6], ids=range(6))
def test_reported_events_can_be_replayed(problem: WalkProblem) -> None:
    """Solve again at the event's threshold alone: it must show the epsilon that is claimed."""
    bound = lower_epsilon(problem, 0.05)
    if bound.event is None:
        assert bound.epsilon == 0
        return
    present, absent = solve(problem, np.array([bound.event.threshold]))
    first, second = (present, absent) if bound.event.order == "present_first" else (absent, present)
    if bound.event.direction == "above":
        low, high = first.lower[0], second.upper[0]
    else:
        low, high = first.below_lower[0], second.below_upper[0]
    assert math.log((low - 0.05) / high) >= bound.epsilon - 1e-6


def test_gaussian_search_meets_the_curve() -> None:
    """Walls beyond reach send the problem through brackets and half-lines instead of the curve."""
    exact = WalkProblem(steps=30, contraction=0.9, record_step=0.4, noise_std=1.0)
    searched = replace(exact, lower=-100.0, upper=100.0)
    for delta in (1e-3, 1e-6):
        curve, found = lower_epsilon(exact, delta), lower_epsilon(searched, delta)
        assert found.epsilon <= curve.epsilon
        assert found.epsilon == pytest.approx(curve.epsilon, rel=1e-3)
    assert lower_delta(searched, 1.0).delta == pytest.approx(
        lower_delta(exact, 1.0).delta, rel=1e-3
    )


def test_both_orders_and_directions_are_searched() -> None:
    found = set()
    for sign in (1.0, -1.0):
        for rate in (0.02, 0.98):
            problem = WalkProblem(steps=3, contraction=1.0, record_step=sign * 3.0, noise_std=1.0,
                                  inclusion=Bernoulli(rate))  # fmt: skip
            event = lower_epsilon(problem, 1e-3).event
            assert event is not None
            found.add((event.order, event.direction))
    assert ("present_first", "above") in found
    assert ("present_first", "below") in found
    heavy = WalkProblem(steps=1, contraction=1.0, record_step=3.0, noise_std=1.0,
                        inclusion=Bernoulli(0.999))  # fmt: skip
    # The record almost surely joins: its absence is what stands out.
    event = lower_epsilon(heavy, 1e-1).event
    assert event is not None


def test_swapped_batches_follow_their_two_point_mixture() -> None:
    """n = 2, b = 1: batches of one, others of slope +L; one law is a plain Gaussian."""
    problem = WalkProblem(steps=1, contraction=1.0, record_step=1.0, noise_std=1.0,
                          inclusion=Bernoulli(0.5), neighbors="replace", drift=1.0,
                          removed_step=1.0)  # fmt: skip
    points = np.linspace(-6.0, 6.0, 13)
    present, absent = solve(problem, points)
    assert present.lower == pytest.approx(ndtr(1.0 - points), abs=1e-12)
    mixed = 0.5 * ndtr(1.0 - points) + 0.5 * ndtr(-1.0 - points)
    assert absent.lower == pytest.approx(mixed, abs=1e-12)
    # The order of divergence that is bounded by log 2 claims RDP .574 at order 8: refuted.
    false_claim = 0.574 + math.log(1e5) / 7
    assert lower_epsilon(problem, 1e-5).epsilon > 2 * false_claim


def test_false_claims_are_caught() -> None:
    ridge = WalkProblem(steps=2000, contraction=0.95, record_step=1.0, noise_std=2.0,
                        inclusion=Bernoulli(0.05))  # fmt: skip
    claims = {"sound": 0.813, "too small": 0.62}
    caught = {name: lower_epsilon(ridge, 1e-5).epsilon > claim for name, claim in claims.items()}
    assert caught == {"sound": False, "too small": True}
    # A forward distance of one record step instead of two under replacement.
    full = WalkProblem(steps=5000, contraction=0.99, record_step=0.05, noise_std=1.0,
                       neighbors="replace")  # fmt: skip
    factor = math.sqrt(1.99 / 0.01)
    assert lower_epsilon(full, 1e-5).epsilon > gaussian_epsilon_below(0.05 * factor, 1e-5)
    honest = gaussian_epsilon_below(0.1 * factor * (1 + 1e-9), 1e-5)
    assert lower_epsilon(full, 1e-5).epsilon <= honest


def test_a_secret_order_averages_the_positions() -> None:
    cycle = WalkProblem(steps=40, contraction=0.9, record_step=1.0, noise_std=1.0,
                        inclusion=Shuffled(8))  # fmt: skip
    parts = [lower_delta(replace(cycle, inclusion=Periodic(8, j)), 0.2).delta for j in range(8)]
    mean = lower_delta(cycle, 0.2).delta
    assert mean <= np.mean(parts) * (1 + 1e-9)
    assert mean == pytest.approx(np.mean(parts), rel=0.1)
    last = replace(cycle, inclusion=Shuffled(8, 1e-9))
    assert lower_delta(last, 0.2).delta <= np.mean(parts[:7]) * (1 + 1e-6)


def test_random_stop_averages_the_stops() -> None:
    walk = WalkProblem(steps=6, contraction=1.0, record_step=1.0, noise_std=1.0,
                       inclusion=Once(2), random_stop=True)  # fmt: skip
    deltas = [gaussian_delta_below(0.1, 1 / math.sqrt(t)) if t > 2 else 0.0 for t in range(1, 7)]
    found = lower_delta(walk, 0.1).delta
    assert 0.3 * np.mean(deltas) < found <= np.mean(deltas)


def test_rates_zero_and_one_are_patterns() -> None:
    walk = WalkProblem(steps=9, contraction=0.9, record_step=0.5, noise_std=1.0,
                       inclusion=Bernoulli(1.0))  # fmt: skip
    assert walk.present() == replace(walk, inclusion=Always()).present()
    assert lower_delta(replace(walk, inclusion=Bernoulli(0.0)), 0.0).delta == 0.0


def test_patterns_agree_with_their_slices() -> None:
    for pattern in (Always(), Periodic(5, 2), Once(7)):
        mask = active_steps(pattern, 13)
        assert [takes_part(pattern, t) for t in range(13)] == mask.tolist()


def test_brackets_refuse_nonsense() -> None:
    x = np.array([0.0, 1.0])
    with pytest.raises(InvalidInput, match="exceeds its upper"):
        TailBracket.between(x, np.array([0.5, 0.6]), np.array([0.5, 0.5]))
    with pytest.raises(InvalidInput, match="per point"):
        TailBracket.between(x, np.array([0.5]), np.array([0.5]))
    fine = TailBracket.around(x, np.array([0.5, 0.2]), absolute=1e-3)
    other = TailBracket.around(x + 1, np.array([0.5, 0.2]))
    with pytest.raises(InvalidInput, match="same points"):
        epsilon_from_brackets(fine, other, 1e-5)
    assert delta_from_brackets(fine, fine, 0.0) == 0.0
    assert epsilon_from_brackets(fine, fine, 1e-5) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_deltas_must_be_probabilities(delta: float) -> None:
    with pytest.raises(InvalidInput, match="strictly between"):
        lower_epsilon(PROBLEMS[0], delta)


@pytest.mark.parametrize("epsilon", [-1.0, math.inf, math.nan])
def test_epsilons_must_be_finite(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="finite and at least 0"):
        lower_delta(PROBLEMS[0], epsilon)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"steps": 0}, "at least one step"),
        ({"noise_std": 0.0}, "above 0"),
        ({"contraction": -0.1}, "at least 0"),
        ({"record_step": math.nan}, "finite"),
        ({"drift": (0.1, 0.2)}, "one value per step"),
        ({"start": 5.0, "lower": -1.0, "upper": 1.0}, "outside"),
        ({"lower": 0.0, "upper": 0.0}, "no interior"),
        ({"neighbors": "other"}, "add_remove or replace"),
        ({"noise_kind": "cauchy"}, "gaussian or laplace"),
        ({"inclusion": Once(5)}, "beyond the last"),
    ],
)
def test_refusals(changes: dict[str, object], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        WalkProblem.from_dict({**PROBLEMS[0].to_dict(), **changes})


def test_unreadable_descriptions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown inclusion"):
        inclusion_from_dict({"kind": "sometimes"})
    with pytest.raises(InvalidInput, match="inclusion once"):
        inclusion_from_dict({"kind": "once"})
    with pytest.raises(InvalidInput, match="probability"):
        Bernoulli(1.5)
    with pytest.raises(InvalidInput, match="position"):
        Periodic(3, 3)
    with pytest.raises(InvalidInput, match="shuffled cycle"):
        Shuffled(0)
    with pytest.raises(InvalidInput, match="counted from 0"):
        Once(-1)
    with pytest.raises(InvalidInput, match="no walk problem"):
        WalkProblem.from_dict({"steps": 3})
