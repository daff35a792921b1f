"""A trainer's runs on two data sets: one generator for each call, in processes, on file if wanted.

What a call returns depends on the seed, the side and the number of the call, never on who made it
or when: any number of processes gives the same outputs, and a file of finished calls goes on where
it stopped.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.processes import in_processes
from dplateau.ground.progress import Progress, counting
from dplateau.ground.types import FloatArray

Trainer = Callable[..., Any]


class Call(NamedTuple):
    """One call of the trainer: its side (0 the data, 1 the neighbor), its number and its runs."""

    side: int
    number: int
    first: int
    runs: int


@dataclass(frozen=True, eq=False)
class Trials:
    """All calls of an audit."""

    train: Trainer
    pair: tuple[Any, Any]
    runs: int
    seed: int
    at_once: int | None

    def calls(self) -> list[Call]:
        """Return the calls of both sides, in order."""
        most = 1 if self.at_once is None else checks.whole("at_once", self.at_once)
        return [
            Call(side, number, first, min(most, self.runs - first))
            for side in (0, 1)
            for number, first in enumerate(range(0, self.runs, most))
        ]

    def outputs(self, call: Call) -> FloatArray:
        """Make a call, with a generator of its own."""
        spawned = np.random.SeedSequence(self.seed, spawn_key=(call.side, call.number))
        rng, given = np.random.default_rng(spawned), self.pair[call.side]
        if self.at_once is not None:
            return _rows(self.train(given, rng, call.runs), call.runs, call.first)
        alone = _takes_one_argument(self.train)
        return _rows(self.train(given) if alone else self.train(given, rng), 1, call.first)


def outputs_of(
    trials: Trials, *, jobs: int | None, state: Path | None, progress: Progress | None
) -> list[FloatArray]:
    """Return what left, one run per row, for both data sets.

    ``jobs`` processes share the calls (None: one for every processor); ``state`` is a file of
    finished calls, which are not made again.
    """
    calls = trials.calls()
    finished: dict[Call, FloatArray] = {}
    with ExitStack() as stack:
        advance = stack.enter_context(counting("runs", 2 * trials.runs, progress))
        write: Callable[[Call, FloatArray], None] = _nowhere
        if state is not None:
            finished, write = _on_file(state, trials, stack)
            advance(sum(call.runs for call in finished))
        left = [call for call in calls if call not in finished]
        for place, rows in in_processes(trials.outputs, left, jobs):
            call = left[place]
            finished[call] = rows
            write(call, rows)
            advance(call.runs)
    outputs = [_stacked([finished[call] for call in calls if call.side == side]) for side in (0, 1)]
    if outputs[0].shape[1] != outputs[1].shape[1]:
        raise InvalidInput(
            f"the trainer returned {outputs[0].shape[1]} numbers on the data and "
            f"{outputs[1].shape[1]} on its neighbor; outputs must have one size"
        )
    return outputs


# -- finished calls on file -----------------------------------------------------------------------


def seed_on_file(state: Path | None) -> int | None:
    """Return the seed of the audit that a file goes on with, if there is one."""
    if state is None or not state.is_file():
        return None
    seed = _header(state).get("seed")
    return seed if isinstance(seed, int) else None


def _on_file(
    path: Path, trials: Trials, stack: ExitStack
) -> tuple[dict[Call, FloatArray], Callable[[Call, FloatArray], None]]:
    """Return the finished calls, and what adds one more as a line of its own."""
    header = {"seed": trials.seed, "runs": trials.runs, "at_once": trials.at_once}
    finished: dict[Call, FloatArray] = {}
    kept = [json.dumps(header)]
    if path.is_file():
        if _header(path) != header:
            raise InvalidInput(
                f"{path} holds runs of another audit; give the same seed, runs and at_once, or "
                "another file"
            )
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            # A line that was cut off is dropped.
            with suppress(json.JSONDecodeError):
                record = json.loads(line)
                finished[Call(*record["call"])] = np.array(record["rows"], dtype=np.float64)
                kept.append(line)
    path.write_text("\n".join([*kept, ""]), encoding="utf-8")
    file = stack.enter_context(path.open("a", encoding="utf-8"))

    def write(call: Call, rows: FloatArray) -> None:
        file.write(json.dumps({"call": call, "rows": rows.tolist()}) + "\n")
        file.flush()

    return finished, write


def _header(path: Path) -> Mapping[str, Any]:
    with path.open(encoding="utf-8") as file, suppress(json.JSONDecodeError, UnicodeDecodeError):
        header = json.loads(file.readline())
        if isinstance(header, dict):
            return header
    return {}


def _nowhere(call: Call, rows: FloatArray) -> None:
    del call, rows


# -- what a call returned -------------------------------------------------------------------------


def _takes_one_argument(train: Trainer) -> bool:
    try:
        parameters = inspect.signature(train).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return False
    return sum(parameter.kind in kinds for parameter in parameters) == 1


def _rows(raw: Any, count: int, first: int) -> FloatArray:
    """Return outputs as ``count`` rows of finite numbers."""
    try:
        outputs = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"the trainer must return numbers; run {first} returned {type(raw).__name__}"
        ) from None
    if count > 1 and (outputs.ndim == 0 or len(outputs) != count):
        raise InvalidInput(
            f"with at_once the trainer must return one row per run: {count} rows were asked for, "
            f"the shape is {outputs.shape}"
        )
    if outputs.size == 0:
        raise InvalidInput(f"the trainer returned nothing in run {first}")
    rows = outputs.reshape(count, -1)
    if not np.all(np.isfinite(rows)):
        bad = first + int(np.argmin(np.all(np.isfinite(rows), axis=1)))
        raise InvalidInput(f"the trainer returned a number that is not finite in run {bad}")
    return rows


def _stacked(parts: list[FloatArray]) -> FloatArray:
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        raise InvalidInput(f"outputs must have one size; the trainer returned {sorted(widths)}")
    return np.concatenate(parts)
