"""One pass that stops after a uniformly random number of steps: all records are treated alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dplateau.algorithms import RandomStop, Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.one_use import (
    LIPSCHITZ,
    common_map,
    knots,
    one_use,
    one_use_assumptions,
    reach_witness,
    shifts_by,
    why_not_one_use,
    why_nothing_hides,
)
from dplateau.curves import PrivacyCurve, Stretch, UsedOnceCurve
from dplateau.errors import InvalidInput


class RandomStopBound(Bound):
    """What bounds for random stopping share: the average over the iterate that is released."""

    note = "docs/theory/random_stop.md"
    hidden_state = True
    hides = RandomStop()

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the class of losses, and how the run stops."""
        losses = {self.plan(run, 0.5)["losses"], self.plan(run, 0.5).get("shifts_by")} - {None}
        return (
            *one_use_assumptions(run, sorted(losses)),
            Assumption(
                "the stopping step is uniform and independent of the data; only its iterate leaves",
                "declared",
            ),
        )


class RandomStopContraction(RandomStopBound):
    """delta(eps) = theta_eps(s / nu) / T / (1 - theta_eps(phi(D) / nu)).

    The published closed form: the whole geometric series of later steps, for every record.
    """

    name = "random_stop_contraction"
    title = "Random stop, hockey-stick contraction"
    citation = literature.asoodeh_diaz_calmon("Theorem 5, any modulus")
    dominated_by = ("random_stop_mean",)

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass on a bounded domain with a modulus, if so."""
        reason = why_not_one_use(run)
        if reason is None and not self.classes(run):
            return (
                "needs a class of losses beyond lipschitz=...: say convex=True, smoothness=..., "
                "holder=... or dissipativity=... (random_stop_lipschitz needs none)"
            )
        return reason

    def classes(self, run: Run) -> Sequence[str]:
        """Return the classes of losses that may bound the reach."""
        assert isinstance(run.learning_rate, float)
        return tuple(common_map(run).moduli(run.learning_rate))

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the class of losses whose steps leave two states least apart."""
        return reach_witness(run, common_map(run), self.classes(run))

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the closed form."""
        if witness["losses"] not in self.classes(run):
            raise InvalidInput(f"this theorem is not about losses that are {witness['losses']!r}")
        use = one_use(run, witness)
        series = Stretch(after=0, distance=use.step, steps=math.inf, share=1 / run.steps)
        return UsedOnceCurve(use.noise_kind, use.reach, (series,))


class RandomStopLipschitz(RandomStopContraction):
    """The same with |1 - eta l2| D + 2 eta L in place of phi(D): any losses, convex or not."""

    name = "random_stop_lipschitz"
    title = "Random stop, Lipschitz losses"
    citation = literature.asoodeh_online("Corollary on randomly stopped SGD, any diameter")

    def classes(self, run: Run) -> Sequence[str]:
        """Return the one class of this theorem."""
        return (LIPSCHITZ,)


class RandomStopMean(RandomStopBound):
    """delta(eps) = (1/T) sum_{j<T} d_j(eps), d_j the best bound j steps after the record's own.

    d_j is the minimum of shift program, contraction and hybrid (:class:`OnePassHybrid`). The first
    record is the most exposed one: every iterate depends on it.
    """

    name = "random_stop_mean"
    title = "Random stop, average over the steps"
    citation = literature.this_library("docs/theory/random_stop.md, Theorem 1")

    def missing(self, run: Run) -> str | None:
        """Return why neither a domain nor a contraction hides a record, if so."""
        return why_not_one_use(run, bounded=False) or why_nothing_hides(run)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the classes of losses, and the steps that are told apart."""
        reach = reach_witness(run, common_map(run))
        return {**reach, "shifts_by": shifts_by(run), "knots": knots(run.steps)}

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the first record's average."""
        return self._average(run, witness, run.steps)

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        """Return the average of a record in the batch ``position`` (from 0)."""
        witness = self.plan(run, 0.5)
        count = run.steps - position
        return self._average(run, {**witness, "knots": knots(count)}, count)

    def _average(self, run: Run, witness: Witness, count: int) -> UsedOnceCurve:
        share = 1 / run.steps
        return one_use(run, witness).average_curve(witness["knots"], count, share, share)
