"""Runs that release iterates on the way: every stretch between two releases, derived anew.

After a release both neighbors stand at one public point. A stretch is then a run of its own from a
common start, of which the last iterate leaves, and whatever dominates the stretches composes
(docs/theory/checkpoints.md). Here the releases are counted one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from dplateau.algorithms import (
    Checkpoints,
    Cyclic,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    Run,
    Schedule,
)
from dplateau.verify import blocks, iteration, ordered, reading
from dplateau.verify.claims import ROUNDED, Case, Derived, Theorem, gaussian_derived
from dplateau.verify.facts import batches_per_epoch, blocks_of, require_batches, require_plain
from dplateau.verify.precise import MP, Precise
from dplateau.verify.report import Ledger

_MOST_RELEASES = 10**6
_FULL_BATCH: dict[str, Theorem] = {
    "gd_contraction": iteration.gd_contraction,
    "gd_bounded": iteration.gd_bounded,
    "modulus": iteration.modulus,
}
_POISSON: dict[str, str] = {"add_remove": "poisson_blocks", "replace": "poisson_blocks_replace"}


@dataclass(frozen=True)
class Stretch:
    """Steps ``start`` ... ``stop`` - 1, and how many stretches of the run are equal to it."""

    start: int
    stop: int
    count: int


def checkpoints_full_batch(case: Case) -> Derived:
    """Derive full batches: the squared mu of all stretches add up."""
    require_batches(case.run, case.ledger, FullBatch)
    name = reading.word(case.witness, "bound")
    case.ledger.require("bound of a stretch", name in _FULL_BATCH, f"{name!r}")
    squares = []
    for one, alone in _stretch_cases(case):
        mu = _FULL_BATCH[name](alone).mu
        assert mu is not None
        squares.append(one.count * mu**2)
    return gaussian_derived(math.sqrt(math.fsum(squares)), case.delta)


def checkpoints_poisson(case: Case) -> Derived:
    """Derive Poisson batches: the blocks of all stretches in one product, for each split."""
    require_batches(case.run, case.ledger, Poisson)
    name = reading.word(case.witness, "bound")
    fits = name == _POISSON[case.run.neighbors]
    case.ledger.require("bound of a stretch", fits, f"{name!r} for {case.run.neighbors!r}")
    splits: list[blocks.Parts] = []
    failing = MP.zero
    for one, alone in _stretch_cases(case):
        blocks.require_poisson(alone, case.run.neighbors)
        found, extra = blocks.parts_of(alone)
        splits = splits or [[] for _ in found]
        for total, parts in zip(splits, found, strict=True):
            total += [(pair, count * one.count) for pair, count in parts]
        # All batches of the run are conditioned on at once: the chances of a bad one add up.
        failing += one.count * extra
    detail = f"broken with chance {float(failing):.3g}"
    case.ledger.require("batch limits", failing < case.delta, detail)
    return blocks.worst_split(case, splits, failing)


def checkpoints_ordered(case: Case) -> Derived:
    """Derive batches in order: the sum over the stretches of the record that is exposed most."""
    return gaussian_derived(math.sqrt(max(_costs(case))), case.delta)


def checkpoints_shuffled(case: Case) -> Derived:
    """Derive one secret order: the average over positions of what all stretches cost together.

    Of the witness only the shares of records that are averaged together are read: the most exposed
    ones first, each group charged as its worst, and whoever is in no group as the last one.
    """
    run, order = case.run, iteration.order_of(case.run)
    case.ledger.require("order", order == "shuffle_once", f"this is {run.described}")
    size, costs = int(run.batch_size), _costs(case)
    charged = reading.numbers(case.witness, "shares", most=500)
    # Shares are rounded up: a group ends with the record that nearly fills it.
    edges = [share * run.n * (1 - 1e-9) for share in accumulate(charged)]
    weights: list[Precise] = [MP.zero] * len(charged)
    levels = [0.0] * len(charged)
    group, seen = 0, 0
    for cost, place in sorted(((cost, -place) for place, cost in enumerate(costs)), reverse=True):
        records = min(size, run.n + place * size)
        while group + 1 < len(edges) and seen >= edges[group]:
            group += 1
        weights[group] += MP.mpf(records) / run.n
        levels[group] = max(levels[group], cost)
        seen += records
    return ordered.mixture_derived(case, weights, levels)


# --- the stretches -------------------------------------------------------------------------------


def release_steps(run: Run, ledger: Ledger) -> list[int]:
    """Return after how many steps something leaves, from the description alone."""
    release = run.release
    if isinstance(release, LastIterate) and run.average_last > 1:
        # An average of the last k iterates says no more than they do.
        release = Checkpoints(last=run.average_last)
    known = isinstance(release, Checkpoints)
    ledger.require("release", known, f"the run releases {run.release.name!r}")
    ledger.require("plain steps", run.momentum == 0, "momentum is not covered")
    assert isinstance(release, Checkpoints)
    if release.every is not None:
        count = run.steps // release.every
        ledger.require("releases", count <= _MOST_RELEASES, f"{count} of them")
        found = {release.every * (i + 1) for i in range(count)}
    elif release.last is not None:
        ledger.require("releases", release.last <= _MOST_RELEASES, f"{release.last} of them")
        found = {run.steps - i for i in range(release.last)}
    else:
        assert release.at is not None
        found = set(release.at)
    return sorted(found | {run.steps})


def _stretches(run: Run, ledger: Ledger, period: int) -> list[Stretch]:
    """Return the stretches, equal ones once, in the order in which they first come."""
    scheduled = any(isinstance(value, Schedule) for value in _schedules(run).values())
    found: dict[tuple[int, int], Stretch] = {}
    for start, stop in pairwise([0, *release_steps(run, ledger)]):
        key = (start if scheduled else start % period, stop - start)
        known = found.get(key, Stretch(start, stop, 0))
        found[key] = replace(known, count=known.count + 1)
    return list(found.values())


def _schedules(run: Run) -> dict[str, Any]:
    """Return whatever may change from step to step, by the name that states it."""
    found: dict[str, Any] = {"learning_rate": run.learning_rate}
    if run.inverse_temperature is None:
        found[run.noise.name] = run.noise.value
    if isinstance(run.batches, Poisson):
        found["sampling_rate"] = run.batches.rate
    return found


def _stretch_cases(case: Case) -> Iterator[tuple[Stretch, Case]]:
    """Yield every stretch as a run of its own, with what the witness says about it."""
    run, ledger = case.run, case.ledger
    stretches = _stretches(run, ledger, 1)
    rows = reading.rows(case.witness, "stretches")
    ledger.require("stretches", len(rows) == len(stretches), f"{len(rows)} of {len(stretches)}")
    for i, (one, row) in enumerate(zip(stretches, rows, strict=True)):
        witness = reading.record(reading.as_record(row, f"stretches[{i}]"), "witness")
        yield one, replace(case, run=_alone(run, one), witness=witness)


def _alone(run: Run, stretch: Stretch) -> Run:
    """Return the steps of a stretch as a run that releases its last iterate."""
    changes: dict[str, Any] = {"steps": stretch.stop - stretch.start, "release": "last"}
    if run.inverse_temperature is None:
        changes["average_last"] = 1
    for name, value in _schedules(run).items():
        if isinstance(value, Schedule):
            changes[name] = Schedule(tuple(_between(value, stretch.start, stretch.stop)))
    if "sampling_rate" in changes:
        changes["batch_size"] = run.batch_size
    return run.replace(**changes)


def _between(schedule: Schedule, start: int, stop: int) -> Iterator[tuple[float, int]]:
    """Yield the values of the steps ``start`` ... ``stop`` - 1 with their counts."""
    first = 0
    for value, count in blocks_of(schedule, stop):
        low, high = max(start, first), min(stop, first + count)
        if low < high:
            yield value, high - low
        first += count


# --- ordered batches -----------------------------------------------------------------------------


def _costs(case: Case) -> list[float]:
    """Return for every position the sum over the stretches of its sum of squares."""
    run, ledger = case.run, case.ledger
    require_batches(run, ledger, Cyclic, OnePass)
    require_plain(run, ledger, averaged=True)
    ledger.require("noise kind", run.noise_kind == "gaussian", f"the noise is {run.noise_kind}")
    losses = iteration.contractive_losses(case)
    length = batches_per_epoch(run)
    stretches = _stretches(run, ledger, length)
    starts = reading.rows(case.witness, "starts")
    ledger.require("starts", len(starts) == len(stretches), f"{len(starts)} of {len(stretches)}")
    positions = [min(length, one.stop - one.start) for one in stretches]
    work = sum((one.stop - one.start) * n for one, n in zip(stretches, positions, strict=True))
    iteration.require_short(case, -(-work // run.steps))
    shuffled = iteration.order_of(run) == "reshuffle"
    if shuffled:
        inside = any(one.start % length or one.stop % length for one in stretches)
        ledger.require("whole epochs", not inside, "reshuffled runs release between epochs")
    steps = ordered.steps_of(case, losses)
    total = np.zeros(min(length, run.steps))
    for one, stored in zip(stretches, starts, strict=True):
        found = ordered.costs_of(case, steps.between(one.start, one.stop), {"starts": stored})
        if shuffled:
            total += one.count * max(found)  # each stretch has its own worst record
        else:
            total[(one.start + np.arange(len(found))) % length] += one.count * np.array(found)
    return [cost * ROUNDED for cost in total.tolist()]
