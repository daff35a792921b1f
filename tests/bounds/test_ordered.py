"""Contractions at their edge, and ordered batches whose steps differ: schedules, short batches."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dplateau import (
    Ball,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    OnePassSGD,
    ProjectedLangevin,
    Schedule,
    certify,
    losses,
    per_record,
)
from dplateau.algorithms import Run
from dplateau.bounds.iteration import at_position, chain_of
from dplateau.bounds.ordered import positions_sum_of_squares
from dplateau.bounds.registry import bound_named
from dplateau.bounds.step_maps import CONTRACTION, StepMap
from dplateau.errors import InvalidInput
from dplateau.shifts import solve
from dplateau.verify import verify
from forging import forged

ORDERS = ("cyclic", "shuffle_once", "reshuffle")
BEST = {
    "cyclic": "cyclic_contraction",
    "shuffle_once": "shuffle_once_average",
    "reshuffle": "reshuffle_average",
}
SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
STRONG = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0, strong_convexity=0.1)


def cyclic(order: str = "cyclic", **changes: Any) -> CyclicSGD:
    options: dict[str, Any] = {
        "n": 1000,
        "batch_size": 25,
        "epochs": 5,
        "l2": 0.02,
        "loss": SMOOTH,
        "learning_rate": 1.0,
        "noise_multiplier": 3.0,
        "release": "last",
    }
    return CyclicSGD(order=order, **{**options, **changes})  # type: ignore[arg-type]


def claim(name: str, run: Run, delta: float = 1e-5) -> float:
    bound = bound_named(name)
    reason = bound.refusal(run)
    assert reason is None, reason
    return bound.curve(run, bound.plan(run, delta)).epsilon(delta)


# --- how far a contraction reaches ---------------------------------------------------------------


def test_contractions_reach_to_one() -> None:
    """Beyond eta (M + 2 l2) = 2 the other branch counts, until it reaches 1."""
    loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)
    run = cyclic("reshuffle", loss=loss, l2=0.6, batch_size=10, epochs=20)
    assert claim("reshuffle_average", run) == pytest.approx(0.83353, rel=1e-4)
    assert StepMap(loss, 0.6).contraction(1.0).c == pytest.approx(0.6)
    assert claim("gdp_composition", run) == pytest.approx(6.99923, rel=1e-5)
    at_the_edge = NoisyGD(
        n=10, steps=9, learning_rate=1.25, l2=0.6, loss=loss, noise_std=1.0, release="last"
    )
    assert claim("gd_contraction", at_the_edge) == pytest.approx(
        claim("gdp_composition", at_the_edge), rel=1e-9
    )
    refused = bound_named("gd_contraction").refusal(at_the_edge.replace(learning_rate=1.26))
    assert refused is not None
    assert "(smoothness + l2) <= 2; yours is 2.016; lower the learning rate to 1.25" in refused


def test_contractions_are_rounded_up() -> None:
    draw = np.random.default_rng(5)
    for _ in range(500):
        eta, l2, curve, bend = (float(x) for x in np.exp(draw.uniform(-6, 0.5, 4)))
        share = float(draw.uniform(0, 1))
        loss = LossGeometry(
            lipschitz=1.0, convex=True, smoothness=curve + bend, strong_convexity=curve
        )
        found = StepMap(loss, l2, least_fraction=share).contraction(eta)
        assert found is not None
        low = Fraction(eta) * (Fraction(l2) + Fraction(curve) * Fraction(share))
        high = Fraction(eta) * (Fraction(l2) + Fraction(loss.smoothness))
        exact = max(abs(1 - low), abs(1 - high))
        assert exact <= Fraction(found.c)
        assert Fraction(math.nextafter(found.c, 0.0)) < exact


def test_a_ridge_that_outweighs_nonconvex_losses_contracts() -> None:
    """c = 1 - eta (l2 - beta): the run is a convex one with that ridge, as far as mu goes."""
    bent = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.1)
    flat = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.1)
    options: dict[str, Any] = {"learning_rate": 0.5, "noise_multiplier": 3.0, "release": "last"}
    for make, name in (
        (lambda **o: NoisyGD(n=50, steps=80, **o), "gd_contraction"),
        (lambda **o: CyclicSGD(n=50, batch_size=5, steps=80, **o), "cyclic_contraction"),
        (lambda **o: OnePassSGD(n=50, batch_size=5, **o), "one_pass_contraction"),
    ):
        run = make(loss=bent, l2=0.3, **options)
        assert claim(name, run) == pytest.approx(
            claim(name, make(loss=flat, l2=0.2, **options)), rel=1e-9
        )
        assert certify(run, 1e-5).verify().ok
        small = bound_named(name).refusal(run.replace(l2=0.05))
        assert small is not None
        assert "nonconvex with l2=0.05; raise l2 to 0.1" in small
    heat = ProjectedLangevin(
        n=50, steps=30, learning_rate=0.5, loss=bent, l2=0.3, inverse_temperature=9.0,
        release="last",
    )  # fmt: skip
    assert bound_named("gd_contraction").refusal(heat) is None


# --- schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "epsilon"),
    [("cyclic", 1.288462), ("shuffle_once", 0.947578), ("reshuffle", 0.949999)],
)
def test_a_learning_rate_that_halves(order: str, epsilon: float) -> None:
    halved = cyclic(order, learning_rate=[2.0] * 100 + [1.0] * 100)
    assert claim(BEST[order], halved) == pytest.approx(epsilon, rel=2e-6)
    between = [claim(BEST[order], cyclic(order, learning_rate=eta)) for eta in (2.0, 1.0)]
    assert between[0] < claim(BEST[order], halved) < between[1] * 1.01
    assert certify(halved, 1e-5).bound == BEST[order]
    assert certify(halved, 1e-5).verify().ok


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("domain", [None, Ball(0.05)])
@pytest.mark.parametrize("loss", [SMOOTH, STRONG])
def test_a_schedule_that_never_changes_is_a_constant(
    order: str, domain: Ball | None, loss: LossGeometry
) -> None:
    constant = cyclic(order, domain=domain, loss=loss)
    scheduled = constant.replace(learning_rate=Schedule(((1.0, constant.steps),)))
    for name in {BEST[order], "cyclic_contraction"}:
        assert claim(name, scheduled) == pytest.approx(claim(name, constant), rel=1e-9)


def test_a_constant_schedule_of_one_pass_is_a_constant() -> None:
    run = OnePassSGD(
        n=95, batch_size=10, learning_rate=0.5, l2=0.1, loss=STRONG, noise_std=0.3, release="last"
    )
    scheduled = run.replace(learning_rate=[0.5] * 10)
    assert per_record(scheduled, 1e-5).epsilons == pytest.approx(
        per_record(run, 1e-5).epsilons, rel=1e-9
    )
    assert claim("one_pass_contraction", scheduled) == pytest.approx(
        claim("one_pass_contraction", run), rel=1e-9
    )


def test_the_last_record_need_not_be_the_worst() -> None:
    run = OnePassSGD(
        n=4,
        learning_rate=[2.0, 1.0, 0.5, 0.1],
        l2=0.1,
        loss=SMOOTH,
        iterate_std=1.0,
        release="last",
    )
    found = per_record(run, 1e-5).epsilons
    assert found[0] == max(found) > 5 * found[-1]
    # mu^2 = (2 * .9 * .95 * .99)^2 / (1 + .99^2 + (.99 * .95)^2 + (.99 * .95 * .9)^2)
    kept = [0.99 * 0.95 * 0.9, 0.99 * 0.95, 0.99, 1.0]
    square = (2 * kept[0]) ** 2 / sum(x * x for x in kept)
    assert bound_named("one_pass_contraction").plan(run, 1e-5)["sum_of_squares"] == pytest.approx(
        square, rel=1e-12
    )


def varied(seed: int) -> CyclicSGD:
    """Return a small run whose steps differ in everything."""
    draw = np.random.default_rng(seed)
    size = int(draw.integers(1, 5))
    n = size * int(draw.integers(1, 5)) + int(draw.integers(0, size))
    length = -(-n // size)
    order = str(draw.choice(ORDERS))
    steps = length * int(draw.integers(1, 6))
    if order != "reshuffle":
        steps += int(draw.integers(0, length))
    loss = LossGeometry(
        lipschitz=1.0, convex=True, smoothness=0.6, strong_convexity=float(draw.uniform(0, 0.5))
    )
    return CyclicSGD(
        n=n,
        batch_size=size,
        steps=steps,
        order=order,  # type: ignore[arg-type]
        learning_rate=draw.uniform(0.2, 2.5, steps),
        iterate_std=draw.uniform(0.3, 2.0, steps),
        l2=float(draw.choice([0.0, 0.1])),
        domain=Ball(float(draw.uniform(0.2, 2.0))) if draw.random() < 0.5 else None,
        neighbors=str(draw.choice(["add_remove", "replace"])),  # type: ignore[arg-type]
        loss=loss,
        release="last",
    )


@pytest.mark.parametrize("seed", range(40))
def test_claims_of_varied_runs_are_derived_again(seed: int) -> None:
    run = varied(seed)
    for name in {BEST[run.batches.order], "cyclic_contraction"}:
        found = certify(run, 1e-4, bounds=[bound_named(name)])
        assert verify(json.loads(found.to_json())).ok, name


@pytest.mark.parametrize("seed", range(20))
def test_positions_meet_the_shift_program(seed: int) -> None:
    """The solver of single chains knows nothing of blocks and finds the same."""
    run = varied(seed)
    if run.batches.order == "reshuffle":
        run = run.replace(order="cyclic")
    costs, _ = positions_sum_of_squares(run)
    for place in range(costs.size):
        chain = chain_of(run, at_position(run, place), CONTRACTION)
        assert costs[place] == pytest.approx(solve(chain).sum_of_squares, rel=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_no_order_exceeds_the_reshuffled_worst_case(seed: int) -> None:
    """Quadratic losses of any admissible curvature: exact, for any places in the epochs."""
    draw = np.random.default_rng([7, seed])
    run = varied(seed).replace(order="reshuffle", domain=None)
    length = run.batches_per_epoch
    run = CyclicSGD(
        **{
            **run.parameters(),
            "steps": run.steps - run.steps % length or length,
            "learning_rate": draw.uniform(0.2, 2.5, run.steps - run.steps % length or length),
            "iterate_std": 1.0,
        }
    )
    assert run.loss is not None
    etas = np.array([eta for eta, count in run.learning_rate.blocks for _ in range(count)])
    allowed = claim_mu(run)
    size, short = int(run.batch_size), run.n % int(run.batch_size) or int(run.batch_size)
    for _ in range(100):
        places = draw.integers(0, length, run.steps // length)
        if draw.random() < 0.3:
            places = np.array([length - 1, 0] * run.steps)[: run.steps // length]
        arrived, noise = 0.0, 0.0
        curved = draw.choice([run.loss.strong_convexity, run.loss.smoothness], run.steps)
        for t in range(run.steps):
            used = t % length == places[t // length]
            records = short if t % length == length - 1 else size
            keep = 1 - etas[t] * (run.l2 + curved[t] * (records - used) / size)
            arrived = abs(keep) * arrived
            arrived += run.neighbor_factor * etas[t] * run.loss.lipschitz / size if used else 0.0
            noise = keep**2 * noise + 1.0
        assert arrived / math.sqrt(noise) <= allowed


def claim_mu(run: Run) -> float:
    bound = bound_named("cyclic_contraction")
    return bound.curve(run, bound.plan(run, 1e-5)).mu  # type: ignore[attr-defined, no-any-return]


def test_more_noise_or_more_steps_after_never_cost_privacy() -> None:
    rates = np.linspace(2.0, 0.5, 200)
    base = claim("cyclic_contraction", cyclic(learning_rate=rates))
    louder = np.where(np.arange(200) == 120, 4.0, 3.0)
    assert claim("cyclic_contraction", cyclic(learning_rate=rates, noise_multiplier=louder)) <= base
    longer = cyclic(learning_rate=np.r_[np.full(40, 2.0), rates], epochs=6)
    assert claim("cyclic_contraction", longer) >= base


def test_long_runs_with_a_changing_rate_take_no_time() -> None:
    """A rate that changes at every step, over 10^5 records in one pass."""
    run = OnePassSGD(
        n=100_000,
        learning_rate=Schedule(tuple((1.0 / k, 10_000) for k in range(1, 11))),
        l2=0.01,
        loss=SMOOTH,
        noise_std=0.5,
        release="last",
    )
    found = certify(run, 1e-6, bounds=[bound_named("one_pass_contraction")])
    assert found.verify().ok
    assert found.claimed_epsilon == pytest.approx(
        claim("gdp_composition", run, 1e-6), rel=1e-8
    )  # the last record


def test_general_losses_keep_a_plan_for_each_position() -> None:
    bent = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.1)
    run = cyclic(
        n=95, batch_size=10, steps=100, epochs=None, l2=0.05, loss=bent, domain=Ball(0.1),
        learning_rate=[1.0] * 50 + [0.5] * 50,
    )  # fmt: skip
    found = certify(run, 1e-5)
    assert found.bound == "modulus"
    assert len(found.witness["plans"]) == 10
    assert found.claimed_epsilon < 0.5 * claim("gdp_composition", run)
    assert found.verify().ok
    witness = copy.deepcopy(dict(found.witness))
    witness["plans"][3]["blocks"][-1][1] *= 0.9
    # The verifier takes a plan as a suggestion and repairs it, but no smaller claim follows.
    less = {"epsilon": found.claimed_epsilon * 0.99, "delta": 1e-5}
    assert not verify(forged(found.to_dict(), witness=witness, claim=less)).ok
    rates = Schedule(((1.0, 2500), (0.5, 2500)))
    long = cyclic(loss=bent, l2=0.0, n=10_000, batch_size=10, learning_rate=rates)
    refused = bound_named("modulus").refusal(long)
    assert refused is not None
    assert "1000 positions of a schedule one by one, up to 20000 steps" in refused


# --- strong convexity of the losses --------------------------------------------------------------


def test_other_steps_keep_the_full_strong_convexity() -> None:
    """Batches of one: only the record's own step lacks the loss. By hand: c = .9, own step 1."""
    run = cyclic(n=10, batch_size=1, epochs=3, l2=0.0, loss=STRONG, domain=Ball(10.0))
    chain = chain_of(run, at_position(run, 9), CONTRACTION)
    assert chain.columns.first.tolist() == [0.9, 1.0]
    # The last use stands alone. The two before it are pooled: they leave c^9 and c^18, and each has
    # ten steps of noise, sum_{i<10} c^(2i) in its own units.
    noise = sum(0.81**i for i in range(10)) * (1 + 0.9**18)
    expected = 1 + (0.9**9 + 0.9**18) ** 2 / noise
    assert solve(chain).sum_of_squares == pytest.approx(expected / 9, rel=1e-9)


def test_one_pass_keeps_it_too() -> None:
    run = OnePassSGD(
        n=30, learning_rate=1.0, loss=STRONG, noise_std=1.0, domain=Ball(10.0), release="last"
    )
    found = bound_named("one_pass_contraction").record_curve(run, 19)  # type: ignore[attr-defined]
    assert found.mu == pytest.approx(1 / math.sqrt(sum(0.9 ** (-2 * k) for k in range(11))))


def test_a_short_batch_has_less_of_it() -> None:
    even = cyclic(n=40, batch_size=4, epochs=6, l2=0.0, loss=STRONG, domain=Ball(10.0))
    uneven = even.replace(n=37)
    assert claim("cyclic_contraction", even) < claim("cyclic_contraction", uneven)
    assert bound_named("cyclic_contraction").plan(uneven, 1e-5)["position"] == 9
    assert certify(uneven, 1e-5).bound == "cyclic_contraction"


def test_losses_of_linear_models_declare_none() -> None:
    """Slots may be padded by records that contribute nothing, which have no curvature."""
    made = [
        losses.Logistic(),
        losses.SmoothedHinge(width=0.5),
        losses.Huber(threshold=1.0),
    ]
    assert {loss.geometry(1.0).strong_convexity for loss in made} == {0.0}


# --- forged witnesses ----------------------------------------------------------------------------


def test_forged_starts_and_positions_are_noticed() -> None:
    run = cyclic(learning_rate=[2.0] * 100 + [1.0] * 100, domain=Ball(0.04))
    found = json.loads(certify(run, 1e-5, bounds=[bound_named("cyclic_contraction")]).to_json())
    witness = found["content"]["witness"]
    claim, honest = found["content"]["claim"], verify(found)
    assert honest.ok
    assert max(witness["starts"]) >= 0
    for name, value in (
        ("position", 3),
        ("starts", witness["starts"][:-1]),
        ("starts", [*witness["starts"][:-1], 4]),
        ("sum_of_squares", witness["sum_of_squares"] * 0.99),
    ):
        altered = verify(forged(found, witness={**witness, name: value}))
        # Noticed, or of no consequence: what the verifier derives is the same claim.
        assert not altered.ok or altered.rederived_epsilon == honest.rederived_epsilon, name
    less = {**claim, "epsilon": claim["epsilon"] * 0.999}
    assert not verify(forged(found, claim=less)).ok
    bound = bound_named("cyclic_contraction")
    with pytest.raises(InvalidInput, match="after a use before the last step"):
        bound.curve(run, {**witness, "starts": [*witness["starts"][:-1], 4]})
    free = cyclic(learning_rate=[2.0] * 100 + [1.0] * 100)
    with pytest.raises(InvalidInput, match="in a bounded domain"):
        bound.curve(free, {**witness, "starts": [2] * 40})


def test_a_smaller_claim_of_an_average_is_noticed() -> None:
    run = cyclic("shuffle_once", learning_rate=[2.0] * 100 + [1.0] * 100)
    found = certify(run, 1e-5)
    lower = forged(found.to_dict(), claimed_epsilon=found.claimed_epsilon * 0.999)
    assert not verify(lower).ok
