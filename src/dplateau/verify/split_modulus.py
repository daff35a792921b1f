"""Replaced records in random batches, any declared losses: shifts and swaps share the noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dplateau.algorithms import Run
from dplateau.verify import reading
from dplateau.verify.claims import Case, Derived
from dplateau.verify.compose import Rows
from dplateau.verify.facts import require_constant
from dplateau.verify.grids import rows_epsilon
from dplateau.verify.losses import GaussianPair, LossPair, SwappedPair
from dplateau.verify.moduli import Modulus, StepLosses
from dplateau.verify.random_batches import constant_blocks
from dplateau.verify.sampled import require_cap, require_sampled
from dplateau.verify.walk import Program, ShiftBlocks, Stretch, forward_distance

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
    if run.loss.holder is not None:
        gaps.append(run.loss.holder[1] * u ** run.loss.holder[0])
    return min(gaps)


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
    rows = _rows(run.sampling_rate, swaps, squares if start > 0 else 0.0, extra)
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


def _rows(rate: float, swaps: list[tuple[float, int]], squares: float, extra: float) -> Rows:
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
