"""Last-iterate theorems for random batches: products of one-dimensional pairs."""

from __future__ import annotations

import math

import numpy as np

from dplateau.verify import reading
from dplateau.verify.claims import Case, Derived
from dplateau.verify.compose import Rows
from dplateau.verify.facts import require_constant
from dplateau.verify.grids import rows_epsilon
from dplateau.verify.losses import GaussianPair, LossPair, SampledPair, SwappedPair
from dplateau.verify.moduli import StepLosses
from dplateau.verify.sampled_start import (
    Sampled,
    Start,
    contractive_setting,
    require_cap,
    require_sampled,
    require_start,
)
from dplateau.verify.walk import Program, ShiftBlocks, Stretch, absorb, forward_distance

# A start this rare, as a share of delta, is charged in full instead of being composed.
_RARE = 1e-4
# What rounding may leave over, relative to the largest shift and to a record's step.
_LEFTOVER, _LEFTOVER_OF_STEP = 1e-12, 1e-13
# Shifts are taken this much larger than they are written, so that nothing is left over.
_LARGER = 1 + 1e-9


def _step_pair(rate: float, step: float, shift: float) -> LossPair:
    return GaussianPair(shift + step) if rate == 1 else SampledPair(rate, step, shift)


def _rows(
    pairs: list[LossPair], counts: np.ndarray, start: Start, extra: float, delta: float
) -> Rows:
    """Keep the rows that matter and the pairs that they use; charge rare starts in full."""
    weights = np.array(start.weights)
    kept = weights > _RARE * delta
    kept[0] |= not kept.any()
    rare = float(weights[~kept].sum())
    used = counts[kept].sum(axis=0) > 0
    return Rows(
        pairs=tuple(pair for pair, needed in zip(pairs, used, strict=True) if needed),
        counts=counts[kept][:, used],
        weights=tuple(weights[kept].tolist()),
        extra=start.beyond + extra + rare,
    )


def poisson_modulus(case: Case) -> Derived:
    """Derive the main theorem with any declared losses, from the largest start possible."""
    run = require_sampled(case, "poisson", "add_remove")
    stage = require_constant(run, case.ledger)
    cap, extra = require_cap(case, run)
    assert run.loss is not None
    maps = StepLosses(run.loss, run.l2, 0.0, cap / run.batch_size)
    phi = maps.modulus(reading.word(case.witness, "losses"), stage.eta, case.ledger)
    reach = stage.eta * run.loss.lipschitz / run.batch_size
    last_steps = reading.whole(case.witness, "last_steps", 1)
    before = run.steps - last_steps
    case.ledger.require("last steps", before >= 0, f"{last_steps} of {run.steps} steps")
    drift = Program((Stretch(max(before, 1), phi, reach, stage.nu),), 1, run.diameter)
    start = forward_distance(drift, before) if before else 0.0
    case.ledger.agree("start distance", reading.number(case.witness, "start_distance"), start)
    blocks = constant_blocks(case, last_steps)
    program = Program((Stretch(last_steps, phi, 0.0, stage.nu),), 1, run.diameter)
    outcome = absorb(program, 0, start, blocks)
    largest = max(shift for _, shift, _ in blocks)
    detail = f"leaves {outcome.leftover:.3g} of a start at {start:.6g}"
    done = outcome.leftover <= _LEFTOVER * largest + _LEFTOVER_OF_STEP * reach
    case.ledger.require("plan absorbs its start", done, detail)
    totals: dict[float, int] = {}
    for count, shift, _ in blocks:
        totals[shift] = totals.get(shift, 0) + count
    pairs = [_step_pair(run.sampling_rate, reach / stage.nu, a / stage.nu) for a in totals]
    counts = np.array([[float(n) for n in totals.values()]])
    rows = Rows(tuple(pairs), counts, (1.0,), extra)
    return rows_epsilon(rows, case.epsilon, case.delta)


def constant_blocks(case: Case, last_steps: int) -> ShiftBlocks:
    """Read blocks of [count, shift]."""
    found = []
    for i, item in enumerate(reading.rows(case.witness, "blocks")):
        if not isinstance(item, list) or len(item) != 2:
            raise reading.Malformed(f"blocks[{i}] must be [count, shift]; it is {item!r}")
        shift = reading.as_number(item[1], f"blocks[{i}][1]")
        if shift < 0:
            raise reading.Malformed(f"blocks[{i}] holds a negative shift")
        found.append((reading.as_whole(item[0], f"blocks[{i}][0]", 1), shift * _LARGER, 1.0))
    covered = sum(count for count, _, _ in found)
    detail = f"covers {covered} of {last_steps} steps"
    case.ledger.require("plan length", covered == last_steps, detail)
    return found


def fixed_size_split(case: Case) -> Derived:
    """Derive batches of fixed size: a swap is d = (eta/b)(2 L + min(2 L, M u)) at distance u."""
    run = require_sampled(case, "fixed", "replace")
    setting = contractive_setting(case, run, factor=2)
    # The swap is charged at the start, so distances must not grow after it.
    shrinks = setting.contraction <= 1 + 1e-9
    case.ledger.require("contraction", shrinks, f"c = {setting.contraction:.12g}")
    return _split(case, setting, curved=True)


def _split(case: Case, setting: Sampled, *, curved: bool) -> Derived:
    """Share the noise: one part absorbs the start, the other hides the sampled swap.

    The best shifts are proportional to c^j, j steps from the end: sum a^2 = (c^R u)^2 / sum c^2j.
    """
    start = require_start(case, setting)
    share = reading.number(case.witness, "swap_share")
    case.ledger.require("split", 0 < share < 1, f"a share of {share:g} hides the swap")
    c, steps = setting.contraction, start.last_steps
    log = math.log(c) if c > 0 else -700.0
    squares = steps if c == 1 else math.expm1(2 * log * steps) / math.expm1(2 * log)
    pairs: list[LossPair] = []
    counts = np.zeros((len(start.edges), 2 * len(start.edges)))
    for k, edge in enumerate(start.edges):
        left = edge * math.exp(log * steps)
        cost = left * left / (squares * (1 - share))
        swap = setting.step
        if curved:
            assert setting.run.loss is not None
            bend = setting.eta * setting.run.loss.smoothness / setting.run.batch_size * edge
            swap += min(setting.step, bend)
        hiding = share if cost > 0 else 1.0
        pairs.append(SwappedPair(setting.rate, swap / math.sqrt(hiding)))
        counts[k, 2 * k] = steps
        # Several small Gaussians in place of a large one need no wider grid than the swaps do.
        pieces = math.ceil(min(64.0, max(1.0, cost / (setting.rate * swap) ** 2)))
        pairs.append(GaussianPair(math.sqrt(cost / pieces) if cost > 0 else 1.0))
        counts[k, 2 * k + 1] = pieces if cost > 0 else 0
    rows = _rows(pairs, counts, start, setting.extra_delta, case.delta)
    return rows_epsilon(rows, case.epsilon, case.delta)
