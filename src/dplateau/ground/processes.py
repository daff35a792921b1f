"""Calls that share nothing, in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from dplateau.errors import MissingExtra
from dplateau.ground import checks

Item = TypeVar("Item")
Found = TypeVar("Found")


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_processes(
    call: Callable[[Item], Found], items: Sequence[Item], jobs: int | None
) -> Iterator[tuple[int, Found]]:
    """Yield the place of every item with what the call made of it, as results come in.

    ``jobs`` processes share the items (None: one for every processor); with one job, or one item,
    all stays in this process. Items travel in messages and never through files, which may be of
    private records. An exception or an interrupt ends the processes.
    """
    processes = processors() if jobs is None else checks.whole("jobs", jobs)
    if min(processes, len(items)) <= 1:
        for place, item in enumerate(items):
            yield place, call(item)
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise MissingExtra(
            "several processes need joblib: pip install 'dplateau[train]', or jobs=1"
        ) from None
    parallel = Parallel(n_jobs=processes, return_as="generator_unordered", max_nbytes=None)
    yield from parallel(delayed(_placed)(call, place, item) for place, item in enumerate(items))


def _placed(call: Callable[[Item], Found], place: int, item: Item) -> tuple[int, Found]:
    return place, call(item)
