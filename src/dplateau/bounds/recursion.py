"""Random batches on a bounded domain: a recursion of the hockey stick over the steps.

It has a finite limit whatever the losses (docs/theory/recursion.md), and a closed form of that
limit was published for batches of one size.
"""

from __future__ import annotations

import math
from abc import abstractmethod

from dplateau.algorithms import FixedSize, Poisson, Run
from dplateau.algorithms.stated import equal_steps, loss_of
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.conditions import (
    GEOMETRY,
    AboutBatches,
    BoundedDomain,
    ConstantSteps,
    HiddenIterates,
    KnownSteps,
    Needs,
)
from dplateau.bounds.one_use import LIPSCHITZ, checked_reach, noise_unit, reach_witness
from dplateau.bounds.step_maps import (
    CAPPED,
    BatchCap,
    batch_cap,
    cap_of,
    capped_step_map,
    geometry_assumptions,
    tail_cap,
)
from dplateau.curves import ClosedRecursionCurve, RecursionCurve

_UP = 1 + 1e-15
_EQUAL_STEPS: Needs = (ConstantSteps(), BoundedDomain())


class SampledRecursion(Bound):
    """e_{t+1} = (1 - e_t) A + e_t B: the new leak of a step, and what it keeps of the old one.

    A = q (theta_{eps'}(s/nu) / g + (1 - 1/g) theta_{eps'}((phi(D) + s)/nu)) with e^{eps'} = g =
    1 + (e^eps - 1) / q, B = (1-q) theta_eps(phi(D)/nu) + q theta_eps((phi(D) + s)/nu), and s = eta
    Delta / b. The recursion has a finite limit: a plateau without any contraction of the steps.
    """

    note = "docs/theory/recursion.md"
    citation = literature.this_library("docs/theory/recursion.md, Theorem 1")
    release = HiddenIterates()

    @abstractmethod
    def caps(self, run: Run, delta: float) -> tuple[BatchCap, ...]:
        """Return caps on batches, of which the one with the smallest reach is taken."""

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cap on batches, and the class of losses with the smallest reach."""
        tried = [
            {
                **reach_witness(run, capped_step_map(run, cap)),
                "batch_cap": cap.records,
                "extra_delta": cap.extra_delta,
            }
            for cap in self.caps(run, delta)
        ]
        return min(tried, key=lambda witness: witness["reach"])

    def curve(self, run: Run, witness: Witness) -> RecursionCurve:
        """Return the recursion's closed form."""
        cap = cap_of(run, int(witness["batch_cap"]))
        reach = checked_reach(run, capped_step_map(run, cap), str(witness["losses"]))
        step = equal_steps(run).reach / noise_unit(run) * _UP
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
        losses = self.plan(run, 1e-9)["losses"]
        return (*geometry_assumptions(run, (losses,), contracts=False), CAPPED)


class PoissonRecursion(SampledRecursion):
    """Each record joins a batch on its own: the cap on batches costs a share of delta."""

    name = "poisson_recursion"
    title = "Poisson SGD, hockey-stick recursion"
    needs = (AboutBatches((Poisson,)), *_EQUAL_STEPS, KnownSteps())

    def caps(self, run: Run, delta: float) -> tuple[BatchCap, ...]:
        """Return the cap that spends a small share of delta, and the largest that contracts."""
        return batch_cap(run, delta), tail_cap(run, delta)


class FixedSizeRecursion(SampledRecursion):
    """Batches of one size: no batch is larger than b."""

    name = "fixed_size_recursion"
    title = "Fixed-size SGD, hockey-stick recursion"
    needs = (AboutBatches((FixedSize,)), *_EQUAL_STEPS, KnownSteps())

    def caps(self, run: Run, delta: float) -> tuple[BatchCap, ...]:
        """Return the batch size, which nothing exceeds."""
        return (cap_of(run, math.ceil(run.batch_size)),)

    def furthest(self, run: Run) -> float:
        """Return |1 - eta l2| D + 2 eta L: the record is one of the b, not one more."""
        whole = capped_step_map(run, cap_of(run, math.ceil(run.batch_size)))
        return checked_reach(run, whole, LIPSCHITZ)


class AsoodehDiazClosed(Bound):
    """eps = m^2/2 + m sqrt(2 ln(1 + b (1 - delta)/(n delta))), m = (D + 2 eta L)/(eta sigma).

    Whatever the losses, a step leaves two states of the domain at most D + 2 eta L apart, so each
    step brings the two laws together by a factor theta(m) and adds at most q theta(m).
    """

    name = "asoodeh_diaz_closed"
    note = "docs/theory/recursion.md"
    title = "Any Lipschitz losses, closed plateau"
    citation = literature.asoodeh_diaz("Theorem 2, as (24) of Bravo et al.")
    release = HiddenIterates()
    needs = (AboutBatches((FixedSize,)), *_EQUAL_STEPS, *GEOMETRY)

    def curve(self, run: Run, witness: Witness) -> ClosedRecursionCurve:
        """Return the closed form; the ridge scales the distance by |1 - eta l2|."""
        steps, lipschitz = equal_steps(run), loss_of(run).lipschitz
        reach = abs(1 - steps.eta * run.l2) * run.diameter + 2 * steps.eta * lipschitz
        return ClosedRecursionCurve(reach / steps.nu * (1 + 1e-14), run.sampling_rate)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return geometry_assumptions(run, (LIPSCHITZ,))
