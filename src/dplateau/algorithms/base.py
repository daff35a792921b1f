"""Descriptions of noisy gradient descent: frozen data whose docstrings define what runs.

Every run iterates

    w_{t+1} = Proj_K[ w_t - eta_t * ( (1/b) * sum_{i in B_t} g_i(w_t) + l2 * w_t ) + nu_t * xi_t ]

from a start that does not depend on the data, where g_i is the gradient (or clipped gradient) of
record i's loss, |g_i| <= L, b is a public constant (never the realized batch size), B_t the batch
of step t, K the ``domain`` (everything if None), and xi_t fresh noise of unit variance per
coordinate. The ridge term l2 * w_t covers every coordinate, the intercept included, and is added
outside the clipped gradients.

With ``momentum`` m > 0 the gradient and the ridge term are taken ahead of w_t (Nesterov):

    a_t = w_t + m v_t,   v_{t+1} = m v_t - eta_t * ( (1/b) * sum_{i in B_t} g_i(a_t) + l2 * a_t )
                                   + nu_t * xi_t,   w_{t+1} = Proj_K[ w_t + v_{t+1} ],   v_0 = 0

or, with ``momentum_kind="heavy_ball"``, at w_t itself (a_t = w_t). With ``average_last`` k > 1 the
model that leaves is the mean of the last k iterates. Both only process noisy gradients further, so
composition covers them; of hidden-state bounds only those do that say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from dplateau.algorithms.batches import (
    Batches,
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    refuse_batches,
)
from dplateau.algorithms.geometry import Box, Domain, LossGeometry
from dplateau.algorithms.magnitudes import require_magnitudes
from dplateau.algorithms.release import (
    Checkpoints,
    RandomStop,
    Release,
    ReleaseName,
    release_of,
)
from dplateau.algorithms.schedule import (
    NOISE_CONVENTIONS,
    Given,
    PerStep,
    Schedule,
    as_iterate_std,
    as_noise_multiplier,
    as_noise_std,
    per_step,
    times,
    values_over,
)
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.types import FloatArray

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Neighbors = Literal["add_remove", "replace"]
NoiseKind = Literal["gaussian", "laplace"]
MomentumKind = Literal["nesterov", "heavy_ball"]
NEIGHBORS = ("add_remove", "replace")
MOMENTUM_KINDS = ("nesterov", "heavy_ball")
NOISE_KINDS = ("gaussian", "laplace")
# Of one group: what is proved about more would be sums that take longer than anybody waits.
MOST_RECORDS = 10**6
# Two names for one quantity: stating one replaces the other.
ALTERNATIVES = (
    ("batch_size", "sampling_rate"),
    ("steps", "epochs"),
    NOISE_CONVENTIONS,
)
# The functions that describe runs, by name (dplateau.algorithms.runs enters them).
CONSTRUCTORS: dict[str, Callable[..., Run]] = {}


class _Scales(TypedDict):
    batch_size: float
    lipschitz: float | None
    learning_rate: PerStep | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """One run, as made by NoisyGD, NoisySGD, CyclicSGD, OnePassSGD or ProjectedLangevin.

    Their docstrings say what every argument means; here the arguments are kept as they were
    stated, and everything else is derived. ``batches`` says how the records of a step are chosen,
    ``divisor`` is b as stated: the batch size, or the sampling rate b / n. ``inverse_temperature``
    is None unless the noise follows from it, as in ProjectedLangevin.
    """

    n: int
    batches: Batches
    divisor: Given[float]
    duration: Given[float]
    learning_rate: PerStep | None
    l2: float
    domain: Domain | None
    loss: LossGeometry | None
    dimension: int | None
    momentum: float
    momentum_kind: MomentumKind
    average_last: int
    noise: Given[PerStep]
    noise_kind: NoiseKind
    neighbors: Neighbors
    release: Release
    group_size: int = 1
    inverse_temperature: float | None = None
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        """Read every field once, then check that they fit each other."""
        checks.put(self, "steps", self._count_steps())
        if self.learning_rate is not None:
            checks.put(self, "learning_rate", per_step("learning_rate", self.learning_rate))
        checks.put(self, "l2", checks.nonnegative("l2", self.l2))
        _check_type("domain", self.domain, Domain, "Ball, Box, Body or None")
        _check_type("loss", self.loss, LossGeometry, "LossGeometry or None")
        if self.dimension is not None:
            checks.put(self, "dimension", checks.whole("dimension", self.dimension))
        checks.put(self, "momentum", _momentum(self.momentum))
        checks.choice("momentum_kind", self.momentum_kind, MOMENTUM_KINDS)
        checks.put(self, "average_last", checks.whole("average_last", self.average_last))
        checks.choice("noise_kind", self.noise_kind, NOISE_KINDS)
        checks.choice("neighbors", self.neighbors, NEIGHBORS)
        checks.put(self, "release", release_of(self.release))
        checks.put(self, "group_size", checks.whole("group_size", self.group_size))
        if self.group_size > MOST_RECORDS:
            raise InvalidInput(
                f"group_size must be at most {MOST_RECORDS}; got {self.group_size}: sums over the "
                "records of a group would not end"
            )
        self._check_batches()
        self._check_schedules()
        self._check_together()
        require_magnitudes(self)

    def _count_steps(self) -> int:
        """Return T: the steps given, or as many as cover the epochs."""
        if self.duration.name == "steps":
            return checks.whole("steps", self.duration.value)
        epochs = fraction(self.duration.value)
        match self.batches:
            case Cyclic():
                # Each epoch has its own short last batch, so epochs are counted in whole batches.
                return math.ceil(epochs * self.batches_per_epoch)
            case Poisson(rate=rate) if self.has_own_rate:
                if isinstance(rate, Schedule):
                    raise InvalidInput(
                        "epochs have no length when the sampling rate changes; state steps"
                    )
                return math.ceil(epochs / fraction(rate))
            case FullBatch() | Poisson() | FixedSize() | OnePass():
                # q as stated, not q * n / n: a rounded product could add a step.
                stated = fraction(self.divisor.value)
                share = stated / self.n if self.divisor.name == "batch_size" else stated
                return math.ceil(epochs / share)
            case _ as unknown:
                refuse_batches(unknown)

    def _check_batches(self) -> None:
        """Check that the batches and what steps divide by belong together."""
        size: float = self.batch_size
        match self.batches:
            case FullBatch():
                size = self.n
            case Poisson():
                pass
            case FixedSize(size=size):
                if size >= self.n:
                    raise InvalidInput(
                        f"batch_size={size:g} with n={self.n} is the full batch; use NoisyGD"
                    )
                if self.neighbors == "add_remove":
                    raise InvalidInput(
                        "fixed-size batches have no theorem for neighbors='add_remove' (n would "
                        "change the batches); use neighbors='replace', or sampling='poisson'"
                    )
            case Cyclic(size=size) | OnePass(size=size):
                pass
            case _ as unknown:
                refuse_batches(unknown)
        if size != self.batch_size:
            raise InvalidInput(f"batches of {size:g} records, but divided by {self.batch_size:g}")

    def _check_schedules(self) -> None:
        for name, value in self.stated_per_step.items():
            if isinstance(value, Schedule) and len(value) != self.steps:
                raise InvalidInput(
                    f"{name} has {len(value)} values but the run has {self.steps} steps; "
                    "give one value per step"
                )

    def _check_together(self) -> None:
        """Refuse combinations that describe nothing, or for which no theorem is known."""
        if isinstance(self.domain, Box) and self.dimension not in (None, self.domain.dimension):
            raise InvalidInput(
                f"dimension={self.dimension} but the box has {self.domain.dimension} coordinates"
            )
        if self.noise_kind == "laplace" and self.dimension != 1:
            seen = "unstated" if self.dimension is None else f"{self.dimension}"
            raise InvalidInput(
                f"no theorem covers Laplace noise with a dimension that is {seen}; "
                "state dimension=1, or use noise_kind='gaussian'"
            )
        if self.average_last > self.steps:
            raise InvalidInput(
                f"average_last={self.average_last} but the run has {self.steps} steps"
            )
        if self.stops_at_random and not self.is_plain:
            raise InvalidInput(
                "release='random_stop' is about plain steps: leave out momentum and average_last"
            )
        if isinstance(self.release, Checkpoints):
            self.release.check(self.steps)
            if self.average_last > 1:
                raise InvalidInput(
                    "checkpoints are iterates, not averages: leave out average_last, or release "
                    "Checkpoints(last=k) and average what was released"
                )
        if self.stops_at_random and not isinstance(self.batches, OnePass):
            raise InvalidInput(
                f"no theorem covers release='random_stop' for {self.kind}; "
                "use OnePassSGD, or release='last'"
            )

    # What follows is derived: nothing here is stored twice.

    @property
    def kind(self) -> str:
        """Return the name of the function that describes such runs."""
        if self.inverse_temperature is not None:
            return "ProjectedLangevin"
        return self.batches.algorithm

    @property
    def described(self) -> str:
        """Return the kind of run, with the batches where one kind has several."""
        match self.batches:
            case FullBatch():
                return self.kind
            case Cyclic(order=order):
                return f"{self.kind} with order={order!r}"
            case batches:
                return batches.described

    @property
    def stops_at_random(self) -> bool:
        """Return whether the iterate of a random step is what leaves."""
        return isinstance(self.release, RandomStop)

    @property
    def has_checkpoints(self) -> bool:
        """Return whether iterates of the way leave at steps fixed in advance."""
        return isinstance(self.release, Checkpoints)

    @property
    def batch_size(self) -> float:
        """Return b, the public constant that every step divides by."""
        value = self.divisor.value
        return value if self.divisor.name == "batch_size" else tidy(value * self.n)

    @property
    def _share(self) -> float:
        value = self.divisor.value
        return value if self.divisor.name == "sampling_rate" else value / self.n

    @property
    def has_own_rate(self) -> bool:
        """Return whether records join a batch with another probability than b / n."""
        return self.stated_rate != self._share

    @property
    def has_schedule(self) -> bool:
        """Return whether learning rate, noise or sampling rate changes from step to step."""
        return any(isinstance(value, Schedule) for value in self.stated_per_step.values())

    @property
    def stated_per_step(self) -> dict[str, PerStep | None]:
        """Return what may change from step to step, by the name that states it."""
        return {
            "learning_rate": self.learning_rate,
            self.noise.name: self.noise.value,
            "sampling_rate": self.stated_rate,
        }

    @property
    def stated_rate(self) -> PerStep:
        """Return the expected share of the records in a batch, b / n or Poisson's own."""
        match self.batches:
            case Poisson(rate=rate):
                return rate
            case FullBatch() | FixedSize() | Cyclic() | OnePass():
                return self._share
            case _ as unknown:
                refuse_batches(unknown)

    @property
    def sampling_rate(self) -> float:
        """Return q, the one expected share of the records in all batches."""
        rate = self.stated_rate
        if isinstance(rate, Schedule):
            raise NotApplicable(
                "the sampling rate changes from step to step; composition over released "
                "iterates (pld_composition, rdp_composition) reads such a schedule"
            )
        return rate

    def sampling_rates(self) -> FloatArray:
        """Return the expected share of the records in the batch of every step."""
        return values_over(self.stated_rate, self.steps)

    @property
    def batches_per_epoch(self) -> int:
        """Return ceil(n / b), the number of batches of one pass in order."""
        match self.batches:
            case Cyclic(size=size) | OnePass(size=size):
                return -(-self.n // size)
            case FullBatch() | Poisson() | FixedSize():
                raise NotApplicable(f"{self.described} does not pass over the records in order")
            case _ as unknown:
                refuse_batches(unknown)

    @property
    def epochs(self) -> float:
        """Return the expected number of passes over the data: T b / n, or the sum of the rates."""
        rate = self.stated_rate
        if isinstance(rate, Schedule):
            return math.fsum(share * count for share, count in rate.blocks)
        if self.has_own_rate:
            return self.steps * self.sampling_rate
        return self.steps * self.batch_size / self.n

    @property
    def is_plain(self) -> bool:
        """Return whether each iterate follows from the one before, and the last one leaves."""
        return self.momentum == 0 and self.average_last == 1

    @property
    def lipschitz(self) -> float | None:
        """Return L, or None if no loss geometry was given."""
        return None if self.loss is None else self.loss.lipschitz

    @property
    def diameter(self) -> float:
        """Return the domain's diameter D (infinite if unconstrained)."""
        return math.inf if self.domain is None else self.domain.diameter

    @property
    def noise_multiplier(self) -> PerStep:
        """Noise on the sum of gradients in units of L (a schedule if any part of it is one)."""
        return as_noise_multiplier(self.noise, **self._scales())

    @property
    def noise_std(self) -> PerStep:
        """Noise on the averaged gradient, as a standard deviation."""
        return as_noise_std(self.noise, **self._scales())

    @property
    def iterate_std(self) -> PerStep:
        """Noise in parameter space, as a standard deviation."""
        return as_iterate_std(self.noise, **self._scales())

    @property
    def record_step(self) -> PerStep:
        """Return r = eta L / b: how far one record's gradient can move one step."""
        if self.lipschitz is None or math.isinf(self.lipschitz) or self.learning_rate is None:
            raise NotApplicable(
                "how far one record moves a step needs learning_rate=... and "
                "loss=LossGeometry(lipschitz=..., convex=...)"
            )
        return times(self.learning_rate, self.lipschitz / self.batch_size)

    @property
    def neighbor_factor(self) -> int:
        """Return how many gradient bounds L two neighbors differ by: 1, or 2 for "replace"."""
        return 2 if self.neighbors == "replace" else 1

    def _scales(self) -> _Scales:
        return {
            "batch_size": self.batch_size,
            "lipschitz": self.lipschitz,
            "learning_rate": self.learning_rate,
        }

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments, as stated by the user."""
        stated: dict[str, Any] = {
            "n": self.n,
            self.divisor.name: self.divisor.value,
            self.duration.name: self.duration.value,
            "learning_rate": self.learning_rate,
            "l2": self.l2,
            "domain": self.domain,
            "loss": self.loss,
            "dimension": self.dimension,
            self.noise.name: self.noise.value,
            "noise_kind": self.noise_kind,
            "neighbors": self.neighbors,
            "release": self.release if self.has_checkpoints else self.release.name,
        }
        # Plain runs are described as they were before there were others.
        extra = {
            "momentum": (self.momentum, 0.0),
            "momentum_kind": (self.momentum_kind, "nesterov"),
            "average_last": (self.average_last, 1),
            "group_size": (self.group_size, 1),
        }
        stated |= {name: value for name, (value, usual) in extra.items() if value != usual}
        match self.batches:
            case FullBatch():
                del stated["batch_size"]
            case Poisson(rate=rate):
                stated |= {"sampling_rate": rate} if self.has_own_rate else {}
                stated["sampling"] = "poisson"
            case FixedSize():
                stated["sampling"] = "fixed"
            case Cyclic(order=order):
                stated["order"] = order
            case OnePass():
                del stated[self.duration.name]
            case _ as unknown:
                refuse_batches(unknown)
        if self.inverse_temperature is not None:
            del stated[self.noise.name], stated["noise_kind"]
            stated["inverse_temperature"] = self.inverse_temperature
        return stated

    def replace(self, **changes: Any) -> Run:
        """Return a copy with some arguments changed; a stated alternative replaces the old one.

        >>> from dplateau.algorithms import NoisyGD
        >>> run = NoisyGD(n=100, steps=10, noise_multiplier=5.0, release="last")
        >>> run.replace(steps=20).steps
        20
        """
        stated = self.parameters()
        for group in ALTERNATIVES:
            stated_once = sum(name in stated for name in group) == 1
            if stated_once and any(name in changes for name in group):
                stated = {name: value for name, value in stated.items() if name not in group}
        return CONSTRUCTORS[self.kind](**{**stated, **changes})

    @classmethod
    def from_dp_event(
        cls, event: DpEvent, *, n: int, release: Release | ReleaseName, **options: Any
    ) -> Run:
        """Return the run that an event of dp-accounting tells of.

        Read are Gaussian noise on all records, on Poisson samples and on samples of one size,
        repeated and composed in any way; others are refused. An event knows neither the number of
        records ``n`` nor what leaves; if iterates stay hidden, state ``learning_rate``, ``loss``
        and ``l2`` or ``domain`` too, as for NoisySGD; what the event says is not stated again.
        Where a record is replaced, the event's noise is read in units of *one* gradient bound, the
        reading that claims less privacy.

        >>> from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
        >>> event = SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.1)), 500)
        >>> Run.from_dp_event(event, n=60000, release="all").batch_size
        600.0
        """
        from dplateau.algorithms.dp_events import run_from_dp_event

        return run_from_dp_event(event, n=n, release=release, **options)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description: the constructor's arguments and the algorithm's name."""
        described: dict[str, Any] = {"algorithm": self.kind}
        for name, value in self.parameters().items():
            if isinstance(value, Schedule):
                described[name] = value.to_json()
            elif isinstance(value, LossGeometry | Checkpoints) or name == "domain":
                described[name] = None if value is None else value.to_dict()
            else:
                described[name] = value
        return {name: value for name, value in described.items() if value is not None}

    def __repr__(self) -> str:
        """Show the arguments that differ from nothing."""
        shown = {name: value for name, value in self.parameters().items() if value is not None}
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def require_run(value: object) -> Run:
    """Return ``value`` if it describes a run; whatever else was passed is refused in words."""
    if not isinstance(value, Run):
        raise InvalidInput(
            f"a run is needed, such as NoisyGD(...) or NoisySGD(...); got {type(value).__name__}"
        )
    return value


def fraction(value: float) -> Fraction:
    """Read a number as the decimal the user typed, so that 0.1 epochs of 1000/10 are 10 steps."""
    return Fraction(repr(value))


def tidy(value: float) -> float:
    """Undo the last-digit noise of q * n when the product is meant to be whole."""
    nearest = round(value)
    return float(nearest) if nearest and abs(value - nearest) <= 1e-12 * nearest else value


def _momentum(value: object) -> float:
    number = checks.nonnegative("momentum", value)
    if number >= 1:
        raise InvalidInput(f"momentum must be below 1; got {number:g}")
    return number


def _check_type(name: str, value: object, kind: Any, wanted: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise InvalidInput(f"{name} must be {wanted}; got {value!r}")
