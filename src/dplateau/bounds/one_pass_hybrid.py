"""One pass on a bounded domain: the shift program up to some step, contraction from there on."""

from __future__ import annotations

from dplateau.algorithms import Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Witness
from dplateau.bounds.one_pass_hockey_stick import OnePassHockeyStick
from dplateau.bounds.one_use import (
    common_map,
    one_use,
    one_use_assumptions,
    reach_witness,
    shifts_by,
    why_not_one_use,
)
from dplateau.curves import PrivacyCurve


class OnePassHybrid(OnePassHockeyStick):
    """delta_i(eps) = min over k <= n - i of theta_eps(mu_k) * theta_eps(phi(D) / nu)^(n - i - k).

    mu_k is the shift program's, k steps after the record's own. k = 0 is the contraction of the
    hockey stick alone, k = n - i the shift program alone; the best k may differ from eps to eps.
    """

    name = "one_pass_hybrid"
    title = "Shifts then contraction, last record"
    citation = literature.this_library("docs/theory/contraction.md, Theorem 3")
    dominated_by = ()

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass with Gaussian noise on a bounded domain, if so."""
        reason = why_not_one_use(run)
        if reason is None and run.noise_kind != "gaussian":
            return "needs Gaussian noise; yours is Laplace (one_pass_laplace covers it)"
        return reason

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the classes of losses that serve the contraction and the shift program."""
        return {**reach_witness(run, common_map(run)), "shifts_by": shifts_by(run)}

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        """Return the curve of a record in the batch ``position`` (from 0)."""
        return one_use(run, self.plan(run, 0.5)).record_curve(run.steps - 1 - position)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the classes of losses and the domain."""
        witness = self.plan(run, 0.5)
        classes = {witness["losses"], witness["shifts_by"]} - {None}
        return one_use_assumptions(run, sorted(classes))
