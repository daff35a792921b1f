"""The glossary: each word once, and every name it gives is one of the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| word"))
]


def test_a_word_is_explained_once() -> None:
    words = [word.partition(" (of")[0] for row in ROWS for word in row[0].split(", ")]
    assert len(words) > 30
    assert len(set(words)) == len(words)
    assert all(len(row) == 3 and row[1] for row in ROWS)


def test_names_of_the_code_are_there() -> None:
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    names = re.findall(r"`([\w./]+)`", PAGE)
    assert len(names) >= 8
    for name in names:
        if "/" in name:
            assert (ROOT / name).is_file(), name
        else:
            assert re.search(rf"\b{name.rpartition('.')[2]}\b", code), name


def test_the_site_and_the_architecture_lead_to_it() -> None:
    assert "Glossary: glossary.md" in (ROOT / "mkdocs.yml").read_text("utf-8")
    assert "(glossary.md)" in (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_a_class_that_has_a_word_for_its_name_is_the_only_one() -> None:
    words = {
        "".join(part.title() for part in word.partition(" (of")[0].split())
        for row in ROWS
        for word in row[0].split(", ")
    }
    folders = (ROOT / "src", ROOT / "tools")
    code = "\n".join(p.read_text("utf-8") for folder in folders for p in folder.rglob("*.py"))
    named = [name for name in re.findall(r"^class (\w+)", code, re.MULTILINE) if name in words]
    assert len(named) > 10
    # What the page of the explorer shows is a setting in the same sense.
    assert [name for name in set(named) if named.count(name) > 1] == ["Setting"]
