"""Shift plans, and their exact evaluation: the only source of the numbers that solvers report.

A plan says when the interpolating run starts and how much distance each later step absorbs. The
recursion is u_{t+1} = min(D, max(0, phi_t(u_t) + s_t - a_{t+1})) from there; what is left at the
end, before the last projection, is absorbed by the last shift and charged, so every plan proves a
bound, however it was found. Without shifts the same recursion gives the *forward distance* of the
two runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import BoolArray, FloatArray, IntArray
from dplateau.shifts.chain import Chain
from dplateau.shifts.kernels import grown_often, walk_free, walk_plan

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class ShiftBlock:
    """The shifts ``first_shift * ratio**j`` for j = 0 .. count-1.

    Optimal shifts of a stretch of equal linear steps are geometric with ratio 1/c, so one block
    states any number of them exactly.
    """

    count: int
    first_shift: float
    ratio: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShiftPlan:
    """Start at ``start_step`` with two runs ``start_distance`` apart; then absorb block by block.

    The blocks are held as three arrays, since a schedule may need one block per step; ``of`` makes
    a plan from blocks and ``from_shifts`` from single shifts.
    """

    start_step: int
    start_distance: float
    counts: IntArray
    first_shifts: FloatArray
    ratios: FloatArray

    def __post_init__(self) -> None:
        if self.start_step < 0 or self.start_step != int(self.start_step):
            raise InvalidInput(f"A plan starts at a whole step >= 0; got {self.start_step!r}.")
        if not (self.start_distance >= 0 and math.isfinite(self.start_distance)):
            raise InvalidInput(
                f"A plan needs a finite start distance >= 0; got {self.start_distance!r}."
            )
        _check_blocks(self.counts, self.first_shifts, self.ratios)

    @classmethod
    def of(cls, start_step: int, start_distance: float, blocks: Iterable[ShiftBlock]) -> ShiftPlan:
        """Return the plan made of these blocks."""
        listed = list(blocks)
        return cls(
            start_step=start_step,
            start_distance=start_distance,
            counts=np.array([block.count for block in listed], dtype=np.int64),
            first_shifts=np.array([block.first_shift for block in listed], dtype=np.float64),
            ratios=np.array([block.ratio for block in listed], dtype=np.float64),
        )

    @classmethod
    def from_shifts(cls, start_step: int, start_distance: float, shifts: FloatArray) -> ShiftPlan:
        """Return the plan that absorbs the given shifts, one per step; equal neighbors join."""
        shifts = np.asarray(shifts, dtype=np.float64)
        starts = np.flatnonzero(np.r_[True, shifts[1:] != shifts[:-1]])
        counts = np.diff(np.r_[starts, shifts.size])
        return cls(
            start_step=start_step,
            start_distance=start_distance,
            counts=counts.astype(np.int64),
            first_shifts=shifts[starts],
            ratios=np.ones(starts.size),
        )

    @property
    def steps(self) -> int:
        """Number of steps that the blocks cover."""
        return int(self.counts.sum())

    @property
    def blocks(self) -> tuple[ShiftBlock, ...]:
        """The blocks as objects, made on demand."""
        return tuple(ShiftBlock(*row) for row in self._rows())

    def shifts(self) -> FloatArray:
        """Return all shifts as one array."""
        return np.concatenate(list(self.chunks()))

    def chunks(self, size: int = CHUNK) -> Iterator[FloatArray]:
        """Yield the shifts in order, in arrays of at most ``size`` entries, never all at once."""
        if self.counts.size == self.steps:  # one step per block: nothing to expand
            yield from (self.first_shifts[i : i + size] for i in range(0, self.steps, size))
            return
        for count, first, ratio in self._rows():
            for begin in range(0, count, size):
                powers = np.arange(begin, min(begin + size, count), dtype=np.float64)
                yield first * ratio**powers

    def extended(self, extra: ShiftBlock) -> ShiftPlan:
        """Return the plan with one more block at its end."""
        return self._with_blocks(
            np.append(self.counts, extra.count),
            np.append(self.first_shifts, extra.first_shift),
            np.append(self.ratios, extra.ratio),
        )

    def raised(self, extras: FloatArray) -> ShiftPlan:
        """Return the plan with the last shift of each block raised by its extra, rounded up.

        Absorbing more is always allowed. A raised shift gets a block of its own, hence is exact.
        """
        raised = extras > 0
        if not np.any(raised):
            return self
        lasts = self.first_shifts * self.ratios ** (self.counts - 1.0)
        # The guard covers the rounding of the power and of the two sums.
        wanted = (lasts + extras) * (1 + 1e-15)
        firsts = np.where(raised & (self.counts == 1), wanted, self.first_shifts)
        split = raised & (self.counts > 1)
        if not np.any(split):
            return self._with_blocks(self.counts, firsts, self.ratios)
        places = np.flatnonzero(split) + 1
        return self._with_blocks(
            np.insert(self.counts - split, places, 1),
            np.insert(firsts, places, wanted[split]),
            np.insert(self.ratios, places, 1.0),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-ready values; each block is ``[count, first_shift, ratio]``."""
        return {
            "start_step": int(self.start_step),
            "start_distance": float(self.start_distance),
            "blocks": [list(row) for row in self._rows()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ShiftPlan:
        """Return the plan that ``to_dict`` described."""
        try:
            rows: Sequence[Sequence[float]] = data["blocks"]
            blocks = [ShiftBlock(int(n), float(first), float(ratio)) for n, first, ratio in rows]
            return cls.of(int(data["start_step"]), float(data["start_distance"]), blocks)
        except (KeyError, TypeError, ValueError) as problem:
            if isinstance(problem, InvalidInput):
                raise
            raise InvalidInput(
                "A plan needs start_step, start_distance and blocks of [count, first, ratio]; "
                f"reading it failed with {problem!r}."
            ) from problem

    def _rows(self, start: int = 0) -> Iterator[tuple[int, float, float]]:
        return zip(
            self.counts[start:].tolist(),
            self.first_shifts[start:].tolist(),
            self.ratios[start:].tolist(),
            strict=True,
        )

    def _with_blocks(self, counts: IntArray, firsts: FloatArray, ratios: FloatArray) -> ShiftPlan:
        return ShiftPlan(
            start_step=self.start_step,
            start_distance=self.start_distance,
            counts=counts,
            first_shifts=firsts,
            ratios=ratios,
        )


def _check_blocks(counts: IntArray, firsts: FloatArray, ratios: FloatArray) -> None:
    if not counts.size == firsts.size == ratios.size > 0:
        raise InvalidInput("A plan needs at least one block, each with count, shift and ratio.")
    if np.any(counts < 1):
        raise InvalidInput(f"Every block needs a count >= 1; got {int(counts.min())}.")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        lasts = firsts * ratios ** (counts - 1.0)
    for name, values in (("shifts", firsts), ("ratios", ratios), ("last shifts", lasts)):
        if not np.all((values >= 0) & np.isfinite(values)):
            raise InvalidInput(f"A plan's {name} must be finite and >= 0; got {values!r}.")


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


# Each square carries twice the relative error of its shift (2.9e-14, see kernels.RESTART) and
# three roundings; compensated summation and the final product add four more.
ROUND_UP = 1 + 1e-13
# Squares below 2.2e-308 lose digits, but fewer than 1e30 of them fit in any run.
UNDERFLOW = 1e-290


class Evaluation(NamedTuple):
    """What a plan achieves: both numbers are upper bounds on the exact ones.

    Attributes:
        final_distance: what the plan leaves over and the last shift must absorb in addition (not
            capped by the domain, since the last projection comes after the noise).
        sum_of_squares: sum of a_{t+1}^2 / nu_t^2 with that addition charged.
    """

    final_distance: float
    sum_of_squares: float


def evaluate(plan: ShiftPlan, chain: Chain) -> Evaluation:
    """Return what the plan leaves over on this chain and what it costs, both rounded up.

    The start is the chain's own forward distance, or the plan's if that is larger: a plan cannot
    claim a smaller one.
    """
    if plan.start_step + plan.steps != chain.steps:
        raise InvalidInput(
            f"A plan must end with its chain, at step {chain.steps}; this one starts at "
            f"{plan.start_step} and covers {plan.steps} steps."
        )
    return evaluate_prefix(plan, chain)


def evaluate_prefix(plan: ShiftPlan, chain: Chain) -> Evaluation:
    """Return the same for a plan that may end before its chain does."""
    left, total = _walk(plan, chain, np.empty(0, dtype=np.bool_), np.empty(0))
    if left > 0 or np.any(plan.first_shifts > 0):
        total = total * ROUND_UP + UNDERFLOW
    return Evaluation(left, total)


def sealed(plan: ShiftPlan, chain: Chain, marks: BoolArray | None = None) -> ShiftPlan:
    """Return the plan with its last shift raised so that it ends at distance zero exactly.

    ``marks`` names further blocks after which the distance is to be zero exactly: where the maps
    expand, or jump at zero, a residue of rounding there would grow.
    """
    marks = np.zeros(plan.counts.size, dtype=np.bool_) if marks is None else marks.copy()
    marks[-1] = True
    raises = np.zeros(plan.counts.size)
    _walk(plan, chain, marks, raises)
    return plan.raised(raises)


def _walk(
    plan: ShiftPlan, chain: Chain, marks: BoolArray, raises: FloatArray
) -> tuple[float, float]:
    start = max(plan.start_distance, forward_distance(chain, plan.start_step))
    row, place = chain.locate(plan.start_step)
    return walk_plan(
        chain.columns,
        row,
        place,
        start,
        chain.diameter,
        plan.counts,
        plan.first_shifts,
        plan.ratios,
        marks,
        raises,
    )
