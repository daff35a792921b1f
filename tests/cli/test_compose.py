"""compose and plan: their answers are the library's own, and their files verify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import here
from dplateau import Composition, NoisyGD, certify, compose, foreign, per_record, plan
from dplateau.algorithms import LossGeometry, OnePassSGD

ONE = certify(NoisyGD(n=50, steps=4, noise_multiplier=9.0, release="all"), 1e-5)


@pytest.fixture
def file(tmp_path: Path) -> str:
    place = tmp_path / "one.json"
    place.write_text(ONE.to_json(), encoding="utf-8")
    return str(place)


def test_releases_compose_as_in_the_library(file: str, tmp_path: Path) -> None:
    output = tmp_path / "both.json"
    done = here("compose", file, file, "--declare", "a count=0.1:1e-7", "-o", str(output))
    assert (done.returncode, done.stderr) == (0, "")
    count = foreign(epsilon=0.1, delta=1e-7, neighbors="add_remove", name="a count")
    expected = compose([ONE, ONE, count], 1e-5)
    found = Composition.from_json(output.read_text(encoding="utf-8"))
    assert found == expected
    assert done.stdout == f"{expected}\ncomposition written to {output}\n"
    assert here("verify", str(output)).returncode == 0
    # A composition is a part like any other.
    again = json.loads(here("compose", str(output), file, "--delta", "1e-4", "--json").stdout)
    assert again["content"]["claim"]["delta"] == 1e-4


def test_disjoint_releases_cost_what_the_worst_costs(file: str) -> None:
    found = json.loads(here("compose", file, file, "--disjoint", "--json").stdout)
    assert found["content"]["claim"]["epsilon"] == pytest.approx(ONE.claimed_epsilon, rel=1e-6)


@pytest.mark.parametrize("text", ["count", "=1", "count=", "count=x", "count=1:y"])
def test_declarations_that_cannot_be_read_are_refused(file: str, text: str) -> None:
    done = here("compose", file, "--declare", text)
    assert done.returncode == 2
    assert "--declare takes NAME=EPSILON or NAME=EPSILON:DELTA" in done.stderr


def test_a_release_that_claims_nothing_does_not_compose(tmp_path: Path) -> None:
    place = tmp_path / "seeded.json"
    place.write_text(ONE.without_claim("not private (seeded run)").to_json(), encoding="utf-8")
    done = here("compose", str(place))
    assert done.returncode == 2
    assert "not private (seeded run)" in done.stderr


def test_a_plan_is_that_of_the_library(tmp_path: Path) -> None:
    output = tmp_path / "planned.json"
    words = ["plan", "--n", "5e3", "--d", "20", "--epsilon", "2", "-o", str(output)]
    found = json.loads(here(*words, "--json").stdout)
    expected = plan(n=5000, d=20, epsilon=2.0)
    assert found["run"] == expected.run.to_dict()
    assert found["claimed_epsilon"] == expected.certificate.claimed_epsilon <= 2
    done = here(*words)
    assert " ".join(done.stdout.split()).startswith(" ".join(expected.summary.split()))
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    assert here("verify", str(output)).returncode == 0
    doubtful = here("plan", "--n", "20", "--d", "20", "--epsilon", "1")
    assert "take note: " in doubtful.stdout


def test_each_record_has_its_own_epsilon(tmp_path: Path) -> None:
    words = [
        "per-record",
        "one-pass",
        "--n",
        "40",
        "--learning-rate",
        "0.5",
        "--noise-std",
        "2",
        "--lipschitz",
        "1",
        "--smoothness",
        "1",
        "--release",
        "last",
        "--delta",
        "1e-5",
    ]
    loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)
    run = OnePassSGD(n=40, learning_rate=0.5, noise_std=2.0, loss=loss, release="last")
    expected = per_record(run, 1e-5).epsilons.tolist()
    found = json.loads(here(*words, "--json").stdout)
    assert [row["position"] for row in found["records"]] == list(range(1, 41))
    assert [row["epsilon"] for row in found["records"]] == expected
    table = tmp_path / "records.csv"
    done = here(*words, "--csv", str(table))
    assert len(done.stdout.splitlines()) <= 17
    lines = table.read_text(encoding="utf-8").splitlines()
    assert [float(line.split(",")[1]) for line in lines[1:]] == expected
    refused = here("per-record", "gd", "--steps", "9", *words[2:])
    assert refused.returncode == 2
    assert "records of gd are all alike; per-record is for cyclic and one-pass" in refused.stderr
