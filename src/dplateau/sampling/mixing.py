"""Mixing: after how many steps a chain has forgotten where it started, and the claim on paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dplateau.algorithms import Run, run_from_dict
from dplateau.algorithms.stated import loss_of, rate_and_noise
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption
from dplateau.bounds.step_maps import classes_in_words
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.progress import counting
from dplateau.ground.sealed import MIXING, Kind, Sealed, Stamp
from dplateau.ground.shown import Shown, rounded_down, rounded_up
from dplateau.ground.types import FloatArray, IntArray
from dplateau.numerics.normal import log_gaussian_delta
from dplateau.numerics.solve import exp_up, log_add_exp, round_up
from dplateau.sampling.blocks import (
    MOST_STEPS,
    Partition,
    Proposals,
    StepLaw,
    even,
    log_tv,
    shortest,
    step_law,
)
from dplateau.shifts import ShiftPlan, evaluate, solve

if TYPE_CHECKING:
    from dplateau.verify import MixingVerification

CITATIONS = (
    literature.bravo("Theorem 3.4 and section 4, by Gaussian trade-offs instead of Pinsker"),
    literature.this_library("docs/theory/mixing.md"),
)


@dataclass(frozen=True, repr=False)
class MixingCertificate(Shown, Sealed):
    """After ``run.steps`` steps, chains from any two starts are ``claimed_tv`` apart at most.

    The distance is total variation. It bounds the distance to the chain's stationary law as well,
    which exists and is unique because the claim is below one. ``witness`` holds the blocks, each
    with the shift plan that proves its factor; :meth:`verify` re-derives the claim without the code
    that found it.
    """

    kind: ClassVar[Kind] = MIXING
    run: Run
    claimed_tv: float
    witness: Mapping[str, Any]
    assumptions: tuple[Assumption, ...]
    stamp: Stamp = field(default_factory=Stamp.now, compare=False)

    @property
    def steps(self) -> int:
        """Number of steps after which the claim holds (and ever after)."""
        return self.run.steps

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """The blocks as (how many, of how many steps)."""
        return tuple((block["count"], block["steps"]) for block in self.witness["blocks"])

    def citation(self) -> str:
        """Return BibTeX of what to cite for this claim."""
        return "\n".join(citation.bibtex() for citation in CITATIONS)

    def verify(self, *, seconds: float | None = None) -> MixingVerification:
        """Re-derive the claim by code that shares nothing with the code that found it.

        After ``seconds`` of processor time (10 unless told otherwise) it is given up.
        """
        from dplateau.verify import SECONDS, verify_mixing

        return verify_mixing(self.to_dict(), seconds=SECONDS if seconds is None else seconds)

    def _content(self) -> dict[str, Any]:
        return {
            "claim": {"total_variation": self.claimed_tv, "steps": self.steps},
            "run": self.run.to_dict(),
            "witness": dict(self.witness),
            "assumptions": [a.to_dict() for a in self.assumptions],
            "citation": "; ".join(citation.short() for citation in CITATIONS),
        }

    @classmethod
    def _read(cls, content: dict[str, Any], stamp: Stamp) -> MixingCertificate:
        try:
            claimed = content["claim"]["total_variation"]
            return cls(
                run=run_from_dict(content["run"]),
                claimed_tv=checks.nonnegative("total_variation", claimed),
                witness=dict(content["witness"]),
                assumptions=tuple(Assumption(**item) for item in content["assumptions"]),
                stamp=stamp,
            )
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"not a whole mixing certificate: {error}") from None

    def __str__(self) -> str:
        """Show the claim in one line."""
        parts = " and ".join(f"{count} of {steps}" for count, steps in self.blocks)
        sizes = f"{parts} steps" if sum(count for count, _ in self.blocks) > 1 else "one"
        return (
            f"total variation at most {rounded_up(self.claimed_tv, 4)} after {self.steps} steps "
            f"from any start (blocks: {sizes})"
        )


# Proposed curves are the optimum up to rounding; this margin is far above it.
_ROOM = 1e-9
_MARGIN = 1 + _ROOM
_LARGEST_RATE, _SMALLEST_RATE = 1e12, 1e-12


@counting("looking for a proof")
def certify_mixing(
    run: Run, *, tv: float | None = None, steps: int | None = None
) -> MixingCertificate:
    """Return how many steps bring any two starts within ``tv``, or how close ``steps`` bring them.

    State one of the two; with neither, the number of steps is the run's own. The distance is total
    variation between the laws of two chains from any two points of the body, hence also to the
    chain's own stationary law.

    Parameters
    ----------
    run
        A projected Langevin chain, or projected noisy SGD.
    tv
        How close the laws of two chains have to come, in total variation.
    steps
        How many steps are taken.

    Returns
    -------
    MixingCertificate
        Steps and total variation, with the proof.

    Raises
    ------
    InvalidInput
        If both are stated.
    NotApplicable
        If no theorem covers the run; the text names what would help.

    Examples
    --------
    >>> from dplateau import Body, LossGeometry, ProjectedLangevin
    >>> run = ProjectedLangevin(steps=1, learning_rate=0.01, domain=Body(diameter=1.0),
    ...     loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0), release="last")
    >>> certify_mixing(run, tv=0.01).steps
    151
    """
    if tv is not None and steps is not None:
        raise InvalidInput(f"state one of tv={tv!r} and steps={steps!r}, not both")
    law = step_law(run)
    if not law.is_constant:
        return _scheduled(run, law, tv, steps)
    if tv is None:
        count = run.steps if steps is None else checks.whole("steps", steps)
        return _made(run, law, even(Proposals(law), count))
    return _reaching(run, law, checks.probability("tv", tv))


@counting("bounds over steps")
def tv_over_steps(run: Run, steps: Sequence[int] | IntArray) -> FloatArray:
    """Return a bound on the total variation after each number of steps (equal steps only).

    Parameters
    ----------
    run
        A chain of equal steps.
    steps
        Numbers of steps.

    Returns
    -------
    FloatArray
        A total variation for each of them.

    Raises
    ------
    NotApplicable
        If the run has a schedule.
    """
    law = step_law(run)
    if not law.is_constant:
        raise NotApplicable("a curve over the steps needs equal steps; yours has a schedule")
    proposals = Proposals(law)
    counts = [checks.whole("steps", int(count)) for count in steps]
    logs = [log_tv(proposals, even(proposals, count)) for count in counts]
    return np.minimum(1.0, np.exp(logs) * _MARGIN)


def block_tv_over_steps(run: Run, steps: Sequence[int] | IntArray) -> FloatArray:
    """Return the same with one block: 2 Phi(mu_T / 2) - 1, without multiplying over blocks."""
    proposals = Proposals(step_law(run))
    return np.minimum(1.0, np.exp(proposals.log_tv(np.asarray(steps, dtype=np.int64))) * _MARGIN)


@counting("looking for a learning rate")
def largest_learning_rate(run: Run) -> float:
    """Return the largest learning rate up to which a certificate exists for this run.

    Infinite if every learning rate has one, 0 if none has. Convex smooth potentials are at their
    best up to 2 / (smoothness + l2), where steps do not expand distances; beyond it a certificate
    exists as long as the body is small enough for the noise.

    Parameters
    ----------
    run
        The chain whose learning rate is varied.

    Returns
    -------
    float
        The learning rate.

    Raises
    ------
    NotApplicable
        If the run states no geometry, or random batches that no bound covers.
    """
    if _covered(run, _LARGEST_RATE):
        return math.inf
    # From above: tiny rates are refused too, when they need too many steps.
    high = _LARGEST_RATE
    while not _covered(run, high / 4):
        high /= 4
        if high < _SMALLEST_RATE:
            return 0.0
    low = high / 4
    while high / low > 1 + 1e-7:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _covered(run, middle) else (low, middle)
    return low


def nonexpansive_learning_rate(run: Run) -> float | None:
    """Return 2 / (smoothness + l2), up to which steps of a convex smooth potential never expand.

    None for potentials that are not convex and smooth.
    """
    law = step_law(run)
    known = law.step_map.loss
    if not known.convex or math.isinf(known.smoothness):
        return None
    return 2 / (known.smoothness * law.step_map.most_fraction + run.l2)


def _covered(run: Run, rate: float) -> bool:
    try:
        law = step_law(_with_rate(run, rate))
    except NotApplicable:
        return False
    return shortest(Proposals(law), math.log(0.5)) is not None


def _with_rate(run: Run, rate: float) -> Run:
    """Return the run at another learning rate; Langevin noise that was stated follows it."""
    if run.noise.name != "iterate_std" or run.kind == "ProjectedLangevin":
        return run.replace(learning_rate=rate)
    before, std = rate_and_noise(run)
    std *= math.sqrt(rate / before)
    return run.replace(learning_rate=rate, iterate_std=std)


def _reaching(run: Run, law: StepLaw, tv: float) -> MixingCertificate:
    proposals = Proposals(law)
    goal = math.log(tv)
    partition = _shortest(run, proposals, goal)
    # Proposals are right up to rounding, so a goal a little below the target meets it.
    margin = 1e-11 + 1e-14 * partition.length * abs(goal)
    while True:
        certificate = _made(run, law, _shortest(run, proposals, goal - margin))
        if certificate.claimed_tv <= tv:
            return certificate
        margin *= 10


def proposed_steps(run: Run, tv: float) -> int:
    """Return about how many steps a certificate will need, without making it."""
    return _shortest(run, Proposals(step_law(run)), math.log(tv)).steps


def _shortest(run: Run, proposals: Proposals, goal: float) -> Partition:
    partition = shortest(proposals, goal)
    if partition is None:
        raise NotApplicable(_why_vacuous(run, proposals.law))
    return partition


def _why_vacuous(run: Run, law: StepLaw) -> str:
    rate = law.stretches[0][0]
    allowed = largest_learning_rate(run)
    advice = (
        f"the largest learning rate that has a certificate here is {rounded_down(allowed)}"
        if 0 < allowed < rate
        else "no learning rate has one: the body is too large for what is known of the potential"
    )
    return (
        f"no theorem shows mixing within {MOST_STEPS:.0e} steps at learning_rate={rate:g} on a "
        f"body of diameter {law.diameter:g} ({', '.join(law.losses)}); {advice}"
    )


def _scheduled(run: Run, law: StepLaw, tv: float | None, steps: int | None) -> MixingCertificate:
    if tv is not None or (steps is not None and steps != run.steps):
        raise NotApplicable(
            f"the run has a schedule of {run.steps} steps: ask for what these give "
            "(leave out tv and steps), or use one learning rate"
        )
    return _made(run, law, Partition(run.steps, 1))


def _made(run: Run, law: StepLaw, partition: Partition) -> MixingCertificate:
    """Return the certificate of a partition: plans found here, claims re-evaluated from them."""
    sizes = [(partition.length, partition.long), (partition.length - 1, partition.short)]
    blocks = [_block(law, length, count) for length, count in sizes if count]
    witness = {"largest_batch": law.largest_batch, "blocks": blocks}
    exact = run.replace(steps=partition.steps) if law.is_constant else run
    return MixingCertificate(
        run=exact,
        claimed_tv=claimed_tv(exact, witness),
        witness=witness,
        assumptions=assumptions(exact, law, sorted({str(block["losses"]) for block in blocks})),
    )


def _block(law: StepLaw, length: int, count: int) -> dict[str, Any]:
    options = [(solve(law.chain(losses, length)), losses) for losses in law.losses]
    best, losses = min(options, key=lambda option: option[0].sum_of_squares)
    return {
        "count": count,
        "steps": length,
        "losses": losses,
        "plan": best.plan.to_dict(),
        "sum_of_squares": best.sum_of_squares,
    }


def claimed_tv(run: Run, witness: dict[str, Any]) -> float:
    """Return the total variation that a witness proves for a run, with room for other roundings."""
    law = step_law(run, witness["largest_batch"])
    total = 0.0
    covered = 0
    for block in witness["blocks"]:
        chain = law.chain(block["losses"], block["steps"])
        cost = evaluate(ShiftPlan.from_dict(block["plan"]), chain).sum_of_squares
        level = log_gaussian_delta(0.0, round_up(math.sqrt(cost)))
        if law.failure > 0:
            level = round_up(log_add_exp(level, math.log(block["steps"] * law.failure)), 8)
        # Each factor is at most one; a product of logarithms is rounded toward zero.
        total += block["count"] * min(0.0, level) * (1 - 1e-15)
        covered += block["count"] * block["steps"]
    if covered != run.steps:
        raise InvalidInput(f"the blocks cover {covered} steps; the run has {run.steps}")
    # Whoever evaluates the proof anew has no tolerance: the room is part of the claim.
    return min(1.0, exp_up(total * (1 - _ROOM)) * (1 + _ROOM))


def assumptions_of_mixing(certificate: MixingCertificate) -> tuple[Assumption, ...]:
    """Return what a certificate's claim rests on, whatever it states itself."""
    run, witness = certificate.run, certificate.witness
    losses = sorted({str(block["losses"]) for block in witness["blocks"]})
    return assumptions(run, step_law(run, witness.get("largest_batch")), losses)


def assumptions(run: Run, law: StepLaw, losses: Sequence[str]) -> tuple[Assumption, ...]:
    """Return what a mixing claim rests on."""
    kind = classes_in_words(loss_of(run), losses)
    stated = [
        Assumption(f"the potential of every record is {kind}, as declared", "declared"),
        Assumption("every iterate is projected onto the convex body of this diameter", "declared"),
        Assumption("subgradients are a fixed function of the point (and of the batch)", "declared"),
        Assumption("the noise is Gaussian, fresh at every step and independent", "by construction"),
        Assumption(
            "the distance is to the chain's own stationary law; how far that is from the target "
            "density is not part of the claim",
            "by construction",
        ),
    ]
    if law.largest_batch is not None:
        text = f"batches above {law.largest_batch} records are charged with their probability"
        stated.append(Assumption(text, "checked"))
    return tuple(stated)
