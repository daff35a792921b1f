"""The closed form of Bravo, Flores-Mella and Guzmán, Theorem 4.2, for comparison.

X <- Proj[X - eta grad f(X) + sqrt(2 eta) xi] with f convex and (p, M)-weakly smooth on a body of
diameter D mixes to e within ceil(D^2 / eta) ceil(log2(1 / e)) steps if 1 / eta is at least

    Theta = (M/2)^(2/(1+p)) [ (1-p)/(1+p) max{16 ln(e D (M/2)^(1/(1+p))), 27} ]^((1-p)/(1+p)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import FixedSize, Run
from dplateau.algorithms.stated import loss_of, rate_and_noise
from dplateau.ground import checks
from dplateau.ground.shown import rounded_down
from dplateau.ground.types import FloatArray, IntArray


@dataclass(frozen=True)
class Published:
    """What the theorem says: a number of steps, or the reason why it says nothing.

    ``largest_learning_rate`` is 1 / Theta, up to which the theorem speaks (0: not at all).
    """

    steps: int | None
    largest_learning_rate: float
    reason: str | None = None


def theorem_4_2(run: Run, tv: float) -> Published:
    """Return the published number of steps for a total variation of ``tv``.

    >>> from dplateau import Body, LossGeometry, ProjectedLangevin
    >>> run = ProjectedLangevin(steps=1, learning_rate=0.01, domain=Body(diameter=1.0),
    ...     loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0), release="last")
    >>> theorem_4_2(run, 0.01).steps
    700
    """
    level = checks.probability("tv", tv)
    reason = _why_not(run)
    if reason is not None:
        return Published(None, 0.0, reason)
    eta, nu = rate_and_noise(run)
    # At inverse temperature B the chain is that of B f with the step eta / B = nu^2 / 2.
    heat = 2 * eta / nu**2
    step = eta / heat
    limit = 1 / min(theta(p, heat * m, run.diameter) for p, m in _regularity(run))
    # Rounding must not refuse a learning rate of exactly the limit.
    if step > limit * (1 + 1e-12):
        text = f"needs a learning rate of at most {rounded_down(limit * heat)}; yours is {eta:g}"
        return Published(None, limit * heat, text)
    blocks = math.ceil(math.log2(1 / level) * (1 - 1e-15))
    return Published(math.ceil(run.diameter**2 / step * (1 - 1e-15)) * blocks, limit * heat)


def theorem_4_2_over_steps(run: Run, steps: IntArray) -> FloatArray:
    """Return 2^-k from k * ceil(D^2 / eta) steps on, or nan where the theorem does not apply."""
    first = theorem_4_2(run, 0.5).steps
    if first is None:
        return np.full(steps.shape, np.nan)
    return np.exp2(-np.floor(steps / first))


def theta(p: float, constant: float, diameter: float) -> float:
    """Return Theta: 1 / Theta is the largest step that the theorem allows.

    >>> theta(1.0, 4.0, 1.0)
    2.0
    """
    half = constant / 2
    if p == 1:
        return half
    least = max(16 * math.log(math.e * diameter * half ** (1 / (1 + p))), 27.0)
    share = (1 - p) / (1 + p)
    return float(half ** (2 / (1 + p)) * (share * least) ** share)


def _regularity(run: Run) -> list[tuple[float, float]]:
    """Return the pairs (p, M) that the declared constants give."""
    loss = loss_of(run)
    pairs = []
    if math.isfinite(loss.smoothness):
        pairs.append((1.0, loss.smoothness + run.l2))
    if run.l2 == 0:
        pairs += [(p, constant) for p, constant in loss.holders]
    if math.isfinite(loss.lipschitz) and run.l2 == 0:
        pairs.append((0.0, 2 * loss.lipschitz))
    return pairs


def _why_not(run: Run) -> str | None:
    langevin = run.inverse_temperature is not None
    if not (langevin or isinstance(run.batches, FixedSize)):
        return "is about full gradients and batches of one size"
    if not isinstance(run.learning_rate, float) or not isinstance(run.iterate_std, float):
        return "needs equal steps"
    if run.loss is None or not run.loss.convex:
        return "needs a convex potential"
    if math.isinf(run.diameter):
        return "needs a bounded body"
    if not _regularity(run):
        return "needs smoothness=..., or holder=... or lipschitz=... without a ridge term"
    return None
