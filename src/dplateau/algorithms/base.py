"""Descriptions of noisy gradient descent: frozen data whose docstrings define what runs.

Every run iterates

    w_{t+1} = Proj_K[ w_t - eta_t * ( (1/b) * sum_{i in B_t} g_i(w_t) + l2 * w_t ) + nu_t * xi_t ]

from a start that does not depend on the data, where g_i is the gradient (or clipped gradient) of
record i's loss, |g_i| <= L, b is a public constant (never the realised batch size), B_t the batch
of step t, K the ``domain`` (everything if None), and xi_t fresh noise of unit variance per
coordinate. The ridge term l2 * w_t covers every coordinate, the intercept included, and is added
outside the clipped gradients.

With ``momentum`` m > 0 the gradient and the ridge term are taken ahead of w_t (Nesterov):

    a_t = w_t + m v_t,   v_{t+1} = m v_t - eta_t * ( (1/b) * sum_{i in B_t} g_i(a_t) + l2 * a_t )
                                   + nu_t * xi_t,   w_{t+1} = Proj_K[ w_t + v_{t+1} ],   v_0 = 0

and with ``average_last`` k > 1 the model that leaves is the mean of the last k iterates. Both only
process noisy gradients further, so composition covers them; hidden-state bounds do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Required, Self, TypedDict

from dplateau.algorithms import _check, noise
from dplateau.algorithms.domains import Box, Domain
from dplateau.algorithms.geometry import LossGeometry
from dplateau.algorithms.noise import Given
from dplateau.algorithms.schedule import PerStep, Schedule, per_step, times
from dplateau.errors import InvalidInput, NotApplicable

Neighbors = Literal["add_remove", "replace"]
Release = Literal["last", "all", "random_stop"]
NoiseKind = Literal["gaussian", "laplace"]
NEIGHBORS = ("add_remove", "replace")
RELEASES = ("last", "all", "random_stop")
NOISE_KINDS = ("gaussian", "laplace")
# Two names for one quantity: stating one replaces the other.
ALTERNATIVES = (
    ("batch_size", "sampling_rate"),
    ("steps", "epochs"),
    noise.CONVENTIONS,
)


class RunOptions(TypedDict, total=False):
    """What every run takes beside its own sizes (all by keyword)."""

    learning_rate: PerStep | list[float] | tuple[float, ...] | None
    l2: float
    domain: Domain | None
    loss: LossGeometry | None
    dimension: int | None
    momentum: float
    average_last: int
    noise_multiplier: PerStep | list[float] | tuple[float, ...] | None
    noise_std: PerStep | list[float] | tuple[float, ...] | None
    iterate_std: PerStep | list[float] | tuple[float, ...] | None
    noise_kind: NoiseKind
    neighbors: Neighbors
    release: Required[Release]


class _Scales(TypedDict):
    batch_size: float
    lipschitz: float | None
    learning_rate: PerStep | None


@dataclass(frozen=True, init=False, repr=False)
class Run:
    """What the five descriptions share; use one of them, not this class.

    Parameters
    ----------
    n
        Number of records, a public constant.
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
    momentum, average_last
        Nesterov's momentum in [0, 1), and how many of the last iterates the released model
        averages; 0 and 1 are the plain run.
    noise_multiplier, noise_std, iterate_std
        Exactly one; see :mod:`dplateau.algorithms.noise`. Each may be one value per step.
    noise_kind
        "gaussian", or "laplace" in one dimension.
    neighbors
        "add_remove": one record is present or absent while n, b and the normaliser stay public
        constants; with deterministic or shuffled batches the absent record keeps its slot and
        contributes a zero gradient (deleting it and moving the later records up is not covered).
        "replace": one record is exchanged for another.
    release
        A promise about what leaves: "last" (only the last iterate; no loss, metric or iterate of
        the way there is seen by anyone), "all" (every iterate may leave) or "random_stop" (the
        iterate of one uniformly random step).
    """

    kind: ClassVar[str] = "run"
    may_stop_at_random: ClassVar[bool] = False

    n: int
    batch: Given
    duration: Given
    steps: int
    learning_rate: PerStep | None
    l2: float
    domain: Domain | None
    loss: LossGeometry | None
    dimension: int | None
    momentum: float
    average_last: int
    noise: Given
    noise_kind: NoiseKind
    neighbors: Neighbors
    release: Release

    def _fill(self, *, n: int, batch: Given, duration: Given, options: RunOptions) -> None:
        """Validate and store the shared fields (frozen: only the constructors call this)."""
        unknown = set(options) - set(RunOptions.__annotations__)
        if unknown:
            raise InvalidInput(
                f"{self.kind} has no option {sorted(unknown)[0]!r}; "
                f"options are {', '.join(RunOptions.__annotations__)}"
            )
        _check.put(self, "n", n)
        _check.put(self, "batch", batch)
        _check.put(self, "duration", duration)
        _check.put(self, "steps", self._count_steps())
        rate = options.get("learning_rate")
        _check.put(self, "learning_rate", None if rate is None else per_step("learning_rate", rate))
        _check.put(self, "l2", _check.nonnegative("l2", options.get("l2", 0.0)))
        _check.put(
            self,
            "domain",
            _typed("domain", options.get("domain"), Domain, "Ball, Box, Body or None"),
        )
        _check.put(
            self, "loss", _typed("loss", options.get("loss"), LossGeometry, "LossGeometry or None")
        )
        size = options.get("dimension")
        _check.put(self, "dimension", None if size is None else _check.whole("dimension", size))
        _check.put(self, "momentum", _momentum(options.get("momentum", 0.0)))
        averaged = _check.whole("average_last", options.get("average_last", 1))
        _check.put(self, "average_last", averaged)
        _check.put(self, "noise", self._given_noise(options))
        kind = _check.choice("noise_kind", options.get("noise_kind", "gaussian"), NOISE_KINDS)
        _check.put(self, "noise_kind", kind)
        relation = _check.choice("neighbors", options.get("neighbors", "add_remove"), NEIGHBORS)
        _check.put(self, "neighbors", relation)
        _check.put(self, "release", _release(options.get("release")))
        self._check_together()

    def _given_noise(self, options: RunOptions) -> Given:
        stated: list[Given] = []
        for name in noise.CONVENTIONS:
            value = options.get(name)
            if value is not None:
                stated.append(Given(name, per_step(name, value)))
        if len(stated) != 1:
            names = " and ".join(given.name for given in stated) or "none"
            raise InvalidInput(
                f"state the noise once: exactly one of {', '.join(noise.CONVENTIONS)}; got {names}"
            )
        return stated[0]

    def _count_steps(self) -> int:
        """Return T: the steps given, or ceil(epochs * n / batch_size)."""
        if self.duration.name == "steps":
            return _check.whole("steps", self.duration.value)
        # q as stated, not q * n / n: a rounded product could add a step.
        share = fraction(self.batch.value) / (self.n if self.batch.name == "batch_size" else 1)
        return math.ceil(fraction(self.duration.value) / share)

    def _check_together(self) -> None:
        """Refuse combinations that describe nothing, or for which no theorem is known."""
        for name in ("learning_rate", "noise"):
            value = self.noise.value if name == "noise" else self.learning_rate
            if isinstance(value, Schedule) and len(value) != self.steps:
                label = self.noise.name if name == "noise" else name
                raise InvalidInput(
                    f"{label} has {len(value)} values but the run has {self.steps} steps; "
                    "give one value per step"
                )
        if isinstance(self.domain, Box) and self.dimension not in (None, self.domain.dimension):
            raise InvalidInput(
                f"dimension={self.dimension} but the box has {self.domain.dimension} coordinates"
            )
        if self.noise_kind == "laplace" and self.dimension != 1:
            raise InvalidInput(
                f"no theorem covers Laplace noise with dimension={self.dimension}; "
                "state dimension=1, or use noise_kind='gaussian'"
            )
        if self.average_last > self.steps:
            raise InvalidInput(
                f"average_last={self.average_last} but the run has {self.steps} steps"
            )
        if self.release == "random_stop" and not self.is_plain:
            raise InvalidInput(
                "release='random_stop' is about plain steps: leave out momentum and average_last"
            )
        if self.release == "random_stop" and not self.may_stop_at_random:
            raise InvalidInput(
                f"no theorem covers release='random_stop' for {self.kind}; "
                "use OnePassSGD, or release='last'"
            )

    # What follows is derived: nothing here is stored twice.

    @property
    def batch_size(self) -> float:
        """Return b, the public constant that every step divides by."""
        value = self.batch.value
        assert not isinstance(value, Schedule)
        return value if self.batch.name == "batch_size" else tidy(value * self.n)

    @property
    def sampling_rate(self) -> float:
        """Return q = b / n, the share of the records in a batch."""
        value = self.batch.value
        assert not isinstance(value, Schedule)
        return value if self.batch.name == "sampling_rate" else value / self.n

    @property
    def is_plain(self) -> bool:
        """Return whether each iterate follows from the one before, and the last one leaves."""
        return self.momentum == 0 and self.average_last == 1

    @property
    def epochs(self) -> float:
        """Return the number of passes over the data, T b / n."""
        return self.steps * self.batch_size / self.n

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
        return noise.as_noise_multiplier(self.noise, **self._scales())

    @property
    def noise_std(self) -> PerStep:
        """Noise on the averaged gradient, as a standard deviation."""
        return noise.as_noise_std(self.noise, **self._scales())

    @property
    def iterate_std(self) -> PerStep:
        """Noise in parameter space, as a standard deviation."""
        return noise.as_iterate_std(self.noise, **self._scales())

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
    def group_size(self) -> int:
        """TEMP."""
        return 1

    @property
    def neighbor_factor(self) -> int:
        """Return how many gradient bounds L two neighbours differ by: 1, or 2 for "replace"."""
        return 2 if self.neighbors == "replace" else 1

    def _scales(self) -> _Scales:
        return {
            "batch_size": self.batch_size,
            "lipschitz": self.lipschitz,
            "learning_rate": self.learning_rate,
        }

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments, as stated by the user."""
        found: dict[str, Any] = {
            "n": self.n,
            self.batch.name: self.batch.value,
            self.duration.name: self.duration.value,
            "learning_rate": self.learning_rate,
            "l2": self.l2,
            "domain": self.domain,
            "loss": self.loss,
            "dimension": self.dimension,
            self.noise.name: self.noise.value,
            "noise_kind": self.noise_kind,
            "neighbors": self.neighbors,
            "release": self.release,
        }
        # Plain runs are described as they were before there were others.
        extra = {"momentum": (self.momentum, 0.0), "average_last": (self.average_last, 1)}
        return found | {name: value for name, (value, usual) in extra.items() if value != usual}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some arguments changed; a stated alternative replaces the old one.

        >>> from dplateau.algorithms import NoisyGD
        >>> run = NoisyGD(n=100, steps=10, noise_multiplier=5.0, release="last")
        >>> run.replace(steps=20).steps
        20
        """
        found = self.parameters()
        for group in ALTERNATIVES:
            if any(name in changes for name in group):
                found = {name: value for name, value in found.items() if name not in group}
        return type(self)(**{**found, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description: the constructor's arguments and the algorithm's name."""
        found: dict[str, Any] = {"algorithm": self.kind}
        for name, value in self.parameters().items():
            if isinstance(value, Schedule):
                found[name] = value.to_json()
            elif isinstance(value, LossGeometry) or name == "domain":
                found[name] = None if value is None else value.to_dict()
            else:
                found[name] = value
        return {name: value for name, value in found.items() if value is not None}

    def __repr__(self) -> str:
        """Show the arguments that differ from nothing."""
        shown = {name: value for name, value in self.parameters().items() if value is not None}
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def fraction(value: PerStep) -> Fraction:
    """Read a number as the decimal the user typed, so that 0.1 epochs of 1000/10 are 10 steps."""
    assert not isinstance(value, Schedule)
    return Fraction(repr(value))


def tidy(value: float) -> float:
    """Undo the last-digit noise of q * n when the product is meant to be whole."""
    nearest = round(value)
    return float(nearest) if nearest and abs(value - nearest) <= 1e-12 * nearest else value


def _momentum(value: object) -> float:
    number = _check.nonnegative("momentum", value)
    if number >= 1:
        raise InvalidInput(f"momentum must be below 1; got {number:g}")
    return number


def _release(value: object) -> str:
    if value is None:
        raise InvalidInput(
            "release is a promise about what leaves and has no default: "
            "say release='last', 'all' or 'random_stop'"
        )
    return _check.choice("release", value, RELEASES)


def _typed(name: str, value: object, kind: Any, wanted: str) -> object:
    if value is not None and not isinstance(value, kind):
        raise InvalidInput(f"{name} must be {wanted}; got {value!r}")
    return value
