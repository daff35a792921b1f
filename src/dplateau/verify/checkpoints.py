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
from dplateau.errors import NotApplicable
from dplateau.verify import blocks, iteration, ordered
from dplateau.verify.cases import (
    ROUNDED,
    THEOREMS,
    Case,
    Derived,
    batches_per_epoch,
    blocks_of,
    gaussian_derived,
    order_of,
    require_plain,
    theorem,
)
from dplateau.verify.precise import MP, Precise

_MOST_RELEASES = 10**6
# Blocks of all different stretches, times the splits of a group.
_MOST_LAWS = 400
_FULL_BATCH = ("gd_contraction", "gd_bounded", "modulus")


@dataclass(frozen=True)
class Stretch:
    """Steps ``start`` ... ``stop`` - 1, and how many stretches of the run are equal to it."""

    start: int
    stop: int
    count: int


@theorem(FullBatch, release=None, noise=None)
def checkpoints_full_batch(case: Case) -> Derived:
    """Derive full batches: the squared mu of all stretches add up."""
    name = case.witness["bound"].word()
    case.require("bound of a stretch", name in _FULL_BATCH, f"{name!r}")
    squares = [
        one.count * THEOREMS[name](alone).proved_mu ** 2 for one, alone in _stretch_cases(case)
    ]
    return gaussian_derived(math.sqrt(math.fsum(squares)), case.delta)


@theorem(Poisson, release=None, knows_groups=True)
def checkpoints_poisson(case: Case) -> Derived:
    """Derive Poisson batches: the blocks of all stretches in one product, for each split."""
    name, swapped = case.witness["bound"].word(), case.run.neighbors == "replace"
    fits = name == ("poisson_blocks_replace" if swapped else "poisson_blocks")
    case.require("bound of a stretch", fits, f"{name!r} for {case.run.neighbors!r}")
    splits: list[blocks.Parts] = []
    plans = [row["witness"]["edges"] for row in case.witness["stretches"].rows()]
    each = sum(len(edges.tuples("noise lag", "use lag")) - 1 for edges in plans)
    laws = len(blocks.require_splits(case)) * each
    case.require("laws", laws <= _MOST_LAWS, f"{laws} in all stretches, at most {_MOST_LAWS}")
    failing = MP.zero
    for one, alone in _stretch_cases(case):
        require_plain(alone, own_rates=True)
        of_stretch, extra = blocks.parts_of(alone)
        splits = splits or [[] for _ in of_stretch]
        for total, parts in zip(splits, of_stretch, strict=True):
            total += [(pair, count * one.count) for pair, count in parts]
        # All batches of the run are conditioned on at once: the chances of a bad one add up.
        failing += one.count * extra
    detail = f"broken with chance {float(failing):.3g}"
    case.require("batch limits", failing < case.delta, detail)
    return blocks.worst_split(case, splits, failing)


@theorem(Cyclic, OnePass, release=None)
def checkpoints_ordered(case: Case) -> Derived:
    """Derive batches in order: the sum over the stretches of the record that is exposed most."""
    return iteration.squares_derived(case, max(_costs(case)))


@theorem(Cyclic, release=None)
def checkpoints_shuffled(case: Case) -> Derived:
    """Derive one secret order: the average over positions of what all stretches cost together.

    Of the witness only the shares of records that are averaged together are read: the most exposed
    ones first, each group charged as its worst, and whoever is in no group as the last one.
    """
    run = case.run
    case.require("order", order_of(run) == "shuffle_once", f"this is {run.described}")
    size, costs = int(run.batch_size), _costs(case)
    charged = case.witness["shares"].numbers(most=500)
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


def _release_steps(case: Case) -> list[int]:
    """Return after how many steps something leaves, from the description alone."""
    run, release = case.run, case.run.release
    if isinstance(release, LastIterate) and run.average_last > 1:
        # An average of the last k iterates says no more than they do.
        release = Checkpoints(last=run.average_last)
    known = isinstance(release, Checkpoints)
    case.require("release", known, f"the run releases {run.release.name!r}")
    case.require("plain steps", run.momentum == 0, "momentum is not covered")
    match release:
        case Checkpoints(every=int(every)):
            count = run.steps // every
            case.require("releases", count <= _MOST_RELEASES, f"{count} of them")
            steps = {every * (i + 1) for i in range(count)}
        case Checkpoints(last=int(last)):
            case.require("releases", last <= _MOST_RELEASES, f"{last} of them")
            steps = {run.steps - i for i in range(last)}
        case Checkpoints(at=tuple(at)):
            steps = set(at)
        case _:
            raise NotApplicable(f"the run releases {run.release.name!r}")
    return sorted(steps | {run.steps})


def _stretches(case: Case, period: int) -> list[Stretch]:
    """Return the stretches, equal ones once, in the order in which they first come."""
    scheduled = any(isinstance(value, Schedule) for value in _schedules(case.run).values())
    counted: dict[tuple[int, int], Stretch] = {}
    for start, stop in pairwise([0, *_release_steps(case)]):
        key = (start if scheduled else start % period, stop - start)
        known = counted.get(key, Stretch(start, stop, 0))
        counted[key] = replace(known, count=known.count + 1)
    return list(counted.values())


def _schedules(run: Run) -> dict[str, Any]:
    """Return whatever may change from step to step, by the name that states it."""
    values = run.stated_per_step
    if run.inverse_temperature is not None:
        del values[run.noise.name]
    return values


def _stretch_cases(case: Case) -> Iterator[tuple[Stretch, Case]]:
    """Yield every stretch as a run of its own, with what the witness says about it."""
    stretches, rows = _stretches(case, 1), case.witness["stretches"].rows()
    case.require("stretches", len(rows) == len(stretches), f"{len(rows)} of {len(stretches)}")
    for one, row in zip(stretches, rows, strict=True):
        yield one, replace(case, run=_alone(case.run, one), witness=row["witness"])


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
    run = case.run
    require_plain(case, averaged=True)
    losses, length = iteration.contractive_losses(case), batches_per_epoch(run)
    stretches, starts = _stretches(case, length), case.witness["starts"].rows()
    case.require("starts", len(starts) == len(stretches), f"{len(starts)} of {len(stretches)}")
    positions = [min(length, one.stop - one.start) for one in stretches]
    work = sum((one.stop - one.start) * n for one, n in zip(stretches, positions, strict=True))
    iteration.require_short(case, -(-work // run.steps))
    shuffled = order_of(run) == "reshuffle"
    if shuffled:
        inside = any(one.start % length or one.stop % length for one in stretches)
        case.require("whole epochs", not inside, "reshuffled runs release between epochs")
    steps = ordered.steps_of(case, losses)
    total = np.zeros(min(length, run.steps))
    for one, stored in zip(stretches, starts, strict=True):
        costs = ordered.costs_of(case, steps.between(one.start, one.stop), stored)
        if shuffled:
            total += one.count * max(costs)  # each stretch has its own worst record
        else:
            total[(one.start + np.arange(len(costs))) % length] += one.count * np.array(costs)
    return [cost * ROUNDED for cost in total.tolist()]
