"""What is shipped: pinned locks, one version everywhere, and a wheel that stands on its own."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dplateau
from dplateau.bounds.registry import BOUNDS, HISTORICAL

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

LOCKS = {"run.txt": ("all",), "test.txt": ("test",)}

NAME = r"[a-z0-9]+(?:-[a-z0-9]+)*"
PINNED = re.compile(
    rf"(?P<name>{NAME})==(?P<version>[^\s;]+)(?P<marker> ; [^\\]+?)?"
    r"(?: --hash=sha256:[0-9a-f]{64})+"
)
ABSOLUTE_PATH = re.compile(r"(?:^|[\s\"'=(@])(?:/|~|[A-Za-z]:\\)\w*", re.MULTILINE)
BRIDGES = ("torch", "opacus", "jax", "onnx", "onnxruntime", "ray", "starlette", "uvicorn")


def lock_text(lock: str) -> str:
    return (ROOT / "locks" / lock).read_text(encoding="utf-8")


def requirement_lines(lock: str) -> list[str]:
    """Return one line for each requirement, its continuation lines joined, comments left out."""
    joined = re.sub(r" *\\\n *", " ", lock_text(lock))
    return [line for line in joined.splitlines() if line and not line.lstrip().startswith("#")]


def pins(lock: str) -> dict[str, str]:
    found = [PINNED.fullmatch(line) for line in requirement_lines(lock)]
    return {match["name"]: match["version"] for match in found if match}


def declared(extras: tuple[str, ...]) -> list[Requirement]:
    """Return what pyproject.toml asks for, following extras that name other extras."""
    wanted = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in extras:
        for line in PROJECT["optional-dependencies"][extra]:
            requirement = Requirement(line)
            if requirement.name == PROJECT["name"]:
                wanted += declared(tuple(requirement.extras))
            else:
                wanted.append(requirement)
    return wanted


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_and_hashed(lock: str) -> None:
    lines = requirement_lines(lock)
    assert lines
    assert [line for line in lines if not PINNED.fullmatch(line)] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_name_no_place(lock: str) -> None:
    text = lock_text(lock)
    assert ":" + "//" not in text
    assert ABSOLUTE_PATH.findall(text) == []
    assert [line for line in text.splitlines() if line.startswith("-")] == []


@pytest.mark.parametrize(
    "line", ["pkg @ /somewhere/pkg.whl", "    # via -r /somewhere/in.txt", "-f ~wheels"]
)
def test_an_absolute_path_would_be_seen(line: str) -> None:
    assert ABSOLUTE_PATH.search(line)


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items())
def test_locks_follow_pyproject(lock: str, extras: tuple[str, ...]) -> None:
    locked = pins(lock)
    for requirement in declared(extras):
        version = locked.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is not in locks/{lock}; run make lock"
        assert requirement.specifier.contains(version), f"{requirement}, locked at {version}"


def test_the_test_lock_contains_the_run_lock() -> None:
    assert pins("run.txt").items() <= pins("test.txt").items()


@pytest.mark.parametrize("lock", LOCKS)
def test_the_build_backend_is_locked(lock: str) -> None:
    assert {"hatchling", "editables"} <= pins(lock).keys()


def test_one_version_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    cited = re.search(r"^version: \"?([^\s\"]+)\"?$", citation, re.MULTILINE)
    newest = re.search(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)
    assert cited is not None
    assert newest is not None
    assert {dplateau.__version__, cited[1], newest[1]} == {PROJECT["version"]}


@pytest.mark.parametrize("lock", LOCKS)
def test_bridges_are_never_locked(lock: str) -> None:
    assert not set(BRIDGES) & pins(lock).keys()


# Imported only by a program that runs inside them, and so has them.
HOSTS = {"IPython"}


def test_imports_are_declared() -> None:
    """Whatever the library imports, somebody who installs it (with extras) must get."""
    distributions = importlib.metadata.packages_distributions()
    # Bridges are not installed here; their packages have the names that they are imported by.
    distributions = {name: [name] for name in BRIDGES} | dict(distributions)
    wanted = {
        canonicalize_name(requirement.name)
        for requirement in declared(("all", "opacus", "onnx", "ray", "explore"))
    }
    undeclared = {
        f"{path.relative_to(SOURCE)} imports {top}"
        for path in SOURCE.rglob("*.py")
        for top in imported_packages(path)
        if top not in {PROJECT["name"], *HOSTS, *sys.stdlib_module_names}
        and not wanted & {canonicalize_name(name) for name in distributions.get(top, [])}
    }
    assert undeclared == set()


def imported_packages(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), ".")
    (built,) = out.glob("*.whl")
    return built


def call(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    modules = {
        path.relative_to(SOURCE).as_posix()
        for path in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.pyi")]
    }
    assert modules | {"dplateau/py.typed"} <= names
    assert {name.partition("/")[0] for name in names} == {"dplateau"}
    pages = {bound.note for bound in (*BOUNDS, *HISTORICAL)} | {"docs/format.schema.json"}
    assert {f"dplateau/{page}" for page in pages} <= names
    explorer = SOURCE / "dplateau" / "explore" / "page"
    assets = {p.relative_to(SOURCE).as_posix() for p in explorer.rglob("*") if p.is_file()}
    assert "dplateau/explore/page/vendor/LICENSE.txt" in assets <= names
    unwanted = re.compile(r"(^|/)(__pycache__|tests?|conftest|test_\w+)(/|\.)")
    assert [name for name in names if unwanted.search(name)] == []


def test_the_wheel_states_its_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (place,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(place).decode())
        license = archive.read(place.replace("/METADATA", "/licenses/LICENSE")).decode()
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Version"] == PROJECT["version"]
    assert license.startswith("MIT License")


def test_the_wheel_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    call(*pip, "--target", str(tmp_path), str(wheel))
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import dplateau; "
        "[getattr(dplateau, name) for name in dplateau.__all__]; "
        "from dplateau.report.explanation import note_text; "
        "assert note_text('docs/theory/blocks.md'); print(dplateau.__file__)"
    )
    place = call(sys.executable, "-I", "-c", script).strip()
    assert Path(place).is_relative_to(tmp_path)
