"""Batches of one size: the pair of one step, the golden table, schedules, strong convexity."""

from __future__ import annotations

import itertools
import json
import math
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import special, stats
from scipy.special import ndtr

from dplateau import Ball, LossGeometry, NoisySGD, certify
from dplateau.algorithms import Run, Schedule
from dplateau.bounds.fixed_size import FixedSizeAveraged
from dplateau.bounds.registry import bound_named
from dplateau.curves import PoissonPair, SubsampledGaussianPair
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.verify import verify
from dplateau.verify.report import OutOfTime, at_most
from dplateau.verify.starts import start_law

DELTA = 1e-5
BOUND = FixedSizeAveraged()


def ridge_run(c: float, q: float, z: Any, steps: int, **changes: Any) -> Run:
    options: dict[str, Any] = {
        "n": round(50 / q),
        "batch_size": 50,
        "steps": steps,
        "sampling": "fixed",
        "neighbors": "replace",
        "learning_rate": 0.5,
        "l2": (1 - c) / 0.5,
        "noise_multiplier": z,
        "loss": LossGeometry(lipschitz=1.0, convex=True, smoothness=0.9),
        "release": "last",
    }
    return NoisySGD(**{**options, **changes})


def epsilon(run: Run, delta: float = DELTA) -> float:
    return BOUND.curve(run, BOUND.plan(run, delta)).epsilon(delta)


# --- the pair of one step -----------------------------------------------------------------------


def hockey_sticks(first: FloatArray, second: FloatArray, ratios: FloatArray) -> FloatArray:
    return np.array([np.maximum(first - g * second, 0.0).sum() for g in ratios])


@pytest.mark.parametrize("seed", range(12))
def test_no_swap_and_shift_in_the_plane_leak_more_than_the_pair(seed: int) -> None:
    """(1-q) N(v0) + q N(w + v1) against (1-q) N(0) + q N(w'), on a grid of the plane."""
    draw = np.random.default_rng(seed)
    q, swap, shift = draw.uniform(0.02, 0.98), *np.exp(draw.uniform(-1.5, 0.7, 2))
    x = np.arange(-9, 12, 0.1)
    plane = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)

    def gaussian(mean: FloatArray) -> FloatArray:
        masses: FloatArray = np.exp(-((plane - mean) ** 2).sum(axis=-1) / 2) * 0.01 / (2 * math.pi)
        return masses

    def direction() -> FloatArray:
        turn = draw.uniform(0, 2 * math.pi)
        return np.array([math.cos(turn), math.sin(turn)])

    w = direction() * swap
    other = direction() * swap if seed % 3 else w / 2 + np.array([-w[1], w[0]]) * math.sqrt(0.75)
    while np.linalg.norm(other - w) > swap * (1 + 1e-12):
        other = direction() * swap * draw.random()
    moves = [direction() * shift, w / swap * shift if seed % 2 else direction() * shift]
    first = (1 - q) * gaussian(moves[0]) + q * gaussian(w + moves[1])
    second = (1 - q) * gaussian(np.zeros(2)) + q * gaussian(other)
    assert max(np.linalg.norm(w - other), np.linalg.norm(other)) <= swap * (1 + 1e-12)
    eps = np.linspace(-2.0, 4.0, 25)
    claimed = SubsampledGaussianPair(q, swap, shift).delta(eps, "remove")
    for pair in ((first, second), (second, first)):
        assert np.all(hockey_sticks(*pair, np.exp(eps)) <= claimed + 1e-6)


@pytest.mark.parametrize("q", [0.01, 0.3, 0.9, 1.0])
@pytest.mark.parametrize(("swap", "shift"), [(0.5, 0.1), (2.0, 0.7), (0.2, 1.5)])
def test_the_pieces_of_the_curve_meet_and_are_convex(q: float, swap: float, shift: float) -> None:
    pair = SubsampledGaussianPair(q, swap, shift)
    border = shift * (shift + swap) / 2
    near = pair.delta(np.array([border * (1 - 1e-9), border * (1 + 1e-9)]), "remove")
    assert near[0] == pytest.approx(near[1], rel=1e-7)
    eps = np.linspace(-3 * border - 1, 3 * border + 1, 801)
    slopes = np.diff(pair.delta(eps, "remove")) / np.diff(np.exp(eps))
    assert np.all(np.diff(slopes) >= -1e-9)
    # Above the border it is the mixture's; below, more than the mixture's in either order.
    mixture = PoissonPair(q, swap, shift)
    inner = np.linspace(0.0, border, 9)
    assert np.all(pair.delta(inner, "remove") >= mixture.delta(inner, "remove") * (1 - 1e-12))
    outer = np.linspace(border, border + 3, 9)
    assert pair.delta(outer, "add") == pytest.approx(mixture.delta(outer, "remove"), rel=1e-12)


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "q", "z", "steps", "known"),
    [
        (0.95, 0.05, 2.0, 2000, 2.6363),
        (0.99, 0.01, 1.0, 5000, 6.371),
        (0.98, 0.1, 5.0, 5000, 1.9816),
    ],
)
def test_golden_values_are_proved_twice(
    c: float, q: float, z: float, steps: int, known: float
) -> None:
    """Values of this library, each re-derived by the verifier with compositions of its own."""
    found = certify(ridge_run(c, q, z, steps), DELTA, bounds=[BOUND])
    assert found.claimed_epsilon == pytest.approx(BOUND.claim(known), rel=2e-3)
    verdict = verify(found.to_dict())
    assert verdict.ok, str(verdict)


def test_strong_convexity_of_losses_counts_almost_like_a_ridge() -> None:
    """Common batches lack one of fifty records at most."""
    options: dict[str, Any] = {"n": 1000, "steps": 2000, "learning_rate": 0.5}
    curved = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0, strong_convexity=0.1)
    strong = epsilon(ridge_run(1.0, 0.05, 2.0, loss=curved, **options))
    ridge = epsilon(ridge_run(0.95, 0.05, 2.0, **options))
    assert ridge < strong < 1.02 * ridge


def test_a_schedule_of_equal_values_changes_nothing() -> None:
    plain = ridge_run(0.95, 0.05, 2.0, 400)
    listed = ridge_run(0.95, 0.05, Schedule(((2.0, 400),)), 400, learning_rate=[0.5] * 400)
    assert epsilon(listed) == pytest.approx(epsilon(plain), rel=1e-9)


def test_a_schedule_lies_between_its_extremes() -> None:
    falling = Schedule.of(np.linspace(4.0, 2.0, 600))
    least, most = (epsilon(ridge_run(0.95, 0.05, z, 600)) for z in (4.0, 2.0))
    assert least < epsilon(ridge_run(0.95, 0.05, falling, 600)) <= most * (1 + 1e-3)


def test_what_comes_after_a_quiet_start_hides_it() -> None:
    """Noise that is raised in the second half is what counts."""
    late = Schedule(((2.0, 500), (4.0, 500)))
    assert epsilon(ridge_run(0.95, 0.05, late, 1000)) == pytest.approx(
        epsilon(ridge_run(0.95, 0.05, 4.0, 1000)), rel=1e-2
    )


# --- exact attacks on schedules -----------------------------------------------------------------


def exact_epsilon(run: Run, delta: float, away: float) -> float:
    """Record of slope L, replacement of slope -L, all others ``away``: mixtures of Gaussians."""
    etas = np.broadcast_to(_values(run.learning_rate), run.steps)
    stds = np.broadcast_to(_values(run.iterate_std), run.steps)
    keep = 1 - etas * run.l2
    carried = np.array([np.prod(keep[t + 1 :]) for t in range(run.steps)])
    spread = math.sqrt(float(np.sum((carried * stds) ** 2)))
    means, chances = {1.0: [], -1.0: []}, []
    for flips in itertools.product([0, 1], repeat=run.steps):
        used = np.array(flips)
        chances.append(
            run.sampling_rate ** used.sum() * (1 - run.sampling_rate) ** (1 - used).sum()
        )
        for slope, found in means.items():
            push = etas / run.batch_size * used * (slope - away)
            found.append(float(carried @ push) / spread)
    x = np.linspace(-30, 30, 60001)
    laws = []
    for found in means.values():
        cdf = np.zeros_like(x)
        for chance, mean in zip(chances, found, strict=True):
            cdf += chance * ndtr(x - mean)
        laws.append(np.diff(cdf))

    def over(eps: float) -> bool:
        return any(
            float(np.maximum(a - math.exp(eps) * b, 0.0).sum()) > delta
            for a, b in (laws, laws[::-1])
        )

    low, high = 0.0, 60.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) else (low, middle)
    return low


def _values(value: Any) -> Any:
    return value.values() if isinstance(value, Schedule) else value


@pytest.mark.parametrize("seed", range(10))
def test_no_schedule_leaks_more_than_is_claimed(seed: int) -> None:
    draw = np.random.default_rng(seed)
    steps = int(draw.integers(2, 8))
    run = NoisySGD(
        n=int(draw.integers(2, 8)),
        batch_size=1,
        steps=steps,
        sampling="fixed",
        neighbors="replace",
        learning_rate=draw.uniform(0.2, 1.0, steps).tolist(),
        noise_multiplier=np.exp(draw.uniform(-0.3, 1.5, steps)).tolist(),
        l2=float(draw.uniform(0.05, 0.9)),
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.01),
        release="last",
    )
    for delta in (1e-2, 1e-5):
        needed = max(exact_epsilon(run, delta, away) for away in (-1.0, 0.0, 1.0))
        assert needed > 0
        for name in ("fixed_size_averaged", "every_batch"):
            found = certify(run, delta, bounds=[bound_named(name)])
            assert found.claimed_epsilon >= needed * (1 - 1e-6), name
            assert verify(found.to_dict()).ok, name


# --- the record in every batch -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "sampling", "known"),
    [(0.9, "poisson", 5.17481), (0.9, "fixed", 5.17481), (1.0, "poisson", 5.17481)],
)
def test_a_record_in_every_batch(rate: float, sampling: Any, known: float) -> None:
    """mu = (2 / 3) sqrt((1 + c) / (1 - c)) with c = 1/2, whatever the sampling."""
    run = ridge_run(0.5, 0.5, 3.0, 1000, n=1000, batch_size=1000 * rate, sampling=sampling)
    found = certify(run, DELTA, bounds=[bound_named("every_batch")])
    assert found.claimed_epsilon == pytest.approx(known, rel=2e-4)
    if rate == 1:
        assert certify(run, DELTA).bound == "every_batch"
    assert verify(found.to_dict()).ok


def test_rates_by_schedule_matter_to_the_size_of_batches_only() -> None:
    rates = [0.9] * 500 + [0.7] * 500
    options: dict[str, Any] = {"sampling": "poisson", "n": 1000, "batch_size": 900}
    plain = ridge_run(0.5, 0.5, 3.0, 1000, **options)
    listed = ridge_run(0.5, 0.5, 3.0, 1000, **options, sampling_rate=rates)
    found = [certify(run, DELTA, bounds=[bound_named("every_batch")]) for run in (plain, listed)]
    assert found[1].claimed_epsilon == pytest.approx(found[0].claimed_epsilon, rel=1e-4)
    assert verify(found[1].to_dict()).ok


@pytest.mark.parametrize("name", ["fixed_size_averaged", "every_batch"])
def test_claims_about_groups_are_proved_twice(name: str) -> None:
    run = ridge_run(0.9, 0.2, 8.0, 300)
    one, two = (certify(run, DELTA, bounds=[bound_named(name)], group_size=size) for size in (1, 2))
    assert one.claimed_epsilon < two.claimed_epsilon
    verdict = verify(two.to_dict())
    assert verdict.ok, str(verdict)


# --- refusals ------------------------------------------------------------------------------------


def test_plans_that_prove_nothing_are_refused() -> None:
    run = ridge_run(0.9, 0.1, 2.0, 200)
    witness = json.loads(json.dumps(BOUND.plan(run, DELTA)))
    small = {**witness, "levels": [level * 0.9 for level in witness["levels"]]}
    with pytest.raises(InvalidInput, match="does not absorb"):
        BOUND.curve(run, small)
    with pytest.raises(InvalidInput, match="larger than those planned for"):
        BOUND.curve(run, {**witness, "sizes": [0.9 * size for size in witness["sizes"]]})
    with pytest.raises(InvalidInput, match="must rise"):
        BOUND.curve(run, {**witness, "edges": witness["edges"][::-1]})
    plans = [[[witness["last_steps"] + 1, 0]], *witness["plans"][1:]]
    with pytest.raises(InvalidInput, match="one of its levels"):
        BOUND.curve(run, {**witness, "plans": plans})
    with pytest.raises(InvalidInput, match="no last steps"):
        BOUND.curve(run, {**witness, "last_steps": 201})


def test_other_batches_are_refused() -> None:
    poisson = ridge_run(0.9, 0.1, 2.0, 200, sampling="poisson")
    assert "sampling='poisson'" in str(BOUND.refusal(poisson))
    steep = ridge_run(0.9, 0.1, 2.0, 200, learning_rate=3.0, domain=Ball(1.0))
    assert "lower the learning rate" in str(BOUND.refusal(steep))


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.9])
def test_the_verifier_never_takes_a_start_for_rarer_than_it_is(rate: float) -> None:
    """Its law of weighted coins, against all outcomes of ten of them."""
    weights = np.array([1.0, 1.0, 0.7, 0.65, 0.3, 0.3, 0.2, 0.11, 0.05, 0.01])
    flips = np.array(list(itertools.product([0, 1], repeat=10)))
    chances = np.prod(np.where(flips == 1, rate, 1 - rate), axis=1)
    values = flips @ weights + 0.02
    law = start_law(weights, rate, older=0.02)
    for point in np.linspace(0.0, 4.5, 91):
        exact = float(chances[values > point].sum())
        nearby = float(chances[values > point - 2e-3].sum())
        assert exact * (1 - 1e-12) <= law.tail(point) <= nearby + 1e-9


@pytest.mark.parametrize(("rate", "rarest"), [(0.004, 1e-12), (0.03, 1e-40), (0.3, 1e-90)])
def test_the_verifier_tells_starts_apart_that_are_rarer_than_rounding(
    rate: float, rarest: float
) -> None:
    """Halfway between whole numbers, which its grid does not move there: a sum of binomials."""
    weights = np.repeat([4.0, 3.0, 2.0, 1.0], 60)
    law = np.ones(1)
    for weight in (4, 3, 2, 1):
        one = np.zeros(60 * weight + 1)
        one[::weight] = stats.binom.pmf(np.arange(61), 60, rate)
        law = np.convolve(law, one)  # all terms positive: nothing cancels
    tails = np.r_[np.cumsum(law[::-1])[::-1], 0.0]
    top = int(np.argmax(tails < rarest))
    found = start_law(weights, rate, older=0.0, top=float(top), rarest=rarest)
    for point in range(top):
        exact = tails[point + 1]
        assert exact * (1 - 1e-9) <= found.tail(point + 0.5) <= exact * 1.02
    # Without tilts, what rounding may take off the tails of many digits is charged at all of them.
    plain = start_law(weights, rate, older=0.0, top=float(top), rarest=0.5)
    assert plain.tail(top - 0.5) > max(1e-15, 1.1 * tails[top])


@pytest.mark.parametrize(("rate", "most"), [(1e-10, 33), (4e-6, 60), (1e-3, 120)])
def test_the_verifier_tells_apart_starts_that_are_rarer_than_anything(
    rate: float, most: int
) -> None:
    """Equal coins at the rarest chances asked for: their law is cut off before the grid ends."""
    found = start_law(np.ones(1000), rate, older=0.0, rarest=1e-290)
    for heads in range(most):
        exact = float(special.betainc(heads + 1, 1000 - heads, rate))
        assert exact * (1 - 1e-9) <= found.tail(heads + 0.5) <= exact * 1.02


def test_thousands_of_different_swaps_wait_for_nobody() -> None:
    """All laws at once, gigabytes of them, were held and added up without a look at a clock."""
    weights = 0.999 ** np.arange(20_000)
    began = time.thread_time()
    tracemalloc.start()
    try:
        with at_most(1.0), pytest.raises(OutOfTime):
            start_law(weights, 0.5, 0.0, 1.0)
        assert tracemalloc.get_traced_memory()[1] < 3e8
    finally:
        tracemalloc.stop()
    assert time.thread_time() - began < 4
