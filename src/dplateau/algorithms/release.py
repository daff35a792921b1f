"""What leaves a run: a closed set of promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Never

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


Release = LastIterate | AllIterates | RandomStop
_NAMED: dict[str, Release] = {
    release.name: release for release in (LastIterate(), AllIterates(), RandomStop())
}


def release_of(stated: object) -> Release:
    """Read a release, or its name.

    >>> release_of("last")
    LastIterate()
    """
    if stated is None:
        raise InvalidInput(
            "release is a promise about what leaves and has no default: "
            "say release='last', 'all' or 'random_stop'"
        )
    if isinstance(stated, LastIterate | AllIterates | RandomStop):
        return stated
    return _NAMED[checks.choice("release", stated, tuple(_NAMED))]


def refuse_release(unknown: Never) -> Never:
    """Refuse a release of a kind that the caller has no case for."""
    raise NotApplicable(
        f"nothing is known here about a release of the kind {type(unknown).__name__}; known are "
        f"{', '.join(_NAMED)}"
    )
