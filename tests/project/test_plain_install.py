"""A plain install, without any extra: what works there works, and the rest names its extra.

Extras that are installed are hidden from a new interpreter, as if they were not.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import dplateau

HIDDEN = ("sklearn", "cryptography", "pandas", "pyarrow", "matplotlib", "arviz_base", "xarray")


def plainly(script: str) -> subprocess.CompletedProcess[str]:
    hide = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN!r}))\n"
    command = [sys.executable, "-W", "error", "-c", hide + script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_star_takes_what_is_there() -> None:
    done = plainly("from dplateau import *\nprint(*sorted(n for n in dir() if n[0] != '_'))")
    assert (done.returncode, done.stderr) == (0, "")
    missing = set(dplateau.__all__) - set(done.stdout.split())
    assert missing == {
        "PrivateHuberRegressor",
        "PrivateLinearSVC",
        "PrivateLogisticRegression",
        "PrivateRidge",
        "noisy_score",
    }


def test_a_name_that_needs_an_extra_says_so() -> None:
    done = plainly("from dplateau import PrivateRidge")
    assert done.returncode == 1
    assert done.stderr.endswith("need the extra train: pip install 'dplateau[train]'\n")


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("train data.csv --target y --epsilon 1 --bounds x=0:1 --classes 0,1", "all"),
        ("sign data.csv --key k --new-key", "sign"),
        ("curve gd --n 9 --steps 2 --noise-std 1 --release all --delta .1 -o c.png", "plots"),
    ],
)
def test_a_command_that_needs_an_extra_says_so(words: str, extra: str) -> None:
    script = (
        "import os, pathlib, tempfile; os.chdir(tempfile.mkdtemp()); "
        "pathlib.Path('data.csv').write_text('x,y\\n0.5,1\\n0.1,0\\n')\n"
        f"from dplateau.cli import main; main({words.split()!r})"
    )
    done = plainly(script)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert f"dplateau[{extra}]" in done.stderr


def test_the_demonstration_goes_on_without_models() -> None:
    script = (
        "from dplateau.cli import demo\n"
        "demo.account_demo = lambda: print('and then the account')\n"
        "demo.run_demo()"
    )
    done = plainly(script)
    assert (done.returncode, done.stderr) == (0, "")
    assert "No models here: private estimators need the extra train" in done.stdout
    assert done.stdout.endswith("and then the account\n")
