"""The library is a row of rooms; a room imports only rooms that stand before it.

The tables below are the rules, and the tests read every import of every file (inside functions and
type-checking blocks too). docs/architecture.md says what each room is for.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "dplateau"

# From the ground up: a room may import itself and what stands before it, nothing else.
# "__init__" is the package's own front door and "__main__" what `python -m dplateau` runs.
ROOMS = (
    "errors",
    "ground",
    "numerics",
    "curves",
    "algorithms",
    "losses",
    "shifts",
    "bounds",
    "verify",
    "certificates",
    "ledger",
    "audit",
    "engines",
    "planning",
    "estimators",
    "tables",
    "opacus",
    "onnx",
    "sampling",
    "plots",
    "notebook",
    "reproduce",
    "report",
    "explore",
    "__init__",
    "cli",
    "__main__",
)

# Files of audit that compare attacks with certificates or sample runs, and so may look at both.
# All its other files compute exact privacy losses and must owe nothing to what they attack.
AUDIT_DRIVERS = ("audit.against_claims", "audit.monte_carlo*")

# Stricter than the row: these may import from the library only what is named, and themselves.
# A checker that shares code with the claim it checks would share its mistakes.
NARROW = {
    "algorithms": ("errors", "ground"),
    "verify": ("errors", "ground", "algorithms"),
    "audit": ("errors", "ground", "algorithms"),
    "losses": ("errors", "ground", "algorithms"),
    "engines": ("errors", "ground", "algorithms", "losses"),
}
NOT_NARROW = {"audit": AUDIT_DRIVERS}

# Packages that only some places may import.
ONLY_IN = {
    "matplotlib": ("plots",),
    "typer": ("cli",),
    "rich": ("cli", "ground.progress"),
    "IPython": ("ground.progress",),
    "dp_accounting": (
        "verify",
        "algorithms.base",
        "algorithms.dp_events",
        "certificates.certificate",
        "certificates.dp_events",
    ),
    "numba": ("ground.compiled",),
    "cryptography": ("engines", "ground.signatures"),
    "sklearn": ("estimators",),
    "pyarrow": ("engines.arrow", "tables"),
    "ray": ("engines.cluster",),
    "torch": ("opacus",),
    "opacus": ("opacus",),
    "onnx": ("onnx",),
    "starlette": ("explore.server",),
    "uvicorn": ("explore.server",),
}

# All that these rooms may import from outside, the standard library apart.
OUTSIDE = {
    "errors": (),
    "ground": ("numpy", "numba", "cryptography", "rich", "IPython", "joblib"),
    "verify": ("numpy", "scipy", "mpmath", "dp_accounting"),
}

# Thin typed wrappers around packages without types: the only files that may silence a checker.
TYPED_WRAPPERS = ("ground/compiled.py", "verify/composed.py", "verify/precise.py")

# The stubs of the lazy doors import too, when a name of theirs is first used.
FILES = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")])


class Import(NamedTuple):
    """One imported module: `dplateau.curves.base` is "curves.base", inside the library."""

    line: int
    inside: bool
    target: str


def module_name(path: Path) -> str:
    """Return the dotted name below `dplateau`; the front door is "__init__"."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    return module.partition(".")[0]


MODULES = {module_name(path) for path in FILES}


def under(module: str, place: str) -> bool:
    """Return whether the module is the place (a pattern) or lies inside it."""
    return fnmatch(module, place) or fnmatch(module, f"{place}.*")


def under_any(module: str, places: tuple[str, ...]) -> bool:
    return any(under(module, place) for place in places)


def resolved(dotted: str) -> tuple[bool, str]:
    """Split a full dotted name into (is it ours, its name below `dplateau`)."""
    top, _, below = dotted.partition(".")
    return (True, below or "__init__") if top == "dplateau" else (False, dotted)


def imports(path: Path, text: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, *resolved(alias.name))
        elif isinstance(node, ast.ImportFrom):
            source = absolute(path, node)
            for alias in node.names:
                inside, name = resolved(f"{source}.{alias.name}")
                # `from package import name`: a module when there is one, else a thing in `package`.
                if inside and name not in MODULES and name not in ROOMS:
                    name = resolved(source)[1]
                yield Import(node.lineno, inside, name)


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """Return the full name of the module that a (perhaps relative) import names."""
    if not node.level:
        return node.module or ""
    package = ("dplateau", *path.relative_to(PACKAGE).parts[:-1])
    base = package[: len(package) - node.level + 1]
    return ".".join((*base, *((node.module,) if node.module else ())))


def faults(path: Path, text: str) -> list[str]:
    """Return every import of the file that a rule forbids, in words."""
    module = module_name(path)
    found = []
    for line, inside, target in imports(path, text):
        reason = inside_fault(module, target) if inside else outside_fault(module, target)
        if reason:
            found.append(f"{path.relative_to(PACKAGE)}:{line}: {reason}")
    return found


def inside_fault(module: str, target: str) -> str | None:
    here, there = room(module), room(target)
    if there not in ROOMS:
        return f"{target} is in no room"
    if ROOMS.index(there) > ROOMS.index(here):
        return f"{here} stands before {there} and must not import {target}"
    narrow = here in NARROW and not under_any(module, NOT_NARROW.get(here, ()))
    if narrow and here != there and not under_any(target, NARROW[here]):
        return f"{module} may import only {', '.join(NARROW[here])}, not {target}"
    door = module == here
    if narrow and not door and under_any(target, NOT_NARROW.get(here, ())):
        return f"{module} must stay independent of what {target} imports"
    return None


def outside_fault(module: str, target: str) -> str | None:
    top = room(target)
    if top in sys.stdlib_module_names:
        return None
    if top in ONLY_IN and not under_any(module, ONLY_IN[top]):
        return f"only {', '.join(ONLY_IN[top])} may import {top}"
    allowed = OUTSIDE.get(room(module))
    if allowed is not None and top not in allowed:
        return f"{room(module)} may import only {', '.join(allowed) or 'nothing'} from outside"
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_rooms_import_only_what_stands_before_them(path: Path) -> None:
    assert room(module_name(path)) in ROOMS, "a new room needs its place in ROOMS"
    assert faults(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("curves/base.py", "from dplateau.bounds.base import Bound"),
        ("curves/base.py", "from dplateau import bounds"),
        ("curves/base.py", "from dplateau import certify"),
        ("curves/base.py", "import dplateau"),
        ("curves/base.py", "from ..bounds import base"),
        ("curves/base.py", "def late():\n    import dplateau.bounds.base"),
        ("curves/base.py", "if TYPE_CHECKING:\n    from dplateau.certificates import Certificate"),
        ("curves/base.py", "from dplateau.attic import thing"),
        ("curves/__init__.pyi", "from ..bounds.base import Bound as Bound"),
        ("curves/base.py", "import matplotlib.pyplot as plt"),
        ("algorithms/base.py", "from dplateau.curves import PrivacyCurve"),
        ("algorithms/base.py", "from dplateau.shifts import chain"),
        ("verify/report.py", "from dplateau.numerics.normal import log_gaussian_delta"),
        ("verify/report.py", "from dplateau.bounds.registry import BOUNDS"),
        ("verify/report.py", "import numba"),
        ("audit/walks.py", "from dplateau.numerics import normal"),
        ("audit/walks.py", "from dplateau.certificates import certify"),
        ("audit/walks.py", "from dplateau.audit.against_claims import tightness"),
        ("audit/walks.py", "from . import monte_carlo_walk"),
        ("certificates/certificate.py", "from rich.table import Table"),
        ("bounds/compositions.py", "from dp_accounting.pld import privacy_loss_distribution"),
        ("errors.py", "import numpy"),
    ],
)
def test_a_forbidden_import_would_be_seen(
    where: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imagined = {"audit.monte_carlo_walk", "numerics.normal"}
    monkeypatch.setitem(globals(), "MODULES", MODULES | imagined)
    assert len(faults(PACKAGE / where, text)) == 1


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("shifts/chain.py", "from dplateau.algorithms import Run"),
        ("verify/report.py", "from dplateau.algorithms import Run\nfrom scipy import special"),
        ("verify/report.py", "from dplateau.verify import recompute"),
        ("audit/walks.py", "from dplateau.ground.compiled import compiled"),
        ("audit/__init__.py", "from dplateau.audit.against_claims import tightness"),
        ("audit/against_claims.py", "from dplateau.certificates import certify"),
        ("audit/monte_carlo_walk.py", "from dplateau.curves import PrivacyCurve"),
        ("certificates/certificate.py", "from dplateau.verify import verify"),
        ("plots/frontier.py", "import matplotlib.pyplot as plt"),
        ("cli/app.py", "import typer\nimport dplateau\nfrom rich.table import Table"),
        ("__init__.py", "from dplateau.certificates import certify"),
        ("__main__.py", "from dplateau.cli import main"),
    ],
)
def test_a_lawful_import_passes(where: str, text: str) -> None:
    assert faults(PACKAGE / where, text) == []


def test_only_the_wrappers_silence_the_type_checker() -> None:
    silenced = re.compile(r"#\s*(type:\s*ignore|mypy:|pyright:)")
    guilty = {
        path.relative_to(PACKAGE).as_posix()
        for path in FILES
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
        if token.type == tokenize.COMMENT and silenced.search(token.string)
    }
    assert guilty <= set(TYPED_WRAPPERS)


def test_nothing_is_imported_by_name() -> None:
    by_name = {"import_module", "__import__"}
    guilty = {
        path.relative_to(PACKAGE).as_posix()
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name | ast.Attribute | ast.alias)
        and {getattr(node, field, None) for field in ("id", "attr", "name")} & by_name
    }
    assert guilty == set()


def test_the_architecture_page_describes_every_room_in_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    described = re.findall(r"^### `(\w+)`$", page, re.MULTILINE)
    assert described == [name for name in ROOMS if not name.startswith("__")]


def test_the_architecture_page_names_every_file_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL))
    for room, text in sections.items():
        files = {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__"}
        assert files <= set(re.findall(r"`(\w+)`", text)), room
        assert named_in_tables(text) <= files, room
    folders, tools = page.split("## Outside the package")[1].split("`tools` holds")
    assert all((ROOT / folder).is_dir() for folder in named_in_tables(folders))
    assert named_in_tables(tools) == {path.stem for path in (ROOT / "tools").glob("*.py")}


def named_in_tables(text: str) -> set[str]:
    """Return the names in the first column."""
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", " ".join(cells)))
