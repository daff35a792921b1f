"""Random batches on a bounded domain: a recursion of the hockey stick over the steps."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

from dplateau.algorithms import FixedSize, Poisson, Run, Scheme
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.batch_cap import BatchCap, batch_cap, cap_of, capped_step_map, tail_cap
from dplateau.bounds.one_use import (
    LIPSCHITZ,
    checked_reach,
    noise_unit,
    one_use_assumptions,
    reach_witness,
    why_not_one_use,
)
from dplateau.curves import RecursionCurve

_UP = 1 + 1e-15


class SampledRecursion(Bound):
    """e_{t+1} = (1 - e_t) A + e_t B: the new leak of a step, and what it keeps of the old one.

    A = q (theta_{eps'}(s/nu) / g + (1 - 1/g) theta_{eps'}((phi(D) + s)/nu)) with e^{eps'} = g =
    1 + (e^eps - 1) / q, B = (1-q) theta_eps(phi(D)/nu) + q theta_eps((phi(D) + s)/nu), and s = eta
    Delta / b. The recursion has a finite limit: a plateau without any contraction of the steps.
    """

    note = "docs/theory/sampled_recursion.md"
    citation = literature.this_library("docs/theory/sampled_recursion.md, Theorem 1")
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
