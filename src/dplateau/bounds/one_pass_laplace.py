"""One pass with Laplace noise on an interval."""

from __future__ import annotations

from dplateau.algorithms import Run
from dplateau.bounds import literature
from dplateau.bounds.one_pass_hockey_stick import OnePassHockeyStick
from dplateau.bounds.one_use import why_not_one_use


class OnePassLaplace(OnePassHockeyStick):
    """delta_i(eps) = [1 - e^{eps/2 - s/(2v)}]_+ * [1 - e^{eps/2 - phi(D)/(2v)}]_+^(n - i).

    v = nu / sqrt(2) is the scale of Laplace noise of standard deviation nu; one dimension.
    """

    name = "one_pass_laplace"
    title = "Hockey-stick contraction, Laplace, last record"
    citation = literature.asoodeh_diaz_calmon("Theorem 3, any modulus")
    dominated_by = ()

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass with Laplace noise on an interval, if so."""
        reason = why_not_one_use(run)
        if reason is None and run.noise_kind != "laplace":
            return "is about noise_kind='laplace'; yours is Gaussian (one_pass_hybrid covers it)"
        return reason
