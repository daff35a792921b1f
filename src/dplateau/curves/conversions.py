"""From one Rényi divergence to (epsilon, delta): four conversions, the last of them exact.

A pair (P, Q) with Rényi divergence D_alpha(P || Q) <= zeta, alpha > 1, has hockey-stick divergence
at most delta at order e^epsilon.  Four ways to say which (epsilon, delta) follow:

* ``classic``: Markov's inequality (Mironov, arXiv 1702.07476, proposition 3);
* ``balle``: the best multiple of (x - g)_+ below x^alpha (Balle et al., arXiv 1905.09982, theorem
  21; Canonne, Kamath, Steinke, arXiv 2004.00010 v4, proposition 12);
* ``linearized``: the tangent at x = 1 taken off first, for small zeta (Asoodeh et al., next line);
* ``optimal``: the joint range of both divergences (Asoodeh, Liao, Calmon, Kosut, Sankar, arXiv
  2008.06529), the least epsilon that *any* argument from a single order can give
  (:mod:`dplateau.curves.optimal_conversion`).

>>> round(optimal_epsilon(5.0, 0.5, 1e-5), 6)
2.716384
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeVar, cast

import numpy as np

from dplateau.curves.optimal_conversion import (
    Orders,
    least_delta,
    least_epsilon,
    log_delta_of,
    log_upper_tangent,
    prepared,
)
from dplateau.errors import InvalidInput
from dplateau.ground.types import BoolArray, FloatArray
from dplateau.numerics.solve import UNIT_ROUNDOFF, exp_up, largest_where, unwrap

__all__ = [
    "CONVERSIONS",
    "Conversion",
    "balle_delta",
    "balle_epsilon",
    "classic_delta",
    "classic_epsilon",
    "largest_zeta",
    "linearized_delta",
    "linearized_epsilon",
    "optimal_delta",
    "optimal_epsilon",
    "rdp_delta",
    "rdp_epsilon",
]

Number = TypeVar("Number", float, FloatArray)
Conversion = Literal["classic", "balle", "linearized", "optimal"]

_Formula = Callable[[Orders, FloatArray], FloatArray]
_Kind = Literal["epsilon", "delta"]


# --- epsilon at a given delta ------------------------------------------------------------------


def classic_epsilon(alpha: Number | float, zeta: Number | float, delta: Number | float) -> Number:
    """Return zeta + log(1/delta) / (alpha - 1), rounded up.

    Conventions of all conversions: ``alpha`` is a finite order above 1, ``zeta`` >= 0 bounds the
    Rényi divergence of that order (infinite where there is no bound; zero means equal laws, and
    then the answer is zero), 0 <= ``delta`` <= 1, and the answer is an upper bound, never negative,
    infinite where nothing follows.  Arrays broadcast; scalars give a ``float``.

    >>> round(classic_epsilon(10.0, 1.0, 1e-5), 6)
    2.279214
    """
    return cast("Number", _elementwise(_classic_epsilon, alpha, zeta, delta, "epsilon"))


def balle_epsilon(alpha: Number | float, zeta: Number | float, delta: Number | float) -> Number:
    """Return zeta + log((alpha-1)/alpha) - (log delta + log alpha) / (alpha-1), rounded up.

    >>> round(balle_epsilon(10.0, 1.0, 1e-5), 6)
    1.918011
    """
    return cast("Number", _elementwise(_balle_epsilon, alpha, zeta, delta, "epsilon"))


def linearized_epsilon(
    alpha: Number | float, zeta: Number | float, delta: Number | float
) -> Number:
    """Return log(1 + (e^{(alpha-1) zeta} - 1) / (alpha delta)) / (alpha-1), rounded up.

    >>> round(linearized_epsilon(10.0, 1.0, 1e-5), 6)
    2.023357
    """
    return cast("Number", _elementwise(_linearized_epsilon, alpha, zeta, delta, "epsilon"))


def optimal_epsilon(alpha: Number | float, zeta: Number | float, delta: Number | float) -> Number:
    """Return the least epsilon that a Rényi bound of one order implies, rounded up.

    Never above the three other conversions, and attained by a pair of two-point distributions.

    >>> round(optimal_epsilon(10.0, 1.0, 1e-5), 6)
    1.917997
    """
    return cast("Number", _elementwise(_optimal_epsilon, alpha, zeta, delta, "epsilon"))


# --- delta at a given epsilon ------------------------------------------------------------------


def classic_delta(alpha: Number | float, zeta: Number | float, epsilon: Number | float) -> Number:
    """Return e^{(alpha-1)(zeta - epsilon)}, rounded up and at most 1.

    >>> round(classic_delta(10.0, 1.0, 2.279214), 9)
    1e-05
    """
    return cast("Number", _elementwise(_classic_delta, alpha, zeta, epsilon, "delta"))


def balle_delta(alpha: Number | float, zeta: Number | float, epsilon: Number | float) -> Number:
    """Return e^{(alpha-1)(zeta - epsilon)} (1 - 1/alpha)^{alpha-1} / alpha, rounded up.

    >>> round(balle_delta(10.0, 1.0, 1.918011), 9)
    1e-05
    """
    return cast("Number", _elementwise(_balle_delta, alpha, zeta, epsilon, "delta"))


def linearized_delta(
    alpha: Number | float, zeta: Number | float, epsilon: Number | float
) -> Number:
    """Return (e^{(alpha-1) zeta} - 1) / (alpha (e^{(alpha-1) epsilon} - 1)), rounded up.

    >>> round(linearized_delta(10.0, 1.0, 2.023357), 9)
    1e-05
    """
    return cast("Number", _elementwise(_linearized_delta, alpha, zeta, epsilon, "delta"))


def optimal_delta(alpha: Number | float, zeta: Number | float, epsilon: Number | float) -> Number:
    """Return the least delta that a Rényi bound of one order implies at ``epsilon``, rounded up.

    >>> round(optimal_delta(10.0, 1.0, 1.917997), 9)
    1e-05
    """
    return cast("Number", _elementwise(_optimal_delta, alpha, zeta, epsilon, "delta"))


# --- zeta at a given epsilon and delta ---------------------------------------------------------


def largest_zeta(
    alpha: float, epsilon: float, delta: float, conversion: Conversion = "optimal"
) -> float:
    """Return the largest zeta that still implies (epsilon, delta), rounded down; 0 if none does.

    How much Rényi divergence of one order a target leaves room for.  With the optimal conversion it
    is eps + log(M) / (alpha - 1), M the least moment of a two-point pair (Asoodeh et al.); a zeta
    above it belongs to a pair that is not (epsilon, delta)-private.

    >>> round(largest_zeta(10.0, 1.917997, 1e-5), 5)
    1.0
    """
    formula = _EPSILONS[_known(conversion)]
    _check_epsilon(np.asarray(epsilon))
    _check_delta(np.asarray(delta))
    if delta == 1.0 or epsilon == np.inf:
        return np.inf

    def implies(zeta: float) -> bool:
        return bool(_elementwise(formula, alpha, zeta, delta, "epsilon") <= epsilon)

    # The two-point pair with all of P on one point has the divergence epsilon - log(1 - delta).
    most = (epsilon - float(np.log1p(-delta))) * (1.0 + 1e-9) + 1e-300
    return largest_where(implies, 0.0, most, rtol=1e-9) if implies(0.0) else 0.0


# --- the best of many orders -------------------------------------------------------------------


def rdp_epsilon(
    alphas: FloatArray, zetas: FloatArray, delta: float, conversion: Conversion = "optimal"
) -> tuple[float, int]:
    """Return the least epsilon over all orders of a Rényi curve, and the index of that order.

    ``zetas[i]`` bounds the divergence of order ``alphas[i]``.  Taking the best order afterwards is
    sound: all bounds hold at once.

    >>> orders = np.array([2.0, 5.0, 10.0, 20.0])
    >>> epsilon, best = rdp_epsilon(orders, orders / 2, 1e-5)
    >>> round(epsilon, 4), float(orders[best])
    (4.7527, 5.0)
    """
    formula = _EPSILONS[_known(conversion)]
    return _least(_elementwise(formula, *_flat_orders(alphas, zetas), delta, "epsilon"))


def rdp_delta(
    alphas: FloatArray, zetas: FloatArray, epsilon: float, conversion: Conversion = "optimal"
) -> tuple[float, int]:
    """Return the least delta over all orders of a Rényi curve, and the index of that order.

    >>> orders = np.array([2.0, 5.0, 10.0, 20.0])
    >>> delta, best = rdp_delta(orders, orders / 2, 4.752728)
    >>> round(delta, 9), float(orders[best])
    (1e-05, 5.0)
    """
    formula = _DELTAS[_known(conversion)]
    return _least(_elementwise(formula, *_flat_orders(alphas, zetas), epsilon, "delta"))


def _least(values: float | FloatArray) -> tuple[float, int]:
    array = np.atleast_1d(values)
    best = int(np.argmin(array))
    return float(array[best]), best


# --- the formulas, on prepared orders ----------------------------------------------------------


def _classic_epsilon(orders: Orders, delta: FloatArray) -> FloatArray:
    return (orders.zeta - np.log(delta) / orders.k) * (1.0 + 8.0 * UNIT_ROUNDOFF)


def _balle_epsilon(orders: Orders, delta: FloatArray) -> FloatArray:
    level, log_alpha = np.log(delta), np.log(orders.alpha)
    size = orders.zeta - orders.shift + (log_alpha - level) / orders.k
    value = orders.zeta + orders.shift - (level + log_alpha) / orders.k
    return value + 8.0 * UNIT_ROUNDOFF * size


def _linearized_epsilon(orders: Orders, delta: FloatArray) -> FloatArray:
    return log_upper_tangent(orders, delta, np.zeros_like(delta))


def _classic_delta(orders: Orders, epsilon: FloatArray) -> FloatArray:
    size = orders.k * (orders.zeta + epsilon)
    return exp_up(orders.k * (orders.zeta - epsilon) + 8.0 * UNIT_ROUNDOFF * size)


def _balle_delta(orders: Orders, epsilon: FloatArray) -> FloatArray:
    shift, log_alpha = orders.k * orders.shift, np.log(orders.alpha)
    size = orders.k * (orders.zeta + epsilon) - shift + log_alpha
    exponent = orders.k * (orders.zeta - epsilon) + shift - log_alpha
    return exp_up(exponent + 8.0 * UNIT_ROUNDOFF * size)


def _linearized_delta(orders: Orders, epsilon: FloatArray) -> FloatArray:
    return exp_up(log_delta_of(orders, epsilon, np.zeros_like(epsilon)))


def _optimal_epsilon(orders: Orders, delta: FloatArray) -> FloatArray:
    closed = (_classic_epsilon, _balle_epsilon, _linearized_epsilon)
    known = np.fmin.reduce([form(orders, delta) for form in closed])
    return least_epsilon(orders, delta, known)


def _optimal_delta(orders: Orders, epsilon: FloatArray) -> FloatArray:
    closed = (_classic_delta, _balle_delta, _linearized_delta)
    known = np.fmin.reduce([form(orders, epsilon) for form in closed])
    return least_delta(orders, epsilon, known)


# --- arguments ---------------------------------------------------------------------------------


def _elementwise(
    formula: _Formula,
    alpha: float | FloatArray,
    zeta: float | FloatArray,
    level: float | FloatArray,
    kind: _Kind,
) -> float | FloatArray:
    """Check, broadcast, settle the limiting cases, and evaluate ``formula`` on the others."""
    arrays = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (alpha, zeta, level)))
    orders, bounds, levels = (x.ravel() for x in arrays)
    _check_orders(orders, bounds)
    _CHECKS[kind](levels)
    values, regular = _limits(bounds, levels, kind)
    if regular.any():
        with np.errstate(all="ignore"):
            answers = formula(prepared(orders[regular], bounds[regular]), levels[regular])
        # fmin: beyond the double range an infinite margin makes no number, and nothing is claimed.
        values[regular] = np.maximum(np.fmin(answers, values[regular]), 0.0)
    return unwrap(values.reshape(arrays[0].shape))


def _limits(zeta: FloatArray, level: FloatArray, kind: _Kind) -> tuple[FloatArray, BoolArray]:
    """Return the values in the limiting cases, and the mask of all other entries."""
    worst = np.inf if kind == "epsilon" else 1.0
    values = np.where(zeta == 0.0, 0.0, worst)
    if kind == "epsilon":
        values[level >= 1.0] = 0.0
        return values, (zeta > 0.0) & (zeta < np.inf) & (level > 0.0) & (level < 1.0)
    values[(level == np.inf) & (zeta < np.inf)] = 0.0
    return values, (zeta > 0.0) & (zeta < np.inf) & (level < np.inf)


def _flat_orders(alphas: FloatArray, zetas: FloatArray) -> tuple[FloatArray, FloatArray]:
    orders, bounds = np.asarray(alphas, dtype=np.float64), np.asarray(zetas, dtype=np.float64)
    if orders.ndim != 1 or orders.shape != bounds.shape or orders.size == 0:
        raise InvalidInput(
            "a Rényi curve needs as many bounds as orders, at least one, in flat arrays; got "
            f"shapes {orders.shape} and {bounds.shape}"
        )
    return orders, bounds


def _span(values: FloatArray) -> str:
    """Return one number, or from where to where several go."""
    least, most = np.min(values), np.max(values)
    return f"{least:g}" if least == most else f"values from {least:g} to {most:g}"


def _check_orders(alpha: FloatArray, zeta: FloatArray) -> None:
    if not np.all((alpha > 1.0) & (alpha < np.inf)):
        raise InvalidInput(f"Rényi orders must be finite and above 1; got {_span(alpha)}")
    if not np.all(zeta >= 0.0):
        raise InvalidInput(
            f"a Rényi divergence is zero or positive; got zeta down to {np.min(zeta):g}"
        )


def _check_delta(delta: FloatArray) -> None:
    if not np.all((delta >= 0.0) & (delta <= 1.0)):
        raise InvalidInput(f"delta is a probability, from 0 to 1; got {_span(delta)}")


def _check_epsilon(epsilon: FloatArray) -> None:
    if not np.all(epsilon >= 0.0):
        raise InvalidInput(f"epsilon must be zero or positive; got {np.min(epsilon):g}")


def _known(conversion: Conversion) -> Conversion:
    if conversion not in CONVERSIONS:
        raise InvalidInput(f"conversion must be one of {CONVERSIONS}; got {conversion!r}")
    return conversion


CONVERSIONS: Final[tuple[Conversion, ...]] = ("classic", "balle", "linearized", "optimal")
_CHECKS: Final = {"epsilon": _check_delta, "delta": _check_epsilon}
_EPSILONS: Final[dict[Conversion, _Formula]] = {
    "classic": _classic_epsilon,
    "balle": _balle_epsilon,
    "linearized": _linearized_epsilon,
    "optimal": _optimal_epsilon,
}
_DELTAS: Final[dict[Conversion, _Formula]] = {
    "classic": _classic_delta,
    "balle": _balle_delta,
    "linearized": _linearized_delta,
    "optimal": _optimal_delta,
}
