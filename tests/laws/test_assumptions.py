"""A claim names every property of the losses that its proof uses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from catalogue import RUNS
from dplateau.algorithms import Run
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS, HISTORICAL
from dplateau.certificates.certify import assumptions_of
from dplateau.errors import DplateauError

DELTA = 1e-5
# A word of the assumption, and the declaration without the property.
PROPERTIES: dict[str, dict[str, Any]] = {
    "convex": {"convex": False, "strong_convexity": 0.0},
    "strongly convex": {"strong_convexity": 0.0},
    "smooth": {"smoothness": math.inf, "dissipativity": None},
    "dissipative": {"dissipativity": None},
    "convex-concave": {"saddle": False},
}


def _stated(run: Run, bound: Bound) -> str:
    return " | ".join(assumption.text for assumption in assumptions_of(run, bound))


def _says_less_without(run: Run, bound: Bound, declared: dict[str, Any]) -> bool:
    """Whether the same proof is refused, or weaker, if the property is not declared."""
    assert run.loss is not None
    weaker = run.replace(loss=replace(run.loss, **declared))
    if bound.refusal(weaker) is not None:
        return True
    witness = bound.plan(run, DELTA)
    try:
        return bound.curve(weaker, witness).epsilon(DELTA) > bound.curve(run, witness).epsilon(
            DELTA
        ) * (1 + 1e-9)
    except DplateauError:
        return True


@pytest.mark.parametrize("bound", [*BOUNDS, *HISTORICAL], ids=lambda bound: bound.name)
def test_what_a_proof_uses_of_the_losses_is_among_its_assumptions(bound: Bound) -> None:
    for name, run in RUNS.items():
        if run.loss is None or bound.refusal(run) is not None:
            continue
        stated = _stated(run, bound)
        assert "loss is ," not in stated, name
        for word, without in PROPERTIES.items():
            changed = replace(run.loss, **without)
            if word not in stated and changed != run.loss:
                assert not _says_less_without(run, bound, without), (name, word)
