"""Conditions are data: what each asks, the sentence of its refusal, and what it narrows."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from dplateau import Ball, CyclicSGD, LossGeometry, NoisyGD, NoisySGD, OnePassSGD
from dplateau.algorithms import Cyclic, FullBatch, Poisson, RandomStop, Run
from dplateau.algorithms.stated import equal_steps, loss_of
from dplateau.bounds import conditions as ask
from dplateau.bounds.base import Bound, Witness
from dplateau.bounds.conditions import Condition, first_unmet
from dplateau.bounds.registry import BOUNDS, HISTORICAL
from dplateau.curves import GaussianCurve
from dplateau.errors import NotApplicable

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)
FULL = NoisyGD(
    n=10, steps=4, learning_rate=0.5, noise_std=1.0, loss=LOSS, domain=Ball(1.0), release="last"
)
SGD: dict[str, Any] = {"n": 10, "steps": 4, "noise_multiplier": 1.0, "release": "last"}
ONE_PASS = OnePassSGD(n=10, noise_multiplier=1.0, release="random_stop")
CYCLES = CyclicSGD(
    n=10, batch_size=2, steps=7, noise_multiplier=1.0, order="reshuffle", release="last"
)
SCHEDULED = FULL.replace(learning_rate=[0.5, 0.5, 0.4, 0.4])

# A condition, a run that meets it, one that does not, and how the refusal begins.
# A run that no constructor would make: what leaves of it nobody knows.
LEAKING = FULL.replace()
object.__setattr__(LEAKING, "release", object())

CASES: list[tuple[Condition, Run, Run, str]] = [
    (ask.HiddenIterates(), FULL, FULL.replace(release="all"), "needs hidden iterates (release="),
    (ask.HiddenIterates(), FULL, ONE_PASS, "is about release='last'; yours is 'random_stop'"),
    (ask.HiddenIterates(RandomStop()), ONE_PASS, FULL, "is about release='random_stop'"),
    (ask.HiddenIterates(), FULL, FULL.replace(momentum=0.5), "is about the last iterate of plain"),
    (ask.HiddenIterates(), FULL, FULL.replace(average_last=2), "is about the last iterate of pl"),
    (
        ask.RatesOfBatches(),
        NoisySGD(batch_size=2, **SGD),
        NoisySGD(batch_size=2, sampling_rate=0.3, **SGD),
        "needs records that join each batch with probability batch_size / n; yours join with 0.3",
    ),
    (
        ask.ConstantRates(),
        NoisySGD(batch_size=2, sampling_rate=0.3, **SGD),
        NoisySGD(batch_size=2, sampling_rate=[0.1, 0.1, 0.2, 0.2], **SGD),
        "needs the same learning rate, noise and sampling rate at every step",
    ),
    (ask.AnyIterates(), FULL, LEAKING, "nothing is known here about a release of the kind object"),
    (ask.ConstantSteps(), FULL, SCHEDULED, "needs the same learning rate and noise at every step"),
    (
        ask.GaussianNoise("this covers it"),
        FULL,
        FULL.replace(noise_kind="laplace", dimension=1),
        "needs Gaussian noise; yours is Laplace (this covers it)",
    ),
    (
        ask.LaplaceNoise("that covers it"),
        FULL.replace(noise_kind="laplace", dimension=1),
        FULL,
        "is about noise_kind='laplace'; yours is Gaussian (that covers it)",
    ),
    (ask.AboutBatches((FullBatch,)), FULL, CYCLES, "is about NoisyGD or ProjectedLangevin; yours"),
    (ask.AboutBatches((Poisson, Cyclic)), CYCLES, FULL, "is about NoisySGD with sampling='poisso"),
    (ask.OrderIs(("reshuffle",)), CYCLES, FULL, "is about CyclicSGD with order='reshuffle'; yours"),
    (ask.WholeEpochs(), CYCLES.replace(steps=10), CYCLES, "needs whole epochs when each is resh"),
    (ask.NeighborsAre("replace"), FULL.replace(neighbors="replace"), FULL, "is about neighbors="),
    (ask.BoundedDomain(), FULL, FULL.replace(domain=None), "needs a bounded domain: pass domain="),
    (ask.KnownSteps(), FULL, FULL.replace(loss=None), "needs the loss: pass loss=LossGeometry("),
    (
        ask.KnownSteps(),
        FULL,
        NoisyGD(n=10, steps=4, noise_std=1.0, loss=LOSS, release="last"),
        "needs the learning rate: pass learning_rate=...",
    ),
    (
        ask.KnownSteps(),
        FULL,
        FULL.replace(loss=LossGeometry(lipschitz=float("inf"), convex=True)),
        "needs the loss's Lipschitz constant",
    ),
    (
        ask.ConvexLosses(),
        FULL,
        FULL.replace(loss=LossGeometry(lipschitz=1.0, convex=False)),
        "needs convex losses; yours are declared nonconvex",
    ),
    (
        ask.SmoothLosses(),
        FULL,
        FULL.replace(loss=LossGeometry(lipschitz=1.0, convex=True)),
        "needs smooth losses: pass smoothness=...",
    ),
    (
        ask.Contractive(),
        FULL,
        FULL.replace(learning_rate=2.5),
        "needs learning_rate * (smoothness + l2) <= 2; yours is 2.5; lower the learning rate to 2",
    ),
    (
        ask.Contractive(nonconvex=True),
        FULL.replace(loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=1.0), l2=1.0),
        FULL.replace(loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=1.0), l2=0.5),
        "needs convex losses, or a ridge with l2 >= smoothness; yours are declared nonconvex with "
        "l2=0.5; raise l2 to 1",
    ),
]


@pytest.mark.parametrize(("condition", "good", "bad", "reason"), CASES)
def test_each_condition_is_met_or_says_why_not(
    condition: Condition, good: Run, bad: Run, reason: str
) -> None:
    assert first_unmet([condition], good) is None
    assert (first_unmet([condition], bad) or "").startswith(reason)


def test_every_condition_has_a_case() -> None:
    named = {type(condition) for condition, *_ in CASES} | {ask.Asks, ask.OneOf}
    defined = {one for one in vars(ask).values() if hasattr(one, "unmet")} - {Condition}
    assert {one for one in defined if isinstance(one, type)} == named


def test_conditions_are_values() -> None:
    assert ask.Contractive() == ask.Contractive(1.0, nonconvex=False)
    assert len({ask.BoundedDomain(), ask.BoundedDomain()}) == 1
    with pytest.raises(FrozenInstanceError):
        ask.Contractive().nonconvex = True  # type: ignore[misc]


@pytest.mark.parametrize("bound", [*BOUNDS, *HISTORICAL], ids=lambda bound: bound.name)
def test_bounds_state_what_they_need_as_data(bound: Bound) -> None:
    assert bound.needs
    stated = (*bound.needs, *(one for one in (bound.release, bound.rates) if one is not None))
    assert all(callable(condition.unmet) for condition in stated)
    assert not hasattr(bound, "missing")


def test_the_first_unmet_condition_is_the_reason() -> None:
    asked = [ask.ConstantSteps(), ask.BoundedDomain(), ask.NeighborsAre("replace")]
    assert str(first_unmet(asked, SCHEDULED.replace(domain=None))).startswith("needs the same")
    assert str(first_unmet(asked, FULL)).startswith("is about neighbors=")


def test_alternatives_give_the_nearest_reason() -> None:
    either = ask.OneOf(
        (
            (ask.AboutBatches((Cyclic,)), ask.BoundedDomain()),
            (ask.AboutBatches((FullBatch,)), ask.ConstantSteps()),
        )
    )
    assert either.unmet(FULL) is None
    assert str(either.unmet(SCHEDULED)).startswith("needs the same learning rate")


def test_what_is_narrowed_is_refused_with_the_sentence_of_the_condition() -> None:
    steps = equal_steps(FULL.replace(neighbors="replace"))
    assert (steps.eta, steps.nu, steps.step, steps.reach) == (0.5, 0.5, 0.05, 0.1)
    with pytest.raises(NotApplicable, match="needs the same learning rate and noise at every ste"):
        equal_steps(SCHEDULED)
    with pytest.raises(NotApplicable, match="needs the loss: pass loss=LossGeometry"):
        loss_of(FULL.replace(loss=None))
    with pytest.raises(NotApplicable, match="needs the learning rate"):
        ask.learning_rates(NoisyGD(n=10, steps=4, noise_std=1.0, loss=LOSS, release="last"))


def test_a_bound_that_does_not_say_what_may_leave_covers_nothing() -> None:
    class Silent(Bound):
        name = "silent"
        needs = (ask.ConstantSteps(),)

        def curve(self, run: Run, witness: Witness) -> GaussianCurve:
            return GaussianCurve(1.0)

    with pytest.raises(AttributeError, match="release"):
        Silent().refusal(FULL)
