"""Pictures: each display is frozen data that can draw itself.

Data is all that building a display needs; matplotlib (the extra ``plots``) is loaded when one is
drawn. Nothing here touches pyplot, so no window opens and no figure outlives its last reference.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dplateau.plots.audit import AuditDisplay
    from dplateau.plots.canvas import SUFFIXES, Display
    from dplateau.plots.comparison import ComparisonDisplay
    from dplateau.plots.draws import MarginalDisplay, TraceDisplay
    from dplateau.plots.lower import LowerPoints, lower_over_records, lower_over_steps
    from dplateau.plots.mixing import MixingDisplay
    from dplateau.plots.over_steps import EpsilonOverStepsDisplay
    from dplateau.plots.per_record import LossPerRecord, loss_per_record
    from dplateau.plots.places import record_positions, step_counts
    from dplateau.plots.records import RecordDisplay
    from dplateau.plots.table import Column, CurveTable
    from dplateau.plots.tightness import TightnessDisplay
    from dplateau.plots.tradeoff import TradeoffDisplay

_HOMES = {
    "AuditDisplay": "audit",
    "SUFFIXES": "canvas",
    "Display": "canvas",
    "ComparisonDisplay": "comparison",
    "MarginalDisplay": "draws",
    "TraceDisplay": "draws",
    "LowerPoints": "lower",
    "lower_over_records": "lower",
    "lower_over_steps": "lower",
    "MixingDisplay": "mixing",
    "EpsilonOverStepsDisplay": "over_steps",
    "LossPerRecord": "per_record",
    "loss_per_record": "per_record",
    "record_positions": "places",
    "step_counts": "places",
    "RecordDisplay": "records",
    "Column": "table",
    "CurveTable": "table",
    "TightnessDisplay": "tightness",
    "TradeoffDisplay": "tradeoff",
}

__all__ = [
    "SUFFIXES",
    "AuditDisplay",
    "Column",
    "ComparisonDisplay",
    "CurveTable",
    "Display",
    "EpsilonOverStepsDisplay",
    "LossPerRecord",
    "LowerPoints",
    "MarginalDisplay",
    "MixingDisplay",
    "RecordDisplay",
    "TightnessDisplay",
    "TraceDisplay",
    "TradeoffDisplay",
    "loss_per_record",
    "lower_over_records",
    "lower_over_steps",
    "record_positions",
    "step_counts",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
