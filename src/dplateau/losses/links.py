"""The derivative of a scalar loss as data, so that compiled loops can compute it too.

Two shapes cover the losses of this library. With r = z - y:

* ``logistic``: -y / (1 + exp(y z));
* ``ramp``: scale * r, cut to [low, high]. A classifier's ramp is for y = 1; for y = -1 it is turned
  around (``mirrored``), and since y^2 = 1 its corner y z = 1 is again r = 0.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dplateau.losses.base import Scores


class Link(NamedTuple):
    """Shape and numbers of a derivative; ``low`` and ``high`` are its limits (for y = 1)."""

    shape: Literal["logistic", "ramp"]
    low: float
    high: float
    scale: float = 1.0
    mirrored: bool = False
    target_bound: float = math.inf


LOGISTIC = Link("logistic", -1.0, 0.0, mirrored=True)


def slopes(link: Link, scores: Scores, targets: npt.NDArray[Any]) -> Scores:
    """Return the derivative at every score."""
    if link.shape == "logistic":
        found: Scores = -targets * expit(-targets * scores)
        return found
    residual = scores - np.clip(targets, -link.target_bound, link.target_bound)
    return cut(link.scale * residual, targets, link.low, link.high, link.mirrored)


def cut(
    values: Scores, targets: npt.NDArray[Any], low: float, high: float, mirrored: bool
) -> Scores:
    """Cut values to [low, high], or to [-high, -low] where the target is negative and mirrored."""
    inside = np.clip(values, low, high)
    if not mirrored:
        return inside
    return np.where(targets > 0, inside, np.clip(values, -high, -low))
