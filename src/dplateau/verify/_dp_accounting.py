"""The two packages without types, dp-accounting and mpmath, behind a few typed functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mpmath import MPContext  # type: ignore[import-untyped]

FloatArray = npt.NDArray[np.float64]
# A number of fifty digits; mpmath has no types, so this is only a name.
Precise = Any


def arithmetic(digits: int) -> Any:
    """Return an arithmetic of that many digits, whose setting nobody else shares."""
    context = MPContext()
    context.dps = digits
    return context


@dataclass(frozen=True)
class LossMasses:
    """Privacy losses ``(lowest + i) * interval`` with ``masses[i]``, and the mass at infinity."""

    interval: float
    lowest: int
    masses: FloatArray
    infinity: float


def connected_dots(interval: float, lowest: int, deltas: FloatArray) -> LossMasses:
    """Return the losses on a grid that dominate a curve given by its deltas on that grid.

    This is dp-accounting's pessimistic estimate (Doroshenko et al., 2022): its hockey sticks are
    the given ones at every grid point and nowhere smaller in between.
    """
    from dp_accounting.pld import pld_pmf  # type: ignore[import-untyped]

    falling = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    found = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        interval, lowest, lowest + deltas.size - 1, falling
    ).to_dense_pmf()
    return LossMasses(
        interval,
        int(found._lower_loss),
        np.asarray(found._probs, dtype=float),
        float(found._infinity_mass),
    )


@dataclass(frozen=True)
class SampledNoise:
    """``count`` sampled releases: a distance in units of the noise's deviation or scale."""

    kind: str
    distance: float
    sampling_rate: float
    count: int


def composed_epsilon(parts: Sequence[SampledNoise], delta: float, interval: float) -> float:
    """Return dp-accounting's own epsilon for add/remove neighbours, rounded up on its grid."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    total: Any = None
    for part in parts:
        options: dict[str, Any] = {
            "sensitivity": part.distance,
            "sampling_prob": part.sampling_rate,
            "value_discretization_interval": interval,
        }
        if part.kind == "laplace":
            one = pld.from_laplace_mechanism(1.0, **options)
        else:
            one = pld.from_gaussian_mechanism(1.0, **options)
        several = one.self_compose(part.count) if part.count > 1 else one
        total = several if total is None else total.compose(several)
    return float(total.get_epsilon_for_delta(delta))
