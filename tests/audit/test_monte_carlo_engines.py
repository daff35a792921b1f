"""The library's own training engine, audited against its own certificates.

A Huber loss whose target lies far away has a constant gradient of full length. The claim for full
batches is then exact, and that for ordered batches nearly so where steps contract strongly, so that
noise a quarter too small is seen within some thousand runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest

from dplateau import AuditReport, CyclicSGD, NoisyGD, NoisySGD, audit_trainer, certify
from dplateau.algorithms import Run
from dplateau.audit.monte_carlo_rates import worst_case_pair
from dplateau.engines import SeededRandomness, train
from dplateau.ground.types import FloatArray
from dplateau.losses import Huber

LOSS = Huber(1.0)
GEOMETRY = LOSS.geometry(1.0, None)
FAR = 1e6
GD = NoisyGD(
    n=6, steps=10, learning_rate=0.5, l2=0.2, noise_multiplier=2.0, loss=GEOMETRY, release="last"
)
CYCLIC = CyclicSGD(
    n=7,
    batch_size=3,
    epochs=2,
    learning_rate=0.5,
    l2=1.2,
    noise_multiplier=1.0,
    loss=GEOMETRY,
    release="last",
)
POISSON = NoisySGD(
    n=6,
    batch_size=2,
    steps=3,
    learning_rate=0.5,
    l2=0.2,
    noise_multiplier=0.8,
    loss=GEOMETRY,
    release="last",
)


def engine(run: Run) -> Callable[[FloatArray, np.random.Generator], FloatArray]:
    def trained(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        randomness = SeededRandomness(int(rng.integers(2**63)))
        targets = np.full(run.n, FAR)
        return train(run, LOSS, rows, targets, feature_norm=1.0, randomness=randomness)

    return trained


@lru_cache
def audited(described: Run, done: Run) -> AuditReport:
    pair = worst_case_pair(described, dimension=2)
    claim = certify(described, delta=1e-5)
    return audit_trainer(engine(done), claim, pair.data, pair.neighbor, runs=1500, seed=1)


@pytest.mark.parametrize("run", [GD, CYCLIC, POISSON], ids=lambda run: run.kind)
def test_the_engine_keeps_what_its_certificate_promises(run: Run) -> None:
    assert not audited(run, run).violated


@pytest.mark.parametrize("run", [GD, CYCLIC], ids=lambda run: run.kind)
def test_a_tight_claim_is_reached(run: Run) -> None:
    """The audit sees all that there is to see: what it passes is not passed for blindness."""
    from dplateau.curves import GaussianCurve

    curve = certify(run, delta=1e-5).curve
    assert isinstance(curve, GaussianCurve)
    assert audited(run, run).gdp_estimate == pytest.approx(curve.mu, rel=0.2)


@pytest.mark.parametrize("run", [GD, CYCLIC], ids=lambda run: run.kind)
def test_less_noise_than_described_is_caught(run: Run) -> None:
    multiplier = run.noise_multiplier
    assert isinstance(multiplier, float)
    assert audited(run, run.replace(noise_multiplier=0.75 * multiplier)).violated


def test_another_sampler_than_described_is_caught() -> None:
    """Every record in every batch, where each was to be drawn with probability one third."""
    everyone = NoisyGD(
        n=6,
        steps=3,
        learning_rate=0.5,
        l2=0.2,
        noise_multiplier=0.8,
        loss=GEOMETRY,
        release="last",
    )
    assert audited(POISSON, everyone).violated
