"""The site is built without a warning, asks no other host for anything, and has every name."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import site_pages  # noqa: E402


class Page(HTMLParser):
    """Every reference of a page, its anchors, and whether formulas stand in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.references: list[tuple[str, str]] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in {"href", "src"} and value is not None:
                self.references.append((f"{tag} {name}", value))
            if name in {"id", "name"} and value is not None:
                self.anchors.add(value)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def references(pages: dict[Path, Page]) -> Iterator[tuple[Page, str, str]]:
    for page in pages.values():
        for kind, target in page.references:
            yield page, kind, target


def test_no_page_loads_anything_from_another_host(pages: dict[Path, Page], site: Path) -> None:
    loaded = {
        (page.path.name, target)
        for page, kind, target in references(pages)
        if not kind.startswith("a ") and urlsplit(target).scheme in {"http", "https"}
    }
    assert loaded == set()
    sheets = (path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not any(re.search(r"url\(\s*['\"]?https?:", sheet) for sheet in sheets)


def test_every_link_leads_somewhere(pages: dict[Path, Page], site: Path) -> None:
    broken = []
    for page, kind, target in references(pages):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc or target in {"", "."}:
            continue
        path = page.path if not parts.path else (page.path.parent / unquote(parts.path)).resolve()
        anchor = unquote(parts.fragment)
        if not path.exists() or (
            anchor and path in pages and anchor not in pages[path].anchors and anchor != "__top"
        ):
            broken.append(f"{page.path.relative_to(site)}: {kind} {target}")
    assert broken == []


def test_every_public_name_is_in_the_reference(pages: dict[Path, Page]) -> None:
    stub = ast.parse((ROOT / "src/dplateau/__init__.pyi").read_text(encoding="utf-8"))
    public = {
        alias.asname
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    shown = set().union(*(page.anchors for page in pages.values()))
    missing = {name for name in public if not any(a.endswith(f".{name}") for a in shown)}
    assert missing == set()


def test_every_picture_is_in_the_gallery() -> None:
    pages = ("gallery.md", "reproduce.md")
    gallery = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages)
    pictures = sorted(path.name for path in (ROOT / "docs/images").glob("*.png"))
    assert [name for name in pictures if name not in gallery] == []


def test_every_command_is_in_the_reference(site: Path) -> None:
    page = (site / "reference/command-line.html").read_text(encoding="utf-8")
    for command in ("account", "compare", "calibrate", "verify", "train", "ledger spend"):
        assert f"dplateau {command}" in page


def test_names_in_tables_break_where_their_words_end(site: Path) -> None:
    page = (site / "how-to/coming-from.html").read_text(encoding="utf-8")
    assert "<code>l2_<wbr>norm_<wbr>clip</code>" in page
    before, _, _ = (site / "tables.html").read_text(encoding="utf-8").partition("<table")
    assert "<wbr>" not in before


def test_search_finds_a_theorem(site: Path) -> None:
    index = (site / "search/search_index.js").read_text(encoding="utf-8")
    assert "aligned mixtures" in index


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("nu_t C_t", "nu_{t} C_{t}"),
        ("b^i_t", "b_{t}^i"),
        ("X'_t", "X_{t}^'"),
        ("theta_g(a)", "theta_{g}(a)"),
        ("eps <= l2", "varepsilon <= l_{2}"),
        ("beta'^j_t", "beta_{t}^{'j}"),
        ("sup_A P(A)", '"sup"_{A} P(A)'),
        ("<x, w_j>", "(:x, w_{j}:)"),
        ("P (x) I", "P ox I"),
        ("for every i quad or quad a = 0", ' " for every "  i quad  " or "  quad a = 0'),
    ],
)
def test_formulas_become_asciimath(written: str, read: str) -> None:
    assert site_pages.asciimath(written) == read


@pytest.mark.parametrize("code", ["poisson_blocks", "docs/theory/x.md", 'release="last"', "f()"])
def test_code_is_no_formula(code: str) -> None:
    assert not site_pages.is_formula(code)
    assert site_pages.formulas(f"see `{code}`") == f"see `{code}`"


def test_proof_notes_have_formulas(site: Path) -> None:
    for note in ("blocks", "iteration", "momentum", "ordered", "fixed_size"):
        text = (site / "theory" / f"{note}.html").read_text(encoding="utf-8")
        assert text.count("\u27e6") == text.count("\u27e7") > 20, note
