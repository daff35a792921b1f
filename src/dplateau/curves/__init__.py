"""Privacy curves: Gaussian, Laplace, Rényi, privacy-loss and what is made of them."""

from dplateau.curves.averaged import AveragedLossCurve
from dplateau.curves.base import PrivacyCurve
from dplateau.curves.closed import GaussianCurve, LaplaceCurve
from dplateau.curves.closed_recursion import ClosedRecursionCurve
from dplateau.curves.combined import (
    AdvancedCompositionCurve,
    BasicCompositionCurve,
    BestCurve,
    GroupCurve,
    MixtureCurve,
    NaiveCompositionCurve,
    SubsampledCurve,
    WorstCurve,
)
from dplateau.curves.concentrated import ConcentratedCurve
from dplateau.curves.loss import LossCurve
from dplateau.curves.renyi import RenyiCurve
from dplateau.curves.tabulated import TabulatedCurve, tabulate
from dplateau.curves.used_once import RecursionCurve, Stretch, UsedOnceCurve

__all__ = [
    "AdvancedCompositionCurve",
    "AveragedLossCurve",
    "BasicCompositionCurve",
    "BestCurve",
    "ClosedRecursionCurve",
    "ConcentratedCurve",
    "GaussianCurve",
    "GroupCurve",
    "LaplaceCurve",
    "LossCurve",
    "MixtureCurve",
    "NaiveCompositionCurve",
    "PrivacyCurve",
    "RecursionCurve",
    "RenyiCurve",
    "Stretch",
    "SubsampledCurve",
    "TabulatedCurve",
    "UsedOnceCurve",
    "WorstCurve",
    "tabulate",
]
