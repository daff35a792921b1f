"""The envelope of every claim on paper: what it is, the format's version, its fields and a digest.

The digest detects accidents, not forgers. Only a kind's own fields count, so that a larger report
may carry a sealed claim along.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dplateau.errors import InvalidInput


@dataclass(frozen=True)
class Kind:
    """One kind of claim: how its text names it, how a refusal does, and what it must hold."""

    schema: str
    name: str
    fields: tuple[str, ...]
    version: int = 1


CERTIFICATE = Kind(
    "dplateau/certificate",
    "certificate",
    ("claimed_epsilon", "claimed_delta", "bound", "run", "witness", "assumptions", "citation"),
)
COMPOSITION = Kind(
    "dplateau/composition",
    "composition",
    ("claimed_epsilon", "claimed_delta", "records", "method", "parts", "assumptions"),
)
MIXING = Kind(
    "dplateau/mixing-certificate",
    "mixing certificate",
    ("claimed_tv", "steps", "run", "witness", "assumptions", "citation"),
)
KINDS = (CERTIFICATE, COMPOSITION, MIXING)


def seal(kind: Kind, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content as JSON-ready data in its envelope.

    >>> found = seal(MIXING, dict.fromkeys(MIXING.fields))
    >>> open_sealed(found, MIXING) == found
    True
    """
    own = {name: content[name] for name in kind.fields}
    return resealed({"schema": kind.schema, "schema_version": kind.version, **own})


def resealed(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same with a digest that fits."""
    return {**found, "digest": digest_of(found)}


def open_sealed(found: Any, kind: Kind) -> dict[str, Any]:
    """Return what was sealed; another kind, another version and altered content are refused."""
    if not isinstance(found, dict) or found.get("schema") != kind.schema:
        raise InvalidInput(f"not a {kind.name}: the text lacks 'schema': '{kind.schema}'")
    if not has_version(found, kind):
        raise InvalidInput(
            f"{kind.name} of schema version {found.get('schema_version')!r}; "
            f"this release reads {kind.version}"
        )
    if found.get("digest") != digest_of(found):
        raise InvalidInput(f"the {kind.name} was altered after it was made: its digest differs")
    missing = [name for name in kind.fields if name not in found]
    if missing:
        raise InvalidInput(f"not a whole {kind.name}: it lacks {missing[0]!r}")
    return found


def has_version(found: Mapping[str, Any], kind: Kind) -> bool:
    """Return whether the text is of the version that this release reads and writes."""
    version = found.get("schema_version")
    return version == kind.version and not isinstance(version, bool | float)


def digest_of(found: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the envelope and the kind's own fields, as canonical JSON."""
    schema = found.get("schema")
    # Compared, not looked up: in a text that nobody checked the name may be anything.
    kind = next((kind for kind in KINDS if kind.schema == schema), CERTIFICATE)
    signed = {name: found.get(name) for name in ("schema", "schema_version", *kind.fields)}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def to_text(found: Mapping[str, Any]) -> str:
    """Return sealed data as JSON text; floats keep every digit."""
    return json.dumps(found, indent=2, allow_nan=False) + "\n"


def from_text(text: str, kind: Kind) -> Any:
    """Return the data of a JSON text that should be of that kind; :func:`open_sealed` it next."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput(f"not a {kind.name}: the text is no JSON ({error})") from None
