"""Sums of gradients in fixed point, so that one record moves a sum by its own share and no more.

A sum of n floating-point numbers is rounded n times, and each rounding depends on all the numbers
before it: a record that joins moves the computed sum by its gradient *and* by what it changes in
the roundings of all others. In single precision that is most of a percent of L at n = 100,000. So
the engines add in fixed point. Every gradient's coordinates are rounded to whole units of h, a
power of two, and whole units are added without any error, in whatever order, tile, thread or chunk:
in doubles while a sum stays below 2^53 units, then in 64-bit integers.

**Bound.** Let S be the computed sum over a batch of at most n records, p the number of weights (d
columns times k scores), X the bound on rows, u = 2^-53, and a = min(44, 62 - ceil(log2 n)) the BITS
of a gradient: h <= 2 L / 2^a.

1. A row passes if its computed norm, which is right to (d + 2) u, is at most X (1 + 1e-9). Slopes
   are cut to L / X, or to a little less than clip / |x|, at a cost of (k + 6) u for k slopes of a
   record. So a gradient before it is rounded to units is at most
   L (1 + 1e-9 + (d + k + 12) u) long.
2. S is exactly the sum of round_h(g_i), and g_i is a function of record i and of the weights alone,
   wherever the record stands and whoever stands beside it: no library's matrix product is used,
   since those choose their order by the size of the matrix and the place in it. (A derivative of a
   user's own is asked to treat scores one by one.) Rounding p coordinates moves a vector by at most
   sqrt(p) h / 2.
3. S as one double is off by n u L, for each neighbor. Noise is added to that number first, so all
   that follows is computed from what composition lets out.

Together a record moves the sum by at most L (1 + slack) with

    slack = 1e-9 + (d + k + 12) u + 2 sqrt(p) / 2^a + 2 n u,

and where one record replaces another, two gradients with two slacks count. The engine multiplies
the noise by 1 + slack: measured in the noise, a record moves the sum by at most L again, so a claim
for L and the stated noise holds for what was computed. For n = 100,000 and p = 100 the slack is
1.1e-9; it stays below 1e-6 up to n = 4e9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.engines.rows import NORM_ROOM
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray, IntArray

# Units in a gradient's length, and in a sum of all of them, as powers of two: few enough for exact
# sums in doubles (of 256 gradients) and in integers (of all).
BITS, BITS_OF_SUM = 44, 62
ROUNDING = 2.0**-53


@dataclass(frozen=True)
class Ruler:
    """The unit of a run's sums, and what is left for the noise to cover (module docstring)."""

    unit: float
    slack: float

    def units(self, total: FloatArray) -> IntArray:
        """Return a sum as whole numbers of units, the nearest ones."""
        return np.rint(total / self.unit).astype(np.int64)

    def value(self, units: IntArray) -> FloatArray:
        """Return the sum that so many units make, as the nearest double."""
        return units.astype(np.float64) * self.unit


def ruler_for(lipschitz: float, n: int, n_features: int, n_outputs: int) -> Ruler:
    """Return the ruler for sums of at most n gradients of length ``lipschitz``.

    Raises
    ------
    NotApplicable
        If the gradients have no bound: no noise hides them.
    """
    if not math.isfinite(lipschitz):
        raise NotApplicable(
            f"training needs a finite Lipschitz constant; the loss has {lipschitz:g}: "
            "pass clip=... and describe the run with loss.geometry(feature_norm, clip)"
        )
    bits = min(BITS, BITS_OF_SUM - math.ceil(math.log2(n)))
    # frexp: the power of two is above L, by a factor of at most 2, and above a gradient in doubles.
    largest = math.ldexp(1.0, math.frexp(lipschitz)[1])
    slack = (
        NORM_ROOM
        + (n_features + n_outputs + 12) * ROUNDING
        + 2 * math.sqrt(n_features * n_outputs) / 2**bits
        + 2 * n * ROUNDING
    )
    return Ruler(unit=largest / 2**bits, slack=slack)
