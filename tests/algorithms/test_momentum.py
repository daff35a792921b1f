"""Momentum and averages of iterates are processing of noisy gradients: composition covers them."""

from __future__ import annotations

from typing import Any

import pytest

from dplateau import (
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NotApplicable,
    OnePassSGD,
    ProjectedLangevin,
    certify,
    compare,
)
from dplateau.algorithms import run_from_dict
from dplateau.audit import lower_bound
from dplateau.certificates import Certificate
from forging import forged

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
PLAIN = NoisyGD(
    n=100, steps=200, learning_rate=1.0, l2=0.05, noise_std=0.05, loss=LOSS, release="last"
)
CHANGES: list[dict[str, Any]] = [{"momentum": 0.5}, {"average_last": 50}]


@pytest.mark.parametrize("changes", [c for c in CHANGES if "momentum" in c], ids=str)
def test_only_composition_speaks_of_momentum(changes: dict[str, Any]) -> None:
    run = PLAIN.replace(**changes)
    rows = {row.bound: row for row in compare(run, 1e-5).rows}
    assert all(row.epsilon is None for row in rows.values() if row.hidden_state)
    assert "momentum" in str(rows["gd_contraction"].reason)
    released = certify(PLAIN.replace(release="all"), 1e-5).claimed_epsilon
    assert certify(run, 1e-5).claimed_epsilon == released > certify(PLAIN, 1e-5).claimed_epsilon
    with pytest.raises(NotApplicable, match="momentum"):
        lower_bound(run, 1e-5)


def test_an_average_costs_more_than_the_last_iterate_and_less_than_all() -> None:
    last, averaged, shown = (
        certify(PLAIN.replace(**changes), 1e-5)
        for changes in ({}, {"average_last": 20}, {"release": "all"})
    )
    assert last.claimed_epsilon < averaged.claimed_epsilon < shown.claimed_epsilon
    assert averaged.bound == "checkpoints_full_batch"
    with pytest.raises(NotApplicable, match="averages iterates"):
        lower_bound(averaged.run, 1e-5)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_verifier_refuses_a_hidden_state_claim_about_them(changes: dict[str, Any]) -> None:
    found = forged(certify(PLAIN, 1e-5).to_dict(), run=PLAIN.replace(**changes).to_dict())
    assert not Certificate.from_dict(found).verify().ok


def test_defaults_are_left_out_of_the_description() -> None:
    assert "momentum" not in PLAIN.to_dict()
    assert PLAIN.replace(momentum=0.0, average_last=1) == PLAIN
    assert run_from_dict(PLAIN.replace(momentum=0.9).to_dict()).momentum == 0.9


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"momentum": 1.0}, "below 1"),
        ({"momentum": -0.1}, "at least 0"),
        ({"average_last": 0}, "at least 1"),
        ({"average_last": 201}, "200 steps"),
    ],
)
def test_bad_values_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        PLAIN.replace(**changes)


def test_random_stopping_and_langevin_take_plain_steps() -> None:
    with pytest.raises(InvalidInput, match="plain"):
        OnePassSGD(n=40, noise_std=1.0, momentum=0.5, release="random_stop")
    with pytest.raises(InvalidInput, match="plain"):
        ProjectedLangevin(steps=4, learning_rate=0.1, momentum=0.5, release="last")
