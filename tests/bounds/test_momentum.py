"""Momentum with a hidden state: the norm, exact short chains, numbers and refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau import (
    Ball,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    certify,
    lower_bound,
)
from dplateau.algorithms import Run
from dplateau.algorithms.base import MomentumKind
from dplateau.bounds.momentum import Norm, Steps, block_pairs, norms
from dplateau.bounds.registry import bound_named
from dplateau.curves import GaussianCurve, MixturePair
from dplateau.ground.types import FloatArray
from dplateau.numerics.bernoulli_laws import AtomLaw
from exact_chains import EPSILONS, proved

KINDS: tuple[MomentumKind, ...] = ("heavy_ball", "nesterov")
LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
SAMPLED = NoisySGD(
    n=10**9,
    sampling_rate=0.01,
    steps=20_000,
    learning_rate=0.5,
    l2=0.02,
    noise_multiplier=2.0,
    loss=LOSS,
    momentum=0.5,
    momentum_kind="heavy_ball",
    release="last",
)
FULL = NoisyGD(
    n=100,
    steps=400,
    learning_rate=0.5,
    l2=0.02,
    noise_multiplier=20.0,
    loss=LOSS,
    momentum=0.5,
    release="last",
)
BOUND = bound_named("momentum")


# --- the norm ------------------------------------------------------------------------------------


def matrix(kind: str, m: float, x: float) -> FloatArray:
    """Return the map of (w, u), column by column, from the update rule itself."""
    columns = []
    for w, u in ((1.0, 0.0), (0.0, 1.0)):
        at = w - m * u if kind == "nesterov" else w
        turned = m * u + x * at
        columns.append([w - turned, turned])
    return np.array(columns).T


@given(
    kind=st.sampled_from(KINDS),
    m=st.floats(0.01, 0.95),
    flat=st.floats(1e-3, 0.3),
    more=st.floats(0.0, 1.0),
    cross=st.floats(-3, 3),
    room=st.floats(0.05, 20),
    seed=st.integers(0, 10**6),
)
def test_the_norm_shrinks_between_the_two_ends(
    kind: MomentumKind, m: float, flat: float, more: float, cross: float, room: float, seed: int
) -> None:
    """Against eigenvalues of the matrices themselves, at the ends and between them."""
    steps = Steps(kind, Fraction(m), Fraction(flat), Fraction(flat + more))
    norm = Norm(cross, cross**2 + room)
    c = norm.contraction([(float(x), float(k)) for x, k in steps.ends()])
    p = np.array([[1.0, norm.cross], [norm.cross, norm.own]])
    root = np.linalg.cholesky(p).T
    sizes = [
        np.linalg.norm(root @ matrix(kind, m, x) @ np.linalg.inv(root), 2)
        for x in np.linspace(flat, flat + more, 7)
    ]
    assert max(sizes[0], sizes[-1]) == pytest.approx(c, rel=1e-6)
    assert max(sizes) <= c * (1 + 1e-6)
    assert norm.shrinks(steps, c * (1 + 1e-6))
    assert not norm.shrinks(steps, c * (1 - 1e-6))
    # A push and its read-out.
    rng = np.random.default_rng(seed)
    path = np.array([-1.0, 1.0])
    for lag in range(6):
        assert abs(path[0]) <= norm.kappa() * (c * (1 + 1e-9)) ** lag * (1 + 1e-9)
        path = matrix(kind, m, flat + more * rng.random()) @ path


def test_a_norm_that_is_none_is_refused() -> None:
    steps = Steps("heavy_ball", Fraction(1, 2), Fraction(1, 100), Fraction(1, 10))
    assert not Norm(1.0, 1.0).shrinks(steps, 0.99)
    assert not Norm(2.0, 1.0).shrinks(steps, 0.99)
    assert math.isinf(Norm(2.0, 1.0).contraction([(0.01, 0.5)]))


# --- exact chains --------------------------------------------------------------------------------
#
# One dimension, T steps. The last state given all earlier noise is Gaussian; earlier noise is
# integrated by Gauss-Hermite quadrature, the maps being smooth.

Function = Callable[[FloatArray], FloatArray]


def smooth_slope(rng: np.random.Generator, most: float) -> Function:
    """Return a gradient of a convex loss: its slope lies between 0 and ``most``."""
    kind = rng.choice(["none", "line", "bend", "well"])
    place, width = rng.normal(), rng.uniform(0.3, 1.5)
    if kind == "none":
        return np.zeros_like
    if kind == "line":
        return lambda w: most * (w - place)
    if kind == "bend":
        return lambda w: most * width * np.logaddexp(0.0, (w - place) / width)
    return lambda w: most * width * np.tanh((w - place) / width)


def push(rng: np.random.Generator, reach: float) -> Function:
    match rng.choice(["right", "left", "turning", "wave"]):
        case "right":
            return lambda w: np.full(w.shape, reach)
        case "left":
            return lambda w: np.full(w.shape, -reach)
        case "turning":
            place = rng.normal()
            return lambda w: reach * np.tanh(3 * (w - place))
        case _:
            return lambda w: reach * np.sin(2 * w)


def last_law(
    kind: str,
    m: float,
    x: float,
    nu: float,
    slopes: list[Function],
    pushes: list[Function] | None,
    rate: float,
    grid: FloatArray,
) -> FloatArray:
    """Return the density of w_T; ``pushes`` of None is the run without the record."""
    steps = len(slopes)
    nodes, shares = np.polynomial.hermite_e.hermegauss(36)
    shares = shares / shares.sum()
    noise = np.array(list(itertools.product(nodes, repeat=steps - 1))).T
    weight = np.prod(np.array(list(itertools.product(shares, repeat=steps - 1))), axis=1)
    found = np.zeros(grid.size)
    drawn = [()] if pushes is None else list(itertools.product((0, 1), repeat=steps))
    for coins in drawn:
        share = math.prod(rate if coin else 1 - rate for coin in coins)
        w, u = np.zeros(weight.size), np.zeros(weight.size)
        for t in range(steps):
            at = w - m * u if kind == "nesterov" else w
            u = m * u + slopes[t](at) + x * at
            if coins and coins[t] and pushes is not None:
                u = u - pushes[t](at)
            if t < steps - 1:
                u = u - nu * noise[t]
            w = w - u
        gap = (grid[:, None] - w) / nu
        found += share * (np.exp(-(gap**2) / 2) @ weight) / (nu * math.sqrt(2 * math.pi))
    return found


def pairs_of(
    norm: Norm, steps: Steps, count: int, own: int, ratio: float, rate: float, down: int
) -> Any:
    """Return what the theorem gives, through a run with the same constants (any c will do)."""
    c = norm.contraction([(float(x), float(k)) for x, k in steps.ends()]) * (1 + 1e-9)
    ages = np.arange(own, count)
    weights = [ratio, *(norm.kappa() * c**ages * ratio)]

    def law(drawn: int) -> AtomLaw:
        if drawn == 0:
            return AtomLaw((0.0,), (1.0,))
        points, masses = np.zeros(1), np.ones(1)
        for weight in weights:
            points = np.r_[points, points + weight]
            masses = np.r_[masses * (1 - rate), masses * rate]
        order = np.argsort(points)
        kept = masses[order] > 0
        return AtomLaw(tuple(points[order][kept].tolist()), tuple(masses[order][kept].tolist()))

    atoms = [(0.0, 1 - rate), (ratio, rate)]
    one = AtomLaw(*map(tuple, zip(*[a for a in atoms if a[1] > 0], strict=True)))
    single = MixturePair(one, one if down else AtomLaw((0.0,), (1.0,)))
    found: list[Any] = [(MixturePair(law(1), law(down)), 1)]
    return (*found, (single, own - 1)) if own > 1 else tuple(found)


@pytest.mark.parametrize("seed", range(30))
def test_random_norms_stand_above_exact_nonlinear_chains(seed: int) -> None:
    """Any positive P, also one that stretches: the theorem holds with its own c and kappa."""
    rng = np.random.default_rng([41, seed])
    kind = KINDS[seed % 2]
    steps = int(rng.integers(2, 4))
    m, x = rng.uniform(0.05, 0.9), rng.uniform(0.01, 0.4)
    most = rng.uniform(0.0, 1.2)
    rate = float(rng.choice([0.1, 0.4, 1.0]))
    nu, reach = 1.0, rng.uniform(0.3, 1.5)
    down = int(rng.random() < 0.3)
    slopes = [smooth_slope(rng, most) for _ in range(steps)]
    aligned = rng.random() < 0.5
    pushes = [push(rng, reach) for _ in range(steps)]
    if aligned:
        pushes = [lambda w: np.full(w.shape, reach)] * steps
    grid = np.arange(-24.0, 24.0, 0.04)

    def law(given: list[Function] | None) -> FloatArray:
        return last_law(kind, m, x, nu, slopes, given, rate, grid) * 0.04

    with_record = law(pushes)
    other = [lambda w, push=one: -push(w) for one in pushes] if down else None
    without = law(other)
    assert with_record.sum() == pytest.approx(1.0, abs=1e-6)
    chosen = Steps(kind, Fraction(m), Fraction(x), Fraction(x + most))
    candidates = [Norm(c, c * c + v) for c, v in rng.uniform([-2, 0.2], [2, 3], (3, 2))]
    candidates += [norm for norm, _ in norms(chosen)]
    for norm, own in itertools.product(candidates, range(1, steps + 1)):
        bound = proved(pairs_of(norm, chosen, steps, own, reach / nu, rate, down))
        for order, (p, q) in {
            "remove": (with_record, without),
            "add": (without, with_record),
        }.items():
            exact = [float(np.maximum(p - math.exp(e) * q, 0.0).sum()) for e in EPSILONS]
            assert np.all(bound[order] >= np.array(exact) - 2e-6), (norm, own, order)


def impulse(kind: str, m: float, curvatures: FloatArray) -> FloatArray:
    """Return how far a push in each step moves the last w; ``curvatures`` (x) change with steps."""
    read, found = np.array([1.0, 0.0]), np.empty(curvatures.size)
    for t in range(curvatures.size - 1, -1, -1):
        found[t] = read @ np.array([-1.0, 1.0])
        read = read @ matrix(kind, m, float(curvatures[t]))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_long_quadratic_chains_with_changing_curvature(kind: MomentumKind, seed: int) -> None:
    """Quadratic losses of any curvature in range at each step, pushes whose sign serves the attack.

    The last w is then Gaussian given the coins, so the exact curve is that of a mixture; at rate 1
    it is that of one Gaussian, for any number of steps.
    """
    rng = np.random.default_rng([43, seed])
    m, flat = rng.uniform(0.05, 0.6), rng.uniform(0.005, 0.1)
    steep = flat + rng.uniform(0.02, 0.3)
    chosen = Steps(kind, Fraction(m), Fraction(flat), Fraction(steep))
    ratio = rng.uniform(0.1, 0.5)
    for norm, c in norms(chosen):
        for draw in range(6):
            count = int(rng.integers(2, 300))
            ends = rng.choice([flat, steep], count)
            kept = [np.full(count, flat), np.full(count, steep), ends][draw % 3]
            reach = np.abs(impulse(kind, m, kept))
            exact = ratio * reach.sum() / math.sqrt(float((reach**2).sum()))
            for own in (1, count // 2 + 1, count):
                old = norm.kappa() * (c ** np.arange(own, count)).sum()
                assert exact <= ratio * math.sqrt(own - 1 + (1 + old) ** 2) * (1 + 1e-9)
    norm = norms(chosen)[0][0]
    count, rate = 9, 0.3
    reach = np.abs(impulse(kind, m, rng.choice([flat, steep], count)))
    sizes, masses = np.zeros(1), np.ones(1)
    for one in reach * ratio / math.sqrt(float((reach**2).sum())):
        sizes = np.r_[sizes, sizes + one]
        masses = np.r_[masses * (1 - rate), masses * rate]
    truth = proved(((MixturePair(_atoms(sizes, masses), AtomLaw((0.0,), (1.0,))), 1),))
    for own in (1, 3, 6, 9):
        bound = proved(pairs_of(norm, chosen, count, own, ratio, rate, 0))
        for order in ("remove", "add"):
            assert np.all(bound[order] >= truth[order] - 1e-6), (own, order)


def _atoms(points: FloatArray, masses: FloatArray) -> AtomLaw:
    order = np.argsort(points)
    return AtomLaw(tuple(points[order].tolist()), tuple(masses[order].tolist()))


def test_the_pairs_of_the_tests_are_the_bound_s_own() -> None:
    run = SAMPLED.replace(steps=6, sampling_rate=0.3)
    steps = Steps.of(run, 3 * 10**8)
    norm, c = norms(steps)[0]
    for own, down in ((2, 0), (4, 1)):
        by_hand = proved(pairs_of(norm, steps, 6, own, 0.5, 0.3, down))
        found = proved(block_pairs(run, norm.kappa(), c, own, 1, down))
        for order in ("remove", "add"):
            np.testing.assert_allclose(found[order], by_hand[order], rtol=1e-5, atol=1e-9)


def test_releasing_the_velocity_too_would_cost_more_than_is_claimed() -> None:
    """Two iterates of a run that forgets nearly everything disclose both pushes in full."""
    run = NoisyGD(
        n=10,
        steps=2,
        learning_rate=0.95,
        l2=1.0,
        noise_multiplier=1.0,
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1e-3),
        momentum=0.01,
        momentum_kind="heavy_ball",
        release="last",
    )
    found = BOUND.curve(run, BOUND.plan(run, 1e-5))
    assert isinstance(found, GaussianCurve)
    assert found.mu < 1.2 < math.sqrt(2)
    both = certify(run.replace(release="all"), 1e-5)
    assert both.claimed_epsilon == pytest.approx(GaussianCurve(math.sqrt(2)).epsilon(1e-5))
    assert lower_bound(run.replace(release="all"), 1e-5).epsilon > found.epsilon(1e-5)


# --- numbers -------------------------------------------------------------------------------------


def test_numbers_of_a_heavy_ball() -> None:
    found = certify(SAMPLED, 1e-5)
    assert found.bound == "momentum"
    assert found.witness["contraction"] == pytest.approx(0.97957, abs=5e-5)
    assert found.witness["kappa"] == pytest.approx(3.15, abs=0.05)
    assert found.claimed_epsilon == pytest.approx(0.2697, abs=5e-4)
    assert certify(SAMPLED.replace(release="all"), 1e-5).claimed_epsilon > 3.18
    assert 1.3 < found.claimed_epsilon / lower_bound(SAMPLED, 1e-5).epsilon < 1.6
    assert found.verify().ok


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", [FULL, SAMPLED.replace(steps=2000)], ids=["full", "Poisson"])
def test_claims_lie_between_linear_losses_and_composition(base: Run, kind: MomentumKind) -> None:
    run = base.replace(momentum_kind=kind)
    claim = certify(run, 1e-5)
    assert claim.bound == "momentum"
    assert lower_bound(run, 1e-5).epsilon < claim.claimed_epsilon
    assert claim.claimed_epsilon < certify(run.replace(release="all"), 1e-5).claimed_epsilon
    assert claim.verify().ok


def test_little_momentum_is_nearly_none() -> None:
    """The last step hides all old uses alone: less sharp than the shift program of plain steps."""
    plain = certify(FULL.replace(momentum=0.0), 1e-5).claimed_epsilon
    light = certify(FULL.replace(momentum=1e-6), 1e-5).claimed_epsilon
    assert plain < light < 2 * plain


@pytest.mark.parametrize("changes", [{"neighbors": "replace"}, {"group_size": 3}], ids=str)
def test_replaced_records_and_groups_cost_more(changes: dict[str, Any]) -> None:
    run = SAMPLED.replace(n=10**5, steps=1000)
    one, more = certify(run, 1e-5), certify(run.replace(**changes), 1e-5)
    assert more.bound == "momentum"
    assert 1.5 < more.claimed_epsilon / one.claimed_epsilon < 5
    assert more.verify().ok


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (SAMPLED.replace(momentum=0.9, learning_rate=0.1), "lower the learning rate to 0.07"),
        (SAMPLED.replace(momentum=0.9, learning_rate=0.1), "or the momentum to 0.88"),
        (SAMPLED.replace(domain=Ball(1.0)), "is about runs without a domain"),
        (SAMPLED.replace(average_last=3), "two iterates together say what the velocity was"),
        (SAMPLED.replace(l2=0.0), "needs steps that forget: add l2 > 0"),
        (SAMPLED.replace(momentum=0.0), "is about momentum > 0; yours takes plain steps"),
        (SAMPLED.replace(release="all"), "needs hidden iterates"),
        (
            SAMPLED.replace(loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=0.1)),
            "needs convex losses; yours are declared nonconvex",
        ),
        (FULL.replace(noise_multiplier=[20.0] * 200 + [30.0] * 200), "at every step"),
    ],
)
def test_what_is_not_covered_is_refused_with_the_reason(run: Run, text: str) -> None:
    reason = BOUND.refusal(run)
    assert reason is not None
    assert text in reason


def test_the_way_out_that_a_refusal_names_works() -> None:
    for changes in ({"learning_rate": 0.072}, {"momentum": 0.88}):
        run = SAMPLED.replace(**{"momentum": 0.9, "learning_rate": 0.1, **changes})
        assert BOUND.refusal(run) is None


def test_witnesses_that_prove_nothing_are_refused() -> None:
    witness = dict(BOUND.plan(FULL, 1e-5))
    smaller = {**witness, "contraction": witness["contraction"] * (1 - 1e-4)}
    with pytest.raises(InvalidInput, match="does not shrink by"):
        BOUND.curve(FULL, smaller)
    with pytest.raises(InvalidInput, match="does not shrink by"):
        BOUND.curve(FULL, {**witness, "norm": [5.0, 1.0]})
    always = NoisySGD(**{**FULL.parameters(), "batch_size": 20, "sampling_rate": 1.0})
    with pytest.raises(InvalidInput, match="every batch holds all 100 records; the witness caps"):
        BOUND.curve(always, {**BOUND.plan(always, 1e-5), "batch_cap": 20})
    with pytest.raises(InvalidInput, match="between 1 and 400 blocks are one step's own; got 0"):
        BOUND.curve(FULL, {**witness, "own_blocks": 0})
