"""No file of the project names a machine, leaves work marked as undone, or switches a test off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Hidden folders are tool caches and environments, except the one that belongs to the project.
OWN_HIDDEN = {".ci", ".github", ".gitignore"}
GENERATED = {"__pycache__", "build", "dist"}

# Each pattern is written in two halves, so that this file does not contain what it looks for.
FORBIDDEN = {
    "a folder of some machine": (
        r"(?<![\w.])/(?:wo" r"rk|ro" r"ot|tm" r"p|ho" r"me|Use" r"rs|op" r"t)/"
    ),
    "the host of a package registry": r"py" r"pi\.(?:org|io)|python" r"hosted",
    "work left undone": r"\b(?:TO" r"DO|FIX" r"ME)\b",
    "a test that does not run": (
        r"pytest\.(?:mark\.)?(?:sk" r"ip|xfa" r"il|importor" r"skip)|unittest\.sk" r"ip|\+SK" r"IP"
    ),
}


# Prose and names are American; each word in two halves, as above.
BRITISH = (
    r"(?i)neighb"
    r"our|col"
    r"our|behavi"
    r"our|fav"
    r"our|lic"
    r"ence|learn"
    r"t\b|"
    r"\bcent"
    r"red?\b|\bgr"
    r"ey\b|"
    r"(?:optim|minim|maxim|normal|general|regular|discret|random|vector|recogn|organ|summar|linear)"
    r"is"
    r"(?:e|ed|es|ing|er|ation)\b"
)


def project_files(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in GENERATED or (path.name.startswith(".") and path.name not in OWN_HIDDEN):
            continue
        if path.is_dir():
            yield from project_files(path)
        elif b"\0" not in path.read_bytes():
            yield path


def occurrences(pattern: str, text: str) -> list[tuple[int, str]]:
    return [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), start=1)
        if re.search(pattern, line)
    ]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_contains(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line[:120]}"
        for path in project_files()
        for number, line in occurrences(FORBIDDEN[what], path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_spelling_is_american() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line[:120]}"
        for path in project_files()
        if path.suffix in {".py", ".pyi", ".md", ".toml"}
        for number, line in occurrences(BRITISH, path.read_text(encoding="utf-8"))
    ]
    assert found == []
    assert occurrences(BRITISH, "the neighb" + "ours of a regular" + "ised cent" + "re")
    assert not occurrences(BRITISH, "neighbors, centers, a license, otherwise precise, realism")


def test_the_search_covers_the_project() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in project_files()}
    assert {"Makefile", "README.md", ".ci/run", "locks/run.txt"} <= names
    assert {"src/dplateau/__init__.py", "tests/conftest.py", "docs/architecture.md"} <= names
    assert not any(name.startswith(".venv") for name in names)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a folder of some machine", "open('/tm" + "p/x')"),
        ("a folder of some machine", "see /wo" + "rk/notes"),
        ("the host of a package registry", "https://py" + "pi.org/simple"),
        ("work left undone", "# TO" + "DO: later"),
        ("a test that does not run", "@pytest.mark.sk" + "ipif(True)"),
        ("a test that does not run", ">>> f()  # doctest: +SK" + "IP"),
    ],
)
def test_each_pattern_finds_what_it_is_for(what: str, text: str) -> None:
    assert occurrences(FORBIDDEN[what], text)


@pytest.mark.parametrize("text", ["#!/usr/bin/env bash", "a/work/b", "xfail_strict = true"])
def test_lawful_text_passes(text: str) -> None:
    assert not any(occurrences(pattern, text) for pattern in FORBIDDEN.values())
