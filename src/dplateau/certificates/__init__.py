"""Claims: certify, compare, calibrate and compose."""

from dplateau.certificates.calibrate import (
    Calibration,
    NoiseNeed,
    NoiseNeeds,
    calibrate,
    noise_needed,
)
from dplateau.certificates.certificate import Certificate
from dplateau.certificates.certify import Comparison, ComparisonRow, certify, compare
from dplateau.certificates.compose import compose
from dplateau.certificates.composition import Composition, ForeignPart, foreign
from dplateau.certificates.over_steps import (
    BoundOverSteps,
    Column,
    CurveTable,
    EpsilonOverReleases,
    EpsilonOverSteps,
    epsilon_over_releases,
    epsilon_over_steps,
    record_positions,
    step_counts,
)
from dplateau.certificates.per_record import (
    LossPerRecord,
    RecordEpsilons,
    loss_per_record,
    per_record,
)

__all__ = [
    "BoundOverSteps",
    "Calibration",
    "Certificate",
    "Column",
    "Comparison",
    "ComparisonRow",
    "Composition",
    "CurveTable",
    "EpsilonOverReleases",
    "EpsilonOverSteps",
    "ForeignPart",
    "LossPerRecord",
    "NoiseNeed",
    "NoiseNeeds",
    "RecordEpsilons",
    "calibrate",
    "certify",
    "compare",
    "compose",
    "epsilon_over_releases",
    "epsilon_over_steps",
    "foreign",
    "loss_per_record",
    "noise_needed",
    "per_record",
    "record_positions",
    "step_counts",
]
