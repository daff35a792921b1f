"""delta = 0: bounded losses have a finite epsilon there, Gaussian noise has none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dplateau import (
    Ball,
    Certificate,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    OnePassSGD,
    calibrate,
    certify,
    compare,
    compose,
    foreign,
)
from dplateau.algorithms import Run
from dplateau.certificates.certificate import Claim
from dplateau.curves import (
    AdvancedCompositionCurve,
    BasicCompositionCurve,
    GaussianCurve,
    GroupCurve,
    LaplaceCurve,
    LaplacePair,
    LossCurve,
    MixtureCurve,
    NaiveCompositionCurve,
    PrivacyCurve,
    RenyiCurve,
    SubsampledCurve,
    WorstCurve,
)

ONE = LaplaceCurve(0.5)
LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)
BALL = Ball(1.0)
LINE: dict[str, Any] = {"noise_kind": "laplace", "dimension": 1}
# (run, pure epsilon): a use costs sqrt(2) / z, amplified by sampling to log(1 + q (e^eps - 1)).
PURE: list[tuple[Run, float]] = [
    (
        NoisyGD(n=9, steps=4, noise_multiplier=4.0, release="all", **LINE),
        math.sqrt(2),
    ),
    (
        NoisySGD(
            n=900,
            batch_size=9,
            steps=40,
            noise_multiplier=4.0,
            noise_kind="laplace",
            release="all",
            dimension=1,
        ),
        40 * math.log1p(0.01 * math.expm1(math.sqrt(2) / 4)),
    ),
    (
        CyclicSGD(
            n=90,
            batch_size=9,
            epochs=4,
            noise_multiplier=4.0,
            noise_kind="laplace",
            release="all",
            dimension=1,
        ),
        math.sqrt(2),
    ),
    (
        OnePassSGD(
            n=40,
            learning_rate=0.5,
            noise_std=2.0,
            loss=LOSS,
            noise_kind="laplace",
            release="last",
            dimension=1,
            domain=BALL,
        ),
        math.sqrt(2) / 2,
    ),
]


@pytest.mark.parametrize(
    ("curve", "epsilon"),
    [
        (ONE, 0.5),
        (NaiveCompositionCurve(ONE, 7), 3.5),
        (SubsampledCurve(ONE, 0.1), math.log1p(0.1 * math.expm1(0.5))),
        (GroupCurve(ONE, 3), 1.5),
        (MixtureCurve((0.5, 0.5), (ONE, LaplaceCurve(0.2))), 0.5),
        (WorstCurve((ONE, LaplaceCurve(0.7))), 0.7),
        (BasicCompositionCurve((ONE, LaplaceCurve(0.7))), 1.2),
        (LossCurve(((LaplacePair(0.5), 3),)), 1.5),
        (foreign(epsilon=0.3, delta=0.0, neighbors="replace").curve, 0.3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bounded_losses_reach_it(curve: PrivacyCurve, epsilon: float) -> None:
    found = curve.epsilon(0.0)
    assert epsilon <= found <= epsilon * (1 + 1e-9)
    assert curve.epsilon(1e-3) <= found


@pytest.mark.parametrize(
    "curve",
    [
        GaussianCurve(1.0),
        RenyiCurve((2.0,), (0.1,)),
        AdvancedCompositionCurve(ONE, 3),
        MixtureCurve((1.0,), (ONE,), extra_delta=1e-9),
        WorstCurve((ONE, GaussianCurve(0.1))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unbounded_losses_do_not(curve: PrivacyCurve) -> None:
    assert curve.epsilon(0.0) == math.inf


@pytest.mark.parametrize(("run", "epsilon"), PURE, ids=lambda value: type(value).__name__)
def test_pure_certificates(run: Run, epsilon: float) -> None:
    found = certify(run, 0)
    assert epsilon * (1 - 1e-12) <= found.claimed_epsilon <= epsilon * (1 + 2e-9)
    assert found.verify().ok
    again = Certificate.from_json(found.to_json())
    assert again == found
    lower = replace(again, claim=Claim(epsilon * (1 - 1e-6), 0.0))
    assert not lower.verify().ok
    both = compose([found, found], 0)
    assert both.claimed_epsilon == pytest.approx(2 * epsilon, rel=5e-9)
    assert both.verify().ok


def test_the_noise_for_a_pure_epsilon() -> None:
    found = calibrate(PURE[0][0], 1.0, 0)
    assert found.value == pytest.approx(4 * math.sqrt(2), rel=1e-3)


def test_gaussian_noise_is_refused_by_name() -> None:
    run = NoisyGD(n=9, steps=4, noise_multiplier=4.0, release="all")
    with pytest.raises(
        NotApplicable, match=r"at delta = 0: take delta > 0, or noise_kind='laplace"
    ):
        certify(run, 0)
    rows = {row.bound: row.reason for row in compare(run, 0).rows}
    assert rows["gdp_composition"] == (
        "gives no finite epsilon at delta = 0, which Gaussian noise never has"
    )
