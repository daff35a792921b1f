"""Closed last-iterate statements for weakly smooth and for nonconvex losses, as published.

Theorems 5.2 and 5.4 of Bravo, Flores-Mella and Guzmán, with the papers' constants. Both proofs
condition on noise whose law depends on the batch, and the first treats every Poisson batch as one
of b records (docs/theory/published.md): shown for comparison, never claimed.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

from dplateau.algorithms import FixedSize, Poisson, Run, Scheme
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness, why_not_about
from dplateau.bounds.iteration import geometry_assumptions, has_schedule
from dplateau.bounds.sampled_lemma import LARGEST_RATE, LEAST_NOISE, order_limit, orders_up_to
from dplateau.bounds.step_maps import why_no_geometry
from dplateau.curves import RenyiCurve
from dplateau.errors import NotApplicable


class BravoClosed(Bound):
    """D_alpha <= (alpha / sigma^2) A for alpha up to a limit; subclasses say what A is."""

    hidden_state = True
    sound = False
    note = "docs/theory/published.md"
    scheme: ClassVar[Scheme]

    def missing(self, run: Run) -> str | None:
        """Return which condition of the theorem fails, if one does."""
        about = why_not_about(run, self.scheme)
        if about is not None:
            return about
        if run.neighbors != "replace":
            return f"is about neighbors='replace'; yours is {run.neighbors!r}"
        if has_schedule(run):
            return "needs the same learning rate and noise at every step; yours has a schedule"
        if run.l2 > 0:
            return f"is stated without a ridge term; yours has l2={run.l2:g}"
        if math.isinf(run.diameter):
            return "needs a bounded domain: pass domain=Ball(radius)"
        reason = why_no_geometry(run)
        if reason is None:
            reason = self.missing_losses(run) or self.missing_sizes(run)
        if reason is None and run.steps < self.last_steps(run):
            reason = f"needs at least {self.last_steps(run)} steps; yours has {run.steps}"
        return reason

    @abstractmethod
    def missing_losses(self, run: Run) -> str | None:
        """Return which condition on the losses fails, if one does."""

    @abstractmethod
    def missing_sizes(self, run: Run) -> str | None:
        """Return which condition on batch and noise fails, if one does."""

    @abstractmethod
    def last_steps(self, run: Run) -> int:
        """Return the number of steps that the proof looks at."""

    @abstractmethod
    def limit(self, run: Run) -> float:
        """Return the largest order allowed."""

    @abstractmethod
    def factor(self, run: Run) -> float:
        """Return A: the divergence of order alpha is at most alpha A / sigma^2."""

    def curve(self, run: Run, witness: Witness) -> RenyiCurve:
        """Return the statement at each order it allows."""
        slope = self.factor(run) / _sigma(run) ** 2 * (1 + 1e-12)
        orders = orders_up_to(self.limit(run))
        return RenyiCurve(tuple(orders.tolist()), tuple((orders * slope).tolist()))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the geometry that was declared."""
        return geometry_assumptions(run, (), bounded=True)


def _sigma(run: Run) -> float:
    """Return the noise on the averaged gradient."""
    nu, eta = run.iterate_std, run.learning_rate
    assert isinstance(nu, float)
    assert isinstance(eta, float)
    return nu / eta


def _constants(run: Run) -> tuple[float, float, float, int]:
    """Return (eta, L, D, n)."""
    assert run.loss is not None
    assert isinstance(run.learning_rate, float)
    return run.learning_rate, run.loss.lipschitz, run.diameter, run.n


class BravoWeaklySmooth(BravoClosed):
    """A = 16 L^2 R/n^2 + D^2/(eta^2 R) + 4 eta^(2p/(1-p)) (1-p)/(1+p) (M/2)^(2/(1-p)) ln(e R).

    R = ceil(D n / (4 eta L)); never more than 16 L^2 T/n^2, composition by the same lemma
    (Remark 5.3). Convex losses without a Hölder constant have p = 0, M = 2 L.
    """

    name = "bravo_weakly_smooth"
    title = "Bravo et al., weakly smooth (published)"
    citation = literature.bravo("Theorem 5.2 and Remark 5.3")
    scheme = Poisson

    def missing_losses(self, run: Run) -> str | None:
        """Ask for convexity."""
        assert run.loss is not None
        return None if run.loss.convex else "needs convex losses; yours are declared nonconvex"

    def missing_sizes(self, run: Run) -> str | None:
        """Ask for b < n/5 and sigma >= 8 sqrt(2) L/b."""
        if run.sampling_rate >= LARGEST_RATE:
            return f"needs batch_size < n / 5; yours is {run.sampling_rate:.4g} n"
        if self._noise(run) < LEAST_NOISE:
            return (
                "needs noise_std >= 8 sqrt(2) L / b, that is noise_multiplier >= 11.31; yours is "
                f"{2 * math.sqrt(2) * self._noise(run):.4g}"
            )
        return None

    def _noise(self, run: Run) -> float:
        """Return b sigma / (2 sqrt(2) L)."""
        return run.batch_size * _sigma(run) / (2 * math.sqrt(2) * _constants(run)[1])

    def last_steps(self, run: Run) -> int:
        """Return ceil(D n / (4 eta L))."""
        eta, lipschitz, diameter, n = _constants(run)
        return math.ceil(diameter * n / (4 * eta * lipschitz) * (1 - 1e-12))

    def limit(self, run: Run) -> float:
        """Return alpha*(b/n, b sigma/(2 sqrt(2) L))."""
        return order_limit(run.sampling_rate, self._noise(run))

    def factor(self, run: Run) -> float:
        """Return A."""
        eta, lipschitz, diameter, n = _constants(run)
        assert run.loss is not None
        p, constant = run.loss.holder or (0.0, 2 * lipschitz)
        steps = self.last_steps(run)
        power = float(eta ** (2 * p / (1 - p)) * (constant / 2) ** (2 / (1 - p)))
        jump = 4 * power * (1 - p) / (1 + p)
        hidden = 16 * lipschitz**2 * steps / n**2 + (diameter / eta) ** 2 / steps
        hidden += jump * (1 + math.log(steps))
        return min(hidden, 16 * lipschitz**2 * run.steps / n**2)


class BravoNonconvex(BravoClosed):
    """A = 52 L^2 R/n^2 + 4 D^2 beta/eta + 2 D^2 beta^2, R = ceil(ln 2 / (2 ln(1 + eta beta)))."""

    name = "bravo_nonconvex"
    title = "Bravo et al., nonconvex smooth (published)"
    citation = literature.bravo("Theorem 5.4")
    scheme = FixedSize

    def missing_losses(self, run: Run) -> str | None:
        """Ask for smoothness."""
        assert run.loss is not None
        if math.isinf(run.loss.smoothness):
            return "needs smooth losses: pass smoothness=..."
        return None

    def missing_sizes(self, run: Run) -> str | None:
        """Ask for b <= n/10 and sigma >= 2 sqrt(10) L/b."""
        if run.batch_size > run.n / 10:
            return f"needs batch_size <= n / 10; yours is {run.sampling_rate:.4g} n"
        multiplier = _sigma(run) * run.batch_size / _constants(run)[1]
        if multiplier < 2 * math.sqrt(10) * (1 - 1e-12):
            return f"needs noise_multiplier >= 2 sqrt(10) = 6.325; yours is {multiplier:.4g}"
        return None

    def last_steps(self, run: Run) -> int:
        """Return ceil(ln 2 / (2 ln(1 + eta beta)))."""
        assert run.loss is not None
        return math.ceil(math.log(2) / (2 * math.log1p(_constants(run)[0] * run.loss.smoothness)))

    def limit(self, run: Run) -> float:
        """Return (b sigma / (4 L))^2 ln(n/b), above 3 under the conditions."""
        _, lipschitz, _, n = _constants(run)
        return (run.batch_size * _sigma(run) / (4 * lipschitz)) ** 2 * math.log(n / run.batch_size)

    def factor(self, run: Run) -> float:
        """Return A."""
        eta, lipschitz, diameter, n = _constants(run)
        assert run.loss is not None
        beta = run.loss.smoothness
        sampled = 52 * lipschitz**2 * self.last_steps(run) / n**2
        return sampled + 4 * diameter**2 * beta / eta + 2 * (diameter * beta) ** 2

    def converted_epsilon(self, run: Run, delta: float) -> float:
        """Return (22): A/sigma^2 + (2/sigma) sqrt(ln(1/delta) A), if its order is allowed."""
        amount, sigma, log = self.factor(run), _sigma(run), math.log(1 / delta)
        order = 1 + sigma * math.sqrt(log / amount)
        if order > self.limit(run):
            raise NotApplicable(
                f"(22) needs the order {order:.4g}; at most {self.limit(run):.4g} is allowed here, "
                "so ask for a larger delta or add noise"
            )
        return amount / sigma**2 + 2 / sigma * math.sqrt(log * amount)
