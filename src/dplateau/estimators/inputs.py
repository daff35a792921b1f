"""Targets as the losses take them: class numbers, or residual scales, from public declarations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray
from dplateau.losses import Loss


@dataclass(frozen=True, eq=False)
class Task:
    """What is learnt: a loss (by name or itself) and a target for every record.

    ``absent`` is a target that the loss accepts, for rows of zeros.
    """

    loss: str | Loss
    n_classes: int
    targets: npt.NDArray[Any]
    absent: float

    def padded(self, slots: int) -> npt.NDArray[Any]:
        """Return the targets with those of absent records appended."""
        missing = np.full(slots - len(self.targets), self.absent, dtype=self.targets.dtype)
        return np.concatenate([self.targets, missing])


@dataclass(frozen=True)
class TargetRange:
    """Public limits of a regression's targets, which are mapped from centre +- half to [-1, 1]."""

    centre: float
    half: float

    @classmethod
    def of(cls, target_bound: Any, *, centred: bool) -> TargetRange:
        """Return the range of a number B, [-B, B], or of a pair (low, high).

        Without an intercept a model cannot learn an offset, and the range stays centred at 0.
        """
        if np.ndim(target_bound) == 0:
            return cls(0.0, checks.positive("target_bound", target_bound))
        try:
            low, high = (checks.real("target_bound", side) for side in target_bound)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"target_bound must be a number or a pair (low, high); got {target_bound!r}"
            ) from None
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise InvalidInput(
                f"target_bound must be a finite pair with low < high; got ({low:g}, {high:g})"
            )
        if centred:
            return cls((low + high) / 2, (high - low) / 2)
        return cls(0.0, max(abs(low), abs(high)))

    def mapped(self, targets: npt.NDArray[Any]) -> FloatArray:
        """Return every target in units of the range, cut to [-1, 1] on its own."""
        shares = (np.asarray(targets, dtype=np.float64) - self.centre) / self.half
        return np.clip(shares, -1.0, 1.0)


def known_classes(classes: Any) -> npt.NDArray[Any]:
    """Return declared classes in order, refusing fewer than two."""
    found = np.unique(np.asarray(classes))
    if found.ndim != 1 or len(found) < 2:
        raise InvalidInput(f"classes must name at least two classes; got {classes!r}")
    return found


def seen_classes(targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the classes that occur, refusing data with one class only."""
    found = np.unique(targets)
    if len(found) < 2:
        raise InvalidInput(
            "y holds one class; a classifier needs two: declare them with classes=[...]"
        )
    return found


def class_numbers(targets: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the place of every target among the classes."""
    places = {label: place for place, label in enumerate(classes.tolist())}
    numbers = np.array([places.get(label, -1) for label in targets.tolist()], dtype=np.int64)
    if np.any(numbers < 0):
        # The label itself stays unsaid: it is data.
        raise InvalidInput(f"y has a label that is not among classes={classes.tolist()}")
    return numbers
