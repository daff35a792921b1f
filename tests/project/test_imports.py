"""Importing the library is cheap, and every name it offers is there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import dplateau

# Loaded only when something that needs them is called.
LATE = (
    "scipy",
    "sklearn",
    "numba",
    "matplotlib",
    "dp_accounting",
    "pandas",
    "mpmath",
    "typer",
    "rich",
)


def modules_after(statement: str) -> set[str]:
    """Return the top packages that a new interpreter has loaded after the statement."""
    script = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_import_loads_no_heavy_package() -> None:
    assert modules_after("import dplateau") & set(LATE) == set()


def test_listing_the_names_loads_no_heavy_package() -> None:
    assert modules_after("import dplateau; dir(dplateau)") & set(LATE) == set()


def test_a_heavy_package_would_be_seen() -> None:
    assert "scipy" in modules_after("import scipy.special")


def test_every_listed_name_is_there() -> None:
    missing = [name for name in {*dir(dplateau), *dplateau.__all__} if not hasattr(dplateau, name)]
    assert missing == []


def test_every_public_name_is_listed_once() -> None:
    assert set(dplateau.__all__) <= set(dir(dplateau))
    assert len(set(dplateau.__all__)) == len(dplateau.__all__)


def test_a_name_that_a_room_has_too_stays_the_name() -> None:
    """`dplateau.verify` is the function, whether or not the room of that name has been loaded."""
    script = (
        "import dplateau; first = dplateau.verify; import dplateau.verify.verdict; "
        "assert callable(first) and dplateau.verify is first; "
        "from dplateau.verify import verify; assert verify is first"
    )
    assert "dplateau" in modules_after(script)
    assert "dplateau" in modules_after("import dplateau.verify, dplateau; dplateau.verify({})")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = dplateau.no_such_name
