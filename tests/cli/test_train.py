"""train, predict and schema: real files in, real files out, one line for what is wrong."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dplateau import Ledger
from dplateau.certificates import Certificate, Composition
from dplateau.cli import main
from dplateau.tables import TableModel, read_table
from dplateau.verify import verify

KNOWN = ["--bounds", "age=17:90", "--bounds", "hours=1:99", "--classes", "low,high"]
# Enough passes for the planner to leave sampled batches, whose plans take seconds, out.
QUICK = ["--compute-budget", "500"]


def rows(count: int, seed: int = 1) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    age, hours = rng.integers(17, 91, count), rng.integers(1, 100, count)
    town = rng.choice(["Rome", "Oslo", "Lima"], count)
    score = age + hours + 20 * (town == "Oslo") + rng.normal(0, 5, count)
    income = np.where(score > 110, "high", "low")
    return [list(map(str, row)) for row in zip(age, town, hours, income, strict=True)]


def write(path: Path, body: list[list[str]], header: str = "age,town,hours,income") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(body)
    return path


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "people.csv", rows(4000))


def test_a_table_becomes_a_private_model(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    test = write(tmp_path / "test.csv", rows(1000, seed=2))
    words = ["train", data, "--target", "income", "--epsilon", 2, *KNOWN, *QUICK, "-o", out]
    assert run(*words, "--public-test", test, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["epsilon"] <= 2
    assert said["public_test_score"] > 0.8
    assert sorted(path.name for path in out.iterdir()) == [
        "certificate.json",
        "model.json",
        "report.html",
        "report.txt",
    ]
    found = json.loads((out / "certificate.json").read_text())
    assert verify(found).ok
    whole = Composition.from_dict(found)  # moments for whitening, and gradients
    assert {part.run.n for part in whole.certificates} == {4000}
    report = (out / "report.txt").read_text()
    assert "\n4000 records, " in report
    assert "Exact accuracy on the public test rows" in report
    _path, *lines = report.splitlines()
    assert max(map(len, lines)) <= 80
    assert "1 steps" not in (out / "report.html").read_text()
    assert report.count("Claim: ") == 1
    assert (
        "Neighbors: tables that differ in one row, present in one and absent from the other "
        "(add-remove)" in " ".join(report.split())
    )
    # The claim is about this very model: its file's hash is in the certificate and on the page.
    model = (out / "model.json").read_bytes()
    stated = hashlib.sha256(model).hexdigest()
    certificate = json.loads((out / "certificate.json").read_text())
    said_so = hashlib.sha256(report.encode()).hexdigest()
    assert certificate["content"]["files"] == {"model.json": stated, "report.txt": said_so}
    assert certificate["digest"] in (out / "report.html").read_text()
    assert stated in (out / "report.html").read_text()
    assert run("verify", out / "certificate.json") == 0
    assert "model.json: the one that the claim is about" in capsys.readouterr().out
    assert run("verify", out / "model.json") == 2
    assert "it is a model, and its claim is in certificate.json" in capsys.readouterr().err
    (out / "model.json").write_bytes(model + b" ")
    assert run("verify", out / "certificate.json", "--json") == 1
    verdict = json.loads(capsys.readouterr().out)
    assert not verdict["ok"]
    assert verdict["problem"] == "files: model.json is not the file that the claim is about"
    (out / "model.json").write_bytes(model)
    (out / "report.txt").write_text(report.replace("Claim: (1.", "Claim: (0."))
    assert run("verify", out / "certificate.json") == 1
    assert "report.txt is not the file that" in " ".join(capsys.readouterr().out.split())
    assert run("predict", out / "model.json", test, "-o", tmp_path / "guess.csv") == 0
    guesses = (tmp_path / "guess.csv").read_text().splitlines()
    assert guesses[0] == "income"
    truth = [row[-1] for row in rows(1000, seed=2)]
    right = np.mean([guess == true for guess, true in zip(guesses[1:], truth, strict=True)])
    assert right == pytest.approx(said["public_test_score"])


def test_parquet_is_read_like_csv(data: Path, tmp_path: Path) -> None:
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    parquet.write_table(arrow_csv.read_csv(data), tmp_path / "people.parquet")
    first, second = read_table(data), read_table(tmp_path / "people.parquet")
    assert first.types() == second.types()
    for name, column in first.columns.items():
        assert column.texts() == second.columns[name].texts()
    words = ["--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "-o", tmp_path / "out"]
    assert run("train", tmp_path / "people.parquet", *words) == 0


def test_files_that_are_read_a_part_at_a_time_give_the_same_model(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    monkeypatch.setattr("dplateau.engines.sources.chunks_of.__defaults__", (1 << 12,))
    whole = arrow_csv.read_csv(data)
    parts = tmp_path / "parts"
    parts.mkdir()
    for k in range(3):
        parquet.write_table(whole.slice(1400 * k, 1400), parts / f"{k}.parquet")
    words = ["--target", "income", "--epsilon", 2, *KNOWN, "--compute-budget", 500, "--seed", 3]
    words += ["--categories", "town=Rome,Oslo"]
    assert run("train", data, *words, "-o", tmp_path / "whole") == 0
    files = sorted(parts.iterdir())
    for name, where in (("files", files), ("folder", [parts]), ("kept", [*files, "--scratch"])):
        more = [tmp_path] if name == "kept" else []
        assert run("train", *where, *more, *words, "-o", tmp_path / name) == 0
        found, expected = (
            json.loads((tmp_path / one / "model.json").read_text()) for one in (name, "whole")
        )
        assert np.allclose(found["weights"], expected["weights"], rtol=1e-6)
        assert found["schema"] == expected["schema"]
    capsys.readouterr()
    for where, said in (
        ([*files, data], "people.csv a part at a time: only Parquet"),
        ([*files, "--engine", "spark"], "engine must be"),
        ([*files, "--address", "auto"], "say --engine ray too"),
    ):
        assert run("train", *where, *words, "-o", tmp_path / "no") == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    undeclared = ["--target", "income", "--epsilon", 2, "--bounds", "age=17:90", *KNOWN[2:4]]
    undeclared += ["--ignore", "town", "-o", tmp_path / "no"]
    assert run("train", *files, *undeclared) == 2
    assert "declare them (--classes A,B)" in capsys.readouterr().err


def score_of_divided_rows(text: str, held: int) -> Certificate:
    """Return the score's part of the one certificate, which is about 4000 rows divided in two."""
    assert verify(json.loads(text)).ok
    whole = Composition.from_json(text)
    assert whole.records == "disjoint"
    model, score = whole.parts
    assert isinstance(model, Composition)
    assert isinstance(score, Certificate)
    assert {part.run.n for part in model.certificates} == {4000 - held}
    assert score.run.n == held
    return score


def test_rows_of_files_are_held_out_by_the_same_coins(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    monkeypatch.setattr("dplateau.engines.sources.chunks_of.__defaults__", (1 << 12,))
    parts = tmp_path / "parts"
    parts.mkdir()
    for k in range(3):
        part = arrow_csv.read_csv(data).slice(1400 * k, 1400)
        parquet.write_table(part, parts / f"{k}.parquet")
    words = ["--target", "income", "--epsilon", 2, *KNOWN, "--compute-budget", 200]
    words += ["--categories", "town=Rome,Oslo", "--evaluate-epsilon", 0.5, "--json"]
    said, weights = {}, {}
    for name, where in (("whole", data), ("parts", parts)):
        assert run("train", where, *words, "--seed", 3, "-o", tmp_path / name) == 0
        said[name] = json.loads(capsys.readouterr().out)["evaluation"]
        weights[name] = json.loads((tmp_path / name / "model.json").read_text())["weights"]
    assert said["parts"] == said["whole"]
    assert np.allclose(weights["parts"], weights["whole"], rtol=1e-6)
    # Without a seed there is a claim, about both parts at once.
    assert run("train", parts, *words, "-o", tmp_path / "secret") == 0
    found = json.loads(capsys.readouterr().out)
    held = found["evaluation"]["rows"]
    assert 1.99 <= found["epsilon"] <= 2
    score_of_divided_rows((tmp_path / "secret" / "certificate.json").read_text(), held)


def test_a_score_on_private_rows_is_part_of_the_one_certificate(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "-o", out]
    assert run(*words, "--evaluate-epsilon", 0.5, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    held = said["evaluation"]["rows"]
    assert abs(held - 400) < 6 * 19  # 4000 coins of probability 0.1
    assert said["evaluation"]["metric"] == "accuracy"
    scores, counts = said["evaluation"]["scores"], said["evaluation"]["counts"]
    assert list(scores) == ["accuracy", "balanced accuracy", "AUC", "calibration error"]
    assert counts["classes"] == ["high", "low"]
    cells = np.size(counts["noisy"])
    assert abs(np.sum(counts["noisy"]) - held) < 6 * counts["noise_std"] * cells**0.5
    assert scores["AUC"]["value"] > 0.8
    # A record is in one part only: the worse of both counts.
    assert 0.99 <= said["epsilon"] <= 1
    score = score_of_divided_rows((out / "certificate.json").read_text(), held)
    assert 0.499 <= score.claimed_epsilon <= 0.5
    report = " ".join((out / "report.txt").read_text().split())
    assert "by a coin of its own, so a record is in one of both parts" in report
    assert f"noisy counts of {held} held-out rows by class and score bin, at epsilon 0.5" in report
    assert "balanced accuracy" in report
    assert "predicted observed" in report


def test_a_forged_total_is_refused(data: Path, tmp_path: Path) -> None:
    """Whatever the file says about what left stands under its digest and is re-derived."""
    out = tmp_path / "out"
    words = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "-o", out]
    assert run(*words, "--evaluate-epsilon", 2) == 0
    text = (out / "certificate.json").read_text()
    assert verify(json.loads(text)).ok
    assert "further_releases" not in text
    assert "total_epsilon" not in text
    total = Composition.from_json(text).claimed_epsilon
    assert 1.99 <= total <= 2
    assert text.count(repr(total)) >= 1
    assert not verify(json.loads(text.replace(repr(total), "1.0"))).ok


def test_all_the_rows_of_a_person_are_protected_together(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "-o", out]
    assert run(*words, "--max-records-per-person", 3, "--evaluate-epsilon", 0.5, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["max_records_per_person"] == 3
    # All three rows of a person may be among those held out, or in both parts.
    scale = 3 / 0.5
    assert said["evaluation"]["counts"]["noise_std"] == pytest.approx(2**0.5 * scale, rel=0.01)
    assert 1 < said["epsilon"] <= 1.5
    text = (out / "certificate.json").read_text()
    assert verify(json.loads(text)).ok
    whole = Composition.from_json(text)
    assert whole.records == "same"
    assert {part.run.group_size for part in whole.certificates} == {3}
    report = " ".join((out / "report.txt").read_text().split())
    assert "tables that differ in the rows of one person, at most 3, present in one" in report
    assert "no person has more than 3 records (declared)" in report
    assert "the rows of one person may be in both parts" in report
    guesses = tmp_path / "guesses.csv"
    assert run("predict", out / "model.json", data, "-o", guesses) == 0
    assert len(guesses.read_text().splitlines()) == 4001


def test_the_schema_says_how_many_rows_a_person_has_and_the_flag_has_the_last_word(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "known.toml"
    schema.write_text(
        "max_records_per_person = 2\n[target]\ncolumn = 'income'\nclasses = ['low', 'high']\n"
    )
    words = ["train", data, "--schema", schema, "--epsilon", 1, *KNOWN[:4], *QUICK]
    words += ["-o", tmp_path / "out", "--json"]
    for flag, most in (([], 2), (["--max-records-per-person", 3, "--overwrite"], 3)):
        assert run(*words, *flag) == 0
        assert json.loads(capsys.readouterr().out)["max_records_per_person"] == most
    assert run(*words, "--max-records-per-person", 4001, "--overwrite") == 2
    said = capsys.readouterr().err
    assert "--max-records-per-person 4001, but there are 4000 records; use at most 4000" in said


def test_no_score_is_shown_that_was_not_paid_for(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "-o", tmp_path / "out"]
    assert run("train", data, *words) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "accuracy" not in said.out.lower()


def test_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 3000)
    body = [[f"{a:.4f}", f"{3 * a + rng.normal():.4f}"] for a in x]
    data = write(tmp_path / "line.csv", body, "x,y")
    words = ["--target", "y", "--target-bound", "0:30", "--bounds", "x=0:10", "--epsilon", 2]
    out = tmp_path / "out"
    assert run("train", data, *words, *QUICK, "--public-test", data, "--json", "-o", out) == 0
    assert json.loads(capsys.readouterr().out)["public_test_score"] > 0.9


def test_a_draft_is_filled_in_and_used(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema", data, "--target", "income") == 0
    draft = data.with_name("people.csv.schema.toml")
    text = draft.read_text()
    assert all(value not in text for value in ("Rome", "Oslo", "'low'", "90"))
    assert run("train", data, "--epsilon", 1) == 2
    assert "public range" in capsys.readouterr().err
    filled = text.replace('low = "?"\nhigh = "?"', "low = 0\nhigh = 100")
    draft.write_text(filled.replace("# classes = ['no', 'yes']", "classes = ['low', 'high']"))
    out = data.parent / "out"
    assert run("train", data, "--epsilon", 1, *QUICK, "-o", out) == 0
    model = TableModel.from_json((out / "model.json").read_text())
    assert model.classes is not None
    assert set(model.classes) == {"low", "high"}
    assert run("schema", data, "--target", "income") == 2
    assert "exists" in capsys.readouterr().err


def test_inferred_classes_are_called_a_leak(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--target", "income", "--epsilon", 1, *KNOWN[:4], *QUICK, "-o", tmp_path / "out"]
    assert run("train", data, *words) == 0
    assert "classes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--delta", "0.0003"], "delta = 0.0003 is above 1/n = 0.00025"),
        (["--epsilon", "1e9"], "epsilon = 9.99967e+08 is above 20"),
        (["--epsilon", "0.001"], "the model will hardly work: with n = 4000 records"),
    ],
)
def test_what_promises_little_is_said_and_done(
    words: list[str], reason: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    start = [
        "train",
        data,
        "--target",
        "income",
        "--epsilon",
        1,
        *KNOWN,
        "--compute-budget",
        5,
        "-o",
        out,
    ]
    assert run(*start, *words) == 0
    said = capsys.readouterr()
    assert f"dplateau: warning: {reason}" in said.err
    assert reason in (out / "report.txt").read_text()


def test_names_that_an_output_cannot_encode_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "年.csv"
    path.write_text("年,y\n1,no\n2,yes\n", encoding="utf-8")
    command = [sys.executable, "-m", "dplateau", "schema", path, "--target", "y"]
    done = subprocess.run(
        command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u5e74.csv.schema.toml" in done.stdout


GOOD = "age,town,hours,income\n20,Rome,3,low\n30,Oslo,9,high\n"
BAD_FILES = {
    "missing target": (GOOD.replace("income", "wage"), "no column 'income' to predict"),
    "empty": ("", "is empty"),
    "header only": ("age,town,hours,income\n", "no rows"),
    "wrong encoding": (GOOD.replace("Rome", "Orléans").encode("latin-1"), "UTF-8 text"),
    "empty number": (GOOD.replace("20,", ","), "row 1 of column 'age' is missing"),
    "NaN": (GOOD.replace("20,", "nan,"), "row 1 of column 'age' is missing"),
    "empty text": (GOOD.replace("Rome", ""), "row 1 of column 'town' is missing"),
    "unknown class": (
        GOOD.replace("high", "huge"),
        "row 2 of column 'income', the target, is none of the declared classes",
    ),
    "mixed types": (GOOD.replace("20,", "old,"), "row 1 of column 'age' holds text"),
    "ragged": (GOOD + "1,2\n", "its header has 4 cells, row 3 has 2"),
    "percent": (GOOD.replace("20,", "20%,"), "numbers are written as 1234.5, with no %"),
    "several columns": (
        GOOD.replace("20,", "old,").replace("Rome", "").replace(",9,", ",,"),
        "has 2 problems: (1) row 1 of column 'age' holds text",
    ),
    "missing cells": (
        GOOD.replace("Rome", "").replace(",9,", ",,"),
        "columns 'town', 'hours': there are missing cells: declare",
    ),
    "UTF-16": (GOOD.encode("utf-16"), "UTF-8 text"),
    "two columns of one name": (GOOD.replace("town", "age"), "two columns named 'age'"),
    "huge cell": (GOOD.replace("Rome", "R" * 10**6), "characters"),
    "binary": (bytes(range(256)) * 20, "cannot read"),
}


@pytest.mark.parametrize("case", list(BAD_FILES))
def test_a_bad_file_gives_one_line_and_leaves_nothing(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, reason = BAD_FILES[case]
    path = tmp_path / "bad.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    out = tmp_path / "out"
    assert run("train", path, "--target", "income", "--epsilon", 1, *KNOWN, "-o", out) == 2
    said = capsys.readouterr()
    assert reason in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--bounds", "age=1:2"], "'hours'"),
        ([*KNOWN, "--bounds", "wage=1:2"], "has no column of that name"),
        ([*KNOWN, "--bounds", "age=9"], "LOW:HIGH"),
        ([*KNOWN, "--bounds", "age=9:1"], "low < high"),
        ([*KNOWN, "--hash", "town=x"], "BUCKETS"),
        ([*KNOWN, "--classes", "low"], "at least two"),
        ([*KNOWN, "--epsilon", "-1"], "epsilon"),
        ([*KNOWN, "--neighbors", "swap"], "neighbors"),
        ([*KNOWN, "--public-test", "absent.csv"], "no such file"),
        ([*KNOWN, "--schema", "absent.toml"], "cannot read"),
    ],
)
def test_bad_options_give_one_line(
    words: list[str], reason: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["train", data, "--target", "income", "--epsilon", 1, "-o", tmp_path / "out"]
    assert run(*start, *words) == 2
    said = capsys.readouterr()
    assert reason in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"format": "dplateau/model", "format_version": 9}', "no"]
)
def test_what_is_no_model_is_refused(
    content: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.json"
    path.write_text(content)
    assert run("predict", path, data) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_model_with_weights_that_are_no_numbers_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, *QUICK]
    assert run(*words, "-o", out) == 0
    body = json.loads((out / "model.json").read_text())
    capsys.readouterr()
    for bad in (float("nan"), float("inf")):
        body["weights"][0][1] = bad
        (out / "model.json").write_text(json.dumps(body))
        assert run("predict", out / "model.json", data) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert "model.json: not a model: some of its weights are no finite numbers" in said.err


def test_predictions_with_probabilities_and_identifiers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyarrow import parquet

    body = [[str(1000 + i), *row] for i, row in enumerate(rows(300))]
    data = write(tmp_path / "people.csv", body, "person_id,age,town,hours,income")
    out = tmp_path / "out"
    words = ["train", data, "--target", "income", "--epsilon", 5, *KNOWN, *QUICK]
    assert run(*words, "-o", out) == 0
    assert "34 features from 3 columns (1 ignored)" in capsys.readouterr().out
    more = ["--proba", "--keep", "person_id"]
    for name in ("p.parquet", "p.csv"):
        assert run("predict", out / "model.json", data, "-o", tmp_path / name, *more) == 0
    capsys.readouterr()
    table = parquet.read_table(tmp_path / "p.parquet").to_pydict()
    assert list(table) == ["person_id", "income", "income=high", "income=low"]
    assert table["person_id"][:2] == ["1000", "1001"]
    for guess, high, low in zip(*list(table.values())[1:], strict=True):
        assert high + low == pytest.approx(1)
        assert guess == ("high" if high > low else "low")
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "person_id,income,income=high,income=low"
    assert lines[1].split(",")[:2] == ["1000", table["income"][0]]
    for words, reason in (
        (["-o", tmp_path / "p.xlsx"], "written as .csv or .parquet"),
        (["--keep", "name"], "people.csv has no column 'name'"),
        (["--keep", "income"], "cannot be passed through"),
    ):
        assert run("predict", out / "model.json", data, *words) == 2
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "p.xlsx").exists()
    for read in (data, out / "model.json"):
        before = read.read_bytes()
        assert run("predict", out / "model.json", data, "-o", read) == 2
        assert "would take the place of what is read" in capsys.readouterr().err
        assert read.read_bytes() == before


def test_a_release_is_not_written_over_unless_one_says_so(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, *QUICK]
    assert run(*words, "-o", out) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run(*words, "-o", out) == 2
    assert "its epsilon is spent" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert run(*words, "-o", out, "--overwrite") == 0
    assert (out / "model.json").read_bytes() != before["model.json"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["schema", "{empty}", "--target", "y"], "there is no Parquet file in the folder {empty}"),
        (
            ["train", "{empty}", "--target", "y", "--epsilon", "1"],
            "there is no Parquet file in the folder {empty}",
        ),
        (
            ["predict", "{model}", "{empty}"],
            "cannot read {empty}: it is a folder; give a CSV or Parquet file",
        ),
    ],
)
def test_an_empty_folder_is_no_table(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = '{"target": {"column": "y", "low": 0, "high": 1}, "columns": {"x": {"kind": "boolean"}}}'
    model = tmp_path / "model.json"
    model.write_text(
        '{"format": "dplateau/model", "format_version": 2, "kind": "ridge", "data_norm": 1, '
        f'"classes": null, "weights": [[1]], "intercepts": [0], "constant": 0.5, "whitening": [], '
        f'"bend": null, "schema": {body}}}'
    )
    (tmp_path / "empty").mkdir()
    places = {"model": model, "empty": tmp_path / "empty"}
    assert run(*(word.format(**places) for word in words)) == 2
    said = capsys.readouterr().err
    assert said == f"dplateau: {expected.format(**places)}\n"


def test_options_speak_of_missing_cells_dates_and_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    body = [
        [
            "NA" if place % 9 == 0 else f"{rng.integers(18, 90)}",
            f"20{rng.integers(10, 24)}-0{rng.integers(1, 9)}-15",
            rng.choice(["Y", "N"]),
            f"{rng.normal(50, 9):.2f}",
        ]
        for place in range(400)
    ]
    data = write(tmp_path / "t.csv", body, "age,since,member,cost")
    words = ["train", data, "--target", "cost", "--target-bound", "0:100", "--epsilon", 9]
    words += ["--bounds", "age=18:90", "--bounds", "since=2010-01-01:2024-12-31"]
    words += ["--boolean", "member", *QUICK, "-o", tmp_path / "out"]
    assert run(*words) == 2
    assert "row 1 of column 'age' is missing" in capsys.readouterr().err
    for word in ("age=indicator", "indicator"):
        more = ["--missing", word, "--model", "huber", "--n-public", 500, "--safe-noise"]
        assert run(*words, *more, "--overwrite", "--json") == 0
        capsys.readouterr()
        model = TableModel.from_json((tmp_path / "out" / "model.json").read_text())
        assert model.kind == "huber"
        labels = model.schema.labels
        assert labels[:3] == ["age", "age is missing", "since"]
        assert len(labels) == (4 if "=" in word else 6)
        document = json.loads((tmp_path / "out" / "certificate.json").read_text())
        whole = Composition.from_dict(document)  # moments for whitening, and gradients
        assert {part.run.n for part in whole.certificates} == {500}
        said = [a.text for a in whole.assumptions]
        assert any("each noise value built from several" in text for text in said)
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "Private regression of 'cost'" in report
    assert "since is missing" in report


def test_a_ledger_pays_for_the_model_and_its_score_or_refuses(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = tmp_path / "survey.ledger"
    Ledger.create(book, epsilon=1.0, delta=1e-5)
    words = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "--ledger", book]
    assert run(*words, "--evaluate-epsilon", 0.5, "-o", tmp_path / "first") == 0
    capsys.readouterr()
    assert run(*words, "-o", tmp_path / "second") == 1
    assert "nothing of the budget is left" in capsys.readouterr().err
    assert not (tmp_path / "second").exists()
    first, refused = Ledger(book).statement().entries
    assert (first.status, refused.status) == ("spent", "refused")
    names = [f"{folder} (PrivateLogisticRegression)" for folder in ("first", "second")]
    assert [first.name, refused.name] == names
    assert "2 parts by worst part" in first.what
    found = json.loads((tmp_path / "first" / "certificate.json").read_text())
    assert Composition.from_dict(found).claimed_epsilon <= 1.0


@pytest.mark.parametrize("more", [[], ["--evaluate-epsilon", "0.5"]])
def test_a_seeded_training_claims_nothing_and_hides_its_seed(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    out = tmp_path / "out"
    words = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "-o", out]
    assert run(*words, "--seed", 987_654_321, "--json", *more) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["epsilon"], said["no_claim"]) == (None, "not private (seeded run)")
    assert all("987654321" not in path.read_text() for path in out.iterdir())
    report = (out / "report.txt").read_text()
    assert "Claim: not private (seeded run)" in report
    assert "it has none" in " ".join(report.split())
    assert "at epsilon" not in report
    page = (out / "report.html").read_text()
    for said in ("Neighbors", "rests on", "Private", "differ in one", "no record's gradient"):
        assert said not in report.replace("PrivateLog", ""), said
    assert "rests on" not in page
    assert "differ in one" not in page
    assert run("verify", out / "certificate.json") == 1
    assert "not private (seeded run)" in capsys.readouterr().out


def test_classes_count_by_public_weights(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", data, "--target", "income", "--epsilon", 2, *KNOWN, *QUICK]
    assert run(*words, "--class-weight", "high=30", "-o", tmp_path / "out") == 0
    assert "classes count by public weights, in their order: 1, 0.0333" in capsys.readouterr().out
    assert verify(json.loads((tmp_path / "out" / "certificate.json").read_text())).ok
    guess = TableModel.from_json((tmp_path / "out" / "model.json").read_text()).predict(
        read_table(data)
    )
    truth = np.array([row[-1] for row in rows(4000)])
    assert np.mean(guess[truth == "high"] == "high") > 0.97, "few of the heavy class are missed"
    for value, said in (
        ("high", "--class-weight takes CLASS=...; got 'high'"),
        ("high=many", "--class-weight takes CLASS=NUMBER; got high=many"),
        ("rich=2", "--class-weight names ['rich'], which are not among classes="),
        ("high=-1", "class"),
    ):
        assert run(*words, "--class-weight", value, "-o", tmp_path / "no") == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


def test_decisions_move_with_public_priors_and_cost_nothing(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", data, "--target", "income", "--epsilon", 2, *KNOWN, *QUICK, "--seed", 3]
    shares = {}
    for name, prior in {
        "plain": [],
        "rare": ["--class-prior", "high=0.5", "--decision-prior", "high=0.05"],
        "even": ["--class-prior", "high=0.05", "--decision-prior", "balanced"],
    }.items():
        assert run(*words, *prior, "-o", tmp_path / name) == 0
        guesses = tmp_path / f"{name}.csv"
        assert run("predict", tmp_path / name / "model.json", data, "-o", guesses) == 0
        shares[name] = guesses.read_text().count("high") / 4000
    assert shares["rare"] < shares["plain"] < shares["even"]
    capsys.readouterr()
    for wrong, reason in {
        "--class-prior": "belong together",
        "--decision-prior": "belong together",
    }.items():
        assert run(*words, wrong, "high=0.5", "-o", tmp_path / "no") == 2
        assert reason in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "no").exists()


def test_checkpoints_leave_and_are_in_the_claim(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, public = tmp_path / "out", write(tmp_path / "public.csv", rows(300, seed=3))
    words = ["train", data, "--target", "income", "--epsilon", 2, *KNOWN, *QUICK, "-o", out]
    known = ["--public-validation", public]
    assert run(*words, *known) == 2
    assert "--public-validation chooses among checkpoints" in capsys.readouterr().err
    assert run(*words, "--checkpoints", 3, "--nonnegative", "hours=99", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    names = [f"checkpoint-{place}.json" for place in (1, 2, 3)]
    assert [Path(path).name for path in said["checkpoints"]] == names
    claim = Composition.from_json((out / "certificate.json").read_text())
    assert verify(claim.to_dict()).ok
    assert claim.certificates[-1].run.has_checkpoints
    for name in ("model.json", *names):
        content = (out / name).read_bytes()
        assert claim.files[name] == hashlib.sha256(content).hexdigest()
    last, model = (
        TableModel.from_json((out / name).read_text()) for name in (names[-1], "model.json")
    )
    assert np.array_equal(last.weights, model.weights)
    assert model.schema.to_dict()["columns"]["hours"] == {"kind": "nonnegative", "high": 99.0}
    # Written over by fewer, which public rows choose among: nothing of the old ones is left.
    assert run(*words, "--checkpoints", 2, *known, "--overwrite") == 0
    shown = capsys.readouterr().out
    assert "the model at 2 checkpoints: checkpoint-1.json to checkpoint-2.json" in shown
    assert "scores on public rows: " in shown
    assert {path.name for path in out.glob("checkpoint-*")} == set(names[:2])
    assert run("predict", out / "checkpoint-1.json", data) == 0
