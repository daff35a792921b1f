"""Every bound. One that is added here joins certify, compare, the laws and the attacks."""

from __future__ import annotations

from dplateau.bounds.advanced_composition import AdvancedComposition
from dplateau.bounds.altschuler_talwar import (
    AtConvex,
    AtConvexClosed,
    AtStronglyConvex,
    AtStronglyConvexClosed,
)
from dplateau.bounds.asoodeh_diaz import AsoodehDiazClosed
from dplateau.bounds.base import Bound
from dplateau.bounds.blocks import PoissonBlocks, PoissonBlocksReplace
from dplateau.bounds.bravo_closed import BravoNonconvex, BravoWeaklySmooth
from dplateau.bounds.checkpoints import (
    FullBatchCheckpoints,
    OrderedCheckpoints,
    PoissonCheckpoints,
    ShuffledCheckpoints,
)
from dplateau.bounds.cyclic_contraction import CyclicContraction
from dplateau.bounds.every_batch import EveryBatch
from dplateau.bounds.fixed_size import FixedSizeAveraged
from dplateau.bounds.gd_bounded import GdBounded
from dplateau.bounds.gd_contraction import GdContraction
from dplateau.bounds.gdp_composition import GdpComposition
from dplateau.bounds.iteration_rdp import IterationRdp
from dplateau.bounds.mixing_rdp import MixingRdp
from dplateau.bounds.modulus import ModulusBound
from dplateau.bounds.naive_composition import NaiveComposition
from dplateau.bounds.one_pass_contraction import OnePassContraction
from dplateau.bounds.one_pass_hockey_stick import OnePassHockeyStick
from dplateau.bounds.one_pass_hybrid import OnePassHybrid
from dplateau.bounds.one_pass_laplace import OnePassLaplace
from dplateau.bounds.pld_composition import PldComposition
from dplateau.bounds.poisson_modulus import PoissonModulus
from dplateau.bounds.random_stop import (
    RandomStopContraction,
    RandomStopLipschitz,
    RandomStopMean,
)
from dplateau.bounds.random_stop_rdp import RandomStopRdp
from dplateau.bounds.rdp_composition import RdpComposition
from dplateau.bounds.sampled_recursion import FixedSizeRecursion, PoissonRecursion
from dplateau.bounds.shuffled import ReshuffleAverage, ShuffleOnceAverage
from dplateau.bounds.shuffled_pass import ShuffledPass
from dplateau.bounds.split_modulus import FixedSizeModulus, PoissonReplaceModulus
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
    AsoodehDiazClosed(),
    AtConvex(),
    AtConvexClosed(),
    AtStronglyConvex(),
    AtStronglyConvexClosed(),
    BravoWeaklySmooth(),
    BravoNonconvex(),
)


def bound_named(name: str) -> Bound:
    """Return the bound of that name."""
    for bound in BOUNDS:
        if bound.name == name:
            return bound
    known = ", ".join(bound.name for bound in BOUNDS)
    raise InvalidInput(f"no bound is named {name!r}; known are {known}")
