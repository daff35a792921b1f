"""Sums of gradients by compiled loops, blocks and threads, against the plain formula."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from dplateau.engines import records
from dplateau.engines.records import ArrayRecords, Terms
from dplateau.losses import Logistic, Loss, Softmax

RNG = np.random.default_rng(5)


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
    monkeypatch.setattr(records, "ROWS_AT_ONCE", 100)
    monkeypatch.setattr(records, "processors", lambda: 3)
    data = ArrayRecords(features, targets, Terms(loss, 3.0, None))
    everything = data.gradient(weights, slice(None))
    np.testing.assert_allclose(everything, features.T @ slopes, atol=1e-10)
    few = np.sort(RNG.choice(997, 200, replace=False))
    np.testing.assert_allclose(
        data.gradient(weights, few), features[few].T @ slopes[few], atol=1e-10
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
        ArrayRecords(features, targets, Terms(loss, 2.0, None)).gradient(weights, slice(None))
        for loss in (own, known)
    )
    np.testing.assert_allclose(half, 0.5 * whole, rtol=1e-9)


def test_the_libraries_get_their_threads_back() -> None:
    """Also after trainers in several threads, which share the limit."""
    before = [(found["filepath"], found["num_threads"]) for found in threadpool_info()]
    own = Terms(HalfSoftmax(3), 2.0, None)
    data = ArrayRecords(RNG.uniform(-1, 1, (50, 4)), np.zeros(50, int), own)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: data.gradient(np.zeros((4, 3)), slice(None)), range(200)))
    after = {found["filepath"]: found["num_threads"] for found in threadpool_info()}
    assert all(after[path] == threads for path, threads in before)
