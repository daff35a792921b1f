"""Proved lower bounds on the privacy loss, from exact one-dimensional runs of the algorithms.

Nothing here is shared with the upper bounds, which it exists to refute. Names are loaded on first
use, so that importing the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dplateau.audit.adversary import search_adversary
    from dplateau.audit.chains import (
        Always,
        Bernoulli,
        Inclusion,
        Once,
        Periodic,
        Reshuffled,
        Shuffled,
        Until,
    )
    from dplateau.audit.findings import Findings, findings_against
    from dplateau.audit.laws import (
        HalfLine,
        TailBracket,
        delta_from_brackets,
        epsilon_from_brackets,
    )
    from dplateau.audit.lower_bounds import lower_bound, problems_of
    from dplateau.audit.lower_curves import LowerPoints, lower_over_records, lower_over_steps
    from dplateau.audit.monte_carlo import AuditReport, audit_trainer
    from dplateau.audit.monte_carlo_rates import CanaryPair, worst_case_pair
    from dplateau.audit.problems import (
        LowerBound,
        WalkProblem,
        final_laws,
        lower_delta,
        lower_epsilon,
        solve,
    )
    from dplateau.audit.tightness_ratios import (
        Tightness,
        TightnessOverSteps,
        tightness,
        tightness_over_steps,
    )

_HOMES = {
    "search_adversary": "adversary",
    "Findings": "findings",
    "findings_against": "findings",
    "HalfLine": "laws",
    "delta_from_brackets": "laws",
    "epsilon_from_brackets": "laws",
    "Always": "chains",
    "Bernoulli": "chains",
    "Inclusion": "chains",
    "Once": "chains",
    "Periodic": "chains",
    "Reshuffled": "chains",
    "Shuffled": "chains",
    "Until": "chains",
    "TailBracket": "laws",
    "lower_bound": "lower_bounds",
    "problems_of": "lower_bounds",
    "LowerPoints": "lower_curves",
    "lower_over_records": "lower_curves",
    "lower_over_steps": "lower_curves",
    "audit_trainer": "monte_carlo",
    "CanaryPair": "monte_carlo_rates",
    "worst_case_pair": "monte_carlo_rates",
    "AuditReport": "monte_carlo",
    "LowerBound": "problems",
    "WalkProblem": "problems",
    "final_laws": "problems",
    "lower_delta": "problems",
    "lower_epsilon": "problems",
    "solve": "problems",
    "Tightness": "tightness_ratios",
    "TightnessOverSteps": "tightness_ratios",
    "tightness": "tightness_ratios",
    "tightness_over_steps": "tightness_ratios",
}

__all__ = [
    "Always",
    "AuditReport",
    "Bernoulli",
    "CanaryPair",
    "Findings",
    "HalfLine",
    "Inclusion",
    "LowerBound",
    "LowerPoints",
    "Once",
    "Periodic",
    "Reshuffled",
    "Shuffled",
    "TailBracket",
    "Tightness",
    "TightnessOverSteps",
    "Until",
    "WalkProblem",
    "audit_trainer",
    "delta_from_brackets",
    "epsilon_from_brackets",
    "final_laws",
    "findings_against",
    "lower_bound",
    "lower_delta",
    "lower_epsilon",
    "lower_over_records",
    "lower_over_steps",
    "problems_of",
    "search_adversary",
    "solve",
    "tightness",
    "tightness_over_steps",
    "worst_case_pair",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
