"""What is publicly known about each column, and how the model sees it.

A column is cut to its bounds, value by value, and mapped by its kind: a range (low, high) to
[-1, 1], because nobody knows where in it the typical value lies; what is never negative to [0, 1]
and what is 0 or 1 as it is, because there zero means absence. Mapping 0 and 1 to -1 and 1 would put
every row on a sphere, far from the origin, and drown the few ones in the many zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray

BINARY, NONNEGATIVE, PRIVATE = "binary", "nonnegative", "private"
KINDS = f'(low, high), "{BINARY}", ("{NONNEGATIVE}", high) or "{PRIVATE}"'


@dataclass(frozen=True, eq=False)
class Columns:
    """Bounds of every column; a value x within them becomes (x - center) / half.

    Bounds of columns whose numbers are in ``unknown`` stand for nothing until they are found.
    """

    low: FloatArray
    high: FloatArray
    center: FloatArray
    half: FloatArray
    unknown: tuple[int, ...] = ()

    def bounded(self, low: FloatArray, high: FloatArray) -> Columns:
        """Return the same with the bounds of the unknown columns."""
        if not self.unknown:
            return self
        places = list(self.unknown)

        def filled(before: FloatArray, now: FloatArray) -> FloatArray:
            after = before.copy()
            after[places] = now
            return after

        return Columns(
            filled(self.low, low),
            filled(self.high, high),
            filled(self.center, (low + high) / 2),
            filled(self.half, (high - low) / 2),
        )

    def cut(self, rows: Any) -> Any:
        """Return the rows with every value moved into its column's bounds."""
        return np.clip(rows, self.low, self.high)

    @property
    def keeps_zeros(self) -> bool:
        """Return whether zeros stay zeros, as sparse rows need."""
        return not np.any(self.center)


def columns_of(feature_bounds: Any, d: int, names: Sequence[str] | None = None) -> Columns | None:
    """Return what ``feature_bounds`` says about d columns; None if it says nothing.

    >>> columns = columns_of({"age": (0, 100), "smoker": "binary"}, 2, ["age", "smoker"])
    >>> columns.low.tolist(), columns.high.tolist(), columns.center.tolist()
    ([0.0, 0.0], [100.0, 1.0], [50.0, 0.0])
    """
    if feature_bounds is None:
        return None
    if isinstance(feature_bounds, str) and feature_bounds == PRIVATE:
        return _of_kinds([PRIVATE] * d, names)
    if isinstance(feature_bounds, Mapping):
        return _of_kinds(_in_order(feature_bounds, d, names), names)
    if isinstance(feature_bounds, list) and _by_column(feature_bounds, d):
        if len(feature_bounds) != d:
            raise InvalidInput(
                f"feature_bounds has {len(feature_bounds)} entries, but X has {d} columns"
            )
        return _of_kinds(feature_bounds, names)
    try:
        low, high = (
            np.broadcast_to(np.asarray(side, dtype=np.float64), (d,)).copy()
            for side in feature_bounds
        )
    except (TypeError, ValueError):
        raise InvalidInput(
            f"feature_bounds must be a pair (low, high) of numbers or of {d} numbers each, one per "
            f"column, or a dict or list that has {KINDS} for each column; got {feature_bounds!r}"
        ) from None
    return _ranges(low, high, (low + high) / 2, (high - low) / 2)


def _by_column(listed: list[Any], d: int) -> bool:
    """Return whether a list has an entry per column, and not the two sides of a pair."""
    if len(listed) != 2 or any(map(_names_a_kind, listed)):
        return True
    if d == 2 and all(np.size(one) == 2 for one in listed):
        raise InvalidInput(
            "feature_bounds is a list of two pairs for two columns, which can be read in two ways: "
            "write a tuple (lows, highs), or a dict with a pair for each column"
        )
    return False


def _names_a_kind(one: Any) -> bool:
    return isinstance(one, str) or (
        isinstance(one, tuple | list) and any(isinstance(part, str) for part in one)
    )


def _in_order(stated: Mapping[Any, Any], d: int, names: Sequence[str] | None) -> list[Any]:
    """Return a dict's entries in the order of the columns, refusing any other set of names."""
    known: list[Any] = list(range(d)) if names is None else list(names)
    unknown = [name for name in stated if name not in known]
    absent = [name for name in known if name not in stated]
    if unknown:
        raise InvalidInput(
            f"feature_bounds names {unknown[0]!r}, but X has the columns {_listed(known)}"
            + ("" if names is not None else " (an array has no names, only positions)")
        )
    if absent:
        raise InvalidInput(f"feature_bounds says nothing about {_listed(absent)}: state {KINDS}")
    return [stated[name] for name in known]


def _listed(names: list[Any]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(map(repr, names[:8])) + more


def _of_kinds(kinds: list[Any], names: Sequence[str] | None) -> Columns:
    ranges = [
        _column(kind, repr(names[place]) if names is not None else str(place))
        for place, kind in enumerate(kinds)
    ]
    unknown = tuple(place for place, kind in enumerate(kinds) if _is(kind, PRIVATE))
    return replace(_ranges(*np.array(ranges, dtype=np.float64).T), unknown=unknown)


def _is(kind: Any, name: str) -> bool:
    return isinstance(kind, str) and kind == name


def _column(kind: Any, name: str) -> tuple[float, float, float, float]:
    """Return low, high, center and half of one column."""
    if _is(kind, BINARY):
        return 0.0, 1.0, 0.0, 1.0
    if _is(kind, PRIVATE):
        return -1.0, 1.0, 0.0, 1.0
    try:
        first, second = kind
        if isinstance(first, str):
            if first != NONNEGATIVE:
                raise ValueError(first)
            high = float(second)
            return 0.0, high, 0.0, high
        low, high = float(first), float(second)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"feature_bounds of column {name} must be {KINDS}; got {kind!r}"
        ) from None
    return low, high, (low + high) / 2, (high - low) / 2


def _ranges(low: FloatArray, high: FloatArray, center: FloatArray, half: FloatArray) -> Columns:
    fine = np.isfinite(low) & np.isfinite(high) & (low < high) & np.isfinite(high - low)
    if not np.all(fine):
        raise InvalidInput(
            "feature_bounds must be finite with low < high in every column; drop columns that "
            f"cannot vary. Got low={low.tolist()}, high={high.tolist()}"
        )
    return Columns(low, high, center, half)
