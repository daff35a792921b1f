"""The names of this room and their homes: read by type checkers, and by the door."""

from .canvas import SUFFIXES as SUFFIXES, Display as Display
from .claims import (
    AuditDisplay as AuditDisplay,
    ComparisonDisplay as ComparisonDisplay,
    EpsilonOverDeltaDisplay as EpsilonOverDeltaDisplay,
    TradeoffDisplay as TradeoffDisplay,
)
from .curve import (
    EpsilonOverReleasesDisplay as EpsilonOverReleasesDisplay,
    EpsilonOverStepsDisplay as EpsilonOverStepsDisplay,
    RecordDisplay as RecordDisplay,
    TightnessDisplay as TightnessDisplay,
)
from .sampling import (
    MarginalDisplay as MarginalDisplay,
    MixingDisplay as MixingDisplay,
    TraceDisplay as TraceDisplay,
)
