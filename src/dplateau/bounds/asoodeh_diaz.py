"""The plateau of any Lipschitz losses on a bounded domain, in closed form."""

from __future__ import annotations

import math

from dplateau.algorithms import FixedSize, Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness, why_not_about
from dplateau.bounds.iteration import geometry_assumptions, has_schedule
from dplateau.bounds.step_maps import why_no_geometry
from dplateau.curves import ClosedRecursionCurve


class AsoodehDiazClosed(Bound):
    """eps = m^2/2 + m sqrt(2 ln(1 + b (1 - delta)/(n delta))), m = (D + 2 eta L)/(eta sigma).

    Whatever the losses, a step leaves two states of the domain at most D + 2 eta L apart, so each
    step brings the two laws together by a factor theta(m) and adds at most q theta(m).
    """

    name = "asoodeh_diaz_closed"
    note = "docs/theory/published.md"
    title = "Any Lipschitz losses, closed plateau"
    citation = literature.asoodeh_diaz("Theorem 2, as (24) of Bravo et al.")
    hidden_state = True

    def missing(self, run: Run) -> str | None:
        """Return why the run is no fixed-size descent on a bounded domain, if so."""
        about = why_not_about(run, FixedSize)
        if about is not None:
            return about
        if has_schedule(run):
            return "needs the same learning rate and noise at every step; yours has a schedule"
        if math.isinf(run.diameter):
            return "needs a bounded domain: pass domain=Ball(radius)"
        return why_no_geometry(run)

    def curve(self, run: Run, witness: Witness) -> ClosedRecursionCurve:
        """Return the closed form; the ridge scales the distance by |1 - eta l2|."""
        eta, nu, lipschitz = run.learning_rate, run.iterate_std, run.lipschitz
        assert isinstance(eta, float)
        assert isinstance(nu, float)
        assert lipschitz is not None
        reach = abs(1 - eta * run.l2) * run.diameter + 2 * eta * lipschitz
        return ClosedRecursionCurve(reach / nu * (1 + 1e-14), run.sampling_rate)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return that the domain is kept."""
        return geometry_assumptions(run, ("Lipschitz",), bounded=True)
