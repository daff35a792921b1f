"""Reading a certificate as plain data: nothing in it is trusted, not even its types.

Of a witness only the free choices are read. What can be derived from them is derived again, and
the stored copy is not looked at.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from dplateau.algorithms import Run, run_from_dict
from dplateau.errors import DplateauError, InvalidInput
from dplateau.ground import sealed
from dplateau.ground.sealed import Kind, envelope_checks
from dplateau.ground.shown import rounded_up
from dplateau.verify.report import Ledger, Malformed

# What stands for each kind in a file.
CERTIFICATE, COMPOSITION = sealed.CERTIFICATE.name, sealed.COMPOSITION.name
FOREIGN, MIXING = sealed.FOREIGN.name, sealed.MIXING.name
STATUSES = ("checked", "by construction", "declared")
Found = Mapping[str, Any]
# More than any honest certificate holds, in characters and in one list.
_LONGEST_TEXT, _LONGEST_LIST = 2 * 10**7, 10**5
# Longer runs and larger data are not looked at: sums over steps must end.
_LARGEST = 10**12


def read_certificate(text: str) -> dict[str, Any]:
    """Read the text of a certificate; what is none is refused.

    >>> read_certificate("[1, 2]")
    Traceback (most recent call last):
    dplateau.errors.InvalidInput: not a certificate: the text lacks 'kind': 'dplateau/certificate'
    """
    if len(text) > _LONGEST_TEXT:
        raise InvalidInput(f"not a certificate: it is longer than {_LONGEST_TEXT} characters")
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(f"not a certificate: the text is no JSON ({problem})") from None
    if isinstance(found, dict) and found.get("kind") in (CERTIFICATE, MIXING, COMPOSITION):
        return found
    # The first check fails, and says why: another kind, or an older format.
    reason = next(detail for _, _, detail in envelope_checks(found, sealed.CERTIFICATE))
    raise InvalidInput(reason)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def require_envelope(found: Any, kind: Kind, ledger: Ledger, where: str = "") -> dict[str, Any]:
    """Require the format, its version and a digest that still fits, and return the content."""
    for what, holds, detail in envelope_checks(found, kind):
        ledger.require(f"{what}{where}", holds, detail)
    content = record(found, "content")
    if "assumptions" in kind.fields:
        _assumptions(content)
    if "files" in kind.fields:
        _files(content)
    return content


def claim(content: Found, ledger: Ledger, where: str = "") -> tuple[float, float]:
    """Return the claimed epsilon and delta; a paper that claims nothing fails with its reason."""
    if entry(content, "claim") is None:
        ledger.require(f"claim{where}", False, word(content, "no_claim"))
    ledger.require(f"claim{where}", entry(content, "no_claim") is None, "nothing speaks against it")
    claimed = record(content, "claim")
    epsilon, delta = number(claimed, "epsilon"), number(claimed, "delta")
    sensible = len(claimed) == 2 and epsilon >= 0 and 0 <= delta < 1
    ledger.require(
        f"claim{where}", sensible, f"epsilon {rounded_up(epsilon, 9)} at delta {delta:g}"
    )
    return epsilon, delta


def _files(content: Found) -> None:
    """Require that the files a claim is about are named with their SHA-256."""
    for name, value in record(content, "files").items():
        if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
            raise Malformed(f"the file {name!r} needs a SHA-256; it has {_shown(value)}")


def _assumptions(content: Found) -> None:
    """Require that each assumption says who answers for it."""
    for item in rows(content, "assumptions"):
        known = isinstance(item, dict) and set(item) == {"text", "status"}
        if not known or not isinstance(item["text"], str) or item["status"] not in STATUSES:
            raise Malformed(f"an assumption needs a text and a status; got {_shown(item)}")


def stated(found: Any, *place: str) -> float | None:
    """Return the number at a place of the content, if there is one, for showing only."""
    value = _at(found, *place)
    try:
        return as_number(value, "it")
    except Malformed:
        return None


def stated_text(found: Any, *place: str) -> str | None:
    """Return the text at a place of the content, if there is one, for showing only."""
    value = _at(found, *place)
    return value if isinstance(value, str) else None


def _at(found: Any, *place: str) -> Any:
    for name in ("content", *place):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def run(found: Found, ledger: Ledger) -> Run:
    """Return the described run, if it is one of a size that can be looked at."""
    described = record(found, "run")
    try:
        read = run_from_dict(described)
    except (DplateauError, ArithmeticError) as problem:
        ledger.require("run", False, str(problem))
        raise
    size = max(read.steps, read.n)
    ledger.require("size", size <= _LARGEST, f"at most {_LARGEST:.0e} steps and records")
    return read


def entry(found: Found, name: str) -> Any:
    """Return an entry that must be there."""
    if name not in found:
        raise Malformed(f"{name!r} is missing")
    return found[name]


def number(found: Found, name: str) -> float:
    """Return a finite real number."""
    return as_number(entry(found, name), name)


def as_number(value: Any, name: str) -> float:
    """Read one finite real number (True and False are none)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{name!r} must be a number; it is {_shown(value)}")
    try:
        real = float(value)
    except OverflowError:
        raise Malformed(f"{name!r} is too large for a number") from None
    if not math.isfinite(real):
        raise Malformed(f"{name!r} must be finite; it is {real}")
    return real


def whole(found: Found, name: str, least: int = 0) -> int:
    """Return a whole number of at least ``least``."""
    return as_whole(entry(found, name), name, least)


def as_whole(value: Any, name: str, least: int = 0) -> int:
    """Read one whole number."""
    real = as_number(value, name)
    if real != math.floor(real) or real < least:
        raise Malformed(f"{name!r} must be a whole number of at least {least}; it is {value!r}")
    return int(value)


def word(found: Found, name: str) -> str:
    """Return a text."""
    value = entry(found, name)
    if not isinstance(value, str):
        raise Malformed(f"{name!r} must be a text; it is {_shown(value)}")
    return value


def record(found: Found, name: str) -> dict[str, Any]:
    """Return a nested object."""
    return as_record(entry(found, name), name)


def as_record(value: Any, name: str) -> dict[str, Any]:
    """Read one object."""
    if not isinstance(value, dict):
        raise Malformed(f"{name!r} must be an object; it is {_shown(value)}")
    return value


def rows(found: Found, name: str, most: int = _LONGEST_LIST) -> list[Any]:
    """Return a list that is neither empty nor longer than ``most``."""
    value = entry(found, name)
    if not isinstance(value, list) or not value:
        raise Malformed(f"{name!r} must be a list with something in it; it is {_shown(value)}")
    if len(value) > most:
        raise Malformed(f"{name!r} has {len(value)} entries; at most {most} are looked at")
    return value


def numbers(found: Found, name: str, most: int = _LONGEST_LIST) -> list[float]:
    """Return a list of finite numbers."""
    return [as_number(value, f"{name}[{i}]") for i, value in enumerate(rows(found, name, most))]


def wholes(found: Found, name: str, most: int = _LONGEST_LIST, least: int = 0) -> list[int]:
    """Return a list of whole numbers of at least ``least``."""
    listed = rows(found, name, most)
    return [as_whole(value, f"{name}[{i}]", least) for i, value in enumerate(listed)]


def rising(found: Found, name: str, most: int = _LONGEST_LIST) -> list[float]:
    """Return a list of numbers of at least zero that never fall."""
    values = numbers(found, name, most)
    if values[0] < 0 or any(b < a for a, b in pairwise(values)):
        raise Malformed(f"{name!r} must start at zero or above and never fall")
    return values


def tuples(value: Any, name: str, what: tuple[str, ...]) -> list[list[Any]]:
    """Read a list of lists, each with one entry for every word of ``what``."""
    found = rows({name: value}, name)
    for i, item in enumerate(found):
        if not isinstance(item, list) or len(item) != len(what):
            raise Malformed(f"{name}[{i}] must be [{', '.join(what)}]; it is {_shown(item)}")
    return found


def shift_blocks(value: Any, name: str = "blocks") -> list[tuple[int, float, float]]:
    """Return blocks of shifts, each [count, first shift, ratio]."""
    found = []
    for i, item in enumerate(tuples(value, name, ("count", "first shift", "ratio"))):
        first, ratio = as_number(item[1], f"{name}[{i}][1]"), as_number(item[2], f"{name}[{i}][2]")
        if first < 0 or ratio < 0:
            raise Malformed(f"{name}[{i}] holds a negative shift or ratio")
        found.append((as_whole(item[0], f"{name}[{i}][0]", 1), first, ratio))
    return found


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
