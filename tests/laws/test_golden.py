"""Every bound says about every run of the catalogue what it said when the files were written."""

from __future__ import annotations

import pytest

import golden
from catalogue import RUNS
from dplateau.algorithms import Checkpoints
from dplateau.bounds.registry import BOUNDS, HISTORICAL

STORED = golden.read()
CERTIFICATES = [(bound, run) for bound, found in STORED.items() for run in found["certificates"]]


@pytest.mark.parametrize(("bound", "run"), CERTIFICATES)
def test_a_stored_witness_gives_the_stored_numbers(bound: str, run: str) -> None:
    stored = STORED[bound]["certificates"][run]
    assert list(golden.evaluation_changes(bound, run, stored)) == []


@pytest.mark.parametrize(("bound", "run"), CERTIFICATES)
def test_planning_afresh_claims_the_stored_epsilon(bound: str, run: str) -> None:
    stored = STORED[bound]["certificates"][run]
    assert list(golden.planning_changes(bound, run, stored)) == []


@pytest.mark.parametrize("bound", STORED)
def test_the_same_runs_are_refused(bound: str) -> None:
    assert list(golden.refusal_changes(bound, STORED[bound])) == []


def test_every_bound_has_a_certificate_and_nothing_else_is_stored() -> None:
    assert set(STORED) == {bound.name for bound in (*BOUNDS, *HISTORICAL)}
    assert [bound for bound, found in STORED.items() if not found["certificates"]] == []


def test_every_run_has_a_certificate() -> None:
    assert {run for _, run in CERTIFICATES} == set(RUNS)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("algorithm", {"NoisyGD", "NoisySGD", "CyclicSGD", "OnePassSGD", "ProjectedLangevin"}),
        ("sampling", {"poisson", "fixed"}),
        ("order", {"cyclic", "shuffle_once", "reshuffle"}),
        ("neighbors", {"add_remove", "replace"}),
        ("noise_kind", {"gaussian", "laplace"}),
        ("momentum_kind", {"heavy_ball"}),
    ],
)
def test_the_catalogue_has_every_choice(option: str, values: set[str]) -> None:
    described = [run.to_dict() for run in RUNS.values()]
    assert {found[option] for found in described if option in found} == values


def test_the_catalogue_has_every_release() -> None:
    releases = [run.release for run in RUNS.values()]
    assert {release.name for release in releases} == {"last", "all", "random_stop", "checkpoints"}
    checkpoints = [release.to_dict() for release in releases if isinstance(release, Checkpoints)]
    assert {name for found in checkpoints for name in found} == {"kind", "every", "at", "last"}


def test_the_catalogue_has_every_number_domain_and_class_of_losses() -> None:
    described = [run.to_dict() for run in RUNS.values()]
    optional = {"noise_multiplier", "noise_std", "iterate_std", "momentum", "average_last"}
    assert optional <= {name for found in described for name in found}
    scheduled = {name for found in described for name in found if isinstance(found[name], list)}
    assert scheduled == {"learning_rate", "noise_multiplier"}
    assert {found["domain"]["kind"] for found in described if "domain" in found} == {
        "ball",
        "box",
        "body",
    }
    losses = {tuple(sorted(found["loss"])) for found in described if "loss" in found}
    convex = {found["loss"]["convex"] for found in described if "loss" in found}
    assert convex == {True, False}
    assert losses == {
        ("convex", "lipschitz"),
        ("convex", "lipschitz", "smoothness"),
        ("convex", "lipschitz", "saddle", "smoothness"),
        ("convex", "lipschitz", "smoothness", "strong_convexity"),
        ("convex", "holder", "lipschitz"),
        ("convex", "dissipativity", "lipschitz", "smoothness"),
    }


def test_a_number_that_moves_is_noticed() -> None:
    stored = STORED["gd_contraction"]["certificates"]["full batch"]
    for name in ("epsilon", "delta"):
        for factor in (1 - 1e-8, 1 + 1e-8):
            moved = {**stored, name: stored[name] * factor}
            (line,) = golden.evaluation_changes("gd_contraction", "full batch", moved)
            assert f"gives {name}" in line
    for factor in (1 - 1e-5, 1 + 1e-5):
        moved = {**stored, "epsilon": stored["epsilon"] * factor}
        (line,) = golden.planning_changes("gd_contraction", "full batch", moved)
        assert "planning gives" in line


def test_a_refusal_that_moves_is_noticed() -> None:
    stored = STORED["gd_contraction"]
    missing = {**stored, "refusals": {}}
    assert "'cyclic': is refused now" in "\n".join(
        golden.refusal_changes("gd_contraction", missing)
    )
    more = {**stored, "refusals": {**stored["refusals"], "new": ["full batch"]}}
    (line,) = golden.refusal_changes("gd_contraction", more)
    assert line == "gd_contraction, 'full batch': is no longer refused"
