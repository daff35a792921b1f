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
from dplateau.bounds.base import Witness
from dplateau.bounds.iteration import (
    Pattern,
    ShiftBound,
    at_position,
    every_step,
    has_schedule,
    latest_position,
    step_map,
)
from dplateau.bounds.step_maps import (
    learning_rates,
    linear_class,
    why_no_contraction,
    why_no_geometry,
)
from dplateau.errors import InvalidInput
from dplateau.shifts import Chain, ShiftPlan, evaluate, solve

# With a schedule each position in an epoch has its own program, about 1e-4 seconds a step.
MOST_STEPS = 20_000


def _positions(run: Run) -> int:
    """Return how many positions have to be told apart: one unless a schedule meets an order."""
    if not (isinstance(run.batches, Cyclic | OnePass) and has_schedule(run)):
        return 1
    return min(run.steps, -(-run.n // int(run.batch_size)))


class ModulusBound(ShiftBound):
    """The shift program with phi(u) = sqrt(c u^2 + h), or with an expanding linear map.

    Nonsmooth convex, weakly smooth, nonconvex smooth and dissipative losses; lifted from Rényi
    divergences to Gaussian trade-offs with the same sum of squares (docs/theory/shift-program.md).
    """

    name = "modulus"
    note = "docs/theory/modulus.md"
    title = "Hidden state, general losses"
    citation = literature.bravo("Theorem 3.4 and section 2, lifted to GDP")
    by_batch = False  # so that no schedule, no difference: the last step's record is the worst

    def missing(self, run: Run) -> str | None:
        """Return why no modulus is known for the run, if so."""
        if _positions(run) * run.steps > MOST_STEPS:
            return (
                f"solves {_positions(run)} positions of a schedule one by one, up to {MOST_STEPS} "
                f"steps together; yours are {_positions(run) * run.steps}"
            )
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
        assert run.loss is not None
        if why_no_contraction(run, nonconvex=True) is None:
            shared.discard(linear_class(run.loss))  # the contraction bounds are about these
        return tuple(sorted(shared))

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the cheapest plan, or with a schedule one plan for each position."""
        if _positions(run) == 1:
            return super().plan(run, delta)
        found = []
        for losses in self.losses(run):
            solved = [solve(chain) for chain in self._chains(run, losses)]
            found.append((max(one.sum_of_squares for one in solved), losses, solved))
        worst, losses, solved = min(found, key=lambda item: item[0])
        plans = [one.plan.to_dict() for one in solved]
        return {"losses": losses, "bounded": True, "plans": plans, "sum_of_squares": worst}

    def sum_of_squares(self, run: Run, witness: Witness) -> float:
        """Return mu^2, re-evaluated from the witness's plans."""
        if _positions(run) == 1:
            return super().sum_of_squares(run, witness)
        if witness["losses"] not in self.losses(run):
            raise InvalidInput(f"the run does not justify losses that are {witness['losses']!r}")
        chains = self._chains(run, witness["losses"])
        pairs = zip(witness["plans"], chains, strict=True)
        return max(evaluate(ShiftPlan.from_dict(p), chain).sum_of_squares for p, chain in pairs)

    def _chains(self, run: Run, losses: str) -> list[Chain]:
        places = range(_positions(run))
        return [self._chain(run, at_position(run, place), losses) for place in places]


def _why_no_pattern(run: Run) -> str | None:
    """Return why it is not known when the most exposed record is used, or None."""
    match run.batches:
        case Poisson() | FixedSize():
            return "is about batches known in advance; yours are random"
        case Cyclic(order="reshuffle"):
            return "covers orders that stay the same; yours is reshuffled each epoch"
        case Cyclic() | OnePass() | FullBatch():
            return None
        case _ as unknown:
            refuse_batches(unknown)
