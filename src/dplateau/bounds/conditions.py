"""What theorems ask of a run, as data: every condition once, with the sentence of its refusal.

A bound lists the conditions that it needs, and :func:`first_unmet` turns the first one that a run
does not meet into the reason why the bound says nothing about it. Sentences name the value that was
seen and the nearest thing that works; they continue "this bound ...".

What theorems read of a run (:mod:`dplateau.algorithms.stated`) is refused with the same sentences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dplateau.algorithms import (
    AllIterates,
    Checkpoints,
    Cyclic,
    LastIterate,
    Poisson,
    RandomStop,
    Release,
    Run,
    Schedule,
    Scheme,
    refuse_release,
)
from dplateau.algorithms.stated import CHANGING_STEPS, learning_rates, loss_of
from dplateau.errors import NotApplicable
from dplateau.ground.shown import rounded_down, rounded_up

# Learning rates up to 2 / (smoothness + l2) contract; rounding must not refuse that very rate. A
# contraction a rounding above 1 is charged as it is.
_LARGEST_LEVEL = 2 * (1 + 1e-12)


class Condition(Protocol):
    """Something that a theorem needs."""

    def unmet(self, run: Run) -> str | None:
        """Return why ``run`` does not meet it, in a user's words, or None.

        What a condition has to read may be missing: then it may raise NotApplicable instead.
        """
        ...


Needs = tuple[Condition, ...]


def first_unmet(conditions: Iterable[Condition], run: Run) -> str | None:
    """Return why the run does not meet the first of the conditions that it does not meet."""
    for condition in conditions:
        try:
            reason = condition.unmet(run)
        except NotApplicable as missing:
            return str(missing)
        if reason is not None:
            return reason
    return None


def holds(condition: Condition, run: Run) -> bool:
    """Return whether the run meets the condition."""
    return first_unmet((condition,), run) is None


def _hint(otherwise: str) -> str:
    return f" ({otherwise})" if otherwise else ""


@dataclass(frozen=True)
class Asks:
    """A condition of one family of theorems, by the function that says why a run is refused."""

    why_not: Callable[[Run], str | None]

    def unmet(self, run: Run) -> str | None:
        return self.why_not(run)


# Every way to split a group between both neighbors is composed, and verified, on its own.
MOST_SPLIT = 50


def _why_too_many_to_split(run: Run) -> str | None:
    """Refuse large groups whose records each batch draws on their own."""
    if not isinstance(run.batches, Poisson) or run.group_size <= MOST_SPLIT:
        return None
    return (
        f"is about groups of at most {MOST_SPLIT} records in random batches; yours have "
        f"group_size={run.group_size}"
    )


FEW_TO_SPLIT = Asks(_why_too_many_to_split)


@dataclass(frozen=True)
class OneOf:
    """One of several lists of conditions is met in full; the best hint of them all otherwise."""

    alternatives: tuple[Needs, ...]

    def unmet(self, run: Run) -> str | None:
        reasons = [first_unmet(conditions, run) for conditions in self.alternatives]
        if None in reasons:
            return None
        # Of alternatives for other batches nothing can be learned.
        near = [reason for reason in reasons if reason and not reason.startswith("is about")]
        return (near or reasons)[0]


# ---- what leaves, and which steps make it -------------------------------------------------------


EVERYTHING_LEAVES = "needs hidden iterates (release='last'); yours releases all of them"


@dataclass(frozen=True)
class HiddenIterates:
    """Nothing but ``released`` leaves, and plain steps lead there."""

    released: Release = field(default_factory=LastIterate)

    def unmet(self, run: Run) -> str | None:
        if run.release == AllIterates():
            return EVERYTHING_LEAVES
        if run.release != self.released:
            return f"is about release={self.released.name!r}; yours is {run.release.name!r}"
        if not run.is_plain:
            return (
                "is about the last iterate of plain steps; yours has momentum or averages iterates "
                "(composition covers both)"
            )
        return None


@dataclass(frozen=True)
class AnyIterates:
    """What leaves are iterates, or what follows from them."""

    def unmet(self, run: Run) -> str | None:
        match run.release:
            case LastIterate() | AllIterates() | RandomStop() | Checkpoints():
                return None
            case _ as unknown:
                refuse_release(unknown)


@dataclass(frozen=True)
class ConstantRates:
    """Sampling rates do not change from step to step; they may differ from b / n."""

    def unmet(self, run: Run) -> str | None:
        match run.batches:
            case Poisson(rate=Schedule()):
                return (
                    "needs the same learning rate, noise and sampling rate at every step; yours "
                    "has a schedule of sampling rates (pld_composition and rdp_composition read it)"
                )
            case _:
                return None


@dataclass(frozen=True)
class RatesOfBatches:
    """Records join a batch with probability batch_size / n."""

    def unmet(self, run: Run) -> str | None:
        changing = ConstantRates().unmet(run)
        if changing is not None or not run.has_own_rate:
            return changing
        return (
            "needs records that join each batch with probability batch_size / n; yours join "
            f"with {run.sampling_rate:g} (pld_composition and rdp_composition read it)"
        )


@dataclass(frozen=True)
class ConstantSteps:
    """Learning rate and noise are the same at every step."""

    def unmet(self, run: Run) -> str | None:
        if run.has_schedule:
            return CHANGING_STEPS
        return None


@dataclass(frozen=True)
class GaussianNoise:
    """Noise is Gaussian; ``otherwise`` says what covers Laplace noise."""

    otherwise: str = ""

    def unmet(self, run: Run) -> str | None:
        if run.noise_kind == "gaussian":
            return None
        return "needs Gaussian noise; yours is Laplace" + _hint(self.otherwise)


@dataclass(frozen=True)
class LaplaceNoise:
    """Noise is Laplace; ``otherwise`` says what covers Gaussian noise."""

    otherwise: str

    def unmet(self, run: Run) -> str | None:
        if run.noise_kind == "laplace":
            return None
        return f"is about noise_kind='laplace'; yours is Gaussian ({self.otherwise})"


# ---- batches and neighbors ----------------------------------------------------------------------


@dataclass(frozen=True)
class AboutBatches:
    """Records are chosen in one of these ways; any other way is refused by name."""

    schemes: tuple[Scheme, ...]

    def unmet(self, run: Run) -> str | None:
        if isinstance(run.batches, self.schemes):
            return None
        named = " or ".join(scheme.described for scheme in self.schemes)
        return f"is about {named}; yours is {run.described}"


@dataclass(frozen=True)
class OrderIs:
    """Epochs go through the records in one of these orders."""

    orders: tuple[Literal["cyclic", "shuffle_once", "reshuffle"], ...]

    def unmet(self, run: Run) -> str | None:
        match run.batches:
            case Cyclic(order=order) if order in self.orders:
                return None
            case _:
                named = " or ".join(map(repr, self.orders))
                return f"is about CyclicSGD with order={named}; yours is {run.described}"


@dataclass(frozen=True)
class WholeEpochs:
    """A reshuffled run ends with an epoch.

    Inside one, a record may be used right after its use in the epoch before: two uses lie closer
    together than in any kept order, and the worst kept order says nothing.
    """

    def unmet(self, run: Run) -> str | None:
        match run.batches:
            case Cyclic(order="reshuffle") if run.steps % run.batches_per_epoch:
                return "needs whole epochs when each is reshuffled; yours ends inside one"
            case _:
                return None


@dataclass(frozen=True)
class NeighborsAre:
    """Neighbors differ in this way."""

    relation: Literal["add_remove", "replace"]

    def unmet(self, run: Run) -> str | None:
        if run.neighbors == self.relation:
            return None
        return f"is about neighbors={self.relation!r}; yours is {run.neighbors!r}"


# ---- the domain and the losses ------------------------------------------------------------------


@dataclass(frozen=True)
class BoundedDomain:
    """Iterates are projected onto a bounded domain; ``otherwise`` says what needs none."""

    otherwise: str = ""

    def unmet(self, run: Run) -> str | None:
        if math.isfinite(run.diameter):
            return None
        text = "needs a bounded domain: pass domain=Ball(radius=...) and project every iterate"
        return text + _hint(self.otherwise)


@dataclass(frozen=True)
class KnownSteps:
    """The learning rate and the length of gradients are declared."""

    def unmet(self, run: Run) -> str | None:
        learning_rates(run)
        if math.isinf(loss_of(run).lipschitz):
            return "needs the loss's Lipschitz constant: pass lipschitz=... (the clip norm)"
        return None


@dataclass(frozen=True)
class ConvexLosses:
    """Every record's loss is convex."""

    def unmet(self, run: Run) -> str | None:
        return None if loss_of(run).convex else "needs convex losses; yours are declared nonconvex"


@dataclass(frozen=True)
class SmoothLosses:
    """Every record's loss is smooth."""

    def unmet(self, run: Run) -> str | None:
        if math.isfinite(loss_of(run).smoothness):
            return None
        return "needs smooth losses: pass smoothness=... (logistic on rows of norm 1: 0.25)"


@dataclass(frozen=True)
class Contractive:
    """No step drives two states apart, up to batches of ``most_fraction`` times batch_size.

    With ``nonconvex`` also losses whose curvature the ridge outweighs.
    """

    most_fraction: float = 1.0
    nonconvex: bool = False

    def unmet(self, run: Run) -> str | None:
        convexity = () if self.nonconvex else (ConvexLosses(),)
        missing = first_unmet((*convexity, SmoothLosses()), run)
        if missing is not None:
            return missing
        most, loss = self.most_fraction, loss_of(run)
        share = "" if most == 1 else f" * {most:.4g} (largest batch / batch_size)"
        smoothness = loss.smoothness * most
        if not loss.convex and run.l2 < smoothness:
            return (
                f"needs convex losses, or a ridge with l2 >= smoothness{share}; yours are declared "
                f"nonconvex with l2={run.l2:.4g}; raise l2 to {rounded_up(smoothness, 4)}"
            )
        level = max(learning_rates(run)) * (smoothness + run.l2)
        if level > _LARGEST_LEVEL:
            return (
                f"needs learning_rate * (smoothness{share} + l2) <= 2; yours is "
                f"{rounded_up(level, 4)}; "
                f"lower the learning rate to {rounded_down(2 / (smoothness + run.l2), 4)}"
            )
        return None


# What most theorems about last iterates need of the description.
GEOMETRY: Needs = (GaussianNoise(), KnownSteps())
