"""How the records of a step are chosen: a closed set of values.

Whatever depends on batches matches on them and ends with :func:`refuse_batches`: the type checker
then finds every place that does not say yet what it does with a new scheme, and at run time such a
place refuses in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Never

from dplateau.algorithms.schedule import PerStep, extremes, per_step
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks

Order = Literal["cyclic", "shuffle_once", "reshuffle"]
Sampling = Literal["poisson", "fixed"]
ORDERS = ("cyclic", "shuffle_once", "reshuffle")
SAMPLINGS = ("poisson", "fixed")


@dataclass(frozen=True)
class FullBatch:
    """All records, at every step."""

    algorithm: ClassVar[str] = "NoisyGD"
    described: ClassVar[str] = "NoisyGD or ProjectedLangevin"


@dataclass(frozen=True)
class Poisson:
    """Each record joins the batch of step t by itself, with probability ``rate`` (of step t)."""

    algorithm: ClassVar[str] = "NoisySGD"
    described: ClassVar[str] = "NoisySGD with sampling='poisson'"

    rate: PerStep

    def __post_init__(self) -> None:
        """Check that every rate is a probability above zero."""
        rate = per_step("sampling_rate", self.rate)
        largest = extremes(rate)[1]
        if largest > 1:
            raise InvalidInput(f"sampling_rate must be at most 1; got {largest:g}")
        checks.put(self, "rate", rate)


@dataclass(frozen=True)
class FixedSize:
    """A uniformly random set of exactly ``size`` records, drawn afresh at every step."""

    algorithm: ClassVar[str] = "NoisySGD"
    described: ClassVar[str] = "NoisySGD with sampling='fixed'"

    size: int

    def __post_init__(self) -> None:
        """Check that a batch holds whole records."""
        size = checks.positive("batch_size", self.size)
        if size != int(size):
            raise InvalidInput(f"a fixed-size batch holds a whole number of records; got {size:g}")
        checks.put(self, "size", int(self.size))


@dataclass(frozen=True)
class Cyclic:
    """Consecutive batches of ``size`` records of an ordering, epoch after epoch."""

    algorithm: ClassVar[str] = "CyclicSGD"
    described: ClassVar[str] = "CyclicSGD"

    size: int
    order: Order = "cyclic"

    def __post_init__(self) -> None:
        """Check that batches hold whole records, and the order's name."""
        checks.put(self, "size", _consecutive(self.size))
        checks.choice("order", self.order, ORDERS)


@dataclass(frozen=True)
class OnePass:
    """Consecutive batches of ``size`` records in the given order, each record once."""

    algorithm: ClassVar[str] = "OnePassSGD"
    described: ClassVar[str] = "OnePassSGD"

    size: int

    def __post_init__(self) -> None:
        """Check that batches hold whole records."""
        checks.put(self, "size", _consecutive(self.size))


Batches = FullBatch | Poisson | FixedSize | Cyclic | OnePass
Scheme = type[FullBatch] | type[Poisson] | type[FixedSize] | type[Cyclic] | type[OnePass]


def refuse_batches(unknown: Never) -> Never:
    """Refuse batches of a kind that the caller has no case for."""
    raise NotApplicable(
        f"nothing is known here about batches of the kind {type(unknown).__name__}; known are "
        "FullBatch, Poisson, FixedSize, Cyclic and OnePass"
    )


def _consecutive(size: float) -> int:
    if size != int(size):
        raise InvalidInput(f"consecutive batches hold whole records; got a batch size of {size:g}")
    return int(size)
