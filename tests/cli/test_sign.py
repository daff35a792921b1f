"""The command ``sign`` and ``verify --key``."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dplateau import NoisyGD, certify
from dplateau.bounds.registry import bound_named
from dplateau.cli import main
from forging import forged


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(words)
    out, err = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, out, err


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    described = NoisyGD(n=100, steps=4, noise_multiplier=10.0, release="all")
    found = certify(described, 1e-5, bounds=[bound_named("gdp_composition")])
    path = tmp_path / "certificate.json"
    path.write_text(found.to_json())
    return path


def test_a_signed_certificate_is_accepted_from_its_signer_only(
    tmp_path: Path, certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, theirs = str(tmp_path / "mine.pem"), str(tmp_path / "theirs.pem")
    verify = ["verify", str(certificate), "--key"]
    code, out, _ = run(["sign", str(certificate), "--key", mine, "--new-key"], capsys)
    assert code == 0
    assert "keep it secret" in out
    if os.name == "posix":
        assert stat.S_IMODE(os.stat(mine).st_mode) == 0o600
    code, out, _ = run([*verify, f"{mine}.pub"], capsys)
    assert code == 0
    assert "ok   signature: by the owner of the key" in out
    beside = Path(f"{certificate}.sig")
    kept = beside.read_text()
    assert run(["sign", str(certificate), "--key", theirs, "--new-key"], capsys)[0] == 0
    code, out, _ = run([*verify, f"{mine}.pub", "--json"], capsys)
    assert code == 1
    found = json.loads(out)
    assert not found["ok"]
    assert "another key" in found["checks"][0]["detail"]
    # One byte more, and neither signature fits, though the claim would still verify.
    beside.write_text(kept)
    certificate.write_text(certificate.read_text() + " ")
    assert run(["verify", str(certificate)], capsys)[0] == 0
    code, out, _ = run([*verify, f"{mine}.pub"], capsys)
    assert code == 1
    assert "FAIL signature: the file was altered" in out
    beside.unlink()
    code, out, _ = run([*verify, f"{mine}.pub"], capsys)
    assert code == 1
    assert "FAIL signature: there is no" in out


def test_a_signed_lie_does_not_verify(
    tmp_path: Path, certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(certificate.read_text())
    half = found["content"]["claim"]["epsilon"] / 2
    certificate.write_text(json.dumps(forged(found, claimed_epsilon=half)))
    key = str(tmp_path / "key.pem")
    assert run(["sign", str(certificate), "--key", key, "--new-key"], capsys)[0] == 0
    assert run(["verify", str(certificate), "--key", f"{key}.pub"], capsys)[0] == 1


def test_bad_keys_and_files_are_one_line(
    tmp_path: Path, certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = str(tmp_path / "key.pem")
    assert run(["sign", str(certificate), "--key", key, "--new-key"], capsys)[0] == 0
    for words, message in (
        (["sign", str(certificate), "--key", key, "--new-key"], "exists already"),
        (["sign", str(certificate), "--key", str(tmp_path / "none")], "cannot read"),
        (["sign", str(certificate), "--key", str(certificate)], "not a private Ed25519 key"),
        (["sign", str(tmp_path / "none"), "--key", key], "cannot read"),
        (["verify", str(certificate), "--key", key], "that is a private key"),
        (["verify", str(certificate), "--key", str(certificate)], "not a public Ed25519 key"),
    ):
        code, _, err = run(words, capsys)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


def test_without_cryptography_the_extra_is_named(tmp_path: Path, certificate: Path) -> None:
    script = (
        "import sys; sys.modules['cryptography'] = None; from dplateau.cli import main; "
        "main(sys.argv[1:])"
    )
    words = ["sign", str(certificate), "--key", str(tmp_path / "key"), "--new-key"]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'dplateau[sign]'" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["certificate.json"]
