"""Every bound. One that is added here joins certify, compare, the laws and the attacks.

Published statements whose proof has a gap stand apart: ``compare(historical=True)`` shows them, and
nothing claims them.
"""

from __future__ import annotations

from dplateau.bounds.base import Bound
from dplateau.bounds.blocks import PoissonBlocks, PoissonBlocksReplace
from dplateau.bounds.checkpoints import (
    FullBatchCheckpoints,
    OrderedCheckpoints,
    PoissonCheckpoints,
    ShuffledCheckpoints,
)
from dplateau.bounds.compositions import (
    AdvancedComposition,
    GdpComposition,
    NaiveComposition,
    PldComposition,
    RdpComposition,
)
from dplateau.bounds.fixed_size import FixedSizeAveraged
from dplateau.bounds.historical import (
    AtConvex,
    AtConvexClosed,
    AtStronglyConvex,
    AtStronglyConvexClosed,
    BravoNonconvex,
    BravoWeaklySmooth,
)
from dplateau.bounds.iteration import EveryBatch, GdBounded, GdContraction, ModulusBound
from dplateau.bounds.momentum import Momentum
from dplateau.bounds.one_use import (
    OnePassHockeyStick,
    OnePassHybrid,
    OnePassLaplace,
    RandomStopContraction,
    RandomStopLipschitz,
    RandomStopMean,
    ShuffledPass,
)
from dplateau.bounds.ordered import (
    CyclicContraction,
    OnePassContraction,
    ReshuffleAverage,
    ShuffleOnceAverage,
)
from dplateau.bounds.recursion import AsoodehDiazClosed, FixedSizeRecursion, PoissonRecursion
from dplateau.bounds.renyi_forms import IterationRdp, MixingRdp, RandomStopRdp
from dplateau.bounds.square_root_moduli import (
    FixedSizeModulus,
    PoissonModulus,
    PoissonReplaceModulus,
)
from dplateau.errors import InvalidInput

BOUNDS: tuple[Bound, ...] = (
    NaiveComposition(),
    AdvancedComposition(),
    RdpComposition(),
    GdpComposition(),
    PldComposition(),
    IterationRdp(),
    GdContraction(),
    GdBounded(),
    CyclicContraction(),
    ShuffleOnceAverage(),
    ReshuffleAverage(),
    OnePassContraction(),
    OnePassHockeyStick(),
    OnePassHybrid(),
    OnePassLaplace(),
    MixingRdp(),
    ShuffledPass(),
    RandomStopContraction(),
    RandomStopLipschitz(),
    RandomStopMean(),
    RandomStopRdp(),
    ModulusBound(),
    EveryBatch(),
    PoissonBlocks(),
    PoissonBlocksReplace(),
    PoissonModulus(),
    PoissonReplaceModulus(),
    FixedSizeAveraged(),
    FixedSizeModulus(),
    PoissonRecursion(),
    FixedSizeRecursion(),
    FullBatchCheckpoints(),
    PoissonCheckpoints(),
    OrderedCheckpoints(),
    ShuffledCheckpoints(),
    Momentum(),
    AsoodehDiazClosed(),
)

HISTORICAL: tuple[Bound, ...] = (
    AtConvex(),
    AtConvexClosed(),
    AtStronglyConvex(),
    AtStronglyConvexClosed(),
    BravoWeaklySmooth(),
    BravoNonconvex(),
)


def bound_named(name: str) -> Bound:
    """Return the bound of that name, a historical one too."""
    for bound in (*BOUNDS, *HISTORICAL):
        if bound.name == name:
            return bound
    known = ", ".join(bound.name for bound in BOUNDS)
    raise InvalidInput(f"no bound is named {name!r}; known are {known}")
