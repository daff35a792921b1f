"""What the site makes of the project's own files while it is built (hooks of MkDocs).

The README is the home page, CHANGELOG and CONTRIBUTING are pages, the command line's reference is
read off the commands, and the formulas of the proof notes, which are written so that they can be
read in a terminal, are marked as AsciiMath for MathJax.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# Pages that are files of the project outside docs/.
FROM_FILES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
COMMAND_LINE = "reference/command-line.md"

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
# A symbol with an index in running text, such as X_t or delta_k.
SYMBOL = re.compile(
    r"(?<![\w`/.(\[-])(?:[A-Za-z]|alpha|beta|delta|mu|nu|phi|xi|zeta)'?_(?:\w\b|tau\b|\{[^}]*\})"
)
INDENTED = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)
# What may stand behind _ or ^: a letter, a number, a Greek letter, or something in brackets.
INDEX = r"(\{[^{}]*\}|\([^()]*\)|[A-Za-z0-9]+|')"
WORD = re.compile(r"[A-Za-z]{2,}")
PHRASE = re.compile(r"[A-Za-z]{2,}(?:[ -](?:a(?= )|[A-Za-z]{2,}))*")

GREEK = {
    *("alpha", "beta", "gamma", "delta", "Delta", "zeta", "eta", "theta", "Theta", "kappa"),
    *("lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "Sigma", "tau", "phi", "Phi", "psi", "chi"),
    "omega",
}
FUNCTIONS = {"sqrt", "sum", "prod", "max", "min", "log", "ln", "exp", "sup", "ceil", "floor", "abs"}
# How a word of a formula is written in AsciiMath, where that differs.
SPELLED = {
    "Ybar": "bar Y",
    "sbar": "bar s",
    "eps": "varepsilon",
    "epsilon": "varepsilon",
    "inf": "oo",
    "integral": "int",
}
# Operators and products of letters: what else a formula may be made of.
OPERATORS = {"Proj", "Bin", "Bernoulli", "TV", "far", "prox", "diag"}
NAMES = OPERATORS | {"quad", "mod", "in", "law", "of", "against"}
LETTERS = {"pP", "qP", "PQ", "yz"}
SYMBOLS = GREEK | FUNCTIONS | LETTERS | {"in", "quad", "larr"}
OF_FORMULAS = GREEK | FUNCTIONS | SPELLED.keys() | NAMES | LETTERS


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made here."""
    from mkdocs.structure.files import File

    for page, source in FROM_FILES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_from_root(text)))
    files.append(File.generated(config, COMMAND_LINE, content="\n".join(command_line())))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Mark formulas, and show as code what a link calls that is no page."""
    known = {file.src_uri for file in files}
    text = LINK.sub(lambda link: _linked(link, page.file.src_uri, known), markdown)
    return formulas(text) if page.file.src_uri.startswith("theory/") else text


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Let search in pages opened as files use the copy of its helper that the site carries."""
    up = posixpath.relpath("assets/iframe-worker/shim.js", posixpath.dirname(page.url) or ".")
    return re.sub(r"https://unpkg\.com/iframe-worker/shim", up, output)


def _from_root(text: str) -> str:
    """Return a page of the project's root with links as they are seen from docs/."""
    return re.sub(r"(\]\(|src=\")(?:docs/)", r"\1", text)


def _linked(link: re.Match[str], page: str, known: set[str]) -> str:
    """Return the link to a page of the site, or the text alone where there is none."""
    target = link["target"]
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    here = posixpath.dirname(page)
    path = posixpath.normpath(posixpath.join(here, target))
    outside = path.removeprefix("../")
    for name, source in FROM_FILES.items():
        if outside == source:
            path = name
    if path.startswith("docs/"):
        path = path.removeprefix("docs/")
    if path in known:
        return f"[{link['text']}]({posixpath.relpath(path, here or '.')}{link['anchor'] or ''})"
    if (ROOT / outside).exists() or (ROOT / "docs" / outside).exists():
        return link["text"]
    return link[0]


# ---- formulas -----------------------------------------------------------------------------------


def formulas(markdown: str) -> str:
    """Return a proof note with its formulas marked for MathJax, code left as it is."""
    kept: list[str] = []

    def put_aside(text: str) -> str:
        kept.append(text)
        return f"\x00{len(kept) - 1}\x00"

    text = FENCE.sub(lambda fence: put_aside(fence[0]), markdown)
    text = INDENTED.sub(lambda block: put_aside(_display(block[0])), text)
    text = SPAN.sub(lambda span: put_aside(_inline(span[1])), text)
    text = SYMBOL.sub(lambda symbol: put_aside(_inline(symbol[0])), text)
    return re.sub("\x00(\\d+)\x00", lambda place: kept[int(place[1])], text)


def is_formula(text: str) -> bool:
    """Return whether a code span is mathematics: it has no word that formulas do not have."""
    if re.search(r"=['\"]|\"|\.(?:py|md|json)\b|\(\)|--|::", text):
        return False
    return all(word in OF_FORMULAS for word in WORD.findall(text))


def asciimath(text: str) -> str:
    """Return a formula of a proof note in AsciiMath: words that are no symbols stand in quotes."""
    text = re.sub(r"\s+", " ", text.strip())
    text = text.replace("||", ' "‖" ').replace("<-", " larr ").replace("(*)", '("*")')
    text = re.sub(r"(?<=\w)\*(?!\w)", '^"*"', text)  # g*, a point of its own
    text = re.sub(r"\b([A-Za-z])([0-9])\b", r"\1_\2", text)  # k1, l2
    # AsciiMath wants subscripts before superscripts, and primes as superscripts.
    text = re.sub(rf"\^{INDEX}_{INDEX}", r"_\2^\1", text)
    text = re.sub(rf"'_{INDEX}", r"_\1^'", text)
    text = re.sub(r"(?<=[\w)\]])(?<!\^)'", "^'", text)
    text = re.sub(r"_([A-Za-z0-9]+)", r"_{\1}", text)
    text = re.sub(r" \. ", " * ", text)
    text = PHRASE.sub(lambda match: _phrased(match[0]), text)
    return text.replace('( " ', '("').replace(' " )', '")')


def _phrased(text: str) -> str:
    """Return words as one text, with the blanks between them, and symbols as they are."""
    words = re.split(r"([ -])", text)
    if any(word in SYMBOLS or word in SPELLED for word in words):
        return "".join(_spelled(word) if WORD.fullmatch(word) else word for word in words)
    return f' "{text}" ' if text in OPERATORS else f' " {text} " '


def _spelled(word: str) -> str:
    if word in SYMBOLS:
        return word
    return SPELLED.get(word, f' "{word}" ')


def _marked(formula: str) -> str:
    """Return AsciiMath between its delimiters, nothing of it left for Markdown to read."""
    escaped = html.escape(asciimath(formula), quote=False)
    for character in "*_[]\\":
        escaped = escaped.replace(character, f"&#{ord(character)};")
    return f"\u27e6{escaped}\u27e7"


def _inline(text: str) -> str:
    return f'<span class="formula">{_marked(text)}</span>' if is_formula(text) else f"`{text}`"


def _display(block: str) -> str:
    lines = [re.sub(r" {3,}", " quad ", line.strip()) for line in block.rstrip("\n").split("\n")]
    shown = "".join(f"<div>{_marked(line)}</div>" for line in lines)
    return f'<div class="formula">{shown}</div>\n'


# ---- the command line ---------------------------------------------------------------------------


def command_line() -> Iterator[str]:
    """Return the reference of all commands, read off the commands themselves."""
    import typer.main

    from dplateau.cli.commands import app

    yield "# Command line\n"
    yield "Every command prints its help with `--help`, and results as JSON with `--json`.\n"
    yield from _commands(typer.main.get_command(app), "dplateau", 2)


def _commands(group: Any, name: str, level: int) -> Iterator[str]:
    for key, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        yield f"{'#' * level} {name} {key}\n"
        yield f"{_plain(command.help)}\n"
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {key}", level + 1)
            continue
        rows = [_row(parameter) for parameter in command.params if not _hidden(parameter)]
        if rows:
            yield "| option | meaning | default |\n|---|---|---|"
            yield "\n".join(rows) + "\n"


def _hidden(parameter: Any) -> bool:
    return bool(getattr(parameter, "hidden", False)) or parameter.name == "help"


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in parameter.opts)
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    meaning = _plain(getattr(parameter, "help", "") or "").replace("\n", " ").replace("|", "\\|")
    default = parameter.default
    required = "required" if parameter.required else ""
    shown = required or (f"`{default}`" if default not in (None, False, (), []) else "")
    return f"| {names} | {meaning} | {shown} |"


def _plain(text: str | None) -> str:
    """Return help without the marks of Rich."""
    return re.sub(r"\[/?[a-z ]+\]", "", text or "").replace("\b", "").strip()
