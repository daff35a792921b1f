"""Signing a claim off: everything a privacy officer must know before saying yes, on one page.

The verdict comes first. It is that of the independent verifier, and it is a no as well if the paper
leaves out what its theorem rests on, cannot be read as a whole, or names a file that is another one
now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dplateau.bounds.base import Assumption
from dplateau.certificates import Certificate, Composition
from dplateau.certificates.certify import assumptions_of
from dplateau.errors import DplateauError
from dplateau.ground import sealed
from dplateau.ground.shown import printable, rounded_up, wrapped, wrapped_lines
from dplateau.report.words import Words, certificates_in, grouped, words_of
from dplateau.sampling import MixingCertificate
from dplateau.sampling.mixing import assumptions_of_mixing
from dplateau.verify import (
    SECONDS,
    Check,
    MixingVerification,
    Verification,
    verify,
    verify_mixing,
)

# Checks that compare a claim with what was derived anew, and what was asked for beside it.
_DECISIVE = ("epsilon is proved", "total variation is proved", "signature")
_NO_PRIVACY = "this is about how soon a chain forgets its start; it protects no record"
_UNREADABLE = (DplateauError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class SignOff:
    """A verdict with all that it is about.

    ``words`` is None if the paper could not be read, or is about mixing and not about privacy;
    ``mixing`` is then what it claims. ``files`` says of each file that the claim names whether it
    is the one found beside it.
    """

    verification: Verification | MixingVerification
    words: Words | None
    assumptions: tuple[tuple[str, tuple[str, ...]], ...]
    files: tuple[tuple[str, str], ...]
    made: str | None
    mixing: str | None = None

    @property
    def ok(self) -> bool:
        """Whether everything holds."""
        return self.verification.ok

    @property
    def problem(self) -> str | None:
        """The first thing that does not hold."""
        failed = next((check for check in self.verification.checks if not check.ok), None)
        return None if failed is None else f"{failed.name}: {failed.detail}"

    @property
    def deciding_checks(self) -> tuple[Check, ...]:
        """Those that failed, and the one that compares the claim with what was derived anew."""
        return tuple(c for c in self.verification.checks if not c.ok or c.name in _DECISIVE)

    @property
    def count_of_checks(self) -> str:
        """How many checks were made, and how many of them hold."""
        made = self.verification.checks
        return f"{sum(check.ok for check in made)} of {len(made)} checks hold"

    def with_check(self, check: Check) -> SignOff:
        """Return the page with one more check, which comes first."""
        before = self.verification
        verdict = replace(before, ok=before.ok and check.ok, checks=(check, *before.checks))
        return replace(self, verification=verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data: the verdict's own, and what the page says beside it."""
        words = self.words
        document: dict[str, Any] = {
            **self.verification.to_dict(),
            "problem": self.problem,
            "made": self.made,
            "assumptions": {who: list(texts) for who, texts in self.assumptions},
            "files": dict(self.files),
        }
        if words is not None:
            document |= {
                "claim": words.headline,
                "claimed_delta": words.delta,
                "neighbors": words.neighbors,
                "released": list(words.released),
                "doubts": list(words.doubts),
            }
        if self.mixing is not None:
            document |= {"claim": self.mixing, "doubts": [_NO_PRIVACY]}
        return document

    def __str__(self) -> str:
        """Show the page, without the checks that hold."""
        return self.page()

    def page(self, *, every_check: bool = False) -> str:
        """Return the page as text, with every check or only those that decide."""
        return printable("\n".join(self._lines(every_check)))

    def _lines(self, every_check: bool) -> Iterator[str]:
        yield self._headline()
        if self.problem is not None:
            yield from _paragraph("Problem", self.problem)
        if self.words is not None:
            yield from _paragraph("Claim", self.words.headline)
            yield from _paragraph("Neighbors", self.words.neighbors)
            yield from _paragraph("What left", *self.words.released)
            for doubt in self.words.doubts:
                yield from _paragraph("Take note", doubt)
        if self.mixing is not None:
            yield from _paragraph("Claim", self.mixing)
            yield from _paragraph("Take note", _NO_PRIVACY)
        if self.made is not None:
            yield from _paragraph("Made", self.made)
        for name, state in self.files:
            yield from _paragraph("File", f"{name}: {state}")
        for who, texts in self.assumptions:
            yield from ("", f"{who}:", *(line for text in texts for line in _item("-", text)))
        yield from ("", "Re-derived by code that shares nothing with the code that made the claim:")
        for check in self.verification.checks if every_check else self.deciding_checks:
            yield from _item("ok  " if check.ok else "FAIL", f"{check.name}: {check.detail}")
        yield f"  {self.count_of_checks}"

    def _headline(self) -> str:
        verdict = "VERIFIED" if self.ok else "NOT VERIFIED"
        match self.verification:
            case Verification(claimed_epsilon=claimed, rederived_epsilon=derived):
                what = "epsilon"
            case MixingVerification(claimed_tv=claimed, rederived_tv=derived):
                what = "total variation"
        if claimed is None:
            return verdict
        again = "not derived again" if derived is None else f"{rounded_up(derived)} derived again"
        return f"{verdict}: {what} {rounded_up(claimed)} claimed, {again}"


def sign_off(document: Any, folder: Path | None = None, *, seconds: float = SECONDS) -> SignOff:
    """Verify a paper that was read from JSON, and say all that a verdict rests on.

    ``folder`` is where the files that the claim names are looked for. Whatever is wrong with the
    paper, the answer is a page that says so, and so it is if verifying takes more than ``seconds``
    of processor time.
    """
    if isinstance(document, dict) and document.get("kind") == sealed.MIXING.name:
        return _mixing(document, seconds)
    verdict = verify(document, seconds=seconds)
    try:
        paper = _read(document)
    except _UNREADABLE as problem:
        return _unread(verdict, problem)
    # What a theorem rests on is asked for of a claim that it proves: asking may take long too.
    more = [_complete(paper)] if verdict.ok else []
    files, same = _files(paper, folder)
    more += [] if same is None else [same]
    checks = (*verdict.checks, *(check for check in more if verdict.ok or not check.ok))
    verdict = replace(verdict, ok=verdict.ok and all(c.ok for c in more), checks=checks)
    words = words_of(paper, attack=False)
    made = f"{paper.stamp.date} by dplateau {paper.stamp.library}"
    return SignOff(verdict, words, words.assumptions, files, made)


def _mixing(document: dict[str, Any], seconds: float) -> SignOff:
    verdict = verify_mixing(document, seconds=seconds)
    try:
        paper = MixingCertificate.from_dict(document)
        needed = assumptions_of_mixing(paper) if verdict.ok else ()
    except _UNREADABLE as problem:
        return _unread(verdict, problem)
    made = f"{paper.stamp.date} by dplateau {paper.stamp.library}"
    if verdict.ok:
        check = _stated([a for a in needed if a not in paper.assumptions])
        verdict = replace(verdict, ok=check.ok, checks=(*verdict.checks, check))
    return SignOff(verdict, None, grouped(paper.assumptions), (), made, mixing=str(paper))


def _read(document: Any) -> Certificate | Composition:
    if isinstance(document, dict) and document.get("kind") == sealed.COMPOSITION.name:
        return Composition.from_dict(document)
    return Certificate.from_dict(document)


def _unread(verdict: Verification | MixingVerification, problem: Exception) -> SignOff:
    """Return the page of a paper that does not say in full what it claims: nobody may sign that."""
    if verdict.ok:
        check = Check("readable", False, str(problem))
        verdict = replace(verdict, ok=False, checks=(*verdict.checks, check))
    return SignOff(verdict, None, (), (), None)


def _complete(paper: Certificate | Composition) -> Check:
    """Check that a claim states all that its theorems rest on."""
    missing = [
        assumption
        for certificate in certificates_in(paper)
        for assumption in assumptions_of(certificate.run, certificate.theorem)
        if assumption not in certificate.assumptions
    ]
    return _stated(missing)


def _stated(missing: Sequence[Assumption]) -> Check:
    detail = "every one that the theorems need" if not missing else f"it lacks {missing[0].text!r}"
    return Check("assumptions are stated", not missing, detail)


def _files(
    paper: Certificate | Composition, folder: Path | None
) -> tuple[tuple[tuple[str, str], ...], Check | None]:
    """Compare the files beside the paper with those that it is about."""
    seen, other = [], []
    for name, stated in paper.files.items():
        # A name with a folder in it would lead elsewhere.
        place = None if folder is None or Path(name).name != name else folder / name
        if place is None or not place.is_file():
            seen.append((name, "not here, so not compared"))
            continue
        same = hashlib.sha256(place.read_bytes()).hexdigest() == stated
        seen.append((name, "the one that the claim is about" if same else "ANOTHER FILE"))
        other += [] if same else [name]
    if not paper.files:
        return (), None
    detail = f"{other[0]} is not the file that the claim is about" if other else "none is another"
    return tuple(seen), Check("files", not other, detail)


def _paragraph(name: str, *texts: str) -> Iterator[str]:
    for i, text in enumerate(texts):
        # A text in one piece: a line break in a file begins no line of ours.
        lines = wrapped_lines(" ".join(text.split("\n")), " " * 13)
        yield from [f"  {name:<10} {lines[0].lstrip()}", *lines[1:]] if i == 0 else lines


def _item(mark: str, text: str) -> list[str]:
    return wrapped(text, f"  {mark} ")
