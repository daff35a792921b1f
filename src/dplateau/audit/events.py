"""Half-line events: what two bracketed laws prove about the privacy loss from below.

For any event A, E_g(P || Q) >= P(A) - g Q(A). With A a half-line, P(A) bounded below and Q(A)
above, the right-hand side is a proved lower bound, for both orders of the two laws and both
directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dplateau.audit.laws import UNIT, Law, TailBracket
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray

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
    return max(candidates, key=lambda found: found[0])


def epsilon_from_brackets(present: TailBracket, absent: TailBracket, delta: float) -> float:
    """Return an epsilon below which no (epsilon, delta) guarantee of either order can lie."""
    return max(0.0, best_half_line(present, absent, epsilon_score(delta))[0])


def delta_from_brackets(present: TailBracket, absent: TailBracket, epsilon: float) -> float:
    """Return a delta below which no (epsilon, delta) guarantee of either order can lie."""
    return max(0.0, best_half_line(present, absent, delta_score(epsilon))[0])


def search_half_lines(present: Law, absent: Law, score: Score) -> tuple[float, HalfLine]:
    """Maximise the score over thresholds: an even grid first, then finer ones around the best.

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
        centre = best[1].threshold
        points = np.linspace(max(low, centre - gap), min(high, centre + gap), _FINE)
        found = best_half_line(present.tail(points), absent.tail(points), score)
        best = max(best, found, key=lambda pair: pair[0])
        gap = 2 * gap / (_FINE - 1)
    return best
