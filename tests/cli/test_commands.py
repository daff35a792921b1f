"""The command line as a user meets it: real processes, exit codes, one line on bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SGD = "sgd --n 60000 --batch-size 256 --epochs 60 --noise-multiplier 1.1 --release all --delta 1e-5"
GD = (
    "gd --n 1000 --steps 100 --learning-rate 0.5 --l2 0.1 --lipschitz 1 --smoothness 0.25 "
    "--noise-multiplier 20 --release last --delta 1e-5"
)
RUNS = {
    "gd": GD,
    "sgd": SGD,
    "cyclic": "cyclic --n 40 --batch-size 4 --epochs 5 --order shuffle-once --learning-rate 0.5 "
    "--l2 0.01 --lipschitz 1 --smoothness 0.25 --noise-multiplier 3 --release last --delta 1e-5",
    "one-pass": "one-pass --n 40 --learning-rate 0.5 --lipschitz 1 --smoothness 1 --noise-std 2 "
    "--neighbors replace --release last --delta 1e-5",
    "langevin": "langevin --n 100 --steps 50 --learning-rate 0.01 --lipschitz 1 --smoothness 1 "
    "--diameter 2 --release last --delta 1e-5",
}


def dplateau(words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dplateau", *words.split()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd)


@pytest.mark.parametrize("name", RUNS)
def test_account_prints_json_with_the_promised_keys(name: str) -> None:
    done = dplateau(f"account {RUNS[name]} --json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"claimed_epsilon", "claimed_delta", "bound", "bounds", "assumptions"} <= set(found)
    epsilons = [row["epsilon"] for row in found["bounds"] if row["epsilon"] is not None]
    assert found["claimed_epsilon"] == min(epsilons)
    assert all(row["reason"] for row in found["bounds"] if row["epsilon"] is None)


def test_compare_agrees_with_the_literature() -> None:
    found = json.loads(dplateau(f"compare {SGD} --json").stdout)
    by_name = {row["bound"]: row["epsilon"] for row in found["bounds"]}
    assert 2.3805 <= by_name["pld_composition"] <= 2.3827
    assert by_name["rdp_composition"] == pytest.approx(2.597, abs=1e-3)
    assert {"claimed_epsilon", "claimed_delta", "bound", "bounds", "assumptions"} <= set(found)


def test_tables_name_the_winner_and_the_refusals() -> None:
    done = dplateau(f"account {GD}")
    assert done.returncode == 0
    assert "Hidden-state GD" in done.stdout
    assert "rests on" in done.stdout


def test_calibrate_meets_the_target_and_knows_plateaus() -> None:
    noise = json.loads(dplateau(f"calibrate {GD} --epsilon 1 --json").stdout)
    assert noise["varied"] == "noise_multiplier"
    assert 0.99 <= noise["claimed_epsilon"] <= 1
    steps = json.loads(dplateau(f"calibrate {GD} --epsilon 5 --vary steps --json").stdout)
    assert steps["unlimited"] is True


def test_a_written_certificate_verifies_and_an_altered_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    assert dplateau(f"account {GD} -o {path}").returncode == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["certificate.json"]
    assert dplateau(f"verify {path}").returncode == 0
    found = json.loads(path.read_text())
    found["claimed_epsilon"] *= 0.9
    path.write_text(json.dumps(found))
    assert dplateau(f"verify {path}").returncode == 1


BAD = {
    "account": "Missing",
    "account nonsense --delta 1e-5": "nonsense",
    "account sgd --bogus 3": "--bogus",
    "account sgd --n 100 --delta 1e-5": "state the batch once",
    "account sgd --n 100 --batch-size 10 --delta 1e-5": "state the length once",
    "account sgd --n 100 --batch-size 10 --steps 5 --delta 1e-5": "state the noise once",
    "account sgd --n 100 --batch-size 10 --steps 5 --noise-multiplier 1 --delta 1e-5": "release is a",
    f"account {GD} --epochs 3": "steps or epochs; got both",
    f"account {GD.replace('1e-5', '1.5')}": "delta must lie strictly between 0 and 1",
    f"account {GD.replace('1e-5', 'nan')}": "NaN",
    f"account {GD.replace('0.5', 'inf')}": "learning_rate must be finite",
    f"account {GD} --batch-size 3": "gd takes no --batch-size",
    f"account {GD} --neighbors sideways": "neighbors must be one of",
    f"account {GD} --noise-kind laplace": "Laplace",
    f"account {GD} -o nowhere/at/all.json": "there is no folder",
    f"account {SGD} --sampling fixed": "fixed-size batches have no theorem",
    f"calibrate {GD} --epsilon -1": "epsilon must be",
    f"calibrate {GD} --epsilon 1 --vary moon": "vary must be one of",
    "verify no-such-file.json": "cannot read",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_one_line_and_exit_code_two(words: str, tmp_path: Path) -> None:
    done = dplateau(words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert BAD[words].lower() in lines[0].lower()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["account", "compare", "calibrate", "curve"])
def test_help_shows_a_worked_example(command: str) -> None:
    done = dplateau(f"{command} --help")
    assert done.returncode == 0
    assert "Example" in done.stdout
    assert f"dplateau {command}" in " ".join(done.stdout.split())


def test_bare_command_shows_help() -> None:
    done = dplateau("")
    assert "Usage" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
