"""The accuracy benchmark's page says what its file says, and its peers walk as our engine does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplateau import NoisyGD, NoisySGD, certify
from dplateau.engines import SeededRandomness, scale_rows, train

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import utility_page
import utility_peers as peers
from utility import RESULTS, Results
from utility_data import Data

RATE, N, D = 2.0, 200, 6


def made(classes: int) -> Data:
    rng = np.random.default_rng(0)
    rows = scale_rows(rng.normal(size=(N, D)), 1.0)
    if classes == 1:
        targets: Any = np.clip(2 * rows[:, 0] + 0.3, -1, 1)
    else:
        targets = np.abs(rows[:, :classes]).argmax(1)
    return Data("made", rows, targets, rows, targets, regression=classes == 1)


@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_lanes_walk_as_the_engine(classes: int, momentum: float) -> None:
    data, model = made(classes), peers.model_for(made(classes))
    norm = model.feature_norm * (1 + 1e-6)
    run = NoisyGD(
        n=N, steps=30, learning_rate=RATE, noise_multiplier=1e-12, momentum=momentum,
        loss=model.loss.geometry(norm, model.clip), release="all",
    )  # fmt: skip
    targets = 2 * data.targets - 1 if classes == 2 else data.targets
    rows = peers.with_constant(data.rows, model.intercept)
    by_engine = [
        train(one, model.loss, rows, targets, feature_norm=norm, clip=model.clip,
              randomness=SeededRandomness(0))
        for one in (run, run.replace(average_last=15))
    ]  # fmt: skip
    # Without momentum: a Poisson batch of everybody.
    length = peers.Length(N, 30, None if momentum else N)
    lanes = [peers.Lane(0.1, 0.0, 0), peers.Lane(RATE, 0.0, 1)]
    for weights, expected in zip(peers.walk(data, length, lanes), by_engine, strict=True):
        np.testing.assert_allclose(weights[:, 1].ravel(), expected.ravel(), rtol=1e-5, atol=1e-7)


def test_lanes_get_the_noise_of_the_run() -> None:
    data, model = made(2), peers.model_for(made(2))
    constants = model.loss.geometry(model.feature_norm * (1 + 1e-6), model.clip)
    run = NoisyGD(
        n=N, steps=1, learning_rate=RATE, noise_multiplier=3.0, loss=constants, release="all"
    )
    lanes = [peers.Lane(RATE, noise, 5) for noise in (0.0, 3.0)]
    last, _ = peers.walk(data, peers.Length(N, 1), lanes)
    drawn = np.random.default_rng((5, 1)).standard_normal(D + 1, dtype=np.float32)
    noise = (last[:, 0] - last[:, 1]).ravel()
    np.testing.assert_allclose(noise, run.iterate_std * drawn, rtol=1e-5)


def test_multipliers_prove_the_target() -> None:
    for length in (peers.Length(1000, 50), peers.Length(1000, 40, 100)):
        sizes: Any = {"n": 1000, "steps": length.steps, "release": "all", "learning_rate": 0.1}
        noise = peers.multiplier(length, 1.0)
        run = (
            NoisyGD(noise_multiplier=noise, **sizes)
            if length.batch is None
            else NoisySGD(noise_multiplier=noise, batch_size=length.batch, **sizes)
        )
        assert 0.98 < certify(run, peers.DELTA).claimed_epsilon <= 1.0


def test_the_page_shows_the_stored_results() -> None:
    text = utility_page.PAGE.read_text(encoding="utf-8")
    assert utility_page.filled(text, Results(RESULTS)) == text


def test_every_cell_has_all_seeds_of_one_setting() -> None:
    found: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in Results(RESULTS).rows:
        if row["epsilon"]:
            found.setdefault((row["data"], row["method"], row["epsilon"]), []).append(row)
    for key, rows in found.items():
        assert sorted(row["seed"] for row in rows) == list("01234"), key
        assert len({(row["setting"], row["version"]) for row in rows}) == 1, key
