"""How large and how small the numbers of a run may be.

Every claim rests on ratios such as eta L / (b nu), on their squares, and on lengths of which both
are made. If each number lies in the range stated here, all of these are ordinary doubles: none
overflows to infinity, so that noise seems to hide everything, and none falls among the denormal
numbers or to zero, where products lose their digits and a record seems to move nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dplateau.algorithms.batches import Poisson
from dplateau.algorithms.schedule import Schedule
from dplateau.errors import InvalidInput

if TYPE_CHECKING:
    from dplateau.algorithms.base import Run

LARGEST, LARGEST_BATCH = 1e40, 1e20


def require_magnitudes(run: Run) -> None:
    """Refuse numbers whose products with each other double precision cannot hold."""
    for name, value in _numbers(run):
        most = LARGEST_BATCH if name == "batch_size" else LARGEST
        if value != 0 and not 1 / most <= value <= most:
            raise InvalidInput(
                f"{name} = {value:g} leads beyond double precision; "
                f"state a number between {1 / most:g} and {most:g}, in other units if need be"
            )


def _numbers(run: Run) -> Iterator[tuple[str, float]]:
    """Yield every number that others are multiplied with, by name; zeros are exact."""
    if run.inverse_temperature is not None:
        yield "inverse_temperature", run.inverse_temperature
    stated = {"learning_rate": run.learning_rate, run.noise.name: run.noise.value}
    if isinstance(run.batches, Poisson):
        stated["sampling_rate"] = run.batches.rate
    for name, per_step in stated.items():
        if isinstance(per_step, Schedule):
            values = [value for value, _ in per_step.blocks]
            yield from ((name, min(values)), (name, max(values)))
        elif per_step is not None:
            yield name, per_step
    yield from (("l2", run.l2), ("batch_size", run.batch_size))
    if run.domain is not None:
        yield "the domain's diameter", run.domain.diameter
    if run.loss is not None:
        loss = run.loss
        # An infinite constant is one that is not known.
        for name in ("lipschitz", "smoothness"):
            if math.isfinite(value := getattr(loss, name)):
                yield name, value
        yield "strong_convexity", loss.strong_convexity
        yield from (("holder constant", pair.constant) for pair in loss.holders)
        if loss.dissipativity is not None:
            offset, rate = loss.dissipativity
            yield from (("dissipativity offset", offset), ("dissipativity rate", rate))
