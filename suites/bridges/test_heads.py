"""Heads by Opacus, PyTorch and JAX: the example, Opacus under audit, three gradients."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from torch import nn

from dplateau import LossGeometry, NoisySGD, audit_trainer, train_gradient
from dplateau.engines import SeededRandomness
from dplateau.opacus import BoundedRows, certify_head

torch.set_num_threads(1)  # tiny heads: a second thread only waits
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
EXAMPLE = Path(__file__).parents[2] / "examples" / "opacus_head.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.mark.parametrize("trainer", ["opacus", "torch", "jax"])
def test_the_example_gets_two_epsilons_and_a_useful_head(
    example: dict[str, Any], trainer: str
) -> None:
    rows, targets = example["features"]()
    found = example["TRAINERS"][trainer](rows[:1200], targets[:1200], 40)
    weights, bias, released, hidden = found
    assert hidden.run.steps == 240
    assert hidden.claimed_epsilon < 0.6 * released
    assert hidden.verify().ok
    assert example["accuracy"](rows[1200:], targets[1200:], weights, bias) > 0.65


# ---- Opacus under audit --------------------------------------------------------------------------

N, STEPS, CLIP = 20, 6, 0.5


def opacus_run(rows: torch.Tensor, *, batch: int, noise: float = 1.0) -> tuple[Any, dict[str, Any]]:
    """Train a head without bias: a row of zeros has no gradient, so it stands for nobody."""
    head = nn.Sequential(BoundedRows(1.0), nn.Linear(rows.shape[1], 2, bias=False))
    nn.init.zeros_(head[1].weight)
    engine, criterion = PrivacyEngine(accountant="dplateau"), nn.CrossEntropyLoss()
    data = torch.utils.data.TensorDataset(rows, torch.zeros(len(rows), dtype=torch.long))
    module, optimizer, loader = engine.make_private(
        module=head,
        optimizer=torch.optim.SGD(head.parameters(), lr=0.5, weight_decay=0.2),
        data_loader=torch.utils.data.DataLoader(data, batch_size=batch),
        noise_multiplier=noise,
        max_grad_norm=CLIP,
    )
    done = 0
    while done < STEPS:
        for batch_rows, targets in loader:
            optimizer.zero_grad()
            criterion(module(batch_rows), targets).backward()
            optimizer.step()
            done += 1
            if done == STEPS:
                break
    return engine, {"module": module, "data_loader": loader, "criterion": criterion}


def weights_of(found: dict[str, Any]) -> np.ndarray:
    weight = found["module"]._module[1].weight
    return weight.detach().double().numpy().ravel()


@pytest.mark.parametrize("batch", [N, N // 2], ids=["every record", "half of them"])
def test_opacus_keeps_the_promise_of_its_head(batch: int) -> None:
    present = torch.zeros(N, 3)
    present[0, 0] = 5.0  # scaled to norm 1; its gradient is always longer than the clip norm
    absent = torch.zeros(N, 3)
    engine, found = opacus_run(present, batch=batch)
    claim = certify_head(engine, **found, delta=1e-5, release="last")

    def train(rows: torch.Tensor, rng: np.random.Generator, noise: float = 1.0) -> np.ndarray:
        torch.manual_seed(int(rng.integers(2**31)))
        return weights_of(opacus_run(rows, batch=batch, noise=noise)[1])

    def too_quiet(rows: torch.Tensor, rng: np.random.Generator) -> np.ndarray:
        return train(rows, rng, noise=0.4)

    def honest(rows: torch.Tensor, rng: np.random.Generator) -> np.ndarray:
        return train(rows, rng)

    direction = np.array([1.0, 0.0, 0.0, -1.0, 0.0, 0.0])
    report = audit_trainer(honest, claim, present, absent, runs=400, seed=3, direction=direction)
    assert report.verdict == "not violated"
    caught = audit_trainer(too_quiet, claim, present, absent, runs=400, seed=3, direction=direction)
    assert caught.verdict == "violated"


# ---- gradients of three libraries ----------------------------------------------------------------


def gradients() -> dict[str, tuple[Any, Any]]:
    def in_numpy(weights: Any, batch: Any) -> Any:
        rows, signs = batch
        return (-signs / (1 + np.exp(signs * (rows @ weights))))[:, None] * rows

    def in_torch(weights: Any, record: Any) -> Any:
        return nn.functional.softplus(-record[1] * (record[0] @ weights))

    def in_jax(weights: Any, record: Any) -> Any:
        return jax.nn.softplus(-record[1] * (record[0] @ weights))

    return {
        "numpy": (in_numpy, np.asarray),
        "torch": (torch.func.vmap(torch.func.grad(in_torch), (None, 0)), torch.from_numpy),
        "jax": (jax.jit(jax.vmap(jax.grad(in_jax), (None, 0))), jnp.asarray),
    }


@pytest.mark.parametrize("clip", [0.3, 1.5], ids=["clipped", "never clipped"])
def test_the_engine_does_the_same_with_gradients_of_every_library(clip: float) -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(200, 4)).astype(np.float32) / 2
    signs = np.sign(rows[:, 0] + 1e-3).astype(np.float32)
    run = NoisySGD(
        n=200,
        batch_size=50,
        steps=30,
        learning_rate=0.5,
        noise_multiplier=1.0,
        loss=LossGeometry(lipschitz=clip, convex=False, smoothness=1.0),
        release="all",
    )
    found = {}
    for name, (gradient, of) in gradients().items():
        start = of(np.zeros(4, np.float32))
        weights = train_gradient(
            run, gradient, (of(rows), of(signs)), start=start, randomness=SeededRandomness(7)
        )
        assert type(weights) is type(start)
        found[name] = np.asarray(weights)
    assert np.abs(found["numpy"]).max() > 0.05
    for name in ("torch", "jax"):
        np.testing.assert_allclose(found[name], found["numpy"], atol=2e-6)
