"""The papers' own numbers, and that the page in docs/ is what the command writes today."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from command_line import here
from dplateau.errors import InvalidInput
from dplateau.reproduce import EXHIBITS, Exhibit, exhibit_named, page_of

ROOT = Path(__file__).resolve().parents[2]
made = cache(exhibit_named)


def value(exhibit: Exhibit, what: str) -> tuple[float | None, float]:
    return next((row.theirs, row.ours) for row in exhibit.rows if row.what == what)


@pytest.mark.parametrize("name", EXHIBITS)
def test_every_number_is_finite_and_every_line_is_drawn(name: str) -> None:
    exhibit = made(name)
    assert exhibit.rows
    assert all(math.isfinite(row.ours) for row in exhibit.rows)
    for panel in exhibit.panels:
        for line in panel.lines:
            assert line.x.shape == line.y.shape
            assert np.all(np.isfinite(line.y))


# The papers' columns of the others are counts, or formulas that are no bounds.
BOUNDS = sorted(EXHIBITS.keys() - {"noise-scales", "moments", "joint-range"})


@pytest.mark.parametrize("name", BOUNDS)
def test_ours_is_never_worse(name: str) -> None:
    """Numbers of statements that are sound are upper bounds of the same thing."""
    for row in made(name).rows:
        if row.theirs is not None:
            assert row.ours <= row.theirs * (1 + 1e-9), row


def test_published_numbers() -> None:
    # Asoodeh, Diaz and Calmon (2020), Figure 2, record 20; Figure 3, records 20 and 39.
    theirs, ours = value(made("one-pass"), "delta of record 20 at epsilon 0.1")
    assert theirs == pytest.approx(3.060674e-10, rel=2e-6)
    assert ours <= 3.060675e-10
    strongly = made("one-pass-strongly-convex")
    assert value(strongly, "delta of record 20 at epsilon 1")[0] == pytest.approx(
        1.03598e-13, rel=1e-6
    )
    assert value(strongly, "delta of record 39 at epsilon 2")[0] == pytest.approx(
        0.02504814, rel=1e-6
    )
    # Asoodeh et al. (2021), conversions at delta 1e-5.
    closed, optimal = value(made("conversions"), "order 5, divergence 0.5")
    assert closed == pytest.approx(2.752728, abs=1e-6)
    assert optimal == pytest.approx(2.716384, abs=2e-6)


def test_the_plateau_is_flat_and_above_the_lower_bound() -> None:
    exhibit = made("plateau")
    ten, hundred = exhibit.rows[1].ours, exhibit.rows[2].ours
    assert hundred == pytest.approx(ten, rel=1e-9)
    lines = {line.label: line for line in exhibit.panels[0].lines}
    lower, ours = lines["exact lower bound"], lines["hidden iterates"]
    assert np.all(lower.y <= np.interp(lower.x, ours.x, ours.y) * (1 + 1e-3))


def test_no_pair_of_laws_leaves_the_joint_range() -> None:
    reached = made("joint-range").rows[0].ours
    assert 0.99 < reached <= 1 + 1e-9


def test_the_closed_form_is_below_the_grid() -> None:
    grid, closed = value(made("shift-energy"), "sum of squares")
    assert grid is not None
    assert grid * 0.99 < closed <= grid


def test_hiding_needs_less_noise_the_longer_the_run() -> None:
    lines = {line.label: line.y for line in made("noise-scales").panels[0].lines}
    gain = lines["privacy-loss distribution"] / lines["hidden iterates"]
    assert np.all(np.diff(gain) > -1e-3)
    assert gain[-1] > 4


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"(?<=\| )-?\d[\d.e+-]*(?= )", text)]


def test_the_page_is_what_the_command_writes() -> None:
    page = (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    now = page_of([made(name) for name in EXHIBITS], "images")
    assert re.sub(r"\| .* \|", "", page) == re.sub(r"\| .* \|", "", now)
    assert numbers(page) == pytest.approx(numbers(now), rel=1e-4)
    for name in EXHIBITS:
        if made(name).panels:
            assert (ROOT / f"docs/images/reproduce-{name}.png").is_file()


def test_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    done = here("reproduce", "conversions", "-o", str(folder))
    assert done.returncode == 0
    assert "1.917997" in done.stdout
    assert (folder / "images/reproduce-conversions.png").read_bytes().startswith(b"\x89PNG")
    assert "![From R" in (folder / "reproduce.md").read_text(encoding="utf-8")
    assert here("reproduce", "--list").stdout.split() == list(EXHIBITS)
    done = here("reproduce", "nothing")
    assert done.returncode == 2
    assert "there is no exhibit 'nothing'; there are plateau" in done.stderr


def test_an_unknown_exhibit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="there is no exhibit"):
        exhibit_named("table 9")
