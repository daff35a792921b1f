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
from itertools import groupby
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
# Pages that are their section: beside them there is nothing to list.
ALONE = ("index.md", "tutorial.md")

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
# A symbol with an index in running text, such as X_t or delta_k.
SYMBOL = re.compile(
    r"(?<![\w`/.(\[-])(?:[A-Za-z]|alpha|beta|delta|mu|nu|phi|xi|zeta)'?_(?:\w\b|tau\b|\{[^}]*\})"
)
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
# Behind an underscore or a punctuation mark of a name or a call, unless an entity stands there.
WORD_END = re.compile(r"([_(,=./:](?=\w))")
SHIM = re.compile(r"https://unpkg\.com/iframe-worker/shim")
OWN_SHIM = "assets/iframe-worker/shim.js"
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
FUNCTIONS = {"sqrt", "sum", "prod", "max", "min", "log", "ln", "exp", "ceil", "floor", "abs"}
# How a word of a formula is written in AsciiMath, where that differs.
SPELLED = {
    "Ybar": "bar Y",
    "sbar": "bar s",
    "eps": "varepsilon",
    "epsilon": "varepsilon",
    "inf": "oo",
    "integral": "int",
    "sup": '"sup"',  # which AsciiMath takes for a superset
}
# Operators and products of letters: what else a formula may be made of.
OPERATORS = {"Proj", "Bin", "Bernoulli", "TV", "far", "prox", "diag"}
NAMES = OPERATORS | {"quad", "mod", "in", "law", "of", "against"}
LETTERS = {"pP", "qP", "PQ", "yz"}
SYMBOLS = GREEK | FUNCTIONS | LETTERS | {"in", "ox", "quad", "larr"}
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
    if page.file.src_uri in ALONE:
        page.meta["hide"] = ["navigation"]
    known = {file.src_uri for file in files}
    text = LINK.sub(lambda link: _linked(link, page.file.src_uri, known), markdown)
    return formulas(text) if page.file.src_uri.startswith("theory/") else text


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Let long names in narrow tables break where their words end, and nowhere else."""

    def broken(cell: re.Match[str]) -> str:
        return CODE.sub(lambda code: WORD_END.sub(r"\1<wbr>", code[0]), cell[0])

    return CELL.sub(broken, content)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Let search in pages opened as files use the copy of its helper that the site carries."""
    return SHIM.sub(posixpath.relpath(OWN_SHIM, posixpath.dirname(page.url) or "."), output)


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """Do the same for the page of what is not found, which stands at the top."""
    return SHIM.sub(OWN_SHIM, output)


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
    text = re.sub(r"<(\w+, ?\w+)>", r"(:\1:)", text).replace(" (x) ", " ox ")
    text = re.sub(r"([<>]?=) (max|min)\b", r"\1 \\ \2", text)  # else they touch
    text = re.sub(r"\b([A-Za-z])([0-9])\b", r"\1_\2", text)  # k1, l2
    # AsciiMath wants subscripts before superscripts, and primes as superscripts.
    text = re.sub(rf"\^{INDEX}_{INDEX}", r"_\2^\1", text)
    text = re.sub(rf"'_{INDEX}\^{INDEX}", r"_\1^{'\2}", text)
    text = re.sub(rf"'_{INDEX}", r"_\1^'", text)
    text = re.sub(r"(?<=[\w)\]])(?<!\^)'", "^'", text)
    text = re.sub(r"_([A-Za-z0-9]+)", r"_{\1}", text)
    text = re.sub(r" \. ", " * ", text)
    text = PHRASE.sub(lambda match: _phrased(match[0]), text)
    return text.replace('( " ', '("').replace(' " )', '")')


def _phrased(text: str) -> str:
    """Return words as one text, with the blanks between them, and symbols as they are."""
    if text in OPERATORS:
        return f' "{text}" '
    parts = re.split(r"([ -])", text)  # words, and between them what separates them
    shown = ""
    for symbol, run in groupby(range(0, len(parts), 2), key=lambda i: _is_symbol(parts[i])):
        places = list(run)
        piece = "".join(parts[places[0] : places[-1] + 1])
        if symbol:
            piece = WORD.sub(lambda word: SPELLED.get(word[0], word[0]), piece)
        elif piece != "a":  # a point, not an article
            piece = f' " {piece} " '
        shown += (parts[places[0] - 1] if places[0] else "") + piece
    return shown


def _is_symbol(word: str) -> bool:
    return word in SYMBOLS or word in SPELLED


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
    yield "Every command prints its help with `--help`; with `--json` results are JSON.\n"
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
        shown = [parameter for parameter in command.params if not _hidden(parameter)]
        if shown:
            yield "| option | meaning | default |\n|---|---|---|"
            for panel in dict.fromkeys(map(_panel, shown)):
                yield from [f"| **{panel}** | | |"] if panel else []
                yield from (_row(parameter) for parameter in shown if _panel(parameter) == panel)
            yield ""


def _panel(parameter: Any) -> str | None:
    """Return under which title the help shows an option."""
    panel = getattr(parameter, "rich_help_panel", None)
    return str(panel) if panel else None


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
