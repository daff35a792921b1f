"""Choose how to bracket the final law of one walk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dplateau.audit.chain import Chain
from dplateau.audit.clamped_walk import ClampedLaw
from dplateau.audit.enclosure import enclose
from dplateau.audit.gaussian_walk import gaussian_law, geometric_sum, linear_sums
from dplateau.audit.inclusion import Bernoulli, Reshuffled
from dplateau.audit.laws import Law, MixtureLaw, PaddedLaw
from dplateau.audit.reshuffled_walk import ReshuffledLaw
from dplateau.audit.ridge_walk import RidgeLaw
from dplateau.audit.rounded_walk import RoundedLaw

# Walls that are met with less than this probability may as well not be there.
_NEVER = 1e-16
# Grid points of a walk that has to be rounded, and of each of several such walks.
_GRID, _GRID_OF_MANY = 1201, 401


def mixed_law(parts: Sequence[tuple[float, Chain]]) -> Law:
    """Return the law of a walk drawn at random; equal walks are solved once."""
    merged: dict[Chain, float] = {}
    for weight, chain in parts:
        merged[chain] = merged.get(chain, 0.0) + weight
    size = _GRID if len(merged) == 1 else _GRID_OF_MANY
    laws = [(weight, final_law(chain, size)) for chain, weight in merged.items()]
    return laws[0][1] if len(laws) == 1 else MixtureLaw(tuple(laws))


def final_law(chain: Chain, size: int = _GRID) -> Law:
    """Return the tightest bracket at hand: exact, by Fourier, by quadrature or by rounding.

    ``size`` is the number of grid points where only rounding is left.
    """
    if chain.noise_kind != "gaussian":
        return RoundedLaw(chain, size)
    if math.isinf(chain.lower) and math.isinf(chain.upper):
        return _enclosed_law(chain) if chain.pulled else _unbounded_law(chain)
    met = wall_probability(chain)
    if met <= _NEVER:
        law = _unbounded_law(chain.unconstrained())
        span = max(law.span[0], chain.lower), min(law.span[1], chain.upper)
        return PaddedLaw(law, met, span)
    if not chain.bounded:
        return RoundedLaw(chain, size)
    return ClampedLaw(chain)


def _unbounded_law(chain: Chain) -> Law:
    match chain.inclusion:
        case Bernoulli():
            return RidgeLaw(chain)
        case Reshuffled():
            return ReshuffledLaw(chain)
        case _:
            return gaussian_law(chain)


def _enclosed_law(chain: Chain) -> Law:
    """Return the law of a walk without walls through one with walls that it hardly ever meets."""
    lower, upper, met = enclose(chain)
    law = ClampedLaw(replace(chain, lower=lower, upper=upper))
    return PaddedLaw(law, met, law.span)


def wall_probability(chain: Chain) -> float:
    """Bound the probability that the walk without walls ever leaves the domain.

    A union bound over the steps. At step t the walk is X_0's part, which moves monotonely between
    X_0 and its last value, plus jumps of one sign (at most those of all steps; for random
    indicators Chernoff's bound), plus Gaussian noise of at most the final variance. Needs constant
    parameters and contraction <= 1; otherwise the trivial bound 1 is returned.
    """
    ratio, jump, drift = chain.contraction, chain.jump, chain.drift
    if chain.pulled or isinstance(chain.inclusion, Reshuffled):
        return 1.0
    if isinstance(ratio, tuple) or isinstance(jump, tuple) or isinstance(drift, tuple):
        return 1.0
    if isinstance(chain.noise_std, tuple) or ratio > 1:
        return 1.0
    sums = linear_sums(chain)
    std = math.sqrt(sums.variance) * (1 + 1e-9)
    ends = (chain.start, sums.gain * chain.start + sums.drift)
    slack = 1e-9 * (std + max(map(abs, ends)))
    up = chain.upper - max(ends) - slack
    down = min(ends) - chain.lower - slack
    towards, away = (up, down) if jump >= 0 else (down, up)
    found = _leave(chain, abs(jump), std, towards) + _leave(chain, 0.0, std, away)
    return min(1.0, found)


def _leave(chain: Chain, jump: float, std: float, room: float) -> float:
    """Bound the probability of ever going ``room`` beyond the undisturbed mean."""
    if math.isinf(room):
        return 0.0
    if room <= 0:
        return 1.0
    ratio = chain.contraction
    assert isinstance(ratio, float)
    slopes = np.geomspace(0.5, 40.0, 24) / std
    moment = slopes * jump * geometric_sum(ratio, 1, chain.steps)
    if jump and isinstance(chain.inclusion, Bernoulli):
        rate = chain.inclusion.rate
        # log(1 + q (e^y - 1)) <= q (e^y - 1) <= q y (e^Y - 1)/Y for 0 <= y <= Y.
        with np.errstate(over="ignore"):
            moment = np.minimum(moment, rate * np.expm1(slopes * jump) * moment / (slopes * jump))
    logs = moment + np.square(slopes * std) / 2 - slopes * room
    return chain.steps * math.exp(min(float(np.min(logs)), 0.0)) * (1 + 1e-9)
