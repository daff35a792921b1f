"""Random batches on a bounded domain: a recursion of the hockey stick over the steps.

It has a finite limit whatever the losses (docs/theory/recursion.md), and a closed form of that
limit was published for batches of one size.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

from dplateau.algorithms import FixedSize, Poisson, Run, Scheme
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness, why_not_about
from dplateau.bounds.iteration import geometry_assumptions, has_schedule
from dplateau.bounds.one_use import (
    LIPSCHITZ,
    checked_reach,
    noise_unit,
    one_use_assumptions,
    reach_witness,
    why_not_one_use,
)
from dplateau.bounds.step_maps import (
    BatchCap,
    batch_cap,
    cap_of,
    capped_step_map,
    tail_cap,
    why_no_geometry,
)
from dplateau.curves import ClosedRecursionCurve, RecursionCurve

_UP = 1 + 1e-15


class SampledRecursion(Bound):
    """e_{t+1} = (1 - e_t) A + e_t B: the new leak of a step, and what it keeps of the old one.

    A = q (theta_{eps'}(s/nu) / g + (1 - 1/g) theta_{eps'}((phi(D) + s)/nu)) with e^{eps'} = g =
    1 + (e^eps - 1) / q, B = (1-q) theta_eps(phi(D)/nu) + q theta_eps((phi(D) + s)/nu), and s = eta
    Delta / b. The recursion has a finite limit: a plateau without any contraction of the steps.
    """

    note = "docs/theory/recursion.md"
    citation = literature.this_library("docs/theory/recursion.md, Theorem 1")
    hidden_state = True
    scheme: ClassVar[Scheme]

    @abstractmethod
    def caps(self, run: Run, delta: float) -> tuple[BatchCap, ...]:
        """Return caps on batches, of which the one with the smallest reach is taken."""

    def missing(self, run: Run) -> str | None:
        """Return why the run is no sampled descent on a bounded domain, if so."""
        return why_not_one_use(run, self.scheme)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cap on batches, and the class of losses with the smallest reach."""
        found = [
            {
                **reach_witness(run, capped_step_map(run, cap)),
                "batch_cap": cap.records,
                "extra_delta": cap.extra_delta,
            }
            for cap in self.caps(run, delta)
        ]
        return min(found, key=lambda witness: witness["reach"])

    def curve(self, run: Run, witness: Witness) -> RecursionCurve:
        """Return the recursion's closed form."""
        cap = cap_of(run, int(witness["batch_cap"]))
        reach = checked_reach(run, capped_step_map(run, cap), witness)
        record_step = run.record_step
        assert isinstance(record_step, float)
        step = run.neighbor_factor * record_step / noise_unit(run) * _UP
        return RecursionCurve(
            noise_kind=run.noise_kind,
            sampling_rate=run.sampling_rate,
            reach=reach,
            step=step,
            far=max(step, min((reach + step) * _UP, self.furthest(run))),
            steps=run.steps,
            extra_delta=cap.extra_delta,
        )

    def furthest(self, run: Run) -> float:
        """Return how far apart steps with the record are at most, whatever the others do."""
        return math.inf

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the class of losses, and the cap on batches."""
        losses = self.plan(run, 1e-9)["losses"]
        capped = Assumption("batches above a cap are charged to delta", "checked")
        return (*one_use_assumptions(run, (losses,)), capped)


class PoissonRecursion(SampledRecursion):
    """Each record joins a batch on its own: the cap on batches costs a share of delta."""

    name = "poisson_recursion"
    title = "Poisson SGD, hockey-stick recursion"
    scheme = Poisson

    def caps(self, run: Run, delta: float) -> tuple[BatchCap, ...]:
        """Return the cap that spends a small share of delta, and the largest that contracts."""
        return batch_cap(run, delta), tail_cap(run, delta)


class FixedSizeRecursion(SampledRecursion):
    """Batches of one size: no batch is larger than b."""

    name = "fixed_size_recursion"
    title = "Fixed-size SGD, hockey-stick recursion"
    scheme = FixedSize

    def caps(self, run: Run, delta: float) -> tuple[BatchCap, ...]:
        """Return the batch size, which nothing exceeds."""
        return (cap_of(run, math.ceil(run.batch_size)),)

    def furthest(self, run: Run) -> float:
        """Return |1 - eta l2| D + 2 eta L: the record is one of the b, not one more."""
        whole = capped_step_map(run, cap_of(run, math.ceil(run.batch_size)))
        return checked_reach(run, whole, {"losses": LIPSCHITZ})


class AsoodehDiazClosed(Bound):
    """eps = m^2/2 + m sqrt(2 ln(1 + b (1 - delta)/(n delta))), m = (D + 2 eta L)/(eta sigma).

    Whatever the losses, a step leaves two states of the domain at most D + 2 eta L apart, so each
    step brings the two laws together by a factor theta(m) and adds at most q theta(m).
    """

    name = "asoodeh_diaz_closed"
    note = "docs/theory/recursion.md"
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
