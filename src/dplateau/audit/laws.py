"""What is known of a final iterate, and what two of them prove about the privacy loss.

A law is known through two-sided bounds on its tail probabilities, round-off included; half-line
events turn two such laws into a lower bound on epsilon or delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray

# Largest relative error of one rounded floating-point operation.
UNIT = 2.0**-53
# Arguments of the normal law beyond this point have probability below 1e-43.
FAR = 14.0


@dataclass(frozen=True)
class TailBracket:
    """Bounds on both tails of one law at ``points``, each proved, round-off included.

    ``lower <= P(X > x) <= upper`` and ``below_lower <= P(X <= x) <= below_upper``. The two pairs
    are kept apart because a small probability obtained as 1 minus a large one loses its digits.
    """

    points: FloatArray
    lower: FloatArray
    upper: FloatArray
    below_lower: FloatArray
    below_upper: FloatArray

    def __post_init__(self) -> None:
        """Refuse arrays of different lengths, and bounds that cross."""
        sides = (self.lower, self.upper, self.below_lower, self.below_upper)
        if any(side.shape != self.points.shape for side in sides):
            raise InvalidInput("a bracket needs one bound of each kind per point")
        if np.any(self.lower > self.upper) or np.any(self.below_lower > self.below_upper):
            raise InvalidInput("a bracket's lower bound exceeds its upper bound")

    @classmethod
    def around(
        cls,
        points: FloatArray,
        above: FloatArray,
        *,
        below: FloatArray | None = None,
        relative: float | FloatArray = 0.0,
        absolute: float | FloatArray = 0.0,
    ) -> TailBracket:
        """Widen computed tails by a relative and an absolute error, within [0, 1].

        Without ``below`` its bounds follow from those of ``above``.
        """
        lower, upper = _widen(above, relative, absolute)
        if below is None:
            return cls.between(points, lower, upper)
        return cls(points, lower, upper, *_widen(below, relative, absolute))

    @classmethod
    def between(cls, points: FloatArray, lower: FloatArray, upper: FloatArray) -> TailBracket:
        """Complete bounds on P(X > x) by those they imply on P(X <= x)."""
        below_lower = np.maximum(0.0, 1.0 - upper - 2 * UNIT)
        below_upper = np.minimum(1.0, 1.0 - lower + 2 * UNIT)
        return cls(points, lower, upper, below_lower, below_upper)

    @property
    def width(self) -> float:
        """Largest gap between the two bounds on P(X > x)."""
        return float(np.max(self.upper - self.lower))

    def padded(self, slack: float) -> TailBracket:
        """Return the bracket of any law within ``slack`` of this one in total variation."""
        return TailBracket(
            self.points,
            np.maximum(0.0, self.lower - slack),
            np.minimum(1.0, self.upper + slack),
            np.maximum(0.0, self.below_lower - slack),
            np.minimum(1.0, self.below_upper + slack),
        )


class Law(Protocol):
    """A final law that can bracket its tails anywhere; ``span`` holds all but a trifle of it."""

    @property
    def span(self) -> tuple[float, float]:
        """Return an interval outside of which no threshold is of interest."""
        ...

    def tail(self, points: FloatArray) -> TailBracket:
        """Return bounds on the tails at the given thresholds."""
        ...


@dataclass(frozen=True)
class PaddedLaw:
    """A law known up to ``slack`` in total variation through a simpler one."""

    law: Law
    slack: float
    span: tuple[float, float]

    def tail(self, points: FloatArray) -> TailBracket:
        """Return the simpler law's bounds, widened."""
        return self.law.tail(points).padded(self.slack)


@dataclass(frozen=True)
class MixtureLaw:
    """A law drawn at random from several: ``parts`` are (probability, law)."""

    parts: tuple[tuple[float, Law], ...]

    @property
    def span(self) -> tuple[float, float]:
        """Return an interval that covers every part's."""
        spans = [law.span for _, law in self.parts]
        return min(low for low, _ in spans), max(high for _, high in spans)

    def tail(self, points: FloatArray) -> TailBracket:
        """Return the averaged bounds, rounded outwards."""
        tails = [(weight, law.tail(points)) for weight, law in self.parts]
        slack = UNIT * (4 * len(tails) + 8)

        def mean(name: str, sign: int) -> FloatArray:
            total = sum(weight * getattr(tail, name) for weight, tail in tails)
            return np.minimum(1.0, np.asarray(total * (1 + sign * slack), dtype=np.float64))

        names = (("lower", -1), ("upper", 1), ("below_lower", -1), ("below_upper", 1))
        return TailBracket(points, *(mean(name, sign) for name, sign in names))


def normal_tail(z: FloatArray, error: float | FloatArray = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return bounds on Phi(z') for every z' within ``error`` of z.

    The library function is good to a few units in the last place times 1 + z^2 (the exponential
    of a rounded square); twice that is charged here.
    """
    from scipy.special import ndtr

    low, high = z - error, z + error
    charge = UNIT * (32 + 4 * np.minimum(np.square(z), 1500.0))
    lower = np.maximum(0.0, ndtr(low) * (1 - charge) - 1e-300)
    return lower, np.minimum(1.0, ndtr(high) * (1 + charge) + 1e-300)


def _widen(
    value: FloatArray, relative: float | FloatArray, absolute: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    lower = np.clip(value * (1 - np.minimum(relative, 1.0)) - absolute - UNIT * value, 0.0, 1.0)
    upper = np.clip(value * (1 + relative) + absolute + UNIT * value, 0.0, 1.0)
    return lower, upper


# ---- half-line events ---------------------------------------------------------------------------
#
# Half-line events: what two bracketed laws prove about the privacy loss from below.
#
# For any event A, E_g(P || Q) >= P(A) - g Q(A). With A a half-line, P(A) bounded below and Q(A)
# above, the right-hand side is a proved lower bound, for both orders of the two laws and both
# directions.

Order = Literal["present_first", "absent_first"]
Direction = Literal["above", "below"]
# From a lower bound on P(A) and an upper bound on Q(A) to a score, at every threshold.
Score = Callable[[FloatArray, FloatArray], FloatArray]
_COARSE = 161
_FINE = 25
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class HalfLine:
    """The event {X > threshold} or {X <= threshold}, and which law comes first in E_g."""

    order: Order
    direction: Direction
    threshold: float


def epsilon_score(delta: float) -> Score:
    """Return the score log((P - delta) / Q), rounded down: the epsilon that the event refutes."""
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie strictly between 0 and 1; got {delta}")

    def score(first: FloatArray, second: FloatArray) -> FloatArray:
        excess = first - delta - 2 * UNIT * (first + delta)
        usable = excess > 0
        logs = np.log(np.where(usable, excess, 1.0)) - np.log(np.maximum(second, 1e-300))
        return np.where(usable, logs - 1e-14 * (1 + np.abs(logs)), -math.inf)

    return score


def delta_score(epsilon: float) -> Score:
    """Return the score P - e^epsilon Q, rounded down: the delta that the event forces."""
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InvalidInput(f"epsilon must be finite and at least 0; got {epsilon}")

    def score(first: FloatArray, second: FloatArray) -> FloatArray:
        scale = 1 + UNIT * (8 + 2 * epsilon)
        # In logarithms: e^epsilon alone may overflow. Beyond e^2 the event is useless anyway.
        power = np.exp(np.minimum(epsilon + np.log(np.maximum(second, 1e-300)), 2.0))
        return first * (1 - 2 * UNIT) - power * scale * (1 + 64 * UNIT * 700)

    return score


def best_half_line(
    present: TailBracket, absent: TailBracket, score: Score
) -> tuple[float, HalfLine]:
    """Return the largest score over the brackets' common thresholds, and its event."""
    if not np.array_equal(present.points, absent.points):
        raise InvalidInput("two brackets can be compared only at the same points")
    candidates: list[tuple[float, HalfLine]] = []
    pairs: tuple[tuple[Order, TailBracket, TailBracket], ...] = (
        ("present_first", present, absent),
        ("absent_first", absent, present),
    )
    for order, first, second in pairs:
        sides: tuple[tuple[Direction, FloatArray, FloatArray], ...] = (
            ("above", first.lower, second.upper),
            ("below", first.below_lower, second.below_upper),
        )
        for direction, low, high in sides:
            scores = score(low, high)
            at = int(np.argmax(scores))
            event = HalfLine(order, direction, float(present.points[at]))
            candidates.append((float(scores[at]), event))
    return max(candidates, key=lambda candidate: candidate[0])


def epsilon_from_brackets(present: TailBracket, absent: TailBracket, delta: float) -> float:
    """Return an epsilon below which no (epsilon, delta) guarantee of either order can lie."""
    return max(0.0, best_half_line(present, absent, epsilon_score(delta))[0])


def delta_from_brackets(present: TailBracket, absent: TailBracket, epsilon: float) -> float:
    """Return a delta below which no (epsilon, delta) guarantee of either order can lie."""
    return max(0.0, best_half_line(present, absent, delta_score(epsilon))[0])


def search_half_lines(present: Law, absent: Law, score: Score) -> tuple[float, HalfLine]:
    """Maximize the score over thresholds: an even grid first, then finer ones around the best.

    Any threshold is valid, so the search may be as rough as it likes.
    """
    low = min(present.span[0], absent.span[0])
    high = max(present.span[1], absent.span[1])
    points = np.linspace(low, high, _COARSE)
    best = best_half_line(present.tail(points), absent.tail(points), score)
    gap = (high - low) / (_COARSE - 1)
    for _ in range(_ROUNDS):
        if not math.isfinite(best[0]):
            break
        center = best[1].threshold
        points = np.linspace(max(low, center - gap), min(high, center + gap), _FINE)
        finer = best_half_line(present.tail(points), absent.tail(points), score)
        best = max(best, finer, key=lambda pair: pair[0])
        gap = 2 * gap / (_FINE - 1)
    return best


# ---- two Gaussians ------------------------------------------------------------------------------
#
# The privacy curve of two Gaussians one unit of noise apart by mu, rounded down.
#
# Kept apart from the library's own curves on purpose: a referee must not share the player's ruler.


def gaussian_delta_below(epsilon: float, mu: float) -> float:
    """Return a lower bound on Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

    >>> round(gaussian_delta_below(0.0, 1.0), 9)
    0.382924923
    """
    from scipy.special import log_ndtr

    if mu <= 0:
        return 0.0
    first, second = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    log_first, log_second = float(log_ndtr(first)), epsilon + float(log_ndtr(second))
    # A relative error e of the argument x changes the logarithm by at most e |x| (|x| + 1).
    size = mu / 2 + epsilon / mu
    slack = UNIT * (64 + 8 * size * (size + 1) + 8 * epsilon)
    gap = log_second - log_first + 2 * slack
    if gap >= 0:
        return 0.0
    return math.exp(log_first - slack) * -math.expm1(gap) * (1 - 16 * UNIT)


def gaussian_epsilon_below(mu: float, delta: float) -> float:
    """Return an epsilon at which the curve is still at least delta, as large as floats allow.

    >>> round(gaussian_epsilon_below(1.0, 1e-5), 6)
    4.377178
    """
    if gaussian_delta_below(0.0, mu) < delta:
        return 0.0
    low, high = 0.0, max(mu, 1e-300)
    while gaussian_delta_below(high, mu) >= delta:
        low, high = high, 2 * high
    while True:
        middle = (low + high) / 2
        if not low < middle < high or high - low < 1e-13 * high:
            return low
        if gaussian_delta_below(middle, mu) >= delta:
            low = middle
        else:
            high = middle
