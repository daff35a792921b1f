"""Every example in the documentation runs.

A page of docs/ is a story: its `python` blocks run in order in one namespace, and the lines
`$ dplateau ...` of its `console` and `bash` blocks run in a shell, all in one folder that holds
nothing but the project's `examples`. The commands of README.md stand for themselves: each runs in
an empty folder of its own. A block in another language, such as `text`, is only shown.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

FENCED = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<body>.*?)^ *(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One fenced block of a page; `line` is where its text starts."""

    language: str
    line: int
    text: str


def blocks(page: str) -> Iterator[Block]:
    for match in FENCED.finditer(page):
        indent = len(match["indent"])
        text = "".join(line[indent:] for line in match["body"].splitlines(keepends=True))
        yield Block(match["language"], page.count("\n", 0, match.start("body")) + 1, text)


def commands(block: Block) -> Iterator[str]:
    """Return the `$ dplateau ...` lines of a console's block, continued lines joined."""
    if block.language not in {"console", "bash"}:
        return
    joined = re.sub(r"\\\n *(?:> )?", "", block.text)
    yield from re.findall(r"^\$ (dplateau\b.*)$", joined, re.MULTILINE)


def run_python(block: Block, namespace: dict[str, Any], name: str) -> None:
    if ">>> " in block.text:
        parsed = doctest.DocTestParser().get_doctest(
            block.text, namespace, name, name, block.line - 1
        )
        runner = doctest.DebugRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        runner.run(parsed, clear_globs=False)
        namespace.update(parsed.globs)
    else:
        # Leading newlines make a traceback show the line of the page.
        exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), namespace)


def run_command(command: str, where: str) -> None:
    scripts = str(Path(sys.executable).parent)
    done = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": scripts + os.pathsep + os.environ["PATH"]},
    )
    assert done.returncode == 0, f"{where}: {command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python":
            run_python(block, namespace, str(page))
        elif page != README:
            for command in commands(block):
                run_command(command, f"{page.name}:{block.line}")


def readme_commands() -> list[str]:
    shown = blocks(README.read_text(encoding="utf-8"))
    return [command for block in shown for command in commands(block)]


@pytest.mark.parametrize("command", readme_commands())
def test_a_command_of_the_readme_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_command(command, README.name)


def test_the_readme_shows_both_ways_in() -> None:
    shown = blocks(README.read_text(encoding="utf-8"))
    assert any(block.language == "python" for block in shown)
    assert readme_commands()


def test_blocks_are_found_with_their_lines() -> None:
    python, text = "```python\nx = 1\n```\n", "- b\n  ```text\n  y\n  ```\n"
    console = "```console\n$ dplateau a \\\n  b\nout\n```\n"
    found = list(blocks("a\n" + python + text + console))
    assert [block[:2] for block in found] == [("python", 3), ("text", 7), ("console", 10)]
    assert found[1].text == "y\n"
    assert list(commands(found[2])) == ["dplateau a b"]


def test_a_wrong_example_fails() -> None:
    namespace: dict[str, Any] = {}
    run_python(Block("python", 1, ">>> x = 2\n>>> x\n2\n"), namespace, "page")
    run_python(Block("python", 4, "y = x + 1\n"), namespace, "page")
    assert namespace["y"] == 3
    with pytest.raises(doctest.DocTestFailure):
        run_python(Block("python", 5, ">>> y\n4\n"), namespace, "page")
    with pytest.raises(AssertionError, match="page:7"):
        run_command("exit 3", "page:7")
