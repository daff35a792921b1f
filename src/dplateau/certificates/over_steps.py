"""epsilon as a function of the number of steps, for every bound in one call, and as a table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplateau.algorithms import Checkpoints, Cyclic, Run, require_run
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS
from dplateau.certificates.certify import certify
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.progress import counting
from dplateau.ground.shown import Shown, counted, rounded_up
from dplateau.ground.types import FloatArray, IntArray


@dataclass(frozen=True)
class BoundOverSteps:
    """One bound's epsilon at each number of steps (infinite where it says nothing)."""

    bound: str
    title: str
    hidden_state: bool
    epsilon: FloatArray


@dataclass(frozen=True, repr=False)
class EpsilonOverSteps(Shown):
    """Every bound that applies, over the same numbers of steps."""

    run: Run
    delta: float
    steps: IntArray
    bounds: tuple[BoundOverSteps, ...]

    @property
    def best(self) -> FloatArray:
        """The smallest epsilon at each number of steps."""
        lowest: FloatArray = np.min([line.epsilon for line in self.bounds], axis=0)
        return lowest

    def __str__(self) -> str:
        """Show how far epsilon grows in one line."""
        first, last = (rounded_up(float(self.best[i])) for i in (0, -1))
        return (
            f"epsilon from {first} after {counted(int(self.steps[0]), 'step')} to {last} after "
            f"{self.steps[-1]}, at delta = {rounded_up(self.delta)}, by "
            f"{counted(len(self.bounds), 'bound')}"
        )

    def epsilon(self, bound: str) -> FloatArray:
        """Return one bound's epsilons."""
        for line in self.bounds:
            if line.bound == bound:
                return line.epsilon
        raise InvalidInput(
            f"{bound!r} does not apply here; there are {[b.bound for b in self.bounds]}"
        )


def epsilon_over_steps(
    run: Run,
    delta: float,
    steps: Sequence[int] | IntArray,
    *,
    bounds: Iterable[Bound] | None = None,
) -> EpsilonOverSteps:
    """Return epsilon at ``delta`` for ``run`` cut or extended to each of ``steps``.

    Parameters
    ----------
    run
        The run that is cut or extended; it may have no schedules.
    delta
        The failure probability of the claim, above 0.
    steps
        Numbers of steps.
    bounds
        The bounds to ask; by default all.

    Returns
    -------
    EpsilonOverSteps
        Every bound that applies, and the best of them.

    Raises
    ------
    InvalidInput
        If the run has no length to vary, or no bound applies.

    Examples
    --------
    >>> from dplateau import NoisyGD
    >>> run = NoisyGD(n=100, steps=1, noise_multiplier=1.0, release="all")
    >>> epsilon_over_steps(run, 1e-5, [1, 4]).best.round(3)
    array([4.377, 9.997])
    """
    level = checks.probability("delta", delta)
    counts = np.asarray(steps)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or counts.size == 0 or counts.min() < 1:
        raise InvalidInput("steps must be a list of whole numbers, each at least 1")
    counts = counts.astype(np.int64)
    if require_run(run).duration.name not in run.parameters():
        raise InvalidInput(f"{run.kind} has no number of steps to vary; its length is its data's")
    if run.has_schedule:
        raise InvalidInput(
            "a run with schedules has one length; epsilon over steps needs constants"
        )
    _, longest = (run.replace(steps=int(count)) for count in (counts.min(), counts.max()))
    sound = [b for b in (BOUNDS if bounds is None else bounds) if b.sound]
    chosen = [bound for bound in sound if bound.refusal(longest) is None]
    lines = []
    with counting("bounds over steps", len(chosen)) as advance:
        for bound in chosen:
            epsilons = bound.claims(bound.epsilon_over_steps_for(run, level, counts))
            lines.append(BoundOverSteps(bound.name, bound.title, bound.hidden_state, epsilons))
            advance(1)
    if not lines:
        raise InvalidInput("no bound applies to this run; compare(run, delta) says why")
    return EpsilonOverSteps(run, level, counts, tuple(lines))


@dataclass(frozen=True)
class EpsilonOverReleases:
    """What a run costs by the number of its iterates that leave, from the last alone to all."""

    run: Run
    delta: float
    releases: IntArray
    epsilon: FloatArray
    all_released: float


def epsilon_over_releases(
    run: Run, delta: float, releases: Sequence[int] | IntArray
) -> EpsilonOverReleases:
    """Return the best epsilon of the run by how many equally spaced iterates of it leave.

    Parameters
    ----------
    run
        The run; what it releases is replaced.
    delta
        The failure probability of the claims, above 0.
    releases
        Numbers of releases, the last iterate included; each is rounded to one that divides the
        run into equal stretches (and a shorter one).

    Returns
    -------
    EpsilonOverReleases
        The numbers as rounded, the claims, and the claim for a run whose every iterate leaves.

    Raises
    ------
    InvalidInput
        If a number is not between 1 and the number of steps.

    Examples
    --------
    >>> from dplateau import LossGeometry, NoisyGD
    >>> run = NoisyGD(n=10, steps=100, learning_rate=0.5, l2=0.1, noise_std=1.0, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5))
    >>> epsilon_over_releases(run, 1e-5, [1, 10, 100]).epsilon.round(3)
    array([2.541, 4.323, 4.377])
    """
    asked = sorted({checks.whole("a number of releases", int(count)) for count in releases})
    if not asked or asked[-1] > require_run(run).steps:
        raise InvalidInput(
            f"numbers of releases lie between 1 and the {run.steps} steps of the run; got {asked}"
        )
    lengths = dict.fromkeys(-(-run.steps // count) for count in asked)
    counts = [-(-run.steps // every) for every in lengths]
    claims = []
    with counting("numbers of releases", len(lengths) + 1) as advance:
        whole = certify(run.replace(release="all"), delta).claimed_epsilon
        for every in lengths:
            advance(1)
            fewer = run.replace(release=Checkpoints(every=every))
            claims.append(certify(fewer, delta).claimed_epsilon)
    return EpsilonOverReleases(run, delta, np.array(counts), np.array(claims), whole)


# ---- at which places, and as rows for a file -----------------------------------------------------


def step_counts(run: Run, first: int, last: int, points: int = 60) -> IntArray:
    """Return up to ``points`` numbers of steps, evenly spread on a logarithmic axis.

    Runs over consecutive batches are looked at after whole epochs, if there is room for one.

    >>> from dplateau import NoisyGD
    >>> step_counts(NoisyGD(n=9, steps=1, noise_std=1.0, release="all"), 1, 1000, 4).tolist()
    [1, 10, 100, 1000]
    """
    _check_range(first, last, points)
    counts = np.unique(np.geomspace(first, last, points).round().astype(np.int64))
    if isinstance(run.batches, Cyclic):
        epoch = run.batches_per_epoch
        whole = np.unique(counts // epoch * epoch)
        whole = whole[whole >= max(first, epoch)]
        return whole if whole.size else counts
    return counts


def record_positions(first: int, last: int, points: int = 60) -> IntArray:
    """Return all positions, or ``points`` of them, densest at the end where losses change most.

    >>> record_positions(1, 1000, 4).tolist()
    [1, 901, 991, 1000]
    """
    _check_range(first, last, points)
    if last - first < points:
        return np.arange(first, last + 1)
    back = np.geomspace(1, last - first + 1, points).round().astype(np.int64)
    return np.unique(last + 1 - back)


def _check_range(first: int, last: int, points: int) -> None:
    if points < 2:
        raise InvalidInput(f"a curve needs at least 2 points; got {points}")
    if not 1 <= first <= last:
        raise InvalidInput(
            f"a curve goes from 1 or more to something no smaller; got from {first} to {last}"
        )


@dataclass(frozen=True, eq=False)
class Column:
    """One bound's values."""

    bound: str
    title: str
    hidden_state: bool
    values: FloatArray


@dataclass(frozen=True, eq=False)
class CurveTable:
    """Every bound, the best of them and the lower bound (nan where none was computed).

    ``axis`` names the first column ("steps" or "position"), ``quantity`` what the others hold.
    ``shuffled`` is the value of every record under one secret random order, ``stopped`` under a
    random stop, where they are known.
    """

    axis: str
    places: IntArray
    quantity: str
    columns: tuple[Column, ...]
    best: FloatArray
    lower: FloatArray
    shuffled: float | None = None
    stopped: float | None = None

    def to_csv(self) -> str:
        """Return comma-separated text with one row per place; what is not known is left empty."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow([self.axis, *(column.bound for column in self.columns), "best", "lower"])
        values = [*(column.values for column in self.columns), self.best, self.lower]
        for index, place in enumerate(self.places.tolist()):
            rows.writerow([place, *(_cell(float(column[index])) for column in values)])
        return text.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data; what is infinite or not known is None."""
        columns: dict[str, Any] = {
            self.axis: self.places.tolist(),
            "bounds": [
                {
                    "bound": column.bound,
                    "title": column.title,
                    "hidden_state": column.hidden_state,
                    self.quantity: _finite(column.values),
                }
                for column in self.columns
            ],
            "best": _finite(self.best),
            "lower": _finite(self.lower),
        }
        alike = {"shuffled": self.shuffled, "stopped": self.stopped}
        return {**columns, **{name: value for name, value in alike.items() if value is not None}}


def _cell(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


def _finite(values: Iterable[float]) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]
