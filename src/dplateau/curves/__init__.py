"""Privacy curves: Gaussian, Laplace, Rényi, privacy-loss and what is made of them."""

from dplateau.curves.averaged import AveragedLossCurve
from dplateau.curves.base import PrivacyCurve
from dplateau.curves.closed import GaussianCurve, LaplaceCurve
from dplateau.curves.combined import (
    AdvancedCompositionCurve,
    BasicCompositionCurve,
    BestCurve,
    GroupCurve,
    MixtureCurve,
    NaiveCompositionCurve,
    SubsampledCurve,
)
from dplateau.curves.loss import LossCurve
from dplateau.curves.renyi import RenyiCurve
from dplateau.curves.tabulated import TabulatedComposition

__all__ = [
    "AdvancedCompositionCurve",
    "AveragedLossCurve",
    "BasicCompositionCurve",
    "BestCurve",
    "GaussianCurve",
    "GroupCurve",
    "LaplaceCurve",
    "LossCurve",
    "MixtureCurve",
    "NaiveCompositionCurve",
    "PrivacyCurve",
    "RenyiCurve",
    "SubsampledCurve",
    "TabulatedComposition",
]
