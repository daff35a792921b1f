"""The demonstration trains, accounts, and says what hiding the iterates saves."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from dplateau.cli import main


def test_the_demonstration_shows_models_and_claims(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    number = r"\s+([\d.]+)\s+│"
    rows = re.findall(rf"│\s+(0\.\d{{3}})\s+│{number * 5}", said)
    accuracies, proved, pld, rdp, advanced, naive = (
        [float(value) for value in column] for column in zip(*rows, strict=True)
    )
    assert proved == [0.5, 1.0, 2.0, 8.0, 2.0]
    # Ten classes: guessing has 0.1. More privacy budget, better model.
    assert accuracies[0] > 0.6 < accuracies[-1]
    assert accuracies[3] > 0.9 > accuracies[0]
    # The planned runs are charged as composed; the hidden one would cost far more so. Rows are
    # whitened, and the second moments take a tenth of the squared Gaussian parameter.
    assert all(0.93 * whole < p < whole for p, whole in zip(pld[:4], proved[:4], strict=True))
    assert pld[-1] > 2 * proved[-1]
    assert all(a <= b <= c <= d for a, b, c, d in zip(pld, rdp, advanced, naive, strict=True))
    assert "times less for the same noise" in said


def test_a_plain_install_shows_what_it_can() -> None:
    script = "import sys; sys.modules['sklearn'] = None; import dplateau.cli as c; c.main(['demo'])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No models here: private estimators need the extra train: pip")
    assert "times less for the same noise" in done.stdout
