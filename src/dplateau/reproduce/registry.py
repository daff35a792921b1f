"""All exhibits, in the order of the papers."""

from __future__ import annotations

from collections.abc import Callable

from dplateau.errors import InvalidInput
from dplateau.reproduce import accountants, iterations
from dplateau.reproduce.exhibit import Exhibit

EXHIBITS: dict[str, Callable[[], Exhibit]] = {
    "plateau": iterations.plateau,
    "conversions": accountants.conversions,
    "joint-range": accountants.joint_range,
    "moments": accountants.moments,
    "random-stop": iterations.random_stop,
    "noise-scales": accountants.noise_scales,
    "one-pass": iterations.one_pass,
    "one-pass-strongly-convex": iterations.one_pass_strongly,
    "moduli": iterations.table_1,
    "weakly-smooth": iterations.weakly_smooth,
    "shift-energy": iterations.energy,
}


def exhibit_named(name: str) -> Exhibit:
    """Return the exhibit of that name, computed now."""
    if name not in EXHIBITS:
        raise InvalidInput(f"there is no exhibit {name!r}; there are {', '.join(EXHIBITS)}")
    return EXHIBITS[name]()
