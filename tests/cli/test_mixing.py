"""The command ``mixing`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Done, here, process

SMOOTH = "--diameter 1 --learning-rate 0.01 --smoothness 1"


def dplateau(command: str, folder: Path, *more: str) -> Done:
    return here(*command.split(), *more, folder=folder)


def test_json_and_a_certificate_that_verifies(tmp_path: Path) -> None:
    done = dplateau(f"mixing {SMOOTH} --tv 0.01 --json", tmp_path, "--certificate", "mixing.json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert 140 <= found["steps"] <= 160
    assert found["tv"] <= 0.01
    assert sum(block["count"] * block["steps"] for block in found["blocks"]) == found["steps"]
    assert found["theorem_4_2"] == {"steps": 700, "largest_learning_rate": 2.0, "reason": None}
    assert found["nonexpansive_learning_rate"] == 2.0
    written = json.loads((tmp_path / "mixing.json").read_text(encoding="utf-8"))
    assert written == found["certificate"]
    checked = process("verify", "mixing.json", folder=tmp_path)
    assert checked.returncode == 0
    assert checked.stdout.startswith("VERIFIED: total variation 0.0097")
    written["content"]["claim"]["total_variation"] /= 2
    (tmp_path / "altered.json").write_text(json.dumps(written), encoding="utf-8")
    assert dplateau("verify altered.json", tmp_path).returncode == 1


def test_a_picture_and_a_table(tmp_path: Path) -> None:
    done = process(*f"mixing {SMOOTH} --tv 0.1 -o mixing.png".split(), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mixing.png").read_bytes().startswith(b"\x89PNG")
    assert "steps from any start" in done.stdout
    assert "Theorem 4.2" in done.stdout
    assert done.stdout.endswith("written to mixing.png\n")


def test_batches_and_a_number_of_steps(tmp_path: Path) -> None:
    options = "--n 500 --batch-size 50 --radius 1 --learning-rate 0.02 --lipschitz 1 --steps 400"
    for sampling in ("poisson", "fixed"):
        done = dplateau(f"mixing {options} --sampling {sampling} --json", tmp_path)
        found = json.loads(done.stdout)
        assert found["steps"] == 400
        assert 0 < found["tv"] < 0.1
        assert found["certificate"]["content"]["run"]["sampling"] == sampling


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--diameter 1 --learning-rate 0.01", "constants"),
        ("--diameter 1 --smoothness 1", "--learning-rate"),
        ("--learning-rate 0.01 --smoothness 1", "bounded body"),
        (f"{SMOOTH} --tv 2", "tv must lie strictly between 0 and 1"),
        (f"{SMOOTH} --tv 0.1 --steps 3", "not both"),
        (f"{SMOOTH} -o mixing.gif", ".gif"),
        (f"{SMOOTH} --sampling fixed", "--batch-size"),
        ("--diameter 100 --learning-rate 3 --smoothness 1", "largest learning rate"),
        ("--diameter 1 --learning-rate 0.6 --lipschitz 1 --l2 2", "must stay below 0.5"),
    ],
)
def test_bad_input_ends_with_one_line(options: str, message: str, tmp_path: Path) -> None:
    done = dplateau(f"mixing {options}", tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
