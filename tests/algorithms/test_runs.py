"""The five descriptions: what they store, derive, change and write down."""

from __future__ import annotations

import inspect
import json
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue import RUNS, SMOOTH
from dplateau import (
    Ball,
    Body,
    Box,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
    Schedule,
)
from dplateau.algorithms import Run, run_from_dict
from dplateau.algorithms.base import CONSTRUCTORS

# What the catalogue leaves out: fractional batches and epochs, numbers of other types, no loss.
UNUSUAL: list[Run] = [
    NoisyGD(n=9, steps=30, noise_std=1.0, momentum=0.9, average_last=10, release="last"),
    NoisySGD(n=60000, batch_size=256, epochs=60, noise_multiplier=1.1, release="all"),
    NoisySGD(n=1000, sampling_rate=0.013, steps=5, iterate_std=0.1, learning_rate=2, release="all"),
    NoisySGD(
        n=50, batch_size=5, steps=3, sampling="fixed", neighbors="replace",
        noise_std=[1.0, 2.0, 2.0], learning_rate=(0.5, 0.25, 0.125), release="last",
    ),
    CyclicSGD(n=10, batch_size=4, epochs=2.5, noise_multiplier=1.0, release="last"),
    CyclicSGD(
        n=10, sampling_rate=0.5, steps=5, order="reshuffle", noise_multiplier=1.0,
        domain=Box([0, 0], [1, 2]), dimension=2, release="all",
    ),
    OnePassSGD(n=40, noise_std=2.0, release="random_stop"),
    OnePassSGD(n=40, batch_size=12, noise_std=[1, 2, 3, 4], domain=Body(1.0), release="last"),
    ProjectedLangevin(steps=10, learning_rate=0.02, release="last"),
    ProjectedLangevin(
        n=12, steps=2, learning_rate=[0.02, 0.01], inverse_temperature=3.0,
        loss=LossGeometry(lipschitz=math.inf, convex=False, holder=(0.5, 1.0)), release="all",
    ),
]  # fmt: skip
DESCRIBED: dict[str, Run] = {**RUNS, **{repr(run): run for run in UNUSUAL}}


@pytest.mark.parametrize("run", DESCRIBED.values(), ids=DESCRIBED)
def test_descriptions_survive_json(run: Run) -> None:
    text = json.dumps(run.to_dict(), allow_nan=False)
    again = run_from_dict(json.loads(text))
    assert again == run
    assert hash(again) == hash(run)
    assert again.kind == run.kind
    assert again.to_dict() == run.to_dict()
    assert again.steps == run.steps
    assert pickle.loads(pickle.dumps(run)) == run


@pytest.mark.parametrize("run", DESCRIBED.values(), ids=DESCRIBED)
def test_descriptions_are_frozen_values(run: Run) -> None:
    with pytest.raises(AttributeError, match="cannot assign to field 'n'"):
        run.n = 3
    with pytest.raises(AttributeError, match="cannot delete field"):
        del run.release
    with pytest.raises(TypeError, match="positional"):
        CONSTRUCTORS[run.kind](run.n, release="last")
    assert run.replace() == run
    assert repr(run).startswith(f"{run.kind}(n={run.n}")
    assert f"release={run.release.name!r}" in repr(run)


@pytest.mark.parametrize("make", [NoisyGD, NoisySGD, CyclicSGD, OnePassSGD, ProjectedLangevin])
def test_help_shows_every_option(make: Callable[..., Run]) -> None:
    shown = inspect.signature(make).parameters
    assert {"n", "learning_rate", "l2", "domain", "loss", "neighbors", "release"} <= set(shown)
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in shown.values())
    assert shown["release"].default is inspect.Parameter.empty
    assert "add_remove" in (make.__doc__ or "")


# --- lengths and batches -----------------------------------------------------------------------


def plain(**options: Any) -> Run:
    return NoisySGD(noise_multiplier=1.0, release="all", **options)


@pytest.mark.parametrize(
    ("n", "batch", "epochs", "steps"),
    [
        (60000, 256, 60, 14063),  # 14062.5
        (1000, 10, 0.1, 10),  # 0.1 * 100 is above 10 in binary
        (1000, 10, 0.7, 70),
        (1000, 100, 0.3, 3),
        (3, 1, 1.1, 4),
        (93, 1, 1, 93),
        (10, 10, 1, 1),
        (10, 2.5, 1, 4),
        (10, 3, 0.001, 1),
    ],
)
def test_epochs_become_steps_by_rounding_up_the_decimal(
    n: int, batch: float, epochs: float, steps: int
) -> None:
    assert plain(n=n, batch_size=batch, epochs=epochs).steps == steps


@given(
    n=st.integers(1, 10**6),
    rate=st.decimals("0.001", 1, places=3),
    epochs=st.decimals("0.01", 50, places=2),
)
def test_a_stated_sampling_rate_never_adds_a_step(n: int, rate: Any, epochs: Any) -> None:
    run = plain(n=n, sampling_rate=float(rate), epochs=float(epochs))
    assert run.steps == math.ceil(Fraction(str(epochs)) / Fraction(str(rate)))
    assert run.sampling_rate == float(rate)


@given(n=st.integers(1, 5000), data=st.data(), epochs=st.decimals("0.01", 20, places=2))
def test_steps_cover_the_epochs_and_no_more(n: int, data: Any, epochs: Any) -> None:
    batch = data.draw(st.integers(1, n))
    run = plain(n=n, batch_size=batch, epochs=float(epochs))
    wanted = Fraction(str(epochs)) * n / batch
    assert wanted <= run.steps < wanted + 1
    assert run.epochs == pytest.approx(run.steps * batch / n)


def test_batches_and_rates_are_two_names_for_one_thing() -> None:
    assert plain(n=100, sampling_rate=0.07, steps=1).batch_size == 7.0
    assert plain(n=93, sampling_rate=0.07, steps=1).batch_size == pytest.approx(6.51)
    assert plain(n=100, batch_size=7, steps=1).sampling_rate == 0.07
    assert plain(n=100, batch_size=100, steps=1).sampling_rate == 1.0
    full = NoisyGD(n=100, epochs=2.5, noise_multiplier=1.0, release="all")
    assert (full.batch_size, full.sampling_rate, full.steps) == (100, 1.0, 3)


def test_cyclic_epochs_have_their_own_short_batch() -> None:
    run = CyclicSGD(n=10, batch_size=4, epochs=3, noise_multiplier=1.0, release="last")
    assert (run.batches_per_epoch, run.steps) == (3, 9)  # not ceil(30 / 4) = 8
    assert run.replace(epochs=0.4).steps == 2
    assert run.replace(batch_size=5).steps == 6


def test_one_pass_counts_the_short_last_batch() -> None:
    assert OnePassSGD(n=40, batch_size=12, noise_std=1.0, release="last").steps == 4
    assert OnePassSGD(n=40, noise_std=1.0, release="last").steps == 40
    assert OnePassSGD(n=12, batch_size=12, noise_std=1.0, release="last").steps == 1


def test_neighbors_one_or_two_gradients_apart() -> None:
    run = plain(n=10, batch_size=5, steps=1)
    assert run.neighbor_factor == 1
    assert run.replace(neighbors="replace").neighbor_factor == 2


def test_diameter_is_that_of_the_domain() -> None:
    run = plain(n=10, batch_size=5, steps=1)
    assert run.diameter == math.inf
    assert run.replace(domain=Ball(1.5)).diameter == 3.0


# --- replace -----------------------------------------------------------------------------------


def test_replace_keeps_one_of_each_alternative() -> None:
    run = plain(n=1000, batch_size=10, epochs=2)
    assert run.replace(steps=7).parameters().keys() >= {"steps", "batch_size"}
    assert "epochs" not in run.replace(steps=7).parameters()
    assert run.replace(sampling_rate=0.5).steps == 4
    assert "batch_size" not in run.replace(sampling_rate=0.5).parameters()
    changed = run.replace(loss=SMOOTH, noise_std=0.25)
    assert (changed.noise.name, changed.noise_multiplier) == ("noise_std", 0.25 * 10 / 2.0)
    assert run == plain(n=1000, batch_size=10, epochs=2), "the original is untouched"


def test_replace_checks_the_whole_run_again() -> None:
    run = NoisyGD(n=10, steps=2, noise_std=[1.0, 2.0], release="last")
    with pytest.raises(InvalidInput, match="noise_std has 2 values but the run has 5 steps"):
        run.replace(steps=5)
    with pytest.raises(InvalidInput, match="state the noise once"):
        run.replace(noise_std=1.0, noise_multiplier=1.0)
    with pytest.raises(InvalidInput, match="has no option 'lr'; options are n"):
        run.replace(lr=1.0)
    assert run.replace(steps=3, noise_std=1.0).steps == 3


def test_replace_keeps_the_kind_of_run() -> None:
    for run in DESCRIBED.values():
        assert run.replace(l2=0.5).kind == run.kind
        assert run.replace(l2=0.5).l2 == 0.5


def test_numbers_of_other_libraries_are_read_as_python_numbers() -> None:
    run = plain(n=np.int64(100), batch_size=np.float32(10), steps=np.int32(3))
    assert run == plain(n=100, batch_size=10, steps=3)
    assert json.dumps(run.to_dict())


def test_large_whole_numbers_stay_exact() -> None:
    n = 2**53 + 1
    assert NoisyGD(n=n, steps=1, noise_multiplier=1.0, release="all").n == n


# --- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "Adam"}, "unknown algorithm 'Adam'; known are NoisyGD, NoisySGD"),
        ({"algorithm": None}, "unknown algorithm None"),
        ({"surprise": 1}, "has no option 'surprise'"),
        ({"n": None}, "n must be a real number; got None"),
        ({"noise_multiplier": [["a", 1]]}, "must be a real number; got 'a'"),
        ({"noise_multiplier": [1.0, 2.0]}, r"noise_multiplier must hold pairs \[value, count\]"),
        ({"noise_multiplier": "1"}, "noise_multiplier must be a real number; got '1'"),
        ({"loss": {"lipschitz": 1.0}}, "loss: .*convex"),
        ({"domain": {"kind": "ball"}}, "unknown domain"),
        ({"release": None}, "release is a promise"),
    ],
)
def test_damaged_descriptions_are_refused(changes: dict[str, Any], message: str) -> None:
    found = {**RUNS["Laplace"].to_dict(), **changes}
    with pytest.raises(InvalidInput, match=message):
        run_from_dict(found)


def test_a_missing_size_is_refused() -> None:
    found = RUNS["Poisson"].to_dict()
    del found["n"]
    with pytest.raises(InvalidInput, match=r"NoisySGD: .*missing .*'n'"):
        run_from_dict(found)


def test_stored_schedules_are_run_lengths() -> None:
    run = NoisyGD(n=10, steps=1000, noise_std=[1.0] * 999 + [2.0], release="last")
    assert run.to_dict()["noise_std"] == [[1.0, 999], [2.0, 1]]
    assert run_from_dict(run.to_dict()).noise.value == Schedule(((1.0, 999), (2.0, 1)))
