"""train, predict and schema: real files in, real files out, one line for what is wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dplateau.certificates import Certificate
from dplateau.cli import main
from dplateau.tables import TableModel, read_table
from dplateau.verify import verify

KNOWN = ["--bounds", "age=17:90", "--bounds", "hours=1:99", "--classes", "low,high"]
QUICK = ["--passes", "40"]


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
    assert said["epsilon"] <= 2 == round(said["total_epsilon"], 3)
    assert said["public_test_score"] > 0.8
    assert sorted(path.name for path in out.iterdir()) == [
        "certificate.json",
        "model.json",
        "report.txt",
    ]
    found = json.loads((out / "certificate.json").read_text())
    assert verify(found).ok
    assert Certificate.from_dict(found).run.n == 4000
    assert "Exact accuracy on the public test rows" in (out / "report.txt").read_text()
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
        assert column.tolist() == second.columns[name].tolist()
    words = ["--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "-o", tmp_path / "out"]
    assert run("train", tmp_path / "people.parquet", *words) == 0


def test_a_score_on_private_rows_is_charged(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "-o", out]
    assert run(*words, "--evaluate-epsilon", 0.5, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["total_epsilon"] == said["epsilon"] + 0.5
    assert said["evaluation"]["rows"] == 400
    assert said["evaluation"]["noise_std"] == pytest.approx(2**0.5 / (0.5 * 400))
    found = json.loads((out / "certificate.json").read_text())
    assert found["further_releases"][0]["epsilon"] == 0.5
    assert found["total_epsilon"] == said["total_epsilon"]
    assert verify(found).ok


def test_all_the_rows_of_a_person_are_protected_together(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, *QUICK, "-o", out]
    assert run(*words, "--max-records-per-person", 3, "--evaluate-epsilon", 0.5, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["max_records_per_person"] == 3
    # All three rows of a person may be among those held out.
    assert said["evaluation"]["noise_std"] == pytest.approx(3 * 2**0.5 / (0.5 * 400))
    found = json.loads((out / "certificate.json").read_text())
    assert verify(found).ok
    certificate = Certificate.from_dict(found)
    assert certificate.run.group_size == 3
    assert certificate.claimed_epsilon <= 1
    report = (out / "report.txt").read_text()
    assert "neighbors differ in all the records of one person, at most 3" in report
    assert "no person has more than 3 records (declared)" in report
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
    words = ["train", data, "--schema", schema, "--epsilon", 1, *KNOWN[:4], "--passes", 5]
    words += ["-o", tmp_path / "out", "--json"]
    for flag, most in (([], 2), (["--max-records-per-person", 3], 3)):
        assert run(*words, *flag) == 0
        assert json.loads(capsys.readouterr().out)["max_records_per_person"] == most
    assert run(*words, "--max-records-per-person", 4001) == 2
    assert "max_records_per_person=4001, but there are n=4000 records" in capsys.readouterr().err


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
    words = ["--target", "y", "--target-bounds", "0:30", "--bounds", "x=0:10", "--epsilon", 2]
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
    start = ["train", data, "--target", "income", "--epsilon", 1, *KNOWN, "--passes", 5, "-o", out]
    assert run(*start, *words) == 0
    said = capsys.readouterr()
    assert f"dplateau: warning: {reason}" in said.err
    assert reason in (out / "report.txt").read_text()


GOOD = "age,town,hours,income\n20,Rome,3,low\n30,Oslo,9,high\n"
BAD_FILES = {
    "missing target": (GOOD.replace("income", "wage"), "no column 'income' to predict"),
    "empty": ("", "is empty"),
    "header only": ("age,town,hours,income\n", "no rows"),
    "wrong encoding": (GOOD.replace("Rome", "Orléans").encode("latin-1"), "UTF-8 text"),
    "empty number": (GOOD.replace("20,", ","), "missing or infinite"),
    "NaN": (GOOD.replace("20,", "nan,"), "missing or infinite"),
    "empty text": (GOOD.replace("Rome", ""), "missing values"),
    "unknown class": (GOOD.replace("high", "huge"), "none of the declared classes"),
    "mixed types": (GOOD.replace("20,", "old,"), "holds text"),
    "ragged": (GOOD + "1,2\n", "different numbers of cells"),
    "two columns of one name": (GOOD.replace("town", "age"), "two columns named 'age'"),
    "column without a name": (GOOD.replace("town", ""), "has no name"),
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
        ([*KNOWN, "--bounds", "wage=1:2"], "no column 'wage'"),
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
