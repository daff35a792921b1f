"""What a theorem's checker hands back: the epsilon it derived, and how far above a claim may lie.

No claim may lie below: whoever makes one leaves room for evaluating its proof in another way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dplateau.algorithms import Run
from dplateau.verify.compose import Curve, Rows
from dplateau.verify.report import Ledger

# How far a claim may lie above the derived epsilon, relatively, and still be this proof's own.
# Closed forms in fifty digits: the rest is the rounding of a claim that was made in doubles.
CLOSED = 1e-6
# Rényi divergences: an integral and a maximum, both found numerically.
RENYI = 1e-5
# Compositions on a grid of losses, here and there.
COMPOSED = 1.5e-2
# Below this delta a claim charges its own rounding with a visible share of delta.
TINY_DELTA = 1e-9
COMPOSED_TINY = 5e-2


@dataclass(frozen=True)
class Derived:
    """The epsilon that the theorem gives with the certificate's witness.

    What else is known of the whole curve serves compositions: that it is ``mu``-GDP, that it is an
    average of products of pairs (``rows``), or an upper bound that is sharp ``near`` an (epsilon,
    delta).
    """

    epsilon: float
    excess: float
    how: str
    # Epsilon at a delta if every distance were so many times as long, where that is known: a group
    # moves the centre of Gaussian and Laplace noise as often as it has records.
    stretched: Callable[[int, float], float] | None = None
    mu: float | None = None
    rows: Rows | None = None
    near: Callable[[float, float], Curve] | None = None


@dataclass(frozen=True)
class Case:
    """One certificate under examination: the run, its witness and claim, and the checks so far."""

    run: Run
    witness: dict[str, Any]
    epsilon: float
    delta: float
    ledger: Ledger


Theorem = Callable[[Case], Derived]
