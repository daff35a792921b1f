"""Values that a search found hold when they are typed as they are shown."""

from __future__ import annotations

import re

import pytest

import dplateau as dp
from dplateau.certificates import Calibration


def test_a_number_of_steps_is_shown_in_full() -> None:
    run = dp.NoisyGD(n=100, steps=5, noise_multiplier=5.0, release="all")
    certificate = dp.certify(run, 1e-5)
    assert Calibration(run, certificate, "steps", 1234567).shown_value == "1234567"
    assert Calibration(run, certificate, "batch_size", 1234567).shown_value == "1234567"


@pytest.mark.parametrize("smoothness", [0.30001, 0.7, 1.7, 2.99999])
def test_the_learning_rate_that_is_advised_meets_the_condition(smoothness: float) -> None:
    loss = dp.LossGeometry(lipschitz=1.0, convex=True, smoothness=smoothness)
    run = dp.NoisyGD(
        n=100, steps=5, noise_multiplier=5.0, release="last", learning_rate=50.0, loss=loss, l2=0.01
    )
    reasons = dp.compare(run, 1e-5).refusals
    advice = [re.search(r"lower the learning rate to ([\d.]+)", reason) for reason in reasons]
    rates = [float(found[1].rstrip(".")) for found in advice if found]
    assert rates
    for rate in rates:
        assert rate * (smoothness + 0.01) <= 2.0
