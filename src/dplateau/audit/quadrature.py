"""Gauss-Legendre rules for a Gaussian kernel times an entire function, with a proved error.

On a panel of half-length l the N-point rule errs by at most

    (64/15) l M rho^(-2N) / (1 - rho^-2),    M = max |integrand| on the ellipse of parameter rho:

the integrand's Chebyshev coefficients are below 2 M rho^-k; the rule is exact up to degree 2N - 1
and its weights are positive, so each even term from 2N on costs at most 2 + 2/15, and odd ones cost
nothing. For f(x) times the density of N(u, nu^2), with |f(x + iy)| <= exp(c^2 y^2 / (2 nu^2)),
M <= exp((1 + c^2) b^2 / (2 nu^2)) / (nu sqrt(2 pi)), b = l (rho - 1/rho) / 2 being the ellipse's
height.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray

# Quadrature error allowed over all steps.
_TOLERANCE = 1e-15
_MOST_POINTS_PER_PANEL = 64
_MOST_NODES = 4000


@dataclass(frozen=True)
class Rule:
    """Nodes and weights on the interval, and the quadrature error of one step."""

    nodes: FloatArray
    weights: FloatArray
    error: float


def quadrature_error(points: int, panels: int, half_length: float, contraction: float) -> float:
    """Bound the error of one step; ``half_length`` of a panel is in units of the noise."""
    rho = np.geomspace(1.02, 100.0, 400)
    growth = (1 + contraction**2) * half_length**2 * np.square(rho - 1 / rho) / 8
    logs = growth - 2 * points * np.log(rho) - np.log1p(-(rho**-2.0))
    scale = panels * half_length * (64 / 15) / math.sqrt(2 * math.pi)
    # The smallest value over the trial ellipses is as valid as any other.
    return scale * math.exp(min(float(np.min(logs)), 600.0)) * (1 + 1e-9)


@lru_cache(maxsize=512)
def _panel_plan(width: float, contraction: float, tolerance: float) -> tuple[int, int, float]:
    """Return (panels, points per panel, error) for an interval ``width`` noises wide."""
    panels, points = max(1, math.ceil(width / 18.0)), _MOST_POINTS_PER_PANEL

    def error(panels: int, points: int) -> float:
        return quadrature_error(points, panels, width / (2 * panels), contraction)

    while error(panels, points) > tolerance and panels * points <= _MOST_NODES:
        panels += 1
    while points > 4 and error(panels, points - 1) <= tolerance:
        points -= 1
    return panels, points, error(panels, points)


def make_rule(
    lower: float,
    upper: float,
    noise: float,
    contraction: float,
    steps: int,
    kinks: tuple[float, ...] = (),
) -> Rule:
    """Return a rule whose error, summed over ``steps`` steps of this noise, stays below 1e-15.

    ``kinks``: points at which the integrand is not smooth. Panels end there, so that on each of
    them the estimate above applies to an entire function.
    """
    # A power of two as the tolerance lets neighbouring step counts share a plan.
    tolerance = _TOLERANCE * 2.0 ** -math.ceil(math.log2(steps)) / (1 << len(kinks))
    ends = (lower, *kinks, upper)
    plans = [
        _panel_plan((right - left) / noise, contraction, tolerance)
        for left, right in pairwise(ends)
    ]
    needed = sum(panels * points for panels, points, _ in plans)
    if needed > _MOST_NODES:
        raise NotApplicable(
            f"an interval {(upper - lower) / noise:.0f} noises wide needs {needed} nodes "
            f"(at most {_MOST_NODES}); use more noise or a smaller domain"
        )
    parts = [
        _panel_nodes(left, right, panels, points)
        for (panels, points, _), (left, right) in zip(plans, pairwise(ends), strict=True)
    ]
    nodes, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Rule(nodes, weights, math.fsum(error for _, _, error in plans))


def _panel_nodes(
    lower: float, upper: float, panels: int, points: int
) -> tuple[FloatArray, FloatArray]:
    nodes, weights = gauss_legendre(points)
    half = (upper - lower) / (2 * panels)
    centres = lower + half * (2 * np.arange(panels) + 1)
    return (centres[:, None] + half * nodes).ravel(), np.tile(half * weights, panels)


@lru_cache(maxsize=64)
def gauss_legendre(points: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights on [-1, 1], correctly rounded.

    The usual floating-point routines lose four digits of the outer weights, which a hundred
    thousand steps would turn into a visible error; forty decimal digits cost milliseconds, once.

    >>> gauss_legendre(2)[1].tolist()
    [1.0, 1.0]
    """
    nodes, weights = np.empty(points), np.empty(points)
    with decimal.localcontext() as context:
        context.prec = 40
        for k in range((points + 1) // 2):
            x = decimal.Decimal(math.cos(math.pi * (k + 0.75) / (points + 0.5)))
            for _ in range(8):
                value, slope = _legendre(points, x)
                x -= value / slope
                if abs(value) < decimal.Decimal("1e-36"):
                    break
            _, slope = _legendre(points, x)
            nodes[k], nodes[-1 - k] = -float(x), float(x)
            weights[k] = weights[-1 - k] = float(2 / ((1 - x * x) * slope * slope))
    return nodes, weights


def _legendre(degree: int, x: decimal.Decimal) -> tuple[decimal.Decimal, decimal.Decimal]:
    """Return the Legendre polynomial and its derivative, by the three-term recurrence."""
    before, now = decimal.Decimal(1), x
    for n in range(2, degree + 1):
        before, now = now, ((2 * n - 1) * x * now - (n - 1) * before) / n
    return now, degree * (x * now - before) / (x * x - 1)
