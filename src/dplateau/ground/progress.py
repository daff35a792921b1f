"""How far a long call has come: a bar that counts steps, and tells nothing of what they found.

It appears after two seconds where somebody looks, in a terminal or a notebook, and is gone when the
call ends, so that nothing of it stays in a saved notebook. No times are shown: how long a step took
may depend on the records of its batch.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from html import escape
from multiprocessing import parent_process
from time import monotonic

Advance = Callable[[int], None]
# Called with (steps done, steps in all), and with nothing else.
Progress = Callable[[int, int], object]
_Show = Callable[[int], None]
_Screen = Callable[[str, int | None], AbstractContextManager[_Show]]

SECONDS_BEFORE = 2.0
SECONDS_BETWEEN = 0.3

_wanted = [True]
# One bar at a time: what a call does on its way is part of that call's own steps.
_one = threading.Lock()


def progress(shown: bool) -> None:
    """Switch progress bars on or off, for this process; they are on unless it is said.

    Calls that take more than two seconds show how many of their steps are done, in a terminal (on
    standard error) or in a notebook, and nothing elsewhere.

    Parameters
    ----------
    shown
        Whether to show them.

    Returns
    -------
    None
        The switch is set.

    Examples
    --------
    >>> import dplateau
    >>> dplateau.progress(False)
    >>> dplateau.progress(True)
    """
    _wanted[:] = [bool(shown)]


@contextmanager
def counting(
    what: str, total: int | None = None, tell: Progress | None = None
) -> Iterator[Advance]:
    """Count what a call does, and yield what to call with the number of steps just done.

    ``tell`` is called instead of showing a bar, a few times a second and at the end. Without a
    ``total`` the bar only says that there is something going on, and how much was done.
    """
    if tell is not None:
        with _telling(tell, total or 0) as advance:
            yield advance
        return
    screen = _screen()
    if screen is None or not _one.acquire(blocking=False):
        yield untold
        return
    try:
        tally, over = _Tally(), threading.Event()
        # The context says which cell of a notebook is running.
        follow = copy_context().run
        watcher = threading.Thread(
            target=follow, args=(_watch, screen, what, total, tally, over), daemon=True
        )
        watcher.start()
        try:
            yield tally.add
        finally:
            over.set()
            watcher.join()
    finally:
        _one.release()


@contextmanager
def silence() -> Iterator[None]:
    """Show no bar of what is done within."""
    mine = _one.acquire(blocking=False)
    try:
        yield
    finally:
        if mine:
            _one.release()


class _Tally:
    """How many steps are done."""

    def __init__(self) -> None:
        self.done = 0

    def add(self, steps: int) -> None:
        self.done += steps


def untold(steps: int) -> None:
    """Take note of steps, and tell nobody."""
    del steps


@contextmanager
def _telling(tell: Progress, total: int) -> Iterator[Advance]:
    done, last = 0, monotonic()

    def advance(steps: int) -> None:
        nonlocal done, last
        done += steps
        if monotonic() - last >= SECONDS_BETWEEN and done < total:
            last = monotonic()
            tell(done, total)

    yield advance
    tell(total, total)


def _watch(
    screen: _Screen, what: str, total: int | None, tally: _Tally, over: threading.Event
) -> None:
    """Wait, then show the tally until the call is over; it goes on whatever happens to a bar."""
    if over.wait(SECONDS_BEFORE):
        return
    with screen(what, total) as show:
        while not over.wait(SECONDS_BETWEEN):
            show(tally.done)


# ---- where somebody looks ------------------------------------------------------------------------


def _screen() -> _Screen | None:
    """Return where to show a bar: only the process that was started by somebody shows one."""
    if not _wanted[-1] or parent_process() is not None:
        return None
    if _in_notebook():
        return _notebook
    stream = sys.stderr
    looked_at = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    return _terminal if looked_at else None


def _in_notebook() -> bool:
    python = sys.modules.get("IPython")
    shell = None if python is None else python.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


@contextmanager
def _terminal(what: str, total: int | None) -> Iterator[_Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn(what), BarColumn(), TextColumn("{task.fields[count]}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task(what, total=total, count="")
        yield lambda done: bar.update(task, completed=done, count=_count(done, total), refresh=True)


@contextmanager
def _notebook(what: str, total: int | None) -> Iterator[_Show]:
    from IPython.display import display

    handle = display(_bundle(what, 0, total), raw=True, display_id=True)
    try:
        yield lambda done: handle.update(_bundle(what, done, total), raw=True)
    finally:
        handle.update({"text/html": "", "text/plain": ""}, raw=True)


def _bundle(what: str, done: int, total: int | None) -> dict[str, str]:
    """Return a bar as a page, and as a line for readers of text."""
    count = _count(done, total)
    size = "" if total is None else f' value="{done}" max="{total}"'
    page = f"<label>{escape(what)} <progress{size}></progress> {count}</label>"
    return {"text/html": page, "text/plain": f"{what}: {count}"}


def _count(done: int, total: int | None) -> str:
    return (f"{done:,}" if done else "") if total is None else f"{done:,} of {total:,}"
