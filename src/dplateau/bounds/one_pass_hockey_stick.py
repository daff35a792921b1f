"""One pass on a bounded domain: every later step shrinks the hockey stick by the same factor."""

from __future__ import annotations

from typing import ClassVar

from dplateau.algorithms import Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.one_use import (
    common_map,
    one_use,
    one_use_assumptions,
    reach_witness,
    why_not_one_use,
)
from dplateau.curves import PrivacyCurve


class OnePassHockeyStick(Bound):
    """delta_i(eps) = theta_eps(s / nu) * theta_eps(phi(D) / nu)^(n - i) for record i.

    s = eta Delta / b, and phi(D) is how far apart the step of a common batch leaves two points of
    the domain. The claim for the whole data set is that of the last record, which no later step
    hides; :meth:`record_curve` is where this bound pays.
    """

    name = "one_pass_hockey_stick"
    note = "docs/theory/contraction.md"
    title = "Hockey-stick contraction, last record"
    citation = literature.asoodeh_diaz_calmon("Theorem 4, any modulus")
    dominated_by: ClassVar[tuple[str, ...]] = ("one_pass_hybrid",)
    hidden_state = True

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass with Gaussian noise on a bounded domain, if so."""
        reason = why_not_one_use(run)
        if reason is None and run.noise_kind != "gaussian":
            return "needs Gaussian noise; yours is Laplace (one_pass_laplace covers it)"
        return reason

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the class of losses whose steps leave two states least apart."""
        return reach_witness(run, common_map(run))

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the last record's curve: that of its own step."""
        return one_use(run, witness).first()

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        """Return the curve of a record in the batch ``position`` (from 0)."""
        use = one_use(run, self.plan(run, 0.5))
        return use.record_curve(run.steps - 1 - position, shifts=False)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the class of losses and the domain."""
        return one_use_assumptions(run, (self.plan(run, 0.5)["losses"],))
