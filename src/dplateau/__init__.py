"""Privacy accounting for noisy gradient descent whose intermediate states stay hidden.

Describe what runs, then ask: ``certify(run, delta)`` for the smallest provable epsilon,
``compare(run, delta)`` for every bound side by side, ``calibrate(run, epsilon, delta)`` for the
noise, length or ridge that meets a target. Names load on first use, so importing is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOMES = {
    "dplateau.algorithms": (
        "Ball",
        "Body",
        "Box",
        "Checkpoints",
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
    "dplateau.audit": (
        "AuditReport",
        "Tightness",
        "audit_trainer",
        "lower_bound",
        "search_adversary",
        "tightness",
        "worst_case_pair",
    ),
    "dplateau.certificates": (
        "Calibration",
        "Certificate",
        "Comparison",
        "Composition",
        "ForeignPart",
        "calibrate",
        "certify",
        "compare",
        "compose",
        "epsilon_over_steps",
        "foreign",
        "noise_needed",
        "per_record",
    ),
    "dplateau.errors": ("DplateauError", "InvalidInput", "NotApplicable", "PrivacyLeakWarning"),
    "dplateau.estimators": (
        "PrivateHuberRegressor",
        "PrivateLinearSVC",
        "PrivateLogisticRegression",
        "PrivateRidge",
    ),
    "dplateau.planning": ("Plan", "plan"),
    "dplateau.sampling": (
        "LangevinSampler",
        "MixingCertificate",
        "OffCenterBall",
        "Polytope",
        "Potential",
        "Samples",
        "Simplex",
        "certify_mixing",
        "largest_learning_rate",
        "sample",
        "theorem_4_2",
        "tv_over_steps",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AuditReport",
    "Ball",
    "Body",
    "Box",
    "Calibration",
    "Certificate",
    "Checkpoints",
    "Comparison",
    "Composition",
    "CyclicSGD",
    "Dissipativity",
    "DplateauError",
    "ForeignPart",
    "Holder",
    "InvalidInput",
    "LangevinSampler",
    "LossGeometry",
    "MixingCertificate",
    "NoisyGD",
    "NoisySGD",
    "NotApplicable",
    "OffCenterBall",
    "OnePassSGD",
    "Plan",
    "Polytope",
    "Potential",
    "PrivacyLeakWarning",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "ProjectedLangevin",
    "Samples",
    "Schedule",
    "Simplex",
    "Tightness",
    "__version__",
    "audit_trainer",
    "calibrate",
    "certify",
    "certify_mixing",
    "compare",
    "compose",
    "epsilon_over_steps",
    "foreign",
    "largest_learning_rate",
    "lower_bound",
    "noise_needed",
    "per_record",
    "plan",
    "sample",
    "search_adversary",
    "theorem_4_2",
    "tightness",
    "tv_over_steps",
    "worst_case_pair",
]

if TYPE_CHECKING:
    from dplateau.algorithms import (
        Ball,
        Body,
        Box,
        Checkpoints,
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
    from dplateau.audit import (
        AuditReport,
        Tightness,
        audit_trainer,
        lower_bound,
        search_adversary,
        tightness,
        worst_case_pair,
    )
    from dplateau.certificates import (
        Calibration,
        Certificate,
        Comparison,
        Composition,
        ForeignPart,
        calibrate,
        certify,
        compare,
        compose,
        epsilon_over_steps,
        foreign,
        noise_needed,
        per_record,
    )
    from dplateau.errors import DplateauError, InvalidInput, NotApplicable, PrivacyLeakWarning
    from dplateau.estimators import (
        PrivateHuberRegressor,
        PrivateLinearSVC,
        PrivateLogisticRegression,
        PrivateRidge,
    )
    from dplateau.planning import Plan, plan
    from dplateau.sampling import (
        LangevinSampler,
        MixingCertificate,
        OffCenterBall,
        Polytope,
        Potential,
        Samples,
        Simplex,
        certify_mixing,
        largest_learning_rate,
        sample,
        theorem_4_2,
        tv_over_steps,
    )


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dplateau' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
