"""What a theorem's checker hands back: the epsilon it derived, and how close a claim must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dplateau.algorithms import Run
from dplateau.verify.compose import Curve, Rows
from dplateau.verify.report import Ledger


@dataclass(frozen=True)
class Tolerance:
    """How far a claim may lie below or above the derived epsilon, relatively."""

    below: float
    above: float


# Closed forms in fifty digits: the rest is the rounding of a claim that was made in doubles.
CLOSED = Tolerance(below=1e-9, above=1e-6)
# Rényi divergences: an integral and a maximum, both found numerically.
RENYI = Tolerance(below=1e-8, above=1e-6)
# Compositions on a grid of losses, here and there.
COMPOSED = Tolerance(below=1e-3, above=1.5e-2)
# Below this delta a claim charges its own rounding with a visible share of delta.
TINY_DELTA = 1e-9
COMPOSED_TINY = Tolerance(below=1e-3, above=5e-2)


@dataclass(frozen=True)
class Derived:
    """The epsilon that the theorem gives with the certificate's witness.

    What else is known of the whole curve serves compositions: that it is ``mu``-GDP, that it is an
    average of products of pairs (``rows``), or an upper bound that is sharp ``near`` an (epsilon,
    delta).
    """

    epsilon: float
    tolerance: Tolerance
    how: str
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
