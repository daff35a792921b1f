"""How exposed each record is, where the order of the records is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    refuse_batches,
)
from dplateau.bounds.base import KnowsRecords
from dplateau.bounds.registry import BOUNDS
from dplateau.errors import NotApplicable
from dplateau.ground import checks
from dplateau.ground.types import FloatArray, IntArray


@dataclass(frozen=True)
class RecordEpsilons:
    """``epsilons[k]`` holds for the records in batch ``positions[k]`` (from 0) of each epoch.

    ``bounds[k]`` names the bound that gives it: no bound is the best at every position.
    """

    run: Run
    delta: float
    bounds: tuple[str, ...]
    positions: IntArray
    epsilons: FloatArray


def per_record(run: Run, delta: float, *, most_positions: int = 200) -> RecordEpsilons:
    """Return each position's own epsilon: early records are hidden by more later noise.

    Long epochs are sampled at ``most_positions`` positions, denser towards the end.

    >>> from dplateau import LossGeometry, OnePassSGD
    >>> loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)
    >>> run = OnePassSGD(n=40, learning_rate=0.5, noise_std=2.0, loss=loss, release="last")
    >>> found = per_record(run, delta=1e-5)
    >>> bool(found.epsilons[0] < found.epsilons[-1])
    True
    """
    level = checks.probability("delta", delta)
    _check_positions(run)
    reasons = {bound: bound.refusal(run) for bound in BOUNDS if isinstance(bound, KnowsRecords)}
    sound = {bound.name for bound, why in reasons.items() if bound.sound and why is None}
    if not sound:
        raise NotApplicable("; ".join(f"{bound.title} {why}" for bound, why in reasons.items()))
    useful = [b for b in reasons if b.name in sound and sound.isdisjoint(b.dominated_by)]
    length = run.batches_per_epoch
    positions = np.arange(length)
    if length > most_positions:
        ages = np.unique(np.geomspace(1, length, most_positions).round()).astype(np.int64)
        positions = np.sort(length - ages)
    table = np.array(
        [[b.record_curve(run, at).epsilon(level) for at in positions.tolist()] for b in useful]
    )
    names = tuple(useful[int(row)].name for row in table.argmin(axis=0))
    return RecordEpsilons(run, level, names, positions, table.min(axis=0))


def _check_positions(run: Run) -> None:
    """Refuse a run whose records have no positions of their own."""
    if run.group_size > 1:
        raise NotApplicable(
            f"per_record is about one record at a time; yours has group_size={run.group_size}"
        )
    match run.batches:
        case OnePass() | Cyclic(order="cyclic"):
            return
        case Cyclic(order=order):
            raise NotApplicable(
                f"with order={order!r} positions are random, so every record has the run's own "
                "epsilon: use certify; per_record is for order='cyclic'"
            )
        case FullBatch() | Poisson() | FixedSize():
            raise NotApplicable(
                f"records of {run.kind} are all alike; per_record is for CyclicSGD and OnePassSGD"
            )
        case _ as unknown:
            refuse_batches(unknown)
