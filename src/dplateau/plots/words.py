"""Runs in few words, for titles and labels."""

from __future__ import annotations

import math
import re

from dplateau.algorithms import (
    AllIterates,
    Checkpoints,
    Cyclic,
    FixedSize,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    RandomStop,
    Release,
    Run,
    Schedule,
    refuse_batches,
    refuse_release,
)

_ORDERS = {
    "cyclic": "Cyclic SGD",
    "shuffle_once": "SGD shuffled once",
    "reshuffle": "SGD reshuffled every epoch",
}
_NOISES = {
    "noise_multiplier": "noise multiplier",
    "noise_std": "noise std",
    "iterate_std": "iterate noise std",
}


def in_short(run: Run, *, length: bool = False) -> str:
    """Return the run in one line; ``length`` adds its number of steps."""
    parts = [_kind(run), f"n = {run.n}"]
    if not isinstance(run.batches, FullBatch):
        parts.append(f"batches of {run.batch_size:g}")
    if isinstance(run.batches, Poisson) and run.has_own_rate:
        parts.append(f"sampling rate {_value(run.batches.rate)}")
    if length:
        parts.append(f"{run.steps} steps")
    parts += _geometry(run)
    if run.noise.name in run.parameters():
        parts.append(f"{_NOISES[run.noise.name]} {_value(run.noise.value)}")
    if run.neighbors == "replace":
        parts.append("one record replaced")
    return f"{', '.join(parts)}; {_released(run.release)}"


def _released(release: Release) -> str:
    match release:
        case LastIterate():
            return "last iterate released"
        case AllIterates():
            return "every iterate released"
        case RandomStop():
            return "released after a random step"
        case Checkpoints(every=int(every)):
            return f"every {every} steps an iterate released"
        case Checkpoints(last=int(last)):
            return f"last {last} iterates released"
        case Checkpoints():
            return "a few iterates released"
        case _ as unknown:
            refuse_release(unknown)


def _kind(run: Run) -> str:
    laplace = " with Laplace noise" if run.noise_kind == "laplace" else ""
    match run.batches:
        case FullBatch():
            full = "Noisy GD" if run.inverse_temperature is None else "Projected Langevin"
            return f"{full}{laplace}"
        case Poisson():
            return "Noisy SGD (Poisson batches)"
        case FixedSize():
            return "Noisy SGD (fixed-size batches)"
        case Cyclic(order=order):
            return _ORDERS[order]
        case OnePass():
            return f"One-pass SGD{laplace}"
        case _ as unknown:
            refuse_batches(unknown)


def _geometry(run: Run) -> list[str]:
    found = []
    if run.learning_rate is not None:
        found.append(f"learning rate {_value(run.learning_rate)}")
    if run.l2 > 0:
        found.append(f"l2 = {run.l2:g}")
    if math.isfinite(run.diameter):
        found.append(f"diameter {run.diameter:g}")
    return found


def _value(value: float | Schedule) -> str:
    return "by schedule" if isinstance(value, Schedule) else f"{value:g}"


def wrapped(text: str, width: int = 96) -> str:
    r"""Break a title after commas and semicolons only, into lines that fit above the axes.

    >>> wrapped("Noisy GD, n = 10, l2 = 0.1; last iterate released", 26)
    'Noisy GD, n = 10,\nl2 = 0.1;\nlast iterate released'
    """
    lines: list[str] = [""]
    for piece in re.split(r"(?<=[,;]) ", text):
        longer = f"{lines[-1]} {piece}".strip()
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(piece)
    return "\n".join(lines)
