"""Privacy curves: Gaussian, Laplace, Rényi, composed losses, and the pairs of laws behind them."""

from dplateau.curves.base import PrivacyCurve, checked_epsilon
from dplateau.curves.closed import (
    ClosedRecursionCurve,
    ConcentratedCurve,
    GaussianCurve,
    LaplaceCurve,
)
from dplateau.curves.combined import (
    AdvancedCompositionCurve,
    BasicCompositionCurve,
    GroupCurve,
    MixtureCurve,
    NaiveCompositionCurve,
    SubsampledCurve,
    WorstCurve,
)
from dplateau.curves.composed import AveragedLossCurve, LossCurve, compose_family
from dplateau.curves.mixture_pairs import MixturePair
from dplateau.curves.pairs import (
    DominatingPair,
    LaplacePair,
    PoissonPair,
    SubsampledGaussianPair,
)
from dplateau.curves.privacy_loss import compose_pairs, epsilon_over_counts
from dplateau.curves.renyi import (
    LARGEST_ORDER,
    LARGEST_REAL_ORDER,
    RenyiCurve,
    sampled_gaussian_rdp,
)
from dplateau.curves.tabulated import WIDEST_EPSILON, TablePair, TabulatedCurve, tabulate
from dplateau.curves.used_once import NoiseKind, RecursionCurve, Stretch, UsedOnceCurve

__all__ = [
    "LARGEST_ORDER",
    "LARGEST_REAL_ORDER",
    "WIDEST_EPSILON",
    "AdvancedCompositionCurve",
    "AveragedLossCurve",
    "BasicCompositionCurve",
    "ClosedRecursionCurve",
    "ConcentratedCurve",
    "DominatingPair",
    "GaussianCurve",
    "GroupCurve",
    "LaplaceCurve",
    "LaplacePair",
    "LossCurve",
    "MixtureCurve",
    "MixturePair",
    "NaiveCompositionCurve",
    "NoiseKind",
    "PoissonPair",
    "PrivacyCurve",
    "RecursionCurve",
    "RenyiCurve",
    "Stretch",
    "SubsampledCurve",
    "SubsampledGaussianPair",
    "TablePair",
    "TabulatedCurve",
    "UsedOnceCurve",
    "WorstCurve",
    "checked_epsilon",
    "compose_family",
    "compose_pairs",
    "epsilon_over_counts",
    "sampled_gaussian_rdp",
    "tabulate",
]
