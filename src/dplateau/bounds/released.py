"""What an observer of every iterate sees of one record: a list of noisy uses.

The classical bounds all start from it. Nothing but noise levels and sampling enters, so they hold
for any losses, step sizes and domains, and, since hiding iterates only helps, for any release.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import (
    AllIterates,
    Checkpoints,
    Cyclic,
    FixedSize,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    RandomStop,
    Run,
    Schedule,
    refuse_batches,
    refuse_release,
)
from dplateau.algorithms.schedule import PerStep, values_over
from dplateau.bounds.base import Assumption
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray, IntArray


@dataclass(frozen=True)
class Use:
    """``count`` steps in which the record joins with probability ``sampling_rate``.

    ``distance`` is how far it can move the step, in units of the noise: of the standard deviation
    for Gaussian noise, of the scale for Laplace noise.
    """

    distance: float
    sampling_rate: float
    count: int


def uses_of_one_record(run: Run) -> tuple[Use, ...]:
    """Return the uses of the record that is exposed most."""
    per_unit = run.neighbor_factor * (math.sqrt(2.0) if run.noise_kind == "laplace" else 1.0)
    return tuple(Use(per_unit / noise, rate, count) for noise, rate, count in _exposed_blocks(run))


def is_sampled(run: Run) -> bool:
    """Return whether chance leaves a record out of some step's batch."""
    match run.batches:
        case Poisson() | FixedSize():
            return bool(np.any(run.sampling_rates() < 1))
        case FullBatch() | Cyclic() | OnePass():
            return False
        case _ as unknown:
            refuse_batches(unknown)


# A noise multiplier, the chance of joining at that noise, and for how many uses.
_Block = tuple[float, float, int]


def _exposed_blocks(run: Run) -> tuple[_Block, ...]:
    """Return the uses of the record that is exposed most, in blocks of equal ones."""
    noise = run.noise_multiplier
    match run.batches:
        case FullBatch():
            return _paired(noise, 1.0, run.steps)
        case Poisson(rate=rate):
            return _paired(noise, rate, run.steps)
        case FixedSize():
            return _paired(noise, run.sampling_rate, run.steps)
        case Cyclic():
            return _cyclic_blocks(run)
        case OnePass():
            return ((_smallest(noise), 1.0, 1),)
        case _ as unknown:
            refuse_batches(unknown)


def _paired(noise: PerStep, rate: PerStep, steps: int) -> tuple[_Block, ...]:
    """Return blocks of steps in which neither noise nor rate changes."""
    if not isinstance(rate, Schedule):
        blocks = noise.blocks if isinstance(noise, Schedule) else ((noise, steps),)
        return tuple((value, rate, count) for value, count in blocks)
    noises, rates = values_over(noise, steps), rate.values()
    changes = (noises[1:] != noises[:-1]) | (rates[1:] != rates[:-1])
    starts = np.flatnonzero(np.r_[True, changes])
    counts = np.diff(np.r_[starts, steps])
    return tuple(
        (float(noises[i]), float(rates[i]), int(k)) for i, k in zip(starts, counts, strict=True)
    )


def _cyclic_blocks(run: Run) -> tuple[_Block, ...]:
    noise = run.noise_multiplier
    epochs = -(-run.steps // run.batches_per_epoch)
    if not isinstance(noise, Schedule):
        return ((noise, 1.0, epochs),)
    # A record is used once an epoch; its slot is unknown, so charge each epoch's quietest step.
    padded = np.full(epochs * run.batches_per_epoch, np.inf)
    padded[: run.steps] = values_over(noise, run.steps)
    quietest = padded.reshape(epochs, run.batches_per_epoch).min(axis=1)
    return _paired(Schedule.of(quietest), 1.0, epochs)


def _smallest(noise: float | Schedule) -> float:
    return min(value for value, _ in noise.blocks) if isinstance(noise, Schedule) else noise


def uses_over_steps(run: Run, steps: IntArray) -> tuple[Use, IntArray]:
    """Return the record's one kind of use, and how often it happens in runs of these lengths.

    ``run`` has no schedule: only then is there one kind, and a length that can be changed.
    """
    (use,) = uses_of_one_record(run)
    period = run.batches_per_epoch if isinstance(run.batches, Cyclic) else 1
    return use, -(-steps // period)


def for_each_count(counts: IntArray, epsilon: Callable[[int], float]) -> FloatArray:
    """Return ``epsilon(count)`` for every count, asking once for equal ones."""
    distinct, where = np.unique(counts, return_inverse=True)
    return np.array([epsilon(int(count)) for count in distinct])[where]


def why_no_uses(run: Run) -> str | None:
    """Return why the noise multiplier of ``run`` is not known, or None."""
    try:
        uses_of_one_record(run)
    except NotApplicable as reason:
        return str(reason)
    return None


def base_assumptions(run: Run) -> tuple[Assumption, ...]:
    """Return what every claim about ``run`` rests on."""
    found = [
        Assumption("no record's gradient is longer than the Lipschitz constant", "declared"),
        Assumption("n and the batch size that steps divide by are public constants", "declared"),
        Assumption("start, schedule and number of steps do not depend on the data", "declared"),
        Assumption(f"{run.noise_kind} noise, fresh and independent at every step", "declared"),
        Assumption(
            "real-number arithmetic: floating-point leaks are outside the claim", "declared"
        ),
    ]
    return (*found, *_about_persons(run), *_about_batches(run), *_about_release(run))


def _about_persons(run: Run) -> tuple[Assumption, ...]:
    text = f"no person has more than {run.group_size} records"
    return (Assumption(text, "declared"),) if run.group_size > 1 else ()


def _about_batches(run: Run) -> tuple[Assumption, ...]:
    match run.batches:
        case Poisson():
            chance = "the stated probability" if run.has_own_rate else "probability b / n"
            text = f"each record joins each batch independently with {chance}"
            return (Assumption(text, "declared"),)
        case FixedSize():
            text = "each batch is a uniformly random set of exactly b records, drawn afresh"
            return (Assumption(text, "declared"),)
        case Cyclic() | OnePass():
            text = "an absent record keeps its slot with a zero gradient"
            absent = run.neighbors == "add_remove"
            return (Assumption(text, "by construction"),) if absent else ()
        case FullBatch():
            return ()
        case _ as unknown:
            refuse_batches(unknown)


def _about_release(run: Run) -> tuple[Assumption, ...]:
    match run.release:
        case LastIterate():
            text = "only the last iterate leaves; no metric, log or callback before"
            return (Assumption(text, "declared"),)
        case Checkpoints():
            text = (
                "only the checkpoints leave, at steps fixed in advance; no metric, log or callback "
                "between"
            )
            return (Assumption(text, "declared"),)
        case AllIterates() | RandomStop():
            return ()
        case _ as unknown:
            refuse_release(unknown)
