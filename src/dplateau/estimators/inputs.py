"""What the user passes, as arrays: rows that were checked, and targets as the losses take them.

What scikit-learn and NumPy say about data that they cannot use may quote the data. Here every
refusal says where the trouble is and of what kind, and never shows a value: not in its text, nor
in an exception that is chained to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from dplateau.engines.sources import names_in
from dplateau.errors import BadRecord, InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray
from dplateau.losses import Loss

FLOATS = [np.float64, np.float32]

# What scikit-learn says about shapes, counts, types and names of columns, all of which are public.
_HARMLESS = re.compile(
    "|".join(
        (
            r"Found array with \d+ (sample|feature)\(s\) \(shape=\([\d, ]*\)\) while .*",
            r"Found array with dim \d+.*",
            r"Found input variables with inconsistent numbers of samples: \[[\d, ]+\]",
            r"X has \d+ features, but \w+ is expecting \d+ features as input\.?",
            r"The feature names should match those that were passed during fit\..*",
            r"Feature names are only supported if all input features have string names.*",
            r"Expected a 2-dimensional container but got <class '[\w.]+'> instead\..*",
            r"y should be a 1d array, got an array of shape \([\d, ]+\) instead\.",
            r"This \w+ estimator requires y to be passed, but the target y is None\.",
            r"Unknown label type: [\w-]+\..*",
            r"setting an array element with a sequence\. The requested array has an inhom.*",
        )
    ),
    re.DOTALL,
)


class WrongType(InvalidInput, TypeError):
    """A cell or target of a type that holds no number."""


class WrongCell(BadRecord, WrongType):
    """The same, of which is known where it stands."""


def checked_rows(estimator: Any, X: Any) -> Any:
    """Return rows to predict for, as a matrix of floats with the columns of the fit."""
    try:
        return validate_data(estimator, X, accept_sparse="csr", dtype=FLOATS, reset=False)
    except Exception as error:
        failed = error
    # Outside the handler: a chained exception would keep what the first one quoted.
    raise _told(failed, X, None)


def checked_records(estimator: Any, X: Any, y: Any, *, numbers: bool) -> tuple[Any, Any]:
    """Return rows and targets of a fit as arrays; with ``numbers`` the targets are numbers."""
    try:
        features, targets = validate_data(
            estimator, X, y, accept_sparse="csr", dtype=FLOATS, y_numeric=numbers
        )
        return features, _as_numbers(targets) if numbers else targets
    except Exception as error:
        failed = error
    raise _told(failed, X, y)


def scored(score: Callable[[], Any], targets: Any, labels: str) -> float:
    """Return a score, or refuse targets that it cannot be taken of; ``labels`` says what they are.

    What scikit-learn says about targets quotes them.
    """
    try:
        with np.errstate(all="ignore"):
            return float(score())
    except InvalidInput:
        raise
    except Exception as error:
        kind = WrongType if isinstance(error, TypeError) else InvalidInput
    cells = WrongCell if kind is WrongType else BadRecord
    trouble = None if labels else _first_trouble("y", targets, cells)
    raise trouble or kind(f"y cannot be scored; pass one {labels or 'number'} for each row of X")


def check_labels(targets: Any) -> None:
    """Refuse targets that are no classes."""
    try:
        check_classification_targets(targets)
        return
    except Exception as error:
        failed = error
    raise _told(failed, None, targets)


def _as_numbers(targets: npt.NDArray[Any]) -> FloatArray:
    if targets.dtype.kind in "Mm":
        raise TypeError("dates and durations have no unit that everyone would choose")
    return targets.astype(np.float64)


def _told(error: Exception, X: Any, y: Any) -> Exception:
    """Return what may be said about data that could not be used."""
    kind = WrongType if isinstance(error, TypeError) else InvalidInput
    if _HARMLESS.fullmatch(str(error)):
        return kind(str(error))
    if isinstance(error, MemoryError):
        return MemoryError("the data do not fit into memory")
    shape = _shape(X)
    if X is not None and len(shape) != 2:
        return kind(
            f"X must be a matrix with a row for each record; got the shape {shape}. Reshape your "
            "data: X.reshape(-1, 1) if there is one column, X.reshape(1, -1) if there is one row"
        )
    cells = WrongCell if kind is WrongType else BadRecord
    trouble = _first_trouble("X", X, cells) or _first_trouble("y", y, cells)
    if trouble is not None:
        return trouble
    return kind(f"X or y cannot be used ({type(error).__name__}); pass arrays of numbers")


def as_array(values: Any) -> npt.NDArray[Any]:
    """Return values as an array, of objects if they have no other form."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.asarray(values, dtype=object)


def check_scored(X: Any, y: Any) -> int:
    """Return how many rows are to be scored, or refuse targets that are not one for each."""
    targets, shape = as_array(y), _shape(X)
    if targets.ndim != 1 or not len(targets):
        raise InvalidInput(
            "y must be an array with a target for each row to score, of at least one row; got the "
            f"shape {targets.shape}"
        )
    if shape and shape[0] != len(targets):
        raise InvalidInput(f"{shape[0]} rows need {shape[0]} targets; got {len(targets)}")
    return len(targets)


def _shape(X: Any) -> tuple[int, ...]:
    try:
        return tuple(X.shape) if hasattr(X, "shape") else np.asarray(X, dtype=object).shape
    except Exception:
        return ()


def _first_trouble(name: str, values: Any, kind: type[BadRecord]) -> BadRecord | None:
    """Return where the first cell that is no finite number stands, and what is wrong with it."""
    if values is None:
        return None
    if issparse(values):
        entries: Any = values
        entries = entries.tocoo()
        cells, (rows, columns) = entries.data, entries.coords
    else:
        cells = as_array(values)
        if cells.dtype.kind not in "fc":
            cells = np.asarray(values, dtype=object)
        rows, columns = None, None
    found = first_bad(cells)
    if found is None:
        return None
    place, trouble = found
    row, *rest = place if rows is None else (rows[place], columns[place])
    names = names_in(values)
    column = next((names[c] if names else int(c) for c in rest), None)
    return kind(f"{name}, ", int(row), f": {trouble}", column=column)


def first_bad(cells: npt.NDArray[Any]) -> tuple[tuple[int, ...], str] | None:
    """Return the place of the first cell that is no finite number, and what is wrong with it."""
    if not cells.ndim:
        return None  # no array of records
    for place in _suspects(cells):
        trouble = _trouble(cells[place])
        if trouble is not None:
            return place, trouble
    return None


def _suspects(cells: npt.NDArray[Any]) -> Iterator[tuple[int, ...]]:
    """Yield the places of cells worth a look, in order."""
    if cells.dtype.kind == "f":
        yield from map(tuple, np.argwhere(~np.isfinite(cells)).tolist())
    else:
        yield from np.ndindex(cells.shape)


def _trouble(cell: Any) -> str | None:
    """Return why a cell is no finite number; None if it is one."""
    kind = type(cell).__name__
    if cell is None or kind in ("NAType", "NaTType"):
        return "a missing value (NaN); fill it in first"
    if isinstance(cell, complex | np.complexfloating):
        return "Complex data not supported"
    try:
        number = float(cell)
    except OverflowError:
        return "a number that is too large"
    except Exception:
        if isinstance(cell, str | bytes):
            return "text where a number is needed"
        return f"the argument must be a string or a real number, not {kind!r}"
    if np.isnan(number):
        return "NaN, a missing value; fill it in first"
    return "an infinite number (inf)" if np.isinf(number) else None


# Labels are compared with so many classes at most, which is faster than a search among them.
COMPARED = 8


@dataclass(frozen=True, eq=False)
class Goal:
    """What is learned: a loss (by name or itself) and how targets become what it takes.

    ``absent`` is a target that the loss accepts, for rows of zeros; ``class_weight`` has a number
    for each class if they do not count the same.
    """

    loss: str | Loss
    n_classes: int
    read: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    absent: float
    class_weight: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False)
class ClassNumbers:
    """Reads labels: as the places of their classes, or with two classes as -1 and 1."""

    classes: npt.NDArray[Any]

    def __call__(self, targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the targets of a loss."""
        numbers = class_numbers(targets, self.classes)
        return numbers if len(self.classes) > 2 else 2.0 * numbers - 1.0


@dataclass(frozen=True)
class TargetRange:
    """Public limits of a regression's targets, which are mapped from center +- half to [-1, 1]."""

    low: float
    high: float
    center: float
    half: float

    @classmethod
    def of(cls, target_bound: Any, *, centered: bool) -> TargetRange:
        """Return the range of a number B, [-B, B], or of a pair (low, high).

        Without an intercept a model cannot learn an offset, and the range stays centered at 0.
        """
        if np.ndim(target_bound) == 0:
            half = checks.positive("target_bound", target_bound)
            return cls(-half, half, 0.0, half)
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
        if centered:
            return cls(low, high, (low + high) / 2, (high - low) / 2)
        return cls(low, high, 0.0, max(abs(low), abs(high)))

    def mapped(self, targets: npt.NDArray[Any]) -> FloatArray:
        """Return every target in units of the range, cut to [-1, 1] on its own."""
        shares = (finite_targets(targets) - self.center) / self.half
        return np.clip(shares, -1.0, 1.0)


def finite_targets(targets: npt.NDArray[Any]) -> FloatArray:
    """Return targets as doubles, refusing what is no finite number."""
    numbers = in_doubles(targets)
    if numbers is not None and np.all(np.isfinite(numbers)):
        return numbers
    other = (0,), f"an array of {targets.dtype.type.__name__}, not of numbers"
    (row, *_), trouble = first_bad(targets) or other
    raise BadRecord("targets must be finite numbers: ", row, f" has {trouble}")


def in_doubles(values: npt.NDArray[Any]) -> FloatArray | None:
    """Return values as doubles, also objects and texts that are numbers; None if some are none."""
    if values.dtype.kind in "biufOUS":
        with suppress(Exception):  # what NumPy says quotes a value
            return values.astype(np.float64)
    return None


def known_classes(classes: Any) -> npt.NDArray[Any]:
    """Return declared classes in order, refusing fewer than two."""
    labels = np.unique(np.asarray(classes))
    if labels.ndim != 1 or len(labels) < 2:
        raise InvalidInput(f"classes must name at least two classes; got {classes!r}")
    return labels


def seen_classes(targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the classes that occur, refusing data with one class only."""
    labels = np.unique(targets)
    if len(labels) < 2:
        raise InvalidInput(
            "y holds one class; a classifier needs two: declare them with classes=[...]"
        )
    return labels


def class_weights(stated: Any, classes: npt.NDArray[Any]) -> tuple[float, ...] | None:
    """Return a weight for each class, in their order; those that are not named have 1."""
    if stated is None:
        return None
    if isinstance(stated, str):
        raise InvalidInput(
            f"class_weight={stated!r} would be read off the labels, which is one more release. "
            "Declare weights from what is publicly known: with k classes and a share p of the "
            "records in a class, 1 / (k p) makes all classes count the same, as in "
            f"class_weight={{{classes.tolist()[0]!r}: 0.6, {classes.tolist()[-1]!r}: 3.0}}"
        )
    by_label = by_class("class_weight", stated, classes)
    weights = {label: checks.positive(f"class_weight of {label!r}", w) for label, w in by_label}
    return tuple(weights.get(label, 1.0) for label in classes.tolist())


def by_class(name: str, stated: Any, classes: npt.NDArray[Any]) -> list[tuple[Any, Any]]:
    """Return what a dict says by class, refusing classes that do not exist."""
    if not isinstance(stated, Mapping):
        raise InvalidInput(f"{name} must be a dict from classes to numbers; got {stated!r}")
    # Labels of NumPy's own types are those of Python.
    by_label = [
        (getattr(key, "item", lambda key=key: key)(), value) for key, value in stated.items()
    ]
    unknown = [key for key, _ in by_label if key not in classes.tolist()]
    if unknown:
        raise InvalidInput(
            f"{name} names {unknown}, which are not among classes={classes.tolist()}"
        )
    return by_label


def class_numbers(targets: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the place of every target among the classes."""
    if targets.dtype.kind in "biuf" and classes.dtype.kind in "biuf":
        if len(classes) <= COMPARED:
            numbers = np.full(targets.shape, -1, dtype=np.int64)
            for place, label in enumerate(classes):
                numbers += (place + 1) * (targets == label)
            return _known_numbers(numbers, classes)
        nearest = np.minimum(np.searchsorted(classes, targets), len(classes) - 1)
        return _known_numbers(np.where(classes[nearest] == targets, nearest, -1), classes)
    places = {label: place for place, label in enumerate(classes.tolist())}
    try:
        numbers = np.array([places.get(label, -1) for label in targets.tolist()], dtype=np.int64)
    except TypeError:
        odd = (i for i, label in enumerate(targets.tolist()) if not isinstance(label, Hashable))
        asked = "y has a target that is no label: lists and dicts are none; "
        raise BadRecord(asked, next(odd, 0), " has one") from None
    return _known_numbers(numbers, classes)


def _known_numbers(
    numbers: npt.NDArray[np.int64], classes: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    if np.any(numbers < 0):
        # The label itself stays unsaid: it is data.
        known = classes.tolist()
        raise BadRecord(
            f"y has a label that is not among classes={known}: ", int(np.argmax(numbers < 0))
        )
    return numbers
