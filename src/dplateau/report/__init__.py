"""Claims for people who did not make them: in plain words, explained, signed off, on one page."""

from dplateau.report.explanation import explain
from dplateau.report.page import report_page
from dplateau.report.sign_off import SignOff, sign_off
from dplateau.report.words import Paper, Words, words_of

__all__ = ["Paper", "SignOff", "Words", "explain", "report_page", "sign_off", "words_of"]
