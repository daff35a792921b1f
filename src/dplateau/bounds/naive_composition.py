"""Basic composition, the oldest accountant."""

from __future__ import annotations

from dplateau.algorithms import Run
from dplateau.bounds import literature
from dplateau.bounds.base import Bound, Witness
from dplateau.bounds.released import (
    Use,
    for_each_count,
    is_sampled,
    uses_of_one_record,
    uses_over_steps,
    why_no_uses,
)
from dplateau.curves import (
    GaussianCurve,
    LaplaceCurve,
    NaiveCompositionCurve,
    PrivacyCurve,
    SubsampledCurve,
)
from dplateau.ground.types import FloatArray, IntArray


class NaiveComposition(Bound):
    """(T eps', T delta') after amplifying each step by sampling; the quietest step sets eps'."""

    name = "naive_composition"
    note = "docs/theory/compositions.md"
    title = "Naive composition"
    citation = literature.dwork_roth("Theorem 3.16, with amplification by sampling at each step")
    rates = "constant"

    def missing(self, run: Run) -> str | None:
        """Return why one step has no curve, if so."""
        return why_no_step_curve(run)

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return T copies of the step's curve."""
        step, count = one_step(run)
        return NaiveCompositionCurve(step, count)

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Repeat the same step's curve."""
        use, counts = uses_over_steps(run, steps)
        step = step_curve(use, run)
        return for_each_count(counts, lambda n: NaiveCompositionCurve(step, n).epsilon(delta))


def why_no_step_curve(run: Run) -> str | None:
    """Return why the curve of one step is not known, or None."""
    laplace_swap = run.noise_kind == "laplace" and run.neighbors == "replace"
    if laplace_swap and is_sampled(run):
        return (
            "knows sampled Laplace noise for neighbors='add_remove' only; "
            "use that, or noise_kind='gaussian'"
        )
    return why_no_uses(run)


def one_step(run: Run) -> tuple[PrivacyCurve, int]:
    """Return the curve of the most exposed step, and how many steps there are."""
    uses = uses_of_one_record(run)
    worst = max(uses, key=lambda use: use.distance)
    return step_curve(worst, run), sum(use.count for use in uses)


def step_curve(use: Use, run: Run) -> PrivacyCurve:
    """Return one use's curve, amplified by sampling (both neighbouring relations)."""
    laplace = run.noise_kind == "laplace"
    base = LaplaceCurve(use.distance) if laplace else GaussianCurve(use.distance)
    return base if use.sampling_rate == 1 else SubsampledCurve(base, use.sampling_rate)
