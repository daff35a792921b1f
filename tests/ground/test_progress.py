"""Bars where somebody looks: after a while, of steps alone, gone at the end, silent elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dplateau import LossGeometry, NoisyGD, calibrate
from dplateau.ground import progress as bars
from dplateau.ground.progress import counting, silence

ROOT = Path(__file__).resolve().parents[2]
SOON = (
    "import dplateau.ground.progress as bars; bars.SECONDS_BEFORE = bars.SECONDS_BETWEEN = 0.02\n"
)
# A call of the library of about a second.
CALL = """
from dplateau import Ball, LossGeometry, Potential, sample
bowl = Potential(lambda x: 2 * x, LossGeometry(lipschitz=2.0, convex=True, smoothness=2.0))
drawn = sample(bowl, Ball(1.0), 40_000, learning_rate=0.05, dimension=2, warmup=1000, seed=0)
print("the answer is", drawn.draws.shape)
"""


def in_terminal(code: str, **environment: str) -> str:
    """Run code whose output and errors go to a terminal, and return what that was sent."""
    ours, theirs = pty.openpty()
    known = {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **known, **environment},
    )
    os.close(theirs)
    sent = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # how a terminal says that nobody writes to it any more
            break
        if not part:
            break
        sent += part
    os.close(ours)
    assert started.wait() == 0, sent.decode()
    return sent.decode()


def on_screen(sent: str) -> str:
    """Return what stays to be read: lines that were erased are not there."""
    lines = [""]
    for part in re.findall(r"\x1b\[2K|\x1b\[1A|\x1b\[[?0-9;]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", sent):
        if part == "\n":
            lines.append("")
        elif part == "\x1b[1A":
            lines.pop()
        elif part == "\x1b[2K":
            lines[-1] = ""
        elif part[0] not in "\x1b\r":
            lines[-1] += part
    return "\n".join(lines).strip()


def test_a_terminal_sees_steps_until_the_call_ends() -> None:
    sent = in_terminal(SOON + CALL)
    counts = [int(done.replace(",", "")) for done in re.findall(r"([\d,]+) of 41,000", sent)]
    assert counts[-1] > 0
    assert counts == sorted(counts)
    assert re.search(r"steps +━+", sent)
    assert bars.SECONDS_BEFORE == 2.0
    assert on_screen(sent) == "the answer is (4, 40000, 2)"


@pytest.mark.parametrize(
    ("before", "environment"),
    [
        ("import dplateau.ground.progress as bars; bars.SECONDS_BEFORE = 60.0\n", {}),
        (SOON + "import dplateau; dplateau.progress(False)\n", {}),
        (SOON, {"TERM": "dumb"}),
    ],
)
def test_a_terminal_sees_nothing_where_nothing_is_wanted(
    before: str, environment: dict[str, str]
) -> None:
    assert in_terminal(before + CALL, **environment) == "the answer is (4, 40000, 2)\r\n"


def test_only_the_process_that_somebody_started_shows_bars() -> None:
    task = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import time
def slow(_):
    with bars.counting("steps", 3):
        time.sleep(0.2)
with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
    list(pool.map(slow, [1]))
print("done")
"""
    assert in_terminal(SOON + task) == "done\r\n"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None]]:
    """The bars that would be shown, on a screen that takes down what it is asked for."""
    started: list[tuple[str, int | None]] = []

    class Screen:
        def __init__(self, what: str, total: int | None) -> None:
            started.append((what, total))

        def __enter__(self) -> object:
            return lambda done: None

        def __exit__(self, *raised: object) -> None:
            pass

    monkeypatch.setattr(bars, "_screen", lambda: Screen)
    monkeypatch.setattr(bars, "SECONDS_BEFORE", 0.0)
    return started


def test_what_a_call_does_on_its_way_shows_no_bar_of_its_own(
    seen: list[tuple[str, int | None]],
) -> None:
    run = NoisyGD(n=10, steps=20, learning_rate=0.5, l2=0.1, noise_std=1.0, release="last",
                  loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5))  # fmt: skip
    calibrate(run, 1.0, 1e-5)
    assert seen == [("runs tried", None)]
    calibrate(run, 1.0, 1e-5)
    assert len(seen) == 2


def test_a_call_that_fails_makes_room_for_the_next_bar(seen: list[tuple[str, int | None]]) -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), counting("fails", 2) as advance:
        advance(1 // 0)
    with silence(), counting("unseen"):
        pass
    with counting("seen"):
        pass
    assert [what for what, _ in seen] == ["fails", "seen"]
    assert threading.active_count() == before


def test_a_function_is_told_instead(
    seen: list[tuple[str, int | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "SECONDS_BETWEEN", 0.0)
    told: list[tuple[int, int]] = []
    with counting("steps", 5, lambda *numbers: told.append(numbers)) as advance:
        for _ in range(5):
            advance(1)
    assert told == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert seen == []
