"""A record used once: published numbers, curves of single records, averages, and edges."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau import (
    Ball,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    certify,
    per_record,
)
from dplateau.algorithms import Box, Run
from dplateau.bounds.one_use import knots, one_use, reaches
from dplateau.bounds.registry import bound_named
from dplateau.bounds.step_maps import StepMap
from dplateau.cli import main
from dplateau.curves import (
    ConcentratedCurve,
    GaussianCurve,
    PrivacyCurve,
    RecursionCurve,
    Stretch,
    UsedOnceCurve,
)
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.numerics.normal import gaussian_delta, laplace_delta

SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5)
# Figure 2 of Asoodeh, Diaz and Calmon (2020): D = 1, records are replaced.
FIGURE_2: dict[str, Any] = {
    "n": 40,
    "learning_rate": 0.5,
    "noise_std": 2.0,
    "loss": SMOOTH,
    "domain": Ball(0.5),
    "neighbors": "replace",
    "release": "last",
}
FIGURE_3: dict[str, Any] = {**FIGURE_2, "learning_rate": 0.7, "noise_std": 1.0}
PUBLISHED_FACTOR = math.sqrt(1 - 2 * 0.7 * 0.5 * 0.2 / (0.5 + 0.2))
STOP = OnePassSGD(
    n=100,
    learning_rate=0.05,
    noise_std=5.0,
    loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0),
    domain=Ball(0.5),
    neighbors="replace",
    release="random_stop",
)
LAPLACE = OnePassSGD(
    n=11,
    learning_rate=0.5,
    noise_std=2 * math.sqrt(2),
    noise_kind="laplace",
    dimension=1,
    loss=SMOOTH,
    domain=Box(0.0, 1.0),
    neighbors="replace",
    release="last",
)


def record_curve(name: str, run: Run, record: int) -> PrivacyCurve:
    """Return a bound's curve of the record counted from 1."""
    bound: Any = bound_named(name)
    curve: PrivacyCurve = bound.record_curve(run, record - 1)
    return curve


def claim(name: str, run: Any, delta: float = 1e-5) -> PrivacyCurve:
    bound = bound_named(name)
    assert bound.refusal(run) is None
    return bound.curve(run, bound.plan(run, delta))


# --- published numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "record", "deltas"),
    [
        ("one_pass_hockey_stick", 20, (3.060674e-10, 8.399660e-14, 1.497387e-19)),
        ("one_pass_hockey_stick", 39, (0.1241330, 0.05684491, 0.01611294)),
        ("one_pass_hybrid", 20, (3.060674e-10, 8.399660e-14, 1.497387e-19)),
        ("one_pass_contraction", 20, (4.825810e-2, 1.047358e-3, 1.652861e-7)),
    ],
)
def test_figure_2(bound: str, record: int, deltas: tuple[float, ...]) -> None:
    curve = record_curve(bound, OnePassSGD(**FIGURE_2), record)
    for epsilon, delta in zip((0.1, 0.5, 1.0), deltas, strict=True):
        assert curve.delta(epsilon) == pytest.approx(delta, rel=2e-6)


def test_figure_2_of_the_competitor() -> None:
    curve = record_curve("mixing_rdp", OnePassSGD(**FIGURE_2), 20)
    assert curve.delta(0.1) == pytest.approx(0.9453, abs=5e-5)
    assert curve.delta(0.5) == pytest.approx(0.1047, abs=5e-5)
    assert curve.delta(1.0) == pytest.approx(7.44e-5, abs=5e-8)


def test_figure_3() -> None:
    """With the published factor M = .894427 in place of the contraction, as a ridge."""
    run = OnePassSGD(**FIGURE_3, l2=(1 - PUBLISHED_FACTOR) / 0.7)
    assert math.isclose(PUBLISHED_FACTOR, 0.894427, abs_tol=5e-7)
    middle = record_curve("one_pass_hockey_stick", run, 20)
    late = record_curve("one_pass_hockey_stick", run, 39)
    assert middle.delta(1.0) == pytest.approx(1.035980e-13, rel=1e-6)
    assert late.delta(2.0) == pytest.approx(0.02504814, rel=1e-6)
    # The other column, from a use that no wall shortens (D = 1 is narrower than s = 1.4).
    endless = run.replace(domain=Ball(5.0))
    assert record_curve("one_pass_contraction", endless, 20).delta(1.0) == pytest.approx(
        2.711265e-27, rel=1e-6
    )
    assert record_curve("one_pass_contraction", endless, 39).delta(2.0) == pytest.approx(
        0.09053093, rel=1e-6
    )


def test_figure_3_with_the_sharper_contraction() -> None:
    loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5, strong_convexity=0.2)
    run = OnePassSGD(**{**FIGURE_3, "loss": loss})
    use = one_use(run, bound_named("one_pass_hybrid").plan(run, 0.5))
    assert use.slope == pytest.approx(0.86)
    assert use.reach == pytest.approx(0.86 / 0.7)
    published = run.replace(loss=SMOOTH, l2=(1 - PUBLISHED_FACTOR) / 0.7)
    for record in (20, 39):
        sharper = record_curve("one_pass_hockey_stick", run, record)
        plain = record_curve("one_pass_hockey_stick", published, record)
        assert sharper.delta(1.0) < plain.delta(1.0)
    wide = one_use(run.replace(domain=Ball(5.0)), bound_named("one_pass_hybrid").plan(run, 0.5))
    assert GaussianCurve(wide.distance(20)).delta(1.0) == pytest.approx(1.404e-91, rel=1e-3)
    assert GaussianCurve(wide.distance(1)).delta(2.0) == pytest.approx(0.08245, abs=5e-6)


@given(
    st.floats(0.01, 5.0),
    st.floats(0.0, 1.0),
    st.floats(0.01, 1.0),
)
def test_the_published_factor_is_never_the_smaller_one(
    smoothness: float, share: float, part: float
) -> None:
    strong = share * smoothness
    eta = part * 2 / (smoothness + strong)
    factor = math.sqrt(max(0.0, 1 - 2 * eta * smoothness * strong / (smoothness + strong)))
    loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=smoothness, strong_convexity=strong)
    contraction = StepMap(loss, 0.0, least_fraction=1.0).contraction(eta)
    assert contraction is not None
    assert contraction.c <= factor + 1e-12


def test_random_stop_numbers() -> None:
    published = claim("random_stop_contraction", STOP)
    for epsilon, delta in ((0.5, 4.412553e-3), (1.0, 1.773667e-4), (2.0, 5.062624e-9)):
        assert published.delta(epsilon) == pytest.approx(delta, rel=1e-6)
        assert claim("random_stop_mean", STOP).delta(epsilon) < published.delta(epsilon) / 5
        assert claim("random_stop_lipschitz", STOP).delta(epsilon) > published.delta(epsilon)


def test_laplace_numbers() -> None:
    curve = record_curve("one_pass_laplace", LAPLACE, 1)
    assert curve.delta(0.1) == pytest.approx(1.414813e-5, rel=1e-6)
    assert curve.delta(0.5) == pytest.approx(6.203252e-8, rel=1e-6)
    # min(2 L / v, M (b - a) / (eta v)) = 1: from there on nothing is left.
    assert curve.delta(1.0 + 1e-12) == 0.0
    assert curve.epsilon(1e-30) <= 1.0


# --- curves of a record that is used once --------------------------------------------------------


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("radius", [0.05, 0.5, 2.0])
def test_the_hybrid_is_never_worse_and_finds_every_place_to_switch(
    l2: float, radius: float
) -> None:
    run = OnePassSGD(**{**FIGURE_2, "domain": Ball(radius), "l2": l2})
    hybrid: Any = bound_named("one_pass_hybrid")
    use = one_use(run, hybrid.plan(run, 0.5))
    for record in (1, 20, 35, 39, 40):
        curve = record_curve("one_pass_hybrid", run, record)
        later = 40 - record
        for epsilon in (0.0, 0.2, 1.0, 4.0):
            factor = float(gaussian_delta(epsilon, use.reach))
            best = min(
                float(gaussian_delta(epsilon, use.distance(k))) * factor ** (later - k)
                for k in range(later + 1)
                if k <= 32 or k == later
            )
            assert curve.delta(epsilon) == pytest.approx(best, rel=1e-9, abs=5e-324)
            for name in ("one_pass_hockey_stick", "one_pass_contraction", "mixing_rdp"):
                other = record_curve(name, run, record).delta(epsilon)
                assert curve.delta(epsilon) <= other * (1 + 1e-9) + 5e-324


def test_switching_beats_both_arguments() -> None:
    run = OnePassSGD(**{**FIGURE_2, "domain": Ball(1.0)})
    hybrid, hockey, shifts = (
        record_curve(name, run, 25).delta(1.0)
        for name in ("one_pass_hybrid", "one_pass_hockey_stick", "one_pass_contraction")
    )
    assert hybrid < 0.62 * min(hockey, shifts)


@pytest.mark.parametrize("slope", [0.0, 0.7, 1.0, 1.2])
@pytest.mark.parametrize("diameter", [0.3, 50.0])
def test_distances_are_those_of_the_shift_program(slope: float, diameter: float) -> None:
    from dplateau.bounds.one_use import OneUse
    from dplateau.shifts import Chain, Linear, Segment, solve

    use = OneUse("gaussian", 1.3, diameter, slope, diameter)
    for later in (1, 2, 9):
        parts = [Segment(1, Linear(slope), 1.3, 1.0), Segment(later, Linear(slope), 0.0, 1.0)]
        solved = solve(Chain.of(parts, diameter=diameter)).sum_of_squares
        if slope <= 1 or diameter > 10:
            assert use.distance(later) ** 2 == pytest.approx(solved, rel=1e-9, abs=1e-30)
        assert use.distance(later) ** 2 >= solved * (1 - 1e-9)


def test_records_used_later_are_exposed_more() -> None:
    for run in (OnePassSGD(**FIGURE_2), LAPLACE, OnePassSGD(**FIGURE_2, batch_size=3)):
        found = per_record(run, 1e-5)
        assert all(a <= b * (1 + 1e-9) for a, b in pairwise(found.epsilons))
        assert found.epsilons[-1] == pytest.approx(certify(run, 1e-5).claimed_epsilon, rel=1e-9)


def test_each_record_has_the_best_bound_and_its_name() -> None:
    run = OnePassSGD(**{**FIGURE_2, "n": 12, "domain": Ball(3.0)})
    found = per_record(run, 1e-5)
    for place, (name, epsilon) in enumerate(zip(found.bounds, found.epsilons, strict=True)):
        assert epsilon == record_curve(name, run, place + 1).epsilon(1e-5)
        for other in ("one_pass_contraction", "one_pass_hockey_stick", "one_pass_hybrid"):
            assert epsilon <= record_curve(other, run, place + 1).epsilon(1e-5)
    with pytest.raises(NotApplicable, match="needs a bounded domain"):
        per_record(LAPLACE.replace(domain=None), 1e-5)


def test_without_noise_between_there_is_no_factor() -> None:
    far = UsedOnceCurve("gaussian", math.inf, (Stretch(0, 1.0, 1, 0.0), Stretch(9, 0.5, 1, 1.0)))
    assert far.delta(0.3) == pytest.approx(GaussianCurve(0.5).delta(0.3), rel=1e-11)
    near = UsedOnceCurve("gaussian", 0.0, far.stretches)
    assert near.delta(0.3) == 0.0
    assert near.epsilon(1e-9) == 0.0


def test_deltas_too_small_for_a_number_are_not_zero() -> None:
    curve = record_curve("one_pass_hockey_stick", OnePassSGD(**FIGURE_2), 1)
    assert 0 < curve.delta(30.0) < 1e-300
    assert RecursionCurve("gaussian", 0.1, 0.1, 0.1, 0.2, 5).delta(200.0) > 0


@pytest.mark.parametrize(
    "stretches",
    [
        (),
        (Stretch(1, 1.0, 1, 1.0),),
        (Stretch(0, 1.0, 1, 0.5), Stretch(0, 1.0, 1, 0.5)),
        (Stretch(0, -1.0, 1, 1.0),),
        (Stretch(0, 1.0, 1, math.nan),),
    ],
)
def test_stretches_that_describe_nothing_are_refused(stretches: tuple[Stretch, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"stretches begin|at least 0"):
        UsedOnceCurve("gaussian", 1.0, stretches)


# --- averages ------------------------------------------------------------------------------------


def plain_average(run: Run, epsilon: float, count: int) -> float:
    """Return (1/T) sum_{j<count} d_j, step by step."""
    use = one_use(run, bound_named("random_stop_mean").plan(run, 0.5))
    stick = gaussian_delta if run.noise_kind == "gaussian" else laplace_delta
    factor, best, total = float(stick(epsilon, use.reach)), 1.0, 0.0
    for later in range(count):
        best = min(best * factor if later else 1.0, float(stick(epsilon, use.distance(later))))
        total += best / run.steps
    return total


@pytest.mark.parametrize(
    "run",
    [
        STOP,
        STOP.replace(n=400, domain=Ball(0.05)),
        STOP.replace(n=200, domain=None),
        STOP.replace(n=100, l2=1.0, domain=None, batch_size=7),
        LAPLACE.replace(release="random_stop", n=60),
    ],
)
def test_the_average_over_stops_is_the_sum_over_steps(run: Run) -> None:
    whole = claim("random_stop_mean", run)
    for epsilon in (0.0, 0.1, 0.6, 2.0):
        exact = plain_average(run, epsilon, run.steps)
        assert exact <= whole.delta(epsilon) * (1 + 1e-9) + 1e-300
        assert whole.delta(epsilon) <= exact * 1.02 + 1e-300
        third = record_curve("random_stop_mean", run, 3).delta(epsilon)
        exact = plain_average(run, epsilon, run.steps - 2)
        assert exact <= third * (1 + 1e-9) + 1e-300 <= whole.delta(epsilon) * (1 + 1e-9) + 1e-299


def test_knots_begin_singly_and_stay_below() -> None:
    for count in (1, 2, 31, 32, 33, 34, 1000, 100_000):
        found = knots(count)
        assert found[: min(count, 32)] == list(range(min(count, 32)))
        assert all(a < b for a, b in pairwise(found))
        assert found[-1] < count <= max(2.0, found[-1] * 1.06 + 2)


def test_a_random_order_is_a_random_stop() -> None:
    shared = {**FIGURE_2, "batch_size": 4}
    stopped = claim("random_stop_mean", OnePassSGD(**{**shared, "release": "random_stop"}))
    for order in ("shuffle_once", "reshuffle"):
        run = CyclicSGD(**shared, epochs=1, order=order)
        shuffled = claim("shuffled_pass", run)
        for delta in (1e-2, 1e-5, 1e-9):
            assert shuffled.epsilon(delta) == pytest.approx(stopped.epsilon(delta), rel=1e-9)


def test_a_shuffled_pass_is_never_worse_than_the_grouped_average() -> None:
    for n, steps in ((40, 10), (38, 10), (38, 7), (900, 225)):
        run = CyclicSGD(**{**FIGURE_2, "n": n, "batch_size": 4}, steps=steps, order="shuffle_once")
        old = claim("shuffle_once_average", run).epsilon(1e-5)
        assert claim("shuffled_pass", run).epsilon(1e-5) <= old * (1 + 1e-9)


def test_the_short_batch_weighs_less() -> None:
    run = CyclicSGD(**{**FIGURE_2, "n": 9, "batch_size": 4}, epochs=1, order="shuffle_once")
    curve = claim("shuffled_pass", run)
    assert isinstance(curve, UsedOnceCurve)
    shares = [stretch.share for stretch in curve.stretches]
    assert shares == pytest.approx([1 / 9, 4 / 9, 4 / 9])


def test_long_passes_are_certified() -> None:
    run = STOP.replace(n=100_000)
    found = certify(run, 1e-6)
    assert found.bound == "random_stop_mean"
    assert found.claimed_epsilon < 0.33 < certify(STOP, 1e-6).claimed_epsilon
    assert found.verify().ok
    early, late = (record_curve("one_pass_hybrid", run, i).epsilon(1e-6) for i in (1, 99_990))
    assert early == 0.0 < late


# --- the competitors -----------------------------------------------------------------------------


def test_the_published_logarithm_would_claim_perfect_privacy() -> None:
    """Theorem 26 of Feldman et al. has log T where its proof gives H_T: 0 at T = 1."""
    run = STOP.replace(n=1)
    assert claim("random_stop_rdp", run).epsilon(1e-5) > claim("gdp_composition", run).epsilon(1e-5)
    square = (2 / 5.0) ** 2
    curve: Any = claim("random_stop_rdp", STOP)
    harmonic = sum(1 / j for j in range(1, 101))
    order = curve.orders[10]
    assert curve.values[10] == pytest.approx(order * square * harmonic / 100)
    assert curve.values[10] > 4 * order / 5.0**2 * math.log(100) / 100


def test_orders_beyond_the_noise_are_refused() -> None:
    bound = bound_named("random_stop_rdp")
    witness = dict(bound.plan(STOP, 1e-5))
    top = (1 + math.sqrt(1 + 2 * 5.0**2)) / 2  # alpha* for L = 1
    assert max(witness["orders"]) == pytest.approx(top)
    witness["orders"] = [2.0, top + 0.01]
    with pytest.raises(InvalidInput, match=r"the noise allows orders up to 4\.07"):
        bound.curve(STOP, witness)


@pytest.mark.parametrize("name", ["random_stop_rdp", "random_stop_contraction"])
@pytest.mark.parametrize("n", [1, 10, 300])
def test_the_average_dominates_what_it_says_it_does(name: str, n: int) -> None:
    for noise in (1.0, 8.0):
        run = STOP.replace(n=n, noise_std=noise)
        for delta in (1e-2, 1e-6):
            best = claim("random_stop_mean", run).epsilon(delta)
            assert best <= claim(name, run).epsilon(delta) * (1 + 1e-9)


@given(st.floats(1e-6, 50.0), st.floats(1e-12, 0.9))
def test_the_classic_conversion_is_above_the_gaussian_curve(rate: float, delta: float) -> None:
    curve = ConcentratedCurve(rate)
    assert curve.epsilon(delta) >= GaussianCurve(math.sqrt(2 * rate)).epsilon(delta) * (1 - 1e-9)
    assert curve.delta(curve.epsilon(delta)) <= delta * (1 + 1e-9)
    assert curve.rdp(3.0) == pytest.approx(3 * rate)


# --- refusals and witnesses ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "run", "reason"),
    [
        ("one_pass_hockey_stick", OnePassSGD(**FIGURE_2).replace(domain=None), "bounded domain"),
        ("one_pass_hybrid", LAPLACE, "yours is Laplace (one_pass_laplace covers it)"),
        ("one_pass_laplace", OnePassSGD(**FIGURE_2), "yours is Gaussian"),
        ("one_pass_hockey_stick", NoisyGD(n=3, steps=2, noise_std=1.0, release="last"), "NoisyGD"),
        (
            "one_pass_hybrid",
            OnePassSGD(**{**FIGURE_2, "n": 2, "noise_std": [1.0, 2.0]}),
            "yours has a schedule",
        ),
        ("random_stop_mean", STOP.replace(loss=None, noise_multiplier=2.0), "pass loss="),
        (
            "random_stop_mean",
            STOP.replace(domain=None, loss=LossGeometry(lipschitz=1.0, convex=True)),
            "needs a bounded domain (domain=Ball(radius=...)), or Gaussian noise and smooth",
        ),
        ("random_stop_mean", STOP.replace(release="last"), "is about release='random_stop'"),
        (
            "random_stop_contraction",
            STOP.replace(loss=LossGeometry(lipschitz=1.0, convex=False)),
            "random_stop_lipschitz needs none",
        ),
        (
            "shuffled_pass",
            CyclicSGD(**FIGURE_2, batch_size=1, epochs=2, order="shuffle_once"),
            "is about one epoch (40 steps); yours has 80 steps",
        ),
        ("shuffled_pass", CyclicSGD(**FIGURE_2, batch_size=1, epochs=1), "order='cyclic'"),
        ("poisson_recursion", OnePassSGD(**FIGURE_2), "sampling='poisson'; yours is OnePassSGD"),
        (
            "fixed_size_recursion",
            NoisySGD(**FIGURE_2, batch_size=4, steps=3),
            "sampling='fixed'; yours is NoisySGD with sampling='poisson'",
        ),
    ],
)
def test_refusals_say_why(name: str, run: Any, reason: str) -> None:
    found = bound_named(name).refusal(run)
    assert found is not None
    assert reason in found


def test_nonconvex_losses_are_covered() -> None:
    run = STOP.replace(loss=LossGeometry(lipschitz=1.0, convex=False))
    assert claim("random_stop_lipschitz", run).epsilon(1e-5) == pytest.approx(
        claim("random_stop_lipschitz", STOP).epsilon(1e-5)
    )
    assert certify(run, 1e-5).claimed_epsilon <= claim("random_stop_lipschitz", run).epsilon(1e-5)
    maps = StepMap(LossGeometry(lipschitz=2.0, convex=False, smoothness=0.1), 0.5)
    found = reaches(maps, 0.2, 3.0)
    assert found["Lipschitz"] == pytest.approx(0.9 * 3 + 2 * 0.2 * 2)
    assert found["smooth"] == pytest.approx((0.9 + 0.02) * 3)


@pytest.mark.parametrize("changed", [[1, 2], [0, 2, 3], [0, 1, 1], [0, 1, 100], [], [0, 1, 5, 4]])
def test_knots_that_skip_or_repeat_are_refused(changed: list[int]) -> None:
    bound = bound_named("random_stop_mean")
    witness = {**bound.plan(STOP, 1e-5), "knots": changed}
    with pytest.raises(InvalidInput, match="knots must rise"):
        bound.curve(STOP, witness)


def test_classes_that_were_not_declared_are_refused() -> None:
    for name, run in (
        ("random_stop_mean", STOP),
        ("random_stop_contraction", STOP),
        ("one_pass_hybrid", OnePassSGD(**FIGURE_2)),
    ):
        bound = bound_named(name)
        witness = {**bound.plan(run, 1e-5), "losses": "strongly dissipative"}
        with pytest.raises(InvalidInput, match="strongly dissipative"):
            bound.curve(run, witness)
    lipschitz = bound_named("random_stop_lipschitz")
    with pytest.raises(InvalidInput, match="not about"):
        lipschitz.curve(STOP, {"losses": "convex and smooth", "reach": 1.0})
    mixed = bound_named("one_pass_hybrid")
    run = OnePassSGD(**FIGURE_2)
    with pytest.raises(InvalidInput, match="needs a linear modulus"):
        mixed.curve(run, {**mixed.plan(run, 1e-5), "shifts_by": "strongly dissipative"})


# --- the command line ----------------------------------------------------------------------------


def test_the_command_accounts_for_a_random_stop(capsys: pytest.CaptureFixture[str]) -> None:
    words = "account one-pass --n 100 --learning-rate 0.05 --noise-std 5 --lipschitz 1"
    words += " --smoothness 1 --diameter 1 --neighbors replace --release random_stop --delta 1e-5"
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code in (0, None)
    shown = capsys.readouterr().out
    assert "1.03763" in shown
    assert "Random stop" in shown
