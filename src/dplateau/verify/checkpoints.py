"""Runs that release iterates on the way: every stretch between two releases, derived anew.

After a release both neighbors stand at one public point. A stretch is then a run of its own from a
common start, of which the last iterate leaves, and whatever dominates the stretches composes
(docs/theory/checkpoints.md). Here the releases are counted one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

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
from dplateau.verify import blocks, iteration, reading
from dplateau.verify.claims import CLOSED, Case, Derived, Theorem, gaussian_derived
from dplateau.verify.facts import batches_per_epoch, blocks_of, require_contraction
from dplateau.verify.precise import epsilon_at, mixture
from dplateau.verify.report import Ledger

_MOST_RELEASES = 10**6
# A walk that is longer than this in (steps) x (positions) is not attempted.
_MOST_WORK = 2 * 10**9
_ROUNDING = 1e-11
_FULL_BATCH: dict[str, Theorem] = {
    "gd_contraction": iteration.gd_contraction,
    "gd_bounded": iteration.gd_bounded,
    "modulus": iteration.modulus,
}
_POISSON = {"add_remove": "poisson_blocks", "replace": "poisson_blocks_replace"}


@dataclass(frozen=True)
class Stretch:
    """Steps ``start`` ... ``stop`` - 1, and how many stretches of the run are equal to it."""

    start: int
    stop: int
    count: int


def checkpoints_full_batch(case: Case) -> Derived:
    """Derive full batches: the squared mu of all stretches add up."""
    about = f"the theorem is about full batches; this is {case.run.kind}"
    case.ledger.require("algorithm", isinstance(case.run.batches, FullBatch), about)
    name = reading.word(case.witness, "bound")
    case.ledger.require("bound of a stretch", name in _FULL_BATCH, f"{name!r}")
    squares = []
    for one, alone in _stretch_cases(case):
        mu = _FULL_BATCH[name](alone).mu
        assert mu is not None
        squares.append(one.count * mu**2)
    return gaussian_derived(math.sqrt(math.fsum(squares)) * (1 + _ROUNDING), case.delta)


def checkpoints_poisson(case: Case) -> Derived:
    """Derive Poisson batches: the blocks of all stretches in one product, for each split."""
    about = f"the theorem is about Poisson batches; this is {case.run.described}"
    case.ledger.require("algorithm", isinstance(case.run.batches, Poisson), about)
    name = reading.word(case.witness, "bound")
    fits = name == _POISSON[case.run.neighbors]
    case.ledger.require("bound of a stretch", fits, f"{name!r} for {case.run.neighbors!r}")
    splits: list[blocks.Parts] = []
    failing = 0.0
    for one, alone in _stretch_cases(case):
        blocks.require_poisson(alone, case.run.neighbors)
        found, extra = blocks.parts_of(alone)
        splits = splits or [[] for _ in found]
        for total, parts in zip(splits, found, strict=True):
            total += [(pair, count * one.count) for pair, count in parts]
        # All batches of the run are conditioned on at once: the chances of a bad one add up.
        failing += one.count * extra
    return blocks.worst_split(case, splits, failing * (1 + 1e-12))


def checkpoints_ordered(case: Case) -> Derived:
    """Derive batches in order: the sum over the stretches of the record that is exposed most."""
    worst = max(_costs(case))
    stored = reading.number(case.witness, "sum_of_squares")
    case.ledger.agree("sum of squares", stored, worst)
    return gaussian_derived(math.sqrt(worst) * (1 + _ROUNDING), case.delta)


def checkpoints_shuffled(case: Case) -> Derived:
    """Derive one secret order: the average over positions of what all stretches cost together."""
    run, ledger = case.run, case.ledger
    kept = isinstance(run.batches, Cyclic) and run.batches.order == "shuffle_once"
    ledger.require("order", kept, f"one random order that is kept; this is {run.described}")
    costs = _costs(case)
    levels, shares = (reading.numbers(case.witness, name) for name in ("levels", "shares"))
    sensible = len(levels) == len(shares) and min(shares) >= 0 and min(levels) >= 0
    ledger.require("levels", sensible, f"{len(levels)} levels, {len(shares)} shares")
    _require_domination(case, costs, list(zip(levels, shares, strict=True)))
    mus = [math.sqrt(level) * (1 + _ROUNDING) for level in levels]
    curve = mixture(shares, mus)
    epsilon = epsilon_at(curve, case.delta, case.epsilon)
    how = f"average of {len(mus)} Gaussian curves, fifty digits"
    return Derived(float(epsilon), CLOSED, how, near=lambda *_: lambda eps: float(curve(eps)))


def _require_domination(case: Case, costs: list[float], levels: list[tuple[float, float]]) -> None:
    """Require that for every cost no more records have it than are charged as much."""
    run, size = case.run, int(case.run.batch_size)
    records = [min(size, run.n - place * size) for place in range(len(costs))]
    count = 0
    rows = sorted(zip(costs, records, strict=True), reverse=True)
    charged = sorted(levels, reverse=True)
    covered, k = 0.0, 0
    for i, (cost, number) in enumerate(rows):
        count += number
        if i + 1 < len(rows) and rows[i + 1][0] == cost:
            continue
        while k < len(charged) and charged[k][0] >= cost:
            covered += charged[k][1]
            k += 1
        detail = f"{count} of {run.n} records cost {cost:.9g} or more; charged is {covered:.9g}"
        case.ledger.require("levels cover the positions", covered * run.n >= count, detail)


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
        if not isinstance(row, dict):
            raise reading.Malformed(f"stretches[{i}] must be an object")
        derived = {"start": one.start, "length": one.stop - one.start, "count": one.count}
        for name, value in derived.items():
            stored = reading.whole(row, name)
            ledger.require(f"{name}[{i}]", stored == value, f"stored {stored}, derived {value}")
        witness = reading.record(row, "witness")
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
    ordered = isinstance(run.batches, Cyclic | OnePass)
    ledger.require("algorithm", ordered, f"the records are taken in order; this is {run.kind}")
    length = batches_per_epoch(run)
    stretches = _stretches(run, ledger, length)
    _require_contractive(case)
    losses = reading.word(case.witness, "losses")
    fits = losses == iteration.contractive_class(run) and case.witness.get("bounded") is True
    ledger.require("class of losses", fits, f"{losses!r}")
    starts = reading.rows(case.witness, "starts")
    ledger.require("starts", len(starts) == len(stretches), f"{len(starts)} of {len(stretches)}")
    work = sum((one.stop - one.start) * min(length, one.stop - one.start) for one in stretches)
    work = 0 if isinstance(run.batches, OnePass) and math.isinf(run.diameter) else work
    ledger.require("length", work <= _MOST_WORK, f"{run.steps} steps, {length} positions")
    steps = iteration.steps_of(case, losses)
    shuffled = isinstance(run.batches, Cyclic) and run.batches.order == "reshuffle"
    walk: Callable[[iteration.Steps, list[int], float], list[float]] = iteration.kept_costs
    if shuffled:
        inside = any(one.start % length or one.stop % length for one in stretches)
        ledger.require("whole epochs", not inside, "reshuffled runs release between epochs")
        walk = iteration.reshuffled_costs
    total = [0.0] * min(length, run.steps)
    for one, stored in zip(stretches, starts, strict=True):
        part = _part(steps, one)
        count = min(length, one.stop - one.start)
        begin = iteration.read_starts(replace(case, witness={"starts": stored}), count)
        found = walk(part, begin, run.diameter)
        ledger.require("starts", len(found) == count, "every program begins inside its stretch")
        for place, cost in enumerate(found):
            # Each stretch of a reshuffled run has its own worst record.
            here = place if shuffled else (one.start + place) % length
            total[here] += one.count * (max(found) if shuffled else cost)
    return total


def _require_contractive(case: Case) -> None:
    run, ledger = case.run, case.ledger
    ledger.require("noise kind", run.noise_kind == "gaussian", f"the noise is {run.noise_kind}")
    ledger.require("learning rate", run.learning_rate is not None, "the theorem needs it")
    known = run.loss is not None and math.isfinite(run.loss.lipschitz)
    ledger.require("geometry", known, "the loss's Lipschitz constant must be known")
    require_contraction(run, 1.0, ledger)


def _part(steps: iteration.Steps, stretch: Stretch) -> iteration.Steps:
    inside = slice(stretch.start, stretch.stop)
    rows = (steps.others, steps.own, steps.reach, steps.nu)
    return iteration.Steps(steps.length, *(row[inside] for row in rows))
