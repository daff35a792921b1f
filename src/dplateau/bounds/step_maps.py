"""How far one noise-free step moves two states apart: the moduli of a run's step map.

The map of a batch B is phi_B(w) = w - eta ((1/b) sum_{i in B} g_i(w) + l2 w). ``fraction`` is
|B| / b: the averaged data gradient inherits the constants of one record's loss times that fraction.
The classes of losses are those of Bravo, Flores-Mella and Guzmán, section 2; the ridge enters
through (1 - eta l2), which only rescales (docs/theory/step_maps.md).

Poisson batches vary in size: the step divides by the constant b, so a batch of |B| > b records has
more than one record's smoothness, and the step may expand. Conditioning on all the common batches,
which have the same law in both neighbors, sizes outside of a range are charged to delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    LossGeometry,
    OnePass,
    Poisson,
    Run,
    Schedule,
    refuse_batches,
)
from dplateau.algorithms.schedule import PerStep
from dplateau.algorithms.stated import learning_rates, loss_of
from dplateau.bounds.base import Assumption
from dplateau.errors import NotApplicable
from dplateau.numerics.solve import largest_integer, smallest_integer
from dplateau.shifts import DescentAscent, Linear, Modulus, SquareRoot

# Classes of losses whose steps have a Lipschitz constant: what a contraction may be made of.
CONTRACTION = "convex and smooth"
SMOOTH = "smooth"
_DISSIPATIVE = "strongly dissipative"
_UP = 1 + 4e-16


@dataclass(frozen=True)
class StepMap:
    """What a modulus needs to know: constants of one record's loss, the ridge, batch fractions."""

    loss: LossGeometry
    l2: float
    least_fraction: float = 0.0
    most_fraction: float = 1.0

    def contraction(self, learning_rate: float) -> Linear:
        """Return the Lipschitz modulus of smooth losses, rounded up; refuse others.

        The Hessian of the averaged objective lies between l2 + m * least (l2 - M * most if the
        losses are not convex) and l2 + M * most, so the map's Lipschitz constant is the larger of
        |1 - eta * either end|. It is the smallest double that is not below the exact value.
        """
        if math.isinf(self.loss.smoothness):
            raise NotApplicable("steps of losses that are not smooth have no Lipschitz constant")
        eta, ridge = Fraction(learning_rate), Fraction(self.l2)
        steepest = Fraction(self.loss.smoothness) * Fraction(self.most_fraction)
        flattest = -steepest
        if self.loss.convex:
            flattest = Fraction(self.loss.strong_convexity) * Fraction(self.least_fraction)
        return Linear(double_above(max(abs(1 - eta * (ridge + h)) for h in (flattest, steepest))))

    def moduli(self, learning_rate: float) -> dict[str, Modulus]:
        """Return every modulus that the declared constants justify, by the class of losses."""
        moduli: dict[str, Modulus] = {}
        expands, smooth = True, math.isfinite(self.loss.smoothness)
        if smooth:
            moduli[linear_class(self.loss)] = linear = self.contraction(learning_rate)
            expands = linear.c > 1
        # A map that does not expand beats every square root with the same factor.
        if self.loss.convex and learning_rate * self.l2 < 1 and expands:
            moduli.update(self._convex_nonsmooth(learning_rate))
        if self.loss.saddle and learning_rate * self.l2 < 1:
            moduli.update(self._convex_concave(learning_rate))
        if smooth and self.loss.dissipativity is not None:
            offset, rate = self.loss.dissipativity
            moduli[_DISSIPATIVE] = self._dissipative(learning_rate, offset, rate)
        return moduli

    def _convex_nonsmooth(self, eta: float) -> dict[str, Modulus]:
        # |(1 - eta l2) d - eta g|^2 = (1 - eta l2)^2 |d - eta' g|^2 with eta' = eta / (1 - eta l2).
        moduli: dict[str, Modulus] = {}
        shrink = 1 - eta * self.l2
        if math.isfinite(self.loss.lipschitz):
            moduli["convex and Lipschitz"] = SquareRoot(
                shrink**2 * _UP, (2 * eta * self.loss.lipschitz * self.most_fraction) ** 2 * _UP
            )
        if self.loss.holders:
            jump = min(self._jump(eta, p, constant) for p, constant in self.loss.holders)
            moduli["convex and weakly smooth"] = SquareRoot(shrink**2 * _UP, jump**2 * _UP)
        return moduli

    def _jump(self, eta: float, p: float, constant: float) -> float:
        shrink, power = 1 - eta * self.l2, 1 / (1 - p)
        jump = 2 * (eta / shrink) ** power * math.sqrt((1 - p) / (1 + p))
        return float(jump * (constant * self.most_fraction / 2) ** power * shrink)

    def _convex_concave(self, eta: float) -> dict[str, Modulus]:
        # Descent and ascent at once are steps along a monotone field F, <d, F(x) - F(y)> >= 0, so
        # |d - eta (dF + l2 d)|^2 <= (1 - eta l2)^2 |d|^2 + eta^2 |dF|^2, |dF| <= min(2 L, M |d|) f.
        moduli: dict[str, Modulus] = {}
        shrink, part = 1 - eta * self.l2, self.most_fraction * _UP
        lipschitz, smoothness = self.loss.lipschitz * part, self.loss.smoothness * part
        if math.isfinite(lipschitz):
            moduli["convex-concave and Lipschitz"] = SquareRoot(
                shrink**2 * _UP, (2 * eta * lipschitz) ** 2 * _UP
            )
        if math.isfinite(smoothness):
            moduli["convex-concave and smooth"] = Linear(math.hypot(shrink, eta * smoothness) * _UP)
        if self.l2 == 0 and math.isfinite(lipschitz) and math.isfinite(smoothness):
            both = DescentAscent(eta * _UP, lipschitz, smoothness)
            moduli["convex-concave, Lipschitz and smooth"] = both
        return moduli

    def _dissipative(self, eta: float, offset: float, rate: float) -> SquareRoot:
        # Convex in the batch fraction, so its largest value is at one of the two ends.
        ends = [
            1
            - 2 * eta * (self.l2 + rate * part)
            + (eta * (self.l2 + self.loss.smoothness * part)) ** 2
            for part in (self.least_fraction, self.most_fraction)
        ]
        jump = 2 * eta * offset * self.most_fraction
        return SquareRoot(max(*ends, 1e-300) * _UP, jump * _UP)


def linear_class(loss: LossGeometry) -> str:
    """Return the class of smooth losses that a loss is declared to be in."""
    return CONTRACTION if loss.convex else SMOOTH


def classes_in_words(loss: LossGeometry, losses: Iterable[str]) -> str:
    """Return the classes that moduli are about, with every declared property that they use.

    >>> curved = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0, strong_convexity=0.1)
    >>> classes_in_words(curved, ["convex and smooth"])
    'strongly convex and smooth'
    """
    more = {_DISSIPATIVE: f"smooth and {_DISSIPATIVE}"}
    if loss.strong_convexity > 0:
        more[CONTRACTION] = f"strongly {CONTRACTION}"
    return " or ".join(more.get(name, name) for name in losses)


def double_above(exact: Fraction) -> float:
    """Return the smallest double that is not below a fraction."""
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def double_below(exact: Fraction) -> float:
    """Return the largest double that is not above a fraction."""
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)


def geometry_assumptions(
    run: Run, losses: Iterable[str], *, bounded: bool = True, contracts: bool = True
) -> tuple[Assumption, ...]:
    """Return what a last-iterate bound adds to the usual assumptions.

    ``bounded``: it uses the domain; ``contracts``: that steps of smooth losses contract.
    """
    losses = tuple(losses)
    kind = classes_in_words(loss_of(run), losses)
    rests_on = [
        Assumption(f"every record's loss is {kind}, as declared", "declared"),
        Assumption("the ridge term covers every coordinate, the intercept included", "declared"),
    ]
    if contracts and CONTRACTION in losses:
        rests_on.append(Assumption("learning_rate * (smoothness + l2) <= 2", "checked"))
    if contracts and SMOOTH in losses and run.l2 >= loss_of(run).smoothness:
        text = "l2 >= smoothness, which makes up for losses that are not convex"
        rests_on.append(Assumption(text, "checked"))
    if bounded and run.domain is not None:
        rests_on.append(Assumption("every iterate is projected onto the convex domain", "declared"))
    return tuple(rests_on)


CAPPED = Assumption("batches above a cap are charged to delta", "checked")
# Share of delta that batches above the cap may cost.
_SHARE = 1e-4
_ROUND_UP = 1 + 1e-9


@dataclass(frozen=True)
class BatchCap:
    """No batch holds more than ``records``, except with probability ``extra_delta`` in the run."""

    records: int
    extra_delta: float


def batch_cap(run: Run, delta: float) -> BatchCap:
    """Return the cap that spends a small share of ``delta``, or a larger one that costs nothing.

    Up to the largest batch for which the step still contracts like 1 - eta l2 a larger cap is free,
    so the cap is raised to it.
    """
    return cap_of(run, max(tail_cap(run, delta).records, _free_cap(run)))


def tail_cap(run: Run, delta: float) -> BatchCap:
    """Return the smallest cap that spends no more: for moduli that grow with every record."""
    budget = delta * _SHARE
    records = smallest_integer(
        lambda records: exceedance(run, records) <= budget, start=int(run.batch_size), limit=run.n
    )
    return cap_of(run, records)


def cap_of(run: Run, records: int) -> BatchCap:
    """Return the cap at that many records, with what it costs."""
    return BatchCap(records, exceedance(run, records))


def exceedance(run: Run, records: int) -> float:
    """Return an upper bound on the probability that some batch holds more records."""
    match run.batches:
        case Poisson(rate=rate):
            if records >= run.n:
                return 0.0
            from scipy.special import betainc

            # P(Bin(n, q) > k) is the incomplete beta function at q, to 1e-9 for n up to 10^12.
            # (scipy's own tail of the binomial law loses its digits from a million records on, and
            # all beyond 2^31.)
            above, rest = records + 1.0, float(run.n - records)
            return _some_step(run, rate, lambda q: float(betainc(above, rest, q)))
        case FullBatch() | FixedSize() | Cyclic() | OnePass():
            return 0.0 if records >= run.batch_size else 1.0
        case _ as unknown:
            refuse_batches(unknown)


def _some_step(run: Run, rate: PerStep, chance: Callable[[float], float]) -> float:
    """Return an upper bound on the probability of an event of that chance in some step."""
    blocks = rate.blocks if isinstance(rate, Schedule) else ((rate, run.steps),)
    return min(1.0, math.fsum(count * chance(q) for q, count in blocks) * _ROUND_UP)


def _free_cap(run: Run, floor: int = 0) -> int:
    """Return a batch up to which the flattest direction decides, or a rounding below the largest.

    eta (M |B| / b + l2) - 1 <= 1 - eta (l2 + m floor / b), m the losses' own strong convexity.
    """
    loss = loss_of(run)
    own = loss.strong_convexity * floor / run.batch_size
    room = 2 / max(learning_rates(run)) - 2 * run.l2 - own
    if math.isinf(loss.smoothness) or room <= 0:
        return 0
    return min(run.n, math.floor(run.batch_size * room / loss.smoothness * (1 - 1e-12)))


def capped_step_map(run: Run, cap: BatchCap) -> StepMap:
    """Return the step map of common batches up to the cap: of one size, they lack one at most."""
    match run.batches:
        case FixedSize(size=size):
            least = double_below(1 - 1 / Fraction(size))
        case _:
            least = 0.0
    return StepMap(loss_of(run), run.l2, least, cap.records / run.batch_size)


@dataclass(frozen=True)
class BatchSizes:
    """Every common batch holds ``floor`` to ``cap`` records, but for ``extra_delta``."""

    cap: int
    floor: int
    extra_delta: float


def batch_sizes(run: Run, delta: float) -> BatchSizes:
    """Return sizes that spend a small share of ``delta`` each way.

    Only strongly convex losses gain from a floor: fewer records have less curvature.
    """
    loss, floor = loss_of(run), 0
    if loss.strong_convexity > 0:
        budget = delta * _SHARE
        floor = largest_integer(
            lambda records: shortfall(run, records) <= budget, start=0, limit=int(run.batch_size)
        )
    cap = tail_cap(run, delta).records
    if loss.convex:
        cap = max(cap, _free_cap(run, floor))
    return sizes_of(run, cap, floor)


def sizes_of(run: Run, cap: int, floor: int) -> BatchSizes:
    """Return these sizes with what they cost."""
    return BatchSizes(cap, floor, exceedance(run, cap) + shortfall(run, floor))


def shortfall(run: Run, records: int) -> float:
    """Return an upper bound on the probability that some common batch holds fewer records."""
    if records <= 0:
        return 0.0
    others = run.n - run.group_size
    match run.batches:
        case Poisson(rate=rate) if records <= others:
            from scipy.special import betaincc

            most, rest = float(records), float(others - records + 1)
            return _some_step(run, rate, lambda q: float(betaincc(most, rest, q)))
        case _:
            return 1.0
