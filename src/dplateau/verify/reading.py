"""Reading a certificate as plain data: nothing in it is trusted, not even its types.

Of a witness only the free choices are read. What can be derived from them is derived again, and
the stored copy is not looked at.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dplateau.algorithms import Run, run_from_dict
from dplateau.errors import DplateauError, InvalidInput
from dplateau.ground import sealed
from dplateau.ground.sealed import Kind, envelope_checks, from_text
from dplateau.ground.shown import printable, rounded_up
from dplateau.verify.report import Examination, Malformed

# What stands for each kind in a file.
CERTIFICATE, COMPOSITION = sealed.CERTIFICATE.name, sealed.COMPOSITION.name
FOREIGN, MIXING = sealed.FOREIGN.name, sealed.MIXING.name
STATUSES = ("checked", "by construction", "declared")
# More than any honest certificate holds in one list.
_LONGEST_LIST = 10**5
# Longer runs and larger data are not looked at: sums over steps must end.
_LARGEST = 10**12


@dataclass(frozen=True)
class Entry:
    """A value of a document, and its name there.

    Whoever needs a number, a text, an object or a list asks for it: it is one, or `Malformed`.
    """

    value: Any
    name: str = "it"

    def __getitem__(self, name: str) -> Entry:
        """Return what an object must hold under a name."""
        if name not in self.record():
            raise Malformed(f"{name!r} is missing")
        return Entry(self.value[name], name)

    def __contains__(self, name: str) -> bool:
        return name in self.record()

    def _refuse(self, expected: str) -> Malformed:
        text = repr(self.value)
        shown = text if len(text) <= 60 else text[:57] + "..."
        return Malformed(f"{self.name!r} must be {expected}; it is {shown}")

    def number(self) -> float:
        """Return a finite real number (True and False are none)."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self._refuse("a number")
        try:
            real = float(self.value)
        except OverflowError:
            raise Malformed(f"{self.name!r} is too large for a number") from None
        if not math.isfinite(real):
            raise self._refuse("finite")
        return real

    def nonnegative(self) -> float:
        real = self.number()
        if real < 0:
            raise self._refuse("at least zero")
        return real

    def whole(self, least: int = 0) -> int:
        real = self.number()
        if real != math.floor(real) or real < least:
            raise self._refuse(f"a whole number of at least {least}")
        return int(self.value)

    def word(self) -> str:
        if not isinstance(self.value, str):
            raise self._refuse("a text")
        return self.value

    def record(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self._refuse("an object")
        return self.value

    def rows(self, most: int = _LONGEST_LIST) -> list[Entry]:
        """Return the entries of a list that is neither empty nor longer than ``most``."""
        if not isinstance(self.value, list) or not self.value:
            raise self._refuse("a list with something in it")
        if len(self.value) > most:
            count = len(self.value)
            raise Malformed(f"{self.name!r} has {count} entries; at most {most} are looked at")
        return [Entry(value, f"{self.name}[{i}]") for i, value in enumerate(self.value)]

    def tuples(self, *what: str) -> list[list[Entry]]:
        """Return a list of lists, each with one entry for every word of ``what``."""
        listed = self.rows()
        for item in listed:
            if not isinstance(item.value, list) or len(item.value) != len(what):
                raise item._refuse(f"[{', '.join(what)}]")
        return [item.rows() for item in listed]

    def numbers(self, most: int = _LONGEST_LIST) -> list[float]:
        return [item.number() for item in self.rows(most)]

    def wholes(self, most: int = _LONGEST_LIST, least: int = 0) -> list[int]:
        return [item.whole(least) for item in self.rows(most)]

    def rising(self, most: int = _LONGEST_LIST) -> list[float]:
        """Return numbers of at least zero that never fall."""
        values = self.numbers(most)
        if values[0] < 0 or any(b < a for a, b in pairwise(values)):
            raise Malformed(f"{self.name!r} must start at zero or above and never fall")
        return values

    def shift_blocks(self) -> list[tuple[int, float, float]]:
        """Return blocks of shifts, each [count, first shift, ratio]."""
        rows = self.tuples("count", "first shift", "ratio")
        return [(count.whole(1), a.nonnegative(), r.nonnegative()) for count, a, r in rows]


def read_certificate(text: str) -> dict[str, Any]:
    """Read the text of a certificate; what is none is refused.

    >>> read_certificate("{}")
    Traceback (most recent call last):
    dplateau.errors.InvalidInput: not a certificate: the text lacks 'kind': 'dplateau/certificate'
    """
    document = from_text(text, sealed.CERTIFICATE)
    if isinstance(document, dict) and document.get("kind") in (CERTIFICATE, MIXING, COMPOSITION):
        return document
    # The first check fails, and says why: another kind, or an older format.
    reason = next(detail for _, _, detail in envelope_checks(document, sealed.CERTIFICATE))
    raise InvalidInput(reason)


def require_envelope(document: Any, kind: Kind, examination: Examination, where: str = "") -> Entry:
    """Require the format, its version and a digest that still fits, and return the content."""
    for what, holds, detail in envelope_checks(document, kind):
        examination.require(f"{what}{where}", holds, detail)
    content = Entry(document)["content"]
    if "assumptions" in kind.fields:  # each says who answers for it
        for item in content["assumptions"].rows():
            known = isinstance(item.value, dict) and set(item.value) == {"text", "status"}
            if not known or item["status"].value not in STATUSES:
                raise item._refuse("an object with a text and a status")
            item["text"].word()
    if "files" in kind.fields:  # named with their SHA-256
        for name, value in content["files"].record().items():
            if not re.fullmatch("[0-9a-f]{64}", Entry(value, name).word()):
                raise Entry(value, name)._refuse("a SHA-256")
    return content


def claim(content: Entry, examination: Examination, where: str = "") -> tuple[float, float]:
    """Return the claimed epsilon and delta; a paper that claims nothing fails with its reason."""
    if content["claim"].value is None:
        examination.require(f"claim{where}", False, printable(content["no_claim"].word()))
    silent = content["no_claim"].value is None
    examination.require(f"claim{where}", silent, "nothing speaks against it")
    claimed = content["claim"]
    epsilon, delta = claimed["epsilon"].number(), claimed["delta"].number()
    sensible = len(claimed.value) == 2 and epsilon >= 0 and 0 <= delta < 1
    detail = f"epsilon {rounded_up(epsilon, 9)} at delta {rounded_up(delta)}"
    examination.require(f"claim{where}", sensible, detail)
    return epsilon, delta


def run(content: Entry, examination: Examination) -> Run:
    """Return the described run, if it is one of a size that can be looked at."""
    try:
        read = run_from_dict(content["run"].record())
    except (DplateauError, ArithmeticError) as problem:
        examination.require("run", False, str(problem))
        raise
    size = max(read.steps, read.n)
    examination.require("size", size <= _LARGEST, f"at most {_LARGEST:.0e} steps and records")
    return read


def stated(document: Any, *place: str) -> float | None:
    """Return the number at a place of the content, if there is one, for showing only."""
    try:
        return Entry(_at(document, *place)).number()
    except Malformed:
        return None


def stated_text(document: Any, *place: str) -> str | None:
    """Return the text at a place of the content, if there is one, for showing only."""
    value = _at(document, *place)
    return value if isinstance(value, str) else None


def _at(value: Any, *place: str) -> Any:
    for name in ("content", *place):
        value = value.get(name) if isinstance(value, dict) else None
    return value
