"""Optimal sums of squares in closed form, for equal contractions of factor c <= 1.

Each function returns sum a^2 / nu^2 in units of (s / nu)^2, the squared mu of one step, unless it
says otherwise. They are the exact optimum up to rounding and are *not* rounded up: a claim takes
the value of a re-evaluated plan. All closed forms need c <= 1; for c > 1 they can be too small
(the line they draw would make a distance negative), and ``solve`` is the way out.
"""

from __future__ import annotations

import math

import numpy as np

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.numerics.solve import geometric_sum


def decay_rate(contraction: float) -> float:
    """Return -log c (c = 0 gives infinity)."""
    if not 0 <= contraction < math.inf:
        raise InvalidInput(f"A contraction must be finite and >= 0; got {contraction!r}.")
    return -math.log(contraction) if contraction > 0 else math.inf


def full_batch_factor(contraction: float, steps: int) -> float:
    """Return (1-c^T)(1+c) / ((1+c^T)(1-c)); T at c = 1: s acts at each of T steps from u = 0.

    The plateau (1+c)/(1-c) is reached as T grows (Bok, Su and Altschuler, arXiv 2403.00278).
    """
    rate = _require_contraction("full_batch_factor", contraction)
    _require_counts(steps=steps)
    if rate == 0:
        return float(steps)
    if math.isinf(rate):
        return 1.0
    # (1-x)/(1+x) = tanh(-log(x)/2), free of cancellation for c near 1.
    return math.tanh(rate * steps / 2) / math.tanh(rate / 2)


def cyclic_factor(contraction: float, batches: int, epochs: int, position: int) -> float:
    """Return the optimum when s acts at one position (from 0) of each of E epochs of l steps.

    The points of the minorant just before each contact lie on a concave curve, so it has at most
    one inner vertex: the last contact, unless the chord from the first contact passes below it.
    """
    rate = _require_contraction("cyclic_factor", contraction)
    _require_counts(batches=batches, epochs=epochs)
    if not 0 <= position < batches:
        raise InvalidInput(f"A position must lie in 0..{batches - 1}; got {position!r}.")
    rest = batches - position  # steps from the last contact on, its own included
    if math.isinf(rate):
        return 1.0 if rest == 1 else 0.0
    last = math.exp(-2 * rate * (rest - 1)) / geometric_sum(2 * rate, rest)
    if epochs == 1:
        return last
    span = batches * (epochs - 1)
    # Convex at the last contact iff c^l <= c^(2 rest) (1 + c^(l(E-1)) (1 - c^l)).
    bend = math.log1p(math.exp(-rate * span) * -math.expm1(-rate * batches))
    if rate * (2 * rest - batches) <= bend:
        drift = geometric_sum(rate * batches, epochs - 1)
        earlier = math.exp(-rate * (batches - 1)) * drift
        return last + earlier**2 / geometric_sum(2 * rate, span)
    drift = math.exp(-rate * (rest - 1)) * geometric_sum(rate * batches, epochs)
    return drift**2 / geometric_sum(2 * rate, rest + span)


def cyclic_worst_factor(contraction: float, batches: int, epochs: int) -> float:
    """Return the optimum of the worst position, the last of the epoch.

    For l >= 2 it equals 1 + c^(2l-2) (1-c^2)/(1-c^l)^2 (1-c^(l(E-1)))/(1+c^(l(E-1))), and
    1 + (E-1)/l at c = 1; for l = 1 it is the full batch, which is smaller than that expression.
    """
    return cyclic_factor(contraction, batches, epochs, batches - 1)


def cyclic_factors(contraction: float, batches: int, epochs: int) -> FloatArray:
    """Return the optimum for each position 0 .. l-1 of the epoch."""
    return np.array([cyclic_factor(contraction, batches, epochs, j) for j in range(batches)])


def one_pass_factor(contraction: float, records: int, record: int) -> float:
    """Return 1 / sum_{j=0}^{n-i} c^(-2j): one pass, s only at the turn of record i (from 1)."""
    _require_contraction("one_pass_factor", contraction)
    _require_counts(records=records)
    if not 1 <= record <= records:
        raise InvalidInput(f"A record must lie in 1..{records}; got {record!r}.")
    return cyclic_factor(contraction, records, 1, record - 1)


def bounded_sum_of_squares(
    contraction: float, sensitivity: float, noise_std: float, distance: float, steps: int
) -> float:
    """Return (c^R u + s (1-c^R)/(1-c))^2 / (nu^2 (1-c^(2R))/(1-c^2)): R steps from distance u.

    This one is in absolute units. At c = 1 it is (u + R s)^2 / (R nu^2).
    """
    rate = _require_contraction("bounded_sum_of_squares", contraction)
    _require_counts(steps=steps)
    start = distance * math.exp(-rate * steps) if distance else 0.0
    drift = start + sensitivity * geometric_sum(rate, steps)
    return (drift / noise_std) ** 2 / geometric_sum(2 * rate, steps)


def best_steps_from_diameter(contraction: float, sensitivity: float, diameter: float) -> float:
    """Return the real number R of steps that costs least when the runs start a diameter D apart.

    c^R = 1 - D (1-c)/s, or R = D/s at c = 1; the cost falls before it and rises after it. Where
    the cap D is active, D (1-c) <= s, so that R exists; infinity means the more the better. The
    same R holds for c > 1, since the line it draws still stays below the points of the minorant.
    """
    if sensitivity == 0:
        return math.inf
    share = diameter * (contraction - 1) / sensitivity
    if share <= -1:
        return math.inf
    if contraction == 1:
        return diameter / sensitivity
    return math.log1p(share) / -decay_rate(contraction)


def plateau(contraction: float, sensitivity: float, noise_std: float, diameter: float) -> float:
    """Return D (1+c) (2s - D(1-c)) / nu^2, the cost at that real R: 4 D s / nu^2 at c = 1.

    In absolute units. A whole number of steps costs at least this much; for D (1-c) >= s the
    domain never binds, and the plateau is that of the unconstrained run.
    """
    _require_contraction("plateau", contraction)
    reach = min(diameter, sensitivity / (1 - contraction)) if contraction < 1 else diameter
    gain = 2 * sensitivity - reach * (1 - contraction)
    return reach * (1 + contraction) * gain / noise_std**2


def _require_contraction(name: str, contraction: float) -> float:
    rate = decay_rate(contraction)
    if contraction > 1:
        raise NotApplicable(
            f"{name} needs c <= 1; got c={contraction!r}, for which it can be too small. "
            "Use dplateau.shifts.solve, which handles expanding maps."
        )
    return rate


def _require_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1 or value != int(value):
            raise InvalidInput(f"{name} must be a whole number >= 1; got {value!r}.")
