"""The engine agrees with a second trainer, written record by record from the docstrings alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats

from dplateau.algorithms import (
    Ball,
    Body,
    Box,
    Cyclic,
    CyclicSGD,
    Domain,
    FixedSize,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePass,
    OnePassSGD,
    Poisson,
    ProjectedLangevin,
    Run,
)
from dplateau.algorithms.schedule import values_over
from dplateau.engines import SeededRandomness, scale_rows, train
from dplateau.ground.types import FloatArray, IntArray
from dplateau.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Loss,
    MoreauSmoothed,
    OneVersusRest,
    Pinball,
    SmoothedHinge,
    Softmax,
    SquaredOnBall,
)

N, D, NORM = 23, 5, 1.3
RNG = np.random.default_rng(0)
X = scale_rows(1.5 * RNG.normal(size=(N, D)), NORM * (1 - 1e-6))  # single precision fits too
SIGNS = np.where(RNG.random(N) < 0.5, -1, 1)
REALS = 2 * RNG.normal(size=N)
CLASSES = RNG.integers(0, 3, N)

TARGETS: list[tuple[Loss, Any]] = [
    (Logistic(), SIGNS),
    (SmoothedHinge(0.6), SIGNS),
    (Hinge(), SIGNS),
    (MoreauSmoothed(Hinge(), 0.4), SIGNS),
    (Huber(0.8), REALS),
    (Absolute(), REALS),
    (MoreauSmoothed(Pinball(0.7), 0.3), REALS),
    (SquaredOnBall(0.9, 1.0), REALS),
    (Softmax(3), CLASSES),
    (Softmax(2), CLASSES % 2),
    (OneVersusRest(SmoothedHinge(0.8), 3), CLASSES),
]


class Recorded(SeededRandomness):
    """A seeded source that remembers what it gave."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.noise: list[FloatArray] = []
        self.sets: list[IntArray] = []
        self.orders: list[IntArray] = []
        self.stops: list[int] = []

    def for_batches(self) -> Recorded:
        return self  # one record of all

    def gaussian(self, count: int) -> FloatArray:
        self.noise.append(super().gaussian(count))
        return self.noise[-1]

    def laplace(self, count: int) -> FloatArray:
        self.noise.append(super().laplace(count))
        return self.noise[-1]

    def subsets(self, n: int, sizes: Sequence[int]) -> list[IntArray]:
        before = len(self.sets)
        # A large set is drawn by its complement, through this method: only the answer counts.
        self.sets[before:] = found = super().subsets(n, sizes)
        return found

    def permutation(self, n: int) -> IntArray:
        self.orders.append(super().permutation(n))
        return self.orders[-1]

    def below(self, bound: int, count: int) -> IntArray:
        found = super().below(bound, count)
        self.stops.extend(found.tolist())
        return found


def batch_of(run: Run, step: int, used: Recorded) -> Any:
    """Return the records of a step, from what the source gave."""
    if isinstance(run.batches, Poisson | FixedSize):
        return used.sets[step]
    if not isinstance(run.batches, Cyclic | OnePass):
        return range(run.n)
    size = int(run.batch_size)
    epoch, part = divmod(step, -(-run.n // size))
    order = np.arange(run.n)
    if isinstance(run.batches, Cyclic) and run.batches.order != "cyclic":
        order = used.orders[epoch if run.batches.order == "reshuffle" else 0]
    return order[part * size : (part + 1) * size]


def record_gradient(
    loss: Loss, x: FloatArray, y: Any, w: FloatArray, clip: float | None
) -> FloatArray:
    """Return one record's gradient, cut to the clip norm as a vector."""
    slope = loss.derivative((x @ w)[None], np.array([y]))[0]
    gradient = np.multiply.outer(x, slope)
    size = float(np.linalg.norm(gradient))
    return gradient * (clip / size) if clip is not None and size > clip else gradient


def reference(
    run: Run, loss: Loss, features: FloatArray, targets: Any, clip: float | None, used: Recorded
) -> FloatArray:
    """Run the update rule of ``algorithms/base.py`` with the recorded noise and batches."""
    assert run.learning_rate is not None
    w = np.zeros(features.shape[1] * loss.n_outputs)
    shape = (-1,) if loss.n_outputs == 1 else (features.shape[1], loss.n_outputs)
    if run.domain is not None:
        w = run.domain.project(w)
    eta, nu = values_over(run.learning_rate, run.steps), values_over(run.iterate_std, run.steps)
    steps = run.steps if run.release.name != "random_stop" else used.stops[0] + 1
    v, path = np.zeros(w.size), []
    for t in range(steps):
        looks = run.momentum if run.momentum_kind == "nesterov" else 0.0
        ahead, total = w + looks * v, np.zeros(w.size)
        for i in batch_of(run, t, used):
            row = record_gradient(loss, features[i], targets[i], ahead.reshape(shape), clip)
            total += row.ravel()
        data = total / run.batch_size + run.l2 * ahead
        v = run.momentum * v - eta[t] * data + nu[t] * used.noise[t]
        w = w + v
        if run.domain is not None:
            w = run.domain.project(w)
        path.append(w)
    assert len(used.noise) == steps
    return np.mean(path[steps - run.average_last :], axis=0).reshape(shape)


def declared(loss: Loss, clip: float | None) -> LossGeometry:
    return loss.geometry(NORM, clip)


def runs(loss: LossGeometry, domain: Domain | None) -> Iterator[Run]:
    """Yield one run of every kind, some with schedules."""
    steps = 9
    common: dict[str, Any] = {"l2": 0.05, "domain": domain, "loss": loss, "release": "last"}
    rates = np.linspace(0.9, 0.3, steps).tolist()
    yield NoisyGD(n=N, steps=steps, learning_rate=rates, noise_std=0.02, **common)
    for sampling, relation in (("poisson", "add_remove"), ("fixed", "replace")):
        yield NoisySGD(
            n=N,
            batch_size=6,
            steps=steps,
            learning_rate=0.5,
            noise_multiplier=np.linspace(0.4, 0.2, steps).tolist(),
            sampling=sampling,  # type: ignore[arg-type]
            neighbors=relation,
            **common,
        )
    for order in ("cyclic", "shuffle_once", "reshuffle"):
        yield CyclicSGD(
            n=N,
            batch_size=5,
            steps=12,
            learning_rate=0.5,
            iterate_std=0.1,
            order=order,  # type: ignore[arg-type]
            **common,
        )
    yield OnePassSGD(n=N, batch_size=4, learning_rate=0.7, noise_std=0.1, **common)
    stopped = {**common, "release": "random_stop"}
    yield OnePassSGD(n=N, batch_size=2, learning_rate=0.7, noise_std=0.1, **stopped)
    if not isinstance(domain, Ball):  # the squared loss on a ball has no constants outside it
        yield NoisySGD(
            n=N, batch_size=6, steps=steps, learning_rate=0.4, noise_multiplier=0.3, momentum=0.7,
            average_last=4, **common,
        )  # fmt: skip
    yield NoisyGD(
        n=N, steps=steps, learning_rate=0.4, noise_multiplier=0.3, momentum=0.7,
        momentum_kind="heavy_ball", **common,
    )  # fmt: skip
    yield ProjectedLangevin(n=N, steps=steps, learning_rate=0.1, inverse_temperature=40.0, **common)


def some_domains(loss: Loss) -> list[Domain | None]:
    if isinstance(loss, SquaredOnBall):
        return [Ball(loss.radius)]
    size = D * loss.n_outputs
    shrunk = Body(2.0, lambda w: w * min(1.0, 0.5 / float(np.linalg.norm(w) + 1e-12)))
    return [None, Ball(0.4), Box([0.1] + [-0.3] * (size - 1), [0.4] * size), shrunk]


def name_of(value: object) -> str:
    return repr(value) if isinstance(value, Loss) else ""


@pytest.mark.parametrize("clip", [None, 0.25])
@pytest.mark.parametrize(
    ("loss", "targets"), TARGETS, ids=lambda v: repr(v)[:40] if isinstance(v, Loss) else ""
)
def test_the_engine_agrees_with_a_trainer_written_record_by_record(
    loss: Loss, targets: Any, clip: float | None
) -> None:
    if isinstance(loss, OneVersusRest):
        clip = None
    for domain in some_domains(loss):
        for run in runs(declared(loss, clip), domain):
            used = Recorded(42)
            found = train(run, loss, X, targets, feature_norm=NORM, clip=clip, randomness=used)
            expected = reference(run, loss, X, targets, clip, used)
            assert np.allclose(found, expected, atol=1e-12), (run, domain)
            assert np.abs(found).max() > 0


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_one_dimension_with_either_noise(kind: Any) -> None:
    loss, rows = Huber(1.0), X[:, :1].copy()
    run = NoisySGD(
        n=N, batch_size=6, steps=20, learning_rate=0.5, noise_multiplier=0.5, noise_kind=kind,
        dimension=1, domain=Box(-0.5, 0.5), loss=declared(loss, None), release="last",
    )  # fmt: skip
    used = Recorded(1)
    found = train(run, loss, rows, REALS, feature_norm=NORM, randomness=used)
    assert np.allclose(found, reference(run, loss, rows, REALS, None, used), atol=1e-13)
    drawn = SeededRandomness(2)
    noise = drawn.laplace(50_000) if kind == "laplace" else drawn.gaussian(50_000)
    assert stats.kurtosis(noise) == pytest.approx(3 if kind == "laplace" else 0, abs=0.5)


def test_the_ridge_covers_every_column_the_intercept_included() -> None:
    # Rows of zeros have zero gradients: what is left is ridge and noise, in every coordinate.
    run = NoisyGD(
        n=N, steps=7, learning_rate=0.5, l2=0.3, iterate_std=1.0, loss=declared(Huber(1.0), None),
        release="last",
    )  # fmt: skip
    used = Recorded(3)
    found = train(run, Huber(1.0), np.zeros((N, D)), REALS, feature_norm=NORM, randomness=used)
    expected = np.zeros(D)
    for noise in used.noise:
        expected = (1 - 0.5 * 0.3) * expected + noise
    assert np.allclose(found, expected)


def test_long_runs_agree_on_many_rows_and_threads() -> None:
    # Large enough for several tiles and threads, with a remainder that no tile size divides.
    n, d = 30_011, 67
    rng = np.random.default_rng(4)
    rows = scale_rows(rng.normal(size=(n, d)), 1.0)
    signs = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    run = NoisyGD(
        n=n, steps=3, learning_rate=50.0, noise_std=1e-3, loss=Logistic().geometry(1.0),
        release="last",
    )  # fmt: skip
    for clip in (None, 0.4):
        stated = run.replace(loss=Logistic().geometry(1.0, clip))
        used = Recorded(5)
        found = train(stated, Logistic(), rows, signs, feature_norm=1.0, clip=clip, randomness=used)
        w = np.zeros(d)
        for noise in used.noise:
            slopes = -signs / (1 + np.exp(signs * (rows @ w)))
            if clip is not None:
                limit = clip / np.linalg.norm(rows, axis=1)
                slopes = np.clip(slopes, -limit, limit)
            w = w - 50.0 * (rows.T @ slopes / n) + 50.0 * 1e-3 * noise
        assert np.allclose(found, w, rtol=1e-9, atol=5e-10)


class Pieces:
    """Chunks of uneven length, dense and sparse by turns."""

    def __init__(self, rows: FloatArray, targets: Any, cuts: list[int]) -> None:
        self.n = len(rows)
        self.parts = list(itertools.pairwise([0, *cuts, self.n]))
        self.rows, self.targets = rows, targets

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for k, (start, stop) in enumerate(self.parts):
            rows = self.rows[start:stop]
            yield (sparse.csr_array(rows) if k % 2 else rows), self.targets[start:stop]


@pytest.mark.parametrize(
    ("loss", "targets", "clip"),
    [
        (Logistic(), SIGNS, None),
        (Logistic(), SIGNS, 0.3),
        (Absolute(), REALS, 0.3),
        (Softmax(3), CLASSES, None),
    ],
    ids=["logistic", "clipped", "absolute", "softmax"],
)
def test_every_form_of_features_gives_the_same_weights(
    loss: Loss,
    targets: Any,
    clip: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mapped = np.memmap(tmp_path / "rows", dtype=X.dtype, mode="w+", shape=X.shape)
    mapped[:] = X
    thin = X * (np.abs(X) > 0.4)
    for run in runs(declared(loss, clip), None):

        def weights(rows: Any, with_targets: Any = targets, run: Run = run) -> FloatArray:
            source = SeededRandomness(6)
            return train(
                run, loss, rows, with_targets, feature_norm=NORM, clip=clip, randomness=source
            )

        plain = weights(X)
        assert np.array_equal(weights(mapped), plain)
        assert np.array_equal(weights(np.asfortranarray(X)), plain)
        assert np.allclose(weights(sparse.csr_array(thin)), weights(thin), atol=1e-13)
        assert np.allclose(weights(sparse.csr_matrix(thin)), weights(thin), atol=1e-13)
        assert np.allclose(weights(X.astype(np.float32)), plain, atol=2e-6)
        single = sparse.csr_array(thin.astype(np.float32))
        assert np.allclose(weights(single), weights(thin), atol=2e-6)
        pieces = weights(Pieces(X, targets, [1, 7, 15]), None)
        assert np.allclose(pieces, plain, rtol=1e-10)
        # Room for a few records at a time: some batches are collected together, some not at all.
        monkeypatch.setattr("dplateau.engines.records.CHUNK_BYTES", 9 * X[0].nbytes)
        assert np.array_equal(weights(Pieces(X, targets, [1, 7, 15]), None), pieces)
        monkeypatch.setattr("dplateau.engines.records.CHUNK_BYTES", 4 * X[0].nbytes)
        assert np.array_equal(weights(Pieces(X, targets, [1, 7, 15]), None), pieces)


def test_a_random_stop_is_uniform() -> None:
    run = OnePassSGD(
        n=6, learning_rate=0.1, noise_std=1.0, loss=declared(Logistic(), None),
        release="random_stop",
    )  # fmt: skip
    lengths = []
    for seed in range(1500):
        used = Recorded(seed)
        train(run, Logistic(), X[:6], SIGNS[:6], feature_norm=NORM, randomness=used)
        lengths.append(len(used.noise))
    seen = np.bincount(lengths, minlength=7)[1:]
    assert stats.chisquare(seen).pvalue > 1e-4


def test_a_random_stop_keeps_its_length_to_itself() -> None:
    run = OnePassSGD(
        n=6, learning_rate=0.1, noise_std=1.0, loss=declared(Logistic(), None),
        release="random_stop",
    )  # fmt: skip
    seen: list[tuple[int, int]] = []
    train(
        run, Logistic(), X[:6], SIGNS[:6], feature_norm=NORM, randomness=Recorded(0),
        progress=lambda done, steps: seen.append((done, steps)),
    )  # fmt: skip
    assert seen == []
