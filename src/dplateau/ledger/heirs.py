"""How processes that start inside a ``with`` block learn of its ledgers.

A forked process has its parent's memory, one that starts anew has its environment. A process that
multiprocessing's fork server makes has neither: the server may have started long before the block.
Its own description, which the parent sends along, names the ledgers to it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

# Where the environment and descriptions of processes name ledgers, one in a line.
INHERITED, _BETWEEN = "DPLATEAU_LEDGER", "\n"
_AT_START = os.environ.get(INHERITED, "")


@cache
def told() -> tuple[str, ...]:
    """Return the ledgers that were in force where this process was started, the innermost last."""
    said = _description().get(INHERITED) or _AT_START
    return tuple(said.split(_BETWEEN)) if said else ()


def tell(paths: Sequence[str]) -> None:
    """Name the ledgers in force, the innermost last, to all processes started from now on.

    joblib keeps its processes between calls; they end here, so that the next ones are new.
    """
    told()  # before this process's own description is written over
    for place in (os.environ, _description()):
        place.pop(INHERITED, None)
        if paths:
            place[INHERITED] = _BETWEEN.join(paths)
    if "joblib" in sys.modules:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)


def too_old_to_be_told() -> list[str]:
    """Return the names of this process's children that run already, and learn of nothing more."""
    return sorted(child.name for child in multiprocessing.active_children())


def _description() -> Any:
    """Return what multiprocessing copies from a process to those that it starts."""
    return getattr(multiprocessing.current_process(), "_config", {})
