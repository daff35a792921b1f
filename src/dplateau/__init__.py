"""Privacy accounting for noisy gradient descent whose intermediate states stay hidden.

Describe what runs, then ask: ``certify(run, delta)`` for the smallest provable epsilon,
``compare(run, delta)`` for every bound side by side, ``calibrate(run, epsilon, delta)`` for the
noise, length or ridge that meets a target. Names load on first use, so importing is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "dplateau.algorithms": (
        "Ball",
        "Body",
        "Box",
        "CyclicSGD",
        "Dissipativity",
        "Holder",
        "LossGeometry",
        "NoisyGD",
        "NoisySGD",
        "OnePassSGD",
        "ProjectedLangevin",
        "Schedule",
    ),
    "dplateau.certificates": (
        "Calibration",
        "Certificate",
        "Comparison",
        "Composition",
        "calibrate",
        "certify",
        "compare",
        "compose",
        "epsilon_over_steps",
        "noise_needed",
        "per_record",
    ),
    "dplateau.errors": ("DplateauError", "InvalidInput", "NotApplicable"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Ball",
    "Body",
    "Box",
    "Calibration",
    "Certificate",
    "Comparison",
    "Composition",
    "CyclicSGD",
    "Dissipativity",
    "DplateauError",
    "Holder",
    "InvalidInput",
    "LossGeometry",
    "NoisyGD",
    "NoisySGD",
    "NotApplicable",
    "OnePassSGD",
    "ProjectedLangevin",
    "Schedule",
    "__version__",
    "calibrate",
    "certify",
    "compare",
    "compose",
    "epsilon_over_steps",
    "noise_needed",
    "per_record",
]

if TYPE_CHECKING:
    from dplateau.algorithms import (
        Ball,
        Body,
        Box,
        CyclicSGD,
        Dissipativity,
        Holder,
        LossGeometry,
        NoisyGD,
        NoisySGD,
        OnePassSGD,
        ProjectedLangevin,
        Schedule,
    )
    from dplateau.certificates import (
        Calibration,
        Certificate,
        Comparison,
        Composition,
        calibrate,
        certify,
        compare,
        compose,
        epsilon_over_steps,
        noise_needed,
        per_record,
    )
    from dplateau.errors import DplateauError, InvalidInput, NotApplicable


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dplateau' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
