"""What an observer of every iterate sees of one record: a list of noisy uses.

The classical bounds all start from it. Nothing but noise levels and sampling enters, so they hold
for any losses, step sizes and domains, and, since hiding iterates only helps, for any release.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import CyclicSGD, NoisySGD, OnePassSGD, Run, Schedule
from dplateau.algorithms.schedule import values_over
from dplateau.bounds.base import Assumption
from dplateau.errors import NotApplicable
from dplateau.numerics.types import FloatArray, IntArray


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
    rate = run.sampling_rate if isinstance(run, NoisySGD) else 1.0
    blocks = _exposed_blocks(run)
    return tuple(Use(per_unit / noise, rate, count) for noise, count in blocks)


def _exposed_blocks(run: Run) -> tuple[tuple[float, int], ...]:
    """Return (noise multiplier, number of uses) for the record that is exposed most."""
    noise = run.noise_multiplier
    if isinstance(run, OnePassSGD):
        return ((_smallest(noise), 1),)
    if isinstance(run, CyclicSGD):
        return _cyclic_blocks(run)
    return noise.blocks if isinstance(noise, Schedule) else ((noise, run.steps),)


def _cyclic_blocks(run: CyclicSGD) -> tuple[tuple[float, int], ...]:
    noise = run.noise_multiplier
    epochs = -(-run.steps // run.batches_per_epoch)
    if not isinstance(noise, Schedule):
        return ((noise, epochs),)
    # A record is used once an epoch; its slot is unknown, so charge each epoch's quietest step.
    padded = np.full(epochs * run.batches_per_epoch, np.inf)
    padded[: run.steps] = values_over(noise, run.steps)
    quietest = padded.reshape(epochs, run.batches_per_epoch).min(axis=1)
    return Schedule.of(quietest).blocks


def _smallest(noise: float | Schedule) -> float:
    return min(value for value, _ in noise.blocks) if isinstance(noise, Schedule) else noise


def uses_over_steps(run: Run, steps: IntArray) -> tuple[Use, IntArray]:
    """Return the record's one kind of use, and how often it happens in runs of these lengths.

    ``run`` has no schedule: only then is there one kind, and a length that can be changed.
    """
    (use,) = uses_of_one_record(run)
    period = run.batches_per_epoch if isinstance(run, CyclicSGD) else 1
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
    if isinstance(run, NoisySGD):
        found.append(Assumption(_SAMPLING[run.sampling], "declared"))
    if isinstance(run, CyclicSGD | OnePassSGD) and run.neighbors == "add_remove":
        found.append(
            Assumption("an absent record keeps its slot with a zero gradient", "by construction")
        )
    if run.release == "last":
        found.append(
            Assumption(
                "only the last iterate leaves; no metric, log or callback before", "declared"
            )
        )
    return tuple(found)


_SAMPLING = {
    "poisson": "each record joins each batch independently with probability b / n",
    "fixed": "each batch is a uniformly random set of exactly b records, drawn afresh",
}
