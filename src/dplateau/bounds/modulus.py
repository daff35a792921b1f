"""Losses beyond smooth and convex, for batches that are known in advance."""

from __future__ import annotations

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    refuse_batches,
)
from dplateau.bounds import literature
from dplateau.bounds.iteration import (
    CONTRACTION,
    Pattern,
    ShiftBound,
    at_position,
    every_step,
    has_schedule,
    latest_position,
    step_map,
)
from dplateau.bounds.step_maps import learning_rates, why_no_contraction, why_no_geometry


class ModulusBound(ShiftBound):
    """The shift program with phi(u) = sqrt(c u^2 + h), or with an expanding linear map.

    Nonsmooth convex, weakly smooth, nonconvex smooth and dissipative losses; lifted from Rényi
    divergences to Gaussian trade-offs with the same sum of squares (docs/theory/shift-program.md).
    """

    name = "modulus"
    note = "docs/theory/modulus.md"
    title = "Hidden state, general losses"
    citation = literature.bravo("Theorem 3.4 and section 2, lifted to GDP")

    def missing(self, run: Run) -> str | None:
        """Return why no modulus is known for the run, if so."""
        reason = _why_no_pattern(run) or why_no_geometry(run)
        if reason is not None:
            return reason
        if not self.losses(run):
            return (
                "is for losses whose steps do not contract; here the contraction that other bounds "
                "use is never worse, or nothing but lipschitz=... was declared (say convex=True, "
                "smoothness=..., holder=... or dissipativity=...)"
            )
        return None

    def pattern(self, run: Run) -> Pattern:
        """Return the uses of the most exposed record."""
        if isinstance(run.batches, Cyclic | OnePass):
            return at_position(run, latest_position(run))
        return every_step(run)

    def losses(self, run: Run) -> tuple[str, ...]:
        """Return the classes that the declared constants justify at every learning rate."""
        maps = step_map(run)
        classes = [set(maps.moduli(eta)) for eta in learning_rates(run)]
        shared = set.intersection(*classes) if classes else set()
        if why_no_contraction(run) is None:
            shared.discard(CONTRACTION)  # the contraction bounds are about these
        return tuple(sorted(shared))


def _why_no_pattern(run: Run) -> str | None:
    """Return why it is not known when the most exposed record is used, or None."""
    match run.batches:
        case Poisson() | FixedSize():
            return "is about batches known in advance; yours are random"
        case Cyclic(order="reshuffle"):
            return "covers orders that stay the same; yours is reshuffled each epoch"
        case Cyclic() | OnePass():
            if has_schedule(run):
                return "needs the same learning rate and noise at every step; yours has a schedule"
            return None
        case FullBatch():
            return None
        case _ as unknown:
            refuse_batches(unknown)
