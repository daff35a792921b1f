"""The refusals of the library: every one says what was asked, what failed and what would work."""

from __future__ import annotations


class DplateauError(ValueError):
    """Base class of every refusal, so that one ``except`` catches them all."""


class InvalidInput(DplateauError):
    """A value that describes no run: missing, contradictory, non-finite or out of range."""


class NotApplicable(DplateauError):
    """A theorem whose assumptions the run does not meet, or a quantity a curve does not have."""


class PoorPlanWarning(UserWarning):
    """What was asked for promises little: hardly any privacy, or a model that cannot work.

    It follows from parameters and public sizes alone; the text says what to state or to change.
    """


class PrivacyLeakWarning(UserWarning):
    """Something beside the noisy result leaves; the text says what, and what to do about it."""
