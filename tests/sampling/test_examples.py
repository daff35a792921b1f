"""The sampling examples run, agree with their references, and draw their pictures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("name", "bias"), [("truncated_logistic", 0.12), ("power_prior", 0.12)])
def test_an_example_agrees_with_its_reference(name: str, bias: float, tmp_path: Path) -> None:
    picture = tmp_path / "marginal.png"
    script = ROOT / "examples" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), "--draws", "800", "--picture", str(picture)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(
        r"^ +\d +([+-][\d.]+) \(([\d.]+)\) +([+-][\d.]+) \(([\d.]+)\)$", done.stdout, re.M
    )
    assert len(rows) >= 2
    for ours, ours_sd, theirs, theirs_sd in rows:
        assert abs(float(ours) - float(theirs)) < bias
        assert abs(float(ours_sd) - float(theirs_sd)) < bias
    assert "total variation at most 0.00" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
