"""Batches of one size, contractive steps: swaps and shifts in one pair, from an averaged start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dplateau.algorithms import FixedSize
from dplateau.ground.types import FloatArray, IntArray
from dplateau.verify import reading
from dplateau.verify.claims import ROUNDED, Case, Derived, product_derived
from dplateau.verify.coins import StartLaw, start_law
from dplateau.verify.composed import Rows
from dplateau.verify.facts import (
    least_share,
    moved_by_record,
    require_batches,
    require_hidden,
    require_neighbors,
    smallest_batch,
    stages,
)
from dplateau.verify.pairs import LossPair, SwappedPair
from dplateau.verify.report import Malformed
from dplateau.verify.walks import CONTRACTION, Program, StepLosses, Stretch, forward_distance

# Older uses than this many are charged as if all of them had happened.
_MOST_COINS = 1 << 20
# A start this rare, as a share of delta, is charged in full instead of being composed.
_RARE = 1e-5
# More than a product of contractions can be wrong by, for each of them.
_ROUNDING = 3e-16
# Room for swaps that lie on the border of a size.
_UP = 1 + 1e-11
# Starts, and (starts) x (steps), that are looked at.
_MOST_STARTS, _MOST_WORK = 200, 10**7


@dataclass(frozen=True)
class _Steps:
    """One entry a step, the last step first: contraction, noise, and what a swap moves."""

    keep: FloatArray
    nu: FloatArray
    move: FloatArray


def fixed_size_averaged(case: Case) -> Derived:
    """Compose the pairs of the last steps for every start, and average over the starts' law."""
    run = case.run
    require_hidden(run, case.ledger)
    require_batches(run, case.ledger, FixedSize)
    require_neighbors(run, case.ledger, "replace")
    last_steps = reading.whole(case.witness, "last_steps", 1)
    before = run.steps - last_steps
    case.ledger.require("last steps", before >= 0, f"{last_steps} of {run.steps} steps")
    edges = reading.rising(case.witness, "edges", most=_MOST_STARTS)
    work = last_steps * len(edges)
    case.ledger.require("length", work <= _MOST_WORK, f"{len(edges)} starts, {last_steps} steps")
    found = _stretches(case)
    weights = np.array(_weights(case, found, edges, before))
    pairs, counts = _plans(case, _last(found, last_steps), edges)
    kept = weights[:-1] > _RARE * case.delta
    kept[0] |= not kept.any()
    live = counts[kept].sum(axis=0) > 0
    rows = Rows(
        pairs=tuple(pair for pair, needed in zip(pairs, live, strict=True) if needed),
        counts=counts[kept][:, live],
        weights=tuple((weights[:-1][kept] * ROUNDED).tolist()),
        extra=float(weights[-1] + weights[:-1][~kept].sum()) * ROUNDED,
    )
    return product_derived(case, rows)


def _stretches(case: Case) -> list[Stretch]:
    """Return the run's steps: the maps of b - 1 or b common records, and what a swap moves."""
    run = case.run
    assert run.loss is not None
    least = least_share(run, smallest_batch(run), used=True)
    maps = StepLosses(run.loss, run.l2, least, 1.0)
    return [
        Stretch(
            stage.count,
            maps.modulus(CONTRACTION, stage.eta, case.ledger),
            moved_by_record(run, stage.eta),
            stage.nu,
        )
        for stage in stages(run)
    ]


def _last(found: list[Stretch], count: int, skipped: int = 0) -> _Steps:
    """Return ``count`` steps, the last first, after leaving out the very last ``skipped``."""
    columns: list[tuple[int, float, float, float]] = []
    left = count
    for stretch in reversed(found):
        dropped = min(skipped, stretch.count)
        skipped -= dropped
        taken = min(stretch.count - dropped, left)
        columns.append((taken, stretch.modulus.slope, stretch.nu, stretch.reach))
        left -= taken
        if left == 0:
            break
    counts = [column[0] for column in columns]
    keep, nu, move = (
        np.repeat(np.array([column[i] for column in columns]), counts) for i in (1, 2, 3)
    )
    return _Steps(keep, nu, move)


def _weights(case: Case, found: list[Stretch], edges: list[float], before: int) -> list[float]:
    """Return upper bounds on the chances of the starts, the last one being beyond all edges."""
    run = case.run
    drift = Program(tuple(found), 1, run.diameter)
    largest = forward_distance(drift, before)
    asked = [edge for edge in edges if edge < largest]
    found_tails = _start_tails(case, found, asked, before) if asked else []
    tails = [1.0]
    for edge in edges:
        tails.append(min(tails[-1], found_tails.pop(0)) if edge < largest else 0.0)
    case.ledger.require("starts", tails[-1] < case.delta, f"{tails[-1]:.3g} lies beyond them")
    return [a - b for a, b in pairwise(tails)] + [tails[-1]]


def _start_tails(case: Case, found: list[Stretch], edges: list[float], before: int) -> list[float]:
    """Return upper bounds on the chances of starts beyond rising edges, each on a fitting grid."""
    coins = min(before, _MOST_COINS)
    steps = _last(found, coins, skipped=case.run.steps - before)
    carried = np.cumprod(np.r_[1.0, steps.keep]) * (1 + _ROUNDING * np.arange(1, coins + 2))
    drift = Program(tuple(found), 1, case.run.diameter)
    older = float(carried[-1]) * forward_distance(drift, before - coins)
    weights = carried[:-1] * steps.move
    tails: list[float] = []
    top, law = math.inf, StartLaw(np.zeros(1), np.ones(1))
    for edge in reversed(edges):
        if edge < top / 4:
            top, law = edge, start_law(weights, case.run.sampling_rate, older, edge)
        tails.append(law.tail(edge))
    return tails[::-1]


def _plans(case: Case, steps: _Steps, edges: list[float]) -> tuple[list[LossPair], FloatArray]:
    """Check that every plan absorbs its start; return pairs, and how often each plan has them."""
    witness, ledger = case.witness, case.ledger
    sizes = np.array(reading.rising(witness, "sizes", most=1000))
    swaps = steps.move / steps.nu
    largest = float(swaps.max())
    fits = float(sizes[-1]) >= largest * (1 - 1e-12)
    ledger.require("swaps", fits, f"up to {largest:.6g}, planned for {sizes[-1]:.6g}")
    size_of = np.minimum(np.searchsorted(sizes, swaps * (1 - 1e-12)), sizes.size - 1)
    listed = reading.entry(witness, "levels")
    levels = np.r_[0.0, reading.rising(witness, "levels", most=1000) if listed else []]
    plans = reading.rows(witness, "plans")
    ledger.require("plans", len(plans) == len(edges), f"{len(plans)} for {len(edges)} starts")
    # One unit of shift in a step is worth its noise times all later contractions at the end.
    kept = np.cumprod(np.r_[1.0, steps.keep])
    worth = steps.nu * kept[:-1]
    room = 1 + 4 * _ROUNDING * (swaps.size + 4)
    keys, before = [], np.zeros(swaps.size)
    for k, (edge, plan) in enumerate(zip(edges, plans, strict=True)):
        places = _places(plan, swaps.size, levels.size, f"plans[{k}]")
        shifts = levels[places]
        absorbed, needed = float(worth @ shifts), float(kept[-1]) * edge * room
        detail = f"absorbs {absorbed:.9g} of {needed:.9g}"
        ledger.require(f"plan absorbs its start[{k}]", absorbed >= needed, detail)
        # The chances are upper bounds on tails: a later start must not cost less.
        rises = bool(np.all(shifts >= before))
        ledger.require(f"plan rises[{k}]", rises, "no shift is below the plan's before")
        keys.append(np.unique(size_of * levels.size + places, return_counts=True))
        before = shifts
    used = np.unique(np.concatenate([key for key, _ in keys]))
    counts = np.zeros((len(keys), used.size))
    for row, (key, count) in zip(counts, keys, strict=True):
        row[np.searchsorted(used, key)] = count
    rate = case.run.sampling_rate
    pairs: list[LossPair] = [
        SwappedPair(rate, float(sizes[key // levels.size]) * _UP, float(levels[key % levels.size]))
        for key in used.tolist()
    ]
    return pairs, counts


def _places(plan: object, steps: int, levels: int, name: str) -> IntArray:
    """Read blocks of [count, level], first step first; return the levels, last step first."""
    stored = reading.tuples(plan, name, ("count", "level"))
    counts = [reading.as_whole(item[0], f"{name}[{i}][0]", 1) for i, item in enumerate(stored)]
    places = [reading.as_whole(item[1], f"{name}[{i}][1]") for i, item in enumerate(stored)]
    if sum(counts) != steps or max(places) >= levels:
        raise Malformed(f"{name} must give each of {steps} steps one of {levels} levels")
    return np.repeat(np.array(places, dtype=np.int64), counts)[::-1]
