"""What leaves a run: a closed set of promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, Never

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks

ReleaseName = Literal["last", "all", "random_stop"]


@dataclass(frozen=True)
class LastIterate:
    """Only the last iterate; no loss, metric or iterate of the way there is seen by anyone."""

    name: ClassVar[ReleaseName] = "last"


@dataclass(frozen=True)
class AllIterates:
    """Every iterate may leave."""

    name: ClassVar[ReleaseName] = "all"


@dataclass(frozen=True)
class RandomStop:
    """The iterate of one uniformly random step."""

    name: ClassVar[ReleaseName] = "random_stop"


@dataclass(frozen=True)
class Checkpoints:
    """The iterates after some steps that are fixed in advance, and the last one; nothing between.

    Stated in one of three ways: ``every`` k steps, ``at`` these numbers of steps, or the ``last`` k
    iterates. What is seen of a checkpoint may decide whether to look at later ones, or to stop:
    that only processes what was planned, and costs what was planned.

    >>> Checkpoints(every=4).segments(10)
    ((4, 2), (2, 1))
    >>> Checkpoints(at=[1, 5]).times(7)
    [1, 5, 7]
    >>> Checkpoints(last=3).segments(10)
    ((8, 1), (1, 2))
    """

    name: ClassVar[Literal["checkpoints"]] = "checkpoints"
    every: int | None = None
    at: Sequence[int] | None = None
    last: int | None = None

    def __post_init__(self) -> None:
        """Check that the checkpoints are stated once, by whole numbers that rise."""
        stated = [name for name in ("every", "at", "last") if getattr(self, name) is not None]
        if len(stated) != 1:
            raise InvalidInput(
                "state the checkpoints once: every=k, at=[...] or last=k; got "
                f"{' and '.join(stated) or 'none'}"
            )
        if self.at is None:
            checks.put(self, stated[0], checks.whole(stated[0], getattr(self, stated[0])))
            return
        if isinstance(self.at, str) or not isinstance(self.at, Sequence) or not self.at:
            raise InvalidInput(
                f"at is a list of numbers of steps, such as [100, 200]; got {self.at!r}"
            )
        times = tuple(checks.whole("a checkpoint", time) for time in self.at)
        if any(first >= second for first, second in pairwise(times)):
            raise InvalidInput(f"checkpoints must rise; got at={list(times)}")
        checks.put(self, "at", times)

    def check(self, steps: int) -> None:
        """Refuse checkpoints that a run of so many steps does not reach."""
        if self.at is not None and self.at[-1] > steps:
            raise InvalidInput(f"a checkpoint at step {self.at[-1]} of a run of {steps} steps")
        if self.last is not None and self.last > steps:
            raise InvalidInput(f"the last {self.last} iterates of a run of {steps} steps")

    def segments(self, steps: int) -> tuple[tuple[int, int], ...]:
        """Return (length, how many in a row) of the stretches between releases, in order."""
        self.check(steps)
        if self.every is not None:
            whole, left = divmod(steps, self.every)
            stretches = [(self.every, whole), (left, 1)]
        elif self.last is not None:
            stretches = [(steps - self.last + 1, 1), (1, self.last - 1)]
        else:
            ends = sorted({0, *(self.at or ()), steps})
            stretches = [(stop - start, 1) for start, stop in pairwise(ends)]
        joined: list[tuple[int, int]] = []
        for length, count in stretches:
            if joined and joined[-1][0] == length:
                joined[-1] = (length, joined[-1][1] + count)
            elif length and count:
                joined.append((length, count))
        return tuple(joined)

    def times(self, steps: int) -> list[int]:
        """Return after how many steps an iterate leaves; the last one always does."""
        reached: list[int] = []
        done = 0
        for length, count in self.segments(steps):
            reached += range(done + length, done + length * count + 1, length)
            done += length * count
        return reached

    def to_dict(self) -> dict[str, Any]:
        """Return the checkpoints as JSON-ready data."""
        stated = {"every": self.every, "at": self.at and list(self.at), "last": self.last}
        return {"kind": self.name} | {name: v for name, v in stated.items() if v is not None}

    def __repr__(self) -> str:
        """Show what was stated."""
        parts = [f"{name}={v!r}" for name, v in self.to_dict().items() if name != "kind"]
        return f"Checkpoints({parts[0]})"


Release = LastIterate | AllIterates | RandomStop | Checkpoints
_NAMED: dict[str, Release] = {
    release.name: release for release in (LastIterate(), AllIterates(), RandomStop())
}


def release_of(stated: object) -> Release:
    """Read a release, its name, or what :meth:`Checkpoints.to_dict` wrote.

    >>> release_of("last")
    LastIterate()
    """
    if stated is None:
        raise InvalidInput(
            "release is a promise about what leaves and has no default: "
            "say release='last', release='all', release='random_stop' or Checkpoints(every=...)"
        )
    if isinstance(stated, LastIterate | AllIterates | RandomStop | Checkpoints):
        return stated
    if isinstance(stated, dict):
        return _checkpoints(stated)
    if stated == Checkpoints.name:
        raise InvalidInput(
            "which checkpoints? say release=Checkpoints(every=100), at=[...] or last=10"
        )
    return _NAMED[checks.choice("release", stated, tuple(_NAMED))]


def _checkpoints(document: dict[str, Any]) -> Checkpoints:
    stated = dict(document)
    known = stated.pop("kind", None) == Checkpoints.name
    if not known or not set(stated) <= {"every", "at", "last"}:
        raise InvalidInput(f"a release is a name or checkpoints; got {document!r}")
    return Checkpoints(**stated)


def refuse_release(unknown: Never) -> Never:
    """Refuse a release of a kind that the caller has no case for."""
    raise NotApplicable(
        f"nothing is known here about a release of the kind {type(unknown).__name__}; known are "
        f"{', '.join(_NAMED)} and {Checkpoints.name}"
    )
