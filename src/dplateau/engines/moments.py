"""Second moments of rows with noise: one step of noisy gradient descent, as far as privacy goes.

The average of x x^T over all records is what one full-batch step from zero, with learning rate 1,
makes of the losses -<W, x x^T>, whose gradients are at most feature_norm^2 long in the Frobenius
norm. So a :func:`~dplateau.algorithms.NoisyGD` of one step describes the release, every bound and
the verifier speak about it, and nothing new has to be proved. Symmetric p x p matrices with the
Frobenius norm are a Euclidean space of p (p + 1) / 2 dimensions, in which the diagonal entries and
sqrt(2) times the others are coordinates: white noise of deviation s there is noise of deviation s
on the diagonal and of s / sqrt(2) beside it.

**Rounding.** The entries of a row are cut towards zero to multiples of a unit h, which makes no row
longer. Products are then multiples of h^2, and sums of up to ``ROWS_IN_DOUBLES`` of them are exact
in doubles whatever their order, sums of all of them in 64-bit integers. What is left is the
tolerance of the check on rows and the last conversion to doubles; the noise is enlarged by both.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dplateau.algorithms import FullBatch, LossGeometry, NoisyGD, Run
from dplateau.algorithms.base import Neighbors
from dplateau.algorithms.schedule import values_over
from dplateau.engines.randomness import Randomness
from dplateau.engines.rows import NORM_ROOM, Dense, blocks, check_features, check_norms, row_norms
from dplateau.engines.sources import Source, check_count, over_parts
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray, IntArray

# Entries of a row have so many bits, so that products have twice as many.
BITS = 16
ROWS_IN_DOUBLES = 1 << (53 - 2 * BITS)
# Of more rows (2^31, but for a rounding) the sum of squares may be no whole number of 64 bits.
MOST_ROWS = 2 * 10**9


def moments_run(
    *, n: int, feature_norm: float, noise_multiplier: float, neighbors: Neighbors, group_size: int
) -> Run:
    """Describe the release of noisy second moments of n rows of at most that norm.

    >>> run = moments_run(
    ...     n=100, feature_norm=2.0, noise_multiplier=3.0, neighbors="add_remove", group_size=1
    ... )
    >>> run.steps, run.loss.lipschitz, round(run.noise_std, 12)
    (1, 4.0, 0.12)
    """
    return NoisyGD(
        n=n,
        steps=1,
        learning_rate=1.0,
        noise_multiplier=noise_multiplier,
        loss=LossGeometry(lipschitz=feature_norm**2, convex=True),
        neighbors=neighbors,
        group_size=group_size,
        release="last",
    )


def noisy_moments(
    run: Run, rows: Dense | Source, *, feature_norm: float, randomness: Randomness
) -> FloatArray:
    """Return the symmetric matrix of averaged second moments, with the noise that ``run`` says.

    ``rows`` is a matrix, or a source of which a chunk is in memory at a time.

    Raises
    ------
    InvalidInput
        If the run does not describe this release, a row is longer than ``feature_norm``, or there
        are more than ``MOST_ROWS``.
    """
    check_sum_of_squares(run.n)
    if isinstance(rows, np.ndarray):
        check_features(rows)
        _check_describes(run, len(rows), feature_norm)
        total = moment_units(rows, feature_norm)
    else:
        _check_describes(run, run.n, feature_norm)
        total = _units_of_source(rows, run.n, feature_norm)
    return with_noise(run, total, feature_norm=feature_norm, randomness=randomness)


def check_sum_of_squares(n: int) -> None:
    """Refuse more rows than are added up without overflow."""
    if n > MOST_ROWS:
        raise InvalidInput(
            f"second moments are added up exactly for at most {MOST_ROWS:,} rows; got n = {n:,}: "
            "whitening='never' does without these"
        )


def with_noise(
    run: Run, total: IntArray, *, feature_norm: float, randomness: Randomness
) -> FloatArray:
    """Return the averaged moments with noise, from the sums of :func:`moment_units`."""
    n, p, unit = run.n, len(total), _unit(feature_norm)
    slack = 2 * NORM_ROOM + (p + 4) * 2.0**-50 + n * 2.0**-50
    noise = noise_std_of(run) * (1 + slack) * _symmetric_noise(p, randomness)
    moments: FloatArray = total.astype(np.float64) * (unit**2 / n) + noise
    return moments


def moment_units(rows: Dense, feature_norm: float) -> IntArray:
    """Return the sum of x x^T over rows of at most that norm, in whole squared units."""
    p = rows.shape[1]
    total = np.zeros((p, p), dtype=np.int64)
    for part in blocks(len(rows), 8 * p):
        # A copy: what is checked must be what is summed.
        block = np.array(rows[part], dtype=np.float64, order="C")
        check_norms(row_norms(block), block, feature_norm, first=part.start)
        total += _product(np.trunc(block / _unit(feature_norm)))
    return total


def _units_of_source(source: Source, n: int, feature_norm: float) -> IntArray:
    total: Any = 0
    seen = 0

    def units(rows: Any, targets: Any) -> tuple[IntArray, int]:
        return moment_units(rows, feature_norm), len(targets)

    for some, count in over_parts(source, units):
        total = total + some
        seen += count
    check_count(source, seen, n)
    if not seen:
        raise InvalidInput("the source holds no records at all")
    return np.asarray(total)


def _unit(feature_norm: float) -> float:
    return math.ldexp(1.0, math.frexp(feature_norm)[1] - BITS)


def noise_std_of(run: Run) -> float:
    """Return the deviation of the noise on the diagonal of the averaged moments."""
    return float(values_over(run.noise_std, 1)[0])


def _product(units: FloatArray) -> Any:
    """Return the sum of outer products of rows of whole numbers below 2^BITS, exactly."""
    products = np.zeros((units.shape[1],) * 2, dtype=np.int64)
    for start in range(0, len(units), ROWS_IN_DOUBLES):
        rows = units[start : start + ROWS_IN_DOUBLES]
        products += (rows.T @ rows).astype(np.int64)
    return products


def _symmetric_noise(p: int, randomness: Randomness) -> FloatArray:
    noise = np.zeros((p, p))
    noise[np.triu_indices(p, 1)] = randomness.gaussian(p * (p - 1) // 2) * math.sqrt(0.5)
    noise += noise.T
    noise[np.diag_indices(p)] = randomness.gaussian(p)
    return noise


def releases_sums(run: Run, steps: int) -> bool:
    """Return whether what so many steps do is to add Gaussian noise to sums over all records."""
    whole = isinstance(run.batches, FullBatch) and run.steps == steps and run.l2 == 0
    plain = run.is_plain and run.domain is None and run.noise_kind == "gaussian"
    return whole and plain and run.learning_rate == 1


def _check_describes(run: Run, n: int, feature_norm: float) -> None:
    held = feature_norm**2
    if not releases_sums(run, 1) or run.n != n:
        raise InvalidInput(
            f"{run.kind} does not describe second moments of {n} rows: use moments_run(n={n}, ...)"
        )
    if run.loss is None or not held <= run.loss.lipschitz:
        raise InvalidInput(
            f"second moments of rows of norm {feature_norm:g} are up to {held:g} long; describe "
            "them with moments_run(feature_norm=...)"
        )
