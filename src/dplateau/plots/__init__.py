"""Pictures: each display is frozen data that can draw itself.

Data is all that building a display needs; matplotlib (the extra ``plots``) is loaded when one is
drawn. Nothing here touches pyplot, so no window opens and no figure outlives its last reference.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dplateau.plots.canvas import SUFFIXES, Display
    from dplateau.plots.comparison import ComparisonDisplay
    from dplateau.plots.over_steps import EpsilonOverStepsDisplay, TightnessDisplay
    from dplateau.plots.records import RecordDisplay
    from dplateau.plots.sampling import MarginalDisplay, MixingDisplay, TraceDisplay
    from dplateau.plots.tradeoff import AuditDisplay, TradeoffDisplay

_HOMES = {
    "AuditDisplay": "tradeoff",
    "SUFFIXES": "canvas",
    "Display": "canvas",
    "ComparisonDisplay": "comparison",
    "MarginalDisplay": "sampling",
    "TraceDisplay": "sampling",
    "MixingDisplay": "sampling",
    "EpsilonOverStepsDisplay": "over_steps",
    "RecordDisplay": "records",
    "TightnessDisplay": "over_steps",
    "TradeoffDisplay": "tradeoff",
}

__all__ = [
    "SUFFIXES",
    "AuditDisplay",
    "ComparisonDisplay",
    "Display",
    "EpsilonOverStepsDisplay",
    "MarginalDisplay",
    "MixingDisplay",
    "RecordDisplay",
    "TightnessDisplay",
    "TraceDisplay",
    "TradeoffDisplay",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
