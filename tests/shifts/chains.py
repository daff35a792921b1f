"""Chains as tests state them: by epochs, or by one number per step."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dplateau.shifts.chain import LINEAR, Chain, Columns, Modulus, Segment


def cyclic(
    epochs: int,
    batches: int,
    position: int,
    modulus: Modulus,
    sensitivity: float,
    noise_std: float,
    *,
    diameter: float = math.inf,
) -> Chain:
    """Return a chain whose sensitivity acts at one position (from 0) of every epoch only."""
    before, after = position, batches - 1 - position
    epoch = [
        Segment(count, modulus, strength, noise_std)
        for count, strength in ((before, 0.0), (1, sensitivity), (after, 0.0))
        if count
    ]
    return Chain.of(epoch, repeats=epochs, diameter=diameter)


def linear(
    contractions: npt.ArrayLike,
    sensitivities: npt.ArrayLike,
    noise_stds: npt.ArrayLike,
    *,
    diameter: float = math.inf,
    initial_distance: float = 0.0,
) -> Chain:
    """Return a chain of linear steps, one per entry; the three arguments are broadcast."""
    rates, sens, stds = (
        np.ascontiguousarray(array, dtype=np.float64)
        for array in np.broadcast_arrays(np.atleast_1d(contractions), sensitivities, noise_stds)
    )
    ones = np.ones(rates.size, dtype=np.int64)
    kinds = np.full(rates.size, LINEAR, dtype=np.int64)
    columns = Columns(ones, kinds, rates, np.zeros(rates.size), sens, stds)
    chain = Chain(columns=columns, diameter=diameter, initial_distance=initial_distance)
    return chain.with_linear_moduli(rates)  # equal steps joined
