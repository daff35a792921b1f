"""One epoch in a secret random order: the average over the record's place."""

from __future__ import annotations

from dplateau.algorithms import Cyclic, Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.one_use import (
    common_map,
    knots,
    one_use,
    one_use_assumptions,
    reach_witness,
    shifts_by,
    why_not_one_use,
    why_nothing_hides,
)
from dplateau.curves import PrivacyCurve


class ShuffledPass(Bound):
    """delta(eps) = sum_j (share of the records that j steps follow) * d_j(eps).

    d_j is the best of shift program, contraction and hybrid. Up to short batches it is the average
    of :class:`RandomStopMean`: stopping at random and shuffling treat the records alike.
    """

    name = "shuffled_pass"
    note = "docs/theory/random_stop.md"
    title = "One shuffled pass, average over places"
    citation = literature.this_library("docs/theory/random_stop.md, Theorem 2")
    hidden_state = True

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass in random order, if so."""
        if not isinstance(run.batches, Cyclic) or run.batches.order == "cyclic":
            return f"is about CyclicSGD with a random order; yours is {run.described}"
        if run.steps > run.batches_per_epoch:
            return (
                f"is about one epoch ({run.batches_per_epoch} steps); yours has {run.steps} steps "
                "(shuffle_once_average and reshuffle_average cover more)"
            )
        return why_not_one_use(run, Cyclic, bounded=False) or why_nothing_hides(run)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the classes of losses, and the places that are told apart."""
        reach = reach_witness(run, common_map(run))
        return {**reach, "shifts_by": shifts_by(run), "knots": knots(run.steps)}

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the average over places; records whose turn does not come add nothing."""
        share = run.batch_size / run.n
        whole = run.steps == run.batches_per_epoch
        # Only the epoch's last batch may be shorter, and no step follows it.
        last = 1 - (run.steps - 1) * share if whole else share
        use = one_use(run, witness)
        return use.average_curve(witness["knots"], run.steps, last * (1 + 1e-12), share)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the classes of losses, and the shuffle."""
        witness = self.plan(run, 0.5)
        classes = {witness["losses"], witness["shifts_by"]} - {None}
        return (
            *one_use_assumptions(run, sorted(classes)),
            Assumption("the shuffle is uniform, secret and independent of the data", "declared"),
        )
