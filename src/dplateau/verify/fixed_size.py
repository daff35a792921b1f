"""Batches of one size, contractive steps: swaps and shifts in one pair, from an averaged start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dplateau.algorithms import FixedSize
from dplateau.ground.types import FloatArray, IntArray
from dplateau.verify.cases import (
    ROUNDED,
    Case,
    Derived,
    least_share,
    moved_by_record,
    product_derived,
    smallest_batch,
    stages,
    theorem,
)
from dplateau.verify.composed import Rows
from dplateau.verify.pairs import LossPair, SwappedPair
from dplateau.verify.reading import Entry
from dplateau.verify.report import Malformed
from dplateau.verify.starts import StartLaw, start_law
from dplateau.verify.walks import CONTRACTION, Program, Stretch, forward_distance, step_losses

# Older uses than this many are charged as if all of them had happened.
_MOST_COINS = 1 << 20
# A start this rare, as a share of delta, is charged in full instead of being composed.
_RARE = 1e-5
# Starts much rarer than this share of delta need not be told from one another.
_RAREST = 1e-3
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


@theorem(FixedSize, neighbors="replace")
def fixed_size_averaged(case: Case) -> Derived:
    """Compose the pairs of the last steps for every start, and average over the starts' law."""
    run, last_steps = case.run, case.witness["last_steps"].whole(1)
    before = run.steps - last_steps
    case.require("last steps", before >= 0, f"{last_steps} of {run.steps} steps")
    edges = case.witness["edges"].rising(most=_MOST_STARTS)
    work = last_steps * len(edges)
    case.require("length", work <= _MOST_WORK, f"{len(edges)} starts, {last_steps} steps")
    stretches = _stretches(case)
    weights = np.array(_weights(case, stretches, edges, before))
    pairs, counts = _plans(case, _last(stretches, last_steps), edges)
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
    maps = step_losses(case, least_share(run, smallest_batch(run), used=True))
    return [
        Stretch(
            stage.count,
            maps.modulus(CONTRACTION, stage.eta),
            moved_by_record(run, stage.eta),
            stage.nu,
        )
        for stage in stages(run)
    ]


def _last(stretches: list[Stretch], count: int, skipped: int = 0) -> _Steps:
    """Return ``count`` steps, the last first, after leaving out the very last ``skipped``."""
    columns: list[tuple[int, float, float, float]] = []
    left = count
    for stretch in reversed(stretches):
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


def _weights(case: Case, stretches: list[Stretch], edges: list[float], before: int) -> list[float]:
    """Return upper bounds on the chances of the starts, the last one being beyond all edges."""
    run = case.run
    drift = Program(tuple(stretches), 1, run.diameter)
    largest = forward_distance(drift, before)
    asked = [edge for edge in edges if edge < largest]
    upper = _start_tails(case, stretches, asked, before) if asked else []
    tails = [1.0]
    for edge in edges:
        tails.append(min(tails[-1], upper.pop(0)) if edge < largest else 0.0)
    case.require("starts", tails[-1] < case.delta, f"{tails[-1]:.3g} lies beyond them")
    return [a - b for a, b in pairwise(tails)] + [tails[-1]]


def _start_tails(
    case: Case, stretches: list[Stretch], edges: list[float], before: int
) -> list[float]:
    """Return upper bounds on the chances of starts beyond rising edges, each on a fitting grid."""
    coins = min(before, _MOST_COINS)
    steps = _last(stretches, coins, skipped=case.run.steps - before)
    carried = np.cumprod(np.r_[1.0, steps.keep]) * (1 + _ROUNDING * np.arange(1, coins + 2))
    drift = Program(tuple(stretches), 1, case.run.diameter)
    older = float(carried[-1]) * forward_distance(drift, before - coins)
    weights = carried[:-1] * steps.move
    tails: list[float] = []
    top, law = math.inf, StartLaw(np.zeros(1), np.ones(1))
    for edge in reversed(edges):
        if edge < top / 4:
            rarest = max(_RAREST * float(case.delta), 1e-300)
            top, law = edge, start_law(weights, case.run.sampling_rate, older, edge, rarest)
        tails.append(law.tail(edge))
    return tails[::-1]


def _plans(case: Case, steps: _Steps, edges: list[float]) -> tuple[list[LossPair], FloatArray]:
    """Check that every plan absorbs its start; return pairs, and how often each plan has them."""
    witness = case.witness
    sizes = np.array(witness["sizes"].rising(most=1000))
    swaps = steps.move / steps.nu
    largest = float(swaps.max())
    fits = float(sizes[-1]) >= largest * (1 - 1e-12)
    case.require("swaps", fits, f"up to {largest:.6g}, planned for {sizes[-1]:.6g}")
    size_of = np.minimum(np.searchsorted(sizes, swaps * (1 - 1e-12)), sizes.size - 1)
    listed = witness["levels"]
    levels = np.r_[0.0, listed.rising(most=1000) if listed.value else []]
    plans = witness["plans"].rows()
    case.require("plans", len(plans) == len(edges), f"{len(plans)} for {len(edges)} starts")
    # One unit of shift in a step is worth its noise times all later contractions at the end.
    kept = np.cumprod(np.r_[1.0, steps.keep])
    worth = steps.nu * kept[:-1]
    room = 1 + 4 * _ROUNDING * (swaps.size + 4)
    keys, before = [], np.zeros(swaps.size)
    for k, (edge, plan) in enumerate(zip(edges, plans, strict=True)):
        places = _places(plan, swaps.size, levels.size)
        shifts = levels[places]
        absorbed, needed = float(worth @ shifts), float(kept[-1]) * edge * room
        detail = f"absorbs {absorbed:.9g} of {needed:.9g}"
        case.require(f"plan absorbs its start[{k}]", absorbed >= needed, detail)
        # The chances are upper bounds on tails: a later start must not cost less.
        rises = bool(np.all(shifts >= before))
        case.require(f"plan rises[{k}]", rises, "no shift is below the plan's before")
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


def _places(plan: Entry, steps: int, levels: int) -> IntArray:
    """Read blocks of [count, level], first step first; return the levels, last step first."""
    stored = plan.tuples("count", "level")
    counts, places = [item[0].whole(1) for item in stored], [item[1].whole() for item in stored]
    if sum(counts) != steps or max(places) >= levels:
        raise Malformed(f"{plan.name} must give each of {steps} steps one of {levels} levels")
    return np.repeat(np.array(places, dtype=np.int64), counts)[::-1]
