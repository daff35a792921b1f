"""The moments accountant: Rényi divergences add up over steps."""

from __future__ import annotations

import math

import numpy as np

from dplateau.algorithms import Run
from dplateau.bounds import literature
from dplateau.bounds.base import RENYI_MARGIN, Bound, Witness
from dplateau.bounds.released import (
    Use,
    is_sampled,
    uses_of_one_record,
    uses_over_steps,
    why_no_uses,
)
from dplateau.curves import (
    LARGEST_ORDER,
    LARGEST_REAL_ORDER,
    RenyiCurve,
    conversions,
    sampled_gaussian_rdp,
)
from dplateau.ground.types import FloatArray, IntArray

_REFINEMENTS = 3
# How many lengths are converted at every order; those between them only at the orders in between.
_FULL_SEARCHES = 24
_ROUND_UP = 1 + 1e-14


class RdpComposition(Bound):
    """T times the Rényi divergence of one sampled Gaussian, converted at the best order."""

    name = "rdp_composition"
    claim_margin = RENYI_MARGIN
    note = "docs/theory/compositions.md"
    title = "RDP (moments accountant)"
    citation = literature.mironov_sampled("Theorem 4 and section 3.3")
    rates = "per step"

    def missing(self, run: Run) -> str | None:
        """Return why the steps are not Poisson-sampled Gaussians, if so."""
        if run.noise_kind != "gaussian":
            return "needs Gaussian noise; yours is Laplace (PLD composition covers it)"
        if run.neighbors == "replace" and is_sampled(run):
            return (
                "is about a record that joins or leaves a Poisson sample; for "
                "neighbors='replace' on random batches use PLD composition"
            )
        return why_no_uses(run)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the orders near the best one, after refining the grid around it."""
        orders = starting_orders(60, 24)
        values = total_rdp(run, orders)
        for _ in range(_REFINEMENTS):
            place = int(np.argmin(conversions.optimal_epsilon(orders, values, delta)))
            low, high = orders[max(0, place - 1)], orders[min(place + 1, orders.size - 1)]
            extra = np.setdiff1d(_between(low, high, 8), orders)
            values = np.concatenate([values, total_rdp(run, extra)])
            ranks = np.argsort(np.concatenate([orders, extra]))
            orders, values = np.concatenate([orders, extra])[ranks], values[ranks]
        near = np.abs(np.log((orders - 1) / (orders[place] - 1))) <= math.log(2.0)
        return {"orders": [float(a) for a in orders[near]]}

    def curve(self, run: Run, witness: Witness) -> RenyiCurve:
        """Return the summed divergences at the witness's orders."""
        orders = np.asarray(witness["orders"], dtype=float)
        return RenyiCurve(tuple(orders.tolist()), tuple(total_rdp(run, orders).tolist()))

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Scale one step's divergences, on a denser grid of orders instead of a refined one."""
        use, counts = uses_over_steps(run, steps)
        lengths, where = np.unique(counts, return_inverse=True)
        return _least_over_orders(use, lengths, delta)[where]


def total_rdp(run: Run, orders: FloatArray) -> FloatArray:
    """Return the divergence of the whole run at each order."""
    total = np.zeros_like(orders)
    for use in uses_of_one_record(run):
        total += use.count * sampled_gaussian_rdp(orders, use.sampling_rate, use.distance)
    total *= _ROUND_UP
    return total


def starting_orders(real: int, whole: int) -> FloatArray:
    """Return orders from 1.0005 to 16384, dense where the best order usually lies."""
    low = 1 + np.geomspace(5e-4, LARGEST_REAL_ORDER - 1, real)
    high = np.unique(np.round(np.geomspace(LARGEST_REAL_ORDER + 1, LARGEST_ORDER, whole)))
    return np.concatenate([low, high])


def _between(low: float, high: float, count: int) -> FloatArray:
    """Return orders between two orders, whole ones where real ones are not computed."""
    points = 1 + np.geomspace(low - 1, high - 1, count)
    return np.unique(np.where(points > LARGEST_REAL_ORDER, np.round(points), points))


def _least_over_orders(use: Use, lengths: IntArray, delta: float) -> FloatArray:
    """Return the least epsilon over orders for ``lengths`` (increasing) repeats of ``use``.

    The best order falls with the length, so it is searched in full for a few lengths, and for each
    other one between the best orders of its neighbours (any range of orders would be valid).
    """
    shown = np.unique(np.linspace(0, lengths.size - 1, _FULL_SEARCHES).round().astype(int))
    orders, _, best = _best_orders(use, starting_orders(60, 24), lengths[shown], delta)
    low, high = orders[max(best.min() - 1, 0)], orders[min(best.max() + 1, orders.size - 1)]
    orders, once, best = _best_orders(use, _between(low, high, 300), lengths[shown], delta)
    right = np.minimum(np.searchsorted(shown, np.arange(lengths.size)), shown.size - 1)
    ends = np.sort([best[np.maximum(right - 1, 0)], best[right]], axis=0)
    first, last = np.maximum(ends[0] - 1, 0), np.minimum(ends[1] + 1, orders.size - 1)
    # One flat list of (length, order) pairs: each length with its own range of orders.
    widths = last - first + 1
    starts = np.cumsum(widths) - widths
    column = np.arange(widths.sum()) - np.repeat(starts - first, widths)
    totals = np.repeat(lengths, widths) * once[column] * _ROUND_UP
    found = conversions.optimal_epsilon(orders[column], totals, delta)
    return np.minimum.reduceat(found, starts)


def _best_orders(
    use: Use, orders: FloatArray, lengths: IntArray, delta: float
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the orders, one use's divergence at each, and the best order's place per length."""
    once = sampled_gaussian_rdp(orders, use.sampling_rate, use.distance)
    found = conversions.optimal_epsilon(orders, np.multiply.outer(lengths, once), delta)
    return orders, once, found.argmin(axis=1)
