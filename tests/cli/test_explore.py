"""The command ``explore`` where its extra is not installed; suites/browser tests it where it is."""

from __future__ import annotations

import sys

import pytest

from command_line import here


def test_without_its_extra_it_says_which_and_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = here("explore")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "dplateau: the explorer needs the extra explore: pip install 'dplateau[explore]'\n"
    )
