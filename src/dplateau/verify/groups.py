"""Claims about several records that change together, from theorems about one.

A chain of m single changes leads from one data set to the other, and every change is
(e, d)-private: so all of them are (m e, d (1 + e^e + ... + e^((m-1) e)))-private. Where the
distances of Gaussian or Laplace noise are known, m times the distance is sharper.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dplateau.algorithms import Run
from dplateau.verify.claims import CLOSED, Case, Derived, Theorem
from dplateau.verify.precise import gaussian_epsilon

_MOST_RECORDS = 10**6
# Claims may choose among fewer epsilons of one record than there are.
_EXCESS = 0.05


def gaussian_derived(mu: float, delta: float) -> Derived:
    """Return mu-GDP as an epsilon; m records that change together are m mu-GDP."""

    def stretched(size: int, level: float) -> float:
        return float(gaussian_epsilon(size * mu, level))

    how = f"{mu:.9g}-GDP, in fifty digits"
    return Derived(stretched(1, delta), CLOSED, how, stretched, mu=mu)


def group_derived(case: Case, theorem: Theorem) -> Derived:
    """Derive a claim about a group from the theorem's claim about one of its records.

    With e the share of one record in the claimed epsilon, one record must be (e, d)-private at the
    d that adds up to the claimed delta.
    """
    size = case.run.group_size
    case.ledger.require("group size", size <= _MOST_RECORDS, f"{size} records")
    share = case.epsilon / size
    log_sum = _log_geometric(share, size)
    level = case.delta * math.exp(-log_sum)
    pure = case.delta == 0
    case.ledger.require("delta of one record", pure or level > 1e-300, f"{level:.3g}")
    one = replace(case, run=_one_record(case.run), epsilon=share, delta=level)
    found = theorem(one)
    if found.stretched is not None:
        how = f"{found.how}, at {size} times the distance"
        mu = None if found.mu is None else size * found.mu
        return Derived(found.stretched(size, case.delta), found.excess, how, mu=mu)
    how = f"{found.how}, for each of {size} records at delta {level:.3g}"
    return Derived(size * found.epsilon, max(found.excess, _EXCESS), how)


def _one_record(run: Run) -> Run:
    """Return the run of any single change: absent records take their curvature with them."""
    loss = run.loss
    if loss is not None and run.neighbors == "add_remove":
        loss = replace(loss, strong_convexity=0.0, dissipativity=None)
    return run.replace(group_size=1, loss=loss)


def _log_geometric(epsilon: float, size: int) -> float:
    """Return log(1 + e^eps + ... + e^((size - 1) eps)), rounded up."""
    if epsilon * size < 1e-9:
        return math.log(size) + epsilon * size
    return (
        (size - 1) * epsilon
        + math.log(-math.expm1(-size * epsilon))
        - math.log(-math.expm1(-epsilon))
        + 1e-12
    )
