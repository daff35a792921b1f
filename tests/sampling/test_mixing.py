"""Mixing certificates: closed forms, laws, the published theorem, and a second derivation."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from dplateau import (
    Ball,
    Body,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    MixingCertificate,
    NoisySGD,
    NotApplicable,
    ProjectedLangevin,
    certify_mixing,
    largest_learning_rate,
    tv_over_steps,
)
from dplateau.sampling import block_tv_over_steps, nonexpansive_learning_rate, theorem_4_2
from dplateau.sampling.published import theta
from dplateau.verify import verify_mixing


def geometry(**known: Any) -> LossGeometry:
    return LossGeometry(**{"lipschitz": math.inf, "convex": True, **known})


SMOOTH = geometry(smoothness=1.0)
ROWS = {
    "Lipschitz": geometry(lipschitz=1.0),
    "weakly smooth": geometry(holder=(0.5, 1.5)),
    "strongly convex": geometry(smoothness=1.0, strong_convexity=0.5),
    "smooth": SMOOTH,
    "nonconvex": geometry(convex=False, smoothness=1.0),
    "dissipative": geometry(convex=False, smoothness=1.0, dissipativity=(0.5, 0.5)),
}


def chain(loss: LossGeometry, /, *, diameter: float = 1.0, eta: float = 0.01, **more: Any) -> Any:
    domain = Body(diameter=diameter)
    shared = {"steps": 1, "learning_rate": eta, "domain": domain, "loss": loss, "release": "last"}
    return ProjectedLangevin(**{**shared, **more})


def modulus(name: str, eta: float) -> tuple[float, float]:
    """(c, h) of each row of the table, written out again for ROWS."""
    return {
        "Lipschitz": (1.0, (2 * eta) ** 2),
        "weakly smooth": (1.0, (2 * eta**2 * math.sqrt(1 / 3) * 0.75**2) ** 2),
        "strongly convex": ((1 - eta / 2) ** 2, 0.0),
        "smooth": (1.0, 0.0),
        "nonconvex": ((1 + eta) ** 2, 0.0),
        "dissipative": (1 - eta + eta**2, eta),
    }[name]


def closed_form(c: float, h: float, diameter: float, steps: int, eta: float) -> float:
    """mu^2 of Theorem 3.4 with all of the steps."""
    variance = 2 * eta
    sums = [sum(c**j for j in range(t + 1)) for t in range(steps)]
    first = diameter**2 * c**steps / (variance * sums[-1])
    return first + h * sum(c**t / (variance * sums[t]) for t in range(steps))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("steps", [1, 2, 7, 40])
def test_one_block_is_the_closed_form_of_its_row(name: str, steps: int) -> None:
    eta, diameter = 0.05, 1.5
    run = chain(ROWS[name], diameter=diameter, eta=eta)
    # More steps may cost more where h > 0, so the best number of last steps counts.
    c, h = modulus(name, eta)
    rows = [(c, h)]
    if name == "dissipative":
        rows.append(modulus("nonconvex", eta))
    best = min(closed_form(c, h, diameter, k, eta) for c, h in rows for k in range(1, steps + 1))
    expected = 2 * ndtr(math.sqrt(best) / 2) - 1
    found = float(block_tv_over_steps(run, [steps])[0])
    assert found == pytest.approx(expected, rel=1e-6)
    assert found >= expected * (1 - 1e-12)


def test_convex_and_smooth_is_diameter_squared_over_two_eta_steps() -> None:
    for steps, blocks in ((4, 1), (50, 5)):
        (block,) = certify_mixing(chain(SMOOTH, diameter=1.0, eta=0.01), steps=steps).witness[
            "blocks"
        ]
        assert block["count"] == blocks
        assert block["sum_of_squares"] == pytest.approx(50 * blocks / steps, rel=1e-12)


def test_the_published_example() -> None:
    found = certify_mixing(chain(SMOOTH), tv=0.01)
    assert 140 <= found.steps <= 155
    assert theorem_4_2(chain(SMOOTH), 0.01).steps == 700
    # Blocks of 12 steps: twelve of them are below 0.01, by the formula alone.
    assert (2 * ndtr(math.sqrt(50 / 13) / 2) - 1) ** 12 < 0.01
    assert found.steps <= 12 * 13


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("l2", [0.0, 0.4])
def test_a_claim_survives_json_and_a_second_derivation(name: str, l2: float) -> None:
    found = certify_mixing(chain(ROWS[name], diameter=2.0, l2=l2), tv=1e-3)
    assert found.claimed_tv <= 1e-3
    verdict = found.verify()
    assert verdict.ok, str(verdict)
    assert verdict.rederived_tv is not None
    assert found.claimed_tv * (1 - 1e-7) <= verdict.rederived_tv <= found.claimed_tv
    again = MixingCertificate.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert "bravo2025mixing" in again.citation()
    assert str(found.steps) in str(found)


def test_random_batches_mix_as_well() -> None:
    shared: dict[str, Any] = {
        "n": 2000,
        "batch_size": 100,
        "steps": 1,
        "learning_rate": 0.02,
        "iterate_std": 0.2,
        "domain": Ball(1.0),
        "release": "last",
    }
    poisson = NoisySGD(**shared, loss=SMOOTH)
    fixed = NoisySGD(**shared, loss=SMOOTH, sampling="fixed", neighbors="replace")
    full = chain(SMOOTH, diameter=2.0, eta=0.02)
    steps = [certify_mixing(run, tv=0.01).steps for run in (poisson, fixed, full)]
    # The step does not expand for any batch, so batches cost nothing here.
    assert steps[0] == steps[1] == steps[2]
    rough = NoisySGD(**shared, loss=ROWS["nonconvex"])
    claim = certify_mixing(rough, tv=0.01)
    assert 100 < claim.witness["largest_batch"] < 200
    assert (
        claim.steps
        > certify_mixing(chain(ROWS["nonconvex"], diameter=2.0, eta=0.02), tv=0.01).steps
    )
    for run in (poisson, fixed, rough):
        assert certify_mixing(run, tv=0.01).verify().ok


def test_a_schedule_is_one_block() -> None:
    rates = [0.1] * 10 + [0.05] * 10 + [0.02] * 10
    run = chain(SMOOTH, steps=30, learning_rate=rates)
    found = certify_mixing(run)
    assert found.blocks == ((1, 30),)
    # Nonexpansive steps: mu^2 = D^2 / sum of 2 eta.
    expected = 2 * ndtr(0.5 / math.sqrt(2 * sum(rates))) - 1
    assert expected <= found.claimed_tv <= expected * (1 + 1e-8)
    assert found.verify().ok
    with pytest.raises(NotApplicable, match="schedule of 30 steps"):
        certify_mixing(run, tv=0.01)


@given(
    name=st.sampled_from(sorted(ROWS)),
    diameter=st.floats(0.3, 4.0),
    eta=st.floats(1e-3, 0.5),
    level=st.floats(1e-6, 0.9),
)
def test_never_longer_than_the_published_theorem(
    name: str, diameter: float, eta: float, level: float
) -> None:
    run = chain(ROWS[name], diameter=diameter, eta=eta)
    published = theorem_4_2(run, level)
    assert (published.steps is None) == (published.reason is not None)
    if published.steps is not None:
        assert certify_mixing(run, tv=level).steps <= published.steps


@given(
    name=st.sampled_from(sorted(ROWS)),
    diameter=st.floats(0.3, 3.0),
    eta=st.floats(1e-3, 0.5),
    factor=st.floats(1.01, 3.0),
)
def test_laws(name: str, diameter: float, eta: float, factor: float) -> None:
    run = chain(ROWS[name], diameter=diameter, eta=eta)
    steps = np.array([1, 2, 3, 5, 8, 13, 50, 200])
    curve = tv_over_steps(run, steps)
    # More steps never hurt; the whole is at most the product of its parts; one block is one way.
    assert np.all(np.diff(curve) <= 1e-9)
    assert curve[3] <= curve[1] * curve[2] * (1 + 1e-6)
    assert np.all(curve <= block_tv_over_steps(run, steps) * (1 + 1e-9))
    # A larger body is harder, a colder chain too.
    assert np.all(
        tv_over_steps(chain(ROWS[name], diameter=diameter * factor, eta=eta), steps)
        >= curve * (1 - 1e-9)
    )
    colder = chain(ROWS[name], diameter=diameter, eta=eta, inverse_temperature=factor)
    assert np.all(tv_over_steps(colder, steps) >= curve * (1 - 1e-9))


@given(name=st.sampled_from(sorted(ROWS)), level=st.floats(1e-8, 0.5), eta=st.floats(1e-3, 0.3))
def test_steps_are_enough_and_one_less_says_so(name: str, level: float, eta: float) -> None:
    found = certify_mixing(chain(ROWS[name], eta=eta), tv=level)
    assert found.claimed_tv <= level
    assert certify_mixing(chain(ROWS[name], eta=eta), steps=found.steps).claimed_tv <= level
    # The curve over steps knows no fewer steps that would do, by more than one in fifty.
    fewer = int(found.steps * 0.98) - 1
    if fewer >= 1:
        assert float(tv_over_steps(chain(ROWS[name], eta=eta), [fewer])[0]) > level


def test_temperature_only_rescales() -> None:
    """exp(-B f) with the step eta is exp(-f) for the potential B f with the step eta / B."""
    cold = chain(geometry(smoothness=1.0), eta=0.1, inverse_temperature=4.0)
    scaled = chain(geometry(smoothness=4.0), eta=0.025)
    assert certify_mixing(cold, tv=0.01).steps == certify_mixing(scaled, tv=0.01).steps
    assert theorem_4_2(cold, 0.01).steps == theorem_4_2(scaled, 0.01).steps
    ratio = theorem_4_2(cold, 0.01).largest_learning_rate
    assert ratio == pytest.approx(4 * theorem_4_2(scaled, 0.01).largest_learning_rate)


def test_theta_at_its_two_ends() -> None:
    # Lipschitz: (M/2)^2 max{16 ln(D (M/2) e), 27}; smooth: M / 2.
    assert theta(0.0, 4.0, 1.0) == pytest.approx(4 * 27.09035488895912)
    assert theta(0.0, 0.2, 1.0) == pytest.approx(0.01 * 27)
    assert theta(1.0, 3.0, 7.0) == 1.5
    assert theta(0.999999, 3.0, 7.0) == pytest.approx(1.5, rel=1e-4)


def test_a_step_that_no_theorem_covers_is_refused_with_the_largest_that_is() -> None:
    run = chain(SMOOTH, diameter=100.0, eta=3.0)
    with pytest.raises(NotApplicable, match=r"largest learning rate .* is 2\.0"):
        certify_mixing(run, tv=0.01)
    largest = largest_learning_rate(run)
    assert 2 < largest < 2.1
    assert certify_mixing(run.replace(learning_rate=largest), tv=0.5).steps > 0
    with pytest.raises(NotApplicable, match="learning rate"):
        certify_mixing(run.replace(learning_rate=largest * 1.01), tv=0.5)
    assert nonexpansive_learning_rate(run) == 2.0
    hopeless = chain(ROWS["nonconvex"], diameter=1000.0)
    with pytest.raises(NotApplicable, match="no learning rate has one"):
        certify_mixing(hopeless, tv=0.01)
    ridge = chain(ROWS["Lipschitz"], l2=2.0, eta=0.6)
    with pytest.raises(NotApplicable, match=r"must stay below 0\.5"):
        certify_mixing(ridge, tv=0.01)
    assert largest_learning_rate(ridge) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"domain": None}, "bounded body"),
        ({"loss": None}, "constants"),
        ({"loss": geometry(convex=False, lipschitz=1.0)}, "as declared"),
    ],
)
def test_what_mixing_needs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NotApplicable, match=message):
        certify_mixing(chain(SMOOTH, **changes), tv=0.01)


def test_questions_that_make_no_sense() -> None:
    run = chain(SMOOTH)
    with pytest.raises(InvalidInput, match="not both"):
        certify_mixing(run, tv=0.1, steps=3)
    for level in (0.0, 1.0, 1.5, math.nan):
        with pytest.raises(InvalidInput, match="tv"):
            certify_mixing(run, tv=level)
    with pytest.raises(InvalidInput, match="steps"):
        certify_mixing(run, steps=0)
    cyclic = CyclicSGD(n=10, batch_size=5, steps=2, noise_std=1.0, release="last")
    with pytest.raises(NotApplicable, match="CyclicSGD"):
        certify_mixing(cyclic, tv=0.1)


def altered(found: MixingCertificate, change: Any) -> dict[str, Any]:
    """A certificate with one change and a digest to match: only the mathematics can object."""
    from dplateau.ground.sealed import resealed

    body = json.loads(found.to_json())
    change(body["content"])
    return resealed(body)


def _scale_shift(body: dict[str, Any]) -> None:
    body["witness"]["blocks"][0]["plan"]["blocks"][0][1] *= 0.9


def _more_blocks(body: dict[str, Any]) -> None:
    body["witness"]["blocks"][0]["count"] += 1


def _smaller_claim(body: dict[str, Any]) -> None:
    body["claim"]["total_variation"] *= 0.99


def _wider_body(body: dict[str, Any]) -> None:
    body["run"]["domain"]["diameter"] *= 1.1


def _rougher(body: dict[str, Any]) -> None:
    body["run"]["loss"]["smoothness"] = 300.0


def _other_class(body: dict[str, Any]) -> None:
    body["witness"]["blocks"][0]["losses"] = "convex and Lipschitz"


def _fewer_steps(body: dict[str, Any]) -> None:
    body["claim"]["steps"] -= 1


def _momentum(body: dict[str, Any]) -> None:
    body["run"]["release"] = "whatever"


@pytest.mark.parametrize(
    "change",
    [
        _scale_shift,
        _more_blocks,
        _smaller_claim,
        _wider_body,
        _rougher,
        _other_class,
        _fewer_steps,
        _momentum,
    ],
)
def test_an_altered_claim_is_not_verified(change: Any) -> None:
    found = certify_mixing(chain(SMOOTH), tv=0.01)
    assert verify_mixing(json.loads(found.to_json())).ok
    verdict = verify_mixing(altered(found, change))
    assert not verdict.ok
    assert not verdict.checks[-1].ok


@pytest.mark.parametrize("found", [None, [], {}, {"kind": "dplateau/mixing-certificate"}])
def test_nonsense_is_not_verified(found: Any) -> None:
    assert not verify_mixing(found).ok


def test_reading_refuses_what_was_altered() -> None:
    text = certify_mixing(chain(SMOOTH), tv=0.1).to_json()
    with pytest.raises(InvalidInput, match="digest"):
        MixingCertificate.from_json(
            text.replace('"total_variation": 0.0', '"total_variation": 0.00')
        )
    with pytest.raises(InvalidInput, match="no JSON"):
        MixingCertificate.from_json("{")
    with pytest.raises(InvalidInput, match="lacks 'kind'"):
        MixingCertificate.from_json("{}")
