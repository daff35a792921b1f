"""Published statements whose proof has a gap (docs/theory/historical.md): shown, never claimed.

The plateau of projected noisy SGD as it was first published, Theorems 3.1 and 5.1 of Altschuler and
Talwar, at the step from which (3.6) and (5.3) are least; ``fixed_size_averaged`` is what can be
proved. Divergences are taken in the larger order, the mixture against the Gaussian: Definition 2.10
names the smaller one, which can be far too small. Then Theorems 5.2 and 5.4 of Bravo, Flores-Mella
and Guzmán for weakly smooth and for nonconvex losses, with the papers' constants. All condition on
noise whose law depends on the batch, and the third treats every Poisson batch as one of b records.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from dplateau.algorithms import FixedSize, FullBatch, Poisson, Run
from dplateau.algorithms.stated import equal_steps, loss_of
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.compositions import starting_orders
from dplateau.bounds.conditions import (
    GEOMETRY,
    AboutBatches,
    Asks,
    BoundedDomain,
    ConstantSteps,
    Contractive,
    ConvexLosses,
    HiddenIterates,
    Needs,
    NeighborsAre,
    SmoothLosses,
)
from dplateau.bounds.step_maps import CONTRACTION, SMOOTH, StepMap, geometry_assumptions
from dplateau.curves import RenyiCurve, sampled_gaussian_rdp
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.numerics.solve import largest_where

LARGEST_RATE = 1 / 5
LEAST_NOISE = 4.0
_MOST = 1e9


def order_limit(sampling_rate: float, noise: float) -> float:
    """Return alpha*(q, sigma), rounded down.

    The orders up to it satisfy alpha <= M sigma^2/2 - log sigma^2 and alpha <= (M^2 sigma^2/2 -
    log 5 sigma^2)/(M + log(q alpha) + 1/(2 sigma^2)), with M = log(1 + 1/(q (alpha - 1))).

    >>> round(order_limit(0.01, 4.0), 4)
    14.3429
    """
    if sampling_rate >= LARGEST_RATE or noise < LEAST_NOISE:
        raise NotApplicable(
            f"the closed bound needs q < 1/5 and sigma >= 4; got q={sampling_rate:g}, "
            f"sigma={noise:g}; use dplateau.curves.renyi, which needs neither"
        )

    def allowed(order: float) -> bool:
        m = math.log1p(1 / (sampling_rate * (order - 1)))
        square = noise * noise
        low = m + math.log(sampling_rate * order) + 1 / (2 * square)
        first = order <= m * square / 2 - math.log(square)
        return first and order * low <= m * m * square / 2 - math.log(5 * square)

    # Up to the first refusal on a fine grid, so that everything below is allowed too.
    grid = 1 + np.geomspace(1e-6, _MOST, 600)
    held = [allowed(float(order)) for order in grid]
    first = grid.size - 1 if all(held) else held.index(False)
    return largest_where(allowed, float(grid[first - 1]), float(grid[first]))


def sampled_divergence(orders: FloatArray, sampling_rate: float, noise: float) -> FloatArray:
    """Return 2 alpha q^2 / sigma^2, for q < 1/5, sigma >= 4 and orders up to the limit."""
    divergence: FloatArray = 2 * orders * (sampling_rate / noise) ** 2
    return divergence


def orders_up_to(limit: float) -> FloatArray:
    """Return orders from just above 1 to the limit, dense on a logarithmic scale."""
    top = min(limit, 1e5)
    orders: FloatArray = 1 + np.geomspace(min(1e-3, (top - 1) / 2), top - 1, 200)
    return np.minimum(orders, top)


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
    per_step = loss_of(run).lipschitz * equal_steps(run).eta
    return math.ceil(run.diameter * run.n / per_step * (1 - 1e-12))


def _why_full_batch(run: Run) -> str | None:
    match run.batches:
        case FullBatch():
            return "samples batches; for full batches iteration_rdp is the same statement, proved"
        case _:
            return None


_PLATEAU: Needs = (
    Asks(_why_full_batch),
    AboutBatches((FixedSize,)),
    ConstantSteps(),
    BoundedDomain("fixed_size_averaged needs none"),
    *GEOMETRY,
    Contractive(),
)


class PublishedPlateau(Bound):
    """min over R of R S_alpha + what iteration adds to absorb the diameter over the last R steps.

    Part of the noise hides the sampled record (S_alpha), the rest absorbs; or all T steps are
    composed with all the noise.
    """

    release = HiddenIterates()
    needs: ClassVar[Needs] = _PLATEAU
    sound = False
    note = "docs/theory/historical.md"

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
        totals = [steps * sampled + weight * self.absorbed(run, steps) for steps in both]
        least: FloatArray = np.minimum(*totals)
        return least

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return geometry_assumptions(run, (CONTRACTION,))


def _distance(run: Run) -> float:
    """Return 2 L / (b sigma): a replaced record's reach in units of the noise."""
    steps = equal_steps(run)
    return 2 * steps.step / steps.nu


def _width(run: Run) -> float:
    """Return the diameter in units of the noise."""
    return run.diameter / equal_steps(run).nu


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
        best: FloatArray = _width(run) * np.sqrt(weight / np.maximum(sampled, 1e-300))
        return best


def _why_not_strongly_convex(run: Run) -> str | None:
    if contraction(run) >= 1:
        return "needs strong convexity: pass l2=... > 0 (at_convex_rdp needs none)"
    return None


class AtStronglyConvex(PublishedPlateau):
    """(5.3): min over R of R S_alpha + alpha c^(2R) D^2/(2 eta^2 sigma_1^2)."""

    name = "at_strongly_convex_rdp"
    title = "Altschuler-Talwar, strongly convex (published)"
    citation = literature.altschuler_talwar("Theorem 5.1 and Remark 5.3, as (5.3)")
    needs: ClassVar[Needs] = (*_PLATEAU, Asks(_why_not_strongly_convex))

    def absorbed(self, run: Run, steps: FloatArray) -> FloatArray:
        """Return c^(2R) D^2 / nu^2: one shift, in the last step."""
        squared: FloatArray = (_width(run) * contraction(run) ** steps) ** 2
        return squared

    def best_steps(self, run: Run, sampled: FloatArray, weight: FloatArray) -> FloatArray:
        """Return log(2 k weight D^2 / (nu^2 sampled)) / (2 k) with k = -log c."""
        rate = -math.log(contraction(run)) if contraction(run) > 0 else 700.0
        gain = 2 * rate * weight * _width(run) ** 2 / np.maximum(sampled, 1e-300)
        best: FloatArray = np.log(np.maximum(gain, 1e-300)) / (2 * rate)
        return best


def contraction(run: Run) -> float:
    """Return max |1 - eta lambda| over both ends: maps of exactly b records."""
    return StepMap(loss_of(run), run.l2, 1.0, 1.0).contraction(equal_steps(run).eta).c


def _why_too_little_noise(run: Run) -> str | None:
    noise = _half_noise(run)
    if run.sampling_rate >= LARGEST_RATE or noise >= LEAST_NOISE:
        return None
    return (
        "needs noise_std >= 8 sqrt(2) L / b, that is noise_multiplier >= 11.31; yours is "
        f"{2 * math.sqrt(2) * noise:.4g}"
    )


class _Closed(PublishedPlateau):
    """The same with half of the noise for each part and S_alpha by its closed bound.

    From n/5 on sampling is not used: S_alpha is that of two Gaussians (footnote 10).
    """

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
    needs = (*_PLATEAU, Asks(_why_too_little_noise))


class AtStronglyConvexClosed(_Closed, AtStronglyConvex):
    """(alpha/sigma^2) min over R of 16 L^2 R/n^2 + c^(2R) D^2/eta^2, for alpha up to alpha*."""

    name = "at_strongly_convex_closed"
    title = "Altschuler-Talwar, strongly convex, closed (published)"
    citation = literature.altschuler_talwar("Theorem 5.1 with Lemma 2.12")
    needs = (*_PLATEAU, Asks(_why_not_strongly_convex), Asks(_why_too_little_noise))


def _why_ridge(run: Run) -> str | None:
    return f"is stated without a ridge term; yours has l2={run.l2:g}" if run.l2 > 0 else None


_NO_RIDGE: Needs = (
    NeighborsAre("replace"),
    ConstantSteps(),
    Asks(_why_ridge),
    BoundedDomain(),
    *GEOMETRY,
)


class BravoClosed(Bound):
    """D_alpha <= (alpha / sigma^2) A for alpha up to a limit; subclasses say what A is."""

    release = HiddenIterates()
    sound = False
    note = "docs/theory/historical.md"

    @abstractmethod
    def losses(self, run: Run) -> str:
        """Return the class of losses that the statement is about."""

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
        return geometry_assumptions(run, (self.losses(run),))


def _sigma(run: Run) -> float:
    """Return the noise on the averaged gradient."""
    steps = equal_steps(run)
    return steps.nu / steps.eta


def _constants(run: Run) -> tuple[float, float, float, int]:
    """Return (eta, L, D, n)."""
    return equal_steps(run).eta, loss_of(run).lipschitz, run.diameter, run.n


def _enough_steps(least: Callable[[Run], int]) -> Asks:
    """Return the condition that a run has the steps that the proof looks at."""

    def why_not(run: Run) -> str | None:
        if run.steps >= least(run):
            return None
        return f"needs at least {least(run)} steps; yours has {run.steps}"

    return Asks(why_not)


def weakly_smooth_steps(run: Run) -> int:
    """Return ceil(D n / (4 eta L))."""
    eta, lipschitz, diameter, n = _constants(run)
    return math.ceil(diameter * n / (4 * eta * lipschitz) * (1 - 1e-12))


def _noise_in_units(run: Run) -> float:
    """Return b sigma / (2 sqrt(2) L)."""
    return run.batch_size * _sigma(run) / (2 * math.sqrt(2) * _constants(run)[1])


def _why_sampled_too_often(run: Run) -> str | None:
    if run.sampling_rate >= LARGEST_RATE:
        return f"needs batch_size < n / 5; yours is {run.sampling_rate:.4g} n"
    if _noise_in_units(run) < LEAST_NOISE:
        return (
            "needs noise_std >= 8 sqrt(2) L / b, that is noise_multiplier >= 11.31; yours is "
            f"{2 * math.sqrt(2) * _noise_in_units(run):.4g}"
        )
    return None


class BravoWeaklySmooth(BravoClosed):
    """A = 16 L^2 R/n^2 + D^2/(eta^2 R) + 4 eta^(2p/(1-p)) (1-p)/(1+p) (M/2)^(2/(1-p)) ln(e R).

    R = ceil(D n / (4 eta L)); never more than 16 L^2 T/n^2, composition by the same lemma
    (Remark 5.3). Convex losses without a Hölder constant have p = 0, M = 2 L.
    """

    name = "bravo_weakly_smooth"
    title = "Bravo et al., weakly smooth (published)"
    citation = literature.bravo("Theorem 5.2 and Remark 5.3")
    needs = (
        AboutBatches((Poisson,)),
        *_NO_RIDGE,
        ConvexLosses(),
        Asks(_why_sampled_too_often),
        _enough_steps(weakly_smooth_steps),
    )

    def losses(self, run: Run) -> str:
        """Return that they are convex, and weakly smooth if a Hölder constant is used."""
        return "convex and weakly smooth" if loss_of(run).holders else "convex and Lipschitz"

    def limit(self, run: Run) -> float:
        """Return alpha*(b/n, b sigma/(2 sqrt(2) L))."""
        return order_limit(run.sampling_rate, _noise_in_units(run))

    def factor(self, run: Run) -> float:
        eta, lipschitz, diameter, n = _constants(run)
        p, constant = next(iter(loss_of(run).holders), (0.0, 2 * lipschitz))
        steps = weakly_smooth_steps(run)
        power = float(eta ** (2 * p / (1 - p)) * (constant / 2) ** (2 / (1 - p)))
        jump = 4 * power * (1 - p) / (1 + p)
        hidden = 16 * lipschitz**2 * steps / n**2 + (diameter / eta) ** 2 / steps
        hidden += jump * (1 + math.log(steps))
        return min(hidden, 16 * lipschitz**2 * run.steps / n**2)


def nonconvex_steps(run: Run) -> int:
    """Return ceil(ln 2 / (2 ln(1 + eta beta)))."""
    return math.ceil(math.log(2) / (2 * math.log1p(_constants(run)[0] * loss_of(run).smoothness)))


def _why_not_a_tenth(run: Run) -> str | None:
    if run.batch_size > run.n / 10:
        return f"needs batch_size <= n / 10; yours is {run.sampling_rate:.4g} n"
    multiplier = _sigma(run) * run.batch_size / _constants(run)[1]
    if multiplier < 2 * math.sqrt(10) * (1 - 1e-12):
        return f"needs noise_multiplier >= 2 sqrt(10) = 6.325; yours is {multiplier:.4g}"
    return None


class BravoNonconvex(BravoClosed):
    """A = 52 L^2 R/n^2 + 4 D^2 beta/eta + 2 D^2 beta^2, R = ceil(ln 2 / (2 ln(1 + eta beta)))."""

    name = "bravo_nonconvex"
    title = "Bravo et al., nonconvex smooth (published)"
    citation = literature.bravo("Theorem 5.4")
    needs = (
        AboutBatches((FixedSize,)),
        *_NO_RIDGE,
        SmoothLosses(),
        Asks(_why_not_a_tenth),
        _enough_steps(nonconvex_steps),
    )

    def losses(self, run: Run) -> str:
        """Return that they are smooth."""
        return SMOOTH

    def limit(self, run: Run) -> float:
        """Return (b sigma / (4 L))^2 ln(n/b), above 3 under the conditions."""
        _, lipschitz, _, n = _constants(run)
        return (run.batch_size * _sigma(run) / (4 * lipschitz)) ** 2 * math.log(n / run.batch_size)

    def factor(self, run: Run) -> float:
        eta, lipschitz, diameter, n = _constants(run)
        beta = loss_of(run).smoothness
        sampled = 52 * lipschitz**2 * nonconvex_steps(run) / n**2
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
