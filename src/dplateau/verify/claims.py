"""A certificate under examination, and what a theorem's checker hands back about it.

A claim holds if it is not below what was derived. There is no tolerance: whoever makes a claim
leaves room for evaluating its proof in another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dplateau.algorithms import Run
from dplateau.verify.composed import Curve, Rows, composed_epsilon
from dplateau.verify.precise import MP, Precise, gaussian_epsilon, up
from dplateau.verify.report import Ledger

_MOST_RECORDS = 10**6
# More than a few products and roots of doubles can be off.
ROUNDED = 1 + 1e-13


@dataclass(frozen=True)
class Case:
    """One certificate under examination: the run, its witness and claim, and the checks so far.

    ``delta`` is a double, or of fifty digits where group privacy makes it too small for one.
    """

    run: Run
    witness: dict[str, Any]
    epsilon: float
    delta: Precise
    ledger: Ledger


@dataclass(frozen=True)
class Derived:
    """The epsilon that the theorem gives with the certificate's witness, and how it was found.

    What else is known of the whole curve serves groups and compositions: epsilon at a delta if
    every distance were so many times as long (``stretched``: a group moves the center of Gaussian
    and Laplace noise as often as it has records), that it is ``mu``-GDP, that it is an average of
    products of pairs (``rows``), or upper bounds that are sharp ``near`` an (epsilon, delta).
    """

    epsilon: float
    how: str
    stretched: Callable[[int, Precise], float] | None = None
    mu: float | None = None
    rows: Rows | None = None
    near: Callable[[float, float], Curve] | None = None


Theorem = Callable[[Case], Derived]


def gaussian_derived(mu: float, delta: Precise) -> Derived:
    """Return mu-GDP as an epsilon; m records that change together are m mu-GDP."""
    mu *= ROUNDED

    def stretched(size: int, level: Precise) -> float:
        return gaussian_epsilon(size * mu, level)

    how = f"{mu:.9g}-GDP, in fifty digits"
    return Derived(stretched(1, delta), how, stretched, mu=mu)


def product_derived(case: Case, rows: Rows) -> Derived:
    """Return what an average of products of pairs gives."""
    found = composed_epsilon(rows, case.epsilon, case.delta)
    how = f"{len(rows.weights)} compositions, losses on a grid of {found.interval:.3g}"
    return Derived(found.epsilon, how, rows=rows, near=found.near)


def product_of_two_derived(case: Case, rows: Rows) -> Derived:
    """Return what it gives for two records: (1 + e^(eps/2)) delta(eps/2), each at half epsilon."""
    level = case.delta / (1 + math.exp(min(case.epsilon / 2, 600.0)))

    def of_two(curve: Curve) -> Curve:
        return lambda eps: (1 + math.exp(min(eps / 2, 700.0))) * curve(eps / 2)

    found = composed_epsilon(rows, case.epsilon, case.delta, level=level, of=of_two)
    how = f"two records, losses on a grid of {found.interval:.3g}"
    return Derived(found.epsilon, how, near=found.near)


def group_derived(case: Case, theorem: Theorem) -> Derived:
    """Derive a claim about m records that change together from the theorem's claim about one.

    A chain of m single changes leads from one data set to the other, and every change is
    (e, d)-private: so all of them are (m e, d (1 + e^e + ... + e^((m-1) e)))-private. With e the
    share of one record in the claimed epsilon, one record must be (e, d)-private at the d that adds
    up to the claimed delta. Where the distances of Gaussian or Laplace noise are known, m times the
    distance is sharper.
    """
    size = case.run.group_size
    case.ledger.require("group size", size <= _MOST_RECORDS, f"{size} records")
    share = math.nextafter(case.epsilon / size, 0.0)
    terms = MP.expm1(size * MP.mpf(share)) / MP.expm1(share) if share > 0 else size
    level = case.delta / terms
    if level > 1e-290:
        level = math.nextafter(float(level), 0.0)
    one = replace(case, run=_one_record(case.run), epsilon=share, delta=level)
    found = theorem(one)
    if found.stretched is not None:
        how = f"{found.how}, at {size} times the distance"
        mu = None if found.mu is None else size * found.mu
        return Derived(found.stretched(size, case.delta), how, mu=mu)
    how = f"{found.how}, for each of {size} records at delta {float(level):.3g}"
    # The sum of deltas is that of the share: a record that costs more proves nothing here.
    met = found.epsilon <= share
    return Derived(up(size * MP.mpf(found.epsilon)) if met else math.inf, how)


def _one_record(run: Run) -> Run:
    """Return the run of any single change: absent records take their curvature with them."""
    loss = run.loss
    if loss is not None and run.neighbors == "add_remove":
        loss = replace(loss, strong_convexity=0.0, dissipativity=None)
    return run.replace(group_size=1, loss=loss)
