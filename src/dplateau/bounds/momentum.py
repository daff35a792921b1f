"""Momentum with a hidden state: only the last w leaves, the velocity never does.

With u = -velocity one step maps (w, u) in a direction of curvature h, x = learning_rate * h, by

    A_x = [[1 - x, -k], [x, k]],   k = m for a heavy ball, k = m (1 - x) for Nesterov's gradients,

and record and noise move it along G = (-1, 1). If a positive matrix P has
A_x^T P A_x <= c^2 P at both ends of the curvatures, the norm of P shrinks by c a step, and a use l
steps before the end moves the last w by at most kappa c^l of its own length, where
kappa^2 = (G^T P G) (P^-1)_{11} (docs/theory/momentum.md). The noise of the last step hides all uses
older than a few, whose own steps hide them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import optimize

from dplateau.algorithms import AllIterates, FullBatch, LastIterate, Poisson, Run
from dplateau.algorithms.base import MomentumKind
from dplateau.algorithms.stated import equal_steps, loss_of
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, Assumption, Bound, Witness
from dplateau.bounds.blocks import coarse
from dplateau.bounds.conditions import (
    EVERYTHING_LEAVES,
    FEW_TO_SPLIT,
    GEOMETRY,
    AboutBatches,
    Asks,
    ConstantRates,
    ConstantSteps,
    ConvexLosses,
    SmoothLosses,
)
from dplateau.bounds.step_maps import (
    CONTRACTION,
    BatchCap,
    cap_of,
    double_above,
    geometry_assumptions,
    tail_cap,
)
from dplateau.curves import (
    DominatingPair,
    GaussianCurve,
    LossCurve,
    MixturePair,
    PrivacyCurve,
    WorstCurve,
)
from dplateau.errors import InvalidInput
from dplateau.ground.shown import rounded_down
from dplateau.ground.types import FloatArray
from dplateau.numerics.bernoulli_laws import NOTHING, AtomLaw, upper_law

_UP = 1 + 1e-9  # room for the rounding of sums and powers
# Uses so old that together they weigh e^-34 of the last one are not told apart.
_LOG_FORGOTTEN = 34.0
_MOST_LAGS = 1 << 20
# Steps that forget more slowly than this are no use: a P that shrinks by less is not looked for.
_SLOWEST = 1 - 1e-7
_ORDERS = 12


@dataclass(frozen=True)
class Steps:
    """What a proof depends on: the momentum, and the ends of x = learning_rate * curvature."""

    kind: MomentumKind
    momentum: Fraction
    flattest: Fraction
    steepest: Fraction

    @classmethod
    def of(cls, run: Run, cap: int) -> Steps:
        """Read off a run whose common batches hold up to ``cap`` records."""
        rate, ridge = Fraction(equal_steps(run).eta), Fraction(run.l2)
        share = Fraction(cap) / Fraction(run.batch_size)
        top = rate * (ridge + Fraction(loss_of(run).smoothness) * share)
        return cls(run.momentum_kind, Fraction(run.momentum), rate * ridge, top)

    def ends(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """Return (x, k) at the flattest and at the steepest curvature."""
        ahead = self.kind == "nesterov"
        return tuple(
            (x, self.momentum * (1 - x) if ahead else self.momentum)
            for x in (self.flattest, self.steepest)
        )


@dataclass(frozen=True)
class Norm:
    """P = [[1, cross], [cross, own]]."""

    cross: float
    own: float

    def contraction(self, ends: Sequence[tuple[float, float]]) -> float:
        """Return about the least c that both inequalities hold with; infinite if P is not one."""
        return math.sqrt(max(self._square(x, k) for x, k in ends))

    def _square(self, x: float, k: float) -> float:
        room = self.own - self.cross**2
        if not room > 0:
            return math.inf
        a = 1 - x
        top = a**2 + 2 * self.cross * a * x + self.own * x**2
        side = k * (-a + self.cross * (a - x) + self.own * x)
        end = k**2 * (1 - 2 * self.cross + self.own)
        trace = (self.own * top - 2 * self.cross * side + end) / room
        return (trace + math.sqrt(max(trace**2 - 4 * k**2, 0.0))) / 2

    def shrinks(self, steps: Steps, contraction: float) -> bool:
        """Return whether c is proved: two matrix inequalities, in exact arithmetic."""
        cross, own = Fraction(self.cross), Fraction(self.own)
        if not own > cross**2:
            return False
        square = Fraction(contraction) ** 2
        for x, k in steps.ends():
            a = 1 - x
            first = square - (a * a + 2 * cross * a * x + own * x * x)
            mixed = square * cross - k * (-a + cross * (a - x) + own * x)
            last = square * own - k * k * (1 - 2 * cross + own)
            if first < 0 or last < 0 or first * last < mixed * mixed:
                return False
        return True

    def kappa(self) -> float:
        """Return |G| |C|* in this norm, rounded up."""
        cross, own = Fraction(self.cross), Fraction(self.own)
        square = (1 - 2 * cross + own) * own / (own - cross**2)
        return math.sqrt(double_above(square)) * (1 + 4e-16)


@dataclass(frozen=True)
class LastIterateAlone:
    """Steps have momentum, and nothing leaves but the last w."""

    def unmet(self, run: Run) -> str | None:
        if run.release == AllIterates():
            return EVERYTHING_LEAVES
        if run.release != LastIterate():
            return f"is about release='last'; yours is {run.release.name!r} (composition covers it)"
        if run.momentum == 0:
            return "is about momentum > 0; yours takes plain steps"
        if run.average_last > 1:
            return (
                "is about the last iterate: two iterates together say what the velocity was; yours "
                "averages iterates (composition covers it)"
            )
        return None


def _why_projected(run: Run) -> str | None:
    if run.domain is None:
        return None
    return (
        "is about runs without a domain: a projection may stretch the norm that the steps shrink; "
        "leave out the domain, or the momentum"
    )


def _why_no_norm(run: Run) -> str | None:
    rate, cap = equal_steps(run).eta, _cap(run, 1e-9).records
    if _forgets(Steps.of(run, cap)):
        return None
    if run.l2 == 0:
        return "needs steps that forget: add l2 > 0"
    slower = _largest(lambda part: run.replace(learning_rate=rate * part), cap)
    lighter = _largest(lambda part: run.replace(momentum=run.momentum * part), cap)
    ways = [f"lower the learning rate to {rounded_down(rate * slower, 3)}"] if slower else []
    ways += [f"the momentum to {rounded_down(run.momentum * lighter, 3)}"] if lighter else []
    return (
        f"finds no norm in which all steps shrink with momentum={run.momentum:g}, learning_rate="
        f"{rate:g}, l2={run.l2:g} and smoothness={loss_of(run).smoothness:g}: "
        f"{' or '.join(ways) or 'lower the learning rate and the momentum'}"
    )


def _largest(changed: Callable[[float], Run], cap: int) -> float:
    """Return about the largest part of a value at which a norm is found, rounded down."""
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = math.sqrt(low * high) if low else high / 4
        low, high = (middle, high) if _forgets(Steps.of(changed(middle), cap)) else (low, middle)
    return low


class Momentum(Bound):
    """Poisson or full batches, no domain, equal steps, the last w alone."""

    name = "momentum"
    claim_margin = COMPOSED_MARGIN
    note = "docs/theory/momentum.md"
    title = "Hidden-state momentum"
    citation = literature.this_library("docs/theory/momentum.md")
    release = LastIterateAlone()
    knows_groups = True
    rates = ConstantRates()
    needs = (
        AboutBatches((FullBatch, Poisson)),
        *GEOMETRY,
        ConstantSteps(),
        ConvexLosses(),
        SmoothLosses(),
        FEW_TO_SPLIT,
        Asks(_why_projected),
        Asks(_why_no_norm),
    )

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the best of a few norms, and the best number of own blocks for one of them."""
        cap = _cap(run, delta)
        known = norms(Steps.of(run, cap.records))

        def witness(norm: Norm, contraction: float, own: int) -> Witness:
            return {
                "batch_cap": cap.records,
                "extra_delta": cap.extra_delta,
                "contraction": contraction,
                "norm": [norm.cross, norm.own],
                "kappa": norm.kappa(),
                "own_blocks": own,
            }

        def epsilon(witness: Witness) -> float:
            return coarse(self.curve(run, witness)).epsilon(delta)

        norm, contraction = known[len(known) // 2]
        own = _cheapest_own(
            lambda own: epsilon(witness(norm, contraction, own)),
            _likely_own(run, norm.kappa(), contraction),
            run.steps,
        )
        return min((witness(norm, c, own) for norm, c in known), key=epsilon)

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Check the norm exactly, and compose the blocks; of a group, the worst way to split it."""
        cap = cap_of(run, int(witness["batch_cap"])) if _sampled(run) else BatchCap(run.n, 0.0)
        norm = Norm(*(float(entry) for entry in witness["norm"]))
        contraction = float(witness["contraction"])
        if not (contraction < 1 and norm.shrinks(Steps.of(run, cap.records), contraction)):
            raise InvalidInput(
                f"the norm {witness['norm']} does not shrink by {contraction!r} a step"
            )
        own = int(witness["own_blocks"])
        if not 1 <= own <= run.steps:
            raise InvalidInput(f"between 1 and {run.steps} blocks are one step's own; got {own}")
        if _rate(run) == 1:
            if cap.extra_delta > 0:
                raise InvalidInput(
                    f"every batch holds all {run.n} records; the witness caps it at {cap.records}"
                )
            mu = run.group_size * run.neighbor_factor * _certain_mu(run, norm, contraction, own)
            return GaussianCurve(mu)
        curves = [
            LossCurve(block_pairs(run, norm.kappa(), contraction, own, up, down), cap.extra_delta)
            for up, down in _splits(run)
        ]
        return curves[0] if len(curves) == 1 else WorstCurve(tuple(curves))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the geometry, and that the velocity stays inside."""
        velocity = Assumption("the velocity never leaves, nor any other iterate", "declared")
        return (*geometry_assumptions(run, (CONTRACTION,), bounded=False)[:2], velocity)


def block_pairs(
    run: Run, kappa: float, contraction: float, own: int, up: int, down: int
) -> tuple[tuple[DominatingPair, int], ...]:
    """Return one pair for each of ``own`` - 1 steps before the last, and that of the last step.

    The last step's noise hides its own use and all those ``own`` steps old or older.
    """
    ratio = _ratio(run)
    single = [_single_use(ratio, _rate(run), copies) for copies in (up, down)]
    last = [_last_block(run, kappa, contraction, own, copies, ratio) for copies in (up, down)]
    pairs: list[tuple[DominatingPair, int]] = [(MixturePair(last[0], last[1]), 1)]
    if own > 1:
        pairs.append((MixturePair(single[0], single[1]), own - 1))
    return tuple(pairs)


def _single_use(ratio: float, rate: float, copies: int) -> AtomLaw:
    if copies == 0:
        return NOTHING
    return upper_law(np.array([ratio * _UP]), np.array([rate]), copies=copies)


def _last_block(
    run: Run, kappa: float, contraction: float, own: int, copies: int, ratio: float
) -> AtomLaw:
    """Return a law above I_0 + kappa sum_{l >= own} c^l I_l, in units of the noise."""
    if copies == 0:
        return NOTHING
    ages = np.arange(own, min(run.steps, own + _memory(contraction)), dtype=float)
    older = run.steps - own - ages.size
    rest = 0.0
    if older > 0:
        log = math.log(contraction)
        first = kappa * math.exp((own + ages.size) * log)
        rest = copies * first * -math.expm1(older * log) / (1 - contraction) * _UP
    weights = np.r_[1.0, kappa * contraction**ages * _UP]
    law = upper_law(weights, np.full(weights.size, _rate(run)), copies=copies, rest=rest)
    return law.scaled(ratio * _UP)


def _certain_mu(run: Run, norm: Norm, contraction: float, own: int) -> float:
    """Return mu of a record that is in every batch."""
    log = math.log(contraction)
    old = math.exp(own * log) * -math.expm1((run.steps - own) * log) / (1 - contraction)
    last = 1 + norm.kappa() * old
    return _ratio(run) * math.sqrt(own - 1 + last**2) * _UP


def _memory(contraction: float) -> int:
    gap = -math.log(contraction)
    return min(_MOST_LAGS, math.ceil((_LOG_FORGOTTEN - math.log1p(-contraction)) / gap))


def _ratio(run: Run) -> float:
    steps = equal_steps(run)
    return steps.step / steps.nu


def _rate(run: Run) -> float:
    return run.sampling_rate if _sampled(run) else 1.0


def _sampled(run: Run) -> bool:
    return isinstance(run.batches, Poisson)


def _splits(run: Run) -> list[tuple[int, int]]:
    size = run.group_size
    if run.neighbors == "replace":
        return [(size, size)]
    return [(size - other, other) for other in range(size // 2 + 1)]


def _cap(run: Run, delta: float) -> BatchCap:
    return tail_cap(run, delta) if _sampled(run) else BatchCap(run.n, 0.0)


# --- which norm, and how many blocks: any choice is a proof, so both searches may be rough --------


@lru_cache(maxsize=1024)
def quickest_norm(steps: Steps) -> tuple[Norm, float]:
    """Return about the norm that shrinks most, and by how much."""
    ends = _floats(steps)
    norm = _least(lambda norm: norm.contraction(ends), float(steps.momentum))
    return norm, norm.contraction(ends)


def _floats(steps: Steps) -> tuple[tuple[float, float], ...]:
    return tuple((float(x), float(k)) for x, k in steps.ends())


def _forgets(steps: Steps) -> bool:
    return quickest_norm(steps)[1] < _SLOWEST


@lru_cache(maxsize=256)
def norms(steps: Steps) -> tuple[tuple[Norm, float], ...]:
    """Return norms that shrink, each with a proved contraction: for short and for long memories."""
    ends = _floats(steps)
    quickest, fastest = quickest_norm(steps)
    if not fastest < _SLOWEST:
        return ()
    proved = []
    for memories in (1.0, 3.0, 10.0):
        ages = memories / (1 - fastest)

        def tail(norm: Norm, ages: float = ages) -> float:
            c = norm.contraction(ends)
            if not c < 1:
                return 1e3 * min(c, 1e3)
            return math.log(norm.kappa()) + ages * math.log(c) - math.log(1 - c)

        norm = _least(tail, float(steps.momentum), quickest)
        contraction = norm.contraction(ends)
        margin = 1e-15
        while not norm.shrinks(steps, contraction) and margin < 1e-3:
            contraction, margin = contraction * (1 + margin), 4 * margin
        if contraction < 1 and norm.shrinks(steps, contraction):
            proved.append((norm, contraction))
    return tuple(dict.fromkeys(proved))


def _least(value: Callable[[Norm], float], momentum: float, near: Norm | None = None) -> Norm:
    """Return about the norm of the least value, by simplex searches from a few starts."""

    def norm_of(point: FloatArray) -> Norm:
        cross = float(point[0])
        return Norm(cross, cross**2 + math.exp(min(float(point[1]), 300.0)))

    # Without curvature (1, m / (1 - m)) is carried along: P leans that way.
    lean = -momentum / (1 - momentum)
    starts = [(lean, 2 * math.log(max(-lean, 1e-3))), (0.0, 0.0), (lean / 3, 1.0)]
    if near is not None:
        starts = [(near.cross, math.log(near.own - near.cross**2))]

    def height(point: FloatArray) -> float:
        return value(norm_of(point))

    options: Any = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 1500}
    results = [
        optimize.minimize(height, np.array(start), method="Nelder-Mead", options=options)
        for start in starts
    ]
    return norm_of(min(results, key=lambda result: float(result.fun)).x)


def _cheapest_own(epsilon: Callable[[int], float], first: int, steps: int) -> int:
    """Return a number of own blocks of small epsilon, near ``first``: the curve has one valley."""
    known: dict[int, float] = {}

    def at(own: int) -> float:
        if own not in known:
            known[own] = epsilon(own)
        return known[own]

    best = min(max(first, 1), steps)
    for factor in (1.5, 1.2, 1.08):
        moved = True
        while moved:
            tried = [max(1, math.floor(best / factor)), min(steps, math.ceil(best * factor))]
            better = min(tried, key=at)
            moved = at(better) < at(best)
            best = better if moved else best
    return best


def _likely_own(run: Run, kappa: float, contraction: float) -> int:
    """Return how many blocks are one step's own, by the surrogate cost of lagged blocks."""
    ratio, rate = _ratio(run), _rate(run) * run.group_size
    tilt = min(max(8.0 / ratio**2, 0.2), 12.0)
    orders = np.arange(1, _ORDERS + 1)[:, None]
    factors = tilt ** (orders - 1) / np.array([[math.factorial(int(j))] for j in orders[:, 0]])
    most = min(run.steps, _memory(contraction) + 1)
    own = np.unique(np.geomspace(1, most, 400).round())
    with np.errstate(over="ignore", under="ignore"):
        old = kappa**orders * contraction ** (orders * own) / (1 - contraction**orders)
        last = (factors * (rate * ratio**orders * (1 + old)) ** 2).sum(axis=0)
        single = float((factors * (rate * ratio**orders) ** 2).sum())
    costs = np.nan_to_num(last + (own - 1) * single, nan=np.inf)
    return int(own[costs.argmin()])
