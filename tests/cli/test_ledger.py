"""The commands ``ledger ...``: what is printed, what is written, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dplateau import foreign
from dplateau.cli import main
from forging import forged

RUN = ["gd", "--n", "100", "--steps", "4", "--noise-multiplier", "10", "--release", "all"]


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(words)
    out, err = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, out, err


def parsed(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    code, out, _ = run([*words, "--json"], capsys)
    assert code == 0
    return json.loads(out)


@pytest.fixture
def certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "certificate.json"
    assert run(["account", *RUN, "--delta", "1e-5", "-o", str(path)], capsys)[0] == 0
    return path


def test_a_budget_from_first_to_last(
    tmp_path: Path, certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = str(tmp_path / "survey.ledger")
    made = parsed(["ledger", "init", book, "--epsilon", "2", "--delta", "1e-5"], capsys)
    assert made["settings"]["neighbors"] == "add_remove"
    paid = parsed(["ledger", "spend", book, str(certificate), "--name", "churn"], capsys)
    assert paid["entry"]["status"] == "spent"
    declared = ["ledger", "declare", book, "--name", "a count", "--epsilon", "0.2"]
    assert parsed(declared, capsys)["entry"]["what"] == "(0.2, 0)-DP (declared)"
    code, out, _ = run(["ledger", "spend", book, str(certificate)], capsys)
    assert code == 0
    assert "spent on certificate.json: " in out
    code, _, err = run(["ledger", "declare", book, "--name", "too much", "--mu", "3"], capsys)
    assert code == 1
    assert "needs mu 3.001, and mu 0." in err  # rounded up
    shown = parsed(["ledger", "show", book], capsys)
    assert [entry["status"] for entry in shown["entries"]] == ["spent"] * 3 + ["refused"]
    code, out, _ = run(["ledger", "show", book, "--head", paid["head"]], capsys)
    assert code == 0
    assert shown["head"] in out
    assert "neighbors by adding or removing one record" in " ".join(out.split())
    # What is left, said by the command, is what the next command pays for.
    planned = tmp_path / "next.json"
    found = parsed(["ledger", "plan-next", book, *RUN, "-o", str(planned)], capsys)
    assert found["varied"] == "noise_multiplier"
    last = parsed(["ledger", "spend", book, str(planned)], capsys)
    assert last["entry"]["left"] < 0.01
    code, _, err = run(["ledger", "spend", book, str(certificate)], capsys)
    assert code == 1
    assert "is left" in err


def test_planned_releases(
    tmp_path: Path, certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, plan = str(tmp_path / "a.ledger"), ["--planned", str(certificate)] * 2
    made = parsed(["ledger", "init", book, "--epsilon", "3", "--delta", "1e-5", *plan], capsys)
    assert made["planned_left"] == 2
    code, out, _ = run(["ledger", "spend", book, str(certificate)], capsys)
    assert code == 0
    assert "planned" in out
    assert "1 of 2 parts not spent yet" in run(["ledger", "show", book], capsys)[1]
    again = ["ledger", "init", str(tmp_path / "b.ledger"), "--epsilon", ".2", "--delta", "1e-5"]
    code, _, err = run([*again, *plan], capsys)
    assert code == 1
    assert "the plan was refused" in err
    assert not (tmp_path / "b.ledger").exists()


def test_a_first_cost_and_what_it_leaves_add_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = str(tmp_path / "a.ledger")
    assert run(["ledger", "init", book, "--epsilon", "1", "--delta", "0"], capsys)[0] == 0
    declared = ["ledger", "declare", book, "--name", "a", "--epsilon", "0.3"]
    said = "spent on a: first, 30 %; 70 % of the budget is left"
    assert said in run(declared, capsys)[1]


def test_refusals_speak_of_options_and_keep_names(
    tmp_path: Path, certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = str(tmp_path / "a.ledger")
    words = ["--epsilon", "3", "--delta", "1e-5", "--neighbors", "replace"]
    assert run(["ledger", "init", book, *words], capsys)[0] == 0
    spend = ["ledger", "spend", book, str(certificate), "--name", "the batch_size of NoisyGD"]
    code, _, err = run(spend, capsys)
    assert code == 1
    assert "refused 'the batch_size of NoisyGD': it speaks of" in err
    assert err.endswith("certify the run with --neighbors replace\n")
    code, _, err = run(["ledger", "plan-next", book, *RUN], capsys)
    assert code == 1
    assert "a.ledger cannot pay for this run: it speaks of neighbors by add_remove" in err
    assert err.endswith("certify the run with --neighbors replace\n")


def test_a_declared_part_in_a_file_is_planned_and_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, part = str(tmp_path / "a.ledger"), tmp_path / "part.json"
    declared = foreign(epsilon=0.2, delta=0.0, neighbors="add_remove", name="a histogram")
    part.write_text(declared.to_json())
    words = ["ledger", "init", book, "--epsilon", "3", "--delta", "1e-5", "--planned", str(part)]
    assert parsed(words, capsys)["planned_left"] == 1
    spent = parsed(["ledger", "spend", book, str(part)], capsys)["entry"]
    assert (spent["what"], spent["amount"]) == ("(0.2, 0)-DP (declared)", None), "as planned"
    assert parsed(["ledger", "spend", book, str(part)], capsys)["entry"]["amount"] > 0
    part.write_text(json.dumps(forged(json.loads(part.read_text()), law=None)))
    code, _, err = run(["ledger", "spend", book, str(part)], capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{part}: " in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["spend", "BOOK", "BOOK"], "UTF-8|not a certificate"),
        (["spend", "BOOK", "none.json"], "cannot read"),
        (["declare", "BOOK", "--name", "x"], "one of --epsilon"),
        (["declare", "BOOK", "--name", "x", "--epsilon", "1", "--mu", "1"], "one of --epsilon"),
        (["declare", "BOOK", "--name", "x", "--epsilon", "nan"], "must be a real number"),
        (["init", "BOOK", "--epsilon", "1", "--delta", "1e-5"], "exists already"),
        (["init", "none/a", "--epsilon", "1", "--delta", "1e-5"], "there is no folder"),
        (["plan-next", "none", *RUN], "there is no ledger"),
        (["plan-next", "BOOK", "gd"], "gd needs --n"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    book = str(tmp_path / "a.ledger")
    assert run(["ledger", "init", book, "--epsilon", "1", "--delta", "1e-5"], capsys)[0] == 0
    code, _, err = run(["ledger", *(book if w == "BOOK" else w for w in words)], capsys)
    assert code == 2
    assert err.count("\n") == 1
    assert any(part in err for part in message.split("|"))


def test_a_certificate_that_does_not_verify_is_refused_and_on_record(
    tmp_path: Path, certificate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = str(tmp_path / "a.ledger")
    assert run(["ledger", "init", book, "--epsilon", "5", "--delta", "1e-5"], capsys)[0] == 0
    found = json.loads(certificate.read_text())
    half = found["content"]["claim"]["epsilon"] / 2
    certificate.write_text(json.dumps(forged(found, claimed_epsilon=half)))
    code, _, err = run(["ledger", "spend", book, str(certificate)], capsys)
    assert code == 1
    assert "not verified" in err
    assert parsed(["ledger", "show", book], capsys)["entries"][0]["status"] == "refused"
