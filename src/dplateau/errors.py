"""The refusals of the library: every one says what was asked, what failed and what would work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class DplateauError(ValueError):
    """Base class of every refusal, so that one ``except`` catches them all."""


class InvalidInput(DplateauError):
    """A value that describes no run: missing, contradictory, non-finite or out of range."""


class BadRecord(InvalidInput):
    """A record that cannot be used: where it stands and what is wrong with it, never a value.

    ``row`` and ``column`` count from 0 among what was looked at. Who knows where those rows stand
    in the whole of the data says so by :meth:`at`, once.
    """

    def __init__(
        self, before: str, row: int, after: str = "", *, column: int | str | None = None
    ) -> None:
        where = f"row {row}" if column is None else f"row {row}, column {column!r}"
        super().__init__(f"{before}{where} (counted from 0){after}")
        self.before, self.row, self.after, self.column = before, row, after, column

    def at(self, numbers: Sequence[int], names: Sequence[str] | None = None) -> InvalidInput:
        """Return the same for rows of these numbers in the whole, and columns of these names."""
        column = self.column
        if names is not None and isinstance(column, int) and column < len(names):
            column = names[column]
        told = BadRecord(self.before, int(numbers[self.row]), self.after, column=column)
        return InvalidInput(str(told))

    def __reduce__(self) -> Any:
        """Travel between processes with all that makes the text."""
        return _again, (type(self), self.before, self.row, self.after, self.column)


def _again(
    kind: type[BadRecord], before: str, row: int, after: str, column: int | str | None
) -> BadRecord:
    return kind(before, row, after, column=column)


class NotApplicable(DplateauError):
    """A theorem whose assumptions the run does not meet, or a quantity a curve does not have."""


class MissingExtra(DplateauError, ImportError):
    """Something that only an optional extra of the package brings; the text names the extra."""


class PoorPlanWarning(UserWarning):
    """What was asked for promises little: hardly any privacy, or a model that cannot work.

    It follows from parameters and public sizes alone; the text says what to state or to change.
    """


class PrivacyLeakWarning(UserWarning):
    """Something beside the noisy result leaves; the text says what, and what to do about it."""


class SpendRefused(DplateauError):
    """A release that a ledger does not pay for: nothing was spent, and the refusal is on record."""


class LedgerBroken(DplateauError):
    """A ledger whose rows were changed, removed or moved: nothing in it can be relied on."""
