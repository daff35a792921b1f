"""A second derivation of every claim, written apart from the code that makes claims."""

from dplateau.verify.reading import read_certificate
from dplateau.verify.report import (
    PATIENT_SECONDS,
    SECONDS,
    Check,
    MixingVerification,
    Verification,
)
from dplateau.verify.verdict import verify, verify_mixing

__all__ = [
    "PATIENT_SECONDS",
    "SECONDS",
    "Check",
    "MixingVerification",
    "Verification",
    "read_certificate",
    "verify",
    "verify_mixing",
]
