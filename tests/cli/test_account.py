"""account, compare and calibrate: their answers are the library's own."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from command_line import here, process
from dplateau import (
    Ball,
    Certificate,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
    certify,
    compare,
    lower_bound,
)
from dplateau.algorithms import Run
from dplateau.bounds.registry import BOUNDS
from dplateau.ground.shown import rounded_down, rounded_up

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
# The same run in words and in Python; numbers and names are meant to look alike.
CASES: dict[str, tuple[str, Run]] = {
    "gd": (
        "gd --n 1000 --steps 40 --learning-rate 0.5 --l2 0.1 --noise-std 0.02 --lipschitz 1 "
        "--smoothness 0.25 --release last",
        NoisyGD(
            n=1000,
            steps=40,
            learning_rate=0.5,
            l2=0.1,
            noise_std=0.02,
            loss=LOSS,
            release="last",
        ),
    ),
    "sgd": (
        "sgd --n 6000 --batch-size 60 --epochs 2 --noise-multiplier 1.1 --neighbors add-remove "
        "--release all",
        NoisySGD(n=6000, batch_size=60, epochs=2, noise_multiplier=1.1, release="all"),
    ),
    "sgd-fixed": (
        "sgd --n 60 --sampling-rate 0.1 --steps 3 --sampling fixed --neighbors replace "
        "--noise-multiplier 2 --release all",
        NoisySGD(
            n=60,
            sampling_rate=0.1,
            steps=3,
            sampling="fixed",
            neighbors="replace",
            noise_multiplier=2.0,
            release="all",
        ),
    ),
    "cyclic": (
        "cyclic --n 40 --batch-size 4 --epochs 3 --order shuffle-once --noise-multiplier 3 "
        "--release all",
        CyclicSGD(
            n=40, batch_size=4, epochs=3, order="shuffle_once", noise_multiplier=3.0, release="all"
        ),
    ),
    "one-pass": (
        "one-pass --n 40 --batch-size 4 --learning-rate 0.5 --lipschitz 1 --smoothness 0.25 "
        "--noise-multiplier 2 --release random-stop",
        OnePassSGD(
            n=40,
            batch_size=4,
            learning_rate=0.5,
            noise_multiplier=2.0,
            loss=LOSS,
            release="random_stop",
        ),
    ),
    "langevin": (
        "langevin --n 100 --steps 20 --learning-rate 0.02 --inverse-temperature 2 --radius 1 "
        "--lipschitz 1 --smoothness 0.25 --release last",
        ProjectedLangevin(
            n=100,
            steps=20,
            learning_rate=0.02,
            inverse_temperature=2.0,
            domain=Ball(1.0),
            loss=LOSS,
            release="last",
        ),
    ),
}
PROMISED = {"claimed_epsilon", "claimed_delta", "bound", "bounds", "assumptions", "certificate"}


def answer(*words: str) -> dict[str, Any]:
    done = here(*words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert set(found) >= PROMISED
    named, sound = {row["bound"] for row in found["bounds"]}, {b.name for b in BOUNDS if b.sound}
    # compare shows every bound; the others ask none that another one dominates.
    assert named == sound if words[0] == "compare" else named <= sound
    assert all(set(item) == {"text", "status"} for item in found["assumptions"])
    return found


@pytest.mark.parametrize("name", CASES)
def test_account_answers_like_the_library(name: str) -> None:
    words, run = CASES[name]
    found = answer("account", *words.split(), "--delta", "1e-5")
    certificate = certify(run, 1e-5)
    assert found["run"] == run.to_dict()
    assert found["claimed_epsilon"] == pytest.approx(certificate.claimed_epsilon, rel=1e-9)
    assert found["claimed_delta"] == 1e-5
    assert found["bound"] == certificate.bound
    # The report carries the certificate along, whole.
    assert Certificate.from_dict(found["certificate"]).run == run


@pytest.mark.parametrize("name", ["gd", "sgd"])
def test_compare_answers_like_the_library(name: str) -> None:
    words, run = CASES[name]
    found = answer("compare", *words.split(), "--delta", "1e-6")
    certificate = certify(run, 1e-6)
    assert found["claimed_epsilon"] == pytest.approx(certificate.claimed_epsilon, rel=1e-9)
    assert found["bound"] == certificate.bound
    for row in found["bounds"]:
        assert (row["epsilon"] is None) == (row["reason"] is not None)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("gd", "--epsilon 0.5 --vary l2"),
        ("sgd", "--epsilon 0.5"),
        ("cyclic", "--epsilon 3 --vary steps"),
        ("langevin", "--epsilon 0.05 --vary steps"),
    ],
)
def test_calibrate_meets_its_target(name: str, more: str) -> None:
    words, _ = CASES[name]
    found = answer("calibrate", *words.split(), "--delta", "1e-5", *more.split())
    target = float(more.split()[1])
    assert 0 < found["claimed_epsilon"] <= target
    assert {"varied", "value", "unlimited"} <= set(found)
    certificate = Certificate.from_dict(found["certificate"])
    assert certify(certificate.run, 1e-5).claimed_epsilon == pytest.approx(
        certificate.claimed_epsilon, rel=1e-9
    )
    assert min(row["epsilon"] for row in found["bounds"] if row["epsilon"] is not None) <= target


@pytest.mark.parametrize("name", CASES)
def test_the_answer_comes_first_and_is_short(name: str) -> None:
    words, run = CASES[name]
    done = here("account", *words.split(), "--delta", "1e-5")
    assert (done.returncode, done.stderr) == (0, "")
    certificate = certify(run, 1e-5)
    lines = done.stdout.splitlines()
    assert lines[0] == f"{certificate.claim} by {certificate.theorem.title}"
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[0] == "proof"
    for head in ("composition", "lower bound", "rests on", "more"):
        assert sum(line.startswith(f" {head} ") for line in lines) == 1
    assert "--all" in lines[-1]


def test_the_best_composition_and_a_lower_bound_stand_beside_the_claim() -> None:
    words, run = CASES["gd"]
    done = process("account", *words.split(), "--delta", "1e-5")
    assert (done.returncode, done.stderr) == (0, "")
    found = answer("account", *words.split(), "--delta", "1e-5")
    rows = compare(run, 1e-5).rows
    composed = min(row.epsilon for row in rows if row.epsilon and not row.hidden_state)
    assert found["composition"]["epsilon"] == pytest.approx(composed, rel=1e-9)
    ratio = composed / found["claimed_epsilon"]
    assert f"{rounded_up(composed)} by GDP composition, {ratio:.3g} times as much" in done.stdout
    least = lower_bound(run, 1e-5).epsilon
    assert found["lower_bound"] == least
    assert f"{rounded_down(least)} is needed at least" in done.stdout
    assert least <= found["claimed_epsilon"]
    # Of all that the claim rests on, what leaves and how long gradients are come first.
    shown = done.stdout.partition("rests on")[2].split("\n")
    assert shown[0].strip().startswith("only the last iterate leaves")
    assert shown[1].strip().startswith("no record's gradient is longer")


def test_where_hiding_gains_nothing_the_answer_says_so() -> None:
    done = here("account", *CASES["cyclic"][0].split(), "--delta", "1e-5")
    assert "composition  is this claim: hiding the iterates gains nothing here" in done.stdout


def test_weak_claims_are_told_with_the_answer() -> None:
    words = "gd --n 500 --steps 400 --noise-multiplier 1 --release all --delta 0.01"
    done = here("account", *words.split())
    assert done.stdout.count("\n take note ") == 2
    assert len(done.stdout.splitlines()) <= 15
    found = answer("account", *words.split())
    assert len(found["warnings"]) == 2
    assert float(found["warnings"][0].split()[2]) >= found["claimed_epsilon"] > 20


def test_all_shows_every_assumption_and_the_rest_by_reason() -> None:
    words, run = CASES["gd"]
    done = here("account", *words.split(), "--delta", "1e-5", "--all")
    text = " ".join(done.stdout.split())
    for assumption in certify(run, 1e-5).assumptions:
        assert assumption.text.split(",")[0] in text
    rows = compare(run, 1e-5)
    refused = [row for row in rows.rows if row.reason is not None]
    assert [row.title for row in refused if row.title not in text] == []
    assert done.stdout.count("\n no  ") == len(rows.refusals) < len(refused)
    for spelling in ("LossGeometry", "NoisySGD", "release='", "sampling='"):
        assert spelling not in done.stdout


def test_compare_shows_what_applies() -> None:
    words, run = CASES["gd"]
    rows = compare(run, 1e-5).rows
    done = here("compare", *words.split(), "--delta", "1e-5")
    for row in rows:
        if row.epsilon is not None:
            assert rounded_up(row.epsilon, 5, padded=True) in done.stdout
    refused = sum(row.reason is not None for row in rows)
    assert f"{refused} more bounds do not apply; --all says why" in done.stdout
    assert "is about" not in done.stdout


def test_calibrating_needs_no_noise_to_start_from() -> None:
    words = "gd --n 6000 --steps 20 --release all --delta 1e-5 --epsilon 1"
    bare = answer("calibrate", *words.split())
    assert bare["varied"] == "noise_multiplier"
    started = answer("calibrate", *words.split(), "--noise-multiplier", "9")
    assert bare["value"] == pytest.approx(started["value"], rel=1e-3)
    done = here("calibrate", *words.split(), "--vary", "steps")
    assert done.returncode == 2
    assert "state the noise once: exactly one of --noise-multiplier" in done.stderr


def test_calibrate_in_words() -> None:
    words, _ = CASES["cyclic"]
    done = process("calibrate", *words.split(), "--delta", "1e-5", "--epsilon", "1")
    assert (done.returncode, done.stderr) == (0, "")
    value, claim = done.stdout.splitlines()[:2]
    assert value.startswith("--noise-multiplier ")
    assert claim.endswith("-DP by GDP composition")
    assert "--all" not in done.stdout, "an option of other commands"


def test_the_answer_comes_first_with_all_that_stands_beside_it_too() -> None:
    words, _ = CASES["cyclic"]
    short, long = (
        process("account", *words.split(), "--delta", "1e-5", *rest).stdout.splitlines()
        for rest in ([], ["--all"])
    )
    assert long[0] == short[0]
    assert len(long) > 15 >= len(short)
    assert any("--all" in line for line in short)
    assert not any("--all" in line for line in long)


def test_a_certificate_is_written_whole(tmp_path: Path) -> None:
    words, run = CASES["cyclic"]
    path = tmp_path / "my [odd] name.json"
    path.write_text("something older and much longer" * 1000)
    done = process("account", *words.split(), "--delta", "1e-5", "-o", path.name, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"certificate written to {path.name}" in done.stdout
    certificate = Certificate.from_json(path.read_text())
    assert certificate.run == run
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name], "no scraps are left"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_refused_runs_leave_older_certificates_alone(tmp_path: Path) -> None:
    words, _ = CASES["cyclic"]
    path = tmp_path / "certificate.json"
    path.write_text("older")
    done = here("account", *words.split(), "--delta", "2", "-o", str(path))
    assert done.returncode == 2
    assert path.read_text() == "older"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
