"""The command ``audit`` as a user runs it: files, functions of their own, exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import command_line
from command_line import process
from dplateau import AuditReport, LossGeometry, NoisyGD, certify
from dplateau.audit import lower_bound
from forging import changed, forged

RUN = NoisyGD(
    n=10,
    steps=40,
    learning_rate=0.5,
    l2=0.2,
    noise_multiplier=4.0,
    loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
    release="last",
)
WORDS = (
    "gd --n 10 --steps 40 --learning-rate 0.5 --l2 0.2 --noise-multiplier 4 --lipschitz 1 "
    "--smoothness 0.25 --release last --delta 1e-5"
)
TRAINING = """
import numpy as np


def train(rows, rng, count, factor=1.0):
    w = np.zeros((count, rows.shape[1]))
    for _ in range(40):
        noise = factor * 4.0 / len(rows) * rng.normal(size=w.shape)
        w = w - 0.5 * (rows.sum(axis=0) / len(rows) + 0.2 * w + noise)
    return w


def quiet(rows, rng, count):
    return train(rows, rng, count, 0.8)


def one_run(rows, rng):
    return train(rows, rng, 1)[0]


def fails(rows, rng):
    return 1 / 0


def pair(run):
    data = np.zeros((run.n, 4))
    data[3, 2] = run.lipschitz
    return data, np.zeros_like(data)


def three(run):
    return 1, 2, 3


number = 3
"""
TRAINED = ("--runs", "2000", "--at-once", "2000", "--seed", "1")


class Here:
    """The command in this process, which is quicker: the folder's own modules are forgotten."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def audit(self, *words: str) -> tuple[int, str, str]:
        """Return exit code, output and errors."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", list(sys.path))
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.delitem(sys.modules, "my_training", raising=False)
            done = command_line.here("audit", *words, folder=self.folder)
            patch.delitem(sys.modules, "my_training", raising=False)
        return done.returncode, done.stdout, done.stderr

    def answer(self, *words: str) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        code, output, errors = self.audit(*words, "--json")
        assert errors == ""
        found: dict[str, Any] = json.loads(output)["content"]
        assert code == (1 if found["verdict"] == "violated" else 0)
        return found


@pytest.fixture
def here(folder: Path) -> Here:
    return Here(folder)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # What is made twice is the same, whenever it is made.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1769860800")
    (tmp_path / "my_training.py").write_text(TRAINING, encoding="utf-8")
    (tmp_path / "certificate.json").write_text(certify(RUN, 1e-5).to_json(), encoding="utf-8")
    return tmp_path


def test_a_certificate_is_rederived_and_set_against_an_exact_adversary(here: Here) -> None:
    found = here.answer("certificate.json")
    claim = certify(RUN, 1e-5).claimed_epsilon
    assert found["verdict"] == "not violated"
    assert found["certificate"]["content"]["claim"] == {"epsilon": claim, "delta": 1e-5}
    assert found["verification"]["ok"] is True
    assert found["lower_bound"] >= lower_bound(RUN, 1e-5).epsilon * (1 - 1e-9)
    assert found["ratio"] == claim / found["lower_bound"]
    assert 1 <= found["ratio"] < 1.0001
    assert found["adversary"]["epsilon"] == found["lower_bound"]
    assert found["adversary"]["rigorous"] is True
    assert found["trainer"] is None


def test_a_run_is_audited_like_its_certificate(folder: Path, here: Here) -> None:
    assert here.answer(*WORDS.split()) == here.answer("certificate.json")
    done = process("audit", *WORDS.split(), folder=folder)
    assert done.returncode == 0
    assert done.stdout.startswith("claim: (4.75397, 1e-05)-DP by Hidden-state GD")
    assert "re-derived by independent code: epsilon 4.75397" in done.stdout
    assert "exact adversary: epsilon is at least 4.75" in done.stdout
    assert done.stdout.endswith("verdict: not violated: nothing contradicts the claim\n")


def test_where_no_adversary_is_known_the_reason_is_told(here: Here) -> None:
    words = (
        "gd --n 10 --steps 5 --learning-rate 0.5 --noise-multiplier 4 --lipschitz 1 "
        "--smoothness 1 --strong-convexity 0.5 --release last --delta 1e-5"
    )
    found = here.answer(*words.split())
    assert (found["lower_bound"], found["ratio"]) == (None, None)
    assert "linear losses are not strongly convex" in found["no_lower_bound"]


def test_a_claim_below_its_own_proof_is_a_violation(folder: Path, here: Here) -> None:
    honest = certify(RUN, 1e-5)
    lower = forged(honest.to_dict(), claimed_epsilon=honest.claimed_epsilon / 2)
    (folder / "forged.json").write_text(json.dumps(lower), encoding="utf-8")
    found = here.answer("forged.json")
    assert found["verdict"] == "violated"
    assert found["verification"]["ok"] is False
    code, output, _ = here.audit("forged.json", "--trainer", "my_training:train", *TRAINED)
    assert code == 1
    assert "NOT re-derived by independent code" in output
    assert "trainer:" not in output


def test_where_nothing_is_claimed_nothing_is_violated(folder: Path, here: Here) -> None:
    seeded = certify(RUN, 1e-5).without_claim("not private (seeded run)")
    (folder / "seeded.json").write_text(seeded.to_json(), encoding="utf-8")
    code, output, _ = here.audit("seeded.json")
    assert code == 1
    assert output.endswith("verdict: nothing is claimed: not private (seeded run)\n")


def test_the_right_trainer_passes_and_the_quiet_one_does_not(folder: Path, here: Here) -> None:
    right = here.answer("certificate.json", "--trainer", "my_training:train", *TRAINED)
    assert right["verdict"] == right["trainer"]["content"]["verdict"] == "not violated"
    done = process(
        "audit",
        "certificate.json",
        *("--trainer", "my_training:quiet", *TRAINED),
        *("-o", "report.json", "--picture", "audit.png"),
        folder=folder,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("verdict: violated: the trainer leaks more than is claimed\n")
    assert (folder / "audit.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    report = AuditReport.from_json(json.dumps(written["content"]["trainer"]))
    assert report.violated
    assert (report.runs, report.seed) == (2000, 1)


def test_one_run_at_a_time_and_a_pair_of_ones_own(here: Here) -> None:
    words = ("certificate.json", "--pair", "my_training:pair", "--runs", "100", "--seed", "3")
    found = here.answer(*words, "--trainer", "my_training:one_run", "--confidence", "0.9")
    report = found["trainer"]["content"]
    assert report["runs"] == 100
    assert report["confidence"] == 0.9
    again = here.answer(*words, "--trainer", "my_training:one_run", "--confidence", "0.9")
    assert again["trainer"]["content"] == report


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nowhere.json", "cannot read nowhere.json"),
        ("my_training.py", "not a certificate"),
        ("certificate.json --n 3", "a file takes no --n; algorithms are gd, sgd"),
        ("certificate.json --delta 1e-6", "claims delta 1e-05, not 1e-06; leave --delta out"),
        ("gd --n 10 --noise-multiplier 1 --release last", "state the length once"),
        (WORDS.replace("--delta 1e-5", ""), "a run needs --delta"),
        ("certificate.json --runs 500", "--runs is for audits of a trainer"),
        ("certificate.json --picture a.png", "--picture is for audits of a trainer"),
        ("certificate.json --trainer train", "'train' is not module:function"),
        ("certificate.json --trainer my_training:no", "cannot load my_training:no: AttributeE"),
        ("certificate.json --trainer my_other:no", "cannot load my_other:no: ModuleNotFound"),
        ("certificate.json --trainer my_training:number", "my_training:number is no function"),
        ("certificate.json --trainer my_training:train --runs 9", "runs must be at least 100"),
        (
            "certificate.json --trainer my_training:fails --seed 1",
            "the trainer failed: ZeroDivisionError: division by zero (line 22)",
        ),
        (
            "certificate.json --trainer my_training:one_run --pair my_training:three",
            "--pair must return two data sets; got tuple",
        ),
        ("certificate.json --trainer my_training:train --picture a.gif", "use .png, .svg, .pdf"),
        ("certificate.json -o no/where.json", "there is no folder no"),
        (
            "certificate.json --trainer my_training:train -o a.png --picture a.png",
            "cannot both go to a.png",
        ),
    ],
)
def test_bad_requests_end_in_one_line(words: str, message: str, here: Here) -> None:
    before = sorted(here.folder.iterdir())
    code, output, errors = here.audit(*words.split())
    assert (code, output) == (2, "")
    assert len(errors.splitlines()) == 1, errors
    assert message in errors
    assert sorted(here.folder.iterdir()) == before


def test_an_altered_certificate_is_refused(folder: Path, here: Here) -> None:
    found = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    altered = json.dumps(changed(found, claimed_epsilon=1.0))
    (folder / "altered.json").write_text(altered, encoding="utf-8")
    code, _, errors = here.audit("altered.json")
    assert code == 2
    assert "altered after it was made" in errors
