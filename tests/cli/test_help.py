"""Help that can be relied on: every example runs, versions and completion answer, colors obey."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import dplateau
from command_line import here
from dplateau import NoisyGD, certify
from dplateau.cli.commands import app
from dplateau.cli.options import real_number, whole_number

COMMANDS = typer.main.get_command(app)


def commands(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command with the words that call it."""
    if hasattr(found, "commands"):
        for name, inner in found.commands.items():
            yield from commands(inner, (*path, name))
    else:
        yield " ".join(path), found


ALL = dict(commands(COMMANDS))
# These take minutes, or go on until they are stopped; their own tests run them.
SLOW = ("demo", "explore", "reproduce")
TABLE = "age,hours,income\n" + "".join(
    f"{20 + i % 60},{1 + i % 90},{'>50K' if i % 60 > 30 else '<=50K'}\n" for i in range(300)
)


def example_of(command: Any) -> list[str]:
    found = re.search(r"Example: `dplateau ([^`]*)`", command.epilog or "")
    assert found, f"{command.name} has no example"
    return shlex.split(found[1])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with the files that the examples name."""
    claim = certify(NoisyGD(n=50, steps=4, noise_multiplier=9.0, release="all"), 1e-5)
    (tmp_path / "certificate.json").write_text(claim.to_json(), encoding="utf-8")
    (tmp_path / "adult.csv").write_text(TABLE, encoding="utf-8")
    (tmp_path / "new.csv").write_text(TABLE, encoding="utf-8")
    trainer = "def train(data, rng):\n    return data.sum(axis=0) / 50 + rng.normal(size=1)\n"
    (tmp_path / "my_training.py").write_text(trainer, encoding="utf-8")
    sys.modules.pop("my_training", None)  # other tests have one of their own
    yield tmp_path
    sys.modules.pop("my_training", None)


# What must have been called before an example makes sense.
BEFORE = {
    "predict": (["train"], "model.json"),
    "ledger spend": (["ledger init"], None),
    "ledger declare": (["ledger init"], None),
    "ledger show": (["ledger init"], None),
    "ledger plan-next": (["ledger init"], None),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [name for name in ALL if name not in SLOW])
def test_the_example_of_a_command_runs(name: str, folder: Path) -> None:
    words = example_of(ALL[name])
    assert " ".join(words).startswith(name)
    for first in BEFORE.get(name, ([], None))[0]:
        assert here(*example_of(ALL[first]), folder=folder).returncode == 0
    if name == "predict":
        (folder / "dplateau-model" / "model.json").rename(folder / "model.json")
    done = here(*words, folder=folder)
    assert (done.returncode, done.stdout != "") == (0, True), done.stderr


@pytest.mark.parametrize("name", SLOW)
def test_the_long_ones_have_an_example_too(name: str) -> None:
    assert example_of(ALL[name])[0] == name


def test_the_version_is_said() -> None:
    done = here("--version")
    assert (done.returncode, done.stdout) == (0, f"dplateau {dplateau.__version__}\n")


def called(*words: str, **environment: str) -> str:
    command = [sys.executable, "-m", "dplateau", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout


def test_a_shell_completes_commands_and_options() -> None:
    asked = {"_DPLATEAU_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert called(COMP_WORDS="dplateau acc", **asked).split() == ["account"]
    asked["COMP_CWORD"] = "3"
    assert called(COMP_WORDS="dplateau account gd --noise-m", **asked).split() == [
        "--noise-multiplier"
    ]


def test_no_color_means_no_color() -> None:
    words = [
        "compare",
        "gd",
        "--n",
        "50",
        "--steps",
        "4",
        "--noise-multiplier",
        "9",
        "--release",
        "all",
        "--delta",
        "1e-5",
    ]
    colored = r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|4[0-7])"
    for asked in (words, ["account", "--help"]):
        assert not re.search(colored, called(*asked, FORCE_COLOR="1", NO_COLOR="1"))
    assert re.search(colored, called("account", "--help", FORCE_COLOR="1", NO_COLOR=""))


@pytest.mark.parametrize("text", ["60000", "60_000", "6e4", "6E+4", "60000.0"])
def test_numbers_are_read_as_people_write_them(text: str) -> None:
    assert whole_number(text) == 60_000
    assert real_number(text) == 60_000.0


@pytest.mark.parametrize("text", ["1.5", "1e-3", "many", "inf", "nan", "1e99999999", ""])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    done = here("plan", "--n", text, "--d", "3", "--epsilon", "1")
    assert done.returncode == 2
    assert f"{text!r} is not a whole number" in done.stderr


def test_required_options_stand_together_and_algorithms_name_their_own() -> None:
    shown = here("account", "--help").stdout
    needed = shown.partition(" Required ")[2].partition("╰")[0]
    for option in ("--n ", "--release ", "--delta "):
        assert option in needed
    for title in ("Only sgd", "Only cyclic", "Only langevin", "Batches (sgd, cyclic, one-pass)"):
        assert f" {title} " in shown


def test_flags_take_nothing_and_kinds_have_one_style() -> None:
    for name in ("account", "train", "ledger show"):
        shown = here(*name.split(), "--help").stdout
        options = shown.partition(" Options ")[2]
        assert re.search(r"--json +Print JSON", options)
        assert not re.search(r"<(bool|str|path|int|float)>", options, re.IGNORECASE)
