"""Sums of gradients by compiled loops, blocks and threads, against the plain formula."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from dplateau.engines import records
from dplateau.engines.records import ArrayRecords, clipped_slopes
from dplateau.losses import Logistic, Loss, Softmax

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("classes", [2, 3, 400])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_softmax_slopes_are_the_loss_derivative(classes: int, dtype: Any) -> None:
    scores = RNG.normal(0, 5, (300, classes)).astype(dtype)
    targets = RNG.integers(0, classes, 300)
    exact = Softmax(classes).derivative(scores.astype(float), targets)
    tolerance = 50 * float(np.finfo(dtype).eps)
    found = clipped_slopes(Softmax(classes), scores.copy(), targets, None)
    np.testing.assert_allclose(found, exact, atol=tolerance)
    limits = RNG.uniform(0.1, 1.2, 300).astype(dtype)
    sizes = np.linalg.norm(exact, axis=1)
    cut = exact * np.minimum(1, limits.astype(float) / np.maximum(sizes, 1e-30))[:, None]
    found = clipped_slopes(Softmax(classes), scores.copy(), targets, limits)
    np.testing.assert_allclose(found, cut, atol=tolerance)
    # The engine leaves four units of rounding between a limit and the clip.
    room = 1 + 4 * float(np.finfo(dtype).eps)
    assert np.all(np.linalg.norm(found.astype(float), axis=1) <= limits.astype(float) * room)


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=str)
def test_threads_and_blocks_do_not_change_the_sum(
    loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = RNG.uniform(-1, 1, (997, 6))
    if isinstance(loss, Softmax):
        targets, weights = RNG.integers(0, 3, 997), RNG.normal(size=(6, 3))
        slopes = loss.derivative(features @ weights, targets)
    else:
        targets, weights = RNG.choice([-1, 1], 997), RNG.normal(size=6)
        slopes = -targets / (1 + np.exp(targets * (features @ weights)))
    monkeypatch.setattr(records, "THREAD_BYTES", 1)
    monkeypatch.setattr(records, "MATRIX_BYTES", 48 * 10)
    monkeypatch.setattr(records, "_processors", lambda: 3)
    data = ArrayRecords(features, targets, loss, 3.0, None)
    everything = data.gradient(weights, slice(None))
    np.testing.assert_allclose(everything, features.T @ slopes, rtol=1e-12)
    few = np.sort(RNG.choice(997, 200, replace=False))
    np.testing.assert_allclose(
        data.gradient(weights, few), features[few].T @ slopes[few], rtol=1e-12
    )


class HalfSoftmax(Softmax):
    """A loss of the user's own: it is its derivative that trains, not that of its parent."""

    def derivative(self, scores: Any, targets: Any) -> Any:
        return 0.5 * super().derivative(scores, targets)


class HalfLogistic(Logistic):
    """The same with one score."""

    def derivative(self, scores: Any, targets: Any) -> Any:
        return 0.5 * super().derivative(scores, targets)


@pytest.mark.parametrize(
    ("own", "known"), [(HalfSoftmax(3), Softmax(3)), (HalfLogistic(), Logistic())], ids=str
)
def test_a_derivative_of_ones_own_is_used(own: Loss, known: Loss) -> None:
    features = RNG.uniform(-1, 1, (40, 4))
    targets = RNG.integers(0, 3, 40) if isinstance(own, Softmax) else RNG.choice([-1, 1], 40)
    weights = RNG.normal(size=(4, 3) if isinstance(own, Softmax) else 4)
    half, whole = (
        ArrayRecords(features, targets, loss, 2.0, None).gradient(weights, slice(None))
        for loss in (own, known)
    )
    np.testing.assert_allclose(half, 0.5 * whole, rtol=1e-9)


def test_the_libraries_get_their_threads_back() -> None:
    """Also after trainers in several threads, which share the limit."""
    before = [(found["filepath"], found["num_threads"]) for found in threadpool_info()]
    data = ArrayRecords(RNG.uniform(-1, 1, (50, 4)), np.zeros(50, int), Softmax(3), 2.0, None)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: data.gradient(np.zeros((4, 3)), slice(None)), range(200)))
    after = {found["filepath"]: found["num_threads"] for found in threadpool_info()}
    assert all(after[path] == threads for path, threads in before)
