"""Loss constants and domains: what they mean, and what contradicts itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dplateau import Ball, Body, Box, Dissipativity, Holder, InvalidInput, LossGeometry
from dplateau.algorithms.geometry import domain_from_dict
from dplateau.errors import NotApplicable

NOT_NUMBERS: list[Any] = [math.nan, True, "1", None, [1.0], 1j]


def test_constants_are_kept_and_pairs_get_names() -> None:
    loss = LossGeometry(
        lipschitz=2, convex=False, smoothness=3, holder=(0.5, 1.0), dissipativity=[0.0, 2.0]
    )
    assert (loss.lipschitz, loss.smoothness, loss.strong_convexity) == (2.0, 3.0, 0.0)
    assert loss.holder == Holder(exponent=0.5, constant=1.0)
    assert loss.dissipativity == Dissipativity(offset=0.0, rate=2.0)
    with pytest.raises(AttributeError, match="cannot assign"):
        loss.lipschitz = 3.0
    with pytest.raises(TypeError, match="positional"):
        LossGeometry(1.0, True)


@pytest.mark.parametrize(
    "loss",
    [
        LossGeometry(lipschitz=1.0, convex=True),
        LossGeometry(lipschitz=math.inf, convex=False),
        LossGeometry(lipschitz=1.0, convex=True, smoothness=2.0, strong_convexity=2.0),
        LossGeometry(lipschitz=1.0, convex=False, holder=(0.0, 2.0), dissipativity=(0.5, 0.1)),
    ],
)
def test_loss_round_trip(loss: LossGeometry) -> None:
    assert LossGeometry.from_dict(loss.to_dict()) == loss
    assert math.inf not in loss.to_dict().values()


@pytest.mark.parametrize("name", ["lipschitz", "smoothness", "strong_convexity"])
@pytest.mark.parametrize("value", [*NOT_NUMBERS, -1.0])
def test_loss_refuses_what_is_no_constant(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"{name} must be"):
        LossGeometry(**{"lipschitz": 1.0, "convex": True, name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lipschitz": 0.0}, "lipschitz must be above 0; got 0"),
        ({"convex": 1}, "convex must be True or False; got 1"),
        ({"convex": "yes"}, "convex must be True or False; got 'yes'"),
        ({"strong_convexity": math.inf}, "strong_convexity must be finite"),
        ({"convex": False, "strong_convexity": 0.1}, "contradicts convex=False; set convex=True"),
        ({"smoothness": 1.0, "strong_convexity": 2.0}, "exceeds smoothness=1; no function has b"),
        ({"holder": 0.5}, r"holder must be a pair \(exponent, constant\); got 0.5"),
        ({"holder": (1.0, 1.0)}, r"must lie in \[0, 1\); got 1; exponent 1 is smoothness"),
        ({"holder": (-0.5, 1.0)}, "holder exponent must be finite and at least 0"),
        ({"holder": (0.5, 0.0)}, "holder constant must be finite and above 0"),
        ({"dissipativity": (1.0,)}, "dissipativity must be a pair"),
        ({"dissipativity": (-1.0, 1.0)}, "dissipativity offset must be finite and at least 0"),
        ({"dissipativity": (1.0, math.nan)}, "dissipativity rate must be a real number; got NaN"),
    ],
)
def test_loss_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        LossGeometry(**{"lipschitz": 1.0, "convex": True, **options})


def test_foreign_loss_data_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"loss: .*unexpected keyword argument 'curvature'"):
        LossGeometry.from_dict({"convex": True, "curvature": 1.0})
    with pytest.raises(InvalidInput, match=r"loss: .*missing .*'convex'"):
        LossGeometry.from_dict({})


# --- domains -----------------------------------------------------------------------------------


DOMAINS = [Ball(1.5), Box(-1.0, 2.0), Box([0, -1], [3, 3]), Body(0.25)]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_domain_round_trip(domain: Any) -> None:
    assert domain_from_dict(domain.to_dict()) == domain
    assert hash(domain_from_dict(domain.to_dict())) == hash(domain)


def test_diameters() -> None:
    assert Ball(1.5).diameter == 3.0
    assert Box([0, -1], [3, 3]).diameter == 5.0
    assert Box(np.zeros(4), np.ones(4)).diameter == 2.0
    assert Body(7.0).diameter == 7.0


points = arrays.arrays(float, (3, 2), elements=st.floats(-10, 10))


@given(points)
def test_projections_are_idempotent_and_do_not_expand(point: Any) -> None:
    for domain in (Ball(1.5), Box([-1, 0], [1, 2])):
        inside = domain.project(point)
        np.testing.assert_allclose(domain.project(inside), inside, atol=1e-12)
        gaps = np.linalg.norm(inside[1:] - inside[:-1], axis=1)
        assert np.all(gaps <= np.linalg.norm(point[1:] - point[:-1], axis=1) + 1e-12)
    assert np.all(np.linalg.norm(Ball(1.5).project(point), axis=1) <= 1.5 + 1e-12)


def test_a_body_runs_only_with_a_projection() -> None:
    with pytest.raises(NotApplicable, match=r"can be accounted for but not run: pass project="):
        Body(1.0).project(np.zeros(2))
    assert Body(2.0, project=lambda point: point / 2).project(np.ones(2)).tolist() == [0.5, 0.5]
    with pytest.raises(InvalidInput, match="project must be a function of a point; got 3"):
        Body(1.0, project=3)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0.0, -1.0, math.inf])
def test_sizes_are_finite_positive_numbers(value: Any) -> None:
    with pytest.raises(InvalidInput, match="radius must be"):
        Ball(value)
    with pytest.raises(InvalidInput, match="diameter must be"):
        Body(value)


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (0.0, 0.0, "needs lower < upper; got lower=0, upper=0"),
        ([0, 0], [1, -1], "needs lower < upper; got lower=0, upper=-1"),
        ([0], [1, 1], "as many lower as upper bounds; got 1 and 2"),
        ([], [], "lower must hold finite numbers"),
        (-math.inf, 1.0, "lower must hold finite numbers; got -inf"),
        (0.0, math.nan, "upper must be a real number; got NaN"),
        ("ab", "cd", "lower must be a real number; got 'a'"),
    ],
)
def test_refused_boxes(lower: Any, upper: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Box(lower, upper)


def test_unknown_domains_are_refused() -> None:
    with pytest.raises(InvalidInput, match="known kinds are ball, box and body"):
        domain_from_dict({"kind": "simplex"})
