"""Random batches and any declared losses: shifts absorb what earlier steps did, beside the samples.

A record that joins or leaves shares a step's noise with the shift in one pair; for replaced records
the noise is split between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dplateau.algorithms import FixedSize, Poisson, Run
from dplateau.algorithms.stated import loss_of
from dplateau.verify.cases import (
    ROUNDED,
    Case,
    Derived,
    Stage,
    largest_share,
    moved_by_record,
    product_derived,
    require_cap,
    require_constant,
    theorem,
)
from dplateau.verify.composed import Rows
from dplateau.verify.pairs import GaussianPair, LossPair, SampledPair, SwappedPair
from dplateau.verify.walks import Modulus, Program, Stretch, forward_distance, step_losses

# Swaps that differ by less than this are replaced by the largest of them.
_ALIKE = math.log(1.001)
# Shifts are taken this much larger than they are written, so that rounding leaves nothing over.
_LARGER = 1 + 1e-7
_MOST_STEPS = 10**6


@theorem(Poisson, neighbors="add_remove")
def poisson_modulus(case: Case) -> Derived:
    """Derive the main theorem with any declared losses, from the largest start possible."""
    run, stage = case.run, require_constant(case)
    cap, extra = require_cap(case)
    maps = step_losses(case, 0.0, largest_share(run, cap))
    phi = maps.modulus(case.witness["losses"].word(), stage.eta)
    shifts: dict[float, int] = {}
    for count, _, shift in _absorbing_walk(case, stage, phi):
        shifts[shift] = shifts.get(shift, 0) + count
    step = moved_by_record(run, stage.eta) / stage.nu
    pairs = [
        (_step_pair(run.sampling_rate, step, shift / stage.nu * ROUNDED), count)
        for shift, count in shifts.items()
    ]
    return product_derived(case, Rows.product(pairs, extra))


def _step_pair(rate: float, step: float, shift: float) -> LossPair:
    return GaussianPair(shift + step) if rate == 1 else SampledPair(rate, step, shift)


def _absorbing_walk(case: Case, stage: Stage, phi: Modulus) -> list[tuple[int, float, float]]:
    """Walk the last steps of a run, whose shifts absorb all that the steps before may have done.

    Return (steps, distance before them, shift). The last shift absorbs what is left over.
    """
    run, last_steps = case.run, case.witness["last_steps"].whole(1)
    before = run.steps - last_steps
    case.require("last steps", before >= 0, f"{last_steps} of {run.steps} steps")
    blocks = _constant_blocks(case, last_steps)
    moved = moved_by_record(run, stage.eta)
    drift = Program((Stretch(max(before, 1), phi, moved, stage.nu),), 1, run.diameter)
    u = forward_distance(drift, before) if before else 0.0
    if u == 0:
        return [(last_steps, 0.0, 0.0)]
    if last_steps > _MOST_STEPS:
        raise ArithmeticError(f"{last_steps} steps are too many to walk through")
    walked, left, shift = [], u, 0.0
    for count, shift in blocks:
        for _ in range(count):
            walked.append((1, u, shift))
            # A rounding too far is on the safe side.
            left = max(0.0, phi(u) * (1 + 1e-15) - shift)
            u = min(run.diameter, left)
    # The noise acts before the last projection, which hence does not help.
    walked[-1] = (1, walked[-1][1], shift + left * ROUNDED)
    return walked


def _constant_blocks(case: Case, last_steps: int) -> list[tuple[int, float]]:
    """Read blocks of [count, shift]."""
    stored = case.witness["blocks"].tuples("count", "shift")
    blocks = [(count.whole(1), shift.nonnegative() * _LARGER) for count, shift in stored]
    covered = sum(count for count, _ in blocks)
    case.require("plan length", covered == last_steps, f"covers {covered} of {last_steps} steps")
    return blocks


# --- replaced records: the noise is split --------------------------------------------------------


@theorem(FixedSize, neighbors="replace")
def fixed_size_modulus(case: Case) -> Derived:
    """Derive batches of exactly b records; two swaps differ by what one more gradient does."""
    return _split_derived(case, 1.0, lambda u: _gradient_gap(case.run, u))


@theorem(Poisson, neighbors="replace")
def poisson_replace_modulus(case: Case) -> Derived:
    """Derive Poisson batches: a swap is the record's step against its replacement's."""
    return _split_derived(case, 0.0, lambda u: 0.0)


def _gradient_gap(run: Run, u: float) -> float:
    """Return min(2 L, M u, H u^p): how far a record's gradients at distance u lie apart."""
    if u == 0:
        return 0.0
    loss = loss_of(run)
    gaps = [2 * loss.lipschitz, loss.smoothness * u]
    return min([*gaps, *(float(constant * u**p) for p, constant in loss.holders)])


def _split_derived(case: Case, least: float, gap: Callable[[float], float]) -> Derived:
    """Walk the plan; compose its Gaussian with the sampled swap of every step."""
    run, stage = case.run, require_constant(case)
    cap, extra = require_cap(case)
    maps = step_losses(case, least, largest_share(run, cap))
    phi = maps.modulus(case.witness["losses"].word(), stage.eta)
    share = case.witness["swap_share"].number()
    case.require("split", 0 < share < 1, f"a share of {share:g} hides the swap")
    unit, moved = stage.eta / run.batch_size * ROUNDED, moved_by_record(run, stage.eta)
    swaps, squares = [], []
    for count, u, shift in _absorbing_walk(case, stage, phi):
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
    groups: list[tuple[float, int]] = []
    for size, count in sorted(swaps, reverse=True):
        if groups and math.log(groups[-1][0] / size) <= _ALIKE:
            groups[-1] = (groups[-1][0], groups[-1][1] + count)
        else:
            groups.append((size, count))
    return [(SwappedPair(rate, size), count) for size, count in groups]
