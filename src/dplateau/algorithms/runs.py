"""The five algorithms, each described fully by its own docstring and that of :class:`Run`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

from dplateau.algorithms import _check, noise
from dplateau.algorithms._signature import shows_options
from dplateau.algorithms.base import Run, RunOptions, fraction, tidy
from dplateau.algorithms.domains import domain_from_dict
from dplateau.algorithms.geometry import LossGeometry
from dplateau.algorithms.noise import Given
from dplateau.algorithms.schedule import PerStep, Schedule, per_step
from dplateau.errors import InvalidInput


@shows_options(RunOptions)
@dataclass(frozen=True, init=False, repr=False)
class NoisyGD(Run):
    """Full-batch noisy gradient descent: B_t is all n records and b = n, at every step.

    >>> run = NoisyGD(n=1000, steps=50, learning_rate=0.5, l2=0.1, noise_std=0.02, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25))
    >>> run.noise_multiplier
    20.0
    """

    __doc__ += "\n" + (Run.__doc__ or "").split("\n", 2)[2]
    kind: ClassVar[str] = "NoisyGD"

    def __init__(
        self,
        *,
        n: int,
        steps: int | None = None,
        epochs: float | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        n = _check.whole("n", n)
        self._fill(
            n=n, batch=Given("batch_size", n), duration=_duration(steps, epochs), options=options
        )

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments (the batch is all records, so it is none of them)."""
        return {k: v for k, v in Run.parameters(self).items() if k != "batch_size"}


@shows_options(RunOptions)
@dataclass(frozen=True, init=False, repr=False)
class NoisySGD(Run):
    """Noisy SGD on random batches, drawn afresh at every step.

    ``sampling="poisson"``: each record joins B_t independently with probability q = b / n; the
    step divides by the constant b, whatever the size of B_t. ``sampling="fixed"``: B_t is a
    uniformly random set of exactly b of the n records (b < n).

    >>> run = NoisySGD(n=60000, batch_size=256, epochs=60, noise_multiplier=1.1, release="all")
    >>> run.steps
    14063
    """

    __doc__ += "\n" + (Run.__doc__ or "").split("\n", 2)[2]
    kind: ClassVar[str] = "NoisySGD"
    sampling: Literal["poisson", "fixed"]

    def __init__(
        self,
        *,
        n: int,
        batch_size: float | None = None,
        sampling_rate: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        sampling: Literal["poisson", "fixed"] = "poisson",
        **options: Unpack[RunOptions],
    ) -> None:
        n = _check.whole("n", n)
        _check.choice("sampling", sampling, ("poisson", "fixed"))
        _check.put(self, "sampling", sampling)
        batch = _batch(n, batch_size, sampling_rate)
        self._fill(n=n, batch=batch, duration=_duration(steps, epochs), options=options)
        if sampling == "fixed":
            self._check_fixed()

    def _check_fixed(self) -> None:
        if self.batch_size != int(self.batch_size):
            raise InvalidInput(
                f"a fixed-size batch holds a whole number of records; got {self.batch_size:g}"
            )
        if self.batch_size >= self.n:
            raise InvalidInput(
                f"batch_size={self.batch_size:g} with n={self.n} is the full batch; use NoisyGD"
            )
        if self.neighbors == "add_remove":
            raise InvalidInput(
                "fixed-size batches have no theorem for neighbors='add_remove' (n would change "
                "the batches); use neighbors='replace', or sampling='poisson'"
            )

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments, as stated by the user."""
        return {**Run.parameters(self), "sampling": self.sampling}


@shows_options(RunOptions)
@dataclass(frozen=True, init=False, repr=False)
class CyclicSGD(Run):
    """Noisy SGD over consecutive batches of an ordering of the records, epoch after epoch.

    The ordering is cut into ceil(n / b) batches of b records; the last one may be shorter and
    is still divided by b. ``order="cyclic"``: the given order, at every epoch.
    ``"shuffle_once"``: one uniformly random order, kept. ``"reshuffle"``: a fresh one per epoch.
    Under "add_remove" an absent record keeps its slot with a zero gradient.

    >>> run = CyclicSGD(n=1000, batch_size=25, epochs=50, noise_multiplier=3.0, release="last")
    >>> run.batches_per_epoch, run.steps
    (40, 2000)
    """

    __doc__ += "\n" + (Run.__doc__ or "").split("\n", 2)[2]
    kind: ClassVar[str] = "CyclicSGD"
    order: Literal["cyclic", "shuffle_once", "reshuffle"]

    def __init__(
        self,
        *,
        n: int,
        batch_size: float | None = None,
        sampling_rate: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        order: Literal["cyclic", "shuffle_once", "reshuffle"] = "cyclic",
        **options: Unpack[RunOptions],
    ) -> None:
        n = _check.whole("n", n)
        _check.choice("order", order, ("cyclic", "shuffle_once", "reshuffle"))
        _check.put(self, "order", order)
        batch = _whole_batch(_batch(n, batch_size, sampling_rate), n)
        self._fill(n=n, batch=batch, duration=_duration(steps, epochs), options=options)

    @property
    def batches_per_epoch(self) -> int:
        """Return ceil(n / b)."""
        return -(-self.n // int(self.batch_size))

    def _count_steps(self) -> int:
        # Each epoch has its own short last batch, so epochs are counted in whole batches.
        if self.duration.name == "steps":
            return _check.whole("steps", self.duration.value)
        return math.ceil(fraction(self.duration.value) * self.batches_per_epoch)

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments, as stated by the user."""
        return {**Run.parameters(self), "order": self.order}


@shows_options(RunOptions)
@dataclass(frozen=True, init=False, repr=False)
class OnePassSGD(Run):
    """Noisy SGD that sees every record once, in the given order, ``batch_size`` at a time.

    Step t uses records t*b+1 ... (t+1)*b and divides by b, a short last batch included. Under
    "add_remove" an absent record keeps its slot with a zero gradient. ``release="random_stop"``
    releases the iterate after a uniformly random number of steps between 1 and T.

    >>> OnePassSGD(n=40, noise_std=2.0, release="last").steps
    40
    """

    __doc__ += "\n" + (Run.__doc__ or "").split("\n", 2)[2]
    kind: ClassVar[str] = "OnePassSGD"
    may_stop_at_random: ClassVar[bool] = True

    def __init__(
        self,
        *,
        n: int,
        batch_size: float = 1,
        **options: Unpack[RunOptions],
    ) -> None:
        n = _check.whole("n", n)
        batch = _whole_batch(_batch(n, batch_size, None), n)
        self._fill(n=n, batch=batch, duration=Given("epochs", 1), options=options)

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments (one pass has no other duration)."""
        return {k: v for k, v in Run.parameters(self).items() if k not in ("steps", "epochs")}


@shows_options(RunOptions)
@dataclass(frozen=True, init=False, repr=False)
class ProjectedLangevin(Run):
    """Full-batch projected Langevin: b = n and nu_t = sqrt(2 eta_t / inverse_temperature).

    With f(w) = (1/n) sum_i f_i(w) + l2 |w|^2 / 2 the chain follows the density proportional to
    exp(-inverse_temperature * f) on the domain; inverse_temperature = 1 is the usual
    X <- Proj[X - eta grad f(X) + sqrt(2 eta) xi]. The noise is part of the algorithm, so no noise
    argument is taken.

    >>> ProjectedLangevin(n=100, steps=10, learning_rate=0.02, release="last").iterate_std
    0.2
    """

    __doc__ += "\n" + (Run.__doc__ or "").split("\n", 2)[2]
    kind: ClassVar[str] = "ProjectedLangevin"
    inverse_temperature: float

    def __init__(
        self,
        *,
        n: int = 1,
        steps: int,
        inverse_temperature: float = 1.0,
        **options: Unpack[RunOptions],
    ) -> None:
        n = _check.whole("n", n)
        for name in noise.CONVENTIONS:
            if options.get(name) is not None:
                raise InvalidInput(
                    f"ProjectedLangevin takes no {name}: its noise is sqrt(2 * learning_rate / "
                    "inverse_temperature); change one of these, or use NoisyGD"
                )
        if options.get("momentum") or options.get("average_last", 1) != 1:
            raise InvalidInput(
                "ProjectedLangevin takes plain steps, without momentum or average_last; use NoisyGD"
            )
        if options.get("noise_kind", "gaussian") != "gaussian":
            raise InvalidInput("Langevin noise is Gaussian; use NoisyGD for noise_kind='laplace'")
        stated = options.get("learning_rate")
        if stated is None:
            raise InvalidInput(
                "ProjectedLangevin needs learning_rate=...: its noise follows from it"
            )
        rate = per_step("learning_rate", stated)
        heat = _check.positive("inverse_temperature", inverse_temperature)
        _check.put(self, "inverse_temperature", heat)
        options["iterate_std"] = _langevin_std(rate, heat)
        self._fill(
            n=n, batch=Given("batch_size", n), duration=_duration(steps, None), options=options
        )

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments (batch and noise follow from them)."""
        dropped = ("batch_size", "iterate_std", "noise_kind")
        found = {k: v for k, v in Run.parameters(self).items() if k not in dropped}
        return {**found, "inverse_temperature": self.inverse_temperature}


RUNS: dict[str, type[Run]] = {
    cls.kind: cls for cls in (NoisyGD, NoisySGD, CyclicSGD, OnePassSGD, ProjectedLangevin)
}


def run_from_dict(found: dict[str, Any]) -> Run:
    """Read what :meth:`Run.to_dict` wrote."""
    arguments = dict(found)
    kind = arguments.pop("algorithm", None)
    if kind not in RUNS:
        raise InvalidInput(f"unknown algorithm {kind!r}; known are {', '.join(RUNS)}")
    if arguments.get("loss") is not None:
        arguments["loss"] = LossGeometry.from_dict(arguments["loss"])
    if arguments.get("domain") is not None:
        arguments["domain"] = domain_from_dict(arguments["domain"])
    for name in ("learning_rate", *noise.CONVENTIONS):
        if isinstance(arguments.get(name), list):
            arguments[name] = _schedule_from_json(name, arguments[name])
    try:
        return RUNS[kind](**arguments)
    except TypeError as error:
        raise InvalidInput(f"{kind}: {error}") from None


def _schedule_from_json(name: str, blocks: list[Any]) -> Schedule:
    try:
        return Schedule(tuple((value, count) for value, count in blocks))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must hold pairs [value, count]; {error}") from None


def _duration(steps: int | None, epochs: float | None) -> Given:
    if (steps is None) == (epochs is None):
        both = "both" if steps is not None else "neither"
        raise InvalidInput(f"state the length once: steps or epochs; got {both}")
    if steps is not None:
        return Given("steps", _check.whole("steps", steps))
    return Given("epochs", _check.positive("epochs", epochs))


def _batch(n: int, batch_size: float | None, sampling_rate: float | None) -> Given:
    if (batch_size is None) == (sampling_rate is None):
        both = "both" if batch_size is not None else "neither"
        raise InvalidInput(f"state the batch once: batch_size or sampling_rate; got {both}")
    if sampling_rate is not None:
        rate = _check.positive("sampling_rate", sampling_rate)
        if rate > 1:
            raise InvalidInput(f"sampling_rate must be at most 1; got {rate:g}")
        return Given("sampling_rate", rate)
    size = _check.positive("batch_size", batch_size)
    if size > n:
        raise InvalidInput(f"batch_size={size:g} exceeds n={n}; the largest batch is all records")
    return Given("batch_size", int(size) if size == int(size) else size)


def _whole_batch(batch: Given, n: int) -> Given:
    value = batch.value
    assert not isinstance(value, Schedule)
    size = value if batch.name == "batch_size" else tidy(value * n)
    if size != int(size):
        raise InvalidInput(f"consecutive batches hold whole records; got a batch size of {size:g}")
    return batch


def _langevin_std(rate: PerStep, heat: float) -> PerStep:
    if isinstance(rate, Schedule):
        return Schedule(tuple((math.sqrt(2 * eta / heat), count) for eta, count in rate.blocks))
    return math.sqrt(2 * rate / heat)
