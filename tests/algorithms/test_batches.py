"""Batches and releases are closed sets of values; sampling rates may change; groups are a unit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
import pytest

from dplateau import (
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    OnePassSGD,
    ProjectedLangevin,
    Schedule,
    certify,
)
from dplateau.algorithms import (
    AllIterates,
    Batches,
    Cyclic,
    FixedSize,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    RandomStop,
    Run,
    run_from_dict,
)

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)
STEPS: dict[str, Any] = {"learning_rate": 0.5, "loss": LOSS, "release": "last"}
RATES = [0.1, 0.1, 0.3, 0.02]


def warming(**changes: Any) -> Run:
    stated = {"n": 50, "batch_size": 5, "sampling_rate": RATES, "steps": 4, "noise_multiplier": 1.0}
    return NoisySGD(**{**stated, "release": "all", **changes})


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "batches"),
    [
        (NoisyGD(n=9, steps=2, noise_std=1.0, **STEPS), FullBatch()),
        (ProjectedLangevin(n=9, steps=2, **STEPS), FullBatch()),
        (NoisySGD(n=8, batch_size=2, steps=2, noise_std=1.0, **STEPS), Poisson(0.25)),
        (NoisySGD(n=8, sampling_rate=0.25, steps=2, noise_std=1.0, **STEPS), Poisson(0.25)),
        (
            NoisySGD(n=8, batch_size=2, steps=2, noise_std=1.0, **STEPS, sampling="fixed",
                     neighbors="replace"),
            FixedSize(2),
        ),
        (
            CyclicSGD(n=8, sampling_rate=0.25, steps=2, noise_std=1.0, order="reshuffle", **STEPS),
            Cyclic(2, "reshuffle"),
        ),
        (OnePassSGD(n=8, batch_size=3, noise_std=1.0, **STEPS), OnePass(3)),
    ],
)  # fmt: skip
def test_every_constructor_says_its_batches(run: Run, batches: Batches) -> None:
    assert run.batches == batches
    assert eval(repr(run)) == run


def test_a_repr_is_the_call_that_makes_the_run() -> None:
    for run in (warming(), warming(group_size=3, noise_multiplier=[1.0, 2.0, 2.0, 1.0])):
        assert eval(repr(run)) == run


def test_releases_are_values_and_their_names_are_read() -> None:
    run = OnePassSGD(n=4, noise_std=1.0, release=RandomStop())
    assert run == OnePassSGD(n=4, noise_std=1.0, release="random_stop")
    assert run.to_dict()["release"] == "random_stop"
    assert run.replace(release="last").release == LastIterate()
    assert run.replace(release=AllIterates()).release == AllIterates()
    assert (run.stops_at_random, run.replace(release="all").stops_at_random) == (True, False)


def test_batches_that_do_not_fit_the_divisor_are_no_run() -> None:
    from dataclasses import replace

    run = CyclicSGD(n=8, batch_size=2, steps=2, noise_std=1.0, **STEPS)
    with pytest.raises(InvalidInput, match="batches of 4 records, but divided by 2"):
        replace(run, batches=Cyclic(4, "cyclic"))


def test_docstrings_may_be_dropped() -> None:
    code = (
        "import dplateau as d\n"
        "run = d.NoisyGD(n=9, steps=1, noise_multiplier=1.0, release='all')\n"
        "print(round(d.certify(run, 1e-5).claimed_epsilon, 5))"
    )
    found = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("4.37718\n", "")


# --- sampling rates -----------------------------------------------------------------------------


def test_a_schedule_of_rates_is_described_and_read_back() -> None:
    run = warming()
    assert run.batches == Poisson(Schedule.of(RATES))
    assert run.sampling_rates().tolist() == RATES
    assert (run.batch_size, run.has_own_rate, run.has_schedule) == (5, True, True)
    assert run.epochs == pytest.approx(sum(RATES))
    described = run.to_dict()
    assert described["sampling_rate"] == [[0.1, 2], [0.3, 1], [0.02, 1]]
    assert described["batch_size"] == 5
    again = run_from_dict(json.loads(json.dumps(described)))
    assert again == run
    assert hash(again) == hash(run)


def test_one_rate_is_asked_for_in_vain() -> None:
    with pytest.raises(NotApplicable, match="pld_composition, rdp_composition"):
        _ = warming().sampling_rate


def test_a_rate_of_its_own_is_not_the_batch_over_n() -> None:
    run = warming(sampling_rate=0.2, steps=None, epochs=3)
    assert (run.batch_size, run.sampling_rate, run.steps) == (5, 0.2, 15)
    assert run.epochs == pytest.approx(3)
    assert run.has_own_rate
    assert run.parameters()["sampling_rate"] == 0.2
    usual = warming(sampling_rate=0.1)
    assert usual == warming(sampling_rate=None)
    assert "sampling_rate" not in usual.parameters()


def test_replacing_one_of_two_stated_sizes_keeps_the_other() -> None:
    run = warming()
    assert run.replace(batch_size=10).sampling_rates().tolist() == RATES
    assert run.replace(sampling_rate=0.5).batch_size == 5
    assert run.replace(sampling_rate=None).sampling_rate == 0.1
    assert run.replace(batch_size=None, sampling_rate=0.2).batch_size == 10


# --- groups -------------------------------------------------------------------------------------


def test_a_group_of_one_is_not_written_down() -> None:
    run = warming()
    assert "group_size" not in run.to_dict()
    assert "group_size" not in repr(run)
    pairs = run.replace(group_size=2)
    assert pairs.to_dict()["group_size"] == 2
    assert run_from_dict(pairs.to_dict()) == pairs != run


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2", float("nan")])
def test_groups_hold_whole_records(size: Any) -> None:
    with pytest.raises(InvalidInput, match="group_size must be"):
        warming(group_size=size)


# --- a scheme that nobody knows -----------------------------------------------------------------


@dataclass(frozen=True)
class Importance:
    """Batches drawn by norm: no room has a case for them."""

    algorithm: ClassVar[str] = "ImportanceSGD"
    described: ClassVar[str] = "ImportanceSGD"


def unknown(**changes: Any) -> Run:
    """Return a run that no constructor would make."""
    run = NoisyGD(**{"n": 9, "steps": 2, "noise_std": 1.0, **STEPS, **changes})
    object.__setattr__(run, "batches", Importance())
    return run


def test_the_list_of_schemes_is_closed() -> None:
    assert set(get_args(Batches)) == {FullBatch, Poisson, FixedSize, Cyclic, OnePass}
    from dataclasses import replace

    with pytest.raises(NotApplicable, match=r"nothing is known here about batches .* Importance"):
        replace(NoisyGD(n=9, steps=2, noise_std=1.0, **STEPS), batches=Importance())


@pytest.mark.parametrize("release", ["last", "all"])
def test_no_bound_speaks_of_an_unknown_scheme(release: str) -> None:
    from dplateau.bounds.registry import BOUNDS, HISTORICAL

    run = unknown(release=release)
    for bound in (*BOUNDS, *HISTORICAL):
        assert bound.refusal(run), bound.name
    with pytest.raises(NotApplicable, match="no bound applies"):
        certify(run, 1e-5)


def test_no_verifier_derives_anything_about_it() -> None:
    from dplateau.verify.cases import Case
    from dplateau.verify.reading import Entry
    from dplateau.verify.report import Examination, Refused
    from dplateau.verify.verdict import THEOREMS

    witness = {
        "losses": "convex and smooth", "period": 1, "trailing": 0, "uses": 2,
        "lifted": "gd_bounded", "orders": [2.0], "bounded": True,
    }  # fmt: skip
    refused = []
    for release in ("last", "all"):
        for name, theorem in THEOREMS.items():
            case = Case(unknown(release=release), Entry(witness), 1.0, 1e-5, Examination())
            with pytest.raises((Refused, NotApplicable)):
                theorem(case)
            refused.append(name)
    assert refused == 2 * list(THEOREMS)


def questions(run: Run) -> list[Callable[[], object]]:
    """Return what every room that reads a run can be asked about it."""
    from dplateau import (
        calibrate,
        epsilon_over_releases,
        epsilon_over_steps,
        lower_bound,
        per_record,
        plan,
        search_adversary,
        train,
        train_gradient,
        worst_case_pair,
    )
    from dplateau.losses import Logistic
    from dplateau.plots.canvas import in_short
    from dplateau.sampling import certify_mixing

    rows, labels = np.eye(9)[:, :2], np.ones(9)
    return [
        lambda: lower_bound(run, 1e-5),
        lambda: search_adversary(run, 1e-5),
        lambda: train(run, Logistic(), rows, labels, feature_norm=1.0),
        lambda: train_gradient(
            run, lambda weights, part: part, rows, start=np.zeros(2), never_clips=True
        ),
        lambda: in_short(run),
        lambda: certify(run, 1e-5),
        lambda: calibrate(run, epsilon=1.0, delta=1e-5),
        lambda: epsilon_over_steps(run, 1e-5, [1, 2]),
        lambda: plan(n=9, d=2, algorithm=run),
        lambda: epsilon_over_releases(run, 1e-5, [1, 2]),
        lambda: worst_case_pair(run),
        lambda: per_record(run, 1e-5),
        lambda: certify_mixing(run),
        lambda: run.to_dict(),
        lambda: repr(run),
        lambda: run.epochs,
    ]


def test_no_room_takes_it() -> None:
    from dplateau.losses import Logistic

    for ask in questions(unknown(loss=Logistic().geometry(1.0))):
        with pytest.raises(NotApplicable, match="nothing is known here about batches"):
            ask()


@dataclass(frozen=True)
class Gradients:
    """Every sum of gradients leaves: no room has a case for that."""

    name: ClassVar[str] = "gradients"


def test_an_unknown_release_is_refused_where_it_matters() -> None:
    from dplateau.bounds.registry import BOUNDS, HISTORICAL
    from dplateau.losses import Logistic

    run = NoisyGD(**{"n": 9, "steps": 2, "noise_std": 1.0, **STEPS}).replace(
        loss=Logistic().geometry(1.0)
    )
    object.__setattr__(run, "release", Gradients())
    for bound in (*BOUNDS, *HISTORICAL):
        assert bound.refusal(run), bound.name
    # Attacks, engines, pictures and claims, in this order.
    for ask in questions(run)[:6]:
        with pytest.raises(NotApplicable, match="nothing is known here about a release"):
            ask()
