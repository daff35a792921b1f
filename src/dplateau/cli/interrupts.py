"""Ctrl-C that is heard: libraries on the way may swallow it, and it comes again until it is."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# How long what is under way may tidy up before it is interrupted once more, in seconds.
_PATIENCE = 2.0
# An interruption that fell into a callback, where nothing can be raised, is raised so soon after.
_SOON = 0.05
# Ends from elsewhere (kill, a closed terminal) tidy up and speak as Ctrl-C does.
_POLITE = ("SIGTERM", "SIGHUP")


@contextmanager
def interrupts_heard() -> Iterator[None]:
    """Raise KeyboardInterrupt at a signal, and again until the block ends.

    A compiler's callbacks, destructors and a bare ``except`` during an import each make an
    exception disappear, and the command would go on to its end. What the caller ignores or handles
    already stays so, as do signals outside the main thread, where nobody may set them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    hook, before = sys.unraisablehook, _ours()
    try:
        for number in before:
            signal.signal(number, _interrupt)
        sys.unraisablehook = lambda unraised: _soon_again(unraised, hook)
        yield
    finally:
        _again_in(0.0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _ours() -> dict[signal.Signals, Any]:
    """Return the signals that nobody else takes, with what they do by default."""
    by_default: dict[str, Any] = {"SIGINT": signal.default_int_handler}
    by_default |= dict.fromkeys((*_POLITE, "SIGALRM"), signal.SIG_DFL)
    known = {getattr(signal, name, None): usual for name, usual in by_default.items()}
    return {
        number: usual
        for number, usual in known.items()
        if number is not None and signal.getsignal(number) == usual
    }


def _interrupt(number: int, frame: Any) -> None:
    _again_in(_PATIENCE)
    raise KeyboardInterrupt


def _soon_again(unraised: Any, hook: Any) -> None:
    if issubclass(unraised.exc_type, KeyboardInterrupt):
        _again_in(_SOON)
    else:
        hook(unraised)


def _again_in(seconds: float) -> None:
    """Interrupt after that time, never for 0; without such a clock a user presses again."""
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is _interrupt:
        signal.setitimer(signal.ITIMER_REAL, seconds)
