"""A certificate explained: the claim, whom it protects, what it rests on, why it is true.

The theorem's statement comes from the proof notes of ``docs/theory``, which travel with the
package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from dplateau.algorithms import Run
from dplateau.bounds.base import Bound
from dplateau.certificates import Certificate
from dplateau.errors import InvalidInput
from dplateau.ground.shown import wrapped, wrapped_lines
from dplateau.report.words import Paper, certificates_in, proofs_in, words_of
from dplateau.sampling import MixingCertificate

_RELEASES_NOTE, _MIXING_NOTE = "docs/theory/releases.md", "docs/theory/mixing.md"
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)


def explain(paper: Paper | MixingCertificate) -> str:
    """Return the claim, its neighbors, its assumptions, its theorem and how to check it by hand.

    Raises
    ------
    InvalidInput
        If the proof notes are neither in the package nor in the repository around it.
    """
    if isinstance(paper, MixingCertificate):
        return "\n".join([*_mixing(paper), *_by_hand([(paper.run, paper.witness)])])
    words = words_of(paper)
    lines = [*_section("Claim"), *wrapped_lines(str(paper)), "", *wrapped_lines(words.sentence)]
    if words.attack is not None:
        lines += ["", *wrapped_lines(str(words.attack))]
    lines += [*_section("Neighbors"), *wrapped_lines(words.neighbors)]
    lines += _section("What left")
    lines += [line for text in words.released for line in wrapped_lines(text)]
    for who, texts in words.assumptions:
        lines += [*_section(who), *(line for text in texts for line in _item(text))]
    for doubt in words.doubts:
        lines += [*_section("Take note"), *wrapped_lines(doubt)]
    if paper.claim is not None:  # else there is nothing to prove
        lines += _reasons(paper)
    return "\n".join(lines[1:]) + "\n"


def _reasons(paper: Paper) -> Iterator[str]:
    """Yield the theorem of a certificate, or how parts compose and the theorem of each."""
    if isinstance(paper, Certificate):
        yield from _theorem(paper.theorem)
        yield from _by_hand([(paper.run, paper.witness)])
        return
    yield from _section(f"Why: {paper.method}")
    yield from _quoted(_intro(note_text(_RELEASES_NOTE)), _RELEASES_NOTE)
    theorems: dict[str, dict[str, Bound]] = {}
    for theorem in (certificate.theorem for certificate in certificates_in(paper)):
        theorems.setdefault(statement_of(theorem), {})[theorem.name] = theorem
    for alike in theorems.values():
        yield from _theorem(*alike.values())
    yield from _by_hand([(c.run, c.witness) for c in proofs_in(paper)])
    yield ""
    yield from wrapped_lines(
        "The claims of the parts are put together as the first statement says; the law that "
        "stands for each of them is under 'parts' in the file."
    )


def _mixing(paper: MixingCertificate) -> Iterator[str]:
    yield from (*_section("Claim")[1:], *wrapped_lines(str(paper)))
    yield from _section("What it rests on")
    for assumption in paper.assumptions:
        yield from _item(f"{assumption.text} ({assumption.status})")
    note = note_text(_MIXING_NOTE)
    wanted = [text for title, text in _sections(note) if title in ("Setting", "Statement")]
    yield from _section("Why")
    yield from _quoted("\n\n".join(wanted), _MIXING_NOTE)


def _theorem(*bounds: Bound) -> Iterator[str]:
    """Yield where bounds come from, and what their note states of all of them."""
    yield from _section(f"Why: {', '.join(bound.title for bound in bounds)}")
    for bound in bounds:
        how = "Proved in" if _is_own(bound) else "Published as"
        yield from wrapped(f"{how} {bound.citation.short()}.")
    yield ""
    yield from _quoted(statement_of(bounds[0]), bounds[0].note)


def _by_hand(proofs: Iterable[tuple[Run, Mapping[str, Any]]]) -> Iterator[str]:
    yield from _section("How to check it by hand")
    yield from wrapped_lines(
        "Put the run and the free choices below (the witness) into the statement above; every "
        "choice that meets its conditions is a proof, whoever found it. The digest is the SHA-256 "
        "of the file's other fields as JSON with sorted keys and no spaces. 'dplateau verify' does "
        "both with code that shares nothing with the code that made the claim."
    )
    for run, witness in proofs:
        yield from ("", "  run", *_fields(run.to_dict()), "  free choices", *_fields(witness))
        if not witness:
            yield "    (this theorem has no free choice)"


def _fields(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _fields({f"{name}.{inner}": below for inner, below in value.items()})
            continue
        text = json.dumps(value)
        yield f"    {name} = {text if len(text) <= 60 else text[:57] + '...'}"


# --- the notes ----------------------------------------------------------------------------------


def note_text(note: str) -> str:
    """Return a page of the docs by its path in the repository, such as ``docs/format.md``."""
    package = Path(str(resources.files("dplateau")))
    for root in (package, package.parents[1]):
        if (root / note).is_file():
            return (root / note).read_text(encoding="utf-8")
    raise InvalidInput(f"{note} is not installed here; read it in the project's repository")


def statement_of(bound: Bound) -> str:
    """Return what a bound's proof note states about it: setting, theorem, and no proof.

    A note says which of its sections is about a bound: by the bound's name in a heading, or by the
    number of a theorem behind its name or in its citation. One without sections is taken whole.
    """
    text = note_text(bound.note)
    sections = list(_sections(text))
    named = [body for title, body in sections if f"`{bound.name}`" in title]
    if not named:
        behind = re.search(rf"`{bound.name}` \((Theorem \d+)", text)
        own = re.search(r"Theorem \d+", bound.citation.statement) if _is_own(bound) else None
        wanted = behind[1] if behind else own[0] if own else None
        named = [body for title, body in sections if wanted and re.match(rf"{wanted}\b", title)]
    if not named:
        return text.strip()
    setting = [body for title, body in sections if title == "Setting"]
    return "\n\n".join([_intro(text), *setting, *named])


def _is_own(bound: Bound) -> bool:
    return bound.citation.statement.startswith("docs/")


def _intro(text: str) -> str:
    """Return what stands before the first section, the title included."""
    return re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0].strip()


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield (title, text) of every section below the page's title, each without its proofs."""
    marks = list(_HEADING.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    parts = [
        (len(m[1]), m[2].strip(), text[m.start() : end].strip())
        for m, end in zip(marks, ends, strict=True)
    ]
    for place, (level, title, body) in enumerate(parts):
        if level == 1 or title.startswith("Proof"):
            continue
        rest = parts[place + 1 :]
        size = next((i for i, (deeper, _, _) in enumerate(rest) if deeper <= level), len(rest))
        inner = [inside for _, name, inside in rest[:size] if not name.startswith("Proof")]
        yield title, "\n\n".join([body, *inner])


# --- lines --------------------------------------------------------------------------------------


def _section(title: str) -> list[str]:
    return ["", title, "-" * len(title)]


def _item(text: str) -> list[str]:
    return wrapped(text, "  - ")


def _joined(block: str) -> str:
    """Return a paragraph or a list with every sentence in one line, for wrapping anew."""
    return re.sub(r"\n(?!\s*(?:[-*]|\d+\.) )\s*", " ", block)


def _quoted(text: str, note: str) -> Iterator[str]:
    for place, block in enumerate(re.split(r"\n{2,}", text)):
        if place:
            yield "  |"
        if re.search(r"^(?:#|```|\||    )", block, re.MULTILINE):
            yield from (f"  | {line}".rstrip() for line in block.split("\n"))
        else:
            yield from wrapped_lines(_joined(block), "  | ")
    yield ""
    yield from wrapped_lines(f"The proof is in {note}, which travels with the package.")
