"""How exposed each record is, where the order of the records is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dplateau.algorithms import (
    Cyclic,
    CyclicSGD,
    FixedSize,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    Run,
    refuse_batches,
    require_run,
)
from dplateau.bounds.base import Bound, KnowsRecords
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.certificates.over_steps import Column
from dplateau.curves import PrivacyCurve
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.progress import counting
from dplateau.ground.shown import Shown, rounded_up
from dplateau.ground.types import FloatArray, IntArray


@dataclass(frozen=True, repr=False)
class RecordEpsilons(Shown):
    """``epsilons[k]`` holds for the records in batch ``positions[k]`` (from 0) of each epoch.

    ``bounds[k]`` names the bound that gives it: no bound is the best at every position.
    """

    run: Run
    delta: float
    bounds: tuple[str, ...]
    positions: IntArray
    epsilons: FloatArray

    def __str__(self) -> str:
        """Show the range of the epsilons in one line."""
        least, most = float(self.epsilons.min()), float(self.epsilons.max())
        return (
            f"epsilon from {rounded_up(least)} to {rounded_up(most)} at delta = "
            f"{rounded_up(self.delta)}, over {self.positions.size} positions of a record"
        )


def per_record(run: Run, delta: float, *, most_positions: int = 200) -> RecordEpsilons:
    """Return each position's own epsilon: early records are hidden by more later noise.

    Parameters
    ----------
    run
        A run over batches in order, whose records can be told apart.
    delta
        The failure probability of the claim, in [0, 1); 0 asks for pure epsilon.
    most_positions
        Long epochs are sampled at so many positions, denser towards the end.

    Returns
    -------
    RecordEpsilons
        Positions and their epsilons.

    Raises
    ------
    NotApplicable
        If no bound tells the records of such a run apart.

    Examples
    --------
    >>> from dplateau import LossGeometry, OnePassSGD
    >>> loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)
    >>> run = OnePassSGD(n=40, learning_rate=0.5, noise_std=2.0, loss=loss, release="last")
    >>> records = per_record(run, delta=1e-5)
    >>> bool(records.epsilons[0] < records.epsilons[-1])
    True
    """
    level = checks.probability("delta", delta)
    _check_positions(require_run(run))
    reasons = {bound: bound.refusal(run) for bound in BOUNDS if isinstance(bound, KnowsRecords)}
    sound = {bound.name for bound, why in reasons.items() if bound.sound and why is None}
    if not sound:
        # Bounds about this algorithm say what is missing; the others are about another one.
        near = {
            str(why): bound.title for bound, why in reasons.items() if "is about" not in str(why)
        }
        said = "; ".join(f"{title} {why}" for why, title in near.items())
        raise NotApplicable(f"no bound tells the records apart: {said or 'none covers this run'}")
    useful = [b for b in reasons if b.name in sound and sound.isdisjoint(b.dominated_by)]
    length = run.batches_per_epoch
    positions = np.arange(length)
    if length > most_positions:
        ages = np.unique(np.geomspace(1, length, most_positions).round()).astype(np.int64)
        positions = np.sort(length - ages)
    table = np.empty((len(useful), positions.size))
    with counting("records", table.size) as advance:
        for row, bound in enumerate(useful):
            for column, position in enumerate(positions.tolist()):
                table[row, column] = bound.record_curve(run, position).epsilon(level)
                advance(1)
    names = tuple(useful[int(row)].name for row in table.argmin(axis=0))
    return RecordEpsilons(run, level, names, positions, table.min(axis=0))


def _check_positions(run: Run) -> None:
    """Refuse a run whose records have no positions of their own."""
    if run.group_size > 1:
        raise NotApplicable(
            f"per_record is about one record at a time; yours has group_size={run.group_size}"
        )
    match run.batches:
        case OnePass() | Cyclic(order="cyclic"):
            return
        case Cyclic(order=order):
            raise NotApplicable(
                f"with order={order!r} positions are random, so every record has the run's own "
                "epsilon: use certify; per_record is for order='cyclic'"
            )
        case FullBatch() | Poisson() | FixedSize():
            raise NotApplicable(
                f"records of {run.kind} are all alike; per_record is for CyclicSGD and OnePassSGD"
            )
        case _ as unknown:
            refuse_batches(unknown)


@dataclass(frozen=True, eq=False)
class LossPerRecord:
    """Every bound over the positions of a record's batch, counted from 1.

    A bound that cannot tell records apart is constant.
    ``quantity`` is what the values are, "epsilon" at delta ``at`` or "delta" at epsilon ``at``.
    ``shuffled`` is the value for every record if the order is drawn at random and kept secret,
    ``stopped`` if one pass releases the iterate of a uniformly random step instead of the last.
    """

    run: Run
    quantity: Literal["epsilon", "delta"]
    at: float
    positions: IntArray
    bounds: tuple[Column, ...]
    shuffled: float | None
    stopped: float | None = None

    @property
    def best(self) -> FloatArray:
        """The smallest value at each position."""
        lowest: FloatArray = np.min([line.values for line in self.bounds], axis=0)
        return lowest


def loss_per_record(
    run: Run,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    positions: Sequence[int] | IntArray | None = None,
) -> LossPerRecord:
    """Return epsilon at ``delta``, or delta at ``epsilon``, for records at each position.

    >>> from dplateau import LossGeometry, OnePassSGD
    >>> run = OnePassSGD(n=3, learning_rate=0.5, noise_std=1.0, release="last",
    ...                  loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0))
    >>> loss_per_record(run, delta=1e-5).best.round(2)
    array([2.34, 2.94, 4.38])
    """
    if (delta is None) == (epsilon is None):
        raise InvalidInput("state delta=... (to get epsilons) or epsilon=... (to get deltas)")
    if not isinstance(run.batches, Cyclic | OnePass):
        raise InvalidInput(
            f"the records of {run.kind} have no positions; use OnePassSGD or CyclicSGD"
        )
    if run.group_size > 1:
        raise InvalidInput(
            f"positions are those of single records; yours has group_size={run.group_size}"
        )
    asked = _Asked.of(delta, epsilon)
    ordered = run.replace(order="cyclic") if isinstance(run.batches, Cyclic) else run
    places = _checked_positions(ordered, positions)
    chosen = [bound for bound in BOUNDS if bound.sound and bound.refusal(ordered) is None]
    if not chosen:
        raise InvalidInput("no bound applies to this run; compare(run, delta) says why")
    lines = []
    with counting("bounds over records", len(chosen)) as advance:
        for bound in chosen:
            lines.append(_line(bound, ordered, asked, places))
            advance(1)
    return LossPerRecord(
        run=run,
        quantity=asked.quantity,
        at=asked.at,
        positions=places,
        bounds=tuple(lines),
        shuffled=_shuffled(ordered, asked),
        stopped=_stopped(ordered, asked),
    )


@dataclass(frozen=True)
class _Asked:
    """What to read off a privacy curve."""

    quantity: Literal["epsilon", "delta"]
    at: float

    @classmethod
    def of(cls, delta: float | None, epsilon: float | None) -> _Asked:
        if delta is not None:
            return cls("epsilon", checks.probability("delta", delta))
        return cls("delta", checks.nonnegative("epsilon", epsilon))

    def read(self, curve: PrivacyCurve) -> float:
        return curve.epsilon(self.at) if self.quantity == "epsilon" else curve.delta(self.at)

    @property
    def planning_delta(self) -> float:
        return self.at if self.quantity == "epsilon" else 1e-6


def _line(bound: Bound, run: Run, asked: _Asked, places: IntArray) -> Column:
    title = bound.title
    if isinstance(bound, KnowsRecords):
        title = f"{title.partition(',')[0]}, each record"
        curves = (bound.record_curve(run, place - 1) for place in places.tolist())
        values = np.array([asked.read(curve) for curve in curves])
    else:
        values = np.full(places.shape, _whole_run(bound, run, asked))
    return Column(bound.name, title, bound.hidden_state, values)


def _whole_run(bound: Bound, run: Run, asked: _Asked) -> float:
    """Return the value that holds for every record."""
    return asked.read(bound.curve(run, bound.plan(run, asked.planning_delta)))


def _shuffled(run: Run, asked: _Asked) -> float | None:
    """Return the value under one secret random order, or None if no bound covers it."""
    if run.stops_at_random:
        return None
    stated = {name: value for name, value in run.parameters().items() if value is not None}
    if isinstance(run.batches, OnePass):
        stated["epochs"] = 1
    shuffled = CyclicSGD(**{**stated, "order": "shuffle_once"})
    return _best_of(("shuffle_once_average", "shuffled_pass"), shuffled, asked)


def _stopped(run: Run, asked: _Asked) -> float | None:
    """Return the value of one pass with a random stop, or None if no bound covers it."""
    if not (isinstance(run.batches, OnePass) and isinstance(run.release, LastIterate)):
        return None
    return _best_of(("random_stop_mean",), run.replace(release="random_stop"), asked)


def _best_of(names: Sequence[str], run: Run, asked: _Asked) -> float | None:
    useful = [bound for bound in map(bound_named, names) if bound.refusal(run) is None]
    return min((_whole_run(bound, run, asked) for bound in useful), default=None)


def _checked_positions(run: Run, positions: Sequence[int] | IntArray | None) -> IntArray:
    most = min(run.steps, run.batches_per_epoch)
    if positions is None:
        return np.arange(1, most + 1)
    places = np.unique(np.asarray(positions, dtype=np.int64))
    if places.size == 0 or places[0] < 1 or places[-1] > most:
        raise InvalidInput(f"positions are whole numbers from 1 to {most}; got {positions!r}")
    return places
