"""The audit accepts a right trainer and catches deliberately broken ones, again and again.

The trainer below follows the description of a run and does many runs at once. Each fault is set
where it truly breaks the certificate's curve: the claim for full batches with ridge is exact on
linear losses, and the other faults are large against what their claims leave open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest

from dplateau import Certificate, CyclicSGD, LossGeometry, NoisyGD, NoisySGD, certify
from dplateau.algorithms import Run
from dplateau.audit.monte_carlo import Statistic, audit_trainer
from dplateau.audit.monte_carlo_rates import CanaryPair, worst_case_pair
from dplateau.ground.types import FloatArray

# Linear losses meet these constants, and so do logistic ones on rows of norm at most 1.
LINEAR = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
REPETITIONS = 20


@dataclass(frozen=True)
class Trainer:
    """Noisy gradient descent as described by ``run``, and as many deviations from it as asked."""

    run: Run
    logistic: bool = False
    noise_factor: float = 1.0
    batches: str | None = None
    divide_by_realized_size: bool = False
    leak_after: int | None = None
    one_noise_for_all_steps: bool = False

    def __call__(self, rows: FloatArray, rng: np.random.Generator, count: int) -> FloatArray:
        """Return what leaves, one run per row."""
        run = self.run
        eta = 1.0 if run.learning_rate is None else run.learning_rate
        assert isinstance(eta, float)
        assert isinstance(run.noise_multiplier, float)
        # Without a rate the unit of length is free: r = eta L / b.
        noise = run.noise_multiplier * eta * (run.lipschitz or 1.0) / run.batch_size
        w = np.zeros((count, rows.shape[1]))
        kept, iterates = rng.normal(size=w.shape), []
        for taken in self._taken(rng, count):
            sums = self._gradients(rows, taken, w)
            size: float | FloatArray = run.batch_size
            if self.divide_by_realized_size:
                size = np.maximum(taken.sum(axis=1, keepdims=True), 1)
            drawn = kept if self.one_noise_for_all_steps else rng.normal(size=w.shape)
            w = w - eta * (sums / size + run.l2 * w) + noise * self.noise_factor * drawn
            iterates.append(w)
        if run.release.name == "all":
            return np.concatenate(iterates, axis=1)
        if self.leak_after is not None:
            return np.concatenate([iterates[self.leak_after - 1], w], axis=1)
        return w

    def _gradients(self, rows: FloatArray, taken: FloatArray, w: FloatArray) -> FloatArray:
        """Return the summed gradients: linear losses, or logistic ones with all labels 1."""
        if not self.logistic:
            return np.asarray(np.broadcast_to(taken @ rows, w.shape))
        slopes = -1.0 / (1.0 + np.exp(w @ rows.T))
        return np.asarray((taken * slopes) @ rows)

    def _taken(self, rng: np.random.Generator, count: int) -> Iterator[FloatArray]:
        """Yield a row of zeros and ones per run (or one for all), step after step."""
        run, n, b = self.run, self.run.n, int(self.run.batch_size)
        own = {"NoisyGD": "full", "NoisySGD": "poisson", "CyclicSGD": "cyclic"}[run.kind]
        kind, slots = self.batches or own, -(-n // b)
        order = np.zeros((1, n), dtype=np.int64)
        for step in range(run.steps):
            if kind == "full":
                yield np.ones((1, n))
            elif kind == "poisson":
                yield (rng.random((count, n)) < run.sampling_rate).astype(float)
            elif kind == "cyclic":
                yield (np.arange(n) // b == step % slots).astype(float)[None, :]
            else:
                if step % slots == 0:
                    order = rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)
                yield (order // b == step % slots).astype(float)


GD = NoisyGD(
    n=10,
    steps=40,
    learning_rate=0.5,
    l2=0.2,
    noise_multiplier=4.0,
    loss=LINEAR,
    release="last",
    dimension=2,
)
CYCLIC = CyclicSGD(
    n=10,
    batch_size=4,
    epochs=2,
    learning_rate=0.5,
    l2=0.2,
    noise_multiplier=1.5,
    loss=LINEAR,
    release="last",
    dimension=3,
)
POISSON = NoisySGD(
    n=20,
    batch_size=2,
    steps=10,
    learning_rate=0.5,
    l2=1.2,
    noise_multiplier=1.0,
    loss=replace(LINEAR, smoothness=0.01),
    release="last",
)
POISSON_ALL = NoisySGD(n=20, batch_size=2, steps=10, noise_multiplier=0.4, release="all")
CYCLIC_ALL = CYCLIC.replace(release="all", batch_size=5, dimension=2)


def largest_step(outputs: FloatArray) -> FloatArray:
    """Return the largest move of a one-dimensional walk against the canary's gradient."""
    return np.asarray(np.max(-np.diff(outputs, axis=1, prepend=0.0), axis=1))


@dataclass(frozen=True)
class Case:
    """A right trainer, a fault, and how the audit looks at what leaves."""

    right: Trainer
    broken: Trainer
    runs: int = 4000
    record: int | None = None
    statistic: Statistic | None = None


def case(run: Run, **changes: object) -> Case:
    fault = {k: v for k, v in changes.items() if k in Trainer.__dataclass_fields__}
    rest = {k: v for k, v in changes.items() if k not in fault}
    right = Trainer(run)
    return Case(right, replace(right, **fault), **rest)  # type: ignore[arg-type]


CASES = {
    "noise a fifth too small": case(GD, noise_factor=0.8),
    "short last batch divided by its own size": case(CYCLIC, divide_by_realized_size=True),
    "an iterate leaked half way": case(GD, leak_after=20),
    "an unshuffled loader for Poisson batches": case(POISSON, batches="cyclic", record=19),
    "a shuffled loader for Poisson batches": case(
        POISSON_ALL, batches="reshuffle", statistic=largest_step
    ),
    "the same noise at every step": case(CYCLIC_ALL, one_noise_for_all_steps=True),
}


@lru_cache
def claim(run: Run) -> Certificate:
    return certify(run, delta=1e-5)


def violations(found: Case, trainer: Trainer) -> int:
    """Return in how many of the repeated audits the trainer is called a violation."""
    pair: CanaryPair = worst_case_pair(trainer.run, record=found.record)
    return sum(
        audit_trainer(
            trainer,
            claim(trainer.run),
            pair.data,
            pair.neighbor,
            runs=found.runs,
            seed=seed,
            at_once=found.runs,
            statistic=found.statistic,
        ).violated
        for seed in range(REPETITIONS)
    )


@pytest.mark.parametrize("name", CASES)
def test_the_right_trainer_is_accepted(name: str) -> None:
    assert violations(CASES[name], CASES[name].right) <= 1


@pytest.mark.parametrize("name", CASES)
def test_the_broken_trainer_is_caught(name: str) -> None:
    assert violations(CASES[name], CASES[name].broken) >= 19


@pytest.mark.parametrize(
    "run", [GD, CYCLIC, POISSON.replace(loss=LINEAR)], ids=lambda run: run.kind
)
def test_a_right_logistic_trainer_is_accepted(run: Run) -> None:
    right = Trainer(run, logistic=True)
    assert violations(Case(right, right), right) <= 1


def test_a_logistic_trainer_without_enough_noise_is_caught() -> None:
    # Its gradients are half as long as allowed at the start, so more has to be missing.
    broken = Trainer(GD, logistic=True, noise_factor=0.3)
    assert violations(Case(broken, broken), broken) >= 19


def test_a_seed_that_is_the_same_in_every_run_is_caught() -> None:
    pair = worst_case_pair(GD)

    def always_the_same(rows: FloatArray) -> FloatArray:
        return Trainer(GD)(rows, np.random.default_rng(0), 1)

    report = audit_trainer(always_the_same, claim(GD), pair.data, pair.neighbor, runs=100, seed=0)
    assert report.violated
    assert report.worst.hits_data == report.tested
    assert report.worst.hits_neighbor == 0


def test_one_iterate_alone_hides_the_leak() -> None:
    """The joint output is what has to be audited: the last iterate by itself keeps the claim."""
    found = CASES["an iterate leaked half way"]
    last_only = replace(found, statistic=lambda outputs: outputs[:, 2])
    assert violations(last_only, found.broken) <= 1


def test_repeated_noise_is_invisible_to_the_last_iterate_alone() -> None:
    """Auditing less than what leaves accepts what the whole output refutes."""
    found = CASES["the same noise at every step"]
    last_only = replace(found, statistic=lambda outputs: outputs[:, -2])
    assert violations(last_only, found.broken) <= 1
