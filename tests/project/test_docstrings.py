"""What stands at the front door says what it takes, returns and refuses, in one set of words."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import dplateau

FUNCTIONS = [
    name
    for name in dplateau.__all__
    if inspect.isfunction(getattr(dplateau, name)) and not name.startswith("_")
]
CALLED = [
    name
    for name in dplateau.__all__
    if callable(found := getattr(dplateau, name))
    and not (inspect.isclass(found) and issubclass(found, BaseException))
]
# Whatever it is given, its answer is a verdict.
NEVER_RAISE = {"progress", "verify"}


def sections(function: Any) -> dict[str, str]:
    """Return the sections of a numpydoc docstring by their names."""
    parts = re.split(r"^(\w+)\n-+\n", inspect.getdoc(function) or "", flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_what_they_take_return_and_refuse(name: str) -> None:
    function = getattr(dplateau, name)
    told = sections(function)
    assert told["Returns"].strip()
    assert name in NEVER_RAISE or told["Raises"].strip()
    lines = re.findall(r"^(\w[\w, ]*)$", told["Parameters"], flags=re.M)
    named = [one for line in lines for one in line.split(", ")]
    assert named == list(inspect.signature(function).parameters)


def test_the_functions_of_the_front_door_are_all_here() -> None:
    assert {"NoisyGD", "certify", "compare", "calibrate", "train", "verify", "plan"} <= {*FUNCTIONS}


@pytest.mark.parametrize("name", CALLED)
def test_one_word_for_one_thing(name: str) -> None:
    """``random_state`` as scikit-learn has it, on estimators; ``seed`` everywhere else."""
    taken = set(inspect.signature(getattr(dplateau, name)).parameters)
    assert not taken & {"rng", "random_seed", "eps", "passes", "target_bounds"}
    assert ("random_state" in taken) == name.startswith("Private")
