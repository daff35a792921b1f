"""Forward distances: how far apart the two runs may drift when no shift is absorbed.

u_0 is the initial distance and u_{t+1} = min(D, phi_t(u_t) + s_t), rounded up.
"""

from __future__ import annotations

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.shifts.chain import Chain
from dplateau.shifts.kernels import grown_often, walk_free


def forward_distance(chain: Chain, step: int) -> float:
    """Return the forward distance before a step (``chain.steps`` means after the last one)."""
    if not 0 <= step <= chain.steps:
        raise InvalidInput(f"A step must lie in 0..{chain.steps}; got {step!r}.")
    if step == 0:
        return chain.initial_distance
    equal = chain.uniform_linear_step()
    if equal is not None:
        return linear_forward(*equal[:2], step, chain.diameter, chain.initial_distance)
    nothing = np.empty(0)
    return walk_free(chain.columns, step, chain.initial_distance, chain.diameter, nothing)


def forward_distances(chain: Chain) -> FloatArray:
    """Return the forward distances before steps 0, 1, ..., and after the last one."""
    out = np.empty(chain.steps + 1)
    walk_free(chain.columns, chain.steps, chain.initial_distance, chain.diameter, out)
    return out


def linear_forward(c: float, s: float, steps: int, diameter: float, start: float) -> float:
    """Return the forward distance after equal linear steps, in closed form."""
    if c == 0:
        return min(diameter, s)
    try:
        return min(diameter, grown_often.function(c, s, start, steps))
    except OverflowError:
        return diameter
