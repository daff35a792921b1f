"""Progress of a fit on standard error: steps and time, never anything that depends on the data."""

from __future__ import annotations

import numbers
import sys
import time
from collections.abc import Callable
from typing import Any

from dplateau.algorithms import Run
from dplateau.errors import InvalidInput

Progress = Callable[[int, int], None]


def progress_of(verbose: Any, name: str, run: Run) -> Progress | None:
    """Return what to call with (steps done, steps in all): nothing, a line, or the user's own."""
    # Where a run stops at a random step, the last number shown would give the step away.
    if run.stops_at_random:
        return None
    if callable(verbose):
        found: Progress = verbose
        return found
    if not isinstance(verbose, numbers.Integral):
        raise InvalidInput(
            f"verbose must be 0, 1 or a function of (steps done, steps in all); got {verbose!r}"
        )
    return _line(name) if int(verbose) > 0 else None


def _line(name: str) -> Progress:
    start = time.monotonic()

    def show(done: int, steps: int) -> None:
        spent = time.monotonic() - start
        end = "\n" if done >= steps else ""
        sys.stderr.write(f"\r{name}: step {done} of {steps}, {spent:.0f} s{end}")
        sys.stderr.flush()

    return show
