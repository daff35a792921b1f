"""Any per-record gradient: the steps of the linear engine, gradients cut, records kept apart."""

from __future__ import annotations

import re
import subprocess
import sys
import traceback
import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dplateau import (
    Ball,
    Box,
    Checkpoints,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    certify,
    train_gradient,
)
from dplateau.algorithms import Run
from dplateau.audit import audit_trainer
from dplateau.engines import SeededRandomness, scale_rows, train
from dplateau.engines.gradients import _Form, _GradientRecords, cut
from dplateau.ground.types import FloatArray
from dplateau.losses import Logistic

N, D, NORM = 50, 3, 1.0
RNG = np.random.default_rng(11)
X = scale_rows(RNG.normal(size=(N, D)), NORM)
SIGNS = np.where(RNG.random(N) < 0.5, -1.0, 1.0)
LINEAR: dict[str, Any] = {
    "n": N,
    "steps": 12,
    "learning_rate": 0.5,
    "l2": 0.1,
    "noise_std": 0.05,
    "loss": Logistic().geometry(NORM),
    "release": "last",
}
RUNS = {
    "full batch": NoisyGD(**LINEAR),
    "Poisson": NoisySGD(batch_size=8, **LINEAR),
    "fixed size": NoisySGD(batch_size=8, sampling="fixed", neighbors="replace", **LINEAR),
    "cyclic": CyclicSGD(batch_size=8, **LINEAR),
    "reshuffled": CyclicSGD(batch_size=8, order="reshuffle", **LINEAR),
    "momentum": NoisyGD(momentum=0.5, momentum_kind="heavy_ball", **LINEAR),
    "averaged": NoisyGD(average_last=4, domain=Ball(0.4), **LINEAR),
    "checkpoints": NoisySGD(batch_size=8, **{**LINEAR, "release": Checkpoints(every=5)}),
}
CLIPPED = NoisyGD(**{**LINEAR, "loss": LossGeometry(lipschitz=0.5, convex=False)})


def logistic(weights: FloatArray, batch: tuple[FloatArray, FloatArray]) -> FloatArray:
    rows, signs = batch
    return (-signs / (1 + np.exp(signs * (rows @ weights))))[:, None] * rows


def of_dicts(weights: Any, batch: Any) -> Any:
    """Return the same gradient of weights and records in other containers."""
    both = np.r_[weights["first"], weights["rest"][0]]
    found = logistic(both, (batch["rows"], batch["signs"][0]))
    return {"rest": (found[:, 1:],), "first": found[:, :1]}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("rows", [7, None])
def test_linear_models_take_the_linear_engine_s_steps(name: str, rows: int | None) -> None:
    run = RUNS[name]
    expected = train(run, Logistic(), X, SIGNS, feature_norm=NORM, randomness=SeededRandomness(3))
    found = train_gradient(
        run,
        logistic,
        (X, SIGNS),
        start=np.zeros(D),
        never_clips=True,
        block_rows=rows,
        randomness=SeededRandomness(3),
    )
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_containers_and_precision_are_those_of_the_start() -> None:
    expected = train_gradient(
        CLIPPED, logistic, (X, SIGNS), start=np.zeros(D), randomness=SeededRandomness(3)
    )
    start = {"first": np.zeros(1, np.float32), "rest": (np.zeros(2),)}
    found = train_gradient(
        CLIPPED,
        of_dicts,
        {"rows": X, "signs": [SIGNS]},
        start=start,
        randomness=SeededRandomness(3),
    )
    assert list(found) == ["first", "rest"]
    assert found["first"].dtype == np.float32
    assert found["rest"][0].dtype == np.float64
    np.testing.assert_allclose(np.r_[found["first"], found["rest"][0]], expected, atol=1e-6)
    pair = namedtuple("pair", "rows signs")
    again = train_gradient(
        CLIPPED, logistic, pair(X, SIGNS), start=np.zeros(D), randomness=SeededRandomness(3)
    )
    np.testing.assert_array_equal(again, expected)


def test_checkpoints_are_handed_out_in_the_form_of_the_start() -> None:
    run = CLIPPED.replace(release=Checkpoints(every=4))
    seen: list[tuple[int, Any]] = []

    def look(step: int, weights: Any) -> bool:
        seen.append((step, weights))
        return step == 8

    found = train_gradient(
        run,
        of_dicts,
        {"rows": X, "signs": (SIGNS,)},
        start={"first": np.zeros(1), "rest": (np.zeros(2),)},
        on_checkpoint=look,
    )
    assert [step for step, _ in seen] == [4, 8]
    assert found["first"].shape == (2, 1)
    assert found["rest"][0].shape == (2, 2)
    np.testing.assert_array_equal(found["rest"][0][1], seen[1][1]["rest"][0])


def test_the_start_is_where_it_starts() -> None:
    run = NoisyGD(**{**LINEAR, "steps": 1, "l2": 0.0, "noise_std": 1e-12, "domain": Ball(2.0)})
    run = run.replace(loss=LossGeometry(lipschitz=1.0, convex=False))
    start = np.array([3.0, 4.0])
    found = train_gradient(run, lambda w, x: np.zeros((len(x), 2)), X, start=start)
    np.testing.assert_allclose(found, [1.2, 1.6], atol=1e-9)


# --- one record ----------------------------------------------------------------------------------


@given(
    arrays.arrays(
        np.float64,
        st.tuples(st.integers(1, 5), st.integers(1, 6)),
        elements=st.floats(width=64, allow_nan=True, allow_infinity=True),
    ),
    st.floats(1e-3, 1e3),
)
def test_no_gradient_is_longer_than_the_cut(gradients: FloatArray, length: float) -> None:
    found = cut(gradients, length)
    assert np.all(np.isfinite(found))
    assert np.all(np.linalg.norm(found, axis=1) <= length * (1 + 1e-14))
    short = np.abs(np.nan_to_num(gradients, nan=np.inf)).max(axis=1) <= length / 3
    np.testing.assert_array_equal(found[short], gradients[short])


def records_of(n: int, rows: FloatArray, block: int) -> _GradientRecords:
    run = NoisyGD(**{**LINEAR, "n": n, "loss": LossGeometry(lipschitz=0.3, convex=False)})

    def wild(weights: FloatArray, batch: FloatArray) -> FloatArray:
        return np.sin(1e3 * batch @ np.outer(weights, weights)) * batch

    return _GradientRecords(run, wild, rows, _Form(np.zeros(D), block))


@pytest.mark.parametrize("block", [4, 32])
def test_a_record_changes_the_sum_by_its_own_gradient_to_the_last_bit(block: int) -> None:
    """Absent, or another one: all others keep their places, and their gradients."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(N, D))
    weights = rng.normal(size=D)
    whole = records_of(N, rows, block)
    for _ in range(10):
        batch = rng.permutation(N)[: rng.integers(1, N)]
        batch = np.r_[batch[batch != N - 1], N - 1]
        alone = whole.units(weights, np.array([N - 1]))
        without = records_of(N, rows[:-1], block).units(weights, batch)
        np.testing.assert_array_equal(whole.units(weights, batch) - alone, without)
        other = rows.copy()
        other[-1] = rng.normal(size=D)
        replaced = records_of(N, other, block)
        moved = replaced.units(weights, batch) - replaced.units(weights, np.array([N - 1]))
        np.testing.assert_array_equal(moved, without)
        length = np.linalg.norm(whole.ruler.value(alone))
        assert length <= 0.3 * (1 + whole.ruler.slack)


def test_an_audit_finds_no_more_than_is_claimed() -> None:
    """One step of a gradient that is cut, from records with and without the last."""
    run = NoisyGD(
        n=3,
        steps=2,
        learning_rate=1.0,
        noise_multiplier=1.0,
        release="all",
        loss=LossGeometry(lipschitz=1.0, convex=False),
    )
    present, absent = np.array([0.0, 0.0, 1e3]), np.array([0.0, 0.0])

    def trainer(numbers: FloatArray, rng: np.random.Generator) -> FloatArray:
        found: FloatArray = train_gradient(
            run,
            lambda w, x: x[:, None] - 0 * w,
            numbers,
            start=np.zeros(1),
            at_most=True,
            randomness=SeededRandomness(int(rng.integers(2**62))),
        )
        return found

    report = audit_trainer(trainer, certify(run, 1e-5), present, absent, runs=1500, seed=4)
    assert not report.violated
    assert 1.2 < report.gdp_estimate < 1.6  # sqrt(2): two steps that forget nothing


def test_the_network_of_the_example_learns_beside_every_accountant() -> None:
    script = Path(__file__).resolve().parents[2] / "examples" / "two_layer_network.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), "--epochs", "12", "--epsilon", "8"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"^  (.+?) +epsilon +([\d.]+)$", done.stdout, re.M))
    by_size = sorted(found, key=lambda title: float(found[title]))
    assert by_size[:2] == ["PLD composition", "RDP (moments accountant)"]
    assert set(by_size[2:]) == {"Advanced composition", "Naive composition"}
    assert float(found[by_size[0]]) <= 8
    right = re.search(r"^([\d.]+)% of 297 digits", done.stdout, re.M)
    assert right is not None
    assert float(right[1]) > 70


# --- what is refused, and what stays hidden ------------------------------------------------------


def refused(text: str, run: Run = CLIPPED, gradient: Any = logistic, **options: Any) -> None:
    known: dict[str, Any] = {"records": (X, SIGNS), "start": np.zeros(D), **options}
    with pytest.raises(InvalidInput, match=text):
        train_gradient(run, gradient, **known)


def test_runs_that_rest_on_what_a_cut_destroys_are_refused() -> None:
    refused(
        "gradients that are cut belong to none; describe it with convex=False", NoisyGD(**LINEAR)
    )
    dissipative = LossGeometry(lipschitz=1.0, convex=False, smoothness=1.0, dissipativity=(1, 1))
    refused("the run declares dissipative losses", CLIPPED.replace(loss=dissipative))
    refused("no length to cut gradients to", CLIPPED.replace(loss=None))
    refused(r"training needs learning_rate=", CLIPPED.replace(learning_rate=None))


def test_sizes_that_do_not_fit_are_refused() -> None:
    refused(r"described for n=50 records, but there are 49", records=(X[1:], SIGNS[1:]))
    refused(r"described for n=49 records, but there are 50", CLIPPED.replace(n=49), at_most=True)
    refused(r"every array must have as many rows; got \[49, 50\]", records=(X, SIGNS[1:]))
    refused("records are an array with a record in every row", records=(X, 3.0))
    refused("start is an array of floating-point weights", start=np.zeros(D, dtype=int))
    refused("dimension=4, but the model has 3 weights", CLIPPED.replace(dimension=4))
    box = CLIPPED.replace(domain=Box([-1, -1], [1, 1]))
    refused("dimension=2, but the model has 3 weights", box)
    refused(
        r"must give arrays of the shapes \[\(256, 3\)\] for 256 records; got \[\(3,\)\]",
        gradient=lambda w, batch: logistic(w, batch).sum(axis=0),
    )
    refused("nothing of a run with release='last'", on_checkpoint=print)


def test_gradients_that_mix_records_are_refused() -> None:
    def normalized(weights: FloatArray, batch: Any) -> FloatArray:
        return logistic(weights, (batch[0] - batch[0].mean(axis=0), batch[1]))

    refused("changes with the records beside it", gradient=normalized)
    rng = np.random.default_rng(0)
    noisy = lambda w, batch: logistic(w, batch) * rng.random(len(batch[0]))[:, None]  # noqa: E731
    refused("or from call to call", gradient=noisy)


def test_a_failure_during_the_run_tells_nothing() -> None:
    secret = 0.987654321
    rows = X.copy()
    rows[17, 0] = secret

    def fails(weights: FloatArray, batch: Any) -> FloatArray:
        if np.any(batch[0] == secret):
            raise ValueError(f"cannot take {batch[0]}")
        return logistic(weights, batch)

    with pytest.raises(InvalidInput, match="raised ValueError during the run") as caught:
        train_gradient(CLIPPED, fails, (rows, SIGNS), start=np.zeros(D))
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    assert "cannot take [" not in "".join(traceback.format_exception(error))
    names = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
    assert "units" not in names


def test_no_warning_tells_of_the_records() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = train_gradient(
            CLIPPED, lambda w, batch: batch[0] / 0.0 * np.exp(1e3), (X, SIGNS), start=np.zeros(D)
        )
    assert np.all(np.isfinite(found))
