"""Ranges of columns from noisy counts: bisection for two quantiles of each, in a few rounds.

In every round each of the k columns has two thresholds, and every record says for all 2 k of them
on which side it lies: a vector of entries +1/2 and -1/2, sqrt(2 k) / 2 long. The average of these
vectors over all records, with noise, is what one step of noisy gradient descent with learning rate
1 adds to its iterate if that vector is the record's gradient; which thresholds are asked about next
depends on the iterates before, as gradients do. So :func:`~dplateau.algorithms.NoisyGD` with every
iterate released describes the whole search, and nothing new has to be proved. With halves in place
of 0 and 1 a record that joins moves the average by half as much, and one that replaces another by
no more than it has to.

Thresholds move on the scale asinh(x / UNIT): sizes from UNIT to UNIT e^SPAN are told apart by
ratios, smaller ones by differences, and no size has to be known.

**Rounding.** A sum of halves is exact in doubles, and is divided and added to noise once; the noise
is enlarged by more than both roundings.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.algorithms import AllIterates, LossGeometry, NoisyGD, Run
from dplateau.algorithms.base import Neighbors
from dplateau.algorithms.schedule import values_over
from dplateau.engines.moments import releases_sums
from dplateau.engines.randomness import Randomness
from dplateau.engines.rows import check_finite
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray

ROUNDS = 12
UNIT = 1e-3
SPAN = 30.0
# The quantiles sought, no closer to the ends than some deviations of the noise: (least, deviations,
# most). A wrong turn in the first rounds makes a range that is a thousand times too wide, so they
# mind the noise more; after six of them no turn costs more than a factor of e. (Chosen on simulated
# columns, uniform, normal, lognormal and binary: up to 17 percent of their ranges were more than
# four times too wide, and none is.)
COARSE_ROUNDS = 6
COARSE_TAIL, FINE_TAIL = (0.01, 4.0, 0.3), (0.01, 2.0, 0.2)
_SLACK = 1e-9


def ranges_run(
    *, n: int, columns: int, noise_multiplier: float, neighbors: Neighbors, group_size: int
) -> Run:
    """Describe the search for the ranges of so many columns of n records.

    >>> run = ranges_run(
    ...     n=100, columns=8, noise_multiplier=3.0, neighbors="add_remove", group_size=1
    ... )
    >>> run.steps, run.loss.lipschitz, round(run.noise_std, 12)
    (12, 2.0, 0.06)
    """
    return NoisyGD(
        n=n,
        steps=ROUNDS,
        learning_rate=1.0,
        noise_multiplier=noise_multiplier,
        loss=LossGeometry(lipschitz=math.sqrt(2 * columns) / 2, convex=True),
        neighbors=neighbors,
        group_size=group_size,
        release="all",
    )


def noisy_ranges(
    run: Run, values: FloatArray, *, randomness: Randomness
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of every column, with the noise that ``run`` says.

    Rows of ``values`` may be fewer than ``run.n``: those that are absent say nothing.

    Raises
    ------
    InvalidInput
        If the run does not describe this search, or a value is no finite number.
    """
    rows, columns = values.shape
    _check_describes(run, rows, columns)
    check_finite(values)
    std = float(values_over(run.noise_std, ROUNDS)[0])
    low, high = np.full((2, columns), -SPAN), np.full((2, columns), SPAN)
    for turn in range(ROUNDS):
        tail = _tail(std, *(COARSE_TAIL if turn < COARSE_ROUNDS else FINE_TAIL))
        wanted = np.array([tail, 1 - tail])[:, None]
        middle = (low + high) / 2
        thresholds = _size(middle)
        halves = np.array([(values <= one).sum(axis=0) - rows / 2 for one in thresholds])
        noise = randomness.gaussian(halves.size).reshape(halves.shape)
        below = 0.5 + halves / run.n + std * (1 + _SLACK) * noise >= wanted
        low, high = np.where(below, low, middle), np.where(below, middle, high)
    # The outer ends of the last intervals; a column that hardly varies gets a narrow range.
    first, last = _size(low[0]), _size(high[1])
    return np.minimum(first, last), np.maximum(np.maximum(first, last), first + UNIT)


def _tail(std: float, least: float, deviations: float, most: float) -> float:
    """Return which share of a column may lie beyond an end."""
    return min(most, max(least, deviations * std))


def _size(place: FloatArray) -> FloatArray:
    """Return the number at a place of the scale."""
    return np.asarray(UNIT * np.sinh(place))


def _check_describes(run: Run, rows: int, columns: int) -> None:
    if not releases_sums(run, ROUNDS) or run.release != AllIterates():
        raise InvalidInput(f"{run.kind} does not describe a search for ranges: use ranges_run")
    if rows > run.n:
        raise InvalidInput(f"the run describes {run.n} records; there are more rows")
    if run.loss is None or not math.sqrt(2 * columns) / 2 <= run.loss.lipschitz:
        raise InvalidInput(
            f"counts of {columns} columns are up to {math.sqrt(2 * columns) / 2:g} long; describe "
            "them with ranges_run(columns=...)"
        )
