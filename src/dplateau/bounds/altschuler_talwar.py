"""The plateau of projected noisy SGD as it was first published, in Rényi divergences.

Theorems 3.1 and 5.1 of Altschuler and Talwar, at the step from which (3.6) and (5.3) are least. The
published proof has a gap (docs/theory/published.md), so these are shown for comparison and never
claimed; ``fixed_size_averaged`` is what can be proved. Divergences are taken in the larger order,
the mixture against the Gaussian: Definition 2.10 names the smaller one, which can be far too small.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from dplateau.algorithms import FixedSize, FullBatch, Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness, why_not_about
from dplateau.bounds.iteration import CONTRACTION, geometry_assumptions, has_schedule
from dplateau.bounds.rdp_composition import starting_orders
from dplateau.bounds.sampled_lemma import (
    LARGEST_RATE,
    LEAST_NOISE,
    order_limit,
    orders_up_to,
    sampled_divergence,
)
from dplateau.bounds.step_maps import StepMap, why_no_contraction
from dplateau.curves import RenyiCurve, sampled_gaussian_rdp
from dplateau.ground.types import FloatArray

# Shares of the noise variance that hide the sampled record.
_SHARES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.97, 0.99])


def burn_in(run: Run) -> int:
    """Return T_bar = ceil(D n / (L eta)): about as many steps still add to the privacy loss.

    >>> from dplateau.algorithms import Ball, LossGeometry, NoisyGD
    >>> loss = LossGeometry(lipschitz=2.0, convex=True, smoothness=1.0)
    >>> burn_in(NoisyGD(n=100, steps=1, learning_rate=0.5, noise_std=1.0, release="last",
    ...                 domain=Ball(0.5), loss=loss))
    100
    """
    assert run.lipschitz is not None
    assert isinstance(run.learning_rate, float)
    return math.ceil(run.diameter * run.n / (run.lipschitz * run.learning_rate) * (1 - 1e-12))


class PublishedPlateau(Bound):
    """min over R of R S_alpha + what iteration adds to absorb the diameter over the last R steps.

    Part of the noise hides the sampled record (S_alpha), the rest absorbs; or all T steps are
    composed with all the noise.
    """

    hidden_state = True
    sound = False
    note = "docs/theory/published.md"

    def missing(self, run: Run) -> str | None:
        """Return why the statement is not about the run, if so."""
        if isinstance(run.batches, FullBatch):
            return "samples batches; for full batches iteration_rdp is the same statement, proved"
        about = why_not_about(run, FixedSize)
        if about is not None:
            return about
        if has_schedule(run):
            return "needs the same learning rate and noise at every step; yours has a schedule"
        if math.isinf(run.diameter):
            return (
                "needs a bounded domain: pass domain=Ball(radius) (fixed_size_averaged needs none)"
            )
        reason = why_no_contraction(run)
        return self.more_missing(run) if reason is None else reason

    def more_missing(self, run: Run) -> str | None:
        """Return what else is missing, if anything."""
        return None

    @abstractmethod
    def absorbed(self, run: Run, steps: FloatArray) -> FloatArray:
        """Return sum a^2 / nu^2 for absorbing the diameter over the last steps, with all noise."""

    @abstractmethod
    def best_steps(self, run: Run, sampled: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the real R that makes R sampled + weight absorbed(R) least."""

    def curve(self, run: Run, witness: Witness) -> RenyiCurve:
        """Return the least of the statement at each order: every R and split is allowed."""
        orders = starting_orders(40, 12)
        distance = _distance(run)
        values = run.steps * sampled_gaussian_rdp(orders, run.sampling_rate, distance)
        for share in _SHARES:
            sampled = sampled_gaussian_rdp(
                orders, run.sampling_rate, distance / math.sqrt(float(share))
            )
            values = np.minimum(values, self._least(run, sampled, orders / (2 * (1 - share))))
        return RenyiCurve(tuple(orders.tolist()), tuple((values * (1 + 1e-12)).tolist()))

    def _least(self, run: Run, sampled: FloatArray, weight: FloatArray) -> FloatArray:
        """Return min over whole R of R sampled + weight absorbed(R), order by order."""
        real = np.clip(self.best_steps(run, sampled, weight), 1.0, float(run.steps))
        both = [np.floor(real), np.ceil(real)]
        found = [steps * sampled + weight * self.absorbed(run, steps) for steps in both]
        least: FloatArray = np.minimum(*found)
        return least

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the geometry of the steps."""
        return geometry_assumptions(run, (CONTRACTION,), bounded=True)


def _distance(run: Run) -> float:
    """Return 2 L / (b sigma): a replaced record's reach in units of the noise."""
    nu, step = run.iterate_std, run.record_step
    assert isinstance(nu, float)
    assert isinstance(step, float)
    return 2 * step / nu


def _width(run: Run) -> float:
    """Return the diameter in units of the noise."""
    assert isinstance(run.iterate_std, float)
    return run.diameter / run.iterate_std


class AtConvex(PublishedPlateau):
    """(3.6): min over R of R S_alpha(b/n, b sigma_2/(2L)) + alpha D^2/(2 eta^2 sigma_1^2 R)."""

    name = "at_convex_rdp"
    title = "Altschuler-Talwar, convex (published)"
    citation = literature.altschuler_talwar("Theorem 3.1, as (3.6), in the larger order")

    def absorbed(self, run: Run, steps: FloatArray) -> FloatArray:
        """Return D^2 / (nu^2 R): equal shifts."""
        return _width(run) ** 2 / steps

    def best_steps(self, run: Run, sampled: FloatArray, weight: FloatArray) -> FloatArray:
        """Return D / nu sqrt(weight / sampled)."""
        found: FloatArray = _width(run) * np.sqrt(weight / np.maximum(sampled, 1e-300))
        return found


class AtStronglyConvex(PublishedPlateau):
    """(5.3): min over R of R S_alpha + alpha c^(2R) D^2/(2 eta^2 sigma_1^2)."""

    name = "at_strongly_convex_rdp"
    title = "Altschuler-Talwar, strongly convex (published)"
    citation = literature.altschuler_talwar("Theorem 5.1 and Remark 5.3, as (5.3)")

    def more_missing(self, run: Run) -> str | None:
        """Ask for a contraction below 1."""
        if contraction(run) >= 1:
            return "needs strong convexity: pass l2=... > 0 (at_convex_rdp needs none)"
        return None

    def absorbed(self, run: Run, steps: FloatArray) -> FloatArray:
        """Return c^(2R) D^2 / nu^2: one shift, in the last step."""
        found: FloatArray = (_width(run) * contraction(run) ** steps) ** 2
        return found

    def best_steps(self, run: Run, sampled: FloatArray, weight: FloatArray) -> FloatArray:
        """Return log(2 k weight D^2 / (nu^2 sampled)) / (2 k) with k = -log c."""
        rate = -math.log(contraction(run)) if contraction(run) > 0 else 700.0
        gain = 2 * rate * weight * _width(run) ** 2 / np.maximum(sampled, 1e-300)
        found: FloatArray = np.log(np.maximum(gain, 1e-300)) / (2 * rate)
        return found


def contraction(run: Run) -> float:
    """Return max |1 - eta lambda| over both ends: maps of exactly b records."""
    assert run.loss is not None
    assert isinstance(run.learning_rate, float)
    found = StepMap(run.loss, run.l2, 1.0, 1.0).contraction(run.learning_rate)
    assert found is not None
    return found.c


class _Closed(PublishedPlateau):
    """The same with half of the noise for each part and S_alpha by its closed bound.

    From n/5 on sampling is not used: S_alpha is that of two Gaussians (footnote 10).
    """

    def more_missing(self, run: Run) -> str | None:
        """Ask for what the closed bound needs."""
        reason = super().more_missing(run)
        if reason is not None or run.sampling_rate >= LARGEST_RATE:
            return reason
        noise = _half_noise(run)
        if noise < LEAST_NOISE:
            return (
                "needs noise_std >= 8 sqrt(2) L / b, that is noise_multiplier >= 11.31; yours is "
                f"{2 * math.sqrt(2) * noise:.4g}"
            )
        return None

    def curve(self, run: Run, witness: Witness) -> RenyiCurve:
        """Return the closed statement at each order it allows."""
        q, noise = run.sampling_rate, _half_noise(run)
        if q < LARGEST_RATE:
            orders = orders_up_to(order_limit(q, noise))
            sampled = sampled_divergence(orders, q, noise)
        else:
            orders = orders_up_to(math.inf)
            sampled = orders / (2 * noise**2)
        # All steps with all the noise: half of what they cost with half of it.
        values = np.minimum(run.steps * sampled / 2, self._least(run, sampled, orders))
        return RenyiCurve(tuple(orders.tolist()), tuple((values * (1 + 1e-12)).tolist()))


def _half_noise(run: Run) -> float:
    """Return b sigma_2 / (2 L) with sigma_2 = sigma / sqrt(2)."""
    return 1 / (_distance(run) * math.sqrt(2))


class AtConvexClosed(_Closed, AtConvex):
    """(alpha L^2/sigma^2) min over R of 16 R/n^2 + D^2/(eta^2 L^2 R), for alpha up to alpha*."""

    name = "at_convex_closed"
    title = "Altschuler-Talwar, convex, closed (published)"
    citation = literature.altschuler_talwar("Theorem 3.1 with Lemma 2.12")


class AtStronglyConvexClosed(_Closed, AtStronglyConvex):
    """(alpha/sigma^2) min over R of 16 L^2 R/n^2 + c^(2R) D^2/eta^2, for alpha up to alpha*."""

    name = "at_strongly_convex_closed"
    title = "Altschuler-Talwar, strongly convex, closed (published)"
    citation = literature.altschuler_talwar("Theorem 5.1 with Lemma 2.12")
