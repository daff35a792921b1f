"""Ctrl-C and polite ends from elsewhere are heard wherever they fall, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dplateau.cli.interrupts import interrupts_heard
from dplateau.ground import files

SAID = "dplateau: interrupted; nothing was written\n"
# A command that is interrupted where Python cannot raise: the exception disappears there.
SWALLOWED = """
import ctypes, os, signal, sys, time
from dplateau.cli import commands, main

def press(*_):
    os.kill(os.getpid(), signal.{name})
    return 0

def callback(**_):
    ctypes.CFUNCTYPE(ctypes.c_int)(press)()
    time.sleep(60)

class Dying:
    def __del__(self):
        press()

def destructor(**_):
    Dying()
    time.sleep(60)

def bare(**_):
    try:
        press()
    except:
        pass
    time.sleep(60)

commands.app = {where}
main(["account"])
"""


@pytest.mark.parametrize("where", ["callback", "destructor", "bare"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_interruption_that_disappears_comes_again(where: str, name: str) -> None:
    command = [sys.executable, "-c", SWALLOWED.format(where=where, name=name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stderr) == (130, SAID)


def test_what_the_caller_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interrupts_heard():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def terminated() -> None:
    with interrupts_heard():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)


def test_signals_and_hooks_are_given_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        terminated()
    assert [signal.getsignal(number) for number in numbers] == before
    assert sys.unraisablehook is hook
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_interruption_while_a_file_is_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", pressed)
    with pytest.raises(KeyboardInterrupt):
        files.write_whole(tmp_path / "certificate.json", "{}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["reproduce", "--list"]])
def test_an_output_that_is_full_is_one_line(words: list[str]) -> None:
    command = [sys.executable, "-m", "dplateau", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    said = "dplateau: cannot print the answer: No space left on device; nothing was written\n"
    assert done.stderr == said
