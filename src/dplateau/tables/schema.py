"""What is publicly known about a table: ranges of numbers, lists of categories, the target.

Nothing here comes from the values of private data. A draft looks at column names and types alone
and leaves the ranges for a person to fill in. What a file and the options of a command declare are
plain dictionaries until they are whole; then everything that is wrong with them is said at once.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, Literal, TypeVar

from dplateau.errors import InvalidInput
from dplateau.ground import checks

UNKNOWN = "?"
DEFAULT_BUCKETS = 32
BUCKET_END = ". bucket"
# What a missing cell may count as, beside a value that is public: no feature of the column is set,
# or one more feature says that the cell is missing.
ZERO, INDICATOR = "zero", "indicator"
CellKind = Literal["number", "boolean", "date", "text"]
Declared = dict[str, Any]
Read = TypeVar("Read")
# Names that identifiers and contact data have, whole or as the last words: customer_id, E-Mail.
_IDENTIFIER = re.compile(
    r"(^|.*[ _.-])(id|ids|uuid|guid|ssn|e-?mail|phone|telephone|mobile|passport|iban|surname|"
    r"(first|last|full|user|given|family)[ _.-]?name|address|(customer|patient|account|record|row)"
    r"[ _.-]?(no|nr|number))$|^(index|name|key)$|^Unnamed: \d+$|.*[a-z]I[dD]$|.*[a-z]Name$",
)


def looks_like_identifier(name: str) -> bool:
    """Return whether a column's name says that it tells people apart.

    >>> [looks_like_identifier(name) for name in ("customer_id", "Email", "userId", "paid", "age")]
    [True, True, True, False, False]
    """
    return bool(_IDENTIFIER.match(name) or _IDENTIFIER.match(name.lower()))


@dataclass(frozen=True)
class Numeric:
    """Numbers, cut to [low, high] and mapped to [-1, 1]."""

    low: float
    high: float
    missing: str | float | None = None

    def __post_init__(self) -> None:
        """Refuse an empty range, and what no missing cell can count as."""
        low, high = (checks.real(name, getattr(self, name)) for name in ("low", "high"))
        if not -1e300 < low < high < 1e300:
            raise InvalidInput(f"a range needs low < high, both finite; got {low:g}:{high:g}")
        checks.put(self, "low", low)
        checks.put(self, "high", high)
        if self.missing not in (None, ZERO, INDICATOR):
            value = _number(self.missing)
            if value is None or not low <= value <= high:
                raise InvalidInput(_no_substitute(self.missing, "a number of the range"))
            checks.put(self, "missing", value)

    def labels(self, name: str) -> list[str]:
        """Return a name for each feature that the column becomes."""
        return [name, *_indicator(name, self.missing)]


@dataclass(frozen=True)
class Nonnegative:
    """Numbers that are never negative, cut to [0, high] and mapped to [0, 1]: zeros stay zeros."""

    high: float
    missing: str | float | None = None

    def __post_init__(self) -> None:
        """Refuse what a range from 0 to high would refuse."""
        same = Numeric(0.0, self.high, self.missing)
        checks.put(self, "high", same.high)
        checks.put(self, "missing", same.missing)

    def labels(self, name: str) -> list[str]:
        """Return a name for each feature that the column becomes."""
        return [name, *_indicator(name, self.missing)]


@dataclass(frozen=True)
class Day:
    """Dates (1999-12-31), cut to [low, high] and mapped to [-1, 1]."""

    low: date
    high: date
    missing: str | None = None

    def __post_init__(self) -> None:
        """Refuse an empty range."""
        low, high = (_day(end) for end in (self.low, self.high))
        if low is None or high is None or not low < high:
            raise InvalidInput("a range of dates needs low < high, written as 1999-12-31")
        checks.put(self, "low", low)
        checks.put(self, "high", high)
        if self.missing not in (None, ZERO, INDICATOR):
            value = _day(self.missing)
            if value is None or not low <= value <= high:
                raise InvalidInput(_no_substitute(self.missing, "a date of the range"))
            checks.put(self, "missing", value.isoformat())

    def labels(self, name: str) -> list[str]:
        """Return a name for each feature that the column becomes."""
        return [name, *_indicator(name, self.missing)]


@dataclass(frozen=True)
class Boolean:
    """True or false, one feature that is 1 or 0."""

    missing: str | bool | None = None

    def __post_init__(self) -> None:
        """Refuse what no missing cell can count as."""
        if not (self.missing in (None, ZERO, INDICATOR) or isinstance(self.missing, bool)):
            raise InvalidInput(_no_substitute(self.missing, "true or false"))

    def labels(self, name: str) -> list[str]:
        """Return a name for each feature that the column becomes."""
        return [name, *_indicator(name, self.missing)]


@dataclass(frozen=True)
class Categories:
    """Text, one feature for each declared category; any other value becomes zeros."""

    categories: tuple[str, ...]
    missing: str | None = None

    def __post_init__(self) -> None:
        """Refuse no categories, and one twice."""
        names = tuple(str(name) for name in self.categories)
        if not names or len(set(names)) < len(names):
            raise InvalidInput("categories must be a list of different names, at least one")
        checks.put(self, "categories", names)
        if self.missing not in (None, ZERO, INDICATOR, *names):
            raise InvalidInput(_no_substitute(self.missing, "one of the categories"))

    def labels(self, name: str) -> list[str]:
        """Return a name for each feature that the column becomes."""
        return [*(f"{name}={one}" for one in self.categories), *_indicator(name, self.missing)]


@dataclass(frozen=True)
class Hashed:
    """Text, hashed into so many features: needs no list of values."""

    buckets: int = DEFAULT_BUCKETS
    missing: str | None = None

    def __post_init__(self) -> None:
        """Check the number of buckets."""
        checks.put(self, "buckets", checks.whole("buckets", self.buckets, least=2))
        if not (self.missing is None or isinstance(self.missing, str)):
            raise InvalidInput(_no_substitute(self.missing, "a text"))

    def labels(self, name: str) -> list[str]:
        """Return a name for each feature that the column becomes."""
        buckets = [f"{name} {place}{BUCKET_END}" for place in range(1, self.buckets + 1)]
        return [*buckets, *_indicator(name, self.missing)]


@dataclass(frozen=True)
class Ignored:
    """A column that is left out."""

    def labels(self, name: str) -> list[str]:
        """Return no names."""
        return []


Column = Numeric | Nonnegative | Day | Boolean | Categories | Hashed | Ignored
KINDS: dict[str, type[Column]] = {
    "numeric": Numeric,
    "nonnegative": Nonnegative,
    "date": Day,
    "boolean": Boolean,
    "categories": Categories,
    "hashed": Hashed,
    "ignored": Ignored,
}
Range = TypeVar("Range", Numeric, Nonnegative, Day)
_NAMES = {kind: name for name, kind in KINDS.items()}


def _indicator(name: str, missing: object) -> list[str]:
    return [f"{name} is missing"] if missing == INDICATOR else []


def _no_substitute(missing: object, public: str) -> str:
    return f"missing cells count as {ZERO!r}, {INDICATOR!r} or {public}; got {missing!r}"


def _number(value: object) -> float | None:
    """Return a number that a file or an option states, as a number or as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _day(value: object) -> date | None:
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        return None


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
                f"got {', '.join(map(repr, self.classes)) or 'none'}"
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
    def labels(self) -> list[str]:
        """Return a name for every feature."""
        return [label for name, column in self.columns.items() for label in column.labels(name)]

    @property
    def width(self) -> int:
        """Return the number of features."""
        return len(self.labels)

    @property
    def used(self) -> list[str]:
        """Return the names of the columns that are not left out."""
        return [name for name, column in self.columns.items() if not isinstance(column, Ignored)]

    def to_dict(self) -> Declared:
        """Return JSON-ready data."""
        target: Declared = {"column": self.target.column}
        if self.target.classes is not None:
            target["classes"] = list(self.target.classes)
        if self.target.bounds is not None:
            target |= {"low": self.target.bounds.low, "high": self.target.bounds.high}
        columns = {name: _stated(column) for name, column in self.columns.items()}
        document: Declared = {"target": target, "columns": columns}
        if self.max_records_per_person > 1:
            document["max_records_per_person"] = self.max_records_per_person
        return document

    @classmethod
    def from_dict(cls, document: Any, *, source: str = "the schema") -> Schema:
        """Read what :meth:`to_dict` wrote, or what a schema file holds; refuse with all reasons.

        ``missing`` beside ``target`` is what missing cells count as in every column that does not
        say it itself.
        """
        problems = Problems(source)
        declared = checked_form(document, source)
        target = problems.of(None, _target, declared["target"])
        default = declared.get("missing")
        columns: dict[str, Column] = {}
        for name, one in declared["columns"].items():
            column = problems.of(name, _column, one, default)
            if column is not None:
                columns[name] = column
        most = declared.get("max_records_per_person", 1)
        problems.of(None, checks.whole, "max_records_per_person", most)
        return cls(problems.settled(target), columns, most)

    @classmethod
    def from_toml(cls, text: str, *, source: str = "the schema") -> Schema:
        """Read a schema file."""
        return cls.from_dict(declared_in(text, source), source=source)


class Problems:
    """What is wrong with a declaration or a table, so that it can all be said at once."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.columns: dict[str, list[str]] = {}

    def of(self, column: str | None, read: Callable[..., Read], *what: Any) -> Read | None:
        """Return what could be read; keep the reason if it could not."""
        try:
            return read(*what)
        except InvalidInput as problem:
            self.add(column, str(problem))
            return None

    def add(self, column: str | None, reason: str) -> None:
        """Keep a reason, once for all columns that share it; the source is said once for all."""
        reason = reason.removeprefix(f"{self.source}: ")
        self.columns.setdefault(reason, []).extend([] if column is None else [column])

    def settled(self, value: Read | None) -> Read:
        """Return what was read, or refuse with every reason."""
        said = [
            f"{_named(names)}: {text}" if names else text for text, names in self.columns.items()
        ]
        if value is not None and not said:
            return value
        if len(said) == 1:
            raise InvalidInput(f"{self.source}: {said[0]}")
        listed = "; ".join(f"({place}) {text}" for place, text in enumerate(said, 1))
        raise InvalidInput(f"{self.source} has {len(said)} problems: {listed}")


def _named(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" * (len(names) > 12))
    return f"column {shown}" if len(names) == 1 else f"columns {shown}"


def declared_in(text: str, source: str) -> Declared:
    """Return what a schema file declares, as it stands there."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{source} is no TOML: {error}") from None
    return checked_form(document, source)


def checked_form(document: Any, source: str) -> Declared:
    """Return a declaration with its tables ``target`` and ``columns``, refusing other forms."""
    if not isinstance(document, dict) or not isinstance(document.get("target"), dict):
        raise InvalidInput(f"{source} needs a [target] table with column = '...'")
    columns = document.get("columns", {})
    if not isinstance(columns, dict):
        raise InvalidInput(f"{source} must list its columns as tables [columns.NAME]")
    unknown = sorted(set(document) - {"target", "columns", "missing", "max_records_per_person"})
    if unknown:
        raise InvalidInput(f"{source}: there is no field {unknown[0]!r} beside [target]")
    return {**document, "columns": {str(name): one for name, one in columns.items()}}


def overridden(declared: Declared, options: Declared) -> Declared:
    """Return a declaration in which options have the last word.

    An option about a column replaces what the file says about it, but not what its missing cells
    count as; an option that names another target starts its description anew.
    """
    target, said = declared.get("target", {}), options.get("target", {})
    if said.get("column", target.get("column")) != target.get("column"):
        target = {}
    if said.keys() & {"classes", "low", "high"}:
        target = {key: value for key, value in target.items() if key == "column"}
    target = {**target, **said}
    columns = dict(declared.get("columns", {}))
    for name, one in options.get("columns", {}).items():
        before = columns.get(name, {})
        if "kind" not in one:
            columns[name] = {**before, **one}
        elif one["kind"] == "ignored" or "missing" not in before:
            columns[name] = one
        else:
            columns[name] = {"missing": before["missing"], **one}
    columns.pop(target.get("column"), None)
    stated = {key: value for key, value in options.items() if value is not None}
    return {**declared, **stated, "target": target, "columns": columns}


def completed(
    declared: Declared, types: Mapping[str, CellKind], *, source: str, data: str
) -> Schema:
    """Return a schema for every column of a table, from what was declared and the columns' types.

    Text that nobody described is hashed, true and false stay what they are, and what looks like an
    identifier is left out. Numbers and dates need a public range. ``source`` and ``data`` name the
    files in refusals.
    """
    problems = Problems(source)
    declared = checked_form(declared, source)
    target, columns = declared["target"], declared["columns"]
    name = target.get("column")
    listed = ", ".join(map(repr, list(types)[:12]))
    there = "the table" if source == data else data
    if name is None:
        problems.add(None, f"say which column to predict: --target, one of {listed}")
    elif name not in types:
        problems.add(None, f"{there} has no column {name!r} to predict; it has {listed}")
    elif types[name] == "number" and not target.keys() & {"classes", "low", "high"}:
        problems.add(
            None,
            f"the target {name!r} is a number: say --target-bound LOW:HIGH (a public range), or "
            "--classes A,B if its numbers are classes",
        )
    for absent in columns.keys() - types.keys():
        problems.add(absent, f"{there} has no column of that name; it has {listed}")
    default = declared.get("missing")
    kept: dict[str, Column] = {}
    for column in (one for one in types if one != name):
        known = columns.get(column, {})
        stated = {**_by_default(column, types[column]), **known} if "kind" not in known else known
        read = problems.of(column, _column, stated, default)
        if read is not None:
            kept[column] = read
    known_target = problems.of(None, _target, target) if name is not None else None
    most = declared.get("max_records_per_person", 1)
    problems.of(None, checks.whole, "max_records_per_person", most)
    return Schema(problems.settled(known_target), kept, most)


def _by_default(name: str, kind: CellKind) -> Declared:
    """Return what to do with a column of which nothing is known but its name and its type."""
    if looks_like_identifier(name):
        return {"kind": "ignored"}
    match kind:
        case "text":
            return {"kind": "hashed"}
        case "boolean":
            return {"kind": "boolean"}
        case "number":
            return {"kind": "numeric"}
        case "date":
            return {"kind": "date"}


def _stated(column: Column) -> Declared:
    """Return a column's declaration as JSON-ready data."""
    declared: Declared = {"kind": _NAMES[type(column)]}
    for field in fields(column):
        value = getattr(column, field.name)
        if value is not None:
            plain = list(value) if isinstance(value, tuple) else value
            declared[field.name] = plain.isoformat() if isinstance(plain, date) else plain
    return declared


def _target(declared: Declared) -> Target:
    name = declared.get("column")
    if not isinstance(name, str):
        raise InvalidInput("[target] lacks column = '...'")
    unknown = set(declared) - {"column", "classes", "low", "high"}
    if unknown:
        raise InvalidInput(f"[target] has no field {sorted(unknown)[0]!r}")
    ends: Declared = {key: declared[key] for key in ("low", "high") if key in declared}
    classes = declared.get("classes")
    if classes is not None and not isinstance(classes, list | tuple):
        raise InvalidInput("the target's classes must be a list")
    return Target(
        name,
        classes=None if classes is None else tuple(map(str, classes)),
        bounds=_range(Numeric, ends) if ends else None,
    )


def _column(declared: Any, missing: Any) -> Column:
    """Read what is declared about a column; ``missing`` is what counts unless it says so itself."""
    kind = declared.get("kind") if isinstance(declared, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput(f"needs kind = one of {', '.join(KINDS)}; got {kind!r}")
    stated = {key: value for key, value in declared.items() if key != "kind"}
    if kind == "ignored":
        return Ignored()
    if missing is not None:
        stated.setdefault("missing", missing)
    unknown = sorted(set(stated) - {field.name for field in fields(KINDS[kind])})
    if unknown:
        raise InvalidInput(f"kind = {kind!r} has no field {unknown[0]!r}")
    if kind == "numeric":
        return _range(Numeric, stated)
    if kind == "nonnegative":
        return _range(Nonnegative, stated)
    if kind == "date":
        return _range(Day, stated)
    if kind == "categories":
        stated["categories"] = tuple(stated.get("categories", ()))
    return KINDS[kind](**stated)


def _range(kind: type[Range], stated: Declared) -> Range:
    ends = ("high",) if kind is Nonnegative else ("low", "high")
    if any(stated.get(end, UNKNOWN) == UNKNOWN for end in ends):
        option = "--nonnegative COLUMN=HIGH" if kind is Nonnegative else "--bounds COLUMN=LOW:HIGH"
        raise InvalidInput(
            f"no public range is known: state {' and '.join(ends)} ({option}) from what is "
            "known about it, never from these data, or leave it out (kind = 'ignored', --ignore)"
        )
    return kind(**stated)


def draft(types: Mapping[str, CellKind], target: str, *, data: str = "the file") -> str:
    """Return a schema file for a person to complete, from names and types of columns alone.

    >>> print(draft({"age": "number", "income": "text"}, "income").splitlines()[-4])
    [columns."age"]
    """
    if target not in types:
        raise InvalidInput(f"{data} has no column {target!r}; it has {', '.join(map(repr, types))}")
    lines = [
        "# What is publicly known about the table. Fill in every '?' from general knowledge,",
        "# never by looking at the private data. Kinds: numeric (low, high), nonnegative (high;",
        "# for amounts and counts, whose zero means none), date (low, high), boolean, categories",
        "# (categories), hashed (buckets), ignored.",
        "",
        "# Most rows of one person; the privacy of all of them together is what is protected.",
        "max_records_per_person = 1",
        "# What missing cells count as, here or in a column: 'zero' (the middle of a range, no",
        "# category), 'indicator' (zero, and one more feature), or a value that is public.",
        "# Without it they are refused.",
        f"# missing = '{INDICATOR}'",
        "",
        "[target]",
        f"column = {_quoted(target)}",
    ]
    if types[target] == "number":
        lines += [
            "# A number with a public range; for classes write classes = [...] instead.",
            *_unknown_range(),
        ]
    else:
        lines += ["# Declare the classes; without them those in the data are used, which leaks."]
        lines += ["# classes = ['no', 'yes']"]
    for name, cells in types.items():
        if name == target:
            continue
        stated = _by_default(name, cells)
        lines += ["", f"[columns.{_quoted(name)}]"]
        if stated["kind"] == "ignored":
            lines += ["# By its name an identifier, which a model should not see."]
        lines += [f"kind = {_quoted(stated['kind'])}"]
        if stated["kind"] in ("numeric", "date"):
            lines += _unknown_range()
        if stated["kind"] == "hashed":
            lines += [f"buckets = {DEFAULT_BUCKETS}"]
    return "\n".join(lines) + "\n"


def _unknown_range() -> list[str]:
    return [f"low = {_quoted(UNKNOWN)}", f"high = {_quoted(UNKNOWN)}"]


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string.
    return json.dumps(text)
