"""Several certificates on the same data."""

from __future__ import annotations

import math

import pytest

from dplateau import (
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    certify,
    compose,
)
from dplateau.bounds.registry import bound_named
from dplateau.curves import GaussianCurve

DELTA = 1e-5
LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
FULL = certify(NoisyGD(n=9, steps=4, noise_multiplier=4.0, release="all"), DELTA)
HIDDEN = certify(
    NoisyGD(
        n=1000, steps=400, learning_rate=0.5, l2=0.1, noise_std=0.04, loss=LOSS, release="last"
    ),
    DELTA,
)
SAMPLED_RUN = NoisySGD(n=6000, batch_size=60, steps=300, noise_multiplier=1.0, release="all")
SAMPLED = certify(SAMPLED_RUN, DELTA)


def test_gaussian_certificates_compose_exactly() -> None:
    mus = [certificate.curve.mu for certificate in (FULL, HIDDEN, FULL)]
    found = compose([FULL, HIDDEN, FULL], DELTA)
    exact = GaussianCurve(math.hypot(*mus)).epsilon(DELTA)
    assert found.claimed_epsilon == pytest.approx(exact, rel=1e-9)
    assert found.claimed_epsilon >= exact
    assert found.method == "GDP composition"
    assert found.delta(found.claimed_epsilon) <= DELTA * (1 + 1e-9)
    assert found.epsilon(1e-8) > found.claimed_epsilon


def test_privacy_losses_compose_as_one_longer_run() -> None:
    found = compose([SAMPLED, SAMPLED], DELTA)
    longer = certify(SAMPLED_RUN.replace(steps=600), DELTA).claimed_epsilon
    assert found.method == "PLD composition"
    assert found.claimed_epsilon == pytest.approx(longer, rel=2e-3)
    assert SAMPLED.claimed_epsilon < found.claimed_epsilon < 2 * SAMPLED.claimed_epsilon


def test_mixed_certificates() -> None:
    found = compose([SAMPLED, FULL, HIDDEN], DELTA)
    assert found.method == "PLD composition"
    assert found.claimed_epsilon > max(SAMPLED.claimed_epsilon, FULL.claimed_epsilon)
    assert found.claimed_epsilon < SAMPLED.epsilon(DELTA / 3) + FULL.epsilon(DELTA / 3) + (
        HIDDEN.epsilon(DELTA / 3)
    )


def test_renyi_certificates_add_up() -> None:
    rdp = certify(SAMPLED_RUN, DELTA, bounds=[bound_named("rdp_composition")])
    found = compose([rdp, rdp], DELTA)
    longer = certify(
        SAMPLED_RUN.replace(steps=600), DELTA, bounds=[bound_named("rdp_composition")]
    ).claimed_epsilon
    assert found.claimed_epsilon <= longer * 1.01
    # Whatever method wins, it must not undercut the exact composition of the same two runs.
    exact_below = compose([SAMPLED, SAMPLED], DELTA).claimed_epsilon * (1 - 2e-3)
    assert found.claimed_epsilon >= exact_below


def test_naive_certificates_still_compose() -> None:
    naive = certify(SAMPLED_RUN, DELTA, bounds=[bound_named("naive_composition")])
    found = compose([naive, FULL], DELTA)
    assert naive.claimed_epsilon < found.claimed_epsilon < math.inf
    assert found.claimed_epsilon <= naive.epsilon(DELTA / 2) + FULL.epsilon(DELTA / 2) + 1e-9


def test_one_certificate_is_itself() -> None:
    for certificate in (FULL, SAMPLED, HIDDEN):
        found = compose([certificate], DELTA)
        assert found.claimed_epsilon == pytest.approx(certificate.claimed_epsilon, rel=2e-3)


def test_order_does_not_matter() -> None:
    one = compose([SAMPLED, FULL], DELTA).claimed_epsilon
    assert compose([FULL, SAMPLED], DELTA).claimed_epsilon == pytest.approx(one, rel=1e-6)


def test_the_claim_in_words() -> None:
    found = compose([FULL, FULL], DELTA)
    assert str(found) == (f"2 releases: ({found.claimed_epsilon:.6g}, 1e-05)-DP by GDP composition")
    assert found.certificates == (FULL, FULL)
    assert found.claimed_delta == DELTA


def test_different_neighbours_are_refused() -> None:
    replaced = certify(FULL.run.replace(neighbors="replace"), DELTA)
    with pytest.raises(InvalidInput, match=r"different neighbours .*certify all runs with the"):
        compose([FULL, replaced], DELTA)


def test_nothing_to_compose_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one certificate"):
        compose([], DELTA)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="delta must"):
            compose([FULL], delta)
