"""The scoreboard's files, page and README say the same, and what they say is sound."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def loaded() -> ModuleType:
    path = ROOT / "benchmarks" / "scoreboard_page.py"
    spec = importlib.util.spec_from_file_location("scoreboard_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGE = loaded()
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


@pytest.mark.parametrize("family", PAGE.FAMILIES)
def test_files_are_of_whole_runs_and_name_versions(family: str) -> None:
    assert FOUND[family]["quick"] is False
    assert {"dplateau", "python", "numpy", "load"} <= FOUND[family]["machine"].keys()


def test_no_claim_of_ours_lies_below_a_lower_bound() -> None:
    for row in FOUND["tightness"]["rows"]:
        assert row["lower"] <= row["hidden"] <= row["released"] * (1 + 1e-9)
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
