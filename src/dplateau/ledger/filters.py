"""Filters: what a release costs and what a budget holds when outputs decide what comes next.

A filter measures every release in one currency that adds up along every path, whoever chooses the
path. Three are proved in docs/theory/ledger.md (Theorem 1 and its corollaries): the squares of mu
(Smith and Thakurta 2022), Rényi divergences of one order (Feldman and Zrnic 2021), and pure
epsilons (Rogers, Roth, Ullman and Vadhan 2016). In each of them a release may also *fail*: it costs
(amount, delta) if its hockey stick, less delta, is nowhere above that of some pair within the
amount. Amounts add up and deltas add up, and both limits are fixed before the first output is seen.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from dplateau.certificates import Composition, ForeignPart
from dplateau.certificates.composition import METHODS, Part, gaussian_law
from dplateau.curves import (
    WIDEST_EPSILON,
    GaussianCurve,
    LossCurve,
    PrivacyCurve,
    TablePair,
    TabulatedCurve,
    WorstCurve,
    conversions,
    tabulate,
)
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.shown import rounded_down, rounded_up
from dplateau.ground.types import FloatArray
from dplateau.numerics import normal
from dplateau.numerics.solve import UNIT_ROUNDOFF, largest_where

Law = GaussianCurve | TabulatedCurve
# Orders among which that of a Rényi filter is chosen beforehand: any order is valid.
_ORDERS = np.geomspace(1.1, 1024.0, 400)
# Deltas at which a release is tried, as shares of what is left of delta: any is valid.
_SHARES = (0.0, *np.geomspace(1e-6, 1.0, 61).tolist())
# A share so little larger is worth a smaller delta.
_AS_GOOD = 1e-3
_AMOUNT_RTOL = 1e-9
_SUMS_UP = 1 + 1e-12
_ERROR = 8 * UNIT_ROUNDOFF


@dataclass(frozen=True)
class Spending:
    """What the ledger knows of a release: its curve, and the law that stands for it in the file."""

    law: Law
    curve: PrivacyCurve

    @classmethod
    def of(cls, part: Part, delta: float) -> Spending:
        """Read a part's curve; ``delta`` is how much its tail may lose without regret."""
        curve = curve_of(part, delta)
        law: Law | None = part.curve if isinstance(part, ForeignPart) else gaussian_law(curve)
        if law is None:
            law = curve if isinstance(curve, TabulatedCurve) else _table(curve, delta)
        return cls(law, curve)


def curve_of(part: Part, delta: float) -> PrivacyCurve:
    """Return the curve that the certificates in a part prove, whatever laws a file states.

    Parts on the same records count as the product of one pair each, which holds in any order and
    with other releases in between; sums of Rényi divergences or of epsilons would not.
    """
    if not isinstance(part, Composition):
        return part.curve
    if part.records == "disjoint":
        return WorstCurve(tuple(curve_of(entry.part, delta) for entry in part.entries))
    entries = tuple(replace(entry, law=_factor(entry.part, delta)) for entry in part.entries)
    gaussian = all(isinstance(entry.law, GaussianCurve) for entry in entries)
    return METHODS["GDP composition" if gaussian else "PLD composition"](entries)


def _factor(part: Part, delta: float) -> PrivacyCurve:
    """Return a part as a Gaussian law, as its own pairs, or as a table."""
    curve = curve_of(part, delta)
    gaussian, pairs = gaussian_law(curve), curve.loss_parts()
    if gaussian is not None:
        return gaussian
    if pairs is not None:
        return LossCurve(pairs, extra_delta=curve.extra_delta)
    return _table(curve, delta)


def _table(curve: PrivacyCurve, delta: float) -> TabulatedCurve:
    """Return a table that is fine far below ``delta``, or as far as the curve goes.

    It ends where all losses end, if they do: what is pure stays so beside other parts.
    """
    pair = _fine_table(curve, delta)
    pure = curve.epsilon(0.0)
    if pure <= WIDEST_EPSILON:
        pair = TablePair.hull(np.append(pair.epsilons, pure), np.append(pair.deltas, 0.0))
    return TabulatedCurve(pair)


def _fine_table(curve: PrivacyCurve, delta: float) -> TablePair:
    for share in (1e-3, 1e-1):
        try:
            return tabulate(curve, share * delta)
        except NotApplicable:
            continue
    return tabulate(curve, delta)


@dataclass(frozen=True)
class _Roc:
    """Corners of the best attacks on a pair: true and false positives above each loss."""

    losses: FloatArray  # rising, from the first loss above 0
    true: FloatArray  # rounded up
    false_down: FloatArray
    false_up: FloatArray
    lost: float

    @classmethod
    def of(cls, pair: TablePair) -> _Roc:
        """Read the slopes of the hockey stick: E_g = true - g false between two corners."""
        epsilons, deltas = np.array(pair.epsilons), np.array(pair.deltas)
        low, losses = epsilons[:-1], epsilons[1:]
        width = np.exp(low) * np.expm1(losses - low)
        false = (deltas[:-1] - deltas[1:]) / width
        error = _ERROR * (deltas[:-1] / width + false * (1 + losses))
        up = false + error
        true = (deltas[1:] + np.exp(losses) * up) * (1 + _ERROR * (1 + losses))
        return cls(losses, np.minimum(true, 1.0), false - error, up, pair.deltas[-1])


class Filter(ABC):
    """A currency that adds up along every path, and what an amount of it allows."""

    name: ClassVar[str]
    order: float | None = None

    @abstractmethod
    def amount_of(self, law: Law, delta: float) -> float:
        """Return an amount that holds ``law`` up to an additive ``delta``; infinite if none."""

    @abstractmethod
    def delta_at(self, amount: float, epsilons: FloatArray) -> FloatArray:
        """Return the largest hockey stick within ``amount``, at any real epsilons, rounded up."""

    @abstractmethod
    def epsilon_at(self, amount: float, delta: float) -> float:
        """Return the epsilon at ``delta`` of a release that takes the amount: of a Gaussian one."""

    @abstractmethod
    def in_words(self, shown: Callable[[float, int], str], amount: float) -> str:
        """Return an amount as a person reads it, its digits as ``shown`` rounds them."""

    def cost_words(self, amount: float) -> str:
        """Return what something costs: rounded up."""
        return self.in_words(rounded_up, amount)

    def left_words(self, amount: float) -> str:
        """Return what is left: rounded down."""
        return self.in_words(rounded_down, amount)

    def exact_amount(self, curve: PrivacyCurve) -> float:
        """Return an amount that the curve states by itself, at delta 0; infinite if it does not."""
        return math.inf

    def options(self, release: Spending, slack: float) -> Iterator[tuple[float, float]]:
        """Yield ways to pay for a release: (amount, delta), every one of them valid."""
        yield self.exact_amount(release.curve), 0.0
        if isinstance(release.law, GaussianCurve):
            yield self.amount_of(release.law, 0.0), 0.0
            return
        for share in _SHARES if slack > 0 else (0.0,):
            yield self.amount_of(release.law, share * slack), share * slack

    def cost(self, release: Spending, amount: float, slack: float) -> tuple[float, float]:
        """Return how to pay for a release so that the larger share of what is left is smallest.

        ``amount`` and ``slack`` are left; the answer is (amount, delta) and need not fit. The
        amount is infinite if nothing covers the release.
        """

        def share(option: tuple[float, float]) -> float:
            return max(_share(option[0], amount), _share(option[1], slack))

        finite = [option for option in self.options(release, slack) if math.isfinite(option[0])]
        best = min(map(share, finite), default=math.inf)
        if math.isinf(best):
            return min(finite, default=(math.inf, 0.0), key=_delta_of)
        limit = min(best * (1 + _AS_GOOD), max(best, 1.0))
        return min((option for option in finite if share(option) <= limit), key=_delta_of)

    def held(self, epsilon: float, delta: float, law: Law | None = None) -> float | None:
        """Return the largest amount found that fits (epsilon, delta) together with ``law``.

        None if ``law`` alone does not fit. The law and whatever is within the amount compose to at
        most E[h(epsilon - loss)], h being the hockey stick of the amount (Corollary 4).
        """
        if law is None:
            losses, masses, lost = np.zeros(1), np.ones(1), 0.0
        else:
            losses, masses, lost = _masses(law, delta)

        def fits(amount: float) -> bool:
            mixed = float(masses @ self.delta_at(amount, epsilon - losses))
            return (mixed + lost) * _SUMS_UP <= delta

        if not fits(0.0):
            return None
        top = 1.0
        while fits(top):
            top *= 4
            if top > 1e12:
                raise InvalidInput(f"a budget of epsilon {epsilon:g} at delta {delta:g} has no end")
        return largest_where(fits, 0.0, top, rtol=_AMOUNT_RTOL)


class GaussianFilter(Filter):
    """Squares of mu add up: the total is as private as N(0, 1) against N(sqrt(amount), 1)."""

    name = "gdp"

    def amount_of(self, law: Law, delta: float) -> float:
        """Return the smallest mu^2 whose attack curve lies above all corners (Lemma 1)."""
        if isinstance(law, GaussianCurve):
            return law.mu**2 * (1 + _ERROR)
        roc = _Roc.of(law.pair.lowered(delta))
        if roc.lost > 0:
            return math.inf
        if roc.losses.size == 0:
            return 0.0
        if np.any(roc.true >= 1) or np.any(roc.false_down <= 0):
            return math.inf
        ends = ndtri(roc.true), ndtri(roc.false_down)
        mu = float(np.max(ends[0] - ends[1] + 1e-13 * (np.abs(ends[0]) + np.abs(ends[1]))))
        return max(mu, 0.0) ** 2 * (1 + _ERROR)

    def delta_at(self, amount: float, epsilons: FloatArray) -> FloatArray:
        """Return the hockey stick of two Gaussian laws."""
        mu = math.sqrt(amount) * (1 + _ERROR)
        return np.asarray(normal.gaussian_delta(np.asarray(epsilons), mu))

    def held(self, epsilon: float, delta: float, law: Law | None = None) -> float | None:
        """Add up squares exactly where all is Gaussian."""
        if law is not None and not isinstance(law, GaussianCurve):
            return super().held(epsilon, delta, law)
        used = 0.0 if law is None else self.amount_of(law, 0.0)
        left = normal.gaussian_mu(epsilon, delta) ** 2 * (1 - 4 * _ERROR) - used
        return left if left >= 0 else None

    def epsilon_at(self, amount: float, delta: float) -> float:
        """Return the epsilon of two Gaussian laws."""
        return GaussianCurve(math.sqrt(amount) * (1 + _ERROR)).epsilon(delta)

    def in_words(self, shown: Callable[[float, int], str], amount: float) -> str:
        """Return the distance of the two Gaussian laws."""
        return f"mu {shown(math.sqrt(amount), 4)}"


@dataclass(frozen=True)
class RenyiFilter(Filter):
    """Rényi divergences of one order, fixed beforehand, add up, in both orders of the laws."""

    order: float = 8.0
    name: ClassVar[str] = "renyi"

    def amount_of(self, law: Law, delta: float) -> float:
        """Return the divergence of the law's pair once ``delta`` is taken off it (Lemma 2)."""
        if isinstance(law, GaussianCurve):
            return law.rdp(self.order)
        roc = _Roc.of(law.pair.lowered(delta))
        if roc.lost > 0:
            return math.inf
        with np.errstate(over="ignore", invalid="ignore"):
            grows = np.expm1(self.order * roc.losses)
            falls, one = np.expm1((1 - self.order) * roc.losses), np.expm1(roc.losses)
            excess = grows + falls - one
            error = _ERROR * (1 + self.order * roc.losses) * (grows - falls + one)
            moment = float(roc.false_up @ (np.diff(excess, prepend=0.0) + error)) * _SUMS_UP
        if not math.isfinite(moment):
            return math.inf
        return math.log1p(max(moment, 0.0)) / (self.order - 1) * (1 + _ERROR)

    def exact_amount(self, curve: PrivacyCurve) -> float:
        """Return the divergence that the curve itself knows, if it does."""
        try:
            return curve.rdp(self.order)
        except NotApplicable:
            return math.inf

    def delta_at(self, amount: float, epsilons: FloatArray) -> FloatArray:
        """Return what one divergence allows at best, mirrored below epsilon 0."""
        size = np.abs(np.asarray(epsilons, dtype=np.float64))
        deltas = np.asarray(conversions.optimal_delta(np.array(self.order), np.array(amount), size))
        return _mirrored(np.asarray(epsilons), deltas)

    def epsilon_at(self, amount: float, delta: float) -> float:
        """Return the epsilon of the two Gaussian laws that have the divergence."""
        return GaussianCurve(math.sqrt(2 * amount / self.order)).epsilon(delta)

    def in_words(self, shown: Callable[[float, int], str], amount: float) -> str:
        """Return the divergence and its order."""
        return f"Rényi {shown(amount, 4)} (order {self.order:g})"


class PureFilter(Filter):
    """Pure epsilons add up; the only filter of a budget with delta 0."""

    name = "pure"

    def amount_of(self, law: Law, delta: float) -> float:
        """Return the largest loss that remains once ``delta`` is taken off."""
        if isinstance(law, GaussianCurve):
            return math.inf if law.mu > 0 else 0.0
        return law.pair.lowered(delta).largest_loss

    def delta_at(self, amount: float, epsilons: FloatArray) -> FloatArray:
        """Return the hockey stick of randomized response."""
        size = np.abs(np.asarray(epsilons, dtype=np.float64))
        below = np.minimum(size - amount, 0.0)
        deltas = -np.expm1(below) / (1 + math.exp(-amount)) * (1 + _ERROR)
        return _mirrored(np.asarray(epsilons), deltas)

    def held(self, epsilon: float, delta: float, law: Law | None = None) -> float | None:
        """Subtract the law's largest loss where delta is 0."""
        if delta > 0:
            return super().held(epsilon, delta, law)
        used = 0.0 if law is None else self.amount_of(law, 0.0)
        return left_of(epsilon, exact(used)) if used <= epsilon else None

    def epsilon_at(self, amount: float, delta: float) -> float:
        """Return the amount itself: no Gaussian release is within it."""
        return amount

    def in_words(self, shown: Callable[[float, int], str], amount: float) -> str:
        """Return the epsilon."""
        return f"epsilon {shown(amount, 4)}"


@dataclass(frozen=True)
class Terms:
    """What binds a ledger once the first part is known: currency, limits, and the limit at first.

    ``whole`` is what an empty ledger would hold; the planned parts leave ``amount`` of it and
    ``slack`` of delta to whatever is chosen later.
    """

    filter: Filter
    whole: float
    amount: float
    slack: float

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as JSON-ready data."""
        named = {"filter": self.filter.name, "order": self.filter.order}
        return {**named, "whole": self.whole, "amount": self.amount, "slack": self.slack}

    @classmethod
    def from_dict(cls, document: Any) -> Terms:
        """Read what :meth:`to_dict` returned."""
        if not isinstance(document, dict):
            raise InvalidInput("the terms of a ledger are a JSON object")
        numbers = [checks.nonnegative(n, document.get(n)) for n in ("whole", "amount", "slack")]
        return cls(filter_named(document.get("filter"), document.get("order")), *numbers)


FILTERS = ("gdp", "renyi", "pure")


def filter_named(name: object, order: object = None) -> Filter:
    """Return a filter by its name; a Rényi filter needs its order."""
    checks.choice("filter", name, FILTERS)
    if name == "renyi":
        parsed = checks.real("order", order)
        if not 1 < parsed < math.inf:
            raise InvalidInput(f"order must be finite and above 1; got {parsed:g}")
        return RenyiFilter(parsed)
    if order is not None:
        raise InvalidInput(f"order is about the Rényi filter; the filter is {name!r}")
    return GaussianFilter() if name == "gdp" else PureFilter()


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta) in all, of which a share of delta is kept for releases that may fail."""

    epsilon: float
    delta: float
    share: float

    @cached_property
    def slack(self) -> float:
        """The part of delta that releases may add up to, each on its own."""
        # As people write it: a tenth of 1e-5 is 1e-6, and in doubles a little more.
        return float(exact(self.share) * exact(self.delta))

    def whole(self, chosen: Filter) -> float:
        """Return what an empty ledger holds."""
        return chosen.held(self.epsilon, self._rest) or 0.0

    def terms(self, first: Spending, chosen: Filter) -> Terms | None:
        """Return the terms under which ``first`` is planned and the rest is left to the filter.

        None if ``first`` does not fit beside the share of delta that the filter keeps.
        """
        left = chosen.held(self.epsilon, self._rest, first.law)
        return None if left is None else Terms(chosen, self.whole(chosen), left, self.slack)

    def nothing_left(self, chosen: Filter) -> Terms:
        """Return the terms when the planned parts take it all."""
        return Terms(chosen, self.whole(chosen), 0.0, 0.0)

    @property
    def default_filter(self) -> Filter:
        """The filter of a budget of which nothing is left to choose one for."""
        return PureFilter() if self.delta == 0 else GaussianFilter()

    def best_filter(self, release: Spending) -> Filter:
        """Return the filter in which the release costs the smaller share of the whole."""
        if self.delta == 0:
            return self.default_filter
        known = (GaussianFilter(), RenyiFilter(self.order))
        return min(known, key=lambda chosen: self._share_of(release, chosen))

    @property
    def order(self) -> float:
        """The Rényi order at which the budget holds most Gaussian releases, to two digits."""
        # A conversion that adds to the divergence what depends on order and delta alone.
        added = conversions.balle_epsilon(_ORDERS, self.epsilon, self._rest) - self.epsilon
        best = int(np.argmax((self.epsilon - added) / _ORDERS))
        return float(f"{_ORDERS[best]:.2g}")

    def _share_of(self, release: Spending, chosen: Filter) -> float:
        whole = self.whole(chosen)
        amount, delta = chosen.cost(release, whole, self.slack)
        return max(_share(amount, whole), _share(delta, self.slack))

    @property
    def _rest(self) -> float:
        return (self.delta - self.slack) * (1 - UNIT_ROUNDOFF)


def release_of(part: Part, budget: Budget) -> Spending:
    """Return what the ledger knows of a part; its table is fine where the budget's slack is."""
    return Spending.of(part, budget.slack or budget.delta * 1e-3 or 1e-9)


def exact(number: float) -> Fraction:
    """Return a number as people write it, exactly, so that sums and limits mean what they say.

    >>> 10 * exact(0.1) == 1, sum([0.1] * 10) == 1
    (True, False)
    """
    return Fraction(repr(float(number)))


def left_of(limit: float, spent: Fraction) -> float:
    """Return what is left of a limit, rounded down."""
    rest = exact(limit) - spent
    nearest = float(rest)
    below = nearest if exact(nearest) <= rest else math.nextafter(nearest, -math.inf)
    return max(0.0, below)


def _masses(law: Law, delta: float) -> tuple[FloatArray, FloatArray, float]:
    """Return the losses of a law with masses rounded up, and what is lost outright."""
    pair = law.pair if isinstance(law, TabulatedCurve) else tabulate(law, 1e-3 * delta)
    roc = _Roc.of(pair)
    if roc.losses.size == 0:
        return np.zeros(1), np.ones(1), roc.lost
    # Chances of a loss at or above each value, from the highest loss down to the lowest.
    falling = np.append(roc.false_down[1:], 0.0)
    above = np.concatenate([roc.true[::-1], [1 - roc.false_down[0]], 1 - falling])
    losses = np.concatenate([roc.losses[::-1], [0.0], -roc.losses])
    masses = np.diff(above, prepend=roc.lost)
    return losses, np.maximum(masses, 0.0) + 4 * _ERROR * above, roc.lost


def _mirrored(epsilons: FloatArray, deltas: FloatArray) -> FloatArray:
    """Carry deltas at the size of epsilon to epsilon < 0, as both orders of the laws allow."""
    growth = np.exp(-np.abs(epsilons))
    below = 1 - growth * (1 - deltas)
    return np.asarray(np.minimum(np.where(epsilons < 0, below * (1 + _ERROR), deltas), 1.0))


def _share(part: float, whole: float) -> float:
    return 0.0 if part == 0 else (part / whole if whole > 0 else math.inf)


def _delta_of(option: tuple[float, float]) -> float:
    return option[1]
