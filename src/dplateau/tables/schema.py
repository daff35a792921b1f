"""What is publicly known about a table: ranges of numbers, lists of categories, the target.

Nothing here comes from the values of private data. A draft looks at column names and types alone
and leaves the ranges for a person to fill in.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dplateau.errors import InvalidInput
from dplateau.ground import checks

UNKNOWN = "?"
DEFAULT_BUCKETS = 32


@dataclass(frozen=True)
class Numeric:
    """Numbers, cut to [low, high] and mapped to [-1, 1]."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse an empty range."""
        low, high = (checks.real(name, getattr(self, name)) for name in ("low", "high"))
        if not -1e300 < low < high < 1e300:
            raise InvalidInput(f"a range needs low < high, both finite; got {low:g}:{high:g}")
        checks.put(self, "low", low)
        checks.put(self, "high", high)

    @property
    def width(self) -> int:
        """Return the number of features that the column becomes."""
        return 1


@dataclass(frozen=True)
class Categories:
    """Text, one feature for each declared category; any other value becomes zeros."""

    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse no categories, and one twice."""
        found = tuple(str(name) for name in self.categories)
        if not found or len(set(found)) < len(found):
            raise InvalidInput("categories must be a list of different names, at least one")
        checks.put(self, "categories", found)

    @property
    def width(self) -> int:
        """Return the number of features that the column becomes."""
        return len(self.categories)


@dataclass(frozen=True)
class Hashed:
    """Text, hashed into so many features: needs no list of values."""

    buckets: int = DEFAULT_BUCKETS

    def __post_init__(self) -> None:
        """Check the number of buckets."""
        checks.put(self, "buckets", checks.whole("buckets", self.buckets, least=2))

    @property
    def width(self) -> int:
        """Return the number of features that the column becomes."""
        return self.buckets


@dataclass(frozen=True)
class Ignored:
    """A column that is left out."""

    @property
    def width(self) -> int:
        """Return 0."""
        return 0


Column = Numeric | Categories | Hashed | Ignored
KINDS: dict[str, type[Column]] = {
    "numeric": Numeric,
    "categories": Categories,
    "hashed": Hashed,
    "ignored": Ignored,
}


@dataclass(frozen=True)
class Target:
    """What is predicted: one of ``classes``, or a number in ``bounds``; neither: inferred classes.

    Inferring the classes from the data tells which of them occur.
    """

    column: str
    classes: tuple[str, ...] | None = None
    bounds: Numeric | None = None

    def __post_init__(self) -> None:
        """Refuse two kinds at once, and fewer than two classes."""
        if self.classes is not None and self.bounds is not None:
            raise InvalidInput(
                f"the target {self.column!r} has classes or a range of numbers, not both"
            )
        if self.classes is not None and len(set(self.classes)) < max(2, len(self.classes)):
            raise InvalidInput(
                f"the target {self.column!r} needs at least two different classes; "
                f"got {', '.join(self.classes) or 'none'}"
            )


@dataclass(frozen=True)
class Schema:
    """The target, what is known about every other column, in order, and how many rows a person has.

    ``max_records_per_person`` is the most rows of one person: what is proved holds for all of them.
    """

    target: Target
    columns: Mapping[str, Column]
    max_records_per_person: int = 1

    def __post_init__(self) -> None:
        """Refuse a number of rows that is not one."""
        name = "max_records_per_person"
        checks.put(self, name, checks.whole(name, self.max_records_per_person))

    @property
    def width(self) -> int:
        """Return the number of features."""
        return sum(column.width for column in self.columns.values())

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        target: dict[str, Any] = {"column": self.target.column}
        if self.target.classes is not None:
            target["classes"] = list(self.target.classes)
        if self.target.bounds is not None:
            target |= asdict(self.target.bounds)
        names = {kind: name for name, kind in KINDS.items()}
        columns = {
            name: {"kind": names[type(column)], **_plain(asdict(column))}
            for name, column in self.columns.items()
        }
        found: dict[str, Any] = {"target": target, "columns": columns}
        if self.max_records_per_person > 1:
            found["max_records_per_person"] = self.max_records_per_person
        return found

    @classmethod
    def from_dict(cls, found: Any) -> Schema:
        """Read what :meth:`to_dict` wrote, or what a schema file holds."""
        if not isinstance(found, dict) or not isinstance(found.get("target"), dict):
            raise InvalidInput("a schema needs a [target] table with column = '...'")
        columns = found.get("columns", {})
        if not isinstance(columns, dict):
            raise InvalidInput("a schema lists its columns as tables [columns.NAME]")
        return cls(
            target=_target(found["target"]),
            columns={str(name): _column(str(name), one) for name, one in columns.items()},
            max_records_per_person=found.get("max_records_per_person", 1),
        )

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Read a schema file."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput(f"the schema is no TOML: {error}") from None


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}


def _target(found: dict[str, Any]) -> Target:
    name = found.get("column")
    if not isinstance(name, str):
        raise InvalidInput("the schema's [target] lacks column = '...'")
    unknown = set(found) - {"column", "classes", "low", "high"}
    if unknown:
        raise InvalidInput(f"the schema's [target] has no field {sorted(unknown)[0]!r}")
    classes = found.get("classes")
    bounds = None
    if "low" in found or "high" in found:
        bounds = _range(name, found)
    if classes is not None and not isinstance(classes, list):
        raise InvalidInput("the target's classes must be a list")
    return Target(name, None if classes is None else tuple(map(str, classes)), bounds)


def _column(name: str, found: Any) -> Column:
    kind = found.get("kind") if isinstance(found, dict) else None
    if kind not in KINDS:
        raise InvalidInput(f"column {name!r} needs kind = one of {', '.join(KINDS)}; got {kind!r}")
    fields = {key: value for key, value in found.items() if key != "kind"}
    if kind == "numeric":
        return _range(name, fields)
    try:
        if kind == "categories":
            return Categories(tuple(fields.pop("categories", ())), **fields)
        return KINDS[kind](**fields)
    except (TypeError, InvalidInput) as error:
        raise InvalidInput(f"column {name!r}: {error}") from None


def _range(name: str, found: dict[str, Any]) -> Numeric:
    ends = [found.get(end, UNKNOWN) for end in ("low", "high")]
    if UNKNOWN in ends:
        raise InvalidInput(
            f"column {name!r} is numeric and has no public range: fill in low and high from what "
            "is known about it, never from these data, or set kind = 'ignored'"
        )
    try:
        return Numeric(*ends)
    except InvalidInput as error:
        raise InvalidInput(f"column {name!r}: {error}") from None


def draft(types: Mapping[str, str], target: str) -> str:
    """Return a schema file for a person to complete, from names and types ("number" or "text").

    >>> print(draft({"age": "number", "income": "text"}, "income").splitlines()[-4])
    [columns."age"]
    """
    if target not in types:
        raise InvalidInput(
            f"there is no column {target!r}; the file has {', '.join(map(repr, types))}"
        )
    lines = [
        "# What is publicly known about the table. Fill in every '?' from general knowledge,",
        "# never by looking at the private data. Kinds: numeric (low, high), categories",
        "# (categories), hashed (buckets), ignored.",
        "",
        "# Most rows of one person; the privacy of all of them together is what is protected.",
        "max_records_per_person = 1",
        "",
        "[target]",
        f"column = {_quoted(target)}",
    ]
    if types[target] == "number":
        lines += [
            "# A number with a public range; for classes write classes = [...] instead.",
            f"low = {_quoted(UNKNOWN)}",
            f"high = {_quoted(UNKNOWN)}",
        ]
    else:
        lines += ["# Declare the classes; without them those in the data are used, which leaks."]
        lines += ["# classes = ['no', 'yes']"]
    for name, kind in types.items():
        if name == target:
            continue
        lines += ["", f"[columns.{_quoted(name)}]"]
        if kind == "number":
            lines += ['kind = "numeric"', f"low = {_quoted(UNKNOWN)}"]
            lines += [f"high = {_quoted(UNKNOWN)}"]
        else:
            lines += ['kind = "hashed"', f"buckets = {DEFAULT_BUCKETS}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string.
    return json.dumps(text)
