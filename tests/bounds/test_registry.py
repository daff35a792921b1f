"""What every registered bound must bring along."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS, HISTORICAL, bound_named
from site_pages import COMMAND_LINE

ROOT = Path(__file__).parents[2]
ALL = (*BOUNDS, *HISTORICAL)


def test_names_are_unique_and_found() -> None:
    names = [bound.name for bound in ALL]
    assert len(set(names)) == len(names)
    assert [bound_named(name).name for name in names] == names
    with pytest.raises(ValueError, match="no bound is named 'nothing'; known are"):
        bound_named("nothing")


@pytest.mark.parametrize("bound", ALL, ids=lambda bound: bound.name)
def test_every_bound_has_a_proof_note_that_names_it(bound: Bound) -> None:
    text = (ROOT / bound.note).read_text(encoding="utf-8")
    assert f"`{bound.name}`" in text
    assert len(text) > 400


@pytest.mark.parametrize("bound", ALL, ids=lambda bound: bound.name)
def test_every_bound_cites_a_statement(bound: Bound) -> None:
    entry = bound.citation.bibtex()
    assert entry.startswith("@misc{")
    assert re.search(r"Theorem|Proposition|Corollary|section|docs/theory|Algorithm", entry)
    assert bound.citation.short()


def test_domination_names_real_bounds() -> None:
    names = {bound.name for bound in ALL}
    for bound in ALL:
        assert names.issuperset(bound.dominated_by)
        assert bound.name not in bound.dominated_by


def test_links_between_notes_resolve() -> None:
    made_with_the_site = ROOT / "docs" / COMMAND_LINE
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", page.read_text(encoding="utf-8")):
            place = page.parent / target
            assert place.exists() or place == made_with_the_site, f"{page.name} links to {target}"
