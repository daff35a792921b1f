"""Exact composition of Gaussian uses without sampling."""

from __future__ import annotations

import math

from dplateau.algorithms import Run
from dplateau.bounds import literature
from dplateau.bounds.base import Bound, Witness
from dplateau.bounds.released import (
    for_each_count,
    is_sampled,
    uses_of_one_record,
    uses_over_steps,
    why_no_uses,
)
from dplateau.curves import GaussianCurve, PrivacyCurve
from dplateau.ground.types import FloatArray, IntArray


class GdpComposition(Bound):
    """mu = sqrt(sum of squared distances over the record's uses)."""

    name = "gdp_composition"
    note = "docs/theory/compositions.md"
    title = "GDP composition"
    citation = literature.dong_roth_su("Corollary 3.3")
    rates = "per step"

    def missing(self, run: Run) -> str | None:
        """Return why the uses are not plain Gaussians, if so."""
        if run.noise_kind != "gaussian":
            return "needs Gaussian noise; yours is Laplace (PLD composition covers it)"
        if is_sampled(run):
            return (
                "needs records that join every batch they are due in; random batches make "
                "mixtures, which are no Gaussian (PLD composition covers them)"
            )
        return why_no_uses(run)

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the composed Gaussian."""
        total = math.fsum(use.count * use.distance**2 for use in uses_of_one_record(run))
        return GaussianCurve(math.sqrt(total) * (1 + 1e-15))

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Return the Gaussian curve at distance * sqrt(T)."""
        use, counts = uses_over_steps(run, steps)
        mu = use.distance * (1 + 1e-15)
        return for_each_count(counts, lambda n: GaussianCurve(mu * math.sqrt(n)).epsilon(delta))
