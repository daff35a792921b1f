"""The compiled functions: the same answers with and without the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dplateau.ground.compiled import Compiled, compiled


@compiled
def halved(value: float) -> float:
    """Half of it."""
    return value / 2


@compiled
def halved_sum(count: int) -> float:
    total = 0.0
    for i in range(count):
        total += halved(float(i))
    return total


def test_helpers_are_compiled_along() -> None:
    assert halved_sum(10) == 22.5
    assert halved_sum.function(10) == 22.5


def test_wrapper_keeps_the_docstring() -> None:
    assert isinstance(halved, Compiled)
    assert halved.__doc__ == "Half of it."


@pytest.mark.parametrize("heavy", ["numba", "scipy"])
def test_importing_the_room_loads_nothing_heavy(heavy: str) -> None:
    script = f"import sys, dplateau.shifts; print({heavy!r} in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
