"""Lower bounds on the epsilon of released Poisson-sampled Gaussian noise, to say who is right.

Independent of the library and of every accountant that is measured. Nothing here is an estimate:

- The outputs of a step are put into cells, which only makes neighbors harder to tell apart. The
  loss of a cell, log P(cell) / Q(cell), lies within ``short`` above a multiple of the grid's width.
- Losses are added up by a Fourier transform of the *tilted* law, p_g exp(theta g h) / M: rounding
  is then small beside delta itself, however small delta is.
- What wraps around is bounded by Chernoff's inequality, and taken off together with an allowance
  for rounding.

A single step has a closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import fft, optimize, special

# Log of the mass that may lie outside the window of the transform, and the window's most cells.
OUTSIDE, MOST_CELLS = math.log(1e-13), 1 << 22


@dataclass(frozen=True)
class Cells:
    """One step: the cells' losses are at least ``places * width - short``."""

    width: float
    places: Any
    mass: Any
    short: float

    def log_moment(self, theta: float) -> float:
        """Return log E_P exp(theta * loss), losses being those of the grid."""
        return float(special.logsumexp(theta * self.width * self.places, b=self.mass))


def cells_of(q: float, sigma: float, width: float) -> Cells:
    """Return the law of a step's loss when the record is there, in cells of about this width."""
    mean = 1 / sigma

    def loss(x: Any) -> Any:
        return np.logaddexp(np.log1p(-q) if q < 1 else -np.inf, np.log(q) + mean * x - mean**2 / 2)

    def output(at: Any) -> Any:
        share = np.expm1(at) + q
        with np.errstate(divide="ignore", invalid="ignore"):
            found = (np.log(share / q) + mean**2 / 2) / mean
        return np.where(share > 0, found, -np.inf)

    first, last = (math.floor(float(loss(x)) / width) for x in (-12.0, mean + 12.0))
    places = np.arange(first, last + 1)
    edges = output((np.arange(first, last + 2) - 0.5) * width)
    without, shifted = _mass(edges), _mass(edges - mean)
    mass = (1 - q) * without + q * shifted
    kept = (mass > 1e-290) & (without > 1e-290)
    places, mass, without = places[kept], mass[kept], without[kept]
    short = places * width - np.log(mass / without) + 1e-10
    # Few cells are far below their place: those go down by one, and the rest sets the allowance.
    cuts = width * np.array([1e-5, 1e-4, 1e-3, 1e-2, 0.05, 0.2, 0.6])
    cut = min(cuts, key=lambda one: one + width * mass[short > one].sum())
    return Cells(width, places - (short > cut), mass, float(cut))


def _mass(edges: Any) -> Any:
    """Return the standard normal mass between edges, taken from the nearer side."""
    low, high = edges[:-1], edges[1:]
    right = low > 0
    return np.where(
        right, special.ndtr(-low) - special.ndtr(-high), special.ndtr(high) - special.ndtr(low)
    )


def lower_epsilon(q: float, sigma: float, steps: int, delta: float) -> float:
    """Return an epsilon that no correct upper bound is below."""
    if steps == 1:
        return one_step(q, sigma, delta)
    rough = cells_of(q, sigma, 1e-3)
    theta = _tilt(rough, steps, delta)
    orders = _orders(rough, theta, steps)
    low, high = _window(rough, theta, steps, orders)
    # Each step rounds by less than a cell: long runs need narrow ones.
    cells = cells_of(q, sigma, max((high - low) * 1.1 / MOST_CELLS, min(1e-4, 1e-2 / steps)))
    low, high = _window(cells, theta, steps, orders)
    h, log_m = cells.width, cells.log_moment(theta)
    tilted = cells.mass * np.exp(theta * h * cells.places - log_m)
    middle = round(float(tilted @ cells.places))
    size = fft.next_fast_len(math.ceil((high - low) / h) + 3, real=True)
    folded = np.bincount((cells.places - middle) % size, weights=tilted, minlength=size)
    summed = fft.irfft(fft.rfft(folded) ** steps, size)
    # The window's cells in order, and the least that their losses can be.
    index = np.arange(math.floor(low / h), math.floor(low / h) + size)
    law = summed[(index - steps * middle) % size]
    losses = index * h - steps * cells.short
    wrong = 2 * math.exp(OUTSIDE) + 1e-13 + 1e-14 * steps

    def holds(epsilon: float) -> bool:
        """Return whether the run's delta at epsilon is proved to be above the one asked for."""
        first, end = np.searchsorted(losses, (epsilon, epsilon + 60 / theta), side="right")
        y = losses[first:end] - epsilon
        total = float(np.sum(law[first:end] * np.exp(-theta * y) * -np.expm1(-y))) - wrong
        if total <= 0:
            return False
        # Tilting counted losses by the grid, which lies ``steps * short`` above ``losses``.
        log_delta = math.log(total) + steps * (log_m - theta * cells.short) - theta * epsilon
        return log_delta > math.log(delta)

    typical = float(law @ losses)
    spread = math.sqrt(max(float(law @ (losses - typical) ** 2), 0.0))
    starts = (typical + spread * k / 20 for k in range(20, -200, -1))
    least = next((start for start in starts if start > 0 and holds(start)), 0.0)
    if not least:
        return 0.0
    most = least + spread / 20
    for _ in range(40):
        half = (least + most) / 2
        least, most = (half, most) if holds(half) else (least, half)
    return least


def _tilt(cells: Cells, steps: int, delta: float) -> float:
    """Return the order at which Renyi's bound is least: tilted by it, epsilon is typical."""

    def bound(log_order: float) -> float:
        order = math.exp(log_order)
        return (steps * cells.log_moment(order) - math.log(delta)) / order

    return math.exp(optimize.minimize_scalar(bound, bounds=(-5, 8), method="bounded").x)


def _orders(cells: Cells, theta: float, steps: int) -> list[float]:
    """Return the orders at which Chernoff's bounds on the two sides are nearly least."""
    tried = np.geomspace(1e-3, 1e4, 100)
    lows = [_window(cells, theta, steps, [-order, order]) for order in tried]
    below = max(range(len(tried)), key=lambda i: lows[i][0])
    above = min(range(len(tried)), key=lambda i: lows[i][1])
    return [-tried[below], tried[above]]


def _window(cells: Cells, theta: float, steps: int, orders: list[float]) -> tuple[float, float]:
    """Return losses beyond which at most exp(OUTSIDE) of the tilted sum lies, on either side."""
    base = cells.log_moment(theta)
    below, above = (
        (steps * (cells.log_moment(theta + order) - base) - OUTSIDE) / order for order in orders
    )
    return below, above


def one_step(q: float, sigma: float, delta: float) -> float:
    """Return epsilon of one sampled Gaussian, from its hockey stick in closed form.

    The mixture exceeds e^eps times the other law right of x = sigma log((e^eps - 1 + q) / q) +
    1 / (2 sigma), in units of sigma. For a large eps the logarithm is eps - log q.
    """

    def excess(epsilon: float) -> float:
        log_odds = epsilon + math.log1p((q - 1) * math.exp(-epsilon)) - math.log(q)
        x = sigma * log_odds + 1 / (2 * sigma)
        joined = math.exp(math.log(q) + special.log_ndtr(1 / sigma - x))
        other = math.exp(min(epsilon + special.log_ndtr(-x), 700.0))
        return joined + (1 - q) * float(special.ndtr(-x)) - other - delta

    if excess(1e-9) <= 0:
        return 0.0
    return float(optimize.brentq(excess, 1e-9, 1e6)) * (1 - 1e-9)
