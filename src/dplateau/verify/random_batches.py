"""Last-iterate theorems for random batches: products of one-dimensional pairs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dplateau.verify import reading
from dplateau.verify.claims import Case, Derived
from dplateau.verify.compose import Rows
from dplateau.verify.facts import require_constant
from dplateau.verify.grids import level_of_two, rows_epsilon, two_records
from dplateau.verify.losses import GaussianPair, LossPair, SampledPair, SwappedPair
from dplateau.verify.moduli import Modulus, StepLosses
from dplateau.verify.sampled_start import (
    Sampled,
    Start,
    contractive_setting,
    require_cap,
    require_sampled,
    require_start,
    rising_counts,
)
from dplateau.verify.walk import Program, ShiftBlocks, Stretch, absorb, forward_distance

# A start this rare, as a share of delta, is charged in full instead of being composed.
_RARE = 1e-4
# What a plan may leave over, relative to its largest shift and to a record's step.
_LEFTOVER, _LEFTOVER_OF_STEP = 1e-9, 1e-12


def poisson_plain(case: Case) -> Derived:
    """Derive the claim from the largest start possible."""
    return _add_remove(case, most_rows=1)


def poisson_high_probability(case: Case) -> Derived:
    """Derive the claim from a start that is exceeded with a chance charged to delta."""
    return _add_remove(case, most_rows=1)


def poisson_averaged(case: Case) -> Derived:
    """Derive the average over the law of the start."""
    return _add_remove(case, most_rows=1000)


def poisson_replace_group(case: Case) -> Derived:
    """Derive (2 eps, (1 + e^eps) delta) from the add/remove theorem: two records change."""
    require_sampled(case, "poisson", "replace")
    single = replace(case, run=case.run.replace(neighbors="add_remove"))
    level = level_of_two(case.epsilon, case.delta)
    rows = _add_remove_rows(single, most_rows=1000, delta=level)
    return rows_epsilon(rows, case.epsilon, case.delta, level=level, of=two_records)


def _add_remove(case: Case, most_rows: int) -> Derived:
    rows = _add_remove_rows(case, most_rows, case.delta)
    return rows_epsilon(rows, case.epsilon, case.delta)


def _add_remove_rows(case: Case, most_rows: int, delta: float) -> Rows:
    """Check start and plans; return the product of pairs for every start.

    The main theorem: if the shifts a absorb the start, the last iterates are dominated by the
    product of (1-q) N(a) + q N(a + r) against N(0) over the last steps.
    """
    run = require_sampled(case, "poisson", "add_remove")
    setting = contractive_setting(case, run, factor=1)
    start = require_start(case, setting, delta)
    found = len(start.edges)
    case.ledger.require("number of starts", found <= most_rows, f"{found} of at most {most_rows}")
    levels = reading.rising(case.witness, "levels")
    counts = rising_counts(case, levels, found, start.last_steps)
    shifts = [0.0, *levels]
    for k, (edge, row) in enumerate(zip(start.edges, counts, strict=True)):
        blocks = [(n, a, 1.0) for n, a in zip(row, shifts, strict=True) if n]
        _require_absorbed(case, setting, edge, blocks, f"[{k}]")
    pairs = [_step_pair(setting.rate, setting.step, a) for a in shifts]
    return _rows(pairs, np.array(counts, dtype=float), start, setting.extra_delta, delta)


def _step_pair(rate: float, step: float, shift: float) -> LossPair:
    return GaussianPair(shift + step) if rate == 1 else SampledPair(rate, step, shift)


def _require_absorbed(
    case: Case, setting: Sampled, edge: float, blocks: ShiftBlocks, where: str
) -> None:
    """Walk u <- max(0, c u - a) with the larger shifts last, as the counts are meant."""
    steps = sum(count for count, _, _ in blocks)
    stretch = Stretch(steps, Modulus(setting.contraction), 0.0, 1.0)
    outcome = absorb(Program((stretch,), 1, setting.diameter), 0, edge, blocks)
    largest = max(shift for _, shift, _ in blocks)
    allowed = _LEFTOVER * largest + _LEFTOVER_OF_STEP * setting.step
    detail = f"leaves {outcome.leftover:.3g} of a start at {edge:.6g}"
    case.ledger.require(f"plan absorbs its start{where}", outcome.leftover <= allowed, detail)


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
        found.append((reading.as_whole(item[0], f"blocks[{i}][0]", 1), shift, 1.0))
    covered = sum(count for count, _, _ in found)
    detail = f"covers {covered} of {last_steps} steps"
    case.ledger.require("plan length", covered == last_steps, detail)
    return found


def poisson_replace_split(case: Case) -> Derived:
    """Derive Poisson batches with a replaced record: a swap moves a step by two record steps."""
    run = require_sampled(case, "poisson", "replace")
    setting = contractive_setting(case, run, factor=2)
    return _split(case, setting)


def _split(case: Case, setting: Sampled) -> Derived:
    """Share the noise: one part absorbs the start, the other hides the sampled swap.

    The best shifts are proportional to c^j, j steps from the end: sum a^2 = (c^R u)^2 / sum c^2j.
    """
    start = require_start(case, setting, case.delta)
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
        hiding = share if cost > 0 else 1.0
        pairs.append(SwappedPair(setting.rate, swap / math.sqrt(hiding)))
        counts[k, 2 * k] = steps
        # Several small Gaussians in place of a large one need no wider grid than the swaps do.
        pieces = math.ceil(min(64.0, max(1.0, cost / (setting.rate * swap) ** 2)))
        pairs.append(GaussianPair(math.sqrt(cost / pieces) if cost > 0 else 1.0))
        counts[k, 2 * k + 1] = pieces if cost > 0 else 0
    rows = _rows(pairs, counts, start, setting.extra_delta, case.delta)
    return rows_epsilon(rows, case.epsilon, case.delta)
