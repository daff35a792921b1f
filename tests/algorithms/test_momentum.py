"""Momentum and averages of iterates: which bounds speak of them, and what they cost at least."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplateau import (
    Ball,
    Checkpoints,
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
from dplateau.bounds.registry import bound_named
from dplateau.certificates import Certificate
from forging import forged

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
PLAIN = NoisyGD(
    n=100, steps=200, learning_rate=1.0, l2=0.05, noise_std=0.05, loss=LOSS, release="last"
)
CHANGES: list[dict[str, Any]] = [{"momentum": 0.5}, {"average_last": 50}]


@pytest.mark.parametrize(
    ("changes", "bound"),
    [({"momentum": 0.5}, "momentum"), ({"average_last": 20}, "checkpoints_full_batch")],
    ids=str,
)
def test_their_claims_lie_between_linear_losses_and_all(
    changes: dict[str, Any], bound: str
) -> None:
    found = certify(PLAIN.replace(**changes), 1e-5)
    assert found.bound == bound
    assert "momentum" in str(bound_named("gd_contraction").refusal(found.run))
    shown = certify(PLAIN.replace(release="all"), 1e-5).claimed_epsilon
    assert lower_bound(found.run, 1e-5).epsilon < found.claimed_epsilon < shown


@pytest.mark.parametrize(
    "changes",
    [
        {"momentum": 0.5, "average_last": 20},
        {"momentum": 0.5, "domain": Ball(1.0)},
        {"momentum": 0.5, "release": Checkpoints(every=50)},
    ],
    ids=str,
)
def test_only_composition_speaks_of_both(changes: dict[str, Any]) -> None:
    run = PLAIN.replace(**changes)
    rows = {row.bound: row for row in compare(run, 1e-5).rows}
    assert all(row.epsilon is None for row in rows.values() if row.hidden_state)
    released = certify(PLAIN.replace(release="all"), 1e-5).claimed_epsilon
    assert certify(run, 1e-5).claimed_epsilon == released > certify(PLAIN, 1e-5).claimed_epsilon


def test_exact_problems_need_linear_losses_on_all_of_space() -> None:
    with pytest.raises(NotApplicable, match="with momentum or averages exact problems are known"):
        lower_bound(PLAIN.replace(momentum=0.5, domain=Ball(1.0)), 1e-5)


@pytest.mark.parametrize("kind", ["nesterov", "heavy_ball"])
def test_responses_are_those_of_the_training_loop(kind: Any) -> None:
    """With nothing but a ridge, what leaves is a sum of the noise, weighted by the responses."""
    from dplateau.audit.lower_bounds import _responses

    run = PLAIN.replace(steps=7, momentum=0.6, momentum_kind=kind, average_last=3)
    w, v, pull, noise = 0.0, 0.0, 0.05, [0.3, -1.0, 0.5, 2.0, -0.7, 0.1, 0.9]
    path = []
    for push in noise:
        at = w + 0.6 * v if kind == "nesterov" else w
        v = 0.6 * v - pull * at + push
        w += v
        path.append(w)
    assert float(np.dot(_responses(run, pull), noise)) == pytest.approx(np.mean(path[-3:]))


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_verifier_refuses_a_hidden_state_claim_about_them(changes: dict[str, Any]) -> None:
    found = forged(certify(PLAIN, 1e-5).to_dict(), run=PLAIN.replace(**changes).to_dict())
    assert not Certificate.from_dict(found).verify().ok


def test_defaults_are_left_out_of_the_description() -> None:
    assert "momentum" not in PLAIN.to_dict()
    assert PLAIN.replace(momentum=0.0, average_last=1) == PLAIN
    assert run_from_dict(PLAIN.replace(momentum=0.9).to_dict()).momentum == 0.9
    assert "momentum_kind" not in PLAIN.replace(momentum=0.9).to_dict()
    heavy = PLAIN.replace(momentum=0.9, momentum_kind="heavy_ball")
    assert run_from_dict(heavy.to_dict()) == heavy


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"momentum": 1.0}, "below 1"),
        ({"momentum_kind": "polyak"}, "momentum_kind must be one of 'nesterov', 'heavy_ball'"),
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
