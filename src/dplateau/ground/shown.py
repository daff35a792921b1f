"""What people read: numbers that are rounded to the safe side, and results in one line or a page.

An upper bound is never shown below its value, nor a lower one above.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

# What a terminal shows side by side.
WIDTH = 80
# Where the text of a line begins: behind its indent and the mark of an item.
_ITEM = re.compile(r"\s*(?:(?:[-*]|\d+\.) +)?")


def rounded_up(value: float, digits: int = 6, *, padded: bool = False) -> str:
    """Return an upper bound in a few digits: read back, it is never below its value.

    ``padded`` keeps trailing zeros, so that numbers in a column look alike.

    >>> rounded_up(4.3771781), rounded_up(1e-5), rounded_up(2.0), rounded_up(1310.2, 3)
    ('4.37718', '1e-05', '2', '1320')
    >>> rounded_up(2.9341, 3, padded=True), rounded_up(2.0, 3, padded=True)
    ('2.94', '2.00')
    """
    return _rounded(value, digits, ROUND_CEILING, padded)


def rounded_down(value: float, digits: int = 6, *, padded: bool = False) -> str:
    """Return a lower bound in a few digits: read back, it is never above its value.

    >>> rounded_down(2.9349, 3)
    '2.93'
    """
    return _rounded(value, digits, ROUND_FLOOR, padded)


def _rounded(value: float, digits: int, direction: str, padded: bool) -> str:
    if not math.isfinite(value):
        return "none"
    # The shortest decimal that reads back as the value: a delta typed as 1e-5 stays 1e-05.
    number = float(Context(prec=digits, rounding=direction).create_decimal(repr(float(value))))
    if 10**digits <= abs(number) < 1e4:
        return f"{number:.0f}"
    return f"{number:{'#' if padded else ''}.{digits}g}".rstrip(".")


def counted(number: float, what: str, several: str | None = None) -> str:
    """Return a number with what it counts, in the singular where it is one.

    >>> counted(1, "step"), counted(60_000, "record"), counted(2, "batch", "batches")
    ('1 step', '60000 records', '2 batches')
    """
    return f"{number} {what if number == 1 else several or f'{what}s'}"


def printable(text: str) -> str:
    r"""Return a text whose control characters are spelled out: no file moves a reader's cursor.

    >>> printable("one\x1b[2Jtwo\n")
    'one\\x1b[2Jtwo\n'
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    shown = (
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )
    return "".join(shown)


def wrapped(text: str, head: str = "", indent: str | None = None) -> list[str]:
    """Return a text in lines of a terminal's width, behind a head; further lines are indented.

    Numbers and names stay whole, so that they can be copied.

    >>> wrapped("one two", "- "), wrapped("")
    (['- one two'], [''])
    """
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head) if indent is None else indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [head.rstrip()]


def wrapped_lines(text: str, head: str = "") -> list[str]:
    r"""Return lines of a text in a terminal's width; what goes on is indented like an item's text.

    >>> wrapped_lines("a claim\n  - one part")
    ['a claim', '  - one part']
    """
    lines: list[str] = []
    for line in text.split("\n"):
        begin = _ITEM.match(line)
        mark = begin[0] if begin else ""
        lines += wrapped(line[len(mark) :], f"{head}{mark}", f"{head}{' ' * len(mark)}")
    return lines


class Shown:
    """A result that is read: one line where its value is echoed, a small page in a notebook.

    The page is made by the room ``notebook``, which may draw and stands after every room whose
    results it shows: the front door hands it over with :func:`show_pages_by`.
    """

    def __repr__(self) -> str:
        first = str(self).partition("\n")[0]
        return f"<{type(self).__name__}: {first}>"

    def _repr_html_(self) -> str:
        return _makers[-1](self) if _makers else str(self)


_makers: list[Callable[[Shown], str]] = []


def show_pages_by(maker: Callable[[Shown], str]) -> None:
    """Let ``maker`` turn results into HTML from now on."""
    _makers[:] = [maker]
