"""Binomial bounds, and confidence regions for two rates at once.

A region for the pair (P, Q) collects all pairs that the counts do not rule out. Under (P, Q) the
two one-sided tail probabilities of the counts are independent and no smaller than uniform ones, so
minus the logarithm of their product exceeds the quantile of a Gamma(2) law no more often than
stated (Fisher's combination of tests). The region is bounded by Clopper-Pearson bounds whose levels
have a fixed product: it cuts off the corner that a rectangle of two separate bounds would add,
in which both counts are unlikely at once. That is worth about two thirds more runs.
"""

from __future__ import annotations

import numpy as np

from dplateau.ground.types import FloatArray, IntArray

# Thresholds in an audit. Their events are nested, so that more of them find little more, while
# each makes the others a little less sharp.
THRESHOLDS = 16
# Corners that stand for the boundary of a region. Fewer enclose a larger region: safe, less sharp.
CORNERS = 24

# Counts, or rates, on the data and on the neighbour.
Hits = tuple[IntArray, IntArray]
Corners = tuple[FloatArray, FloatArray]


def least_rates(hits: IntArray, runs: int, level: float) -> FloatArray:
    """Return Clopper-Pearson lower bounds, each too high with probability at most ``level``."""
    from scipy.special import betaincinv

    counts, where = np.unique(hits, return_inverse=True)
    bounds = np.zeros(counts.shape)
    some = counts > 0
    bounds[some] = betaincinv(counts[some], runs - counts[some] + 1, level)
    return bounds[where].reshape(np.shape(hits))


def most_rates(hits: IntArray, runs: int, level: float) -> FloatArray:
    """Return Clopper-Pearson upper bounds, each too low with probability at most ``level``."""
    return 1.0 - least_rates(runs - np.asarray(hits), runs, level)


def level_of_each(confidence: float) -> float:
    """Return the error that one threshold's region may have: the audit's own, shared (Bonferroni).

    The usual band for a whole distribution function (Dvoretzky, Kiefer and Wolfowitz) is as wide in
    the tails as in the middle. With a few thresholds, binomial bounds at shared levels are as good
    in the middle and far better in the tails, where small deltas are decided.
    """
    return (1.0 - confidence) / THRESHOLDS


def region_corners(hits: Hits, runs: int, level: float, count: int = CORNERS) -> Corners:
    """Return corners (P, Q), along the first axis, of a staircase that encloses the region.

    ``hits`` holds the counts whose rates P and Q are. Whatever is true lies, but with probability
    ``level``, above P and below Q of some corner.
    """
    from scipy.special import gammainccinv

    # The levels of the two bounds multiply to exp(-total).
    total = float(gammainccinv(2.0, level))
    shares = np.arange(1, count + 1) / count
    least = [least_rates(hits[0], runs, float(np.exp(-total * share))) for share in shares]
    # One step of the staircase back, so that no pair between two corners is left out.
    most = [
        most_rates(hits[1], runs, float(np.exp(-total * (1 + 1 / count - share))))
        for share in shares
    ]
    return np.array(least), np.array(most)
