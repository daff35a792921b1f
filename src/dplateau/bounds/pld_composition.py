"""Numerical composition of privacy-loss distributions, the tightest classical accountant."""

from __future__ import annotations

from dplateau.algorithms import FixedSize, Poisson, Run
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, Bound, Witness
from dplateau.bounds.released import Use, uses_of_one_record, uses_over_steps, why_no_uses
from dplateau.curves import (
    DominatingPair,
    GroupCurve,
    LaplacePair,
    LossCurve,
    MixturePair,
    PoissonPair,
    PrivacyCurve,
    SubsampledGaussianPair,
    epsilon_over_counts,
)
from dplateau.ground.types import FloatArray, IntArray
from dplateau.numerics.bernoulli_laws import AtomLaw


class PldComposition(Bound):
    """The product of every step's dominating pair, composed in both orders and rounded up."""

    name = "pld_composition"
    note = "docs/theory/compositions.md"
    claim_margin = COMPOSED_MARGIN
    title = "PLD composition"
    citation = literature.connect_the_dots("Algorithm 1, composed by fast Fourier transform")
    # Exact where it applies.
    dominated_by = ("gdp_composition",)
    rates = "per step"

    def missing(self, run: Run) -> str | None:
        """Return why no dominating pair is known for a step, if so."""
        if _swaps_under_laplace(run) and isinstance(run.batches, FixedSize):
            return (
                "knows sampled Laplace noise for neighbors='add_remove' only; "
                "use that, or noise_kind='gaussian'"
            )
        return why_no_uses(run)

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the composed privacy loss.

        A record replaced under sampled Laplace noise is one removed and one added: no sharper pair
        is known.
        """
        if _swaps_under_laplace(run) and isinstance(run.batches, Poisson):
            return GroupCurve(self.curve(run.replace(neighbors="add_remove"), witness), 2)
        parts = tuple((pair_of(use, run), use.count) for use in uses_of_one_record(run))
        return LossCurve(parts)

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Share discretised pairs between close lengths; at most about two percent looser."""
        if _swaps_under_laplace(run):
            return Bound.epsilon_over_steps(self, run, delta, steps)
        use, counts = uses_over_steps(run, steps)
        return epsilon_over_counts(pair_of(use, run), counts, delta)


def _swaps_under_laplace(run: Run) -> bool:
    return run.noise_kind == "laplace" and run.neighbors == "replace"


def pair_of(use: Use, run: Run) -> DominatingPair:
    """Return the pair that dominates one use.

    A replaced record in a Poisson sample moves the step to one side for one neighbor and to the
    other side for the other: two mixtures that mirror each other (docs/theory/blocks.md, Theorem 3,
    whose blocks are single steps here). In a sample of fixed size it is in the sample of both
    neighbors or of neither, two gradient bounds apart: the symmetric subsampling operator at the
    full distance (Dong, Roth and Su, Theorem 4.2).
    """
    if run.noise_kind == "laplace":
        return LaplacePair(ratio=use.distance, sampling_rate=use.sampling_rate)
    if run.neighbors == "replace" and use.sampling_rate < 1:
        if isinstance(run.batches, Poisson):
            moved = AtomLaw((0.0, use.distance / 2), (1 - use.sampling_rate, use.sampling_rate))
            return MixturePair(moved, moved)
        return SubsampledGaussianPair(sampling_rate=use.sampling_rate, parameter=use.distance)
    return PoissonPair(sampling_rate=use.sampling_rate, step=use.distance)
