"""The five algorithms: functions that describe a run, each defined fully by its docstring."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

from dplateau.algorithms.base import (
    CONSTRUCTORS,
    MomentumKind,
    Neighbors,
    NoiseKind,
    Run,
    tidy,
)
from dplateau.algorithms.batches import (
    SAMPLINGS,
    Batches,
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Order,
    Poisson,
    Sampling,
)
from dplateau.algorithms.geometry import Domain, LossGeometry, domain_from_dict
from dplateau.algorithms.release import Release, ReleaseName, release_of
from dplateau.algorithms.schedule import NOISE_CONVENTIONS, Given, PerStep, Schedule, per_step
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray

# Of one schedule: twice as many as a written file holds; more would exhaust memory.
_MOST_BLOCKS = 500_000
# A number, or one per step.
Stated = float | Schedule | Sequence[float] | FloatArray
P = ParamSpec("P")

_OPTIONS = """\
learning_rate
    eta, a number or one value per step. May be absent: composition does not need it.
l2
    Strength of the ridge term l2 * w (strong convexity that costs no sensitivity).
domain
    Ball, Box, Body, or None for an unconstrained run.
loss
    LossGeometry of one record's data loss. May be absent for composition.
dimension
    Number of parameters. Only Laplace noise and boxes need it.
momentum, momentum_kind, average_last
    Momentum in [0, 1), "nesterov" (gradients ahead of the iterate) or "heavy_ball" (gradients at
    it), and how many of the last iterates the released model averages; 0 and 1 are the plain run.
noise_multiplier, noise_std, iterate_std
    Exactly one; see :mod:`dplateau.algorithms.schedule`. Each may be one value per step.
noise_kind
    "gaussian", or "laplace" in one dimension.
neighbors
    "add_remove": one record is present or absent while n, b and the normalizer stay public
    constants; with deterministic or shuffled batches the absent record keeps its slot and
    contributes a zero gradient (deleting it and moving the later records up is not covered).
    "replace": one record is exchanged for another.
group_size
    How many records neighbors may differ in: the unit of privacy, such as all records of a user.
release
    A promise about what leaves: "last" (only the last iterate; no loss, metric or iterate of
    the way there is seen by anyone), "all" (every iterate may leave), "random_stop" (the
    iterate of one uniformly random step; OnePassSGD only), or Checkpoints(every=..., at=[...] or
    last=...): the iterates of steps fixed in advance, the last one among them, and nothing else.

Returns
-------
Run
    The description, frozen; ``run.replace(...)`` changes arguments.

Raises
------
InvalidInput
    If a number cannot be what it stands for, or two contradict each other.
"""


def _describes(make: Callable[P, Run]) -> Callable[P, Run]:
    """Enter a constructor: ``help()`` lists the shared options, unknown ones are refused."""
    known = tuple(inspect.signature(make).parameters)

    @wraps(make)
    def checked(*arguments: P.args, **options: P.kwargs) -> Run:
        for name in options:
            if name not in known:
                raise InvalidInput(
                    f"{make.__name__} has no option {name!r}; options are {', '.join(known)}"
                )
        release_of(options.get("release"))
        return make(*arguments, **options)

    if make.__doc__ is not None:  # python -OO drops docstrings
        checked.__doc__ = f"{inspect.cleandoc(make.__doc__)}\n{_OPTIONS}"
    CONSTRUCTORS[make.__name__] = checked
    return checked


@_describes
def NoisyGD(  # noqa: D417 (the shared options are added)
    *,
    n: int,
    steps: int | None = None,
    epochs: float | None = None,
    learning_rate: Stated | None = None,
    l2: float = 0.0,
    domain: Domain | None = None,
    loss: LossGeometry | None = None,
    dimension: int | None = None,
    momentum: float = 0.0,
    momentum_kind: MomentumKind = "nesterov",
    average_last: int = 1,
    noise_multiplier: Stated | None = None,
    noise_std: Stated | None = None,
    iterate_std: Stated | None = None,
    noise_kind: NoiseKind = "gaussian",
    neighbors: Neighbors = "add_remove",
    group_size: int = 1,
    release: Release | ReleaseName,
) -> Run:
    """Describe full-batch noisy gradient descent: B_t is all n records and b = n, at every step.

    >>> run = NoisyGD(n=1000, steps=50, learning_rate=0.5, l2=0.1, noise_std=0.02, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25))
    >>> run.noise_multiplier
    20.0

    Parameters
    ----------
    n
        Number of records, a public constant.
    steps, epochs
        The length, stated once; an epoch is one step.
    """
    n = checks.whole("n", n)
    return Run(
        n=n,
        batches=FullBatch(),
        divisor=Given("batch_size", n),
        duration=_duration(steps, epochs),
        learning_rate=_per_step("learning_rate", learning_rate),
        l2=l2,
        domain=domain,
        loss=loss,
        dimension=dimension,
        momentum=momentum,
        momentum_kind=momentum_kind,
        average_last=average_last,
        noise=_noise(noise_multiplier, noise_std, iterate_std),
        noise_kind=noise_kind,
        neighbors=neighbors,
        group_size=group_size,
        release=release_of(release),
    )


@_describes
def NoisySGD(  # noqa: D417 (the shared options are added)
    *,
    n: int,
    batch_size: float | None = None,
    sampling_rate: Stated | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    sampling: Sampling = "poisson",
    learning_rate: Stated | None = None,
    l2: float = 0.0,
    domain: Domain | None = None,
    loss: LossGeometry | None = None,
    dimension: int | None = None,
    momentum: float = 0.0,
    momentum_kind: MomentumKind = "nesterov",
    average_last: int = 1,
    noise_multiplier: Stated | None = None,
    noise_std: Stated | None = None,
    iterate_std: Stated | None = None,
    noise_kind: NoiseKind = "gaussian",
    neighbors: Neighbors = "add_remove",
    group_size: int = 1,
    release: Release | ReleaseName,
) -> Run:
    """Describe noisy SGD on random batches, drawn afresh at every step.

    ``sampling="poisson"``: each record joins B_t independently with probability q; the step
    divides by the constant b, whatever the size of B_t. ``sampling="fixed"``: B_t is a uniformly
    random set of exactly b of the n records (b < n).

    >>> run = NoisySGD(n=60000, batch_size=256, epochs=60, noise_multiplier=1.1, release="all")
    >>> run.steps
    14063
    >>> warm = run.replace(steps=4, sampling_rate=[0.001, 0.002, 0.004, 0.004], batch_size=256)
    >>> warm.sampling_rates()
    array([0.001, 0.002, 0.004, 0.004])

    Parameters
    ----------
    n
        Number of records, a public constant.
    batch_size, sampling_rate
        b, or q = b / n. Poisson sampling also takes both: then b is only what steps divide by, and
        q may be any number in (0, 1], or one per step.
    steps, epochs
        The length, stated once; an epoch is n / b steps (1 / q where q is stated too), rounded up.
    sampling
        "poisson" or "fixed".
    """
    n = checks.whole("n", n)
    divisor, batches = _random_batches(n, batch_size, sampling_rate, sampling)
    return Run(
        n=n,
        batches=batches,
        divisor=divisor,
        duration=_duration(steps, epochs),
        learning_rate=_per_step("learning_rate", learning_rate),
        l2=l2,
        domain=domain,
        loss=loss,
        dimension=dimension,
        momentum=momentum,
        momentum_kind=momentum_kind,
        average_last=average_last,
        noise=_noise(noise_multiplier, noise_std, iterate_std),
        noise_kind=noise_kind,
        neighbors=neighbors,
        group_size=group_size,
        release=release_of(release),
    )


@_describes
def CyclicSGD(  # noqa: D417 (the shared options are added)
    *,
    n: int,
    batch_size: float | None = None,
    sampling_rate: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    order: Order = "cyclic",
    learning_rate: Stated | None = None,
    l2: float = 0.0,
    domain: Domain | None = None,
    loss: LossGeometry | None = None,
    dimension: int | None = None,
    momentum: float = 0.0,
    momentum_kind: MomentumKind = "nesterov",
    average_last: int = 1,
    noise_multiplier: Stated | None = None,
    noise_std: Stated | None = None,
    iterate_std: Stated | None = None,
    noise_kind: NoiseKind = "gaussian",
    neighbors: Neighbors = "add_remove",
    group_size: int = 1,
    release: Release | ReleaseName,
) -> Run:
    """Describe noisy SGD over consecutive batches of an ordering of the records.

    The ordering is cut into ceil(n / b) batches of b records; the last one may be shorter and
    is still divided by b. ``order="cyclic"``: the given order, at every epoch.
    ``"shuffle_once"``: one uniformly random order, kept. ``"reshuffle"``: a fresh one per epoch.
    Under "add_remove" an absent record keeps its slot with a zero gradient.

    >>> run = CyclicSGD(n=1000, batch_size=25, epochs=50, noise_multiplier=3.0, release="last")
    >>> run.batches_per_epoch, run.steps
    (40, 2000)

    Parameters
    ----------
    n
        Number of records, a public constant.
    batch_size, sampling_rate
        b, or b / n.
    steps, epochs
        The length, stated once; an epoch is ceil(n / b) steps.
    order
        "cyclic", "shuffle_once" or "reshuffle".
    """
    n = checks.whole("n", n)
    divisor = _one_divisor(n, batch_size, sampling_rate)
    return Run(
        n=n,
        batches=Cyclic(_size(divisor, n), order),
        divisor=divisor,
        duration=_duration(steps, epochs),
        learning_rate=_per_step("learning_rate", learning_rate),
        l2=l2,
        domain=domain,
        loss=loss,
        dimension=dimension,
        momentum=momentum,
        momentum_kind=momentum_kind,
        average_last=average_last,
        noise=_noise(noise_multiplier, noise_std, iterate_std),
        noise_kind=noise_kind,
        neighbors=neighbors,
        group_size=group_size,
        release=release_of(release),
    )


@_describes
def OnePassSGD(  # noqa: D417 (the shared options are added)
    *,
    n: int,
    batch_size: float = 1,
    learning_rate: Stated | None = None,
    l2: float = 0.0,
    domain: Domain | None = None,
    loss: LossGeometry | None = None,
    dimension: int | None = None,
    momentum: float = 0.0,
    momentum_kind: MomentumKind = "nesterov",
    average_last: int = 1,
    noise_multiplier: Stated | None = None,
    noise_std: Stated | None = None,
    iterate_std: Stated | None = None,
    noise_kind: NoiseKind = "gaussian",
    neighbors: Neighbors = "add_remove",
    group_size: int = 1,
    release: Release | ReleaseName,
) -> Run:
    """Describe noisy SGD that sees every record once, in the given order.

    Step t uses records t*b+1 ... (t+1)*b and divides by b, a short last batch included. Under
    "add_remove" an absent record keeps its slot with a zero gradient. ``release="random_stop"``
    releases the iterate after a uniformly random number of steps between 1 and T.

    >>> OnePassSGD(n=40, noise_std=2.0, release="last").steps
    40

    Parameters
    ----------
    n
        Number of records, a public constant.
    batch_size
        b; the run has ceil(n / b) steps.
    """
    n = checks.whole("n", n)
    divisor = _one_divisor(n, batch_size, None)
    return Run(
        n=n,
        batches=OnePass(_size(divisor, n)),
        divisor=divisor,
        duration=Given("epochs", 1),
        learning_rate=_per_step("learning_rate", learning_rate),
        l2=l2,
        domain=domain,
        loss=loss,
        dimension=dimension,
        momentum=momentum,
        momentum_kind=momentum_kind,
        average_last=average_last,
        noise=_noise(noise_multiplier, noise_std, iterate_std),
        noise_kind=noise_kind,
        neighbors=neighbors,
        group_size=group_size,
        release=release_of(release),
    )


@_describes
def ProjectedLangevin(  # noqa: D417 (the shared options are added)
    *,
    n: int = 1,
    steps: int,
    inverse_temperature: float = 1.0,
    learning_rate: Stated | None = None,
    l2: float = 0.0,
    domain: Domain | None = None,
    loss: LossGeometry | None = None,
    dimension: int | None = None,
    momentum: float = 0.0,
    momentum_kind: MomentumKind = "nesterov",
    average_last: int = 1,
    noise_multiplier: None = None,
    noise_std: None = None,
    iterate_std: None = None,
    noise_kind: NoiseKind = "gaussian",
    neighbors: Neighbors = "add_remove",
    group_size: int = 1,
    release: Release | ReleaseName,
) -> Run:
    """Describe full-batch projected Langevin: b = n and nu_t = sqrt(2 eta_t / inverse_temperature).

    With f(w) = (1/n) sum_i f_i(w) + l2 |w|^2 / 2 the chain follows the density proportional to
    exp(-inverse_temperature * f) on the domain; inverse_temperature = 1 is the usual
    X <- Proj[X - eta grad f(X) + sqrt(2 eta) xi]. The noise is part of the algorithm: every
    argument about it is refused, as are momentum and averages.

    >>> ProjectedLangevin(n=100, steps=10, learning_rate=0.02, release="last").iterate_std
    0.2

    Parameters
    ----------
    n
        Number of records, a public constant.
    steps
        The length.
    inverse_temperature
        How sharply the density that the chain follows is peaked.
    """
    n = checks.whole("n", n)
    stated = (noise_multiplier, noise_std, iterate_std)
    for name, value in zip(NOISE_CONVENTIONS, stated, strict=True):
        if value is not None:
            raise InvalidInput(
                f"ProjectedLangevin takes no {name}: its noise is sqrt(2 * learning_rate / "
                "inverse_temperature); change one of these, or use NoisyGD"
            )
    if momentum or momentum_kind != "nesterov" or average_last != 1:
        raise InvalidInput(
            "ProjectedLangevin takes plain steps, without momentum or average_last; use NoisyGD"
        )
    if noise_kind != "gaussian":
        raise InvalidInput("Langevin noise is Gaussian; use NoisyGD for noise_kind='laplace'")
    if learning_rate is None:
        raise InvalidInput("ProjectedLangevin needs learning_rate=...: its noise follows from it")
    rate = per_step("learning_rate", learning_rate)
    heat = checks.positive("inverse_temperature", inverse_temperature)
    return Run(
        n=n,
        batches=FullBatch(),
        divisor=Given("batch_size", n),
        duration=_duration(steps, None),
        learning_rate=rate,
        l2=l2,
        domain=domain,
        loss=loss,
        dimension=dimension,
        momentum=0.0,
        momentum_kind="nesterov",
        average_last=1,
        noise=Given("iterate_std", _langevin_std(rate, heat)),
        noise_kind="gaussian",
        neighbors=neighbors,
        group_size=group_size,
        release=release_of(release),
        inverse_temperature=heat,
    )


def run_from_dict(document: dict[str, Any]) -> Run:
    """Read what :meth:`Run.to_dict` wrote."""
    arguments = dict(document)
    kind = arguments.pop("algorithm", None)
    if kind not in CONSTRUCTORS:
        raise InvalidInput(f"unknown algorithm {kind!r}; known are {', '.join(CONSTRUCTORS)}")
    if arguments.get("loss") is not None:
        arguments["loss"] = LossGeometry.from_dict(arguments["loss"])
    if arguments.get("domain") is not None:
        arguments["domain"] = domain_from_dict(arguments["domain"])
    for name in ("learning_rate", "sampling_rate", *NOISE_CONVENTIONS):
        if isinstance(arguments.get(name), list):
            arguments[name] = _schedule_from_json(name, arguments[name])
    try:
        return CONSTRUCTORS[kind](**arguments)
    except TypeError as error:
        raise InvalidInput(f"{kind}: {error}") from None


def _schedule_from_json(name: str, blocks: list[Any]) -> Schedule:
    if len(blocks) > _MOST_BLOCKS:
        raise InvalidInput(
            f"{name} changes {len(blocks)} times; at most {_MOST_BLOCKS} blocks of a schedule are "
            "read: round the values, so that equal ones follow each other"
        )
    try:
        return Schedule(tuple((value, count) for value, count in blocks))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must hold pairs [value, count]; {error}") from None


def _per_step(name: str, stated: Stated | None) -> PerStep | None:
    return None if stated is None else per_step(name, stated)


def _noise(*stated: Stated | None) -> Given[PerStep]:
    """Read the noise, stated in one of the conventions."""
    noises = [
        Given(name, per_step(name, value))
        for name, value in zip(NOISE_CONVENTIONS, stated, strict=True)
        if value is not None
    ]
    if len(noises) != 1:
        names = " and ".join(given.name for given in noises) or "none"
        raise InvalidInput(
            f"state the noise once: exactly one of {', '.join(NOISE_CONVENTIONS)}; got {names}"
        )
    return noises[0]


def _duration(steps: int | None, epochs: float | None) -> Given[float]:
    if (steps is None) == (epochs is None):
        both = "both" if steps is not None else "neither"
        raise InvalidInput(f"state the length once: steps or epochs; got {both}")
    if steps is not None:
        return Given("steps", checks.whole("steps", steps))
    return Given("epochs", checks.positive("epochs", epochs))


def _random_batches(
    n: int, batch_size: float | None, sampling_rate: Stated | None, sampling: Sampling
) -> tuple[Given[float], Batches]:
    """Return what steps divide by, and how their records are drawn."""
    checks.choice("sampling", sampling, SAMPLINGS)
    if sampling == "fixed":
        divisor = _one_divisor(n, batch_size, sampling_rate)
        return divisor, FixedSize(_size(divisor, n))
    rate = _per_step("sampling_rate", sampling_rate)
    if rate is not None and batch_size is not None:
        return _one_divisor(n, batch_size, None), Poisson(rate)
    if isinstance(rate, Schedule):
        raise InvalidInput(
            "a sampling rate that changes needs batch_size=... too: the constant that every step "
            "divides by"
        )
    divisor = _one_divisor(n, batch_size, rate)
    value = divisor.value
    return divisor, Poisson(value if divisor.name == "sampling_rate" else value / n)


def _one_divisor(n: int, batch_size: float | None, sampling_rate: Stated | None) -> Given[float]:
    if (batch_size is None) == (sampling_rate is None):
        both = "both" if batch_size is not None else "neither"
        raise InvalidInput(f"state the batch once: batch_size or sampling_rate; got {both}")
    if sampling_rate is not None:
        rate = checks.positive("sampling_rate", sampling_rate)
        if rate > 1:
            raise InvalidInput(f"sampling_rate must be at most 1; got {rate:g}")
        return Given("sampling_rate", rate)
    size = checks.positive("batch_size", batch_size)
    if size > n:
        raise InvalidInput(f"batch_size={size:g} exceeds n={n}; the largest batch is all records")
    return Given("batch_size", int(size) if size == int(size) else size)


def _size(divisor: Given[float], n: int) -> Any:
    """Return the batch size, which the batches check to be whole."""
    value = divisor.value
    return value if divisor.name == "batch_size" else tidy(value * n)


def _langevin_std(rate: PerStep, heat: float) -> PerStep:
    if isinstance(rate, Schedule):
        return Schedule(tuple((math.sqrt(2 * eta / heat), count) for eta, count in rate.blocks))
    return math.sqrt(2 * rate / heat)
