"""The demonstration trains, accounts, and says what hiding the iterates saves."""

from __future__ import annotations

import re

import pytest

from dplateau.cli import main


def test_the_demonstration_shows_models_and_claims(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    rows = re.findall(r"│\s+(0\.\d{3})\s+│\s+([\d.]+)\s+│\s+([\d.]+)\s+│", said)
    accuracies = [float(accuracy) for accuracy, _, _ in rows]
    proved = [float(epsilon) for _, epsilon, _ in rows]
    charged = [float(epsilon) for _, _, epsilon in rows]
    assert proved == [0.5, 1.0, 2.0, 8.0, 2.0]
    # Ten classes: guessing has 0.1. More privacy budget, better model.
    assert accuracies[0] > 0.6 < accuracies[-1]
    assert accuracies[3] > 0.9 > accuracies[0]
    # The planned runs are charged as composed; the hidden one would cost far more so.
    assert charged[:4] == proved[:4]
    assert charged[-1] > 2 * proved[-1]
    assert "times less for the same noise" in said
