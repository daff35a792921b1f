"""Batches of one size with a hidden state: swaps and shifts in one pair, from an averaged start.

Replaced records in random batches, any declared losses: shifts and swaps share the noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import Run
from dplateau.ground.types import FloatArray
from dplateau.verify import reading
from dplateau.verify.claims import Case, Derived, rows_epsilon
from dplateau.verify.coins import StartLaw, start_law
from dplateau.verify.composed import Rows
from dplateau.verify.facts import Stage, require_cap, require_constant, require_sampled, stages
from dplateau.verify.pairs import GaussianPair, LossPair, SwappedPair
from dplateau.verify.square_root_moduli import constant_blocks
from dplateau.verify.walks import (
    CONTRACTION,
    Modulus,
    Program,
    ShiftBlocks,
    StepLosses,
    Stretch,
    forward_distance,
)

# Older uses than this many are charged as if all of them had happened.
_MOST_COINS = 1 << 20
# A start this rare, as a share of delta, is charged in full instead of being composed.
_RARE = 1e-5
# More than products of that many contractions can be wrong by.
_ROUNDING = 3e-10
# Room for swaps that lie on the border of a size.
_UP = 1 + 1e-11


@dataclass(frozen=True)
class _Steps:
    """One entry a step, the last step first: contraction, noise, and what a swap moves."""

    keep: FloatArray
    nu: FloatArray
    move: FloatArray


def fixed_size_averaged(case: Case) -> Derived:
    """Compose the pairs of the last steps for every start, and average over the starts' law."""
    run = require_sampled(case, "fixed", "replace")
    losses = reading.word(case.witness, "losses")
    case.ledger.require("class of losses", losses == CONTRACTION, f"{losses!r}")
    last_steps = reading.whole(case.witness, "last_steps", 1)
    before = run.steps - last_steps
    case.ledger.require("last steps", before >= 0, f"{last_steps} of {run.steps} steps")
    found = _stretches(case, run)
    steps = _last(found, last_steps)
    edges = reading.rising(case.witness, "edges")
    weights = _weights(case, run, found, edges, before)
    rows = _rows(case, run, steps, edges)
    used = sorted(set().union(*rows))
    counts = np.array([[float(row[pair]) for pair in used] for row in rows])
    pairs: tuple[LossPair, ...] = tuple(SwappedPair(run.sampling_rate, m * _UP, a) for m, a in used)
    kept = np.array(weights[:-1]) > _RARE * case.delta
    kept[0] |= not kept.any()
    rare = float(np.array(weights[:-1])[~kept].sum())
    live = counts[kept].sum(axis=0) > 0
    table = Rows(
        pairs=tuple(pair for pair, needed in zip(pairs, live, strict=True) if needed),
        counts=counts[kept][:, live],
        weights=tuple(np.array(weights[:-1])[kept].tolist()),
        extra=weights[-1] + rare,
    )
    return rows_epsilon(table, case.epsilon, case.delta)


def _stretches(case: Case, run: Run) -> list[Stretch]:
    """Return the run's steps: the maps of b - 1 or b common records, a swap of 2 eta L / b."""
    assert run.loss is not None
    maps = StepLosses(run.loss, run.l2, (run.batch_size - 1) / run.batch_size, 1.0)
    reach = 2 * run.loss.lipschitz / run.batch_size

    def stretch(stage: Stage) -> Stretch:
        modulus = maps.modulus(CONTRACTION, stage.eta, case.ledger)
        return Stretch(stage.count, modulus, reach * stage.eta, stage.nu)

    return [stretch(stage) for stage in stages(run)]


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


def _weights(
    case: Case, run: Run, found: list[Stretch], edges: list[float], before: int
) -> list[float]:
    """Return upper bounds on the chances of the starts, the last one being beyond all edges."""
    drift = Program(tuple(found), 1, run.diameter)
    largest = forward_distance(drift, before) * (1 + _ROUNDING)
    law: StartLaw | None = None
    tails = [1.0]
    for edge in edges:
        if edge >= largest:
            tails.append(0.0)
            continue
        if law is None:
            coins = min(before, _MOST_COINS)
            steps = _last(found, coins, skipped=run.steps - before)
            carried = np.exp(np.cumsum(np.log(np.maximum(np.r_[1.0, steps.keep], 1e-300))))
            carried *= 1 + _ROUNDING
            older = float(carried[-1]) * forward_distance(drift, before - coins)
            law = start_law(carried[:-1] * steps.move, run.sampling_rate, older)
        tails.append(min(tails[-1], law.tail(edge)))
    case.ledger.require("starts", tails[-1] < case.delta, f"{tails[-1]:.3g} lies beyond them")
    return [a - b for a, b in pairwise(tails)] + [tails[-1]]


def _rows(
    case: Case, run: Run, steps: _Steps, edges: list[float]
) -> list[Counter[tuple[float, float]]]:
    """Check that every plan absorbs its start; count its steps by (swap, shift)."""
    sizes = np.array(reading.rising(case.witness, "sizes"))
    swaps = steps.move / steps.nu
    largest = float(swaps.max())
    fits = float(sizes[-1]) >= largest * (1 - 1e-12)
    case.ledger.require("swaps", fits, f"up to {largest:.6g}, planned for {sizes[-1]:.6g}")
    of_step = sizes[np.minimum(np.searchsorted(sizes, swaps * (1 - 1e-12)), sizes.size - 1)]
    listed = reading.entry(case.witness, "levels")
    levels = np.r_[0.0, reading.rising(case.witness, "levels") if listed else []]
    plans = reading.rows(case.witness, "plans")
    case.ledger.require("plans", len(plans) == len(edges), f"{len(plans)} for {len(edges)} starts")
    # One unit of shift in a step is worth its noise times all later contractions at the end.
    worth = steps.nu * np.exp(np.cumsum(np.log(np.maximum(np.r_[1.0, steps.keep[:-1]], 1e-300))))
    left_over = float(np.exp(np.log(np.maximum(steps.keep, 1e-300)).sum()))
    rows, before = [], np.zeros(swaps.size)
    for k, (edge, plan) in enumerate(zip(edges, plans, strict=True)):
        shifts = levels[_places(plan, swaps.size, levels.size, f"plans[{k}]")]
        absorbed, needed = float(worth @ shifts), left_over * edge * (1 + 2 * _ROUNDING)
        detail = f"absorbs {absorbed:.9g} of {needed:.9g}"
        case.ledger.require(f"plan absorbs its start[{k}]", absorbed >= needed, detail)
        # The chances are upper bounds on tails: a later start must not cost less.
        rises = bool(np.all(shifts >= before))
        case.ledger.require(f"plan rises[{k}]", rises, "no shift is below the plan's before")
        rows.append(Counter(zip(of_step.tolist(), shifts.tolist(), strict=True)))
        before = shifts
    return rows


def _places(plan: object, steps: int, levels: int, name: str) -> npt.NDArray[np.int64]:
    """Read blocks of [count, level], first step first; return the levels, last step first."""
    if not isinstance(plan, list) or not plan:
        raise reading.Malformed(f"{name} must be a list of [count, level]")
    counts, places = [], []
    for i, item in enumerate(plan):
        if not isinstance(item, list) or len(item) != 2:
            raise reading.Malformed(f"{name}[{i}] must be [count, level]; it is {item!r}")
        counts.append(reading.as_whole(item[0], f"{name}[{i}][0]", 1))
        places.append(reading.as_whole(item[1], f"{name}[{i}][1]"))
    if sum(counts) != steps or max(places) >= levels:
        raise reading.Malformed(f"{name} must give each of {steps} steps one of {levels} levels")
    return np.repeat(np.array(places, dtype=np.int64), counts)[::-1]


_LEFTOVER = 1e-12
# Swaps that differ by less than this are replaced by the largest of them.
_ALIKE = math.log(1.001)


def fixed_size_modulus(case: Case) -> Derived:
    """Derive batches of exactly b records; two swaps differ by what one more gradient does."""
    run = require_sampled(case, "fixed", "replace")
    return _derived(case, run, 1.0, lambda u: _gradient_gap(run, u))


def poisson_replace_modulus(case: Case) -> Derived:
    """Derive Poisson batches: a swap is the record's step against its replacement's."""
    run = require_sampled(case, "poisson", "replace")
    return _derived(case, run, 0.0, lambda u: 0.0)


def _gradient_gap(run: Run, u: float) -> float:
    """Return min(2 L, M u, H u^p): how far a record's gradients at distance u lie apart."""
    assert run.loss is not None
    if u == 0:
        return 0.0
    gaps = [2 * run.loss.lipschitz, run.loss.smoothness * u]
    return min([*gaps, *(float(constant * u**p) for p, constant in run.loss.holders)])


def _derived(case: Case, run: Run, least: float, gap: Callable[[float], float]) -> Derived:
    """Walk the plan; compose its Gaussian with the sampled swap of every step."""
    witness, ledger = case.witness, case.ledger
    stage = require_constant(run, ledger)
    cap, extra = require_cap(case, run)
    assert run.loss is not None
    maps = StepLosses(run.loss, run.l2, least, cap / run.batch_size)
    phi = maps.modulus(reading.word(witness, "losses"), stage.eta, ledger)
    unit = stage.eta / run.batch_size
    last_steps = reading.whole(witness, "last_steps", 1)
    before = run.steps - last_steps
    ledger.require("last steps", before >= 0, f"{last_steps} of {run.steps} steps")
    drift = Stretch(max(before, 1), phi, 2 * unit * run.loss.lipschitz, stage.nu)
    start = forward_distance(Program((drift,), 1, run.diameter), before) if before else 0.0
    ledger.agree("start distance", reading.number(witness, "start_distance"), start)
    share = reading.number(witness, "swap_share")
    ledger.require("split", 0 < share < 1, f"a share of {share:g} hides the swap")
    blocks = constant_blocks(case, last_steps)
    walked = _walked(case, phi, run.diameter, start, blocks)
    # Where nothing is absorbed, all the noise hides the swap.
    swaps = [
        (
            unit * (2 * run.loss.lipschitz + gap(u)) / stage.nu / math.sqrt(share if a else 1.0),
            count,
        )
        for count, u, a in walked
    ]
    squares = math.fsum(count * (a / stage.nu) ** 2 for count, a, _ in blocks) / (1 - share)
    rows = _swap_rows(run.sampling_rate, swaps, squares if start > 0 else 0.0, extra)
    return rows_epsilon(rows, case.epsilon, case.delta)


def _walked(
    case: Case, phi: Modulus, diameter: float, start: float, blocks: ShiftBlocks
) -> list[tuple[int, float, float]]:
    """Return (steps, distance before them, shift); the plan must end at distance zero."""
    if start == 0:
        return [(count, 0.0, 0.0) for count, _, _ in blocks]
    found, u, left = [], start, start
    for count, shift, _ in blocks:
        for _ in range(count):
            found.append((1, u, shift))
            left = max(0.0, phi(u) - shift)
            u = min(diameter, left)
    largest = max(shift for _, shift, _ in blocks)
    detail = f"leaves {left:.3g} of a start at {start:.6g}"
    case.ledger.require("plan absorbs its start", left <= _LEFTOVER * largest, detail)
    return found


def _swap_rows(rate: float, swaps: list[tuple[float, int]], squares: float, extra: float) -> Rows:
    grouped: list[tuple[float, int]] = []
    first = math.inf
    for size, count in sorted(swaps):
        if not grouped or math.log(size / first) > _ALIKE:
            grouped.append((size, count))
            first = size
        else:
            grouped[-1] = (size, grouped[-1][1] + count)
    pairs: list[LossPair] = [SwappedPair(rate, size) for size, _ in grouped]
    counts = [float(count) for _, count in grouped]
    if squares > 0:
        # Several small Gaussians in place of a large one need no wider grid than the swaps do.
        pieces = math.ceil(min(64.0, max(1.0, squares / (rate * grouped[0][0]) ** 2)))
        pairs.append(GaussianPair(math.sqrt(squares / pieces)))
        counts.append(float(pieces))
    return Rows(tuple(pairs), np.array([counts]), (1.0,), extra)
