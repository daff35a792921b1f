"""The exact law of small projected Langevin chains, to hold against mixing certificates.

One step from x has the mean m = x - eta (grad f(x) + l2 x) and Gaussian noise; projecting onto the
body leaves a density inside and puts the rest on the boundary: two atoms at the ends of an
interval, corners and edges of a rectangle, a density on the circle around a disc. All of these are
closed forms of m. Integrals over the start are Gauss-Legendre sums over panels that end where the
gradient jumps, so they converge faster than any power of the number of nodes; ``defect`` says how
far the masses are from summing to one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import Ball, Box, Run
from dplateau.errors import NotApplicable
from dplateau.ground.types import FloatArray, IntArray

Gradient = Callable[[FloatArray], FloatArray]
_ORDER = 8


@dataclass(frozen=True, eq=False)
class GridChain:
    """A chain on nodes: ``kernel[i, j]`` is the mass that one step from node i brings to node j."""

    nodes: FloatArray
    kernel: FloatArray

    @property
    def defect(self) -> float:
        """Return the largest difference of a law's total mass from one."""
        return float(np.abs(self.kernel.sum(axis=1) - 1).max())

    def stationary(self) -> FloatArray:
        """Return the stationary law: pi kernel = pi, with total mass one."""
        size = len(self.kernel)
        system = self.kernel.T - np.eye(size)
        system[-1] = 1.0
        goal = np.zeros(size)
        goal[-1] = 1.0
        found: FloatArray = np.linalg.solve(system, goal).astype(np.float64)
        return found

    def apart(self, steps: Sequence[int] | IntArray, starts: IntArray) -> tuple[FloatArray, ...]:
        """Return worst total variations after each number of steps (which must rise).

        First between two of the starts, then between one of them and the stationary law.
        """
        limit = self.stationary()
        laws = np.eye(len(self.kernel))[starts]
        between, to_limit = [], []
        done = 0
        for count in steps:
            while done < count:
                laws = laws @ self.kernel
                done += 1
            pairs = [np.abs(laws - law).sum(axis=1).max() for law in laws]
            between.append(max(pairs) / 2)
            to_limit.append(np.abs(laws - limit).sum(axis=1).max() / 2)
        return np.array(between), np.array(to_limit)

    def first_below(self, level: float, starts: IntArray, most: int) -> int:
        """Return the first number of steps after which all starts are within ``level`` of each."""
        laws = np.eye(len(self.kernel))[starts]
        for step in range(1, most + 1):
            laws = laws @ self.kernel
            if max(np.abs(laws - law).sum(axis=1).max() for law in laws) / 2 <= level:
                return step
        return most + 1


def grid_chain(
    run: Run, gradient: Gradient, *, panels: int, corners: Sequence[float] = ()
) -> GridChain:
    """Return the chain of a run with equal steps, on an interval, a rectangle or a disc.

    ``corners`` are the coordinates at which the gradient jumps; ``panels`` intervals of 8 nodes
    cover each axis (a panel should not be much longer than the noise of one step).
    """
    eta, nu = run.learning_rate, run.iterate_std
    if not isinstance(eta, float) or not isinstance(nu, float):
        raise NotApplicable("the exact law is computed for equal steps only")

    def means(points: FloatArray) -> FloatArray:
        return points - eta * (gradient(points) + run.l2 * points)

    if isinstance(run.domain, Box) and run.domain.dimension <= 2:
        lower, upper = np.atleast_1d(run.domain.lower), np.atleast_1d(run.domain.upper)
        ends = list(zip(lower, upper, strict=True))
        axes = [_axis(float(a), float(b), panels, corners) for a, b in ends]
        return _box_chain(axes, means, nu)
    if isinstance(run.domain, Ball) and run.dimension == 2:
        return _disc_chain(run.domain.radius, panels, means, nu)
    raise NotApplicable(
        "exact laws are computed on a Box of one or two dimensions or a Ball with dimension=2"
    )


def extreme_nodes(chain: GridChain, count: int) -> IntArray:
    """Return nodes far out in ``count`` directions, and the one nearest to the middle."""
    size = chain.nodes.shape[1]
    if size == 1:
        spread = np.linspace(0, len(chain.nodes) - 1, max(count, 3)).astype(np.int64)
        return np.unique(spread)
    angles = 2 * np.pi * np.arange(count) / count + np.pi / 4
    ways = np.stack([np.cos(angles), np.sin(angles)])
    middle = chain.nodes - chain.nodes.mean(axis=0)
    far = np.argmax(middle @ ways, axis=0)
    return np.unique(np.append(far, np.argmin(np.sum(middle**2, axis=1))))


def _axis(
    a: float, b: float, panels: int, corners: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights of [a, b]; both ends have weight 0, for they carry atoms."""
    inside = [corner for corner in corners if a < corner < b]
    edges = np.unique(np.concatenate([np.linspace(a, b, panels + 1), inside]))
    x, w = np.polynomial.legendre.leggauss(_ORDER)
    half = np.diff(edges)[:, None] / 2
    nodes = (edges[:-1, None] + half + half * x).ravel()
    weights = (half * w).ravel()
    return np.concatenate([[a], nodes, [b]]), np.concatenate([[0.0], weights, [0.0]])


def _box_chain(axes: list[tuple[FloatArray, FloatArray]], means: Gradient, nu: float) -> GridChain:
    grids = np.meshgrid(*[nodes for nodes, _ in axes], indexing="ij")
    nodes = np.stack([grid.ravel() for grid in grids], axis=1)
    centers = means(nodes)
    parts = [_clamped(centers[:, j], *axis, nu) for j, axis in enumerate(axes)]
    kernel = parts[0]
    for part in parts[1:]:
        kernel = (kernel[:, :, None] * part[:, None, :]).reshape(len(nodes), -1)
    return GridChain(nodes, kernel)


def _clamped(means: FloatArray, nodes: FloatArray, weights: FloatArray, nu: float) -> FloatArray:
    """Return the masses of a clamped Gaussian on one axis, the atoms in closed form."""
    from scipy.special import ndtr

    gaps = (nodes[None, :] - means[:, None]) / nu
    masses = np.exp(-(gaps**2) / 2) / (nu * math.sqrt(2 * math.pi)) * weights
    masses[:, 0] = ndtr(gaps[:, 0])
    masses[:, -1] = ndtr(-gaps[:, -1])
    return masses


def _disc_chain(radius: float, panels: int, means: Gradient, nu: float) -> GridChain:
    """Return the chain on a disc: polar nodes inside, and the circle that takes the rest."""
    from scipy.special import ndtr

    rays = 4 * panels * _ORDER // 2
    angles = 2 * np.pi * np.arange(rays) / rays
    ways = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    radii, weights = (part[1:-1] for part in _axis(0.0, radius, panels, ()))
    inner = (radii[:, None, None] * ways).reshape(-1, 2)
    areas = np.repeat(radii * weights, rays) * (2 * np.pi / rays)
    nodes = np.concatenate([inner, radius * ways])
    centers = means(nodes)
    squares = np.sum((centers[:, None, :] - inner[None, :, :]) ** 2, axis=2)
    inside = np.exp(-squares / (2 * nu**2)) / (2 * np.pi * nu**2) * areas
    # Along a ray at angle t: integral over r >= R of the density times r, in closed form.
    along = centers @ ways.T
    across = np.maximum(np.sum(centers**2, axis=1)[:, None] - along**2, 0.0)
    tail = nu**2 * np.exp(-((radius - along) ** 2) / (2 * nu**2))
    tail += along * nu * math.sqrt(2 * math.pi) * ndtr((along - radius) / nu)
    rim = np.exp(-across / (2 * nu**2)) / (2 * np.pi * nu**2) * tail * (2 * np.pi / rays)
    return GridChain(nodes, np.hstack([inside, rim]))
