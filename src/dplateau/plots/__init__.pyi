"""The names of this room and their homes: read by type checkers, and by the door."""

from .canvas import SUFFIXES as SUFFIXES, Display as Display
from .comparison import ComparisonDisplay as ComparisonDisplay
from .over_steps import (
    EpsilonOverStepsDisplay as EpsilonOverStepsDisplay,
    TightnessDisplay as TightnessDisplay,
)
from .records import RecordDisplay as RecordDisplay
from .sampling import (
    MarginalDisplay as MarginalDisplay,
    MixingDisplay as MixingDisplay,
    TraceDisplay as TraceDisplay,
)
from .tradeoff import (
    AuditDisplay as AuditDisplay,
    EpsilonOverDeltaDisplay as EpsilonOverDeltaDisplay,
    TradeoffDisplay as TradeoffDisplay,
)
