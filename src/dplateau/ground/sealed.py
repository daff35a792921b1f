"""The envelope of everything that leaves on paper, in one format.

``kind``, ``format``, ``library`` (the version that made it), ``date`` (when), ``content`` and a
``digest`` over all of these. The digest detects accidents, not forgers. Nothing may stand beside
these six, so whatever a file says is under its digest. docs/format.md is the contract, with the
rule for older and newer formats; docs/format.schema.json is its JSON Schema.
"""

from __future__ import annotations

import hashlib
import json
import os
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple, Self

from dplateau.errors import InvalidInput
from dplateau.ground import VERSION

FORMAT = 2
ENVELOPE = ("kind", "format", "library", "date", "content", "digest")
# More than any honest paper holds, in characters.
LONGEST = 2 * 10**7
_SHORT = reprlib.Repr()
_DATE = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Kind:
    """One kind of paper: its name in the file and in a sentence, and what its content must hold."""

    name: str
    title: str
    fields: tuple[str, ...]


CERTIFICATE = Kind(
    "dplateau/certificate",
    "certificate",
    (
        *("claim", "no_claim", "bound", "run", "witness"),
        *("assumptions", "citation", "files"),
    ),
)
COMPOSITION = Kind(
    "dplateau/composition",
    "composition",
    ("claim", "no_claim", "records", "method", "parts", "assumptions", "files"),
)
FOREIGN = Kind("dplateau/foreign-part", "foreign part", ("name", "neighbors", "unit", "law"))
MIXING = Kind(
    "dplateau/mixing-certificate",
    "mixing certificate",
    ("claim", "run", "witness", "assumptions", "citation"),
)
# What a trainer's own runs show against a claim, and all that was found against one.
TRAINER_AUDIT = Kind(
    "dplateau/trainer-audit",
    "audit report",
    (
        *("verdict", "claimed_epsilon", "claimed_delta", "runs", "fitted", "tested", "confidence"),
        *("seed", "statistic", "epsilon_lower_bound", "gdp_estimate", "power", "points"),
    ),
)
AUDIT = Kind(
    "dplateau/audit",
    "audit",
    (
        *("verdict", "certificate", "verification", "lower_bound", "no_lower_bound"),
        *("adversary", "ratio", "trainer"),
    ),
)
KINDS = (CERTIFICATE, COMPOSITION, FOREIGN, MIXING, TRAINER_AUDIT, AUDIT)


@dataclass(frozen=True)
class Stamp:
    """When a claim was made (UTC), and by which version of the library.

    Reading a file and writing it again keeps its stamp. ``SOURCE_DATE_EPOCH`` in the environment
    (seconds since 1970) sets the date, so that what a script makes twice is the same to the byte.
    """

    date: str
    library: str

    @classmethod
    def now(cls) -> Stamp:
        """Return the stamp of this moment."""
        seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
        moment = (
            datetime.fromtimestamp(int(seconds), UTC) if seconds.isdigit() else datetime.now(UTC)
        )
        return cls(moment.strftime(_DATE), VERSION)


class Opened(NamedTuple):
    """What was in an envelope."""

    content: dict[str, Any]
    stamp: Stamp


def seal(kind: Kind, content: Mapping[str, Any], stamp: Stamp) -> dict[str, Any]:
    """Return the content as JSON-ready data in its envelope.

    >>> stamp = Stamp("2026-01-31T12:00:00Z", "0.2.0")
    >>> envelope = seal(MIXING, dict.fromkeys(MIXING.fields), stamp)
    >>> open_sealed(envelope, MIXING).stamp == stamp
    True
    """
    return resealed(
        {
            "kind": kind.name,
            "format": FORMAT,
            "library": stamp.library,
            "date": stamp.date,
            "content": {name: content[name] for name in kind.fields},
        }
    )


def resealed(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same with a digest that fits."""
    return {**envelope, "digest": digest_of(envelope)}


def digest_of(envelope: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all but the digest, as canonical JSON."""
    signed = {name: value for name, value in envelope.items() if name != "digest"}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def open_sealed(document: Any, kind: Kind) -> Opened:
    """Return what was sealed; another kind or format and altered content are refused."""
    for _, holds, reason in envelope_checks(document, kind):
        if not holds:
            raise InvalidInput(reason)
    return Opened(document["content"], Stamp(document["date"], document["library"]))


def envelope_checks(document: Any, kind: Kind) -> Iterator[tuple[str, bool, str]]:
    """Yield (what, whether it holds, what was seen or why not), until something does not hold."""
    for what, reason, seen in _envelope_faults(document, kind):
        yield what, reason is None, seen if reason is None else reason
        if reason is not None:
            return


def _envelope_faults(document: Any, kind: Kind) -> Iterator[tuple[str, str | None, str]]:
    """Yield (what was looked at, the reason to refuse if there is one, else what was seen)."""
    yield "format", _other_kind(document, kind), kind.name
    yield "version", _other_format(document, kind), f"format {FORMAT}"
    made = f"made by dplateau {document.get('library')}, {document.get('date')}"
    yield "envelope", _not_whole(document, kind), made
    same = document["digest"] == digest_of(document)
    altered = f"the {kind.title} was altered after it was made: its digest differs"
    yield "digest", None if same else altered, "unaltered"
    yield "content", _wrong_fields(document["content"], kind), "whole"


def _other_kind(document: Any, kind: Kind) -> str | None:
    if isinstance(document, dict) and document.get("kind") == kind.name:
        return None
    if isinstance(document, dict) and document.get("schema") == kind.name:
        return _refused_format(1, kind)
    said = document.get("kind", document.get("format")) if isinstance(document, dict) else None
    if isinstance(said, str) and said.startswith("dplateau/"):
        return f"{_no(kind)}: it says that it is {_SHORT.repr(said)}"
    if not isinstance(document, dict):
        found = type(document).__name__
        return f"{_no(kind)}: a dict is needed, as JSON or to_dict() gives it; got {found}"
    return f"{_no(kind)}: the text lacks 'kind': '{kind.name}'"


def _no(kind: Kind) -> str:
    return f"not {'an' if kind.title[0] in 'aeiou' else 'a'} {kind.title}"


def _other_format(document: dict[str, Any], kind: Kind) -> str | None:
    version = document.get("format")
    if version == FORMAT and isinstance(version, int):
        return None
    return _refused_format(version, kind, document.get("library"))


def _refused_format(version: Any, kind: Kind, library: Any = None) -> str:
    # A file may hold anything under these names, also a text of many pages.
    found = f"{_no(kind)[4:]} of format {_SHORT.repr(version)}"
    stated = f"{found}; dplateau {VERSION} reads format {FORMAT}"
    if version == 1:
        return f"{stated} (format 1 was never part of a release: make the {kind.title} again)"
    if isinstance(version, int) and version > FORMAT:
        maker = _SHORT.repr(library)[1:-1] if isinstance(library, str) else "a later version"
        return f"{stated}: read it with the dplateau that wrote it ({maker}) or a later one"
    return stated


def _not_whole(document: dict[str, Any], kind: Kind) -> str | None:
    for name in ENVELOPE:
        if name not in document:
            return f"not a whole {kind.title}: it lacks {name!r}"
    for name in document:
        if name not in ENVELOPE:
            return f"not a {kind.title}: {name!r} stands outside its content, under no digest"
    if not isinstance(document["content"], dict):
        return f"not a {kind.title}: its content must be a JSON object"
    if not isinstance(document["library"], str) or not _is_date(document["date"]):
        return f"not a {kind.title}: it must name its library's version and a date (UTC)"
    return None


def _is_date(value: Any) -> bool:
    try:
        return bool(datetime.strptime(value, _DATE).strftime(_DATE) == value)
    except (TypeError, ValueError):
        return False


def _wrong_fields(content: dict[str, Any], kind: Kind) -> str | None:
    for name in kind.fields:
        if name not in content:
            return f"not a whole {kind.title}: it lacks {name!r}"
    for name in content:
        if name not in kind.fields:
            return f"not a {kind.title}: format {FORMAT} knows no field {name!r}"
    return None


def to_text(envelope: Mapping[str, Any]) -> str:
    """Return sealed data as JSON text; floats keep every digit."""
    return json.dumps(envelope, indent=2, allow_nan=False) + "\n"


def from_text(text: str, kind: Kind) -> Any:
    """Return the data of a JSON text that should be of that kind; :func:`open_sealed` it next.

    A name that stands twice in an object is refused: a digest sees the second alone, and a reader
    the first.
    """
    if len(text) > LONGEST:
        raise InvalidInput(f"{_no(kind)}: it is longer than {LONGEST} characters")
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_named_once)
    except (ValueError, RecursionError) as error:
        why = str(error)
        # Python's own words are about Python.
        if isinstance(error, json.JSONDecodeError):
            why = f"from line {error.lineno}, column {error.colno} on"
        elif isinstance(error, RecursionError):
            why = "its brackets are nested too deeply"
        elif "set_int_max_str_digits" in why:
            why = "a number has too many digits"
        raise InvalidInput(f"{_no(kind)}: the text is no JSON ({why})") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return named


class Sealed(ABC):
    """What leaves in an envelope of its kind, as data and as text, and is read back."""

    kind: ClassVar[Kind]
    stamp: Stamp

    @abstractmethod
    def _content(self) -> Mapping[str, Any]:
        """Return what goes into the envelope."""

    @classmethod
    @abstractmethod
    def _read(cls, content: dict[str, Any], stamp: Stamp) -> Self:
        """Return what an envelope held, or refuse it."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data, sealed."""
        return seal(self.kind, self._content(), self.stamp)

    def to_json(self) -> str:
        """Return JSON text; floats keep every digit."""
        return to_text(self.to_dict())

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read what :meth:`to_dict` returned."""
        return cls._read(*open_sealed(document, cls.kind))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what :meth:`to_json` wrote; altered, foreign and later-format text is refused."""
        return cls.from_dict(from_text(text, cls.kind))
