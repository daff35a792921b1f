"""Claims in the words of dp-accounting: a privacy loss distribution, or an event for accountants.

A curve that is made of dominating pairs gives each of them on its own: the pair is moved onto
dp-accounting's grid of losses by connect the dots, which only raises its hockey stick, and
dp-accounting composes. Any other curve gives the pair of its table of delta(epsilon). What
dp-accounting then does is its own arithmetic, whose rounding it does not charge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.algorithms import Run
from dplateau.curves import (
    DominatingPair,
    LaplacePair,
    MixturePair,
    PoissonPair,
    PrivacyCurve,
    tabulate,
)
from dplateau.curves.privacy_loss import discretize
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

# What one use of a pair leaves beyond the grid becomes an infinite loss; far below any delta.
_TAIL = 1e-24
# Cells of one pair's grid: dp-accounting keeps and transforms all of them.
_MOST_CELLS = 1 << 24
_DOWN = 1 - 1e-15


def to_pld(curve: PrivacyCurve, delta: float, interval: float) -> PrivacyLossDistribution:
    """Return a loss distribution that dominates the curve, on multiples of ``interval``.

    ``delta`` says where a curve without pairs of its own is read finely.
    """
    from dp_accounting.pld import common, privacy_loss_distribution

    step = checks.positive("value_discretization_interval", interval)
    parts = curve.loss_parts()
    lost = 0.0 if parts is None else curve.extra_delta
    if parts is None:
        parts = ((tabulate(curve, delta), 1),)
    plds = [_of_pair(pair, step).self_compose(n) for pair, n in parts if n and not pair.trivial]
    if lost:
        outright = common.DifferentialPrivacyParameters(0.0, lost)
        plds.append(privacy_loss_distribution.from_privacy_parameters(outright, step))
    if not plds:
        return privacy_loss_distribution.identity(step)
    return reduce(lambda one, other: one.compose(other), plds)


def _of_pair(pair: DominatingPair, step: float) -> PrivacyLossDistribution:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    low, high = pair.loss_range(_TAIL, "remove")
    if (high - low) / step > _MOST_CELLS:
        raise InvalidInput(
            f"losses between {low:.3g} and {high:.3g} are too many multiples of {step:g}; "
            f"choose value_discretization_interval={(high - low) / 1e6:.1g}"
        )
    remove = _masses(pair, "remove", step)
    return PrivacyLossDistribution(remove, None if pair.symmetric else _masses(pair, "add", step))


def _masses(pair: DominatingPair, order: Any, step: float) -> PLDPmf:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    law = discretize(pair, order, step, _TAIL)
    # Atoms stand a rounding to the right of the grid: connect the dots moves them onto it.
    up = -math.expm1(-law.shift) / -math.expm1(-step) * (1 + 1e-14)
    masses = np.append(law.masses * (1 - up), 0.0) + np.append(0.0, law.masses * up)
    return DensePLDPmf(step, law.lowest, masses * (1 + 1e-15), law.infinity_mass, True)


def to_dp_event(curve: PrivacyCurve, run: Run) -> DpEvent:
    """Return an event whose accountants see the pairs of the curve; refuse if there is none."""
    from dp_accounting import ComposedDpEvent, NoOpDpEvent, SelfComposedDpEvent

    if run.neighbors != "add_remove":
        raise _no_event(
            "the accountants of dp-accounting read one event differently when a record is replaced"
        )
    if run.group_size != 1:
        raise _no_event(f"events are about one record; this claim is about {run.group_size}")
    parts = curve.loss_parts()
    if parts is None:
        raise _no_event(f"the proof gives a {type(curve).__name__}, which is no composition")
    if curve.extra_delta:
        raise _no_event(f"the proof gives up a delta of {curve.extra_delta:.3g} outright")
    events = [
        _event(pair) if n == 1 else SelfComposedDpEvent(_event(pair), n)
        for pair, n in parts
        if n and not pair.trivial
    ]
    if not events:
        return NoOpDpEvent()
    return events[0] if len(events) == 1 else ComposedDpEvent(events)


def _event(pair: DominatingPair) -> DpEvent:
    from dp_accounting import GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent

    match pair:
        case PoissonPair(sampling_rate=1.0, step=step, shift=shift):
            return GaussianDpEvent(_DOWN / (step + shift))
        case PoissonPair(sampling_rate=rate, step=step, shift=0.0):
            return PoissonSampledDpEvent(rate, GaussianDpEvent(_DOWN / step))
        case PoissonPair(sampling_rate=rate, step=step, shift=shift):
            return _mixture((shift, shift + step), (1 - rate, rate))
        case MixturePair(up=up, down=down) if down.points == (0.0,):
            return _mixture(up.points, up.masses)
        case LaplacePair(ratio=ratio, sampling_rate=1.0):
            return LaplaceDpEvent(_DOWN / ratio)
        case LaplacePair(ratio=ratio, sampling_rate=rate):
            return PoissonSampledDpEvent(rate, LaplaceDpEvent(_DOWN / ratio))
        case _:
            raise _no_event(f"dp-accounting has no event for a {type(pair).__name__}")


def _mixture(moves: Iterable[float], chances: Iterable[float]) -> DpEvent:
    from dp_accounting.dp_event import MixtureOfGaussiansDpEvent

    # Plain numbers, which compare and print; a slightly smaller deviation rounds the moves up.
    return MixtureOfGaussiansDpEvent(_DOWN, [*map(float, moves)], [*map(float, chances)])


def _no_event(reason: str) -> NotApplicable:
    return NotApplicable(f"no event of dp-accounting says this: {reason}; to_pld() always does")
