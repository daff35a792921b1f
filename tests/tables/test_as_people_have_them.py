"""Tables as people have them: missing cells, dates, booleans, separators, identifiers, frames."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dplateau import InvalidInput, load_model
from dplateau.tables import (
    Boolean,
    Categories,
    Day,
    Hashed,
    Ignored,
    Nonnegative,
    Numeric,
    Schema,
    Table,
    Target,
    as_table,
    encode_features,
    encode_target,
    fit_table,
    read_table,
)
from dplateau.tables.schema import completed, draft, looks_like_identifier, overridden

CLASSES = Target("y", classes=("no", "yes"))


def encoded(cells: list[Any], column: Any) -> list[list[float]]:
    table = as_table({"x": cells, "y": ["no"] * len(cells)})
    return encode_features(table, Schema(CLASSES, {"x": column})).tolist()


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("cells", "column", "features"),
    [
        ([0.0, None, 10.0], Numeric(0, 10, "zero"), [[-1], [0], [1]]),
        ([0.0, None, 10.0], Numeric(0, 10, "indicator"), [[-1, 0], [0, 1], [1, 0]]),
        ([0.0, None, 10.0], Numeric(0, 10, 7.5), [[-1], [0.5], [1]]),
        ([0.0, None, 5.0], Nonnegative(10, "zero"), [[0], [0], [0.5]]),
        ([-3.0, None, 50.0], Nonnegative(10, "indicator"), [[0, 0], [0, 1], [1, 0]]),
        ([0.0, None, 5.0], Nonnegative(10, 2.5), [[0], [0.25], [0.5]]),
        ([True, None, False], Boolean("zero"), [[1], [0], [0]]),
        ([True, None, False], Boolean("indicator"), [[1, 0], [0, 1], [0, 0]]),
        ([True, None, False], Boolean(True), [[1], [1], [0]]),
        (["yes", "", "N"], Boolean("indicator"), [[1, 0], [0, 1], [0, 0]]),
        (["a", "NA", "b"], Categories(("a", "b"), "zero"), [[1, 0], [0, 0], [0, 1]]),
        (["a", None, "c"], Categories(("a",), "indicator"), [[1, 0], [0, 1], [0, 0]]),
        (["a", None, "b"], Categories(("a", "b"), "b"), [[1, 0], [0, 1], [0, 1]]),
        # A declared category is never a missing value.
        (["a", "NA"], Categories(("a", "NA")), [[1, 0], [0, 1]]),
        (
            ["2000-01-01", "NA", "2000-01-03"],
            Day(datetime.date(2000, 1, 1), datetime.date(2000, 1, 5), "indicator"),
            [[-1, 0], [0, 1], [0, 0]],
        ),
        (
            [datetime.date(2000, 1, 5), None],
            Day(datetime.date(2000, 1, 1), datetime.date(2000, 1, 5), "2000-01-02"),
            [[1], [-0.5]],
        ),
    ],
)
def test_missing_cells_count_as_declared(cells: Any, column: Any, features: Any) -> None:
    assert encoded(cells, column) == features
    assert len(features[0]) == len(column.labels("x"))


def test_missing_text_is_hashed_only_if_declared() -> None:
    with_indicator = np.array(encoded(["a", None], Hashed(4, "indicator")))
    assert with_indicator[0, :4].sum() == 1
    assert with_indicator[1].tolist() == [0, 0, 0, 0, 1]
    unknown = np.array(encoded(["unknown", None], Hashed(4, "unknown")))
    assert unknown[0].tolist() == unknown[1].tolist()


@pytest.mark.parametrize(
    ("cells", "column"),
    [
        ([1.0, None], Numeric(0, 10)),
        (["a", ""], Categories(("a",))),
        (["a", "NA"], Hashed()),
        ([True, None], Boolean()),
        (["2000-01-01", None], Day(datetime.date(2000, 1, 1), datetime.date(2001, 1, 1))),
    ],
)
def test_undeclared_missing_cells_are_refused_by_their_place(cells: Any, column: Any) -> None:
    with pytest.raises(InvalidInput, match=r"row 2 of column 'x' is missing: declare .*--missing"):
        encoded(cells, column)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Numeric(0, 1, 2), "a number of the range; got 2"),
        (lambda: Numeric(0, 1, "middle"), "a number of the range; got 'middle'"),
        (lambda: Nonnegative(0), "a range needs low < high, both finite; got 0:0"),
        (lambda: Nonnegative(9, -1), "a number of the range; got -1"),
        (lambda: Categories(("a",), "b"), "one of the categories; got 'b'"),
        (lambda: Boolean("perhaps"), "true or false; got 'perhaps'"),
        (lambda: Hashed(4, 3), "a text; got 3"),
        (lambda: Day("2000-01-01", "2000-01-02", "1999-01-01"), "a date of the range"),
    ],
)
def test_what_missing_cells_cannot_count_as(make: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        make()


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_tells_the_separator(separator: str, tmp_path: Path) -> None:
    lines = ["age{s}born{s}member{s}note{s}y", '1.5{s}1999-12-31{s}true{s}"a, b; c"{s}no']
    path = write(tmp_path / "t.csv", "\n".join(lines).replace("{s}", separator) + "\n")
    table = read_table(path)
    assert table.types() == {
        "age": "number",
        "born": "date",
        "member": "boolean",
        "note": "text",
        "y": "text",
    }
    assert table.cells("note").texts() == ["a, b; c"]
    assert table.cells("born").texts() == ["1999-12-31"]
    assert table.cells("member").texts() == ["true"]


def test_decimal_commas_and_separators_can_be_said(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,b;c\n1,5;2,25\n")
    table = read_table(path, separator=";", decimal=",")
    assert list(table.columns) == ["a,b", "c"]
    assert table.cells("c").values.tolist() == [2.25]
    with pytest.raises(InvalidInput, match="separator must be one ASCII character"):
        read_table(path, separator=";;")


def test_numbers_with_missing_words_stay_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,b\n1,x\nNA,NA\n,\n4.5,None\n")
    table = read_table(path)
    assert table.types() == {"a": "number", "b": "text"}
    assert np.isnan(table.cells("a").values).tolist() == [False, True, True, False]
    assert table.cells("b").texts() == ["x", "NA", "", "None"]


def test_what_is_no_number_is_missing_where_a_number_is_declared() -> None:
    words = ["?", "-", ".", "None", "n/a", "<NA>", " NA "]
    assert encoded(words, Numeric(0, 10, "zero")) == [[0.0]] * len(words)
    assert encoded(["?", "a"], Categories(("?", "a"))) == [[1, 0], [0, 1]]


def test_blanks_do_not_count_and_the_index_of_pandas_is_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", ", age , town\n0, 30 , Oslo \n1, old ,Rome\n")
    table = read_table(path)
    assert list(table.columns) == ["Unnamed: 0", "age", "town"]
    assert table.cells("town").texts() == ["Oslo", "Rome"]
    assert table.cells("age").texts() == ["30", "old"]
    assert looks_like_identifier("Unnamed: 0")


@pytest.mark.parametrize("header", ["39,State-gov,Alice Smith", "Alice Smith;2024-05-01;Oslo"])
def test_a_record_in_place_of_the_header_is_refused_and_not_shown(
    header: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "t.csv", f"{header}\n{header}\n")
    with pytest.raises(InvalidInput, match="seems to be a record") as refusal:
        read_table(path)
    assert not any(cell in str(refusal.value) for cell in ("39", "State", "Alice", "2024", "Oslo"))


@pytest.mark.parametrize("header", ["label,0,1,2", "town,2019,2020,2021", "q1,2nd floor,a"])
def test_numbers_that_count_columns_are_names(header: str, tmp_path: Path) -> None:
    row = ",".join(["5"] * len(header.split(",")))
    assert list(
        read_table(write(tmp_path / "t.csv", f"{header}\n{row}\n")).columns
    ) == header.split(",")


def test_an_odd_cell_far_down_is_found_by_its_place(tmp_path: Path) -> None:
    """The first block of a file decides about types; later blocks may disagree."""
    note = "n" * 2000
    lines = [f"{i},{i % 7},no,{note}" for i in range(10_000)]
    lines[9_000] = f"secret,3,no,{note}"
    path = write(tmp_path / "t.csv", "a,b,y,note\n" + "\n".join(lines) + "\n")
    assert path.stat().st_size > 1 << 24
    table = read_table(path)
    assert table.types() == {"a": "text", "b": "number", "y": "text", "note": "text"}
    schema = Schema(CLASSES, {"a": Numeric(0, 9), "b": Numeric(0, 9)})
    with pytest.raises(InvalidInput, match="row 9001 of column 'a' holds text where") as said:
        encode_features(table, schema)
    assert "secret" not in str(said.value)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in ("id", "ID", "customer_id", "userId", "UUID", "E-Mail", "name")),
        *((name, True) for name in ("last_name", "patient number", "Unnamed: 0", "phone", "index")),
        *(
            (name, False)
            for name in ("age", "paid", "Neighborhood", "kids", "valid", "BMI", "Home")
        ),
    ],
)
def test_names_of_identifiers(name: str, is_one: bool) -> None:
    assert looks_like_identifier(name) == is_one


def test_a_draft_ignores_identifiers_and_knows_types() -> None:
    types: Any = {
        "customer_id": "number",
        "age": "number",
        "ok": "boolean",
        "on": "date",
        "y": "text",
    }
    text = draft(types, "y")
    with pytest.raises(InvalidInput, match=r"columns 'age', 'on': no public range") as said:
        Schema.from_toml(text)
    assert "problems" not in str(said.value), "one reason for two columns is one problem"
    filled = text.replace('low = "?"\nhigh = "?"', "low = 1\nhigh = 2", 1).replace(
        'low = "?"\nhigh = "?"', "low = 2000-01-01\nhigh = 2001-01-01"
    )
    found = Schema.from_toml(filled)
    assert found.columns == {
        "customer_id": Ignored(),
        "age": Numeric(1, 2),
        "ok": Boolean(),
        "on": Day(datetime.date(2000, 1, 1), datetime.date(2001, 1, 1)),
    }
    assert Schema.from_dict(found.to_dict()) == found


def test_what_is_never_negative_needs_its_end_alone() -> None:
    text = "[target]\ncolumn = 'y'\n[columns.pay]\nkind = 'nonnegative'\n"
    with pytest.raises(InvalidInput, match=r"state high \(--nonnegative COLUMN=HIGH\)"):
        Schema.from_toml(text + "high = '?'\n")
    with pytest.raises(InvalidInput, match=r"kind = 'nonnegative' has no field 'low'"):
        Schema.from_toml(text + "high = 9\nlow = 1\n")
    found = Schema.from_toml(text + "high = 200\nmissing = 'zero'\n")
    assert found.columns == {"pay": Nonnegative(200.0, "zero")}
    assert Schema.from_dict(found.to_dict()) == found


def test_options_override_a_draft_and_keep_what_they_do_not_speak_of() -> None:
    types: Any = {"age": "number", "town": "text", "y": "number"}
    drafted: Any = {
        "target": {"column": "y", "low": "?", "high": "?"},
        "columns": {
            "age": {"kind": "numeric", "low": "?", "high": "?", "missing": "zero"},
            "town": {"kind": "hashed", "buckets": 8},
        },
    }
    options: Any = {
        "target": {"classes": ["0", "1"]},
        "columns": {"age": {"kind": "numeric", "low": 0, "high": 9}, "town": {"missing": "zero"}},
        "missing": None,
        "max_records_per_person": 2,
    }
    found = completed(overridden(drafted, options), types, source="s", data="d")
    assert found.columns == {"age": Numeric(0, 9, "zero"), "town": Hashed(8, "zero")}
    assert found.target == Target("y", classes=("0", "1"))
    assert found.max_records_per_person == 2
    other = completed(
        overridden(drafted, {"target": {"column": "town", "classes": ["a", "b"]}, **KNOWN}),
        types,
        source="s",
        data="d",
    )
    assert list(other.columns) == ["age", "y"]


KNOWN: Any = {
    "columns": {
        name: {"kind": "numeric", "low": 0, "high": 1, "missing": "indicator"}
        for name in ("age", "y")
    }
}


def test_all_problems_are_said_at_once() -> None:
    declared: Any = {
        "target": {"column": "y"},
        "max_records_per_person": 0,
        "columns": {
            "a": {"kind": "numeric"},
            "b": {"kind": "numeric", "low": 3, "high": 1},
            "c": {"kind": "rare"},
            "gone": {"kind": "ignored"},
        },
    }
    types: Any = dict.fromkeys(["a", "b", "c", "d", "y"], "number")
    with pytest.raises(InvalidInput) as said:
        completed(declared, types, source="people.toml", data="people.csv")
    text = str(said.value)
    assert text.startswith("people.toml has 6 problems: (1) the target 'y' is a number")
    for part in (
        "columns 'a', 'd': no public range is known",
        "column 'b': a range needs low < high",
        "column 'c': needs kind",
        "column 'gone': people.csv has no column of that name",
        "max_records_per_person must be at least 1",
    ):
        assert part in text


def test_columns_that_nobody_described() -> None:
    types: Any = {"id": "number", "note": "text", "ok": "boolean", "y": "text"}
    found = completed({"target": {"column": "y"}}, types, source="s", data="d")
    assert found.columns == {"id": Ignored(), "note": Hashed(), "ok": Boolean()}
    assert found.used == ["note", "ok"]


# --- from frames, and back from a file -----------------------------------------------------------


def people(count: int = 400) -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, count).astype(float)
    town = rng.choice(["Rome", "Oslo"], count)
    return {
        "age": age.tolist(),
        "town": town.tolist(),
        "y": np.where(age + 20 * (town == "Oslo") > 60, "yes", "no").tolist(),
        "cost": (3 * age + 10 * rng.normal(size=count)).tolist(),
    }


def test_frames_are_tables() -> None:
    plain = as_table(people())
    for frame in (pd.DataFrame(people()), pl.DataFrame(people())):
        found = as_table(frame)
        assert found.types() == plain.types()
        for name in found.columns:
            assert found.cells(name).texts() == plain.cells(name).texts()


@pytest.mark.parametrize("kind", ["logistic", "svm", "ridge", "huber"])
def test_a_model_is_loaded_as_a_fitted_estimator(kind: str, tmp_path: Path) -> None:
    numbers = kind in ("ridge", "huber")
    target = Target("cost", bounds=Numeric(0, 300)) if numbers else CLASSES
    columns = {"age": Numeric(18, 90), "town": Categories(("Rome", "Oslo"))}
    table = as_table(people())
    found = fit_table(table, Schema(target, columns), epsilon=20.0, model=kind, compute_budget=600)
    found.write(tmp_path / "out", "a report\n")
    loaded = load_model(tmp_path / "out" / "model.json")
    assert type(loaded["model"]).__name__.startswith("Private")
    assert loaded["encode"].get_feature_names_out().tolist() == ["age", "town=Rome", "town=Oslo"]
    frame = pd.DataFrame(people())
    assert loaded.predict(frame).tolist() == found.model.predict(table).tolist()
    if kind == "logistic":
        np.testing.assert_allclose(loaded.predict_proba(frame), found.model.probabilities(table))
    else:
        with pytest.raises(InvalidInput, match="gives no probabilities"):
            found.model.probabilities(table)
    truth = frame[target.column]
    assert loaded.score(frame, truth) == pytest.approx(found.model.score(table))
    assert loaded.score(frame, truth) > 0.7


def test_kinds_of_models_that_do_not_fit_the_target() -> None:
    with pytest.raises(InvalidInput, match="model must be one of 'logistic', 'svm'"):
        fit_table(as_table(people()), Schema(CLASSES, {}), epsilon=1.0, model="ridge")


def test_a_hidden_number_of_rows() -> None:
    schema = Schema(CLASSES, {"age": Numeric(18, 90)})
    asked: dict[str, Any] = {"epsilon": 1.0, "n_public": 1000, "compute_budget": 5}
    found = fit_table(as_table(people()), schema, **asked)
    assert found.plan.run.n == 1000
    with pytest.raises(InvalidInput, match="which n_public hides"):
        fit_table(as_table(people()), schema, evaluate_epsilon=1.0, **asked)


SECRETS = ("Alice", "7654321")
BAD = {
    "mixed": {"a": ["1.5", "Alice"], "y": ["no", "yes"]},
    "infinite": {"a": [7654321.0, float("inf")], "y": ["no", "yes"]},
    "missing": {"a": [7654321.0, None], "y": ["no", "yes"]},
    "strange class": {"a": [1.0, 2.0], "y": ["no", "Alice"]},
    "missing class": {"a": [1.0, 7654321.0], "y": ["no", None]},
}


@pytest.mark.parametrize("case", list(BAD))
@pytest.mark.parametrize("make", ["csv", "parquet", "pandas", "polars"])
def test_cells_stay_unsaid(case: str, make: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(BAD[case])
    data: Any = frame
    if make == "polars":
        data = pl.DataFrame(BAD[case], strict=False)
    elif make == "csv":
        data = tmp_path / "data.csv"
        frame.to_csv(data, index=False)
    elif make == "parquet":
        data = tmp_path / "data.parquet"
        frame.to_parquet(data)
    schema = Schema(CLASSES, {"a": Numeric(0, 10)})

    def act() -> None:
        table = as_table(data)
        encode_features(table, schema)
        encode_target(table, schema)

    with pytest.raises(InvalidInput, match=r"row 2 of column '[ay]'") as said:
        act()
    link: BaseException | None = said.value
    while link is not None:
        assert not [secret for secret in SECRETS if secret in f"{link} {link.args!r}"]
        link = link.__cause__ or link.__context__


def test_frames_of_no_cells_stay_unsaid() -> None:
    for cells in ([{"Alice": 1}, 3], ["Alice", 7654321.0], [b"\xff\xfe", "Alice"]):
        with pytest.raises(InvalidInput, match="column 'a'") as said:
            Table(as_table(pd.DataFrame({"a": cells})).columns, "x").cells("b")
        link: BaseException | None = said.value
        while link is not None:
            assert not [secret for secret in SECRETS if secret in f"{link} {link.args!r}"]
            link = link.__cause__ or link.__context__


def test_names_of_columns_turn_no_numbers_of_the_report() -> None:
    odd = "age\u202e\x1b[2J"
    table = as_table(pd.DataFrame({odd: range(400), "y": ["no", "yes"] * 200}))
    schema = Schema(Target("y", classes=("no", "yes")), {odd: Numeric(0, 400)})
    text = fit_table(table, schema, epsilon=1.0, compute_budget=20).report("t")
    assert "age\\u202e\\x1b[2J" in text
    assert all(line.isprintable() for line in text.splitlines())
