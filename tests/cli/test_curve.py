"""The command ``curve``: its files and its one-line refusals."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command_line import Done, here, process

GD = (
    "gd --n 1000 --steps 10 --learning-rate 0.1 --l2 0.1 --noise-std 0.02 --lipschitz 1 "
    "--smoothness 1 --release last --delta 1e-5"
)
ONE_PASS = (
    "one-pass --n 40 --learning-rate 0.5 --noise-std 2 --diameter 1 --lipschitz 1 --smoothness 1 "
    "--neighbors replace --release last --delta 1e-5"
)
CYCLIC = (
    "cyclic --n 1000 --batch-size 25 --epochs 2 --learning-rate 0.1 --l2 0.001 --noise-std 0.06 "
    "--lipschitz 1 --smoothness 1 --release last --delta 1e-5"
)


def curve(words: str, folder: Path, *more: str) -> Done:
    return here("curve", *words.split(), *more, folder=folder)


def columns(path: Path) -> dict[str, list[float]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name] or "nan") for row in rows] for name in rows[0]}


def check_order(found: dict[str, list[float]], axis: str) -> None:
    """The best bound is the least, and no lower bound exceeds it."""
    bounds = [np.array(v) for name, v in found.items() if name not in (axis, "best", "lower")]
    best, lower = np.array(found["best"]), np.array(found["lower"])
    assert np.array_equal(best, np.min(bounds, axis=0))
    known = ~np.isnan(lower)
    assert known[-1]
    assert np.all(lower[known] <= best[known])


def test_steps_are_drawn_and_listed(tmp_path: Path) -> None:
    files = ("-o", "curve.png", "--csv", "curve.csv", "--points", "20")
    done = process("curve", *GD.split(), *files, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "curve written to curve.png\ncurve written to curve.csv\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.csv", "curve.png"]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    found = columns(tmp_path / "curve.csv")
    assert (found["steps"][0], found["steps"][-1]) == (1, 100_000)
    for name in ("gdp_composition", "pld_composition", "rdp_composition"):
        assert np.all(np.diff(found[name]) > 0)
    check_order(found, "steps")
    # Composition keeps growing, the last iterate does not.
    assert found["best"][-1] < 1.001 * found["best"][-4]
    assert found["gdp_composition"][-1] > 50 * found["best"][-1]


def test_a_single_pass_goes_over_its_records(tmp_path: Path) -> None:
    done = curve(ONE_PASS, tmp_path, "-o", "records.svg", "--csv", "records.csv", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "records.svg").read_text(encoding="utf-8").startswith("<?xml")
    found = columns(tmp_path / "records.csv")
    assert found["position"] == list(range(1, 41))
    check_order(found, "position")
    listed = json.loads(done.stdout)
    assert listed["best"] == found["best"]
    assert listed["run"]["algorithm"] == "OnePassSGD"
    assert found["best"][0] < listed["shuffled"] < found["best"][-1]
    for line in listed["bounds"]:
        assert line["epsilon"] == found[line["bound"]]


def test_cyclic_runs_are_looked_at_after_whole_epochs(tmp_path: Path) -> None:
    words = ("--from", "30", "--to", "4001", "--points", "9", "--json", "--no-lower-bound")
    done = curve(CYCLIC, tmp_path, *words)
    assert (done.returncode, done.stderr) == (0, "")
    listed = json.loads(done.stdout)
    assert all(count % 40 == 0 for count in listed["steps"])
    assert (listed["steps"][0], listed["steps"][-1]) == (40, 4000)
    assert set(listed["lower"]) == {None}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "nothing was asked for: say -o FILE, --csv FILE or --json"),
        (("-o", "curve.gif"), "cannot draw curve.gif: it ends in '.gif'; use .png, .svg, .pdf"),
        (("-o", "no/curve.png"), "cannot write no/curve.png: there is no folder no"),
        (("-o", "a.png", "--csv", "a.png"), "picture and numbers cannot both go to a.png"),
        (("--json", "--from", "9", "--to", "3"), "got from 9 to 3"),
        (("--json", "--points", "many"), "Invalid value for '--points'"),
    ],
)
def test_refusals_are_one_line_and_leave_no_file(
    more: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = curve(GD, tmp_path, *more)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("dplateau: ")
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_missing_drawing_library_is_one_line(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['matplotlib'] = None; "
        "from dplateau.cli import main; main(['curve', *sys.argv[1:]])"
    )
    words = [*GD.split(), "--to", "10", "--points", "2", "--no-lower-bound"]

    def called(*more: str) -> Done:
        command = [sys.executable, "-c", script, *words, *more]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    drawn = called("-o", "curve.png", "--csv", "curve.csv")
    assert drawn.returncode == 2
    assert drawn.stderr == (
        "dplateau: drawing needs the extra plots: pip install 'dplateau[plots]'\n"
    )
    assert not list(tmp_path.iterdir())
    assert called("--json").returncode == 0


def test_where_nothing_is_known_from_below_a_note_says_so(tmp_path: Path) -> None:
    words = (
        "--momentum",
        "0.9",
        "--radius",
        "9",
        "--to",
        "400",
        "--points",
        "3",
        "--csv",
        "curve.csv",
    )
    done = curve(CYCLIC, tmp_path, *words)
    assert done.returncode == 0
    assert done.stderr.startswith("note: no lower bound at T = ")
    assert columns(tmp_path / "curve.csv")["steps"][-1] == 400


def test_help_shows_a_worked_example(tmp_path: Path) -> None:
    done = curve("--help", tmp_path)
    assert done.returncode == 0
    assert "Example: dplateau curve gd" in " ".join(done.stdout.split())
    assert "--no-lower-bound" in done.stdout
