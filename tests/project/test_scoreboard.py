"""The scoreboard's files, page and README say the same, and what they say is sound."""

from __future__ import annotations

import copy
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import optimize, special

ROOT = Path(__file__).resolve().parents[2]


def loaded(name: str) -> ModuleType:
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


PAGE, REFEREE = loaded("scoreboard_page"), loaded("referee")
FOUND: dict[str, dict[str, Any]] = PAGE.results()


@pytest.mark.parametrize("path", [PAGE.PAGE, PAGE.README], ids=lambda path: path.name)
def test_tables_are_those_of_the_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ": from benchmarks/results -->" in text
    assert PAGE.filled(text, FOUND) == text


def test_every_table_has_a_place() -> None:
    text = PAGE.PAGE.read_text(encoding="utf-8") + PAGE.README.read_text(encoding="utf-8")
    assert [name for name in PAGE.TABLES if f"<!-- {name}: from" not in text] == []


def test_another_result_would_be_seen() -> None:
    text = PAGE.README.read_text(encoding="utf-8")
    other = {**FOUND, "utility": {**FOUND["utility"], "rows": FOUND["utility"]["rows"][1:]}}
    assert PAGE.filled(text, other) != text


def test_peers_that_are_not_there_are_shown_as_such() -> None:
    """As the measuring writes it where an environment is missing: no table falls over."""
    absent = {"error": "not installed"}
    known, family = {"dplateau", "dp-accounting PLD"}, copy.deepcopy(FOUND)
    for row in family["accounting"]["rows"]:
        if row["accountant"] not in known:
            row.update(version=None, epsilon=absent, noise=absent, curve=absent)
    family["training"]["rows"] = [
        row if row["trainer"] in {"dplateau", "NumPy"} else {**row, **absent}
        for row in family["training"]["rows"]
    ]
    for row in family["robustness"]["rows"]:
        for name in row["answers"].keys() - known:
            row["answers"][name] = {"value": None, **absent, "verdict": "not installed"}
    ours, *_ = family["sampling"]["drawing"]
    family["sampling"]["drawing"] = [ours, {"sampler": "blackjax", **absent}]
    page = PAGE.filled(PAGE.PAGE.read_text(encoding="utf-8"), family)
    for name in ("riskcal CTD |", "| Opacus", "| blackjax |", "*not installed*"):
        assert any("not installed" in line for line in page.splitlines() if name in line), name
    readme = PAGE.filled(PAGE.README.read_text(encoding="utf-8"), family)
    assert "a hand-written loop" in readme
    assert "DP-SGD library, examples" not in readme


@pytest.mark.parametrize("family", PAGE.FAMILIES)
def test_files_are_of_whole_runs_and_name_versions(family: str) -> None:
    assert FOUND[family]["quick"] is False
    where = FOUND[family]["machine"].keys()
    assert {"dplateau", "python", "numpy", "processors"} <= where
    assert where & {"load", "others"}


def test_no_claim_of_ours_lies_below_a_lower_bound() -> None:
    for row in FOUND["tightness"]["rows"]:
        assert row["lower"] <= row["hidden"] <= row["released"] * (1 + 1e-9)
    released = next(r for r in FOUND["accounting"]["rows"] if r["accountant"] == "dplateau")
    assert FOUND["accounting"]["lower"] <= released["epsilon"]["value"]
    for row in FOUND["robustness"]["rows"]:
        ours = row["answers"]["dplateau"]
        assert ours["verdict"] == "right"
        assert ours["value"] >= row["lower"]
    for row in FOUND["sampling"]["mixing"]:
        assert row["truth"] <= row["certified"]


def test_all_families_of_runs_and_peers_are_there() -> None:
    assert len(FOUND["tightness"]["rows"]) == 7
    assert len(FOUND["robustness"]["rows"]) == 9
    asked = {row["accountant"] for row in FOUND["accounting"]["rows"]}
    packages = {name.split()[0] for name in asked}
    assert packages >= {"dplateau", "dp-accounting", "opacus", "jax-privacy", "prv-accountant"}
    assert {"autodp", "riskcal"} <= packages


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon of a Gaussian whose mean moves by mu deviations, in closed form."""

    def gap(epsilon: float) -> float:
        first = special.log_ndtr(mu / 2 - epsilon / mu)
        second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
        return float(first + math.log(-math.expm1(second - first)) - math.log(delta))

    return float(optimize.brentq(gap, 1e-6, 1e4))


@pytest.mark.parametrize(
    ("sigma", "steps", "delta"), [(2.0, 4, 1e-5), (3.0, 9, 1e-30), (0.5, 2, 1e-3)]
)
def test_referee_is_just_below_exact_gaussians(sigma: float, steps: int, delta: float) -> None:
    exact = gaussian_epsilon(math.sqrt(steps) / sigma, delta)
    lower = REFEREE.lower_epsilon(1.0, sigma, steps, delta)
    assert exact * (1 - 1e-3) < lower < exact


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta"), [(0.01, 1.0, 1000, 1e-6), (0.2, 0.7, 3, 1e-3)]
)
def test_referee_is_just_below_pessimistic_distributions(
    q: float, sigma: float, steps: int, delta: float
) -> None:
    one = pld.from_gaussian_mechanism(
        sigma, sampling_prob=q, value_discretization_interval=1e-4, use_connect_dots=True
    )
    upper = one.self_compose(steps).get_epsilon_for_delta(delta)
    lower = REFEREE.lower_epsilon(q, sigma, steps, delta)
    assert upper * (1 - 5e-3) < lower < upper


def test_referee_continues_the_closed_form_of_one_step() -> None:
    one, two = (REFEREE.lower_epsilon(0.3, 1.0, steps, 1e-4) for steps in (1, 2))
    assert one < two < 2 * one
