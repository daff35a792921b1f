"""Whitening: rows turned and stretched by noisy second moments, until all directions are alike.

At convergence the noise in a score grows with tr(C) tr(C^-1), C being the second moments of the
rows: least when C is white. The moments are released with noise first
(:mod:`dplateau.engines.moments`); all that is done with them here is post-processing. A row that
comes out longer than the radius is shortened to it, and all rows are divided by the radius, so that
the loss, its constants, the learning rate and the noise of the run that follows do not depend on
what the moments were: its certificate was made before anyone saw them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.engines import Randomness
from dplateau.engines.kernels import scores_of
from dplateau.engines.moments import noise_std_of, noisy_moments
from dplateau.engines.rows import Dense, Sparse, blocks, row_norms, scale_rows
from dplateau.ground.types import FloatArray
from dplateau.planning import Plan


@dataclass(frozen=True, eq=False)
class Whitening:
    """One round: x becomes matrix^T x, shortened to norm at most 1."""

    matrix: FloatArray

    def rows(self, rows: Dense) -> Dense:
        """Return every row after the map, of norm at most 1 exactly."""
        mapped = np.empty((len(rows), self.matrix.shape[1]), dtype=rows.dtype)
        turning = np.ascontiguousarray(self.matrix.T)
        for part in blocks(len(rows), 16 * self.matrix.shape[0]):
            # Each row by itself: what it becomes must not depend on the rows beside it.
            turned = scores_of(np.ascontiguousarray(rows[part], dtype=np.float64), turning)
            mapped[part] = scale_rows(turned.astype(rows.dtype), 1.0)
        return mapped

    def shares(self, turned: FloatArray) -> FloatArray:
        """Return by how much rows that the matrix has already turned are shortened."""
        return np.asarray(1.0 / np.maximum(row_norms(turned), 1.0))


def share_before(rows: Dense, bend: float) -> FloatArray:
    """Return which share of every row lies before the bend."""
    return np.asarray(bend / np.maximum(row_norms(rows), bend))


def bent_unit(bend: float) -> float:
    """Return the unit in which both parts, up to bend and 1 - bend long, make a row of norm 1."""
    return 1 / math.hypot(bend, 1 - bend)


def bent(rows: Dense, bend: float) -> Dense:
    """Return rows of norm at most 1 twice as wide: what lies before the bend, and what lies beyond.

    A model on them has one slope for each part. Cutting rows at the bend would be cheaper, and is
    what suits columns with a few far values; but a number that really grows with the row then
    comes out flat. With both parts the data decide.
    """
    p = rows.shape[1]
    bent = np.empty((len(rows), 2 * p), dtype=rows.dtype)
    for part in blocks(len(rows), 16 * p):
        block = np.asarray(rows[part], dtype=np.float64)
        inner = block * share_before(block, bend)[:, None]
        both = np.hstack([inner, block - inner]) * bent_unit(bend)
        bent[part] = scale_rows(both.astype(rows.dtype), 1.0)
    return bent


def whitened_rows(
    rows: Dense | Sparse, chosen: Plan, randomness: Randomness
) -> tuple[Dense | Sparse, tuple[Whitening, ...]]:
    """Release the moments of a plan, one round after the other, and whiten rows by them."""
    lengths = chosen.lengths
    if lengths is None:
        return rows, ()
    rounds: list[Whitening] = []
    for planned in chosen.moments:
        norm = 1.0 if rounds else chosen.row_norm
        moments = noisy_moments(planned.run, rows, feature_norm=norm, randomness=randomness)
        rounds.append(whitening_of(moments, noise_std_of(planned.run), norm, lengths.radius))
        rows = rounds[-1].rows(rows)
    bend = lengths.bend_of_longest
    return rows if bend is None else bent(rows, bend), tuple(rounds)


def whitening_of(
    moments: FloatArray, noise_std: float, feature_norm: float, radius: float = 1.0
) -> Whitening:
    """Return the map that noisy second moments of rows of at most that norm suggest.

    With s_j the eigenvalues of the moments and lambda the size of the noise in them (the spectral
    norm of its matrix is near ``noise_std`` sqrt(2 p)), direction j is stretched by
    (max(s_j, 0) + lambda)^(-1/2). The typical squared norm after that is the number of directions
    that stand out of the noise; rows are shortened to ``radius`` times its root.
    """
    sizes, directions = np.linalg.eigh(moments)
    floor = noise_std * math.sqrt(2 * len(moments))
    stretched = directions / np.sqrt(np.maximum(sizes, 0.0) + floor)
    # Signed in the numerator: where all is noise, positive and negative ones cancel.
    standing_out = max(1.0, float(np.sum(sizes / (np.abs(sizes) + floor))))
    longest = min(radius * math.sqrt(standing_out), feature_norm / math.sqrt(floor))
    return Whitening(stretched / longest)
