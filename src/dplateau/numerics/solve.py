"""Monotone inversion that ends on the safe side, directed rounding and log-space sums.

A privacy claim is the answer of an inversion: the smallest epsilon that still satisfies something,
the largest mu that still implies something.  Ordinary root finders return a point *near* the
boundary, on either side of it.  Every inversion here returns a point at which the wanted property
was evaluated and found to hold, so the remaining error only ever makes a claim larger.

>>> smallest_where(lambda x: x * x >= 2.0, 0.0, 2.0) ** 2 >= 2.0
True
>>> largest_integer(lambda n: n * n <= 2000)
44
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar, cast

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray

__all__ = [
    "UNIT_ROUNDOFF",
    "bracketed_roots",
    "exp_up",
    "geometric_sum",
    "largest_integer",
    "largest_where",
    "log_add_exp",
    "log_expm1",
    "round_up",
    "smallest_integer",
    "smallest_where",
    "unwrap",
]

Number = TypeVar("Number", float, FloatArray)

UNIT_ROUNDOFF: Final = 2.0**-53
"""Largest relative error of one correctly rounded double precision operation."""

_MAX_BISECTIONS: Final = 2200  # enough to cross the whole double range one bit at a time
_INTEGER_LIMIT: Final = 2**62


def unwrap(values: FloatArray) -> float | FloatArray:
    """Return a zero-dimensional result as a plain ``float``, anything else unchanged."""
    return float(values) if values.ndim == 0 else values


# --- directed rounding -----------------------------------------------------------------------


def round_up(value: Number, ulps: float = 1.0) -> Number:
    """Enlarge ``value`` by at least ``ulps`` units in the last place, never downwards.

    ``ulps`` bounds the error of the expression that produced ``value``, in units of
    2 * ``UNIT_ROUNDOFF`` relative to ``value``; infinities stay as they are.

    >>> round_up(1.0) > 1.0
    True
    """
    array = np.asarray(value, dtype=np.float64)
    moved = np.nextafter(array + np.abs(array) * (2.0 * UNIT_ROUNDOFF * ulps), np.inf)
    return cast("Number", unwrap(np.asarray(moved)))


def exp_up(log_value: Number) -> Number:
    """Return an upper bound of e^log_value, positive unless ``log_value`` is ``-inf``.

    >>> exp_up(-1e9) > 0.0
    True
    """
    array = np.asarray(log_value, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        # One step more for the subnormal range, where a relative margin is lost to rounding.
        value = np.nextafter(np.exp(array) * (1.0 + 8.0 * UNIT_ROUNDOFF), np.inf)
    return cast("Number", unwrap(np.where(array == -np.inf, 0.0, value)))


# --- sums of exponentials ----------------------------------------------------------------------


def log_add_exp(first: Number | float, second: Number | float) -> Number:
    """Return log(e^first + e^second) without overflow; ``-inf`` stands for a zero term.

    >>> round(log_add_exp(0.0, 0.0), 6)
    0.693147
    """
    return cast("Number", unwrap(np.asarray(np.logaddexp(first, second), dtype=np.float64)))


def geometric_sum(rate: float, count: Number) -> Number:
    """Return 1 + x + ... + x^(count-1) for x = e^-rate, stably and not rounded up.

    >>> round(geometric_sum(math.log(2.0), 3), 6)
    1.75
    """
    if rate == 0:
        return count * 1.0
    if math.isinf(rate):
        return cast("Number", unwrap(np.asarray(np.asarray(count) > 0, dtype=np.float64)))
    # Each kind keeps its own exponential: the two differ in the last digit.
    expm1 = np.expm1 if isinstance(count, np.ndarray) else math.expm1
    return expm1(-rate * count) / math.expm1(-rate)


def log_expm1(value: Number) -> Number:
    """Return log(e^value - 1) for ``value >= 0``, accurate near zero and free of overflow.

    >>> log_expm1(1000.0)
    1000.0
    """
    array = np.asarray(value, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        large = array + np.log1p(-np.exp(-array))
        small = np.log(np.expm1(np.minimum(array, 1.0)))
    return cast("Number", unwrap(np.where(array > 1.0, large, small)))


# --- inversion over the reals ------------------------------------------------------------------


def smallest_where(
    predicate: Callable[[float], bool], lo: float, hi: float, *, rtol: float = 1e-12
) -> float:
    """Return a point of ``[lo, hi]`` where an upward closed ``predicate`` holds, near the least.

    ``predicate`` is false below some threshold and true from it on.  The returned point was
    evaluated and satisfies it; the threshold lies within relative distance ``rtol`` below.  If
    ``predicate(lo)`` holds, the answer is ``lo``.

    >>> round(smallest_where(lambda x: x >= 3.0, 0.0, 1e9), 9)
    3.0
    """
    _check_bracket(lo, hi, rtol)
    if predicate(lo):
        return lo
    if not predicate(hi):
        raise InvalidInput(
            f"the condition holds nowhere up to {hi!r}; search further, or relax the condition"
        )
    return _bisect(predicate, lo, hi, rtol)


def largest_where(
    predicate: Callable[[float], bool], lo: float, hi: float, *, rtol: float = 1e-12
) -> float:
    """Return a point of ``[lo, hi]`` where a downward closed ``predicate`` holds, near the largest.

    The mirror image of :func:`smallest_where`: true up to some threshold, false beyond it.

    >>> round(largest_where(lambda x: x <= 3.0, 0.0, 1e9), 9)
    3.0
    """
    _check_bracket(lo, hi, rtol)
    if predicate(hi):
        return hi
    if not predicate(lo):
        raise InvalidInput(
            f"the condition holds nowhere from {lo!r} on; start lower, or relax the condition"
        )
    return _bisect(predicate, hi, lo, rtol)


def _bisect(
    predicate: Callable[[float], bool], outside: float, inside: float, rtol: float
) -> float:
    """Shrink the gap between a failing and a satisfying point; return the satisfying one."""
    for _ in range(_MAX_BISECTIONS):
        middle = _between(outside, inside)
        if middle in (outside, inside) or abs(inside - outside) <= rtol * abs(inside):
            break
        if predicate(middle):
            inside = middle
        else:
            outside = middle
    return inside


def _between(one: float, other: float) -> float:
    """Midpoint, geometric when the two points share a sign but differ by orders of magnitude."""
    small, large = sorted((abs(one), abs(other)))
    if small > 0.0 and (one > 0.0) is (other > 0.0) and large > 4.0 * small:
        return math.copysign(math.sqrt(small) * math.sqrt(large), one)
    return one + (other - one) / 2.0


def bracketed_roots(
    function: Callable[[FloatArray], FloatArray],
    lo: FloatArray,
    hi: FloatArray,
    *,
    xtol: float = 1e-9,
    iterations: int = 100,
) -> FloatArray:
    """Approximate the roots of increasing functions elementwise, all entries in one pass.

    Inverse quadratic interpolation guarded by bisection (Chandrupatla, Advances in Engineering
    Software 28, 1997), to an absolute distance ``xtol``.  Entries without a sign change give the
    end nearer the root.  **Not** on the safe side: only for choosing a parameter whose every value
    is valid.

    >>> bracketed_roots(lambda x: x * x - np.array([2.0, 9.0]), np.zeros(2), np.full(2, 5.0))
    array([1.41421356, 3.        ])
    """
    low, high = np.array(lo, dtype=np.float64), np.array(hi, dtype=np.float64)
    f_low, f_high = function(low), function(high)
    # (x, f) is the newest point, (far, f_far) lies across the root, (old, f_old) is left over.
    start_low = f_high < 0.0
    far, x = np.where(start_low, high, low), np.where(start_low, low, high)
    f_far, f = np.where(start_low, f_high, f_low), np.where(start_low, f_low, f_high)
    settled = (f_low >= 0.0) | (f_high <= 0.0)
    ends = np.where(f_low >= 0.0, low, high)
    old, f_old, fraction = x, f, np.full_like(x, 0.5)
    for _ in range(iterations):
        new = x + fraction * (far - x)
        f_new = function(new)
        same = (f_new < 0.0) == (f < 0.0)
        old, f_old = np.where(same, x, far), np.where(same, f, f_far)
        far, f_far = np.where(same, far, x), np.where(same, f_far, f)
        x, f = new, f_new
        least = xtol / np.maximum(np.abs(far - x), 1e-300)
        if (settled | (least > 0.5) | (f == 0.0)).all():
            break
        fraction = _interpolated(x, f, far, f_far, old, f_old)
        fraction = np.minimum(np.maximum(fraction, least), np.maximum(1.0 - least, 0.5))
    return np.where(settled, ends, np.where(np.abs(f) <= np.abs(f_far), x, far))


def _interpolated(
    x: FloatArray,
    f: FloatArray,
    far: FloatArray,
    f_far: FloatArray,
    old: FloatArray,
    f_old: FloatArray,
) -> FloatArray:
    """Fraction of the way from x to far: inverse quadratic where that is monotone, else half."""
    with np.errstate(all="ignore"):
        place, height = (x - far) / (old - far), (f - f_far) / (f_old - f_far)
        first = f / (f_far - f) * (f_old / (f_far - f_old))
        second = (old - x) / (far - x) * (f / (f_old - f)) * (f_far / (f_old - f_far))
        trusted = (height * height < place) & ((1.0 - height) ** 2 < 1.0 - place)
        return np.where(trusted, first + second, 0.5)


# --- inversion over the integers ---------------------------------------------------------------


def smallest_integer(
    predicate: Callable[[int], bool], start: int = 0, *, limit: int = _INTEGER_LIMIT
) -> int:
    """Return the least integer in ``[start, limit]`` that satisfies an upward closed predicate.

    Exact: the answer satisfies the predicate and its predecessor does not.  The search doubles its
    stride from ``start`` and then bisects, so small answers are cheap whatever ``limit`` is.

    >>> smallest_integer(lambda n: n * n >= 2000)
    45
    """
    _check_integers(start, limit)
    outside, inside = _gallop(predicate, start, limit, wanted=True)
    if inside is None:
        raise InvalidInput(
            f"the condition holds for no integer from {start} to {limit}; raise the limit"
        )
    return _bisect_integers(predicate, outside, inside, wanted=True)


def largest_integer(
    predicate: Callable[[int], bool], start: int = 0, *, limit: int = _INTEGER_LIMIT
) -> int:
    """Return the largest integer in ``[start, limit]`` that satisfies a downward closed predicate.

    Exact, and cheap for small answers; ``limit`` itself is the answer if it satisfies the
    predicate.  Refuses when even ``start`` fails.

    >>> largest_integer(lambda n: n <= 7, limit=5)
    5
    """
    _check_integers(start, limit)
    inside, outside = _gallop(predicate, start, limit, wanted=False)
    if outside is None:
        return limit
    if outside == start:
        raise InvalidInput(f"the condition fails already at {start}; start lower, or relax it")
    return _bisect_integers(predicate, inside, outside, wanted=False) - 1


def _gallop(
    predicate: Callable[[int], bool], start: int, limit: int, *, wanted: bool
) -> tuple[int, int | None]:
    """Double the stride until the predicate equals ``wanted``; return (last miss, first hit)."""
    miss, point, stride = start - 1, start, 1
    while bool(predicate(point)) is not wanted:
        if point == limit:
            return point, None
        miss, point, stride = point, min(limit, point + stride), 2 * stride
    return miss, point


def _bisect_integers(predicate: Callable[[int], bool], miss: int, hit: int, *, wanted: bool) -> int:
    """Return the first integer above ``miss`` at which the predicate equals ``wanted``."""
    while hit - miss > 1:
        middle = (miss + hit) // 2
        if bool(predicate(middle)) is wanted:
            hit = middle
        else:
            miss = middle
    return hit


def _check_bracket(lo: float, hi: float, rtol: float) -> None:
    if not (math.isfinite(lo) and math.isfinite(hi) and lo <= hi):
        raise InvalidInput(f"a search needs finite ends lo <= hi; got lo={lo!r}, hi={hi!r}")
    if not rtol >= 0.0:
        raise InvalidInput(f"rtol must be zero or positive; got {rtol!r}")


def _check_integers(start: int, limit: int) -> None:
    if start > limit:
        raise InvalidInput(f"an integer search needs start <= limit; got {start} > {limit}")
