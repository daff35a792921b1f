"""Amplification by mixing and diffusion: the Rényi statement that contraction is compared with."""

from __future__ import annotations

from dplateau.algorithms import OnePass, Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.iteration import (
    CONTRACTION,
    geometry_assumptions,
    has_schedule,
    why_no_deterministic_contraction,
)
from dplateau.bounds.one_use import common_map
from dplateau.curves import ConcentratedCurve
from dplateau.errors import InvalidInput


class MixingRdp(Bound):
    """D_alpha <= alpha kappa_i, kappa_i = (s^2 / (2 nu^2)) c^(m+1) / m with m = n - i later steps.

    kappa_n = s^2 / (2 nu^2) for the last record, whose claim stands for the data set. The shift
    program has 1 / sum_{j<=m} c^(-2j) in place of c^(m+1) / m, which is never larger, and keeps the
    Gaussian curve: this bound never wins and is shown for comparison.
    """

    name = "mixing_rdp"
    note = "docs/theory/renyi_competitors.md"
    title = "Amplification by mixing, as Rényi"
    citation = literature.balle_mixing("Theorem 5, as in Asoodeh et al. 2020, Proposition 1")
    dominated_by = ("one_pass_contraction",)
    hidden_state = True

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive single pass, if so."""
        if isinstance(run.batches, OnePass) and has_schedule(run):
            return "needs the same learning rate and noise at every step; yours has a schedule"
        return why_no_deterministic_contraction(run, OnePass, nonconvex=False)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the last record's rate."""
        return {"losses": CONTRACTION, "rate": self._rate(run, 0)}

    def curve(self, run: Run, witness: Witness) -> ConcentratedCurve:
        """Return the last record's curve."""
        if witness["losses"] != CONTRACTION:
            raise InvalidInput(f"this theorem is not about losses that are {witness['losses']!r}")
        return ConcentratedCurve(self._rate(run, 0))

    def record_curve(self, run: Run, position: int) -> ConcentratedCurve:
        """Return the curve of a record in the batch ``position`` (from 0)."""
        return ConcentratedCurve(self._rate(run, run.steps - 1 - position))

    def _rate(self, run: Run, later: int) -> float:
        eta, nu = run.learning_rate, run.iterate_std
        assert isinstance(eta, float)
        assert isinstance(nu, float)
        assert run.loss is not None
        step = run.neighbor_factor * eta * run.loss.lipschitz / run.batch_size
        contraction = common_map(run).contraction(eta)  # of the steps after the record's own
        assert contraction is not None
        hidden: float = contraction.c ** (later + 1) / later if later else 1.0
        return (step / nu) ** 2 / 2 * hidden * (1 + 1e-14)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the geometry that was declared and checked."""
        return geometry_assumptions(run, (CONTRACTION,), bounded=False)
