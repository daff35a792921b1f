"""Advanced ("strong") composition."""

from __future__ import annotations

from dplateau.algorithms import Run
from dplateau.bounds import literature
from dplateau.bounds.base import Bound, Witness
from dplateau.bounds.naive_composition import one_step, step_curve, why_no_step_curve
from dplateau.bounds.released import for_each_count, uses_over_steps
from dplateau.curves import AdvancedCompositionCurve, PrivacyCurve
from dplateau.ground.types import FloatArray, IntArray


class AdvancedComposition(Bound):
    """eps' sqrt(2T log(1/delta'')) + T eps' tanh(eps'/2), after amplifying each step."""

    name = "advanced_composition"
    note = "docs/theory/compositions.md"
    title = "Advanced composition"
    citation = literature.dwork_roth("Theorem 3.20, with amplification by sampling at each step")
    rates = "constant"

    def missing(self, run: Run) -> str | None:
        """Return why one step has no curve, if so."""
        return why_no_step_curve(run)

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the composition of T copies of the most exposed step."""
        step, count = one_step(run)
        return AdvancedCompositionCurve(step, count)

    def epsilon_over_steps(self, run: Run, delta: float, steps: IntArray) -> FloatArray:
        """Repeat the same step's curve."""
        use, counts = uses_over_steps(run, steps)
        step = step_curve(use, run)
        return for_each_count(counts, lambda n: AdvancedCompositionCurve(step, n).epsilon(delta))
