"""Training tells nobody anything, and refuses what would void a claim."""

from __future__ import annotations

import itertools
import logging
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dplateau.algorithms import Ball, Body, Box, LossGeometry, NoisyGD, Run
from dplateau.engines import ChunkSource, SecureRandomness, scale_rows, train
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.losses import Huber, Logistic, Softmax, SquaredOnBall

N, D, NORM = 23, 5, 1.3
RNG = np.random.default_rng(0)
X = scale_rows(1.5 * RNG.normal(size=(N, D)), NORM * (1 - 1e-6))  # single precision fits too
SIGNS = np.where(RNG.random(N) < 0.5, -1, 1)
REALS = 2 * RNG.normal(size=N)
CLASSES = RNG.integers(0, 3, N)
MISSING = np.where(np.arange(N)[:, None] == 3, np.nan, X)


class Pieces:
    """The same records in chunks."""

    def __init__(self, rows: FloatArray, targets: Any, cuts: list[int]) -> None:
        self.n = len(rows)
        self.parts = list(itertools.pairwise([0, *cuts, self.n]))
        self.rows, self.targets = rows, targets

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for start, stop in self.parts:
            yield self.rows[start:stop], self.targets[start:stop]


def gd(**changes: Any) -> Run:
    settings: dict[str, Any] = {
        "n": N, "steps": 5, "learning_rate": 0.5, "noise_std": 0.1,
        "loss": Logistic().geometry(NORM), "release": "last",
    }  # fmt: skip
    return NoisyGD(**{**settings, **changes})


class Interrupting(SecureRandomness):
    """Someone presses Ctrl-C in the third step."""

    calls = 0

    def gaussian(self, count: int) -> FloatArray:
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        return super().gaussian(count)


def test_an_interrupted_run_releases_nothing() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        train(gd(), Logistic(), X, SIGNS, feature_norm=NORM, randomness=Interrupting())
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    seen = 0
    trace = caught.value.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if "dplateau" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
            seen += 1
            for name, value in frame.f_locals.items():
                if isinstance(value, np.ndarray) and value.shape == (D,):
                    assert not value.any(), f"{name} shows the weights"
        trace = trace.tb_next
    assert seen == 3, "only train, its loop, and the frame that erased the weights are left"


class TurnsOdd:
    """Chunks in columns that hold no numbers from the third pass on."""

    passes = 0

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self.passes += 1
        yield np.asfortranarray(X if self.passes < 3 else X * np.nan), SIGNS


def test_a_refused_run_keeps_its_weights_in_no_error_that_another_replaced() -> None:
    run = gd(momentum=0.5, momentum_kind="nesterov")
    with pytest.raises(InvalidInput, match="finite numbers; row 0, column 0 ") as caught:
        train(run, Logistic(), ChunkSource(TurnsOdd()), feature_norm=NORM)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


class OwnHuber(Huber):
    """A derivative of the user's own that quotes what it cannot take."""

    def derivative(self, scores: Any, targets: Any) -> Any:
        raise KeyError(float(targets[0]))


def test_what_a_derivative_of_ones_own_says_of_a_record_stays_unsaid() -> None:
    loss = OwnHuber()
    with pytest.raises(InvalidInput, match="the derivative of OwnHuber raised KeyError") as caught:
        train(gd(loss=loss.geometry(NORM)), loss, X, np.full(N, 8675309.25), feature_norm=NORM)
    assert "8675309" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_target_too_large_for_single_precision_warns_of_nothing() -> None:
    loss, targets = Huber(), np.where(np.arange(N) == 3, 1e300, 0.0)
    run = gd(loss=loss.geometry(NORM))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = train(run, loss, X.astype(np.float32), targets, feature_norm=NORM)
    assert np.all(np.isfinite(weights))


def test_nothing_is_printed_logged_or_warned(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    single, loss = X.astype(np.float32), Softmax(3)
    # Steps so large that scores overflow in single precision: a warning would show it.
    wild, softly = gd(learning_rate=1e38), gd(loss=loss.geometry(NORM), learning_rate=1e38)
    # Compiling tells debuggers a lot.
    train(gd(), Logistic(), single, SIGNS, feature_norm=NORM)
    train(gd(loss=loss.geometry(NORM)), loss, single, CLASSES, feature_norm=NORM)
    caplog.set_level(logging.DEBUG)
    train(wild, Logistic(), single, SIGNS, feature_norm=NORM)
    train(softly, loss, single, CLASSES, feature_norm=NORM)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_progress_sees_step_counts_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplateau.ground.progress.SECONDS_BETWEEN", 0.0)
    seen: list[tuple[Any, ...]] = []
    train(gd(), Logistic(), X, SIGNS, feature_norm=NORM, progress=lambda *found: seen.append(found))
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert all(type(number) is int for found in seen for number in found)


def test_two_default_runs_differ() -> None:
    first, second = (train(gd(), Logistic(), X, SIGNS, feature_norm=NORM) for _ in range(2))
    assert not np.any(first == second)


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"lipschitz": 1.29, "smoothness": 1.0}, "lipschitz=1.29"),
        ({"lipschitz": 1.3, "smoothness": 0.4}, "smoothness=0.4"),
        ({"lipschitz": 1.3, "strong_convexity": 0.1}, "strong_convexity"),
        ({"lipschitz": 1.3, "holder": (0.5, 1.0)}, "holder constant=1"),
        ({"lipschitz": 1.3, "dissipativity": (9.0, 1.0)}, "dissipativity offset=9"),
    ],
)
def test_constants_that_the_loss_does_not_obey_are_refused(
    stated: dict[str, Any], message: str
) -> None:
    run = gd(loss=LossGeometry(convex=True, **stated))
    with pytest.raises(InvalidInput, match=f"the run declares {message}"):
        train(run, Logistic(), X, SIGNS, feature_norm=NORM)


def test_weaker_constants_are_welcome() -> None:
    spread = math.sqrt(2 * 1.3 * 1.3**2 / 4)
    loose = LossGeometry(
        lipschitz=2.0,
        convex=False,
        smoothness=9.0,
        holder=(0.5, spread + 1e-9),
        dissipativity=(4.0, 1.0),
    )
    run = gd(loss=loose, domain=Ball(1.0))
    assert train(run, Logistic(), X, SIGNS, feature_norm=NORM).shape == (D,)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"loss": None}, InvalidInput, "declares no loss"),
        ({"learning_rate": None}, InvalidInput, "needs learning_rate"),
        ({"domain": Body(1.0)}, NotApplicable, "has no projection"),
        ({"domain": Box([-1.0] * 4, [1.0] * 4)}, InvalidInput, "dimension=4"),
        ({"dimension": 7}, InvalidInput, "the model has 5 weights"),
        ({"n": N + 1}, InvalidInput, "described for n=24 records, but there are 23"),
    ],
)
def test_runs_that_do_not_fit_the_records_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        train(gd(**changes), Logistic(), X, SIGNS, feature_norm=NORM)


@pytest.mark.parametrize(
    ("rows", "targets", "message"),
    [
        (X * 1.01, SIGNS, "longer than feature_norm=1.3"),
        (MISSING, SIGNS, "must be finite"),
        (X.astype(np.int64), SIGNS, "float32 or float64; got int64"),
        (X[:, 0], SIGNS, "must be a matrix"),
        (X, SIGNS[:-1], "23 rows need 23 targets"),
        (X, None, "targets are missing"),
        (X, 0 * SIGNS, "each -1 or 1"),
        (sparse.csc_array(X), SIGNS, "must be CSR"),
        (Pieces(X, REALS, [4]), None, "each -1 or 1"),
    ],
)
def test_records_that_void_the_claim_are_refused(rows: Any, targets: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        train(gd(), Logistic(), rows, targets, feature_norm=NORM)


def test_chunks_that_disagree_are_refused() -> None:
    pieces = Pieces(X, SIGNS, [4])
    pieces.n += 1
    with pytest.raises(InvalidInput, match="holds 23 records, but the run is described for n=24"):
        train(gd(n=N + 1), Logistic(), pieces, feature_norm=NORM)


class Growing(Pieces):
    """Rows that obey the bound when they are first looked at, and never again."""

    passes = 0

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self.passes += 1
        for rows, targets in super().__iter__():
            yield (rows if self.passes == 1 else 1e6 * rows), targets


def test_rows_are_checked_on_every_pass() -> None:
    with pytest.raises(InvalidInput, match=r"longer than feature_norm=1\.3"):
        train(gd(), Logistic(), Growing(X, SIGNS, [4, 11]), feature_norm=NORM)


def test_the_domain_of_the_squared_loss_is_checked() -> None:
    loss = SquaredOnBall(1.0, 1.0)
    with pytest.raises(InvalidInput, match=r"needs domain=Ball\(1\)"):
        train(gd(loss=loss.geometry(NORM)), loss, X, REALS, feature_norm=NORM)
    ahead = gd(loss=loss.geometry(NORM), domain=Ball(1.0), momentum=0.5)
    with pytest.raises(NotApplicable, match="takes gradients ahead of the iterate"):
        train(ahead, loss, X, REALS, feature_norm=NORM)
