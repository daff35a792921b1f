"""CONTRIBUTING's recipes, followed to the letter: their code runs and obeys the laws."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplateau import NoisyGD, train
from dplateau.bounds import registry
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.errors import InvalidInput
from falsify import attack
from laws import test_laws as laws
from losses import test_constants as constants

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def section_of(heading: str) -> str:
    return TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]


def code_of(heading: str) -> dict[str, Any]:
    """Run the code block under a heading and return what it defines."""
    (block,) = re.findall(r"^ *```python\n(.*?)^ *```", section_of(heading), flags=re.S | re.M)
    names: dict[str, Any] = {}
    exec(compile(textwrap.dedent(block), "CONTRIBUTING.md", "exec"), names)
    return names


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Bound:
    """Register the bound of the recipe."""
    bound: Bound = code_of("How to add a bound")["MyBound"]()
    monkeypatch.setattr(registry, "BOUNDS", (*BOUNDS, bound))
    return bound


@pytest.mark.parametrize(
    "law",
    [
        laws.test_random_settings_reach_every_bound,
        laws.test_more_noise_never_raises_epsilon,
        laws.test_a_curve_falls_and_answers_both_ways,
        laws.test_a_certificate_is_its_curve,
        laws.test_more_steps_never_lower_epsilon,
    ],
)
def test_the_bound_obeys_the_laws(law: Any, recipe: Bound) -> None:
    law(recipe.name)


def test_the_bound_survives_the_attacks_and_is_beaten_by_the_one_that_optimizes(
    recipe: Bound,
) -> None:
    better = bound_named("gd_bounded")
    for chosen in laws.examples(recipe.name):
        assert attack(chosen.run, chosen.delta, bounds=[recipe]).violations() == []
        asked = (chosen.run, chosen.delta)
        assert laws.epsilon(better, *asked) <= laws.epsilon(recipe, *asked) * (1 + 1e-9)


def test_the_bound_refuses_in_words_and_wrong_witnesses(recipe: Bound) -> None:
    run = laws.examples(recipe.name)[0].run
    assert "releases all of them" in str(recipe.refusal(run.replace(release="all")))
    assert "needs a bounded domain" in str(recipe.refusal(run.replace(domain=None)))
    for last_steps in (0, run.steps + 1):
        with pytest.raises(InvalidInput, match=r"last_steps must lie in \[1, "):
            recipe.curve(run, {"last_steps": last_steps})


def test_the_loss_has_the_constants_it_declares_and_trains() -> None:
    loss = code_of("How to add a loss")["LogCosh"]()
    constants.test_the_derivative_is_the_derivative_of_the_value(loss)
    for clip in (None, 0.15, 0.8):
        constants.test_no_record_exceeds_the_constants_and_one_attains_them(loss, 2.0, clip)
    run = NoisyGD(
        n=40,
        steps=30,
        learning_rate=0.5,
        noise_multiplier=1e-6,
        loss=loss.geometry(1.0),
        release="last",
    )
    features = np.linspace(-1.0, 1.0, 40)[:, None]
    weights = train(run, loss, features, 0.7 * features[:, 0], feature_norm=1.0)
    assert weights == pytest.approx([0.7], abs=0.1)


@pytest.mark.parametrize(
    ("heading", "refusal"),
    [
        ("How to add a kind of batches", "refuse_batches("),
        ("How to add a release", "refuse_release("),
    ],
)
def test_the_recipe_names_every_file_that_refuses_an_unknown_kind(
    heading: str, refusal: str
) -> None:
    package = ROOT / "src" / "dplateau"
    asked = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if refusal in path.read_text(encoding="utf-8")
    }
    named = set(re.findall(r"`(\w+/\w+\.py)`", section_of(heading)))
    assert len(asked) > 5
    assert asked <= named
    assert all((package / name).is_file() or (ROOT / name).is_file() for name in named)
