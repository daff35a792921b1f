"""Random batches and any declared losses: shifts absorb what earlier steps did, beside the samples.

A record that joins or leaves shares a step's noise with the shift in one pair; for replaced records
the noise is split between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dplateau.algorithms import FixedSize, Poisson, Run, Scheme
from dplateau.verify import reading
from dplateau.verify.claims import ROUNDED, Case, Derived, product_derived
from dplateau.verify.composed import Rows
from dplateau.verify.facts import (
    Stage,
    largest_share,
    moved_by_record,
    require_batches,
    require_cap,
    require_constant,
    require_hidden,
    require_neighbors,
)
from dplateau.verify.pairs import GaussianPair, LossPair, SampledPair, SwappedPair
from dplateau.verify.report import Malformed
from dplateau.verify.walks import Modulus, Program, StepLosses, Stretch, forward_distance

# Swaps that differ by less than this are replaced by the largest of them.
_ALIKE = math.log(1.001)
# Shifts are taken this much larger than they are written, so that rounding leaves nothing over.
_LARGER = 1 + 1e-9
_MOST_STEPS = 10**6


def poisson_modulus(case: Case) -> Derived:
    """Derive the main theorem with any declared losses, from the largest start possible."""
    run, ledger = case.run, case.ledger
    require_hidden(run, ledger)
    require_batches(run, ledger, Poisson)
    require_neighbors(run, ledger, "add_remove")
    stage = require_constant(run, ledger)
    cap, extra = require_cap(case)
    assert run.loss is not None
    maps = StepLosses(run.loss, run.l2, 0.0, largest_share(run, cap))
    phi = maps.modulus(reading.word(case.witness, "losses"), stage.eta, ledger)
    shifts: dict[float, int] = {}
    for count, _, shift in absorbing_walk(case, stage, phi):
        shifts[shift] = shifts.get(shift, 0) + count
    step = moved_by_record(run, stage.eta) / stage.nu
    pairs = [
        (_step_pair(run.sampling_rate, step, shift / stage.nu * ROUNDED), count)
        for shift, count in shifts.items()
    ]
    return product_derived(case, Rows.product(pairs, extra))


def _step_pair(rate: float, step: float, shift: float) -> LossPair:
    return GaussianPair(shift + step) if rate == 1 else SampledPair(rate, step, shift)


def absorbing_walk(case: Case, stage: Stage, phi: Modulus) -> list[tuple[int, float, float]]:
    """Walk the last steps of a run, whose shifts absorb all that the steps before may have done.

    Return (steps, distance before them, shift). The last shift absorbs what is left over.
    """
    run, ledger = case.run, case.ledger
    last_steps = reading.whole(case.witness, "last_steps", 1)
    before = run.steps - last_steps
    ledger.require("last steps", before >= 0, f"{last_steps} of {run.steps} steps")
    blocks = _constant_blocks(case, last_steps)
    moved = moved_by_record(run, stage.eta)
    drift = Program((Stretch(max(before, 1), phi, moved, stage.nu),), 1, run.diameter)
    u = forward_distance(drift, before) if before else 0.0
    if u == 0:
        return [(last_steps, 0.0, 0.0)]
    if last_steps > _MOST_STEPS:
        raise ArithmeticError(f"{last_steps} steps are too many to walk through")
    found, left, shift = [], u, 0.0
    for count, shift in blocks:
        for _ in range(count):
            found.append((1, u, shift))
            # A rounding too far is on the safe side.
            left = max(0.0, phi(u) * (1 + 1e-15) - shift)
            u = min(run.diameter, left)
    # The noise acts before the last projection, which hence does not help.
    found[-1] = (1, found[-1][1], shift + left * ROUNDED)
    return found


def _constant_blocks(case: Case, last_steps: int) -> list[tuple[int, float]]:
    """Read blocks of [count, shift]."""
    found = []
    stored = reading.tuples(reading.entry(case.witness, "blocks"), "blocks", ("count", "shift"))
    for i, item in enumerate(stored):
        shift = reading.as_number(item[1], f"blocks[{i}][1]")
        if shift < 0:
            raise Malformed(f"blocks[{i}] holds a negative shift")
        found.append((reading.as_whole(item[0], f"blocks[{i}][0]", 1), shift * _LARGER))
    covered = sum(count for count, _ in found)
    detail = f"covers {covered} of {last_steps} steps"
    case.ledger.require("plan length", covered == last_steps, detail)
    return found


# --- replaced records: the noise is split -----------------------------------------------------


def _require_replaced(case: Case, scheme: Scheme) -> Run:
    require_hidden(case.run, case.ledger)
    require_batches(case.run, case.ledger, scheme)
    require_neighbors(case.run, case.ledger, "replace")
    return case.run


def fixed_size_modulus(case: Case) -> Derived:
    """Derive batches of exactly b records; two swaps differ by what one more gradient does."""
    run = _require_replaced(case, FixedSize)
    return _split_derived(case, 1.0, lambda u: _gradient_gap(run, u))


def poisson_replace_modulus(case: Case) -> Derived:
    """Derive Poisson batches: a swap is the record's step against its replacement's."""
    _require_replaced(case, Poisson)
    return _split_derived(case, 0.0, lambda u: 0.0)


def _gradient_gap(run: Run, u: float) -> float:
    """Return min(2 L, M u, H u^p): how far a record's gradients at distance u lie apart."""
    assert run.loss is not None
    if u == 0:
        return 0.0
    gaps = [2 * run.loss.lipschitz, run.loss.smoothness * u]
    return min([*gaps, *(float(constant * u**p) for p, constant in run.loss.holders)])


def _split_derived(case: Case, least: float, gap: Callable[[float], float]) -> Derived:
    """Walk the plan; compose its Gaussian with the sampled swap of every step."""
    run, witness, ledger = case.run, case.witness, case.ledger
    stage = require_constant(run, ledger)
    cap, extra = require_cap(case)
    assert run.loss is not None
    maps = StepLosses(run.loss, run.l2, least, largest_share(run, cap))
    phi = maps.modulus(reading.word(witness, "losses"), stage.eta, ledger)
    share = reading.number(witness, "swap_share")
    ledger.require("split", 0 < share < 1, f"a share of {share:g} hides the swap")
    unit, moved = stage.eta / run.batch_size * ROUNDED, moved_by_record(run, stage.eta)
    swaps, squares = [], []
    for count, u, shift in absorbing_walk(case, stage, phi):
        # Where nothing is absorbed, all the noise hides the swap.
        hidden = stage.nu * math.sqrt(share if shift else 1.0)
        swaps.append(((moved + unit * gap(u)) / hidden * ROUNDED, count))
        squares.append(count * (shift / stage.nu) ** 2 / (1 - share))
    parts = _grouped(run.sampling_rate, swaps)
    total = math.fsum(squares) * ROUNDED
    if total > 0:
        # Several small Gaussians in place of a large one need no wider grid than the swaps do.
        smallest = run.sampling_rate * min(size for size, _ in swaps)
        pieces = math.ceil(min(64.0, max(1.0, total / smallest**2)))
        parts.append((GaussianPair(math.sqrt(total / pieces) * ROUNDED), pieces))
    return product_derived(case, Rows.product(parts, extra))


def _grouped(rate: float, swaps: list[tuple[float, int]]) -> list[tuple[LossPair, float]]:
    """Return the pairs of all swaps, those that are nearly alike as the largest of them."""
    found: list[tuple[float, int]] = []
    for size, count in sorted(swaps, reverse=True):
        if found and math.log(found[-1][0] / size) <= _ALIKE:
            found[-1] = (found[-1][0], found[-1][1] + count)
        else:
            found.append((size, count))
    return [(SwappedPair(rate, size), count) for size, count in found]
